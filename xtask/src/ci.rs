//! Everything that must pass, in order, with a name, a time and a way to repeat each step.

use crate::clock::{Stopwatch, readable};
use crate::program::Program;
use crate::workspace::Workspace;
use crate::{clients, faults, fuzz, instructions, licences, madsim, no_std, report, tidy};
use anyhow::{Context, Result, bail, ensure};
use std::time::Duration;

/// For one build or one run of tests, from an empty build folder on two cores.
const LIMIT: Duration = Duration::from_secs(1_200);

/// Which steps to run.
#[derive(clap::Args)]
pub(crate) struct Selection {
    /// Start at this step.
    #[arg(long, value_name = "STEP", conflicts_with = "only")]
    from: Option<String>,
    /// Run this step alone.
    #[arg(long, value_name = "STEP")]
    only: Option<String>,
    /// List the steps and run none.
    #[arg(long)]
    list: bool,
}

struct Step {
    name: &'static str,
    what: &'static str,
    run: fn(&Workspace) -> Result<()>,
}

/// Cheap steps first. Three kinds of build in all: checked, test, and release of the two programs.
const STEPS: &[Step] = &[
    Step { name: "fmt", what: "rustfmt changes nothing", run: fmt },
    Step { name: "tidy", what: "arrows, lengths, labels, words", run: tidy::run },
    Step { name: "licences", what: "licences and sources of dependencies", run: licences::run },
    Step { name: "clippy", what: "no warning in any target", run: clippy },
    Step { name: "no-std", what: "core links no std, and we would see it", run: no_std },
    Step { name: "tests", what: "unit, integration and doc tests", run: tests },
    Step { name: "docs", what: "the documentation builds without warning", run: docs },
    Step {
        name: "faults",
        what: "broken code is convicted by named tests: half",
        run: faults::half,
    },
    Step { name: "instructions", what: "what each operation costs", run: instructions::step },
    Step { name: "scenarios", what: "the overload stories and their judges", run: scenarios },
    Step { name: "swarm", what: "random worlds and their judges, for 90 s", run: swarm },
    Step { name: "madsim", what: "200 schedules of the QUIC tasks", run: madsim::step },
    Step { name: "fuzz", what: "every decoder against made-up bytes", run: fuzz::step },
    Step {
        name: "report",
        what: "the HTML report and the live page in a real browser",
        run: report::run,
    },
    Step { name: "clients", what: "real Pusher clients, on Node and Python", run: clients::run },
];

pub(crate) fn run(workspace: &Workspace, selection: &Selection) -> Result<()> {
    let steps = select(selection)?;
    if selection.list {
        for step in steps {
            println!("{:<12} {}", step.name, step.what);
        }
        return Ok(());
    }
    let whole = Stopwatch::start();
    let mut report = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let at = readable(whole.elapsed());
        println!("\n== {}/{} {} ({}) at {at}", number + 1, steps.len(), step.name, step.what);
        let watch = Stopwatch::start();
        let outcome = (step.run)(workspace);
        report.push((step.name, outcome.is_ok(), watch.elapsed()));
        if let Err(error) = outcome {
            println!("\n{}", table(&report, whole.elapsed()));
            let name = step.name;
            let again =
                format!("step `{name}` failed; repeat it with `cargo xtask ci --only {name}`");
            return Err(error.context(again));
        }
    }
    println!("\n{}", table(&report, whole.elapsed()));
    Ok(())
}

fn select(selection: &Selection) -> Result<&'static [Step]> {
    let position = |name: &str| {
        STEPS.iter().position(|step| step.name == name).with_context(|| {
            let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
            format!("no step is called `{name}`; the steps are {}", names.join(", "))
        })
    };
    match (&selection.from, &selection.only) {
        (Some(name), None) => Ok(&STEPS[position(name)?..]),
        (None, Some(name)) => position(name).map(|at| &STEPS[at..=at]),
        (None, None) => Ok(STEPS),
        (Some(_), Some(_)) => bail!("`--from` and `--only` exclude each other"),
    }
}

fn table(report: &[(&str, bool, Duration)], whole: Duration) -> String {
    let mut text = format!("{:<12} {:<7} {:>8}\n", "step", "result", "time");
    for (name, passed, time) in report {
        let result = if *passed { "passed" } else { "FAILED" };
        text += &format!("{name:<12} {result:<7} {:>8}\n", readable(*time));
    }
    text + &format!("{:<12} {:<7} {:>8}", "in all", "", readable(whole))
}

fn cargo(workspace: &Workspace, arguments: &str) -> Program {
    Program::new(&format!("cargo {arguments}"), &workspace.root, LIMIT)
}

fn fmt(workspace: &Workspace) -> Result<()> {
    cargo(workspace, "fmt --all --check").run()?;
    for outside in ["core/no-std-check", "fuzz"] {
        cargo(workspace, &format!("fmt --check --manifest-path {outside}/Cargo.toml")).run()?;
    }
    Ok(())
}

