//! Catching up with a topic that another shard owns: the log is there, so a subscription asks for
//! a few batches whenever it has room for them. It keeps the place; the owner remembers nothing.
//!
//! The owner answers a first question with the place, then each with batches and an end. The
//! batches wait for the next step: the host, which hears the place before that, may have something
//! to write before them. When the
//! end says that there is nothing after them, the subscription joins the audience at the head that
//! the end names: batches that were sent before have lower numbers, and the others follow.

use super::Broker;
use super::catch_up::LOST;
use crate::id::SubId;
use crate::lag::Load;
use crate::ledger::Tally;
use crate::mesh::{Body, Carried, Fetch, Head, Place as At};
use crate::peers::{Line, Stage, Unplaced};
use crate::replay::{Entry, Spot, Start};

/// The most that one question asks for: what one offer holds, so that a busy owner is not held up.
const MOST: Load = Load { batches: 16, bytes: 64 << 10 };

/// A part of an answer.
#[derive(Debug)]
pub(super) enum Answer {
    /// A batch.
    Batch(Entry),
    /// The end: where the topic is, and whether nothing came after the batches.
    End(Head, bool),
}

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
        sub.line = Line::Asked;
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
        self.peers.sub(sub).is_ok_and(|sub| sub.line == Line::Asked)
    }

    /// The owner says where a subscription starts, and from where on it wanted to.
    pub(super) fn take_place(&mut self, id: SubId, place: At) {
        if !self.awaits(id) {
            return;
        }
        self.put_in_place(id.index, place);
        if place.wanted < place.from {
            self.peers.note_due(id.index);
            self.wake(id.index);
        }
        self.note_joined(id.index, place.from);
    }

    /// A batch of the past for one subscription.
    pub(super) fn take_past(&mut self, id: SubId, carried: Carried, spot: Spot) {
        if !self.awaits(id) {
            return;
        }
        let Carried { frame, records, at, .. } = carried;
        let message = self.memory.hold(frame, records, at.min(self.now));
        self.memory.sequence(message, spot.first, spot.offset);
        let batch = Entry { message, before: spot.before };
        self.mesh.answers.push_back((id, Answer::Batch(batch)));
    }

    /// The answer is complete.
    pub(super) fn take_fetched(&mut self, id: SubId, head: Head, is_met: bool) {
        if self.awaits(id) {
            self.mesh.answers.push_back((id, Answer::End(head, is_met)));
        }
    }

    /// Hands over what came since the last step. Cost: O(that), which the questions bound.
    pub(super) fn take_answers(&mut self) {
        while let Some((id, answer)) = self.mesh.answers.pop_front() {
            match answer {
                Answer::Batch(batch) if self.awaits(id) => self.hand(id.index, batch),
                Answer::Batch(Entry { message, .. }) => self.memory.release(message),
                Answer::End(head, is_met) if self.awaits(id) => {
                    self.end_answer(id.index, head, is_met);
                }
                Answer::End(..) => {}
            }
        }
    }

    /// What came since the last step is nobody's any more.
    pub(super) fn forget_answers(&mut self) {
        while let Some((_, answer)) = self.mesh.answers.pop_front() {
            if let Answer::Batch(Entry { message, .. }) = answer {
                self.memory.release(message);
            }
        }
    }

    /// The subscription goes on, or has met the head of its topic.
    fn end_answer(&mut self, index: u32, Head { next, offset, .. }: Head, is_met: bool) {
        self.stop_behind(index);
        if is_met {
            let spot = Spot { first: next, offset, before: Tally::ZERO };
            self.lose_behind(index, spot, LOST);
            self.join_at(index, (next, offset));
        } else {
            self.note_behind(index);
        }
    }
}

/// At the owner of the topic.
impl Broker {
    /// A subscription of another shard asks for batches of the past. Cost: O(log of what is
    /// retained) for each.
    pub(super) fn take_fetch(&mut self, topic: u32, from: u32, fetch: Fetch) {
        let Fetch { sub, start, is_placed, room } = fetch;
        self.forget_old(topic);
        let place = self.place_of(topic, start);
        if !is_placed {
            self.post(from, self.parcel(topic, Body::Place(sub, place)));
        }
        let mut given = Load::default();
        let mut found = self.topics[topic].log.find(&self.memory, place.from);
        while let Some(Entry { message, before }) = found
            && given.batches < room.batches
            && given.bytes < room.bytes
        {
            let held = self.memory.get(message);
            let (frame, records, at) = (held.frame.clone(), held.tally.records, held.at);
            given.add(held.cost);
            let next = held.first + records;
            let carried = Carried { frame, records, at, except: None };
            let spot = Spot { first: held.first, offset: held.offset, before };
            self.post(from, self.parcel(topic, Body::Past(sub, carried, spot)));
            found = self.topics[topic].log.find(&self.memory, next);
        }
        let body = Body::Fetched(sub, self.head(topic), found.is_none());
        self.post(from, self.parcel(topic, body));
    }
}
