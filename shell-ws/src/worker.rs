//! The event loop: sockets, readiness and deadlines around one shard of the core.
//!
//! One turn: wait for events; time goes into the core; sockets that are readable are read, within
//! bounds, and their bytes become calls of the core; the core steps; its notices and offers are
//! carried out; and again. Everything is edge-triggered: a socket that was not read to the end
//! because its turn was over is queued again, and then the loop does not sleep.

mod accept;
mod deadlines;
mod read;
mod socket;
mod write;

use crate::config::Config;
use crate::hooks::sender::Sender;
use crate::session::{Action, Session};
use crate::shard::{Shard, Word};
use accept::{Accepted, Acceptor};
use anyhow::{Context, Result};
use deadlines::Deadlines;
use mio::event::Event;
use mio::net::{TcpStream, UnixStream};
use mio::{Events, Interest, Poll, Token};
use sluicegate_core::slab::{NONE, Slab};
use sluicegate_core::{Effect, Instant, Notice, Progress, Refusal, SubId};
use sluicegate_host::clock::Clock;
use sluicegate_host::psi::Pressure;
use socket::{Key, Socket};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

pub use deadlines::Timing;

/// Deliveries that one turn prepares.
const WORK: u32 = 4096;

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

const fn special(number: u32) -> Token {
    Key { index: NONE, generation: number }.token()
}

/// A server that listens.
pub struct Server {
    poll: Poll,
    clock: Clock,
    pressure: Pressure,
    shard: Shard,
    sockets: Slab<Socket>,
    deadlines: Deadlines,
    acceptor: Option<Acceptor>,
    address: SocketAddr,
    /// Sockets with something left to read or to digest. Invariant: each once.
    again: VecDeque<Key>,
    scratch: Box<[u8]>,
    now: Instant,
    next_tick: Instant,
    /// The log says once that accepting stalls.
    stall_told: bool,
    stop: UnixStream,
    stop_sender: std::os::unix::net::UnixStream,
    grace: Duration,
    /// When the shutdown is over, once it has begun.
    stops_at: Option<Instant>,
    /// Whom apps' servers are told through.
    hooks: Option<Sender>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Asks a server to stop. The first call begins the shutdown, the second one ends it at once.
#[derive(Debug)]
pub struct Stopper(std::os::unix::net::UnixStream);

impl Stopper {
    /// Asks.
    pub fn stop(&mut self) -> io::Result<()> {
        self.0.write_all(b"!")
    }

    /// The writing end, for a signal handler: each byte is a call of [`stop`](Self::stop).
    pub fn into_inner(self) -> std::os::unix::net::UnixStream {
        self.0
    }
}

impl Server {
    /// Listens on the configured address.
    pub fn bind(config: Config) -> Result<Self> {
        let clock = Clock::start();
        let mut shard = Shard::new(config.limits, config.apps, entropy)
            .map_err(|why| anyhow::anyhow!("too many apps: the core answers {why:?}"))?;
        shard.activity_timeout =
            u32::try_from(config.timing.activity.as_secs().max(1)).unwrap_or(u32::MAX);
        shard.unix_seconds = clock.unix_seconds();
        let poll = Poll::new().context("cannot make an event queue")?;
        let (acceptor, address) = Acceptor::bind(config.address, poll.registry())?;
        let (sender, receiver) = std::os::unix::net::UnixStream::pair()?;
        receiver.set_nonblocking(true)?;
        let mut stop = UnixStream::from_std(receiver);
        poll.registry().register(&mut stop, STOP, Interest::READABLE)?;
        Ok(Self {
            poll,
            clock,
            pressure: Pressure::find(),
            shard,
            sockets: Slab::default(),
            deadlines: Deadlines::new(&config.timing),
            acceptor: Some(acceptor),
            address,
            again: VecDeque::new(),
            scratch: vec![0; read::CHUNK].into_boxed_slice(),
            now: Instant::ZERO,
            next_tick: Instant::ZERO,
            stall_told: false,
            stop,
            stop_sender: sender,
            grace: config.timing.grace,
            stops_at: None,
            hooks: None,
        })
    }

    /// Tells apps' servers what happens, through this.
    pub fn tell(&mut self, hooks: Sender) {
        self.hooks = Some(hooks);
    }

    /// Where it listens: with the real port.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// A handle that stops it.
    pub fn stopper(&self) -> io::Result<Stopper> {
        self.stop_sender.try_clone().map(Stopper)
    }

    /// Serves until it is stopped and everything that waited has been sent, or the grace is over.
    pub fn run(mut self) -> Result<()> {
        self.shard.is_ready = true;
        let mut events = Events::with_capacity(EVENTS);
        while !self.is_over() {
            let timeout = self.timeout();
            match self.poll.poll(&mut events, timeout) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("the event queue fails"),
            }
            self.turn(&events);
        }
        Ok(())
    }

    fn turn(&mut self, events: &Events) {
        self.now = self.clock.now();
        self.shard.broker.advance(self.now);
        self.shard.unix_seconds = self.clock.unix_seconds();
        self.shard.process.turns += 1;
        for event in events {
            match event.token() {
                LISTENER => self.acceptor.iter_mut().for_each(Acceptor::ready),
                STOP => self.stop_requested(),
                token => self.ready(Key::from_token(token), event),
            }
        }
        self.accept();
        self.serve_queued();
        self.tick();
        self.expire();
        self.shard.tell_counts();
        // When there is more to do, the core's next deadline is now: the loop will not sleep.
        let (Progress::Idle | Progress::More) = self.shard.broker.step(WORK);
        self.carry_out();
        while let Some(event) = self.shard.poll_hook() {
            if let Some(hooks) = &self.hooks {
                hooks.send(event);
            }
        }
    }

