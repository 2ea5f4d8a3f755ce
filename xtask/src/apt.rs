//! Programs that the project needs and cargo does not bring.

use crate::program::Program;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);

/// Installs `packages` where one of `programs` is missing and apt can. `advice` is told when it
/// cannot.
pub(crate) fn ensure_installed(
    workspace: &Workspace,
    programs: &[&str],
    packages: &str,
    advice: &str,
) -> Result<()> {
    if programs.iter().all(|program| answers(program)) {
        return Ok(());
    }
    for line in ["apt-get update".to_owned(), format!("apt-get install -y {packages}")] {
        Program::new(&line, &workspace.root, LIMIT)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .run_quietly()
            .with_context(|| advice.to_owned())?;
    }
    let silent = programs.iter().find(|program| !answers(program));
    ensure!(silent.is_none(), "{advice}");
    Ok(())
}

/// Whether a program, or one with a command or module, starts and says its version.
pub(crate) fn answers(program: &str) -> bool {
    let mut words = program.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or(program));
    command.args(words).arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_does_not_answer() {
        assert!(answers("cargo") && answers("cargo clippy"));
        assert!(!answers("no-such-program") && !answers("cargo no-such-command"));
    }

    #[test]
    fn what_is_there_is_not_installed() {
        let workspace = Workspace::find().unwrap();
        ensure_installed(&workspace, &["cargo"], "no-such-package", "advice").unwrap();
    }
}
