//! Recounts everything and compares it with what is kept. For tests and the simulator.

use super::fetch::Answer;
use super::{Broker, Offer};
use crate::backlog::{has_half, holds};
use crate::id::SubId;
use crate::lag::Load;
use crate::ledger::{Books, Broken, Tally, same, same_tally};
use crate::mesh::{Outbox, Parcel};
use crate::notice::Notice;
use crate::peers::{CONN, Conn, Line, OUTLET, PAUSE_FULL, PAUSE_PARKED, RUN, SLOT, SUB, Stage};
use crate::replay::{ENTRY, PAST};
use crate::schedule::Origin;
use crate::slab::NONE;
use crate::topic::Topic;
use crate::verdict::Policy;
use crate::writer::State;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// What a walk over all rings finds for one subscription.
#[derive(Clone, Copy, Default)]
struct Found {
    slots: u32,
    waiting: Load,
    taken: Load,
    lag: Tally,
}

type Subs = BTreeMap<u32, Found>;
type Column = fn(&Books) -> Tally;
type References = BTreeMap<u32, u32>;

impl Broker {
    /// Recounts everything and compares: identities of the books, permits, queues, references,
    /// bytes held, list memberships. Cost: O(everything).
    pub fn check(&self) -> Result<(), Broken> {
        let mut references = References::new();
        let mut subs = Subs::new();
        self.check_books()?;
        self.check_jobs(&mut references)?;
        self.check_outlets(&mut references, &mut subs)?;
        self.check_subs(&subs)?;
        self.check_topics(&mut references, &subs)?;
        self.check_memory(&references)?;
        self.schedule.check()?;
        self.egress.check(&self.peers.outlets)?;
        self.heaviest.check(&self.peers.outlets)
    }

    fn check_books(&self) -> Result<(), Broken> {
        self.ledger.shard.check()?;
        self.ledger.tenants.iter().try_for_each(Books::check)?;
        let columns: [(&str, Column); 15] = [
            ("shard offered = sum of tenants", |b| b.offered),
            ("shard admitted = sum of tenants", |b| b.admitted),
            ("shard refused = sum of tenants", |b| b.refused.total()),
            ("shard shed = sum of tenants", |b| b.shed.total()),
            ("shard waiting = sum of tenants", |b| b.waiting),
            ("shard sequenced = sum of tenants", |b| b.sequenced),
            ("shard evicted = sum of tenants", |b| b.evicted.total()),
            ("shard forwarded = sum of tenants", |b| b.forwarded),
            ("shard received = sum of tenants", |b| b.received),
            ("shard queued = sum of tenants", |b| b.queued),
            ("shard expected = sum of tenants", |b| b.expected),
            ("shard delivered = sum of tenants", |b| b.delivered),
            ("shard dropped = sum of tenants", |b| b.dropped.total()),
            ("shard left = sum of tenants", |b| b.left),
            ("shard lag = sum of tenants", |b| b.lag),
        ];
        columns.into_iter().try_for_each(|(what, column)| {
            let due = self.ledger.tenants.iter().map(column).sum();
            same_tally(what, column(&self.ledger.shard), due)
        })
    }

    fn check_jobs(&self, references: &mut References) -> Result<(), Broken> {
        let mut waiting = vec![Tally::ZERO; self.tenants.len()];
        let mut queued = waiting.clone();
        let mut permits: Vec<(u32, u64)> = Vec::new();
        let mut inflight = BTreeMap::new();
        for (tenant, job) in self.schedule.iter() {
            *references.entry(job.message).or_default() += 1;
            let column = match job.origin {
                Origin::Here if job.permit.is_none() => Some(&mut waiting),
                Origin::Here | Origin::Forwarded { .. } => Some(&mut queued),
                Origin::Batch { .. } => None,
            };
            if let Some(column) = column {
                column[tenant as usize] += job.tally;
            }
            if let Some(permit) = &job.permit {
                permits.push((tenant, permit.cost()));
                *inflight.entry(job.conn).or_insert(0) += permit.cost();
            }
        }
        if let Some(fan) = &self.fan {
            *references.entry(fan.message).or_default() += 1;
            if let Some(permit) = &fan.permit {
                permits.push((fan.tenant, permit.cost()));
                *inflight.entry(fan.conn).or_insert(0) += permit.cost();
            }
        }
        for (_, answer) in &self.mesh.answers {
            if let Answer::Batch(entry) = answer {
                *references.entry(entry.message).or_default() += 1;
            }
        }
        let unheard = self.notices.iter().filter(|one| matches!(one, Notice::Joined { .. }));
        same("joined notices to be heard", self.mesh.unheard.into(), unheard.count() as u64)?;
        for (_, flight) in self.mesh.flights.iter() {
            permits.push((self.topics[flight.topic].tenant, flight.permit.cost()));
            *inflight.entry(flight.conn).or_insert(0) += flight.permit.cost();
        }
        for (index, books) in self.ledger.tenants.iter().enumerate() {
            same_tally("waiting: parked jobs", books.waiting, waiting[index])?;
            same_tally("queued: jobs in the schedule", books.queued, queued[index])?;
        }
        for (index, conn) in self.peers.conns.iter() {
            let due = inflight.get(&self.peers.conn_id(index)).copied().unwrap_or(0);
            same("admission: connection bytes are its permits", conn.inflight, due)?;
            let parked = !conn.parked.is_empty();
            let paused = conn.paused & PAUSE_PARKED != 0;
            same("a source is paused while it has a parked publish", paused.into(), parked.into())?;
            let is_source = conn.conn != index;
            let listed = is_source || conn.shed > 0;
            same("told shed records", conn.untold_is_linked().into(), listed.into())?;
            self.check_promises(index, conn)?;
        }
        self.admission.check(permits.into_iter())
    }

