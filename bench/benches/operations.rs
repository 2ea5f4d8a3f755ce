//! The time of every operation that is watched.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use sluicegate_bench::operations::OPERATIONS;

fn operations(c: &mut Criterion) {
    let mut group = c.benchmark_group("operations");
    for operation in OPERATIONS {
        let times = if operation.spends { operation.times } else { 1 };
        group.throughput(Throughput::Elements(operation.parts * times));
        group.bench_function(operation.name, |b| {
            if operation.spends {
                let spend = |repeat: &mut Box<dyn FnMut()>| (0..times).for_each(|_| repeat());
                b.iter_batched_ref(operation.start, spend, BatchSize::PerIteration);
            } else {
                let repeat = (operation.start)();
                b.iter(repeat);
            }
        });
    }
    group.finish();
}

criterion_group!(benches, operations);
criterion_main!(benches);
