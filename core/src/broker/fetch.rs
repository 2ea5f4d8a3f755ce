//! Catching up with a topic that another shard owns: the log is there, so a subscription asks for
//! a few batches whenever it has room for them. It keeps the place; the owner remembers nothing.
//!
//! The owner answers a first question with the place, then each with batches and an end. When the
//! end says that there is nothing after them, the subscription joins the audience at the head that
//! the end names: batches that were sent before have lower numbers, and the others follow.

use super::Broker;
use super::catch_up::LOST;
use crate::id::SubId;
use crate::lag::Load;
use crate::mesh::{Body, Carried, Fetch, Head, Place as At};
use crate::notice::{Gap, Notice};
use crate::peers::{RUN, Stage, Unplaced};
use crate::replay::Start;

/// The most that one question asks for: what one offer holds, so that a busy owner is not held up.
const MOST: Load = Load { batches: 16, bytes: 64 << 10 };

/// At the shard of the subscription.
impl Broker {
    /// Keeps where a subscription wants to start, until the owner of its topic says where that is.
    pub(super) fn remember_start(&mut self, index: u32, start: Start) {
        let sub = &mut self.peers.subs[index];
        (sub.unplaced, sub.start, sub.passed) = match start {
            Start::Tail => (Unplaced::No, 0, 0),
            Start::Earliest => (Unplaced::Earliest, 0, 0),
            Start::Last(n) => (Unplaced::Last, n, 0),
            Start::At { epoch, sequence } => (Unplaced::At, sequence, epoch),
        };
    }

    /// A subscription begins to catch up with a topic that this shard gets the batches of.
    pub(super) fn start_far_behind(&mut self, index: u32) {
        let sub = &mut self.peers.subs[index];
        sub.stage = Stage::Behind;
        self.topics[sub.topic].fetchers += 1;
        self.note_behind(index);
    }

    /// Asks for what a subscription needs next; it is in no list until the answer is complete.
    pub(super) fn ask_for_past(&mut self, index: u32) {
        self.stop_behind(index);
        let id = self.peers.sub_id(index);
        let sub = &mut self.peers.subs[index];
        sub.asked = true;
        let epoch = self.topics[sub.topic].epoch;
        let start = match sub.unplaced {
            Unplaced::No => Start::At { epoch, sequence: sub.start },
            Unplaced::Earliest => Start::Earliest,
            Unplaced::Last => Start::Last(sub.start),
            Unplaced::At => Start::At { epoch: sub.passed, sequence: sub.start },
        };
        let is_placed = sub.unplaced == Unplaced::No;
        let (topic, limit) = (sub.topic, sub.limit);
        let load = self.load_of(&self.peers.subs[index]);
        let room = Load {
            batches: (limit.batches / 2).saturating_sub(load.batches).clamp(1, MOST.batches),
            bytes: (limit.bytes / 2).saturating_sub(load.bytes).clamp(1, MOST.bytes),
        };
        self.mesh.fetching += 1;
        let body = Body::Fetch(Fetch { sub: id, start, is_placed, room });
        self.post(self.topics[topic].owner, self.parcel(topic, body));
    }

    /// Whether a subscription waits for such an answer; one that has left does not.
    pub(super) fn awaits(&self, sub: SubId) -> bool {
        self.peers.sub(sub).is_ok_and(|sub| sub.asked)
    }

    /// The owner says where a subscription starts, and from where on it wanted to.
    pub(super) fn take_place(&mut self, id: SubId, At { wanted, from, offset }: At) {
        if !self.awaits(id) {
            return;
        }
        let sub = &mut self.peers.subs[id.index];
        (sub.unplaced, sub.start, sub.passed) = (Unplaced::No, from, offset);
        if wanted < from {
            let (place, reason) = LOST;
            let records = from - wanted;
            sub.gaps.add(Gap { first: wanted, last: from - 1, records, place, reason });
            self.memory.charge(RUN);
            self.peers.note_due(id.index);
            self.wake(id.index);
        }
        self.notices.push_back(Notice::Joined { sub: id, start: from });
    }

    /// A batch of the past for one subscription.
    pub(super) fn take_past(&mut self, id: SubId, carried: Carried, (first, offset): (u64, u64)) {
        if !self.awaits(id) {
            return;
        }
        let Carried { frame, records, at, .. } = carried;
        let message = self.memory.hold(frame, records, at.min(self.now));
        self.memory.sequence(message, first, offset);
        self.hand(id.index, message);
    }

    /// The answer is complete: the subscription goes on, or has met the head of its topic.
    pub(super) fn take_fetched(&mut self, id: SubId, head: Head, is_met: bool) {
        if !self.awaits(id) {
            return;
        }
        let index = id.index;
        self.forget_question(index);
        if is_met {
            self.lose_behind(index, (head.next, head.offset), LOST);
            self.join_at(index, (head.next, head.offset));
        } else {
            self.note_behind(index);
        }
    }

    /// An answer that comes is nobody's.
    pub(super) fn forget_question(&mut self, index: u32) {
        self.peers.subs[index].asked = false;
        self.mesh.fetching -= 1;
    }
}

/// At the owner of the topic.
impl Broker {
    /// A subscription of another shard asks for batches of the past. Cost: O(log of what is
    /// retained) for each.
    pub(super) fn take_fetch(&mut self, topic: u32, from: u32, fetch: Fetch) {
        let Fetch { sub, start, is_placed, room } = fetch;
        self.forget_old(topic);
        let mut next = self.wanted(topic, start);
        if !is_placed {
            let place = self.place_of(topic, next);
            let wanted = if matches!(start, Start::At { .. }) { next.max(1) } else { place.from };
            next = place.from;
            self.post(from, self.parcel(topic, Body::Place(sub, At { wanted, ..place })));
        }
        let mut given = Load::default();
        let mut found = self.topics[topic].log.find(&self.memory, next);
        while let Some(message) = found
            && given.batches < room.batches
            && given.bytes < room.bytes
        {
            let held = self.memory.get(message);
            let (frame, records, at) = (held.frame.clone(), held.tally.records, held.at);
            given.add(held.cost);
            next = held.first + records;
            let carried = Carried { frame, records, at, except: None };
            let body = Body::Past(sub, carried, held.first, held.offset);
            self.post(from, self.parcel(topic, body));
            found = self.topics[topic].log.find(&self.memory, next);
        }
        let body = Body::Fetched(sub, self.head(topic), found.is_none());
        self.post(from, self.parcel(topic, body));
    }

    /// Where a subscription that wants the record `wanted` starts.
    fn place_of(&self, topic: u32, wanted: u64) -> At {
        let Head { next, offset, .. } = self.head(topic);
        let found = self.topics[topic].log.find(&self.memory, wanted).filter(|_| wanted < next);
        let (from, offset) = found.map_or((next, offset), |message| {
            let held = self.memory.get(message);
            (held.first, held.offset)
        });
        At { wanted, from, offset }
    }
}
