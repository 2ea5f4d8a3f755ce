//! Breaks a copy of the code on purpose. A test that cannot fail proves nothing: each fault names
//! the tests that must convict it, and they must pass before it and fail after it.

mod fault;
mod report;

use crate::clock::{Stopwatch, readable};
use crate::copy::TreeCopy;
use crate::program::{Captured, Program};
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use fault::Fault;
use report::{Located, Outcome, Ran, absent, judge, located};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// For a build, the first one with all named tests.
const HEALTHY_LIMIT: Duration = Duration::from_secs(600);
/// For a few tests of a broken crate. Some faults make a test run for ever.
const BROKEN_LIMIT: Duration = Duration::from_secs(120);
const GIT_LIMIT: Duration = Duration::from_secs(60);
const FOLDER: &str = "xtask/faults";

/// In CI: of every two commits each tries another half. All of them are in `cargo xtask deep`.
pub(crate) fn half(workspace: &Workspace) -> Result<()> {
    let head = Program::new("git rev-parse HEAD", &workspace.root, GIT_LIMIT).capture()?.text;
    let turn = usize::from(head.bytes().next().context("there is no commit")?) % 2;
    let mut number = 0;
    let mut faults = load(workspace, &[])?;
    faults.retain(|_| {
        number += 1;
        number % 2 == turn
    });
    try_all(workspace, &faults)
}

/// Tries the faults with these names, or all.
pub(crate) fn run(workspace: &Workspace, only: &[String]) -> Result<()> {
    try_all(workspace, &load(workspace, only)?)
}

fn try_all(workspace: &Workspace, faults: &[Fault]) -> Result<()> {
    let copy = TreeCopy::of(workspace, "faults")?;
    let trial = Trial { workspace, copy };
    let whole = Stopwatch::start();
    let found = trial.prove_that_all_is_well(faults)?;
    let mut lines = Vec::new();
    let mut unconvicted = 0;
    for (number, fault) in faults.iter().enumerate() {
        let (at, of) = (number + 1, faults.len());
        println!("-- {at}/{of} at {}: {}: {}", readable(whole.elapsed()), fault.name, fault.what);
        let watch = Stopwatch::start();
        let outcome =
            trial.try_fault(fault, found.get(&fault.package).map_or(&[], Vec::as_slice))?;
        let time = readable(watch.elapsed());
        if let Outcome::Unconvicted { why, output } = &outcome {
            unconvicted += 1;
            println!("{output}\n{why}");
        }
        let verdict = outcome.word();
        let by = fault.convicted_by.join(", ");
        lines.push(format!("{:<28} {verdict:<12} {time:>7}  {by}", fault.name));
    }
    println!("\n{:<28} {:<12} {:>7}  by", "fault", "verdict", "time");
    println!("{}", lines.join("\n"));
    println!("{:<28} {:<12} {:>7}", "in all", "", readable(whole.elapsed()));
    ensure!(
        unconvicted == 0,
        "{unconvicted} of {} faults were not convicted; repeat one with `cargo xtask faults --only \
         NAME`",
        faults.len()
    );
    Ok(())
}

fn load(workspace: &Workspace, only: &[String]) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    for file in workspace.files()? {
        let path = Path::new(&file);
        if !path.starts_with(FOLDER) || path.extension().is_none_or(|end| end != "patch") {
            continue;
        }
        let name = path.file_stem().expect("a patch has a stem").to_string_lossy();
        if only.is_empty() || only.iter().any(|only| *only == name) {
            let text = workspace.read(&file)?;
            faults.push(Fault::parse(&name, &text).with_context(|| file.clone())?);
        }
    }
    // Each change of the package rebuilds the crates below it once more.
    faults.sort_by_key(|fault| (fault.package.clone(), fault.command.clone(), fault.name.clone()));
    ensure!(
        !faults.is_empty() || !only.is_empty(),
        "{FOLDER} holds no *.patch: nothing was proven"
    );
    for name in only {
        let is_there = faults.iter().any(|fault| fault.name == *name);
        ensure!(is_there, "there is no {FOLDER}/{name}.patch");
    }
    Ok(faults)
}

