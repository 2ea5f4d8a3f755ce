//! Looks. They change nothing.

use super::{Backlog, Broker};
use crate::id::{ConnId, OutletId, SubId, TenantId, TopicId};
use crate::lag::Load;
use crate::ledger::{Books, SubBooks, TopicBooks};
use crate::limits::Limits;
use crate::peers::{Stage, Unplaced};
use crate::pressure::Factor;
use crate::shed::Band;
use crate::time::Instant;
use crate::topic::{Member, Topic};

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

    /// The epoch of a topic's life: whoever resumes gives it back with the sequence number. `None`
    /// while the shard that owns the topic has not said it.
    pub fn epoch(&self, topic: TopicId) -> Option<u64> {
        let found = &self.topics[self.topic_index(topic).ok()?];
        (found.owner == self.mesh.shard || found.member == Member::Joined).then_some(found.epoch)
    }

    /// Subscriptions of a topic.
    pub fn audience(&self, topic: TopicId) -> Option<u32> {
        self.topics.get(topic.index, topic.generation).map(Topic::audience_len)
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

    /// Whether nothing further should be read from a connection. Hosts that handle several
    /// commands per turn ask between two of them.
    pub fn is_paused(&self, conn: ConnId) -> bool {
        self.peers.conn(conn).is_ok_and(|conn| conn.paused != 0)
    }

    /// Connections and subscriptions held.
    pub fn counts(&self) -> (u32, u32) {
        (self.peers.conns.len(), self.peers.subs.len())
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
}
