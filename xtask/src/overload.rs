//! The Pusher server under twice the load that it can carry: `bench/examples/overload/`.

use crate::program::Program;
use crate::workspace::Workspace;
use anyhow::Result;
use std::time::Duration;

const BUILD_LIMIT: Duration = Duration::from_secs(1_800);
/// Far over what the longest overload that may be asked for takes.
const LIMIT: Duration = Duration::from_secs(1_200);

/// What the load is told.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Passed on, such as `--json` or `--seconds 10`; `-- --help` says what there is.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
    options: Vec<String>,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    for line in [
        "cargo build --release --locked --package sluicegate-ws",
        "cargo build --release --locked --package sluicegate-bench --example overload",
    ] {
        Program::new(line, &workspace.root, BUILD_LIMIT).run_quietly()?;
    }
    let release = workspace.target.join("release");
    let line = format!(
        "{}/examples/overload --server {}/sluicegate-ws {}",
        release.display(),
        release.display(),
        options.options.join(" ")
    );
    Program::new(&line, &workspace.root, LIMIT).relay()
}

/// With what is measured when nothing is said.
pub(crate) fn step(workspace: &Workspace) -> Result<()> {
    run(workspace, &Options { options: Vec::new() })
}