fn clippy(workspace: &Workspace) -> Result<()> {
    cargo(workspace, "clippy --workspace --all-targets --locked -- -D warnings").run()?;
    cargo(workspace, "clippy --locked --manifest-path core/no-std-check/Cargo.toml")
        .env("CARGO_TARGET_DIR", no_std::target(workspace))
        .env("RUSTFLAGS", "-D warnings")
        .run()
}

fn no_std(workspace: &Workspace) -> Result<()> {
    no_std::run(workspace, true)
}

/// With the same random cases on every machine: a change is judged by what it changes, and new
/// cases are tried by [`deep`](crate::deep) and by everybody who runs `cargo test`.
fn tests(workspace: &Workspace) -> Result<()> {
    cargo(workspace, "test --workspace --locked").same_cases().run()
}

fn docs(workspace: &Workspace) -> Result<()> {
    cargo(workspace, "doc --workspace --no-deps --locked").env("RUSTDOCFLAGS", "-D warnings").run()
}

/// Every story must pass in the release build, and print the same to the last byte (the hash of
/// its inputs among it) in the build that the tests use.
fn scenarios(workspace: &Workspace) -> Result<()> {
    let run = |profile: &str| {
        let line = format!("run {profile}--locked -p sluicegate-sim -- run scenarios/");
        cargo(workspace, &line).capture_output()
    };
    let release = run("--release ")?;
    println!("{}", release.text);
    ensure!(release.success, "a story failed; its table is above");
    let debug = run("")?;
    if let Some((line, other)) = difference(&release.text, &debug.text) {
        bail!("debug and release decide differently: `{line}` in release, `{other}` in debug");
    }
    println!("debug and release printed the same");
    Ok(())
}

/// Random worlds must be convicted of nothing and come by everything, and the first 200 must be
/// the same in the build that the tests use. No more of them than a fast machine has time for, so
/// that a change is judged by the same worlds everywhere; `cargo xtask deep` draws others.
fn swarm(workspace: &Workspace) -> Result<()> {
    let run = |profile: &str, bounds: &str| {
        let line = format!("run {profile}--locked -p sluicegate-sim -- swarm {bounds}");
        cargo(workspace, &line).capture_output()
    };
    let long = run("--release ", "--for 90s --runs 20000")?;
    println!("{}", long.text);
    ensure!(long.success, "a world was convicted, or something was never come by; see above");
    let release = run("--release ", "--runs 200 --hash")?;
    let debug = run("", "--runs 200 --hash")?;
    let (one, other) = (release.text.trim(), debug.text.trim());
    ensure!(release.success && debug.success, "the first 200 worlds must pass: {one} {other}");
    ensure!(
        one == other,
        "debug and release decide differently: {one} in release, {other} in debug"
    );
    println!("debug and release play the same: {one}");
    Ok(())
}

/// The first lines in which two texts differ.
fn difference<'a>(one: &'a str, other: &'a str) -> Option<(&'a str, &'a str)> {
    let lines = one.lines().count().max(other.lines().count());
    let padded = |text: &'a str| text.lines().chain(std::iter::repeat("")).take(lines);
    padded(one).zip(padded(other)).find(|(line, other)| line != other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(from: Option<&str>, only: Option<&str>) -> Result<Vec<&'static str>> {
        let own = |name: Option<&str>| name.map(str::to_owned);
        let selection = Selection { from: own(from), only: own(only), list: false };
        Ok(select(&selection)?.iter().map(|step| step.name).collect())
    }

    #[test]
    fn steps_are_selected_by_name() {
        assert_eq!(names(None, None).unwrap().len(), STEPS.len());
        let after = ["scenarios", "swarm", "madsim", "fuzz", "report", "clients"];
        assert_eq!(names(Some("scenarios"), None).unwrap(), after);
        assert_eq!(names(None, Some("tidy")).unwrap(), ["tidy"]);
    }

    #[test]
    fn an_unknown_step_is_answered_with_the_list() {
        let error = names(Some("tests!"), None).unwrap_err().to_string();
        assert!(error.contains("`tests!`") && error.contains("fmt, tidy"), "{error}");
    }

    #[test]
    fn texts_are_compared_to_the_last_line() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(difference("a\nb\nc", "a\nx\nc"), Some(("b", "x")));
        assert_eq!(difference("a\n", "a\nb\n"), Some(("", "b")));
    }

    #[test]
    fn the_table_names_what_failed() {
        let second = Duration::from_secs(1);
        let text = table(&[("fmt", true, second), ("tidy", false, second)], second * 2);
        assert!(text.contains("fmt          passed      1.0s"), "{text}");
        assert!(text.contains("tidy         FAILED      1.0s"), "{text}");
        assert!(text.ends_with("2.0s"), "{text}");
    }
}
