//! Topics: made when they are named, kept while they are used.

use super::{Broker, Tenant};
use crate::id::{TenantId, TopicId};
use crate::mesh::Named;
use crate::shed::Band;
use crate::topic::Topic;
use crate::verdict::{Place, Reason, Refusal};

/// The most unused topics that one turn removes.
const RETIRED_PER_TURN: u32 = 64;

impl Broker {
    /// The topic of this name, made if it is new. Resolve once, then use the id: it stays good
    /// while the topic has subscriptions or jobs; later it may answer `Gone`. At `max_topics` the
    /// tenant's longest unused topic makes way; where there is none, the one that was kept longest
    /// for those who may still come, with what it keeps. Cost: O(log topics + what it keeps).
    pub fn topic(&mut self, tenant: TenantId, name: &str) -> Result<TopicId, Refusal> {
        let named = Named::of(tenant.index, name);
        self.tape_topic(tenant, named);
        self.topic_named(tenant, name, named)
    }

    /// The same, for a name whose hash is known.
    pub(super) fn topic_named(
        &mut self,
        tenant: TenantId,
        name: &str,
        named: Named,
    ) -> Result<TopicId, Refusal> {
        let index = self.tenant_index(tenant)?;
        if let Some(topic) = self.find_topic(tenant, name) {
            self.note_idle(topic.index);
            return Ok(topic);
        }
        let owner = &self.tenants[index as usize];
        if u64::from(owner.topics) >= self.limits.max_topics {
            let full = Refusal::after(Place::Table, Reason::Limit, 1_000);
            if owner.idle.is_empty() {
                self.forget_all(owner.kept.front().ok_or(full)?);
            }
            let unused = self.tenants[index as usize].idle.front();
            self.retire_topic(unused.ok_or(full)?);
        }
        let owner = named.owner(self.mesh.shards);
        let topic = Topic::new(index, name, named, (owner, self.epochs.bits()));
        let shared = topic.name.clone();
        self.memory.charge(topic.charge());
        let (topic, generation) = self.topics.insert(topic);
        let lane = self.schedule.add_lane(index);
        debug_assert_eq!(lane, topic, "topics and lanes have the same indices");
        let tenant = &mut self.tenants[index as usize];
        tenant.topics += 1;
        tenant.names.insert(shared, topic);
        tenant.idle.push_back(&mut self.topics, topic);
        self.unused.push_back(&mut self.topics, topic);
        Ok(TopicId { index: topic, generation })
    }

    /// The topic of this name, if it exists. Cost: O(log topics).
    pub fn find_topic(&self, tenant: TenantId, name: &str) -> Option<TopicId> {
        let index = self.tenants.get(tenant.index as usize)?.names.get(name)?;
        Some(TopicId { index, generation: self.topics.generation(index) })
    }

    /// Topics of a tenant that nobody uses go, with what they keep, at most 64 of them: for one
    /// that is not served any more. Returns how many topics it has left; those in use stay.
    /// Cost: O(what goes).
    pub fn forget(&mut self, tenant: TenantId) -> Result<u32, Refusal> {
        self.tape_forget(tenant);
        let index = self.tenant_index(tenant)? as usize;
        for _ in 0..RETIRED_PER_TURN {
            if let Some(kept) = self.tenants[index].kept.front() {
                self.forget_all(kept);
            }
            let Some(topic) = self.tenants[index].idle.front() else { break };
            self.retire_topic(topic);
        }
        self.update_band();
        Ok(self.tenants[index].topics)
    }

    /// Removes a topic that nobody uses.
    fn retire_topic(&mut self, index: u32) {
        let owner = &mut self.tenants[self.topics[index].tenant as usize];
        owner.idle.unlink(&mut self.topics, index);
        self.unused.unlink(&mut self.topics, index);
        let topic = self.topics.remove(index);
        owner.names.remove(&topic.name);
        owner.topics -= 1;
        self.schedule.remove_lane(index);
        self.memory.discharge(topic.charge());
    }

    /// Under memory pressure topics that nobody uses go, longest unused first.
    pub(super) fn retire_some(&mut self) {
        for _ in 0..RETIRED_PER_TURN {
            if self.bands.band() == Band::Normal {
                return;
            }
            let Some(index) = self.unused.front() else { return };
            self.retire_topic(index);
            self.update_band();
        }
    }

    pub(super) fn topic_index(&self, id: TopicId) -> Result<u32, Refusal> {
        self.topics.get(id.index, id.generation).map(|_| id.index).ok_or(Refusal::GONE)
    }

    /// Keeps the list of unused topics true after `topic` gained or lost a user.
    pub(super) fn note_idle(&mut self, topic: u32) {
        let fanned = self.fan.as_ref().is_some_and(|fan| fan.topic == topic);
        let used = fanned || self.topics[topic].is_used() || !self.schedule.is_idle(topic);
        let tenant = self.topics[topic].tenant as usize;
        let Tenant { idle, kept, .. } = &mut self.tenants[tenant];
        idle.unlink_if(&mut self.topics, topic);
        kept.unlink_if(&mut self.topics, topic);
        self.unused.unlink_if(&mut self.topics, topic);
        if used {
            return;
        }
        if self.topics[topic].log.is_empty() {
            idle.push_back(&mut self.topics, topic);
            self.unused.push_back(&mut self.topics, topic);
        } else {
            kept.push_back(&mut self.topics, topic);
        }
    }
}
