//! Catching up: a subscription that started in the past is handed the topic's log as room appears,
//! and joins the audience when it meets the head.

use super::Broker;
use crate::backlog::has_half;
use crate::lag::Load;
use crate::ledger::Tally;
use crate::notice::{Gap, Notice};
use crate::peers::{Pipe, RUN, SLOT, Stage, Sub, Unplaced};
use crate::replay::{Bounds, Start};
use crate::ring::Slot;
use crate::shed::Band;
use crate::verdict::{Place, Reason};

/// What the log loses first.
pub(super) const LOST: (Place, Reason) = (Place::Backlog, Reason::Retention);

/// What a visit to a subscription that is catching up came to.
enum Visit {
    /// The owner of its topic was asked; the answer brings it back.
    Asked,
    /// One batch was queued for it.
    Handed,
    /// Its queue is half full; the next delivery brings it back.
    Full,
    /// It met the head of its topic.
    Joined,
}

impl Broker {
    /// Keeps a batch that was just sequenced, if the topic keeps any. Under memory pressure, when
    /// logs go first, none is begun.
    pub(super) fn retain(&mut self, topic: u32, message: u32) {
        let bounds =
            Bounds { records: self.limits.retention_records, bytes: self.limits.retention_bytes };
        if bounds.records == 0 {
            return;
        }
        let log = &mut self.topics[topic].log;
        if self.bands.band() != Band::Normal && log.is_empty() {
            return;
        }
        log.push(&mut self.memory, message);
        while log.excess(bounds) {
            log.pop(&mut self.memory);
        }
        self.retained.arm(&mut self.topics, topic, self.now);
        self.forget_old(topic);
    }

    /// Batches of a topic beyond their age go.
    pub(super) fn forget_old(&mut self, topic: u32) {
        let age = core::time::Duration::from_millis(self.limits.retention_ms);
        let log = &mut self.topics[topic].log;
        while let Some(front) = log.front() {
            if self.now.since(self.memory.get(front).at) < age {
                return;
            }
            log.pop(&mut self.memory);
        }
        self.forget_all(topic);
    }

    /// A topic's log goes.
    pub(super) fn forget_all(&mut self, topic: u32) {
        while self.topics[topic].log.pop(&mut self.memory) {}
        self.retained.disarm(&mut self.topics, topic);
        self.note_idle(topic);
    }

    /// Logs of topics in which nothing was published for so long go.
    pub(super) fn forget_due(&mut self) {
        while let Some(topic) = self.retained.due(&mut self.topics, self.now) {
            self.forget_all(topic);
        }
    }

    /// Under memory pressure what only the logs hold goes first, at most `most` batches of the
    /// topics that have been silent longest. Returns how many went.
    pub(super) fn forget_some(&mut self, most: u32) -> u32 {
        let mut gone = 0;
        while gone < most
            && self.bands.band() != Band::Normal
            && let Some(topic) = self.retained.front()
        {
            self.topics[topic].log.pop(&mut self.memory);
            gone += 1;
            if self.topics[topic].log.is_empty() {
                self.forget_all(topic);
            }
            self.update_band();
        }
        gone
    }

    /// The record that a subscription wants first.
    pub(super) fn wanted(&self, topic: u32, start: Start) -> u64 {
        let topic = &self.topics[topic];
        match start {
            Start::Tail => topic.next,
            Start::Earliest => 0,
            Start::Last(n) => topic.next.saturating_sub(n),
            Start::At { epoch, sequence } if epoch == topic.epoch => sequence,
            Start::At { .. } => 0,
        }
    }

    /// Begins a subscription that starts in the past; true when it is behind its topic's head.
    pub(super) fn start_behind(&mut self, index: u32, start: Start) -> bool {
        let topic = self.peers.subs[index].topic;
        self.forget_old(topic);
        let wanted = self.wanted(topic, start);
        let Self { memory, peers, topics, .. } = self;
        let sub = &mut peers.subs[index];
        let topic = &topics[topic];
        if wanted >= topic.next {
            return false;
        }
        let found = topic.log.find(memory, wanted);
        let from = found.map_or(topic.next, |message| memory.get(message).first);
        let first = wanted.max(1);
        if matches!(start, Start::At { .. }) && first < from {
            let (place, reason) = (Place::Backlog, Reason::Retention);
            sub.gaps.add(Gap { first, last: from - 1, records: from - first, place, reason });
            memory.charge(RUN);
        }
        let Some(message) = found else { return false };
        sub.start = from;
        sub.passed = memory.get(message).offset;
        sub.stage = Stage::Behind;
        true
    }

    /// A subscription that is catching up may have room.
    pub(super) fn note_behind(&mut self, index: u32) {
        self.behind.push_back(&mut self.peers.subs, index);
    }

    /// An outlet has less queued: those of its subscriptions that are catching up may go on.
    pub(super) fn note_room(&mut self, outlet: u32) {
        while let Some(index) = self.peers.outlets[outlet].stalled.front() {
            let sub = &self.peers.subs[index];
            if has_half(self.load_of(sub), sub.limit) {
                return;
            }
            self.stop_behind(index);
            self.note_behind(index);
        }
    }

    /// A subscription is not catching up any more, or goes from one list to the other.
    pub(super) fn stop_behind(&mut self, index: u32) {
        let subs = &mut self.peers.subs;
        if subs[index].asked {
            self.forget_question(index);
        } else if core::mem::take(&mut subs[index].stalled) {
            self.peers.outlets[subs[index].outlet].stalled.unlink(subs, index);
        } else {
            self.behind.unlink(subs, index);
        }
    }

