//! Time for a shard, from its runtime: virtual where that is.

use sluicegate_core::Instant;

/// Time since the shard was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    epoch: tokio::time::Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { epoch: tokio::time::Instant::now() }
    }

    pub(crate) fn now(self) -> Instant {
        let nanos = self.epoch.elapsed().as_nanos();
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// When that is, for the runtime's timers.
    pub(crate) fn at(self, instant: Instant) -> tokio::time::Instant {
        self.epoch + instant.since(Instant::ZERO)
    }
}

/// Milliseconds since 1970, UTC.
pub(crate) fn unix_millis() -> u64 {
    sluicegate_host::clock::Clock::start().unix_millis()
}
