//! Peers: connections that have said who they are.

use super::pipes::Pipe;
use super::{Bell, State};
use crate::access::Access;
use crate::clock::unix_millis;
use crate::transport::SEND_WINDOW;
use bytes::Bytes;
use quinn::{Connection, SendStream, VarInt};
use sluicegate_core::{
    Close, ConnId, Instant, Lane, OutletId, Pipe as Kind, Place, Reason, Refusal, Ticket, TopicId,
};
use sluicegate_host::metrics::Unconfirmed;
use sluicegate_wire::quic::{self, Code, Frame, Welcome};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Shed notices of one peer are this far apart.
const SHED_PACE: Duration = Duration::from_millis(100);

/// A connection as its shard knows it.
pub(crate) struct Peer {
    pub(super) conn: ConnId,
    /// As it was told in the welcome.
    pub(super) session: u64,
    pub(super) link: Connection,
    pub(super) control: OutletId,
    pub(super) access: Arc<Access>,
    /// Told when publishing may go on.
    pub(super) resumed: Arc<Notify>,
    /// Of acked publishes that were not answered: their requests. Bounded by the core's slots.
    pub(super) acks: BTreeMap<Ticket, u64>,
    /// By their numbers on the connection.
    pub(super) topics: Vec<Bound>,
    /// Pipes of subscriptions, by their numbers on the connection.
    pub(super) subs: BTreeMap<u32, OutletId>,
    pub(super) next_sub: u32,
    /// Of subscriptions that have ended: bytes handed to their streams, until the peer has
    /// acknowledged all. Bounded by the streams that the peer grants.
    pub(super) ended: BTreeMap<OutletId, u64>,
    /// Told by who waits at the end: the peer has acknowledged everything.
    pub(super) has_all: Arc<AtomicBool>,
    /// Memory of unfinished frames, over its streams.
    pub(super) held: u64,
    /// Shed and not told yet.
    sheds: Vec<(Place, Reason, u64)>,
    /// It was told a moment ago.
    is_told: bool,
}

/// A topic that a connection has a number for.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub(super) name: Arc<str>,
    pub(super) id: TopicId,
    pub(super) publish: bool,
    pub(super) subscribe: bool,
}

/// A connection whose peer has said who it is.
pub(crate) struct Newcomer {
    pub(crate) link: Connection,
    pub(crate) control: SendStream,
    pub(crate) access: Arc<Access>,
    pub(crate) version: u16,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("conn", &self.conn).finish_non_exhaustive()
    }
}

/// Who is told next what was shed, in order of time.
#[derive(Debug, Default)]
pub(super) struct Sheds(VecDeque<(Instant, ConnId)>);

impl Sheds {
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.front().map(|(at, _)| *at)
    }
}

impl State {
    /// Lets a connection in, and welcomes it.
    ///
    /// # Errors
    /// When the core has no room for it; the control stream is gone then.
    pub(crate) fn open(&mut self, newcomer: Newcomer) -> Result<ConnId, Refusal> {
        let Newcomer { link, control: stream, access, version } = newcomer;
        self.broker.welcome()?;
        let conn = self.broker.open(self.tenants[access.tenant])?;
        let control = self.broker.outlet(conn, Kind::Shared)?;
        let bell: &Arc<Bell> = &self.bell;
        self.pipes.insert(control.to_bits(), Pipe::new((conn, control), stream, bell));
        self.sessions += 1;
        let session = self.sessions << 8 | u64::from(self.broker.number());
        let peer = Peer {
            conn,
            session,
            link,
            control,
            access,
            resumed: Arc::new(Notify::new()),
            acks: BTreeMap::new(),
            topics: Vec::new(),
            subs: BTreeMap::new(),
            next_sub: 0,
            ended: BTreeMap::new(),
            has_all: Arc::default(),
            held: 0,
            sheds: Vec::new(),
            is_told: false,
        };
        self.peers.insert(conn.to_bits(), peer);
        self.process.sockets = self.peers.len() as u64;
        let settings = &self.settings;
        let small = |limit: u64| u32::try_from(limit).unwrap_or(u32::MAX);
        let welcome = Welcome {
            version,
            features: 0,
            session,
            time_ms: unix_millis(),
            max_frame_bytes: self.broker.limits().max_frame_bytes,
            max_subscriptions: small(settings.max_subscriptions),
            max_topics: small(settings.max_topics),
            max_publish_streams: small(settings.max_publish_streams),
            idle_ms: settings.idle_timeout_ms,
        };
        self.tell(conn, &Frame::Welcome(welcome));
        Ok(conn)
    }

