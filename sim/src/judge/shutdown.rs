//! Shutdown: from its beginning a shard takes nothing new, it delivers nothing after its grace, and
//! what it had is delivered, dropped and counted, or was given up by its peer.

use super::{Finding, Found};
use crate::amount::{Nanos, Unit};
use crate::fact::Fact;
use sluicegate_core::Books;
use std::collections::BTreeMap;

const NAME: &str = "shutdown";

/// Watches shards that shut down.
#[derive(Debug, Default)]
pub struct Shutdown {
    /// In nanoseconds.
    grace: u64,
    began: BTreeMap<u32, u64>,
    /// By publisher, and by subscriber, while there is somebody.
    sources: BTreeMap<u32, u32>,
    subscribers: BTreeMap<u32, u32>,
}

impl Shutdown {
    /// A judge over this grace, in nanoseconds.
    pub fn new(grace: u64) -> Self {
        Self { grace, ..Self::default() }
    }

    /// Follows a fact. Cost: O(log peers).
    pub fn hear(&mut self, now: u64, fact: &Fact) -> Found {
        match *fact {
            Fact::Finishing(shard) => {
                self.began.insert(shard, now);
            }
            Fact::SourceCame(publisher, shard) => {
                self.sources.insert(publisher, shard);
                return self.nothing_new(shard, "a publisher");
            }
            Fact::Subscribed(sub, _, shard) => {
                self.subscribers.insert(sub, shard);
                return self.nothing_new(shard, "a subscription");
            }
            Fact::Admitted(publish) | Fact::Parked(publish) if !self.began.is_empty() => {
                let shard = self.sources.get(&publish.publisher).copied();
                return self.nothing_new(shard.unwrap_or(u32::MAX), "a publish");
            }
            Fact::Accepted(sub, _, _) if !self.began.is_empty() => {
                let shard = self.subscribers.get(&sub).copied().unwrap_or(u32::MAX);
                let over = self.began.get(&shard).map(|began| began + self.grace);
                if over.is_some_and(|over| now > over) {
                    let at = Nanos::show(now);
                    return bad(format!("shard {shard} delivered at {at}, after its grace"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn nothing_new(&self, shard: u32, what: &str) -> Found {
        if self.began.contains_key(&shard) {
            return bad(format!("shard {shard} took {what} although it shuts down"));
        }
        Ok(())
    }

    /// A shard whose grace is over, or the run ended: nothing waits on it.
    pub fn end(&self, shard: u32, now: u64, books: &Books) -> Found {
        let over = self.began.get(&shard).is_some_and(|began| began + self.grace < now);
        let Books { queued, waiting, lag, .. } = books;
        if !over || (queued.is_zero() && waiting.is_zero() && lag.is_zero()) {
            return Ok(());
        }
        let what = format!(
            "shard {shard} shut down and still has {} records queued, {} parked and {} waiting for \
             subscribers",
            queued.records, waiting.records, lag.records
        );
        Err(Finding::liveness(NAME, what))
    }
}

fn bad(what: String) -> Found {
    Err(Finding::safety(NAME, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::Publish;
    use sluicegate_core::Tally;

    const PUBLISH: Publish = Publish { publisher: 7, topic: 0, number: 0, records: 1, bytes: 50 };

    fn judge() -> Shutdown {
        let mut judge = Shutdown::new(100);
        judge.hear(0, &Fact::SourceCame(7, 1)).unwrap();
        judge.hear(0, &Fact::Subscribed(3, 0, 1)).unwrap();
        judge.hear(1, &Fact::Admitted(PUBLISH)).unwrap();
        judge.hear(10, &Fact::Finishing(1)).unwrap();
        judge
    }

    #[test]
    fn what_was_admitted_may_be_delivered_within_the_grace() {
        let mut judge = judge();
        judge.hear(110, &Fact::Accepted(3, PUBLISH, 1)).unwrap();
        judge.hear(111, &Fact::SourceCame(8, 0)).unwrap();
        judge.end(1, 111, &Books::default()).unwrap();
    }

    #[test]
    fn what_comes_after_the_beginning_or_after_the_grace_is_convicted() {
        for (at, fact) in [
            (11, Fact::Admitted(PUBLISH)),
            (11, Fact::Parked(PUBLISH)),
            (11, Fact::SourceCame(8, 1)),
            (11, Fact::Subscribed(4, 0, 1)),
            (111, Fact::Accepted(3, PUBLISH, 1)),
        ] {
            assert_eq!(judge().hear(at, &fact).unwrap_err().judge, NAME, "{fact:?}");
        }
    }

    #[test]
    fn what_is_left_after_the_grace_is_convicted() {
        let one = Tally { records: 1, bytes: 50 };
        for books in [
            Books { queued: one, ..Books::default() },
            Books { waiting: one, ..Books::default() },
            Books { lag: one, ..Books::default() },
        ] {
            judge().end(1, 110, &books).unwrap();
            judge().end(0, 111, &books).unwrap();
            judge().end(1, 111, &books).unwrap_err();
        }
    }
}
