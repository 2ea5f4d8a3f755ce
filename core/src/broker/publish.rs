//! Checkpoints 3 and 4 as one decision: room first, then everything at once, or nothing.

use super::{Broker, Message};
use crate::admission::Admission;
use crate::id::{ConnId, Ticket, TopicId};
use crate::lease::Permit;
use crate::ledger::Tally;
use crate::memory::cost;
use crate::notice::Notice;
use crate::peers::{PAUSE_FULL, PAUSE_PARKED};
use crate::schedule::{Job, Standing};
use crate::shed::Band;
use crate::verdict::{Ack, Place, Reason, Refusal, Verdict};

/// The most records of a batch.
const MAX_RECORDS: u32 = 4096;
/// Advice while the shard, or another one, is saturated.
pub(super) const SATURATED_RETRY_MS: u16 = 1_000;
/// To a source that is paused and brings something all the same.
const BUSY: Refusal = Refusal::after(Place::Schedule, Reason::Busy, SATURATED_RETRY_MS);

impl Broker {
    /// Publishes a batch. `source`: a connection, or one of its [sources](Self::source); it must
    /// not be paused. Cost: O(1).
    pub fn publish(&mut self, source: ConnId, topic: TopicId, message: Message) -> Verdict {
        self.tape_publish(source, topic, &message);
        let Ok(peer) = self.peers.conn(source) else { return Verdict::Refused(Refusal::GONE) };
        let tenant = peer.tenant;
        let tally =
            Tally { records: u64::from(message.records), bytes: message.frame.len() as u64 };
        self.ledger.offered(tenant, tally);
        let barred = self.barred(source).or_else(|| self.unfit(tenant, topic, &message));
        if let Some(why) = barred {
            return self.turn_away(source, message.ack, tally, why);
        }
        self.update_band();
        let price = cost(tally.bytes, tally.records);
        let standing = self.schedule.standing(core::iter::once(topic.index));
        match self.room_for(source, standing, 1, price) {
            Ok(()) => {
                self.make_room(tenant, price, Some(source));
                Verdict::Queued(self.admit(source, topic.index, message, tally))
            }
            Err(_) if self.waits(message.ack) && self.is_full(source) => {
                self.turn_away(source, message.ack, tally, BUSY)
            }
            Err(_) if self.waits(message.ack) => {
                Verdict::Parked(self.park(source, topic.index, message, tally))
            }
            Err(why) => self.turn_away(source, message.ack, tally, why),
        }
    }

    /// Whether the sources of a connection have as much parked as they may. Where there is room a
    /// publish is admitted all the same: a call of many is not broken off in the middle.
    fn is_full(&self, source: ConnId) -> bool {
        let conn = self.peers.conns[source.index].conn;
        self.peers.conns[conn].paused & PAUSE_FULL != 0
    }

    /// Why a source may publish nothing now, if so.
    fn barred(&self, source: ConnId) -> Option<Refusal> {
        let peer = &self.peers.conns[source.index];
        if !self.is_running() {
            Some(Self::shutting_down())
        } else if peer.closing {
            Some(Refusal::never(Place::Admission, Reason::Closed))
        } else if !peer.parked.is_empty() {
            Some(BUSY)
        } else {
            None
        }
    }

    /// Why a message can never be published as it is, if so.
    fn unfit(&self, tenant: u32, topic: TopicId, message: &Message) -> Option<Refusal> {
        let Ok(index) = self.topic_index(topic) else { return Some(Refusal::GONE) };
        if self.topics[index].tenant != tenant {
            return Some(Refusal::never(Place::Table, Reason::NotAllowed));
        }
        let bytes = message.frame.len() as u64;
        if bytes == 0 {
            return Some(Refusal::never(Place::Admission, Reason::NotAllowed));
        }
        let fits = bytes <= self.limits.max_frame_bytes
            && (1..=MAX_RECORDS).contains(&message.records)
            && self.admission.can_ever_fit(cost(bytes, u64::from(message.records)));
        (!fits).then_some(Refusal::never(Place::Admission, Reason::Oversize))
    }

