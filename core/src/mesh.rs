//! Checkpoint M, mesh: what shards send each other, and the bounded queue per destination.
//!
//! Question:  may this batch be queued for another shard, and what goes there next?
//! Invariant: one order per pair of shards. Batches of a topic whose subscribers over there include
//!            no `block` are at most `mesh_depth` per destination; those of any other topic are
//!            bounded by credit, and everything else by what it answers or by state.
//! When full: the batch is lost for that shard, which sees its topic's sequence jump, books the
//!            loss for each of its own subscriptions and tells them; when the queue has drained it
//!            is told where the topic is, so that a loss at the end is seen too.
//! Proof:     `a_full_queue_loses_the_batch_and_says_where_the_topic_is`,
//!            `shards_agree_with_one_order`, `a_held_topic_stops_its_publishers_on_every_shard`,
//!            `books_close_across_shards`.

use crate::id::{OutletId, SubId, Ticket};
use crate::lag::Load;
use crate::replay::{Keep, Past, Spot, Start};
use crate::time::Instant;
use crate::verdict::Refusal;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;

/// Jobs, and bytes, that a topic's publishers may have on the way to its owner from one shard; and
/// batches, and bytes, that its owner may have on the way to a shard with `block` subscriptions.
pub(crate) const CREDIT_BATCHES: u32 = 64;
pub(crate) const CREDIT_BYTES: u64 = 1 << 20;

/// The most shards of a process.
pub(crate) const MAX_SHARDS: u32 = 64;

/// What decisions know of a topic's name: who owns it, and how much it holds. A tape has no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// FNV-1a over the tenant's number and the name: the same on every machine.
    pub(crate) hash: u64,
    pub(crate) bytes: u32,
}

impl Named {
    pub(crate) fn of(tenant: u32, name: &str) -> Self {
        let bytes = tenant.to_le_bytes().into_iter().chain(name.bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self { hash, bytes: u32::try_from(name.len()).unwrap_or(u32::MAX) }
    }

    /// The shard that owns the topic. Numbered names differ in few bits of their hash; mixed, in
    /// all that decide.
    pub(crate) fn owner(self, shards: u32) -> u32 {
        let spread = crate::rand::mix(self.hash) >> 32;
        u32::try_from(spread % u64::from(shards)).expect("less than the shards")
    }

    /// The name under which a tape is played.
    pub(crate) fn on_tape(self) -> String {
        format!("{:016x}", self.hash)
    }
}

/// Something that one shard tells another. Hosts carry it, in order per pair, and never look
/// inside.
#[derive(Clone, Debug)]
pub struct Parcel {
    pub(crate) tenant: u32,
    pub(crate) topic: Arc<str>,
    pub(crate) name: Named,
    pub(crate) body: Body,
}

/// A published batch on its way.
#[derive(Clone, Debug)]
pub(crate) struct Carried {
    pub(crate) frame: Bytes,
    pub(crate) records: u64,
    /// When it was admitted.
    pub(crate) at: Instant,
    /// The publisher's own outlet, and its shard.
    pub(crate) except: Option<(u32, OutletId)>,
}

/// Where a topic is: the next sequence number, and the bytes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) next: u64,
    pub(crate) offset: u64,
    pub(crate) epoch: u64,
}

/// A question of a subscription that catches up with a topic of another shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    pub(crate) sub: SubId,
    /// What it wished for; or the next record that it needs.
    pub(crate) start: Start,
    /// Whether it is the latter.
    pub(crate) is_placed: bool,
    /// The most it takes. One batch may be larger.
    pub(crate) room: Load,
}

/// Where a subscription starts: the record that it wanted, the first that it gets, and the bytes
/// of the topic before that one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) wanted: u64,
    pub(crate) from: u64,
    pub(crate) offset: u64,
    /// Over, when what was not kept is a loss from the start on.
    pub(crate) past: Past,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// To the owner: a publish, and what is kept of it. The answer is `Done`.
    Forward(Carried, Ticket, Keep),
    /// From the owner: what became of a publish, and the credit back.
    Done(Ticket, Result<u64, Refusal>),
    /// To the owner: this shard wants the topic's batches, `block` or not; or no longer.
    Interest { on: bool, block: bool },
    /// From the owner: batches follow from here on; or they never will.
    Joined(Result<Head, Refusal>),
    /// From the owner: a batch, its first sequence number and the bytes before it.
    Batch(Carried, u64, u64),
    /// From the owner, after a loss: where the topic is.
    Lost(Head),
    /// To the owner: so many batches and bytes were offered to their audience.
    Credit(u32, u64),
    /// To the owner: a subscription needs batches of the past.
    Fetch(Fetch),
    /// From the owner: where a subscription starts.
    Place(SubId, Place),
    /// From the owner, for one subscription: a batch, and where it is.
    Past(SubId, Carried, Spot),
    /// From the owner: these were all, and where the topic is; true when nothing came after them.
    Fetched(SubId, Head, bool),
}

