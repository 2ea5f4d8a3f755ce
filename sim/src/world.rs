//! The world: shards, the ways between them, peers and their links, in virtual time.
//!
//! One thread takes events from one calendar. The host of a shard reads what arrived, gives it its
//! turn and writes what it offers, as every host does; a turn takes the time the CPU model says,
//! and the shard's next one begins no earlier. Shards know each other by parcels only.

mod application;
mod asking;
mod client;
mod coming;
mod end;
mod finish;
mod host;
mod mesh;
mod taped;
#[cfg(test)]
mod tests;
mod watch;
mod write;

use crate::Watch;
use crate::calendar::Calendar;
use crate::fact::{Fact, Log, Names, Publish};
use crate::frame::Item;
use crate::judge::isolation::{Trace, Traces};
use crate::judge::{Conviction, Finding, Found, Jury};
use crate::peer::Publisher;
use crate::report::{Moment, Peaks, Report, SubscriberRow};
use crate::scenario::{Story, members};
use crate::series::Watching;
use crate::sink::{Follower, Sink, Subscriber};
use client::Clients;
use host::Host;
use mesh::Ring;
use sluicegate_core::pool::Pool;
use sluicegate_core::{
    Band, Broker, ConnId, Factor, Instant, OutletId, Policy, Rand, Recorder, Refusal, Sample,
    TenantId, Ticket,
};
use std::collections::{BTreeMap, BTreeSet};

/// What will happen.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A publish reaches the broker over the publisher's connection of this number.
    Arrive(u32, u32),
    /// A client asks something over its connection.
    Ask(u32),
    /// A peer's connection breaks; the number of the outage.
    Break(Peer, usize),
    /// Bytes reach the far end of an outlet.
    Deliver(u32),
    /// A shard begins to shut down.
    Finish(u32),
    /// A peer connects.
    Join(Peer),
    /// A peer leaves for good.
    Leave(Peer),
    /// The first parcel of a ring has arrived.
    Parcels(usize),
    /// A question reaches the broker.
    Question(u32),
    /// The memory pressure is read.
    Sample(usize),
    /// An application takes from its inbox.
    Take(u32),
    /// A publisher makes a publish.
    Tick(u32),
    /// A shard's turn.
    Turn(u32),
    /// A shard's deadline.
    Wake(u32),
    /// The far end of an outlet takes bytes again.
    Writable(u32),
}

/// Somebody who connects, as an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Follower(u32),
    Source(u32),
}

/// Who has a connection, as an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Who {
    #[default]
    Nobody,
    /// Subscriptions of several groups share it.
    Shared(usize),
    Sink(u32),
    Source(u32),
}

/// A shard, its host, and what its ids stand for.
struct Shard {
    broker: Broker,
    host: Host,
    tenants: Vec<TenantId>,
    /// By the index of the id.
    conns: Vec<(Option<ConnId>, Who)>,
    outlets: Vec<u32>,
    subs: Vec<u32>,
    tickets: BTreeMap<Ticket, Publish>,
    /// The band and the factor that were noted last.
    noted: Option<(Band, Factor)>,
    /// Its loan from the pool, and what the pool would lend, as it was told last.
    loan: (u64, u64),
}

/// A connection that subscriptions of several groups share.
struct Shared {
    name: String,
    shard: u32,
    /// While somebody uses it.
    conn: Option<ConnId>,
    users: u32,
    /// The sink of its shared pipe.
    sink: Option<u32>,
}

/// A story being run.
pub(crate) struct World<'a> {
    story: &'a Story,
    rand: Rand,
    calendar: Calendar<Event>,
    now: u64,
    log: Log,
    names: Names,
    jury: Jury,
    shards: Vec<Shard>,
    /// By source times shards, plus destination.
    rings: Vec<Ring>,
    pool: Pool,
    publishers: Vec<Publisher>,
    clients: Clients,
    followers: Vec<Follower>,
    subscribers: Vec<Subscriber>,
    sinks: Vec<Sink>,
    shared: Vec<Shared>,
    /// By group of subscribers.
    rows: Vec<SubscriberRow>,
    peaks: Peaks,
    moments: Vec<Moment>,
    traces: Option<Vec<Trace>>,
    watching: Watching,
    recorder: Option<Recorder>,
    /// Frames that an offer finished, with the byte at which each ends and its sequence.
    whole: Vec<(u64, Item, u64)>,
    /// Topics with `block` subscriptions; whether one was at its limit, and held jobs, when they
    /// were looked at last.
    blocking: Vec<(u32, bool, bool)>,
    /// Records of a publish, by tenant; 0 when its publishers differ.
    per_batch: Vec<u64>,
    /// What a judge found where nobody could be told at once.
    verdict: Option<Finding>,
    /// Facts when everything was recounted last, and when it is next in a plain run.
    recounted: u64,
    barrier: u64,
}

