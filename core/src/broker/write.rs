//! From queues to transports: checkpoint 6. Offers, their frames, and settling them.

use super::{Broker, Close, Lane, Offer};
use crate::id::OutletId;
use crate::ledger::{Page, Tally};
use crate::memory::Memory;
use crate::notice::Notice;
use crate::peers::{NO_BUCKET, Outlet, Peers, Pipe, SLOT, Stage, Sub};
use crate::slab::Slab;
use crate::topic::Topic;
use crate::verdict::{Place, Reason, Refusal};
use crate::writer::{Offered, Progress, State};
use bytes::Bytes;

/// The most control frames one offer hands out.
const MAX_FIRSTS: u32 = 64;

/// Where taking slots into an offer stopped.
enum Taken {
    /// The offer is full, or the queue is empty.
    All,
    /// At a slot that nobody wants any more.
    Dead(u64),
    /// Before a record of a subscription that has lost earlier ones.
    Gap { sub: u32, first: u64 },
    /// At a batch that waited too long.
    Stale(u64),
}

/// Where spending accepted bytes on slots stopped.
enum Finished {
    /// All that was asked for is finished.
    All,
    /// After a slot of a subscription that may have more to do.
    Look(u32),
    /// At a slot that is not finished.
    Short,
}

/// Bytes still to be spent, and what was delivered with those that were.
type Spent<'a> = (&'a mut u64, &'a mut Tally);

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
}

impl Frames<'_> {
    /// Sequence number of the first record of the frame that came last; zero of a control frame.
    pub const fn sequence(&self) -> u64 {
        self.sequence
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
            self.sequence = 0;
            return Some(tail(&self.memory.get(message).frame, out));
        }
        while self.line < outlet.ring.taken() {
            let slot = outlet.ring.at(outlet.ring.base() + u64::from(self.line));
            self.line += 1;
            if !slot.is_tombstone() {
                let held = self.memory.get(slot.message);
                self.sequence = held.first;
                return Some(tail(&held.frame, rest));
            }
        }
        None
    }
}

/// The tables that a finished slot is counted in.
type Tables<'a> = (&'a mut Outlet, &'a mut Memory, &'a mut Slab<Sub>, &'a mut Slab<Topic>);

