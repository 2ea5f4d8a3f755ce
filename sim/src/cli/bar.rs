//! A bar on a terminal for whatever takes over a second. Nothing is drawn anywhere else.

use sluicegate_sim::batch::Progress;
use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

/// What is quicker needs no bar.
const PATIENCE: Duration = Duration::from_secs(1);
const WIDTH: u64 = 30;

/// One line at the bottom of a terminal.
pub(crate) struct Bar {
    start: std::time::Instant,
    is_terminal: bool,
    drawn: bool,
}

impl Bar {
    #[expect(clippy::disallowed_methods, reason = "a person waits, not the world")]
    pub(crate) fn new() -> Self {
        let (start, is_terminal) = (std::time::Instant::now(), stderr().is_terminal());
        Self { start, is_terminal, drawn: false }
    }

    /// Draws how far it is, when that has taken long enough.
    pub(crate) fn draw(&mut self, progress: Progress) {
        if self.is_terminal && self.start.elapsed() >= PATIENCE {
            self.drawn = true;
            // A terminal that is gone needs no bar.
            drop(write!(stderr(), "\r{}\x1b[K", line(progress)));
        }
    }

    /// Takes the bar away, before something else is printed.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            drop(write!(stderr(), "\r\x1b[K"));
        }
    }
}

fn line(Progress { done, all, thousandths }: Progress) -> String {
    let full = usize::try_from(thousandths * WIDTH / 1000).unwrap_or_default();
    let rest = usize::try_from(WIDTH).unwrap_or_default().saturating_sub(full);
    let percent = thousandths / 10;
    format!("[{}{}] {percent:>3} %, {done} of {all} done", "#".repeat(full), "·".repeat(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_as_long_at_both_ends() {
        let at = |thousandths| line(Progress { done: 1, all: 2, thousandths });
        assert_eq!(at(0), format!("[{}]   0 %, 1 of 2 done", "·".repeat(30)));
        assert_eq!(at(500), format!("[{}{}]  50 %, 1 of 2 done", "#".repeat(15), "·".repeat(15)));
        assert_eq!(at(1000), format!("[{}] 100 %, 1 of 2 done", "#".repeat(30)));
    }
}
