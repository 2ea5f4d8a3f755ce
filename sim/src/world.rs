//! The world: one shard, its peers and their links, in virtual time.
//!
//! One thread takes events from one calendar. A host reads what arrived, gives the shard its turn
//! and writes what it offers, as every host does; a turn takes the time the CPU model says, and
//! the next one begins no earlier.

use crate::calendar::Calendar;
use crate::fact::{Fact, Log, Names, Publish};
use crate::frame::{GAP, HEADER, Item};
use crate::judge::conservation::{Conservation, Held};
use crate::judge::isolation::{Trace, Traces};
use crate::judge::order::Order;
use crate::judge::stuck::{Leftover, Stuck};
use crate::judge::{Conviction, Finding, Found};
use crate::peer::{Publisher, Subscriber};
use crate::report::{self, Moment, Peaks, Report};
use crate::scenario::Story;
use crate::series::Watching;
use sluicegate_core::{
    Ack, Broker, ConnId, Effect, Gap, Instant, Lane, Message, Notice, Offer, Progress, Rand,
    Refusal, Sample, SubId, Ticket, Verdict,
};
use std::collections::{BTreeMap, VecDeque};

/// The broker is recounted after each of this many first turns.
const ALWAYS: u64 = 200;
/// After those, when this many things per fact would be recounted.
const SPARING: u64 = 1;

/// What will happen.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A publish reaches the broker.
    Arrive(u32),
    /// Bytes reach a subscriber.
    Deliver(u32),
    /// The memory pressure is read.
    Sample(usize),
    /// A publisher makes a publish.
    Tick(u32),
    /// The shard's turn.
    Turn,
    /// The core's deadline.
    Wake,
    /// A subscriber's transport takes bytes again.
    Writable(u32),
}

/// The shard's side of the world.
#[derive(Debug, Default)]
struct Host {
    /// Publishers with something to read, in the order in which it arrived.
    readable: VecDeque<u32>,
    /// Inputs of the next turn.
    writable: Vec<u32>,
    samples: Vec<Option<Sample>>,
    /// A turn is in the calendar.
    turning: bool,
    /// The modelled time of the last turn ends here.
    busy_until: u64,
    /// The deadline in the calendar.
    wake_at: Option<u64>,
    /// Turns so far, and facts when the broker was last recounted.
    turns: u64,
    recounted: u64,
}

/// The judges that hear every fact.
struct Judges {
    conservation: Conservation,
    order: Order,
    stuck: Stuck,
}

/// A story being run.
pub(crate) struct World<'a> {
    story: &'a Story,
    broker: Broker,
    calendar: Calendar<Event>,
    now: u64,
    log: Log,
    names: Names,
    judges: Judges,
    publishers: Vec<Publisher>,
    subscribers: Vec<Subscriber>,
    sources: BTreeMap<ConnId, u32>,
    sinks: BTreeMap<ConnId, u32>,
    outlets: Vec<u32>,
    subs: BTreeMap<SubId, u32>,
    tickets: BTreeMap<Ticket, Publish>,
    host: Host,
    peaks: Peaks,
    moments: Vec<Moment>,
    traces: Option<Vec<Trace>>,
    watching: Watching,
}

/// A run that was carried to its end or to a conviction.
pub(crate) struct Ran {
    pub(crate) report: Report,
    pub(crate) conviction: Option<Conviction>,
    pub(crate) traces: Traces,
}

/// What went wrong while the world was built: the scenario asks for what the broker refuses.
pub(crate) fn refused(what: &str, why: Refusal) -> String {
    let cell = crate::fact::name_cell(why.place, why.reason);
    format!("{what} was refused by the broker: {cell}")
}

/// Runs a story. `traced` keeps every subscriber's trace.
pub(crate) fn run(story: &Story, traced: bool, watch: crate::Watch) -> Result<Ran, String> {
    let mut world = World::new(story, traced, watch)?;
    let found = world.live();
    let conviction = found.err().map(|finding| world.convict(finding));
    Ok(world.ran(conviction))
}

