//! What the commands about tapes share: reading and writing them, verdicts, and a line that says
//! how far it is.

use sluicegate_core::{Limits, Tape};
use sluicegate_sim::batch::{Ended, Run};
use sluicegate_sim::judge::{Conviction, Kind};
use sluicegate_sim::record;
use sluicegate_sim::scenario::{Story, set_limit};
use std::fs::File;
use std::io::{IsTerminal, Read, Write, stderr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The largest tape that is read.
const MOST_BYTES: u64 = 1 << 30;
/// What is quicker needs no line.
const PATIENCE: Duration = Duration::from_secs(1);

/// The bytes of a tape.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let no = |error| format!("cannot read {}: {error}; name a tape", path.display());
    let file = File::open(path).map_err(no)?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(no)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(format!("{} is larger than a tape may be: 1 GiB", path.display()));
    }
    Ok(bytes)
}

/// What is on a tape.
pub(crate) fn open<'a>(path: &Path, bytes: &'a [u8]) -> Result<Tape<'a>, String> {
    Tape::read(bytes).map_err(|damage| format!("{}: {damage}", path.display()))
}

pub(crate) fn write(path: &Path, tape: &[u8]) -> Result<(), String> {
    std::fs::write(path, tape).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// The tape of a story, as far as it goes.
pub(crate) fn recorded(story: &Story) -> Result<Vec<u8>, String> {
    std::panic::catch_unwind(|| record(story))
        .unwrap_or_else(|_| Err("the core crashed while the tape was written".to_owned()))
}

/// Writes the tape of a story that ran: when it was asked for, or when a judge convicted it.
pub(crate) fn keep(run: &Run, asked: Option<&Path>) -> Result<(), String> {
    let Ended::Ran(outcome) = &run.ended else { return Ok(()) };
    let story = &run.job.story;
    let path = match (asked, &outcome.conviction) {
        (Some(path), _) => path.to_owned(),
        (None, Some(_)) => {
            let letters = |c: char| if c.is_alphanumeric() { c } else { '-' };
            let name: String = story.name().chars().map(letters).collect();
            PathBuf::from(format!("{}-{}.tape", name.trim_end_matches('-'), story.seed))
        }
        (None, None) => return Ok(()),
    };
    write(&path, &recorded(story)?)?;
    eprintln!("tape: sluicegate-sim replay {}", path.display());
    Ok(())
}

/// Whether a file that a flag names could be written, before anything runs that takes long.
pub(crate) fn check_place(flag: &str, path: &Path) -> Result<(), String> {
    let name = path.display();
    if path.is_dir() {
        return Err(format!("`{flag} {name}` is a folder: name a file in it"));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        let folder = folder.display();
        return Err(format!("`{flag} {name}`: there is no folder {folder}: make it first"));
    }
    if path.exists() {
        let opened = File::options().append(true).open(path);
        opened.map_err(|error| format!("`{flag} {name}` cannot be written: {error}"))?;
    }
    Ok(())
}

/// Sets limits as `--set` names them: `key=value`, the value as stories write it.
pub(crate) fn set(limits: &mut Limits, settings: &[String]) -> Result<(), String> {
    for setting in settings {
        let (name, value) = setting
            .split_once('=')
            .ok_or_else(|| format!("`--set {setting}`: write a limit and its value: key=value"))?;
        set_limit(limits, name.trim(), value.trim())
            .map_err(|error| format!("`--set {setting}`: {error}"))?;
    }
    limits.check().map_err(|error| error.to_string())
}

/// The exit code of a verdict: 3 safety, 4 liveness, 5 a crash.
pub(crate) fn code(conviction: &Conviction) -> u8 {
    match conviction.finding.kind {
        _ if conviction.finding.judge == "crash" => 5,
        Kind::Safety => 3,
        Kind::Liveness => 4,
    }
}

/// A verdict for programs.
pub(crate) fn verdict(conviction: Option<&Conviction>) -> serde_json::Value {
    conviction.map_or(serde_json::Value::Null, |conviction| {
        serde_json::json!({
            "judge": conviction.finding.judge,
            "what": conviction.finding.what,
            "at_ns": conviction.at,
            "events": conviction.events,
            "replay": conviction.command,
        })
    })
}

/// How long something takes, and a line about it on a terminal.
pub(crate) struct Watch {
    start: Instant,
    last: Duration,
    is_terminal: bool,
    drawn: bool,
}

impl Watch {
    #[expect(clippy::disallowed_methods, reason = "a person waits, not the world")]
    pub(crate) fn new() -> Self {
        let is_terminal = stderr().is_terminal();
        Self { start: Instant::now(), last: Duration::ZERO, is_terminal, drawn: false }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Draws a line, ten times per second at most.
    pub(crate) fn draw(&mut self, text: impl FnOnce() -> String) {
        let now = self.elapsed();
        if self.is_terminal && now >= PATIENCE && now >= self.last + PATIENCE / 10 {
            (self.drawn, self.last) = (true, now);
            // A terminal that is gone needs no line.
            drop(write!(stderr(), "\r{}\x1b[K", text()));
        }
    }

    /// Takes the line away, before something else is printed.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            drop(write!(stderr(), "\r\x1b[K"));
        }
    }
}

/// A bar that is full at 1000 thousandths.
pub(crate) fn bar(thousandths: u64) -> String {
    let full = usize::try_from(thousandths.min(1_000) * 30 / 1_000).unwrap_or(0);
    format!("[{}{}]", "#".repeat(full), "·".repeat(30 - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_set_with_units_and_told_what_is_wrong() {
        let mut limits = Limits::default();
        let good = ["high_water_bytes=4KiB", "egress_shed=1", "codel_interval_ms=1s"];
        set(&mut limits, &good.map(str::to_owned)).unwrap();
        assert_eq!((limits.high_water_bytes, limits.egress_shed), (4_096, 1));
        assert_eq!(limits.codel_interval_ms, 1_000);
        for (setting, what) in [
            ("egress_shed", "key=value"),
            ("high_water_bites=1", "unknown limit `high_water_bites`; did you mean `high_water_"),
            ("egress_shed=2", "must be between 0 and 1"),
            ("high_water_bytes=4ms", "`high_water_bytes = 4ms` must be a size such as 512"),
            ("codel_target_ms=4KiB", "`codel_target_ms = 4KiB` must be a number of milliseconds"),
            ("codel_target_ms=1us", "must be a number of milliseconds"),
            ("high_water_bytes=99999999999999999999", "must be a size"),
            ("max_frame_bytes=64MiB", "needs it to be at least"),
        ] {
            let error = set(&mut Limits::default(), &[setting.to_owned()]).unwrap_err();
            assert!(error.contains(what), "{setting}: {error}");
        }
    }

    #[test]
    fn the_bar_is_as_long_at_both_ends() {
        for thousandths in [0, 500, 1_000, 2_000] {
            assert_eq!(bar(thousandths).chars().count(), 32);
        }
    }
}
