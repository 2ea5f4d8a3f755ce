//! A shard's host: inputs in, a bounded step, effects out; and when its next turn is.

use super::asking::Question;
use super::{Event, Peer, World, at};
use crate::fact::{Fact, Stop};
use crate::frame::Item;
use crate::judge::{Finding, Found};
use crate::peer::Made;
use sluicegate_core::pool::LeaseWish;
use sluicegate_core::{
    Ack, Books, Effect, Instant, Keep, Message, Notice, Progress, Sample, Verdict,
};
use std::collections::VecDeque;

/// Outlets that refuse and are looked at in one turn, for the peak of what waits for one.
const LOOKS: usize = 64;

/// What a shard's host keeps between two turns.
#[derive(Debug, Default)]
pub(super) struct Host {
    /// Publishers with something to read, in the order in which it arrived.
    pub(super) readable: VecDeque<u32>,
    /// Inputs of the next turn.
    pub(super) writable: Vec<u32>,
    pub(super) samples: Vec<Option<Sample>>,
    pub(super) knocks: Vec<Knock>,
    pub(super) questions: VecDeque<Question>,
    /// Questions behind publishes that are not read, on streams that carry both.
    pub(super) behind: VecDeque<Question>,
    /// A turn is in the calendar.
    pub(super) turning: bool,
    /// The modelled time of the last turn ends here.
    pub(super) busy_until: u64,
    /// The deadline in the calendar.
    wake_at: Option<u64>,
    /// Turns so far.
    pub(super) turns: u64,
    /// Outlets that refuse, to be looked at in rotation.
    pub(super) refusing: VecDeque<u32>,
    /// Set when it shuts down: the end of the grace, and whether it closed its connections.
    pub(super) grace: Option<u64>,
    pub(super) closed: bool,
}

/// Something a peer wants.
#[derive(Clone, Copy, Debug)]
pub(super) enum Knock {
    Join(Peer),
    Leave(Peer),
    /// One subscription's connection broke.
    Lost(u32),
    /// A publisher's connection broke.
    LostSource(u32),
    Finish,
}

