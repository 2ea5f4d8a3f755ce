//! The process-wide memory budget among threads: the core's arithmetic on an atomic.

use sluicegate_core::Broker;
use sluicegate_core::pool::{LeaseWish, Pool};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is not lent to any shard, shared by all of them.
#[derive(Clone, Debug)]
pub struct SharedPool(Arc<AtomicU64>);

impl SharedPool {
    /// The pool of a budget from which `shards` shards have their floors.
    pub fn new(budget: u64, shards: u32) -> Self {
        Self(Arc::new(AtomicU64::new(Pool::new(budget, shards).free())))
    }

    /// What one shard has on loan: nothing yet.
    pub fn loan(&self) -> Loan {
        Loan { pool: self.clone(), lent: 0 }
    }

    fn borrow(&self, bytes: u64) -> u64 {
        let mut lent = 0;
        // Never given up: the closure always has an answer.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
            let mut pool = Pool::with_free(free);
            lent = pool.borrow(bytes);
            Some(pool.free())
        });
        lent
    }

    fn give_back(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn lendable(&self) -> u64 {
        Pool::with_free(self.0.load(Ordering::Relaxed)).lendable()
    }
}

/// What one shard has on loan. Dropped, it is lent no more.
#[derive(Debug)]
pub struct Loan {
    pool: SharedPool,
    lent: u64,
}

impl Loan {
    /// Asks the pool for what a shard wishes, and tells it. Once per turn. Cost: O(1).
    pub fn settle(&mut self, broker: &mut Broker) {
        self.grant(broker.lease_wish());
        broker.lease(self.lent, self.pool.lendable());
    }

    fn grant(&mut self, wish: LeaseWish) {
        match wish {
            LeaseWish::Borrow(bytes) => self.lent += self.pool.borrow(bytes),
            LeaseWish::Keep => {}
            LeaseWish::Return(bytes) => {
                self.lent -= bytes;
                self.pool.give_back(bytes);
            }
        }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.pool.give_back(self.lent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;
    use sluicegate_core::pool::{CHUNK, floor};
    use sluicegate_core::{Lane, Limits, Pipe};
    use std::thread;

    const BUDGET: u64 = 64 * CHUNK;

    /// Wishes of a shard that holds now this much and now that.
    fn wishes() -> impl Strategy<Value = Vec<LeaseWish>> {
        let bytes = 1..40_u64;
        let wish = prop_oneof![
            bytes.clone().prop_map(|chunks| LeaseWish::Borrow(chunks * CHUNK)),
            bytes.prop_map(|chunks| LeaseWish::Return(chunks * CHUNK)),
        ];
        proptest::collection::vec(wish, 1..200)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn threads_together_never_borrow_more_than_there_is(
            all in proptest::collection::vec(wishes(), 2..5),
        ) {
            let shards = u32::try_from(all.len()).unwrap();
            let pool = SharedPool::new(BUDGET, shards);
            let most = BUDGET - floor(BUDGET, shards) * u64::from(shards);
            let lent = AtomicU64::new(0);
            thread::scope(|scope| {
                for wishes in &all {
                    scope.spawn(|| run(pool.loan(), wishes, &lent, most));
                }
            });
            prop_assert_eq!(lent.load(Ordering::SeqCst), 0);
            prop_assert_eq!(pool.0.load(Ordering::SeqCst), most, "all came back");
        }
    }

    /// The sum of all loans is taken down before what was returned can be lent again, and added to
    /// after it was lent: it is never more than what is lent.
    fn run(mut loan: Loan, wishes: &[LeaseWish], sum: &AtomicU64, most: u64) {
        for wish in wishes {
            let before = loan.lent;
            let wish = match *wish {
                LeaseWish::Return(bytes) => LeaseWish::Return(bytes.min(before)),
                other => other,
            };
            if let LeaseWish::Return(bytes) = wish {
                sum.fetch_sub(bytes, Ordering::SeqCst);
            }
            loan.grant(wish);
            let more = loan.lent.saturating_sub(before);
            let all = sum.fetch_add(more, Ordering::SeqCst) + more;
            assert!(all <= most, "{all} of {most} are lent");
        }
        sum.fetch_sub(loan.lent, Ordering::SeqCst);
    }

    #[test]
    fn a_shard_borrows_what_it_holds_and_brings_it_back() {
        let limits = Limits { memory_budget: BUDGET, shards: 2, ..Limits::default() };
        let limits = Limits { control_reserve_bytes: 16 << 20, ..limits };
        let pool = SharedPool::new(BUDGET, 2);
        let mut broker = Broker::shard(limits, 1, 0);
        let mut loan = pool.loan();
        loan.settle(&mut broker);
        assert_eq!((loan.lent, pool.lendable()), (0, BUDGET / 2));
        let tenant = broker.tenant(1).unwrap();
        let conns = [(); 2].map(|()| {
            let conn = broker.open(tenant).unwrap();
            let outlet = broker.outlet(conn, Pipe::Shared).unwrap();
            let frame = Bytes::from(vec![0; 15 << 20]);
            broker.send(outlet, frame, Lane::InLine).unwrap();
            conn
        });
        loan.settle(&mut broker);
        assert!(loan.lent > 0 && loan.lent.is_multiple_of(CHUNK), "{}", loan.lent);
        assert_eq!(pool.lendable(), BUDGET / 2 - loan.lent);
        conns.into_iter().for_each(|conn| broker.gone(conn));
        loan.settle(&mut broker);
        assert_eq!(loan.lent, CHUNK, "one chunk too many is kept");
        drop(loan);
        assert_eq!(pool.lendable(), BUDGET / 2);
    }
}
