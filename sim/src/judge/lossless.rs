//! Lossless mode: no unacked publish is shed, no `block` subscription loses a record, and when one
//! stands still the places fill one after the other, from it back to the applications.

use super::{Finding, Found};
use crate::amount::{Nanos, Unit};
use crate::fact::{Fact, Stop, name_cell};
use std::collections::BTreeSet;

const NAME: &str = "lossless";

/// Watches a run in lossless mode.
#[derive(Debug, Default)]
pub struct Lossless {
    /// `lossless = 1`.
    on: bool,
    /// Subscribers under `block`.
    block: BTreeSet<u32>,
    /// The order in which places must fill.
    due: Vec<Stop>,
    /// Places that were full, by the time when they first were.
    arrived: Vec<(Stop, u64)>,
}

impl Lossless {
    /// A judge; `due` is the order in which places must fill, empty when it does not matter.
    pub fn new(on: bool, due: &[Stop]) -> Self {
        Self { on, due: due.to_vec(), ..Self::default() }
    }

    /// A subscriber under `block`.
    pub fn follow(&mut self, subscriber: u32) {
        self.block.insert(subscriber);
    }

    /// Follows a fact. Cost: O(log subscribers).
    pub fn hear(&mut self, now: u64, fact: &Fact) -> Found {
        match *fact {
            Fact::Shed(publish, why) if self.on => bad(format!(
                "publish {} was shed at {} in lossless mode",
                publish.number,
                name_cell(why.place, why.reason)
            )),
            Fact::Gap(sub, gap) if self.block.contains(&sub) => bad(format!(
                "a `block` subscription lost {} records at {}",
                gap.records,
                name_cell(gap.place, gap.reason)
            )),
            Fact::Paused(_) => self.fills(Stop::Source, now),
            Fact::Full(stop, _) => self.fills(stop, now),
            _ => Ok(()),
        }
    }

    fn fills(&mut self, stop: Stop, now: u64) -> Found {
        if self.arrived.iter().any(|(known, _)| *known == stop) {
            return Ok(());
        }
        self.arrived.push((stop, now));
        let Some(place) = self.due.iter().position(|due| *due == stop) else { return Ok(()) };
        let missing = self.due[..place].iter().find(|due| !self.has(**due));
        match missing {
            None => Ok(()),
            Some(before) => bad(format!(
                "{} was full at {} before {} was, but the block travels the other way",
                stop.name(),
                Nanos::show(now),
                before.name()
            )),
        }
    }

    fn has(&self, stop: Stop) -> bool {
        self.arrived.iter().any(|(known, _)| *known == stop)
    }

    /// The places that were full, by the time when they first were.
    pub fn arrived(&self) -> &[(Stop, u64)] {
        &self.arrived
    }
}

fn bad(what: String) -> Found {
    Err(Finding::safety(NAME, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::Publish;
    use sluicegate_core::{Gap, Place, Reason, Refusal, Retry};

    const ORDER: [Stop; 3] = [Stop::Backlog, Stop::Source, Stop::Window];

    fn hear(facts: &[Fact]) -> Found {
        let mut judge = Lossless::new(true, &ORDER);
        judge.follow(4);
        (0..).zip(facts).try_for_each(|(now, fact)| judge.hear(now, fact))
    }

    #[test]
    fn places_that_fill_in_order_pass_and_may_fill_again() {
        let (backlog, window) = (Fact::Full(Stop::Backlog, 0), Fact::Full(Stop::Window, 1));
        hear(&[backlog, Fact::Full(Stop::Lane, 0), Fact::Paused(1), window, backlog]).unwrap();
    }

    #[test]
    fn losses_and_places_out_of_order_are_convicted() {
        let why = (Place::Backlog, Reason::DropNew);
        let publish = Publish { publisher: 0, topic: 0, number: 0, records: 1, bytes: 50 };
        let refusal = Refusal { place: why.0, reason: why.1, retry: Retry::Never };
        let gap = Gap { first: 1, last: 1, records: 1, place: why.0, reason: why.1 };
        for facts in [
            &[Fact::Shed(publish, refusal)][..],
            &[Fact::Gap(4, gap)],
            &[Fact::Paused(1)],
            &[Fact::Full(Stop::Backlog, 0), Fact::Full(Stop::Window, 1)],
        ] {
            assert_eq!(hear(facts).unwrap_err().judge, NAME, "{facts:?}");
        }
        hear(&[Fact::Gap(3, gap)]).unwrap();
    }
}