    /// Hands out at most `most` batches, one to each subscription in rotation. Returns how many.
    pub(super) fn catch_up(&mut self, most: u32) -> u32 {
        let mut handed = 0;
        while handed < most
            && let Some(index) = self.behind.front()
        {
            match self.visit(index) {
                Visit::Asked => self.ask_for_past(index),
                Visit::Handed => {
                    handed += 1;
                    self.behind.rotate(&mut self.peers.subs);
                }
                Visit::Full => {
                    self.stop_behind(index);
                    let subs = &mut self.peers.subs;
                    subs[index].stalled = true;
                    self.peers.outlets[subs[index].outlet].stalled.push_back(subs, index);
                }
                Visit::Joined => self.join_at_head(index),
            }
        }
        handed
    }

    /// A subscription met the head of its topic.
    fn join_at_head(&mut self, index: u32) {
        self.stop_behind(index);
        self.join_at(index, self.head_here(self.peers.subs[index].topic));
    }

    /// A subscription that is in no list of those that catch up joins the audience.
    pub(super) fn join_at(&mut self, index: u32, (next, offset): (u64, u64)) {
        self.leave_behind(index);
        self.join_audience(index, next);
        self.peers.subs[index].passed = offset;
        self.peers.note_due(index);
        self.wake(index);
    }

    /// A subscription catches up no more.
    pub(super) fn leave_behind(&mut self, index: u32) {
        let topic = self.peers.subs[index].topic;
        self.peers.subs[index].unplaced = Unplaced::No;
        if !self.is_owned(topic) {
            self.topics[topic].fetchers -= 1;
        }
    }

    /// The next sequence number that this shard knows of, and the bytes before it.
    fn head_here(&self, topic: u32) -> (u64, u64) {
        let owned = self.is_owned(topic);
        let topic = &self.topics[topic];
        (topic.next, if owned { topic.books.sequenced.bytes } else { topic.passed })
    }

    /// Nobody catches up any more: what they still needed is lost. Cost: O(subscriptions).
    pub(super) fn end_catching_up(&mut self, why: (Place, Reason)) {
        let behind = self.peers.subs.iter().filter(|(_, sub)| sub.stage == Stage::Behind);
        let behind: alloc::vec::Vec<u32> = behind.map(|(index, _)| index).collect();
        for index in behind {
            let sub = &self.peers.subs[index];
            let head = self.head_here(sub.topic);
            let is_placed = sub.unplaced == Unplaced::No;
            if is_placed {
                self.lose_behind(index, head, why);
            }
            self.join_at_head(index);
            if !is_placed {
                let sub = self.peers.sub_id(index);
                self.notices.push_back(Notice::Joined { sub, start: head.0 });
            }
        }
    }

    /// What a subscription's limit is compared with.
    pub(super) fn load_of(&self, sub: &Sub) -> Load {
        let outlet = &self.peers.outlets[sub.outlet];
        match outlet.pipe {
            Pipe::Shared => outlet.waiting.plus(outlet.taken),
            Pipe::Single => sub.waiting.plus(sub.taken),
        }
    }

    fn visit(&mut self, index: u32) -> Visit {
        let sub = &self.peers.subs[index];
        let topic = sub.topic;
        let owned = self.is_owned(topic);
        if owned && sub.start >= self.topics[topic].next {
            return Visit::Joined;
        }
        if has_half(self.load_of(sub), sub.limit) {
            return Visit::Full;
        }
        if !owned {
            return Visit::Asked;
        }
        let Some(message) = self.topics[topic].log.find(&self.memory, sub.start) else {
            let (next, passed) = (self.topics[topic].next, self.topics[topic].books.sequenced);
            self.lose_behind(index, (next, passed.bytes), LOST);
            return Visit::Joined;
        };
        self.memory.retain(message, 1);
        self.hand(index, message);
        Visit::Handed
    }

    /// Queues a batch of the past, with the reference that it has, for a subscription; what is
    /// missing before it is lost.
    pub(super) fn hand(&mut self, index: u32, message: u32) {
        let held = self.memory.get(message);
        let (first, offset, tally, cost) = (held.first, held.offset, held.tally, held.cost);
        self.lose_behind(index, (first, offset), LOST);
        let sub = &mut self.peers.subs[index];
        let (topic, at) = (sub.topic, sub.outlet);
        sub.start = first + tally.records;
        sub.passed = offset + tally.bytes;
        sub.waiting.add(cost);
        sub.slots += 1;
        sub.books.expect(tally);
        let outlet = &mut self.peers.outlets[at];
        outlet.waiting.add(cost);
        outlet.ring.push(Slot { message, sub: index });
        self.memory.charge(SLOT);
        self.ledger.expected(self.topics[topic].tenant, &mut self.topics[topic].books, tally);
        self.egress.wake(&mut self.peers.outlets, at);
        self.note_heavy(at);
    }

    /// Batches that a subscription still needed are no longer held: up to the record `first`, and
    /// up to `offset` bytes of the topic.
    pub(super) fn lose_behind(
        &mut self,
        index: u32,
        (first, offset): (u64, u64),
        why: (Place, Reason),
    ) {
        let sub = &mut self.peers.subs[index];
        if sub.start >= first {
            return;
        }
        let lost = Tally { records: first - sub.start, bytes: offset - sub.passed };
        let from = sub.start;
        (sub.start, sub.passed) = (first, offset);
        sub.books.expect(lost);
        let topic = &mut self.topics[sub.topic];
        self.ledger.expected(topic.tenant, &mut topic.books, lost);
        self.book_drop(index, (from, lost), why.0, why.1);
        self.peers.note_due(index);
        self.wake(index);
    }

    /// A subscription's outlet has a gap to tell.
    pub(super) fn wake(&mut self, index: u32) {
        let outlet = self.peers.subs[index].outlet;
        self.egress.wake(&mut self.peers.outlets, outlet);
    }
}
