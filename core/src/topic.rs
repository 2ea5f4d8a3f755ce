//! A topic: a name, an audience, and the sequence numbers of its records.

use crate::lag::Load;
use crate::ledger::TopicBooks;
use crate::list::{Link, List, node};
use crate::mesh::{CREDIT_BATCHES, CREDIT_BYTES, Named};
use crate::peers::Behind;
use crate::replay::Log;
use crate::time::Instant;
use crate::timer::Timed;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// What a shard is to a topic that another one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Member {
    /// It wants no batches.
    Off,
    /// It asked for them.
    Asked,
    /// They come.
    Joined,
}

/// What a shard with `block` subscriptions may still be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credit {
    pub(crate) shard: u32,
    pub(crate) batches: u32,
    pub(crate) bytes: u64,
    /// Counted in its topic's `holding`.
    pub(crate) holds: bool,
}

impl Credit {
    pub(crate) const fn new(shard: u32) -> Self {
        Self { shard, batches: CREDIT_BATCHES, bytes: CREDIT_BYTES, holds: false }
    }

    pub(crate) const fn is_spent(&self) -> bool {
        self.batches == 0 || self.bytes == 0
    }
}

#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) tenant: u32,
    pub(crate) name: Arc<str>,
    pub(crate) named: Named,
    /// The shard that gives sequence numbers.
    pub(crate) owner: u32,
    /// Random at creation: a resuming peer can tell this topic from an earlier one of its name.
    pub(crate) epoch: u64,
    /// Sequence number of the next record; the first is 1.
    pub(crate) next: u64,
    /// Subscriptions that get the next batch. Invariant: `subs[audience[i]].place == i`.
    pub(crate) audience: Vec<u32>,
    /// `block` subscriptions at their limit, and shards without credit; the topic accepts no batch
    /// while there is one.
    pub(crate) holding: u32,
    /// Subscriptions that name it, also those that left and still have slots.
    pub(crate) subs: u32,
    pub(crate) books: TopicBooks,
    /// At the owner: the shards that want its batches, one bit each.
    pub(crate) interest: u64,
    /// At the owner: what shards with `block` subscriptions may be sent.
    pub(crate) credits: Vec<Credit>,
    /// At the owner: the shards that lost a batch and were not told where the topic is, one bit
    /// each.
    pub(crate) lossy: u64,
    /// Elsewhere: whether the owner sends its batches.
    pub(crate) member: Member,
    /// Elsewhere: the owner was told that there are `block` subscriptions.
    pub(crate) told_block: bool,
    /// Elsewhere: the owner was asked and has not answered; it is told nothing more until then.
    pub(crate) asked: bool,
    /// Its `block` subscriptions here.
    pub(crate) blockers: u32,
    /// Elsewhere: subscriptions that catch up with it.
    pub(crate) fetchers: u32,
    /// Elsewhere: subscriptions that wait for the owner's answer.
    pub(crate) pending: List<Behind>,
    /// Elsewhere: where the topic was when its owner answered last. What was lost on the way is
    /// older, also when nobody here has noticed it yet.
    pub(crate) answered: u64,
    /// Elsewhere: bytes of the topic before `next`.
    pub(crate) passed: u64,
    /// Elsewhere: publishes on their way to the owner.
    pub(crate) flying: Load,
    /// Elsewhere: credit not returned yet.
    pub(crate) owed: Load,
    /// Its newest batches, for subscriptions that start in the past.
    pub(crate) log: Log,
    retained: Link,
    forget_at: Instant,
    idle: Link,
    kept: Link,
    unused: Link,
}

/// Topics of one tenant that nobody uses.
#[derive(Debug)]
pub(crate) struct Idle;
/// Topics of one tenant that nobody uses, but whose log holds something.
#[derive(Debug)]
pub(crate) struct Kept;
/// Topics of all tenants that nobody uses.
#[derive(Debug)]
pub(crate) struct Unused;

/// Topics with a log, longest silent first.
#[derive(Debug)]
pub(crate) struct Retained;

node!(Idle, Topic, idle);
node!(Kept, Topic, kept);
node!(Retained, Topic, retained);
node!(Unused, Topic, unused);

impl Timed<Retained> for Topic {
    fn deadline(&self) -> Instant {
        self.forget_at
    }
    fn set_deadline(&mut self, at: Instant) {
        self.forget_at = at;
    }
}

/// Bytes charged for a topic, its lane and its audience, besides its name.
pub(crate) const TOPIC: u64 = 400;

