//! The ladder: more and more is offered, up to three times what the broker can do. What it delivers
//! has to stay.

use super::tally::{age, histogram, stamp};
use super::{Ladder, broker::local};
use crate::cli::connect::runtime;
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use sluicegate_client::{Client, Event, Options, Queue, SubscribeOptions, Subscription};
use sluicegate_core::Limits;
use sluicegate_host::clock::Clock;
use sluicegate_quic::access::Tenant;
use sluicegate_quic::config::Config;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// What is offered, in tenths of the capacity.
const RUNGS: [u64; 6] = [5, 8, 10, 15, 20, 30];

/// Who shares the broker.
const TENANTS: [&str; 3] = ["a", "b", "c"];

/// What is delivered later than this came too late.
const IN_TIME: Duration = Duration::from_secs(1);

/// How long a rung is held before it counts.
const WARMUP: Duration = Duration::from_secs(1);

/// Batches per second that no broker takes.
const FAR_MORE: u64 = 10_000_000;

/// A publisher wakes this often.
const PACE: Duration = Duration::from_millis(2);

/// One rung's result.
#[derive(Clone, Debug)]
struct Rung {
    /// Batches per second that were offered, and taken by the client's window and queue.
    offered: u64,
    taken: f64,
    /// Deliveries per second, of records, and those in time.
    delivered: f64,
    deliveries: u64,
    goodput: f64,
    /// Records shed by the broker, and dropped by it.
    shed: u64,
    dropped: u64,
    /// How equal the tenants' goodput is: 1 when it is.
    jain: f64,
    latency: Histogram<u64>,
}

/// What one subscriber counts while a rung is held.
#[derive(Debug, Default)]
struct Count {
    delivered: AtomicU64,
    in_time: AtomicU64,
    is_on: AtomicBool,
}

pub(super) fn run(ladder: &Ladder, as_json: bool) -> Result<()> {
    let tenants = TENANTS.map(Tenant::open).to_vec();
    // A publish that finds no room is shed at once: nobody waits, and nobody is slowed.
    // And no more waits for a subscriber than it takes in a moment.
    let limits = Limits {
        pub_queue_total: 64,
        pub_queue_depth: 16,
        subscription_batches: 32,
        ..Limits::default()
    };
    let mut config = Config { limits, ..Config::default() };
    config.settings.tenants = tenants;
    let (process, url, options) = local(config)?;
    let runtime = runtime()?;
    let rungs = runtime.block_on(climb(ladder, &url, &options, &process));
    drop(runtime);
    process.stop()?;
    let (capacity, rungs) = rungs?;
    print(ladder, (capacity, &rungs), as_json)
}

type Process = sluicegate_quic::process::Process;

async fn climb(
    ladder: &Ladder,
    url: &str,
    options: &Options,
    process: &Process,
) -> Result<(u64, Vec<Rung>)> {
    let clock = Clock::start();
    let mut stages = Vec::new();
    for tenant in TENANTS {
        let mut options = options.clone();
        options.tenant = tenant.to_owned();
        stages.push(Stage::new(url, &options, (ladder, clock)).await?);
    }
    // Its capacity is what it delivers when far more is offered than it can take.
    let first = rung(ladder, &stages, (FAR_MORE, process)).await?;
    let capacity = first.deliveries / (ladder.fanout * ladder.batch) as u64;
    let mut rungs = Vec::new();
    for tenths in RUNGS {
        let rate = (capacity * tenths / 10).max(1);
        if !ladder.quiet {
            eprint!("\roffering {}.{} of the capacity ", tenths / 10, tenths % 10);
        }
        rungs.push(rung(ladder, &stages, (rate, process)).await?);
    }
    if !ladder.quiet {
        eprintln!();
    }
    for stage in stages {
        stage.end().await?;
    }
    Ok((capacity, rungs))
}

/// A tenant's publisher and subscribers.
struct Stage {
    client: Client,
    publisher: sluicegate_client::Publisher,
    counts: Vec<Arc<Count>>,
    latency: Arc<std::sync::Mutex<Histogram<u64>>>,
    readers: Vec<JoinHandle<Result<()>>>,
    clock: Clock,
}

