//! What a run was like: the numbers, as a table for people and as JSON for programs.

mod table;

use crate::amount::{Thousandths, Unit};
use crate::histogram::Histogram;
use crate::peer::{Published, Publisher, Subscriber};
use crate::scenario::Story;
use crate::series::Watched;
use serde_json::{Value, json};
use sluicegate_core::{Band, Books, Broker, Factor, SubBooks, Table, Tally};

/// The numbers of one run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The story's name.
    pub name: String,
    /// The scenario's title.
    pub title: String,
    /// Seed of everything random.
    pub seed: u64,
    /// The virtual time of the last event, in nanoseconds.
    pub ended: u64,
    /// One row per group of publishers.
    pub publishers: Vec<PublisherRow>,
    /// One row per group of subscribers.
    pub subscribers: Vec<SubscriberRow>,
    /// The shard's books.
    pub books: Books,
    /// The most that was held.
    pub peaks: Peaks,
    /// Every change of the band or the factor, the first entry being the start.
    pub moments: Vec<Moment>,
    /// Nothing was left waiting anywhere.
    pub drained: bool,
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
    /// How many of them the core gave up; their books are in the shard's only.
    pub closed: u32,
    /// Sums of the core's books.
    pub books: SubBooks,
    /// Received through the links.
    pub received: u64,
    /// From offer to receipt, in nanoseconds.
    pub latency: Histogram,
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

impl Peaks {
    /// Looks at what waits for each subscriber. Cost: O(subscribers) when anything waits.
    pub(crate) fn backlog(&mut self, broker: &Broker, subscribers: &[Subscriber]) {
        if broker.ledger().lag.is_zero() {
            return;
        }
        let waiting = subscribers.iter().filter_map(|sink| broker.backlog(sink.outlet));
        self.backlog = waiting.map(|backlog| backlog.bytes).fold(self.backlog, u64::max);
    }
}

/// A change of the band or the factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When, in nanoseconds.
    pub at: u64,
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
        }
        PublisherRow { name: spec.name.clone(), peers: spec.count, seen }
    });
    rows.collect()
}

/// The subscribers' rows.
pub(crate) fn subscribers(
    story: &Story,
    broker: &Broker,
    subscribers: &[Subscriber],
) -> Vec<SubscriberRow> {
    let rows = story.subscribers.iter().enumerate().map(|(group, spec)| {
        let mut row = SubscriberRow {
            name: spec.name.clone(),
            peers: spec.count,
            closed: 0,
            books: SubBooks::default(),
            received: 0,
            latency: Histogram::default(),
        };
        for sink in subscribers.iter().filter(|sink| sink.group == group) {
            let books = broker.sub_books(sink.sub).unwrap_or_default();
            row.closed += u32::from(sink.closed);
            row.books.expected += books.expected;
            row.books.delivered += books.delivered;
            row.books.dropped += books.dropped;
            row.books.lag += books.lag;
            row.books.last_drop = books.last_drop.or(row.books.last_drop);
            row.received += sink.received;
            row.latency.merge(&sink.latency);
        }
        row
    });
    rows.collect()
}

impl Report {
    /// Changes of the band.
    pub fn transitions(&self) -> u64 {
        self.moments.windows(2).filter(|pair| pair[0].band != pair[1].band).count() as u64
    }

    /// Every band that was entered after the start.
    pub fn entered(&self, band: Band) -> bool {
        self.moments.windows(2).any(|pair| pair[0].band != band && pair[1].band == band)
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
            "ended_ns": self.ended,
            "wall_ns": wall,
            "deliveries_per_wall_second": u64::try_from(rate).unwrap_or(u64::MAX),
            "tape": self.tape,
            "facts": self.facts,
            "drained": self.drained,
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
        })
    }
}

impl PublisherRow {
    fn json(&self) -> Value {
        let Published { offered, refused, shed, held_back } = self.seen;
        json!({
            "name": self.name,
            "peers": self.peers,
            "offered": offered,
            "refused": refused,
            "shed": shed,
            "held_back": held_back,
        })
    }
}

impl SubscriberRow {
    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "peers": self.peers,
            "closed": self.closed,
            "expected": self.books.expected.records,
            "delivered": self.books.delivered.records,
            "received": self.received,
            "dropped": self.books.dropped.records,
            "lag": self.books.lag.records,
            "latency_p50_ns": self.latency.percentile(50),
            "latency_p99_ns": self.latency.percentile(99),
        })
    }
}

impl Moment {
    fn json(&self) -> Value {
        let factor = Thousandths::show(self.factor.thousandths().into());
        json!({ "at_ns": self.at, "band": self.band.name(), "factor": factor })
    }
}
