//! Joining: a subscription, with what it asked for inside what is allowed.

use super::{Broker, Pipe, Wish};
use crate::id::{OutletId, SubId, TopicId};
use crate::lag::Load;
use crate::notice::Notice;
use crate::peers::{SUB, Stage, Sub};
use crate::replay::Start;
use crate::topic::{Member, Topic};
use crate::verdict::{Place, Policy, Reason, Refusal};

impl Broker {
    /// Subscribes, from where the wish says. To a topic that another shard owns, the subscription
    /// may be in force only once a joined notice says so: while [`start_of`](Self::start_of) is
    /// `None`. Refused while a shard of the process is saturated.
    /// Cost: O(1); O(log of what is retained) for a start in the past.
    pub fn subscribe(
        &mut self,
        outlet: OutletId,
        topic: TopicId,
        wish: Wish,
    ) -> Result<SubId, Refusal> {
        self.tape_subscribe(outlet, topic, &wish);
        let pipe = self.peers.outlet(outlet)?;
        let conn = &self.peers.conns[pipe.conn];
        let topic = self.topic_index(topic)?;
        let allowed = match (pipe.pipe, wish.policy) {
            (Pipe::Shared, Policy::DropNew | Policy::DropOld) => true,
            (Pipe::Shared, Policy::Block | Policy::Latest) => false,
            (Pipe::Single, Policy::Block) => self.limits.allows_block() && pipe.subs.is_empty(),
            (Pipe::Single, _) => pipe.subs.is_empty(),
        };
        if conn.closing {
            return Err(Refusal::never(Place::Table, Reason::Closed));
        }
        if !self.is_running() {
            return Err(Self::shutting_down());
        }
        if !allowed || self.topics[topic].tenant != conn.tenant {
            return Err(Refusal::never(Place::Backlog, Reason::NotAllowed));
        }
        self.welcome()?;
        if u64::from(self.peers.subs.len()) >= self.limits.max_subscriptions {
            return Err(Refusal::after(Place::Table, Reason::Limit, 1_000));
        }
        let limit = self.limit_of(pipe.pipe, wish);
        let sub = Sub::new(outlet.index, topic, wish.policy, limit);
        self.memory.charge(SUB);
        let index = self.peers.add_sub(sub);
        self.topics[topic].subs += 1;
        self.peers.conns[self.peers.outlets[outlet.index].conn].subs += 1;
        if wish.policy == Policy::Block {
            self.topics[topic].blockers += 1;
        }
        self.note_idle(topic);
        let owned = self.is_owned(topic);
        if !owned {
            self.remember_start(index, wish.start);
        }
        if !owned && self.must_ask(topic) {
            self.peers.subs[index].stage = Stage::Pending;
            self.topics[topic].pending.push_back(&mut self.peers.subs, index);
            self.note_interest(topic);
        } else if !owned && wish.start != Start::Tail {
            self.start_far_behind(index);
        } else if !self.start_behind(index, wish.start) {
            let Topic { next, answered, .. } = self.topics[topic];
            let start = if wish.policy == Policy::Block { next.max(answered) } else { next };
            self.join_audience(index, start);
            self.peers.note_due(index);
            self.wake(index);
        }
        Ok(self.peers.sub_id(index))
    }

    /// Whether the owner of a topic has to answer before a subscription is in force: it may not
    /// send batches yet, or not by credit.
    fn must_ask(&self, topic: u32) -> bool {
        let topic = &self.topics[topic];
        let block = topic.blockers > 0 && !topic.told_block;
        topic.member != Member::Joined || topic.asked || block
    }

    /// The owner of its topic has no room for this shard's wish.
    pub(super) fn refuse_pending(&mut self, index: u32, why: Refusal) {
        let sub = self.peers.sub_id(index);
        self.notices.push_back(Notice::Ended { sub, why });
        let Sub { outlet, topic, policy, .. } = self.peers.subs[index];
        self.peers.subs[index].stage = Stage::Draining;
        self.peers.conns[self.peers.outlets[outlet].conn].subs -= 1;
        self.topics[topic].blockers -= u32::from(policy == Policy::Block);
        self.free_sub(index);
    }

    /// From the record `start` on a subscription gets what is published.
    pub(super) fn join_audience(&mut self, index: u32, start: u64) {
        let sub = &mut self.peers.subs[index];
        let topic = &mut self.topics[sub.topic];
        sub.stage = Stage::Live;
        sub.start = start;
        sub.place = topic.join(index);
        if sub.policy == Policy::Block {
            self.note_hold(index);
        }
    }

    fn limit_of(&self, pipe: Pipe, wish: Wish) -> Load {
        let least = |wished: u64, most: u64| if wished == 0 { most } else { wished.min(most) };
        match (pipe, wish.policy) {
            (Pipe::Shared, _) => Load { batches: u32::MAX, bytes: self.limits.high_water_bytes },
            (Pipe::Single, Policy::Latest) => Load { batches: 1, bytes: u64::MAX },
            (Pipe::Single, _) => Load {
                batches: u32::try_from(least(
                    wish.batches.into(),
                    self.limits.subscription_batches,
                ))
                .expect("the range is below 32 bits"),
                bytes: least(wish.bytes, self.limits.subscription_bytes),
            },
        }
    }
}
