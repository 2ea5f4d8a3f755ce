//! A delivery allocates nothing: not when it is queued, offered, written or dropped.

use bytes::Bytes;
use sluicegate_core::{
    Ack, Broker, ConnId, Effect, Keep, Limits, Message, OutletId, Pipe, Policy, TopicId, Verdict,
    Wish,
};

const AUDIENCE: u32 = 1_000;

struct Bed {
    broker: Broker,
    source: ConnId,
    topic: TopicId,
    outlets: Vec<OutletId>,
}

impl Bed {
    fn new(policy: Policy) -> Self {
        let limits = Limits { high_water_bytes: 4_096, ..Limits::default() };
        let mut broker = Broker::new(limits, 1);
        let tenant = broker.tenant(1).expect("within the limits");
        let topic = broker.topic(tenant, "topic").expect("within the limits");
        let source = broker.open(tenant).expect("within the limits");
        let outlets = (0..AUDIENCE)
            .map(|_| {
                let conn = broker.open(tenant).expect("within the limits");
                let outlet = broker.outlet(conn, Pipe::Shared).expect("within the limits");
                broker.subscribe(outlet, topic, Wish::policy(policy)).expect("within the limits");
                outlet
            })
            .collect();
        Self { broker, source, topic, outlets }
    }

    /// Publishes a burst and writes it; `room` is what each transport takes of an offer.
    fn burst(&mut self, frame: &Bytes, room: u64) {
        for _ in 0..4 {
            let frame = frame.clone();
            let message =
                Message { frame, records: 1, ack: Ack::None, except: None, keep: Keep::Default };
            let verdict = self.broker.publish(self.source, self.topic, message);
            assert!(matches!(verdict, Verdict::Queued(_)));
        }
        while self.broker.next_deadline() == Some(self.broker.now()) {
            let _ = self.broker.step(100);
            while let Some(effect) = self.broker.poll() {
                if let Effect::Write(offer) = effect {
                    let bytes: u64 = self.broker.frames(offer).map(|f| f.len() as u64).sum();
                    self.broker.sent(offer, bytes.min(room));
                }
            }
        }
    }
}

fn allocations(bed: &mut Bed, rounds: u32, room: u64) -> (u64, u64) {
    let frame = Bytes::from(vec![b'x'; 512]);
    (0..10).for_each(|_| bed.burst(&frame, room));
    let before = bed.broker.ledger().expected.records;
    let counted = allocation_counter::measure(|| {
        (0..rounds).for_each(|_| bed.burst(&frame, room));
    });
    (counted.count_total, bed.broker.ledger().expected.records - before)
}

#[test]
fn a_delivery_allocates_nothing() {
    let mut bed = Bed::new(Policy::DropOld);
    let (allocated, deliveries) = allocations(&mut bed, 100, u64::MAX);
    assert_eq!(deliveries, 100 * 4 * u64::from(AUDIENCE));
    assert_eq!(allocated, 0, "over {deliveries} deliveries");
    assert_eq!(bed.broker.ledger().dropped.total().records, 0);
}

#[test]
fn a_drop_allocates_nothing() {
    for policy in [Policy::DropOld, Policy::DropNew] {
        let mut bed = Bed::new(policy);
        let (allocated, deliveries) = allocations(&mut bed, 100, 0);
        assert_eq!(allocated, 0, "over {deliveries} deliveries to peers that read nothing");
        assert!(bed.broker.ledger().dropped.total().records > deliveries / 2);
    }
}

#[test]
fn short_writes_allocate_nothing() {
    let mut bed = Bed::new(Policy::DropOld);
    let frame = Bytes::from(vec![b'x'; 512]);
    let round = |bed: &mut Bed| {
        bed.burst(&frame, 700);
        for at in 0..bed.outlets.len() {
            bed.broker.writable(bed.outlets[at]);
        }
    };
    (0..20).for_each(|_| round(&mut bed));
    let counted = allocation_counter::measure(|| (0..20).for_each(|_| round(&mut bed)));
    assert_eq!(counted.count_total, 0);
    assert!(bed.broker.ledger().delivered.records > 20 * u64::from(AUDIENCE));
}
