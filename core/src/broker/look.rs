//! Looks. They change nothing.

use super::{Backlog, Broker};
use crate::id::{ConnId, OutletId, SubId, TenantId, TopicId};
use crate::lag::Load;
use crate::ledger::{Books, SubBooks, Tally, TopicBooks};
use crate::limits::Limits;
use crate::memory::Held;
use crate::mesh::Named;
use crate::peers::{PAUSE_CONTROL, PAUSE_PARKED, Stage, Unplaced};
use crate::pool::LeaseWish;
use crate::pressure::Factor;
use crate::shed::{self, Band};
use crate::time::Instant;
use crate::topic::{Member, Topic};
use alloc::sync::Arc;
use bytes::Bytes;
use core::time::Duration;

impl Broker {
    /// The time of the last [`advance`](Self::advance).
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// The limits in force.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The shard's books.
    pub const fn ledger(&self) -> &Books {
        &self.ledger.shard
    }

    /// One tenant's books.
    pub fn tenant_books(&self, tenant: TenantId) -> Option<&Books> {
        self.ledger.tenants.get(tenant.index as usize)
    }

    /// One topic's totals since it was made.
    pub fn topic_books(&self, topic: TopicId) -> Option<TopicBooks> {
        self.topics.get(topic.index, topic.generation).map(|topic| topic.books)
    }

    /// The random number that tells this topic from an earlier one of its name.
    pub fn topic_epoch(&self, topic: TopicId) -> Option<u64> {
        self.topics.get(topic.index, topic.generation).map(|topic| topic.epoch)
    }

    /// The shard that owns a topic: there it gets its sequence numbers.
    pub fn owner_of(&self, topic: TopicId) -> Option<u32> {
        self.topics.get(topic.index, topic.generation).map(|topic| topic.owner)
    }

    /// One subscription's totals.
    pub fn sub_books(&self, sub: SubId) -> Option<SubBooks> {
        self.peers.sub(sub).ok().map(|sub| sub.books)
    }

    /// The first sequence number a subscription gets; none while the shard that owns its topic has
    /// not answered.
    pub fn start_of(&self, sub: SubId) -> Option<u64> {
        let sub = self.peers.sub(sub).ok()?;
        (sub.stage != Stage::Pending && sub.unplaced == Unplaced::No).then_some(sub.start)
    }

    /// Whether a subscription that asked for the newest or the oldest records
    /// ([`Start::Last`](crate::Start::Last), [`Start::Earliest`](crate::Start::Earliest)) is still
    /// to be given any that its topic had kept when it began; none while the shard that owns the
    /// topic has not answered. Asked when the subscription is confirmed, so before the next
    /// [`step`](Self::step): whether a record of the past follows, or its loss is told.
    /// Cost: O(1).
    pub fn has_past(&self, sub: SubId) -> Option<bool> {
        self.start_of(sub)?;
        Some(self.peers.past_of(sub.index).is_some())
    }

    /// The newest batch that a topic keeps, and when it was admitted; none on a shard that does not
    /// own the topic. Cost: O(1).
    pub fn newest_kept(&self, topic: TopicId) -> Option<(&Bytes, Instant)> {
        let newest = self.topics.get(topic.index, topic.generation)?.log.newest()?;
        let Held { frame, at, .. } = self.memory.get(newest);
        let age = Duration::from_millis(self.limits.retention_ms);
        (self.now.since(*at) < age).then_some((frame, *at))
    }

    /// Whether anything is still to be written to an outlet, or told to one of its subscriptions:
    /// records, control frames, gaps. Cost: O(its subscriptions).
    pub fn has_work(&self, outlet: OutletId) -> Option<bool> {
        let found = self.peers.outlet(outlet).ok()?;
        let mut subs = found.subs.iter(&self.peers.subs);
        Some(found.has_work() || subs.any(|sub| !self.peers.subs[sub].gaps.is_empty()))
    }

