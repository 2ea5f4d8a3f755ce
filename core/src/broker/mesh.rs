//! Many shards: publishes go to the shard that owns their topic, batches to the shards that have
//! subscriptions. What credit, sequence and interest need is here; queues and fan-out are the same
//! as on one shard.

use super::Broker;
use super::fetch::Answer;
use super::publish::SATURATED_RETRY_MS;
use crate::id::{ConnId, OutletId, SubId, TenantId, Ticket};
use crate::lag::Load;
use crate::lease::Permit;
use crate::ledger::Tally;
use crate::mesh::{self, Body, CREDIT_BATCHES, CREDIT_BYTES, Carried, Head, Outbox, Parcel};
use crate::notice::Notice;
use crate::peers::Unplaced;
use crate::replay::Keep;
use crate::schedule::{Hold, Job, Origin};
use crate::shed::Band;
use crate::slab::Slab;
use crate::time::Instant;
use crate::topic::{Credit, Member, Topic};
use crate::verdict::{Ack, Place, Policy, Reason, Refusal};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

/// This shard among the others.
#[derive(Debug)]
pub(super) struct Mesh {
    pub(super) shard: u32,
    pub(super) shards: u32,
    /// By destination.
    pub(super) outboxes: Vec<Outbox>,
    /// Publishes on their way to the owner of their topic, until it answers.
    pub(super) flights: Slab<Flight>,
    /// Topics whose credit is kept back while the shard is saturated.
    owing: Vec<u32>,
    /// A queue was full; and since when all have been less than half full.
    congested: bool,
    calm: Option<Instant>,
    /// Subscriptions that asked the owner of their topic for batches of the past.
    pub(super) fetching: u32,
    /// Answers that came since the last step.
    pub(super) answers: VecDeque<(SubId, Answer)>,
    /// Joined notices that the host has not polled.
    pub(super) unheard: u32,
}

/// For how long every queue to another shard has to be less than half full before one that was
/// full saturates the shard no longer.
const CALM: Duration = Duration::from_millis(100);

/// A publish that another shard sequences. It keeps its permit.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) conn: ConnId,
    pub(super) topic: u32,
    ack: Ack,
    ticket: Ticket,
    pub(super) permit: Permit,
}

impl Mesh {
    pub(super) fn new(shard: u32, shards: u32) -> Self {
        assert!(shard < shards && shards <= mesh::MAX_SHARDS, "a shard is one of all");
        let outboxes = (0..shards).map(|_| Outbox::default()).collect();
        Self {
            shard,
            shards,
            outboxes,
            flights: Slab::default(),
            owing: Vec::new(),
            congested: false,
            calm: None,
            fetching: 0,
            answers: VecDeque::new(),
            unheard: 0,
        }
    }
}

/// What hosts do.
impl Broker {
    /// The next parcel for another shard. A host asks while its way there has room; what it does
    /// not take waits here, bounded. Cost: O(1).
    pub fn poll_parcel(&mut self, to: u32) -> Option<Parcel> {
        self.tape_poll_parcel(to);
        let outbox = self.mesh.outboxes.get_mut(to as usize)?;
        if let Some(parcel) = outbox.pop() {
            self.memory.discharge(parcel.cost());
            self.note_calm();
            return Some(parcel);
        }
        let topic = outbox.pop_lossy()?;
        self.topics[topic].lossy &= !(1 << to);
        Some(self.parcel(topic, Body::Lost(self.head(topic))))
    }

    /// Whether any shard of the process [is saturated](Self::is_saturated): the host knows the bit
    /// of each and tells all of them when one changes. Until it says no, nothing new is admitted
    /// here, no subscription is taken and no peer is [welcome](Self::welcome).
    /// Cost: O(1); when it ends, O(publishes that are admitted).
    pub fn node(&mut self, saturated: bool) {
        self.tape_node(saturated);
        if core::mem::replace(&mut self.node_saturated, saturated) && !saturated {
            self.serve_parked();
        }
    }

    /// Whether a peer that comes to subscribe should be let in. Who only asks or publishes is: each
    /// of its calls gets an answer of its own. Cost: O(1).
    pub fn welcome(&self) -> Result<(), Refusal> {
        let place = match self.node_saturated {
            false => return Ok(()),
            true if self.bands.band() == Band::Saturated => Place::Memory,
            true => Place::Mesh,
        };
        Err(Refusal::after(place, Reason::Saturated, SATURATED_RETRY_MS))
    }

