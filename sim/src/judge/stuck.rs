//! Stuck states: work that nothing will ever wake. At a quiescent point the core's own predicate
//! must be false; at the end of a run everything has drained, or a peer that is named reads
//! nothing.

use super::{Finding, Found};

const NAME: &str = "stuck";

/// Turns in a row that may do nothing although the shard says that there is more to do.
const IDLE: u32 = 64;

/// Watches for a shard that spins, and judges the end.
#[derive(Debug, Default)]
pub struct Stuck {
    /// By shard.
    idle: std::collections::BTreeMap<u32, u32>,
}

/// What is left at the end of a run.
#[derive(Clone, Debug, Default)]
pub struct Leftover {
    /// Subscribers with something waiting: name, records, whether it reads nothing at the end.
    pub subscribers: Vec<(String, u64, bool)>,
    /// Subscribers that read nothing at the end, by name.
    pub stalled: Vec<String>,
    /// Publishers that are not read, by name.
    pub paused: Vec<String>,
    /// Publishes queued and parked.
    pub jobs: u64,
    /// Publishes that arrived and are not read although their source is not paused.
    pub unread: u64,
    /// Parcels on their way between shards.
    pub parcels: u64,
}

impl Leftover {
    /// Whether nothing is left anywhere, besides peers that read nothing and lack nothing.
    pub const fn is_nothing(&self) -> bool {
        let on_the_way = self.unread + self.parcels;
        self.subscribers.is_empty() && self.jobs == 0 && on_the_way == 0
    }

    /// What is left and where, in words; a few subscribers stand for all.
    pub fn words(&self) -> Vec<String> {
        const NAMED: usize = 3;
        let mut words = Vec::new();
        for (name, records, stalled) in self.subscribers.iter().take(NAMED) {
            let reads = if *stalled { "which reads nothing" } else { "which reads" };
            words.push(format!("{records} records for {name}, {reads}"));
        }
        if let Some(more) = self.subscribers.len().checked_sub(NAMED).filter(|more| *more > 0) {
            words.push(format!("records for {more} other subscribers"));
        }
        for (count, what) in [
            (self.jobs, "publishes queued or parked"),
            (self.unread, "publishes that nobody read"),
            (self.parcels, "parcels between shards"),
        ] {
            if count > 0 {
                words.push(format!("{count} {what}"));
            }
        }
        words
    }
}

impl Stuck {
    /// A shard's turn ended: whether it did anything, and whether it said that there is more.
    pub fn turned(&mut self, shard: u32, (did, more): (bool, bool)) -> Found {
        let idle = self.idle.entry(shard).or_default();
        *idle = if did || !more { 0 } else { *idle + 1 };
        if *idle < IDLE {
            return Ok(());
        }
        let what = format!("shard {shard} asked for {IDLE} turns in a row and did nothing in them");
        Err(Finding::liveness(NAME, what))
    }

    /// Nothing will happen before the next input: the core's own predicate.
    pub fn quiescent(predicate: Result<(), impl std::fmt::Display>) -> Found {
        predicate.map_err(|broken| Finding::liveness(NAME, broken.to_string()))
    }

    /// The run ended.
    pub fn end(left: &Leftover) -> Found {
        let stuck = |what: String| Err(Finding::liveness(NAME, what));
        for (name, records, stalled) in &left.subscribers {
            if !stalled {
                return stuck(format!("{records} records never reached {name}, which reads"));
            }
        }
        if left.unread > 0 {
            return stuck(format!("{} publishes arrived and were never read", left.unread));
        }
        if left.stalled.is_empty() && left.jobs > 0 {
            return stuck(format!("{} publishes never ran and every peer reads", left.jobs));
        }
        if left.stalled.is_empty() && left.parcels > 0 {
            let parcels = left.parcels;
            return stuck(format!("{parcels} parcels never came to a shard and every peer reads"));
        }
        if left.stalled.is_empty() && !left.paused.is_empty() {
            let names = left.paused.join(", ");
            return stuck(format!("{names} stayed paused and every peer reads"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_that_spins_is_convicted() {
        let mut judge = Stuck::default();
        let spin =
            |judge: &mut Stuck, turns| (0..turns).try_for_each(|_| judge.turned(0, (false, true)));
        spin(&mut judge, IDLE - 1).unwrap();
        judge.turned(0, (true, true)).unwrap();
        spin(&mut judge, IDLE - 1).unwrap();
        judge.turned(0, (false, false)).unwrap();
        judge.turned(1, (false, true)).unwrap();
        spin(&mut judge, IDLE).unwrap_err();
    }

    #[test]
    fn what_is_left_is_said_with_its_place() {
        assert!(Leftover::default().words().is_empty());
        let waits = |name: &str, stalled| (name.to_owned(), 7, stalled);
        let subscribers = [("a", true), ("b", false), ("c", true), ("d", true), ("e", true)];
        let left = Leftover {
            subscribers: subscribers.map(|(name, stalled)| waits(name, stalled)).to_vec(),
            jobs: 2,
            ..Leftover::default()
        };
        let words = left.words().join("; ");
        let expected = "7 records for a, which reads nothing; 7 records for b, which reads; \
                        7 records for c, which reads nothing; records for 2 other subscribers; \
                        2 publishes queued or parked";
        assert_eq!(words, expected);
    }

    #[test]
    fn the_cores_predicate_is_taken_at_its_word() {
        Stuck::quiescent(Ok::<(), String>(())).unwrap();
        let found = Stuck::quiescent(Err("a lane nobody wakes")).unwrap_err();
        assert_eq!((found.judge, found.what.as_str()), (NAME, "a lane nobody wakes"));
    }

    #[test]
    fn what_is_left_needs_a_peer_that_reads_nothing() {
        let stalled = || vec!["sleeper".to_owned()];
        let good = [
            Leftover::default(),
            Leftover { jobs: 3, paused: stalled(), stalled: stalled(), ..Leftover::default() },
            Leftover { parcels: 3, stalled: stalled(), ..Leftover::default() },
            Leftover {
                subscribers: vec![("sleeper".into(), 5, true)],
                stalled: stalled(),
                ..Leftover::default()
            },
        ];
        for left in good {
            Stuck::end(&left).unwrap();
        }
        let bad = [
            Leftover { jobs: 1, ..Leftover::default() },
            Leftover { parcels: 1, ..Leftover::default() },
            Leftover { paused: vec!["feed".into()], ..Leftover::default() },
            Leftover { unread: 1, stalled: stalled(), ..Leftover::default() },
            Leftover {
                subscribers: vec![("reader".into(), 1, false)],
                stalled: stalled(),
                ..Leftover::default()
            },
        ];
        for left in bad {
            Stuck::end(&left).unwrap_err();
        }
    }
}
