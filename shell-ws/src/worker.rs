//! The event loop: sockets, readiness and deadlines around one shard of the core.
//!
//! One turn: wait for events; time goes into the core, and what other loops sent; sockets that are
//! readable are read, within bounds, and their bytes become calls of the core; the core steps; its
//! notices and offers are carried out, and what it has for other loops is sent; and again.
//! Everything is edge-triggered: a socket that was not read to the end because its turn was over is
//! queued again, and then the loop does not sleep.

mod accept;
mod apps;
mod deadlines;
mod fallback;
mod mesh;
mod read;
mod socket;
mod stop;
mod stream;
mod tape;
mod write;

use crate::directory::Board;
use crate::hooks::queue::Totals;
use crate::hooks::sender::Sender;
use crate::session::fallback::Name;
use crate::session::{Action, Session};
use crate::shard::{Shard, Word};
use crate::tls::Tls;
use accept::{Accepted, Acceptor};
use anyhow::{Context, Result};
use apps::Changing;
use deadlines::Deadlines;
use mio::event::Event;
use mio::net::{TcpStream, UnixStream};
use mio::{Events, Interest, Poll, Token};
use rustls::ServerConfig;
use sluicegate_core::slab::{NONE, Slab};
use sluicegate_core::{Effect, Gap, Instant, Notice, Refusal, SubId};
use sluicegate_host::clock::Clock;
use sluicegate_host::mesh::Port;
use sluicegate_host::metrics::Webhooks;
use sluicegate_host::node::Node;
use sluicegate_host::pool::Loan;
use sluicegate_host::psi::Pressure;
use sluicegate_host::tape::Recording;
use socket::{Key, Socket};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use stop::Leaving;
use stream::Stream;

pub use accept::Listener;
pub use deadlines::Timing;
pub use fallback::Moved;
pub use mesh::Letter;

/// Deliveries that one turn prepares.
const WORK: u32 = 1 << 16;

/// Publishes that one turn takes before the core runs them, so that its queue is full of work that
/// is too much, and never of work that merely came at once.
const JOBS: u32 = 32;

/// Events that one turn takes from the kernel.
const EVENTS: usize = 1024;

/// Connections that one turn accepts.
const ACCEPTS: u32 = 64;

/// How often the memory pressure is read and stalled accepting is tried again.
const TICK: Duration = Duration::from_secs(1);

/// Tokens that are no socket's: no slot has the index `NONE`.
const LISTENER: Token = special(0);
const STOP: Token = special(1);
const WAKE: Token = special(2);

const fn special(number: u32) -> Token {
    Key { index: NONE, generation: number }.token()
}

/// One event loop.
pub struct Worker {
    poll: Poll,
    clock: Clock,
    pressure: Pressure,
    shard: Shard,
    port: Port<Letter>,
    node: Arc<Node>,
    board: Arc<Board>,
    changing: Changing,
    /// Of the memory budget, when there are others to share it with.
    loan: Option<Loan>,
    sockets: Slab<Socket>,
    /// Sessions of the HTTP fallback that this loop has.
    relays: BTreeMap<Name, Key>,
    /// Sockets for other loops, by number.
    moves: Vec<VecDeque<Box<Moved>>>,
    deadlines: Deadlines,
    acceptor: Option<Acceptor>,
    /// What connections are made with, where they are made under TLS.
    tls: Option<Arc<ServerConfig>>,
    /// Sockets with something left to read or to digest. Invariant: each once.
    again: VecDeque<Key>,
    scratch: Box<[u8]>,
    now: Instant,
    next_tick: Instant,
    /// The log says once that accepting stalls.
    stall_told: bool,
    /// Of the one loop that hears signals.
    stop: Option<UnixStream>,
    /// How many wishes to stop were heeded.
    stops_seen: u32,
    grace: Duration,
    /// When the shutdown is over, once it has begun.
    stops_at: Option<Instant>,
    /// Whom it has still to tell that it stops.
    leaving: Option<Leaving>,
    /// No loop accepted connections any more before this turn looked for letters.
    all_closed: bool,
    /// Everyone was told that the server stops.
    has_said_goodbye: bool,
    /// Whom apps' servers are told through.
    hooks: Option<Sender>,
    /// What is recorded of the shard, where it is.
    tape: Option<Recording>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("number", &self.port.number()).finish_non_exhaustive()
    }
}

/// What a loop has of its process.
#[derive(Debug)]
pub struct Parts {
    /// Its event queue.
    pub poll: Poll,
    /// Its ways to the other loops.
    pub port: Port<Letter>,
    /// What all of them know.
    pub node: Arc<Node>,
    /// Where other apps are put up.
    pub board: Arc<Board>,
    /// Its part of the memory budget; none for a loop that is alone.
    pub loan: Option<Loan>,
    /// Each byte that comes here is a wish to stop; for one loop of them.
    pub stop: Option<std::os::unix::net::UnixStream>,
    /// The process's.
    pub clock: Clock,
}

