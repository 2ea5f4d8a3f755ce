//! From queues to transports: checkpoint 6. Offers, their frames, and settling them.

use super::draft::{Draft, Taken};
use super::{Broker, Lane, Offer};
use crate::id::OutletId;
use crate::memory::Memory;
use crate::notice::Notice;
use crate::peers::{Outlet, Peers, Pipe, RUN, SLOT};
use crate::slab::NONE;
use crate::verdict::{Place, Reason, Refusal};
use crate::writer::State;
use bytes::Bytes;

/// Reserves that control frames may fill before the host has come to write.
const UNWRITTEN: u64 = 16;

/// The most control frames one offer hands out.
const MAX_FIRSTS: u32 = 64;

/// The frames of an open offer, see [`Broker::frames`].
#[derive(Debug)]
pub struct Frames<'a> {
    memory: &'a Memory,
    outlet: Option<&'a Outlet>,
    firsts: u32,
    /// Control frames, and slots, that were handed out.
    first: u32,
    line: u32,
    /// Of the frame handed out last.
    sequence: u64,
    message: u32,
}

impl Frames<'_> {
    /// Sequence number of the first record of the frame that came last; zero of a control frame.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// A handle on the frame that came last, whole, for hosts that keep it past the turn. None
    /// before the first.
    pub fn handle(&self) -> Option<Bytes> {
        (self.message != NONE).then(|| self.memory.get(self.message).frame.clone())
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let outlet = self.outlet?;
        let rest = if self.line == 0 { outlet.write.out(Lane::InLine) } else { 0 };
        if rest == 0 && self.first < self.firsts {
            let out = if self.first == 0 { outlet.write.out(Lane::First) } else { 0 };
            let message = outlet.write.first_at(self.first)?;
            self.first += 1;
            (self.sequence, self.message) = (0, message);
            return Some(tail(&self.memory.get(message).frame, out));
        }
        while self.line < outlet.ring.taken() {
            let slot = outlet.ring.at(outlet.ring.base() + u64::from(self.line));
            self.line += 1;
            if !slot.is_tombstone() {
                let held = self.memory.get(slot.message);
                (self.sequence, self.message) = (held.first, slot.message);
                return Some(tail(&held.frame, rest));
            }
        }
        None
    }
}

fn tail(frame: &Bytes, out: u64) -> &[u8] {
    &frame[usize::try_from(out).expect("a frame is in memory")..]
}

impl Broker {
    /// Who writes now, and how much. `None` while a notice waits.
    pub(super) fn poll_ready(&mut self) -> Option<Offer> {
        loop {
            if !self.notices.is_empty() || !self.peers.untold.is_empty() {
                return None;
            }
            let Self {
                codel, egress, limits, memory, now, peers: Peers { outlets, subs, .. }, ..
            } = self;
            let index = egress.next(outlets)?;
            let (outlet, generation) = outlets.entry(index);
            let mut draft = Draft::new(limits.offer_batches, limits.offer_bytes);
            let is_plain = outlet.is_plain() && outlet.pipe == Pipe::Shared;
            let taken = is_plain.then(|| {
                let clock = codel.as_ref().map(|settings| (settings, *now));
                draft.take_lines(outlet, (subs, memory), clock)
            });
            if !matches!(taken, Some(Taken::All)) && !self.compose(index, &mut draft, taken) {
                self.settled(index, 0);
                return None;
            }
            let outlet = &mut self.peers.outlets[index];
            if draft.offered.bytes > 0 {
                outlet.write.offered = draft.offered;
                let outlet = OutletId { index, generation };
                return Some(Offer { outlet, bytes: draft.offered.bytes });
            }
            self.settled(index, 0);
        }
    }

    /// Goes on with an offer that is not, or not yet, just slots in a row. Without bytes in it at
    /// the end there is a gap to tell first, or there were nothing but dead slots. False when
    /// there is a notice to give first.
    fn compose(&mut self, index: u32, draft: &mut Draft, mut taken: Option<Taken>) -> bool {
        if taken.is_none() {
            self.tell_due(index);
            if !self.notices.is_empty() {
                return false;
            }
            self.offer_first(index, draft);
        }
        loop {
            match taken {
                Some(Taken::All) => break,
                Some(Taken::Dead(position)) => self.skip_dead(index, position),
                Some(Taken::Stale(position)) => self.drop_stale(index, position),
                Some(Taken::Gap { sub, first }) => {
                    if draft.offered.bytes == 0 {
                        self.tell_gaps(sub, first);
                    }
                    break;
                }
                None => {}
            }
            let Self { codel, memory, now, peers: Peers { outlets, subs, .. }, .. } = self;
            let clock = codel.as_ref().map(|settings| (settings, *now));
            taken = Some(draft.take_lines(&mut outlets[index], (subs, memory), clock));
        }
        true
    }

    /// Tells the gaps of subscriptions that have nothing left to write.
    fn tell_due(&mut self, outlet: u32) {
        while let Some(index) = self.peers.outlets[outlet].due.pop_front(&mut self.peers.subs) {
            if self.peers.subs[index].is_drained() {
                self.tell_gaps(index, u64::MAX);
            }
        }
    }

    /// What goes before all else: the rest of a frame in mid-write, and control frames.
    fn offer_first(&self, index: u32, draft: &mut Draft) {
        let outlet = &self.peers.outlets[index];
        let offered = &mut draft.offered;
        if outlet.write.out(Lane::InLine) > 0 {
            let front = outlet.ring.at(outlet.ring.base());
            offered.bytes = self.frame_len(front.message) - outlet.write.out(Lane::InLine);
        }
        for message in outlet.write.firsts().take(MAX_FIRSTS as usize) {
            if offered.bytes >= self.limits.offer_bytes {
                break;
            }
            let out = if offered.firsts == 0 { outlet.write.out(Lane::First) } else { 0 };
            offered.bytes += self.frame_len(message) - out;
            offered.firsts += 1;
        }
        if outlet.write.first_at(offered.firsts).is_some() {
            draft.room = 0;
        }
        draft.most = self.most_offered(index);
    }

