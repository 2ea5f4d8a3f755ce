//! The process-wide memory budget, lent to shards in chunks.
//!
//! Every shard keeps a floor for ever; the rest is in one pool. A shard asks for more when it
//! holds 70 % of its lease, and returns what it no longer needs one chunk late, so that a level
//! that swings around an edge moves nothing. Loans enter a shard as inputs, so that its runs can be
//! replayed; the sum of the leases never passes the budget, whatever the shards ask for.

/// What is lent and returned at once.
pub const CHUNK: u64 = 1 << 20;
/// A shard asks for more beyond this many percent of its lease.
const ASK_PERCENT: u64 = 70;

/// What is not lent to any shard. An integer here; a host with threads keeps it in an atomic.
#[derive(Clone, Debug)]
pub struct Pool {
    free: u64,
}

impl Pool {
    /// The pool of a budget whose floors are taken out.
    pub const fn new(budget: u64, shards: u32) -> Self {
        Self { free: budget - floor(budget, shards) * shards as u64 }
    }

    /// The pool in which so many bytes are free: what a host that keeps them in an atomic has read.
    pub const fn with_free(free: u64) -> Self {
        Self { free }
    }

    /// What is free, to be kept for [`with_free`](Self::with_free).
    pub const fn free(&self) -> u64 {
        self.free
    }

    /// Lends up to `bytes`, in whole chunks. Returns how many. Cost: O(1).
    pub const fn borrow(&mut self, bytes: u64) -> u64 {
        let most = if bytes < self.free { bytes } else { self.free };
        let lent = most - most % CHUNK;
        self.free -= lent;
        lent
    }

    /// Takes back what was lent.
    pub const fn give_back(&mut self, bytes: u64) {
        self.free += bytes;
    }

    /// What it would lend now.
    pub const fn lendable(&self) -> u64 {
        self.free - self.free % CHUNK
    }
}

/// What each of `shards` shards keeps for ever: half of an equal part.
pub const fn floor(budget: u64, shards: u32) -> u64 {
    budget / (2 * shards as u64)
}

/// What a shard wants of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseWish {
    /// Nothing.
    Keep,
    /// This many bytes more, if there are any.
    Borrow(u64),
    /// To return this many bytes.
    Return(u64),
}

/// A shard's part of the budget.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    floor: u64,
    lent: u64,
    /// What the pool would lend, as the host said last.
    lendable: u64,
}

impl Lease {
    /// A shard that has its floor, and may have all the rest.
    pub(crate) const fn new(budget: u64, shards: u32) -> Self {
        let floor = floor(budget, shards);
        Self { floor, lent: 0, lendable: budget - floor * shards as u64 }
    }

    /// What the host says the shard has, and could have.
    pub(crate) const fn set(&mut self, lent: u64, lendable: u64) {
        (self.lent, self.lendable) = (lent, lendable);
    }

    /// The budget that the bands compare with, before the pressure factor.
    pub(crate) const fn effective(&self) -> u64 {
        self.floor + self.lent + self.lendable
    }

    /// What it has whatever others borrow.
    pub(crate) const fn floor(&self) -> u64 {
        self.floor
    }

    /// What to ask of the pool when `held` bytes are held.
    pub(crate) const fn wish(&self, held: u64) -> LeaseWish {
        let need = (held.saturating_mul(100) / ASK_PERCENT).saturating_sub(self.floor);
        let chunks = need.div_ceil(CHUNK).saturating_mul(CHUNK);
        if chunks > self.lent {
            return LeaseWish::Borrow(chunks - self.lent);
        }
        if self.lent >= chunks + 2 * CHUNK {
            return LeaseWish::Return(self.lent - chunks - CHUNK);
        }
        LeaseWish::Keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BUDGET: u64 = 64 * CHUNK;

    #[test]
    fn a_lease_grows_at_seventy_percent_and_shrinks_a_chunk_late() {
        let mut lease = Lease::new(BUDGET, 4);
        assert_eq!(lease.effective(), 8 * CHUNK + 32 * CHUNK);
        assert_eq!(lease.wish(8 * CHUNK * 7 / 10), LeaseWish::Keep);
        assert_eq!(lease.wish(8 * CHUNK * 7 / 10 + 2), LeaseWish::Borrow(CHUNK));
        assert_eq!(lease.wish(14 * CHUNK), LeaseWish::Borrow(12 * CHUNK));
        lease.set(12 * CHUNK, 0);
        assert_eq!(lease.effective(), 20 * CHUNK);
        assert_eq!(lease.wish(14 * CHUNK), LeaseWish::Keep);
        assert_eq!(lease.wish(13 * CHUNK), LeaseWish::Keep, "one chunk too many is kept");
        assert_eq!(lease.wish(7 * CHUNK), LeaseWish::Return(9 * CHUNK));
        assert_eq!(lease.wish(0), LeaseWish::Return(11 * CHUNK));
    }

    proptest! {
        #[test]
        fn leases_never_pass_the_budget(
            shards in 1..9_u32,
            steps in proptest::collection::vec((any::<usize>(), 0..100 * CHUNK), 1..200),
        ) {
            let mut pool = Pool::new(BUDGET, shards);
            let mut leases = alloc::vec![Lease::new(BUDGET, shards); shards as usize];
            for (at, held) in steps {
                let at = at % leases.len();
                match leases[at].wish(held) {
                    LeaseWish::Keep => {}
                    LeaseWish::Borrow(bytes) => leases[at].lent += pool.borrow(bytes),
                    LeaseWish::Return(bytes) => {
                        leases[at].lent -= bytes;
                        pool.give_back(bytes);
                    }
                }
                let lendable = pool.lendable();
                let lent = leases[at].lent;
                leases[at].set(lent, lendable);
                let sum: u64 = leases.iter().map(|lease| lease.floor + lease.lent).sum();
                prop_assert!(sum + lendable <= BUDGET, "{sum} and {lendable}");
                prop_assert!(leases[at].effective() <= BUDGET);
            }
        }
    }
}
