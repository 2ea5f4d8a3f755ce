//! Running other programs: their output streams through, and nothing is waited for without a limit.

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::io::{PipeReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

/// The most output that is kept of a captured program. The rest is read and thrown away.
const KEPT_BYTES: u64 = 4 << 20;
/// How long a killed program may take to be gone.
const KILL_WAIT: Duration = Duration::from_secs(10);

/// A program to run.
pub(crate) struct Program {
    command: Command,
    shown: String,
    limit: Duration,
}

/// What a captured program did.
pub(crate) struct Captured {
    pub(crate) success: bool,
    /// Its output and its errors, as they came.
    pub(crate) text: String,
}

impl Program {
    /// `line` is split at blanks: a program and its arguments, as a person would type them.
    pub(crate) fn new(line: &str, folder: &Path, limit: Duration) -> Self {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().expect("a command line names a program"));
        command.args(words).current_dir(folder).stdin(Stdio::null());
        Self { command, shown: line.to_owned(), limit }
    }

    pub(crate) fn env(mut self, key: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    /// It does not see this variable of ours.
    pub(crate) fn without(mut self, key: &str) -> Self {
        self.command.env_remove(key);
        self
    }

    /// Its property tests try the same cases on every machine and in every run.
    pub(crate) fn same_cases(self) -> Self {
        self.env("PROPTEST_RNG_SEED", "1")
    }

    /// Runs it with its output on ours. An error if it fails or passes its time limit.
    pub(crate) fn run(self) -> Result<()> {
        println!("$ {}", self.shown);
        self.relay()
    }

    /// The same, for a program whose output is all that ours may have: nothing is added to it.
    pub(crate) fn relay(mut self) -> Result<()> {
        let child = self.command.spawn().with_context(|| self.not_started())?;
        let status = self.wait(child)?;
        ensure!(status.success(), "`{}` ended with {status}", self.shown);
        Ok(())
    }

    /// Runs it and keeps all it prints. An error only if it cannot run or passes its time limit.
    pub(crate) fn capture(mut self) -> Result<Captured> {
        let (reader, writer) = std::io::pipe().context("no pipe")?;
        self.command.stdout(writer.try_clone().context("no pipe")?).stderr(writer);
        self.captured(reader)
    }

    /// Runs it, and shows what it prints only when it fails: then that is in the error. For where
    /// our own output is read by a program.
    pub(crate) fn run_quietly(self) -> Result<()> {
        let shown = self.shown.clone();
        eprintln!("$ {shown}");
        let captured = self.capture()?;
        ensure!(captured.success, "`{shown}` failed:\n{}", captured.text);
        Ok(())
    }

    /// The same as [`capture`](Self::capture), but keeps only its output; its errors are printed
    /// with ours.
    pub(crate) fn capture_output(mut self) -> Result<Captured> {
        println!("$ {}", self.shown);
        let (reader, writer) = std::io::pipe().context("no pipe")?;
        self.command.stdout(writer);
        self.captured(reader)
    }

    fn captured(mut self, reader: PipeReader) -> Result<Captured> {
        let child = self.command.spawn().with_context(|| self.not_started())?;
        // The command holds writing ends of the pipe; the reader ends when all are closed.
        self.command.stdout(Stdio::null()).stderr(Stdio::null());
        let (tell, hear) = sync_channel(1);
        thread::spawn(move || tell.send(keep(reader)));
        let status = self.wait(child)?;
        let text = hear
            .recv_timeout(KILL_WAIT)
            .with_context(|| format!("`{}` left a process that holds its output", self.shown))?;
        Ok(Captured { success: status.success(), text })
    }

    fn not_started(&self) -> String {
        format!("cannot start `{}`: is it installed?", self.shown)
    }

    fn wait(&self, mut child: Child) -> Result<ExitStatus> {
        let pid = child.id();
        let (tell, hear) = sync_channel(1);
        thread::spawn(move || tell.send(child.wait()));
        if let Ok(status) = hear.recv_timeout(self.limit) {
            return status.with_context(|| format!("cannot wait for `{}`", self.shown));
        }
        kill_tree(pid)?;
        let gone = hear.recv_timeout(KILL_WAIT).is_ok();
        bail!(
            "`{}` was killed after its limit of {} s{}",
            self.shown,
            self.limit.as_secs(),
            if gone { "" } else { ", and does not end" }
        )
    }
}

fn keep(mut reader: PipeReader) -> String {
    let mut kept = Vec::new();
    // What cannot be read is as good as not written: the caller judges by what it finds.
    drop(reader.by_ref().take(KEPT_BYTES).read_to_end(&mut kept));
    drop(std::io::copy(&mut reader, &mut std::io::sink()));
    String::from_utf8_lossy(&kept).into_owned()
}

/// Kills a process and everything it started. The family is listed before anyone is killed, since
/// orphans lose their parent.
fn kill_tree(root: u32) -> Result<()> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some(parent) = parent(&stat) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut family = vec![root];
    let mut next = 0;
    while let Some(&pid) = family.get(next) {
        family.extend(children.get(&pid).into_iter().flatten());
        next += 1;
    }
    let pids: Vec<String> = family.iter().map(u32::to_string).collect();
    // The shell's own `kill`: it is there where no other is. It fails if one has ended by itself.
    let line = format!("kill -KILL {} 2>/dev/null || true", pids.join(" "));
    Command::new("sh").args(["-c", &line]).status().context("cannot run sh")?;
    Ok(())
}

/// The parent's id out of a process's `stat`. Its second field, the name, may hold anything.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_program_that_fails_is_an_error_that_names_it() {
        let here = Path::new(".");
        Program::new("true", here, LONG).run().unwrap();
        let error = Program::new("false", here, LONG).run().unwrap_err().to_string();
        assert!(error.contains("`false` ended with"), "{error}");
        let error = Program::new("no-such-program", here, LONG).run().unwrap_err().to_string();
        assert!(error.contains("is it installed?"), "{error}");
    }

    #[test]
    fn what_is_printed_is_captured() {
        let captured = Program::new("ls no-such-file .", Path::new("."), LONG).capture().unwrap();
        assert!(!captured.success);
        assert!(captured.text.contains("no-such-file"), "{}", captured.text);
        assert!(captured.text.contains("Cargo.toml"), "{}", captured.text);
        let program = Program::new("ls no-such-file .", Path::new("."), LONG);
        let text = program.capture_output().unwrap().text;
        assert!(text.contains("Cargo.toml") && !text.contains("no-such-file"), "{text}");
    }

    #[test]
    fn a_program_over_its_limit_is_killed_with_its_children() {
        // If the grandchild survived, it would hold the pipe and the capture would say so.
        let limit = Duration::from_millis(200);
        let mut program = Program::new("sh", Path::new("."), limit);
        program.command.args(["-c", "sleep 600 & sleep 600; true"]);
        let error = program.capture().err().expect("it cannot end in time").to_string();
        assert!(error.contains("was killed after its limit"), "{error}");
        assert!(!error.contains("does not end"), "{error}");
    }

    #[test]
    fn the_parent_is_found_behind_a_hostile_name() {
        assert_eq!(parent("17 (a) b (c) S 4 17 17 0"), Some(4));
        assert_eq!(parent("17 (sh) S 1 17"), Some(1));
        assert_eq!(parent(""), None);
    }
}
