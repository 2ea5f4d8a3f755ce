//! Offers at a rate that does not depend on what comes back (an open loop).

use sluicegate_core::Instant;
use sluicegate_host::clock::Clock;
use std::time::Duration;

/// When the next record is due.
pub(super) struct Pace<'a> {
    rate: Option<u64>,
    began: Instant,
    clock: &'a Clock,
}

impl<'a> Pace<'a> {
    pub(super) fn new(rate: Option<u64>, clock: &'a Clock) -> Self {
        Self { rate, began: clock.now(), clock }
    }

    /// Waits until record `number` is due. Who is late does not wait, and catches up.
    pub(super) async fn wait(&self, number: u64) {
        let Some(rate) = self.rate else { return };
        let due = self.began + Duration::from_nanos(number * 1_000_000_000 / rate.max(1));
        let left = due.since(self.clock.now());
        // Timers of the runtime are of a millisecond: a shorter wait is no wait.
        if left >= Duration::from_millis(1) {
            tokio::time::sleep(left).await;
        }
    }
}
