//! Checkpoint 4, schedule: queued publish jobs, shared between tenants by deficit round robin
//! (Shreedhar and Varghese, "Efficient fair queueing using deficit round robin", SIGCOMM 1995).
//!
//! Question:  is there a slot for this job, and whose job runs next?
//! Invariant: 0 <= deficit < quantum * weight + dearest job; jobs of one topic run in arrival
//!            order; a tenant is in the rotation exactly while one of its lanes can run.
//! When full: a tenant below its guarantee gets a slot: the newest job of the tenant furthest above
//!            goes. A publish to a topic that can run gets one of its tenant's held topics: of the
//!            topic with the most slots the newest job goes (longest queue drop: Wei, Coyle and
//!            Hsiao, "An optimal buffer management policy for high-performance packet switching",
//!            GLOBECOM 1991). Anybody else gets `queue_full`; by the publish's mode it is shed,
//!            refused or parked, and a parked job is admitted in the same fair rotation before a
//!            fresh one.
//! Proof:     `equal_shares_of_cost_whatever_the_shape`, `a_dear_job_is_granted_without_spinning`,
//!            `a_held_topic_stops_only_its_lane`, `a_held_topic_keeps_no_slot_from_the_others`,
//!            `a_parked_job_is_not_overtaken`,
//!            `a_tenant_below_its_guarantee_is_never_refused`, `publishing_agrees_with_its_model`,
//!            `books_close_under_random_operations`, `conservation`.

use crate::lease::Permit;
use crate::limits::Limits;
use crate::list::{Link, List, node};
use crate::peers::OfSource;
use crate::slab::Slab;
use crate::time::Instant;
use crate::timer::{Timed, Timers};
use core::time::Duration;

pub use alone::Rotation;
pub(crate) use job::{Job, Origin};
pub(crate) use room::Standing;

/// Why no job of a topic may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Somebody under `block` is at the limit.
    Block = 1,
    /// The owner has enough of this shard's publishes; its batches go on.
    Credit = 2,
}

/// The jobs of one topic.
#[derive(Debug)]
struct Lane {
    tenant: u32,
    /// Publishes that get their numbers, or go to the owner of the topic.
    jobs: List<InLane>,
    /// Batches that have their numbers from the owner. They do not wait for publishes that wait
    /// for credit: the answers that bring the credit come after them.
    batches: List<InLane>,
    /// A batch ran last, so a publish is next.
    batch_ran: bool,
    /// Parked jobs that have all they need of their own source.
    waiting: List<Parked>,
    /// Queued and parked jobs.
    pending: u32,
    /// Queued jobs that have a slot.
    slots: u32,
    /// Why it may not run: bits of [`Hold`].
    held: u8,
    link: Link,
    /// With those that wait for room, or, while it is held, with those that sit on slots.
    side: Link,
}

impl Lane {
    /// The job that runs next, and whether it is a batch.
    fn next(&self) -> Option<(u32, bool)> {
        if self.held & Hold::Block as u8 != 0 {
            return None;
        }
        let job = self.jobs.front().filter(|_| self.held == 0);
        let batch = self.batches.front();
        match (job, batch) {
            (Some(job), None) => Some((job, false)),
            (Some(job), Some(_)) if self.batch_ran => Some((job, false)),
            (_, batch) => batch.map(|batch| (batch, true)),
        }
    }
}

/// The job of a topic that runs next.
struct Next {
    topic: u32,
    job: u32,
    is_batch: bool,
}

/// The jobs of one tenant.
#[derive(Debug)]
struct Line {
    weight: u64,
    deficit: u64,
    /// This visit's quantum was added.
    granted: bool,
    /// Queued jobs, in runnable and held lanes, in arrival order.
    queued: List<Arrived>,
    /// What their permits hold.
    bytes: u64,
    lanes: List<Runnable>,
    /// Parked jobs, whatever they wait for.
    parked: u32,
    /// Lanes that are not held, in which somebody waits for room that is shared.
    waiting: List<Waiting>,
    /// Held lanes whose jobs have slots.
    stuck: List<Stuck>,
    active: Link,
    busy: Link,
    waits: Link,
    reclaims: Link,
}

#[derive(Debug)]
struct Arrived;
#[derive(Debug)]
struct Busy;
#[derive(Debug)]
struct InLane;
#[derive(Debug)]
struct Parked;
#[derive(Debug)]
struct Wait;
#[derive(Debug)]
struct Runnable;
#[derive(Debug)]
struct Active;
#[derive(Debug)]
struct Waiting;
#[derive(Debug)]
struct Stuck;
#[derive(Debug)]
struct Waits;
#[derive(Debug)]
struct Reclaims;