impl Stage {
    async fn new(url: &str, options: &Options, (ladder, clock): (&Ladder, Clock)) -> Result<Self> {
        let latency = Arc::new(std::sync::Mutex::new(histogram()));
        let (mut counts, mut readers) = (Vec::new(), Vec::new());
        let subscribe = SubscribeOptions { queue: Queue::Block, ..SubscribeOptions::default() };
        for _ in 0..ladder.fanout {
            let client = Client::connect(url, options.clone()).await?;
            let subscription = client.subscribe("ladder", subscribe).await?;
            let count = Arc::new(Count::default());
            let (counted, all) = (Arc::clone(&count), Arc::clone(&latency));
            readers.push(tokio::spawn(read(subscription, (counted, all), clock, client)));
            counts.push(count);
        }
        let client = Client::connect(url, options.clone()).await?;
        let publisher = client.publisher("ladder").await?;
        Ok(Self { client, publisher, counts, latency, readers, clock })
    }

    fn sum(&self, of: fn(&Count) -> &AtomicU64) -> u64 {
        self.counts.iter().map(|count| of(count).load(Ordering::Relaxed)).sum()
    }

    fn switch(&self, is_on: bool) {
        self.counts.iter().for_each(|count| count.is_on.store(is_on, Ordering::Relaxed));
    }

    async fn end(self) -> Result<()> {
        self.client.close().await;
        for reader in self.readers {
            reader.abort();
            // Aborted, unless it had failed before.
            if let Ok(result) = reader.await {
                result?;
            }
        }
        Ok(())
    }
}

async fn read(
    mut subscription: Subscription,
    (count, latency): (Arc<Count>, Arc<std::sync::Mutex<Histogram<u64>>>),
    clock: Clock,
    client: Client,
) -> Result<()> {
    loop {
        match subscription.next().await.context("the subscription ended")?? {
            Event::Record { payload, .. } => {
                if !count.is_on.load(Ordering::Relaxed) {
                    continue;
                }
                let late = age(&payload, &clock).unwrap_or_default();
                count.delivered.fetch_add(1, Ordering::Relaxed);
                let in_time = u64::from(u128::from(late) <= IN_TIME.as_nanos());
                count.in_time.fetch_add(in_time, Ordering::Relaxed);
                latency.lock().expect("nobody panics").saturating_record(late.max(1));
            }
            Event::Gap(_) => {}
            Event::Restarted { .. } => {
                drop(client);
                bail!("the broker was restarted");
            }
        }
    }
}

/// Offers `rate` batches per second for a while, shared by the tenants.
async fn rung(ladder: &Ladder, stages: &[Stage], (rate, process): (u64, &Process)) -> Result<Rung> {
    let each = rate / stages.len() as u64;
    let stop = Arc::new(AtomicBool::new(false));
    let publishers: Vec<_> = stages
        .iter()
        .map(|stage| {
            let (publisher, clock) = (stage.publisher.clone(), stage.clock);
            tokio::spawn(offer(
                publisher,
                (each, ladder.payload, ladder.batch),
                clock,
                Arc::clone(&stop),
            ))
        })
        .collect();
    sleep(WARMUP).await;
    let before = lost(process);
    for stage in stages {
        stage.latency.lock().expect("nobody panics").reset();
        stage.switch(true);
    }
    let began = stages[0].clock.now();
    let start: Vec<_> = stages.iter().map(|stage| stage.sum(|count| &count.delivered)).collect();
    let in_time: Vec<_> = stages.iter().map(|stage| stage.sum(|count| &count.in_time)).collect();
    sleep(ladder.time()).await;
    let seconds = stages[0].clock.now().since(began).as_secs_f64();
    stages.iter().for_each(|stage| stage.switch(false));
    let delivered: u64 = stages
        .iter()
        .zip(&start)
        .map(|(stage, from)| stage.sum(|count| &count.delivered) - from)
        .sum();
    let good: Vec<f64> = stages
        .iter()
        .zip(&in_time)
        .map(|(stage, from)| (stage.sum(|count| &count.in_time) - from) as f64 / seconds)
        .collect();
    let after = lost(process);
    stop.store(true, Ordering::Relaxed);
    let mut taken = 0;
    for publisher in publishers {
        taken += publisher.await??;
    }
    let mut latency = histogram();
    for stage in stages {
        latency.add(&*stage.latency.lock().expect("nobody panics"))?;
    }
    Ok(Rung {
        offered: rate,
        taken: taken as f64 / (seconds + WARMUP.as_secs_f64()),
        delivered: delivered as f64 / seconds,
        deliveries: delivered / ladder.seconds,
        goodput: good.iter().sum(),
        shed: after.0 - before.0,
        dropped: after.1 - before.1,
        jain: jain(&good),
        latency,
    })
}

/// Records shed and dropped so far, by the books.
fn lost(process: &Process) -> (u64, u64) {
    let sum = |look: fn(&sluicegate_core::Broker) -> u64| -> u64 {
        process.shards().iter().map(|shard| shard.look(look)).sum()
    };
    (
        sum(|broker| broker.ledger().shed.total().records),
        sum(|broker| broker.ledger().dropped.total().records),
    )
}

