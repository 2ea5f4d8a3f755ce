//! The proof that core links no std, and the proof that the proof can fail.

use crate::copy::TreeCopy;
use crate::program::Program;
use crate::workspace::{Workspace, read};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);
const FOLDER: &str = "core/no-std-check";
/// What the compiler says when std is linked too.
const CONVICTION: &str = "found duplicate lang item `panic_impl`";

pub(crate) fn run(workspace: &Workspace, self_test: bool) -> Result<()> {
    build(&workspace.root, target(workspace)).run().context(
        "the proof does not build; if the compiler found a duplicate lang item, core links std: \
         look for a missing `#![no_std]`, or for a dependency whose default features are on",
    )?;
    println!("core links no std");
    if self_test { prove_that_it_can_fail(workspace) } else { Ok(()) }
}

fn prove_that_it_can_fail(workspace: &Workspace) -> Result<()> {
    let copy = TreeCopy::of(workspace, "no-std")?;
    let crate_root = copy.root.join("core/src/lib.rs");
    let planted = read(&crate_root)? + "\nextern crate std as planted;\n";
    std::fs::write(&crate_root, planted)?;
    let captured = build(&copy.root, copy.root.with_extension("target")).capture()?;
    ensure!(
        !captured.success && captured.text.contains(CONVICTION),
        "a copy of core that links std was not convicted; the compiler said:\n{}",
        captured.text
    );
    println!("a copy of core that links std does not compile, as it must be");
    Ok(())
}

fn build(root: &Path, target: PathBuf) -> Program {
    Program::new("cargo build --locked", &root.join(FOLDER), LIMIT)
        .env("CARGO_TARGET_DIR", target)
        // Nothing else builds core without the features that the simulator and the tests ask for.
        .env("RUSTFLAGS", "-D warnings")
}

/// The proof's own build folder: it is outside the workspace.
pub(crate) fn target(workspace: &Workspace) -> PathBuf {
    workspace.target.join("no-std")
}
