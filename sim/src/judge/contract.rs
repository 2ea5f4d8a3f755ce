//! The contract of single calls: a stale id is never acted on and an id is used once, a publish
//! gets an answer that it may get, a saturated shard admits nothing, a milder memory band comes
//! only after its dwell, and nothing is dropped for a peer that takes bytes.

use super::{Finding, Found};
use sluicegate_core::{Ack, Band, Limits, Outcome, Place, Policy, Reason, Verdict};
use std::collections::BTreeSet;

const NAME: &str = "contract";

/// What one shard promised.
#[derive(Debug, Default)]
pub struct Contract {
    /// Ids that were given: kind and bits.
    given: BTreeSet<(Thing, u64)>,
    /// Those of them that have ended.
    ended: BTreeSet<(Thing, u64)>,
    band: Band,
    /// When the band was entered, in nanoseconds.
    since: u64,
}

/// What an id names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thing {
    /// A connection.
    Conn,
    /// An outlet.
    Outlet,
    /// A subscription.
    Sub,
}

/// A drop for one subscription, and the state of its outlet.
#[derive(Clone, Copy, Debug)]
pub struct Dropped {
    /// Where and why.
    pub why: (Place, Reason),
    /// The subscription's policy.
    pub policy: Policy,
    /// Whether its outlet refuses, or did before the input.
    pub refusing: bool,
    /// Whether its outlet has refused since its queue was last empty.
    pub pressed: bool,
}

impl Contract {
    /// A new id was given.
    pub fn gave(&mut self, thing: Thing, id: u64) -> Found {
        if self.given.insert((thing, id)) {
            return Ok(());
        }
        bad(format!("the id {id:#x} was given twice"))
    }

    /// What an id names has ended: the id is stale from now on.
    pub fn ended(&mut self, thing: Thing, id: u64) {
        if self.given.contains(&(thing, id)) {
            self.ended.insert((thing, id));
        }
    }

    /// Whether an id was given and what it names has ended.
    pub fn is_stale(&self, thing: Thing, id: u64) -> bool {
        self.ended.contains(&(thing, id))
    }

    /// An input named a stale id. `changed`: the shard's fingerprint is another one.
    pub fn stale(outcome: &Outcome, changed: bool) -> Found {
        let refused = match outcome {
            Outcome::Refused(why) | Outcome::Verdict(Verdict::Refused(why)) => {
                why.reason == Reason::Gone
            }
            Outcome::Done | Outcome::Ignored => true,
            _ => false,
        };
        if refused && !changed {
            return Ok(());
        }
        bad(format!("a stale id was acted on: {outcome:?}"))
    }

    /// A publish got its answer. `before`: the band before it.
    pub fn answered(limits: &Limits, ack: Ack, verdict: Verdict, bands: [Band; 2]) -> Found {
        let waits = match ack {
            Ack::None => limits.pub_ingress_wait == 1 || limits.lossless == 1,
            Ack::Now => false,
            Ack::Wait => true,
        };
        let fits = match verdict {
            Verdict::Queued(_) => bands != [Band::Saturated; 2],
            Verdict::Parked(_) => waits,
            Verdict::Refused(why) => ack != Ack::None || why.reason == Reason::Gone,
            Verdict::Shed(_) => ack == Ack::None,
        };
        if fits {
            return Ok(());
        }
        bad(format!("a publish with {ack:?} was answered {verdict:?} in the bands {bands:?}"))
    }

    /// The memory band after an input.
    pub fn band(&mut self, limits: &Limits, now: u64, band: Band) -> Found {
        let before = self.band;
        if band == before {
            return Ok(());
        }
        let stayed = now - self.since;
        (self.band, self.since) = (band, now);
        if band > before || stayed >= limits.band_dwell_ms * 1_000_000 {
            return Ok(());
        }
        let (from, to) = (before.name(), band.name());
        bad(format!("the band went from {from} to {to} after {stayed} ns, sooner than its dwell"))
    }

