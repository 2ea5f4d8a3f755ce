//! Checkpoint 5, backlog: what waits for one subscription.
//!
//! Question:  a batch reached a subscription; is it queued, is something dropped, or do we wait?
//! Invariant: nothing is dropped for an outlet that is taking bytes; a policy or a band drops only
//!            at an outlet that refuses.
//! When full: by policy, at a refusing outlet: `block` holds the topic, `drop_new` drops this
//!            batch, `drop_old` and `latest` drop the oldest that are not taken. At any other
//!            outlet the fan-out stops until the host has written.
//! Proof:     `each_policy_at_its_limit`, `nothing_is_dropped_for_a_peer_that_takes_bytes`,
//!            `bands_drop_only_at_refusing_outlets`, `gaps_merge_with_the_exact_count`,
//!            `books_close_under_random_operations`, `order`, `isolation`.

use crate::lag::Load;
use crate::shed::Band;
use crate::verdict::{Place, Policy, Reason};

/// Everything the decision depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) policy: Policy,
    /// Queued and not taken: of the subscription, or of its whole outlet when that is shared.
    pub(crate) waiting: Load,
    /// Handed out and not settled.
    pub(crate) taken: Load,
    pub(crate) limit: Load,
    /// Whose limit it is: this checkpoint's, or checkpoint 6's.
    pub(crate) place: Place,
    /// What the new batch costs.
    pub(crate) cost: u64,
    pub(crate) refusing: bool,
    pub(crate) band: Band,
}

/// What to do with a batch that reached a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Queue it.
    Accept,
    /// Drop it for this subscription.
    Drop(Place, Reason),
    /// Drop the oldest batch, then ask again.
    DropOldest,
    /// Let the host write, then ask again.
    Wait,
}

impl View {
    /// While its peer is not reading, checkpoint 6 has a limit of its own.
    pub(crate) fn narrow(&mut self, egress: Load) {
        if self.policy == Policy::Block {
            return;
        }
        let Load { batches, bytes } = self.limit;
        if egress.batches < batches || egress.bytes < bytes {
            let (batches, bytes) = (batches.min(egress.batches), bytes.min(egress.bytes));
            self.limit = Load { batches, bytes };
            self.place = Place::Egress;
        }
    }

    /// Decides. Cost: O(1). It is asked for each delivery.
    #[inline(always)]
    pub(crate) fn decide(&self) -> Decision {
        if self.policy == Policy::Block {
            return Decision::Accept;
        }
        if self.policy != Policy::Latest
            && self.refusing
            && let Some(reason) = self.band_reason()
        {
            return Decision::Drop(Place::Memory, reason);
        }
        if self.fits() {
            return Decision::Accept;
        }
        match self.policy {
            _ if !self.refusing => Decision::Wait,
            Policy::DropOld | Policy::Latest => Decision::DropOldest,
            Policy::DropNew => Decision::Drop(self.place, Reason::DropNew),
            Policy::Block => Decision::Accept,
        }
    }

    /// The load the limit is compared with.
    fn load(&self) -> Load {
        match self.policy {
            Policy::Block | Policy::DropNew => self.waiting.plus(self.taken),
            Policy::DropOld | Policy::Latest => self.waiting,
        }
    }

    /// Whether one more batch is within the limit. One alone always is.
    fn fits(&self) -> bool {
        let load = self.load();
        load.batches == 0
            || (load.batches < self.limit.batches && load.bytes + self.cost <= self.limit.bytes)
    }

    /// The band's reason to drop, if the queue is fuller than the band allows.
    fn band_reason(&self) -> Option<Reason> {
        let load = self.load();
        let fuller = |part: u32| {
            load.bytes * u64::from(part) > self.limit.bytes
                || u64::from(load.batches) * u64::from(part) > u64::from(self.limit.batches)
        };
        match self.band {
            Band::Normal => None,
            Band::Pressure => fuller(2).then_some(Reason::Pressure),
            Band::Severe => fuller(16).then_some(Reason::Severe),
            Band::Saturated => fuller(16).then_some(Reason::Saturated),
        }
    }
}

/// Whether a `block` subscription holds its topic: it has its limit or more.
pub(crate) const fn holds(waiting: Load, taken: Load, limit: Load) -> bool {
    let load = waiting.plus(taken);
    load.batches >= limit.batches || load.bytes >= limit.bytes
}

