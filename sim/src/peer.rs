//! Publishers: what they offer, through which client, and what their links do.

use crate::fact::Publish;
use crate::line::Line;
use crate::scenario::{PublisherGroup, draw};
use sluicegate_core::client::queue::Queue;
use sluicegate_core::client::window::Permit;
use sluicegate_core::{ConnId, Limits, Rand, Ticket, TopicId};
use std::collections::{BTreeMap, VecDeque};

/// Billionths: what a publisher owes per publish.
const NANO: u64 = 1_000_000_000;

/// A publish, and when its application made it.
pub(crate) type Made = (Publish, u64);

/// A publisher: a clock that makes publishes, perhaps a client, and a transport to the broker.
#[derive(Debug)]
pub(crate) struct Publisher {
    /// Its group, with the rate it drew.
    pub(crate) spec: PublisherGroup,
    pub(crate) rate: u64,
    /// Index of the group.
    pub(crate) group: usize,
    /// Index of the topic.
    pub(crate) topic: u32,
    pub(crate) shard: u32,
    /// While it is connected.
    pub(crate) link: Option<Link>,
    /// Connections so far.
    pub(crate) came: u32,
    /// It does not come back.
    pub(crate) is_over: bool,
    /// For coming back.
    pub(crate) dice: Rand,
    pub(crate) client: Option<Worker>,
    pub(crate) seen: Published,
    sizes: Rand,
    /// Publishes made.
    made: u64,
    /// The last time computed and what is owed to the next publish, in billionths of one.
    clock: (u64, u128),
}

/// A connection of a publisher.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) conn: ConnId,
    pub(crate) topic: TopicId,
    pub(crate) line: Line,
    /// The core said: read nothing further.
    pub(crate) paused: bool,
    /// In the host's list of sources with something to read.
    pub(crate) listed: bool,
    /// The broker hears nothing from it any more, not even its end.
    pub(crate) cut: bool,
    /// Arrived, not read.
    pub(crate) inbound: VecDeque<Made>,
    /// On the way or not read, in bytes.
    outstanding: u64,
    /// On the way, with the time of arrival.
    travelling: VecDeque<(u64, Made)>,
}

/// A worker of a client: checkpoint 2, and its part of checkpoint 1.
#[derive(Debug)]
pub(crate) struct Worker {
    /// Index of the client whose window it shares.
    pub(crate) client: usize,
    pub(crate) queue: Queue<(Made, Permit)>,
    /// Taken from the queue, and not yet by the transport.
    pub(crate) next: Option<(Made, Permit)>,
    /// The transport took nothing when it was asked last.
    pub(crate) is_blocked: bool,
    /// The application waits for the window to take this.
    pub(crate) asking: Option<(Ticket, Made)>,
    /// It waits for a place in the queue.
    pub(crate) queueing: bool,
    /// Permits of publishes that are not answered yet, by number.
    pub(crate) permits: BTreeMap<u64, Permit>,
}

impl Worker {
    pub(crate) fn new(client: usize, limits: &Limits) -> Self {
        Self {
            client,
            queue: Queue::new(limits),
            next: None,
            is_blocked: false,
            asking: None,
            queueing: false,
            permits: BTreeMap::new(),
        }
    }

    /// Whether the application waits for its last publish to be taken.
    pub(crate) const fn is_busy(&self) -> bool {
        self.queueing || self.asking.is_some()
    }
}

/// What a publisher saw, in records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Handed to the broker.
    pub offered: u64,
    /// Answered no.
    pub refused: u64,
    /// Discarded.
    pub shed: u64,
    /// Not made: the window was full.
    pub held_back: u64,
    /// Connections that the broker took.
    pub connects: u64,
    /// Connections that the broker refused.
    pub turned_away: u64,
}

impl Publisher {
    pub(crate) fn new(
        (group, spec): (usize, &PublisherGroup),
        (topic, shard): (u32, u32),
        rand: &Rand,
    ) -> Self {
        let phase = rand.fork("phase").below(NANO) + 1;
        Self {
            spec: spec.clone(),
            rate: draw(&mut rand.fork("rate"), spec.rate),
            group,
            topic,
            shard,
            link: None,
            came: 0,
            is_over: false,
            dice: rand.fork("presence"),
            client: None,
            seen: Published::default(),
            sizes: rand.fork("size"),
            made: 0,
            clock: (spec.active.0, phase.into()),
        }
    }

    /// The time of its next publish.
    pub(crate) fn next(&mut self) -> Option<u64> {
        let (mut at, mut owed) = self.clock;
        loop {
            let (rate, until) = self.rate(at);
            let step = u64::try_from(owed.div_ceil(rate.into())).unwrap_or(u64::MAX);
            let due = at.saturating_add(step);
            if due <= until {
                let paid = u128::from(step) * u128::from(rate);
                self.clock = (due, (owed + u128::from(NANO)).saturating_sub(paid).max(1));
                return (due < self.spec.active.1).then_some(due);
            }
            owed -= u128::from(until - at) * u128::from(rate);
            at = until;
        }
    }

    /// The rate at `at` and how long it stays.
    fn rate(&self, at: u64) -> (u64, u64) {
        match self.spec.bursts.iter().find(|burst| at < burst.1) {
            Some(&(from, to, times)) if from <= at => (self.rate * times, to),
            Some(&(from, _, _)) => (self.rate, from),
            None => (self.rate, u64::MAX),
        }
    }

    /// Draws the size of the next publish.
    pub(crate) fn size(&mut self) -> u32 {
        let (least, most) = self.spec.size;
        let size = draw(&mut self.sizes, (least.into(), most.into()));
        u32::try_from(size).expect("at most the greatest")
    }

    /// Makes a publish of `bytes`.
    pub(crate) fn make(&mut self, index: u32, bytes: u32, now: u64) -> Made {
        let (topic, records) = (self.topic, self.spec.records);
        let publish = Publish { publisher: index, topic, number: self.made, records, bytes };
        self.made += 1;
        (publish, now)
    }
}

impl Link {
    pub(crate) const fn new((conn, topic): (ConnId, TopicId), line: Line) -> Self {
        Self {
            conn,
            topic,
            line,
            paused: false,
            listed: false,
            cut: false,
            inbound: VecDeque::new(),
            outstanding: 0,
            travelling: VecDeque::new(),
        }
    }

    /// Whether the transport takes a frame of `bytes`; one alone it always does.
    pub(crate) fn takes(&self, bytes: u32) -> bool {
        self.outstanding == 0 || self.outstanding + u64::from(bytes) <= self.line.spec().buffer
    }

    /// Sends a publish that the transport takes. When it arrives.
    pub(crate) fn send(&mut self, made: Made, now: u64) -> Option<u64> {
        let bytes = u64::from(made.0.bytes);
        self.outstanding += bytes;
        self.line.accept(now, bytes);
        let arrival = self.line.land(0)?;
        self.travelling.push_back((arrival, made));
        Some(arrival)
    }

    /// Bytes on the way or not read.
    pub(crate) const fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// The next publish on the way has arrived.
    pub(crate) fn arrive(&mut self) {
        let (_, made) = self.travelling.pop_front().expect("one arrival per publish");
        self.inbound.push_back(made);
    }

    /// The host reads the next publish.
    pub(crate) fn read(&mut self) -> Option<Made> {
        let read = if self.paused { None } else { self.inbound.pop_front() }?;
        self.outstanding -= u64::from(read.0.bytes);
        Some(read)
    }

    /// Whether the host should list it: there is something to read.
    pub(crate) fn is_readable(&self) -> bool {
        !self.listed && !self.paused && !self.inbound.is_empty()
    }
}