/// The front slot is delivered. True when its subscription needs a look.
#[inline(always)]
fn finish_slot(
    (outlet, memory, subs, topics): Tables<'_>,
    (cost, tally): (u64, Tally),
    delivered: &mut Tally,
) -> bool {
    let slot = outlet.ring.pop().expect("a taken slot is in the ring");
    memory.discharge(SLOT);
    memory.release(slot.message);
    if slot.is_control() {
        outlet.write.control -= cost;
        return false;
    }
    outlet.taken.remove(cost);
    let sub = &mut subs[slot.sub];
    sub.taken.remove(cost);
    sub.slots -= 1;
    sub.books.deliver(tally);
    topics[sub.topic].books.deliver(tally);
    *delivered += tally;
    sub.holds || !sub.is_active() || !sub.gaps.is_empty()
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
            let index = self.egress.next(&mut self.peers.outlets)?;
            self.tell_due(index);
            if !self.notices.is_empty() {
                self.settled(index, 0);
                return None;
            }
            let offered = self.compose(index);
            if offered.bytes > 0 {
                self.peers.outlets[index].write.offered = offered;
                let outlet = self.peers.outlet_id(index);
                return Some(Offer { outlet, bytes: offered.bytes });
            }
            self.settled(index, 0);
        }
    }

    /// Tells the gaps of subscriptions that have nothing left to write.
    fn tell_due(&mut self, outlet: u32) {
        while let Some(index) = self.peers.outlets[outlet].due.pop_front(&mut self.peers.subs) {
            if self.peers.subs[index].is_drained() {
                self.tell_gaps(index, u64::MAX);
            }
        }
    }

    /// Decides which frames go now and takes them. No bytes: there is a gap to tell first, or
    /// nothing but dead slots.
    fn compose(&mut self, index: u32) -> Offered {
        let outlet = &self.peers.outlets[index];
        let mut offered = Offered::default();
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
        let most = self.most_offered(index);
        let outlet = &self.peers.outlets[index];
        let more_firsts = outlet.write.first_at(offered.firsts).is_some();
        let mut room = if more_firsts { 0 } else { self.limits.offer_batches };
        while room > 0 && offered.bytes < most {
            match self.take_lines(index, &mut offered, (&mut room, most)) {
                Taken::All => break,
                Taken::Dead(position) => self.skip_dead(index, position),
                Taken::Stale(position) => self.drop_stale(index, position),
                Taken::Gap { sub, first } => {
                    if offered.bytes == 0 {
                        self.tell_gaps(sub, first);
                    }
                    break;
                }
            }
        }
        offered
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

    /// Takes slots of an outlet into its offer, while there is room in it. Stops at what is rare.
    fn take_lines(
        &mut self,
        index: u32,
        offered: &mut Offered,
        (room, most): (&mut u64, u64),
    ) -> Taken {
        let Self { codel, memory, now, peers: Peers { outlets, subs, .. }, .. } = self;
        let outlet = &mut outlets[index];
        while *room > 0 && offered.bytes < most {
            let position = outlet.ring.mark();
            if position == outlet.ring.end() {
                return Taken::All;
            }
            let slot = outlet.ring.at(position);
            if slot.is_tombstone() {
                return Taken::Dead(position);
            }
            let held = memory.get(slot.message);
            let bytes = held.frame.len() as u64;
            if offered.bytes > 0 && offered.bytes + bytes > most {
                return Taken::All;
            }
            if !slot.is_control() {
                let sub = &mut subs[slot.sub];
                if sub.is_dead(position) {
                    return Taken::Dead(position);
                }
                if sub.gaps.before(held.first) {
                    return Taken::Gap { sub: slot.sub, first: held.first };
                }
                // What follows the first batch of an offer is younger, and may be given back.
                if let Some(settings) = codel
                    && !offered.judged
                {
                    let stale = outlet.codel.observe(settings, *now, now.since(held.at));
                    if stale && outlet.pressed && sub.may_lose_one() {
                        return Taken::Stale(position);
                    }
                    offered.judged = true;
                }
                outlet.waiting.remove(held.cost);
                outlet.taken.add(held.cost);
                sub.waiting.remove(held.cost);
                sub.taken.add(held.cost);
            }
            outlet.ring.take_one();
            offered.bytes += bytes;
            *room -= 1;
        }
        Taken::All
    }

    /// Tells the gaps of a subscription that begin before the record `first`.
    pub(super) fn tell_gaps(&mut self, index: u32, first: u64) {
        let sub = self.peers.sub_id(index);
        while let Some(gap) = self.peers.subs[index].gaps.take_before(first) {
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
        Frames { memory: &self.memory, outlet, firsts, first: 0, line: 0, sequence: 0 }
    }

    /// Settles an offer: the transport accepted `bytes`. Fewer than offered, and the outlet
    /// refuses until [`writable`](Self::writable); the frame in mid-write is pinned and the rest
    /// goes back to the queue. A stale outlet is ignored. Cost: O(frames of the offer).
    ///
    /// # Panics
    /// When the outlet has no open offer, or more was accepted than offered.
    pub fn sent(&mut self, offer: Offer, bytes: u64) {
        self.tape_sent(offer.outlet, bytes);
        let index = offer.outlet.index;
        let Ok(outlet) = self.peers.outlet(offer.outlet) else { return };
        let write = &outlet.write;
        assert!(write.state == State::Offered, "an offer is settled once");
        let Offered { firsts, bytes: most, .. } = write.offered;
        assert!(bytes <= most, "no transport accepts more than it is offered");
        let begun = outlet.write.begun.is_some();
        let mut delivered = Tally::ZERO;
        if bytes == most && firsts == 0 && !begun {
            while let Finished::Look(sub) = self.finish_all(index, &mut delivered) {
                self.after_delivery(sub);
            }
        } else {
            self.sent_in_part(index, firsts, (&mut { bytes }, &mut delivered));
        }
        let outlet = &mut self.peers.outlets[index];
        outlet.write.refusing = bytes < most;
        outlet.pressed |= bytes < most;
        if bytes > 0 && outlet.is_slow() {
            self.slow.disarm(&mut self.peers.outlets, index);
        }
        if bytes < most || self.peers.outlets[index].bucket != NO_BUCKET {
            self.note_heavy(index);
        }
        let outlet = &mut self.peers.outlets[index];
        self.ledger.delivered(outlet.tenant, delivered);
        self.settled(index, bytes);
    }

    /// The transport accepted some bytes of the offer, or there is more in it than whole slots.
    fn sent_in_part(&mut self, index: u32, firsts: u32, (accepted, delivered): Spent<'_>) {
        let begun = self.peers.outlets[index].write.out(Lane::InLine) > 0;
        let mut whole = !begun || self.finish_lines(index, 1, (accepted, delivered));
        for _ in 0..firsts {
            whole = whole && self.finish_first(index, accepted);
        }
        whole = whole && self.finish_lines(index, u32::MAX, (accepted, delivered));
        if !whole {
            self.give_back(index);
        }
    }

    /// An outlet's turn is over.
    #[inline]
    fn settled(&mut self, index: u32, bytes: u64) {
        self.egress.settle(&mut self.peers.outlets, index, bytes);
        let outlet = &self.peers.outlets[index];
        let (conn, closing) = (outlet.conn, outlet.closing);
        let stalled = !outlet.stalled.is_empty();
        if outlet.ring.is_empty() {
            self.note_empty(index);
        }
        let outlet = &self.peers.outlets[index];
        if outlet.write.control_full {
            self.note_control(index);
        }
        if stalled {
            self.note_room(index);
        }
        if closing.is_some() {
            self.note_flushed(conn);
        }
    }

    /// An outlet's queue is empty: nobody waits, and its peer keeps up.
    fn note_empty(&mut self, index: u32) {
        let outlet = &mut self.peers.outlets[index];
        outlet.pressed = false;
        if let Some(settings) = &self.codel {
            outlet.codel.empty(settings, self.now);
        }
    }

    /// Spends accepted bytes on the front control frame. False when it is not finished.
    fn finish_first(&mut self, index: u32, accepted: &mut u64) -> bool {
        let write = &mut self.peers.outlets[index].write;
        let message = write.firsts().next().expect("the offer counted it");
        let held = self.memory.get(message);
        let (frame, cost) = (held.frame.len() as u64, held.cost);
        if write.spend(Lane::First, frame, accepted) != Progress::Finished {
            return false;
        }
        write.pop_first();
        write.control -= cost;
        self.memory.release(message);
        true
    }

    /// Spends accepted bytes on at most `most` slots at the front. False when one is not finished.
    fn finish_lines(&mut self, index: u32, most: u32, (accepted, delivered): Spent<'_>) -> bool {
        let mut left = most;
        loop {
            match self.finish_run(index, &mut left, (accepted, delivered)) {
                Finished::All => return true,
                Finished::Look(sub) => self.after_delivery(sub),
                Finished::Short => return false,
            }
        }
    }

    /// The same, until a subscription needs a look.
    fn finish_run(
        &mut self,
        index: u32,
        left: &mut u32,
        (accepted, delivered): Spent<'_>,
    ) -> Finished {
        let Self { memory, peers: Peers { outlets, subs, .. }, topics, .. } = self;
        let outlet = &mut outlets[index];
        while *left > 0 && outlet.ring.taken() > 0 {
            *left -= 1;
            let slot = outlet.ring.front().expect("a taken slot is in the ring");
            if slot.is_tombstone() {
                outlet.ring.pop();
                memory.discharge(SLOT);
                continue;
            }
            let held = memory.get(slot.message);
            let (frame, cost, tally) = (held.frame.len() as u64, held.cost, held.tally);
            if outlet.write.spend(Lane::InLine, frame, accepted) != Progress::Finished {
                return Finished::Short;
            }
            if finish_slot((outlet, memory, subs, topics), (cost, tally), delivered) {
                return Finished::Look(slot.sub);
            }
        }
        Finished::All
    }

    /// All that is taken was accepted. The same, until a subscription needs a look.
    fn finish_all(&mut self, index: u32, delivered: &mut Tally) -> Finished {
        let Self { memory, peers: Peers { outlets, subs, .. }, topics, .. } = self;
        let outlet = &mut outlets[index];
        while outlet.ring.taken() > 0 {
            let slot = outlet.ring.front().expect("a taken slot is in the ring");
            if slot.is_tombstone() {
                outlet.ring.pop();
                memory.discharge(SLOT);
                continue;
            }
            let held = memory.get(slot.message);
            let price = (held.cost, held.tally);
            if finish_slot((outlet, memory, subs, topics), price, delivered) {
                return Finished::Look(slot.sub);
            }
        }
        Finished::All
    }

    /// A subscription has one batch less: it may hold its topic no longer, have a gap to be told,
    /// or be gone for good.
    fn after_delivery(&mut self, index: u32) {
        let sub = &self.peers.subs[index];
        if sub.holds {
            self.note_hold(index);
        } else if !sub.is_active() {
            self.finish_sub(index);
            return;
        }
        if !self.peers.subs[index].gaps.is_empty() {
            self.peers.note_due(index);
        }
    }

    /// What was taken and not begun goes back to the queue.
    fn give_back(&mut self, index: u32) {
        let outlet = &mut self.peers.outlets[index];
        let keep = u32::from(outlet.write.out(Lane::InLine) > 0);
        let (from, to) = (outlet.ring.base() + u64::from(keep), outlet.ring.mark());
        outlet.ring.give_back(keep);
        for position in from..to {
            let outlet = &mut self.peers.outlets[index];
            let slot = outlet.ring.at(position);
            if slot.is_tombstone() || slot.is_control() {
                continue;
            }
            let held = self.memory.get(slot.message);
            let (cost, tally) = (held.cost, held.tally);
            outlet.taken.remove(cost);
            let sub = &mut self.peers.subs[slot.sub];
            sub.taken.remove(cost);
            if matches!(sub.stage, Stage::Left(_)) {
                outlet.ring.bury(position, false);
                sub.slots -= 1;
                let topic = &mut self.topics[sub.topic];
                let tenant = topic.tenant;
                let page = Page { tenant, topic: &mut topic.books, sub: &mut sub.books };
                self.ledger.left(page, tally);
                self.memory.release(slot.message);
                self.free_sub(slot.sub);
                continue;
            }
            outlet.waiting.add(cost);
            sub.waiting.add(cost);
        }
        if self.peers.outlets[index].closing == Some(Close::Now) {
            self.drop_waiting(index, super::leave::CLOSED);
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
        if self.peers.outlet(outlet).is_ok_and(|outlet| outlet.write.state == State::Offered) {
            self.peers.outlets[outlet.index].write.refusing = true;
            self.note_heavy(outlet.index);
        }
    }

    /// Queues control bytes: one whole frame, never dropped. When more than half of the reserve
    /// is used, the connection is paused; a frame that finds no room in it condemns the
    /// connection (a close notice follows), but one larger than the reserve goes alone.
    /// Cost: O(1).
    pub fn send(&mut self, outlet: OutletId, frame: Bytes, lane: Lane) -> Result<(), Refusal> {
        self.tape_send(outlet, frame.len() as u64, lane);
        let index = outlet.index;
        let conn = self.peers.outlet(outlet)?.conn;
        let peer = &self.peers.conns[conn];
        if peer.closing || peer.condemned {
            return Err(Refusal::never(Place::Egress, Reason::Closed));
        }
        let used = self.peers.outlets[index].write.control;
        let price = crate::memory::cost(frame.len() as u64, 0);
        if used > 0 && used + price > self.limits.control_reserve_bytes {
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
                outlet.ring.push(crate::ring::Slot { message, sub: crate::slab::NONE });
                self.memory.charge(SLOT);
            }
        }
        self.egress.wake(&mut self.peers.outlets, index);
    }
}
