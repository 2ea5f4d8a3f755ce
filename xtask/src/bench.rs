//! Times the operations of `bench/` and the yardsticks beside them, in one run, and writes the
//! tables of its README.

mod tables;

use crate::program::Program;
use crate::workspace::{Workspace, read};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::time::Duration;
use tables::{Timed, between, chart, table};

const README: &str = "bench/README.md";
const LIMIT: Duration = Duration::from_secs(1_800);
/// Enough for a median: the spread between runs is larger than within one.
const TIMED: &str = "cargo bench --package sluicegate-bench --bench yardsticks --bench operations \
                     -- --noplot --warm-up-time 1 --measurement-time 3";
const COUNTED: &str = "cargo bench --package sluicegate-bench --bench memory";

/// The groups of criterion's results that are told.
const GROUPS: [&str; 3] = ["operations", "mpsc", "semaphore"];

pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let text = workspace.read(README)?;
    Program::new(TIMED, &workspace.root, LIMIT).run()?;
    let memory = Program::new(COUNTED, &workspace.root, LIMIT).capture_output()?.text;
    let counts = workspace.read("bench/instructions.toml")?;
    let counts: toml::Table = counts.parse().context("bench/instructions.toml is not TOML")?;
    let mut timed = Vec::new();
    for group in GROUPS {
        let folder = workspace.target.join("criterion").join(group);
        timed.extend(results(group, &folder)?);
    }
    let made = format!(
        "{}\n{}\n```text\n{}\n```\n",
        table(&timed, &counts)?,
        chart(&timed)?,
        memory.trim_end()
    );
    let text = between(&text, &made).context(README)?;
    fs::write(workspace.root.join(README), text).with_context(|| format!("cannot write {README}"))
}

/// What criterion kept of a group's last run.
fn results(group: &str, folder: &Path) -> Result<Vec<Timed>> {
    let names = fs::read_dir(folder).with_context(|| format!("no {}", folder.display()))?;
    let mut timed = Vec::new();
    for entry in names {
        let last = entry?.path().join("new");
        if last.is_dir() {
            let file = |name: &str| read(&last.join(name));
            let parsed = Timed::parse(group, &file("benchmark.json")?, &file("estimates.json")?);
            timed.push(parsed.with_context(|| last.display().to_string())?);
        }
    }
    Ok(timed)
}
