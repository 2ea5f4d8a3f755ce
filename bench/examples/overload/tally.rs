//! What came of a load.

use serde_json::{Value, json};
use sluicegate_sim::histogram::Histogram;

/// Counts of a span of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Its length, in nanoseconds.
    pub(crate) nanos: u64,
    /// Calls that were due.
    pub(crate) due: u64,
    /// Of those, not made because all publishers waited for answers for too long.
    pub(crate) held: u64,
    /// Calls answered 200.
    pub(crate) taken: u64,
    /// Calls answered 503.
    pub(crate) refused: u64,
    /// Of those, without a word when to come back.
    pub(crate) unadvised: u64,
    /// Calls answered otherwise, or by the end of the connection.
    pub(crate) failed: u64,
    /// Events that subscribers have read.
    pub(crate) delivered: u64,
    /// From making a call to each subscriber's receipt of its event, in nanoseconds.
    pub(crate) latency: Histogram,
    /// From when a call was due to its answer, in nanoseconds.
    pub(crate) answers: Histogram,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in [
            (&mut self.nanos, other.nanos),
            (&mut self.due, other.due),
            (&mut self.held, other.held),
            (&mut self.taken, other.taken),
            (&mut self.refused, other.refused),
            (&mut self.unadvised, other.unadvised),
            (&mut self.failed, other.failed),
            (&mut self.delivered, other.delivered),
        ] {
            *mine += theirs;
        }
        self.latency.merge(&other.latency);
        self.answers.merge(&other.answers);
    }

    pub(crate) fn sum<'a>(spans: impl IntoIterator<Item = &'a Self>) -> Self {
        spans.into_iter().fold(Self::default(), |mut sum, span| {
            sum.add(span);
            sum
        })
    }

    /// `count` of this span, per second.
    pub(crate) fn rate(&self, count: u64) -> u64 {
        let per_second = u128::from(count) * 1_000_000_000 / u128::from(self.nanos.max(1));
        u64::try_from(per_second).expect("counts and spans of a run are small")
    }

    /// Publishes per second that have reached everybody.
    pub(crate) fn goodput(&self, subscribers: usize) -> u64 {
        self.rate(self.delivered) / (subscribers as u64).max(1)
    }

    pub(crate) fn json(&self, subscribers: usize) -> Value {
        let micros = |histogram: &Histogram, percent| {
            histogram.percentile(percent).map(|nanos| nanos / 1_000)
        };
        json!({
            "seconds": self.nanos as f64 / 1e9,
            "due_per_s": self.rate(self.due),
            "taken_per_s": self.rate(self.taken),
            "refused_per_s": self.rate(self.refused),
            "held_per_s": self.rate(self.held),
            "goodput_per_s": self.goodput(subscribers),
            "refused_without_advice": self.unadvised,
            "failed": self.failed,
            "latency_p50_us": micros(&self.latency, 50),
            "latency_p99_us": micros(&self.latency, 99),
            "answer_p50_us": micros(&self.answers, 50),
            "answer_p99_us": micros(&self.answers, 99),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_add_up_and_rates_are_per_second() {
        let mut half = Tally { nanos: 500_000_000, due: 30, delivered: 40, ..Tally::default() };
        half.latency.add(1_000_000);
        let whole = Tally::sum([&half, &half]);
        assert_eq!((whole.rate(whole.due), whole.goodput(4)), (60, 20));
        assert_eq!(half.rate(half.due), 60);
        assert!(whole.json(4)["latency_p99_us"].as_u64() >= Some(1_000));
        assert_eq!(Tally::default().goodput(0), 0);
    }
}
