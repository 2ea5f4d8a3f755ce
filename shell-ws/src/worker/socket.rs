//! A socket and what the loop knows about it.

use super::stream::Stream;
use crate::session::{Action, Session, Wait};
use crate::shard::Shard;
use mio::Token;
use sluicegate_core::list::{Link, Node};
use sluicegate_core::slab::Slab;
use sluicegate_core::timer::Timed;
use sluicegate_core::{ConnId, Instant};

/// The name of a socket: a slot and a generation, so that an event for an earlier holder of the
/// slot is known as such.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) index: u32,
    pub(super) generation: u32,
}

const _: () = assert!(usize::BITS == 64, "a token holds a slot and its generation");

impl Key {
    pub(super) const fn bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    pub(super) const fn from_bits(bits: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the low half is the slot")]
        let index = bits as u32;
        Self { index, generation: (bits >> 32) as u32 }
    }

    pub(super) const fn token(self) -> Token {
        #[expect(clippy::cast_possible_truncation, reason = "a token has 64 bits")]
        Token(self.bits() as usize)
    }

    pub(super) const fn from_token(token: Token) -> Self {
        Self::from_bits(token.0 as u64)
    }

    /// Whether it still names a socket.
    pub(super) fn is_live(self, sockets: &Slab<Socket>) -> bool {
        sockets.get(self.index, self.generation).is_some()
    }
}

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) stream: Stream,
    pub(super) session: Session,
    /// The beginning of a request or frame whose end has not come. Invariant: at most what the
    /// session needs, and one chunk.
    pub(super) inbox: Vec<u8>,
    /// What the core knows of bytes that are not digested: for which connection, and how many.
    pub(super) reported: (ConnId, usize),
    /// It is not worth asking the session before the inbox holds this much. Invariant: 0 unless the
    /// session said so of the inbox as it is.
    pub(super) need: usize,
    /// The kernel may have more to read: from an event until a read finds nothing.
    pub(super) is_readable: bool,
    /// The peer sends nothing more.
    pub(super) is_at_end: bool,
    /// Whether it is in the loop's queue.
    pub(super) is_queued: bool,
    /// Whether the event queue tells when it is writable: after a short write.
    pub(super) wants_writable: bool,
    /// Our side ends when what is pending has gone.
    pub(super) is_ending: bool,
    /// The session of the HTTP fallback that its present response carries.
    pub(super) partner: Option<Key>,
    /// The deadline that runs.
    pub(super) armed: Option<(Wait, u64)>,
    pub(super) deadline: Instant,
    pub(super) link: Link,
}

impl Socket {
    pub(super) fn new(stream: Stream, session: Session) -> Self {
        Self {
            reported: (session.conn(), 0),
            stream,
            session,
            inbox: Vec::new(),
            need: 0,
            is_readable: false,
            is_at_end: false,
            is_queued: false,
            wants_writable: false,
            is_ending: false,
            partner: None,
            armed: None,
            deadline: Instant::ZERO,
            link: Link::default(),
        }
    }
}

impl Socket {
    /// The deadline that runs, and a number that changes when it starts anew.
    pub(super) fn wait(&self) -> (Wait, u64) {
        match &self.stream {
            Stream::Relay(relay) if relay.carrier.is_none() => match self.session.wait() {
                // All that waits for its client is the farewell.
                (Wait::Flush, _) => (Wait::Linger, relay.detached),
                // Coming back is no answer to who it is.
                identity @ (Wait::Identity, _) => identity,
                _ => (Wait::Detached, relay.detached),
            },
            // What is pending under TLS has the time of what waits to be written.
            _ if self.is_ending => (Wait::Flush, self.session.wait().1),
            _ => self.session.wait(),
        }
    }

    /// The deadline of [`wait`](Self::wait) ran out.
    pub(super) fn timeout(&mut self, shard: &mut Shard) -> Action {
        match &self.stream {
            // The client is gone: nobody would take a word of farewell.
            Stream::Relay(relay) if relay.carrier.is_none() => Action::Drop,
            _ => self.session.timeout(shard),
        }
    }
}

/// Sockets whose deadline of one kind runs; a socket has one deadline at a time.
#[derive(Debug)]
pub(super) struct Waiting;

impl Node<Waiting> for Socket {
    fn node(&self) -> &Link {
        &self.link
    }
    fn node_mut(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Timed<Waiting> for Socket {
    fn deadline(&self) -> Instant {
        self.deadline
    }
    fn set_deadline(&mut self, at: Instant) {
        self.deadline = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_tokens() {
        let key = Key { index: 7, generation: u32::MAX };
        assert_eq!(Key::from_token(key.token()), key);
        assert_eq!(Key::from_bits(key.bits()), key);
    }
}
