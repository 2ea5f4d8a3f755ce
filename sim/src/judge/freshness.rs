//! Freshness: who keeps the newest (`drop_old`, `latest`) and reads has the newest record at the
//! end, and never gets an older one after a newer one was dropped for it. A memory band drops what
//! is new, and so does a full way between shards: what they took is not missed.

use super::{Finding, Found};
use crate::fact::Fact;
use sluicegate_core::Place;
use std::collections::BTreeMap;

const NAME: &str = "freshness";

/// Follows those that keep the newest.
#[derive(Debug, Default)]
pub struct Freshness {
    followers: BTreeMap<u32, Follower>,
}

#[derive(Debug, Default)]
struct Follower {
    topic: u32,
    /// The number after the last record received.
    next: u64,
    /// The number after the last record that a band or the mesh took.
    taken: u64,
}

impl Freshness {
    /// A subscriber that keeps the newest.
    pub fn follow(&mut self, subscriber: u32) {
        self.followers.insert(subscriber, Follower::default());
    }

    /// Follows a fact. Cost: O(log followers).
    pub fn hear(&mut self, fact: &Fact) {
        match *fact {
            Fact::Subscribed(sub, topic, _) => {
                if let Some(follower) = self.followers.get_mut(&sub) {
                    follower.topic = topic;
                }
            }
            Fact::Joined(sub, next) => {
                if let Some(follower) = self.followers.get_mut(&sub) {
                    follower.next = next;
                }
            }
            Fact::Received(sub, publish, first) => {
                if let Some(follower) = self.followers.get_mut(&sub) {
                    follower.next = first + u64::from(publish.records);
                }
            }
            Fact::Gap(sub, gap) if matches!(gap.place, Place::Memory | Place::Mesh) => {
                if let Some(follower) = self.followers.get_mut(&sub) {
                    follower.taken = gap.last + 1;
                }
            }
            Fact::Left(sub, _) => {
                self.followers.remove(&sub);
            }
            _ => {}
        }
    }

    /// The run ended. `next`: a topic's next number, by topic; `reads`: whether everything that
    /// waited for a subscriber has reached it.
    pub fn end(&self, next: impl Fn(u32) -> u64, reads: impl Fn(u32) -> bool) -> Found {
        for (sub, follower) in &self.followers {
            let due = next(follower.topic);
            let has = follower.next.max(follower.taken);
            if follower.next != 0 && has < due && reads(*sub) {
                let what = format!(
                    "subscriber {sub} keeps the newest and reads, but the last record it has is \
                     {} and the newest is {}",
                    follower.next - 1,
                    due - 1
                );
                return Err(Finding::safety(NAME, what));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::Publish;

    fn judge(received: &[u64]) -> Freshness {
        let mut judge = Freshness::default();
        judge.follow(0);
        judge.hear(&Fact::Subscribed(0, 2, 0));
        judge.hear(&Fact::Joined(0, 5));
        for &first in received {
            let publish = Publish { publisher: 0, topic: 2, number: 0, records: 2, bytes: 50 };
            judge.hear(&Fact::Received(0, publish, first));
            judge.hear(&Fact::Received(1, publish, first));
        }
        judge
    }

    #[test]
    fn who_has_the_newest_or_does_not_read_passes() {
        judge(&[5, 9]).end(|topic| [0, 0, 11][topic as usize], |_| true).unwrap();
        judge(&[5]).end(|_| 11, |_| false).unwrap();
        judge(&[]).end(|_| 5, |_| true).unwrap();
        let mut left = judge(&[5]);
        left.hear(&Fact::Left(0, 0));
        left.end(|_| 11, |_| true).unwrap();
    }

    #[test]
    fn what_a_band_or_the_mesh_took_is_not_missed() {
        use sluicegate_core::{Gap, Reason};
        for (place, last, fine) in [
            (Place::Memory, 10, true),
            (Place::Mesh, 10, true),
            (Place::Memory, 9, false),
            (Place::Backlog, 10, false),
        ] {
            let mut judge = judge(&[5]);
            let gap = Gap { first: 7, last, records: 1, place, reason: Reason::Pressure };
            judge.hear(&Fact::Gap(0, gap));
            assert_eq!(judge.end(|_| 11, |_| true).is_ok(), fine, "{place:?} {last}");
        }
    }

    #[test]
    fn who_reads_and_has_an_old_one_is_convicted() {
        for received in [&[5][..], &[]] {
            assert_eq!(judge(received).end(|_| 11, |_| true).unwrap_err().judge, NAME);
        }
    }
}
