//! The long forms of what must pass, for a night: every planted fault, swarm, a server at twice its
//! peak, every count, the models with many more operations, the mutants of core's decisions, and
//! which lines of core no test reaches. Goes on after a failure and reports all at the end.

use crate::clock::{Stopwatch, readable};
use crate::program::Program;
use crate::workspace::Workspace;
use crate::{apt, convict, faults, instructions, madsim, mutants, overload};
use anyhow::{Result, bail, ensure};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(6 * 3_600);
/// Where the tools leave their reports.
const FOLDER: &str = "target/deep";
/// How much more than in `ci` the tests against a model do, in percent.
const MORE: &str = "1700";
/// How much less they do where it is slow, and only the first times count: with every line counted,
/// and for each of many mutants.
const LESS: &str = "10";
/// The least part of core's lines that its tests reach, in percent.
const COVERED: u32 = 95;

/// Which parts to run.
#[derive(clap::Args)]
pub(crate) struct Selection {
    /// Run this part alone.
    #[arg(long, value_name = "PART")]
    only: Option<String>,
    /// List the parts and run none.
    #[arg(long)]
    list: bool,
}

struct Part {
    name: &'static str,
    what: &'static str,
    run: fn(&Workspace) -> Result<Outcome>,
}

const PARTS: &[Part] = &[
    Part { name: "faults", what: "broken code is convicted by named tests", run: all_faults },
    Part { name: "convict", what: "swarm finds planted faults within a minute", run: convicted },
    Part { name: "swarm", what: "random worlds for half an hour", run: swarm },
    Part { name: "madsim", what: "5,000 schedules of the QUIC tasks", run: schedules },
    Part { name: "overload", what: "the Pusher server at twice its peak", run: overloaded },
    Part { name: "instructions", what: "what each operation costs", run: count },
    Part {
        name: "models",
        what: "core against its models, a million operations each",
        run: models,
    },
    Part { name: "coverage", what: "the lines of core that its tests reach", run: coverage },
    Part { name: "mutants", what: "small changes of core's decisions", run: all_mutants },
];

/// What became of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    /// Its tool is not there; how to install it.
    Missing(&'static str),
}

pub(crate) fn run(workspace: &Workspace, selection: &Selection) -> Result<()> {
    let parts = select(selection.only.as_deref())?;
    if selection.list {
        for part in parts {
            println!("{:<12} {}", part.name, part.what);
        }
        return Ok(());
    }
    std::fs::create_dir_all(workspace.root.join(FOLDER))?;
    let mut report = Vec::new();
    for part in parts {
        println!("\n== {} ({})", part.name, part.what);
        let watch = Stopwatch::start();
        let outcome = (part.run)(workspace).unwrap_or_else(|error| {
            println!("error: {error:#}");
            Outcome::Failed
        });
        report.push((part.name, outcome, watch.elapsed()));
    }
    println!("\n{}", table(&report));
    let failed = report.iter().filter(|(_, outcome, _)| *outcome == Outcome::Failed).count();
    ensure!(failed == 0, "{failed} of {} parts failed", report.len());
    Ok(())
}

fn select(only: Option<&str>) -> Result<&'static [Part]> {
    let Some(only) = only else { return Ok(PARTS) };
    let Some(at) = PARTS.iter().position(|part| part.name == only) else {
        let names: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        bail!("no part is called `{only}`; the parts are {}", names.join(", "))
    };
    Ok(&PARTS[at..=at])
}

fn all_faults(workspace: &Workspace) -> Result<Outcome> {
    faults::run(workspace, &[]).map(|()| Outcome::Passed)
}

fn convicted(workspace: &Workspace) -> Result<Outcome> {
    convict::run(workspace, None).map(|()| Outcome::Passed)
}

/// Other worlds than in CI.
fn swarm(workspace: &Workspace) -> Result<Outcome> {
    let line = format!(
        "cargo run --release --locked -p sluicegate-sim -- swarm --for 30m --seed 1000000000 \
         --tape {FOLDER}/swarm.tape"
    );
    Program::new(&line, &workspace.root, LIMIT).run()?;
    Ok(Outcome::Passed)
}

fn schedules(workspace: &Workspace) -> Result<Outcome> {
    madsim::long(workspace).map(|()| Outcome::Passed)
}

fn overloaded(workspace: &Workspace) -> Result<Outcome> {
    overload::step(workspace).map(|()| Outcome::Passed)
}

fn count(workspace: &Workspace) -> Result<Outcome> {
    instructions::step(workspace).map(|()| Outcome::Passed)
}

fn models(workspace: &Workspace) -> Result<Outcome> {
    let line = "cargo test --package sluicegate-core --lib --locked -- --nocapture model \
                all_calls_at_once any_numbers_are_inputs books_close nothing_is_lost";
    let program = Program::new(line, &workspace.root, LIMIT);
    program.env("SLUICEGATE_CASES_PERCENT", MORE).run()?;
    Ok(Outcome::Passed)
}

fn coverage(workspace: &Workspace) -> Result<Outcome> {
    if !apt::answers("cargo tarpaulin") {
        return Ok(Outcome::Missing("cargo install --locked cargo-tarpaulin"));
    }
    let line = format!(
        "cargo tarpaulin --engine llvm --packages sluicegate-core --locked --skip-clean \
         --timeout 3600 --out Lcov --output-dir {FOLDER} --target-dir {FOLDER}/coverage \
         --include-files core/src/* --exclude-files */tests.rs */tests/* --fail-under {COVERED}"
    );
    let program = Program::new(&line, &workspace.root, LIMIT);
    program.env("SLUICEGATE_CASES_PERCENT", LESS).run()?;
    Ok(Outcome::Passed)
}

fn all_mutants(workspace: &Workspace) -> Result<Outcome> {
    if !apt::answers("cargo mutants") {
        return Ok(Outcome::Missing("cargo install --locked cargo-mutants"));
    }
    mutants::run(workspace, FOLDER, LESS)?;
    Ok(Outcome::Passed)
}

fn table(report: &[(&str, Outcome, Duration)]) -> String {
    let mut text = format!("{:<12} {:<13} {:>8}", "part", "result", "time");
    for (name, outcome, time) in report {
        let (word, note) = match outcome {
            Outcome::Passed => ("passed", ""),
            Outcome::Failed => ("FAILED", ""),
            Outcome::Missing(install) => ("not installed", *install),
        };
        text += format!("\n{name:<12} {word:<13} {:>8}  {note}", readable(*time)).trim_end();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_how_to_install_what_is_missing() {
        let second = Duration::from_secs(1);
        let text = table(&[
            ("faults", Outcome::Passed, second),
            ("coverage", Outcome::Failed, second),
            ("mutants", Outcome::Missing("cargo install x"), second),
        ]);
        assert!(text.contains("\nfaults       passed            1.0s\n"), "{text}");
        assert!(text.contains("\ncoverage     FAILED            1.0s\n"), "{text}");
        assert!(text.ends_with("\nmutants      not installed     1.0s  cargo install x"), "{text}");
    }

    #[test]
    fn one_part_runs_alone_and_an_unknown_one_is_answered_with_the_list() {
        let alone: Vec<_> =
            select(Some("coverage")).unwrap().iter().map(|part| part.name).collect();
        assert_eq!(alone, ["coverage"]);
        assert_eq!(select(None).unwrap().len(), PARTS.len());
        let error = select(Some("mutant")).err().unwrap().to_string();
        assert!(error.contains("`mutant`") && error.contains("coverage, mutants"), "{error}");
    }
}
