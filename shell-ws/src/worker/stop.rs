//! Stopping: no loop accepts connections, then everyone is told to come back after what waits for
//! them, then the loops end together.

use super::Worker;
use sluicegate_core::Progress;
use std::io::Read;

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
        if !self.has_said_goodbye && self.node.is_closed() && !has_time {
            self.say_goodbye();
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
        self.node.close(number);
    }

    /// Once no loop accepts, so that nobody comes back to one that is about to stop.
    fn say_goodbye(&mut self) {
        self.has_said_goodbye = true;
        // Once in the life of a process, so a walk over all connections does no harm.
        let indices: Vec<u32> = self.sockets.iter().map(|(index, _)| index).collect();
        for index in indices {
            self.sockets[index].session.shut_down(&mut self.shard);
            self.deadlines.update(&mut self.sockets, index, self.now);
        }
    }

    /// Nobody is connected to any loop: until then others may need what this one owns.
    pub(super) fn is_over(&self) -> bool {
        self.stops_at.is_some_and(|at| self.node.is_finished() || self.now >= at)
    }
}
