//! What a run was like: the numbers, as a table for people and as JSON for programs.

mod table;

use crate::amount::{Thousandths, Unit};
use crate::fact::Stop;
use crate::histogram::Histogram;
use crate::peer::{Published, Publisher};
use crate::scenario::{Story, SubscriberGroup};
use crate::series::Watched;
use serde_json::{Value, json};
use sluicegate_core::{Band, Books, Factor, SubBooks, Table, Tally};

/// The numbers of one run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The story's name.
    pub name: String,
    /// The scenario's title.
    pub title: String,
    /// Seed of everything random.
    pub seed: u64,
    /// Shards of the broker.
    pub shards: u32,
    /// The virtual time of the last event, in nanoseconds.
    pub ended: u64,
    /// One row per group of publishers.
    pub publishers: Vec<PublisherRow>,
    /// One row per group of subscribers.
    pub subscribers: Vec<SubscriberRow>,
    /// The books of each tenant, over all shards.
    pub tenants: Vec<(String, Books)>,
    /// Jain's index over the tenants' work, in thousandths, when it is expected.
    pub fairness: Option<u64>,
    /// Places that were full, by the time when they first were.
    pub stops: Vec<(Stop, u64)>,
    /// The books of all shards as one.
    pub books: Books,
    /// The most that was held.
    pub peaks: Peaks,
    /// Every change of the band or the factor, the first entry being the start.
    pub moments: Vec<Moment>,
    /// Nothing was left waiting anywhere.
    pub drained: bool,
    /// What was left, and where, in words.
    pub left: Vec<String>,
    /// The tape's hash.
    pub tape: String,
    /// Inputs and effects on the tape.
    pub facts: u64,
    /// The run over time, if it was watched.
    pub watched: Option<Watched>,
}

/// What a group of publishers saw.
#[derive(Clone, Debug)]
pub struct PublisherRow {
    /// The group's name.
    pub name: String,
    /// How many there are.
    pub peers: u32,
    /// Their sums.
    pub seen: Published,
}

/// What became of a group of subscribers' records.
#[derive(Clone, Debug)]
pub struct SubscriberRow {
    /// The group's name.
    pub name: String,
    /// How many there are.
    pub peers: u32,
    /// Connections that the core gave up.
    pub closed: u64,
    /// Connections that the broker took.
    pub connects: u64,
    /// Connections that the broker refused.
    pub turned_away: u64,
    /// Sums of the core's books, as they were when a connection ended.
    pub books: SubBooks,
    /// Records received through the links.
    pub received: u64,
    /// Records on their way when their connection ended.
    pub unconfirmed: u64,
    /// Records that applications took from their inboxes, and that inboxes dropped.
    pub taken: u64,
    /// Records that inboxes dropped.
    pub overrun: u64,
    /// Questions asked.
    pub asked: u64,
    /// Answers received.
    pub answered: u64,
    /// Jain's index over what each peer received, in thousandths.
    pub jain: Option<u64>,
    /// From offer to receipt, or to being taken from an inbox, in nanoseconds.
    pub latency: Histogram,
    /// From a question to its answer, in nanoseconds.
    pub answers: Histogram,
}

impl SubscriberRow {
    /// An empty row of a group.
    pub(crate) fn new(spec: &SubscriberGroup) -> Self {
        Self {
            name: spec.name.clone(),
            peers: spec.count,
            closed: 0,
            connects: 0,
            turned_away: 0,
            books: SubBooks::default(),
            received: 0,
            unconfirmed: 0,
            taken: 0,
            overrun: 0,
            asked: 0,
            answered: 0,
            jain: None,
            latency: Histogram::default(),
            answers: Histogram::default(),
        }
    }

    /// Adds the books of one connection.
    pub(crate) fn add(&mut self, books: &SubBooks) {
        self.books.expected += books.expected;
        self.books.delivered += books.delivered;
        self.books.dropped += books.dropped;
        self.books.lag += books.lag;
        self.books.last_drop = books.last_drop.or(self.books.last_drop);
    }

    /// A connection ended, by the core or not, with so many records on their way.
    pub(crate) fn end(&mut self, books: &SubBooks, (closed, unconfirmed): (bool, u64)) {
        self.add(&SubBooks { lag: Tally::ZERO, ..*books });
        self.closed += u64::from(closed);
        self.unconfirmed += unconfirmed;
    }
}

/// The most that was held at any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peaks {
    /// Bytes waiting for one subscriber, what it is offered included.
    pub backlog: u64,
    /// Bytes held by the shard.
    pub held: u64,
    /// Publish jobs queued.
    pub queued: u64,
    /// Publishes parked.
    pub parked: u64,
}

/// A change of the band or the factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When, in nanoseconds.
    pub at: u64,
    /// Of which shard.
    pub shard: u32,
    /// The band from then on.
    pub band: Band,
    /// The factor from then on.
    pub factor: Factor,
}

