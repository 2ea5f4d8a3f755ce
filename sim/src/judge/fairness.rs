//! Fairness: while two tenants have publishes to run, neither gets more of the work by weight than
//! deficit round robin allows. Also Jain's index, for expectations.

use super::{Finding, Found};
use crate::scenario::Range;
use sluicegate_core::Limits;

const NAME: &str = "fairness";

/// Compares the work that was done for each tenant.
#[derive(Debug, Default)]
pub struct Fairness {
    weights: Vec<u64>,
    /// What may lie between two tenants, by weight.
    slack: u64,
    /// Tenants that had publishes to run in the last turn, and the work done for each when this
    /// set last changed.
    busy: Vec<bool>,
    base: Vec<u64>,
    /// The time for which the index is wanted, and the work done at its begin and so far in it.
    window: Option<Range>,
    before: Vec<u64>,
    within: Vec<u64>,
}

/// What a shard did for a tenant, and whether there is more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantUse {
    /// Cost of what was sequenced: payload, 256 per batch, and 64 per delivery.
    pub cost: u64,
    /// Publishes wait to be run.
    pub busy: bool,
}

impl Fairness {
    /// A judge over tenants of these weights. `largest`: the most that one publish costs.
    pub fn new(weights: &[u32], largest: u64, limits: &Limits) -> Self {
        let count = weights.len();
        Self {
            weights: weights.iter().map(|weight| (*weight).into()).collect(),
            // Two of the largest and a quantum; one more of each is on its way when it is looked.
            slack: 4 * largest + 2 * limits.quantum_bytes,
            busy: vec![false; count],
            base: vec![0; count],
            ..Self::default()
        }
    }

    /// Wants the index over this time.
    pub fn over(&mut self, window: Range) {
        self.window = Some(window);
    }

    /// A turn ended. `judged`: nothing holds publishes but the rotation. Cost: O(tenants).
    pub fn turned(&mut self, now: u64, tenants: &[TenantUse], judged: bool) -> Found {
        if let Some((from, to)) = self.window {
            if now <= from || self.before.is_empty() {
                self.before = tenants.iter().map(|tenant| tenant.cost).collect();
            }
            if (from..=to).contains(&now) {
                let done = tenants.iter().zip(&self.before);
                self.within = done.map(|(tenant, before)| tenant.cost - before).collect();
            }
        }
        let busy = tenants.iter().map(|tenant| tenant.busy);
        if !busy.clone().eq(self.busy.iter().copied()) {
            self.busy = busy.collect();
            self.base = tenants.iter().map(|tenant| tenant.cost).collect();
            return Ok(());
        }
        if !judged {
            return Ok(());
        }
        let shares = tenants.iter().zip(&self.base).zip(&self.weights);
        let shares = shares.map(|((tenant, base), weight)| (tenant.cost - base) / weight);
        let running = shares.zip(&self.busy).filter(|(_, busy)| **busy).map(|(share, _)| share);
        let (least, most) =
            running.fold((u64::MAX, 0), |(least, most), share| (least.min(share), most.max(share)));
        if most.saturating_sub(least) <= self.slack {
            return Ok(());
        }
        let what = format!(
            "two tenants had publishes to run all the time; by weight one got {most} B of work and \
             the other {least} B, which may differ by {} B",
            self.slack
        );
        Err(Finding::safety(NAME, what))
    }

    /// Jain's index over the tenants' work by weight in the window, in thousandths.
    pub fn index(&self) -> Option<u64> {
        let shares = self.within.iter().zip(&self.weights);
        let shares: Vec<u64> = shares.map(|(work, weight)| work / weight).collect();
        jain(&shares)
    }
}

/// What work costs: payload, 256 per batch, and 64 per delivery of one.
pub const fn cost(bytes: u64, batches: u64, deliveries: u64) -> u64 {
    bytes + 256 * batches + 64 * deliveries
}

/// Jain's index in thousandths: 1000 when all are equal. `None` without shares.
pub fn jain(shares: &[u64]) -> Option<u64> {
    let sum: u128 = shares.iter().map(|share| u128::from(*share)).sum();
    let squares: u128 = shares.iter().map(|share| u128::from(*share).pow(2)).sum();
    if squares == 0 {
        return None;
    }
    u64::try_from(sum * sum * 1000 / (squares * shares.len() as u128)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge() -> Fairness {
        Fairness::new(&[1, 2], 1_000, &Limits { quantum_bytes: 1_024, ..Limits::default() })
    }

    fn turn(judge: &mut Fairness, now: u64, costs: [u64; 2]) -> Found {
        judge.turned(now, &costs.map(|cost| TenantUse { cost, busy: true }), true)
    }

    #[test]
    fn shares_by_weight_pass_and_a_tenant_that_gets_more_is_convicted() {
        let mut judge = judge();
        for step in 0..100 {
            turn(&mut judge, step, [step * 1_000, step * 2_000]).unwrap();
        }
        let slack = 4 * 1_000 + 2 * 1_024;
        turn(&mut judge, 101, [99_000 + slack, 198_000]).unwrap();
        turn(&mut judge, 102, [99_001 + slack, 198_000]).unwrap_err();
    }

    #[test]
    fn a_tenant_that_had_nothing_to_run_is_owed_nothing() {
        let mut judge = judge();
        let idle = [TenantUse { cost: 0, busy: false }, TenantUse { cost: 500_000, busy: true }];
        judge.turned(1, &idle, true).unwrap();
        turn(&mut judge, 2, [0, 500_000]).unwrap();
        turn(&mut judge, 3, [2_000, 504_000]).unwrap();
        judge.turned(4, &[TenantUse { cost: 90_000, busy: true }; 2], false).unwrap();
    }

    #[test]
    fn the_index_is_over_its_window() {
        let mut judge = judge();
        judge.over((10, 20));
        for (now, costs) in
            [(5, [900, 0]), (10, [1_000, 0]), (15, [1_500, 800]), (20, [2_000, 2_000])]
        {
            turn(&mut judge, now, costs).unwrap();
        }
        turn(&mut judge, 25, [2_000, 3_000]).unwrap();
        assert_eq!(judge.index(), Some(1000), "1,000 each by weight");
        assert_eq!([jain(&[1, 1]), jain(&[1, 0]), jain(&[0, 0])], [Some(1000), Some(500), None]);
    }
}