impl<'a> World<'a> {
    fn new(story: &'a Story, traced: bool, watch: crate::Watch) -> Result<Self, String> {
        let rand = Rand::new(story.seed);
        let mut broker = Broker::new(story.limits.clone(), rand.fork("broker").bits());
        broker.advance(Instant::ZERO);
        let tenants = story.tenants.iter().map(|(name, weight)| {
            broker.tenant(*weight).map_err(|why| refused(&format!("tenant `{name}`"), why))
        });
        let tenants = tenants.collect::<Result<Vec<_>, _>>()?;
        let topics: Vec<usize> = story
            .subscribers
            .iter()
            .flat_map(|group| (0..group.count).map(|_| group.topic))
            .collect();
        let publishers: u32 = story.publishers.iter().map(|group| group.count).sum();
        let publishers = usize::try_from(publishers).expect("at most 100,000");
        let mut world = Self {
            story,
            broker,
            calendar: Calendar::default(),
            now: 0,
            log: Log::default(),
            names: Names::default(),
            judges: Judges {
                conservation: Conservation::new(topics.len()),
                order: Order::new(publishers, story.topics.len(), &topics),
                stuck: Stuck::default(),
            },
            publishers: Vec::new(),
            subscribers: Vec::new(),
            sources: BTreeMap::new(),
            sinks: BTreeMap::new(),
            outlets: Vec::new(),
            subs: BTreeMap::new(),
            tickets: BTreeMap::new(),
            host: Host::default(),
            peaks: Peaks::default(),
            moments: Vec::new(),
            traces: traced.then(|| vec![Trace::new(); topics.len()]),
            watching: Watching::new(story, watch),
        };
        world.connect(&tenants, &rand)?;
        world.observe();
        Ok(world)
    }

    /// Connects every peer and enters the first events.
    fn connect(
        &mut self,
        tenants: &[sluicegate_core::TenantId],
        rand: &Rand,
    ) -> Result<(), String> {
        let story = self.story;
        for (group, spec) in story.subscribers.iter().enumerate() {
            for name in peers(&spec.name, spec.count) {
                self.subscribe((group, name), tenants)?;
            }
        }
        for (group, spec) in story.publishers.iter().enumerate() {
            let tenant = tenants[story.topics[spec.topic].1];
            for name in peers(&spec.name, spec.count) {
                let no = |why| refused(&format!("publisher `{name}`"), why);
                let conn = self.broker.open(tenant).map_err(no)?;
                let topic = self.broker.topic(tenant, &story.topics[spec.topic].0).map_err(no)?;
                let rand = rand.fork("publisher").fork(&name);
                let mut publisher = Publisher::new((group, spec), (conn, topic), &rand);
                let index = index(self.publishers.len());
                if let Some(at) = publisher.next() {
                    self.calendar.enter(at, Event::Tick(index));
                }
                self.sources.insert(conn, index);
                self.publishers.push(publisher);
                self.names.publishers.push(name);
            }
        }
        for (at, (time, _)) in story.pressure.iter().enumerate() {
            self.calendar.enter(*time, Event::Sample(at));
        }
        self.wake();
        Ok(())
    }

    fn subscribe(
        &mut self,
        (group, name): (usize, String),
        tenants: &[sluicegate_core::TenantId],
    ) -> Result<(), String> {
        let spec = &self.story.subscribers[group];
        let (topic, tenant) = &self.story.topics[spec.topic];
        let tenant = tenants[*tenant];
        let no = |why| refused(&format!("subscriber `{name}`"), why);
        let conn = self.broker.open(tenant).map_err(no)?;
        let outlet = self.broker.outlet(conn, spec.pipe).map_err(no)?;
        let topic = self.broker.topic(tenant, topic).map_err(no)?;
        let sub = self.broker.subscribe(outlet, topic, spec.wish).map_err(no)?;
        let index = index(self.subscribers.len());
        let slot = usize::try_from(outlet.index()).expect("outlets are few");
        if self.outlets.len() <= slot {
            self.outlets.resize(slot + 1, u32::MAX);
        }
        self.outlets[slot] = index;
        self.sinks.insert(conn, index);
        self.subs.insert(sub, index);
        self.subscribers.push(Subscriber::new((group, spec), (conn, outlet, sub)));
        self.names.subscribers.push(name);
        Ok(())
    }

    /// Takes events until none is left or the end has come.
    fn live(&mut self) -> Found {
        while let Some((at, event)) = self.calendar.take() {
            if at > self.story.end {
                self.now = self.story.end;
                break;
            }
            self.sample(at);
            self.now = at;
            self.happen(event)?;
        }
        self.end()
    }

