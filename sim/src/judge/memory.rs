//! Memory: queues are within their limits, the shards' leases within the budget, and what was
//! held is free again when nothing waits any more.

use super::{Finding, Found};
use sluicegate_core::Policy;
use std::collections::BTreeMap;

const NAME: &str = "memory";

/// Remembers what an idle shard held.
#[derive(Debug, Default)]
pub struct MemoryJudge {
    /// By shard, and by what is in its tables: the bytes it held while nothing waited.
    idle: BTreeMap<(u32, Tables), u64>,
}

/// What is in a shard's tables: connections, subscriptions, outlets, topics, bytes of their names.
pub type Tables = [u64; 5];

/// What waits for one outlet, and what may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// What a full queue does.
    pub policy: Policy,
    /// Batches not yet handed out.
    pub batches: u64,
    /// Their cost.
    pub bytes: u64,
    /// The limits of both.
    pub most: (u64, u64),
    /// The cost of the largest batch there is.
    pub largest: u64,
}

impl MemoryJudge {
    /// An outlet's queue: within its limits, or one batch; under `block` one batch beyond.
    pub fn queue(waiting: &Waiting) -> Found {
        let Waiting { policy, batches, bytes, most, largest } = *waiting;
        let more = if policy == Policy::Block { largest } else { 0 };
        let fits = batches <= most.0 && bytes <= most.1.saturating_add(more);
        if fits || batches <= 1 {
            return Ok(());
        }
        let what = format!(
            "{batches} batches and {bytes} B wait for one subscriber, the limits are {} and {} B",
            most.0, most.1
        );
        Err(Finding::safety(NAME, what))
    }

    /// The loans of all shards, what each keeps besides, and what the pool would lend.
    pub fn leases(loans: &[u64], floor: u64, (lendable, budget): (u64, u64)) -> Found {
        let sum: u64 = loans.iter().map(|loan| loan + floor).sum();
        if sum + lendable <= budget {
            return Ok(());
        }
        let what = format!(
            "the shards have leases of {sum} B and the pool {lendable} B, the budget is {budget} B"
        );
        Err(Finding::safety(NAME, what))
    }

    /// Whether a shard on which nothing waits held the same before.
    pub fn is_usual(&self, shard: u32, tables: Tables, held: u64) -> bool {
        self.idle.get(&(shard, tables)) == Some(&held)
    }

    /// A shard on which nothing waits: with the same tables it holds what it held before.
    pub fn idle(&mut self, shard: u32, tables: Tables, held: u64) -> Found {
        let before = *self.idle.entry((shard, tables)).or_insert(held);
        if before == held {
            return Ok(());
        }
        let what = format!(
            "nothing waits on shard {shard} and it holds {held} B; with as many connections, \
             subscriptions and topics it held {before} B before"
        );
        Err(Finding::safety(NAME, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_over_its_limit_is_convicted() {
        let full = Waiting {
            policy: Policy::DropOld,
            batches: 4,
            bytes: 400,
            most: (4, 400),
            largest: 100,
        };
        let good = [
            full,
            Waiting { batches: 1, bytes: 9_000, ..full },
            Waiting { policy: Policy::Block, bytes: 500, ..full },
        ];
        good.iter().for_each(|waiting| MemoryJudge::queue(waiting).unwrap());
        for waiting in [
            Waiting { batches: 5, ..full },
            Waiting { bytes: 401, ..full },
            Waiting { policy: Policy::Block, bytes: 501, ..full },
        ] {
            MemoryJudge::queue(&waiting).unwrap_err();
        }
    }

    #[test]
    fn leases_over_the_budget_are_convicted() {
        MemoryJudge::leases(&[10, 0], 40, (10, 100)).unwrap();
        MemoryJudge::leases(&[11, 0], 40, (10, 100)).unwrap_err();
    }

    #[test]
    fn bytes_that_nobody_gives_back_are_convicted() {
        let mut judge = MemoryJudge::default();
        judge.idle(0, [1, 1, 1, 1, 4], 500).unwrap();
        judge.idle(0, [2, 1, 1, 1, 4], 900).unwrap();
        judge.idle(0, [1, 1, 1, 2, 8], 700).unwrap();
        judge.idle(1, [1, 1, 1, 1, 4], 501).unwrap();
        judge.idle(0, [1, 1, 1, 1, 4], 500).unwrap();
        judge.idle(0, [1, 1, 1, 1, 4], 501).unwrap_err();
    }
}