/// Whether a subscription that is catching up has enough to write: half of its limit.
pub(crate) const fn has_half(load: Load, limit: Load) -> bool {
    load.batches > limit.batches / 2 || load.bytes > limit.bytes / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Load = Load { batches: 2, bytes: 100 };

    fn view(policy: Policy, batches: u32, bytes: u64) -> View {
        View {
            policy,
            waiting: Load { batches, bytes },
            taken: Load::default(),
            limit: LIMIT,
            place: Place::Backlog,
            cost: 10,
            refusing: true,
            band: Band::Normal,
        }
    }

    #[test]
    fn each_policy_at_its_limit() {
        use Decision::{Accept, Drop, DropOldest};
        let new = Drop(Place::Backlog, Reason::DropNew);
        for (policy, full) in
            [(Policy::DropNew, new), (Policy::DropOld, DropOldest), (Policy::Latest, DropOldest)]
        {
            assert_eq!(view(policy, 1, 90).decide(), Accept, "just fits");
            assert_eq!(view(policy, 1, 91).decide(), full, "a byte too many");
            assert_eq!(view(policy, 2, 20).decide(), full, "a batch too many");
            assert_eq!(View { cost: 1000, ..view(policy, 0, 0) }.decide(), Accept, "alone");
        }
        assert_eq!(view(Policy::Block, 9, 900).decide(), Accept, "the topic was held before this");
    }

    #[test]
    fn what_is_taken_counts_for_drop_new_only() {
        let taken = Load { batches: 2, bytes: 20 };
        let with = |policy| View { taken, ..view(policy, 0, 0) }.decide();
        assert_eq!(with(Policy::DropNew), Decision::Drop(Place::Backlog, Reason::DropNew));
        assert_eq!(with(Policy::DropOld), Decision::Accept);
        assert!(holds(Load::default(), taken, LIMIT));
        assert!(!holds(Load { batches: 1, bytes: 99 }, Load::default(), LIMIT));
    }

    #[test]
    fn who_catches_up_is_filled_to_half_of_its_limit() {
        for (batches, bytes, enough) in [(1, 50, false), (2, 50, true), (1, 51, true)] {
            assert_eq!(has_half(Load { batches, bytes }, LIMIT), enough, "{batches} {bytes}");
        }
    }

    #[test]
    fn a_full_queue_that_takes_bytes_waits_for_the_host() {
        for policy in [Policy::DropNew, Policy::DropOld, Policy::Latest] {
            let view = View { refusing: false, band: Band::Saturated, ..view(policy, 2, 100) };
            assert_eq!(view.decide(), Decision::Wait);
        }
    }

    #[test]
    fn bands_drop_only_at_refusing_outlets() {
        let limit = Load { batches: u32::MAX, bytes: 160 };
        for (band, fits, reason) in [
            (Band::Pressure, 80, Reason::Pressure),
            (Band::Severe, 10, Reason::Severe),
            (Band::Saturated, 10, Reason::Saturated),
        ] {
            let at = |bytes| View { limit, band, ..view(Policy::DropOld, 1, bytes) };
            assert_eq!(at(fits).decide(), Decision::Accept);
            assert_eq!(at(fits + 1).decide(), Decision::Drop(Place::Memory, reason));
            assert_eq!(View { refusing: false, ..at(fits + 1) }.decide(), Decision::Accept);
            assert_eq!(View { policy: Policy::Block, ..at(159) }.decide(), Decision::Accept);
        }
    }

    #[test]
    fn bands_look_at_batches_too() {
        let limit = Load { batches: 32, bytes: 1 << 40 };
        for (band, fits, reason) in
            [(Band::Pressure, 16, Reason::Pressure), (Band::Severe, 2, Reason::Severe)]
        {
            let at = |batches| View { limit, band, ..view(Policy::DropNew, batches, 20) };
            assert_eq!(at(fits).decide(), Decision::Accept);
            assert_eq!(at(fits + 1).decide(), Decision::Drop(Place::Memory, reason));
        }
    }

    #[test]
    fn the_narrower_limit_is_named() {
        let narrowed = |policy, batches, bytes| {
            let mut view = view(policy, 0, 0);
            view.narrow(Load { batches, bytes });
            (view.limit, view.place)
        };
        for (batches, bytes, place) in [
            (LIMIT.batches, LIMIT.bytes, Place::Backlog),
            (LIMIT.batches + 1, LIMIT.bytes + 1, Place::Backlog),
            (LIMIT.batches - 1, LIMIT.bytes + 1, Place::Egress),
            (LIMIT.batches + 1, LIMIT.bytes - 1, Place::Egress),
        ] {
            let limit = Load { batches: batches.min(LIMIT.batches), bytes: bytes.min(LIMIT.bytes) };
            assert_eq!(narrowed(Policy::DropNew, batches, bytes), (limit, place));
            let whole = (LIMIT, Place::Backlog);
            assert_eq!(narrowed(Policy::Block, batches, bytes), whole, "never narrowed");
        }
    }
}
