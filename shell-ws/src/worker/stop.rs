//! Stopping: no loop accepts connections, then everyone is told to come back after what waits for
//! them, then the loops end together.

use super::Worker;
use super::socket::Key;
use sluicegate_core::{Instant, Progress};
use std::collections::VecDeque;
use std::io::Read;
use std::time::Duration;

/// Connections that are told at once: too few to be a storm when they come back.
const AT_ONCE: u64 = 100;

/// Connections per second that are told at least, for those who have only few more.
const PER_SECOND: u64 = 1_000;

/// How often the next ones are told.
const PACE: Duration = Duration::from_millis(10);

/// Connections that are still to be told. Clients reconnect the moment they are, so not all are
/// told in the same moment.
#[derive(Debug)]
pub(super) struct Leaving {
    left: VecDeque<Key>,
    all: u64,
    since: Instant,
    /// By then all have been told.
    window: Duration,
}

impl Leaving {
    /// How many should have been told by now.
    fn due(&self, now: Instant) -> u64 {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let elapsed = millis(now.since(self.since));
        let spread = self.all.saturating_mul(elapsed).checked_div(millis(self.window));
        let steady = AT_ONCE + elapsed.saturating_mul(PER_SECOND) / 1_000;
        spread.unwrap_or(self.all).max(steady).min(self.all)
    }
}

impl Worker {
    /// The process was asked to stop: the node tells all loops.
    pub(super) fn stop_requested(&mut self) {
        let mut bytes = [0; 64];
        let Some(stop) = &mut self.stop else { return };
        while let Ok(n @ 1..) = stop.read(&mut bytes) {
            for _ in 0..n {
                self.node.stop();
            }
        }
    }

    /// Does what was asked of all loops. `progress` is that of the core's step in this turn: what
    /// was published before has its place in the queues when nothing is left to do.
    pub(super) fn go_on_stopping(&mut self, progress: Progress) {
        while self.stops_seen < self.node.stops() {
            self.stops_seen += 1;
            self.stop_once();
        }
        let Some(stops_at) = self.stops_at else { return };
        // Under load there is always something left: half of the grace is for the peers.
        let has_time = progress == Progress::More && self.now + self.grace / 2 < stops_at;
        let is_late = self.now >= stops_at;
        if !self.has_said_goodbye && (is_late || self.all_closed && !has_time) {
            self.say_goodbye(stops_at);
        }
        self.tell_leaving();
    }

    /// Tells the others, after this turn's letters, that no connection is accepted here any more.
    /// So what was answered as published until then is with them before they say goodbye.
    pub(super) fn note_closed(&self) {
        if self.stops_at.is_some() {
            self.node.close(self.port.number());
        }
    }

    /// Tells the others once nobody is connected here any more, and they have all letters about it.
    pub(super) fn note_finished(&self) {
        if self.has_said_goodbye && self.sockets.is_empty() && !self.port.is_waiting() {
            self.node.finish(self.port.number());
        }
    }

    /// The last letters of all others are here: who has gone from a channel that is owned here.
    pub(super) fn hear_the_last(&mut self) {
        self.carry();
        self.call_hooks();
    }

    /// The loop is over, and `/ledger` with it: its books are told once more, here.
    pub(super) fn tell_books(&self) {
        let books = self.shard.broker.ledger();
        let (event_loop, lag) = (self.port.number(), books.lag.records);
        let [admitted, sequenced] = [books.admitted.records, books.sequenced.records];
        let [expected, delivered] = [books.expected.records, books.delivered.records];
        let [dropped, left] = [books.dropped.total().records, books.left.records];
        tracing::info!(
            event_loop, admitted, sequenced, expected, delivered, dropped, left, lag, "stopped"
        );
        if books.queued.records + lag > 0 {
            tracing::warn!(event_loop, "the grace was over before all that waited was sent");
        }
    }

    /// The first time: no new connections. The second time it is over at once.
    fn stop_once(&mut self) {
        if self.stops_at.is_some() {
            self.stops_at = Some(self.now);
            return;
        }
        let (number, sockets) = (self.port.number(), self.sockets.len());
        tracing::info!(event_loop = number, sockets, "stopping");
        self.stops_at = Some(self.now + self.grace);
        self.shard.is_ready = false;
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.close(self.poll.registry());
        }
    }

    /// Once no loop accepts, so that nobody comes back to one that is about to stop, or when no
    /// time is left: everybody is told within the first half of the grace.
    fn say_goodbye(&mut self, stops_at: Instant) {
        self.has_said_goodbye = true;
        // Once in the life of a process, so a walk over all connections does no harm.
        let key = |index| Key { index, generation: self.sockets.generation(index) };
        let left: VecDeque<Key> = self.sockets.iter().map(|(index, _)| key(index)).collect();
        let all = left.len() as u64;
        let window = stops_at.since(self.now).saturating_sub(self.grace / 2);
        self.leaving = Some(Leaving { left, all, since: self.now, window });
    }

    /// Tells those who are due, each after what waits for it.
    fn tell_leaving(&mut self) {
        let Some(leaving) = &mut self.leaving else { return };
        let due = leaving.due(self.now);
        while leaving.all - (leaving.left.len() as u64) < due {
            let Some(key) = leaving.left.pop_front() else { break };
            if key.is_live(&self.sockets) {
                self.sockets[key.index].session.shut_down(&mut self.shard);
                self.deadlines.update(&mut self.sockets, key.index, self.now);
            }
        }
        if leaving.left.is_empty() {
            self.leaving = None;
        }
    }

    /// When the next ones are told.
    pub(super) fn next_goodbye(&self) -> Option<Instant> {
        self.leaving.as_ref().map(|_| self.now + PACE)
    }

    /// Nobody is connected to any loop: until then others may need what this one owns.
    pub(super) fn is_over(&self) -> bool {
        self.stops_at.is_some_and(|at| self.node.is_finished() || self.now >= at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(all: u64, window_s: u64, at_ms: u64) -> u64 {
        let window = Duration::from_secs(window_s);
        let leaving = Leaving { left: VecDeque::new(), all, since: Instant::ZERO, window };
        leaving.due(Instant::from_millis(at_ms))
    }

    #[test]
    fn few_are_told_at_once_and_many_over_the_window() {
        assert_eq!(told(7, 5, 0), 7);
        assert_eq!(told(100_000, 5, 0), 100);
        assert_eq!(told(100_000, 5, 2_500), 50_000);
        assert_eq!(told(100_000, 5, 5_000), 100_000);
        assert_eq!(told(1_100, 5, 1_000), 1_100, "not slower than it must be");
        assert_eq!(told(100_000, 0, 0), 100_000, "without time all are told");
    }
}
