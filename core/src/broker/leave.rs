//! Leaving: a subscription, a connection that we close, a connection that is gone.

use super::{Broker, Close, Lane};
use crate::id::{ConnId, OutletId, SubId};
use crate::lag::Load;
use crate::ledger::{Page, Tally};
use crate::notice::Notice;
use crate::peers::{CONN, OUTLET, Outlet, RUN, SLOT, SUB, Stage, Sub};
use crate::ring::Slot;
use crate::slab::NONE;
use crate::verdict::{Place, Policy, Reason, Refusal};
use bytes::Bytes;

/// What a connection that we close at once drops.
pub(super) const CLOSED: (Place, Reason) = (Place::Egress, Reason::Closed);

impl Broker {
    /// Ends a subscription: what waits for it has left; what its outlet was offered already is
    /// still delivered. Cost: O(1), amortised over the slots it leaves behind.
    pub fn unsubscribe(&mut self, sub: SubId) -> Result<(), Refusal> {
        self.tape_unsubscribe(sub);
        let outlet = self.peers.sub(sub)?.outlet;
        let index = sub.index;
        self.leave_audience(index);
        self.forget_gaps(index);
        let ring = &self.peers.outlets[outlet].ring;
        let mark = ring.mark();
        let taken: Tally = (ring.base()..mark)
            .map(|position| ring.at(position))
            .filter(|slot| slot.sub == index)
            .map(|slot| self.memory.get(slot.message).tally)
            .sum();
        let sub = &mut self.peers.subs[index];
        let Load { batches, bytes } = core::mem::take(&mut sub.waiting);
        sub.stage = Stage::Left(mark);
        let mut waiting = sub.books.lag;
        waiting -= taken;
        let topic = &mut self.topics[sub.topic];
        let page = Page { tenant: topic.tenant, topic: &mut topic.books, sub: &mut sub.books };
        self.ledger.left(page, waiting);
        let outlet_of = &mut self.peers.outlets[outlet];
        outlet_of.waiting.batches -= batches;
        outlet_of.waiting.bytes -= bytes;
        outlet_of.ring.add_dead(batches);
        self.free_sub(index);
        self.trim(outlet);
        self.note_room(outlet);
        self.note_heavy(outlet);
        self.egress_recheck(outlet);
        Ok(())
    }

    /// Takes a subscription out of its topic's audience, or out of those that are catching up.
    pub(super) fn leave_audience(&mut self, index: u32) {
        let sub = &mut self.peers.subs[index];
        let (topic, place) = (sub.topic, sub.place);
        let was = core::mem::replace(&mut sub.stage, Stage::Draining);
        self.peers.conns[self.peers.outlets[sub.outlet].conn].subs -= 1;
        let block = sub.policy == Policy::Block;
        self.topics[topic].blockers -= u32::from(block);
        if was == Stage::Behind {
            self.stop_behind(index);
            self.leave_behind(index);
            return self.note_interest(topic);
        }
        if was == Stage::Pending {
            self.topics[topic].pending.unlink(&mut self.peers.subs, index);
            return self.note_interest(topic);
        }
        self.peers.subs[index].place = NONE;
        if block {
            self.note_hold(index);
        }
        let subs = &mut self.peers.subs;
        let fan = self.fan.as_mut().filter(|fan| fan.topic == topic);
        let served = fan.as_ref().map_or(0, |fan| fan.served);
        let served =
            self.topics[topic].leave(place, served, |moved, place| subs[moved].place = place);
        if let Some(fan) = fan {
            fan.served = served;
        }
        self.note_interest(topic);
    }

    /// A subscription has one batch less. When it was its last one ever, what it lost is told.
    pub(super) fn finish_sub(&mut self, index: u32) {
        let sub = &self.peers.subs[index];
        if !sub.is_active() && sub.is_drained() {
            self.tell_gaps(index, u64::MAX);
        }
        self.free_sub(index);
    }

