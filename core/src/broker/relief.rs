//! Graduated shedding: what gives memory back when the shard holds too much.
//!
//! From the band `pressure` on, what only replay logs hold goes. From `severe` on, when no log is
//! left, refusing outlets lose their oldest batches, those with the most first. `block`
//! subscriptions lose nothing: they stop the publisher.

use super::Broker;
use crate::shed::{Band, is_relieved};
use crate::verdict::{Place, Policy, Reason};

/// The most batches that one outlet loses before another one of its size does.
const FROM_ONE: u32 = 64;

impl Broker {
    /// Gives memory back, for at most `most` batches. Returns how many it took.
    pub(super) fn relieve(&mut self, most: u32) -> u32 {
        let mut taken = self.forget_some(most);
        while taken < most
            && self.must_trim()
            && let Some(outlet) = self.heaviest.fattest()
        {
            let half = self.peers.outlets[outlet].waiting.batches / 2;
            let lost = self.trim_oldest(outlet, half.min(FROM_ONE).min(most - taken));
            taken += lost;
            if lost == 0 {
                self.heaviest.leave(&mut self.peers.outlets, outlet);
            }
            self.heaviest.rotate(&mut self.peers.outlets, outlet);
            self.update_band();
        }
        taken
    }

    /// Whether [`relieve`](Self::relieve) has something to do.
    pub(super) fn wants_relief(&self) -> bool {
        let logs = self.bands.band() != Band::Normal && !self.retained.is_empty();
        logs || (self.must_trim() && !self.heaviest.is_empty())
    }

    fn must_trim(&self) -> bool {
        let severe = matches!(self.bands.band(), Band::Severe | Band::Saturated);
        let (held, budget) = (self.memory.bytes(), self.budget());
        severe && self.retained.is_empty() && !is_relieved(self.bands.band(), held, budget)
    }

    /// The band by which checkpoint 5 drops: while logs can go, no subscriber loses anything.
    pub(super) fn shedding(&self) -> Band {
        if self.retained.is_empty() { self.bands.band() } else { Band::Normal }
    }

    /// An outlet loses at most `most` of its oldest batches. Returns how many it lost.
    /// Cost: O(slots looked at), at most those of `block` and control before them.
    fn trim_oldest(&mut self, outlet: u32, most: u32) -> u32 {
        let reason = match self.bands.band() {
            Band::Saturated => Reason::Saturated,
            _ => Reason::Severe,
        };
        let ring = &self.peers.outlets[outlet].ring;
        let (mut position, end) = (ring.mark(), ring.end());
        let mut lost = 0;
        while position < end && lost < most {
            let slot = self.peers.outlets[outlet].ring.at(position);
            let may_go = !slot.is_tombstone() && !slot.is_control() && {
                let sub = &self.peers.subs[slot.sub];
                sub.policy != Policy::Block && !sub.is_dead(position)
            };
            if may_go {
                self.lose(outlet, position, (Place::Memory, reason));
                lost += 1;
            }
            position += 1;
        }
        self.trim(outlet);
        self.note_room(outlet);
        self.note_heavy(outlet);
        self.egress_recheck(outlet);
        lost
    }

    /// An outlet began or ceased to refuse, or more or less waits in it.
    pub(super) fn note_heavy(&mut self, outlet: u32) {
        self.heaviest.note(&mut self.peers.outlets, outlet);
    }
}