/// Jain's index of fairness: (sum of x)^2 / (n * sum of x^2).
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

/// Offers batches at a rate, whatever becomes of them. Answers how many the client took.
async fn offer(
    publisher: sluicegate_client::Publisher,
    (rate, payload, batch): (u64, usize, usize),
    clock: Clock,
    stop: Arc<AtomicBool>,
) -> Result<u64> {
    let began = clock.now();
    let (mut offered, mut taken) = (0_u64, 0);
    while !stop.load(Ordering::Relaxed) {
        let due = clock.now().since(began).as_micros() * u128::from(rate) / 1_000_000;
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        if offered >= due {
            sleep(PACE).await;
            continue;
        }
        // Who is late by more than a moment has not offered it: the rate is of the broker's load.
        offered = offered.max(due.saturating_sub(rate / 20)) + 1;
        let mut block = vec![0; payload * batch];
        for record in block.chunks_mut(payload) {
            stamp(record, offered, &clock);
        }
        let mut block = Bytes::from(block);
        let records = (0..batch).map(|_| block.split_to(payload)).collect();
        publisher.publish_batch(records).await?;
        taken += 1;
    }
    Ok(taken)
}

fn print(ladder: &Ladder, (capacity, rungs): (u64, &[Rung]), as_json: bool) -> Result<()> {
    let peak = rungs.iter().map(|rung| rung.goodput).fold(0.0, f64::max);
    let last = rungs.last().context("there are rungs")?;
    let mut out = io::stdout();
    if as_json {
        let rungs: Vec<Value> = rungs.iter().map(|rung| rung.json(capacity)).collect();
        let line = json!({
            "what": "ladder", "capacity_batches_per_second": capacity, "rungs": rungs,
            "goodput_at_the_end_of_peak": last.goodput / peak,
        });
        writeln!(out, "{line}")?;
    } else {
        writeln!(
            out,
            "capacity: {capacity} batches of {} x {} B per second to {} each of {} tenants\n\
             offered  delivered/s    goodput/s       shed    dropped   p50 ms   p99 ms  p999 ms  \
             Jain",
            ladder.batch,
            ladder.payload,
            ladder.fanout,
            TENANTS.len()
        )?;
        for rung in rungs {
            let millis = |quantile| rung.latency.value_at_quantile(quantile) as f64 / 1e6;
            let bar = bar(rung.goodput / peak);
            writeln!(
                out,
                "{:>6.1}x {:>12.0} {:>12.0} {:>10} {:>10} {:>8.1} {:>8.1} {:>8.1} {:>5.3}  {bar}",
                rung.offered as f64 / capacity as f64,
                rung.delivered,
                rung.goodput,
                rung.shed,
                rung.dropped,
                millis(0.5),
                millis(0.99),
                millis(0.999),
                rung.jain
            )?;
        }
        writeln!(out, "goodput at the end: {:.0} % of the peak", last.goodput / peak * 100.0)?;
    }
    ensure!(last.goodput >= 0.8 * peak, "goodput fell below 80 % of its peak");
    Ok(())
}

/// A share of the peak, drawn.
fn bar(share: f64) -> String {
    (1..=40).take_while(|step| f64::from(*step) / 40.0 <= share + 1e-9).map(|_| '#').collect()
}

impl Rung {
    fn json(&self, capacity: u64) -> Value {
        let millis = |quantile| self.latency.value_at_quantile(quantile) as f64 / 1e6;
        json!({
            "offered_of_capacity": self.offered as f64 / capacity as f64,
            "taken_batches_per_second": self.taken.round(),
            "deliveries_per_second": self.delivered.round(),
            "goodput_per_second": self.goodput.round(),
            "shed_records": self.shed,
            "dropped_records": self.dropped,
            "jain": self.jain,
            "latency_ms": { "p50": millis(0.5), "p99": millis(0.99), "p999": millis(0.999) },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_drawn() {
        assert_eq!([0.0, 0.5, 1.0, 2.0].map(|share| bar(share).len()), [0, 20, 40, 40]);
    }

    #[test]
    fn equal_shares_are_fair_and_one_for_all_is_not() {
        assert!((jain(&[2.0, 2.0, 2.0]) - 1.0).abs() < 1e-9);
        assert!((jain(&[3.0, 0.0, 0.0]) - 1.0 / 3.0).abs() < 1e-9);
        assert!((jain(&[0.0, 0.0]) - 1.0).abs() < 1e-9);
    }
}
