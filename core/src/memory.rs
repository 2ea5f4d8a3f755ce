//! What the shard holds: every message once, and the count of all bytes held.

use crate::ledger::Tally;
use crate::slab::Slab;
use crate::time::Instant;
use bytes::Bytes;

/// Bytes charged for a batch besides its payload, and for each of its records.
const BATCH: u64 = 256;
const RECORD: u64 = 16;

/// What a batch costs at every byte bound.
pub(crate) const fn cost(frame: u64, records: u64) -> u64 {
    frame + BATCH + RECORD * records
}

/// One frame, held once however many queues it is in.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) frame: Bytes,
    pub(crate) tally: Tally,
    /// Bytes at every byte bound.
    pub(crate) cost: u64,
    /// Sequence number of its first record; zero for control and before it is sequenced.
    pub(crate) first: u64,
    /// Bytes that its topic had sequenced before it.
    pub(crate) offset: u64,
    /// When it was admitted.
    pub(crate) at: Instant,
    /// Invariant: the number of slots, jobs and control queues that name it.
    refs: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    held: Slab<Held>,
    /// Invariant: the costs of all messages, plus what was charged and not yet discharged.
    bytes: u64,
}

impl Memory {
    /// Bytes held.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Charges a fixed part (a table entry, a slot).
    pub(crate) fn charge(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    pub(crate) fn discharge(&mut self, bytes: u64) {
        debug_assert!(self.bytes >= bytes, "only what was charged is discharged");
        self.bytes -= bytes;
    }

    /// A fixed part grew or shrank.
    pub(crate) fn recharge(&mut self, before: u64, after: u64) {
        self.bytes = self.bytes + after - before;
    }

    /// Holds a frame, with one reference.
    pub(crate) fn hold(&mut self, frame: Bytes, records: u64, now: Instant) -> u32 {
        let bytes = frame.len() as u64;
        let cost = cost(bytes, records);
        self.bytes += cost;
        let tally = Tally { records, bytes };
        self.held.insert(Held { frame, tally, cost, first: 0, offset: 0, at: now, refs: 1 }).0
    }

    pub(crate) fn get(&self, message: u32) -> &Held {
        &self.held[message]
    }

    /// A batch got its place in its topic.
    pub(crate) fn sequence(&mut self, message: u32, first: u64, offset: u64) {
        let held = &mut self.held[message];
        (held.first, held.offset) = (first, offset);
    }

    pub(crate) fn admit(&mut self, message: u32, now: Instant) {
        self.held[message].at = now;
    }

    pub(crate) fn retain(&mut self, message: u32, times: u32) {
        self.held[message].refs += times;
    }

    /// Gives one reference back; the last one frees the frame.
    #[inline]
    pub(crate) fn release(&mut self, message: u32) {
        let held = &mut self.held[message];
        held.refs -= 1;
        if held.refs == 0 {
            self.free(message);
        }
    }

    #[cold]
    fn free(&mut self, message: u32) {
        self.bytes -= self.held.remove(message).cost;
    }

    /// Every message with its references. For checks.
    #[cfg(any(test, feature = "check"))]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Held, u32)> {
        self.held.iter().map(|(index, held)| (index, held, held.refs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_reference_frees_the_frame() {
        let mut memory = Memory::default();
        let message = memory.hold(Bytes::from_static(b"0123456789"), 2, Instant::ZERO);
        assert_eq!(memory.bytes(), 10 + 256 + 32);
        memory.retain(message, 2);
        memory.release(message);
        memory.release(message);
        assert_eq!(memory.get(message).tally, Tally { records: 2, bytes: 10 });
        memory.release(message);
        assert_eq!(memory.bytes(), 0);
        assert_eq!(memory.iter().count(), 0);
    }
}
