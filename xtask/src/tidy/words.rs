//! Words that do not belong in the project: left-over work, history, one machine's paths.

use super::Finding;

/// The word, and what to do about it. Spelled in halves, so that this file is tidy itself.
const BANNED: &[(&str, &str)] = &[
    (concat!("TO", "DO"), "do it, or leave its place visible in ARCHITECTURE.md"),
    (concat!("FIX", "ME"), "mend it"),
    (concat!("X", "XX"), "say what is meant"),
    (concat!("#[al", "low("), "use `#[expect(.., reason = \"..\")]`"),
    (concat!("#![al", "low("), "use `#![expect(.., reason = \"..\")]`"),
    (concat!("#[ig", "nore"), "a test that does not run proves nothing: run it or remove it"),
    (concat!("to", "do!("), "write the code, or do not offer the function"),
    (concat!("unimple", "mented!("), "write the code, or do not offer the function"),
    (concat!("db", "g!("), "remove what was for debugging"),
    (concat!("unwrap_or_else(|_| pa", "nic"), "use `expect(\"why it cannot be\")`"),
    (concat!("test.", "skip("), "a test that does not run proves nothing: run it or remove it"),
    (concat!("as an ", "AI"), "the project speaks of itself alone"),
];

/// Words that tell history when a number follows.
const NUMBERED: &[&str] = &["issue", "milestone", "phase", "sprint"];

/// Folders of one machine.
const FOLDERS: &[&str] = &["work", "root", "home"];

/// The one file whose subject is history.
const HISTORY: &str = "CHANGELOG.md";

pub(super) fn check(file: &str, text: &str) -> Vec<Finding> {
    if file.ends_with("Cargo.lock") || file.ends_with("package-lock.json") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let mut find = |rule, advice: String| {
            findings.push(Finding::new(file, at + 1, rule, advice));
        };
        for (word, advice) in BANNED {
            if occurs(line, word) {
                find("banned word", format!("`{word}`: {advice}"));
            }
        }
        if let Some(words) = numbered(line) {
            find("history", format!("`{words}`: say what is so, not when it came to be"));
        }
        if file != HISTORY && has_date(line) {
            find("date", "a date belongs in the changelog and in git: remove it".to_owned());
        }
        if let Some(folder) = machine_path(line) {
            find("machine path", format!("`/{folder}` is one machine's: use a relative path"));
        }
    }
    findings
}

/// Whether a word occurs that is not a part of a longer one.
fn occurs(line: &str, word: &str) -> bool {
    let joins = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let first = word.chars().next();
    let last = word.chars().next_back();
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let longer = joins(before) && joins(first) || joins(last) && joins(after);
        !longer
    })
}

fn numbered(line: &str) -> Option<String> {
    let lower = line.to_lowercase();
    NUMBERED.iter().find_map(|word| {
        lower.match_indices(word).find_map(|(at, _)| {
            let before = lower[..at].chars().next_back();
            let after = lower[at + word.len()..].trim_start_matches([' ', '-', '_', '#']);
            let gap = lower.len() - at - word.len() - after.len();
            let apart = !before.is_some_and(char::is_alphanumeric);
            let digit = after.chars().next().filter(char::is_ascii_digit)?;
            (apart && gap > 0).then(|| format!("{word} {digit}"))
        })
    })
}

/// Whether the line holds a year, a month and a day with hyphens between.
fn has_date(line: &str) -> bool {
    let bytes = line.as_bytes();
    bytes.windows(10).enumerate().any(|(at, window)| {
        let shape = window.iter().enumerate().all(|(i, byte)| match i {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        });
        let century = window.starts_with(b"19") || window.starts_with(b"20");
        let before = at.checked_sub(1).map(|at| bytes[at]);
        let after = bytes.get(at + 10).copied();
        let joins = |byte: Option<u8>| byte.is_some_and(|b| b.is_ascii_digit() || b == b'-');
        shape && century && !joins(before) && !joins(after)
    })
}

/// The folder of an absolute path that only exists on one machine.
fn machine_path(line: &str) -> Option<&'static str> {
    FOLDERS.iter().copied().find(|folder| {
        let path = format!("/{folder}");
        line.match_indices(&path).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + path.len()..].chars().next();
            let begins = before.is_none_or(|c| c.is_whitespace() || "\"'`=(:<[".contains(c));
            let ends = after.is_none_or(|c| !(c.is_alphanumeric() || "_-.?{".contains(c)));
            begins && ends
        })
    })
}

#[cfg(test)]
mod tests;