    fn happen(&mut self, event: Event) -> Found {
        match event {
            Event::Arrive(publisher) => {
                let source = &mut self.publishers[at(publisher)];
                source.arrive();
                self.list(publisher);
                self.wake();
            }
            Event::Deliver(subscriber) => self.deliver(subscriber)?,
            Event::Sample(reading) => {
                let text = self.story.pressure[reading].1.as_deref();
                let sample = text.and_then(Sample::parse);
                self.host.samples.push(sample);
                self.wake();
            }
            Event::Tick(publisher) => self.tick(publisher)?,
            Event::Turn => self.turn()?,
            Event::Wake => {
                self.host.wake_at = None;
                if self.due().is_some_and(|due| due <= self.now) {
                    self.wake();
                } else {
                    self.set_alarm();
                }
            }
            Event::Writable(subscriber) => {
                self.put(Fact::Writable(subscriber))?;
                self.host.writable.push(subscriber);
                self.wake();
            }
        }
        Ok(())
    }

    /// Records a fact and lets the judges hear it.
    fn put(&mut self, fact: Fact) -> Found {
        self.log.put(self.now, fact);
        self.judges.conservation.hear(&fact);
        self.judges.order.hear(&fact)
    }

    /// Enters the shard's next turn.
    fn wake(&mut self) {
        if !self.host.turning {
            self.host.turning = true;
            self.calendar.enter(self.now.max(self.host.busy_until), Event::Turn);
        }
    }

    fn due(&self) -> Option<u64> {
        self.broker.next_deadline().map(Instant::as_nanos)
    }

    /// Enters the core's next deadline, unless an earlier one is in the calendar.
    fn set_alarm(&mut self) {
        let Some(due) = self.due() else { return };
        let due = due.max(self.now + 1);
        if self.host.wake_at.is_none_or(|at| due < at) {
            self.host.wake_at = Some(due);
            self.calendar.enter(due, Event::Wake);
        }
    }

    fn tick(&mut self, publisher: u32) -> Found {
        let source = &mut self.publishers[at(publisher)];
        if let Some(at) = source.next() {
            self.calendar.enter(at, Event::Tick(publisher));
        }
        if let Some(at) = source.publish(publisher, self.now) {
            self.calendar.enter(at, Event::Arrive(publisher));
            return Ok(());
        }
        let records = source.spec.records;
        self.put(Fact::HeldBack(publisher, records))
    }

    fn deliver(&mut self, subscriber: u32) -> Found {
        let now = self.now;
        self.subscribers[at(subscriber)].expecting = false;
        loop {
            let sink = &mut self.subscribers[at(subscriber)];
            let arrived =
                sink.in_flight.front().is_some_and(|(at, _)| at.is_some_and(|t| t <= now));
            if !arrived {
                break;
            }
            let (_, item) = sink.in_flight.pop_front().expect("the front was just seen");
            if item.publisher == GAP {
                self.put(Fact::GapTold(subscriber, item.records, item.number, item.at))?;
                continue;
            }
            sink.received += u64::from(item.records);
            sink.latency.add(now - item.at);
            self.watching.latency(sink.group, now - item.at);
            if let Some(traces) = &mut self.traces {
                traces[at(subscriber)].push((now, item.publisher, item.number));
            }
            self.put(Fact::Received(subscriber, publish(&item)))?;
        }
        if let Some(at) = self.subscribers[at(subscriber)].expect_next() {
            self.calendar.enter(at, Event::Deliver(subscriber));
        }
        Ok(())
    }

