//! Brokers in a known state, and hosts that write at once.

use bytes::Bytes;
use sluicegate_core::{
    Ack, Broker, ConnId, Effect, Keep, Limits, Message, OutletId, Pipe, Policy, TenantId, TopicId,
    Verdict, Wish,
};
use std::hint::black_box;

/// Bytes of every published frame.
const FRAME: usize = 128;
/// What every subscription here asks for.
pub const WISH: Wish = Wish::policy(Policy::DropOld);

/// A record to publish.
pub fn frame() -> Bytes {
    Bytes::from(vec![b'x'; FRAME])
}

/// Publishes one record.
pub fn publish(broker: &mut Broker, (conn, topic): Source, frame: &Bytes, ack: Ack) -> Verdict {
    let message =
        Message { frame: frame.clone(), records: 1, ack, except: None, keep: Keep::Default };
    broker.publish(conn, topic, message)
}

/// Carries out effects until there are none; every transport takes `room` bytes of an offer.
pub fn write(broker: &mut Broker, room: u64) {
    while let Some(effect) = broker.poll() {
        if let Effect::Write(offer) = effect {
            for frame in broker.frames(offer) {
                black_box(frame);
            }
            broker.sent(offer, offer.bytes.min(room));
        }
    }
}

/// A tenant's source and topic.
pub type Source = (ConnId, TopicId);

/// New tenants, each with a source and a topic.
pub fn sources(broker: &mut Broker, tenants: u32) -> Vec<Source> {
    (0..tenants)
        .map(|_| {
            let tenant = broker.tenant(1).expect("within the limit");
            let conn = broker.open(tenant).expect("within the limit");
            (conn, broker.topic(tenant, "topic").expect("a first topic"))
        })
        .collect()
}

/// One outlet on a connection of its own.
pub fn outlet(broker: &mut Broker, tenant: TenantId) -> OutletId {
    let conn = broker.open(tenant).expect("within the limit");
    broker.outlet(conn, Pipe::Shared).expect("an open connection")
}

/// One source, one topic and its audience, each subscriber on a connection of its own.
#[derive(Debug)]
pub struct Bed {
    broker: Broker,
    source: Source,
    frame: Bytes,
}

impl Bed {
    /// Everybody reads.
    pub fn new(audience: u32) -> Self {
        Self::with(audience, Limits::default())
    }

    /// The same, within these limits.
    pub fn with(audience: u32, limits: Limits) -> Self {
        let mut broker = Broker::new(limits, 1);
        let tenant = broker.tenant(1).expect("a first tenant");
        let topic = broker.topic(tenant, "topic").expect("a first topic");
        let conn = broker.open(tenant).expect("a first connection");
        for _ in 0..audience {
            let outlet = outlet(&mut broker, tenant);
            broker.subscribe(outlet, topic, WISH).expect("allowed");
        }
        Self { broker, source: (conn, topic), frame: frame() }
    }

    /// The same, and nobody reads: every queue is at its limit.
    pub fn dead(audience: u32) -> Self {
        let narrow = Limits { high_water_bytes: 64 << 10, ..Limits::default() };
        let mut bed = Self::with(audience, narrow);
        for _ in 0..200 {
            bed.publish(1);
            bed.run(0);
        }
        let dropped = bed.broker.ledger().dropped.total();
        assert!(!dropped.is_zero(), "their queues are full");
        bed
    }

    /// Publishes that many records.
    pub fn publish(&mut self, times: u64) {
        for _ in 0..times {
            let verdict = publish(&mut self.broker, self.source, &self.frame, Ack::None);
            assert!(matches!(verdict, Verdict::Queued(_)), "{verdict:?}");
        }
    }

    /// Steps and writes until nothing is left; every transport takes `room` bytes of an offer.
    pub fn run(&mut self, room: u64) {
        while self.broker.next_deadline() == Some(self.broker.now()) {
            let _ = self.broker.step(u32::MAX);
            write(&mut self.broker, room);
        }
    }

    /// Queues that many records for everybody, and writes none.
    pub fn fill(&mut self, records: u64) {
        for _ in 0..records {
            self.publish(1);
            let _ = self.broker.step(u32::MAX);
        }
    }

    /// Carries out one offer, whole.
    pub fn offer(&mut self) {
        let Some(Effect::Write(offer)) = self.broker.poll() else { panic!("it was filled") };
        for frame in self.broker.frames(offer) {
            black_box(frame);
        }
        self.broker.sent(offer, offer.bytes);
    }
}

/// One outlet in whose queue every third slot is of a subscription that has left.
#[derive(Debug)]
pub struct Deserted(Bed);

impl Deserted {
    /// For this many offers of `live` batches each.
    pub fn new(offers: u64, live: u64) -> Self {
        let mut bed = Bed::with(0, roomy(live));
        let tenant = bed.broker.tenant(1).expect("a second tenant");
        let source = bed.broker.open(tenant).expect("within the limit");
        let outlet = outlet(&mut bed.broker, tenant);
        let [stays, leaves] = ["stays", "leaves"].map(|name| {
            let topic = bed.broker.topic(tenant, name).expect("within the limit");
            (topic, bed.broker.subscribe(outlet, topic, WISH).expect("allowed"))
        });
        for _ in 0..offers * live / 2 {
            for topic in [stays.0, leaves.0, stays.0] {
                bed.source = (source, topic);
                bed.fill(1);
            }
        }
        bed.broker.unsubscribe(leaves.1).expect("it is there");
        Self(bed)
    }

    /// Carries out one offer, whole; it passes over the dead slots between its batches.
    pub fn offer(&mut self) {
        self.0.offer();
    }
}

/// Limits that let a queue be filled, and offers of that many batches.
pub fn roomy(offer_batches: u64) -> Limits {
    Limits { high_water_bytes: 1 << 30, offer_batches, ..Limits::default() }
}
