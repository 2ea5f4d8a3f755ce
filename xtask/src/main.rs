//! The project's habits as code: `cargo xtask ci` is what must pass, the rest are its steps.

mod apt;
mod bench;
mod ci;
mod clients;
mod clock;
mod convict;
mod copy;
mod deep;
mod faults;
mod fuzz;
mod instructions;
mod licences;
mod madsim;
mod mutants;
mod no_std;
mod overload;
mod program;
mod report;
mod spdx;
mod survivors;
mod tidy;
mod vendored;
mod workspace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use workspace::Workspace;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's habits as code")]
struct Arguments {
    #[command(subcommand)]
    habit: Habit,
}

#[derive(Subcommand)]
enum Habit {
    /// Times the operations and their yardsticks and writes the tables of `bench/README.md`.
    Bench,
    /// Everything that must pass, in order; stops at the first failure.
    Ci(ci::Selection),
    /// Real Pusher clients against the release server.
    Clients,
    /// Breaks core on purpose and demands that swarm convicts it and shrink makes its tape small.
    Convict {
        /// Only the fault whose file has this stem.
        #[arg(long)]
        only: Option<String>,
    },
    /// What takes hours: faults, instructions, models, coverage, mutants. Goes on after a failure.
    Deep(deep::Selection),
    /// Breaks a copy of the code on purpose and demands that named tests fail.
    Faults {
        /// Only the faults whose files have these stems: may be given several times.
        #[arg(long)]
        only: Vec<String>,
    },
    /// Feeds every decoder with bytes that are made to break it.
    Fuzz(fuzz::Options),
    /// Counts the instructions of each operation and compares them with `bench/instructions.toml`.
    Instructions(instructions::Options),
    /// Licences, sources and wildcard versions of every dependency.
    Licences,
    /// The QUIC client and server under random schedules of their tasks.
    Madsim(madsim::Options),
    /// Proves that core links no std.
    NoStd {
        /// Also plants std in a copy of core and demands that the proof fails there.
        #[arg(long)]
        self_test: bool,
    },
    /// Offers the Pusher server twice its peak over real sockets: whether it stays honest.
    Overload(overload::Options),
    /// The simulator's HTML report in a real browser.
    Report,
    /// Import arrows, lengths, labels and words.
    Tidy,
}

fn main() -> ExitCode {
    let habit = Arguments::parse().habit;
    let outcome = Workspace::find().and_then(|workspace| match habit {
        Habit::Bench => bench::run(&workspace),
        Habit::Ci(selection) => ci::run(&workspace, &selection),
        Habit::Clients => clients::run(&workspace),
        Habit::Convict { only } => convict::run(&workspace, only.as_deref()),
        Habit::Deep(selection) => deep::run(&workspace, &selection),
        Habit::Faults { only } => faults::run(&workspace, &only),
        Habit::Fuzz(options) => fuzz::run(&workspace, &options),
        Habit::Instructions(options) => instructions::run(&workspace, &options),
        Habit::Licences => licences::run(&workspace),
        Habit::Madsim(options) => madsim::run(&workspace, &options),
        Habit::NoStd { self_test } => no_std::run(&workspace, self_test),
        Habit::Overload(options) => overload::run(&workspace, &options),
        Habit::Report => report::run(&workspace),
        Habit::Tidy => tidy::run(&workspace),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
