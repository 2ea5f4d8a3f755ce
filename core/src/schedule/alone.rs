//! The schedule without the broker around it, for those who measure what a decision costs.

use super::{BASE, DELIVERY, Job, Schedule};
use crate::id::ConnId;
use crate::lease::Permit;
use crate::ledger::Tally;
use crate::limits::Limits;
use crate::verdict::Ack;

/// Tenants with one topic each, whose jobs cost a quantum each: every pick is another tenant's
/// turn.
#[derive(Debug)]
pub struct Rotation {
    schedule: Schedule,
}

impl Rotation {
    /// Tenants of equal weight with so many jobs each, all within `pub_queue_total`. Neighbours in
    /// the rotation are not neighbours in memory.
    pub fn new(limits: &Limits, tenants: u32, jobs: u32) -> Self {
        let mut schedule = Schedule::new(limits);
        for _ in 0..tenants {
            let tenant = schedule.add_tenant(1);
            schedule.add_lane(tenant);
        }
        // A step that has no divisor in common with the number of tenants meets all of them.
        let step = (tenants / 2 + 1..).find(|step| gcd(*step, tenants) == 1).unwrap_or(1);
        let tally = Tally { records: 1, bytes: limits.quantum_bytes - BASE - DELIVERY };
        let mut topic = 0;
        for _ in 0..tenants * jobs {
            let mut job = Job::new(ConnId::from_bits(0), topic, 0, tally, Ack::None);
            // Of no budget, so it holds nothing.
            job.permit = Some(Permit::new(topic, 0));
            schedule.push(job);
            topic = (topic + step) % tenants;
        }
        Self { schedule }
    }

    /// Picks the job whose turn it is. Returns its topic.
    pub fn pick(&mut self) -> Option<u32> {
        let picked = self.schedule.pick(|_| 1)?;
        Some(self.schedule.take(picked).topic)
    }
}

const fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
