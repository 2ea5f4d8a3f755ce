//! How many instructions each operation of `bench/` costs, against the figures that are checked
//! in. Unlike time, the count is nearly the same on every run and machine, so it can be demanded.

mod figures;

use crate::apt;
use crate::clock::{Stopwatch, readable};
use crate::program::Program;
use crate::workspace::{Workspace, read};
use anyhow::{Context, Result, bail, ensure};
use figures::{Figures, Operation, changes, collected, per_part, table};
use std::fs;
use std::time::Duration;

const FILE: &str = "bench/instructions.toml";
const BUILD_LIMIT: Duration = Duration::from_secs(900);
const RUN_LIMIT: Duration = Duration::from_secs(120);
const ADVICE: &str = "valgrind counts the instructions: install it by hand, with its callgrind";

/// What to do with the figures.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Writes the figures into `bench/instructions.toml` instead of comparing.
    #[arg(long)]
    update: bool,
    /// Prints the figures as JSON, by name, and compares nothing.
    #[arg(long, conflicts_with = "update")]
    json: bool,
}

/// Compares, as a step of `ci`.
pub(crate) fn step(workspace: &Workspace) -> Result<()> {
    run(workspace, &Options::default())
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let watch = Stopwatch::start();
    let build = "cargo build --release --package sluicegate-bench";
    Program::new(build, &workspace.root, BUILD_LIMIT).run_quietly()?;
    apt::ensure_installed(workspace, &["valgrind"], "valgrind", ADVICE)?;
    let counter = Counter { workspace };
    let mut figures = Figures::default();
    for operation in counter.operations()? {
        let figure = counter.figure(&operation).with_context(|| operation.name.clone())?;
        if !options.json {
            println!("{:<28} {figure:>10.1} per {}", operation.name, operation.unit);
        }
        figures.insert(operation.name, figure);
    }
    if options.json {
        println!("{}", figures.json());
        return Ok(());
    }
    println!("{} operations in {}", figures.len(), readable(watch.elapsed()));
    let file = workspace.root.join(FILE);
    if options.update {
        return fs::write(&file, figures.toml()).with_context(|| format!("cannot write {FILE}"));
    }
    let kept = Figures::parse(&read(&file)?).context(FILE)?;
    let found = changes(&kept, &figures);
    if !found.is_empty() {
        println!("\n{}", table(&found));
        bail!(
            "{} figures differ from {FILE}; if that is wanted, check them in with `cargo xtask \
             instructions --update`",
            found.len()
        );
    }
    Ok(())
}

struct Counter<'a> {
    workspace: &'a Workspace,
}

impl Counter<'_> {
    fn program(&self) -> String {
        self.workspace.target.join("release/sluicegate-bench").display().to_string()
    }

    fn operations(&self) -> Result<Vec<Operation>> {
        let line = format!("{} list", self.program());
        let listed = Program::new(&line, &self.workspace.root, RUN_LIMIT).capture()?;
        ensure!(listed.success, "`{line}` failed: {}", listed.text);
        listed.text.lines().map(Operation::parse).collect()
    }

    /// Instructions of one part. What a run does besides is the same in both and falls out.
    fn figure(&self, operation: &Operation) -> Result<f64> {
        let few = operation.times.div_ceil(4);
        ensure!(few < operation.times, "two different numbers of repetitions are needed");
        let counts =
            [self.count(&operation.name, few)?, self.count(&operation.name, operation.times)?];
        per_part(counts, (operation.times - few) * operation.parts)
    }

    fn count(&self, name: &str, times: u64) -> Result<u64> {
        let out = self.workspace.target.join("callgrind.out");
        let line = format!(
            "valgrind --tool=callgrind --callgrind-out-file={} {} {name} {times}",
            out.display(),
            self.program()
        );
        let run = Program::new(&line, &self.workspace.root, RUN_LIMIT).capture()?;
        ensure!(run.success, "`{line}` failed: {}", run.text);
        let count = collected(&read(&out)?).with_context(|| out.display().to_string());
        fs::remove_file(&out).with_context(|| format!("cannot remove {}", out.display()))?;
        count
    }
}
