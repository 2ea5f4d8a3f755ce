//! Lossless mode under random stalls: whoever stops reading, nothing is dropped, shed, refused or
//! evicted; when the last stall is over everything drains, each source's publishes in their order.

use super::*;
use crate::model::{self, count};
use alloc::collections::BTreeMap;
use proptest::prelude::*;

const TENANTS: usize = 2;
const TOPICS: usize = 2 * TENANTS;
const SOURCES: usize = 3 * TENANTS;
const READERS: usize = 12;
/// Source, topic, length and number.
const HEADER: usize = 8;

#[derive(Clone, Copy, Debug)]
enum Op {
    Advance(u64),
    Join(usize),
    Leave(usize),
    Publish {
        source: usize,
        topic: usize,
        size: usize,
    },
    /// A reader's transport takes so many bytes from now on, and then stalls.
    Read {
        reader: usize,
        room: u64,
    },
    Step(u32),
}

/// An operation made of one number: to let proptest choose costs fifty times as much.
fn op(bits: u64) -> Op {
    let (kind, number) = (bits % 100, bits / 100);
    let (at, more) = (usize::try_from(number % 1_000).unwrap(), number / 1_000);
    match kind {
        0..4 => Op::Join(at),
        4..6 => Op::Leave(at),
        6..9 => Op::Advance(more % 5_000),
        9..30 => Op::Read { reader: at / 5, room: [0, 7, 900, 3_000, ALL][at % 5] },
        30..60 => Op::Step(1 + u32::try_from(more % 9).unwrap()),
        _ => {
            let size = if more % 8 == 0 { 20_000 } else { HEADER + at };
            Op::Publish { source: at, topic: usize::try_from(more % 97).unwrap(), size }
        }
    }
}

struct Reader {
    conn: ConnId,
    topic: usize,
    room: u64,
    bytes: Vec<u8>,
    /// The number that is next, by source.
    next: BTreeMap<usize, u32>,
}

struct Stalls {
    bench: Bench,
    tenants: [TenantId; TENANTS],
    topics: [TopicId; TOPICS],
    sources: [ConnId; SOURCES],
    readers: BTreeMap<OutletId, Reader>,
    /// By source and topic.
    published: BTreeMap<(usize, usize), u32>,
}

