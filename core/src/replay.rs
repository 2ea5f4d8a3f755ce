//! A topic's replay log: its newest kept batches, held for subscriptions that start in the past.
//!
//! Question:  from which batch can a subscription start, and which batch comes next?
//! Invariant: the log is a suffix of what the topic was told to keep, in order. What it was not
//!            told to keep is a hole; what it was told to keep is counted without holes.
//! When full: the oldest batch goes, by records, bytes or age, whichever bound is met first; a
//!            subscription that still needed it gets a gap with reason `retention`.
//! Proof:     `the_log_keeps_the_newest_within_its_bounds`, `a_start_is_found_or_clamped`,
//!            `what_was_never_kept_counts_for_nothing`, `books_close_under_random_operations`.

use crate::ledger::Tally;
use crate::memory::Memory;
use alloc::collections::VecDeque;
use core::num::NonZeroU32;

/// What a topic keeps of a batch, for subscriptions that start in the past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// What the server's `retention_records` says.
    #[default]
    Default,
    /// The batch; and with it the topic keeps at most this many of its newest records, whatever
    /// `retention_records` is. The newest batch stays, however many records it has.
    /// `retention_bytes` and `retention_ms` hold.
    Newest(NonZeroU32),
    /// Nothing of it. What was kept before stays.
    No,
}

/// Where a subscription starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With the next batch.
    #[default]
    Tail,
    /// With the oldest batch that is held.
    Earliest,
    /// With the batch that holds the n-th newest of the records that were kept.
    Last(u64),
    /// With the batch that holds this record of the topic's life with this epoch. Of another
    /// epoch: with the oldest batch that is held.
    At {
        /// The topic's epoch, as it was told before.
        epoch: u64,
        /// The record's sequence number.
        sequence: u64,
    },
}

/// Bytes charged for an entry of a log besides its message, and for what a subscription remembers
/// of its past.
pub(crate) const ENTRY: u64 = size_of::<Entry>() as u64;
pub(crate) const PAST: u64 = size_of::<Past>() as u64;

/// Bounds of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

/// A batch of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) message: u32,
    /// What the log was told to keep before it, since it was empty.
    pub(crate) before: Tally,
}

impl Entry {
    fn after(&self, memory: &Memory) -> Tally {
        let mut all = self.before;
        all += memory.get(self.message).tally;
        all
    }
}

/// Where a batch is: its first sequence number, the bytes of the topic before it, and what of
/// those records and bytes the log was told to keep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    pub(crate) first: u64,
    pub(crate) offset: u64,
    pub(crate) before: Tally,
}

/// What a subscription gets of the records from before it began: those that were kept. What was
/// not is no loss to it; what is sequenced later is, when the log does not have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Past {
    /// Where the topic was when it began: the next sequence number, and the bytes before it.
    pub(crate) next: u64,
    pub(crate) offset: u64,
    /// All that the log had been told to keep by then.
    pub(crate) whole: Tally,
    /// What of that is before the next batch that it gets.
    pub(crate) before: Tally,
}

impl Past {
    /// Whether it has got, or lost, all of it.
    pub(crate) fn is_over(&self) -> bool {
        self.before == self.whole
    }
}

/// The newest kept batches of a topic, oldest first. Holds one reference to each.
#[derive(Debug, Default)]
pub(crate) struct Log {
    entries: VecDeque<Entry>,
    records: u64,
    /// Cost of the messages.
    bytes: u64,
}

impl Log {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All that it was told to keep since it was empty, also what it has lost of that. Whoever
    /// needs a batch from before then has lost it.
    pub(crate) fn kept(&self, memory: &Memory) -> Tally {
        self.entries.back().map_or(Tally::ZERO, |entry| entry.after(memory))
    }

    /// Appends a batch that the topic just sequenced. Cost: O(1) amortised, over
    /// [`excess`](Self::excess) too.
    pub(crate) fn push(&mut self, memory: &mut Memory, message: u32) {
        let before = self.kept(memory);
        memory.retain(message, 1);
        memory.charge(ENTRY);
        let held = memory.get(message);
        self.records += held.tally.records;
        self.bytes += held.cost;
        self.entries.push_back(Entry { message, before });
    }

    /// Whether the oldest batch is over the bounds. The newest one stays.
    pub(crate) fn excess(&self, bounds: Bounds) -> bool {
        let over = self.records > bounds.records || self.bytes > bounds.bytes;
        over && self.entries.len() > 1
    }

    /// The oldest batch.
    pub(crate) fn front(&self) -> Option<u32> {
        self.entries.front().map(|entry| entry.message)
    }

