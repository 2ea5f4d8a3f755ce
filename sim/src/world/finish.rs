//! Endings: subscriptions and connections that are over, and shards that shut down.

use super::host::Knock;
use super::{Peer, Who, World, at};
use crate::fact::Fact;
use crate::judge::Found;
use crate::sink::{Phase, Readers};
use bytes::Bytes;
use sluicegate_core::{Close, ConnId, Refusal};

impl World<'_> {
    /// The core gave a connection up: its transport is gone.
    pub(super) fn close(&mut self, shard: u32, conn: ConnId, why: Refusal) -> Found {
        match self.shards[at(shard)].who(conn) {
            Who::Nobody => Ok(()),
            Who::Shared(shared) => {
                for subscriber in self.sharing(shared) {
                    self.end_subscriber(subscriber, Some(why))?;
                }
                Ok(())
            }
            Who::Sink(sink) => self.end_subscriber(self.sinks[at(sink)].name(), Some(why)),
            Who::Source(publisher) => {
                self.end_source(publisher)?;
                self.retry(Peer::Source(publisher));
                Ok(())
            }
        }
    }

    /// The subscriptions that share a connection.
    fn sharing(&self, shared: usize) -> Vec<u32> {
        let conn = self.shared[shared].conn;
        let all = (0..).zip(&self.subscribers);
        let here = all.filter(|(_, subscriber)| {
            let sink = &self.sinks[at(subscriber.sink)];
            subscriber.phase == Phase::Present && Some(sink.conn) == conn
        });
        here.map(|(number, _)| number).collect()
    }

    /// A subscription is over: by itself, or because the core ended it. Its connection goes with
    /// it unless others use that.
    pub(super) fn end_subscriber(&mut self, number: u32, why: Option<Refusal>) -> Found {
        let subscriber = &self.subscribers[at(number)];
        let flying = self.sinks[at(subscriber.sink)].flying(subscriber.topic).records;
        let (sink, was) = (subscriber.sink, subscriber.phase);
        self.retire(number, (why, flying))?;
        let sink = &mut self.sinks[at(sink)];
        let used = matches!(&sink.readers, Readers::Many(readers) if !readers.is_empty());
        if was == Phase::Present && !used {
            sink.closed = true;
            sink.in_flight.clear();
            sink.unread.clear();
        }
        Ok(())
    }

    /// Ends a subscription whose link may still carry what it has.
    fn retire(&mut self, number: u32, (why, lost): (Option<Refusal>, u64)) -> Found {
        let subscriber = &mut self.subscribers[at(number)];
        if subscriber.phase != Phase::Present {
            return Ok(());
        }
        subscriber.phase = if why.is_some() { Phase::Closed } else { Phase::Left };
        let (shard, sub) = (subscriber.shard, subscriber.sub);
        let (group, follower) = (subscriber.group, subscriber.follower);
        let books = self.shards[at(shard)].broker.sub_books(sub).or(subscriber.books);
        let books = books.unwrap_or_default();
        self.rows[group].end(&books, (why.is_some(), lost));
        self.drop_transport(number);
        if let Some(rider) = self.followers[at(follower)].rider {
            self.end_source(rider)?;
        }
        if let Some(why) = why {
            self.put(Fact::Closed(number, why))?;
        }
        let present = self.followers[at(follower)].present == Some(number);
        if present {
            self.followers[at(follower)].present = None;
            if why.is_some() {
                self.retry(Peer::Follower(follower));
            }
        }
        self.put(Fact::Left(number, lost))
    }

    /// Takes down what carried a subscription.
    fn drop_transport(&mut self, number: u32) {
        let subscriber = &self.subscribers[at(number)];
        let (shard, sub, topic) = (subscriber.shard, subscriber.sub, subscriber.topic);
        let sink = &mut self.sinks[at(subscriber.sink)];
        let conn = sink.conn;
        let broker = &mut self.shards[at(shard)].broker;
        let shared = self.shared.iter().position(|shared| shared.conn == Some(conn));
        let shared = shared.filter(|shared| self.shared[*shared].shard == shard);
        let Some(shared) = shared else {
            broker.gone(conn);
            return;
        };
        match &mut sink.readers {
            Readers::One(_) => {
                broker.shut(sink.outlet);
            }
            Readers::Many(readers) => {
                readers.remove(&topic);
                // It is stale when the core ended it.
                let _ = broker.unsubscribe(sub);
            }
        }
        let shared = &mut self.shared[shared];
        shared.users -= 1;
        if shared.users == 0 {
            broker.gone(conn);
            (shared.conn, shared.sink) = (None, None);
        }
    }

    /// A publisher's connection is over.
    pub(super) fn end_source(&mut self, publisher: u32) -> Found {
        let source = &mut self.publishers[at(publisher)];
        let Some(link) = source.link.take() else { return Ok(()) };
        let shard = &mut self.shards[at(source.shard)];
        if source.spec.over.is_none() {
            shard.broker.gone(link.conn);
        } else {
            // Its subscriber's connection is gone, in the middle of a turn perhaps: what the core
            // has said about it before finds nobody.
            shard.tickets.retain(|_, publish| publish.publisher != publisher);
        }
        self.put(Fact::SourceLeft(publisher))?;
        self.give_up_answers(publisher)
    }

    /// A shard is asked to shut down: it hears it in its next turn.
    pub(super) fn ask_to_finish(&mut self, shard: u32) {
        self.shards[at(shard)].host.knocks.push(Knock::Finish);
        self.wake(shard);
    }

    pub(super) fn begin_to_finish(&mut self, shard: u32) -> Found {
        let this = &mut self.shards[at(shard)];
        let grace = self.story.limits.shutdown_grace_ms * 1_000_000;
        if this.host.grace.is_none() {
            this.host.grace = Some(self.now + grace);
            this.broker.shutdown();
            self.put(Fact::Finishing(shard))?;
        }
        Ok(())
    }

    /// What a host does while its shard shuts down: once everything is flushed, and in any case at
    /// the end of the grace, it closes every connection.
    pub(super) fn finish(&mut self, shard: u32) -> Found {
        let this = &mut self.shards[at(shard)];
        let Some(end) = this.host.grace else { return Ok(()) };
        let over = self.now >= end;
        if !this.host.closed && (over || this.broker.is_flushed()) {
            this.host.closed = true;
            for subscriber in self.subscribers.iter_mut().filter(|sub| sub.shard == shard) {
                subscriber.books = this.broker.sub_books(subscriber.sub);
            }
            let conns: Vec<ConnId> = this.conns.iter().filter_map(|(conn, _)| *conn).collect();
            for conn in conns {
                // It may be closing, or be gone.
                let _ = this.broker.close(conn, Close::AfterFlush, Bytes::new());
            }
            self.effects(shard)?;
        }
        if over {
            let conns = self.shards[at(shard)].conns.iter().filter_map(|(conn, _)| *conn);
            for conn in conns.collect::<Vec<_>>() {
                self.flushed(shard, conn)?;
            }
        }
        Ok(())
    }

    /// The last byte of a connection that the host closed is in its transport, or the time for it
    /// is over.
    pub(super) fn flushed(&mut self, shard: u32, conn: ConnId) -> Found {
        match self.shards[at(shard)].who(conn) {
            Who::Nobody => Ok(()),
            Who::Shared(shared) => {
                for subscriber in self.sharing(shared) {
                    self.part(subscriber)?;
                }
                Ok(())
            }
            Who::Sink(sink) => self.part(self.sinks[at(sink)].name()),
            Who::Source(publisher) => {
                let link = self.publishers[at(publisher)].link.as_ref();
                if link.is_some_and(|link| link.conn == conn) {
                    self.end_source(publisher)?;
                    self.retry(Peer::Source(publisher));
                }
                Ok(())
            }
        }
    }

    /// A subscriber's shard is gone: it looks for another one.
    fn part(&mut self, number: u32) -> Found {
        let subscriber = &self.subscribers[at(number)];
        if subscriber.phase != Phase::Present {
            return Ok(());
        }
        let follower = subscriber.follower;
        self.retire(number, (None, 0))?;
        self.retry(Peer::Follower(follower));
        Ok(())
    }
}