    /// Something was dropped for a subscription.
    pub fn dropped(dropped: &Dropped) -> Found {
        let Dropped { why: (place, reason), policy, refusing, pressed } = *dropped;
        let fits = match reason {
            Reason::Closed | Reason::MeshFull | Reason::Retention | Reason::Shutdown => true,
            Reason::Deadline => policy == Policy::Block,
            Reason::Stale => pressed && policy != Policy::Block,
            _ => refusing && policy != Policy::Block,
        };
        if fits {
            return Ok(());
        }
        let cell = crate::fact::name_cell(place, reason);
        bad(format!("{cell}: dropped under {policy:?} although its peer takes bytes or it blocks"))
    }

    /// What may wait: kept, and the most there may be.
    pub fn bound(what: &str, kept: u64, most: u64) -> Found {
        if kept <= most {
            Ok(())
        } else {
            bad(format!("{what}: {kept}, but at most {most} may be"))
        }
    }
}

fn bad(what: impl Into<String>) -> Found {
    Err(Finding::safety(NAME, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_core::{Refusal, Retry, Ticket};

    const GONE: Refusal =
        Refusal { place: Place::Table, reason: Reason::Gone, retry: Retry::Never };

    #[test]
    fn a_stale_id_may_only_be_refused() {
        let mut judge = Contract::default();
        judge.gave(Thing::Conn, 3).unwrap();
        judge.ended(Thing::Conn, 3);
        judge.ended(Thing::Conn, 4);
        assert!(judge.is_stale(Thing::Conn, 3) && !judge.is_stale(Thing::Conn, 4));
        Contract::stale(&Outcome::Refused(GONE), false).unwrap();
        Contract::stale(&Outcome::Done, false).unwrap();
        Contract::stale(&Outcome::Done, true).unwrap_err();
        Contract::stale(&Outcome::Id(4), false).unwrap_err();
        judge.gave(Thing::Conn, 3).unwrap_err();
    }

    #[test]
    fn answers_fit_their_acks_and_a_saturated_shard_admits_nothing() {
        let limits = Limits::default();
        let queued = Verdict::Queued(Ticket::from_bits(0));
        let parked = Verdict::Parked(Ticket::from_bits(0));
        let fits = |ack, verdict, bands| Contract::answered(&limits, ack, verdict, bands).is_ok();
        let (normal, full) = ([Band::Normal; 2], [Band::Saturated; 2]);
        assert!(fits(Ack::Now, queued, normal) && !fits(Ack::Now, queued, full));
        assert!(fits(Ack::Wait, parked, full) && !fits(Ack::None, parked, normal));
        let busy = Refusal { reason: Reason::Busy, ..GONE };
        assert!(fits(Ack::None, Verdict::Shed(busy), full));
        assert!(!fits(Ack::Now, Verdict::Shed(busy), full));
        assert!(!fits(Ack::None, Verdict::Refused(busy), full));
    }

    #[test]
    fn a_milder_band_waits_for_its_dwell() {
        let limits = Limits { band_dwell_ms: 1, ..Limits::default() };
        for (at, fine) in [(1_000_009, true), (1_000_008, false)] {
            let mut judge = Contract::default();
            judge.band(&limits, 8, Band::Severe).unwrap();
            judge.band(&limits, 9, Band::Saturated).unwrap();
            assert_eq!(judge.band(&limits, at, Band::Pressure).is_ok(), fine);
        }
    }

    #[test]
    fn drops_need_a_peer_that_takes_nothing() {
        let full = Dropped {
            why: (Place::Backlog, Reason::DropNew),
            policy: Policy::DropNew,
            refusing: true,
            pressed: true,
        };
        let stale = Dropped { why: (Place::Backlog, Reason::Stale), refusing: false, ..full };
        for fine in [full, stale] {
            Contract::dropped(&fine).unwrap();
        }
        let reads = Dropped { refusing: false, ..full };
        let block = Dropped { policy: Policy::Block, ..full };
        for bad in [reads, block, Dropped { pressed: false, ..stale }] {
            Contract::dropped(&bad).unwrap_err();
        }
        Contract::bound("batches", 4, 4).unwrap();
        Contract::bound("batches", 5, 4).unwrap_err();
    }
}