    /// The newest batch.
    pub(crate) fn newest(&self) -> Option<u32> {
        self.entries.back().map(|entry| entry.message)
    }

    /// The oldest batch goes.
    pub(crate) fn pop(&mut self, memory: &mut Memory) -> bool {
        let Some(Entry { message, .. }) = self.entries.pop_front() else { return false };
        let held = memory.get(message);
        self.records -= held.tally.records;
        self.bytes -= held.cost;
        memory.release(message);
        memory.discharge(ENTRY);
        if self.entries.is_empty() {
            self.entries = VecDeque::new();
        }
        true
    }

    /// The batch that holds `sequence`, or the oldest one after it. Cost: O(log batches).
    pub(crate) fn find(&self, memory: &Memory, sequence: u64) -> Option<Entry> {
        let is_before = |entry: &Entry| {
            let held = memory.get(entry.message);
            held.first + held.tally.records <= sequence
        };
        self.entries.get(self.entries.partition_point(is_before)).copied()
    }

    /// The batch that holds the n-th newest kept record, or the oldest one. Cost: O(log batches).
    pub(crate) fn find_last(&self, memory: &Memory, n: u64) -> Option<Entry> {
        let wanted = self.kept(memory).records.saturating_sub(n);
        let is_before = |entry: &Entry| entry.after(memory).records <= wanted;
        self.entries.get(self.entries.partition_point(is_before)).copied()
    }

    /// The batches, oldest first. For checks.
    #[cfg(any(test, feature = "check"))]
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> {
        self.entries.iter().copied()
    }

    /// What is kept about the batches: records, and their cost. For checks.
    #[cfg(any(test, feature = "check"))]
    pub(crate) const fn totals(&self) -> (u64, u64) {
        (self.records, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;
    use bytes::Bytes;

    /// A log of batches of three records each, from sequence number 1 on.
    fn log(batches: u64, bounds: Bounds) -> (Log, Memory) {
        let (mut log, mut memory) = (Log::default(), Memory::default());
        for batch in 0..batches {
            let message = memory.hold(Bytes::from_static(b"0123456789"), 3, Instant::ZERO);
            memory.sequence(message, 1 + 3 * batch, 10 * batch);
            log.push(&mut memory, message);
            memory.release(message);
            while log.excess(bounds) {
                log.pop(&mut memory);
            }
        }
        (log, memory)
    }

    fn first(found: Option<Entry>, memory: &Memory) -> Option<u64> {
        found.map(|entry| memory.get(entry.message).first)
    }

    const WIDE: Bounds = Bounds { records: 1_000, bytes: 1 << 20 };

    #[test]
    fn the_log_keeps_the_newest_within_its_bounds() {
        let cost = 10 + 256 + 48;
        for bounds in [Bounds { records: 12, ..WIDE }, Bounds { bytes: 4 * cost, ..WIDE }] {
            let (mut log, mut memory) = log(10, bounds);
            assert_eq!(log.totals(), (12, 4 * cost));
            assert_eq!(log.front().map(|oldest| memory.get(oldest).first), Some(19));
            assert_eq!(memory.bytes(), 4 * (cost + ENTRY));
            while log.pop(&mut memory) {}
            assert_eq!((log.totals(), memory.bytes()), ((0, 0), 0));
        }
        let (log, _) = log(10, Bounds { records: 1, ..WIDE });
        assert_eq!(log.totals().0, 3, "one batch alone stays");
    }

    #[test]
    fn a_start_is_found_or_clamped() {
        let (log, memory) = log(10, Bounds { records: 12, ..WIDE });
        let at = |sequence| first(log.find(&memory, sequence), &memory);
        assert_eq!([at(0), at(18), at(19), at(21)], [Some(19); 4]);
        assert_eq!([at(22), at(30), at(31)], [Some(22), Some(28), None]);
    }

    #[test]
    fn what_was_never_kept_counts_for_nothing() {
        let (mut log, mut memory) = (Log::default(), Memory::default());
        for first in [4, 7, 100, 200] {
            let message = memory.hold(Bytes::from_static(b"0123456789"), 3, Instant::ZERO);
            memory.sequence(message, first, 0);
            log.push(&mut memory, message);
        }
        log.pop(&mut memory);
        let last = |n| first(log.find_last(&memory, n), &memory);
        assert_eq!([last(0), last(1), last(3)], [None, Some(200), Some(200)]);
        assert_eq!([last(4), last(6), last(7)], [Some(100), Some(100), Some(7)]);
        assert_eq!([last(9), last(10), last(u64::MAX)], [Some(7); 3], "clamped");
        assert_eq!(log.find(&memory, 10).unwrap().before.records, 6, "lost ones were kept once");
    }
}
