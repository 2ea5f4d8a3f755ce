//! Permits: what is in flight, queued or parked is within its bound at every moment, nothing is in
//! flight when nothing is on its way, and an acked publish gets exactly one answer.

use super::{Finding, Found};
use crate::fact::{Fact, Publish};
use sluicegate_core::Limits;
use std::collections::{BTreeMap, BTreeSet};

const NAME: &str = "permits";

/// Watches what is taken and what comes back.
#[derive(Debug, Default)]
pub struct Permits {
    /// Publishers that want answers, with the numbers of those they have not got.
    asked: BTreeMap<u32, BTreeSet<u64>>,
}

/// What a shard's admission and schedule hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    /// Publish bytes in flight (checkpoint 3).
    pub bytes: u64,
    /// Publishes queued (4).
    pub queued: u64,
    /// Publishes parked.
    pub parked: u64,
    /// Connections open.
    pub conns: u64,
    /// Some publish that had a slot was pushed out of it, and waits or has waited again.
    pub pushed_out: bool,
}

/// What a client's window holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowUse {
    /// Bytes in flight (checkpoint 1).
    pub bytes: u64,
    /// Publishes that hold a permit.
    pub permits: u64,
    /// Somebody could be granted a permit, and nobody was told.
    pub is_due: bool,
}

impl Permits {
    /// A publisher wants an answer to each publish.
    pub fn source(&mut self, publisher: u32) {
        self.asked.insert(publisher, BTreeSet::new());
    }

