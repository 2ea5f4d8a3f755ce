//! A run over time: what is watched at a fixed interval of virtual time, in bounded memory.
//!
//! Watching reads and never changes: no event enters the calendar and nothing goes to the tape,
//! so that a watched run is the same run. A column is a level (read at the moment), a most (the
//! greatest since the last point) or a total (from the start on; its steps are a rate).

use crate::Watch;
use crate::fact::name_cell;
use crate::histogram::Histogram;
use crate::scenario::Story;
use serde_json::{Value, json};
use sluicegate_core::{Broker, Factor};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Points until the publishers stop, or somewhat fewer: the interval is a round number.
const PLANNED: u64 = 300;
/// Points kept: when there are so many, each pair after the first becomes one and the interval
/// doubles.
const KEPT: usize = 601;

/// How a column is read and how two points become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The value at the moment; of two points the later.
    Level,
    /// The greatest in the interval; of two points the greater.
    Most,
    /// A sum from the start on; of two points the later.
    Total,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Level => "level",
            Self::Most => "most",
            Self::Total => "total",
        }
    }
}

/// One watched number.
#[derive(Clone, Debug)]
pub struct Column {
    /// The picture it belongs to; the page has a title and a unit for each.
    pub plot: &'static str,
    /// Its name in that picture.
    pub name: String,
    /// How it is read.
    pub kind: Kind,
    /// One value per point; `None` where there was nothing to read.
    pub values: Vec<Option<u64>>,
}

/// Every watched number of a run.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// The time of each point, in nanoseconds. At most 601.
    pub at: Vec<u64>,
    /// The columns, each as long as `at`.
    pub columns: Vec<Column>,
}

impl Series {
    /// The series as JSON: the page draws it, and tests compare what was drawn with it.
    pub fn json(&self) -> Value {
        let columns = self.columns.iter().map(|column| {
            json!({
                "plot": column.plot,
                "name": column.name,
                "kind": column.kind.name(),
                "values": column.values,
            })
        });
        json!({ "at_ns": self.at, "columns": columns.collect::<Vec<_>>() })
    }

    /// The column of this name, if it was ever written to.
    pub fn column(&self, plot: &str, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.plot == plot && column.name == name)
    }

    /// Writes the newest point of a column. A column that is new was 0, or nothing, before.
    fn put(&mut self, (plot, name): (&'static str, &str), kind: Kind, value: Option<u64>) {
        let known = self.columns.iter().position(|c| c.plot == plot && c.name == name);
        let column = known.unwrap_or_else(|| {
            let before = value.map(|_| 0).filter(|_| kind == Kind::Total);
            let values = vec![before; self.at.len() - 1];
            self.columns.push(Column { plot, name: name.to_owned(), kind, values });
            self.columns.len() - 1
        });
        self.columns[column].values.push(value);
    }

    /// Makes one point of each pair after the first.
    fn thin(&mut self) {
        self.at = halved(&self.at, |pair| pair[pair.len() - 1]);
        for column in &mut self.columns {
            column.values = match column.kind {
                Kind::Level | Kind::Total => halved(&column.values, |pair| pair[pair.len() - 1]),
                Kind::Most => halved(&column.values, |pair| pair.iter().copied().max().flatten()),
            };
        }
    }
}

/// The first value, and one for each pair of the others.
fn halved<T: Copy>(values: &[T], join: fn(&[T]) -> T) -> Vec<T> {
    let Some((first, others)) = values.split_first() else { return Vec::new() };
    std::iter::once(*first).chain(others.chunks(2).map(join)).collect()
}

/// What one shard holds.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    held: u64,
    inflight: u64,
    queued: u64,
    parked: u64,
}

impl Level {
    fn of(broker: &Broker) -> Self {
        let (queued, parked) = broker.jobs();
        let (queued, parked) = (queued.into(), parked.into());
        Self { held: broker.held(), inflight: broker.inflight(), queued, parked }
    }

    fn raise(&mut self, other: Self) {
        self.held = self.held.max(other.held);
        self.inflight = self.inflight.max(other.inflight);
        self.queued = self.queued.max(other.queued);
        self.parked = self.parked.max(other.parked);
    }
}

/// The most that places held which the table does not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tops {
    /// In-flight publish bytes of one shard.
    pub inflight: u64,
    /// Publish bytes in flight of one client; without one, on the way or not read.
    pub window: u64,
    /// Publishes queued for one worker of a client.
    pub queue: u64,
    /// Parcels on their way from one shard to another.
    pub mesh: u64,
    /// Bytes that one transport had taken and its peer not received.
    pub transport: u64,
    /// Events that the application had not taken from one inbox.
    pub inbox: u64,
}

