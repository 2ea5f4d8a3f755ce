//! Connections that were not let in: why, how many, and when that is told.

use sluicegate_core::Instant;
use std::time::Duration;

/// Lines about one reason are this far apart: somebody who knocks for ever fills no disk.
const PACE: Duration = Duration::from_secs(1);

/// Why a connection was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwelcome {
    /// The core had no room for it.
    Busy,
    /// Too many others were about to say who they are, of its address or in all.
    Crowded,
    /// Its handshake failed.
    Handshake,
    /// It went away before it had said who it is.
    Left,
    /// What it said could not be read.
    Malformed,
    /// It had not said who it is in time.
    TimedOut,
    /// Its token does not open its tenant.
    Unauthenticated,
    /// It said something else first.
    Unexpected,
    /// No version of the protocol in common.
    Version,
}

impl Unwelcome {
    /// All of them, in their order.
    pub const ALL: [Self; 9] = [
        Self::Busy,
        Self::Crowded,
        Self::Handshake,
        Self::Left,
        Self::Malformed,
        Self::TimedOut,
        Self::Unauthenticated,
        Self::Unexpected,
        Self::Version,
    ];

    /// Its label in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Crowded => "crowded",
            Self::Handshake => "handshake",
            Self::Left => "left",
            Self::Malformed => "malformed",
            Self::TimedOut => "timed_out",
            Self::Unauthenticated => "unauthenticated",
            Self::Unexpected => "unexpected",
            Self::Version => "version",
        }
    }
}

/// How many were not let in, and how many had to prove their address first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strangers {
    /// By reason, in the order of [`Unwelcome::ALL`].
    refused: [u64; Unwelcome::ALL.len()],
    /// Those that were asked to come again with a proof that they are where they say.
    pub retried: u64,
}

impl Strangers {
    /// Counts one that was not let in.
    pub const fn refuse(&mut self, why: Unwelcome) {
        self.refused[why as usize] += 1;
    }

    /// How many were not let in for this reason.
    pub const fn refused(&self, why: Unwelcome) -> u64 {
        self.refused[why as usize]
    }
}

impl std::ops::AddAssign for Strangers {
    fn add_assign(&mut self, other: Self) {
        for (sum, part) in self.refused.iter_mut().zip(other.refused) {
            *sum += part;
        }
        self.retried += other.retried;
    }
}

/// When a line about each reason is due.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told([(Option<Instant>, u64); Unwelcome::ALL.len()]);

impl Told {
    /// One was not let in: how many of its reason were not told since the last line, if one is due
    /// now. Cost: O(1).
    pub fn note(&mut self, why: Unwelcome, now: Instant) -> Option<u64> {
        let (next, untold) = &mut self.0[why as usize];
        if next.is_some_and(|next| now < next) {
            *untold += 1;
            return None;
        }
        *next = Some(now + PACE);
        Some(std::mem::take(untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_told_once_a_second_with_what_was_not() {
        let mut told = Told::default();
        let mut note = |why, millis| told.note(why, Instant::from_millis(millis));
        assert_eq!(note(Unwelcome::Version, 5), Some(0));
        assert_eq!(note(Unwelcome::Version, 6), None);
        assert_eq!(note(Unwelcome::Left, 7), Some(0));
        assert_eq!(note(Unwelcome::Version, 1_004), None);
        assert_eq!(note(Unwelcome::Version, 1_005), Some(2));
        assert_eq!(note(Unwelcome::Version, 3_000), Some(0));
    }

    #[test]
    fn the_order_of_all_is_that_of_the_counts() {
        let mut strangers = Strangers::default();
        for (at, why) in Unwelcome::ALL.into_iter().enumerate() {
            (0..=at).for_each(|_| strangers.refuse(why));
        }
        let mut sum = strangers;
        sum += strangers;
        for (at, why) in Unwelcome::ALL.into_iter().enumerate() {
            assert_eq!(sum.refused(why), 2 * (at as u64 + 1), "{}", why.name());
        }
    }
}