    /// Told when a peer may publish again.
    pub(crate) fn resumed(&mut self, conn: ConnId) -> Option<Arc<Notify>> {
        self.peer(conn).map(|peer| Arc::clone(&peer.resumed))
    }

    /// A sign of life was wanted.
    pub(crate) fn pong(&mut self, conn: ConnId, token: u64) {
        self.tell(conn, &Frame::Pong { token });
    }

    /// The peer knows all of an ended subscription, or does not want it.
    pub(crate) fn arrived(&mut self, conn: ConnId, outlet: OutletId) {
        if let Some(peer) = self.peers.get(conn.to_bits()) {
            peer.ended.remove(&outlet);
        }
    }

    /// The connection has died: what was handed to it may not have arrived. The transport does not
    /// tell how much was acknowledged, but it never holds more than its window of what was not.
    pub(crate) fn die(&mut self, conn: ConnId) {
        let Some(peer) = self.peers.get(conn.to_bits()) else { return };
        let mut bytes: u64 = peer.ended.values().sum();
        if !peer.has_all.load(Ordering::Acquire) {
            for outlet in peer.subs.values() {
                bytes += self.pipes.get(outlet.to_bits()).map_or(0, |pipe| pipe.handed);
            }
        }
        let noted = self.process.unconfirmed.get_or_insert_default();
        if bytes > 0 {
            *noted += Unconfirmed { connections: 1, bytes: bytes.min(SEND_WINDOW) };
        }
        self.leave(conn);
    }

    /// The connection is gone.
    pub(crate) fn leave(&mut self, conn: ConnId) {
        let Some(peer) = self.peers.remove(conn.to_bits()) else { return };
        self.pipes.remove(peer.control.to_bits());
        for outlet in peer.subs.into_values() {
            if let Some(sub) = self.pipes.remove(outlet.to_bits()).and_then(|pipe| pipe.sub) {
                self.subs.remove(sub.id.to_bits());
            }
        }
        // Who waits for this peer's turn finds that it is gone.
        peer.resumed.notify_waiters();
        self.process.sockets = self.peers.len() as u64;
        self.broker.gone(conn);
    }

    /// The core gives a connection up.
    pub(super) fn evict(&mut self, conn: ConnId, why: Refusal) {
        let Some(peer) = self.peers.get(conn.to_bits()) else { return self.broker.gone(conn) };
        let text = format!("evicted: {}, {}", why.place.name(), why.reason.name());
        peer.link.close(VarInt::from_u32(Code::Evicted.number().into()), text.as_bytes());
        // What waits is dropped by us, and not left by the peer. It cannot be closed twice.
        let _ = self.broker.close(conn, Close::Now, Bytes::new());
        self.die(conn);
    }

    /// Unacked records of a peer were discarded.
    pub(super) fn shed(&mut self, conn: ConnId, records: u64, (place, reason): (Place, Reason)) {
        let now = self.broker.now();
        let Some(peer) = self.peers.get(conn.to_bits()) else { return };
        let same = |shed: &&mut (Place, Reason, u64)| (shed.0, shed.1) == (place, reason);
        match peer.sheds.iter_mut().find(same) {
            Some(shed) => shed.2 += records,
            None => peer.sheds.push((place, reason, records)),
        }
        if !peer.is_told {
            self.tell_shed(conn);
            self.sheds.0.push_back((now + SHED_PACE, conn));
        }
    }

    /// Tells peers what was shed while they had been told a moment before.
    pub(super) fn tell_due_sheds(&mut self) {
        let now = self.broker.now();
        while self.sheds.next().is_some_and(|at| at <= now) {
            let Some((_, conn)) = self.sheds.0.pop_front() else { return };
            if self.tell_shed(conn) {
                self.sheds.0.push_back((now + SHED_PACE, conn));
            }
        }
    }

    /// Whether there was something to tell.
    fn tell_shed(&mut self, conn: ConnId) -> bool {
        let Some(peer) = self.peers.get(conn.to_bits()) else { return false };
        let sheds = std::mem::take(&mut peer.sheds);
        peer.is_told = !sheds.is_empty();
        for (place, reason, records) in &sheds {
            let retry = quic::Retry::Never;
            let why = quic::Refusal { place: place.code(), reason: reason.code(), retry };
            self.tell(conn, &Frame::Shed { records: *records, why });
        }
        !sheds.is_empty()
    }

    /// Says on a subscription's own stream, before the records that wait there.
    pub(super) fn say(&mut self, outlet: OutletId, frame: &Frame<'_>, lane: Lane) {
        // Refused when the connection is being closed: nothing more is said there.
        let _ = self.broker.send(outlet, frame.bytes().into(), lane);
    }
}
