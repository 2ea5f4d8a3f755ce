//! The documents name files, and the files are there.

use super::Finding;
use std::collections::BTreeSet;

/// Documents that guide a reader to files.
const GUIDES: &[&str] = &["ARCHITECTURE.md", "README.md", "STYLE.md"];
/// What stands below a heading with these words is a plan.
const PLANNED: &str = "not built yet";

/// Paths in backquotes that lead nowhere. `files` are all files of the project.
pub(super) fn check(file: &str, text: &str, files: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !GUIDES.contains(&file) {
        return findings;
    }
    let folders: BTreeSet<&str> =
        files.iter().filter_map(|file| Some(file.split_once('/')?.0)).collect();
    let mut is_planned = false;
    for (at, line) in text.lines().enumerate() {
        if line.starts_with('#') {
            is_planned = line.contains(PLANNED);
        }
        for quoted in line.split('`').skip(1).step_by(2).filter(|_| !is_planned) {
            let ours = quoted.split_once('/').is_some_and(|(folder, _)| folders.contains(folder));
            let lost = spelled_out(quoted).into_iter().filter(|path| ours && !leads(path, files));
            findings.extend(lost.map(|path| {
                let advice = format!("`{path}` is not there: name the file that answers now");
                Finding::new(file, at + 1, "map", advice)
            }));
        }
    }
    findings
}

/// `a/{b,c}.rs` means `a/b.rs` and `a/c.rs`.
fn spelled_out(path: &str) -> Vec<String> {
    let parts = path.split_once('{').and_then(|(before, rest)| {
        let (names, after) = rest.split_once('}')?;
        Some(names.split(',').map(|name| format!("{before}{name}{after}")).collect())
    });
    parts.unwrap_or_else(|| vec![path.to_owned()])
}

/// Whether a path is a file, or a folder with files.
fn leads(path: &str, files: &[String]) -> bool {
    let folder = format!("{}/", path.trim_end_matches('/'));
    files.iter().any(|file| file == path || file.starts_with(&folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(file: &str, text: &str) -> Vec<usize> {
        let files = ["core/src/a.rs", "core/src/b.rs", "README.md"].map(String::from);
        check(file, text, &files).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_path_that_leads_nowhere_is_found() {
        let text = "see `core/src/a.rs`, `core/`, `core/src/{a,b}.rs`\nor `core/src/c.rs`\n\
                    or `core/src/{a,d}.rs`";
        assert_eq!(lost("ARCHITECTURE.md", text), [2, 3]);
        assert_eq!(lost("notes.md", text), [0; 0]);
    }

    #[test]
    fn what_is_no_path_of_ours_and_what_is_planned_may_be_named() {
        let text = "`POST /apps/{id}/events`, `text/plain`\n## What is not built yet\n`core/c.rs`";
        assert_eq!(lost("README.md", text), [0; 0]);
        assert_eq!(lost("README.md", &format!("{text}\n# More\n`core/c.rs`")), [5]);
    }
}
