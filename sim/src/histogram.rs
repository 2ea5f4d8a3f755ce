//! Percentiles of durations in bounded memory.

/// Buckets per power of two: values are kept to within one part in 64.
const SUB: u64 = 64;

/// A histogram of nanoseconds with a relative error below 1/64.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    /// Counts a value. Cost: O(1); at most 3,776 buckets.
    pub fn add(&mut self, value: u64) {
        let bucket = bucket(value);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
    }

    /// Adds another histogram's values.
    pub fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
    }

    /// The buckets that hold values: greatest value of the bucket, and how many it holds.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = (0_u64..).zip(&self.counts).filter(|(_, count)| **count > 0);
        all.map(|(bucket, count)| (limit(bucket), *count))
    }

    /// The least bucket limit that `percent` of the values do not exceed; `None` without values.
    pub fn percentile(&self, percent: u64) -> Option<u64> {
        let rank = (self.total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let at = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(limit(at as u64))
    }
}

fn bucket(value: u64) -> usize {
    let shift = u64::from(value.max(1).ilog2()).saturating_sub(u64::from(SUB.ilog2()));
    usize::try_from(shift * SUB + (value >> shift)).expect("at most 3,776")
}

/// The greatest value of a bucket.
const fn limit(bucket: u64) -> u64 {
    let shift = (bucket / SUB).saturating_sub(1);
    let base = bucket - shift * SUB;
    (base << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_values_to_one_part_in_64() {
        let powers = (0..63).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        for value in powers {
            let top = limit(bucket(value) as u64);
            assert!(top >= value && top - value <= value / SUB, "{value} in {top}");
            assert!(bucket(value) <= bucket(value + 1));
        }
    }

    #[test]
    fn percentiles_are_ranks() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(50), None);
        (1..=50).for_each(|value| histogram.add(value));
        let mut others = Histogram::default();
        (51..=100).for_each(|value| others.add(value));
        histogram.merge(&others);
        assert_eq!(
            [0, 1, 50, 99, 100].map(|p| histogram.percentile(p).unwrap()),
            [1, 1, 50, 99, 100]
        );
    }
}