/// What was watched of a run.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The numbers over time.
    pub series: Series,
    /// The most that was held.
    pub tops: Tops,
}

/// What a sampler looks at.
pub(crate) struct Look<'a> {
    pub(crate) brokers: Vec<&'a Broker>,
    /// Records that publishers held back so far.
    pub(crate) held_back: u64,
    /// By group of subscribers.
    pub(crate) groups: Vec<Followed>,
}

/// A group of subscribers at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Followed {
    /// Records that wait, of all of them.
    pub(crate) lag: u64,
    /// Bytes that wait for the one with most.
    pub(crate) fullest: u64,
}

/// What a world carries for those who watch it; nothing at all for others.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    sampler: Option<Sampler>,
    clock: Option<Arc<AtomicU64>>,
}

impl Watching {
    pub(crate) fn new(story: &Story, watch: Watch) -> Self {
        let sampler = watch.series.then(|| Sampler::new(story));
        Self { sampler, clock: watch.clock }
    }

    /// Whether a point is due before what happens at `at`. Tells the time to who waits.
    pub(crate) fn is_due(&self, at: u64) -> bool {
        self.clock.iter().for_each(|clock| clock.store(at, Relaxed));
        self.sampler.as_ref().is_some_and(|sampler| sampler.is_due(at))
    }

    /// Notes what a shard holds. Cost: O(shards).
    pub(crate) fn note(&mut self, shard: usize, broker: &Broker) {
        self.sampler.iter_mut().for_each(|sampler| sampler.note(shard, broker));
    }

    /// Notes how long a record took to a subscriber of a group.
    pub(crate) fn latency(&mut self, group: usize, nanos: u64) {
        self.sampler.iter_mut().for_each(|sampler| sampler.latency[group].add(nanos));
    }

    /// Notes that one of those places holds so much.
    pub(crate) fn raise(&mut self, top: fn(&mut Tops) -> &mut u64, value: u64) {
        for tops in self.sampler.iter_mut().flat_map(|s| [&mut s.tops, &mut s.latest]) {
            let top = top(tops);
            *top = value.max(*top);
        }
    }

    /// Takes every point that is due before `at`.
    pub(crate) fn take(&mut self, at: u64, look: &Look<'_>) {
        self.sampler.iter_mut().for_each(|sampler| sampler.take(at, look));
    }

    /// Takes the last point and gives out what was watched.
    pub(crate) fn end<'a>(self, at: u64, look: impl FnOnce() -> Look<'a>) -> Option<Watched> {
        self.sampler.map(|sampler| sampler.end(at, &look()))
    }
}

/// Takes the points.
#[derive(Debug)]
struct Sampler {
    series: Series,
    /// Over the whole run, and since the last point.
    tops: Tops,
    latest: Tops,
    every: u64,
    next: u64,
    /// Names of the groups of subscribers.
    groups: Vec<String>,
    /// What each shard held when it was last looked at.
    shards: Vec<Level>,
    /// The greatest since the last point: memory over all shards, the rest of the fullest.
    most: Level,
    /// Latencies since the last point, by group of subscribers.
    latency: Vec<Histogram>,
}

impl Sampler {
    /// A sampler for a story; the first point is at 0.
    fn new(story: &Story) -> Self {
        let groups = story.subscribers.iter().map(|group| group.name.clone());
        Self {
            series: Series::default(),
            tops: Tops::default(),
            latest: Tops::default(),
            every: round(story.duration.div_ceil(PLANNED)),
            next: 0,
            groups: groups.collect(),
            shards: Vec::new(),
            most: Level::default(),
            latency: vec![Histogram::default(); story.subscribers.len()],
        }
    }

    /// Whether a point is due before what happens at `at`.
    const fn is_due(&self, at: u64) -> bool {
        self.next < at
    }

    /// Notes what a shard holds. Cost: O(shards).
    fn note(&mut self, shard: usize, broker: &Broker) {
        if self.shards.len() <= shard {
            self.shards.resize(shard + 1, Level::default());
        }
        self.shards[shard] = Level::of(broker);
        let held = self.shards.iter().map(|level| level.held).sum();
        let level = Level { held, ..self.shards[shard] };
        self.most.raise(level);
        self.tops.inflight = self.tops.inflight.max(level.inflight);
    }

    fn take(&mut self, at: u64, look: &Look<'_>) {
        while self.is_due(at) {
            if self.make_room() {
                self.point(self.next, look);
                self.next = self.next.saturating_add(self.every);
            }
        }
    }

    fn end(mut self, at: u64, look: &Look<'_>) -> Watched {
        self.take(at, look);
        self.make_room();
        self.point(at, look);
        Watched { series: self.series, tops: self.tops }
    }