/// What waits for one other shard.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// With each, whether it is a batch that no credit bounds.
    queue: VecDeque<(Parcel, bool)>,
    /// Batches in it that no credit bounds.
    plain: u32,
    /// Topics of which a batch was lost, by index, each once.
    lossy: Vec<u32>,
}

/// Bytes charged for a parcel besides what it carries.
const PARCEL: u64 = 64;

impl Parcel {
    /// What it costs in memory.
    pub(crate) fn cost(&self) -> u64 {
        match &self.body {
            Body::Forward(carried, ..) | Body::Batch(carried, ..) | Body::Past(_, carried, _) => {
                PARCEL + crate::memory::cost(carried.frame.len() as u64, carried.records)
            }
            _ => PARCEL,
        }
    }
}

impl Outbox {
    /// Queues what credit or state bounds.
    pub(crate) fn push(&mut self, parcel: Parcel) {
        self.queue.push_back((parcel, false));
    }

    /// Whether another batch without credit may be queued.
    pub(crate) fn has_room(&self, depth: u64) -> bool {
        u64::from(self.plain) < depth
    }

    /// Whether fewer than half of the batches it may hold are in it.
    pub(crate) fn is_calm(&self, depth: u64) -> bool {
        u64::from(self.plain) * 2 < depth
    }

    /// Queues a batch without credit. Only when there is room.
    pub(crate) fn push_plain(&mut self, parcel: Parcel) {
        self.plain += 1;
        self.queue.push_back((parcel, true));
    }

    /// A first batch of a topic was lost: its head is told when the queue is empty.
    pub(crate) fn note_lost(&mut self, topic: u32) {
        self.lossy.push(topic);
    }

    /// A topic of which nothing is told any more. Cost: O(topics with losses).
    pub(crate) fn forget_lost(&mut self, topic: u32) {
        self.lossy.retain(|lossy| *lossy != topic);
    }

    /// The next parcel.
    pub(crate) fn pop(&mut self) -> Option<Parcel> {
        let (parcel, plain) = self.queue.pop_front()?;
        self.plain -= u32::from(plain);
        Some(parcel)
    }

    /// The next topic whose head is to be told: only when nothing else waits.
    pub(crate) fn pop_lossy(&mut self) -> Option<u32> {
        if self.queue.is_empty() { self.lossy.pop() } else { None }
    }

    /// What waits. For checks.
    #[cfg(any(test, feature = "check"))]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Parcel> {
        self.queue.iter().map(|(parcel, _)| parcel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_names_are_spread_over_all_shards() {
        for shards in [2_u32, 3, 4, 8, 64] {
            let mut topics = alloc::vec![0_u32; shards as usize];
            for number in 0..100 * shards {
                let owner = Named::of(0, &format!("room-{number}")).owner(shards);
                topics[owner as usize] += 1;
            }
            assert!(topics.iter().all(|count| (60..150).contains(count)), "{topics:?}");
        }
    }
    fn parcel(body: Body) -> Parcel {
        Parcel { tenant: 0, topic: "a".into(), name: Named::of(0, "a"), body }
    }

    #[test]
    fn a_parcel_costs_what_it_carries_and_a_little_more() {
        let frame = Bytes::from_static(&[0; 100]);
        let carried = Carried { frame, records: 2, at: Instant::ZERO, except: None };
        let batch = parcel(Body::Batch(carried, 1, 0));
        assert_eq!(batch.cost(), 64 + crate::memory::cost(100, 2));
        assert_eq!(parcel(Body::Credit(1, 1)).cost(), 64);
    }

    #[test]
    fn a_queue_is_calm_below_half_of_what_it_may_hold_and_has_room_below_all() {
        let mut outbox = Outbox::default();
        let seen: Vec<_> = (0..9)
            .map(|_| {
                let now = (outbox.is_calm(8), outbox.has_room(8));
                outbox.push_plain(parcel(Body::Credit(1, 1)));
                now
            })
            .collect();
        let (calm, room) = ((true, true), (false, true));
        assert_eq!(seen, [calm, calm, calm, calm, room, room, room, room, (false, false)]);
        outbox.push(parcel(Body::Credit(1, 1)));
        (0..6).for_each(|_| drop(outbox.pop()));
        assert!(outbox.is_calm(8), "what credit bounds is not counted");
    }
}
