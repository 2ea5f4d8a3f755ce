//! Checkpoints 3 and 4 against a plain model: one list of queued jobs per tenant and one of parked
//! jobs per source, a rotation that spins, sums instead of counters.

use super::*;
use crate::model::{self, count};
use crate::schedule::Hold;
use alloc::collections::VecDeque;
use proptest::prelude::*;

const KIB: u64 = 1 << 10;
const WEIGHTS: [u32; 3] = [1, 1, 3];
const TOPICS: usize = 2;
/// Seats of a tenant: a connection, six sources of it, and a connection without any.
const SOURCES: usize = 8;
const LAST_OF_FIRST: usize = 6;
/// More slots than tenants, and fewer.
const TOTALS: [usize; 2] = [11, 2];
const DEPTH: usize = 3;
const QUANTUM: u64 = KIB;
const SHARD: u64 = 80 * KIB;
const TENANT: u64 = 78 * KIB;
const CONN: u64 = 76 * KIB;
const WAIT: u64 = 2_000;

#[derive(Clone, Debug)]
enum Op {
    Publish {
        source: usize,
        topic: usize,
        size: u64,
        ack: Ack,
    },
    /// A call of many publishes, admitted whole or not at all.
    Call {
        source: usize,
        topics: Vec<usize>,
        size: u64,
        ack: Ack,
    },
    /// As much as a connection may have in flight.
    Burst {
        source: usize,
        topic: usize,
        ack: Ack,
    },
    /// All sources of a tenant's first connection bring as much as one may.
    Crowd {
        tenant: usize,
        topic: usize,
    },
    Step,
    Advance {
        millis: u64,
    },
    Gone {
        source: usize,
    },
    Hold {
        tenant: usize,
        topic: usize,
        held: bool,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let source = 0..WEIGHTS.len() * SOURCES;
    let size =
        prop_oneof![Just(100_u64), Just(1_000), Just(5_000), 11_000..12_000_u64, Just(12_000)];
    let ack = prop_oneof![Just(Ack::None), Just(Ack::Now), Just(Ack::Wait), Just(Ack::Wait)];
    prop_oneof![
        120 => (source.clone(), 0..TOPICS, size.clone(), ack.clone())
            .prop_map(|(source, topic, size, ack)| Op::Publish { source, topic, size, ack }),
        20 => (source.clone(), proptest::collection::vec(0..TOPICS, 2..6), size, ack.clone())
            .prop_map(|(source, topics, size, ack)| Op::Call { source, topics, size, ack }),
        5 => (source.clone(), 0..TOPICS, ack)
            .prop_map(|(source, topic, ack)| Op::Burst { source, topic, ack }),
        5 => (0..WEIGHTS.len(), 0..TOPICS)
            .prop_map(|(tenant, topic)| Op::Crowd { tenant, topic }),
        50 => Just(Op::Step),
        10 => (1..1_500_u64).prop_map(|millis| Op::Advance { millis }),
        10 => source.prop_map(|source| Op::Gone { source }),
        20 => (0..WEIGHTS.len(), 0..TOPICS, any::<bool>())
            .prop_map(|(tenant, topic, held)| Op::Hold { tenant, topic, held }),
    ]
}

// ---- the model

#[derive(Clone, Debug)]
struct Job {
    source: usize,
    topic: usize,
    size: u64,
    ack: Ack,
    /// When it was parked, in arming order and in time.
    armed: (u64, u64),
}

impl Job {
    fn cost(&self) -> u64 {
        self.size + 256 + 16
    }
}

#[derive(Debug, Default)]
struct Tenant {
    queued: Vec<Job>,
    held: [bool; TOPICS],
    /// Topics with queued jobs that can run.
    lanes: VecDeque<usize>,
    /// By topic, the sources whose first parked job waits there.
    standing: [VecDeque<usize>; TOPICS],
    /// Topics that are not held where somebody stands.
    waiting: VecDeque<usize>,
    /// Held topics with queued jobs.
    stuck: VecDeque<usize>,
    deficit: u64,
    granted: bool,
    admitted: u64,
    sequenced: Vec<(usize, u64)>,
    refused: u64,
    shed: u64,
    evicted: u64,
    returned: u64,
}

/// A connection or a source of one, or what was one.
#[derive(Debug)]
struct Source {
    tenant: usize,
    /// Its connection, which may be itself.
    conn: usize,
    is_there: bool,
    /// The broker still knows it while it ends.
    is_known: bool,
    parked: VecDeque<Job>,
    /// Of a connection: sources whose first parked job it has no bytes for.
    short: VecDeque<usize>,
}

#[derive(Debug, Default)]
struct Model {
    tenants: Vec<Tenant>,
    rotation: VecDeque<usize>,
    /// Tenants with topics where somebody waits: those that have queued jobs, and those without.
    waits: VecDeque<usize>,
    bare: VecDeque<usize>,
    /// Those of them with queued jobs of held topics.
    reclaims: VecDeque<usize>,
    busy: Vec<usize>,
    /// The job that is being delivered: it has no slot any more, and its bytes are still held.
    running: Option<Job>,
    lossless: bool,
    total: usize,
    now: u64,
    arms: u64,
    /// Somebody who is parked may have room.
    unserved: bool,
    /// Connections whose jobs were pushed out since parked ones were served last.
    pushed_out: Vec<usize>,
    sources: Vec<Source>,
    /// Acked publishes that ended without a number, and unacked ones, of which it was told.
    told: (u64, u64),
}

#[derive(Debug, PartialEq)]
enum Said {
    Queued,
    Parked,
    Refused(Reason),
    Shed(Reason),
}

impl Model {
    fn queued(&self) -> usize {
        self.tenants.iter().map(|tenant| tenant.queued.len()).sum()
    }

