//! Breaks a copy of core on purpose and demands that swarm convicts it within a minute, and that
//! shrink makes the tape small: a judge that cannot convict is a defect.

use crate::clock::{Stopwatch, readable};
use crate::copy::TreeCopy;
use crate::program::{Captured, Program};
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::time::Duration;

/// A planted fault, and how many inputs its smallest tape may have.
struct Case {
    patch: &'static str,
    most: u64,
}

/// One fault for each kind of promise.
const CASES: &[Case] = &[
    Case { patch: "double-count", most: 50 },
    Case { patch: "evicted-mid-write", most: 50 },
    Case { patch: "flapping-band", most: 50 },
    Case { patch: "leaked-parked-publish", most: 50 },
    Case { patch: "leaked-reference", most: 50 },
    Case { patch: "lost-wake", most: 50 },
    Case { patch: "off-by-one-bound", most: 50 },
    Case { patch: "reordered-resume", most: 50 },
    Case { patch: "stale-generation", most: 50 },
    Case { patch: "unfair-rotation", most: 200 },
];

const BUILD_LIMIT: Duration = Duration::from_secs(1_800);
/// How long swarm may look for a fault.
const SWARM: &str = "60s";
const SWARM_LIMIT: Duration = Duration::from_secs(120);
const SHRINK_LIMIT: Duration = Duration::from_secs(600);

/// What became of one fault.
struct Found {
    patch: &'static str,
    judge: String,
    worlds: u64,
    seconds: f64,
    inputs: u64,
    of: u64,
    why: Option<String>,
}

pub(crate) fn run(workspace: &Workspace, only: Option<&str>) -> Result<()> {
    let copy = TreeCopy::of(workspace, "convict")?;
    let cases = CASES.iter().filter(|case| only.is_none_or(|only| only == case.patch));
    let mut found = Vec::new();
    for case in cases {
        println!("-- {}", case.patch);
        let watch = Stopwatch::start();
        let outcome = try_case(workspace, &copy, case);
        copy.refresh(workspace)?;
        let outcome = outcome?;
        if let Some(why) = &outcome.why {
            println!("{why}");
        }
        println!("{} in all", readable(watch.elapsed()));
        found.push(outcome);
    }
    ensure!(!found.is_empty(), "no such fault: see the table in xtask/src/convict.rs");
    println!("{}", table(&found));
    let failed = found.iter().filter(|found| found.why.is_some()).count();
    ensure!(failed == 0, "{failed} of {} faults were not convicted as they must be", found.len());
    Ok(())
}

fn try_case(workspace: &Workspace, copy: &TreeCopy, case: &Case) -> Result<Found> {
    let patch = workspace.root.join("xtask/faults").join(format!("{}.patch", case.patch));
    let line = format!("git apply --whitespace=nowarn {}", patch.display());
    let applied = Program::new(&line, &copy.root, Duration::from_secs(10))
        // The copy lies inside a repository that ignores it; git must not look there.
        .env("GIT_CEILING_DIRECTORIES", copy.root.parent().unwrap_or(&copy.root))
        .capture()?;
    ensure!(applied.success, "{} does not apply: {}", case.patch, applied.text);
    let target = workspace.target.join("convict");
    let built = Program::new("cargo build --release -p sluicegate-sim", &copy.root, BUILD_LIMIT)
        .env("CARGO_TARGET_DIR", &target)
        // Ten builds of which each runs for a minute: quick ones are better than quick programs.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .capture()?;
    ensure!(built.success, "{} does not compile:\n{}", case.patch, built.text);
    let program = target.join("release/sluicegate-sim");
    let tape = target.join(format!("{}.tape", case.patch));
    judge(case, &program, &tape, copy)
}

/// Lets swarm look for the fault and shrink its tape.
fn judge(case: &Case, program: &Path, tape: &Path, copy: &TreeCopy) -> Result<Found> {
    let call = |arguments: &str, limit| -> Result<(Captured, serde_json::Value)> {
        let line = format!("{} {arguments}", program.display());
        let captured = Program::new(&line, &copy.root, limit).capture_output()?;
        let document = serde_json::from_str(captured.text.trim())
            .with_context(|| format!("`{arguments}` printed no document: {}", captured.text))?;
        Ok((captured, document))
    };
    let shown = tape.display();
    let swarm = format!("swarm --for {SWARM} --json --tape {shown}");
    let (_, document) = call(&swarm, SWARM_LIMIT)?;
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
    let mut found = Found {
        patch: case.patch,
        judge: document["conviction"]["judge"].as_str().unwrap_or("nobody").to_owned(),
        worlds: number(&document["worlds"]),
        seconds: document["wall_ns"].as_f64().unwrap_or(0.0) / 1e9,
        inputs: 0,
        of: 0,
        why: None,
    };
    if document["conviction"].is_null() {
        found.why = Some(format!("no judge convicts it within {SWARM}"));
        return Ok(found);
    }
    let (_, document) = call(&format!("shrink {shown} --json"), SHRINK_LIMIT)?;
    (found.inputs, found.of) = (number(&document["inputs"]), number(&document["of"]));
    if found.inputs > case.most || found.inputs == 0 {
        let Found { inputs, .. } = found;
        found.why = Some(format!("its tape keeps {inputs} inputs, at most {} may stay", case.most));
    }
    Ok(found)
}

fn table(found: &[Found]) -> String {
    let mut text = format!(
        "{:<24} {:<14} {:>8} {:>8} {:>8} {:>8}  result",
        "fault", "judge", "worlds", "seconds", "inputs", "of"
    );
    for Found { patch, judge, worlds, seconds, inputs, of, why } in found {
        let result = if why.is_none() { "convicted" } else { "NOT AS IT MUST BE" };
        text += &format!(
            "\n{patch:<24} {judge:<14} {worlds:>8} {seconds:>8.1} {inputs:>8} {of:>8}  {result}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_its_patch() {
        let workspace = Workspace::find().unwrap();
        for case in CASES {
            let file = format!("xtask/faults/{}.patch", case.patch);
            assert!(workspace.root.join(&file).is_file(), "{file}");
        }
    }

    #[test]
    fn the_table_says_what_is_not_as_it_must_be() {
        let found = |why: Option<&str>| Found {
            patch: "lost-wake",
            judge: "stuck".into(),
            worlds: 3,
            seconds: 0.4,
            inputs: 9,
            of: 900,
            why: why.map(str::to_owned),
        };
        let text = table(&[found(None), found(Some("too large"))]);
        assert!(text.lines().nth(1).unwrap().ends_with("convicted"), "{text}");
        assert!(text.ends_with("NOT AS IT MUST BE"), "{text}");
    }
}
