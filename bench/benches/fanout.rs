//! The cost of deliveries in core: publish, offer, frames and sent, over 1,000 subscribers.

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sluicegate_core::{
    Ack, Broker, ConnId, Effect, Limits, Message, Pipe, Policy, TopicId, Verdict, Wish,
};
use std::hint::black_box;

const AUDIENCE: u64 = 1_000;

struct Bed {
    broker: Broker,
    source: ConnId,
    topic: TopicId,
    frame: Bytes,
}

impl Bed {
    fn new() -> Self {
        let mut broker = Broker::new(Limits::default(), 1);
        let tenant = broker.tenant(1).expect("a first tenant");
        let topic = broker.topic(tenant, "topic").expect("a first topic");
        let source = broker.open(tenant).expect("a first connection");
        for _ in 0..AUDIENCE {
            let conn = broker.open(tenant).expect("within the limit");
            let outlet = broker.outlet(conn, Pipe::Shared).expect("an open connection");
            broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).expect("allowed");
        }
        Self { broker, source, topic, frame: Bytes::from(vec![b'x'; 128]) }
    }

    fn publish(&mut self, times: u64) {
        for _ in 0..times {
            let frame = self.frame.clone();
            let message = Message { frame, records: 1, ack: Ack::None, except: None };
            let verdict = self.broker.publish(self.source, self.topic, message);
            assert!(matches!(verdict, Verdict::Queued(_)));
        }
    }

    /// Steps and writes until nothing is left; every transport takes `room` bytes of an offer.
    fn run(&mut self, room: u64) {
        while self.broker.next_deadline() == Some(self.broker.now()) {
            let _ = self.broker.step(u32::MAX);
            while let Some(effect) = self.broker.poll() {
                if let Effect::Write(offer) = effect {
                    for frame in self.broker.frames(offer) {
                        black_box(frame);
                    }
                    self.broker.sent(offer, offer.bytes.min(room));
                }
            }
        }
    }
}

fn fanout(c: &mut Criterion) {
    let mut group = c.benchmark_group("delivery");
    for burst in [1, 16] {
        let mut bed = Bed::new();
        group.throughput(Throughput::Elements(AUDIENCE * burst));
        group.bench_function(BenchmarkId::new("ready", burst), |b| {
            b.iter(|| {
                bed.publish(burst);
                bed.run(u64::MAX);
            });
        });
    }
    let mut bed = Bed::new();
    group.throughput(Throughput::Elements(AUDIENCE));
    (0..2_000).for_each(|_| {
        bed.publish(1);
        bed.run(0);
    });
    group.bench_function("dead", |b| {
        b.iter(|| {
            bed.publish(1);
            bed.run(0);
        });
    });
    group.finish();
}

criterion_group!(benches, fanout);
criterion_main!(benches);
