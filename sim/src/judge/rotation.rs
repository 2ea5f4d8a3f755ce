//! Rotation: while two tenants both have work that nothing holds, neither gets further ahead than
//! its weight, one quantum and the largest jobs explain.

use super::{Finding, Found};
use sluicegate_core::Tally;

const NAME: &str = "rotation";

/// Cost of a publish besides its bytes, and of a delivery, as the rotation counts.
const PUBLISH: u64 = 256;
const DELIVERY: u64 = 64;

/// What one tenant got.
#[derive(Clone, Debug, Default)]
struct Share {
    weight: u64,
    /// The cost of its dearest publish so far, and records of the largest.
    dearest: u64,
    records: u64,
    /// Deliveries of one publish, at most.
    audience: u64,
    sequenced: Tally,
    /// Had work before the last input.
    busy: bool,
}

/// What a tenant looks like after an input.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// All that it has had sequenced.
    pub sequenced: Tally,
    /// Whether it has work left, all of which could run.
    pub busy: bool,
}

/// What one tenant got since another one had work beside it: least and most.
#[derive(Clone, Copy, Debug, Default)]
struct Got {
    least: u64,
    most: u64,
}

/// Follows the tenants of one shard, pair by pair.
#[derive(Debug, Default)]
pub struct Rotation {
    quantum: u64,
    shares: Vec<Share>,
    /// By pair: what each of the two got while both were busy.
    pairs: Vec<Vec<[Got; 2]>>,
}

impl Rotation {
    /// A judge of a shard with this quantum.
    pub fn new(quantum: u64) -> Self {
        Self { quantum, ..Self::default() }
    }

    /// One more tenant.
    pub fn tenant(&mut self, weight: u64) {
        self.pairs.push(vec![[Got::default(); 2]; self.shares.len()]);
        self.shares.push(Share { weight: weight.clamp(1, 1_000), ..Share::default() });
    }

    /// A tenant offered a publish.
    pub fn offered(&mut self, tenant: usize, tally: Tally) {
        let Some(share) = self.shares.get_mut(tenant) else { return };
        share.dearest = share.dearest.max(tally.bytes + PUBLISH);
        share.records = share.records.max(tally.records);
    }

    /// A topic of a tenant has this many subscriptions.
    pub fn audience(&mut self, tenant: usize, audience: u32) {
        let Some(share) = self.shares.get_mut(tenant) else { return };
        share.audience = share.audience.max(audience.into());
    }

    /// The state of every tenant after an input. Cost: O(tenants squared).
    pub fn turned(&mut self, turns: &[Turn]) -> Found {
        let got: Vec<Got> = self.shares.iter_mut().zip(turns).map(Share::turn).collect();
        let both: Vec<bool> =
            self.shares.iter().zip(turns).map(|(share, turn)| share.busy && turn.busy).collect();
        for (one, others) in self.pairs.iter_mut().enumerate() {
            for (other, pair) in others.iter_mut().enumerate() {
                if !(both.get(one) == Some(&true) && both.get(other) == Some(&true)) {
                    *pair = [Got::default(); 2];
                    continue;
                }
                for (sum, got) in pair.iter_mut().zip([got[one], got[other]]) {
                    sum.least += got.least;
                    sum.most += got.most;
                }
                let shares = [&self.shares[one], &self.shares[other]];
                for (ahead, behind) in [(0, 1), (1, 0)] {
                    let lead = pair[ahead].least / shares[ahead].weight;
                    let rest = pair[behind].most.div_ceil(shares[behind].weight);
                    let most = 2 * self.quantum + shares.iter().map(|s| s.lead()).sum::<u64>();
                    if lead > rest + most {
                        let lead = lead - rest;
                        let what = format!(
                            "a tenant is {lead} ahead of another with work, in cost by weight; \
                             at most {most} is fair"
                        );
                        return Err(Finding::safety(NAME, what));
                    }
                }
            }
        }
        for (share, turn) in self.shares.iter_mut().zip(turns) {
            share.busy = turn.busy;
        }
        Ok(())
    }
}

impl Share {
    fn turn((share, turn): (&mut Self, &Turn)) -> Got {
        let Tally { records, bytes } = turn.sequenced;
        let (records, bytes) = (records - share.sequenced.records, bytes - share.sequenced.bytes);
        share.sequenced = turn.sequenced;
        let jobs = records.div_ceil(share.records.max(1));
        let most = bytes + records * (PUBLISH + DELIVERY * share.audience);
        Got { least: bytes + jobs * PUBLISH, most }
    }

    /// Twice its largest job, by weight.
    fn lead(&self) -> u64 {
        2 * (self.dearest + DELIVERY * self.audience).div_ceil(self.weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two tenants with work; `turns` publishes of 1,000 bytes each, by whose turn it is.
    fn run(weights: [u64; 2], turns: impl Iterator<Item = usize>) -> Found {
        let mut judge = Rotation::new(1_024);
        let job = Tally { records: 1, bytes: 1_000 };
        for (tenant, weight) in weights.into_iter().enumerate() {
            judge.tenant(weight);
            judge.offered(tenant, job);
        }
        let mut sequenced = [Tally::ZERO; 2];
        for tenant in turns {
            judge.turned(&sequenced.map(|sequenced| Turn { sequenced, busy: true }))?;
            sequenced[tenant] += job;
        }
        Ok(())
    }

    #[test]
    fn turns_by_weight_pass_and_a_monopoly_does_not() {
        run([1, 1], (0..1_000).map(|n| n % 2)).unwrap();
        run([1, 3], (0..1_000).map(|n| usize::from(n % 4 > 0))).unwrap();
        run([1, 1], std::iter::repeat_n(0, 20)).unwrap_err();
        run([1, 3], (0..1_000).map(|n| n % 2)).unwrap_err();
    }

    #[test]
    fn who_had_no_work_is_owed_nothing() {
        let mut judge = Rotation::new(1_024);
        judge.tenant(1);
        judge.tenant(1);
        for n in 0..1_000 {
            let busy = Turn { sequenced: Tally { records: n, bytes: n * 1_000 }, busy: true };
            let idle = Turn { sequenced: Tally::ZERO, busy: n % 8 == 0 };
            judge.turned(&[busy, idle]).unwrap();
        }
    }
}
