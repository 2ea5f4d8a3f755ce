//! `bench`: how fast, how late, and whether every record is accounted for.

mod broker;
mod floor;
mod ladder;
mod outcome;
mod pace;
mod tally;

use super::connect::Reach;
use anyhow::{Result, ensure};
use clap::{Args, Subcommand, ValueEnum};
use std::time::Duration;

/// What is measured.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    plan: Plan,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// A bare relay over QUIC with the same settings and no broker: what a broker can reach
    Floor(Plan),
    /// Three tenants offer 0.5 to 3 times what the broker can do: what it delivers in time, what it
    /// sheds, how fair it is
    Ladder(Ladder),
}

/// The ladder.
#[derive(Clone, Debug, Args)]
pub(crate) struct Ladder {
    /// Bytes of a record, 16 or more
    #[arg(long, default_value_t = 1024, value_name = "BYTES")]
    payload: usize,
    /// Subscribers of each tenant
    #[arg(long, default_value_t = 3, value_name = "NUMBER")]
    fanout: usize,
    /// Records of one publish
    #[arg(long, default_value_t = 16, value_name = "RECORDS")]
    batch: usize,
    /// How long each rung is held
    #[arg(long, default_value_t = 5, value_name = "SECONDS")]
    seconds: u64,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

impl Ladder {
    fn check(&self) -> Result<()> {
        let Self { payload, batch, fanout, seconds, .. } = self;
        ensure!(
            (tally::STAMP..=1 << 20).contains(payload),
            "--payload is {payload}, but must be between 16 and 1048576: it carries the time"
        );
        ensure!((1..=1024).contains(batch), "--batch is {batch}, but must be between 1 and 1024");
        ensure!((1..=100).contains(fanout), "--fanout is {fanout}, but must be between 1 and 100");
        ensure!(*seconds > 0, "--seconds is 0, but must be at least 1");
        Ok(())
    }

    const fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// One run.
#[derive(Clone, Debug, Args)]
pub(crate) struct Plan {
    /// Bytes of a record; from 16 on latency is measured
    #[arg(long, default_value_t = 1024, value_name = "BYTES")]
    payload: usize,
    /// Subscribers, each on a connection of its own
    #[arg(long, default_value_t = 10, value_name = "NUMBER")]
    fanout: usize,
    /// Records of one publish
    #[arg(long, default_value_t = 64, value_name = "RECORDS")]
    batch: usize,
    /// Records that are published and counted
    #[arg(long, default_value_t = 150_000, value_name = "RECORDS")]
    total: u64,
    /// Records that are published before, and not counted
    #[arg(long, default_value_t = 10_000, value_name = "RECORDS")]
    warmup: u64,
    /// What happens when a queue is full
    #[arg(long, value_enum, default_value_t = Mode::Lossless)]
    mode: Mode,
    /// Records per second that are offered, whatever comes back; without it as fast as they are
    /// taken
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
    /// A broker that runs; without it one is started in this process
    #[arg(long, value_name = "URL")]
    connect: Option<String>,
    /// Any number that `config` prints, where the broker is started here; may be repeated
    #[arg(long, value_name = "KEY=NUMBER", value_parser = pair)]
    set: Vec<(String, u64)>,
    #[command(flatten)]
    reach: Reach,
}

fn pair(text: &str) -> Result<(String, u64), String> {
    let pair = text.split_once('=').and_then(|(key, value)| {
        Some((key.trim().to_owned(), value.trim().replace('_', "").parse().ok()?))
    });
    pair.ok_or_else(|| "write KEY=NUMBER, such as shards=2".to_owned())
}

/// What happens when a queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Each publish is acknowledged before the next one
    Latency,
    /// The publisher waits: nothing may be lost
    Lossless,
    /// What is too much is dropped and counted
    Lossy,
}

impl Plan {
    fn check(&self) -> Result<()> {
        let Self { payload, fanout, batch, total, .. } = self;
        ensure!((1..=4096).contains(batch), "--batch is {batch}, but must be between 1 and 4096");
        ensure!(
            (1..=1000).contains(fanout),
            "--fanout is {fanout}, but must be between 1 and 1000"
        );
        ensure!(*total > 0, "--total is 0, but must be at least 1");
        let frame = batch * (payload + 4);
        ensure!(
            frame < 16 << 20,
            "--payload {payload} times --batch {batch} is {frame} bytes, but a publish is at most \
             16 MiB"
        );
        Ok(())
    }
}

pub(super) fn run(bench: Bench, json: bool) -> Result<()> {
    match bench.what {
        Some(What::Floor(plan)) => {
            plan.check()?;
            floor::run(&plan)?.print(&plan, json)
        }
        Some(What::Ladder(ladder)) => {
            ladder.check()?;
            ladder::run(&ladder, json)
        }
        None => {
            bench.plan.check()?;
            broker::run(&bench.plan)?.print(&bench.plan, json)
        }
    }
}