    /// Whether `jobs` publishes of one record and `bytes` frame bytes in all would be admitted
    /// now. For calls that name several topics: ask once, then publish each, or
    /// [`refuse`](Self::refuse) all. `topics`: those of the call that exist; nobody waits for one
    /// that does not. Cost: O(topics); when the queue is full, O(tenants with jobs).
    pub fn room(
        &self,
        source: ConnId,
        (jobs, bytes): (u32, u64),
        topics: impl Iterator<Item = TopicId>,
    ) -> Result<(), Refusal> {
        self.peers.conn(source)?;
        if let Some(why) = self.barred(source) {
            return Err(why);
        }
        let known = topics.filter_map(|topic| self.topic_index(topic).ok());
        let standing = self.schedule.standing(known);
        let price = cost(0, 1) * u64::from(jobs) + bytes;
        if !self.admission.can_ever_fit(price) {
            return Err(Refusal::never(Place::Admission, Reason::Oversize));
        }
        self.room_for(source, standing, jobs, price)?;
        // The first of them must not bring about the band in which the last one is refused.
        if self.memory.bytes() + price >= self.budget() {
            return Err(Refusal::after(Place::Memory, Reason::Saturated, SATURATED_RETRY_MS));
        }
        Ok(())
    }

    /// A call was refused whole, after [`room`](Self::room) said no: books what it brought.
    /// Cost: O(1).
    pub fn refuse(&mut self, conn: ConnId, brought: Tally, why: Refusal) {
        self.tape_refuse(conn, brought, why);
        let Ok(peer) = self.peers.conn(conn) else { return };
        let tenant = peer.tenant;
        self.ledger.offered(tenant, brought);
        self.ledger.refused(tenant, why, brought);
    }

    fn room_for(
        &self,
        source: ConnId,
        standing: Standing,
        jobs: u32,
        price: u64,
    ) -> Result<(), Refusal> {
        if self.bands.band() == Band::Saturated {
            return Err(Refusal::after(Place::Memory, Reason::Saturated, SATURATED_RETRY_MS));
        }
        self.welcome()?;
        let peer = &self.peers.conns[source.index];
        let (tenant, spoken_for) = (peer.tenant, self.spoken_for(peer.conn));
        let spared = |job: &Job| self.is_spared(job, source);
        self.schedule.room(tenant, standing, jobs, spared)?;
        self.admission.own_room(tenant, spoken_for, price)?;
        let has_bytes = self.admission.missing(price) == 0
            || self.is_due_bytes(tenant, price)
                && self.yielding(tenant) >= self.admission.missing(price);
        if has_bytes { Ok(()) } else { Err(Admission::FULL) }
    }

    /// Whether a tenant has a right to bytes that others have taken.
    fn is_due_bytes(&self, tenant: u32, price: u64) -> bool {
        let floor = self.admission.floor(self.schedule.active_with(tenant));
        self.admission.used_by(tenant) + price <= floor
    }

    /// What pushing out those who have more than their floor gives a tenant.
    /// Cost: O(tenants with jobs).
    fn yielding(&self, tenant: u32) -> u64 {
        let floor = self.admission.floor(self.schedule.active_with(tenant));
        self.schedule.yielding(floor, |other| self.admission.used_by(other))
    }

    /// Whether a job is not pushed out for a fresh publish of `source`: the source of a job that
    /// waits again is busy, and so could not finish a call of many publishes.
    fn is_spared(&self, job: &Job, source: ConnId) -> bool {
        self.waits(job.ack) && self.source_of(job) == Some(source.index)
    }