    /// Whether parcels should be handed in: not while many batches wait for their fan-out here.
    /// Those that are not handed in wait on their way, which is bounded. A host asks again after
    /// each [`step`](Self::step): nothing else may ever happen that makes it look.
    pub fn wants_parcels(&self) -> bool {
        u64::from(self.schedule.plain_batches()) < self.limits.mesh_depth
    }

    /// A parcel of another shard. Those of one shard are handed in in the order in which it gave
    /// them. Cost: O(log topics); O(subscriptions that wait for it) for the answer to a joining.
    pub fn receive(&mut self, from: u32, parcel: Parcel) {
        self.tape_receive(from, &parcel);
        let Parcel { tenant, topic: text, name, body } = parcel;
        let known = TenantId { index: tenant, generation: 0 };
        let topic = match &body {
            Body::Forward(..) | Body::Interest { on: true, .. } => {
                self.topic_named(known, &text, name)
            }
            _ => self.find_topic(known, &text).ok_or(Refusal::GONE),
        };
        match (body, topic) {
            (Body::Forward(carried, flight, keep), Ok(topic)) => {
                self.take_forward(topic.index, (carried, keep), (from, flight));
            }
            (Body::Forward(carried, flight, _), Err(why)) => {
                let bytes = carried.frame.len() as u64;
                let tally = Tally { records: carried.records, bytes };
                self.ledger.received(tenant, tally);
                self.ledger.evicted(tenant, why, tally);
                let body = Body::Done(flight, Err(why));
                self.post(from, Parcel { tenant, topic: text, name, body });
            }
            (Body::Interest { on: true, .. }, Err(why)) => {
                let body = Body::Joined(Err(why));
                self.post(from, Parcel { tenant, topic: text, name, body });
            }
            (Body::Interest { on, block }, Ok(topic)) => {
                self.take_interest(topic.index, from, on, block);
            }
            (Body::Done(flight, outcome), Ok(topic)) => self.land(topic.index, flight, outcome),
            (Body::Joined(head), Ok(topic)) => self.take_joined(topic.index, head),
            (Body::Batch(carried, first, offset), Ok(topic)) => {
                self.take_batch(topic.index, carried, (first, offset));
            }
            (Body::Lost(head), Ok(topic)) => self.take_lost(topic.index, head),
            (Body::Credit(batches, bytes), Ok(topic)) => {
                self.take_credit(topic.index, from, (batches, bytes));
            }
            (Body::Fetch(fetch), Ok(topic)) => self.take_fetch(topic.index, from, fetch),
            (Body::Place(sub, place), Ok(_)) => self.take_place(sub, place),
            (Body::Past(sub, carried, spot), Ok(_)) => self.take_past(sub, carried, spot),
            (Body::Fetched(sub, head, is_met), Ok(_)) => self.take_fetched(sub, head, is_met),
            // The topic is gone here: nobody is left who would want it.
            (_, Err(_)) => {}
        }
    }
}

/// Leaving this shard.
impl Broker {
    pub(super) fn post(&mut self, to: u32, parcel: Parcel) {
        self.memory.charge(parcel.cost());
        self.mesh.outboxes[to as usize].push(parcel);
    }

    pub(super) fn parcel(&self, topic: u32, body: Body) -> Parcel {
        let Topic { tenant, name, named, .. } = &self.topics[topic];
        Parcel { tenant: *tenant, topic: name.clone(), name: *named, body }
    }

    pub(super) fn head(&self, topic: u32) -> Head {
        let Topic { next, epoch, books, .. } = &self.topics[topic];
        Head { next: *next, offset: books.sequenced.bytes, epoch: *epoch }
    }

    pub(super) fn is_owned(&self, topic: u32) -> bool {
        self.topics[topic].owner == self.mesh.shard
    }

    /// A job of this shard goes to the owner of its topic. It keeps its permit until that answers.
    pub(super) fn forward(&mut self, ticket: Ticket, job: Job) {
        let Job { conn, topic, message, tally, ack, except, keep, permit, .. } = job;
        let held = self.memory.get(message);
        let carried =
            Carried { frame: held.frame.clone(), records: tally.records, at: held.at, except };
        let cost = held.cost;
        self.memory.release(message);
        let permit = permit.expect("a job of this shard has its permit");
        let flight = Flight { conn, topic, ack, ticket, permit };
        let (index, generation) = self.mesh.flights.insert(flight);
        self.ledger.forwarded(self.topics[topic].tenant, tally);
        self.topics[topic].flying.add(cost);
        self.note_flying(topic);
        let body = Body::Forward(carried, Ticket { index, generation }, keep);
        self.post(self.topics[topic].owner, self.parcel(topic, body));
        self.note_idle(topic);
    }

