//! Publishers and subscribers: what they offer, and what their links do.

use crate::fact::Publish;
use crate::frame::{Item, Parser};
use crate::histogram::Histogram;
use crate::line::Line;
use crate::scenario::{PublisherGroup, SubscriberGroup};
use sluicegate_core::{ConnId, OutletId, Rand, SubId, Tally, TopicId};
use std::collections::VecDeque;

/// Billionths: what a publisher owes per publish.
const NANO: u64 = 1_000_000_000;

/// A publisher: a clock that offers publishes, and a window to the broker.
#[derive(Debug)]
pub(crate) struct Publisher {
    pub(crate) spec: PublisherGroup,
    /// Index of the group.
    pub(crate) group: usize,
    pub(crate) conn: ConnId,
    pub(crate) topic: TopicId,
    /// The core said: read nothing further.
    pub(crate) paused: bool,
    /// In the host's list of sources with something to read.
    pub(crate) listed: bool,
    /// Arrived, not read: the publish and when it was offered.
    pub(crate) inbound: VecDeque<(Publish, u64)>,
    pub(crate) seen: Published,
    line: Line,
    sizes: Rand,
    /// On the way or not read, in bytes.
    outstanding: u64,
    /// The most that ever was.
    most_outstanding: u64,
    /// On the way, with the time of arrival.
    travelling: VecDeque<(u64, Publish, u64)>,
    /// Publishes made.
    made: u64,
    /// The last time computed and what is owed to the next publish, in billionths of one.
    clock: (u64, u128),
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
    /// Not sent: the window was full.
    pub held_back: u64,
}

impl Publisher {
    pub(crate) fn new(
        (group, spec): (usize, &PublisherGroup),
        (conn, topic): (ConnId, TopicId),
        rand: &Rand,
    ) -> Self {
        let phase = rand.fork("phase").below(NANO) + 1;
        Self {
            spec: spec.clone(),
            group,
            conn,
            topic,
            paused: false,
            listed: false,
            inbound: VecDeque::new(),
            seen: Published::default(),
            line: Line::new(spec.line.clone()),
            sizes: rand.fork("size"),
            outstanding: 0,
            most_outstanding: 0,
            travelling: VecDeque::new(),
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
        let rate = self.spec.rate;
        match self.spec.bursts.iter().find(|burst| at < burst.1) {
            Some(&(from, to, times)) if from <= at => (rate * times, to),
            Some(&(from, _, _)) => (rate, from),
            None => (rate, u64::MAX),
        }
    }

    /// Makes a publish and sends it, or holds it back. The time of its arrival, if it was sent.
    pub(crate) fn publish(&mut self, index: u32, now: u64) -> Option<u64> {
        let PublisherGroup { size: (least, most), records, topic, .. } = self.spec;
        let extra = self.sizes.below(u64::from(most - least) + 1);
        let bytes = least + u32::try_from(extra).expect("at most the range");
        let full = self.outstanding + u64::from(bytes) > self.line.spec().buffer;
        if full && self.outstanding > 0 {
            self.seen.held_back += u64::from(records);
            return None;
        }
        let topic = u32::try_from(topic).expect("topics are few");
        let publish = Publish { publisher: index, topic, number: self.made, records, bytes };
        self.made += 1;
        self.outstanding += u64::from(bytes);
        self.most_outstanding = self.most_outstanding.max(self.outstanding);
        self.line.accept(now, bytes.into());
        let arrival = self.line.arrival(0).expect("the broker's end never stalls");
        self.travelling.push_back((arrival, publish, now));
        Some(arrival)
    }

    /// Bytes on the way or not read: now, and at most.
    pub(crate) const fn outstanding(&self) -> (u64, u64) {
        (self.outstanding, self.most_outstanding)
    }

    /// The next publish on the way has arrived.
    pub(crate) fn arrive(&mut self) {
        let (_, publish, made) = self.travelling.pop_front().expect("one arrival per publish");
        self.inbound.push_back((publish, made));
    }

    /// The host reads the next publish.
    pub(crate) fn read(&mut self) -> Option<(Publish, u64)> {
        let read = if self.paused { None } else { self.inbound.pop_front() }?;
        self.outstanding -= u64::from(read.0.bytes);
        Some(read)
    }
}

/// A subscriber: the end of a link that reads frames.
#[derive(Debug)]
pub(crate) struct Subscriber {
    pub(crate) spec: SubscriberGroup,
    /// Index of the group.
    pub(crate) group: usize,
    pub(crate) conn: ConnId,
    pub(crate) outlet: OutletId,
    pub(crate) sub: SubId,
    pub(crate) line: Line,
    pub(crate) parser: Parser,
    /// Accepted by the transport, not yet received; the time is `None` when it never will be.
    pub(crate) in_flight: VecDeque<(Option<u64>, Item)>,
    /// A delivery is in the calendar.
    pub(crate) expecting: bool,
    pub(crate) closed: bool,
    pub(crate) received: u64,
    pub(crate) latency: Histogram,
}

impl Subscriber {
    pub(crate) fn new(
        (group, spec): (usize, &SubscriberGroup),
        (conn, outlet, sub): (ConnId, OutletId, SubId),
    ) -> Self {
        Self {
            spec: spec.clone(),
            group,
            conn,
            outlet,
            sub,
            line: Line::new(spec.line.clone()),
            parser: Parser::default(),
            in_flight: VecDeque::new(),
            expecting: false,
            closed: false,
            received: 0,
            latency: Histogram::default(),
        }
    }

    /// When the next delivery must be entered into the calendar, if it is not there yet.
    pub(crate) fn expect_next(&mut self) -> Option<u64> {
        if self.expecting {
            return None;
        }
        let at = self.in_flight.front()?.0?;
        self.expecting = true;
        Some(at)
    }

    /// Data in flight, counted.
    pub(crate) fn flying(&self) -> Tally {
        let data = self.in_flight.iter().filter(|(_, item)| item.publisher != crate::frame::GAP);
        data.map(|(_, item)| Tally { records: item.records.into(), bytes: item.length.into() })
            .sum()
    }
}
