//! One thread that offers a load and reads what comes of it, without a pause between the two.

use crate::peers::{Caller, Reader};
use crate::support::{Server, event, post};
use crate::tally::Tally;
use anyhow::{Context, Result};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use sluicegate_host::clock::Clock;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;
/// A call that has found no free connection for so long after it was due is not made.
const GIVEN_UP: u64 = SECOND / 2;
/// The longest sleep: a phase that ends is noticed by then.
const NAP: Duration = Duration::from_millis(5);

/// How calls are made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// None.
    Silent,
    /// By this many connections, each again as soon as it is answered.
    Flat(usize),
    /// This many per second, whatever is answered.
    Rate(u64),
}

/// What the load has seen since its start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) taken: u64,
    pub(crate) refused: u64,
    pub(crate) received: u64,
    /// Calls whose connection ended before an answer.
    pub(crate) unanswered: u64,
    /// When the last call was refused, and the last event came late.
    pub(crate) last_refused: u64,
    pub(crate) last_late: u64,
}

/// Subscribers and publishers of one server.
pub(crate) struct Load {
    poll: Poll,
    clock: Clock,
    address: SocketAddr,
    readers: Vec<Reader>,
    callers: Vec<Caller>,
    /// Callers without a call. Invariant: each once.
    idle: Vec<usize>,
    pace: Pace,
    next_due: u64,
    pad: String,
    /// An event that takes longer is late.
    pub(crate) late: Duration,
    pub(crate) totals: Totals,
    tally: Tally,
    is_stopping: bool,
}

impl Load {
    /// Connects all, and subscribes who subscribes.
    pub(crate) fn new(
        server: &Server,
        subscribers: usize,
        callers: usize,
        pad: usize,
    ) -> Result<Self> {
        let poll = Poll::new().context("no event queue")?;
        let mut load = Self {
            poll,
            clock: Clock::start(),
            address: server.address,
            readers: Vec::new(),
            callers: Vec::new(),
            idle: (0..callers).collect(),
            pace: Pace::Silent,
            next_due: 0,
            pad: "x".repeat(pad),
            late: Duration::MAX,
            totals: Totals::default(),
            tally: Tally::default(),
            is_stopping: false,
        };
        for number in 0..subscribers {
            let (mut client, _) = server.client();
            client.subscribe("news");
            let stream = load.watch(client.stream, number)?;
            load.readers.push(Reader::new(stream));
        }
        for number in 0..callers {
            let stream = load.call(subscribers + number)?;
            load.callers.push(Caller::new(stream));
        }
        Ok(load)
    }