    /// Keeps the lane of a topic that another shard owns within its credit.
    fn note_flying(&mut self, topic: u32) {
        let Load { batches, bytes } = self.topics[topic].flying;
        let spent = batches >= CREDIT_BATCHES || bytes >= CREDIT_BYTES;
        self.schedule.hold(topic, Hold::Credit, spent);
    }

    /// A publish of this shard has its answer: permit and credit come back.
    fn land(&mut self, topic: u32, flight: Ticket, outcome: Result<u64, Refusal>) {
        let known = self.mesh.flights.get(flight.index, flight.generation).is_some();
        assert!(known, "a publish is answered once");
        let Flight { conn, ack, ticket, permit, .. } = self.mesh.flights.remove(flight.index);
        self.topics[topic].flying.remove(permit.cost());
        self.note_flying(topic);
        self.give_permit(conn, permit);
        if ack != Ack::None && self.peers.conn(conn).is_ok() {
            self.notices.push_back(match outcome {
                Ok(first) => Notice::Committed { conn, ticket, first },
                Err(why) => Notice::Failed { conn, ticket, why },
            });
        }
        self.note_idle(topic);
        self.serve_parked();
    }

    /// A batch that was just sequenced goes to every shard that wants it.
    pub(super) fn post_batch(&mut self, topic: u32, message: u32, except: Option<(u32, OutletId)>) {
        let mut left = self.topics[topic].interest;
        while left != 0 {
            let to = left.trailing_zeros();
            left &= left - 1;
            let held = self.memory.get(message);
            let (frame, records, at) = (held.frame.clone(), held.tally.records, held.at);
            let carried = Carried { frame, records, at, except };
            let body = Body::Batch(carried, held.first, held.offset);
            let cost = held.cost;
            let parcel = self.parcel(topic, body);
            if self.spend_credit(topic, to, cost) {
                self.post(to, parcel);
            } else if self.mesh.outboxes[to as usize].has_room(self.limits.mesh_depth) {
                self.memory.charge(parcel.cost());
                self.mesh.outboxes[to as usize].push_plain(parcel);
                self.note_calm();
            } else {
                self.note_unsent(topic, to);
            }
        }
    }

    /// A batch found no room on its way to a shard, which will be told where the topic is.
    fn note_unsent(&mut self, topic: u32, to: u32) {
        self.mesh.congested = true;
        self.mesh.calm = None;
        let lossy = &mut self.topics[topic].lossy;
        if *lossy & (1 << to) == 0 {
            *lossy |= 1 << to;
            self.mesh.outboxes[to as usize].note_lost(topic);
        }
    }

    /// A queue that was full is not held against the shard for ever. Cost: O(shards) while it is.
    pub(super) fn note_calm(&mut self) {
        if !self.mesh.congested {
            return;
        }
        let depth = self.limits.mesh_depth;
        if !self.mesh.outboxes.iter().all(|outbox| outbox.is_calm(depth)) {
            self.mesh.calm = None;
        } else if *self.mesh.calm.get_or_insert(self.now) + CALM <= self.now {
            self.mesh.congested = false;
        }
    }

    /// When a queue that was full is forgiven, if it stays as it is.
    pub(super) fn calm_at(&self) -> Option<Instant> {
        self.mesh.calm.filter(|_| self.mesh.congested).map(|since| since + CALM)
    }

    /// Whether a queue to another shard was full, and not all of them have been less than half
    /// full for 100 ms since.
    pub(super) const fn is_congested(&self) -> bool {
        self.mesh.congested
    }

    /// A batch for a shard with `block` subscriptions takes credit. False when it has none there.
    fn spend_credit(&mut self, topic: u32, to: u32, cost: u64) -> bool {
        let credits = &mut self.topics[topic].credits;
        let Some(credit) = credits.iter_mut().find(|credit| credit.shard == to) else {
            return false;
        };
        credit.batches = credit.batches.saturating_sub(1);
        credit.bytes = credit.bytes.saturating_sub(cost);
        if credit.is_spent() && !core::mem::replace(&mut credit.holds, true) {
            self.add_holder(topic);
        }
        true
    }
}

