//! Checkpoints 3 and 4 against a plain model: one list of queued jobs and one of parked jobs per
//! tenant, a rotation that spins, sums instead of counters.

use super::*;
use crate::model::{self, count};
use alloc::collections::VecDeque;
use proptest::prelude::*;

const KIB: u64 = 1 << 10;
const WEIGHTS: [u32; 3] = [1, 1, 3];
const TOPICS: usize = 2;
const SOURCES: usize = 3;
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
    Publish { source: usize, topic: usize, size: u64, ack: Ack },
    Step,
    Advance { millis: u64 },
    Gone { source: usize },
}

fn op() -> impl Strategy<Value = Op> {
    let source = 0..WEIGHTS.len() * SOURCES;
    let size =
        prop_oneof![Just(100_u64), Just(1_000), Just(5_000), 11_000..12_000_u64, Just(12_000)];
    let ack = prop_oneof![Just(Ack::None), Just(Ack::Now), Just(Ack::Wait), Just(Ack::Wait)];
    prop_oneof![
        12 => (source.clone(), 0..TOPICS, size, ack)
            .prop_map(|(source, topic, size, ack)| Op::Publish { source, topic, size, ack }),
        5 => Just(Op::Step),
        1 => (1..1_500_u64).prop_map(|millis| Op::Advance { millis }),
        1 => source.prop_map(|source| Op::Gone { source }),
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
    parked: VecDeque<Job>,
    lanes: VecDeque<usize>,
    deficit: u64,
    granted: bool,
    admitted: u64,
    sequenced: Vec<(usize, u64)>,
    refused: u64,
    shed: u64,
    evicted: u64,
    returned: u64,
}

#[derive(Debug, Default)]
struct Model {
    tenants: Vec<Tenant>,
    rotation: VecDeque<usize>,
    waiting: VecDeque<usize>,
    busy: Vec<usize>,
    /// The job that is being delivered: it has no slot any more, and its bytes are still held.
    running: Option<Job>,
    lossless: bool,
    total: usize,
    now: u64,
    arms: u64,
    /// Sources by number: the tenant, and whether it is there.
    sources: Vec<(usize, bool)>,
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
        let running = self.running.iter().filter(|job| self.sources[job.source].0 == tenant);
        self.tenants[tenant].queued.iter().chain(running).map(Job::cost).sum()
    }

    fn conn_used(&self, source: usize) -> u64 {
        let jobs = self.tenants.iter().flat_map(|tenant| &tenant.queued).chain(&self.running);
        jobs.filter(|job| job.source == source).map(Job::cost).sum()
    }

    fn shard_used(&self) -> u64 {
        (0..self.tenants.len()).map(|tenant| self.used(tenant)).sum()
    }

    fn active_with(&self, tenant: usize) -> usize {
        let active = |at: &usize| {
            let other = &self.tenants[*at];
            *at == tenant || !other.queued.is_empty() || !other.parked.is_empty()
        };
        (0..self.tenants.len()).filter(active).count()
    }

    fn guarantee(&self, tenant: usize) -> usize {
        DEPTH.min(self.total / self.active_with(tenant)).max(1)
    }

    fn floor(&self, tenant: usize) -> u64 {
        SHARD / (4 * self.active_with(tenant) as u64)
    }

    fn own_bytes(&self, job: &Job) -> Result<(), Reason> {
        let tenant = self.sources[job.source].0;
        if self.conn_used(job.source) + job.cost() > CONN {
            return Err(Reason::BytesConn);
        }
        if self.used(tenant) + job.cost() > TENANT {
            return Err(Reason::BytesTenant);
        }
        Ok(())
    }

    fn room(&self, job: &Job) -> Result<(), Reason> {
        let tenant = self.sources[job.source].0;
        let own = &self.tenants[tenant];
        let guarantee = self.guarantee(tenant);
        let yields = self.tenants.iter().any(|other| other.queued.len() > guarantee);
        let slot = self.queued() < self.total || (own.queued.len() < guarantee && yields);
        if !own.parked.is_empty() || !slot {
            return Err(Reason::QueueFull);
        }
        self.own_bytes(job)?;
        let missing = (self.shard_used() + job.cost()).saturating_sub(SHARD);
        let floor = self.floor(tenant);
        let yielding: u64 =
            self.busy.iter().map(|other| self.used(*other).saturating_sub(floor)).sum();
        let due = self.used(tenant) + job.cost() <= floor && yielding >= missing;
        if missing > 0 && !due { Err(Reason::BytesShard) } else { Ok(()) }
    }

    fn waits(&self, ack: Ack) -> bool {
        ack == Ack::Wait || (ack == Ack::None && self.lossless)
    }

    fn publish(&mut self, job: Job) -> Said {
        let tenant = self.sources[job.source].0;
        let busy = self.tenants[tenant].parked.iter().any(|other| other.source == job.source);
        let why = if busy { Err(Reason::Busy) } else { self.room(&job) };
        match why {
            Ok(()) => {
                let pushed_out = self.make_room(tenant, job.cost());
                self.admit(tenant, job);
                if pushed_out {
                    self.serve_parked();
                }
                Said::Queued
            }
            Err(why) if why != Reason::Busy && self.waits(job.ack) => {
                count("parked");
                self.park(tenant, job, false);
                Said::Parked
            }
            Err(why) if job.ack == Ack::None => {
                self.tenants[tenant].shed += 1;
                Said::Shed(why)
            }
            Err(why) => {
                self.tenants[tenant].refused += 1;
                Said::Refused(why)
            }
        }
    }

    fn admit(&mut self, tenant: usize, job: Job) {
        let own = &mut self.tenants[tenant];
        own.admitted += 1;
        if !own.lanes.contains(&job.topic) {
            own.lanes.push_back(job.topic);
        }
        own.queued.push(job);
        if !self.rotation.contains(&tenant) {
            if own.granted {
                count("a turn that goes on");
                self.rotation.push_front(tenant);
            } else {
                self.rotation.push_back(tenant);
            }
        }
        if !self.busy.contains(&tenant) {
            self.busy.push(tenant);
        }
    }

    fn park(&mut self, tenant: usize, mut job: Job, first: bool) {
        self.arms += 1;
        job.armed = (self.arms, self.now);
        let line = &mut self.tenants[tenant].parked;
        if first {
            line.push_front(job);
        } else {
            line.push_back(job);
        }
        if !self.waiting.contains(&tenant) {
            self.waiting.push_back(tenant);
        }
    }

    /// The tenant with the greatest number above the bound; the one that is busy longest wins.
    fn furthest(&self, bound: u64, number: impl Fn(usize) -> u64) -> usize {
        let above = self.busy.iter().copied().filter(|other| number(*other) > bound);
        above.rev().max_by_key(|other| number(*other)).unwrap()
    }

    fn make_room(&mut self, tenant: usize, cost: u64) -> bool {
        let before = self.queued();
        while self.queued() >= self.total {
            count("pushed out for a slot");
            let jobs = |other: usize| self.tenants[other].queued.len() as u64;
            let victim = self.furthest(self.guarantee(tenant) as u64, jobs);
            self.push_out(victim);
        }
        let floor = self.floor(tenant);
        while self.shard_used() + cost > SHARD {
            count("pushed out for bytes");
            let victim = self.furthest(floor, |other| self.used(other));
            self.push_out(victim);
        }
        self.queued() < before
    }

    fn push_out(&mut self, tenant: usize) {
        let own = &mut self.tenants[tenant];
        let job = own.queued.pop().unwrap();
        let topic = job.topic;
        if !own.queued.iter().any(|other| other.topic == topic) {
            own.lanes.retain(|lane| *lane != topic);
        }
        self.note_empty(tenant);
        if self.sources[job.source].1 && self.waits(job.ack) {
            count("demoted to parked");
            self.tenants[tenant].returned += 1;
            self.park(tenant, job, true);
        } else {
            count("evicted");
            self.tenants[tenant].evicted += 1;
        }
        self.note_absent(tenant);
    }

    fn note_absent(&mut self, tenant: usize) {
        let own = &mut self.tenants[tenant];
        if own.queued.is_empty() && own.parked.is_empty() {
            own.deficit = 0;
            own.granted = false;
        }
    }

    fn note_empty(&mut self, tenant: usize) {
        if self.tenants[tenant].queued.is_empty() {
            self.rotation.retain(|other| *other != tenant);
            self.busy.retain(|other| *other != tenant);
        }
    }

    fn step(&mut self) {
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
            if own.queued.iter().any(|job| job.topic == lane) {
                own.lanes.rotate_left(1);
            } else {
                own.lanes.pop_front();
            }
            self.note_empty(tenant);
            self.note_absent(tenant);
            self.running = Some(job);
            self.serve_parked();
            self.running = None;
            return self.serve_parked();
        }
    }

    fn serve_parked(&mut self) {
        let mut passed = 0;
        while passed < self.waiting.len() && self.queued() < self.total {
            let tenant = self.waiting[0];
            self.waiting.rotate_left(1);
            let job = self.tenants[tenant].parked[0].clone();
            let fits = self.own_bytes(&job).is_ok() && self.shard_used() + job.cost() <= SHARD;
            if !fits {
                count("parked head without bytes");
                passed += 1;
                continue;
            }
            passed = 0;
            self.unpark(tenant, 0);
            self.admit(tenant, job);
        }
    }

    fn unpark(&mut self, tenant: usize, at: usize) {
        self.tenants[tenant].parked.remove(at).unwrap();
        if self.tenants[tenant].parked.is_empty() {
            self.waiting.retain(|other| *other != tenant);
        }
    }

    fn refuse_parked(&mut self, tenant: usize, at: usize) {
        self.unpark(tenant, at);
        self.note_absent(tenant);
        self.tenants[tenant].refused += 1;
    }

    fn advance(&mut self, millis: u64) {
        self.now += millis;
        loop {
            let parked = self.tenants.iter().enumerate().flat_map(|(tenant, own)| {
                own.parked.iter().enumerate().map(move |(at, job)| (job, tenant, at))
            });
            let due = parked
                .filter(|(job, ..)| job.ack == Ack::Wait && job.armed.1 + WAIT <= self.now)
                .min_by_key(|(job, ..)| job.armed.0)
                .map(|(_, tenant, at)| (tenant, at));
            let Some((tenant, at)) = due else { return };
            count("waited too long");
            self.refuse_parked(tenant, at);
            self.serve_parked();
        }
    }

    fn gone(&mut self, source: usize) {
        let tenant = self.sources[source].0;
        self.sources[source].1 = false;
        let line =
            |model: &Self| model.tenants[tenant].parked.iter().position(|job| job.source == source);
        while let Some(at) = line(self) {
            count("parked and gone");
            self.refuse_parked(tenant, at);
        }
        self.serve_parked();
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
        let mut pair =
            Self { bench, model, tenants, topics, conns: Vec::new(), seats: Vec::new(), millis: 0 };
        for tenant in 0..WEIGHTS.len() {
            pair.model.tenants.push(Tenant::default());
            for _ in 0..SOURCES {
                let source = pair.arrive(tenant);
                pair.seats.push(source);
            }
        }
        pair
    }

    fn arrive(&mut self, tenant: usize) -> usize {
        self.conns.push(self.bench.broker.open(self.tenants[tenant]).unwrap());
        self.model.sources.push((tenant, true));
        self.conns.len() - 1
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Publish { source, topic, size, ack } => self.publish(source, topic, size, ack),
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
                self.seats[seat] = self.arrive(seat / SOURCES);
            }
        }
        self.bench.check();
        self.compare();
    }

    fn publish(&mut self, seat: usize, topic: usize, size: u64, ack: Ack) {
        let source = self.seats[seat];
        let tenant = self.model.sources[source].0;
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
    }

    fn compare(&mut self) {
        let broker = &mut self.bench.broker;
        while broker.poll().is_some() {}
        let parked: usize = self.model.tenants.iter().map(|tenant| tenant.parked.len()).sum();
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
            let (tenant, alive) = self.model.sources[source];
            let mut own = self.model.tenants[tenant].parked.iter();
            let parked = own.any(|job| job.source == source);
            assert_eq!(broker.is_paused(*conn), alive && parked, "source {source} is paused");
        }
    }

    /// With nothing new coming in, everything runs and nothing is parked for ever.
    fn drain(&mut self) {
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
    "a turn that goes on",
    "demoted to parked",
    "evicted",
    "parked",
    "parked and gone",
    "parked head without bytes",
    "pushed out for a slot",
    "pushed out for bytes",
    "waited too long",
];
