//! Looking at shards while they run, and closing the run's books.

use super::{World, at, index};
use crate::fact::{Fact, Stop};
use crate::judge::conservation::Held;
use crate::judge::fairness::{self, TenantUse};
use crate::judge::memory::{MemoryJudge, Waiting};
use crate::judge::order::FIRST;
use crate::judge::permits::{InUse, Permits, WindowUse};
use crate::judge::stuck::{Leftover, Stuck};
use crate::judge::{Conviction, Finding, Found, Kind};
use crate::report::{self, Moment, Report, SubscriberRow};
use crate::sink::{Phase, Sink};
use sluicegate_core::{Band, Books, Pipe, Policy, Tally, pool};

/// Everything is recounted after each of this many first turns of a shard, if that is not more
/// than so many things.
const ALWAYS: u64 = 200;
const SMALL: u64 = 20_000;
/// So many subscriptions are looked up in the time that one thing is recounted.
const LOOKUPS: u64 = 16;
/// After those, so many facts are taken for each thing that is recounted.
const SPARING: u64 = 4;
/// Between two barriers of a plain run, in nanoseconds.
const BARRIER: u64 = 1_000_000_000;

impl World<'_> {
    /// Notes the peaks of what a shard holds.
    pub(super) fn look(&mut self, shard: u32) {
        let broker = &self.shards[at(shard)].broker;
        let (queued, parked) = broker.jobs();
        self.peaks.held = self.peaks.held.max(broker.held());
        self.peaks.queued = self.peaks.queued.max(queued.into());
        self.peaks.parked = self.peaks.parked.max(parked.into());
        self.watching.note(at(shard), broker);
    }

    /// Notes a change of a shard's band or factor.
    pub(super) fn observe(&mut self, shard: u32) {
        let this = &mut self.shards[at(shard)];
        let (band, factor) = (this.broker.band(), this.broker.factor());
        let Some(last) = this.noted.replace((band, factor)) else {
            self.moments.push(Moment { at: self.now, shard, band, factor });
            self.note(Fact::Band(shard, band));
            self.note(Fact::Factor(shard, factor));
            return;
        };
        if last == (band, factor) {
            return;
        }
        self.moments.push(Moment { at: self.now, shard, band, factor });
        if last.0 != band {
            self.note(Fact::Band(shard, band));
        }
        if last.1 != factor {
            self.note(Fact::Factor(shard, factor));
        }
    }

    /// A fact whose verdict is asked for at the end of the turn.
    fn note(&mut self, fact: Fact) {
        if let Err(finding) = self.put(fact) {
            self.verdict.get_or_insert(finding);
        }
    }

    /// Tells the judge which topics of its own a shard without memory has let go. Only that it is
    /// short of memory makes it do so.
    pub(super) fn note_retired(&mut self, shard: u32) {
        let Self { story, shards, jury, .. } = self;
        let this = &shards[at(shard)];
        let was_short = this.noted.is_some_and(|(band, _)| band != Band::Normal);
        if !was_short && this.broker.band() == Band::Normal {
            return;
        }
        for (number, (name, tenant)) in (0_u32..).zip(&story.topics) {
            let tenant = this.tenants[*tenant];
            let is_own = this.broker.owner(tenant, name) == shard;
            if is_own && this.broker.find_topic(tenant, name).is_none() {
                jury.order.retired(number);
            }
        }
    }

    /// Notes topics that a `block` subscription holds, and what that holds up.
    pub(super) fn note_stops(&mut self, shard: u32) -> Found {
        if let Some(finding) = self.verdict.take() {
            return Err(finding);
        }
        for number in 0..self.blocking.len() {
            let (topic, is_full, is_held) = self.blocking[number];
            let this = &self.shards[at(shard)];
            let (name, tenant) = &self.story.topics[at(topic)];
            let Some(id) = this.broker.find_topic(this.tenants[*tenant], name) else { continue };
            let holder = this.broker.blocked_by(id);
            let waits = holder.is_some() && this.broker.jobs().0 > 0;
            self.blocking[number] = (topic, holder.is_some(), waits);
            let subscriber = holder.and_then(|sub| self.subscriber_of(shard, sub));
            if let Some(subscriber) = subscriber.filter(|_| !is_full) {
                self.put(Fact::Full(Stop::Backlog, subscriber))?;
            }
            if waits && !is_held {
                self.put(Fact::Full(Stop::Lane, topic))?;
            }
        }
        Ok(())
    }

    /// The books of all shards as one.
    fn books(&self) -> Books {
        self.shards.iter().fold(Books::default(), |mut all, shard| {
            all += shard.broker.ledger();
            all
        })
    }

    fn sum(&self, column: impl Fn(&Books) -> Tally) -> Tally {
        self.shards.iter().map(|shard| column(shard.broker.ledger())).sum()
    }

    fn in_use(&self, shard: u32) -> InUse {
        let broker = &self.shards[at(shard)].broker;
        let (queued, parked) = broker.jobs();
        let (conns, _) = broker.counts();
        let (queued, parked) = (queued.into(), parked.into());
        let pushed_out = !broker.ledger().returned.is_zero();
        InUse { bytes: broker.inflight(), queued, parked, conns: conns.into(), pushed_out }
    }

    /// Compares totals after every turn, and recounts everything as often as its size allows.
    pub(super) fn recount(&mut self, shard: u32) -> Found {
        if self.story.plain {
            if self.now < self.barrier {
                return Ok(());
            }
            self.barrier = self.now + BARRIER;
        }
        self.compare()?;
        Permits::turned(self.in_use(shard), &self.story.limits)?;
        self.compare_tenants()?;
        let books = self.shards[at(shard)].broker.ledger();
        let size = (self.subscribers.len() + self.publishers.len()) as u64;
        let size = size + books.lag.records + books.queued.records;
        // Of each topic its subscriptions are looked up among all.
        let size = size + (self.story.topics.len() * self.subscribers.len()) as u64 / LOOKUPS;
        let host = &mut self.shards[at(shard)].host;
        host.turns += 1;
        let always = host.turns <= ALWAYS && size <= SMALL;
        if self.log.facts() < self.recounted + size * SPARING && !always {
            return Ok(());
        }
        self.recounted = self.log.facts();
        self.inspect(shard)
    }

    fn compare(&mut self) -> Found {
        let totals = (self.sum(|books| books.offered), self.sum(|books| books.delivered));
        let (shards, subscribers) = (&self.shards, &self.subscribers);
        self.jury.conservation.compare(totals, |sub| {
            let subscriber = &subscribers[at(sub)];
            shards[at(subscriber.shard)].broker.sub_books(subscriber.sub)
        })
    }

    /// What the tenants got, when there are several and all their publishes are of one size.
    fn compare_tenants(&mut self) -> Found {
        let tenants = self.story.tenants.len();
        if tenants < 2 {
            return Ok(());
        }
        let mut all = vec![TenantUse::default(); tenants];
        for shard in &self.shards {
            for (number, (this, tenant)) in all.iter_mut().zip(&shard.tenants).enumerate() {
                let Some(books) = shard.broker.tenant_books(*tenant) else { continue };
                // Not judged when it is not known.
                let per_batch = self.per_batch[number].max(1);
                let batches = books.sequenced.records / per_batch;
                let deliveries = books.expected.records / per_batch;
                this.cost += fairness::cost(books.sequenced.bytes, batches, deliveries);
                this.busy |= !books.queued.is_zero() || !books.waiting.is_zero();
            }
        }
        let limits = &self.story.limits;
        let judged = limits.shards == 1 && limits.lossless == 0 && limits.allow_block == 0;
        self.jury.fairness.turned(self.now, &all, judged && !self.per_batch.contains(&0))
    }

    /// Recounts a shard and looks at everything that waits.
    fn inspect(&mut self, shard: u32) -> Found {
        self.jury.conservation.compare_tables(&self.books())?;
        let broker = &self.shards[at(shard)].broker;
        broker.check().map_err(|broken| Finding {
            judge: "conservation",
            kind: Kind::Safety,
            what: broken.to_string(),
            at: None,
        })?;
        let loans: Vec<u64> = self.shards.iter().map(|shard| shard.loan.0).collect();
        let (budget, shards) = (self.story.limits.memory_budget, self.story.shards());
        let floor = pool::floor(budget, shards);
        MemoryJudge::leases(&loans, floor, (self.pool.lendable(), budget))?;
        self.inspect_queues(shard)?;
        self.inspect_clients()?;
        let host = &self.shards[at(shard)].host;
        let quiet = !host.turning && self.calendar.next() != Some(self.now);
        if quiet {
            Stuck::quiescent(self.shards[at(shard)].broker.check_quiescent())?;
            self.inspect_idle(shard)?;
        }
        Ok(())
    }

    fn inspect_queues(&self, shard: u32) -> Found {
        let limits = &self.story.limits;
        let largest =
            self.story.publishers.iter().map(|group| {
                fairness::cost(group.size.1.into(), 1, 0) + 16 * u64::from(group.records)
            });
        let largest = largest.max().unwrap_or(0);
        for subscriber in self.subscribers.iter().filter(|sub| sub.shard == shard) {
            let spec = &self.story.subscribers[subscriber.group];
            let outlet = self.sinks[at(subscriber.sink)].outlet;
            if subscriber.phase != Phase::Present {
                continue;
            }
            let Some(found) = self.shards[at(shard)].broker.backlog(outlet) else { continue };
            let least = |wished: u64, most: u64| if wished == 0 { most } else { wished.min(most) };
            let most = match (spec.pipe, spec.wish.policy) {
                (Pipe::Shared, _) => (u64::MAX, limits.high_water_bytes),
                (Pipe::Single, Policy::Latest) => (1, u64::MAX),
                (Pipe::Single, _) => (
                    least(spec.wish.batches.into(), limits.subscription_batches),
                    least(spec.wish.bytes, limits.subscription_bytes),
                ),
            };
            MemoryJudge::queue(&Waiting {
                policy: spec.wish.policy,
                batches: found.batches.into(),
                bytes: found.bytes,
                most,
                largest,
            })?;
        }
        Ok(())
    }

    fn inspect_clients(&self) -> Found {
        let mut held = vec![0_u64; self.clients.windows.len()];
        for worker in self.publishers.iter().filter_map(|source| source.client.as_ref()) {
            let queued = u64::from(worker.queue.len()) + u64::from(worker.queue.waiting());
            let next = u64::from(worker.next.is_some());
            held[worker.client] += queued + next + worker.permits.len() as u64;
        }
        for (window, permits) in self.clients.windows.iter().zip(held) {
            let (bytes, is_due) = (window.in_flight(), window.is_due());
            Permits::window(WindowUse { bytes, permits, is_due }, &self.story.limits)?;
        }
        Ok(())
    }

    /// A shard on which nothing waits, nor is to be told, holds what its tables hold. Of many
    /// shards some is on its way between them; and what a topic retains is not idle.
    fn inspect_idle(&mut self, shard: u32) -> Found {
        let broker = &self.shards[at(shard)].broker;
        let Books { queued, waiting, lag, .. } = broker.ledger();
        let idle = queued.is_zero() && waiting.is_zero() && lag.is_zero();
        let plain = self.story.limits.retention_records == 0 && self.story.shards() == 1;
        if !idle || !plain || !broker.is_flushed() {
            return Ok(());
        }
        let (conns, subs) = broker.counts();
        let outlets = self.sinks.iter().filter(|sink| !sink.closed).count() as u64;
        let named = self.story.topics.iter().filter(|(name, tenant)| {
            broker.find_topic(self.shards[at(shard)].tenants[*tenant], name).is_some()
        });
        let (topics, names) = named
            .fold((0, 0), |(topics, bytes), (name, _)| (topics + 1, bytes + name.len() as u64));
        let tables = [conns.into(), subs.into(), outlets, topics, names];
        let held = broker.held();
        let has_work = |sink: &Sink| broker.has_work(sink.outlet) == Some(true);
        if self.jury.memory.is_usual(shard, tables, held) || self.sinks.iter().any(has_work) {
            return Ok(());
        }
        self.jury.memory.idle(shard, tables, held)
    }

    /// What the world and the core know of one subscriber that is there.
    fn held(&self, number: u32) -> Option<Held> {
        let subscriber = &self.subscribers[at(number)];
        if subscriber.phase != Phase::Present {
            return None;
        }
        let broker = &self.shards[at(subscriber.shard)].broker;
        let books = broker.sub_books(subscriber.sub)?;
        let in_flight = self.sinks[at(subscriber.sink)].flying(subscriber.topic);
        Some(Held { books, in_flight })
    }

    /// Whether nothing waits for a subscriber any more.
    fn is_drained(&self, number: u32) -> bool {
        let held = self.held(number);
        let cut = self.sinks[at(self.subscribers[at(number)].sink)].cut;
        held.is_some_and(|held| held.books.lag.is_zero() && held.in_flight.is_zero()) && !cut
    }

    /// The number of a topic's next record.
    fn next_of(&self, topic: u32) -> u64 {
        let (name, tenant) = &self.story.topics[at(topic)];
        let sequenced = self.shards.iter().filter_map(|shard| {
            let id = shard.broker.find_topic(shard.tenants[*tenant], name)?;
            shard.broker.topic_books(id)
        });
        FIRST + sequenced.map(|books| books.sequenced.records).sum::<u64>()
    }

    /// The run is over: everything is compared once more, and nothing may be left without reason.
    pub(super) fn end(&mut self) -> Found {
        self.compare()?;
        for shard in 0..self.story.shards() {
            self.inspect(shard)?;
            let books = self.shards[at(shard)].broker.ledger();
            self.jury.shutdown.end(shard, self.now, books)?;
        }
        let books = self.books();
        let mut conservation = std::mem::take(&mut self.jury.conservation);
        let flying = |number: u32| {
            let subscriber = &self.subscribers[at(number)];
            self.sinks[at(subscriber.sink)].flying(subscriber.topic).records
        };
        conservation.compare_all(&books, |sub| self.held(sub), flying)?;
        conservation.end(&books)?;
        let still = self.parcels_on_the_way() == 0 && books.queued.is_zero();
        if still && books.forwarded != books.received {
            let what = "publishes went to another shard and never came there";
            let judge = "conservation";
            return Err(Finding { judge, kind: Kind::Safety, what: what.to_owned(), at: None });
        }
        for number in 0..index(self.subscribers.len()) {
            self.end_of(number, still)?;
        }
        let drained = |sub: u32| still && self.is_drained(sub);
        self.jury.freshness.end(|topic| self.next_of(topic), drained)?;
        let left = self.leftover();
        Stuck::end(&left)?;
        if left.is_nothing() && self.in_clients() == 0 {
            let held = (0..self.story.shards()).map(|shard| self.in_use(shard));
            self.jury.permits.end(&held.collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// One subscriber at the end.
    fn end_of(&mut self, number: u32, still: bool) -> Found {
        let Some(held) = self.held(number) else { return Ok(()) };
        let drained = self.is_drained(number);
        let subscriber = &self.subscribers[at(number)];
        let sink = &self.sinks[at(subscriber.sink)];
        if let Some(reader) = &subscriber.inbox {
            reader.inbox.check().map_err(|broken| Finding {
                judge: "conservation",
                kind: Kind::Safety,
                what: format!("{}: {broken}", self.names.subscriber(number)),
                at: None,
            })?;
        }
        if drained && !sink.parser.between_frames() {
            return Stuck::end(&Leftover {
                subscribers: vec![(self.names.subscriber(number).to_owned(), 1, false)],
                ..Leftover::default()
            });
        }
        if sink.cut {
            return Ok(());
        }
        // While something is still to happen, or its reading waits, an answer may come.
        let broker = &self.shards[at(subscriber.shard)].broker;
        let waits = sink.line.is_stalled(self.now) || broker.is_paused(sink.conn);
        if drained && !waits && self.now < self.story.end {
            self.jury.answers.end(number, self.names.subscriber(number))?;
        }
        let next = self.next_of(subscriber.topic);
        self.jury.order.end(number, &held.books, (next, drained && still))
    }

    fn leftover(&self) -> Leftover {
        let mut left = Leftover::default();
        for (number, subscriber) in (0_u32..).zip(&self.subscribers) {
            let Some(held) = self.held(number) else { continue };
            let name = self.names.subscriber(number).to_owned();
            let sink = &self.sinks[at(subscriber.sink)];
            let stalled = sink.cut || sink.line.is_stalled(self.now);
            if stalled {
                left.stalled.push(name.clone());
            }
            let waiting = held.books.lag.records + held.in_flight.records;
            if waiting > 0 {
                left.subscribers.push((name, waiting, stalled));
            }
        }
        for publisher in self.paused() {
            left.paused.push(self.names.publisher(publisher).to_owned());
        }
        for link in self.publishers.iter().filter_map(|source| source.link.as_ref()) {
            if link.cut {
                left.stalled.push("a publisher whose link is cut".to_owned());
            } else if !link.paused {
                left.unread += link.inbound.len() as u64;
            }
        }
        let jobs = self.shards.iter().map(|shard| shard.broker.jobs());
        left.jobs = jobs.map(|(queued, parked)| u64::from(queued) + u64::from(parked)).sum();
        left.parcels = self.parcels_on_the_way();
        left
    }

    /// Turns a finding into a verdict that can be looked into.
    pub(super) fn convict(&self, finding: Finding) -> Conviction {
        Conviction {
            at: finding.at.unwrap_or(self.now),
            events: self.log.recent(&self.names),
            command: self.story.command(),
            finding,
        }
    }

    /// The run's numbers.
    pub(super) fn ran(mut self, conviction: Option<Conviction>) -> super::Ran {
        let traces = self.traces.take().unwrap_or_default();
        let traces = self.names.subscribers.iter().cloned().zip(traces).collect();
        let left = self.leftover();
        let inboxes = self.subscribers.iter().filter_map(|sub| sub.inbox.as_ref());
        let taken = inboxes.clone().all(|reader| reader.inbox.is_empty());
        let in_clients = self.in_clients();
        let drained = left.is_nothing() && in_clients == 0 && taken;
        let mut left = left.words();
        if in_clients > 0 {
            left.push(format!("{in_clients} publishes in clients"));
        }
        if !taken {
            left.push("events in inboxes that applications have not taken".to_owned());
        }
        let watched = self.watched();
        let tape = self.take_tape();
        let rows = self.rows();
        let report = Report {
            name: self.story.name(),
            title: self.story.title.clone(),
            seed: self.story.seed,
            shards: self.story.shards(),
            ended: self.now,
            publishers: report::publishers(self.story, &self.publishers),
            subscribers: rows,
            tenants: self.tenants(),
            fairness: self.jury.fairness.index(),
            stops: self.jury.lossless.arrived().to_vec(),
            books: self.books(),
            peaks: self.peaks,
            moments: self.moments,
            drained,
            left,
            tape: self.log.tape().to_string(),
            facts: self.log.facts(),
            watched,
        };
        super::Ran { report, conviction, traces, tape }
    }

    /// The rows of the subscribers' groups, with those that are still there.
    fn rows(&mut self) -> Vec<SubscriberRow> {
        let mut rows = std::mem::take(&mut self.rows);
        let mut shares: Vec<Vec<u64>> = vec![Vec::new(); rows.len()];
        let mut by_follower = vec![0_u64; self.followers.len()];
        for (number, subscriber) in (0..).zip(&self.subscribers) {
            by_follower[at(subscriber.follower)] += subscriber.received;
            let row = &mut rows[subscriber.group];
            if let Some(held) = self.held(number) {
                row.add(&held.books);
            }
            if let Some(reader) = &subscriber.inbox {
                row.overrun += reader.inbox.books().dropped.records;
            }
        }
        for (follower, received) in self.followers.iter().zip(by_follower) {
            shares[follower.group].push(received);
        }
        for (row, shares) in rows.iter_mut().zip(shares) {
            row.jain = fairness::jain(&shares);
        }
        rows
    }

    /// The tenants' books over all shards.
    fn tenants(&self) -> Vec<(String, Books)> {
        let named = self.story.tenants.iter().enumerate();
        let books = named.map(|(number, (name, _))| {
            let mut all = Books::default();
            for shard in &self.shards {
                if let Some(books) = shard.broker.tenant_books(shard.tenants[number]) {
                    all += books;
                }
            }
            (name.clone(), all)
        });
        books.collect()
    }
}