    /// Pushes out what stands in the way of a publish that has room; `fresh`: its source, unless
    /// it was parked.
    fn make_room(&mut self, tenant: u32, price: u64, fresh: Option<ConnId>) {
        while !self.schedule.has_slot() {
            let spared = |job: &Job| fresh.is_some_and(|source| self.is_spared(job, source));
            let victim = self.schedule.victim(tenant, spared);
            self.push_out(tenant, victim.expect("who gets a slot that is not free finds it"));
        }
        let floor = self.admission.floor(self.schedule.active_with(tenant));
        while self.admission.missing(price) > 0 {
            let used = |other| self.admission.used_by(other);
            let victim = self.schedule.victim_by_bytes(floor, used);
            self.push_out(tenant, victim.expect("who is below its floor finds one above it"));
        }
    }

    /// An admitted job makes room for `other`, a tenant. One that may wait, waits again, before all
    /// others; any other one ends here, and its publisher is told.
    fn push_out(&mut self, other: u32, index: u32) {
        // It may have held more than the one that it makes way for takes.
        self.schedule.note_unserved();
        let job = self.schedule.job(index);
        let tenant = self.topics[job.topic].tenant;
        if self.waits(job.ack)
            && let Some(source) = self.source_of(job)
        {
            return self.demote(index, source);
        }
        let reason = if tenant == other { Reason::TopicHeld } else { Reason::TenantShare };
        self.discard(index, Refusal::after(Place::Schedule, reason, SATURATED_RETRY_MS));
    }

    /// To which source a job goes back: its own, or where that has ended, the connection; none
    /// where that is ending.
    fn source_of(&self, job: &Job) -> Option<u32> {
        let takes = |id: &ConnId| self.peers.conn(*id).is_ok_and(|peer| !peer.closing);
        [job.source, job.conn].into_iter().find(takes).map(|id| id.index)
    }

    /// An admitted job waits again, before all others of its source and its tenant.
    fn demote(&mut self, index: u32, source: u32) {
        self.break_promise(source);
        let id = self.peers.conn_id(source);
        let permit = {
            let parked = &mut self.peers.conns[source].parked;
            self.schedule.demote(index, (id, parked), self.now)
        };
        let job = self.schedule.job(index);
        let (conn, tally, topic) = (job.conn, job.tally, job.topic);
        let price = permit.cost();
        let peer = &mut self.peers.conns[conn.index];
        self.admission.give(permit, Some(&mut peer.inflight));
        self.ledger.returned(self.topics[topic].tenant, tally);
        self.promise(conn.index, price);
        self.note_waiting(conn.index, price, true);
        self.pause(source, PAUSE_PARKED, true);
        // What was promised to the one behind it may be enough for another source.
        self.unstood.push(conn);
    }

    /// An admitted job ends before it is sequenced, and its publisher is told.
    pub(super) fn discard(&mut self, index: u32, why: Refusal) {
        let job = self.schedule.job(index);
        let (conn, tally, ack) = (job.conn, job.tally, job.ack);
        let tenant = self.topics[job.topic].tenant;
        let ticket = self.ticket(index);
        let job = self.schedule.evict(index);
        let permit = job.permit.expect("a queued job has its permit");
        let alive = self.peers.conn(conn).is_ok();
        let used = alive.then(|| &mut self.peers.conns[conn.index].inflight);
        self.admission.give(permit, used);
        // A publish that waits for these bytes stands in line when parked ones are served, and not
        // in the middle of a call of many publishes, which would end there.
        self.schedule.note_unserved();
        self.unstood.push(conn);
        self.memory.release(job.message);
        self.ledger.evicted(tenant, why, tally);
        self.note_idle(job.topic);
        match (ack, self.peers.conn(conn).is_ok()) {
            (_, false) => {}
            (Ack::None, true) => self.note_shed(conn.index, tally.records, why),
            (Ack::Now | Ack::Wait, true) => {
                self.notices.push_back(Notice::Failed { conn, ticket, why });
            }
        }
    }

