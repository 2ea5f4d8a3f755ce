//! Recounts jobs and lists, and compares. For checks and tests.

use super::{Hold, Job, Line, Origin, Schedule};
use crate::lease::Permit;
use crate::ledger::{Broken, same};

impl Schedule {
    /// The parked jobs' tallies and permits, by tenant. For checks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Job)> {
        self.jobs.iter().map(|(_, job)| (self.lanes[job.topic].tenant, job))
    }

    /// The first parked job of each tenant. For checks.
    pub(crate) fn parked_fronts(&self) -> impl Iterator<Item = (u32, &Job)> {
        let front = |(tenant, line): (u32, &Line)| line.parked.front().map(|job| (tenant, job));
        self.lines.iter().filter_map(front).map(|(tenant, job)| (tenant, &self.jobs[job]))
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
            present += u64::from(jobs > 0 || !line.parked.is_empty());
            let runnable = !line.lanes.is_empty();
            same("schedule: tenant in rotation", line.active.is_linked().into(), runnable.into())?;
            let waits = !line.parked.is_empty();
            same("schedule: tenant in parked line", line.waiting.is_linked().into(), waits.into())?;
        }
        same("schedule: tenants with jobs", self.present.into(), present)
    }

    /// The deficit of a tenant. For tests.
    #[cfg(test)]
    pub(super) fn deficit(&self, tenant: u32) -> u64 {
        self.lines[tenant].deficit
    }
}
