//! Small changes of core's decisions (cargo-mutants), each of which a test must see. They are tried
//! in shards; one that ended is not tried again while core and how it is tried stay as they are, so
//! that a run that was stopped goes on where it was.

use crate::program::Program;
use crate::survivors;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};
use std::time::Duration;

/// How long a shard may take.
const LIMIT: Duration = Duration::from_secs(2 * 3_600);
const SHARDS: u32 = 12;
/// How many mutants are tried at a time: most of a try is one thread's work.
const JOBS: u32 = 2;

/// The files with core's decisions and books.
const DECISIONS: &[&str] = &[
    "core/src/admission.rs",
    "core/src/backlog.rs",
    "core/src/broker/fan_out.rs",
    "core/src/broker/fan_run.rs",
    "core/src/broker/mesh.rs",
    "core/src/broker/publish.rs",
    "core/src/broker/sources.rs",
    "core/src/egress.rs",
    "core/src/ledger.rs",
    "core/src/mesh.rs",
    "core/src/schedule.rs",
    "core/src/schedule/parked.rs",
    "core/src/schedule/remote.rs",
    "core/src/schedule/room.rs",
    "core/src/shed.rs",
];

/// What the results depend on.
const INPUTS: &[&str] = &["core/", "Cargo.", "rust-toolchain", "xtask/src/mutants.rs"];

/// Tries all of them, with the models' cases cut to `cases` percent. Results are left in `folder`.
pub(crate) fn run(workspace: &Workspace, folder: &str, cases: &str) -> Result<()> {
    let folder = format!("{folder}/mutants-{}", fingerprint(workspace, cases)?);
    let mut missed = String::new();
    for shard in 0..SHARDS {
        missed += &missed_of(workspace, &format!("{folder}/{shard}"), shard, cases)?;
    }
    let others = survivors::unexplained(&missed, &workspace.read(survivors::LIST)?)?;
    others.iter().for_each(|mutant| println!("survived: {mutant}"));
    let many = others.len();
    ensure!(others.is_empty(), "{many} mutants survive that {} does not explain", survivors::LIST);
    Ok(())
}

/// The survivors of one shard, as cargo-mutants lists them.
fn missed_of(workspace: &Workspace, folder: &str, shard: u32, cases: &str) -> Result<String> {
    let read = |name: &str| workspace.read(&format!("{folder}/mutants.out/{name}"));
    let tried = || survivors::tried_all(&read("outcomes.json")?, &read("mutants.json")?);
    if tried().is_ok() {
        println!("shard {shard} of {SHARDS} was tried before: {folder}");
        return read("missed.txt");
    }
    std::fs::create_dir_all(workspace.root.join(folder)).context(folder.to_owned())?;
    let files: String = DECISIONS.iter().map(|file| format!("--file {file} ")).collect();
    let line = format!(
        "cargo mutants --package sluicegate-core --no-shuffle --shard {shard}/{SHARDS} \
         --jobs {JOBS} --output {folder} {files} --timeout 20 -- --lib"
    );
    // Each job builds in a folder of its own: in a shared one each waits for the other's lock, and
    // that counts as the time of its tests.
    let program = Program::new(&line, &workspace.root, LIMIT)
        .without("CARGO_TARGET_DIR")
        .env("SLUICEGATE_CASES_PERCENT", cases)
        .env("PROPTEST_MAX_SHRINK_ITERS", "0")
        .env("CARGO_PROFILE_TEST_DEBUG", "false");
    // It fails as well when a mutant survives that may.
    let ended = program.run();
    match tried() {
        Ok(()) => read("missed.txt"),
        Err(why) => ended.and(Err(why)),
    }
}

/// What core, the versions of what it is built from and the way it is tried are now.
fn fingerprint(workspace: &Workspace, cases: &str) -> Result<String> {
    let mut digest = Sha256::new_with_prefix(cases);
    for file in workspace.files()? {
        if INPUTS.iter().any(|start| file.starts_with(start)) {
            digest.update(file.as_bytes());
            let path = workspace.root.join(&file);
            digest.update(std::fs::read(&path).with_context(|| path.display().to_string())?);
        }
    }
    Ok(digest.finalize().iter().take(4).map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_whose_mutants_are_tried_are_there() {
        let workspace = Workspace::find().unwrap();
        for file in DECISIONS {
            assert!(workspace.root.join(file).is_file(), "{file}");
        }
    }

    #[test]
    fn what_is_tried_otherwise_has_another_folder() {
        let workspace = Workspace::find().unwrap();
        let name = fingerprint(&workspace, "10").unwrap();
        assert_eq!(name, fingerprint(&workspace, "10").unwrap());
        assert_ne!(name, fingerprint(&workspace, "100").unwrap());
        let files = workspace.files().unwrap();
        for input in INPUTS {
            assert!(files.iter().any(|file| file.starts_with(input)), "{input}");
        }
    }
}
