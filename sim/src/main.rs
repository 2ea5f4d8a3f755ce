//! The command line of the simulator.

mod cli;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Replays overload against the Sluicegate core in virtual time.
///
/// A scenario is a TOML file that says who publishes, who subscribes, how their links behave and
/// what must hold. `scenarios/README.md` lists every key.
#[derive(Parser)]
#[command(name = "sluicegate-sim", version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Prints the chain of checkpoints with a scenario's numbers: every bound and policy in force.
    Explain(cli::explain::Options),
    /// Runs scenarios and prints a table for each story.
    #[command(after_help = "\
Exit codes:
  0  every expectation and every judge holds
  1  an expectation does not hold, or a table is not the one kept
  2  bad input: a file, a key or a value
  3  a safety judge convicts: something happened that must not
  4  a liveness judge convicts: something that must come never came
  5  the program crashed
With several stories the greatest code counts.")]
    Run(cli::run::Options),
    /// Prints the JSON Schema of scenario files, for editors and checks.
    Schema(cli::explain::SchemaOptions),
    /// Plays random worlds until time is up or a judge convicts.
    #[command(after_help = TAPE_CODES)]
    Swarm(cli::swarm::Options),
    /// Plays a tape again as it was, or under other limits.
    #[command(after_help = TAPE_CODES)]
    Replay(cli::replay::Options),
    /// Makes a convicted tape small.
    Shrink(cli::shrink::Options),
}

const TAPE_CODES: &str = "\
Exit codes:
  0  every judge is content
  1  swarm: something was never come by; replay: decided otherwise than recorded, or the tape
     has no fingerprint that tells
  2  bad input: a file, a key or a value
  3  a safety judge convicts: something happened that must not
  4  a liveness judge convicts: something that must come never came
  5  the core crashed";

fn main() -> ExitCode {
    let code = match Cli::parse().command {
        Command::Explain(options) => cli::explain::explain(&options),
        Command::Run(options) => cli::run::run(&options),
        Command::Schema(options) => cli::explain::schema(&options),
        Command::Swarm(options) => cli::swarm::run(&options),
        Command::Replay(options) => cli::replay::run(&options),
        Command::Shrink(options) => cli::shrink::run(&options),
    };
    ExitCode::from(code)
}
