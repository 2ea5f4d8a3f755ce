//! An outlet's queue: one ring of 8-byte slots in arrival order.
//!
//! Slots before the mark are *taken* (handed out in an offer, or in mid-write). A slot that is
//! dropped behind others becomes a tombstone, which nobody counts and taking skips. Positions are
//! absolute: they go on counting when slots leave at the front.

use crate::slab::NONE;
use alloc::collections::VecDeque;

/// A message for a subscription; a control frame when `sub` is `NONE`; a tombstone when both are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) message: u32,
    pub(crate) sub: u32,
}

const _: () = assert!(size_of::<Slot>() == 8);

impl Slot {
    pub(crate) const TOMBSTONE: Self = Self { message: NONE, sub: NONE };

    pub(crate) const fn is_tombstone(self) -> bool {
        self.message == NONE
    }

    pub(crate) const fn is_control(self) -> bool {
        self.sub == NONE && self.message != NONE
    }
}

/// How many times a ring runs empty before it may give memory back.
const SHRINK_AFTER: u32 = 64;
const LEAST: usize = 8;

#[derive(Clone, Debug, Default)]
pub(crate) struct Ring {
    slots: VecDeque<Slot>,
    /// Position of the first slot.
    base: u64,
    /// Invariant: at most `len`; slots before `base + taken` are never dropped.
    taken: u32,
    /// Tombstones, and slots whose subscription has left, behind the mark or before it.
    dead: u32,
    /// Where the search for a droppable slot goes on: everything between the mark and here is not
    /// droppable.
    cursor: u64,
    emptied: u32,
    peak: usize,
}