impl Stalls {
    fn new() -> Self {
        let mut bench = Bench::new(Limits {
            lossless: 1,
            max_frame_bytes: 20_000,
            pub_conn_inflight_bytes: 90_000,
            pub_inflight_bytes: 100_000,
            pub_queue_depth: 2,
            pub_queue_total: 6,
            pub_tenant_inflight_bytes: 95_000,
            subscription_batches: 4,
            subscription_bytes: 3_000,
            ..Limits::default()
        });
        let tenants = [bench.tenant, bench.broker.tenant(2).unwrap()];
        let names = ["a", "b", "c", "d"];
        let topic = |at: usize| bench.broker.topic(tenants[at % TENANTS], names[at]).unwrap();
        let topics = core::array::from_fn(topic);
        let sources = core::array::from_fn(|at| bench.broker.open(tenants[at % TENANTS]).unwrap());
        let (readers, published) = (BTreeMap::new(), BTreeMap::new());
        Self { bench, tenants, topics, sources, readers, published }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Advance(millis) => self.bench.wait(millis),
            Op::Join(topic) => self.join(topic % TOPICS),
            Op::Leave(at) => self.leave(at),
            Op::Publish { source, topic, size } => self.publish(source % SOURCES, topic, size),
            Op::Read { reader, room } => self.read(reader, room),
            Op::Step(work) => {
                let _ = self.bench.broker.step(work);
                self.bench.check();
                self.write();
                let held = |topic: &&TopicId| self.bench.broker.blocked_by(**topic).is_some();
                if self.topics.iter().any(|topic| held(&topic)) {
                    count("a topic is held");
                }
            }
        }
        self.bench.check();
        count("operations");
    }

    fn join(&mut self, topic: usize) {
        if self.readers.len() < READERS {
            let conn = self.bench.broker.open(self.tenants[topic % TENANTS]).unwrap();
            let outlet = self.bench.broker.outlet(conn, Pipe::Single).unwrap();
            let block = Wish::policy(Policy::Block);
            self.bench.broker.subscribe(outlet, self.topics[topic], block).unwrap();
            let (bytes, next) = (Vec::new(), BTreeMap::new());
            self.readers.insert(outlet, Reader { conn, topic, room: ALL, bytes, next });
        }
    }

    fn any(&self, at: usize) -> Option<OutletId> {
        self.readers.keys().nth(at.checked_rem(self.readers.len())?).copied()
    }

    fn leave(&mut self, at: usize) {
        if let Some(outlet) = self.any(at) {
            let reader = self.readers.remove(&outlet).unwrap();
            self.bench.broker.gone(reader.conn);
        }
    }

    fn publish(&mut self, source: usize, topic: usize, size: usize) {
        let conn = self.sources[source];
        if self.bench.broker.is_paused(conn) {
            return count("a source is paused");
        }
        let topic = source % TENANTS + TENANTS * (topic % (TOPICS / TENANTS));
        let number = self.published.entry((source, topic)).or_default();
        *number += 1;
        let mut frame = alloc::vec![u8::try_from(source).unwrap(), u8::try_from(topic).unwrap()];
        frame.extend(u16::try_from(size).unwrap().to_le_bytes());
        frame.extend(number.to_le_bytes());
        frame.resize(size, b'.');
        let message = Message {
            frame: frame.into(),
            records: 1,
            ack: Ack::None,
            except: None,
            keep: Keep::Default,
        };
        match self.bench.broker.publish(conn, self.topics[topic], message) {
            Verdict::Queued(_) => {}
            Verdict::Parked(_) => count("a publish is parked"),
            no => panic!("nothing is refused or shed: {no:?}"),
        }
    }

    fn read(&mut self, at: usize, room: u64) {
        let Some(outlet) = self.any(at) else { return };
        self.readers.get_mut(&outlet).unwrap().room = room;
        if room > 0 {
            self.bench.broker.writable(outlet);
        }
    }

    fn write(&mut self) {
        while let Some(effect) = self.bench.broker.poll() {
            let offer = match effect {
                Effect::Write(offer) => offer,
                Effect::Notice(Notice::Pause { .. } | Notice::Resume { .. }) => continue,
                Effect::Notice(notice) => panic!("nothing is lost and nobody is ended: {notice:?}"),
            };
            let reader = self.readers.get_mut(&offer.outlet).unwrap();
            let taken = offer.bytes.min(reader.room);
            reader.room -= taken;
            let bytes = self.bench.broker.frames(offer).flatten().copied();
            reader.bytes.extend(bytes.take(usize::try_from(taken).unwrap()));
            reader.take_frames();
            self.bench.broker.sent(offer, taken);
            self.bench.check();
            if taken < offer.bytes {
                count("a reader stalls");
            }
        }
    }

    /// Everybody reads.
    fn heal(&mut self) {
        for at in 0..self.readers.len() {
            self.read(at, ALL);
        }
        self.write();
        while self.bench.broker.next_deadline() == Some(self.bench.broker.now()) {
            self.apply(Op::Step(100));
        }
        self.bench.broker.check_quiescent().unwrap();
        let books = self.bench.broker.ledger();
        let lost = [&books.dropped, &books.shed, &books.refused, &books.evicted];
        assert!(lost.iter().all(|table| table.total().is_zero()), "{books:?}");
        assert_eq!(
            (books.lag, books.waiting, books.queued),
            (Tally::ZERO, Tally::ZERO, Tally::ZERO)
        );
        assert_eq!(books.sequenced.records, self.published.values().map(|n| u64::from(*n)).sum());
        assert_eq!((self.bench.broker.jobs(), self.bench.broker.inflight()), ((0, 0), 0));
        for reader in self.readers.values() {
            for (source, next) in &reader.next {
                assert_eq!(*next - 1, self.published[&(*source, reader.topic)], "to the last one");
            }
        }
        if !books.returned.is_zero() {
            count("what was pushed out waits again");
        }
    }
}

impl Reader {
    /// Takes whole frames out of what arrived. Those of one source come without a hole.
    fn take_frames(&mut self) {
        while let Some(header) = self.bytes.first_chunk::<HEADER>() {
            let [source, topic, size @ .., _, _, _, _] = *header;
            let size = usize::from(u16::from_le_bytes(size));
            if self.bytes.len() < size {
                return;
            }
            let number = u32::from_le_bytes(*header.last_chunk().unwrap());
            assert_eq!(usize::from(topic), self.topic);
            let next = self.next.entry(source.into()).or_insert(number);
            assert_eq!(*next, number, "in order, without a hole");
            *next += 1;
            self.bytes.drain(..size);
        }
    }
}

#[test]
fn nothing_is_lost_in_lossless_mode_whoever_stalls() {
    let operations = proptest::collection::vec(any::<u64>().prop_map(op), 1_000);
    let reached = model::run(model::cases(file!(), 60), &operations, REACHED, |operations| {
        let mut stalls = Stalls::new();
        operations.iter().for_each(|op| stalls.apply(*op));
        stalls.heal();
    });
    assert!(reached >= model::scaled(60_000));
}

/// What a run must come by.
const REACHED: &[&str] = &[
    "a publish is parked",
    "a reader stalls",
    "a source is paused",
    "a topic is held",
    "operations",
    "what was pushed out waits again",
];
