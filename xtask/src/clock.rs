//! Elapsed time, for progress lines.

use std::time::{Duration, Instant};

/// Measures from its start.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(
        clippy::disallowed_methods,
        reason = "progress lines show real time and decide nothing"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// Minutes and seconds, as people read them: `3m07s`, `12.4s`.
pub(crate) fn readable(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 {
        format!("{:.1}s", duration.as_secs_f64())
    } else {
        format!("{}m{:02}s", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_readable() {
        assert_eq!(readable(Duration::from_millis(12_400)), "12.4s");
        assert_eq!(readable(Duration::from_secs(187)), "3m07s");
    }
}
