//! Who gets a slot, and who makes way when none is free.

use super::{Job, Origin, Schedule};
use crate::id::ConnId;
use crate::lease::Permit;
use crate::list::List;
use crate::peers::OfSource;
use crate::time::Instant;
use crate::verdict::{Ack, Place, Reason, Refusal};

/// Advice on when a slot may be free.
const RETRY_MS: u16 = 50;

/// How it stands with the topics of a publish or of a call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    /// One of them is held.
    held: bool,
    /// Somebody waits at one of them.
    behind: bool,
}

impl Schedule {
    /// How it stands with these topics. Cost: O(topics).
    pub(crate) fn standing(&self, topics: impl Iterator<Item = u32>) -> Standing {
        topics.map(|topic| &self.lanes[topic]).fold(Standing::default(), |all, lane| Standing {
            held: all.held || lane.held != 0,
            behind: all.behind || !lane.waiting.is_empty(),
        })
    }

    /// Whether `jobs` fresh jobs of a tenant get slots now, if need be by pushing others out.
    /// Nobody overtakes who waits for the same topic or for room that the tenant shares.
    /// Of the tenant's own jobs those that are `spared` are not pushed out for it.
    pub(crate) fn room(
        &self,
        tenant: u32,
        topics: Standing,
        jobs: u32,
        spared: impl Fn(&Job) -> bool,
    ) -> Result<(), Refusal> {
        let line = &self.lines[tenant];
        let free = self.total - self.queued;
        let active = self.active_with(tenant);
        let due = || line.queued.len() + jobs <= self.guarantee(active);
        let missing = jobs.saturating_sub(free) as usize;
        let reclaims =
            || !topics.held && self.stuck(tenant, spared).take(missing).count() == missing;
        if line.waiting.is_empty()
            && !topics.behind
            && (missing == 0 || reclaims() || (due() && self.can_yield(active)))
        {
            return Ok(());
        }
        Err(Refusal::after(Place::Schedule, Reason::QueueFull, RETRY_MS))
    }

    /// Tenants that have a queued or parked job, once this one has.
    pub(crate) fn active_with(&self, tenant: u32) -> u32 {
        let line = &self.lines[tenant];
        self.present + u32::from(line.queued.is_empty() && line.parked == 0)
    }

    /// Whether somebody can make way, while no slot is free, for one of `active` tenants that has
    /// less than its guarantee. With more tenants than slots not each can have one: somebody must
    /// have two.
    const fn can_yield(&self, active: u32) -> bool {
        active <= self.total || self.queued > self.busy.len()
    }

    /// How many tenants without a job have a right to a slot that others have taken.
    pub(super) const fn entitled(&self) -> u32 {
        if self.can_yield(self.present) { self.bare.len() } else { 0 }
    }

    /// What each of `active` tenants may always have queued.
    fn guarantee(&self, active: u32) -> u32 {
        self.depth.min(self.total / active).max(1)
    }

    /// A tenant's jobs that have slots and cannot run, but for those that are spared.
    fn stuck(&self, tenant: u32, spared: impl Fn(&Job) -> bool) -> impl Iterator<Item = u32> {
        let lanes = self.lines[tenant].stuck.iter(&self.lanes);
        let jobs = lanes.flat_map(|topic| self.lanes[topic].jobs.iter(&self.jobs));
        jobs.filter(move |job| {
            let job = &self.jobs[*job];
            job.origin == Origin::Here && !spared(job)
        })
    }

    /// The job that makes way for one of `tenant`, for which [`room`](Self::room) said yes.
    /// Cost: O(tenants with queued jobs + jobs of held topics), at most `pub_queue_total`; only
    /// when the queue is full.
    pub(crate) fn victim(&self, tenant: u32, spared: impl Fn(&Job) -> bool) -> Option<u32> {
        let guarantee = self.guarantee(self.active_with(tenant));
        let due = self.lines[tenant].queued.len() < guarantee;
        let others = if due { self.victim_by_jobs(tenant) } else { None };
        others.or_else(|| self.newest_stuck(tenant, spared))
    }