/// The publishers' rows.
pub(crate) fn publishers(story: &Story, publishers: &[Publisher]) -> Vec<PublisherRow> {
    let rows = story.publishers.iter().enumerate().map(|(group, spec)| {
        let mut seen = Published::default();
        for source in publishers.iter().filter(|source| source.group == group) {
            seen.offered += source.seen.offered;
            seen.refused += source.seen.refused;
            seen.shed += source.seen.shed;
            seen.held_back += source.seen.held_back;
            seen.connects += source.seen.connects;
            seen.turned_away += source.seen.turned_away;
        }
        PublisherRow { name: spec.name.clone(), peers: spec.count, seen }
    });
    rows.collect()
}

impl Report {
    /// Changes of a shard's band: from, to.
    fn changes(&self) -> impl Iterator<Item = (Band, Band)> {
        self.moments.iter().enumerate().filter_map(|(at, moment)| {
            let earlier = self.moments[..at].iter().rev();
            let before = earlier.into_iter().find(|before| before.shard == moment.shard)?;
            (before.band != moment.band).then_some((before.band, moment.band))
        })
    }

    /// Changes of the band, of all shards.
    pub fn transitions(&self) -> u64 {
        self.changes().count() as u64
    }

    /// Whether a band was entered after the start.
    pub fn entered(&self, band: Band) -> bool {
        self.changes().any(|(_, after)| after == band)
    }

    /// The least factor.
    pub fn factor_min(&self) -> Factor {
        self.moments.iter().map(|moment| moment.factor).min().unwrap_or(Factor::ONE)
    }

    /// The last factor.
    pub fn factor_final(&self) -> Factor {
        self.moments.last().map_or(Factor::ONE, |moment| moment.factor)
    }

    /// The report as JSON. `wall` is the time the run took, in nanoseconds.
    pub fn json(&self, wall: u64) -> Value {
        let tally = |tally: Tally| json!({ "records": tally.records, "bytes": tally.bytes });
        let table = |table: &Table| -> Value {
            let cells = table.iter();
            cells.map(|(p, r, t)| (crate::fact::name_cell(p, r), tally(t))).collect()
        };
        let Self { books, peaks, .. } = self;
        let rate = u128::from(books.delivered.records) * 1_000_000_000 / u128::from(wall.max(1));
        json!({
            "name": self.name,
            "title": self.title,
            "seed": self.seed,
            "shards": self.shards,
            "ended_ns": self.ended,
            "wall_ns": wall,
            "deliveries_per_wall_second": u64::try_from(rate).unwrap_or(u64::MAX),
            "tape": self.tape,
            "facts": self.facts,
            "drained": self.drained,
            "left": self.left,
            "books": {
                "offered": tally(books.offered),
                "admitted": tally(books.admitted),
                "refused": table(&books.refused),
                "shed": table(&books.shed),
                "waiting": tally(books.waiting),
                "sequenced": tally(books.sequenced),
                "evicted": table(&books.evicted),
                "returned": tally(books.returned),
                "forwarded": tally(books.forwarded),
                "received": tally(books.received),
                "queued": tally(books.queued),
                "expected": tally(books.expected),
                "delivered": tally(books.delivered),
                "dropped": table(&books.dropped),
                "left": tally(books.left),
                "lag": tally(books.lag),
            },
            "publishers": self.publishers.iter().map(PublisherRow::json).collect::<Vec<_>>(),
            "subscribers": self.subscribers.iter().map(SubscriberRow::json).collect::<Vec<_>>(),
            "peaks": {
                "backlog_bytes": peaks.backlog,
                "held_bytes": peaks.held,
                "queued_jobs": peaks.queued,
                "parked_publishes": peaks.parked,
            },
            "memory": self.moments.iter().map(Moment::json).collect::<Vec<_>>(),
            "band_transitions": self.transitions(),
            "fairness": self.fairness.map(Thousandths::show),
            "stops": self.stops.iter().map(|(stop, at)| {
                json!({ "place": stop.name(), "at_ns": at })
            }).collect::<Vec<_>>(),
        })
    }
}

impl PublisherRow {
    fn json(&self) -> Value {
        let Published { offered, refused, shed, held_back, connects, turned_away } = self.seen;
        json!({
            "name": self.name,
            "peers": self.peers,
            "offered": offered,
            "refused": refused,
            "shed": shed,
            "held_back": held_back,
            "connects": connects,
            "turned_away": turned_away,
        })
    }
}

impl SubscriberRow {
    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "peers": self.peers,
            "closed": self.closed,
            "connects": self.connects,
            "turned_away": self.turned_away,
            "unconfirmed": self.unconfirmed,
            "taken": self.taken,
            "overrun": self.overrun,
            "asked": self.asked,
            "answered": self.answered,
            "answer_p99_ns": self.answers.percentile(99),
            "answer_max_ns": self.answers.percentile(100),
            "jain": self.jain.map(Thousandths::show),
            "expected": self.books.expected.records,
            "delivered": self.books.delivered.records,
            "received": self.received,
            "dropped": self.books.dropped.records,
            "lag": self.books.lag.records,
            "latency_p50_ns": self.latency.percentile(50),
            "latency_p99_ns": self.latency.percentile(99),
            "latency_max_ns": self.latency.percentile(100),
        })
    }
}

impl Moment {
    fn json(&self) -> Value {
        let factor = Thousandths::show(self.factor.thousandths().into());
        json!({ "at_ns": self.at, "shard": self.shard, "band": self.band.name(), "factor": factor })
    }
}
