//! Subscribers: a follower that comes and goes, its subscriptions, and the ends of their links.

use crate::frame::{Item, Parser};
use crate::line::Line;
use sluicegate_core::client::inbox::Inbox;
use sluicegate_core::{ConnId, OutletId, Rand, SubBooks, SubId, Tally};
use std::collections::{BTreeMap, VecDeque};

/// A peer that follows a topic, over all of its connections.
#[derive(Debug)]
pub(crate) struct Follower {
    /// Index of the group.
    pub(crate) group: usize,
    /// Index of the topic.
    pub(crate) topic: u32,
    pub(crate) shard: u32,
    pub(crate) name: String,
    pub(crate) dice: Rand,
    /// The subscription in force, as an index.
    pub(crate) present: Option<u32>,
    /// Connections so far.
    pub(crate) came: u32,
    /// It does not come back.
    pub(crate) is_over: bool,
    /// The publisher that publishes over its connection, as an index.
    pub(crate) rider: Option<u32>,
}

/// One subscription over one connection.
#[derive(Debug)]
pub(crate) struct Subscriber {
    pub(crate) follower: u32,
    pub(crate) group: usize,
    pub(crate) topic: u32,
    pub(crate) sink: u32,
    pub(crate) sub: SubId,
    pub(crate) shard: u32,
    pub(crate) phase: Phase,
    pub(crate) received: u64,
    /// The core's books, noted before it forgets them.
    pub(crate) books: Option<SubBooks>,
    pub(crate) inbox: Option<Box<Reader>>,
    pub(crate) asking: Option<Box<Asking>>,
}

/// How far a subscription is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The core gave it up.
    Closed,
    /// It ended by itself or by a fault.
    Left,
    /// It is there.
    Present,
}

/// An application that takes events from an inbox at its own rate.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) inbox: Inbox<(Item, u64)>,
    /// Nanoseconds between two events.
    pub(crate) pause: u64,
    /// The next time it takes one is in the calendar.
    pub(crate) is_taking: bool,
    /// Not before then.
    pub(crate) rests_until: u64,
}

/// A client that asks something over its connection again and again.
#[derive(Debug)]
pub(crate) struct Asking {
    /// Nanoseconds between two questions.
    pub(crate) pause: u64,
    /// Questions so far: the number of the next one.
    pub(crate) asked: u64,
    /// Number and time of those that the broker has not received.
    pub(crate) on_the_way: VecDeque<(u64, u64)>,
}

/// The far end of an outlet.
#[derive(Debug)]
pub(crate) struct Sink {
    pub(crate) shard: u32,
    pub(crate) conn: ConnId,
    pub(crate) outlet: OutletId,
    pub(crate) line: Line,
    pub(crate) parser: Parser,
    /// Accepted by the transport, not yet received.
    pub(crate) in_flight: VecDeque<Flight>,
    /// Received and not read: the inbox is full and its policy is `block`.
    pub(crate) unread: VecDeque<Flight>,
    pub(crate) unread_bytes: u64,
    /// A delivery is in the calendar.
    pub(crate) expecting: bool,
    /// The transport took less than it was offered.
    pub(crate) refusing: bool,
    /// The broker hears nothing from the peer any more, not even its end.
    pub(crate) cut: bool,
    /// The connection is over.
    pub(crate) closed: bool,
    pub(crate) readers: Readers,
}

/// The subscriptions of an outlet, as indices.
#[derive(Debug)]
pub(crate) enum Readers {
    Many(BTreeMap<u32, u32>),
    One(u32),
}

/// A frame on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    /// When it arrives; `None`: never.
    pub(crate) at: Option<u64>,
    pub(crate) item: Item,
    /// Its first sequence number.
    pub(crate) first: u64,
}

impl Sink {
    /// The subscription that a frame is for.
    pub(crate) fn reader(&self, topic: u32) -> Option<u32> {
        match &self.readers {
            Readers::One(subscriber) => Some(*subscriber),
            Readers::Many(by_topic) => by_topic.get(&topic).copied(),
        }
    }

    /// One of its subscriptions, to name it by.
    pub(crate) fn name(&self) -> u32 {
        match &self.readers {
            Readers::One(subscriber) => *subscriber,
            Readers::Many(by_topic) => by_topic.values().next().copied().unwrap_or(u32::MAX),
        }
    }

    /// Bytes that the transport takes now.
    pub(crate) fn room(&self, now: u64) -> u64 {
        self.line.room(now).saturating_sub(self.unread_bytes)
    }

    /// When half of the transport is free, if it will be without anything being read.
    pub(crate) fn half_free(&self) -> Option<u64> {
        let half = self.line.spec().buffer / 2;
        self.line.drained_to(half.checked_sub(self.unread_bytes)?)
    }

    /// When the next delivery must be entered into the calendar, if it is not there yet.
    pub(crate) fn expect_next(&mut self) -> Option<u64> {
        if self.expecting || self.cut {
            return None;
        }
        let at = self.in_flight.front()?.at?;
        self.expecting = true;
        Some(at)
    }

    /// Data of a topic that the transport took and nobody received, counted.
    pub(crate) fn flying(&self, topic: u32) -> Tally {
        let one = matches!(self.readers, Readers::One(_));
        let all = self.in_flight.iter().chain(&self.unread).map(|flight| &flight.item);
        let data = all.filter(|item| item.is_data() && (one || item.topic == topic));
        data.map(|item| Tally { records: item.records.into(), bytes: item.length.into() }).sum()
    }
}
