//! From a queued job to the queues of its audience: checkpoint 5 for each subscription.

use super::fan_run::enqueue;
use super::{Broker, Close, FanOut, Progress};
use crate::backlog::{Decision, View, holds};
use crate::id::Ticket;
use crate::lag::Load;
use crate::ledger::{Ledger, Page, Tally};
use crate::memory::{Held, Memory};
use crate::notice::{Gap, Notice};
use crate::peers::{Outlet, Peers, Pipe, RUN, SLOT, Stage, Sub};
use crate::ring::Slot;
use crate::schedule::{Hold, Job, Origin};
use crate::shed::Band;
use crate::slab::NONE;
use crate::topic::Topic;
use crate::verdict::{Ack, Place, Policy, Reason};
use crate::writer::State;

/// What became of a batch at one subscription.
enum Reached {
    Queued,
    /// Not in the audience: joined later, or excluded.
    Passed,
    Dropped,
    /// The host has to write first.
    Wait,
}

/// What checkpoint 5 has to know about one subscription.
#[inline(always)]
pub(super) fn view(fan: &FanOut, sub: &Sub, outlet: &Outlet, band: Band) -> View {
    let (waiting, taken) = match outlet.pipe {
        Pipe::Shared => (outlet.waiting, outlet.taken),
        Pipe::Single => (sub.waiting, sub.taken),
    };
    View {
        policy: sub.policy,
        waiting,
        taken,
        limit: sub.limit,
        place: Place::Backlog,
        cost: fan.cost,
        refusing: outlet.write.refusing,
        band,
    }
}

