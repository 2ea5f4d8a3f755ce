//! Jobs that came from other shards: they have no slot here, and nobody pushes them out.

use super::{Job, Origin, Schedule};
use alloc::vec::Vec;

impl Schedule {
    /// Queues a job in its topic's lane.
    pub(crate) fn push_remote(&mut self, job: Job) {
        let topic = job.topic;
        self.remote += 1;
        self.plain += u32::from(job.origin == Origin::Batch { plain: true });
        self.lanes[topic].pending += 1;
        let is_batch = matches!(job.origin, Origin::Batch { .. });
        let index = self.jobs.insert(job).0;
        let lane = &mut self.lanes[topic];
        let list = if is_batch { &mut lane.batches } else { &mut lane.jobs };
        list.push_back(&mut self.jobs, index);
        self.make_runnable(topic);
    }

    /// Takes all jobs of other shards, by topic and in order. Cost: O(topics + jobs).
    pub(crate) fn take_remote(&mut self) -> Vec<Job> {
        let foreign = |job: &Job| !matches!(job.origin, Origin::Here);
        let mut taken = Vec::new();
        for (topic, lane) in self.lanes.iter() {
            let jobs = lane.jobs.iter(&self.jobs).filter(|job| foreign(&self.jobs[*job]));
            taken.extend(jobs.map(|job| (topic, job)));
            taken.extend(lane.batches.iter(&self.jobs).map(|job| (topic, job)));
        }
        let take = |(topic, index): (u32, u32)| {
            let lane = &mut self.lanes[topic];
            let is_batch = matches!(self.jobs[index].origin, Origin::Batch { .. });
            let list = if is_batch { &mut lane.batches } else { &mut lane.jobs };
            list.unlink(&mut self.jobs, index);
            lane.pending -= 1;
            let tenant = lane.tenant;
            if lane.next().is_none() {
                self.make_idle(topic);
            }
            self.note_taken(index);
            self.end_turn_of_the_idle(tenant);
            self.jobs.remove(index)
        };
        taken.into_iter().map(take).collect()
    }

    /// A job of another shard goes.
    pub(super) fn note_taken(&mut self, index: u32) {
        let plain = matches!(self.jobs[index].origin, Origin::Batch { plain: true });
        self.remote -= 1;
        self.plain -= u32::from(plain);
    }

    /// Batches of other shards that no credit bounds.
    pub(crate) const fn plain_batches(&self) -> u32 {
        self.plain
    }

    /// Jobs of other shards.
    pub(crate) const fn remote(&self) -> u32 {
        self.remote
    }
}
