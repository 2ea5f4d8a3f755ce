//! The HTTP fallback: who answers whom, and which loop has a session.
//!
//! A session of the fallback is a socket without a stream: a [`Relay`]. Its frames leave as lines
//! in the response of another socket, its carrier, while there is one; without one nothing is
//! taken from the core, and what waits, waits there. Bodies of requests come into its inbox as
//! frames of a client. All of it is in the loop that the session's name leads to: a socket with a
//! request for a session of another loop goes to that one, as it is.
//!
//! An offer is settled when its lines are written, so that what a stalled or broken response did
//! not take was not delivered. A response that breaks before its end is the end of the session, as
//! a broken socket is that of a WebSocket. A response that ended well leaves the session without a
//! carrier, for a while.
//!
//! Bounds: a session is a connection of the core, and counts as one of its app; at most half of a
//! loop's connections are sessions, since each needs a socket as well. It has one carrier at most,
//! [`BATCH`] and a frame on the way in it, and [`INBOX`] that is not digested.

use super::Worker;
use super::socket::{Key, Socket};
use super::stream::{Relay, Stream};
use crate::session::fallback::{MAX_SEND, Part, Post, Verb};
use crate::session::{Action, MAX_MESSAGE, Session};
use sluicegate_core::Offer;
use sluicegate_wire::fallback::{self, Batch, RESPONSE_CHARS};
use sluicegate_wire::pusher::close;

/// What one part of a response takes of an offer, unless the first frame is longer.
const BATCH: usize = 64 << 10;

/// What a session may have received and not digested, unless it is a single body.
const INBOX: usize = 2 * MAX_SEND;

/// A socket on its way to another loop, with a request for a session there.
#[derive(Debug)]
pub struct Moved {
    stream: Stream,
    /// What came behind the request.
    inbox: Vec<u8>,
    is_at_end: bool,
    keep_alive: bool,
    post: Box<Post>,
}

/// The socket whose response carries what is said in a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carrier {
    key: Key,
    /// A response that goes on; otherwise it has one part.
    is_stream: bool,
    /// Characters that it brought.
    chars: u64,
    /// It has its last part, which may be on the way.
    is_ended: bool,
}

impl Worker {
    /// A request of the fallback is whole.
    pub(super) fn posted(&mut self, key: Key, post: Box<Post>) {
        let owner = self.shard.owner_of_post(&post.name);
        if owner == self.port.number() {
            self.take_post(key, &post);
        } else {
            self.move_socket(key, owner, post);
        }
    }

    /// Hands a socket over to another loop.
    fn move_socket(&mut self, key: Key, owner: u32, post: Box<Post>) {
        let mut socket = self.take_socket(key);
        let Socket { inbox, is_at_end, .. } = &mut socket;
        let (inbox, is_at_end) = (std::mem::take(inbox), *is_at_end);
        let keep_alive = socket.session.keeps_alive();
        socket.session.end(&mut self.shard);
        let moved = Moved { stream: socket.stream, inbox, is_at_end, keep_alive, post };
        // Bounded by the sockets of this loop: none is accepted that it has no descriptor for.
        self.moves[owner as usize].push_back(Box::new(moved));
    }

    /// A socket has come from another loop. Without room for it in the core it is closed at once.
    pub(super) fn moved_in(&mut self, moved: Moved) {
        let Moved { stream, inbox, is_at_end, keep_alive, post } = moved;
        let Ok(mut session) = Session::open(&mut self.shard) else {
            self.shard.process.refused_sockets += 1;
            return;
        };
        session.resume(keep_alive);
        let is_pending = stream.is_pending();
        let key = self.insert(stream, session);
        if !key.is_live(&self.sockets) {
            return;
        }
        let socket = &mut self.sockets[key.index];
        (socket.inbox, socket.is_at_end, socket.is_readable) = (inbox, is_at_end, true);
        if is_pending {
            self.want_writable(key, true);
        }
        if key.is_live(&self.sockets) {
            self.take_post(key, &post);
        }
        if key.is_live(&self.sockets) {
            self.queue(key);
        }
    }