impl Ring {
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.slots.len()).expect("limits keep rings below 32 bits")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) const fn taken(&self) -> u32 {
        self.taken
    }

    /// Position of the first slot that is not taken.
    pub(crate) const fn mark(&self) -> u64 {
        self.base + self.taken as u64
    }

    pub(crate) const fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn end(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// The first slot that is not taken.
    #[inline]
    pub(crate) fn next_free(&self) -> Option<Slot> {
        self.slots.get(self.taken as usize).copied()
    }

    pub(crate) fn front(&self) -> Option<Slot> {
        self.slots.front().copied()
    }

    pub(crate) fn at(&self, position: u64) -> Slot {
        self.slots[self.offset(position)]
    }

    fn offset(&self, position: u64) -> usize {
        usize::try_from(position - self.base).expect("positions are inside the ring")
    }

    /// Appends. Grows in steps of a quarter. Cost: O(1) amortised.
    #[inline]
    pub(crate) fn push(&mut self, slot: Slot) {
        if self.slots.len() == self.slots.capacity() {
            self.slots.reserve_exact((self.slots.len() / 4).max(LEAST));
        }
        self.slots.push_back(slot);
        self.peak = self.peak.max(self.slots.len());
    }

    /// Moves the mark over one slot.
    pub(crate) fn take_one(&mut self) {
        assert!(self.taken < self.len(), "only what is queued is taken");
        self.taken += 1;
    }

    /// Moves the mark back, so that `taken` slots stay taken.
    pub(crate) fn give_back(&mut self, taken: u32) {
        assert!(taken <= self.taken, "giving back never takes");
        self.taken = taken;
        self.cursor = self.mark();
    }

    /// Removes the first slot.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Slot> {
        let slot = self.slots.pop_front()?;
        self.base += 1;
        self.taken = self.taken.saturating_sub(1);
        if slot.is_tombstone() {
            self.dead -= 1;
        }
        if self.slots.is_empty() {
            self.emptied += 1;
            if self.emptied == SHRINK_AFTER {
                self.shrink();
            }
        }
        Some(slot)
    }

    /// Makes the slot at `position` a tombstone. `counted` says that it is among the dead already.
    pub(crate) fn bury(&mut self, position: u64, counted: bool) -> Slot {
        let offset = self.offset(position);
        let slot = core::mem::replace(&mut self.slots[offset], Slot::TOMBSTONE);
        debug_assert!(!slot.is_tombstone(), "a slot is buried once");
        if !counted {
            self.dead += 1;
        }
        slot
    }

    /// Frees the tombstones at the front that are not taken. How many.
    #[inline]
    pub(crate) fn trim(&mut self) -> u64 {
        let mut freed = 0;
        while self.taken == 0 && self.slots.front().is_some_and(|slot| slot.is_tombstone()) {
            self.pop();
            freed += 1;
        }
        freed
    }

    /// Tombstones and slots of subscriptions that left. For checks.
    #[cfg(any(test, feature = "check"))]
    pub(crate) const fn dead(&self) -> u32 {
        self.dead
    }

    /// `count` slots behind the mark belong to a subscription that left.
    pub(crate) fn add_dead(&mut self, count: u32) {
        self.dead += count;
    }

    /// The first position from the search cursor on where `droppable` holds; the cursor moves
    /// there.
    /// Cost: O(1) amortised over the pushes.
    pub(crate) fn find(&mut self, mut droppable: impl FnMut(u64, Slot) -> bool) -> Option<u64> {
        let mut position = self.cursor.max(self.mark());
        let end = self.end();
        while position < end && !droppable(position, self.at(position)) {
            position += 1;
        }
        self.cursor = position;
        (position < end).then_some(position)
    }

    /// The slot where the search for a droppable one goes on.
    #[inline]
    pub(crate) fn oldest(&self) -> Option<(u64, Slot)> {
        let position = self.cursor.max(self.mark());
        let slot = self.slots.get(usize::try_from(position - self.base).ok()?)?;
        Some((position, *slot))
    }

    /// The slot at `position` is given up: it leaves, or becomes a tombstone when it is not the
    /// first. How many slots left.
    #[inline]
    pub(crate) fn give_up(&mut self, position: u64) -> u64 {
        self.cursor = position;
        if position == self.base {
            debug_assert!(self.taken == 0, "what is taken is never given up");
            self.pop();
            return 1 + self.trim();
        }
        self.bury(position, false);
        0
    }

    /// Whether one more dead slot may make compacting pay.
    pub(crate) fn nears_compaction(&self) -> bool {
        self.dead >= 8 && (self.dead + 1) * 2 >= self.len()
    }

    /// Whether more than half is dead, so that compacting pays.
    pub(crate) fn wants_compaction(&self) -> bool {
        self.dead > 8 && self.dead * 2 > self.len()
    }

    /// Keeps only the slots behind the mark for which `keep` holds. Cost: O(len).
    pub(crate) fn compact(&mut self, mut keep: impl FnMut(Slot) -> bool) {
        let taken = self.taken;
        let mut offset = 0;
        let mut left = 0;
        self.slots.retain(|slot| {
            offset += 1;
            let keep = offset <= taken || keep(*slot);
            left += u32::from(offset <= taken && slot.is_tombstone());
            keep
        });
        self.dead = left;
        self.cursor = self.mark();
    }

    /// Gives memory back when the ring has long been much smaller than its capacity.
    #[cold]
    fn shrink(&mut self) {
        if self.peak * 4 < self.slots.capacity() {
            self.slots.shrink_to((self.peak * 2).max(LEAST));
        }
        self.emptied = 0;
        self.peak = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn ring(n: u32) -> Ring {
        let mut ring = Ring::default();
        (0..n).for_each(|message| ring.push(Slot { message, sub: 0 }));
        ring
    }

    fn messages(ring: &Ring) -> Vec<u32> {
        let slots = (ring.base()..ring.end()).map(|position| ring.at(position));
        slots.filter(|slot| !slot.is_tombstone()).map(|slot| slot.message).collect()
    }

    #[test]
    fn the_mark_moves_with_taking_popping_and_giving_back() {
        let mut ring = ring(4);
        ring.take_one();
        ring.take_one();
        assert_eq!((ring.mark(), ring.taken()), (2, 2));
        assert_eq!(ring.pop().unwrap().message, 0);
        assert_eq!((ring.mark(), ring.taken()), (2, 1));
        ring.give_back(0);
        assert_eq!((ring.base(), ring.mark(), ring.end()), (1, 1, 4));
    }

    #[test]
    fn finding_behind_protected_slots_is_paid_once() {
        let mut ring = ring(1_003);
        let mut looked = 0;
        for expected in [1_000, 1_001, 1_002] {
            let found = ring.find(|_, slot| {
                looked += 1;
                !slot.is_tombstone() && slot.message >= 1_000
            });
            assert_eq!(found, Some(expected));
            ring.bury(expected, false);
        }
        assert_eq!(ring.find(|_, slot| !slot.is_tombstone() && slot.message >= 1_000), None);
        assert!(looked <= 1_010, "{looked} looks");
    }

    #[test]
    fn compaction_keeps_what_is_taken_and_the_order() {
        let mut ring = ring(40);
        ring.take_one();
        (1..30).for_each(|position| {
            ring.bury(position, false);
        });
        assert!(ring.wants_compaction());
        ring.compact(|slot| !slot.is_tombstone());
        assert_eq!(messages(&ring), [0].into_iter().chain(30..40).collect::<Vec<_>>());
        assert_eq!(ring.len(), 11);
        assert!(!ring.wants_compaction());
    }

    #[test]
    fn a_ring_grows_in_small_steps_and_gives_memory_back() {
        let mut ring = ring(1_025);
        assert!(ring.slots.capacity() < 1_400);
        while ring.pop().is_some() {}
        for _ in 0..2 * SHRINK_AFTER {
            ring.push(Slot { message: 1, sub: 1 });
            ring.pop();
        }
        assert!(ring.slots.capacity() < 64, "{}", ring.slots.capacity());
    }
}