impl Worker {
    /// What the event queue says when another loop has rung.
    pub const WAKE: Token = WAKE;

    /// A loop around a shard, which accepts from a listener.
    pub fn new(
        parts: Parts,
        mut shard: Shard,
        listener: Listener,
        timing: &Timing,
    ) -> Result<Self> {
        let Parts { poll, port, node, board, loan, stop, clock } = parts;
        shard.unix_seconds = clock.unix_seconds();
        let acceptor = Acceptor::new(listener, poll.registry())?;
        let moves = (0..shard.shards()).map(|_| VecDeque::new()).collect();
        let mut stop = match stop {
            None => None,
            Some(stop) => {
                stop.set_nonblocking(true)?;
                Some(UnixStream::from_std(stop))
            }
        };
        if let Some(stop) = &mut stop {
            poll.registry().register(stop, STOP, Interest::READABLE)?;
        }
        Ok(Self {
            poll,
            clock,
            pressure: Pressure::find(),
            shard,
            port,
            node,
            board,
            changing: Changing::default(),
            loan,
            sockets: Slab::default(),
            relays: BTreeMap::new(),
            moves,
            deadlines: Deadlines::new(timing),
            acceptor: Some(acceptor),
            tls: None,
            again: VecDeque::new(),
            scratch: vec![0; read::CHUNK].into_boxed_slice(),
            now: Instant::ZERO,
            next_tick: Instant::ZERO,
            stall_told: false,
            stop,
            stops_seen: 0,
            grace: timing.grace,
            stops_at: None,
            leaving: None,
            all_closed: false,
            has_said_goodbye: false,
            hooks: None,
            tape: None,
        })
    }

    /// Speaks TLS on every connection from now on.
    pub fn secure(&mut self, config: Arc<ServerConfig>) {
        self.tls = Some(config);
    }

    /// Tells apps' servers what happens, through this.
    pub fn tell(&mut self, hooks: Sender) {
        self.hooks = Some(hooks);
    }

    /// Serves until all loops are stopped and everything that waited has been sent, or the grace is
    /// over.
    pub fn run(mut self) -> Result<()> {
        self.shard.is_ready = true;
        let mut events = Events::with_capacity(EVENTS);
        while !self.is_over() {
            let timeout = self.timeout();
            let polled = self.poll.poll(&mut events, timeout);
            self.port.wake_up();
            match polled {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("the event queue fails"),
            }
            self.turn(&events)?;
            self.note_inputs();
        }
        self.hear_the_last();
        self.finish_tape();
        self.tell_books();
        Ok(())
    }

    fn turn(&mut self, events: &Events) -> Result<()> {
        self.now = self.clock.now();
        self.shard.broker.advance(self.now);
        self.shard.unix_seconds = self.clock.unix_seconds();
        self.shard.process.turns += 1;
        for event in events {
            match event.token() {
                LISTENER => self.acceptor.iter_mut().for_each(Acceptor::ready),
                STOP => self.stop_requested(),
                // The letters are looked at in every turn.
                WAKE => {}
                token => self.ready(Key::from_token(token), event),
            }
        }
        self.tick();
        self.hear_node();
        self.hear_board()?;
        self.carry();
        // Words of welcome go out before the records that came behind them.
        self.carry_out();
        self.accept();
        self.serve_queued();
        self.expire();
        self.end_unserved();
        self.shard.tell_counts();
        // When there is more to do, the core's next deadline is now: the loop will not sleep.
        let progress = self.shard.broker.step(WORK);
        self.go_on_stopping(progress);
        self.carry_out();
        self.call_hooks();
        self.post();
        self.tell_node();
        self.note_closed();
        self.note_finished();
        Ok(())
    }

    /// Tells apps' servers what happened in this turn.
    fn call_hooks(&mut self) {
        while let Some(event) = self.shard.poll_hook() {
            if let Some(hooks) = &self.hooks {
                hooks.send(event);
            }
        }
    }

    /// Serves the sockets that were queued before, as long as the core has room to run what they
    /// publish in this turn, and the ways to other loops for what they cause there. What is queued
    /// meanwhile waits for the next turn: no socket is served twice in one.
    fn serve_queued(&mut self) {
        let jobs_before = self.shard.broker.jobs().0;
        for _ in 0..self.again.len() {
            let jobs = self.shard.broker.jobs().0.saturating_sub(jobs_before);
            if jobs >= JOBS || self.shard.is_crowded() {
                return;
            }
            let Some(key) = self.again.pop_front() else { return };
            self.serve(key);
        }
    }

