//! What a watched run shows at each point, and the most that places outside of the shards held.
//! Reads only.

use super::{World, at};
use crate::series::{Followed, Look, Watched};
use crate::sink::Phase;

impl World<'_> {
    /// Takes the points of the series that are due before `at`, and tells who waits how far it is.
    pub(super) fn sample(&mut self, at: u64) {
        if self.watching.is_due(at) {
            let mut watching = std::mem::take(&mut self.watching);
            watching.take(at, &self.sight());
            self.watching = watching;
        }
    }

    /// Takes the last point and gives out what was watched.
    pub(super) fn watched(&mut self) -> Option<Watched> {
        let watching = std::mem::take(&mut self.watching);
        watching.end(self.now, || self.sight())
    }

    /// What there is to see. Cost: O(peers).
    fn sight(&self) -> Look<'_> {
        let mut groups = vec![Followed::default(); self.story.subscribers.len()];
        for subscriber in self.subscribers.iter().filter(|sub| sub.phase == Phase::Present) {
            let broker = &self.shards[at(subscriber.shard)].broker;
            let outlet = self.sinks[at(subscriber.sink)].outlet;
            let group = &mut groups[subscriber.group];
            group.lag += broker.sub_books(subscriber.sub).unwrap_or_default().lag.records;
            group.fullest = group.fullest.max(broker.backlog(outlet).unwrap_or_default().bytes);
        }
        Look {
            brokers: self.shards.iter().map(|shard| &shard.broker).collect(),
            held_back: self.publishers.iter().map(|source| source.seen.held_back).sum(),
            groups,
        }
    }

    /// Notes what a publisher has in its client and on the way.
    pub(super) fn note_publisher(&mut self, publisher: u32) {
        let source = &self.publishers[at(publisher)];
        let link = source.link.as_ref().map_or(0, |link| link.outstanding());
        let Some(worker) = &source.client else {
            return self.watching.raise(|tops| &mut tops.window, link);
        };
        let (window, queued) = (&self.clients.windows[worker.client], worker.queue.len());
        self.watching.raise(|tops| &mut tops.window, window.in_flight());
        self.watching.raise(|tops| &mut tops.queue, queued.into());
    }

    /// Notes what a subscriber's application has not taken.
    pub(super) fn note_inbox(&mut self, subscriber: u32) {
        if let Some(reader) = &self.subscribers[at(subscriber)].inbox {
            self.watching.raise(|tops| &mut tops.inbox, reader.inbox.len().into());
        }
    }

    /// Notes what a transport has taken and its peer has not received.
    pub(super) fn note_transport(&mut self, sink: u32) {
        let sink = &self.sinks[at(sink)];
        let bytes = sink.line.level(self.now) + sink.unread_bytes;
        self.watching.raise(|tops| &mut tops.transport, bytes);
    }
}
