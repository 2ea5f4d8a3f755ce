//! The result of a run, for people and for programs.

use super::Plan;
use super::tally::{Tally, histogram};
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::io::{self, Write};

/// What came of a run.
#[derive(Debug)]
pub(super) struct Outcome {
    /// `broker` or `floor`.
    pub(super) what: &'static str,
    /// When the first counted record was published, in nanoseconds of the same clock.
    pub(super) began: u64,
    /// Counted records that were published.
    pub(super) published: u64,
    /// Records that were published before, and not counted.
    pub(super) warmup: u64,
    /// Of all records, those that the broker discarded and has told the publisher about.
    pub(super) shed: u64,
    pub(super) tallies: Vec<Tally>,
    /// What else is worth knowing, by name.
    pub(super) notes: Vec<(&'static str, u64)>,
}

/// Counts of a bench are far from the end of the type.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Outcome {
    fn received(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.received).sum()
    }

    fn lost(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.lost).sum()
    }

    /// Deliveries per second, from the first publish to the last arrival.
    pub(super) fn rate(&self) -> f64 {
        let end = self.tallies.iter().map(|tally| tally.last_at).max().unwrap_or(0);
        let nanos = end.saturating_sub(self.began).max(1);
        self.received() as f64 * 1e9 / nanos as f64
    }

    /// Records that were neither received nor told as lost; negative when some came twice.
    fn unaccounted(&self) -> i64 {
        let each = signed(self.published + self.warmup) - signed(self.shed);
        let all: u64 = self.tallies.iter().map(|tally| tally.all).sum();
        each * signed(self.tallies.len() as u64) - signed(all) - signed(self.lost())
    }

    fn json(&self, plan: &Plan) -> Value {
        let mut all = histogram();
        for tally in &self.tallies {
            all.add(&tally.latency).expect("the same bounds");
        }
        let micros = |quantile| all.value_at_quantile(quantile) as f64 / 1e3;
        let notes: serde_json::Map<String, Value> =
            self.notes.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        json!({
            "what": self.what,
            "payload_bytes": plan.payload,
            "fanout": plan.fanout,
            "batch": plan.batch,
            "published": self.published,
            "received": self.received(),
            "told_lost": self.lost(),
            "unaccounted": self.unaccounted(),
            "disordered": self.tallies.iter().map(|tally| tally.disordered).sum::<u64>(),
            "deliveries_per_second": self.rate().round(),
            "mib_per_second": (self.rate() * plan.payload as f64 / f64::from(1 << 20)).round(),
            "latency_us": {
                "p50": micros(0.5), "p90": micros(0.9), "p99": micros(0.99),
                "p999": micros(0.999), "max": all.max() as f64 / 1e3,
            },
            "notes": notes,
        })
    }

    /// Prints it, and fails when a record is unaccounted for.
    pub(super) fn print(&self, plan: &Plan, as_json: bool) -> Result<()> {
        let value = self.json(plan);
        let mut out = io::stdout();
        if as_json {
            writeln!(out, "{value}")?;
        } else {
            let latency = &value["latency_us"];
            writeln!(
                out,
                "{} {} B x {} to {}: {} deliveries/s ({} MiB/s)\n  received {}, told lost {}, \
                 unaccounted {}\n  latency p50 {} us, p99 {} us, p99.9 {} us, max {} us",
                self.what,
                plan.payload,
                plan.batch,
                plan.fanout,
                value["deliveries_per_second"],
                value["mib_per_second"],
                value["received"],
                value["told_lost"],
                value["unaccounted"],
                latency["p50"],
                latency["p99"],
                latency["p999"],
                latency["max"]
            )?;
            for (name, number) in &self.notes {
                writeln!(out, "  {name} {number}")?;
            }
        }
        let disordered: u64 = self.tallies.iter().map(|tally| tally.disordered).sum();
        ensure!(disordered == 0, "{disordered} records came out of order or twice");
        let unaccounted = self.unaccounted();
        ensure!(unaccounted == 0, "{unaccounted} records are not accounted for");
        Ok(())
    }
}
