//! Publishes that wait for room: one line per tenant, served in rotation between tenants.

use super::{Job, Schedule};
use crate::lease::Permit;
use crate::list::List;
use crate::peers::OfSource;
use crate::time::Instant;
use crate::verdict::Ack;

impl Schedule {
    /// Parks a job; with `Ack::Wait` its deadline starts.
    pub(crate) fn park(&mut self, job: Job, source: &mut List<OfSource>, now: Instant) -> u32 {
        debug_assert!(job.permit.is_none(), "a parked job holds nothing");
        let timed = job.ack == Ack::Wait;
        let topic = job.topic;
        self.lanes[topic].pending += 1;
        let index = self.jobs.insert(job).0;
        if timed {
            self.waits.arm(&mut self.jobs, index, now);
        }
        source.push_back(&mut self.jobs, index);
        let tenant = self.lanes[topic].tenant;
        self.present = self.active_with(tenant);
        self.lines[tenant].parked.push_back(&mut self.jobs, index);
        self.enter_parked(tenant);
        index
    }

    /// A job was put into its tenant's parked line.
    pub(super) fn enter_parked(&mut self, tenant: u32) {
        let line = &self.lines[tenant];
        if !line.waiting.is_linked() {
            self.parked.push_back(&mut self.lines, tenant);
        }
        self.parked_jobs += 1;
    }

    /// The parked job whose turn it is, if any.
    pub(crate) fn next_parked(&self) -> Option<u32> {
        self.parked.front().and_then(|tenant| self.lines[tenant].parked.front())
    }

    /// How many tenants have parked jobs.
    pub(crate) const fn parked_tenants(&self) -> u32 {
        self.parked.len()
    }

    /// The turn goes to the next tenant with parked jobs.
    pub(crate) fn rotate_parked(&mut self) {
        self.parked.rotate(&mut self.lines);
    }

    /// A parked job got its permit: it is queued now.
    pub(crate) fn unpark(&mut self, index: u32, source: &mut List<OfSource>, permit: Permit) {
        self.leave_parked(index, source);
        self.jobs[index].permit = Some(permit);
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
        self.waits.disarm(&mut self.jobs, index);
        source.unlink(&mut self.jobs, index);
        let tenant = self.lanes[self.jobs[index].topic].tenant;
        let line = &mut self.lines[tenant];
        line.parked.unlink(&mut self.jobs, index);
        if line.parked.is_empty() {
            self.parked.unlink(&mut self.lines, tenant);
            self.note_absent(tenant);
        }
        self.parked_jobs -= 1;
    }

    /// The next parked job whose wait is over.
    pub(crate) fn due(&mut self, now: Instant) -> Option<u32> {
        self.waits.due(&mut self.jobs, now)
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.waits.next(&self.jobs)
    }
}