/// A run that was carried to its end or to a conviction.
pub(crate) struct Ran {
    pub(crate) report: Report,
    pub(crate) conviction: Option<Conviction>,
    pub(crate) traces: Traces,
    /// Empty unless it was asked for.
    pub(crate) tape: Vec<u8>,
}

/// What went wrong while the world was built: the scenario asks for what the broker refuses.
fn refused(what: &str, why: Refusal) -> String {
    let cell = crate::fact::name_cell(why.place, why.reason);
    format!("{what} was refused by the broker: {cell}")
}

/// Runs a story. `traced` keeps every subscriber's trace.
pub(crate) fn run(story: &Story, traced: bool, watch: Watch) -> Result<Ran, String> {
    let mut world = World::new(story, traced, watch)?;
    let found = world.live();
    let conviction = found.err().map(|finding| world.convict(finding));
    Ok(world.ran(conviction))
}

impl<'a> World<'a> {
    fn new(story: &'a Story, traced: bool, watch: Watch) -> Result<Self, String> {
        let rand = Rand::new(story.seed);
        let recorder = watch.tape.then(|| taped::recorder(story, &rand));
        let tape = watch.tape;
        let shards = (0..story.shards()).map(|number| Shard::new(story, &rand, number, tape));
        let shards: Vec<Shard> = shards.collect::<Result<_, _>>()?;
        let rings = shards.len() * shards.len();
        let mut world = Self {
            story,
            rand,
            calendar: Calendar::default(),
            now: 0,
            log: Log::default(),
            names: Names::default(),
            jury: Jury::new(story),
            shards,
            rings: std::iter::repeat_with(Ring::default).take(rings).collect(),
            pool: Pool::new(story.limits.memory_budget, story.shards()),
            publishers: Vec::new(),
            clients: Clients::default(),
            followers: Vec::new(),
            subscribers: Vec::new(),
            sinks: Vec::new(),
            shared: Vec::new(),
            rows: story.subscribers.iter().map(SubscriberRow::new).collect(),
            peaks: Peaks::default(),
            moments: Vec::new(),
            traces: traced.then(Vec::new),
            watching: Watching::new(story, watch),
            recorder,
            whole: Vec::new(),
            blocking: blocking(story),
            per_batch: per_batch(story),
            verdict: None,
            recounted: 0,
            barrier: 0,
        };
        world.people()?;
        Ok(world)
    }