    /// What is promised to the parked publishes of a connection's sources, and who waits for bytes.
    fn check_promises(&self, index: u32, conn: &Conn) -> Result<(), Broken> {
        let (mut promised, mut waiting) = (0, 0);
        let sources = self.peers.conns.iter().filter(|(_, source)| source.conn == index);
        for (_, source) in sources {
            let first = source.parked.front();
            let stands = first.filter(|first| self.schedule.stands(*first));
            let cost = |job| self.memory.get(self.schedule.job(job).message).cost;
            waiting += self.schedule.parked_of(&source.parked).map(cost).sum::<u64>();
            promised += stands.map_or(0, cost);
            let short = first.is_some() && stands.is_none();
            same(
                "a source that is short of bytes is in line",
                source.is_short().into(),
                short.into(),
            )?;
        }
        same("promised: parked publishes that stand", conn.promised.into(), promised)?;
        same("waiting: parked publishes of all sources", conn.waiting.into(), waiting)?;
        let most = self.limits.pub_conn_inflight_bytes;
        let full = conn.paused & PAUSE_FULL != 0;
        same("paused while as much is parked as may be", full.into(), (waiting >= most).into())?;
        let taken = conn.inflight + promised;
        same("connection bytes taken and promised are there", taken.min(most), taken)
    }

    fn check_outlets(&self, references: &mut References, subs: &mut Subs) -> Result<(), Broken> {
        for (_, outlet) in self.peers.outlets.iter() {
            let mut dead = 0;
            let mut control = 0;
            let mut total = (Load::default(), Load::default());
            for position in outlet.ring.base()..outlet.ring.end() {
                let slot = outlet.ring.at(position);
                if slot.is_tombstone() {
                    dead += 1;
                    continue;
                }
                *references.entry(slot.message).or_default() += 1;
                let held = self.memory.get(slot.message);
                if slot.is_control() {
                    control += held.cost;
                    continue;
                }
                let found = subs.entry(slot.sub).or_default();
                found.slots += 1;
                if self.peers.subs[slot.sub].is_dead(position) {
                    dead += 1;
                    continue;
                }
                found.lag += held.tally;
                let taken = position < outlet.ring.mark();
                let (own, all) = if taken {
                    (&mut found.taken, &mut total.1)
                } else {
                    (&mut found.waiting, &mut total.0)
                };
                own.add(held.cost);
                all.add(held.cost);
            }
            for message in outlet.write.firsts() {
                *references.entry(message).or_default() += 1;
                control += self.memory.get(message).cost;
            }
            same("outlet: dead slots", outlet.ring.dead().into(), dead)?;
            same("outlet: control bytes", outlet.write.control, control)?;
            same_load("outlet: waiting", outlet.waiting, total.0)?;
            same_load("outlet: taken", outlet.taken, total.1)?;
            let settled = outlet.write.state != State::Offered;
            let begun = u32::from(outlet.write.out(super::Lane::InLine) > 0);
            let pinned = if settled { begun } else { outlet.ring.taken() };
            same("outlet: only mid-write is taken", outlet.ring.taken().into(), pinned.into())?;
        }
        Ok(())
    }

