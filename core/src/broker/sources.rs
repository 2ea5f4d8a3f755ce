//! Sources of publishes: a connection is one, and may have more, such as the streams of a QUIC
//! connection. Each waits for itself alone; what they have in flight is their connection's.
//!
//! Of each source only the first parked publish stands in line, once the connection has bytes for
//! it. These are promised to it until it is admitted, so nobody in a line ever waits for something
//! of his own connection. Where there are none, sources are served in the order in which they came.

use super::Broker;
use crate::id::ConnId;
use crate::notice::Notice;
use crate::peers::{CONN, PAUSE_FULL};
use crate::verdict::{Ack, Place, Reason, Refusal};
use alloc::vec::Vec;

/// The most sources that a connection has besides itself.
const MAX_SOURCES: u32 = 4096;

impl Broker {
    /// Adds a source to a connection. It publishes in the place of the connection, which answers
    /// name; only it is paused and resumed for what it published. It ends with
    /// [`gone`](Self::gone), or with its connection. Cost: O(1).
    pub fn source(&mut self, conn: ConnId) -> Result<ConnId, Refusal> {
        self.tape_source(conn);
        let peer = self.peers.whole(conn)?;
        if !self.is_running() {
            return Err(Self::shutting_down());
        }
        if peer.closing {
            return Err(Refusal::never(Place::Table, Reason::Closed));
        }
        if peer.sources.len() >= MAX_SOURCES {
            return Err(Refusal::never(Place::Table, Reason::Limit));
        }
        self.memory.charge(CONN);
        Ok(self.peers.add_source(conn.index))
    }

    /// A source ends, and its connection goes on, which is told of what was parked.
    pub(super) fn end_source(&mut self, index: u32) {
        let why = Refusal::never(Place::Schedule, Reason::Closed);
        let waits = !self.peers.conns[index].parked.is_empty();
        while let Some(parked) = self.peers.conns[index].parked.front() {
            self.turn_back(parked, why);
        }
        self.forget_source(index);
        if waits {
            self.serve_parked();
        }
    }

    /// Ends what the sources of a connection have parked; nothing pauses them any more.
    pub(super) fn close_sources(&mut self, conn: u32) {
        let sources: Vec<u32> = self.peers.conns[conn].sources.iter(&self.peers.conns).collect();
        for index in sources {
            self.peers.conns[index].closing = true;
            self.end_parked_of(index);
            self.pause_nothing(index);
        }
    }

    /// The sources of a connection end with it.
    pub(super) fn end_sources(&mut self, conn: u32) {
        while let Some(index) = self.peers.conns[conn].sources.front() {
            self.peers.conns[index].closing = true;
            self.end_parked_of(index);
            self.forget_source(index);
        }
    }

    fn forget_source(&mut self, index: u32) {
        self.peers.remove_source(index);
        self.memory.discharge(CONN);
    }

    /// A parked publish is given up, and its connection is told.
    pub(super) fn turn_back(&mut self, parked: u32, why: Refusal) {
        let ticket = self.ticket(parked);
        let acked = self.schedule.job(parked).ack != Ack::None;
        let conn = self.end_parked(parked, why);
        if acked {
            self.notices.push_back(Notice::Failed { conn, ticket, why });
        }
    }

    /// What of a connection's bytes is taken or promised; all, while a source waits for some.
    pub(super) fn spoken_for(&self, conn: u32) -> u64 {
        let peer = &self.peers.conns[conn];
        if peer.short.is_empty() {
            peer.inflight + u64::from(peer.promised)
        } else {
            self.limits.pub_conn_inflight_bytes
        }
    }

    /// The first parked publish of a source stands in line, once its connection has bytes for it.
    /// Those behind it wait for it: the publishes of a source come in order.
    pub(super) fn stand_next(&mut self, source: u32) {
        let peer = &self.peers.conns[source];
        let conn = peer.conn;
        let waits = peer.parked.front().is_some_and(|first| !self.schedule.stands(first));
        if waits && !peer.is_short() {
            self.peers.line_up(source);
        }
        self.serve_short(conn);
    }

    /// Sources that wait for bytes of their connection stand in line, as far as there are any.
    pub(super) fn serve_short(&mut self, conn: u32) {
        while let Some(source) = self.peers.conns[conn].short.front() {
            let first = self.peers.conns[source].parked.front().expect("it waits for bytes");
            let price = self.memory.get(self.schedule.job(first).message).cost;
            let peer = &self.peers.conns[conn];
            if !self.admission.conn_fits(peer.inflight + u64::from(peer.promised), price) {
                break;
            }
            self.promise(conn, price);
            self.peers.step_out(source);
            self.schedule.stand(first);
        }
    }

    /// A parked publish of a connection stands in line.
    pub(super) fn promise(&mut self, conn: u32, price: u64) {
        self.peers.conns[conn].promised += narrow(price);
    }

    /// One stands there no more: it gets what it was promised, or does not need it.
    pub(super) fn keep_promise(&mut self, conn: u32, price: u64) {
        self.peers.conns[conn].promised -= narrow(price);
    }

    /// A publish of a connection's sources is parked now, or is not any more. While they have as
    /// much parked as may be in flight, none of them brings more.
    pub(super) fn note_waiting(&mut self, conn: u32, price: u64, parked: bool) {
        let peer = &mut self.peers.conns[conn];
        peer.waiting = match parked {
            true => peer.waiting + narrow(price),
            false => peer.waiting - narrow(price),
        };
        let full = u64::from(peer.waiting) >= self.limits.pub_conn_inflight_bytes;
        self.pause(conn, PAUSE_FULL, full);
    }

    /// Another publish of a source is about to be its first parked one: what was promised to the
    /// first is promised no more.
    pub(super) fn break_promise(&mut self, source: u32) {
        let peer = &self.peers.conns[source];
        let conn = peer.conn;
        let Some(first) = peer.parked.front() else { return };
        if self.schedule.stands(first) {
            let price = self.memory.get(self.schedule.job(first).message).cost;
            self.keep_promise(conn, price);
        } else {
            self.peers.step_out(source);
        }
    }
}

/// What a connection has in flight or parked is less than 32 bits hold: `pub_conn_inflight_bytes`
/// is at most 1 GiB, and of what is parked there is less than twice that and one publish.
fn narrow(bytes: u64) -> u32 {
    u32::try_from(bytes).expect("a connection's bytes are bounded")
}
