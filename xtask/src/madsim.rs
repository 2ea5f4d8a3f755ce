//! The tasks of the QUIC client and server under a scheduler that picks the next task at random
//! and has a clock of its own: a seed is a schedule.

use crate::program::Program;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(3 * 3_600);
/// Schedules of each test in CI.
const FEW: u64 = 200;
/// Schedules of each test in one process: madsim does not drop tasks that wait when a world ends,
/// which is about a mebibyte a world.
const AT_ONCE: u64 = 250;
/// And in the long form.
const MANY: u64 = 5_000;

/// How many, and from where on.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Schedules of each test.
    #[arg(long, value_name = "NUMBER", default_value_t = FEW)]
    seeds: u64,
    /// The first seed: a test that fails prints its own, and `--seeds 1 --first SEED` repeats it.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    first: u64,
}

pub(crate) fn step(workspace: &Workspace) -> Result<()> {
    run(workspace, &Options { seeds: FEW, first: 1 })
}

pub(crate) fn long(workspace: &Workspace) -> Result<()> {
    run(workspace, &Options { seeds: MANY, first: FEW + 1 })
}

/// In a build folder of its own: everything is compiled for another runtime.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let end = options.first.saturating_add(options.seeds);
    let mut first = options.first;
    while first < end {
        let seeds = (end - first).min(AT_ONCE);
        println!("-- seeds {first} to {} of {} to {}", first + seeds - 1, options.first, end - 1);
        let line = "cargo test --locked -p sluicegate-quic --test schedules";
        Program::new(line, &workspace.root, LIMIT)
            .env("CARGO_TARGET_DIR", workspace.target.join("madsim"))
            .env("RUSTFLAGS", "--cfg madsim")
            // Cryptography that nobody optimised is most of the time.
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("MADSIM_TEST_SEED", first.to_string())
            .env("MADSIM_TEST_NUM", seeds.to_string())
            .run()
            .context("a schedule failed: the output above has its seed")?;
        first += seeds;
    }
    Ok(())
}
