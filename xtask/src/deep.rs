//! The long forms of what must pass, for a night: every planted fault, swarm, every count, every
//! mutant of core, and which lines no test reaches. Goes on after a failure and reports all at the
//! end.

use crate::clock::{Stopwatch, readable};
use crate::program::Program;
use crate::workspace::Workspace;
use crate::{apt, convict, faults, instructions};
use anyhow::{Result, ensure};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(6 * 3_600);

/// A cargo command that is not part of cargo.
struct Tool {
    name: &'static str,
    /// How it is asked for its version.
    program: &'static str,
    install: &'static str,
    line: &'static str,
}

const TOOLS: &[Tool] = &[
    Tool {
        name: "mutants",
        program: "cargo mutants",
        install: "cargo install --locked cargo-mutants",
        line: "cargo mutants --package sluicegate-core --no-shuffle --output target/deep",
    },
    Tool {
        name: "coverage",
        program: "cargo tarpaulin",
        install: "cargo install --locked cargo-tarpaulin",
        line: "cargo tarpaulin --packages sluicegate-core sluicegate-wire --skip-clean --out Lcov \
               --output-dir target/deep",
    },
];

/// What became of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    /// Its tool is not there; how to install it.
    Missing(&'static str),
}

pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    std::fs::create_dir_all(workspace.root.join("target/deep"))?;
    let mut report = Vec::new();
    let mut part = |name, run: &dyn Fn() -> Result<Outcome>| {
        println!("\n== {name}");
        let watch = Stopwatch::start();
        let outcome = run().unwrap_or_else(|error| {
            println!("error: {error:#}");
            Outcome::Failed
        });
        report.push((name, outcome, watch.elapsed()));
    };
    part("faults", &|| faults::run(workspace, None).map(|()| Outcome::Passed));
    part("convict", &|| convict::run(workspace, None).map(|()| Outcome::Passed));
    part("swarm", &|| swarm(workspace).map(|()| Outcome::Passed));
    part("instructions", &|| instructions::step(workspace).map(|()| Outcome::Passed));
    for tool in TOOLS {
        part(tool.name, &|| tool.run(workspace));
    }
    println!("\n{}", table(&report));
    let failed = report.iter().filter(|(_, outcome, _)| *outcome == Outcome::Failed).count();
    ensure!(failed == 0, "{failed} of {} parts failed", report.len());
    Ok(())
}

/// Random worlds for half an hour, other ones than in CI.
fn swarm(workspace: &Workspace) -> Result<()> {
    let line = "cargo run --release --locked -p sluicegate-sim -- swarm --for 30m \
                --seed 1000000000 --tape target/deep/swarm.tape";
    Program::new(line, &workspace.root, LIMIT).run()
}

impl Tool {
    fn run(&self, workspace: &Workspace) -> Result<Outcome> {
        if !apt::answers(self.program) {
            println!("`{}` is not installed: `{}`", self.program, self.install);
            return Ok(Outcome::Missing(self.install));
        }
        Program::new(self.line, &workspace.root, LIMIT).run()?;
        Ok(Outcome::Passed)
    }
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
}