    /// Whether there is room for the next point; else room is made, and the next point is later.
    fn make_room(&mut self) -> bool {
        if self.series.at.len() < KEPT {
            return true;
        }
        self.series.thin();
        self.every = self.every.saturating_mul(2);
        let last = self.series.at.last().copied().unwrap_or_default();
        self.next = last.saturating_add(self.every);
        false
    }

    fn point(&mut self, at: u64, look: &Look<'_>) {
        self.series.at.push(at);
        self.books(look);
        self.memory(look);
        self.clients();
        self.subscribers(look);
    }

    /// Totals over all shards: what came, what went, and what was lost by place and reason.
    fn books(&mut self, look: &Look<'_>) {
        let mut put = |plot, name: &str, value| {
            self.series.put((plot, name), Kind::Total, Some(value));
        };
        let sum = |of: fn(&Broker) -> u64| look.brokers.iter().map(|broker| of(broker)).sum();
        put("publish", "offered", sum(|b| b.ledger().offered.records));
        put("publish", "admitted", sum(|b| b.ledger().admitted.records));
        put("publish", "refused", sum(|b| b.ledger().refused.total().records));
        put("publish", "shed", sum(|b| b.ledger().shed.total().records));
        put("publish", "held back", look.held_back);
        put("deliver", "delivered", sum(|b| b.ledger().delivered.records));
        put("deliver", "dropped", sum(|b| b.ledger().dropped.total().records));
        let mut lost = std::collections::BTreeMap::<String, u64>::new();
        for books in look.brokers.iter().map(|broker| broker.ledger()) {
            for (kind, table) in [
                ("dropped", &books.dropped),
                ("evicted", &books.evicted),
                ("refused", &books.refused),
                ("shed", &books.shed),
            ] {
                for (place, reason, tally) in table.iter() {
                    let name = format!("{kind} {}", name_cell(place, reason));
                    *lost.entry(name).or_default() += tally.records;
                }
            }
        }
        lost.iter().for_each(|(name, records)| put("lost", name, *records));
    }

    /// Memory, the publish queue and the bands.
    fn memory(&mut self, look: &Look<'_>) {
        let Level { held, inflight, queued, parked } = self.most;
        self.most = Level::default();
        for (shard, broker) in look.brokers.iter().enumerate() {
            self.note(shard, broker);
        }
        let factor = look.brokers.iter().map(|b| b.factor()).min().unwrap_or(Factor::ONE);
        let band = look.brokers.iter().map(|b| b.band()).max();
        let budget = look.brokers.first().map_or(0, |b| b.limits().memory_budget);
        let mut put = |place, kind, value| self.series.put(place, kind, Some(value));
        put(("memory", "held"), Kind::Most, held);
        put(("memory", "limit"), Kind::Level, factor.of(budget));
        put(("pressure", "factor"), Kind::Level, factor.thousandths().into());
        put(("pressure", "band"), Kind::Level, band.map_or(0, |band| band as u64));
        put(("queue", "in flight"), Kind::Most, inflight);
        put(("jobs", "queued"), Kind::Most, queued);
        put(("jobs", "parked"), Kind::Most, parked);
    }

    /// Places outside of the shards.
    fn clients(&mut self) {
        let Tops { window, queue, mesh, transport, inbox, .. } = std::mem::take(&mut self.latest);
        let mut put = |place, value| self.series.put(place, Kind::Most, Some(value));
        put(("window", "fullest window"), window);
        put(("clients", "publishes queued"), queue);
        put(("clients", "events in an inbox"), inbox);
        put(("mesh", "parcels on one way"), mesh);
        put(("transport", "in one transport"), transport);
    }

    fn subscribers(&mut self, look: &Look<'_>) {
        for (group, name) in self.groups.iter().enumerate() {
            let Followed { lag, fullest } = look.groups[group];
            self.series.put(("lag", name), Kind::Level, Some(lag));
            self.series.put(("backlog", name), Kind::Level, Some(fullest));
            let latency = std::mem::take(&mut self.latency[group]);
            for percent in [50, 99] {
                let name = format!("{name} p{percent}");
                let value = latency.percentile(percent);
                self.series.put(("latency", &name), Kind::Most, value);
            }
        }
    }
}

/// The next round number: intervals that records per second divide make rates that do not wobble.
fn round(least: u64) -> u64 {
    let mut decade = 1_u64;
    loop {
        for step in [1, 2, 4, 5, 8] {
            let every = step * decade;
            if every >= least {
                return every;
            }
        }
        // A run is at most a day: far from the end of the numbers.
        decade *= 10;
    }
}

#[cfg(test)]
mod tests;
