//! Shutting down: nothing new comes in, queues flush, what is left at the end of the grace is
//! dropped and counted.

use super::Broker;
use crate::schedule::{Job, Origin};
use crate::time::Instant;
use crate::verdict::{Place, Reason, Refusal};
use alloc::vec::Vec;
use core::time::Duration;

/// What the end of the grace drops.
const LEFT_OVER: (Place, Reason) = (Place::Egress, Reason::Shutdown);

/// How far a shutdown is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Running,
    /// Until then what was admitted may still be delivered.
    Flushing(Instant),
    Over,
}

impl Broker {
    /// Begins to shut down: from now on publishes, connections and subscriptions are refused, and
    /// parked publishes end refused, or shed when they are unacked. What was admitted is still
    /// delivered for at most `shutdown_grace_ms`; then what is left is dropped with reason
    /// `shutdown`. The host closes each connection with
    /// [`Close::AfterFlush`](super::Close::AfterFlush) once [`is_flushed`](Self::is_flushed), and
    /// in any case at the end. Cost: O(connections).
    pub fn shutdown(&mut self) {
        self.tape_shutdown();
        if self.phase != Phase::Running {
            return;
        }
        let grace = Duration::from_millis(self.limits.shutdown_grace_ms);
        self.phase = Phase::Flushing(self.now + grace);
        let paused = self.peers.conns.iter().filter(|(_, conn)| !conn.parked.is_empty());
        let paused: Vec<u32> = paused.map(|(index, _)| index).collect();
        for conn in paused {
            while let Some(parked) = self.peers.conns[conn].parked.front() {
                self.turn_back(parked, Self::shutting_down());
            }
            self.pause(conn, crate::peers::PAUSE_PARKED, false);
        }
    }

    /// Whether nothing waits for anybody any more: no publish, no record, nobody who catches up.
    /// Cost: O(1).
    pub fn is_flushed(&self) -> bool {
        let (queued, parked) = self.schedule.counts();
        let remote = self.schedule.remote() + self.mesh.flights.len();
        let is_idle = self.fan.is_none() && queued + parked + remote == 0;
        let none = self.behind.is_empty() && self.begun.is_empty();
        let nobody_behind = none && self.mesh.fetching == 0;
        is_idle && nobody_behind && self.ledger.shard.lag.is_zero()
    }

    /// A job of another shard meets the end of the grace: a publish is answered, and a batch is
    /// dropped for its audience here.
    fn end_remote(&mut self, job: Job, why: Refusal) {
        let Job { topic, message, tally, .. } = job;
        if let Origin::Forwarded { shard, flight, .. } = job.origin {
            self.ledger.evicted(self.topics[topic].tenant, why, tally);
            self.memory.release(message);
            self.answer_forward(topic, (shard, flight), Err(why));
            self.note_idle(topic);
            return;
        }
        self.begin_fan_out(job);
        if let Some(fan) = self.fan.take() {
            self.cut_short(fan, LEFT_OVER);
        }
    }

    pub(super) const fn shutting_down() -> Refusal {
        Refusal::never(Place::Admission, Reason::Shutdown)
    }

    pub(super) const fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    pub(super) const fn grace_ends(&self) -> Option<Instant> {
        match self.phase {
            Phase::Flushing(at) => Some(at),
            Phase::Running | Phase::Over => None,
        }
    }

    /// Ends the grace when it is over: queued publishes and what waits for peers are dropped.
    /// What a transport was offered already is not ours to drop. Cost: O(everything).
    pub(super) fn end_grace(&mut self) {
        if self.grace_ends().is_none_or(|at| at > self.now) {
            return;
        }
        self.phase = Phase::Over;
        if let Some(fan) = self.fan.take() {
            self.cut_short(fan, LEFT_OVER);
        }
        let why = Self::shutting_down();
        while let Some(job) = self.schedule.any_queued() {
            self.discard(job, Refusal { place: Place::Schedule, ..why });
        }
        for job in self.schedule.take_remote() {
            self.end_remote(job, Refusal { place: Place::Schedule, ..why });
        }
        let outlets: Vec<u32> = self.peers.outlets.iter().map(|(at, _)| at).collect();
        self.end_catching_up(LEFT_OVER);
        for outlet in outlets {
            self.drop_waiting(outlet, LEFT_OVER);
            self.egress_recheck(outlet);
        }
    }
}