impl World<'_> {
    /// Enters a shard's next turn.
    pub(super) fn wake(&mut self, shard: u32) {
        let host = &mut self.shards[at(shard)].host;
        if !host.turning {
            host.turning = true;
            self.calendar.enter(self.now.max(host.busy_until), Event::Turn(shard));
        }
    }

    fn due(&self, shard: u32) -> Option<u64> {
        self.shards[at(shard)].broker.next_deadline().map(Instant::as_nanos)
    }

    /// The core's deadline may have come.
    pub(super) fn alarm(&mut self, shard: u32) {
        self.shards[at(shard)].host.wake_at = None;
        if self.due(shard).is_some_and(|due| due <= self.now) {
            self.wake(shard);
        } else {
            self.set_alarm(shard);
        }
    }

    /// Enters the core's next deadline, unless an earlier one is in the calendar.
    fn set_alarm(&mut self, shard: u32) {
        let Some(due) = self.due(shard) else { return };
        let due = due.max(self.now + 1);
        let host = &mut self.shards[at(shard)].host;
        if host.wake_at.is_none_or(|at| due < at) {
            host.wake_at = Some(due);
            self.calendar.enter(due, Event::Wake(shard));
        }
    }

    /// One turn: events in, a bounded step, effects out.
    pub(super) fn turn(&mut self, shard: u32) -> Found {
        let now = self.now;
        let work = self.story.cpu.work;
        let this = &mut self.shards[at(shard)];
        this.host.turning = false;
        this.broker.advance(Instant::from_nanos(now));
        self.note_retired(shard);
        self.inputs(shard)?;
        let carried = self.carry(shard)?;
        let read = self.read(shard)? + self.answer_questions(shard);
        self.look(shard);
        let broker = &mut self.shards[at(shard)].broker;
        let done = |books: &Books| (books.expected.records, books.sequenced.records);
        let before = done(broker.ledger());
        let facts = self.log.facts();
        let progress = broker.step(work);
        let after = done(broker.ledger());
        let prepared = after.0 - before.0;
        self.put(Fact::Turned(shard, work, prepared))?;
        self.look(shard);
        self.effects(shard)?;
        self.finish(shard)?;
        let posted = self.post(shard);
        self.look_at_refusing(shard);
        self.observe(shard);
        self.note_stops(shard)?;
        let cost = self.cost(shard, read + carried, prepared);
        let due = self.due(shard).is_some_and(|due| due <= now) || self.has_arrived(shard);
        let host = &mut self.shards[at(shard)].host;
        host.busy_until = now + cost;
        let unread = !host.readable.is_empty() || !host.questions.is_empty();
        let more = progress == Progress::More || due || unread;
        // A publish without an audience is work, too, and nobody hears of it.
        let stepped = after != before;
        let did = stepped || read + carried + posted > 0 || self.log.facts() > facts + 1;
        self.jury.stuck.turned(shard, (did, more))?;
        if more {
            self.wake(shard);
        } else {
            self.set_alarm(shard);
        }
        self.note_inputs(shard);
        self.recount(shard)
    }

    /// What a turn costs.
    fn cost(&self, shard: u32, read: u64, prepared: u64) -> u64 {
        let cpu = &self.story.cpu;
        let cost = cpu.turn + read * cpu.read + prepared * cpu.delivery;
        let now = self.now;
        let slow = self
            .story
            .slow
            .iter()
            .filter(|slow| slow.shard == shard && (slow.time.0..slow.time.1).contains(&now));
        slow.fold(cost, |cost, slow| cost.saturating_mul(slow.times))
    }

    /// What happened since the last turn.
    fn inputs(&mut self, shard: u32) -> Found {
        let this = &mut self.shards[at(shard)];
        for sink in std::mem::take(&mut this.host.writable) {
            let sink = &self.sinks[at(sink)];
            if !sink.closed {
                this.broker.writable(sink.outlet);
            }
        }
        for sample in std::mem::take(&mut this.host.samples) {
            self.shards[at(shard)].broker.pressure(sample);
            self.put(Fact::Sampled(sample))?;
        }
        for knock in std::mem::take(&mut self.shards[at(shard)].host.knocks) {
            self.answer(shard, knock)?;
        }
        self.lend(shard)
    }

    /// Asks the pool for what the shard wishes, and tells it.
    fn lend(&mut self, shard: u32) -> Found {
        let this = &mut self.shards[at(shard)];
        let (mut lent, _) = this.loan;
        match this.broker.lease_wish() {
            LeaseWish::Borrow(bytes) => lent += self.pool.borrow(bytes),
            LeaseWish::Keep => {}
            LeaseWish::Return(bytes) => {
                lent -= bytes;
                self.pool.give_back(bytes);
            }
        }
        let loan = (lent, self.pool.lendable());
        if std::mem::replace(&mut this.loan, loan) == loan || self.story.shards() == 1 {
            return Ok(());
        }
        this.broker.lease(loan.0, loan.1);
        self.put(Fact::Leased(shard, loan.0, loan.1))
    }

    /// Reads publishes that arrived, a bounded number from each source.
    fn read(&mut self, shard: u32) -> Result<u64, Finding> {
        let mut read = 0;
        for _ in 0..self.shards[at(shard)].host.readable.len() {
            let this = &mut self.shards[at(shard)];
            let Some(publisher) = this.host.readable.pop_front() else { break };
            // It may have come back to another shard since it was listed.
            let listed = self.publishers[at(publisher)].link.as_mut();
            let Some(link) = listed.filter(|link| link.listed) else { continue };
            let conn = link.conn;
            if self.source_of(shard, conn) != Some(publisher) {
                continue;
            }
            let link = self.publishers[at(publisher)].link.as_mut().expect("it was just seen");
            link.listed = false;
            for _ in 0..self.story.cpu.reads {
                let broker = &self.shards[at(shard)].broker;
                let Some(link) = self.publishers[at(publisher)].link.as_mut() else { break };
                link.paused = link.paused || broker.is_paused(link.conn);
                let Some(made) = link.read() else { break };
                read += 1;
                self.offer(shard, made)?;
            }
            self.list(publisher);
            self.pump(publisher)?;
        }
        Ok(read)
    }

    /// Lists a publisher as readable, if it is.
    pub(super) fn list(&mut self, publisher: u32) {
        let source = &mut self.publishers[at(publisher)];
        let shard = source.shard;
        if let Some(link) = source.link.as_mut().filter(|link| link.is_readable()) {
            link.listed = true;
            self.shards[at(shard)].host.readable.push_back(publisher);
        }
    }

    /// Hands a publish to the broker.
    fn offer(&mut self, shard: u32, (publish, made): Made) -> Found {
        self.put(Fact::Offered(publish))?;
        let source = &mut self.publishers[at(publish.publisher)];
        let records = publish.records;
        let item = Item {
            length: publish.bytes,
            topic: publish.topic,
            publisher: publish.publisher,
            records,
            number: publish.number,
            at: made,
        };
        let ack = source.spec.ack;
        let message =
            Message { frame: item.encode(), records, ack, except: None, keep: Keep::Default };
        let link = source.link.as_mut().expect("what was read came over a connection");
        let this = &mut self.shards[at(shard)];
        let verdict = this.broker.publish(link.conn, link.topic, message);
        source.seen.offered += u64::from(records);
        let mut full = None;
        let fact = match verdict {
            Verdict::Queued(_) => Fact::Admitted(publish),
            Verdict::Parked(_) => {
                link.paused = true;
                let slots = u64::from(this.broker.jobs().0) >= self.story.limits.pub_queue_total;
                full = Some(if slots { Stop::Schedule } else { Stop::Admission });
                Fact::Parked(publish)
            }
            Verdict::Refused(why) => {
                source.seen.refused += u64::from(records);
                Fact::Refused(publish, why)
            }
            Verdict::Shed(why) => {
                source.seen.shed += u64::from(records);
                Fact::Shed(publish, why)
            }
        };
        if let (Verdict::Queued(ticket) | Verdict::Parked(ticket), Ack::Now | Ack::Wait) =
            (verdict, ack)
        {
            this.tickets.insert(ticket, publish);
        }
        self.put(fact)?;
        if let Some(stop) = full {
            self.put(Fact::Full(stop, publish.publisher))?;
        }
        if let Verdict::Refused(_) = verdict { self.answered(&publish) } else { Ok(()) }
    }

    /// Notices first, then writes, until the shard has neither.
    pub(super) fn effects(&mut self, shard: u32) -> Found {
        while let Some(effect) = self.shards[at(shard)].broker.poll() {
            match effect {
                Effect::Notice(notice) => self.heed(shard, notice)?,
                Effect::Write(offer) => self.write(shard, offer)?,
            }
        }
        Ok(())
    }

    fn heed(&mut self, shard: u32, notice: Notice) -> Found {
        let this = &mut self.shards[at(shard)];
        match notice {
            Notice::Close { conn, why } => self.close(shard, conn, why),
            Notice::Committed { ticket, first, .. } => {
                let Some(publish) = this.tickets.remove(&ticket) else { return Ok(()) };
                self.put(Fact::Committed(publish, first))?;
                self.answered(&publish)
            }
            Notice::Failed { ticket, why, .. } => {
                let Some(publish) = this.tickets.remove(&ticket) else { return Ok(()) };
                let source = &mut self.publishers[at(publish.publisher)];
                source.seen.refused += u64::from(publish.records);
                self.put(Fact::Failed(publish, why))?;
                self.answered(&publish)
            }
            Notice::Ended { sub, why } => match self.subscriber_of(shard, sub) {
                Some(subscriber) => self.end_subscriber(subscriber, Some(why)),
                None => Ok(()),
            },
            Notice::Flushed { conn } => self.flushed(shard, conn),
            Notice::Gap { sub, gap } => self.tell(shard, sub, gap),
            Notice::Joined { sub, start } => match self.subscriber_of(shard, sub) {
                Some(subscriber) => self.put(Fact::Joined(subscriber, start)),
                None => Ok(()),
            },
            Notice::Pause { conn } => self.pause((shard, conn), true),
            Notice::Resume { conn } => {
                self.read_questions(shard);
                self.pause((shard, conn), false)
            }
            Notice::Shed { conn, records, .. } => match self.source_of(shard, conn) {
                Some(publisher) => self.put(Fact::ShedTold(publisher, records)),
                None => Ok(()),
            },
        }
    }

    fn pause(&mut self, (shard, conn): (u32, sluicegate_core::ConnId), on: bool) -> Found {
        let Some(publisher) = self.source_of(shard, conn) else { return Ok(()) };
        let Some(link) = &mut self.publishers[at(publisher)].link else { return Ok(()) };
        link.paused = on;
        self.list(publisher);
        self.put(if on { Fact::Paused(publisher) } else { Fact::Resumed(publisher) })
    }

    /// Looks at what waits in some of the outlets that refuse.
    fn look_at_refusing(&mut self, shard: u32) {
        let this = &mut self.shards[at(shard)];
        for _ in 0..this.host.refusing.len().min(LOOKS) {
            let Some(sink) = this.host.refusing.pop_front() else { break };
            let end = &self.sinks[at(sink)];
            if end.closed || !end.refusing {
                continue;
            }
            let waiting = this.broker.backlog(end.outlet).unwrap_or_default().bytes;
            self.peaks.backlog = self.peaks.backlog.max(waiting);
            this.host.refusing.push_back(sink);
        }
    }
}