    /// Carries out what the core says, until it has nothing more to say.
    fn carry_out(&mut self) {
        loop {
            while let Some((owner, word)) = self.shard.poll_word() {
                self.word(Key::from_bits(owner), word);
            }
            match self.shard.broker.poll() {
                Some(Effect::Notice(notice)) => self.notice(notice),
                Some(Effect::Write(offer)) => self.write(offer),
                None if self.shard.has_words() => {}
                None => return,
            }
        }
    }

    fn word(&mut self, key: Key, word: Word) {
        if key.is_live(&self.sockets) {
            self.sockets[key.index].session.word(&mut self.shard, word);
            self.deadlines.update(&mut self.sockets, key.index, self.now);
        }
    }

    /// The owner of a topic has answered a subscription.
    fn joined(&mut self, sub: SubId, refusal: Option<Refusal>) {
        let owner = self.shard.joined(sub).map(Key::from_bits);
        if let Some(key) = owner.filter(|key| key.is_live(&self.sockets)) {
            self.sockets[key.index].session.joined(&mut self.shard, sub, refusal);
        }
    }

    /// A subscription lost something before the next record that it gets.
    fn gap(&mut self, sub: SubId, gap: &Gap) {
        let Some((outlet, topic)) = self.shard.broker.ends_of(sub) else { return };
        let owner = self.shard.owner_of_outlet(outlet).map(Key::from_bits);
        let Some(key) = owner.filter(|key| key.is_live(&self.sockets)) else { return };
        if let Some(channel) = self.shard.broker.topic_name(topic) {
            self.sockets[key.index].session.gap(&mut self.shard, &channel, gap);
        }
    }

    fn notice(&mut self, notice: Notice) {
        let conn = match notice {
            Notice::Close { conn, .. }
            | Notice::Committed { conn, .. }
            | Notice::Failed { conn, .. }
            | Notice::Flushed { conn }
            | Notice::Pause { conn }
            | Notice::Resume { conn }
            | Notice::Shed { conn, .. } => conn,
            Notice::Gap { sub, gap } => return self.gap(sub, &gap),
            Notice::Joined { sub, .. } => return self.joined(sub, None),
            // Outlets are shared, so that whole connections are ended and never one subscription
            // that was in force.
            Notice::Ended { sub, why } => return self.joined(sub, Some(why)),
        };
        let owner = self.shard.owner_of_conn(conn).map(Key::from_bits);
        let Some(key) = owner.filter(|key| key.is_live(&self.sockets)) else { return };
        if !self.sockets[key.index].session.owns(conn) {
            return;
        }
        if matches!(notice, Notice::Resume { .. }) {
            return self.queue(key);
        }
        let action = self.sockets[key.index].session.notice(&mut self.shard, notice);
        self.act(key, action);
    }

    /// Does to a socket what its session wants, and lets its deadline run.
    fn act(&mut self, key: Key, action: Action) {
        match action {
            Action::None => {}
            Action::Drop => return self.drop_socket(key),
            Action::ShutDown if self.is_relay(key) => return self.drop_socket(key),
            Action::ShutDown => {
                self.end_carrying(key);
                self.end_stream(key);
                if !key.is_live(&self.sockets) {
                    return;
                }
                self.queue(key);
            }
        }
        self.deadlines.update(&mut self.sockets, key.index, self.now);
    }

    /// The kernel has news of a socket. Its hints may be spurious: reading and writing find out.
    fn ready(&mut self, key: Key, event: &Event) {
        if !key.is_live(&self.sockets) {
            return;
        }
        let socket = &mut self.sockets[key.index];
        let error = |stream: &mut TcpStream| !matches!(stream.take_error(), Ok(None));
        if event.is_error() && socket.stream.socket().is_some_and(error) {
            return self.drop_socket(key);
        }
        if event.is_writable() && socket.wants_writable {
            self.writable(key);
        }
        let is_readable = event.is_readable() || event.is_read_closed() || event.is_error();
        if is_readable && key.is_live(&self.sockets) {
            self.sockets[key.index].is_readable = true;
            self.queue(key);
        }
    }

    fn accept(&mut self) {
        let mut budget = ACCEPTS;
        while let Some(acceptor) = self.acceptor.as_mut().filter(|acceptor| acceptor.wants()) {
            if budget == 0 {
                return;
            }
            budget -= 1;
            match acceptor.accept() {
                Accepted::None => return,
                Accepted::Lost => {}
                Accepted::Stalled => {
                    self.shard.process.accept_stalls += 1;
                    if !std::mem::replace(&mut self.stall_told, true) {
                        tracing::warn!(
                            sockets = self.sockets.len(),
                            "out of file descriptors: new connections wait until others end; \
                             raise the limit (ulimit -n)"
                        );
                    }
                    return;
                }
                Accepted::Stream(stream) => self.admit(stream),
            }
        }
    }