    fn used(&self, tenant: usize) -> u64 {
        let running = self.running.iter().filter(|job| self.sources[job.source].tenant == tenant);
        self.tenants[tenant].queued.iter().chain(running).map(Job::cost).sum()
    }

    fn conn(&self, source: usize) -> usize {
        self.sources[source].conn
    }

    fn conn_used(&self, conn: usize) -> u64 {
        let jobs = self.tenants.iter().flat_map(|tenant| &tenant.queued).chain(&self.running);
        jobs.filter(|job| self.conn(job.source) == conn).map(Job::cost).sum()
    }

    /// What a connection's parked jobs that stand somewhere will take of its bytes.
    fn promised(&self, conn: usize) -> u64 {
        let sources = (0..self.sources.len()).filter(|source| self.conn(*source) == conn);
        let standing = sources.filter(|source| self.stands(*source));
        standing.map(|source| self.sources[source].parked[0].cost()).sum()
    }

    fn shard_used(&self) -> u64 {
        (0..self.tenants.len()).map(|tenant| self.used(tenant)).sum()
    }

    fn has_parked(&self, tenant: usize) -> bool {
        self.sources.iter().any(|source| source.tenant == tenant && !source.parked.is_empty())
    }

    fn active_with(&self, tenant: usize) -> usize {
        let active = |at: &usize| {
            *at == tenant || !self.tenants[*at].queued.is_empty() || self.has_parked(*at)
        };
        (0..self.tenants.len()).filter(active).count()
    }

    fn guarantee(&self, tenant: usize) -> usize {
        DEPTH.min(self.total / self.active_with(tenant)).max(1)
    }

    fn floor(&self, tenant: usize) -> u64 {
        SHARD / (4 * self.active_with(tenant) as u64)
    }

    fn conn_fits(&self, job: &Job) -> bool {
        let conn = self.conn(job.source);
        self.conn_used(conn) + self.promised(conn) + job.cost() <= CONN
    }

    fn own_bytes(&self, job: &Job) -> Result<(), Reason> {
        let is_behind = !self.sources[self.conn(job.source)].short.is_empty();
        if is_behind || !self.conn_fits(job) {
            count(if is_behind { "behind a source that is short" } else { "no bytes of its own" });
            return Err(Reason::BytesConn);
        }
        self.tenant_bytes(job)
    }

    fn tenant_bytes(&self, job: &Job) -> Result<(), Reason> {
        if self.used(self.sources[job.source].tenant) + job.cost() > TENANT {
            return Err(Reason::BytesTenant);
        }
        Ok(())
    }

    fn room(&self, job: &Job) -> Result<(), Reason> {
        let tenant = self.sources[job.source].tenant;
        let own = &self.tenants[tenant];
        let guarantee = self.guarantee(tenant);
        let yields = self.tenants.iter().any(|other| other.queued.len() > guarantee);
        let reclaims = !own.held[job.topic] && self.stuck_job(tenant, Some(job.source)).is_some();
        let due = own.queued.len() < guarantee && yields;
        let slot = self.queued() < self.total || reclaims || due;
        if !own.waiting.is_empty() || !own.standing[job.topic].is_empty() || !slot {
            return Err(Reason::QueueFull);
        }
        self.own_bytes(job)?;
        self.shard_bytes(job)
    }

