//! What tokio's channel and semaphore cost on the same machine, in the same run: the figures of
//! our operations are told as multiples of these.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sluicegate_bench::beds::frame;
use std::hint::black_box;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, mpsc};

fn runtime() -> Runtime {
    Builder::new_current_thread().build().expect("a runtime without I/O")
}

/// One bounded channel per subscriber: each is sent a reference to the frame, then each receives.
fn channels(c: &mut Criterion) {
    let runtime = runtime();
    let mut group = c.benchmark_group("mpsc");
    for audience in [10, 1_000, 10_000] {
        let mut pipes: Vec<_> = (0..audience).map(|_| mpsc::channel(16)).collect();
        let frame = frame();
        group.throughput(Throughput::Elements(audience));
        group.bench_function(BenchmarkId::from_parameter(audience), |b| {
            b.iter(|| {
                runtime.block_on(async {
                    for (sender, _) in &pipes {
                        sender.send(frame.clone()).await.expect("it is open");
                    }
                    for (_, receiver) in &mut pipes {
                        black_box(receiver.recv().await.expect("something was sent"));
                    }
                });
            });
        });
    }
    group.finish();
}

/// A permit is taken and given back, a thousand times.
fn semaphore(c: &mut Criterion) {
    let runtime = runtime();
    let semaphore = Semaphore::new(1 << 20);
    let mut group = c.benchmark_group("semaphore");
    group.throughput(Throughput::Elements(1_000));
    group.bench_function("acquire_and_release", |b| {
        b.iter(|| {
            runtime.block_on(async {
                for _ in 0..1_000 {
                    let permit = semaphore.acquire_many(black_box(400)).await;
                    drop(black_box(permit.expect("it is open")));
                }
            });
        });
    });
    group.finish();
}

criterion_group!(benches, channels, semaphore);
criterion_main!(benches);
