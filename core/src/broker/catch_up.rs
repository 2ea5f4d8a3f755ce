//! Catching up: a subscription that started in the past is handed the topic's log as room appears,
//! and joins the audience when it meets the head.

use super::Broker;
use super::fan_out::book_run;
use crate::backlog::{has_half, holds};
use crate::lag::Load;
use crate::ledger::Tally;
use crate::mesh::{Head, Place as At};
use crate::notice::Gap;
use crate::peers::{Line, Peers, Pipe, RUN, SLOT, Stage, Sub, Unplaced};
use crate::replay::{Bounds, Entry, Keep, PAST, Past, Spot, Start};
use crate::ring::Slot;
use crate::shed::Band;
use crate::slab::NONE;
use crate::verdict::{Place, Reason};

/// What the log loses first.
pub(super) const LOST: (Place, Reason) = (Place::Backlog, Reason::Retention);

/// What a visit to a subscription that is catching up came to.
enum Visit {
    /// The owner of its topic was asked; the answer brings it back.
    Asked,
    /// One batch was queued for it.
    Handed,
    /// Its queue is half full, or, of one that has just begun and whose peer takes bytes, full; the
    /// next delivery brings it back.
    Full,
    /// It met the head of its topic.
    Joined,
}

impl Broker {
    /// Keeps a batch that was just sequenced, if it is to be kept. Under memory pressure, when logs
    /// go first, none is begun.
    pub(super) fn retain(&mut self, topic: u32, message: u32, keep: Keep) {
        let records = match keep {
            Keep::Default => self.limits.retention_records,
            Keep::Newest(most) => most.get().into(),
            Keep::No => 0,
        };
        let bounds = Bounds { records, bytes: self.limits.retention_bytes };
        if records == 0 {
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

    /// Where a subscription starts, now, at the owner of its topic.
    /// Cost: O(log of what is retained).
    pub(super) fn place_of(&self, topic: u32, start: Start) -> At {
        let Head { next, offset, epoch } = self.head(topic);
        let log = &self.topics[topic].log;
        let found = match start {
            Start::Tail => None,
            Start::Earliest => log.find(&self.memory, 0),
            Start::Last(n) => log.find_last(&self.memory, n),
            Start::At { epoch: of, sequence } => {
                let wanted = if of == epoch { sequence } else { 0 };
                log.find(&self.memory, wanted)
            }
        };
        let whole = log.kept(&self.memory);
        let (from, offset_of, before) = found.map_or((next, offset, whole), |entry| {
            let held = self.memory.get(entry.message);
            (held.first, held.offset, entry.before)
        });
        let (wanted, past) = match start {
            Start::At { epoch: of, sequence } if of == epoch => (sequence.max(1), Past::default()),
            Start::At { .. } => (1, Past::default()),
            _ => (from, Past { next, offset, whole, before }),
        };
        At { wanted, from, offset: offset_of, past }
    }

    /// A subscription starts there; what it asked for and is gone is told.
    pub(super) fn put_in_place(&mut self, index: u32, At { wanted, from, offset, past }: At) {
        let Self { memory, peers, .. } = self;
        let sub = &mut peers.subs[index];
        (sub.unplaced, sub.start, sub.passed) = (Unplaced::No, from, offset);
        if !past.is_over() {
            sub.place = peers.pasts.insert(past).0;
            memory.charge(PAST);
        }
        if wanted < from {
            let (place, reason) = LOST;
            let records = from - wanted;
            sub.gaps.add(Gap { first: wanted, last: from - 1, records, place, reason });
            memory.charge(RUN);
        }
    }

    /// Begins a subscription that starts in the past; true when it is behind its topic's head.
    pub(super) fn start_behind(&mut self, index: u32, start: Start) -> bool {
        let topic = self.peers.subs[index].topic;
        self.forget_old(topic);
        let place = self.place_of(topic, start);
        self.put_in_place(index, place);
        if place.from >= self.topics[topic].next {
            return false;
        }
        let sub = &mut self.peers.subs[index];
        sub.stage = Stage::Behind;
        sub.line = Line::Begun;
        self.begun.push_back(&mut self.peers.subs, index);
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
        let Peers { outlets, subs, .. } = &mut self.peers;
        let Sub { outlet, line, .. } = subs[index];
        subs[index].line = Line::Ready;
        match line {
            Line::Asked => self.mesh.fetching -= 1,
            Line::Begun => self.begun.unlink(subs, index),
            Line::Ready => self.behind.unlink(subs, index),
            Line::Stalled => outlets[outlet].stalled.unlink(subs, index),
        }
    }

    /// A subscription that is catching up waits until its outlet has less queued.
    fn stall(&mut self, index: u32) {
        self.stop_behind(index);
        let Peers { outlets, subs, .. } = &mut self.peers;
        subs[index].line = Line::Stalled;
        outlets[subs[index].outlet].stalled.push_back(subs, index);
    }

    /// Those that have just begun get their first batch, and join if it was the only one: what is
    /// sequenced next may push it out of a log that keeps little. False when a peer that takes
    /// bytes has to be written to first.
    pub(super) fn begin(&mut self, left: &mut u32) -> bool {
        while *left > 0
            && let Some(index) = self.begun.front()
        {
            match self.visit(index) {
                Visit::Asked => self.ask_for_past(index),
                Visit::Full if !self.refuses(index) => return false,
                Visit::Full => self.stall(index),
                Visit::Joined => self.join_at_head(index),
                Visit::Handed => {
                    *left -= 1;
                    self.stop_behind(index);
                    let head = self.head_here(self.peers.subs[index].topic);
                    if self.peers.subs[index].start >= head.0 {
                        self.join_at(index, head);
                    } else {
                        self.note_behind(index);
                    }
                }
            }
        }
        true
    }

    fn refuses(&self, index: u32) -> bool {
        self.peers.outlets[self.peers.subs[index].outlet].write.refusing
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
                Visit::Full => self.stall(index),
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
        self.forget_past(index);
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
        self.forget_answers();
        let behind = self.peers.subs.iter().filter(|(_, sub)| sub.stage == Stage::Behind);
        let behind: alloc::vec::Vec<u32> = behind.map(|(index, _)| index).collect();
        for index in behind {
            let sub = &self.peers.subs[index];
            let head = self.head_here(sub.topic);
            let is_placed = sub.unplaced == Unplaced::No;
            if is_placed {
                self.lose_behind(index, head_spot(head), why);
            }
            self.join_at_head(index);
            if !is_placed {
                self.note_joined(index, head.0);
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
        let (load, limit) = (self.load_of(sub), sub.limit);
        let is_full = if sub.line == Line::Begun && !self.refuses(index) {
            holds(load, Load::default(), limit)
        } else {
            has_half(load, limit)
        };
        if is_full {
            return Visit::Full;
        }
        if !owned {
            return Visit::Asked;
        }
        let Some(entry) = self.topics[topic].log.find(&self.memory, sub.start) else {
            self.lose_behind(index, head_spot(self.head_here(topic)), LOST);
            return Visit::Joined;
        };
        self.memory.retain(entry.message, 1);
        self.hand(index, entry);
        Visit::Handed
    }

    /// Queues a batch of the past, with the reference that it has, for a subscription; what is
    /// missing before it is lost.
    pub(super) fn hand(&mut self, index: u32, Entry { message, before }: Entry) {
        let held = self.memory.get(message);
        let (first, offset, tally, cost) = (held.first, held.offset, held.tally, held.cost);
        self.lose_behind(index, Spot { first, offset, before }, LOST);
        let sub = &mut self.peers.subs[index];
        let (topic, at) = (sub.topic, sub.outlet);
        sub.start = first + tally.records;
        sub.passed = offset + tally.bytes;
        sub.waiting.add(cost);
        sub.slots += 1;
        sub.books.expect(tally);
        let mut after = before;
        after += tally;
        self.move_past(index, after);
        let outlet = &mut self.peers.outlets[at];
        outlet.waiting.add(cost);
        outlet.ring.push(Slot { message, sub: index });
        self.memory.charge(SLOT);
        self.ledger.expected(self.topics[topic].tenant, &mut self.topics[topic].books, tally);
        self.egress.wake(&mut self.peers.outlets, at);
        self.note_heavy(at);
    }

    /// A subscription has passed so much of what was kept; with all of its past it goes on where it
    /// began.
    fn move_past(&mut self, index: u32, before: Tally) {
        let Some(&past) = self.peers.past_of(index) else { return };
        let past = Past { before, ..past };
        let sub = &mut self.peers.subs[index];
        self.peers.pasts[sub.place] = past;
        if past.is_over() {
            (sub.start, sub.passed) = (past.next, past.offset);
            self.forget_past(index);
        }
    }

    /// Of a subscription that is, or was, behind.
    fn forget_past(&mut self, index: u32) {
        let past = core::mem::replace(&mut self.peers.subs[index].place, NONE);
        if past != NONE {
            self.peers.pasts.remove(past);
            self.memory.discharge(PAST);
        }
    }

    /// Batches that a subscription still needed are no longer held, or never were: up to a spot of
    /// the topic.
    pub(super) fn lose_behind(&mut self, index: u32, spot: Spot, why: (Place, Reason)) {
        let from = self.peers.subs[index].start;
        if from >= spot.first {
            return;
        }
        if let Some(&past) = self.peers.past_of(index) {
            let is_within = spot.first < past.next;
            let before = if is_within { spot.before } else { past.whole };
            let to = spot.first.min(past.next);
            let sub = &mut self.peers.subs[index];
            (sub.start, sub.passed) = (to, spot.offset);
            self.move_past(index, before);
            let mut lost = before;
            lost -= past.before;
            self.lose_run(index, (from, to - 1), lost, why);
        }
        let sub = &mut self.peers.subs[index];
        let from = sub.start;
        if from < spot.first {
            let lost = Tally { records: spot.first - from, bytes: spot.offset - sub.passed };
            (sub.start, sub.passed) = (spot.first, spot.offset);
            self.lose_run(index, (from, spot.first - 1), lost, why);
        }
    }

    /// Some of the records `first..=last` were meant for a subscription and are lost.
    fn lose_run(&mut self, index: u32, run: (u64, u64), lost: Tally, why: (Place, Reason)) {
        if lost.records == 0 {
            return;
        }
        let Self { ledger, memory, peers: Peers { outlets, subs, .. }, topics, .. } = self;
        let sub = &mut subs[index];
        let (topic, outlet) = (&mut topics[sub.topic], &outlets[sub.outlet]);
        sub.books.expect(lost);
        ledger.expected(topic.tenant, &mut topic.books, lost);
        book_run((ledger, memory, topic, sub, outlet), run, lost, why);
        self.peers.note_due(index);
        self.wake(index);
    }

    /// A subscription's outlet has a gap to tell.
    pub(super) fn wake(&mut self, index: u32) {
        let outlet = self.peers.subs[index].outlet;
        self.egress.wake(&mut self.peers.outlets, outlet);
    }
}

/// The head of a topic: nothing that was kept comes after it.
fn head_spot((first, offset): (u64, u64)) -> Spot {
    Spot { first, offset, before: Tally::ZERO }
}