    /// A new connection. Without room for it in the core it is closed at once.
    fn admit(&mut self, stream: TcpStream) {
        let Ok(session) = Session::open(&mut self.shard) else {
            self.shard.process.refused_sockets += 1;
            return;
        };
        let stream = match &self.tls {
            None => Stream::Plain(stream),
            Some(config) => match Tls::new(Arc::clone(config), stream) {
                Ok(tls) => Stream::Tls(tls),
                // What is wrong with the configuration was found when it was read.
                Err(_) => return session.end(&mut self.shard),
            },
        };
        self.insert(stream, session);
    }

    /// Serves a stream from now on; it is gone at once when it cannot be watched.
    fn insert(&mut self, stream: Stream, session: Session) -> Key {
        let (index, generation) = self.sockets.insert(Socket::new(stream, session));
        let key = Key { index, generation };
        let socket = &mut self.sockets[index];
        socket.session.settle(&mut self.shard, key.bits());
        let registry = self.poll.registry();
        if let Some(stream) = socket.stream.socket() {
            self.shard.process.sockets += 1;
            if registry.register(stream, key.token(), Interest::READABLE).is_err() {
                self.drop_socket(key);
                return key;
            }
        }
        self.deadlines.update(&mut self.sockets, index, self.now);
        key
    }

    fn drop_socket(&mut self, key: Key) {
        let socket = self.take_socket(key);
        socket.session.end(&mut self.shard);
        if let Some(to) = socket.partner {
            self.lost_carrier(key, to);
        }
        if let Stream::Relay(relay) = socket.stream {
            self.end_relay(key, *relay);
        }
        if let Some(acceptor) = &mut self.acceptor {
            acceptor.retry();
        }
    }

    /// Serves a socket no more.
    fn take_socket(&mut self, key: Key) -> Socket {
        self.deadlines.disarm(&mut self.sockets, key.index);
        let mut socket = self.sockets.remove(key.index);
        if let Some(stream) = socket.stream.socket() {
            // Closing the descriptor deregisters it all the same.
            let _ = self.poll.registry().deregister(stream);
            self.shard.process.sockets -= 1;
        }
        socket
    }

    fn is_relay(&self, key: Key) -> bool {
        matches!(self.sockets[key.index].stream, Stream::Relay(_))
    }

    /// What happens once per second, or later when there was nothing to do meanwhile.
    fn tick(&mut self) {
        if self.now < self.next_tick {
            return;
        }
        self.next_tick = self.now + TICK;
        self.shard.broker.pressure(self.pressure.sample());
        if let Some(hooks) = self.hooks.as_ref().filter(|_| self.port.number() == 0) {
            let Totals { delivered, given_up, overflowed, waiting, .. } = hooks.totals();
            self.shard.process.webhooks = Webhooks { delivered, given_up, overflowed, waiting };
        }
        if let Some(acceptor) = &mut self.acceptor {
            acceptor.retry();
        }
    }

    /// Deadlines that are over.
    fn expire(&mut self) {
        while let Some(index) = self.deadlines.due(&mut self.sockets, self.now) {
            let key = Key { index, generation: self.sockets.generation(index) };
            let action = self.sockets[index].timeout(&mut self.shard);
            self.act(key, action);
        }
    }

    /// Whether the next tick is worth waking for. If not, it comes with whatever wakes the loop.
    fn wants_tick(&self) -> bool {
        // Letters that are not wanted yet ring no bell when they are.
        self.shard.broker.watches_memory()
            || !self.shard.broker.wants_parcels()
            || self.acceptor.as_ref().is_some_and(Acceptor::is_stalled)
    }

    /// How long the kernel may let us sleep. If at all, other loops wake this one from here on.
    fn timeout(&mut self) -> Option<Duration> {
        let accepts = self.acceptor.as_ref().is_some_and(Acceptor::wants);
        // When the ways to others are crowded, room on them wakes this loop.
        let serves = !self.again.is_empty() && !self.shard.is_crowded();
        if accepts || serves || self.changing.is_busy() {
            return Some(Duration::ZERO);
        }
        let deadlines = [
            self.wants_tick().then_some(self.next_tick),
            self.shard.broker.next_deadline(),
            self.shard.next_deadline(),
            self.deadlines.next(&self.sockets),
            self.stops_at,
            self.next_goodbye(),
        ];
        let next = deadlines.into_iter().flatten().min();
        let left = next.map(|next| next.since(self.clock.now()));
        let sleeps = left.is_none_or(|left| !left.is_zero())
            && self.port.may_sleep(self.shard.broker.wants_parcels());
        if sleeps { left } else { Some(Duration::ZERO) }
    }
}
