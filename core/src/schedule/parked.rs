//! Publishes that wait for room.
//!
//! Of each source only the first one stands somewhere, and only when its connection has bytes for
//! it: in the lane of its topic. The lanes of a tenant take turns, and the tenants; a held lane and
//! what waits there is passed over. So whoever is at the front of a line waits for room that is
//! shared, and nobody waits behind somebody who waits for something of his own.

use super::{Job, Schedule};
use crate::lease::Permit;
use crate::list::List;
use crate::peers::OfSource;
use crate::time::Instant;
use crate::verdict::Ack;

impl Schedule {
    /// Parks a job; with `Ack::Wait` its deadline starts. It [`stand`](Self::stand)s nowhere yet.
    pub(crate) fn park(&mut self, job: Job, source: &mut List<OfSource>, now: Instant) -> u32 {
        debug_assert!(job.permit.is_none(), "a parked job holds nothing");
        let timed = job.ack == Ack::Wait;
        let lane = &mut self.lanes[job.topic];
        lane.pending += 1;
        let tenant = lane.tenant;
        let index = self.jobs.insert(job).0;
        if timed {
            self.deadlines.arm(&mut self.jobs, index, now);
        }
        source.push_back(&mut self.jobs, index);
        self.note_parked(tenant);
        index
    }

    /// A job of a tenant was parked.
    pub(super) fn note_parked(&mut self, tenant: u32) {
        self.note_present(tenant);
        self.lines[tenant].parked += 1;
        self.parked_jobs += 1;
    }

    /// The parked jobs of a source.
    #[cfg(any(test, feature = "check"))]
    pub(crate) fn parked_of(&self, source: &List<OfSource>) -> impl Iterator<Item = u32> {
        source.iter(&self.jobs)
    }

    /// Whether a parked job stands in the lane of its topic.
    pub(crate) fn stands(&self, index: u32) -> bool {
        self.jobs[index].link.is_linked()
    }

    /// A parked job is the first one of its source, and its connection has bytes for it: it stands
    /// in the lane of its topic, behind those who came there before. The caller serves those who
    /// are parked next, unless it had no room for this one just now.
    pub(crate) fn stand(&mut self, index: u32) {
        let topic = self.jobs[index].topic;
        self.lanes[topic].waiting.push_back(&mut self.jobs, index);
        self.update_side(topic);
        self.unserved |= self.lines[self.lanes[topic].tenant].reclaims.is_linked();
    }

    /// A job that was pushed out stands before all others of its topic and its tenant.
    pub(super) fn stand_first(&mut self, index: u32) {
        let topic = self.jobs[index].topic;
        let lane = &mut self.lanes[topic];
        lane.waiting.push_front(&mut self.jobs, index);
        let (tenant, held) = (lane.tenant, lane.held != 0);
        if !held {
            let line = &mut self.lines[tenant];
            line.waiting.unlink_if(&mut self.lanes, topic);
            line.waiting.push_front(&mut self.lanes, topic);
        }
        self.update_side(topic);
    }

    /// A parked job is not the first one of its source any more, or not parked.
    pub(super) fn stand_down(&mut self, index: u32) {
        let topic = self.jobs[index].topic;
        self.lanes[topic].waiting.unlink_if(&mut self.jobs, index);
        self.update_side(topic);
    }

    /// A lane is held now, or is not any more.
    pub(super) fn change_sides(&mut self, topic: u32, was_held: bool) {
        let line = &mut self.lines[self.lanes[topic].tenant];
        if was_held {
            line.stuck.unlink_if(&mut self.lanes, topic);
        } else {
            line.waiting.unlink_if(&mut self.lanes, topic);
        }
        self.update_side(topic);
        self.unserved |= self.lines[self.lanes[topic].tenant].waits.is_linked();
    }

