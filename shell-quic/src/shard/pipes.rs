//! Pipes: the QUIC streams that outlets of the core are written to.

use super::{Bell, State, chunks};
use bytes::Bytes;
use quinn::{SendStream, WriteError};
use sluicegate_core::{ConnId, Offer, OutletId, SubId, TopicId};
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// One outlet's stream.
pub(super) struct Pipe {
    pub(super) outlet: OutletId,
    pub(super) conn: ConnId,
    pub(super) stream: SendStream,
    /// Its subscription; none for a control stream.
    pub(super) sub: Option<Sub>,
    /// An offer that the stream has not taken whole, and what is left of it.
    open: Option<Offer>,
    chunks: Vec<Bytes>,
    wake: Arc<PipeWaker>,
    waker: Waker,
    /// Nothing comes after what waits.
    pub(super) is_ending: bool,
    /// Bytes that the stream has taken, in whole offers: what the books call delivered.
    pub(super) handed: u64,
}

/// What a pipe is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sub {
    pub(super) id: SubId,
    /// Its number on the connection.
    pub(super) number: u32,
    /// Of the subscribe, until it was answered.
    pub(super) request: Option<u64>,
    pub(super) topic: TopicId,
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe").field("outlet", &self.outlet).finish_non_exhaustive()
    }
}

/// Wakes a pipe: once, until it was tried again.
struct PipeWaker {
    bell: Arc<Bell>,
    outlet: OutletId,
    is_woken: AtomicBool,
}

impl Wake for PipeWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            self.bell.wake(self.outlet);
        }
    }
}

impl Pipe {
    pub(super) fn new(
        (conn, outlet): (ConnId, OutletId),
        stream: SendStream,
        bell: &Arc<Bell>,
    ) -> Self {
        let is_woken = AtomicBool::new(false);
        let wake = Arc::new(PipeWaker { bell: Arc::clone(bell), outlet, is_woken });
        let waker = Waker::from(Arc::clone(&wake));
        Self {
            outlet,
            conn,
            stream,
            sub: None,
            open: None,
            chunks: Vec::new(),
            wake,
            waker,
            is_ending: false,
            handed: 0,
        }
    }

    /// Whether the stream has still to take some of an offer.
    pub(super) const fn is_stuck(&self) -> bool {
        self.open.is_some()
    }

    /// Writes as much as the stream takes.
    fn write(&mut self) -> Poll<Result<(), WriteError>> {
        self.wake.is_woken.store(false, Ordering::Release);
        let mut done = 0;
        let result = loop {
            if done == self.chunks.len() {
                break Poll::Ready(Ok(()));
            }
            let written = pin!(self.stream.write_chunks(&mut self.chunks[done..]));
            match written.poll(&mut Context::from_waker(&self.waker)) {
                Poll::Ready(Ok(written)) => done += written.chunks,
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                Poll::Pending => break Poll::Pending,
            }
        };
        self.chunks.drain(..done);
        result
    }
}

impl State {
    /// The core has something for an outlet.
    pub(super) fn write(&mut self, offer: Offer) {
        let Some(pipe) = self.pipes.get(offer.outlet.to_bits()) else {
            // Its stream is gone, and so is what it was offered.
            return self.broker.shut(offer.outlet);
        };
        chunks::of(self.broker.frames(offer), &mut pipe.chunks);
        pipe.open = Some(offer);
        if !self.go_on(offer.outlet) {
            self.broker.refused(offer.outlet);
        }
    }

    /// Goes on with the pipes that may take bytes again.
    pub(super) fn write_woken(&mut self) {
        for outlet in self.bell.take_woken() {
            self.go_on(outlet);
        }
    }

    /// Writes what is left of an open offer. False when the stream took not all of it.
    fn go_on(&mut self, outlet: OutletId) -> bool {
        let Some(pipe) = self.pipes.get(outlet.to_bits()) else { return true };
        let Some(offer) = pipe.open else { return true };
        match pipe.write() {
            Poll::Ready(Ok(())) => {
                pipe.open = None;
                pipe.handed += offer.bytes;
                self.broker.sent(offer, offer.bytes);
                self.end_if_empty(outlet);
                true
            }
            Poll::Ready(Err(_)) => {
                self.stopped(outlet);
                true
            }
            Poll::Pending => false,
        }
    }

    /// The peer takes nothing more on this stream, or is gone. A control stream lives as long as
    /// its connection: whoever reads from that will notice.
    pub(crate) fn stopped(&mut self, outlet: OutletId) {
        let Some(pipe) = self.pipes.get(outlet.to_bits()) else { return };
        if pipe.sub.is_some() {
            self.drop_pipe(outlet);
        }
    }

    /// Nothing comes after what waits in this pipe.
    pub(super) fn end_pipe(&mut self, outlet: OutletId) {
        if let Some(pipe) = self.pipes.get(outlet.to_bits()) {
            pipe.is_ending = true;
            self.end_if_empty(outlet);
        }
    }

    fn end_if_empty(&mut self, outlet: OutletId) {
        let Some(pipe) = self.pipes.get(outlet.to_bits()) else { return };
        if pipe.is_ending && !pipe.is_stuck() && self.broker.has_work(outlet) == Some(false) {
            // Closed already when the peer has stopped it.
            let _ = pipe.stream.finish();
            self.drop_pipe(outlet);
        }
    }

    /// Ends an outlet that is no connection's control stream.
    pub(super) fn drop_pipe(&mut self, outlet: OutletId) {
        let Some(pipe) = self.pipes.remove(outlet.to_bits()) else { return };
        self.broker.shut(outlet);
        if let Some(sub) = pipe.sub {
            self.subs.remove(sub.id.to_bits());
            if let Some(peer) = self.peers.get(pipe.conn.to_bits()) {
                peer.subs.remove(&sub.number);
                peer.ended.insert(outlet, pipe.handed);
            }
        }
    }
}