    fn take_post(&mut self, key: Key, post: &Post) {
        let found = self.relays.get(&post.name).copied();
        let found = found.filter(|key| key.is_live(&self.sockets));
        match (post.verb, found) {
            (Verb::Send, None) => {
                self.answer(key, Part::Whole(404, b"no such session, or it is over\n".to_vec()));
            }
            (Verb::Send, Some(to)) => match fallback::frames(&post.body, MAX_MESSAGE) {
                Ok(frames) => {
                    self.answer(key, Part::Whole(204, Vec::new()));
                    self.hear(to, &frames);
                }
                Err(fault) => {
                    self.answer(key, Part::Whole(400, format!("{fault}\n").into_bytes()));
                }
            },
            (Verb::Poll | Verb::Stream, Some(to)) => self.attach(key, to, post, false),
            (Verb::Poll | Verb::Stream, None) => match self.open_relay(post) {
                Ok(to) => self.attach(key, to, post, true),
                Err((code, reason)) => {
                    self.answer(key, Part::Whole(200, fallback::refusal(code, &reason)));
                }
            },
        }
    }

    /// A client's frames come in.
    fn hear(&mut self, to: Key, frames: &[u8]) {
        let socket = &mut self.sockets[to.index];
        if !socket.inbox.is_empty() && socket.inbox.len() + frames.len() > INBOX {
            socket.session.flooded(&mut self.shard);
            return self.deadlines.update(&mut self.sockets, to.index, self.now);
        }
        socket.inbox.extend_from_slice(frames);
        self.queue(to);
    }

    fn open_relay(&mut self, post: &Post) -> Result<Key, (u16, String)> {
        if !self.shard.is_ready {
            return Err((close::RECONNECT, "the server is being stopped".to_owned()));
        }
        if self.relays.len() as u64 >= self.shard.broker.limits().max_connections / 2 {
            let reason = "no room: half of the connections are of the HTTP fallback";
            return Err((close::OVER_CAPACITY, reason.to_owned()));
        }
        let session = Session::fallback(&mut self.shard, post)?;
        let stream = Stream::Relay(Box::new(Relay::new(post.name.clone())));
        let key = self.insert(stream, session);
        self.relays.insert(post.name.clone(), key);
        Ok(key)
    }

    /// A response carries what is said in a session from now on. The one before it ends.
    fn attach(&mut self, key: Key, to: Key, post: &Post, is_new: bool) {
        self.release_carrier(to);
        // Whoever asks for the next response has all of the one before.
        self.settle(to);
        let is_stream = post.verb == Verb::Stream;
        let mut batch = Batch::default();
        if is_new {
            batch.open();
        } else {
            self.hear(to, &fallback::here());
        }
        let bytes = batch.finish();
        let carrier = Carrier {
            key,
            is_stream,
            chars: fallback::chars(&bytes),
            is_ended: is_new && !is_stream,
        };
        self.relay_mut(to).carrier = Some(carrier);
        self.sockets[key.index].partner = Some(to);
        self.deadlines.update(&mut self.sockets, to.index, self.now);
        match (is_stream, is_new) {
            (true, _) => self.answer(key, Part::Begin { chunked: post.chunked, bytes }),
            (false, true) => self.answer(key, Part::Whole(200, bytes)),
            (false, false) => self.shard.broker.writable(self.sockets[to.index].session.outlet()),
        }
    }

    /// A session's offer goes into the response that carries it, as far as there is one that has
    /// room.
    pub(super) fn carry_offer(&mut self, to: Key, offer: Offer) {
        let carrier = self.relay_mut(to).carrier.filter(|carrier| !carrier.is_ended);
        let is_free = |carrier: &Carrier| {
            carrier.key.is_live(&self.sockets)
                && self.sockets[carrier.key.index].session.can_carry()
        };
        let Some(mut carrier) = carrier.filter(is_free) else {
            return self.shard.broker.sent(offer, 0);
        };
        let mut batch = Batch::default();
        let mut accepted = 0;
        for frame in self.shard.broker.frames(offer) {
            if accepted > 0 && batch.len() + frame.len() > BATCH {
                break;
            }
            batch.push(frame);
            accepted += frame.len() as u64;
        }
        self.relay_mut(to).open = Some((offer, accepted));
        let bytes = batch.finish();
        carrier.chars += fallback::chars(&bytes);
        let part = match carrier.is_stream {
            false => Part::Whole(200, bytes),
            true if carrier.chars > RESPONSE_CHARS => Part::End(bytes),
            true => Part::More(bytes),
        };
        carrier.is_ended = !matches!(part, Part::More(_));
        self.relay_mut(to).carrier = Some(carrier);
        self.answer(carrier.key, part);
    }

