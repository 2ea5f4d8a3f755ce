//! An offer while it is put together.

use crate::codel::Settings;
use crate::memory::Memory;
use crate::peers::{Outlet, Sub};
use crate::slab::Slab;
use crate::time::Instant;
use crate::writer::Offered;

/// Where taking slots into an offer stopped.
pub(super) enum Taken {
    /// The offer is full, or the queue is empty.
    All,
    /// At a slot that nobody wants any more.
    Dead(u64),
    /// Before a record of a subscription that has lost earlier ones.
    Gap { sub: u32, first: u64 },
    /// At a batch that waited too long.
    Stale(u64),
}

/// An offer, and what else may go into it.
pub(super) struct Draft {
    pub(super) offered: Offered,
    /// Batches.
    pub(super) room: u64,
    /// Bytes in all.
    pub(super) most: u64,
    /// Its first batch is fresh enough.
    is_judged: bool,
}

impl Draft {
    pub(super) fn new(room: u64, most: u64) -> Self {
        Self { offered: Offered::default(), room, most, is_judged: false }
    }

    /// Takes slots of an outlet, while there is room. Stops at what is rare.
    #[inline]
    pub(super) fn take_lines(
        &mut self,
        outlet: &mut Outlet,
        (subs, memory): (&mut Slab<Sub>, &Memory),
        codel: Option<(&Settings, Instant)>,
    ) -> Taken {
        while self.room > 0 && self.offered.bytes < self.most {
            let Some(slot) = outlet.ring.next_free() else { return Taken::All };
            if slot.is_tombstone() {
                return Taken::Dead(outlet.ring.mark());
            }
            let held = memory.get(slot.message);
            let bytes = self.offered.bytes + held.frame.len() as u64;
            if self.offered.bytes > 0 && bytes > self.most {
                return Taken::All;
            }
            if !slot.is_control() {
                let sub = &mut subs[slot.sub];
                if sub.is_dead(outlet.ring.mark()) {
                    return Taken::Dead(outlet.ring.mark());
                }
                if sub.gaps.before(held.first) {
                    return Taken::Gap { sub: slot.sub, first: held.first };
                }
                if let Some((settings, now)) = codel
                    && self.is_stale(outlet, sub, (settings, now, held.at))
                {
                    return Taken::Stale(outlet.ring.mark());
                }
                outlet.waiting.remove(held.cost);
                outlet.taken.add(held.cost);
                sub.waiting.remove(held.cost);
                sub.taken.add(held.cost);
            }
            outlet.ring.take_one();
            self.offered.bytes = bytes;
            self.room -= 1;
        }
        Taken::All
    }

    /// Whether the batch at the mark waited too long. Only the first of an offer is sampled, since
    /// what follows it is younger and may be given back; and each only once.
    #[inline(never)]
    fn is_stale(
        &mut self,
        outlet: &mut Outlet,
        sub: &Sub,
        (settings, now, admitted): (&Settings, Instant, Instant),
    ) -> bool {
        let position = outlet.ring.mark();
        if self.is_judged || position < outlet.judged {
            return false;
        }
        let stale = outlet.codel.observe(settings, now, now.since(admitted));
        if stale && outlet.pressed && sub.may_lose_one() {
            return true;
        }
        self.is_judged = true;
        outlet.judged = position + 1;
        false
    }
}