node!(Arrived, Job, other);
node!(OfSource, Job, other);
node!(Busy, Line, busy);
node!(InLane, Job, link);
node!(Parked, Job, link);
node!(Wait, Job, timer);
node!(Runnable, Lane, link);
node!(Active, Line, active);
node!(Waiting, Lane, side);
node!(Stuck, Lane, side);
node!(Waits, Line, waits);
node!(Reclaims, Line, reclaims);

impl Timed<Wait> for Job {
    fn deadline(&self) -> Instant {
        self.deadline
    }
    fn set_deadline(&mut self, at: Instant) {
        self.deadline = at;
    }
}

/// Cost of a job besides its payload, and per delivery: fan-out is work.
const BASE: u64 = 256;
const DELIVERY: u64 = 64;

#[derive(Debug)]
pub(crate) struct Schedule {
    jobs: Slab<Job>,
    /// By topic index.
    lanes: Slab<Lane>,
    /// By tenant index.
    lines: Slab<Line>,
    active: List<Active>,
    /// Tenants with queued jobs.
    busy: List<Busy>,
    /// Tenants with queued jobs in whose name somebody waits for room that is shared.
    waits: List<Waits>,
    /// Those without queued jobs: a free slot is theirs first, so that whoever always has something
    /// to run is always in the rotation, and gets its share by cost.
    bare: List<Waits>,
    /// Those of them who have jobs of held topics, and so need no free slot.
    reclaims: List<Reclaims>,
    /// Somebody may have room since parked jobs were served last.
    unserved: bool,
    /// Tenants with queued or parked jobs.
    present: u32,
    deadlines: Timers<Wait>,
    queued: u32,
    parked_jobs: u32,
    /// Jobs of other shards; they have no slot.
    remote: u32,
    /// Those of them that no credit bounds.
    plain: u32,
    total: u32,
    depth: u32,
    quantum: u64,
    /// Visits since a job was last picked.
    fruitless: u32,
}