/// One copy of the tree and one build folder for all faults, so that each rebuilds only what its
/// patch touches, and nothing of the main build is rebuilt.
struct Trial<'a> {
    workspace: &'a Workspace,
    copy: TreeCopy,
}

impl Trial<'_> {
    /// The named tests exist and pass where nothing is broken. One run per package and command.
    /// Returns where the tests of each package are.
    fn prove_that_all_is_well(&self, faults: &[Fault]) -> Result<BTreeMap<String, Vec<Located>>> {
        let mut groups: BTreeMap<String, Fault> = BTreeMap::new();
        for fault in faults {
            let key = fault.command.clone().unwrap_or_else(|| fault.package.clone());
            let group = groups.entry(key).or_insert_with(|| fault.clone());
            group.convicted_by.extend(fault.convicted_by.iter().cloned());
        }
        let mut found = BTreeMap::new();
        for (key, group) in groups {
            println!("-- nothing broken: {key}");
            let captured = self.try_line(&group.healthy_line(), HEALTHY_LIMIT)?;
            let missing = match group.command {
                Some(_) => Vec::new(),
                None => absent(&group.convicted_by, &captured.text, Ran::Passed),
            };
            if !captured.success || !missing.is_empty() {
                println!("{}", captured.text);
                let missing = missing.join(", ");
                bail!("without any fault, `{key}` must pass and run these tests: {missing}");
            }
            if group.command.is_none() {
                found.insert(key, located(&captured.text));
            }
        }
        Ok(found)
    }

    fn try_fault(&self, fault: &Fault, found: &[Located]) -> Result<Outcome> {
        let patch = self.workspace.root.join(FOLDER).join(format!("{}.patch", fault.name));
        let line = format!("git apply --whitespace=nowarn {}", patch.display());
        let applied = Program::new(&line, &self.copy.root, Duration::from_secs(10))
            // The copy lies inside a repository that ignores it; git must not look there.
            .env("GIT_CEILING_DIRECTORIES", self.copy.root.parent().unwrap_or(&self.copy.root))
            .capture()?;
        let outcome = if applied.success {
            self.try_broken(fault, found)
        } else {
            let why = "the patch does not apply: make it again from the code as it is now";
            Ok(Outcome::Unconvicted { why: why.to_owned(), output: applied.text })
        };
        self.copy.refresh(self.workspace)?;
        // A fault that makes the tests hang is not convicted by name.
        Ok(outcome.unwrap_or_else(|error| Outcome::Unconvicted {
            why: format!("{error:#}"),
            output: String::new(),
        }))
    }

    /// Builds first: a compiler that is killed with a test that hangs leaves a folder behind in
    /// which later builds fail.
    fn try_broken(&self, fault: &Fault, found: &[Located]) -> Result<Outcome> {
        if let Some(line) = fault.build_line(found) {
            let built = self.try_line(&line, HEALTHY_LIMIT)?;
            if !built.success {
                return Ok(judge(fault, built));
            }
        }
        let captured = self.try_line(&fault.broken_line(found), BROKEN_LIMIT)?;
        Ok(judge(fault, captured))
    }

    fn try_line(&self, line: &str, limit: Duration) -> Result<Captured> {
        Program::new(line, &self.copy.root, limit)
            .env("CARGO_TARGET_DIR", self.workspace.target.join("faults"))
            .env("CARGO_TERM_COLOR", "never")
            .env("INSTA_UPDATE", "no")
            // Nobody debugs these builds, and a failure is enough: it need not be the smallest.
            .env("CARGO_PROFILE_DEV_DEBUG", "false")
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .same_cases()
            .capture()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_patch_of_the_project_has_a_readable_head() {
        let workspace = Workspace::find().unwrap();
        for file in workspace.files().unwrap() {
            if file.starts_with(FOLDER) && file.ends_with(".patch") {
                let text = workspace.read(&file).unwrap();
                Fault::parse("any", &text).unwrap_or_else(|error| panic!("{file}: {error:#}"));
            }
        }
    }
}
