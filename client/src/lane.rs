//! A worker's part of what is published: its queue (checkpoint 2), and what its stream may not
//! have brought there yet.

use crate::error::PublishError;
use crate::state::{Item, State};
use sluicegate_core::client::queue::{Popped, Queue};
use sluicegate_core::{Limits, Ticket};
use std::collections::{BTreeMap, VecDeque};
use tokio::sync::oneshot;

/// What the transport may hold unacknowledged: what was handed to a stream before has arrived.
const IN_TRANSIT: u64 = 2 << 20;

/// One worker's part. A topic's publishes are all in the same, so that they stay in order.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) queue: Queue<Item>,
    pub(crate) waits: BTreeMap<Ticket, oneshot::Sender<()>>,
    /// Taken off the queue, and not sent yet.
    pub(crate) carried: Option<Item>,
    /// Sent without asking and maybe not arrived: bytes and records.
    transit: VecDeque<(u64, u64)>,
    transit_bytes: u64,
}

impl Lane {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            queue: Queue::new(limits),
            waits: BTreeMap::new(),
            carried: None,
            transit: VecDeque::new(),
            transit_bytes: 0,
        }
    }

    /// The next batch.
    pub(crate) fn pop(&mut self) -> Option<Item> {
        if let Some(item) = self.carried.take() {
            return Some(item);
        }
        let Popped { item, admitted } = self.queue.pop()?;
        if let Some(tell) = admitted.and_then(|ticket| self.waits.remove(&ticket)) {
            // Who waited may have given up: the place is taken all the same.
            let _ = tell.send(());
        }
        Some(item)
    }

    /// Unacked records were handed to the transport.
    pub(crate) fn sent(&mut self, bytes: u64, records: u64) {
        self.transit.push_back((bytes, records));
        self.transit_bytes += bytes;
        while let Some((bytes, _)) = self.transit.front() {
            if self.transit_bytes - bytes < IN_TRANSIT {
                break;
            }
            self.transit_bytes -= bytes;
            self.transit.pop_front();
        }
    }

    /// All that was sent has arrived, or its connection is gone: the records that were under way.
    pub(crate) fn settle(&mut self) -> u64 {
        self.transit_bytes = 0;
        self.transit.drain(..).map(|(_, records)| records).sum()
    }
}

impl State {
    /// The lane of a topic.
    pub(crate) fn lane_of(&mut self, topic: usize) -> &mut Lane {
        let at = topic % self.lanes.len();
        &mut self.lanes[at]
    }

    /// Nothing more comes into the queues: who waits before them is refused.
    pub(crate) fn close_lanes(&mut self, why: PublishError) {
        for at in 0..self.lanes.len() {
            self.lanes[at].queue.close();
            while let Some((ticket, item, _)) = self.lanes[at].queue.poll() {
                self.lanes[at].waits.remove(&ticket);
                self.give_up(item, why);
            }
        }
    }

    /// What is in the queues is not sent.
    pub(crate) fn empty_lanes(&mut self, why: PublishError) {
        for at in 0..self.lanes.len() {
            while let Some(item) = self.lanes[at].pop() {
                self.give_up(item, why);
            }
        }
    }
}
