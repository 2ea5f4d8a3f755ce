//! Mutants that survive: those that `core/MUTANTS.md` explains may, and no others.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;

/// The list of them.
pub(crate) const LIST: &str = "core/MUTANTS.md";

/// How many mutants of each name may survive. A row: ``- `file: what`, 2: why``.
fn explained(list: &str) -> Result<BTreeMap<&str, usize>> {
    let rows = list.lines().filter_map(|line| line.strip_prefix("- `"));
    let rows = rows.map(|row| {
        let parts = row.split_once("`, ").and_then(|(name, rest)| {
            let (number, why) = rest.split_once(':')?;
            Some((name, number.parse().ok()?)).filter(|_| !why.trim().is_empty())
        });
        parts.with_context(|| format!("{LIST}: `{row}` is not a name, a number and a reason"))
    });
    rows.collect()
}

/// A mutant as cargo-mutants prints it, without its line and column: these move.
fn name(printed: &str) -> Option<String> {
    let (file, rest) = printed.split_once(".rs:")?;
    let what = rest.splitn(3, ':').nth(2)?;
    Some(format!("{file}.rs:{what}"))
}

/// Those who survived, as cargo-mutants lists them, and that nobody has explained.
pub(crate) fn unexplained(missed: &str, list: &str) -> Result<Vec<String>> {
    let mut may = explained(list)?;
    let mut others = Vec::new();
    for printed in missed.lines().filter(|line| !line.is_empty()) {
        let name = name(printed).with_context(|| format!("`{printed}` names no place"))?;
        match may.get_mut(name.as_str()) {
            Some(left) if *left > 0 => *left -= 1,
            _ => others.push(printed.to_owned()),
        }
    }
    Ok(others)
}

/// Whether cargo-mutants tried every mutant of its list: by its `outcomes.json`, which counts those
/// that it has tried so far, and its `mutants.json`, the list.
pub(crate) fn tried_all(outcomes: &str, mutants: &str) -> Result<()> {
    let document: serde_json::Value = serde_json::from_str(outcomes).context("outcomes.json")?;
    let count = |key: &str| document[key].as_u64().with_context(|| format!("no `{key}`"));
    let list: Vec<serde_json::Value> = serde_json::from_str(mutants).context("mutants.json")?;
    let all = list.len() as u64;
    let tried = ["caught", "missed", "timeout", "unviable"].map(count);
    let tried: u64 = tried.into_iter().sum::<Result<_>>()?;
    ensure!(tried == all && all > 0, "{tried} of {all} mutants were tried");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    const ONE: &str = "core/src/shed.rs:72:39: replace < with <= in Bands::update";
    const LISTED: &str = "- `core/src/shed.rs: replace < with <= in Bands::update`, 1: equal";

    #[test]
    fn who_is_explained_may_survive_as_often_as_is_said() {
        assert_eq!(unexplained(ONE, LISTED).unwrap(), Vec::<String>::new());
        let moved = ONE.replace("72:39", "80:1");
        assert_eq!(unexplained(&moved, LISTED).unwrap(), Vec::<String>::new());
        let twice = format!("{ONE}\n{moved}\n");
        assert_eq!(unexplained(&twice, LISTED).unwrap(), [moved]);
        assert_eq!(unexplained(ONE, "").unwrap(), [ONE]);
        for row in ["- `a`, one: why", "- `a`, 1:", "- `a` 1: why"] {
            unexplained("", row).unwrap_err();
        }
    }

    #[test]
    fn a_run_that_was_broken_off_is_none() {
        let counts =
            |missed| format!(r#"{{"caught":5,"missed":{missed},"timeout":1,"unviable":1}}"#);
        let nine = "[0,0,0,0,0,0,0,0,0]";
        tried_all(&counts(2), nine).unwrap();
        let error = tried_all(&counts(1), nine).unwrap_err().to_string();
        assert_eq!(error, "8 of 9 mutants were tried");
        for (outcomes, list) in [("{}", nine), (counts(2).as_str(), "{}"), (&counts(2), "[]")] {
            tried_all(outcomes, list).unwrap_err();
        }
    }

    #[test]
    fn every_row_names_a_function_that_is_there() {
        let workspace = Workspace::find().unwrap();
        let list = workspace.read(LIST).unwrap();
        let rows = explained(&list).unwrap();
        assert!(!rows.is_empty());
        for name in rows.keys() {
            let (file, what) = name.split_once(": ").unwrap();
            let function = what.rsplit("::").next().unwrap();
            let function = function.split([' ', '(']).next().unwrap();
            let text = workspace.read(file).unwrap();
            assert!(text.contains(&format!("fn {function}(")), "{name}: no `fn {function}`");
        }
    }
}
