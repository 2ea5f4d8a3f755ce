//! The command line of the simulator.

mod cli;

use clap::{Parser, Subcommand};
use serde_json::json;
use sluicegate_sim::scenario::{self, Story};
use sluicegate_sim::{Outcome, run};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
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
    /// Runs scenarios and prints a table for each story.
    #[command(after_help = "\
Exit codes:
  0  every expectation and every judge holds
  1  an expectation does not hold
  2  bad input: a file, a key or a value
  3  a safety judge convicts: something happened that must not
  4  a liveness judge convicts: something that must come never came
  5  the program crashed
With several stories the greatest code counts.")]
    Run(Run),
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
  1  swarm: something was never come by; replay: decided otherwise than recorded
  2  bad input: a file, a key or a value
  3  a safety judge convicts: something happened that must not
  4  a liveness judge convicts: something that must come never came
  5  the core crashed";

#[derive(clap::Args)]
struct Run {
    /// Scenario files, or folders of them (every *.toml in it, in order of name).
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Seed of everything random, instead of the scenario's.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Run only the variant of this name.
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,
    /// Print one JSON document per line and story instead of tables.
    #[arg(long)]
    json: bool,
}

const BAD_INPUT: u8 = 2;
const CRASH: u8 = 5;

fn main() -> ExitCode {
    let options = match Cli::parse().command {
        Command::Run(options) => options,
        Command::Swarm(options) => return ExitCode::from(cli::swarm::run(&options)),
        Command::Replay(options) => return ExitCode::from(cli::replay::run(&options)),
        Command::Shrink(options) => return ExitCode::from(cli::shrink::run(&options)),
    };
    let stories = match stories(&options) {
        Ok(stories) => stories,
        Err(message) => {
            eprintln!("error: {message}");
            return ExitCode::from(BAD_INPUT);
        }
    };
    let codes = stories.iter().map(|story| one(story, options.json, run));
    ExitCode::from(codes.max().unwrap_or(BAD_INPUT))
}

/// Every story of every file, read and checked before any is run.
fn stories(options: &Run) -> Result<Vec<Story>, String> {
    let mut stories = Vec::new();
    for file in files(&options.paths)? {
        let text = std::fs::read_to_string(&file).map_err(|error| {
            let file = file.display();
            format!("cannot read {file}: {error}; name a scenario in TOML, or a folder of them")
        })?;
        let read = scenario::read(&file.display().to_string(), &text);
        stories.extend(read.map_err(|error| error.to_string())?);
    }
    if let Some(variant) = &options.variant {
        let names = stories.iter().map(|story| story.variant.clone());
        let known: BTreeSet<_> = names.filter(|name| !name.is_empty()).collect();
        stories.retain(|story| story.variant == *variant);
        if stories.is_empty() {
            let known = Vec::from_iter(known).join(", ");
            return Err(format!("no scenario has the variant `{variant}`; known: {known}"));
        }
    }
    for story in &mut stories {
        story.seed = options.seed.unwrap_or(story.seed);
    }
    Ok(stories)
}

fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let no = |error| format!("{}: {error}", path.display());
        let entries = std::fs::read_dir(path).map_err(no)?;
        let entries = entries.map(|entry| entry.map(|entry| entry.path()));
        let mut inside = entries.collect::<Result<Vec<_>, _>>().map_err(no)?;
        inside.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
        if inside.is_empty() {
            let path = path.display();
            return Err(format!("no scenario in {path}: a scenario's name ends in .toml"));
        }
        inside.sort();
        files.extend(inside);
    }
    Ok(files)
}

/// Runs one story and prints what it came to.
fn one(story: &Story, as_json: bool, run: impl Fn(&Story) -> Result<Outcome, String>) -> u8 {
    let start = clock();
    let outcome = catch_unwind(AssertUnwindSafe(|| run(story)));
    let wall = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    match outcome {
        Ok(Ok(outcome)) => {
            if as_json {
                println!("{}", document(&outcome, wall));
            } else {
                print(&outcome, wall);
            }
            outcome.code()
        }
        Ok(Err(message)) => {
            eprintln!("error: {}: {message}", story.file);
            BAD_INPUT
        }
        Err(_) => {
            eprintln!("{} crashed; replay: {}", story.name(), story.command());
            CRASH
        }
    }
}

fn print(outcome: &Outcome, wall: u64) {
    println!("{outcome}");
    let delivered = outcome.report.books.delivered.records;
    let rate = u128::from(delivered) * 1_000_000_000 / u128::from(wall.max(1));
    let name = &outcome.report.name;
    eprintln!("{name}: {delivered} deliveries in {} ms, {rate} per second", wall / 1_000_000);
}

fn document(outcome: &Outcome, wall: u64) -> serde_json::Value {
    let mut document = outcome.report.json(wall);
    let unmet: Vec<String> = outcome.unmet.iter().map(ToString::to_string).collect();
    document["expectations"] = json!({ "compared": outcome.expectations, "unmet": unmet });
    document["conviction"] = match &outcome.conviction {
        None => serde_json::Value::Null,
        Some(conviction) => json!({
            "judge": conviction.finding.judge,
            "what": conviction.finding.what,
            "at_ns": conviction.at,
            "events": conviction.events,
            "replay": conviction.command,
        }),
    };
    document["exit"] = json!(outcome.code());
    document
}

#[expect(clippy::disallowed_methods, reason = "how long a run took is not part of the world")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_is_an_exit_code_and_names_the_replay() {
        let text = "title = 't'\nabout = 'a'\nduration = '1s'";
        let story = scenario::read("empty.toml", text).unwrap().remove(0);
        assert_eq!(one(&story, false, run), 0);
        assert_eq!(one(&story, true, |_| panic!("on purpose")), CRASH);
        assert_eq!(one(&story, true, |_| Err("no room".to_owned())), BAD_INPUT);
    }
}
