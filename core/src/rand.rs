//! Seeded randomness: SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
//! generators", 2014), forked by purpose so that a new draw in one place shifts no other.

/// A stream of random numbers that is a function of its seed.
#[derive(Clone, Debug)]
pub struct Rand(u64);

impl Rand {
    /// The stream of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// An independent stream named by `purpose`; `self` does not move.
    pub fn fork(&self, purpose: &str) -> Self {
        let named = purpose.bytes().fold(self.0, |hash, byte| mix(hash ^ u64::from(byte)));
        Self(mix(named))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`, without bias (Lemire's method). `bound` must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a range must hold something");
        let floor = bound.wrapping_neg() % bound;
        loop {
            let (low, high) = self.bits().carrying_mul(bound, 0);
            if low >= floor {
                return high;
            }
        }
    }
}

/// Spreads every bit of a number over all of them.
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_outputs_are_pinned() {
        let mut rand = Rand::new(0);
        assert_eq!(rand.bits(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(rand.bits(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn forks_differ_and_leave_the_parent_alone() {
        let parent = Rand::new(7);
        assert_ne!(parent.fork("a").bits(), parent.fork("b").bits());
        assert_eq!(parent.fork("a").bits(), Rand::new(7).fork("a").bits());
    }

    #[test]
    fn ranges_are_covered_evenly() {
        let mut rand = Rand::new(1);
        let mut seen = [0_u32; 3];
        for _ in 0..3_000 {
            seen[usize::try_from(rand.below(3)).unwrap()] += 1;
        }
        assert!(seen.iter().all(|n| (900..1100).contains(n)), "{seen:?}");
    }
}