/// Where a loss is booked.
pub(super) type Losers<'a> =
    (&'a mut Ledger, &'a mut Memory, &'a mut Topic, &'a mut Sub, &'a Outlet);

/// Books a batch as dropped, and keeps the gap for a subscriber who will still read.
#[inline(always)]
pub(super) fn book_loss(losers: Losers<'_>, (first, tally): (u64, Tally), why: (Place, Reason)) {
    book_run(losers, (first, first + tally.records - 1), tally, why);
}

/// The same, for records that are not all of `first..=last`.
#[inline(always)]
pub(super) fn book_run(
    (ledger, memory, topic, sub, outlet): Losers<'_>,
    (first, last): (u64, u64),
    tally: Tally,
    (place, reason): (Place, Reason),
) {
    let page = Page { tenant: topic.tenant, topic: &mut topic.books, sub: &mut sub.books };
    ledger.dropped(page, place, reason, tally);
    if sub.is_active() || outlet.closing == Some(Close::AfterFlush) {
        let before = sub.gaps.len();
        sub.gaps.add(Gap { first, last, records: tally.records, place, reason });
        memory.recharge(RUN * before, RUN * sub.gaps.len());
    }
}

impl Broker {
    /// Runs queued publishes, fairly, until `work` deliveries are prepared (a publish without an
    /// audience counts as one) or a peer that takes bytes has to be written to first.
    /// Does nothing while a joined notice waits: the host hears it before any record follows.
    /// Cost: O(work).
    pub fn step(&mut self, work: u32) -> Progress {
        self.tape_step(work);
        if self.mesh.unheard > 0 {
            return Progress::More;
        }
        self.take_answers();
        if self.schedule.is_unserved() {
            self.serve_parked();
        }
        let mut left = work;
        if !self.begin(&mut left) {
            return Progress::More;
        }
        let begun = work - left;
        left -= self.relieve(left);
        let share = self.share_of_behind(begun + left);
        left -= self.catch_up(share.saturating_sub(begun).min(left));
        loop {
            if self.fan.is_some() && !self.fan_out(&mut left) {
                return Progress::More;
            }
            if left == 0 {
                return if self.wants_step() { Progress::More } else { Progress::Idle };
            }
            if self.start_job() {
                left -= 1;
                continue;
            }
            let handed = self.catch_up(left);
            if handed == 0 {
                return if self.wants_step() { Progress::More } else { Progress::Idle };
            }
            left -= handed;
        }
    }

    /// How much of a step goes to subscriptions that catch up, while publishes wait as well: half,
    /// and of a step that cannot be halved every other one.
    fn share_of_behind(&mut self, work: u32) -> u32 {
        if work != 1 {
            return work / 2;
        }
        self.behind_next = !self.behind_next;
        self.behind_next.into()
    }

    /// Whether a step would find something to do.
    pub(super) fn wants_step(&self) -> bool {
        let running = self.fan.is_some() || self.schedule.is_runnable();
        let behind = !self.behind.is_empty() || !self.begun.is_empty();
        running
            || behind
            || self.schedule.is_unserved()
            || !self.mesh.answers.is_empty()
            || self.wants_relief()
    }

    /// Sequences the next job and begins its fan-out. False when nothing can run.
    fn start_job(&mut self) -> bool {
        self.update_band();
        let topics = &self.topics;
        let picked = self.schedule.pick(|topic| topics[topic].audience_len());
        let Some(index) = picked else { return false };
        let ticket = Ticket { index, generation: self.schedule.generation(index) };
        let job = self.schedule.take(index);
        match job.origin {
            Origin::Batch { .. } => self.begin_fan_out(job),
            Origin::Here if !self.is_owned(job.topic) => self.forward(ticket, job),
            Origin::Here | Origin::Forwarded { .. } => self.sequence(ticket, job),
        }
        // Its slot is free, before all its deliveries are made: a fresh publish comes after those
        // that wait.
        self.serve_parked();
        true
    }

    /// A batch gets its place in its topic, is kept and sent to other shards, and its fan-out
    /// begins.
    fn sequence(&mut self, ticket: Ticket, job: Job) {
        let topic = &mut self.topics[job.topic];
        let first = topic.sequence(job.tally.records);
        self.memory.sequence(job.message, first, topic.books.sequenced.bytes);
        self.ledger.sequenced(topic.tenant, &mut topic.books, job.tally);
        if job.ack != Ack::None && self.peers.conn(job.conn).is_ok() {
            self.notices.push_back(Notice::Committed { conn: job.conn, ticket, first });
        }
        if let Origin::Forwarded { shard, flight } = job.origin {
            self.answer_forward(job.topic, (shard, flight), Ok(first));
        }
        self.retain(job.topic, job.message, job.keep);
        self.post_batch(job.topic, job.message, job.except);
        self.begin_fan_out(job);
    }

    pub(super) fn begin_fan_out(&mut self, job: Job) {
        let here = job.except.filter(|(shard, _)| *shard == self.mesh.shard);
        let except = here.filter(|(_, outlet)| self.peers.outlet(*outlet).is_ok());
        let is_foreign = matches!(job.origin, Origin::Batch { .. });
        let lost = if is_foreign { self.lost_before(job.topic, job.message) } else { None };
        let held = self.memory.get(job.message);
        self.fan = Some(FanOut {
            tenant: self.topics[job.topic].tenant,
            topic: job.topic,
            message: job.message,
            first: held.first,
            tally: job.tally,
            cost: held.cost,
            served: 0,
            reached: 0,
            except: except.map_or(NONE, |(_, outlet)| outlet.index),
            conn: job.conn,
            permit: job.permit,
            is_foreign,
            lost,
        });
    }

    /// Goes on with the fan-out. True when it is finished.
    fn fan_out(&mut self, left: &mut u32) -> bool {
        let mut fan = self.fan.take().expect("called with a fan-out");
        // The first delivery was paid for when the job started.
        let paid = u32::from(fan.served == 0);
        let budget = left.saturating_add(paid);
        let mut room = budget;
        let done = loop {
            self.queue_run(&mut fan, &mut room);
            let Some(&sub) = self.topics[fan.topic].audience.get(fan.served as usize) else {
                break true;
            };
            if room == 0 {
                break false;
            }
            match self.reach(&mut fan, sub) {
                Reached::Queued | Reached::Dropped => room -= 1,
                Reached::Passed => {}
                Reached::Wait => break false,
            }
            fan.served += 1;
        };
        *left -= (budget - room).saturating_sub(paid).min(*left);
        self.book_reached(&mut fan);
        if !done {
            self.fan = Some(fan);
            return false;
        }
        self.end_fan_out(fan);
        true
    }

    /// A batch was offered to its whole audience.
    pub(super) fn end_fan_out(&mut self, fan: FanOut) {
        self.memory.release(fan.message);
        if let Some(permit) = fan.permit {
            self.give_permit(fan.conn, permit);
        }
        if fan.is_foreign {
            self.note_offered(fan.topic, fan.cost);
        }
        self.note_idle(fan.topic);
        self.serve_parked();
    }

    /// A fan-out ends here: for the rest of its audience the batch is dropped.
    pub(super) fn cut_short(&mut self, mut fan: FanOut, (place, reason): (Place, Reason)) {
        while let Some(&index) = self.topics[fan.topic].audience.get(fan.served as usize) {
            fan.served += 1;
            if !self.meet(&fan, index) {
                continue;
            }
            let sub = &mut self.peers.subs[index];
            if sub.start > fan.first || sub.outlet == fan.except {
                continue;
            }
            sub.books.expect(fan.tally);
            fan.reached += 1;
            self.book_reached(&mut fan);
            self.book_drop(index, (fan.first, fan.tally), place, reason);
            self.peers.note_due(index);
            self.wake(index);
        }
        self.end_fan_out(fan);
    }

    /// Books the subscriptions reached since the last time.
    fn book_reached(&mut self, fan: &mut FanOut) {
        let reached = core::mem::take(&mut fan.reached);
        if reached > 0 {
            let books = &mut self.topics[fan.topic].books;
            self.ledger.expected(fan.tenant, books, fan.tally.times(u64::from(reached)));
        }
    }

    /// Before a batch reaches a subscription: what was lost on the way here. False when there is
    /// nothing but that loss.
    fn meet(&mut self, fan: &FanOut, index: u32) -> bool {
        let sub = &self.peers.subs[index];
        if let Some((first, tally)) = fan.lost
            && sub.start < fan.first
        {
            let offset = self.memory.get(fan.message).offset;
            let lost = if sub.start <= first {
                (first, tally)
            } else {
                // It joined in the middle of what was lost.
                let records = fan.first - sub.start;
                (sub.start, Tally { records, bytes: offset - sub.passed })
            };
            self.lose_in_mesh(index, lost);
            self.peers.subs[index].start = fan.first;
        }
        fan.tally.records > 0
    }

    /// A batch reaches one subscription.
    fn reach(&mut self, fan: &mut FanOut, index: u32) -> Reached {
        if !self.meet(fan, index) {
            return Reached::Passed;
        }
        // Nothing in the queue may be given up: then the newest survives over the limit.
        let mut must_fit = false;
        let band = self.shedding();
        loop {
            let Self { egress, limits, memory, peers, .. } = self;
            let sub = &mut peers.subs[index];
            if sub.start > fan.first || sub.outlet == fan.except {
                return Reached::Passed;
            }
            let at = sub.outlet;
            let outlet = &mut peers.outlets[at];
            let mut view = view(fan, sub, outlet, band);
            if view.refusing && limits.egress_shed == 1 && outlet.pipe == Pipe::Single {
                let subs = u64::from(peers.conns[outlet.conn].subs.max(1));
                let batches = u32::try_from(limits.egress_batches).expect("a small range");
                view.narrow(Load { batches, bytes: limits.egress_bytes / subs });
            }
            let decision = view.decide();
            match if must_fit { Decision::Accept } else { decision } {
                Decision::Accept => {
                    enqueue(fan, (index, sub), outlet);
                    memory.retain(fan.message, 1);
                    memory.charge(SLOT);
                    fan.reached += 1;
                    let block = sub.policy == Policy::Block;
                    let refusing = outlet.write.refusing;
                    if outlet.write.state == State::Idle {
                        egress.wake(&mut peers.outlets, at);
                    }
                    if block {
                        self.note_hold(index);
                    }
                    if refusing {
                        self.note_heavy(at);
                    }
                    return Reached::Queued;
                }
                Decision::Wait => return Reached::Wait,
                Decision::Drop(place, reason) => {
                    sub.books.expect(fan.tally);
                    fan.reached += 1;
                    self.book_reached(fan);
                    self.book_drop(index, (fan.first, fan.tally), place, reason);
                    self.peers.note_due(index);
                    if place != Place::Memory {
                        self.note_full(at);
                    }
                    return Reached::Dropped;
                }
                Decision::DropOldest => {
                    let place = view.place;
                    self.book_reached(fan);
                    must_fit = !self.drop_oldest(at, place);
                    self.note_full(at);
                }
            }
        }
    }

    /// Drops the oldest batch of an outlet that is not taken and whose policy gives up the oldest.
    /// The caller notes what waits there afterwards.
    fn drop_oldest(&mut self, outlet: u32, place: Place) -> bool {
        let (outlets, subs) = (&mut self.peers.outlets, &self.peers.subs);
        let ring = &mut outlets[outlet].ring;
        let found = ring.find(|position, slot| {
            if slot.is_tombstone() || slot.is_control() {
                return false;
            }
            let sub = &subs[slot.sub];
            let gives_up = matches!(sub.policy, Policy::DropOld | Policy::Latest);
            gives_up && sub.is_active() && !sub.is_dead(position)
        });
        let Some(position) = found else { return false };
        self.lose(outlet, position, (place, Reason::DropOld));
        self.trim(outlet);
        self.note_room(outlet);
        true
    }

    /// Drops a batch that waits in a queue.
    pub(super) fn lose(&mut self, outlet: u32, position: u64, why: (Place, Reason)) {
        let Self { ledger, memory, peers: Peers { outlets, subs, .. }, topics, .. } = self;
        let queue = &mut outlets[outlet];
        let slot = queue.ring.bury(position, false);
        let &Held { cost, first, tally, .. } = memory.get(slot.message);
        let sub = &mut subs[slot.sub];
        queue.waiting.remove(cost);
        sub.waiting.remove(cost);
        sub.slots -= 1;
        book_loss((ledger, memory, &mut topics[sub.topic], sub, queue), (first, tally), why);
        let has_more = sub.is_active() && sub.waiting.batches > 0;
        memory.release(slot.message);
        if !has_more {
            self.peers.note_due(slot.sub);
            self.finish_sub(slot.sub);
        }
    }

    /// A queued slot of a subscription is no longer waiting.
    pub(super) fn forget_waiting(&mut self, outlet: u32, slot: Slot) {
        let cost = self.memory.get(slot.message).cost;
        self.peers.outlets[outlet].waiting.remove(cost);
        let sub = &mut self.peers.subs[slot.sub];
        sub.waiting.remove(cost);
        sub.slots -= 1;
    }

    /// Frees tombstones at the front of a ring, and compacts it when half of it is dead.
    pub(super) fn trim(&mut self, outlet: u32) {
        let ring = &mut self.peers.outlets[outlet].ring;
        let freed = ring.trim();
        self.memory.discharge(SLOT * freed);
        if ring.wants_compaction() {
            self.compact(outlet);
        }
    }

    /// Books a batch of a subscription as dropped, and keeps the gap for the subscriber.
    pub(super) fn book_drop(
        &mut self,
        index: u32,
        lost: (u64, Tally),
        place: Place,
        reason: Reason,
    ) {
        let Self { ledger, memory, peers: Peers { outlets, subs, .. }, topics, .. } = self;
        let sub = &mut subs[index];
        let (topic, outlet) = (&mut topics[sub.topic], &outlets[sub.outlet]);
        book_loss((ledger, memory, topic, sub, outlet), lost, (place, reason));
    }

    /// Keeps the topic's count of full `block` subscriptions true.
    pub(super) fn note_hold(&mut self, index: u32) {
        let sub = &mut self.peers.subs[index];
        let live = sub.stage == Stage::Live && sub.policy == Policy::Block;
        let now = live && holds(sub.waiting, sub.taken, sub.limit);
        if now == sub.holds {
            return;
        }
        sub.holds = now;
        let topic = sub.topic;
        self.note_blocking(index);
        if now {
            self.holds += 1;
            self.add_holder(topic);
        } else {
            self.remove_holder(topic);
        }
    }

    /// A topic accepts no further batch while it has holders.
    pub(super) fn add_holder(&mut self, topic: u32) {
        self.topics[topic].holding += 1;
        self.schedule.hold(topic, Hold::Block, true);
    }

    pub(super) fn remove_holder(&mut self, topic: u32) {
        let holding = &mut self.topics[topic].holding;
        *holding -= 1;
        if *holding == 0 {
            self.schedule.hold(topic, Hold::Block, false);
        }
    }
}