    /// One turn: events in, a bounded step, effects out.
    fn turn(&mut self) -> Found {
        self.host.turning = false;
        self.broker.advance(Instant::from_nanos(self.now));
        for subscriber in std::mem::take(&mut self.host.writable) {
            self.broker.writable(self.subscribers[at(subscriber)].outlet);
        }
        for sample in std::mem::take(&mut self.host.samples) {
            self.broker.pressure(sample);
            self.put(Fact::Sampled(sample))?;
        }
        let read = self.read()?;
        self.look();
        let before = self.broker.ledger().expected.records;
        let facts = self.log.facts();
        let progress = self.broker.step(self.story.cpu.work);
        let prepared = self.broker.ledger().expected.records - before;
        self.put(Fact::Turned(self.story.cpu.work, prepared))?;
        self.look();
        self.effects()?;
        self.peaks.backlog(&self.broker, &self.subscribers);
        self.observe();
        let cpu = &self.story.cpu;
        let cost = cpu.turn + read * cpu.read + prepared * cpu.delivery;
        self.host.busy_until = self.now + cost;
        let due = self.due().is_some_and(|due| due <= self.now);
        let more = progress == Progress::More || due || !self.host.readable.is_empty();
        let did = prepared > 0 || read > 0 || self.log.facts() > facts + 1;
        self.judges.stuck.turned(did, more)?;
        if more {
            self.wake();
        } else {
            self.set_alarm();
        }
        self.recount()
    }

    /// Reads publishes that arrived, a bounded number from each source.
    fn read(&mut self) -> Result<u64, Finding> {
        let mut read = 0;
        for _ in 0..self.host.readable.len() {
            let Some(publisher) = self.host.readable.pop_front() else { break };
            self.publishers[at(publisher)].listed = false;
            for _ in 0..self.story.cpu.reads {
                let source = &mut self.publishers[at(publisher)];
                source.paused = source.paused || self.broker.is_paused(source.conn);
                let Some((publish, made)) = source.read() else { break };
                read += 1;
                self.offer(publish, made)?;
            }
            self.list(publisher);
        }
        Ok(read)
    }

    /// Lists a publisher as readable, if it is.
    fn list(&mut self, publisher: u32) {
        let source = &mut self.publishers[at(publisher)];
        if !source.listed && !source.paused && !source.inbound.is_empty() {
            source.listed = true;
            self.host.readable.push_back(publisher);
        }
    }