    /// Frees a subscription that has left once no slot names it.
    pub(super) fn free_sub(&mut self, index: u32) {
        let Sub { topic, ref gaps, .. } = self.peers.subs[index];
        let held = SUB + RUN * gaps.len();
        if self.peers.free_sub(index) {
            self.memory.discharge(held);
            self.topics[topic].subs -= 1;
            self.note_idle(topic);
        }
    }

    /// An outlet whose queue shrank without a write may have nothing left to write, and then is
    /// neither at its limit nor holds up the end of its connection.
    pub(super) fn egress_recheck(&mut self, outlet: u32) {
        if self.peers.outlets[outlet].waiting.batches == 0 {
            self.slow.disarm(&mut self.peers.outlets, outlet);
        }
        if self.peers.outlets[outlet].has_work() {
            return;
        }
        self.egress.forget(&mut self.peers.outlets, outlet);
        if self.peers.outlets[outlet].closing.is_some() {
            self.note_flushed(self.peers.outlets[outlet].conn);
        }
    }

    /// Makes a dead slot behind the mark a tombstone and frees what it named.
    pub(super) fn bury_dead(&mut self, outlet: u32, position: u64) {
        let slot = self.peers.outlets[outlet].ring.bury(position, true);
        self.memory.release(slot.message);
        self.peers.subs[slot.sub].slots -= 1;
        self.free_sub(slot.sub);
    }

    /// Rewrites a ring without its dead slots. Cost: O(slots), at most half of them live.
    pub(super) fn compact(&mut self, outlet: u32) {
        let ring = &self.peers.outlets[outlet].ring;
        let (mark, end) = (ring.mark(), ring.end());
        for position in mark..end {
            let slot = self.peers.outlets[outlet].ring.at(position);
            let data = !slot.is_tombstone() && !slot.is_control();
            if data && self.peers.subs[slot.sub].is_dead(position) {
                self.bury_dead(outlet, position);
            }
        }
        let ring = &mut self.peers.outlets[outlet].ring;
        let before = ring.len();
        ring.compact(|slot| !slot.is_tombstone());
        let freed = before - ring.len();
        self.memory.discharge(SLOT * u64::from(freed));
        // Slots have moved to the front: at worst one is sampled once more.
        let outlet = &mut self.peers.outlets[outlet];
        outlet.judged = outlet.judged.min(outlet.ring.mark());
    }

    /// What a subscription lost is not told any more.
    pub(super) fn forget_gaps(&mut self, index: u32) {
        let gaps = core::mem::take(&mut self.peers.subs[index].gaps);
        self.memory.discharge(RUN * gaps.len());
    }

    /// We end the connection. `last` is its last frame, on its first outlet (may be empty): after
    /// what waits, or (`Now`) right after a frame in mid-write and control frames, with what waits
    /// dropped and counted. Its parked publishes are refused. A flushed notice follows; then the
    /// host closes the transport and says [`gone`](Self::gone). Cost: O(what waits).
    pub fn close(&mut self, conn: ConnId, how: Close, last: Bytes) -> Result<(), Refusal> {
        self.tape_close(conn, how, last.len() as u64);
        if self.peers.whole(conn)?.closing {
            return Err(Refusal::never(Place::Table, Reason::Closed));
        }
        let index = conn.index;
        self.peers.conns[index].closing = true;
        self.close_sources(index);
        self.end_parked_of(index);
        self.pause_nothing(index);
        self.serve_parked();
        let mut last = Some(last);
        let mut next = self.peers.conns[index].outlets.front();
        for _ in 0..self.peers.conns[index].outlets.len() {
            let outlet = next.expect("the list is as long as it says");
            self.detach_all(outlet, how == Close::AfterFlush);
            self.peers.outlets[outlet].closing = Some(how);
            self.slow.disarm(&mut self.peers.outlets, outlet);
            let lane = if how == Close::Now { Lane::First } else { Lane::InLine };
            if how == Close::Now {
                self.drop_waiting(outlet, CLOSED);
            }
            if let Some(frame) = last.take() {
                self.push_control(outlet, frame, lane);
            }
            self.egress_recheck(outlet);
            self.peers.conns[index].outlets.rotate(&mut self.peers.outlets);
            next = self.peers.conns[index].outlets.front();
        }
        self.note_flushed(index);
        Ok(())
    }

