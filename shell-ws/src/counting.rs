//! When the subscribers of a channel are told how many they are: once per turn of the loop in which
//! the number changed, and in large channels not more often than every five seconds.

use crate::note::Name;
use sluicegate_core::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Up to so many subscriptions each change is told.
const SMALL: u64 = 100;

/// How long a larger channel waits for the next word.
const PAUSE: Duration = Duration::from_secs(5);

/// The channels whose number is to be told. Bounded by the channels that changed in the last five
/// seconds.
#[derive(Debug, Default)]
pub struct Counting {
    /// Told at the end of this turn.
    fresh: BTreeSet<Name>,
    /// Told lately; and whether the number has changed since.
    paused: BTreeMap<Name, bool>,
    /// Until when, in order. Invariant: each of `paused` once.
    until: VecDeque<(Instant, Name)>,
}

impl Counting {
    /// The number of a channel has changed. Cost: O(log channels).
    pub fn note(&mut self, name: &Name) {
        match self.paused.get_mut(name) {
            Some(changed) => *changed = true,
            None => {
                self.fresh.insert(name.clone());
            }
        }
    }

    /// A channel whose number is to be told now. Call until there is none.
    pub fn due(&mut self, now: Instant) -> Option<Name> {
        while self.until.front().is_some_and(|(at, _)| *at <= now) {
            let (_, name) = self.until.pop_front().expect("just looked at");
            if self.paused.remove(&name) == Some(true) {
                self.fresh.insert(name);
            }
        }
        self.fresh.pop_first()
    }

    /// A channel was told this number, or could not be told.
    pub fn told(&mut self, name: Name, count: u64, is_told: bool, now: Instant) {
        if count <= SMALL && is_told {
            return;
        }
        self.until.push_back((now + PAUSE, name.clone()));
        self.paused.insert(name, !is_told);
    }

    /// When there is something to tell.
    pub fn next(&self) -> Option<Instant> {
        match self.fresh.is_empty() {
            true => self.until.front().map(|(at, _)| *at),
            false => Some(Instant::ZERO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_core::TenantId;

    fn name(text: &str) -> Name {
        Name { tenant: TenantId::from_bits(1), text: text.into() }
    }

    /// What is told of a channel with this many subscriptions that changes every 100 ms.
    fn times(count: u64, is_told: bool) -> Vec<u64> {
        let mut counting = Counting::default();
        let mut times = Vec::new();
        for ms in (0..12_000).step_by(100) {
            let now = Instant::from_millis(ms);
            counting.note(&name("a"));
            counting.note(&name("a"));
            while let Some(name) = counting.due(now) {
                times.push(ms);
                counting.told(name, count, is_told, now);
            }
        }
        times
    }

    #[test]
    fn small_channels_are_told_at_once_and_large_ones_every_five_seconds() {
        assert_eq!(times(100, true).len(), 120);
        assert_eq!(times(101, true), [0, 5_000, 10_000]);
        assert_eq!(times(5, false), [0, 5_000, 10_000], "what found no room is tried again later");
    }

    #[test]
    fn the_last_number_is_told_after_the_last_change() {
        let mut counting = Counting::default();
        let at = Instant::from_millis;
        counting.note(&name("a"));
        assert!(counting.next().is_some());
        let due = counting.due(at(0)).unwrap();
        counting.told(due, 200, true, at(0));
        counting.note(&name("a"));
        assert_eq!(counting.due(at(4_999)), None);
        assert_eq!(counting.next(), Some(at(5_000)));
        let due = counting.due(at(5_000)).unwrap();
        counting.told(due, 200, true, at(5_000));
        assert_eq!(counting.due(at(10_000)), None);
        assert_eq!(counting.next(), None);
    }
}
