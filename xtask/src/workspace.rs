//! Where things are: the project's folder, the build folder, the files that belong to the project.

use anyhow::{Context, Result, ensure};
use cargo_metadata::{Metadata, MetadataCommand};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The project on this machine.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    /// Where cargo builds; copies of the tree are made beneath it.
    pub(crate) target: PathBuf,
    /// The members, without their dependencies.
    pub(crate) members: Metadata,
}

impl Workspace {
    /// The project that this `cargo xtask` belongs to, else the current folder's.
    pub(crate) fn find() -> Result<Self> {
        let start = match std::env::var_os("CARGO_MANIFEST_DIR") {
            Some(folder) => PathBuf::from(folder),
            None => std::env::current_dir().context("no current folder")?,
        };
        let members = MetadataCommand::new()
            .current_dir(&start)
            .no_deps()
            .exec()
            .context("`cargo metadata` failed: run it by hand in the project's folder")?;
        Ok(Self {
            root: members.workspace_root.clone().into(),
            target: members.target_directory.clone().into(),
            members,
        })
    }

    /// The files of the project, relative to its root, sorted: what git tracks, and what it would
    /// track if it were added now.
    pub(crate) fn files(&self) -> Result<Vec<String>> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&self.root)
            .output()
            .context("cannot run git: install it, `git ls-files` names the project's files")?;
        ensure!(
            output.status.success(),
            "`git ls-files` failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let text = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
        let mut files: Vec<String> = text
            .split('\0')
            .filter(|name| !name.is_empty() && self.root.join(name).is_file())
            .map(str::to_owned)
            .collect();
        files.sort();
        files.dedup();
        Ok(files)
    }

    pub(crate) fn read(&self, file: &str) -> Result<String> {
        read(&self.root.join(file))
    }
}

/// A text file.
pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
