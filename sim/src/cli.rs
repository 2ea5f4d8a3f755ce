//! The commands, one file each, and what they share: files, words and exit codes.

pub(crate) mod bar;
pub(crate) mod explain;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod shrink;
pub(crate) mod snapshots;
pub(crate) mod swarm;
pub(crate) mod tapes;

use sluicegate_sim::batch::Job;
use sluicegate_sim::scenario::{self, ServerConfig};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The exit code for files, keys and values that cannot be used.
pub(crate) const BAD_INPUT: u8 = 2;

/// Prints to standard output. Who reads no further, as `head` does, is no failure.
pub(crate) fn say(text: impl std::fmt::Display) {
    // Whole, since not everything that can be shown bears a writer that fails.
    drop(std::io::stdout().write_all(format!("{text}\n").as_bytes()));
}

/// Every story of every file, read and checked before any is run; under the limits of a server's
/// configuration, if one is named.
pub(crate) fn jobs(paths: &[PathBuf], config: Option<&Path>) -> Result<Vec<Job>, String> {
    let config = config.map(self::config).transpose()?;
    let mut jobs = Vec::new();
    for file in files(paths)? {
        let text: Arc<str> = read(&file)?.into();
        let name = file.display().to_string();
        let stories = scenario::read_under(&name, &text, config.as_ref());
        let stories = stories.map_err(|error| error.to_string())?;
        jobs.extend(stories.into_iter().map(|story| Job { story, text: Arc::clone(&text) }));
    }
    Ok(jobs)
}

/// A server's configuration. Its tables that say nothing about the broker are told.
fn config(file: &Path) -> Result<ServerConfig, String> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| {
        format!(
            "cannot read {name}: {error}; `--config` names a server's file, such as \
             `sluicegate-ws config print` writes"
        )
    })?;
    let config = ServerConfig::read(&name, &text).map_err(|error| error.to_string())?;
    if !config.left_out.is_empty() {
        let tables = config.left_out.join(", ");
        eprintln!("{name}: [limits] is in force; a story knows nothing of {tables}");
    }
    Ok(config)
}

/// A scenario's text.
fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| {
        let file = file.display();
        format!("cannot read {file}: {error}; name a scenario in TOML, or a folder of them")
    })
}

/// The files that are named, and the scenarios in the folders that are named.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let no = |error| format!("{}: {error}", path.display());
        let entries = std::fs::read_dir(path).map_err(no)?;
        let entries = entries.map(|entry| entry.map(|entry| entry.path()));
        let mut inside = entries.collect::<Result<Vec<_>, _>>().map_err(no)?;
        inside.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
        if inside.is_empty() {
            let path = path.display();
            return Err(format!("no scenario in {path}: a scenario's name ends in .toml"));
        }
        inside.sort();
        files.extend(inside);
    }
    Ok(files)
}

/// Keeps the stories of one variant.
pub(crate) fn only(jobs: &mut Vec<Job>, variant: &str) -> Result<(), String> {
    let names = jobs.iter().map(|job| job.story.variant.clone());
    let known = std::collections::BTreeSet::from_iter(names.filter(|name| !name.is_empty()));
    jobs.retain(|job| job.story.variant == variant);
    if !jobs.is_empty() {
        return Ok(());
    }
    let known = Vec::from_iter(known).join(", ");
    Err(format!("no scenario has the variant `{variant}`; known: {known}"))
}
