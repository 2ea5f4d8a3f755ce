//! The end of a tape: faults end, everybody reads, memory is there, time passes. Everything must
//! drain.

use super::{Deck, Found, Kind, OutletId};
use crate::judge::stuck::{Leftover, Stuck};
use crate::judge::{Finding, Kind as Promise};
use sluicegate_core::{Band, SubId, Tally};

/// Bytes the pool lends: more than any shard holds.
const PLENTY: u64 = 1 << 40;
/// How long everything has to drain, and in which steps, in nanoseconds.
const STEP: u64 = 100_000_000;
const STEPS: u64 = 60;

fn stuck(what: String) -> Found {
    Err(Finding { judge: "stuck", kind: Promise::Liveness, what, at: None })
}

impl Deck {
    /// Ends all faults and demands that everything drains.
    pub fn heal(&mut self) -> Found {
        let numbers: Vec<u32> = self.brokers().map(sluicegate_core::Broker::number).collect();
        for &shard in &numbers {
            self.relieve(shard)?;
        }
        let grace = self.shards[0].broker.limits().shutdown_grace_ms.saturating_mul(1_000_000);
        let wait = self.shards[0].broker.limits().publish_queue_wait_ms.saturating_mul(1_000_000);
        let step = STEP.max(grace / STEPS + 1).max(wait / STEPS + 1);
        for _ in 0..STEPS {
            self.flow(&numbers)?;
            for &shard in &numbers {
                let now = self.now(shard).saturating_add(step);
                self.input(shard, Kind::Advance, &[now])?;
            }
        }
        self.flow(&numbers)?;
        if !self.whole {
            return Ok(());
        }
        for at in 0..self.shards.len() {
            self.drained(at)?;
        }
        let sum = |column: fn(&sluicegate_core::Books) -> Tally| -> Tally {
            self.brokers().map(|broker| column(broker.ledger())).sum()
        };
        let (forwarded, received) = (sum(|books| books.forwarded), sum(|books| books.received));
        if forwarded == received {
            return Ok(());
        }
        let what = format!("shards forwarded {forwarded:?} and received {received:?}");
        Err(Finding { judge: "conservation", kind: Promise::Safety, what, at: None })
    }

    /// Memory is there, and every transport takes bytes.
    fn relieve(&mut self, shard: u32) -> Found {
        let at = self.place(shard);
        let conns = self.shards[at].conns.iter().filter(|(id, own)| **id == own.conn);
        let conns: Vec<_> = conns.map(|(id, _)| *id).collect();
        for conn in conns {
            self.input(shard, Kind::Reassembly, &[conn.to_bits(), 0])?;
        }
        self.input(shard, Kind::Lease, &[0, PLENTY])?;
        for _ in 0..4 {
            self.input(shard, Kind::Pressure, &[0, 0, 0])?;
        }
        let outlets: Vec<OutletId> = self.shards[at].outlets.keys().copied().collect();
        for outlet in outlets {
            self.input(shard, Kind::Sent, &[outlet.to_bits(), u64::MAX])?;
            self.input(shard, Kind::Writable, &[outlet.to_bits()])?;
        }
        let ending = self.shards[at].conns.iter().filter(|(_, conn)| conn.ending);
        let ending: Vec<_> = ending.map(|(id, _)| *id).collect();
        for conn in ending {
            self.input(shard, Kind::Gone, &[conn.to_bits()])?;
        }
        Ok(())
    }

    /// Turns and parcels, until nothing moves.
    fn flow(&mut self, numbers: &[u32]) -> Found {
        loop {
            for &shard in numbers {
                self.turn(shard, 1_000, &mut |_, bytes| Some(bytes))?;
            }
            if !self.whole || !self.exchange(numbers)? {
                return Ok(());
            }
        }
    }

    /// Every parcel that waits arrives. Whether there was one.
    fn exchange(&mut self, numbers: &[u32]) -> Result<bool, Finding> {
        let mut moved = false;
        for &from in numbers {
            for &to in numbers.iter().filter(|to| **to != from) {
                let polled = sluicegate_core::Outcome::Parcel(true);
                while self.input(from, Kind::PollParcel, &[to.into()])? == polled {}
                let done = sluicegate_core::Outcome::Done;
                while self.input(to, Kind::Receive, &[from.into()])? == done {
                    moved = true;
                }
            }
        }
        Ok(moved)
    }

    /// Nothing may be left in a shard.
    fn drained(&mut self, at: usize) -> Found {
        let shard = &self.shards[at];
        let broker = &shard.broker;
        let number = broker.number();
        let (queued, parked) = broker.jobs();
        let jobs = u64::from(queued) + u64::from(parked);
        let paused = shard.conns.iter().filter(|(_, conn)| conn.paused && !conn.ending);
        let paused = paused.map(|(id, _)| format!("{id:?}")).collect();
        Stuck::end(&Leftover { paused, jobs, ..Leftover::default() })?;
        if broker.inflight() > 0 {
            return stuck(format!(
                "shard {number}: {} bytes are still in flight",
                broker.inflight()
            ));
        }
        if !broker.is_flushed() {
            let records = broker.ledger().lag.records;
            return stuck(format!("shard {number} is not flushed: {records} records wait"));
        }
        if broker.band() != Band::Normal {
            return stuck(format!("shard {number} stays in the band {}", broker.band().name()));
        }
        if let Some(asked) = shard.asked.values().next() {
            return stuck(format!("publish {} of {:?} got no answer", asked.made, asked.conn));
        }
        if !shard.is_odd && !shard.is_blurred && !shard.has_left {
            shard.conservation.end(broker.ledger())?;
        }
        let alive = shard.subs.iter().filter(|(_, sub)| sub.is_alive);
        let alive: Vec<SubId> = alive.map(|(id, _)| *id).collect();
        alive.into_iter().try_for_each(|sub| self.complete(at, sub))
    }

    /// A subscription got, or was told as lost, everything there is.
    fn complete(&mut self, at: usize, id: SubId) -> Found {
        let shard = &self.shards[at];
        let sub = &shard.subs[&id];
        let (number, topic) = (sub.number, sub.topic);
        if shard.broker.start_of(id).is_none() {
            return stuck(format!("{id:?} never joined its topic"));
        }
        let Some(epoch) = shard.broker.topic_epoch(topic) else { return Ok(()) };
        let heads = self.shards.iter().flat_map(|shard| {
            let own = shard.topics.keys();
            let same = own.filter(|topic| shard.broker.topic_epoch(**topic) == Some(epoch));
            same.filter_map(|topic| shard.broker.topic_books(*topic))
        });
        let head = heads.map(|books| books.sequenced.records + 1).max().unwrap_or(1);
        self.sequence.end(number, epoch, head)
    }
}