    /// The epoch of a topic's life: whoever resumes gives it back with the sequence number. `None`
    /// while the shard that owns the topic has not said it.
    pub fn epoch(&self, topic: TopicId) -> Option<u64> {
        let found = &self.topics[self.topic_index(topic).ok()?];
        (found.owner == self.mesh.shard || found.member == Member::Joined).then_some(found.epoch)
    }

    /// The shard that owns a topic of this name, whether it exists or not. Cost: O(bytes).
    pub fn owner(&self, tenant: TenantId, name: &str) -> u32 {
        Named::of(tenant.index, name).owner(self.mesh.shards)
    }

    /// The name of a topic.
    pub fn topic_name(&self, topic: TopicId) -> Option<Arc<str>> {
        self.topics.get(topic.index, topic.generation).map(|topic| Arc::clone(&topic.name))
    }

    /// Subscriptions of a topic.
    pub fn audience(&self, topic: TopicId) -> Option<u32> {
        self.topics.get(topic.index, topic.generation).map(Topic::audience_len)
    }

    /// How often a `block` subscription came to its limit (checkpoint 5) and held its topic.
    pub const fn holds(&self) -> u64 {
        self.holds
    }

    /// The `block` subscription that holds a topic, if one does. Cost: O(audience).
    pub fn blocked_by(&self, topic: TopicId) -> Option<SubId> {
        let topic = self.topics.get(topic.index, topic.generation)?;
        let holder = topic.audience.iter().find(|sub| self.peers.subs[**sub].holds);
        holder.map(|sub| self.peers.sub_id(*sub))
    }

    /// What waits in an outlet.
    pub fn backlog(&self, outlet: OutletId) -> Option<Backlog> {
        let outlet = self.peers.outlet(outlet).ok()?;
        let Load { batches, bytes } = outlet.waiting;
        Some(Backlog { batches, bytes, refusing: outlet.write.refusing })
    }

    /// The outlet and the topic of a subscription, also of one that has left and is not forgotten.
    pub fn ends_of(&self, sub: SubId) -> Option<(OutletId, TopicId)> {
        let found = self.peers.subs.get(sub.index, sub.generation)?;
        let index = found.topic;
        let topic = TopicId { index, generation: self.topics.generation(index) };
        Some((self.peers.outlet_id(found.outlet), topic))
    }

    /// Whose connection an outlet is of.
    pub fn tenant_of(&self, outlet: OutletId) -> Option<TenantId> {
        let index = self.peers.outlet(outlet).ok()?.tenant;
        Some(TenantId { index, generation: 0 })
    }

    /// The subscriptions of an outlet, without those that have left. Cost: O(those).
    pub fn subs_of(&self, outlet: OutletId) -> impl Iterator<Item = (SubId, TopicId)> {
        let found = self.peers.outlet(outlet).ok().into_iter();
        let subs = found.flat_map(|outlet| outlet.subs.iter(&self.peers.subs));
        subs.filter(|sub| self.peers.subs[*sub].is_active()).map(|sub| {
            let index = self.peers.subs[sub].topic;
            let topic = TopicId { index, generation: self.topics.generation(index) };
            (self.peers.sub_id(sub), topic)
        })
    }

    /// Every subscription of which something was dropped: its outlet, its tenant, and what was.
    /// Cost: O(subscriptions), so not on a hot path.
    pub fn losses(&self) -> impl Iterator<Item = (OutletId, TenantId, Tally)> {
        let lossy = self.peers.subs.iter().filter(|(_, sub)| !sub.books.dropped.is_zero());
        lossy.map(|(_, sub)| {
            let tenant = TenantId { index: self.topics[sub.topic].tenant, generation: 0 };
            (self.peers.outlet_id(sub.outlet), tenant, sub.books.dropped)
        })
    }

    /// Whether nothing further should be read from a connection, or from one of its sources. Hosts
    /// that handle several commands per turn ask between two of them.
    pub fn is_paused(&self, conn: ConnId) -> bool {
        let Ok(source) = self.peers.conn(conn) else { return false };
        source.paused != 0 || self.peers.conns[source.conn].paused & !PAUSE_PARKED != 0
    }

