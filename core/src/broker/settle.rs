//! From transports back to queues: what became of an offer.

use super::{Broker, Close, Lane, Offer};
use crate::id::OutletId;
use crate::ledger::{Page, Tally};
use crate::memory::Memory;
use crate::peers::{Outlet, Peers, SLOT, Stage, Sub};
use crate::slab::Slab;
use crate::topic::Topic;
use crate::writer::{Offered, Progress, State};

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

/// Finishes every slot that is taken, until a subscription needs a look.
#[inline(always)]
fn finish_all((outlet, memory, subs, topics): Tables<'_>, delivered: &mut Tally) -> Finished {
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

impl Broker {
    /// Settles an offer: the transport accepted `bytes`. Fewer than offered, and the outlet
    /// refuses until [`writable`](Self::writable); the frame in mid-write is pinned and the rest
    /// goes back to the queue. A stale outlet is ignored. Cost: O(frames of the offer).
    ///
    /// # Panics
    /// When the outlet has no open offer, or more was accepted than offered.
    pub fn sent(&mut self, offer: Offer, bytes: u64) {
        self.tape_sent(offer.outlet, bytes);
        let OutletId { index, generation } = offer.outlet;
        let Some(outlet) = self.peers.outlets.get(index, generation) else { return };
        let write = &outlet.write;
        assert!(write.state == State::Offered, "an offer is settled once");
        let Offered { firsts, bytes: most, .. } = write.offered;
        assert!(bytes <= most, "no transport accepts more than it is offered");
        let mut delivered = Tally::ZERO;
        if bytes == most && firsts == 0 && write.begun.is_none() {
            if self.sent_whole(index, bytes, &mut delivered) {
                return;
            }
            while let Finished::Look(sub) = self.finish_all(index, &mut delivered) {
                self.after_delivery(sub);
            }
        } else {
            self.sent_in_part(index, firsts, (&mut { bytes }, &mut delivered));
        }
        let outlet = &mut self.peers.outlets[index];
        self.ledger.delivered(outlet.tenant, delivered);
        outlet.write.refusing = bytes < most;
        outlet.pressed |= bytes < most;
        if bytes < most || outlet.is_watched() {
            if bytes > 0 {
                self.slow.disarm(&mut self.peers.outlets, index);
            }
            self.note_heavy(index);
        }
        self.settled(index, bytes);
    }

    /// The usual case, with every table looked up once: whole slots, all accepted, and nobody
    /// waits for it. False when there is more to do; what is finished by then is in `delivered`.
    #[inline]
    fn sent_whole(&mut self, index: u32, bytes: u64, delivered: &mut Tally) -> bool {
        let Self { egress, ledger, memory, peers: Peers { outlets, subs, .. }, topics, .. } = self;
        let outlet = &mut outlets[index];
        if outlet.is_watched() || outlet.is_eventful() {
            return false;
        }
        if let Finished::Look(sub) = finish_all((outlet, memory, subs, topics), delivered) {
            self.after_delivery(sub);
            return false;
        }
        ledger.delivered(outlet.tenant, *delivered);
        outlet.write.refusing = false;
        if outlet.ring.is_empty() {
            outlet.keeps_up(self.codel.as_ref(), self.now);
        }
        if outlet.write.settle(bytes) && outlet.has_work() {
            egress.enlist_again(outlets, index);
        }
        true
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
    pub(super) fn settled(&mut self, index: u32, bytes: u64) {
        let outlet = &mut self.peers.outlets[index];
        let has_more = outlet.write.settle(bytes) && outlet.has_work();
        if outlet.ring.is_empty() {
            outlet.keeps_up(self.codel.as_ref(), self.now);
        }
        let is_eventful = outlet.is_eventful();
        if has_more {
            self.egress.enlist_again(&mut self.peers.outlets, index);
        }
        if is_eventful {
            self.after_turn(index);
        }
    }

    /// What waits for an outlet's turn to be over.
    fn after_turn(&mut self, index: u32) {
        let outlet = &self.peers.outlets[index];
        let (conn, closing) = (outlet.conn, outlet.closing);
        if outlet.write.control_full {
            self.note_control(index);
        }
        self.note_room(index);
        if closing.is_some() {
            self.note_flushed(conn);
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
        finish_all((&mut outlets[index], memory, subs, topics), delivered)
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
}
