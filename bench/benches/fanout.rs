//! The cost of deliveries in core: publish, offer, frames and sent, over 1,000 subscribers.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sluicegate_bench::Bed;

const AUDIENCE: u32 = 1_000;

fn fanout(c: &mut Criterion) {
    let mut group = c.benchmark_group("delivery");
    for (audience, burst) in [(10, 1), (1_000, 1), (10_000, 1), (1_000, 50)] {
        let mut bed = Bed::new(audience);
        group.throughput(Throughput::Elements(u64::from(audience) * burst));
        group.bench_function(BenchmarkId::new(format!("audience_{audience}"), burst), |b| {
            b.iter(|| {
                bed.publish(burst);
                bed.run(u64::MAX);
            });
        });
    }
    let mut bed = Bed::dead(AUDIENCE);
    group.throughput(Throughput::Elements(AUDIENCE.into()));
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