    fn check_subs(&self, subs: &Subs) -> Result<(), Broken> {
        for (index, sub) in self.peers.subs.iter() {
            let found = subs.get(&index).copied().unwrap_or_default();
            same("subscription: slots", sub.slots.into(), found.slots.into())?;
            same_load("subscription: waiting", sub.waiting, found.waiting)?;
            same_load("subscription: taken", sub.taken, found.taken)?;
            same_tally("subscription: lag", sub.books.lag, found.lag)?;
            let live = sub.stage == Stage::Live;
            if live {
                sub.books.check()?;
                let place = self.topics[sub.topic].audience.get(sub.place as usize);
                same(
                    "subscription: place in its audience",
                    place.copied().unwrap_or(NONE).into(),
                    index.into(),
                )?;
            }
            same("subscription: deadline while it holds its topic", sub.is_blocking().into(), {
                let timed = self.limits.lossless == 0 && self.limits.block_deadline_ms > 0;
                (sub.holds && timed).into()
            })?;
            let full =
                live && sub.policy == Policy::Block && holds(sub.waiting, sub.taken, sub.limit);
            same("subscription: holds its topic", sub.holds.into(), full.into())?;
        }
        Ok(())
    }

    fn check_topics(&self, references: &mut References, subs: &Subs) -> Result<(), Broken> {
        for (index, topic) in self.topics.iter() {
            topic.books.check()?;
            self.check_log(topic, references)?;
            let mut flying = Load::default();
            let own = self.mesh.flights.iter().filter(|(_, flight)| flight.topic == index);
            own.for_each(|(_, flight)| flying.add(flight.permit.cost()));
            same_load("topic: publishes on their way to the owner", topic.flying, flying)?;
            let lag = subs
                .iter()
                .filter(|(sub, _)| self.peers.subs[**sub].topic == index)
                .map(|(_, found)| found.lag)
                .sum();
            let mut kept = topic.books.lag;
            if let Some(fan) = self.fan.as_ref().filter(|fan| fan.topic == index) {
                kept += fan.tally.times(u64::from(fan.reached));
            }
            same_tally("topic: lag", kept, lag)?;
            let own = self.peers.subs.iter().filter(|(_, sub)| sub.topic == index);
            let shards = topic.credits.iter().filter(|credit| credit.holds).count();
            let holding = (own.filter(|(_, sub)| sub.holds).count() + shards) as u64;
            same("topic: block subscriptions at their limit", topic.holding.into(), holding)?;
            let fanned = self.fan.as_ref().is_some_and(|fan| fan.topic == index);
            let named = self.peers.subs.iter().filter(|(_, sub)| sub.topic == index).count();
            same("topic: subscriptions", topic.subs.into(), named as u64)?;
            let unused = !topic.is_used() && self.schedule.is_idle(index) && !fanned;
            let (idle, kept) = (unused && topic.log.is_empty(), unused && !topic.log.is_empty());
            same("topic: unused ones can make way", topic.is_idle().into(), idle.into())?;
            same("topic: kept ones can make way", topic.is_kept().into(), kept.into())?;
            same("topic: no lag when unused", (unused && !topic.books.lag.is_zero()).into(), 0)?;
        }
        Ok(())
    }

    fn check_log(&self, topic: &Topic, references: &mut References) -> Result<(), Broken> {
        let (mut records, mut bytes, mut next) = (0, 0, 0);
        let mut before = topic.log.iter().next().map_or(Tally::ZERO, |oldest| oldest.before);
        for entry in topic.log.iter() {
            *references.entry(entry.message).or_default() += 1;
            let held = self.memory.get(entry.message);
            same("log: in order", held.first.min(next), next)?;
            same_tally("log: what was kept has no holes", entry.before, before)?;
            before += held.tally;
            next = held.first + held.tally.records;
            records += held.tally.records;
            bytes += held.cost;
        }
        same("log: records", topic.log.totals().0, records)?;
        same("log: bytes", topic.log.totals().1, bytes)?;
        same("log: ends before the head", topic.next.min(next), next)
    }