const _: () = assert!(size_of::<Topic>() as u64 <= TOPIC);

impl Topic {
    pub(crate) fn new(tenant: u32, name: &str, named: Named, (owner, epoch): (u32, u64)) -> Self {
        Self {
            tenant,
            named,
            owner,
            name: name.into(),
            epoch,
            next: 1,
            audience: Vec::new(),
            holding: 0,
            subs: 0,
            books: TopicBooks::default(),
            interest: 0,
            lossy: 0,
            credits: Vec::new(),
            member: Member::Off,
            told_block: false,
            asked: false,
            blockers: 0,
            fetchers: 0,
            pending: List::default(),
            answered: 0,
            passed: 0,
            flying: Load::default(),
            owed: Load::default(),
            log: Log::default(),
            retained: Link::default(),
            forget_at: Instant::NEVER,
            idle: Link::default(),
            kept: Link::default(),
            unused: Link::default(),
        }
    }

    /// Gives a batch its sequence numbers; returns the first.
    pub(crate) fn sequence(&mut self, records: u64) -> u64 {
        let first = self.next;
        self.next += records;
        first
    }

    /// Whether a subscription or another shard needs it.
    pub(crate) fn is_used(&self) -> bool {
        let elsewhere = self.member != Member::Off || self.flying.batches > 0;
        self.subs > 0 || self.interest != 0 || elsewhere
    }

    /// Bytes charged for it.
    pub(crate) fn charge(&self) -> u64 {
        TOPIC + u64::from(self.named.bytes)
    }

    #[cfg(any(test, feature = "check"))]
    pub(crate) fn is_idle(&self) -> bool {
        self.idle.is_linked()
    }

    #[cfg(any(test, feature = "check"))]
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.is_linked()
    }

    pub(crate) fn audience_len(&self) -> u32 {
        u32::try_from(self.audience.len()).expect("limits keep audiences below 32 bits")
    }

    /// Joins at the end. Returns its place.
    pub(crate) fn join(&mut self, sub: u32) -> u32 {
        self.audience.push(sub);
        self.audience_len() - 1
    }

    /// Leaves from `place`. A fan-out in progress has served every place before `served`; the
    /// order within the two parts may change, but nobody moves from one to the other.
    /// Returns the new `served`; `moved` is told each subscription that changed its place.
    pub(crate) fn leave(
        &mut self,
        place: u32,
        served: u32,
        mut moved: impl FnMut(u32, u32),
    ) -> u32 {
        let mut hole = place;
        let mut served_now = served;
        if place < served {
            served_now -= 1;
            if hole != served_now {
                let sub = self.audience[served_now as usize];
                self.audience[hole as usize] = sub;
                moved(sub, hole);
            }
            hole = served_now;
        }
        let last = self.audience.pop().expect("who leaves was in the audience");
        if hole as usize != self.audience.len() {
            self.audience[hole as usize] = last;
            moved(last, hole);
        }
        if self.audience.len() * 4 < self.audience.capacity() && self.audience.capacity() > 16 {
            self.audience.shrink_to(self.audience.len() * 2);
        }
        served_now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaving_during_a_fan_out_neither_skips_nor_repeats_anybody() {
        for served in 0..=6 {
            for place in 0..6 {
                let mut topic = Topic::new(0, "t", Named::of(0, "t"), (0, 0));
                (0..6).for_each(|sub| {
                    topic.join(sub);
                });
                let mut places: Vec<u32> = (0..6).collect();
                let now = topic.leave(place, served, |sub, at| places[sub as usize] = at);
                let sorted = |part: &[u32]| {
                    let mut part = part.to_vec();
                    part.sort_unstable();
                    part
                };
                let (done, rest) = topic.audience.split_at(now as usize);
                let stays = |sub: &u32| *sub != place;
                assert_eq!(sorted(done), (0..served).filter(stays).collect::<Vec<_>>());
                assert_eq!(sorted(rest), (served..6).filter(stays).collect::<Vec<_>>());
                for (at, sub) in topic.audience.iter().enumerate() {
                    assert_eq!(places[*sub as usize] as usize, at);
                }
            }
        }
    }

    #[test]
    fn sequence_numbers_start_at_one_and_have_no_holes() {
        let mut topic = Topic::new(0, "t", Named::of(0, "t"), (0, 0));
        assert_eq!([topic.sequence(1), topic.sequence(3), topic.sequence(1)], [1, 2, 5]);
        assert_eq!(topic.audience_len(), 0);
    }
}