/// At the owner of a topic.
impl Broker {
    /// A publish of another shard waits in its topic's lane like one of this shard.
    fn take_forward(
        &mut self,
        topic: u32,
        (carried, keep): (Carried, Keep),
        (shard, flight): (u32, Ticket),
    ) {
        let Carried { frame, records, at, except } = carried;
        let tally = Tally { records, bytes: frame.len() as u64 };
        let message = self.memory.hold(frame, records, at.min(self.now));
        self.ledger.received(self.topics[topic].tenant, tally);
        let mut job = Job::new(ConnId::NOBODY, topic, message, tally, Ack::None);
        job.except = except;
        job.origin = Origin::Forwarded { shard, flight };
        job.keep = keep;
        self.schedule.push_remote(job);
        self.note_idle(topic);
    }

    /// Answers a publish of another shard: it was just sequenced, or never will be.
    pub(super) fn answer_forward(
        &mut self,
        topic: u32,
        (to, flight): (u32, Ticket),
        outcome: Result<u64, Refusal>,
    ) {
        self.post(to, self.parcel(topic, Body::Done(flight, outcome)));
    }

    /// A shard wants the topic's batches, or no longer.
    fn take_interest(&mut self, topic: u32, from: u32, on: bool, block: bool) {
        let bit = 1 << from;
        let had = self.topics[topic].interest & bit != 0;
        let credits = &mut self.topics[topic].credits;
        let at = credits.iter().position(|credit| credit.shard == from);
        let mut news = on && !had;
        if on && block {
            if at.is_none() {
                credits.push(Credit::new(from));
                news = true;
            }
        } else if let Some(at) = at
            && credits.swap_remove(at).holds
        {
            self.remove_holder(topic);
        }
        if on {
            self.topics[topic].interest |= bit;
        } else {
            self.topics[topic].interest &= !bit;
            if self.topics[topic].lossy & bit != 0 {
                self.topics[topic].lossy &= !bit;
                self.mesh.outboxes[from as usize].forget_lost(topic);
            }
        }
        if news {
            let head = self.head(topic);
            self.post(from, self.parcel(topic, Body::Joined(Ok(head))));
        }
        self.note_idle(topic);
    }

    /// A shard with `block` subscriptions offered batches to all of them.
    fn take_credit(&mut self, topic: u32, from: u32, (batches, bytes): (u32, u64)) {
        let credits = &mut self.topics[topic].credits;
        let Some(credit) = credits.iter_mut().find(|credit| credit.shard == from) else { return };
        credit.batches = (credit.batches + batches).min(CREDIT_BATCHES);
        credit.bytes = (credit.bytes + bytes).min(CREDIT_BYTES);
        if !credit.is_spent() && core::mem::replace(&mut credit.holds, false) {
            self.remove_holder(topic);
        }
    }
}

/// At a shard with subscriptions to a topic that another one owns.
impl Broker {
    /// Tells the owner of a topic what this shard's subscriptions want of it, when that changed
    /// and the owner has answered the last time.
    pub(super) fn note_interest(&mut self, index: u32) {
        if self.is_owned(index) {
            return;
        }
        let topic = &mut self.topics[index];
        let on = !topic.audience.is_empty() || !topic.pending.is_empty() || topic.fetchers > 0;
        let block = on && topic.blockers > 0;
        match topic.member {
            _ if topic.asked => return,
            Member::Off if on => topic.member = Member::Asked,
            Member::Joined if !on => topic.member = Member::Off,
            Member::Joined if block != topic.told_block => {}
            _ => return,
        }
        // It answers when it is to send batches that it did not, or by credit from now on.
        topic.asked = topic.member == Member::Asked || (block && !topic.told_block);
        topic.told_block = block;
        let owner = topic.owner;
        if !on {
            topic.owed = Load::default();
            self.mesh.owing.retain(|owing| *owing != index);
        }
        self.post(owner, self.parcel(index, Body::Interest { on, block }));
        self.note_idle(index);
    }

    /// The owner answered: everybody who waits is in the audience from here on.
    fn take_joined(&mut self, index: u32, head: Result<Head, Refusal>) {
        let topic = &mut self.topics[index];
        topic.asked = false;
        let was = core::mem::replace(&mut topic.member, Member::Joined);
        topic.answered = head.map_or(0, |head| head.next);
        match head {
            // What was sent before may still wait for its fan-out: it has its own numbers.
            Ok(_) if was == Member::Joined => {}
            Ok(Head { next, offset, epoch }) => {
                (topic.next, topic.passed, topic.epoch) = (next, offset, epoch);
            }
            Err(_) => topic.member = Member::Off,
        }
        let told_block = self.topics[index].told_block;
        for _ in 0..self.topics[index].pending.len() {
            let pending = &mut self.topics[index].pending;
            let sub = pending.pop_front(&mut self.peers.subs).expect("as many as it says");
            match head {
                // The owner does not send by credit yet: it is asked next.
                Ok(_) if self.peers.subs[sub].policy == Policy::Block && !told_block => {
                    self.topics[index].pending.push_back(&mut self.peers.subs, sub);
                }
                Ok(_) if self.peers.subs[sub].unplaced != Unplaced::No => {
                    self.start_far_behind(sub);
                }
                Ok(Head { next: start, offset, .. }) => {
                    self.join_audience(sub, start);
                    self.peers.subs[sub].passed = offset;
                    self.note_joined(sub, start);
                }
                Err(why) => self.refuse_pending(sub, why),
            }
        }
        self.note_interest(index);
        self.note_idle(index);
    }

