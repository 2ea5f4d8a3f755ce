//! Real clients against the real server: the tests of `clients/`, on Node.

use crate::apt;
use crate::program::Program;
use crate::workspace::Workspace;
use anyhow::{Result, ensure};
use std::time::Duration;

const BUILD_LIMIT: Duration = Duration::from_secs(900);
const INSTALL_LIMIT: Duration = Duration::from_secs(300);
/// Over the sum of the tests' own deadlines, so that they speak first.
const TEST_LIMIT: Duration = Duration::from_secs(300);

pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let folder = workspace.root.join("clients");
    Program::new("cargo build --release --package sluicegate-ws", &workspace.root, BUILD_LIMIT)
        .run()?;
    install(workspace, "clients")?;
    Program::new("npm test", &folder, TEST_LIMIT)
        .env("SLUICEGATE_WS", workspace.target.join("release/sluicegate-ws"))
        .run()
}

/// Installs what a folder's `package-lock.json` names, and Node where it is missing.
pub(crate) fn install(workspace: &Workspace, folder: &str) -> Result<()> {
    let lock = workspace.read(&format!("{folder}/package-lock.json"))?;
    ensure!(
        !names_a_registry(&lock),
        "{folder}/package-lock.json names a registry's host: delete it and run `npm install` in \
         {folder}/, whose .npmrc leaves hosts out"
    );
    let advice = "Node 20 and npm are needed by these tests: install them by hand";
    apt::ensure_installed(workspace, &["node", "npm"], "nodejs npm", advice)?;
    Program::new("npm ci --no-audit --no-fund", &workspace.root.join(folder), INSTALL_LIMIT).run()
}

/// Whether a lock file pins addresses, which are one machine's and break on the next.
fn names_a_registry(lock: &str) -> bool {
    lock.contains("\"resolved\"") || lock.contains("http://") || lock.contains("tarball")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_with_addresses_is_found() {
        assert!(!names_a_registry(r#"{"node_modules/pusher": {"version": "5.3.4"}}"#));
        assert!(names_a_registry(r#"{"resolved": "https://somewhere/pusher-5.3.4.tgz"}"#));
    }
}