    /// Whether a publish of a connection, or of one of its sources, is parked. Of a connection:
    /// one of its own, or one that a source left behind.
    pub fn has_parked(&self, conn: ConnId) -> bool {
        self.peers.conn(conn).is_ok_and(|source| !source.parked.is_empty())
    }

    /// Whether a connection has so many answers waiting that none of its commands should be heard
    /// before they are written. One that is only paused for a parked publish is heard: what it asks
    /// for may make room.
    pub fn is_crowded(&self, conn: ConnId) -> bool {
        self.peers.conn(conn).is_ok_and(|conn| conn.paused & PAUSE_CONTROL != 0)
    }

    /// Connections and subscriptions held.
    pub fn counts(&self) -> (u32, u32) {
        (self.peers.conns.len() - self.peers.sources, self.peers.subs.len())
    }

    /// The memory band in force.
    pub const fn band(&self) -> Band {
        self.bands.band()
    }

    /// Whether this shard's saturation bit is up: its memory is in the band `saturated`, or a queue
    /// to another shard was full and not all of them have been less than half full for 100 ms
    /// since. A node is saturated while a shard of it is.
    pub fn is_saturated(&self) -> bool {
        self.band() == Band::Saturated || self.is_congested()
    }

    /// The pressure factor on the memory budget.
    pub const fn factor(&self) -> Factor {
        self.pressure.factor()
    }

    /// Whether memory must be watched while nothing else happens: something else than the usual
    /// budget is in force, part of a lease shall go back, or so much is held that more pressure, or
    /// others that borrow all of the pool, would change the band. A host may do without readings of
    /// the pressure while not. Cost: O(1).
    pub fn watches_memory(&self) -> bool {
        let least = Factor::FLOOR.of(self.lease.floor());
        self.factor() != Factor::ONE
            || self.band() != Band::Normal
            || self.lease_wish() != LeaseWish::Keep
            || shed::is_pressed(self.held(), least)
    }

    /// Bytes held now: messages once, queue slots, table entries.
    pub const fn held(&self) -> u64 {
        self.memory.bytes()
    }

    /// In-flight publish bytes (checkpoint 3).
    pub const fn inflight(&self) -> u64 {
        self.admission.used()
    }

    /// Publish jobs queued (checkpoint 4), and publishes parked.
    pub const fn jobs(&self) -> (u32, u32) {
        self.schedule.counts()
    }

    /// Its number among the shards of the process.
    pub const fn number(&self) -> u32 {
        self.mesh.shard
    }

    /// A hash of what is held and of every count in the books: equal after the same decisions.
    /// Cost: O(tenants).
    pub fn fingerprint(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut put = |word: u64| {
            hash = (hash ^ word).wrapping_mul(0x0100_0000_01b3);
            hash ^= hash >> 29;
        };
        let (queued, parked) = self.jobs();
        let (conns, subs) = self.counts();
        for word in [self.now.as_nanos(), self.held(), self.inflight(), self.band() as u64] {
            put(word);
        }
        for word in [queued, parked, conns, subs, self.topics.len(), self.factor().thousandths()] {
            put(word.into());
        }
        for books in core::iter::once(&self.ledger.shard).chain(&self.ledger.tenants) {
            for Tally { records, bytes } in columns(books) {
                put(records);
                put(bytes);
            }
            for table in [&books.refused, &books.shed, &books.evicted, &books.dropped] {
                for (place, reason, Tally { records, bytes }) in table.iter() {
                    put((place as u64) << 8 | reason as u64);
                    put(records);
                    put(bytes);
                }
                put(u64::MAX);
            }
        }
        hash
    }
}

/// Every column of the books that is one number.
const fn columns(books: &Books) -> [Tally; 11] {
    let Books { offered, admitted, waiting, sequenced, returned, .. } = books;
    let Books { forwarded, received, queued, expected, delivered, left, .. } = books;
    [
        *offered, *admitted, *waiting, *sequenced, *returned, *forwarded, *received, *queued,
        *expected, *delivered, *left,
    ]
}