    /// Hands a publish to the broker.
    fn offer(&mut self, publish: Publish, made: u64) -> Found {
        self.put(Fact::Offered(publish))?;
        let source = &mut self.publishers[at(publish.publisher)];
        let Publish { publisher, topic, number, records, bytes: length } = publish;
        let item = Item { length, topic, publisher, records, number, at: made };
        let ack = source.spec.ack;
        let message = Message { frame: item.encode(), records, ack, except: None };
        let verdict = self.broker.publish(source.conn, source.topic, message);
        source.seen.offered += u64::from(records);
        let fact = match verdict {
            Verdict::Queued(_) => Fact::Admitted(publish),
            Verdict::Parked(_) => {
                source.paused = true;
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
            self.tickets.insert(ticket, publish);
        }
        self.put(fact)
    }

    /// Notices first, then writes, until the shard has neither.
    fn effects(&mut self) -> Found {
        while let Some(effect) = self.broker.poll() {
            match effect {
                Effect::Notice(notice) => self.heed(notice)?,
                Effect::Write(offer) => self.write(offer)?,
            }
        }
        Ok(())
    }

    fn heed(&mut self, notice: Notice) -> Found {
        match notice {
            Notice::Close { conn, why } => return self.close(conn, why),
            Notice::Committed { ticket, first, .. } => {
                self.note_pushed_out();
                if let Some(publish) = self.tickets.remove(&ticket) {
                    return self.put(Fact::Committed(publish, first));
                }
            }
            Notice::Failed { ticket, why, .. } => {
                if let Some(publish) = self.tickets.remove(&ticket) {
                    let source = &mut self.publishers[at(publish.publisher)];
                    source.seen.refused += u64::from(publish.records);
                    return self.put(Fact::Failed(publish, why));
                }
            }
            // A subscriber has one subscription, so it has no further use for its connection.
            Notice::Ended { sub, why } => {
                if let Some(&subscriber) = self.subs.get(&sub) {
                    return self.close(self.subscribers[at(subscriber)].conn, why);
                }
            }
            // One shard owns every topic: nobody joins later.
            Notice::Flushed { .. } | Notice::Joined { .. } => {}
            Notice::Gap { sub, gap } => return self.tell(sub, gap),
            Notice::Pause { conn } => {
                if let Some(&publisher) = self.sources.get(&conn) {
                    self.publishers[at(publisher)].paused = true;
                    return self.put(Fact::Paused(publisher));
                }
            }
            Notice::Resume { conn } => {
                if let Some(&publisher) = self.sources.get(&conn) {
                    self.publishers[at(publisher)].paused = false;
                    self.list(publisher);
                    return self.put(Fact::Resumed(publisher));
                }
            }
            Notice::Shed { conn, records } => {
                if let Some(&publisher) = self.sources.get(&conn) {
                    return self.put(Fact::ShedTold(publisher, records));
                }
            }
        }
        Ok(())
    }

    /// The core gave a peer up: its transport is gone.
    fn close(&mut self, conn: ConnId, why: Refusal) -> Found {
        self.broker.gone(conn);
        let Some(&subscriber) = self.sinks.get(&conn) else { return Ok(()) };
        self.subscribers[at(subscriber)].closed = true;
        self.put(Fact::Closed(subscriber, why))
    }

    /// Tells a subscriber, in its own stream, what it lost.
    fn tell(&mut self, sub: SubId, gap: Gap) -> Found {
        let Some(&subscriber) = self.subs.get(&sub) else { return Ok(()) };
        let sink = &self.subscribers[at(subscriber)];
        let item = Item {
            length: HEADER,
            topic: index(sink.spec.topic),
            publisher: GAP,
            records: u32::try_from(gap.records).expect("no run publishes 2^32 records"),
            number: gap.first,
            at: gap.last,
        };
        // Without room for it the connection is given up: a notice of that follows.
        let _ = self.broker.send(sink.outlet, item.encode(), Lane::First);
        self.put(Fact::Gap(subscriber, gap))
    }

    /// Writes what is offered, as far as the transport has room.
    fn write(&mut self, offer: Offer) -> Found {
        let subscriber = self.outlets[at(offer.outlet.index())];
        let now = self.now;
        let waiting = self.broker.backlog(offer.outlet).unwrap_or_default().bytes;
        self.peaks.backlog = self.peaks.backlog.max(waiting + offer.bytes);
        let sink = &mut self.subscribers[at(subscriber)];
        let room = sink.line.room(now);
        let mut took = 0;
        let mut offered = 0;
        let mut whole: Vec<(u64, Item)> = Vec::new();
        for bytes in self.broker.frames(offer) {
            offered += bytes.len() as u64;
            let fits = usize::try_from(room - took).unwrap_or(usize::MAX).min(bytes.len());
            let read = sink.parser.read(&bytes[..fits], |end, item| whole.push((took + end, item)));
            read.map_err(|what| Finding {
                judge: "framing",
                kind: crate::judge::Kind::Safety,
                what: format!("{}: {what}", self.names.subscriber(subscriber)),
                at: None,
            })?;
            took += fits as u64;
        }
        sink.line.accept(now, took);
        for (end, item) in &whole {
            sink.in_flight.push_back((sink.line.arrival(took - end), *item));
        }
        if let Some(at) = sink.expect_next() {
            self.calendar.enter(at, Event::Deliver(subscriber));
        }
        if took < offer.bytes
            && let Some(at) = sink.line.half_free()
        {
            self.calendar.enter(at, Event::Writable(subscriber));
        }
        self.broker.sent(offer, took);
        self.put(Fact::Wrote(subscriber, offer.bytes, took))?;
        if offered != offer.bytes || offered == 0 {
            return Err(Finding {
                judge: "framing",
                kind: crate::judge::Kind::Safety,
                what: format!("an offer of {} bytes had {offered}", offer.bytes),
                at: None,
            });
        }
        let data = whole.iter().filter(|(_, item)| item.publisher != GAP);
        data.map(|(_, item)| Fact::Accepted(subscriber, publish(item)))
            .collect::<Vec<_>>()
            .into_iter()
            .try_for_each(|fact| self.put(fact))
    }
}

mod end;
#[cfg(test)]
mod tests;

/// The names of a group's peers.
fn peers(name: &str, count: u32) -> Vec<String> {
    if count == 1 {
        return vec![name.to_owned()];
    }
    (1..=count).map(|number| format!("{name}-{number}")).collect()
}

fn publish(item: &Item) -> Publish {
    let Item { length: bytes, topic, publisher, records, number, .. } = *item;
    Publish { publisher, topic, number, records, bytes }
}

fn at(index: u32) -> usize {
    usize::try_from(index).expect("an index of a vector")
}

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("peers are fewer than 2^32")
}