    /// Whether the shard has bytes, if need be those of others who have more than their floor.
    fn shard_bytes(&self, job: &Job) -> Result<(), Reason> {
        let tenant = self.sources[job.source].tenant;
        let missing = (self.shard_used() + job.cost()).saturating_sub(SHARD);
        let floor = self.floor(tenant);
        let yields = |other: &usize| {
            let queued: u64 = self.tenants[*other].queued.iter().map(Job::cost).sum();
            self.used(*other).saturating_sub(floor).min(queued)
        };
        let yielding: u64 = self.busy.iter().map(yields).sum();
        let due = self.used(tenant) + job.cost() <= floor && yielding >= missing;
        if missing > 0 && !due { Err(Reason::BytesShard) } else { Ok(()) }
    }

    /// Tenants with nothing queued for which others make way though no slot is free.
    fn due(&self) -> usize {
        let yields = self.bare.iter().any(|own| {
            let guarantee = self.guarantee(*own);
            self.tenants.iter().any(|other| other.queued.len() > guarantee)
        });
        if yields { self.bare.len() } else { 0 }
    }

    fn waits(&self, ack: Ack) -> bool {
        ack == Ack::Wait || (ack == Ack::None && self.lossless)
    }

    /// Whom a job that is pushed out goes back to.
    fn source_of(&self, job: &Job) -> Option<usize> {
        let conn = self.conn(job.source);
        [job.source, conn].into_iter().find(|source| self.sources[*source].is_there)
    }

    /// Where in a tenant's queue the newest job is of the held topic that has the most there, but
    /// for what a fresh publish's own source would have to wait for.
    fn stuck_job(&self, tenant: usize, fresh: Option<usize>) -> Option<usize> {
        let own = &self.tenants[tenant];
        let newest = |topic: usize| {
            own.queued.iter().rposition(|job| {
                let own = fresh.is_some() && fresh == self.source_of(job);
                let spared = own && self.waits(job.ack);
                job.topic == topic && !spared
            })
        };
        let jobs = |topic: usize| own.queued.iter().filter(|job| job.topic == topic).count();
        let lanes = own.stuck.iter().copied().filter(|topic| newest(*topic).is_some());
        newest(lanes.rev().max_by_key(|topic| jobs(*topic))?)
    }

    /// Where in a tenant's queue the job is that it misses least.
    fn newest(&self, tenant: usize) -> usize {
        let last = self.tenants[tenant].queued.len() - 1;
        self.stuck_job(tenant, None).unwrap_or(last)
    }

    /// Whether a source should bring nothing: it has something parked, or all of its connection
    /// have as much as may be in flight.
    fn is_paused(&self, source: usize) -> bool {
        !self.sources[source].parked.is_empty() || self.is_full(source)
    }

    fn is_full(&self, source: usize) -> bool {
        let conn = self.conn(source);
        let all = self.sources.iter().filter(|other| other.conn == conn);
        all.flat_map(|other| &other.parked).map(Job::cost).sum::<u64>() >= CONN
    }

    fn publish(&mut self, job: Job) -> Said {
        let tenant = self.sources[job.source].tenant;
        let busy = !self.sources[job.source].parked.is_empty();
        let mut why = if busy { Err(Reason::Busy) } else { self.room(&job) };
        if !busy && why.is_err() && self.waits(job.ack) && self.is_full(job.source) {
            count("as much is parked as may be");
            why = Err(Reason::Busy);
        }
        match why {
            Ok(()) => {
                self.make_room(tenant, job.cost(), Some(job.source));
                self.admit(tenant, job);
                Said::Queued
            }
            Err(why) if why != Reason::Busy && self.waits(job.ack) => {
                count("parked");
                let source = job.source;
                self.note_present(tenant);
                let armed = self.armed(job);
                self.sources[source].parked.push_back(armed);
                self.stand_next(source);
                Said::Parked
            }
            Err(why) if job.ack == Ack::None => {
                self.tenants[tenant].shed += 1;
                self.told.1 += 1;
                Said::Shed(why)
            }
            Err(why) => {
                self.tenants[tenant].refused += 1;
                Said::Refused(why)
            }
        }
    }

    fn armed(&mut self, mut job: Job) -> Job {
        self.arms += 1;
        job.armed = (self.arms, self.now);
        job
    }