    fn check_memory(&self, references: &References) -> Result<(), Broken> {
        let mut bytes = 0;
        for (message, held, kept) in self.memory.iter() {
            let due = references.get(&message).copied().unwrap_or(0);
            same("message: references", kept.into(), due.into())?;
            bytes += held.cost;
        }
        let slots: u64 = self.peers.outlets.iter().map(|(_, o)| u64::from(o.ring.len())).sum();
        bytes += slots * SLOT;
        bytes += u64::from(self.peers.conns.len()) * CONN;
        bytes += self.peers.conns.iter().map(|(_, conn)| conn.reassembly).sum::<u64>();
        bytes += u64::from(self.peers.outlets.len()) * OUTLET;
        bytes += u64::from(self.peers.subs.len()) * SUB + u64::from(self.peers.pasts.len()) * PAST;
        bytes += self.peers.subs.iter().map(|(_, sub)| sub.gaps.len() * RUN).sum::<u64>();
        bytes += self.topics.iter().map(|(_, topic)| topic.charge()).sum::<u64>();
        let logs = self.topics.iter().flat_map(|(_, topic)| topic.log.iter());
        bytes += logs.map(|_| ENTRY).sum::<u64>();
        bytes += self.mesh.outboxes.iter().flat_map(Outbox::iter).map(Parcel::cost).sum::<u64>();
        same("memory: bytes held", self.memory.bytes(), bytes)
    }

    /// Whose batches an open offer holds and the first sequence number of each, beside its
    /// [`frames`](Self::frames); none for a control frame. For judges. Cost: O(frames).
    pub fn offered(&self, offer: Offer) -> Vec<Option<(SubId, u64)>> {
        let Ok(outlet) = self.peers.outlet(offer.outlet) else { return Vec::new() };
        let ring = &outlet.ring;
        let slots = (ring.base()..ring.mark()).map(|position| ring.at(position));
        let whose = slots.filter(|slot| !slot.is_tombstone()).map(|slot| {
            let first = self.memory.get(slot.message).first;
            (!slot.is_control()).then(|| (self.peers.sub_id(slot.sub), first))
        });
        let mut whose: Vec<_> = whose.collect();
        // A frame in mid-write goes before the control frames.
        let begun = usize::from(outlet.write.out(super::Lane::InLine) > 0);
        let firsts = outlet.write.offered.firsts as usize;
        whose.splice(begun..begun, core::iter::repeat_n(None, firsts));
        whose
    }

    /// Where its topic was when a subscription began that has a past
    /// ([`has_past`](Self::has_past)), and how many records from before that are still to come or
    /// to be told as lost. For judges.
    pub fn began(&self, sub: SubId) -> Option<(u64, u64)> {
        let has_past = self.has_past(sub)?;
        let past = self.peers.past_of(sub.index).filter(|_| has_past)?;
        Some((past.next, past.whole.records - past.before.records))
    }

    /// The stuck-state predicate: is there work that nothing will ever wake? Holds when the host
    /// has polled all effects and the last `step` said `Idle`. Cost: O(everything).
    pub fn check_quiescent(&self) -> Result<(), Broken> {
        same("quiescent: fan-out in progress", self.fan.is_some().into(), 0)?;
        same("quiescent: notices", self.notices.len() as u64, 0)?;
        same("quiescent: runnable job", self.schedule.is_runnable().into(), 0)?;
        let ready = |state| state == State::Ready;
        let stuck = self.peers.outlets.iter().filter(|(_, o)| {
            ready(o.write.state)
                || (o.has_work() && !o.write.refusing && o.write.state == State::Idle)
        });
        same("quiescent: outlet could write", stuck.count() as u64, 0)?;
        let room = self.peers.subs.iter().filter(|(_, sub)| {
            sub.stage == Stage::Behind
                && sub.line != Line::Asked
                && !has_half(self.load_of(sub), sub.limit)
        });
        same("quiescent: could catch up", room.count() as u64, 0)?;
        let saturated = self.band() == crate::shed::Band::Saturated;
        same("quiescent: parked publishes not served", self.schedule.is_unserved().into(), 0)?;
        // A tenant's parked publishes wait in line: only the first one must not find room.
        let fits = self.schedule.parked_fronts().filter(|(job, makes_way)| {
            let room = self.has_bytes(*job, &mut None);
            room && (self.schedule.has_slot() || *makes_way) && !saturated
        });
        same("quiescent: parked publish has room", fits.count() as u64, 0)?;
        let stands_aside = self.peers.conns.iter().filter(|(_, conn)| {
            let first =
                conn.short.front().and_then(|source| self.peers.conns[source].parked.front());
            first.is_some_and(|first| {
                let price = self.memory.get(self.schedule.job(first).message).cost;
                self.admission.conn_fits(conn.inflight + u64::from(conn.promised), price)
            })
        });
        same("quiescent: parked publish stands nowhere", stands_aside.count() as u64, 0)
    }
}

fn same_load(what: &'static str, kept: Load, due: Load) -> Result<(), Broken> {
    same(what, kept.batches.into(), due.batches.into())?;
    same(what, kept.bytes, due.bytes)
}