    /// The newest job of the tenant with the most queued jobs, which makes room for `tenant`.
    pub(super) fn victim_by_jobs(&self, tenant: u32) -> Option<u32> {
        let guarantee = self.guarantee(self.active_with(tenant));
        let above = |other: &u32| self.lines[*other].queued.len() > guarantee;
        let others = self.busy.iter(&self.lines).filter(above);
        self.newest(first_max(others, |other| u64::from(self.lines[other].queued.len()))?)
    }

    /// The newest job of the tenant furthest above `floor`; `used` is what a tenant has in flight.
    /// Cost: as [`victim`](Self::victim); only when bytes are missing.
    pub(crate) fn victim_by_bytes(&self, floor: u64, used: impl Fn(u32) -> u64) -> Option<u32> {
        let above = |other: &u32| used(*other) > floor;
        let others = self.busy.iter(&self.lines).filter(above);
        self.newest(first_max(others, &used)?)
    }

    /// Bytes that pushing out tenants above `floor` gives for sure.
    pub(crate) fn yielding(&self, floor: u64, used: impl Fn(u32) -> u64) -> u64 {
        let surplus = |other: u32| used(other).saturating_sub(floor).min(self.lines[other].bytes);
        self.busy.iter(&self.lines).map(surplus).sum()
    }

    /// The job that a tenant misses least: of what cannot run, or else of all.
    pub(super) fn newest(&self, tenant: u32) -> Option<u32> {
        self.newest_stuck(tenant, |_| false).or_else(|| self.lines[tenant].queued.back())
    }

    /// Of the held topic that sits on the most slots of a tenant, the newest job that is not
    /// spared.
    fn newest_stuck(&self, tenant: u32, spared: impl Fn(&Job) -> bool) -> Option<u32> {
        let newest = |topic: u32| {
            let mut newest_first = self.lanes[topic].jobs.iter_back(&self.jobs);
            newest_first.find(|job| {
                let job = &self.jobs[*job];
                job.origin == Origin::Here && !spared(job)
            })
        };
        let lanes = self.lines[tenant].stuck.iter(&self.lanes);
        let lanes = lanes.filter(|topic| newest(*topic).is_some());
        newest(first_max(lanes, |topic| u64::from(self.lanes[topic].slots))?)
    }

    /// Any queued job.
    pub(crate) fn any_queued(&self) -> Option<u32> {
        self.busy.front().and_then(|tenant| self.newest(tenant))
    }

    /// A queued job is pushed out for good.
    pub(crate) fn evict(&mut self, index: u32) -> Job {
        let tenant = self.leave_queue(index);
        self.end_turn_of_the_idle(tenant);
        let job = self.jobs.remove(index);
        self.lanes[job.topic].pending -= 1;
        job
    }

    /// A queued job is pushed out and waits again, before all others of its source and its tenant;
    /// it gives its permit back.
    pub(crate) fn demote(
        &mut self,
        index: u32,
        (id, source): (ConnId, &mut List<OfSource>),
        now: Instant,
    ) -> Permit {
        let tenant = self.leave_queue(index);
        let job = &mut self.jobs[index];
        job.source = id;
        let permit = job.permit.take().expect("a queued job has its permit");
        if job.ack == Ack::Wait {
            self.deadlines.arm(&mut self.jobs, index, now);
        }
        if let Some(other) = source.front() {
            self.stand_down(other);
        }
        source.push_front(&mut self.jobs, index);
        self.note_parked(tenant);
        self.stand_first(index);
        permit
    }

    /// Takes a queued job out of its lane and its tenant's queue. Returns the tenant.
    fn leave_queue(&mut self, index: u32) -> u32 {
        let topic = self.jobs[index].topic;
        let lane = &mut self.lanes[topic];
        lane.jobs.unlink(&mut self.jobs, index);
        lane.slots -= 1;
        let tenant = lane.tenant;
        if lane.next().is_none() {
            self.make_idle(topic);
        }
        self.update_side(topic);
        self.forget_arrival(tenant, index);
        tenant
    }
}

/// The first of those with the greatest number.
fn first_max(items: impl Iterator<Item = u32>, number: impl Fn(u32) -> u64) -> Option<u32> {
    let best = |best: Option<(u32, u64)>, item: u32| {
        let own = number(item);
        if best.is_some_and(|(_, most)| most >= own) { best } else { Some((item, own)) }
    };
    items.fold(None, best).map(|(item, _)| item)
}