    /// A tenant is about to have a job: when it had none, others may have more to give.
    fn note_present(&mut self, tenant: usize) {
        let is_new = self.tenants[tenant].queued.is_empty() && !self.has_parked(tenant);
        let is_awaited = self.sources.iter().any(|source| !source.parked.is_empty());
        self.unserved |= is_new && is_awaited;
    }

    fn admit(&mut self, tenant: usize, job: Job) {
        self.note_present(tenant);
        let own = &mut self.tenants[tenant];
        own.admitted += 1;
        own.queued.push(job);
        if !self.busy.contains(&tenant) {
            self.busy.push(tenant);
        }
        self.sync(tenant);
    }

    /// Puts topics and tenants into the lists where they belong, and takes them out of the others.
    fn sync(&mut self, tenant: usize) {
        let own = &mut self.tenants[tenant];
        for topic in 0..TOPICS {
            let queued = own.queued.iter().any(|job| job.topic == topic);
            let stands = !own.standing[topic].is_empty();
            keep(&mut own.lanes, topic, queued && !own.held[topic]);
            keep(&mut own.stuck, topic, queued && own.held[topic]);
            keep(&mut own.waiting, topic, stands && !own.held[topic]);
        }
        if own.granted && !own.lanes.is_empty() && !self.rotation.contains(&tenant) {
            count("a turn that goes on");
            self.rotation.push_front(tenant);
        }
        let (waits, stuck) = (!own.waiting.is_empty(), !own.stuck.is_empty());
        let bare = own.queued.is_empty();
        keep(&mut self.rotation, tenant, !own.lanes.is_empty());
        keep(&mut self.waits, tenant, waits && !bare);
        keep(&mut self.bare, tenant, waits && bare);
        keep(&mut self.reclaims, tenant, waits && stuck);
        if own.queued.is_empty() {
            self.busy.retain(|other| *other != tenant);
        }
    }

    fn hold(&mut self, tenant: usize, topic: usize, held: bool) {
        if self.tenants[tenant].held[topic] == held {
            return;
        }
        self.tenants[tenant].held[topic] = held;
        self.sync(tenant);
        self.unserved |= !self.tenants[tenant].waiting.is_empty();
    }

    fn stands(&self, source: usize) -> bool {
        let tenant = self.sources[source].tenant;
        self.tenants[tenant].standing.iter().any(|lane| lane.contains(&source))
    }

    /// The first parked job of a source takes its place, once its connection has bytes for it.
    fn stand_next(&mut self, source: usize) {
        let conn = self.conn(source);
        let waits = !self.sources[source].parked.is_empty() && !self.stands(source);
        if waits && !self.sources[conn].short.contains(&source) {
            self.sources[conn].short.push_back(source);
        }
        self.serve_short(conn);
    }

    fn serve_short(&mut self, conn: usize) {
        while let Some(source) = self.sources[conn].short.front().copied() {
            let Source { tenant, parked, .. } = &self.sources[source];
            if !self.conn_fits(&parked[0]) {
                return count("parked without bytes of its own");
            }
            let (tenant, topic) = (*tenant, parked[0].topic);
            if self.tenants[tenant].held[topic] {
                count("parked jobs of a held topic");
            }
            if source != conn {
                count("a source that stands");
            }
            self.sources[conn].short.pop_front();
            self.tenants[tenant].standing[topic].push_back(source);
            self.sync(tenant);
            self.unserved |= self.reclaims.contains(&tenant);
        }
    }

    /// Another job is about to be the first parked one of a source.
    fn sit_down(&mut self, source: usize) {
        let (tenant, conn) = (self.sources[source].tenant, self.conn(source));
        for lane in &mut self.tenants[tenant].standing {
            lane.retain(|other| *other != source);
        }
        self.sources[conn].short.retain(|other| *other != source);
        self.sync(tenant);
    }

    /// The tenant with the greatest number above the bound; the one that is busy longest wins.
    fn furthest(&self, bound: u64, number: impl Fn(usize) -> u64) -> Option<usize> {
        let above = self.busy.iter().copied().filter(|other| number(*other) > bound);
        above.rev().max_by_key(|other| number(*other))
    }

