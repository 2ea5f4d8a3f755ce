//! A copy of the project's tree, to be broken without harm.

use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A copy under the build folder. Files that are the same already are not written again, so that
/// cargo does not rebuild what did not change.
pub(crate) struct TreeCopy {
    pub(crate) root: PathBuf,
}

impl TreeCopy {
    /// Makes, or brings up to date, the copy called `name`.
    pub(crate) fn of(workspace: &Workspace, name: &str) -> Result<Self> {
        let copy = Self { root: workspace.target.join("copies").join(name) };
        copy.refresh(workspace)?;
        Ok(copy)
    }

    /// Makes the copy equal to the tree again: changed files are rewritten, added ones removed.
    pub(crate) fn refresh(&self, workspace: &Workspace) -> Result<()> {
        let files: BTreeSet<PathBuf> = workspace.files()?.into_iter().map(PathBuf::from).collect();
        for file in &files {
            let wanted = fs::read(workspace.root.join(file))
                .with_context(|| format!("cannot read {}", file.display()))?;
            let to = self.root.join(file);
            if fs::read(&to).ok().is_some_and(|found| found == wanted) {
                continue;
            }
            let folder = to.parent().expect("a file of the copy has a folder");
            fs::create_dir_all(folder)
                .and_then(|()| fs::write(&to, wanted))
                .with_context(|| format!("cannot write {}", to.display()))?;
        }
        self.remove_others(&self.root, &files)
    }

    fn remove_others(&self, folder: &Path, files: &BTreeSet<PathBuf>) -> Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let relative = path.strip_prefix(&self.root).expect("it was found beneath the root");
            if path.is_dir() && files.iter().any(|file| file.starts_with(relative)) {
                self.remove_others(&path, files)?;
            } else if path.is_dir() {
                fs::remove_dir_all(&path)?;
            } else if !files.contains(relative) {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }
}