    /// The transport is gone: what waited or was in mid-write has left, parked publishes
    /// are refused; admitted ones still run. Of a source only its parked publishes end, and its
    /// connection is told. Always the last call for a connection or a source; a stale id is
    /// ignored. Cost: O(its subscriptions, its sources and what waits).
    pub fn gone(&mut self, conn: ConnId) {
        self.tape_gone(conn);
        let Ok(peer) = self.peers.conn(conn) else { return };
        let index = conn.index;
        if peer.conn != index {
            return self.end_source(index);
        }
        self.peers.conns[index].closing = true;
        self.peers.conns[index].flushed = true;
        self.end_sources(index);
        self.end_parked_of(index);
        self.serve_parked();
        while let Some(outlet) = self.peers.conns[index].outlets.front() {
            self.end_outlet(outlet);
        }
        let peers = &mut self.peers;
        peers.untold.unlink_if(&mut peers.conns, index);
        let reassembly = peers.conns.remove(index).reassembly;
        self.memory.discharge(CONN + reassembly);
    }

    /// The transport of one outlet is gone, or is not wanted any more: what waited for its
    /// subscriptions or was in mid-write has left. A stale id is ignored.
    /// Cost: O(its subscriptions and what waits).
    pub fn shut(&mut self, outlet: OutletId) {
        self.tape_shut(outlet);
        if let Ok(pipe) = self.peers.outlet(outlet) {
            let conn = pipe.conn;
            self.end_outlet(outlet.index);
            self.note_control_of(conn);
            self.note_flushed(conn);
        }
    }

    fn end_outlet(&mut self, outlet: u32) {
        self.detach_all(outlet, false);
        self.drain(outlet);
        while let Some(sub) = self.peers.outlets[outlet].subs.front() {
            debug_assert_eq!(self.peers.subs[sub].slots, 0, "an empty ring names nobody");
            self.free_sub(sub);
        }
        self.egress.forget(&mut self.peers.outlets, outlet);
        self.slow.disarm(&mut self.peers.outlets, outlet);
        self.heaviest.leave(&mut self.peers.outlets, outlet);
        self.peers.remove_outlet(outlet);
        self.memory.discharge(OUTLET);
    }

    /// Ends what a connection or a source of one has parked. The caller serves the others, when it
    /// has ended all that it ends.
    pub(super) fn end_parked_of(&mut self, index: u32) {
        while let Some(parked) = self.peers.conns[index].parked.front() {
            self.end_parked(parked, Refusal::never(Place::Schedule, Reason::Closed));
        }
    }

    /// A closing connection is read until its peer closes: nothing pauses it any more.
    pub(super) fn pause_nothing(&mut self, index: u32) {
        let paused = self.peers.conns[index].paused;
        if paused != 0 {
            self.pause(index, paused, false);
        }
    }

    /// Takes all live subscriptions of an outlet out of their audiences. What they lost may still
    /// be told (`tells`), or is not any more.
    fn detach_all(&mut self, outlet: u32, tells: bool) {
        let mut next = self.peers.outlets[outlet].subs.front();
        for _ in 0..self.peers.outlets[outlet].subs.len() {
            let sub = next.expect("the list is as long as it says");
            if self.peers.subs[sub].is_active() {
                self.leave_audience(sub);
            }
            if !tells {
                self.forget_gaps(sub);
            }
            let peers = &mut self.peers;
            peers.outlets[outlet].subs.rotate(&mut peers.subs);
            next = peers.outlets[outlet].subs.front();
        }
    }