    fn watch(&self, stream: std::net::TcpStream, token: usize) -> Result<TcpStream> {
        stream.set_nonblocking(true).context("a socket stays blocking")?;
        stream.set_nodelay(true).context("a socket delays")?;
        let mut stream = TcpStream::from_std(stream);
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut stream, Token(token), interest)?;
        Ok(stream)
    }

    fn call(&self, token: usize) -> Result<TcpStream> {
        let stream = std::net::TcpStream::connect(self.address).context("no connection")?;
        self.watch(stream, token)
    }

    pub(crate) fn now(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    /// Offers for so long. What came of it, second by second.
    pub(crate) fn run(&mut self, pace: Pace, length: Duration) -> Result<Vec<Tally>> {
        self.set(pace);
        let seconds = length.as_secs();
        (0..seconds).map(|_| self.span(self.now() + SECOND, |_| false)).collect()
    }

    fn set(&mut self, pace: Pace) {
        self.pace = pace;
        self.next_due = self.now();
    }

    /// Makes no call until all are answered and nothing has come for a while.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.set(Pace::Silent);
        loop {
            let quiet = self.span(self.now() + SECOND / 2, |_| false)?;
            let is_busy = self.callers.iter().any(|caller| caller.call.is_some());
            if !is_busy && quiet.delivered == 0 {
                return Ok(());
            }
        }
    }

    /// Goes on as it did while the server stops, until it has ended all connections; no later than
    /// `limit`. How many subscribers it has not ended, and how many it ended without a word.
    pub(crate) fn see_out(&mut self, limit: Duration) -> Result<(Tally, [usize; 2])> {
        self.is_stopping = true;
        let end = self.now() + u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX / 2);
        let tally = self.span(end, |load| {
            load.readers.iter().all(|reader| reader.stream.is_none())
                && load.callers.iter().all(|caller| caller.stream.is_none())
        })?;
        let count = |bad: fn(&Reader) -> bool| self.readers.iter().filter(|it| bad(it)).count();
        let untold = |reader: &Reader| reader.stream.is_none() && !reader.was_told;
        Ok((tally, [count(|reader| reader.stream.is_some()), count(untold)]))
    }

    /// Serves all sockets until then, or until it is so.
    fn span(&mut self, end: u64, is_over: impl Fn(&Self) -> bool) -> Result<Tally> {
        let mut events = Events::with_capacity(1024);
        let start = self.now();
        while self.now() < end && !is_over(self) {
            self.offer();
            self.wait(&mut events)?;
            for event in &events {
                let Token(token) = event.token();
                match token.checked_sub(self.readers.len()) {
                    None => self.readers[token].is_ready = true,
                    Some(caller) => {
                        self.callers[caller].write();
                        self.answered(caller)?;
                    }
                }
            }
            self.read();
        }
        let nanos = self.now() - start;
        Ok(Tally { nanos, ..std::mem::take(&mut self.tally) })
    }

    /// Waits until something comes, or the next call is due.
    fn wait(&mut self, events: &mut Events) -> Result<()> {
        let now = self.now();
        let nap = match self.pace {
            _ if self.readers.iter().any(|reader| reader.is_ready) => Duration::ZERO,
            Pace::Rate(_) if !self.idle.is_empty() => {
                NAP.min(Duration::from_nanos(self.next_due.saturating_sub(now)))
            }
            Pace::Rate(_) | Pace::Silent | Pace::Flat(_) => NAP,
        };
        match self.poll.poll(events, Some(nap)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                return Err(error).context("the event queue fails");
            }
            _ => {}
        }
        Ok(())
    }

    /// A chunk of each that has something.
    fn read(&mut self) {
        let (now, late) = (self.now(), self.late);
        let Self { readers, tally, totals, .. } = self;
        for reader in readers.iter_mut().filter(|reader| reader.is_ready) {
            reader.read(|sent| {
                let took = now.saturating_sub(sent);
                tally.delivered += 1;
                tally.latency.add(took);
                totals.received += 1;
                if u128::from(took) > late.as_nanos() {
                    totals.last_late = now;
                }
            });
        }
    }

    /// Makes the calls that are due.
    fn offer(&mut self) {
        match self.pace {
            Pace::Silent => {}
            Pace::Flat(most) => {
                let busy = self.callers.len() - self.idle.len();
                for _ in busy..most {
                    let Some(caller) = self.idle.pop() else { return };
                    self.begin(caller, self.now());
                }
            }
            Pace::Rate(rate) => {
                while self.next_due <= self.now() {
                    match self.idle.pop() {
                        Some(caller) => self.begin(caller, self.next_due),
                        None if self.next_due + GIVEN_UP < self.now() => {
                            self.tally.due += 1;
                            self.tally.held += 1;
                        }
                        None => return,
                    }
                    self.next_due += SECOND / rate.max(1);
                }
            }
        }
    }

    fn begin(&mut self, caller: usize, due: u64) {
        let now = self.now();
        let request = post(&event("news", &format!("{now:020}{}", self.pad)));
        self.tally.due += 1;
        self.callers[caller].begin(due, request);
    }

    /// Hears a caller's answer, or that its connection has ended.
    fn answered(&mut self, number: usize) -> Result<()> {
        let now = self.now();
        let caller = &mut self.callers[number];
        let had_stream = caller.stream.is_some();
        let answer = caller.read();
        let is_over = had_stream && caller.stream.is_none();
        let call = if answer.is_some() || is_over { caller.call.take() } else { None };
        if let Some(due) = call {
            self.idle.push(number);
            let tally = &mut self.tally;
            if answer.is_some() {
                tally.answers.add(now.saturating_sub(due));
            }
            match answer {
                Some(answer) if answer.status == 200 => {
                    tally.taken += 1;
                    self.totals.taken += 1;
                }
                Some(answer) if answer.status == 503 => {
                    tally.refused += 1;
                    tally.unadvised += u64::from(!answer.has_advice);
                    self.totals.refused += 1;
                    self.totals.last_refused = now;
                }
                Some(_) => tally.failed += 1,
                None => {
                    self.totals.unanswered += 1;
                    tally.failed += u64::from(!self.is_stopping);
                }
            }
        }
        if is_over && self.is_stopping {
            // Nobody listens any more.
            self.idle.retain(|idle| *idle != number);
        } else if is_over {
            let stream = self.call(self.readers.len() + number)?;
            self.callers[number] = Caller::new(stream);
        }
        Ok(())
    }
}
