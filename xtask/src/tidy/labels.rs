//! Each checkpoint says on its first screen what it decides, and by which tests it is held.

use super::Finding;
use super::source::Source;
use std::collections::BTreeSet;

const CHECKPOINTS: &[&str] = &[
    "admission",
    "backlog",
    "client/inbox",
    "client/queue",
    "client/window",
    "codel",
    "egress",
    "schedule",
];
const LABELS: &[&str] = &["Question:", "Invariant:", "When full:", PROOF];
const PROOF: &str = "Proof:";
const RULE: &str = "module docs";

/// Checks the checkpoints that exist.
/// `proofs` is all that can be named.
pub(super) fn check(sources: &[Source], proofs: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in CHECKPOINTS {
        let file = format!("core/src/{name}.rs");
        match sources.iter().find(|source| source.file == file) {
            Some(source) => findings.extend(checkpoint(source, proofs)),
            None => findings.push(Finding::new(
                &file,
                1,
                RULE,
                "a checkpoint has a file of its own: put it back",
            )),
        }
    }
    findings
}

/// Everything that can be named as a proof: test functions, judges, fuzz targets. `files` are all
/// files of the project.
pub(super) fn proofs(sources: &[Source], files: &[String]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in sources {
        let mut is_test = false;
        // Line by line, because the tests of a property macro are not syntax yet.
        for line in source.text.lines().map(str::trim) {
            if line == "#[test]" {
                is_test = true;
            } else if let Some(rest) = line.strip_prefix("fn ").filter(|_| is_test) {
                let end = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
                names.insert(rest[..end].to_owned());
                is_test = false;
            } else if !line.starts_with('#') && !line.starts_with("//") {
                is_test = false;
            }
        }
    }
    for file in
        files.iter().filter(|file| file.contains("/judge") || file.contains("fuzz_targets/"))
    {
        let name = file.rsplit('/').next().and_then(|name| name.strip_suffix(".rs"));
        names.extend(name.map(str::to_owned));
    }
    names
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn checkpoint(source: &Source, proofs: &BTreeSet<String>) -> Vec<Finding> {
    let docs: Vec<(usize, &str)> = source
        .text
        .lines()
        .enumerate()
        .map_while(|(at, line)| Some((at + 1, line.strip_prefix("//!")?.trim())))
        .collect();
    let mut findings = Vec::new();
    let mut find = |line, advice| findings.push(Finding::new(&source.file, line, RULE, advice));
    let mut from = 0;
    for label in LABELS {
        match docs.iter().skip(from).position(|(_, text)| starts(text, label)) {
            Some(at) => from += at + 1,
            None => find(1, format!("the line `{label}` is missing or out of order: {LABELS:?}")),
        }
    }
    if let Some(at) = docs.iter().position(|(_, text)| starts(text, PROOF)) {
        let lines = docs[at..].iter().take_while(|(_, text)| !text.is_empty());
        let named: Vec<(usize, &str)> =
            lines.flat_map(|(line, text)| quoted(text).map(|name| (*line, name))).collect();
        if named.is_empty() {
            find(docs[at].0, "`Proof:` names nothing: name tests in backquotes".to_owned());
        }
        for (line, name) in named {
            let last = name.rsplit(['/', ':']).next().unwrap_or(name);
            if !proofs.contains(last) {
                find(line, format!("`{name}` is no test, judge or fuzz target: name one that is"));
            }
        }
    }
    findings
}

fn starts(text: &str, label: &str) -> bool {
    text.trim_start_matches(['*', '-', ' ']).replace('*', "").starts_with(label)
}

/// What stands in backquotes.
pub(super) fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests;