    fn make_room(&mut self, tenant: usize, cost: u64, fresh: Option<usize>) {
        while self.queued() >= self.total {
            let guarantee = self.guarantee(tenant);
            let jobs = |other: usize| self.tenants[other].queued.len() as u64;
            let due = self.tenants[tenant].queued.len() < guarantee;
            match self.furthest(guarantee as u64, jobs).filter(|_| due) {
                Some(victim) => {
                    count("pushed out for a slot");
                    self.push_out(victim, self.newest(victim));
                }
                None => {
                    count("made way for a topic that can run");
                    self.push_out(tenant, self.stuck_job(tenant, fresh).unwrap());
                }
            }
        }
        let floor = self.floor(tenant);
        while self.shard_used() + cost > SHARD {
            count("pushed out for bytes");
            let victim = self.furthest(floor, |other| self.used(other)).unwrap();
            self.push_out(victim, self.newest(victim));
        }
    }

    fn push_out(&mut self, tenant: usize, at: usize) {
        self.unserved = true;
        let mut job = self.tenants[tenant].queued.remove(at);
        self.sync(tenant);
        let (own, conn) = (job.source, self.conn(job.source));
        let source = self.source_of(&job).unwrap_or(conn);
        self.pushed_out.push(conn);
        if self.sources[source].is_there && self.waits(job.ack) {
            count(if source == own { "demoted to parked" } else { "demoted to the connection" });
            self.tenants[tenant].returned += 1;
            job.source = source;
            let topic = job.topic;
            let armed = self.armed(job);
            self.sit_down(source);
            self.sources[source].parked.push_front(armed);
            let own = &mut self.tenants[tenant];
            own.standing[topic].push_front(source);
            if !own.held[topic] {
                own.waiting.retain(|other| *other != topic);
                own.waiting.push_front(topic);
            }
            self.sync(tenant);
        } else {
            count("evicted");
            self.tenants[tenant].evicted += 1;
            let Source { is_there, is_known, .. } = self.sources[conn];
            // What was shed is told later than what failed.
            if is_there || is_known && job.ack != Ack::None {
                self.tell(job.ack);
            }
        }
        self.note_absent(tenant);
    }

    /// A connection is told of a publish that ended.
    fn tell(&mut self, ack: Ack) {
        let (failed, shed) = &mut self.told;
        *(if ack == Ack::None { shed } else { failed }) += 1;
    }

    fn note_absent(&mut self, tenant: usize) {
        let parked = self.has_parked(tenant);
        let own = &mut self.tenants[tenant];
        if own.queued.is_empty() && !parked {
            own.deficit = 0;
            own.granted = false;
        }
    }

    fn step(&mut self) {
        if self.unserved {
            self.serve_parked();
        }
        while let Some(tenant) = self.rotation.front().copied() {
            let own = &mut self.tenants[tenant];
            if !own.granted {
                own.deficit += QUANTUM * u64::from(WEIGHTS[tenant]);
                own.granted = true;
            }
            let lane = own.lanes[0];
            let at = own.queued.iter().position(|job| job.topic == lane).unwrap();
            let need = own.queued[at].size + 256;
            if own.deficit < need {
                own.granted = false;
                self.rotation.rotate_left(1);
                continue;
            }
            own.deficit -= need;
            let job = own.queued.remove(at);
            own.sequenced.push((job.topic, job.size));
            own.lanes.rotate_left(1);
            self.sync(tenant);
            self.note_absent(tenant);
            let conn = self.conn(job.source);
            self.running = Some(job);
            self.serve_parked();
            self.running = None;
            self.serve_short(conn);
            return self.serve_parked();
        }
    }

    fn serve_parked(&mut self) {
        for conn in core::mem::take(&mut self.pushed_out) {
            self.serve_short(conn);
        }
        let mut passed = 0;
        loop {
            let full = self.queued() >= self.total;
            let due = self.due();
            let (waits, bare, reclaims) = (&mut self.waits, &mut self.bare, &mut self.reclaims);
            let all = if full { reclaims.len() + due } else { waits.len() + bare.len() };
            if passed >= all {
                break;
            }
            if !full && !bare.is_empty() && !waits.is_empty() {
                count("a tenant with nothing queued goes first");
            }
            let is_reclaimed = full && passed < reclaims.len();
            let turns = match full {
                true if is_reclaimed => reclaims,
                false if passed >= bare.len() => waits,
                _ => bare,
            };
            let tenant = turns[0];
            turns.rotate_left(1);
            let own = &self.tenants[tenant];
            let source = own.standing[own.waiting[0]][0];
            let job = self.sources[source].parked[0].clone();
            if self.tenant_bytes(&job).is_err() || self.shard_bytes(&job).is_err() {
                count("parked head without bytes");
                passed += 1;
                continue;
            }
            passed = 0;
            if full {
                count(match is_reclaimed {
                    true => "reclaimed for a parked job",
                    false => "others make way for a parked job",
                });
            }
            if self.shard_used() + job.cost() > SHARD {
                count("others make way for a parked job's bytes");
            }
            self.make_room(tenant, job.cost(), None);
            if self.sources[source].parked[0].armed != job.armed {
                count("the source's own job goes first");
                continue;
            }
            self.tenants[tenant].waiting.rotate_left(1);
            self.unpark(source, 0);
            self.admit(tenant, job);
            self.stand_next(source);
        }
        self.unserved = !self.pushed_out.is_empty();
        if self.unserved {
            count("somebody may have room once more");
        }
    }

