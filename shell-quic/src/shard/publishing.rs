//! Publishes of peers.

use super::State;
use super::peers::Bound;
use crate::fault::Wrong;
use crate::refusal;
use bytes::Bytes;
use sluicegate_core::{
    Ack, ConnId, Keep, Message, Place, Reason, Refusal, Retry, Tally, Ticket, TopicId, Verdict,
};
use sluicegate_wire::quic::{self, Frame, Mode};

/// Publishes that one turn takes before the core runs them, so that its queue is full of work that
/// is too much, and never of work that merely came at once.
const JOBS: u32 = 32;

/// What became of a frame from a publish stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It was answered, or will be.
    Done,
    /// The peer is gone.
    Gone,
    /// This turn has enough: once more after it.
    Later,
    /// Not before the peer may publish again.
    Paused,
}

/// The right to do so is missing.
const FORBIDDEN: Refusal =
    Refusal { place: Place::Table, reason: Reason::NotAllowed, retry: Retry::Never };

impl State {
    /// A peer has opened a publish stream: a source of its own, or, when the connection is ending,
    /// one with the connection, which answers all that it brings.
    pub(crate) fn source(&mut self, conn: ConnId) -> ConnId {
        let Ok(source) = self.broker.source(conn) else { return conn };
        self.sources.insert(source.to_bits(), conn);
        source
    }

    /// A publish stream is over: what it has parked is refused, or shed and told.
    pub(crate) fn end_source(&mut self, source: ConnId) {
        if self.sources.remove(source.to_bits()).is_some() {
            self.broker.gone(source);
        }
    }

    /// Whether something that a publish stream has brought waits for room, and ends with it.
    pub(crate) fn has_parked(&mut self, source: ConnId) -> bool {
        self.sources.get(source.to_bits()).is_some() && self.broker.has_parked(source)
    }

    /// A frame has come on a publish stream.
    ///
    /// # Errors
    /// When the peer has broken the protocol.
    pub(crate) fn publish(
        &mut self,
        (conn, source): (ConnId, ConnId),
        frame: &Bytes,
    ) -> Result<Taken, Wrong> {
        if self.broker.is_paused(source) {
            return Ok(Taken::Paused);
        }
        if self.jobs >= JOBS {
            return Ok(Taken::Later);
        }
        let Some(peer) = self.peers.get(conn.to_bits()) else { return Ok(Taken::Gone) };
        let (topic, mode, records) = match quic::decode(frame)? {
            Some(Frame::Publish { topic, mode, records }) => (topic, mode, records),
            // Of a later version, which says that it can be passed over.
            None => return Ok(Taken::Done),
            Some(_) => return Err(Wrong::Unexpected("only publishes belong on a publish stream")),
        };
        let bound = usize::try_from(topic).ok().and_then(|topic| peer.topics.get(topic));
        let bound = bound.ok_or(Wrong::Unexpected("a publish names a topic that is not bound"))?;
        let (id, may) = (bound.id, bound.publish);
        let (ack, request) = match mode {
            Mode::Unacked => (Ack::None, None),
            Mode::Acked { request } => (Ack::Now, Some(request)),
            Mode::Waiting { request } => (Ack::Wait, Some(request)),
        };
        let block = frame.slice_ref(records.block());
        self.jobs += 1;
        if !may {
            let bytes = block.len() as u64;
            self.forbid(conn, Tally { records: records.count().into(), bytes }, request);
            return Ok(Taken::Done);
        }
        let message = Message {
            frame: block,
            records: records.count(),
            ack,
            except: None,
            keep: Keep::Default,
        };
        let mut verdict = self.broker.publish(source, id, message.clone());
        if is_gone(&verdict)
            && let Some(id) = self.rebind(conn, topic)
        {
            verdict = self.broker.publish(source, id, message);
        }
        self.answer(conn, request, verdict);
        Ok(Taken::Done)
    }

    fn answer(&mut self, conn: ConnId, request: Option<u64>, verdict: Verdict) {
        match (verdict, request) {
            (Verdict::Queued(ticket) | Verdict::Parked(ticket), Some(request)) => {
                if let Some(peer) = self.peers.get(conn.to_bits()) {
                    peer.acks.insert(ticket, request);
                }
            }
            (Verdict::Refused(why), Some(request)) => self.refuse(conn, request, why),
            // What is shed is told by a notice, and what is not acked has no answer.
            (Verdict::Queued(_) | Verdict::Parked(_) | Verdict::Shed(_), _)
            | (Verdict::Refused(_), None) => {}
        }
    }

    /// Without the right to it nothing is published: booked as refused and answered, or as shed
    /// and told with what is.
    fn forbid(&mut self, conn: ConnId, brought: Tally, request: Option<u64>) {
        match request {
            Some(request) => {
                self.broker.refuse(conn, brought, FORBIDDEN);
                self.refuse(conn, request, FORBIDDEN);
            }
            None => {
                self.broker.shed(conn, brought, FORBIDDEN);
                self.shed(conn, brought.records, (FORBIDDEN.place, FORBIDDEN.reason));
            }
        }
    }

    /// The core forgot a topic that nobody used: it gets it again, under another id.
    pub(super) fn rebind(&mut self, conn: ConnId, topic: u32) -> Option<TopicId> {
        let peer = self.peers.get(conn.to_bits())?;
        let tenant = self.tenants[peer.access.tenant];
        let Bound { name, id, .. } = peer.topics.get_mut(usize::try_from(topic).ok()?)?;
        *id = self.broker.topic(tenant, name).ok()?;
        Some(*id)
    }

    /// An acked publish was sequenced, or ended.
    pub(super) fn commit(&mut self, conn: ConnId, ticket: Ticket, result: Result<u64, Refusal>) {
        let Some(peer) = self.peers.get(conn.to_bits()) else { return };
        let Some(request) = peer.acks.remove(&ticket) else { return };
        match result {
            Ok(first) => self.tell(conn, &Frame::Ack { request, first }),
            Err(why) => self.refuse(conn, request, why),
        }
    }

    /// A request is answered no.
    pub(crate) fn refuse(&mut self, conn: ConnId, request: u64, why: Refusal) {
        self.tell(conn, &Frame::Refused { request, why: refusal::to_wire(why) });
    }

    /// A stream of a peer holds so many bytes of an unfinished frame, and held so many before.
    ///
    /// # Errors
    /// When all of the peer's streams together hold more than one connection may.
    pub(crate) fn hold(&mut self, conn: ConnId, before: u64, now: u64) -> Result<(), Wrong> {
        if before == now {
            return Ok(());
        }
        let Some(peer) = self.peers.get(conn.to_bits()) else { return Ok(()) };
        let held = peer.held - before + now;
        if self.broker.reassembly(conn, held).is_err() {
            return Err(Wrong::Unexpected("unfinished frames hold more than a connection may"));
        }
        peer.held = held;
        Ok(())
    }
}

fn is_gone(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Refused(why) | Verdict::Shed(why) => {
            (why.place, why.reason) == (Place::Table, Reason::Gone)
        }
        Verdict::Queued(_) | Verdict::Parked(_) => false,
    }
}
