//! The simulator's HTML report and the QUIC broker's live page as a person sees them: the tests of
//! `sim/browser/`, in Chromium.

use crate::program::Program;
use crate::workspace::Workspace;
use crate::{apt, clients};
use anyhow::Result;
use std::time::Duration;

const BUILD_LIMIT: Duration = Duration::from_secs(900);
const TEST_LIMIT: Duration = Duration::from_secs(300);
/// Names under which systems have the browser, the first choice first.
const BROWSERS: &[&str] = &["chromium", "google-chrome", "chromium-browser"];

pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let build = "cargo build --release --package sluicegate-sim --package sluicegate-quic";
    Program::new(build, &workspace.root, BUILD_LIMIT).run()?;
    let browser = browser(workspace)?;
    clients::install(workspace, "sim/browser")?;
    Program::new("npm test", &workspace.root.join("sim/browser"), TEST_LIMIT)
        .env("SLUICEGATE_SIM", workspace.target.join("release/sluicegate-sim"))
        .env("SLUICEGATE_QUIC", workspace.target.join("release/sluicegate-quic"))
        .env("SLUICEGATE_BROWSER", browser)
        .run()
}

/// The path of a browser of the Chromium family; it is installed where there is none.
fn browser(workspace: &Workspace) -> Result<String> {
    let found = BROWSERS.iter().copied().find(|name| apt::answers(name));
    let name = found.unwrap_or(BROWSERS[0]);
    let advice = "Chromium is needed to look at the pages: install it by hand";
    apt::ensure_installed(workspace, &[name], "chromium", advice)?;
    let line = format!("which {name}");
    let path = Program::new(&line, &workspace.root, Duration::from_secs(10)).capture_output()?;
    Ok(path.text.trim().to_owned())
}