    /// Gives a permit back to the shard, the tenant and, if it is still there, the connection.
    pub(super) fn give_permit(&mut self, conn: ConnId, permit: Permit) {
        if self.peers.conn(conn).is_err() {
            return self.admission.give(permit, None);
        }
        let peer = &mut self.peers.conns[conn.index];
        self.admission.give(permit, Some(&mut peer.inflight));
        self.serve_short(conn.index);
    }

    /// Records were discarded: the publisher is told in the next shed notice. What was discarded
    /// elsewhere, or for another reason, is told before.
    fn note_shed(&mut self, index: u32, records: u64, why: Refusal) {
        if records == 0 {
            return;
        }
        let why = (why.place, why.reason);
        let peer = &mut self.peers.conns[index];
        if peer.shed > 0 && peer.shed_why != why {
            let notice = self.take_shed(index);
            self.notices.push_back(notice);
        }
        let peer = &mut self.peers.conns[index];
        peer.shed += records;
        peer.shed_why = why;
        if !peer.untold_is_linked() {
            self.peers.untold.push_back(&mut self.peers.conns, index);
        }
    }

    const fn waits(&self, ack: Ack) -> bool {
        match ack {
            Ack::None => self.limits.unacked_waits(),
            Ack::Now => false,
            Ack::Wait => true,
        }
    }

    fn admit(&mut self, source: ConnId, topic: u32, message: Message, tally: Tally) -> Ticket {
        let mut job = self.job(source, topic, message, tally);
        let price = self.memory.get(job.message).cost;
        let peer = &mut self.peers.conns[job.conn.index];
        job.permit = Some(self.admission.take(peer.tenant, &mut peer.inflight, price));
        self.ledger.admitted(peer.tenant, tally);
        let index = self.schedule.push(job);
        self.note_idle(topic);
        self.ticket(index)
    }

    fn park(&mut self, source: ConnId, topic: u32, message: Message, tally: Tally) -> Ticket {
        let job = self.job(source, topic, message, tally);
        let price = self.memory.get(job.message).cost;
        let peer = &mut self.peers.conns[source.index];
        let (conn, tenant) = (peer.conn, peer.tenant);
        let index = self.schedule.park(job, &mut peer.parked, self.now);
        self.ledger.parked(tenant, tally);
        self.note_waiting(conn, price, true);
        self.stand_next(source.index);
        self.pause(source.index, PAUSE_PARKED, true);
        self.note_idle(topic);
        self.ticket(index)
    }

    fn job(&mut self, source: ConnId, topic: u32, message: Message, tally: Tally) -> Job {
        let held = self.memory.hold(message.frame, tally.records, self.now);
        let conn = self.peers.conn_id(self.peers.conns[source.index].conn);
        let mut job = Job::new(conn, topic, held, tally, message.ack);
        job.source = source;
        job.except = message.except;
        job.keep = message.keep;
        job
    }

    pub(super) fn ticket(&self, index: u32) -> Ticket {
        Ticket { index, generation: self.schedule.generation(index) }
    }

    /// No: answered if the publish is acked, else shed and told in the next shed notice.
    fn turn_away(&mut self, source: ConnId, ack: Ack, tally: Tally, why: Refusal) -> Verdict {
        let peer = &self.peers.conns[source.index];
        let conn = peer.conn;
        if ack != Ack::None {
            self.ledger.refused(peer.tenant, why, tally);
            return Verdict::Refused(why);
        }
        self.ledger.shed(peer.tenant, why, tally);
        self.note_shed(conn, tally.records, why);
        Verdict::Shed(why)
    }