impl Schedule {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            jobs: Slab::default(),
            lanes: Slab::default(),
            lines: Slab::default(),
            active: List::default(),
            busy: List::default(),
            waits: List::default(),
            bare: List::default(),
            reclaims: List::default(),
            unserved: false,
            present: 0,
            deadlines: Timers::new(Duration::from_millis(limits.publish_queue_wait_ms)),
            queued: 0,
            parked_jobs: 0,
            remote: 0,
            plain: 0,
            total: u32::try_from(limits.pub_queue_total).expect("the range is below 32 bits"),
            depth: u32::try_from(limits.pub_queue_depth).expect("the range is below 32 bits"),
            quantum: limits.quantum_bytes,
            fruitless: 0,
        }
    }

    /// Adds a tenant; tenants and lines have the same indices.
    pub(crate) fn add_tenant(&mut self, weight: u32) -> u32 {
        let line = Line {
            weight: u64::from(weight),
            deficit: 0,
            granted: false,
            queued: List::default(),
            bytes: 0,
            lanes: List::default(),
            parked: 0,
            waiting: List::default(),
            stuck: List::default(),
            active: Link::default(),
            busy: Link::default(),
            waits: Link::default(),
            reclaims: Link::default(),
        };
        self.lines.insert(line).0
    }

    /// A tenant has another weight from its next turn on. What it saved up under the old one is
    /// cut to one turn of the new one.
    pub(crate) fn reweigh(&mut self, tenant: u32, weight: u32) {
        let line = &mut self.lines[tenant];
        line.weight = u64::from(weight);
        line.deficit = line.deficit.min(self.quantum * line.weight);
    }

    /// Adds a topic; topics and lanes have the same indices.
    pub(crate) fn add_lane(&mut self, tenant: u32) -> u32 {
        let lane = Lane {
            tenant,
            jobs: List::default(),
            batches: List::default(),
            batch_ran: false,
            waiting: List::default(),
            pending: 0,
            slots: 0,
            held: 0,
            link: Link::default(),
            side: Link::default(),
        };
        self.lanes.insert(lane).0
    }

    pub(crate) fn remove_lane(&mut self, topic: u32) {
        let lane = self.lanes.remove(topic);
        let is_linked = lane.link.is_linked() || lane.side.is_linked();
        debug_assert!(lane.pending == 0 && !is_linked, "only idle topics go");
    }

    /// Jobs queued, and jobs parked.
    pub(crate) const fn counts(&self) -> (u32, u32) {
        (self.queued, self.parked_jobs)
    }

    /// A job is queued no more.
    fn forget_arrival(&mut self, tenant: u32, index: u32) {
        let line = &mut self.lines[tenant];
        line.queued.unlink(&mut self.jobs, index);
        line.bytes -= self.jobs[index].permit.as_ref().map_or(0, Permit::cost);
        if line.queued.is_empty() {
            self.busy.unlink(&mut self.lines, tenant);
            self.note_absent(tenant);
            if self.lines[tenant].waits.is_linked() {
                self.waits.unlink(&mut self.lines, tenant);
                self.bare.push_back(&mut self.lines, tenant);
            }
        }
        self.queued -= 1;
    }

    /// A tenant that has nothing left, not even something parked, gives up its turn and its credit.
    fn end_turn_of_the_idle(&mut self, tenant: u32) {
        let line = &mut self.lines[tenant];
        if line.queued.is_empty() && line.parked == 0 && line.lanes.is_empty() {
            line.deficit = 0;
            line.granted = false;
        }
    }

    /// A tenant is about to have a job. When it had none, everybody's floor is lower now, and those
    /// above theirs have more to give.
    fn note_present(&mut self, tenant: u32) {
        let present = self.active_with(tenant);
        self.unserved |= present > self.present && self.parked_jobs > 0;
        self.present = present;
    }

    fn note_absent(&mut self, tenant: u32) {
        let line = &self.lines[tenant];
        self.present -= u32::from(line.queued.is_empty() && line.parked == 0);
    }

    /// Whether a parked job may have a slot now.
    pub(crate) const fn has_slot(&self) -> bool {
        self.queued < self.total
    }

    pub(crate) fn job(&self, job: u32) -> &Job {
        &self.jobs[job]
    }

    pub(crate) fn generation(&self, job: u32) -> u32 {
        self.jobs.generation(job)
    }

    /// Whether the topic has queued or parked jobs.
    pub(crate) fn is_idle(&self, topic: u32) -> bool {
        self.lanes[topic].pending == 0
    }

    /// Queues an admitted job. Only after [`room`](Self::room) said yes.
    pub(crate) fn push(&mut self, job: Job) -> u32 {
        debug_assert!(self.queued < self.total && job.permit.is_some(), "room first");
        self.lanes[job.topic].pending += 1;
        let index = self.jobs.insert(job).0;
        self.enqueue(index);
        index
    }

    fn enqueue(&mut self, index: u32) {
        let topic = self.jobs[index].topic;
        let lane = &mut self.lanes[topic];
        lane.jobs.push_back(&mut self.jobs, index);
        lane.slots += 1;
        let (tenant, held) = (lane.tenant, lane.held != 0);
        self.note_present(tenant);
        self.queued += 1;
        let line = &mut self.lines[tenant];
        line.queued.push_back(&mut self.jobs, index);
        line.bytes += self.jobs[index].permit.as_ref().map_or(0, Permit::cost);
        if !line.busy.is_linked() {
            self.busy.push_back(&mut self.lines, tenant);
            if self.lines[tenant].waits.is_linked() {
                self.bare.unlink(&mut self.lines, tenant);
                self.waits.push_back(&mut self.lines, tenant);
            }
        }
        if held {
            return self.update_side(topic);
        }
        self.make_runnable(topic);
    }

    /// The topic accepts no further batch, or does again, for one reason.
    pub(crate) fn hold(&mut self, topic: u32, why: Hold, held: bool) {
        let lane = &mut self.lanes[topic];
        let before = lane.held;
        lane.held = if held { before | why as u8 } else { before & !(why as u8) };
        let after = lane.held;
        if after == before {
            return;
        }
        if lane.next().is_none() {
            self.make_idle(topic);
        } else {
            self.make_runnable(topic);
        }
        if (before == 0) != (after == 0) {
            self.change_sides(topic, before != 0);
        }
    }

    fn make_runnable(&mut self, topic: u32) {
        let lane = &self.lanes[topic];
        if lane.next().is_none() || lane.link.is_linked() {
            return;
        }
        let tenant = lane.tenant;
        let line = &mut self.lines[tenant];
        line.lanes.push_back(&mut self.lanes, topic);
        if line.active.is_linked() {
            return;
        }
        // Its turn goes on, if it only waited for a slot, for bytes or for a held topic.
        if line.granted {
            self.active.push_front(&mut self.lines, tenant);
        } else {
            self.active.push_back(&mut self.lines, tenant);
        }
    }

    fn make_idle(&mut self, topic: u32) {
        let tenant = self.lanes[topic].tenant;
        let line = &mut self.lines[tenant];
        line.lanes.unlink_if(&mut self.lanes, topic);
        if line.lanes.is_empty() && line.active.is_linked() {
            self.active.unlink(&mut self.lines, tenant);
        }
    }

    /// Whether any job can run.
    pub(crate) const fn is_runnable(&self) -> bool {
        !self.active.is_empty()
    }

    /// Picks the job that runs next, for its host to [`take`](Self::take); `audience` is the number
    /// of deliveries a topic's batch needs.
    /// Cost: O(1) amortised; a rotation in which nobody could afford its job is paid once.
    pub(crate) fn pick(&mut self, audience: impl Fn(u32) -> u32) -> Option<u32> {
        loop {
            let tenant = self.active.front()?;
            let Self { jobs, lanes, lines, quantum, .. } = self;
            let line = &mut lines[tenant];
            if !line.granted {
                line.deficit += *quantum * line.weight;
                line.granted = true;
            }
            // Whoever cannot afford the cheapest job is not asked for its next one.
            if line.deficit >= BASE {
                let (next, need) = head((jobs, lanes), line, &audience);
                if line.deficit >= need {
                    line.deficit -= need;
                    self.fruitless = 0;
                    self.start(tenant, &next);
                    return Some(next.job);
                }
            }
            self.lines[tenant].granted = false;
            self.active.rotate(&mut self.lines);
            self.fruitless += 1;
            if self.fruitless >= self.active.len() {
                self.skip_rotations(&audience);
            }
        }
    }

    /// Nobody could afford its job: grants everybody the rotations that are still missing for the
    /// first one who can, at once. A walk over the active tenants, instead of many.
    fn skip_rotations(&mut self, audience: &impl Fn(u32) -> u32) {
        self.fruitless = 0;
        let missing = |tenant: u32| {
            let line = &self.lines[tenant];
            let (_, need) = head((&self.jobs, &self.lanes), line, audience);
            need.saturating_sub(line.deficit).div_ceil(self.quantum * line.weight)
        };
        let rotations = self.active.iter(&self.lines).map(missing).min().unwrap_or(1);
        let mut visit = self.active.front();
        for _ in 0..self.active.len() {
            let tenant = visit.expect("the list is as long as it says");
            let line = &mut self.lines[tenant];
            line.deficit += rotations.saturating_sub(1) * self.quantum * line.weight;
            self.active.rotate(&mut self.lines);
            visit = self.active.front();
        }
    }

    /// A job leaves its queue and its lane.
    fn start(&mut self, tenant: u32, next: &Next) {
        let Next { topic, job: index, is_batch } = *next;
        let Self { jobs, lanes, lines, active, .. } = self;
        let is_here = matches!(jobs[index].origin, Origin::Here);
        let lane = &mut lanes[topic];
        lane.slots -= u32::from(is_here);
        let list = if is_batch { &mut lane.batches } else { &mut lane.jobs };
        list.unlink(jobs, index);
        lane.batch_ran = is_batch;
        lane.pending -= 1;
        let has_more = lane.next().is_some();
        let line = &mut lines[tenant];
        if has_more {
            line.lanes.rotate(lanes);
        } else {
            line.lanes.unlink(lanes, topic);
            if line.lanes.is_empty() {
                active.unlink(lines, tenant);
            }
        }
        if is_here {
            self.forget_arrival(tenant, index);
        } else {
            self.note_taken(index);
        }
        self.end_turn_of_the_idle(tenant);
    }

    /// Takes the job that was picked.
    pub(crate) fn take(&mut self, picked: u32) -> Job {
        self.jobs.remove(picked)
    }
}

/// The job that a tenant runs next, and what it costs.
fn head(
    (jobs, lanes): (&Slab<Job>, &Slab<Lane>),
    line: &Line,
    audience: &impl Fn(u32) -> u32,
) -> (Next, u64) {
    let topic = line.lanes.front().expect("an active tenant has a lane");
    let (job, is_batch) = lanes[topic].next().expect("a runnable lane has a job");
    let cost = jobs[job].tally.bytes + BASE + DELIVERY * u64::from(audience(topic));
    (Next { topic, job, is_batch }, cost)
}

mod alone;
#[cfg(any(test, feature = "check"))]
mod check;
mod job;
mod parked;
mod remote;
mod room;
#[cfg(test)]
mod tests;
