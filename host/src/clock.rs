//! The only place where clocks are read.

use sluicegate_core::Instant;

/// The process's clock: monotonic time since it was started, for the core, and the calendar's
/// seconds, for signatures that expire.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    epoch: std::time::Instant,
}

impl Clock {
    /// A clock whose epoch is now.
    #[expect(clippy::disallowed_methods, reason = "the one place where time enters")]
    pub fn start() -> Self {
        Self { epoch: std::time::Instant::now() }
    }

    /// Time since the epoch. It never goes backwards.
    pub fn now(&self) -> Instant {
        let nanos = self.epoch.elapsed().as_nanos();
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Seconds since the start of 1970, UTC; 0 on a machine whose calendar is before it.
    pub fn unix_seconds(&self) -> u64 {
        self.unix_millis() / 1_000
    }

    /// The same in milliseconds.
    #[expect(clippy::disallowed_methods, reason = "the one place where time enters")]
    pub fn unix_millis(&self) -> u64 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_starts_near_zero_and_goes_forward() {
        let clock = Clock::start();
        let first = clock.now();
        assert!(first < Instant::from_millis(60_000), "{first:?}");
        assert!(clock.now() >= first);
        assert!(clock.unix_seconds() > 1_600_000_000);
    }
}