    /// Makes every peer, connects those that are there from the start, and enters first events.
    fn people(&mut self) -> Result<(), String> {
        let story = self.story;
        for (group, spec) in story.subscribers.iter().enumerate() {
            for (number, name) in (0..).zip(members(&spec.name, spec.count)) {
                self.add_follower(group, number, name)?;
            }
        }
        for (group, spec) in story.publishers.iter().enumerate() {
            for (number, name) in (0..).zip(members(&spec.name, spec.count)) {
                self.add_source(group, number, name)?;
            }
        }
        for (at, (time, _)) in story.pressure.iter().enumerate() {
            self.calendar.enter(*time, Event::Sample(at));
        }
        for shutdown in &story.shutdowns {
            self.calendar.enter(shutdown.at, Event::Finish(shutdown.shard));
        }
        for shard in 0..story.shards() {
            self.wake(shard);
            self.observe(shard);
        }
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
            Event::Arrive(publisher, came) => self.arrive(publisher, came),
            Event::Ask(subscriber) => return self.ask_question(subscriber),
            Event::Break(peer, outage) => return self.lose(peer, outage),
            Event::Deliver(sink) => return self.deliver(sink),
            Event::Finish(shard) => self.ask_to_finish(shard),
            Event::Join(peer) => self.knock(peer, true),
            Event::Leave(peer) => self.knock(peer, false),
            Event::Parcels(ring) => self.parcels_arrived(ring),
            Event::Question(subscriber) => self.question_arrived(subscriber),
            Event::Sample(reading) => {
                let text = self.story.pressure[reading].1.as_deref();
                let sample = text.and_then(Sample::parse);
                for shard in 0..self.story.shards() {
                    self.shards[at(shard)].host.samples.push(sample);
                    self.wake(shard);
                }
            }
            Event::Take(subscriber) => return self.take(subscriber),
            Event::Tick(publisher) => return self.tick(publisher),
            Event::Turn(shard) => return self.turn(shard),
            Event::Wake(shard) => self.alarm(shard),
            Event::Writable(sink) => return self.writable(sink),
        }
        Ok(())
    }

    /// Records a fact and lets the judges hear it.
    fn put(&mut self, fact: Fact) -> Found {
        self.log.put(self.now, fact);
        self.jury.hear(self.now, &fact)
    }

    /// A publish has arrived: its shard has something to read.
    fn arrive(&mut self, publisher: u32, came: u32) {
        let source = &mut self.publishers[at(publisher)];
        let (current, shard) = (source.came == came, source.shard);
        let Some(link) = source.link.as_mut().filter(|link| current && !link.cut) else { return };
        link.arrive();
        self.list(publisher);
        self.wake(shard);
    }

    /// An outlet's transport takes bytes again.
    fn writable(&mut self, sink: u32) -> Found {
        let end = &mut self.sinks[at(sink)];
        if end.closed || !std::mem::take(&mut end.refusing) {
            return Ok(());
        }
        let (shard, name) = (end.shard, end.name());
        self.shards[at(shard)].host.writable.push(sink);
        self.wake(shard);
        self.put(Fact::Writable(name))
    }
}

/// The topics with `block` subscriptions.
fn blocking(story: &Story) -> Vec<(u32, bool, bool)> {
    let groups = story.subscribers.iter().filter(|group| group.wish.policy == Policy::Block);
    let topics = groups.flat_map(|group| group.topic..group.topic + group.spread);
    let topics: BTreeSet<usize> = topics.collect();
    topics.into_iter().map(|topic| (index(topic), false, false)).collect()
}

/// Records of a publish, by tenant.
fn per_batch(story: &Story) -> Vec<u64> {
    let mut all = vec![None; story.tenants.len()];
    for group in &story.publishers {
        let records = u64::from(group.records);
        let known = all[story.topics[group.topic].1].get_or_insert(records);
        if *known != records {
            *known = 0;
        }
    }
    all.into_iter().map(|records| records.unwrap_or(1)).collect()
}

impl Shard {
    fn new(story: &Story, rand: &Rand, number: u32, tape: bool) -> Result<Self, String> {
        let mut broker = Broker::shard(story.limits.clone(), rand.fork("broker").bits(), number);
        broker.record_inputs(tape);
        broker.advance(Instant::ZERO);
        let tenants = story.tenants.iter().map(|(name, weight)| {
            broker.tenant(*weight).map_err(|why| refused(&format!("tenant `{name}`"), why))
        });
        let tenants = tenants.collect::<Result<_, _>>()?;
        Ok(Self {
            broker,
            host: Host::default(),
            tenants,
            conns: Vec::new(),
            outlets: Vec::new(),
            subs: Vec::new(),
            tickets: BTreeMap::new(),
            noted: None,
            loan: (0, 0),
        })
    }

    /// Who has a connection.
    fn who(&self, conn: ConnId) -> Who {
        let entry = self.conns.get(at(conn.index())).copied().unwrap_or_default();
        if entry.0 == Some(conn) { entry.1 } else { Who::Nobody }
    }

    fn set_who(&mut self, conn: ConnId, who: Who) {
        *slot(&mut self.conns, conn.index()) = (Some(conn), who);
    }

    /// The sink of an outlet that is offered something.
    fn sink(&self, outlet: OutletId) -> u32 {
        self.outlets[at(outlet.index())]
    }
}

/// The entry of an index; the list grows up to it.
fn slot<T: Default>(list: &mut Vec<T>, index: u32) -> &mut T {
    let at = at(index);
    if list.len() <= at {
        list.resize_with(at + 1, T::default);
    }
    &mut list[at]
}

fn at(index: u32) -> usize {
    usize::try_from(index).expect("an index of a vector")
}

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("peers are fewer than 2^32")
}