    fn unpark(&mut self, source: usize, at: usize) {
        if at == 0 {
            self.sit_down(source);
        }
        self.sources[source].parked.remove(at).unwrap();
    }

    /// A parked job ends: it is refused; an unacked one of a connection that goes on is shed.
    fn end_parked(&mut self, source: usize, at: usize) {
        let (tenant, conn) = (self.sources[source].tenant, self.conn(source));
        let ack = self.sources[source].parked[at].ack;
        self.unpark(source, at);
        self.note_absent(tenant);
        let own = &mut self.tenants[tenant];
        let is_shed = ack == Ack::None && self.sources[conn].is_there;
        *(if is_shed { &mut own.shed } else { &mut own.refused }) += 1;
        if self.sources[conn].is_there {
            self.tell(ack);
        }
        self.stand_next(source);
    }

    fn advance(&mut self, millis: u64) {
        self.now += millis;
        loop {
            let parked = self.sources.iter().enumerate().flat_map(|(source, own)| {
                own.parked.iter().enumerate().map(move |(at, job)| (job, source, at))
            });
            let due = parked
                .filter(|(job, ..)| job.ack == Ack::Wait && job.armed.1 + WAIT <= self.now)
                .min_by_key(|(job, ..)| job.armed.0)
                .map(|(_, source, at)| (source, at));
            let Some((source, at)) = due else { return };
            count("waited too long");
            self.end_parked(source, at);
            self.serve_parked();
        }
    }

    fn gone(&mut self, source: usize) {
        self.sources[source].is_there = false;
        let own = |other: &usize| self.conn(*other) == source && self.sources[*other].is_there;
        let sources: Vec<usize> = (0..self.sources.len()).filter(own).collect();
        let is_alone = self.conn(source) != source && self.sources[source].parked.is_empty();
        for other in sources.iter().copied().chain([source]) {
            self.sources[other].is_there = false;
            self.end_all_parked(other);
        }
        if !is_alone {
            self.serve_parked();
        }
        self.sources[source].is_known = false;
    }

    fn end_all_parked(&mut self, source: usize) {
        while !self.sources[source].parked.is_empty() {
            let is_alone = self.sources[self.conn(source)].is_there;
            count(if is_alone { "parked by a source that ends" } else { "parked and gone" });
            self.end_parked(source, 0);
        }
    }
}

/// A list has something in it exactly when it should; what is new goes last.
fn keep(list: &mut VecDeque<usize>, item: usize, is_in: bool) {
    if is_in && !list.contains(&item) {
        list.push_back(item);
    } else if !is_in {
        list.retain(|other| *other != item);
    }
}

// ---- both, side by side

struct Pair {
    bench: Bench,
    model: Model,
    tenants: Vec<TenantId>,
    topics: Vec<Vec<TopicId>>,
    /// The connection behind each of the model's sources, and the present one of each seat.
    conns: Vec<ConnId>,
    seats: Vec<usize>,
    millis: u64,
    /// As the model's.
    told: (u64, u64),
    /// What a host believes that hears of pauses by notices.
    believed: Vec<bool>,
}

impl Pair {
    fn new(lossless: bool, total: usize) -> Self {
        let limits = Limits {
            lossless: lossless.into(),
            max_frame_bytes: 12 * KIB,
            pub_conn_inflight_bytes: CONN,
            pub_inflight_bytes: SHARD,
            pub_queue_depth: DEPTH as u64,
            pub_queue_total: total as u64,
            pub_tenant_inflight_bytes: TENANT,
            quantum_bytes: QUANTUM,
            ..Limits::default()
        };
        let mut bench = Bench::new(limits);
        let mut tenants = alloc::vec![bench.tenant];
        tenants.extend(WEIGHTS[1..].iter().map(|weight| bench.broker.tenant(*weight).unwrap()));
        let topics = tenants
            .iter()
            .map(|tenant| {
                ["a", "b"].map(|name| bench.broker.topic(*tenant, name).unwrap()).to_vec()
            })
            .collect();
        let model = Model { lossless, total, ..Model::default() };
        let (conns, seats) = (Vec::new(), Vec::new());
        let mut pair = Self {
            bench,
            model,
            tenants,
            topics,
            conns,
            seats,
            millis: 0,
            told: (0, 0),
            believed: Vec::new(),
        };
        for tenant in 0..WEIGHTS.len() {
            pair.model.tenants.push(Tenant::default());
            for seat in tenant * SOURCES..(tenant + 1) * SOURCES {
                pair.seats.push(0);
                pair.arrive(seat);
            }
        }
        pair
    }