    /// A subscription to a topic of another shard is in force. No step does anything until the host
    /// has heard it, so that what it writes then comes before the records.
    pub(super) fn note_joined(&mut self, index: u32, start: u64) {
        let sub = self.peers.sub_id(index);
        self.mesh.unheard += 1;
        self.notices.push_back(Notice::Joined { sub, start });
    }

    /// A batch waits in its topic's lane for its fan-out here.
    fn take_batch(&mut self, topic: u32, carried: Carried, (first, offset): (u64, u64)) {
        if self.topics[topic].member != Member::Joined {
            return;
        }
        let Carried { frame, records, at, except } = carried;
        let tally = Tally { records, bytes: frame.len() as u64 };
        let message = self.memory.hold(frame, records, at.min(self.now));
        self.memory.sequence(message, first, offset);
        let mut job = Job::new(ConnId::NOBODY, topic, message, tally, Ack::None);
        let plain = !self.topics[topic].told_block;
        job.origin = Origin::Batch { plain };
        job.except = except;
        self.schedule.push_remote(job);
        self.note_idle(topic);
    }

    /// Batches of a topic were lost on their way, and none follows at once.
    fn take_lost(&mut self, topic: u32, head: Head) {
        if self.topics[topic].member != Member::Joined {
            return;
        }
        // A batch of no record: its fan-out finds the sequence ahead of the topic's.
        let message = self.memory.hold(bytes::Bytes::new(), 0, self.now);
        self.memory.sequence(message, head.next, head.offset);
        let mut job = Job::new(ConnId::NOBODY, topic, message, Tally::ZERO, Ack::None);
        job.origin = Origin::Batch { plain: true };
        self.schedule.push_remote(job);
        self.note_idle(topic);
    }

    /// A batch of another shard begins its fan-out: what is missing before it was lost.
    pub(super) fn lost_before(&mut self, topic: u32, message: u32) -> Option<(u64, Tally)> {
        let held = self.memory.get(message);
        let (first, offset, tally) = (held.first, held.offset, held.tally);
        let topic = &mut self.topics[topic];
        let lost = Tally {
            records: first.saturating_sub(topic.next),
            bytes: offset.saturating_sub(topic.passed),
        };
        let from = topic.next;
        if first >= from {
            (topic.next, topic.passed) = (first + tally.records, offset + tally.bytes);
        }
        (lost.records > 0).then_some((from, lost))
    }

    /// A subscription learns of batches that were lost on their way to this shard.
    pub(super) fn lose_in_mesh(&mut self, index: u32, lost: (u64, Tally)) {
        let sub = &mut self.peers.subs[index];
        sub.books.expect(lost.1);
        let topic = &mut self.topics[sub.topic];
        self.ledger.expected(topic.tenant, &mut topic.books, lost.1);
        self.book_drop(index, lost, Place::Mesh, Reason::MeshFull);
        self.peers.note_due(index);
        self.wake(index);
    }

    /// A batch was offered to this shard's audience: its owner gets the credit back, but not while
    /// the shard is saturated.
    pub(super) fn note_offered(&mut self, index: u32, cost: u64) {
        let topic = &mut self.topics[index];
        if topic.member != Member::Joined || !topic.told_block {
            return;
        }
        if topic.owed.batches == 0 {
            self.mesh.owing.push(index);
        }
        topic.owed.add(cost);
        if self.bands.band() != Band::Saturated {
            self.pay_credit();
        }
    }

    /// Returns the credit that is owed.
    pub(super) fn pay_credit(&mut self) {
        while let Some(index) = self.mesh.owing.pop() {
            let Load { batches, bytes } = core::mem::take(&mut self.topics[index].owed);
            if batches > 0 {
                let body = Body::Credit(batches, bytes);
                self.post(self.topics[index].owner, self.parcel(index, body));
            }
        }
    }
}
