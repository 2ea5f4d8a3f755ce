//! A topic's replay log: its newest batches, held for subscriptions that start in the past.
//!
//! Question:  from which batch can a subscription start, and which batch comes next?
//! Invariant: the log is a suffix of what the topic sequenced, without holes.
//! When full: the oldest batch goes, by records, bytes or age, whichever bound is met first; a
//!            subscription that still needed it gets a gap with reason `retention`.
//! Proof:     `the_log_keeps_the_newest_within_its_bounds`, `a_start_is_found_or_clamped`,
//!            `catching_up_agrees_with_its_model`, `books_close_under_random_operations`.

use crate::memory::Memory;
use alloc::collections::VecDeque;

/// Where a subscription starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With the next batch.
    #[default]
    Tail,
    /// With the oldest batch that is held.
    Earliest,
    /// With the batch that holds the n-th newest record.
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

/// Bytes charged for an entry of a log besides its message.
pub(crate) const ENTRY: u64 = size_of::<u32>() as u64;

/// Bounds of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

/// The newest batches of a topic, oldest first. Holds one reference to each.
#[derive(Debug, Default)]
pub(crate) struct Log {
    messages: VecDeque<u32>,
    records: u64,
    /// Cost of the messages.
    bytes: u64,
}

impl Log {
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Appends a batch that the topic just sequenced. Cost: O(1) amortised, over
    /// [`excess`](Self::excess) too.
    pub(crate) fn push(&mut self, memory: &mut Memory, message: u32) {
        memory.retain(message, 1);
        memory.charge(ENTRY);
        let held = memory.get(message);
        self.records += held.tally.records;
        self.bytes += held.cost;
        self.messages.push_back(message);
    }

    /// Whether the oldest batch is over the bounds. The newest one stays.
    pub(crate) fn excess(&self, bounds: Bounds) -> bool {
        let over = self.records > bounds.records || self.bytes > bounds.bytes;
        over && self.messages.len() > 1
    }

    /// The oldest batch.
    pub(crate) fn front(&self) -> Option<u32> {
        self.messages.front().copied()
    }

    /// The oldest batch goes.
    pub(crate) fn pop(&mut self, memory: &mut Memory) -> bool {
        let Some(message) = self.messages.pop_front() else { return false };
        let held = memory.get(message);
        self.records -= held.tally.records;
        self.bytes -= held.cost;
        memory.release(message);
        memory.discharge(ENTRY);
        if self.messages.is_empty() {
            self.messages = VecDeque::new();
        }
        true
    }

    /// The batch that holds `sequence`, or the oldest one after it. Cost: O(log batches).
    pub(crate) fn find(&self, memory: &Memory, sequence: u64) -> Option<u32> {
        let after = |message: &u32| {
            let held = memory.get(*message);
            held.first + held.tally.records <= sequence
        };
        self.messages.get(self.messages.partition_point(after)).copied()
    }

    /// The batches, oldest first. For checks.
    #[cfg(any(test, feature = "check"))]
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.messages.iter().copied()
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

    fn first(found: Option<u32>, memory: &Memory) -> Option<u64> {
        found.map(|message| memory.get(message).first)
    }

    const WIDE: Bounds = Bounds { records: 1_000, bytes: 1 << 20 };

    #[test]
    fn the_log_keeps_the_newest_within_its_bounds() {
        let cost = 10 + 256 + 48;
        for bounds in [Bounds { records: 12, ..WIDE }, Bounds { bytes: 4 * cost, ..WIDE }] {
            let (mut log, mut memory) = log(10, bounds);
            assert_eq!(log.totals(), (12, 4 * cost));
            assert_eq!(first(log.front(), &memory), Some(19));
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
}