    /// Room came free: admits parked publishes, in rotation between tenants and the topics of each,
    /// those of tenants that have none queued before the others.
    /// None once the shard shuts down, which ends them all.
    /// Cost: O(admitted + tenants with parked publishes); none when nothing is parked.
    pub(super) fn serve_parked(&mut self) {
        debug_assert!(self.is_running() || self.schedule.counts().1 == 0, "none is left parked");
        for conn in core::mem::take(&mut self.unstood) {
            if self.peers.conn(conn).is_ok() {
                self.serve_short(conn.index);
            }
        }
        let mut passed = 0;
        let mut yielding = None;
        while passed < self.schedule.parked_tenants() {
            if self.bands.band() == Band::Saturated || self.node_saturated {
                break;
            }
            let Some((tenant, index)) = self.schedule.next_parked(passed) else { break };
            let price = self.memory.get(self.schedule.job(index).message).cost;
            if !self.has_bytes(index, &mut yielding) {
                passed += 1;
                continue;
            }
            (passed, yielding) = (0, None);
            self.make_room(tenant, price, None);
            // Its own source may have a job that was pushed out for it, and goes before it.
            if self.schedule.stands(index) {
                self.unpark(index);
            }
        }
        if self.unstood.is_empty() {
            self.schedule.note_served();
        }
    }

    /// Whether there are bytes for a publish that stands in line, if need be by pushing others
    /// out. `yielding`: what these give, if it was asked since somebody had room. It is the same
    /// for all who stand in line.
    pub(super) fn has_bytes(&self, index: u32, yielding: &mut Option<u64>) -> bool {
        let job = self.schedule.job(index);
        let conn = &self.peers.conns[job.conn.index];
        let (tenant, price) = (conn.tenant, self.memory.get(job.message).cost);
        if self.admission.own_room(tenant, conn.inflight, price).is_err() {
            return false;
        }
        let missing = self.admission.missing(price);
        missing == 0
            || self.is_due_bytes(tenant, price)
                && *yielding.get_or_insert_with(|| self.yielding(tenant)) >= missing
    }

    /// A parked publish has room: it is admitted.
    fn unpark(&mut self, index: u32) {
        let job = self.schedule.job(index);
        let (conn, source) = (job.conn.index, job.source.index);
        let (message, tally) = (job.message, job.tally);
        let price = self.memory.get(message).cost;
        self.keep_promise(conn, price);
        let peer = &mut self.peers.conns[conn];
        let tenant = peer.tenant;
        let permit = self.admission.take(tenant, &mut peer.inflight, price);
        let parked = &mut self.peers.conns[source].parked;
        self.schedule.unpark(index, parked, permit);
        let waits = !parked.is_empty();
        self.memory.admit(message, self.now);
        self.ledger.unparked(tenant, tally);
        self.ledger.admitted(tenant, tally);
        self.note_waiting(conn, price, false);
        self.pause(source, PAUSE_PARKED, waits);
        self.stand_next(source);
    }

    /// A parked publish waited its full time.
    pub(super) fn expire(&mut self, index: u32) {
        let why = Refusal::after(Place::Schedule, Reason::Deadline, SATURATED_RETRY_MS);
        let source = self.schedule.job(index).source.index;
        self.turn_back(index, why);
        let waits = !self.peers.conns[source].parked.is_empty();
        self.pause(source, PAUSE_PARKED, waits);
        self.serve_parked();
    }

    /// Ends a parked publish without room. Its tenant's later ones may fit now: the caller serves
    /// them, when it has ended all that it ends.
    pub(super) fn end_parked(&mut self, index: u32, why: Refusal) -> ConnId {
        let source = self.schedule.job(index).source.index;
        if self.peers.conns[source].parked.front() == Some(index) {
            self.break_promise(source);
        }
        let peer = &mut self.peers.conns[source];
        let job = self.schedule.cancel(index, &mut peer.parked);
        let (tenant, closing) = (peer.tenant, peer.closing);
        self.note_waiting(job.conn.index, self.memory.get(job.message).cost, false);
        self.stand_next(source);
        self.memory.release(job.message);
        self.ledger.unparked(tenant, job.tally);
        if job.ack == Ack::None && !closing {
            self.ledger.shed(tenant, why, job.tally);
            self.note_shed(job.conn.index, job.tally.records, why);
        } else {
            self.ledger.refused(tenant, why, job.tally);
        }
        self.note_idle(job.topic);
        job.conn
    }
}