    /// Somebody comes who takes a seat.
    fn arrive(&mut self, seat: usize) {
        let (tenant, place) = (seat / SOURCES, seat % SOURCES);
        let source = self.conns.len();
        let (conn, broker) = (self.seats[tenant * SOURCES], &mut self.bench.broker);
        let is_source = (1..=LAST_OF_FIRST).contains(&place);
        let (conn, id) = if is_source {
            (conn, broker.source(self.conns[conn]))
        } else {
            (source, broker.open(self.tenants[tenant]))
        };
        self.conns.push(id.unwrap());
        self.believed.push(broker.is_paused(id.unwrap()));
        let (parked, short) = (VecDeque::new(), VecDeque::new());
        self.model.sources.push(Source {
            tenant,
            conn,
            is_there: true,
            is_known: true,
            parked,
            short,
        });
        self.seats[seat] = source;
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Publish { source, topic, size, ack } => {
                self.publish(source, topic, size, ack);
            }
            Op::Call { source, ref topics, size, ack } => self.call(source, topics, size, ack),
            Op::Burst { source, topic, ack } => {
                for _ in 0..7 {
                    self.publish(source, topic, 12_000, ack);
                }
            }
            Op::Crowd { tenant, topic } => {
                for seat in 0..=LAST_OF_FIRST {
                    for _ in 0..2 {
                        self.publish(tenant * SOURCES + seat, topic, 12_000, Ack::Wait);
                    }
                }
            }
            Op::Step => {
                let _ = self.bench.broker.step(1);
                self.model.step();
            }
            Op::Advance { millis } => {
                self.millis += millis;
                self.bench.broker.advance(Instant::from_millis(self.millis));
                self.model.advance(millis);
            }
            Op::Gone { source: seat } => {
                let source = self.seats[seat];
                self.bench.broker.gone(self.conns[source]);
                self.model.gone(source);
                let last = if seat % SOURCES == 0 { seat + LAST_OF_FIRST } else { seat };
                (seat..=last).for_each(|seat| self.arrive(seat));
            }
            Op::Hold { tenant, topic, held } => {
                let index = self.topics[tenant][topic].index;
                self.bench.broker.schedule.hold(index, Hold::Credit, held);
                self.model.hold(tenant, topic, held);
            }
        }
        self.bench.check();
        self.compare();
    }

    fn call(&mut self, seat: usize, topics: &[usize], size: u64, ack: Ack) {
        let source = self.seats[seat];
        let known = &self.topics[self.model.sources[source].tenant];
        let ids = topics.iter().map(|topic| known[*topic]);
        let brought = (u32::try_from(topics.len()).unwrap(), size * topics.len() as u64);
        let room = self.bench.broker.room(self.conns[source], brought, ids).is_ok();
        if !room {
            return;
        }
        let full = self.model.queued() + topics.len() > self.model.total;
        count(if full { "a whole call pushes out" } else { "a whole call" });
        for topic in topics {
            assert_eq!(self.publish(seat, *topic, size, ack), Said::Queued, "all of a call");
        }
    }

    fn publish(&mut self, seat: usize, topic: usize, size: u64, ack: Ack) -> Said {
        let source = self.seats[seat];
        let tenant = self.model.sources[source].tenant;
        let id = self.topics[tenant][topic];
        let frame = Bytes::from(alloc::vec![0; usize::try_from(size).unwrap()]);
        let message = Message { frame, records: 1, ack, except: None, keep: Keep::Default };
        let said = match self.bench.broker.publish(self.conns[source], id, message) {
            Verdict::Queued(_) => Said::Queued,
            Verdict::Parked(_) => Said::Parked,
            Verdict::Refused(why) => Said::Refused(why.reason),
            Verdict::Shed(why) => Said::Shed(why.reason),
        };
        let due = self.model.publish(Job { source, topic, size, ack, armed: (0, 0) });
        assert_eq!(said, due);
        said
    }

