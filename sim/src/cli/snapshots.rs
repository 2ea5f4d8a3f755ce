//! The tables that are kept of stories: `snapshots/NAME.snap` beside `NAME.toml`, in insta's
//! format, as the project's own tests read them.

use sluicegate_sim::batch::{Ended, Run};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// What insta writes above a table.
const HEAD: &str = "---\nsource: sim/tests/stories.rs\n---\n";

/// The tables of files, as their stories end.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    /// By file. None once a story of it did not hold.
    tables: BTreeMap<PathBuf, Option<String>>,
}

impl Snapshots {
    /// The next story of a file. The table of a file in which one fails is not kept.
    pub(crate) fn add(&mut self, run: &Run) {
        let file = PathBuf::from(&run.job.story.file);
        let tables = self.tables.entry(file).or_insert_with(|| Some(String::new()));
        match (&run.ended, tables) {
            (Ended::Ran(outcome), Some(text)) if run.code() == 0 => {
                writeln!(text, "{outcome}").expect("a text takes text");
            }
            (_, tables) => *tables = None,
        }
    }

    /// Writes every table that is not the one there, and says which.
    pub(crate) fn write(&self) -> Result<(), String> {
        let mut written = 0;
        for (file, text) in &self.tables {
            let Some(text) = text else {
                eprintln!("snapshot of {}: left as it is, a story fails", file.display());
                continue;
            };
            written += u32::from(write(&path(file), text)?);
        }
        eprintln!("snapshots: {written} of {} written", self.tables.len());
        Ok(())
    }

    /// Compares every table with the one there, and says what differs. The exit code: 0, or 1 when
    /// something does. Tables of files in which a story fails are not compared: that fails anyway.
    pub(crate) fn compare(&self) -> u8 {
        let mut differ = Vec::new();
        for (file, text) in &self.tables {
            let (name, path) = (file.display(), path(file));
            let Some(text) = text else {
                eprintln!("snapshot of {name}: not compared, a story fails");
                continue;
            };
            let there = match std::fs::read_to_string(&path) {
                Ok(there) => there,
                Err(error) => {
                    let path = path.display();
                    eprintln!("snapshot of {name}: cannot read {path}: {error}");
                    differ.push(name.to_string());
                    continue;
                }
            };
            let now = whole(text);
            if there != now {
                differ.push(name.to_string());
                eprintln!("snapshot of {name}: differs from {} (-) now (+)", path.display());
                difference(&there, &now).iter().for_each(|line| eprintln!("{line}"));
            }
        }
        let all = self.tables.len();
        if differ.is_empty() {
            eprintln!("snapshots: none of {all} differs");
            return 0;
        }
        let names = differ.join(" ");
        eprintln!("snapshots: {} of {all} differ; if that is wanted:", differ.len());
        eprintln!("sluicegate-sim run {names} --update-snapshots");
        1
    }
}

/// A table as it is kept.
fn whole(text: &str) -> String {
    format!("{HEAD}{}\n", text.trim_end())
}

/// Pairs of lines that are compared at most; of longer tables the whole middle is shown.
const MOST_PAIRS: usize = 4_000_000;

/// The lines that only one of two texts has, in order: `-` of the first, `+` of the second; above
/// those of a story `@` and its name.
fn difference(old: &str, new: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let mut story = old[..same].iter().rev().find_map(|line| name(line));
    let mut told = None;
    let (old, new) = (&old[same..], &new[same..]);
    let same = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[..old.len() - same], &new[..new.len() - same]);
    let width = new.len() + 1;
    // The longest common part of what follows each pair of lines.
    let mut common = vec![0_u32; (old.len() + 1) * width];
    let is_short = common.len() <= MOST_PAIRS;
    if !is_short {
        common = Vec::new();
    }
    let part = |common: &[u32], i: usize, j: usize| common.get(i * width + j).map_or(0, |n| *n);
    for i in (0..old.len()).rev().filter(|_| is_short) {
        for j in (0..new.len()).rev() {
            common[i * width + j] = if old[i] == new[j] {
                part(&common, i + 1, j + 1) + 1
            } else {
                part(&common, i + 1, j).max(part(&common, i, j + 1))
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            story = name(old[i]).or(story);
            (i, j) = (i + 1, j + 1);
            continue;
        }
        if told != story {
            lines.extend(story.map(|story| format!("@ {story}")));
            told = story;
        }
        if i < old.len() && part(&common, i + 1, j) >= part(&common, i, j + 1) || j == new.len() {
            lines.push(format!("- {}", old[i]));
            i += 1;
        } else {
            lines.push(format!("+ {}", new[j]));
            j += 1;
        }
    }
    lines
}

/// The name of a story, if this is the first line of its table.
fn name(line: &str) -> Option<&str> {
    line.split_once(" · ").map(|(name, _)| name)
}

/// Where the table of a scenario is kept.
fn path(file: &Path) -> PathBuf {
    let folder = file.parent().unwrap_or_else(|| Path::new("")).join("snapshots");
    folder.join(file.file_name().unwrap_or_default()).with_extension("snap")
}

/// Whether the table was another one.
fn write(path: &Path, text: &str) -> Result<bool, String> {
    let text = whole(text);
    if std::fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(false);
    }
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(path, text))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    eprintln!("snapshot: {}", path.display());
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_differ_are_told_and_no_others() {
        let old = "head\na\nb\nc\nd\ntail";
        assert!(difference(old, old).is_empty());
        assert_eq!(difference(old, "head\na\nB\nc\nd\ntail"), ["- b", "+ B"]);
        assert_eq!(difference(old, "head\nb\nc\nx\nd\ntail"), ["- a", "+ x"]);
        assert_eq!(difference("a\nb", "a"), ["- b"]);
        assert_eq!(difference("", "a\nb"), ["+ a", "+ b"]);
        let two = "one · First\na\nb\ntwo · Second\na\nb";
        let other = "one · First\na\nb\ntwo · Second\nA\nB";
        assert_eq!(difference(two, other), ["@ two", "- a", "- b", "+ A", "+ B"]);
        let other = "one · First\nA\nb\ntwo · Second\nA\nb";
        assert_eq!(difference(two, other), ["@ one", "- a", "+ A", "@ two", "- a", "+ A"]);
        let long = |line: &str| [line; 3_000].join("\n");
        assert_eq!(difference(&long("a"), &long("b")).len(), 6_000, "too long to be compared");
    }
}
