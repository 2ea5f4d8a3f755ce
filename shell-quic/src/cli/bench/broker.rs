//! The broker itself: in this process, or one that runs.

use super::outcome::Outcome;
use super::pace::Pace;
use super::tally::{Tally, stamp};
use super::{Mode, Plan};
use crate::cli::connect::runtime;
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use sluicegate_client::{Client, Event, Options, Queue, SubscribeOptions, Subscription, Trust};
use sluicegate_core::{Limits, Place};
use sluicegate_host::clock::Clock;
use sluicegate_quic::config::Config;
use sluicegate_quic::process::Process;
use std::pin::pin;
use std::time::Duration;

/// The topic of a run.
const TOPIC: &str = "bench";

/// A run is over when nothing has come for so long, or twice as long.
const SILENCE: Duration = Duration::from_secs(5);

pub(super) fn run(plan: &Plan) -> Result<Outcome> {
    let runtime = runtime()?;
    if let Some(url) = &plan.connect {
        let options = plan.reach.options()?;
        return runtime.block_on(drive(plan, url, &options));
    }
    let lossless = u64::from(plan.mode == Mode::Lossless);
    let limits = Limits { lossless, ..Limits::default() };
    let mut config = Config { limits, ..Config::default() };
    for (key, value) in &plan.set {
        config.set(key, &value.to_string()).context("--set")?;
    }
    let (process, url, options) = local(config)?;
    let mut outcome = runtime.block_on(drive(plan, &url, &options));
    if let Ok(outcome) = &mut outcome {
        outcome.notes.extend(notes(&process));
    }
    // Clients end with the runtime.
    drop(runtime);
    process.stop()?;
    outcome
}

/// A broker in this process, on any free ports, and how to reach it.
pub(super) fn local(config: Config) -> Result<(Process, String, Options)> {
    let config = Config { port: 0, admin_port: 0, ..config };
    config.check()?;
    let process = Process::start(config)?;
    let mut fingerprint = [0; 32];
    hex::decode_to_slice(&process.fingerprint, &mut fingerprint)?;
    let options = Options::new(Trust::Fingerprint(fingerprint));
    let url = format!("quic://{}", process.address);
    Ok((process, url, options))
}

/// What the broker's books say, over its shards.
fn notes(process: &Process) -> Vec<(&'static str, u64)> {
    let sum = |look: fn(&sluicegate_core::Broker) -> u64| {
        process.shards().iter().map(|shard| shard.look(look)).sum()
    };
    vec![
        ("broker: records admitted", sum(|broker| broker.ledger().admitted.records)),
        ("broker: records shed", sum(|broker| broker.ledger().shed.total().records)),
        ("broker: records dropped", sum(|broker| broker.ledger().dropped.total().records)),
        ("broker: times a topic was held by a full subscription", sum(|broker| broker.holds())),
    ]
}

async fn drive(plan: &Plan, url: &str, options: &Options) -> Result<Outcome> {
    let clock = Clock::start();
    let subscribe = match plan.mode {
        Mode::Lossless => SubscribeOptions::lossless(),
        Mode::Latency | Mode::Lossy => {
            SubscribeOptions { queue: Queue::Block, ..SubscribeOptions::default() }
        }
    };
    let mut readers = Vec::new();
    for _ in 0..plan.fanout {
        let client = Client::connect(url, options.clone()).await?;
        let subscription = client.subscribe(TOPIC, subscribe).await?;
        let tally = Tally::new(clock, plan.warmup);
        readers.push(tokio::spawn(read(subscription, tally, plan.warmup + plan.total, client)));
    }
    let client = Client::connect(url, options.clone()).await?;
    let began = publish(plan, &clock, &client).await?;
    let mut tallies = Vec::new();
    for reader in readers {
        tallies.push(reader.await??);
    }
    let stats = client.stats();
    client.close().await;
    ensure!(stats.unconfirmed == 0, "the publisher's connection was lost");
    // What the broker never took cannot come out of it.
    let published = plan.total;
    let notes = vec![("publisher: records shed", stats.shed)];
    let (warmup, shed) = (plan.warmup, stats.shed);
    Ok(Outcome { what: "broker", began, published, warmup, shed, tallies, notes })
}

/// Publishes all, and answers when the first counted one was.
async fn publish(plan: &Plan, clock: &Clock, client: &Client) -> Result<u64> {
    let publisher = client.publisher(TOPIC).await?;
    let pace = Pace::new(plan.rate, clock);
    let (mut number, mut began, total) = (0, 0, plan.warmup + plan.total);
    while number < total {
        let count = u64::try_from(plan.batch)?.min(total - number);
        pace.wait(number).await;
        let mut block = vec![0; plan.payload * usize::try_from(count)?];
        let mut rest = &mut block[..];
        for _ in 0..count {
            if number == plan.warmup {
                began = clock.now().as_nanos();
            }
            let (record, after) = rest.split_at_mut(plan.payload);
            stamp(record, number, clock);
            (rest, number) = (after, number + 1);
        }
        let mut block = Bytes::from(block);
        let records = (0..count).map(|_| block.split_to(plan.payload)).collect();
        if plan.mode == Mode::Latency {
            publisher.publish_batch_acked(records, true).await?;
        } else {
            publisher.publish_batch(records).await?;
        }
    }
    Ok(began)
}

async fn read(
    mut subscription: Subscription,
    mut tally: Tally,
    total: u64,
    client: Client,
) -> Result<Tally> {
    let mut number = 0;
    let mut quiet = pin!(tokio::time::sleep(SILENCE));
    let mut seen = 0;
    while number < total {
        let next = tokio::select! {
            biased;
            next = subscription.next() => next,
            () = &mut quiet => {
                // A timer for each record would be most of the work.
                if seen == number {
                    break;
                }
                seen = number;
                quiet.as_mut().reset(tokio::time::Instant::now() + SILENCE);
                continue;
            }
        };
        match next.context("the subscription ended")?? {
            Event::Record { payload, .. } => {
                tally.see(&payload, number);
                number += 1;
            }
            Event::Gap(gap) => {
                ensure!(gap.place != Place::Inbox, "this process was too slow for itself");
                number += gap.records;
                tally.lost += gap.records;
            }
            Event::Restarted { .. } => bail!("the broker was restarted"),
        }
    }
    drop(client);
    Ok(tally)
}