    fn compare(&mut self) {
        let broker = &mut self.bench.broker;
        while let Some(effect) = broker.poll() {
            match effect {
                Effect::Notice(Notice::Failed { .. }) => self.told.0 += 1,
                Effect::Notice(Notice::Shed { records, .. }) => self.told.1 += records,
                Effect::Notice(Notice::Pause { conn } | Notice::Resume { conn }) => {
                    let of = self.conns.iter().position(|own| *own == conn).unwrap();
                    let own = |source: &usize| *source == of || self.model.conn(*source) == of;
                    for source in (0..self.conns.len()).filter(own) {
                        self.believed[source] = broker.is_paused(self.conns[source]);
                    }
                }
                _ => {}
            }
        }
        assert_eq!(self.told, self.model.told, "publishers were told");
        let parked: usize = self.model.sources.iter().map(|source| source.parked.len()).sum();
        let (queued, waiting) = broker.jobs();
        assert_eq!((queued as usize, waiting as usize), (self.model.queued(), parked), "jobs");
        assert_eq!(broker.inflight(), self.model.shard_used(), "bytes in flight");
        for (at, tenant) in self.tenants.iter().enumerate() {
            let books = broker.tenant_books(*tenant).unwrap();
            let own = &self.model.tenants[at];
            assert_eq!(books.admitted.records, own.admitted, "admitted of {at}");
            assert_eq!(books.refused.total().records, own.refused, "refused of {at}");
            assert_eq!(books.shed.total().records, own.shed, "shed of {at}");
            assert_eq!(books.evicted.total().records, own.evicted, "evicted of {at}");
            assert_eq!(books.returned.records, own.returned, "returned of {at}");
            for (topic, id) in self.topics[at].iter().enumerate() {
                let bytes: u64 =
                    own.sequenced.iter().filter(|job| job.0 == topic).map(|job| job.1).sum();
                let books = broker.topic_books(*id).unwrap();
                assert_eq!(books.sequenced.bytes, bytes, "sequenced of {at} in {topic}");
            }
        }
        for (source, conn) in self.conns.iter().enumerate() {
            let paused = self.model.sources[source].is_there && self.model.is_paused(source);
            assert_eq!(broker.is_paused(*conn), paused, "source {source} is paused");
            if self.model.sources[source].is_there {
                assert_eq!(self.believed[source], paused, "the host of {source} was told");
            }
        }
    }

    /// With nothing new coming in, everything runs and nothing is parked for ever.
    fn drain(&mut self) {
        for (tenant, topic) in (0..WEIGHTS.len()).flat_map(|at| (0..TOPICS).map(move |t| (at, t))) {
            self.apply(&Op::Hold { tenant, topic, held: false });
        }
        for _ in 0..10_000 {
            if self.bench.broker.jobs() == (0, 0) {
                break;
            }
            self.apply(&Op::Step);
        }
        assert_eq!(self.bench.broker.jobs(), (0, 0));
        assert_eq!(self.bench.broker.inflight(), 0);
        self.bench.broker.check_quiescent().unwrap();
    }
}

#[test]
fn publishing_agrees_with_its_model() {
    let total = prop_oneof![Just(TOTALS[0]), Just(TOTALS[1])];
    let operations = (any::<bool>(), total, proptest::collection::vec(op(), 1..300));
    model::run(
        model::cases(file!(), 1_000),
        &operations,
        REACHED,
        |(lossless, total, operations)| {
            let mut pair = Pair::new(lossless, total);
            operations.iter().for_each(|op| pair.apply(op));
            pair.drain();
        },
    );
}

/// What a run must come by.
const REACHED: &[&str] = &[
    "a whole call",
    "a whole call pushes out",
    "as much is parked as may be",
    "a source that stands",
    "a turn that goes on",
    "a tenant with nothing queued goes first",
    "behind a source that is short",
    "demoted to parked",
    "demoted to the connection",
    "evicted",
    "parked",
    "made way for a topic that can run",
    "no bytes of its own",
    "parked and gone",
    "parked by a source that ends",
    "parked head without bytes",
    "others make way for a parked job",
    "others make way for a parked job's bytes",
    "somebody may have room once more",
    "parked jobs of a held topic",
    "parked without bytes of its own",
    "reclaimed for a parked job",
    "the source's own job goes first",
    "pushed out for a slot",
    "pushed out for bytes",
    "waited too long",
];
