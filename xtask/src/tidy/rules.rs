//! The table of core's rules names the tests that hold each of them, and they exist.

use super::Finding;
use super::labels::quoted;
use std::collections::BTreeSet;

/// The table.
pub(super) const FILE: &str = "core/RULES.md";
const RULE: &str = "rules";

/// Rows that name no proof, and names that are none. `text` is none when the table is
/// not there.
pub(super) fn check(text: Option<&str>, proofs: &BTreeSet<String>) -> Vec<Finding> {
    let Some(text) = text else {
        return vec![Finding::new(FILE, 1, RULE, "the table of rules is missing: put it back")];
    };
    let mut findings = Vec::new();
    let mut rows = 0;
    for (at, line) in text.lines().enumerate() {
        let Some(cells) = line.strip_prefix('|').and_then(|row| row.strip_suffix('|')) else {
            rows = 0;
            continue;
        };
        rows += 1;
        // The head, and the line below it.
        if rows <= 2 {
            continue;
        }
        // The first cell is the rule; it may quote anything.
        let names: Vec<&str> = cells.split('|').skip(1).flat_map(quoted).collect();
        if names.is_empty() {
            findings.push(Finding::new(FILE, at + 1, RULE, "name the tests that hold it"));
        }
        for name in names.into_iter().filter(|name| !proofs.contains(*name)) {
            let advice = format!("`{name}` is no test or judge: name one that is");
            findings.push(Finding::new(FILE, at + 1, RULE, advice));
        }
    }
    if !text.lines().any(|line| line.starts_with('|')) {
        findings.push(Finding::new(FILE, 1, RULE, "it holds no table: nothing is proven"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let proofs = ["a_test_that_exists", "order"].map(String::from).into();
        check(Some(text), &proofs).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn each_row_names_proofs_that_exist() {
        let head = "# Rules\n\n| rule | proof |\n|---|---|\n";
        assert_eq!(lines(&format!("{head}| `a` | `a_test_that_exists`, `order` |")), [0; 0]);
        assert_eq!(lines(&format!("{head}| a | none |")), [5]);
        assert_eq!(lines(&format!("{head}| a | `a_test_that_left` |")), [5]);
        assert_eq!(lines(&format!("{head}| a | `disorder` |")), [5]);
        assert_eq!(lines(&format!("{head}| a | `order` | `a_test_that_left` |")), [5]);
        assert_eq!(lines("# Rules"), [1]);
        assert_eq!(check(None, &BTreeSet::new()).len(), 1);
    }
}
