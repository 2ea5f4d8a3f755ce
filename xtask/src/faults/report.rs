//! What a run of tests says about a fault.

use super::fault::Fault;
use crate::program::Captured;

/// What became of a fault.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Every named test failed.
    Convicted,
    /// The tests did not do what the fault's head promises.
    Unconvicted {
        /// Told to whoever has to mend the test or the patch.
        why: String,
        /// What the program printed.
        output: String,
    },
}

impl Outcome {
    pub(super) const fn word(&self) -> &'static str {
        match self {
            Self::Convicted => "convicted",
            Self::Unconvicted { .. } => "NOT CAUGHT",
        }
    }
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ran {
    Failed,
    Passed,
}

/// A test that ran: the target it is in, as cargo is asked for it, and its path in there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Located {
    pub(super) target: String,
    pub(super) path: String,
}

impl Located {
    /// Whether `name` is its function, or a path that ends in that.
    pub(super) fn is_called(&self, name: &str) -> bool {
        is_called(&self.path, name)
    }
}

fn is_called(path: &str, name: &str) -> bool {
    path == name || path.ends_with(&format!("::{name}"))
}

/// The path of a test and how it ended, if a line tells that.
fn ended(line: &str) -> Option<(&str, &str)> {
    let (path, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
    // A test that must panic is written `path - should panic`.
    Some((path.split(" - ").next().unwrap_or(path), rest))
}

/// Every test that ran, with the target that cargo named before it.
pub(super) fn located(output: &str) -> Vec<Located> {
    let mut target = String::new();
    let mut found = Vec::new();
    for line in output.lines() {
        if let Some(source) = line.trim_start().strip_prefix("Running ") {
            target = target_of(source);
        } else if let Some((path, _)) = ended(line) {
            found.push(Located { target: target.clone(), path: path.to_owned() });
        }
    }
    found
}

/// The target of `unittests src/lib.rs (…)`, or of `tests/name.rs (…)`.
fn target_of(source: &str) -> String {
    let source = source.split(" (").next().unwrap_or(source);
    match source.strip_prefix("tests/") {
        Some(file) => {
            let name = file.strip_suffix("/main.rs").or_else(|| file.strip_suffix(".rs"));
            format!("--test {}", name.unwrap_or(file))
        }
        None if source.ends_with("src/lib.rs") => "--lib".to_owned(),
        None => "--bins".to_owned(),
    }
}

/// How the test of this name ended, if it ran. `name` is a function, or a path that ends in one;
/// where several tests have it, one that failed counts.
fn ran(name: &str, output: &str) -> Option<Ran> {
    let mut found = None;
    for line in output.lines() {
        let Some((_, rest)) = ended(line).filter(|(path, _)| is_called(path, name)) else {
            continue;
        };
        if rest.ends_with("FAILED") {
            return Some(Ran::Failed);
        }
        if rest.ends_with("ok") {
            found = Some(Ran::Passed);
        }
    }
    found
}

/// Those of the named tests that did not end as they should.
pub(super) fn absent(names: &[String], output: &str, should: Ran) -> Vec<String> {
    names.iter().filter(|name| ran(name, output) != Some(should)).cloned().collect()
}

/// The verdict on a fault after its run.
pub(super) fn judge(fault: &Fault, captured: Captured) -> Outcome {
    let Captured { success, text: output } = captured;
    let why = if success {
        "everything passed although the code is broken".to_owned()
    } else if output.contains("error: could not compile") {
        "the broken code does not compile, so no test has judged it".to_owned()
    } else if fault.command.is_some() {
        let silent = fault.convicted_by.iter().filter(|word| !output.contains(*word));
        let silent: Vec<_> = silent.cloned().collect();
        if silent.is_empty() {
            return Outcome::Convicted;
        }
        format!("the command failed, but its output does not name: {}", silent.join(", "))
    } else {
        let silent = absent(&fault.convicted_by, &output, Ran::Failed);
        if silent.is_empty() {
            return Outcome::Convicted;
        }
        format!("these tests were named and did not fail: {}", silent.join(", "))
    };
    Outcome::Unconvicted { why, output }
}

#[cfg(test)]
mod tests;
