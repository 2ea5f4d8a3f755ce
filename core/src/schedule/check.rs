//! Recounts jobs and lists, and compares. For checks and tests.

use super::{Hold, Job, Line, Origin, Schedule};
use crate::lease::Permit;
use crate::ledger::{Broken, same};

impl Schedule {
    /// The parked jobs' tallies and permits, by tenant. For checks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Job)> {
        self.jobs.iter().map(|(_, job)| (self.lanes[job.topic].tenant, job))
    }

    /// Of each tenant the parked job whose turn it is, and whether others would make way for it.
    /// For checks.
    pub(crate) fn parked_fronts(&self) -> impl Iterator<Item = (u32, bool)> {
        self.lines.iter().filter_map(|(tenant, line)| {
            let job = self.first_waiting(tenant)?;
            let makes_way = !line.stuck.is_empty() || line.queued.is_empty() && self.entitled() > 0;
            Some((job, makes_way))
        })
    }

    pub(crate) fn check(&self) -> Result<(), Broken> {
        let is_here = |job: &Job| job.origin == Origin::Here;
        let is_parked = |job: &Job| is_here(job) && job.permit.is_none();
        let remote = self.jobs.iter().filter(|(_, job)| !is_here(job)).count() as u64;
        same("schedule: jobs of other shards", self.remote.into(), remote)?;
        let parked = self.jobs.iter().filter(|(_, job)| is_parked(job)).count() as u64;
        same("schedule: parked jobs", u64::from(self.parked_jobs), parked)?;
        let queued = u64::from(self.jobs.len()) - parked - remote;
        same("schedule: queued jobs", u64::from(self.queued), queued)?;
        for (topic, lane) in self.lanes.iter() {
            let publishes = lane.held == 0 && !lane.jobs.is_empty();
            let batches = lane.held & Hold::Block as u8 == 0 && !lane.batches.is_empty();
            let runnable = publishes || batches;
            same("schedule: lane in the rotation", lane.link.is_linked().into(), runnable.into())?;
            let pending = self.jobs.iter().filter(|(_, job)| job.topic == topic).count() as u64;
            same("schedule: jobs of a lane", lane.pending.into(), pending)?;
            for list in [&lane.jobs, &lane.batches] {
                let own = list.iter(&self.jobs).filter(|job| self.jobs[*job].topic == topic);
                same("schedule: lane order", list.len().into(), own.count() as u64)?;
            }
        }
        let mut present = 0;
        for (tenant, line) in self.lines.iter() {
            let own = self.lanes.iter().filter(|(_, lane)| lane.tenant == tenant);
            let jobs = own.flat_map(|(_, lane)| lane.jobs.iter(&self.jobs));
            let jobs = jobs.filter(|job| is_here(&self.jobs[*job])).count() as u64;
            same("schedule: tenant's queued jobs", line.queued.len().into(), jobs)?;
            let arrived = line.queued.iter(&self.jobs).map(|job| &self.jobs[job]);
            let bytes = arrived.filter_map(|job| job.permit.as_ref()).map(Permit::cost).sum();
            same("schedule: tenant's queued bytes", line.bytes, bytes)?;
            same("schedule: tenant is busy", line.busy.is_linked().into(), (jobs > 0).into())?;
            let own = |job: &&Job| self.lanes[job.topic].tenant == tenant && is_parked(job);
            let parked = self.jobs.iter().map(|(_, job)| job).filter(own).count() as u64;
            same("schedule: tenant's parked jobs", line.parked.into(), parked)?;
            present += u64::from(jobs + parked > 0);
            let runnable = !line.lanes.is_empty();
            same("schedule: tenant in rotation", line.active.is_linked().into(), runnable.into())?;
            self.check_sides(tenant, line)?;
        }
        same("schedule: tenants with jobs", self.present.into(), present)
    }

    /// Who waits for room that is shared, and who sits on slots without being able to run.
    fn check_sides(&self, tenant: u32, line: &Line) -> Result<(), Broken> {
        let (mut waiting, mut stuck) = (0, 0);
        for (topic, lane) in self.lanes.iter().filter(|(_, lane)| lane.tenant == tenant) {
            let own = |job: u32| self.jobs[job].topic == topic && self.jobs[job].permit.is_none();
            let parked = lane.waiting.iter(&self.jobs).filter(|job| own(*job)).count() as u64;
            same("schedule: lane's waiting jobs", lane.waiting.len().into(), parked)?;
            let is_here = |job: &u32| self.jobs[*job].origin == Origin::Here;
            let slots = lane.jobs.iter(&self.jobs).filter(is_here).count() as u64;
            same("schedule: lane's slots", lane.slots.into(), slots)?;
            waiting += u64::from(lane.held == 0 && parked > 0);
            stuck += u64::from(lane.held != 0 && slots > 0);
        }
        same("schedule: lanes that wait", line.waiting.len().into(), waiting)?;
        same("schedule: lanes that are stuck", line.stuck.len().into(), stuck)?;
        let (waits, reclaims) = (waiting > 0, waiting > 0 && stuck > 0);
        same("schedule: tenant waits", line.waits.is_linked().into(), waits.into())?;
        let turns = if line.queued.is_empty() { &self.bare } else { &self.waits };
        let listed = turns.iter(&self.lines).any(|other| other == tenant);
        same("schedule: tenant waits with its like", listed.into(), waits.into())?;
        same("schedule: tenant reclaims", line.reclaims.is_linked().into(), reclaims.into())
    }

    /// The deficit of a tenant. For tests.
    #[cfg(test)]
    pub(super) fn deficit(&self, tenant: u32) -> u64 {
        self.lines[tenant].deficit
    }
}