    /// Serves the sockets that were queued before, as long as the core has room to run what they
    /// publish in this turn. What is queued on the way waits for the next one: no socket is served
    /// twice in a turn.
    fn serve_queued(&mut self) {
        let jobs_before = self.shard.broker.jobs().0;
        for _ in 0..self.again.len() {
            if self.shard.broker.jobs().0.saturating_sub(jobs_before) >= JOBS {
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

    fn notice(&mut self, notice: Notice) {
        let conn = match notice {
            Notice::Close { conn, .. }
            | Notice::Committed { conn, .. }
            | Notice::Failed { conn, .. }
            | Notice::Flushed { conn }
            | Notice::Pause { conn }
            | Notice::Resume { conn }
            | Notice::Shed { conn, .. } => conn,
            // Pusher clients are not told: they have no event for it.
            Notice::Gap { .. } => return,
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
            Action::ShutDown => {
                let socket = &mut self.sockets[key.index];
                // A peer that is gone already is found out by reading.
                let _ = socket.stream.shutdown(Shutdown::Write);
                if socket.is_at_end {
                    return self.drop_socket(key);
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
        if event.is_error() && !matches!(socket.stream.take_error(), Ok(None)) {
            return self.drop_socket(key);
        }
        if event.is_writable() && socket.wants_writable {
            let outlet = socket.session.outlet();
            self.shard.broker.writable(outlet);
            self.want_writable(key, false);
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
        let (index, generation) = self.sockets.insert(Socket::new(stream, session));
        self.shard.process.sockets += 1;
        let key = Key { index, generation };
        let socket = &mut self.sockets[index];
        socket.session.settle(&mut self.shard, key.bits());
        let registry = self.poll.registry();
        if registry.register(&mut socket.stream, key.token(), Interest::READABLE).is_err() {
            return self.drop_socket(key);
        }
        self.deadlines.update(&mut self.sockets, index, self.now);
    }

    fn drop_socket(&mut self, key: Key) {
        self.deadlines.disarm(&mut self.sockets, key.index);
        let mut socket = self.sockets.remove(key.index);
        // Closing the descriptor deregisters it all the same.
        let _ = self.poll.registry().deregister(&mut socket.stream);
        socket.session.end(&mut self.shard);
        self.shard.process.sockets -= 1;
        if let Some(acceptor) = &mut self.acceptor {
            acceptor.retry();
        }
    }

    /// What happens once per second.
    fn tick(&mut self) {
        if self.now < self.next_tick {
            return;
        }
        self.next_tick = self.now + TICK;
        self.shard.broker.pressure(self.pressure.sample());
        if let Some(acceptor) = &mut self.acceptor {
            acceptor.retry();
        }
    }

    /// Deadlines that are over.
    fn expire(&mut self) {
        while let Some(index) = self.deadlines.due(&mut self.sockets, self.now) {
            let key = Key { index, generation: self.sockets.generation(index) };
            let action = self.sockets[index].session.timeout(&mut self.shard);
            self.act(key, action);
        }
    }

    /// How long the kernel may let us sleep.
    fn timeout(&self) -> Option<Duration> {
        let accepts = self.acceptor.as_ref().is_some_and(Acceptor::wants);
        if accepts || !self.again.is_empty() {
            return Some(Duration::ZERO);
        }
        let deadlines = [
            Some(self.next_tick),
            self.shard.broker.next_deadline(),
            self.shard.next_deadline(),
            self.deadlines.next(&self.sockets),
            self.stops_at,
        ];
        let next = deadlines.into_iter().flatten().min()?;
        Some(next.since(self.clock.now()))
    }
}

/// Stopping.
impl Server {
    fn stop_requested(&mut self) {
        let mut bytes = [0; 64];
        while let Ok(n @ 1..) = self.stop.read(&mut bytes) {
            for _ in 0..n {
                self.stop_once();
            }
        }
    }

    /// The first time: no new connections, and everyone is told to come back after what waits for
    /// them. The second time it is over at once.
    fn stop_once(&mut self) {
        if self.stops_at.is_some() {
            self.stops_at = Some(self.now);
            return;
        }
        tracing::info!(sockets = self.sockets.len(), "stopping");
        self.stops_at = Some(self.now + self.grace);
        self.shard.is_ready = false;
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.close(self.poll.registry());
        }
        // Once in the life of a process, so a walk over all connections does no harm.
        let indices: Vec<u32> = self.sockets.iter().map(|(index, _)| index).collect();
        for index in indices {
            self.sockets[index].session.shut_down(&mut self.shard);
            self.deadlines.update(&mut self.sockets, index, self.now);
        }
    }

    fn is_over(&self) -> bool {
        self.stops_at.is_some_and(|at| self.sockets.is_empty() || self.now >= at)
    }
}

fn entropy() -> u64 {
    getrandom::u64().expect("the kernel's random numbers do not fail once it has booted")
}
