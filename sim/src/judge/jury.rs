//! The judges of one run, together.

use super::answers::Answers;
use super::conservation::Conservation;
use super::fairness::Fairness;
use super::freshness::Freshness;
use super::hysteresis::Hysteresis;
use super::lossless::Lossless;
use super::memory::MemoryJudge;
use super::order::Order;
use super::permits::Permits;
use super::shutdown::Shutdown;
use super::stuck::Stuck;
use super::{Found, fairness};
use crate::fact::Fact;
use crate::scenario::Story;
use sluicegate_core::Policy;

/// Every judge but isolation, which compares two runs.
#[derive(Debug, Default)]
pub struct Jury {
    /// Questions are answered.
    pub answers: Answers,
    /// The books hold and say what the peers saw.
    pub conservation: Conservation,
    /// Tenants get their shares.
    pub fairness: Fairness,
    /// The newest survives.
    pub freshness: Freshness,
    /// Bands do not flap.
    pub hysteresis: Hysteresis,
    /// Nothing is lost under `block`.
    pub lossless: Lossless,
    /// Queues, leases and idle shards hold what they may.
    pub memory: MemoryJudge,
    /// Sequences increase and gaps are told.
    pub order: Order,
    /// Permits come back, and publishes get one answer.
    pub permits: Permits,
    /// A shard that shuts down takes nothing new.
    pub shutdown: Shutdown,
    /// No work waits that nothing will wake.
    pub stuck: Stuck,
}

/// Nanoseconds of a millisecond.
const MILLI: u64 = 1_000_000;

impl Jury {
    /// The judges of a story.
    pub fn new(story: &Story) -> Self {
        let limits = &story.limits;
        let weights: Vec<u32> = story.tenants.iter().map(|(_, weight)| *weight).collect();
        let largest = story.publishers.iter().map(|group| u64::from(group.size.1)).max();
        let audience: u64 = story.subscribers.iter().map(|group| u64::from(group.count)).sum();
        let largest = fairness::cost(largest.unwrap_or(0), 1, audience);
        let mut fairness = Fairness::new(&weights, largest, limits);
        if let Some(due) = &story.expect.fairness {
            fairness.over(due.time);
        }
        let due = story.expect.propagation.as_deref().unwrap_or_default();
        Self {
            fairness,
            hysteresis: Hysteresis::new(limits.band_dwell_ms * MILLI),
            lossless: Lossless::new(limits.lossless == 1, due),
            shutdown: Shutdown::new(limits.shutdown_grace_ms * MILLI),
            ..Self::default()
        }
    }

    /// A publisher, and whether it wants answers.
    pub fn source(&mut self, publisher: u32, acked: bool) {
        if acked {
            self.permits.source(publisher);
        }
    }

    /// A subscriber, and what its queue does when it is full. Before its first fact.
    pub fn follows(&mut self, subscriber: u32, policy: Policy) {
        match policy {
            Policy::Block => self.lossless.follow(subscriber),
            Policy::DropNew => {}
            Policy::DropOld | Policy::Latest => self.freshness.follow(subscriber),
        }
    }

    /// Lets every judge hear a fact.
    pub fn hear(&mut self, now: u64, fact: &Fact) -> Found {
        self.conservation.hear(fact);
        self.order.hear(fact)?;
        match fact {
            // Most facts are of these kinds, and concern nobody else.
            Fact::Wrote(..) | Fact::Turned(..) | Fact::Writable(..) | Fact::HeldBack(..) => Ok(()),
            Fact::Received(..) => {
                self.freshness.hear(fact);
                Ok(())
            }
            Fact::Accepted(..) => self.shutdown.hear(now, fact),
            Fact::Answered(..) | Fact::Asked(..) => self.answers.hear(fact),
            _ => {
                self.answers.hear(fact)?;
                self.freshness.hear(fact);
                self.hysteresis.hear(now, fact)?;
                self.lossless.hear(now, fact)?;
                self.permits.hear(fact)?;
                self.shutdown.hear(now, fact)
            }
        }
    }
}