    /// A socket has written all that it had. A carrier takes more, or is one no longer.
    pub(super) fn freed(&mut self, key: Key) {
        let socket = &self.sockets[key.index];
        match socket.partner {
            Some(to) if socket.session.is_carrying() => {
                self.settle(to);
                self.shard.broker.writable(self.sockets[to.index].session.outlet());
            }
            _ => {
                self.end_carrying(key);
                // What came behind the request was none of its.
                self.sockets[key.index].need = 0;
                self.queue(key);
            }
        }
    }

    /// A socket has sent the last of a response: the client asks for the next one.
    pub(super) fn end_carrying(&mut self, key: Key) {
        let Some(to) = self.sockets[key.index].partner.take() else { return };
        if self.relay(to).carrier.is_some_and(|carrier| carrier.is_ended) {
            self.settle(to);
        }
        self.lost_carrier(key, to);
    }

    /// A carrier has not written all that it has. Until it does, the peer takes less than it is
    /// offered.
    pub(super) fn stalled(&mut self, key: Key) {
        if let Some(to) = self.sockets[key.index].partner {
            self.shard.broker.refused(self.sockets[to.index].session.outlet());
        }
    }

    /// What was on its way has come.
    fn settle(&mut self, to: Key) {
        if let Some((offer, accepted)) = self.relay_mut(to).open.take() {
            self.shard.broker.sent(offer, accepted);
        }
    }

    /// The client of a socket sends nothing more. Where it reads a response that has not ended,
    /// that is the end of the session. Returns what is to become of the socket.
    pub(super) fn hung_up(&mut self, key: Key) -> Action {
        let partner = self.sockets[key.index].partner;
        let is_ended = |to: &Key| self.relay(*to).carrier.is_some_and(|carrier| carrier.is_ended);
        let Some(to) = partner.filter(|to| !is_ended(to)) else {
            return self.sockets[key.index].session.end_of_input(&mut self.shard);
        };
        let action = self.sockets[to.index].session.end_of_input(&mut self.shard);
        self.act(to, action);
        Action::None
    }

    /// A carrier is one no longer. With a response of which not all has left, its session is gone
    /// too.
    pub(super) fn lost_carrier(&mut self, key: Key, to: Key) {
        let relay = self.relay_mut(to);
        let Some(carrier) = relay.carrier.take_if(|carrier| carrier.key == key) else { return };
        relay.detached += 1;
        if carrier.is_ended && relay.open.is_none() {
            return self.deadlines.update(&mut self.sockets, to.index, self.now);
        }
        self.drop_socket(to);
    }

    /// A session is over: its name is free, and its response ends.
    pub(super) fn end_relay(&mut self, key: Key, relay: Relay) {
        self.relays.remove(&relay.name);
        let Some(carrier) = relay.carrier else { return };
        debug_assert!(carrier.key.is_live(&self.sockets), "its end would have been heard");
        debug_assert!(self.sockets[carrier.key.index].partner == Some(key));
        self.end_response(carrier);
    }

    fn release_carrier(&mut self, to: Key) {
        if let Some(carrier) = self.relay_mut(to).carrier.take() {
            self.end_response(carrier);
        }
    }

    fn end_response(&mut self, carrier: Carrier) {
        self.sockets[carrier.key.index].partner = None;
        if carrier.is_ended {
            return;
        }
        let nothing = Vec::new();
        let part = if carrier.is_stream { Part::End(nothing) } else { Part::Whole(200, nothing) };
        self.answer(carrier.key, part);
    }

    fn answer(&mut self, key: Key, part: Part) {
        self.sockets[key.index].session.answer(&mut self.shard, part);
        self.deadlines.update(&mut self.sockets, key.index, self.now);
    }

    fn relay(&self, to: Key) -> &Relay {
        match &self.sockets[to.index].stream {
            Stream::Relay(relay) => relay,
            Stream::Plain(_) | Stream::Tls(_) => unreachable!("a partner is a session"),
        }
    }

    fn relay_mut(&mut self, to: Key) -> &mut Relay {
        match &mut self.sockets[to.index].stream {
            Stream::Relay(relay) => relay,
            Stream::Plain(_) | Stream::Tls(_) => unreachable!("a partner is a session"),
        }
    }
}
