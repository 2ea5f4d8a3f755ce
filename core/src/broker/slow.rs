//! Peers that stay full: a slow consumer is ended after a while, and so is a subscription that
//! holds its topic for too long.

use super::Broker;
use crate::notice::Notice;
use crate::peers::{Pipe, Stage};
use crate::verdict::{Place, Policy, Reason, Refusal};

/// Advice to a peer that was ended for being slow.
const RETRY_MS: u16 = 1_000;

impl Broker {
    /// A policy dropped at an outlet's limit: from now on its transport has
    /// `slow_consumer_after_ms` to take a byte.
    pub(super) fn note_full(&mut self, outlet: u32) {
        if self.limits.slow_consumer_after_ms > 0 && !self.peers.outlets[outlet].is_slow() {
            self.slow.arm(&mut self.peers.outlets, outlet, self.now);
        }
    }

    /// Fires what is due: slow consumers, and subscriptions under `block`.
    pub(super) fn end_slow(&mut self) {
        while let Some(outlet) = self.slow.due(&mut self.peers.outlets, self.now) {
            if self.peers.outlets[outlet].write.refusing {
                self.end_consumer(outlet);
            }
        }
        while let Some(sub) = self.blocking.due(&mut self.peers.subs, self.now) {
            let why = Refusal::after(Place::Backlog, Reason::Deadline, RETRY_MS);
            self.end_sub(sub, why);
        }
    }

    /// Its peer took no byte for too long.
    fn end_consumer(&mut self, outlet: u32) {
        let why = Refusal::after(Place::Backlog, Reason::SlowConsumer, RETRY_MS);
        match self.peers.outlets[outlet].pipe {
            Pipe::Shared => self.condemn(self.peers.outlets[outlet].conn, why),
            Pipe::Single => {
                let sub = self.peers.outlets[outlet].subs.front();
                if let Some(sub) = sub.filter(|sub| self.peers.subs[*sub].is_active()) {
                    self.end_sub(sub, why);
                }
            }
        }
    }

    /// The core gives a connection up: the host is to close it.
    pub(super) fn condemn(&mut self, conn: u32, why: Refusal) {
        let peer = &mut self.peers.conns[conn];
        if !peer.condemned && !peer.closing {
            peer.condemned = true;
            let conn = self.peers.conn_id(conn);
            self.notices.push_back(Notice::Close { conn, why });
        }
    }

    /// We end the subscription of a single outlet: what waits for it is dropped and counted; what
    /// its transport was offered already is still delivered. The end says all that was lost.
    fn end_sub(&mut self, index: u32, why: Refusal) {
        let sub = self.peers.sub_id(index);
        let outlet = self.peers.subs[index].outlet;
        debug_assert!(
            self.peers.outlets[outlet].pipe == Pipe::Single,
            "one queue, one subscription"
        );
        self.notices.push_back(Notice::Ended { sub, why });
        self.leave_audience(index);
        self.forget_gaps(index);
        self.drop_waiting(outlet, (why.place, why.reason));
        self.egress_recheck(outlet);
    }

    /// Keeps the deadline of a `block` subscription: it runs while that holds its topic.
    pub(super) fn note_blocking(&mut self, index: u32) {
        let sub = &self.peers.subs[index];
        let timed = self.limits.lossless == 0 && self.limits.block_deadline_ms > 0;
        if sub.holds && timed && sub.stage == Stage::Live && sub.policy == Policy::Block {
            self.blocking.arm(&mut self.peers.subs, index, self.now);
        } else {
            self.blocking.disarm(&mut self.peers.subs, index);
        }
    }
}
