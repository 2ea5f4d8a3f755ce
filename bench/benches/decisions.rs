//! The cost of single decisions in core: a publish without an audience, at one and at many
//! tenants; a publish that is shed; parking and releasing; joining and leaving.

use bytes::Bytes;
use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use sluicegate_core::{Ack, Broker, ConnId, Limits, Message, Pipe, Policy, TopicId, Verdict, Wish};
use std::hint::black_box;

/// A tenant's source and topic.
type Source = (ConnId, TopicId);

fn sources(broker: &mut Broker, tenants: u32) -> Vec<Source> {
    (0..tenants)
        .map(|_| {
            let tenant = broker.tenant(1).expect("within the limit");
            let conn = broker.open(tenant).expect("within the limit");
            (conn, broker.topic(tenant, "topic").expect("a first topic"))
        })
        .collect()
}

fn publish(broker: &mut Broker, (conn, topic): Source, frame: &Bytes, ack: Ack) -> Verdict {
    let message = Message { frame: frame.clone(), records: 1, ack, except: None };
    broker.publish(conn, topic, message)
}

/// Every tenant has one job; each turn of the loop queues one and runs the one whose turn it is.
fn rotation(c: &mut Criterion) {
    let frame = Bytes::from(vec![b'x'; 128]);
    let mut group = c.benchmark_group("publish_and_run");
    for tenants in [1, 100, 10_000] {
        let limits = Limits { pub_queue_total: 20_000, ..Limits::default() };
        let mut broker = Broker::new(limits, 1);
        let sources = sources(&mut broker, tenants);
        for source in &sources {
            let _ = publish(&mut broker, *source, &frame, Ack::None);
        }
        let mut next = sources.iter().cycle();
        group.bench_function(BenchmarkId::new("tenants", tenants), |b| {
            b.iter(|| {
                let source = next.next().expect("a cycle does not end");
                let _ = black_box(publish(&mut broker, *source, &frame, Ack::None));
                broker.step(1)
            });
        });
    }
    group.finish();
}

fn turned_away(c: &mut Criterion) {
    let frame = Bytes::from(vec![b'x'; 128]);
    let mut broker = Broker::new(Limits { pub_queue_total: 1, ..Limits::default() }, 1);
    let source = sources(&mut broker, 1)[0];
    let _ = publish(&mut broker, source, &frame, Ack::None);
    c.bench_function("refuse", |b| {
        b.iter(|| black_box(publish(&mut broker, source, &frame, Ack::Now)));
    });
    c.bench_function("park_and_release", |b| {
        b.iter(|| {
            let _ = black_box(publish(&mut broker, source, &frame, Ack::Wait));
            let progress = broker.step(1);
            while broker.poll().is_some() {}
            progress
        });
    });
}

fn joining(c: &mut Criterion) {
    let mut broker = Broker::new(Limits::default(), 1);
    let tenant = broker.tenant(1).expect("a first tenant");
    let topic = broker.topic(tenant, "topic").expect("a first topic");
    let conn = broker.open(tenant).expect("a first connection");
    let outlet = broker.outlet(conn, Pipe::Shared).expect("an open connection");
    let wish = Wish::policy(Policy::DropOld);
    c.bench_function("subscribe_and_unsubscribe", |b| {
        b.iter(|| {
            let sub = broker.subscribe(outlet, topic, wish).expect("within the limit");
            broker.unsubscribe(sub)
        });
    });
    c.bench_function("open_and_gone", |b| {
        b.iter_batched(
            || (),
            |()| {
                let conn = broker.open(tenant).expect("within the limit");
                let outlet = broker.outlet(conn, Pipe::Shared).expect("an open connection");
                broker.subscribe(outlet, topic, wish).expect("within the limit");
                broker.gone(conn);
            },
            BatchSize::SmallInput,
        );
    });
}

criterion_group!(benches, rotation, turned_away, joining);
criterion_main!(benches);