    /// Frees subscriptions that left and have no slot, and tells what they lost.
    fn free_drained(&mut self, outlet: u32) {
        for _ in 0..self.peers.outlets[outlet].subs.len() {
            let peers = &mut self.peers;
            let Some(sub) = peers.outlets[outlet].subs.front() else { return };
            peers.outlets[outlet].subs.rotate(&mut peers.subs);
            self.finish_sub(sub);
        }
    }

    /// Drops what is not taken, newest first. Control frames stay, unless the connection is closed
    /// at once.
    pub(super) fn drop_waiting(&mut self, outlet: u32, why: (Place, Reason)) {
        let Outlet { ring, closing, .. } = &self.peers.outlets[outlet];
        let keeps_control = *closing != Some(Close::Now);
        for position in (ring.mark()..ring.end()).rev() {
            let slot = self.peers.outlets[outlet].ring.at(position);
            if !(slot.is_control() && keeps_control) {
                self.end_slot(outlet, position, Some(why));
            }
        }
        self.compact(outlet);
        self.free_drained(outlet);
        self.note_heavy(outlet);
    }

    /// Empties an outlet whose transport is gone.
    fn drain(&mut self, outlet: u32) {
        while let Some(message) = self.peers.outlets[outlet].write.pop_first() {
            self.memory.release(message);
        }
        loop {
            let ring = &self.peers.outlets[outlet].ring;
            if ring.is_empty() {
                break;
            }
            self.end_slot(outlet, ring.base(), None);
            self.peers.outlets[outlet].ring.pop();
            self.memory.discharge(SLOT);
        }
    }

    /// Ends what a slot holds, and makes it a tombstone: dropped by us, or left with the peer.
    fn end_slot(&mut self, outlet: u32, position: u64, ours: Option<(Place, Reason)>) {
        let ring = &mut self.peers.outlets[outlet].ring;
        let is_taken = position < ring.mark();
        let slot = ring.at(position);
        if slot.is_tombstone() {
            return;
        }
        if slot.is_control() {
            ring.bury(position, false);
            self.peers.outlets[outlet].write.control -= self.memory.get(slot.message).cost;
            self.memory.release(slot.message);
            return;
        }
        if self.peers.subs[slot.sub].is_dead(position) {
            self.bury_dead(outlet, position);
            return;
        }
        ring.bury(position, false);
        self.uncount(outlet, slot, is_taken);
        let held = self.memory.get(slot.message);
        let (first, tally) = (held.first, held.tally);
        if let Some((place, reason)) = ours {
            self.book_drop(slot.sub, (first, tally), place, reason);
            self.peers.note_due(slot.sub);
            if self.peers.subs[slot.sub].holds {
                self.note_hold(slot.sub);
            }
        } else {
            let sub = &mut self.peers.subs[slot.sub];
            let topic = &mut self.topics[sub.topic];
            let page = Page { tenant: topic.tenant, topic: &mut topic.books, sub: &mut sub.books };
            self.ledger.left(page, tally);
        }
        self.memory.release(slot.message);
        if ours.is_some() {
            self.finish_sub(slot.sub);
        } else {
            self.free_sub(slot.sub);
        }
    }

    fn uncount(&mut self, outlet: u32, slot: Slot, is_taken: bool) {
        if !is_taken {
            return self.forget_waiting(outlet, slot);
        }
        let cost = self.memory.get(slot.message).cost;
        self.peers.outlets[outlet].taken.remove(cost);
        let sub = &mut self.peers.subs[slot.sub];
        sub.taken.remove(cost);
        sub.slots -= 1;
    }

    /// Tells the host once when a closing connection has nothing left to write.
    pub(super) fn note_flushed(&mut self, index: u32) {
        let conn = &self.peers.conns[index];
        if !conn.closing || conn.flushed {
            return;
        }
        let mut outlets = conn.outlets.iter(&self.peers.outlets);
        if outlets.any(|outlet| self.peers.outlets[outlet].has_work()) {
            return;
        }
        self.peers.conns[index].flushed = true;
        let conn = self.peers.conn_id(index);
        self.notices.push_back(Notice::Flushed { conn });
    }
}