    /// Keeps a lane, and its tenant, in the lists where they belong.
    pub(super) fn update_side(&mut self, topic: u32) {
        let lane = &self.lanes[topic];
        let (tenant, linked) = (lane.tenant, lane.side.is_linked());
        let line = &mut self.lines[tenant];
        match (lane.held != 0, lane.slots > 0, !lane.waiting.is_empty()) {
            (true, true, _) if !linked => line.stuck.push_back(&mut self.lanes, topic),
            (true, false, _) => line.stuck.unlink_if(&mut self.lanes, topic),
            (false, _, true) if !linked => line.waiting.push_back(&mut self.lanes, topic),
            (false, _, false) => line.waiting.unlink_if(&mut self.lanes, topic),
            _ => {}
        }
        let waits = !line.waiting.is_empty();
        let reclaims = waits && !line.stuck.is_empty();
        let turns = if line.queued.is_empty() { &mut self.bare } else { &mut self.waits };
        match (waits, line.waits.is_linked()) {
            (true, false) => turns.push_back(&mut self.lines, tenant),
            (false, true) => turns.unlink(&mut self.lines, tenant),
            _ => {}
        }
        match (reclaims, self.lines[tenant].reclaims.is_linked()) {
            (true, false) => self.reclaims.push_back(&mut self.lines, tenant),
            (false, true) => self.reclaims.unlink(&mut self.lines, tenant),
            _ => {}
        }
    }

    /// The parked job whose turn it is, if any, and its tenant; its turn is over then. `passed`:
    /// how many had no room since somebody had. With a free slot first of tenants that have none,
    /// then of the others; without one only of tenants that have jobs of held topics, and of those
    /// that have no job at all, as far as others have more than their guarantee.
    pub(crate) fn next_parked(&mut self, passed: u32) -> Option<(u32, u32)> {
        let has_slot = self.has_slot();
        let tenant = if !has_slot && passed < self.reclaims.len() {
            self.reclaims.rotated(&mut self.lines)?
        } else if has_slot && passed >= self.bare.len() {
            self.waits.rotated(&mut self.lines)?
        } else {
            self.bare.rotated(&mut self.lines)?
        };
        Some((tenant, self.first_waiting(tenant)?))
    }

    /// The parked job of a tenant whose turn it is, if any.
    pub(super) fn first_waiting(&self, tenant: u32) -> Option<u32> {
        let topic = self.lines[tenant].waiting.front()?;
        self.lanes[topic].waiting.front()
    }

    /// How many tenants [`next_parked`](Self::next_parked) can name.
    pub(crate) const fn parked_tenants(&self) -> u32 {
        match self.has_slot() {
            true => self.bare.len() + self.waits.len(),
            false => self.reclaims.len() + self.entitled(),
        }
    }

    /// Whether somebody may have room since [`note_served`](Self::note_served).
    pub(crate) const fn is_unserved(&self) -> bool {
        self.unserved
    }

    /// Somebody may have room.
    pub(crate) const fn note_unserved(&mut self) {
        self.unserved = true;
    }

    /// Nobody who is parked has room.
    pub(crate) const fn note_served(&mut self) {
        self.unserved = false;
    }

    /// A parked job got its permit: it is queued now, and it is the turn of another topic.
    pub(crate) fn unpark(&mut self, index: u32, source: &mut List<OfSource>, permit: Permit) {
        let job = &mut self.jobs[index];
        job.permit = Some(permit);
        let topic = job.topic;
        let tenant = self.lanes[topic].tenant;
        self.lines[tenant].waiting.rotate(&mut self.lanes);
        self.leave_parked(index, source);
        self.enqueue(index);
    }

    /// A parked job ends without room.
    pub(crate) fn cancel(&mut self, index: u32, source: &mut List<OfSource>) -> Job {
        self.leave_parked(index, source);
        let job = self.jobs.remove(index);
        let lane = &mut self.lanes[job.topic];
        lane.pending -= 1;
        let tenant = lane.tenant;
        self.end_turn_of_the_idle(tenant);
        job
    }

    fn leave_parked(&mut self, index: u32, source: &mut List<OfSource>) {
        self.deadlines.disarm(&mut self.jobs, index);
        source.unlink(&mut self.jobs, index);
        self.stand_down(index);
        let tenant = self.lanes[self.jobs[index].topic].tenant;
        self.lines[tenant].parked -= 1;
        self.note_absent(tenant);
        self.parked_jobs -= 1;
    }

    /// The next parked job whose wait is over.
    pub(crate) fn due(&mut self, now: Instant) -> Option<u32> {
        self.deadlines.due(&mut self.jobs, now)
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next(&self.jobs)
    }
}
