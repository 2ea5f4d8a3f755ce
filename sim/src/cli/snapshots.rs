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
}

/// Where the table of a scenario is kept.
fn path(file: &Path) -> PathBuf {
    let folder = file.parent().unwrap_or_else(|| Path::new("")).join("snapshots");
    folder.join(file.file_name().unwrap_or_default()).with_extension("snap")
}

/// Whether the table was another one.
fn write(path: &Path, text: &str) -> Result<bool, String> {
    let text = format!("{HEAD}{}\n", text.trim_end());
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
