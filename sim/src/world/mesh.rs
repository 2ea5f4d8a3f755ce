//! The ways between shards: one bounded ring per ordered pair, first in, first out.

use super::{Event, World, at, index};
use crate::fact::Fact;
use crate::judge::Finding;
use sluicegate_core::Parcel;
use std::collections::VecDeque;

/// One way.
#[derive(Debug, Default)]
pub(super) struct Ring {
    /// With the time of their arrival.
    parcels: VecDeque<(u64, Parcel)>,
    /// The arrival of the first is in the calendar.
    expecting: bool,
    /// There was no room when its source had more.
    full: bool,
}

impl World<'_> {
    fn ring(&self, from: u32, to: u32) -> usize {
        at(from) * self.shards.len() + at(to)
    }

    /// What is on its way between shards.
    pub(super) fn parcels_on_the_way(&self) -> u64 {
        self.rings.iter().map(|ring| ring.parcels.len() as u64).sum()
    }

    pub(super) fn parcels_arrived(&mut self, ring: usize) {
        self.rings[ring].expecting = false;
        self.wake(index(ring % self.shards.len()));
    }

    fn expect_parcels(&mut self, ring: usize) {
        let now = self.now;
        let Ring { parcels, expecting, .. } = &mut self.rings[ring];
        let Some(&(arrival, _)) = parcels.front().filter(|_| !*expecting) else { return };
        if arrival > now {
            *expecting = true;
            self.calendar.enter(arrival, Event::Parcels(ring));
        }
    }

    /// Hands a shard the parcels that arrived for it, as far as it wants them. How many.
    pub(super) fn carry(&mut self, to: u32) -> Result<u64, Finding> {
        let mut all = 0;
        for from in (0..self.story.shards()).filter(|from| *from != to) {
            let ring = self.ring(from, to);
            let (now, broker) = (self.now, &mut self.shards[at(to)].broker);
            let Ring { parcels, full, .. } = &mut self.rings[ring];
            let mut taken = 0;
            while broker.wants_parcels()
                && parcels.front().is_some_and(|(arrival, _)| *arrival <= now)
            {
                let (_, parcel) = parcels.pop_front().expect("the front was just seen");
                broker.receive(from, parcel);
                taken += 1;
            }
            let wanted = taken > 0 && std::mem::take(full);
            self.expect_parcels(ring);
            if wanted {
                self.wake(from);
            }
            if taken > 0 {
                all += u64::from(taken);
                self.put(Fact::Carried(to, from, taken))?;
            }
        }
        Ok(all)
    }

    /// Whether parcels have arrived for a shard that it would take now. It may not have wanted them
    /// before its step.
    pub(super) fn has_arrived(&self, to: u32) -> bool {
        let mut ways = (0..self.story.shards()).filter(|from| *from != to);
        self.shards[at(to)].broker.wants_parcels()
            && ways.any(|from| {
                let front = self.rings[self.ring(from, to)].parcels.front();
                front.is_some_and(|(arrival, _)| *arrival <= self.now)
            })
    }

    /// Sends what a shard has for the others, as far as the rings have room. How many parcels.
    pub(super) fn post(&mut self, from: u32) -> u64 {
        let mut all = 0;
        let room = at(self.story.mesh.ring);
        for to in (0..self.story.shards()).filter(|to| *to != from) {
            let ring = self.ring(from, to);
            let arrival = self.now + self.story.mesh.delay;
            let broker = &mut self.shards[at(from)].broker;
            let Ring { parcels, full, .. } = &mut self.rings[ring];
            while parcels.len() < room {
                let Some(parcel) = broker.poll_parcel(to) else { break };
                parcels.push_back((arrival, parcel));
                all += 1;
            }
            *full = parcels.len() >= room;
            self.watching.raise(|tops| &mut tops.mesh, parcels.len() as u64);
            self.expect_parcels(ring);
            if self.rings[ring].parcels.front().is_some_and(|(arrival, _)| *arrival <= self.now) {
                self.wake(to);
            }
        }
        all
    }
}