    /// Follows a fact. Cost: O(log publishes without an answer).
    pub fn hear(&mut self, fact: &Fact) -> Found {
        match *fact {
            Fact::Admitted(publish) | Fact::Parked(publish) => {
                let open = self.asked.get_mut(&publish.publisher);
                if open.is_some_and(|open| !open.insert(publish.number)) {
                    return bad(format!("publish {} was taken twice", publish.number));
                }
            }
            Fact::Committed(publish, _) | Fact::Failed(publish, _) => {
                return self.answered(&publish);
            }
            Fact::Refused(publish, _) => {
                let open = self.asked.get(&publish.publisher);
                if open.is_some_and(|open| open.contains(&publish.number)) {
                    let number = publish.number;
                    return bad(format!("publish {number} was taken and then refused at once"));
                }
            }
            Fact::Shed(publish, _) if self.asked.contains_key(&publish.publisher) => {
                return bad(format!("publish {} wants an answer and was shed", publish.number));
            }
            Fact::SourceLeft(publisher) => {
                if let Some(open) = self.asked.get_mut(&publisher) {
                    open.clear();
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn answered(&mut self, publish: &Publish) -> Found {
        let open = self.asked.get_mut(&publish.publisher);
        if open.is_some_and(|open| open.remove(&publish.number)) {
            return Ok(());
        }
        bad(format!("publish {} was answered twice, or unasked", publish.number))
    }

    /// A turn ended: everything is within its bound. Parked are at most one per source, which it
    /// brought last, and those that had a slot and were pushed out of it.
    pub fn turned(held: InUse, limits: &Limits) -> Found {
        let InUse { bytes, queued, parked, conns, pushed_out } = held;
        let returned = if pushed_out { limits.pub_queue_total } else { 0 };
        for (what, found, most) in [
            ("publish bytes are in flight", bytes, limits.pub_inflight_bytes),
            ("publishes are parked", parked, conns + returned),
        ] {
            if found > most {
                return bad(format!("{found} {what}, the most is {most}"));
            }
        }
        // Jobs that came from other shards are bounded by credit, not by slots.
        if limits.shards == 1 && queued > limits.pub_queue_total {
            let most = limits.pub_queue_total;
            return bad(format!("{queued} publishes are queued, the most is {most}"));
        }
        Ok(())
    }

    /// A client's window: within its capacity, or one publish alone.
    pub fn window(held: WindowUse, limits: &Limits) -> Found {
        let WindowUse { bytes, permits, is_due } = held;
        let most = limits.publish_inflight_bytes;
        if bytes > most && permits > 1 {
            return bad(format!("a client has {bytes} B in flight, its window is {most} B"));
        }
        if is_due {
            let what = "a client's window has room for one who waits, and nobody told him";
            return Err(Finding::liveness(NAME, what));
        }
        if bytes > 0 && permits == 0 {
            return bad(format!("{bytes} B of a client's window are held by nobody"));
        }
        Ok(())
    }

    /// The run ended with nothing queued, parked or on its way.
    pub fn end(&self, held: &[InUse]) -> Found {
        for InUse { bytes, .. } in held {
            if *bytes > 0 {
                return bad(format!("{bytes} publish bytes are in flight, but no publish is"));
            }
        }
        match self.asked.iter().find(|(_, open)| !open.is_empty()) {
            None => Ok(()),
            Some((publisher, open)) => {
                let count = open.len();
                let what = format!("{count} publishes of publisher {publisher} got no answer");
                Err(Finding::liveness(NAME, what))
            }
        }
    }
}

fn bad(what: String) -> Found {
    Err(Finding::safety(NAME, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_core::{Place, Reason, Refusal, Retry};

    const PUBLISH: Publish = Publish { publisher: 0, topic: 0, number: 3, records: 1, bytes: 50 };
    const WHY: Refusal =
        Refusal { place: Place::Schedule, reason: Reason::QueueFull, retry: Retry::Never };

    fn hear(facts: &[Fact]) -> (Permits, Found) {
        let mut judge = Permits::default();
        judge.source(0);
        let found = facts.iter().try_for_each(|fact| judge.hear(fact));
        (judge, found)
    }

    #[test]
    fn one_answer_is_right() {
        let (admitted, answer) = (Fact::Admitted(PUBLISH), Fact::Committed(PUBLISH, 1));
        for facts in [&[admitted, answer][..], &[Fact::Refused(PUBLISH, WHY)]] {
            let (judge, found) = hear(facts);
            found.unwrap();
            judge.end(&[InUse::default()]).unwrap();
        }
        let (judge, found) = hear(&[admitted, Fact::SourceLeft(0)]);
        found.unwrap();
        judge.end(&[]).unwrap();
    }

    #[test]
    fn no_answer_two_answers_and_answers_nobody_asked_for_are_convicted() {
        let (admitted, failed) = (Fact::Admitted(PUBLISH), Fact::Failed(PUBLISH, WHY));
        let streams: [&[Fact]; 6] = [
            &[admitted, admitted],
            &[failed],
            &[admitted, failed, Fact::Committed(PUBLISH, 1)],
            &[admitted, Fact::Refused(PUBLISH, WHY)],
            &[Fact::Shed(PUBLISH, WHY)],
            &[Fact::Committed(PUBLISH, 1)],
        ];
        for facts in streams {
            assert_eq!(hear(facts).1.unwrap_err().judge, NAME, "{facts:?}");
        }
        hear(&[admitted]).0.end(&[]).unwrap_err();
    }

    #[test]
    fn what_is_over_its_bound_or_held_by_nobody_is_convicted() {
        let limits = Limits::default();
        let full = InUse {
            bytes: limits.pub_inflight_bytes,
            queued: limits.pub_queue_total,
            parked: 2 + limits.pub_queue_total,
            conns: 2,
            pushed_out: true,
        };
        Permits::turned(full, &limits).unwrap();
        for over in [
            InUse { bytes: full.bytes + 1, ..full },
            InUse { queued: full.queued + 1, ..full },
            InUse { parked: full.parked + 1, ..full },
            InUse { parked: 3, pushed_out: false, ..full },
        ] {
            Permits::turned(over, &limits).unwrap_err();
        }
        Permits::default().end(&[InUse { bytes: 1, ..InUse::default() }]).unwrap_err();
    }

    #[test]
    fn a_window_over_its_capacity_or_asleep_is_convicted() {
        let limits = Limits::default();
        let most = limits.publish_inflight_bytes;
        let good = WindowUse { bytes: most, permits: 2, is_due: false };
        for held in [good, WindowUse { bytes: most + 1, permits: 1, ..good }] {
            Permits::window(held, &limits).unwrap();
        }
        for held in [
            WindowUse { bytes: most + 1, ..good },
            WindowUse { is_due: true, ..good },
            WindowUse { bytes: 1, permits: 0, is_due: false },
        ] {
            Permits::window(held, &limits).unwrap_err();
        }
    }
}
