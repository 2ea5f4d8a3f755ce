//! How long each kind of waiting may take: one list per kind, all O(1).

use super::socket::{Socket, Waiting};
use crate::session::Wait;
use sluicegate_core::Instant;
use sluicegate_core::slab::Slab;
use sluicegate_core::timer::Timers;
use std::time::Duration;

/// The lengths of the protocol's deadlines.
#[derive(Clone, Debug)]
pub struct Timing {
    /// WebSocket: silence after which a peer is asked for a sign of life; clients are told.
    pub activity: Duration,
    /// HTTP fallback: from the end of a response to the request for the next one. Clients ask at
    /// once; they may have to connect first.
    pub detached: Duration,
    /// What waits for a connection that we close must be written.
    pub flush: Duration,
    /// All of the shutdown.
    pub grace: Duration,
    /// WebSocket: a client of an app for known users must say who it is.
    pub identity: Duration,
    /// HTTP: between a response and the next request.
    pub idle: Duration,
    /// From our FIN to the peer's.
    pub linger: Duration,
    /// WebSocket: from our ping to a sign of life.
    pub pong: Duration,
    /// HTTP: a request must be whole, the first one counted from the accept.
    pub request: Duration,
    /// HTTP: a response must be made and written.
    pub response: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            activity: Duration::from_secs(120),
            detached: Duration::from_secs(10),
            flush: Duration::from_secs(10),
            grace: Duration::from_secs(10),
            identity: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            linger: Duration::from_secs(2),
            pong: Duration::from_secs(30),
            request: Duration::from_secs(10),
            response: Duration::from_secs(30),
        }
    }
}

impl Timing {
    const fn of(&self, wait: Wait) -> Duration {
        match wait {
            Wait::Activity => self.activity,
            // Never armed.
            Wait::Carry => Duration::MAX,
            Wait::Detached => self.detached,
            Wait::Flush => self.flush,
            Wait::Identity => self.identity,
            Wait::Idle => self.idle,
            Wait::Linger => self.linger,
            Wait::Pong => self.pong,
            Wait::Request => self.request,
            Wait::Response => self.response,
        }
    }
}

/// Every running deadline. Invariant: a socket is in the list of `armed`'s kind and in no other.
#[derive(Debug)]
pub(super) struct Deadlines([Timers<Waiting>; Wait::ALL.len()]);

impl Deadlines {
    pub(super) fn new(timing: &Timing) -> Self {
        Self(Wait::ALL.map(|wait| Timers::new(timing.of(wait))))
    }

    /// Lets the deadline run that the socket's session wants. Cost: O(1).
    pub(super) fn update(&mut self, sockets: &mut Slab<Socket>, index: u32, now: Instant) {
        let wanted = sockets[index].wait();
        if sockets[index].armed == Some(wanted) {
            return;
        }
        self.disarm(sockets, index);
        if wanted.0 == Wait::Carry {
            return;
        }
        self.0[wanted.0 as usize].arm(sockets, index, now);
        sockets[index].armed = Some(wanted);
    }

    pub(super) fn disarm(&mut self, sockets: &mut Slab<Socket>, index: u32) {
        if let Some((wait, _)) = sockets[index].armed.take() {
            self.0[wait as usize].disarm(sockets, index);
        }
    }

    /// Takes one socket whose deadline is over.
    pub(super) fn due(&mut self, sockets: &mut Slab<Socket>, now: Instant) -> Option<u32> {
        let index = self.0.iter_mut().find_map(|timers| timers.due(sockets, now))?;
        sockets[index].armed = None;
        Some(index)
    }

    /// The earliest deadline.
    pub(super) fn next(&self, sockets: &Slab<Socket>) -> Option<Instant> {
        self.0.iter().filter_map(|timers| timers.next(sockets)).min()
    }
}