    /// How many bytes an outlet may be offered: within its share of its connection's, when it is
    /// one of several. Cost: O(1).
    fn most_offered(&self, index: u32) -> u64 {
        let (most, outlet) = (self.limits.offer_bytes, &self.peers.outlets[index]);
        if outlet.pipe == Pipe::Shared {
            return most;
        }
        let subs = u64::from(self.peers.conns[outlet.conn].subs.max(1));
        let share = self.limits.egress_bytes / subs;
        most.min(share.max(1))
    }

    fn frame_len(&self, message: u32) -> u64 {
        self.memory.get(message).frame.len() as u64
    }

    /// Tells the gaps of a subscription that begin before the record `first`.
    pub(super) fn tell_gaps(&mut self, index: u32, first: u64) {
        let sub = self.peers.sub_id(index);
        while let Some(gap) = self.peers.subs[index].gaps.take_before(first) {
            self.memory.discharge(RUN);
            self.notices.push_back(Notice::Gap { sub, gap });
        }
    }

    /// Drops the batch at the mark, which waited too long.
    fn drop_stale(&mut self, index: u32, position: u64) {
        self.lose(index, position, (Place::Backlog, Reason::Stale));
        self.note_room(index);
    }

    /// Passes over a slot at the mark that is a tombstone or becomes one.
    fn skip_dead(&mut self, index: u32, position: u64) {
        if !self.peers.outlets[index].ring.at(position).is_tombstone() {
            self.bury_dead(index, position);
        }
        let ring = &mut self.peers.outlets[index].ring;
        if ring.taken() == 0 {
            ring.pop();
            self.memory.discharge(SLOT);
        } else {
            ring.take_one();
        }
    }

    /// The bytes of an open offer, in order: borrowed slices, no copy and no clone. The first may
    /// be the rest of a frame. Cost: O(frames).
    pub fn frames(&self, offer: Offer) -> Frames<'_> {
        let outlet = self.peers.outlet(offer.outlet).ok();
        let firsts = outlet.map_or(0, |outlet| outlet.write.offered.firsts);
        Frames {
            memory: &self.memory,
            outlet,
            firsts,
            first: 0,
            line: 0,
            sequence: 0,
            message: NONE,
        }
    }

    /// The transport takes bytes again. A stale outlet is ignored. Cost: O(1).
    pub fn writable(&mut self, outlet: OutletId) {
        self.tape_writable(outlet);
        if self.peers.outlet(outlet).is_ok() {
            self.peers.outlets[outlet.index].write.refusing = false;
            self.note_heavy(outlet.index);
            self.egress.wake(&mut self.peers.outlets, outlet.index);
        }
    }

    /// For hosts that wait: the transport took nothing of the outlet's open offer, which stays
    /// open. Cost: O(1).
    pub fn refused(&mut self, outlet: OutletId) {
        self.tape_refused(outlet);
        let index = outlet.index;
        if self.peers.outlet(outlet).is_ok_and(|outlet| outlet.write.state == State::Offered) {
            let outlet = &mut self.peers.outlets[outlet.index];
            outlet.write.refusing = true;
            outlet.pressed = true;
            self.note_heavy(index);
        }
    }

    /// Queues control bytes: one whole frame, never dropped. When more than half of the reserve
    /// is used, the connection is paused, and a frame that finds no room in it condemns the
    /// connection (a close notice follows) if its transport has refused bytes, or sixteen reserves
    /// are full: a host that has not come to write is not held against the peer. Until then any
    /// frame goes, however large: answers to the connection's own commands, which are not read
    /// while it is paused, cannot overflow. Cost: O(1).
    pub fn send(&mut self, outlet: OutletId, frame: Bytes, lane: Lane) -> Result<(), Refusal> {
        self.tape_send(outlet, frame.len() as u64, lane);
        let index = outlet.index;
        let conn = self.peers.outlet(outlet)?.conn;
        let peer = &self.peers.conns[conn];
        if peer.closing || peer.condemned {
            return Err(Refusal::never(Place::Egress, Reason::Closed));
        }
        let write = &self.peers.outlets[index].write;
        let (used, refusing) = (write.control, write.refusing);
        let price = crate::memory::cost(frame.len() as u64, 0);
        let reserve = self.limits.control_reserve_bytes;
        let room = if refusing { reserve } else { UNWRITTEN * reserve };
        if used * 2 > reserve && used + price > room {
            let why = Refusal::never(Place::Egress, Reason::Limit);
            self.condemn(conn, why);
            return Err(why);
        }
        self.push_control(index, frame, lane);
        self.note_control(index);
        Ok(())
    }

    pub(super) fn push_control(&mut self, index: u32, frame: Bytes, lane: Lane) {
        if frame.is_empty() {
            return;
        }
        let message = self.memory.hold(frame, 0, self.now);
        let outlet = &mut self.peers.outlets[index];
        outlet.write.control += self.memory.get(message).cost;
        match lane {
            Lane::First => outlet.write.push_first(message),
            Lane::InLine => {
                outlet.ring.push(crate::ring::Slot { message, sub: NONE });
                self.memory.charge(SLOT);
            }
        }
        self.egress.wake_first(&mut self.peers.outlets, index);
    }
}
