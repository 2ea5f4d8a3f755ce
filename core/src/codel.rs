//! Staleness of one outlet: CoDel in the variant that services use (Facebook's folly,
//! `executors/Codel.cpp`, after Nichols and Jacobson, "Controlling queue delay", 2012).
//!
//! Question:  has this batch waited so long, in a queue that does not drain, that it is dropped?
//! Invariant: `overloaded` changes only when an interval ends, so at most once per interval; it is
//!            true exactly when every sample of the interval before was above the target.
//! When full: nothing is refused here. While overloaded, what waited longer than twice the target
//!            is dropped; what must survive (the last batch of a subscription, in-line control,
//!            what is taken) is kept by the caller, who does not act on the answer.
//! Proof:     `the_first_sample_of_an_interval_is_kept`, `comparisons_are_strict`,
//!            `an_empty_queue_is_a_sample_of_zero`, `one_short_wait_clears_an_interval`,
//!            `silence_ends_an_interval_and_no_more`, `a_clock_that_goes_back_changes_nothing`,
//!            `standing_delay_is_dropped_within_two_intervals`, `staleness_agrees_with_its_model`.

use crate::time::Instant;
use core::time::Duration;

/// When an outlet's queue counts as standing, and what is too old then.
///
/// Off is the absence of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    target: Duration,
    /// Twice the target: what waited longer is too old.
    stale: Duration,
    interval: Duration,
}

impl Settings {
    /// For peers on the same machine: 5 ms in 100 ms.
    pub const LOOPBACK: Self = Self::of(Duration::from_millis(5), Duration::from_millis(100));
    /// For peers behind a network, who may well drain once per round trip: 75 ms in 500 ms.
    pub const REMOTE: Self = Self::of(Duration::from_millis(75), Duration::from_millis(500));

    /// The settings for a target and an interval; none (off) when the target is zero.
    ///
    /// # Panics
    ///
    /// When the interval is not longer than the target: every queue would be judged by one sample.
    pub fn new(target: Duration, interval: Duration) -> Option<Self> {
        if target.is_zero() {
            return None;
        }
        assert!(interval > target, "numbers are checked before they are used");
        Some(Self::of(target, interval))
    }

    const fn of(target: Duration, interval: Duration) -> Self {
        Self { target, stale: target.saturating_mul(2), interval }
    }
}

/// What is remembered of one outlet's queue.
///
/// A new one has seen an empty queue, at the epoch: the first sample opens its first interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Codel {
    /// The last instant of the interval.
    end: Instant,
    /// Every sample of this interval was above the target. (The minimum is above it exactly when
    /// all are, so the minimum itself need not be kept.)
    above: bool,
    /// Every sample of the interval before was.
    overloaded: bool,
}

const _: () = assert!(size_of::<Codel>() == 16);

impl Codel {
    /// An outlet whose queue is empty.
    pub const fn new() -> Self {
        Self { end: Instant::ZERO, above: false, overloaded: false }
    }

    /// A batch that waited for `sojourn` leaves the queue: whether it is to be dropped.
    ///
    /// To be asked once per batch, when it is dequeued, not once per attempt to write it. The
    /// sample counts whatever the caller does with the batch. Cost: O(1).
    #[must_use = "a batch that is too old is dropped by the caller"]
    pub fn observe(&mut self, settings: &Settings, now: Instant, sojourn: Duration) -> bool {
        let above = sojourn > settings.target;
        if now > self.end {
            *self = Self { end: now + settings.interval, above, overloaded: self.above };
            return false;
        }
        self.above &= above;
        self.overloaded && sojourn > settings.stale
    }

    /// The queue was found empty: the same as a batch that did not wait. Cost: O(1).
    pub fn empty(&mut self, settings: &Settings, now: Instant) {
        let stale = self.observe(settings, now, Duration::ZERO);
        debug_assert!(!stale, "nothing is not too old");
    }

    /// Whether the queue stood above the target for the whole interval before.
    pub const fn is_overloaded(&self) -> bool {
        self.overloaded
    }
}

#[cfg(test)]
mod tests;
