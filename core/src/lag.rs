//! How far behind a subscription is: what is queued for it, and the runs of records it lost.

use crate::notice::Gap;
use alloc::vec::Vec;

/// Batches and their cost in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) batches: u32,
    pub(crate) bytes: u64,
}

impl Load {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.batches += 1;
        self.bytes += bytes;
    }

    pub(crate) fn remove(&mut self, bytes: u64) {
        debug_assert!(self.batches > 0 && self.bytes >= bytes, "only what was added is removed");
        self.batches -= 1;
        self.bytes -= bytes;
    }

    pub(crate) const fn plus(self, other: Self) -> Self {
        Self { batches: self.batches + other.batches, bytes: self.bytes + other.bytes }
    }
}

/// Runs of lost records that the subscriber was not told yet, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gaps(Vec<Gap>);

/// The most runs kept; beyond it the newest two merge.
const RUNS: usize = 32;

impl Gaps {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many runs.
    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Whether something was lost before the record `first`.
    pub(crate) fn before(&self, first: u64) -> bool {
        self.0.first().is_some_and(|gap| gap.first < first)
    }

    /// Books a lost run. It may be older than runs that are kept already. Cost: O(1), at most 32.
    pub(crate) fn add(&mut self, lost: Gap) {
        if let Some(newest) = self.0.last_mut()
            && newest.last + 1 == lost.first
        {
            return join(newest, lost);
        }
        let at = self.0.partition_point(|gap| gap.first < lost.first);
        if at > 0 && self.0[at - 1].last + 1 == lost.first {
            join(&mut self.0[at - 1], lost);
            self.close_up(at - 1);
        } else {
            self.0.insert(at, lost);
            self.close_up(at);
        }
        if self.0.len() > RUNS
            && let Some(newest) = self.0.pop()
            && let Some(last) = self.0.last_mut()
        {
            join(last, newest);
        }
    }

    /// Joins the run at `at` with the next one when nothing lies between them.
    fn close_up(&mut self, at: usize) {
        if at + 1 < self.0.len() && self.0[at].last + 1 == self.0[at + 1].first {
            let next = self.0.remove(at + 1);
            join(&mut self.0[at], next);
        }
    }

    /// Takes the oldest run if it begins before the record `first`.
    pub(crate) fn take_before(&mut self, first: u64) -> Option<Gap> {
        self.before(first).then(|| self.0.remove(0))
    }
}

fn join(run: &mut Gap, next: Gap) {
    run.last = run.last.max(next.last);
    run.records += next.records;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{Place, Reason};

    fn run(first: u64, last: u64) -> Gap {
        Gap {
            first,
            last,
            records: last - first + 1,
            place: Place::Backlog,
            reason: Reason::DropOld,
        }
    }

    #[test]
    fn neighbouring_runs_are_one() {
        let mut gaps = Gaps::default();
        for (first, last) in [(1, 1), (5, 6), (2, 3), (4, 4)] {
            gaps.add(run(first, last));
        }
        assert!(!gaps.before(1) && gaps.before(2));
        assert_eq!(gaps.take_before(7), Some(run(1, 6)));
        assert!(gaps.is_empty());
    }

    #[test]
    fn gaps_merge_with_the_exact_count() {
        let mut gaps = Gaps::default();
        (0..40).for_each(|n| gaps.add(run(n * 2, n * 2)));
        let told: Vec<Gap> = core::iter::from_fn(|| gaps.take_before(u64::MAX)).collect();
        assert_eq!(told.len(), RUNS);
        assert_eq!(told.iter().map(|gap| gap.records).sum::<u64>(), 40);
        assert_eq!((told[31].first, told[31].last, told[31].records), (62, 78, 9));
    }
}
