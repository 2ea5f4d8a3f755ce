//! The tables of rules name the tests that hold each of them, and they exist.

use super::Finding;
use super::labels::quoted;
use std::collections::BTreeSet;

/// The tables: what core promises, and what a Pusher server does.
pub(super) const FILES: [&str; 2] = ["core/RULES.md", "shell-ws/RULES.md"];
const RULE: &str = "rules";

/// What else can be named than tests in Rust: those of clients in other languages, by function in
/// Python and by sentence in Node. A sentence with a variable part is named as it is written.
pub(super) fn foreign(file: &str, text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim);
    if file.ends_with(".py") {
        let functions = lines.filter_map(|line| {
            let line = line.strip_prefix("async ").unwrap_or(line);
            let name = line.strip_prefix("def ")?.split('(').next()?;
            name.starts_with("test_").then(|| name.to_owned())
        });
        return functions.collect();
    }
    if file.ends_with(".test.mjs") {
        let sentences = lines.filter_map(|line| {
            let rest = line.strip_prefix("test(")?;
            let quote = rest.chars().next().filter(|quote| "\"`".contains(*quote))?;
            let sentence = rest[1..].split(quote).next()?;
            Some(sentence.to_owned())
        });
        return sentences.collect();
    }
    Vec::new()
}

/// Rows that name no proof, and names that are none. `text` is none when the table is
/// not there.
pub(super) fn check(file: &str, text: Option<&str>, proofs: &BTreeSet<String>) -> Vec<Finding> {
    let Some(text) = text else {
        return vec![Finding::new(file, 1, RULE, "the table of rules is missing: put it back")];
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
        let proof = || cells.split('|').skip(1);
        let names: Vec<&str> = proof().flat_map(quoted).chain(proof().flat_map(said)).collect();
        if names.is_empty() {
            findings.push(Finding::new(file, at + 1, RULE, "name the tests that hold it"));
        }
        for name in names.into_iter().filter(|name| !proofs.contains(*name)) {
            let advice = format!("`{name}` is no test or judge: name one that is");
            findings.push(Finding::new(file, at + 1, RULE, advice));
        }
    }
    if !text.lines().any(|line| line.starts_with('|')) {
        findings.push(Finding::new(file, 1, RULE, "it holds no table: nothing is proven"));
    }
    findings
}

/// What stands in double quotes.
fn said(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PYTHON: &str = "class A:\n    def test_one(self):\n        pass\n\n    \
        async def test_two(self):\n        pass\n\n    def helper(self):\n        pass\n";
    const NODE: &str = "test(\"who comes, sees\", TEST, async () => {});\n\
        for (const x of y) {\n  test(`${x} is told`, () => {});\n}\ncontest(\"no test\");\n";

    fn lines(text: &str) -> Vec<usize> {
        let mut proofs: BTreeSet<String> = ["a_test_that_exists", "order"].map(String::from).into();
        proofs.extend(foreign("clients/python/test_a.py", PYTHON));
        proofs.extend(foreign("clients/test/a.test.mjs", NODE));
        let findings = check("x/RULES.md", Some(text), &proofs);
        assert!(findings.iter().all(|finding| finding.file == "x/RULES.md"));
        findings.into_iter().map(|finding| finding.line).collect()
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
        assert_eq!(check("x/RULES.md", None, &BTreeSet::new()).len(), 1);
    }

    #[test]
    fn tests_of_clients_are_proofs_and_nothing_else_of_their_files_is() {
        let head = "| rule | proof |\n|---|---|\n";
        let row = |names: &str| lines(&format!("{head}| a | {names} |"));
        assert_eq!(row("`test_one`, `test_two`, \"who comes, sees\""), [0; 0]);
        assert_eq!(row("\"${x} is told\""), [0; 0]);
        for wrong in [
            "`helper`",
            "`test_three`",
            "`test_one`, \"who goes, sees\"",
            "\"no test\"",
            "\"helper\"",
            "\"\"",
        ] {
            assert_eq!(row(wrong), [3], "{wrong}");
        }
        for file in ["clients/test/a.mjs", "clients/support/b.js", "a.rs"] {
            assert!(foreign(file, NODE).is_empty() && foreign(file, PYTHON).is_empty(), "{file}");
        }
    }
}
