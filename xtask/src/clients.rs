//! Real clients against the real server: the tests of `clients/`, on Node and on Python.

use crate::apt;
use crate::program::Program;
use crate::workspace::Workspace;
use anyhow::{Result, bail, ensure};
use std::time::Duration;

const BUILD_LIMIT: Duration = Duration::from_secs(900);
const INSTALL_LIMIT: Duration = Duration::from_secs(300);
/// Far over what all of them take, so that a test's own deadline speaks first.
const TEST_LIMIT: Duration = Duration::from_secs(600);

pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let folder = workspace.root.join("clients");
    Program::new("cargo build --release --package sluicegate-ws", &workspace.root, BUILD_LIMIT)
        .run()?;
    let server = workspace.target.join("release/sluicegate-ws");
    install(workspace, "clients")?;
    Program::new("npm test", &folder, TEST_LIMIT).env("SLUICEGATE_WS", &server).run()?;
    let python = install_python(workspace)?;
    Program::new(
        &format!("{python} -B -m unittest discover -v"),
        &folder.join("python"),
        TEST_LIMIT,
    )
    .env("SLUICEGATE_WS", &server)
    .run()
}

/// Makes a virtual environment of what `clients/python/requirements.txt` names, or brings the one
/// that is there up to it. Returns its interpreter.
fn install_python(workspace: &Workspace) -> Result<String> {
    let list = "clients/python/requirements.txt";
    if let Some(line) = unpinned(&workspace.read(list)?) {
        bail!("{list}: `{line}` is no exact version: write NAME==VERSION, and no address");
    }
    let advice = "Python 3 and its module venv are needed by these tests: install them by hand";
    // The module that is missing where a system has split it off.
    let programs = ["python3", "python3 -m ensurepip"];
    apt::ensure_installed(workspace, &programs, "python3 python3-venv", advice)?;
    let folder = workspace.target.join("clients-python");
    let folder = folder.display();
    for line in [
        format!("python3 -m venv {folder}"),
        format!(
            "{folder}/bin/python -m pip install --quiet --no-input --disable-pip-version-check \
             --requirement {list}"
        ),
    ] {
        Program::new(&line, &workspace.root, INSTALL_LIMIT).run()?;
    }
    Ok(format!("{folder}/bin/python"))
}

/// The first line of a list of packages that pins none, or that names where they come from.
fn unpinned(list: &str) -> Option<&str> {
    let plain = |text: &str| {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        !text.is_empty() && text.chars().all(good)
    };
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let is_pinned = |line: &str| {
        line.split_once("==").is_some_and(|(name, version)| plain(name) && plain(version))
    };
    lines.into_iter().find(|line| !is_pinned(line))
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

    #[test]
    fn a_list_of_packages_is_pinned_line_by_line() {
        assert_eq!(unpinned("# why\n\npusher==3.3.4\ncertifi==2026.1.1.post1\n"), None);
        for line in [
            "pusher",
            "pusher>=3",
            "pusher==",
            "pusher==3.*",
            "--index-url https://somewhere/simple",
            "pusher @ https://somewhere/pusher.whl",
            "pusher==3.3.4 --hash=sha256:00",
        ] {
            assert_eq!(unpinned(&format!("pysher==1.0.8\n{line}\n")), Some(line));
        }
    }
}
