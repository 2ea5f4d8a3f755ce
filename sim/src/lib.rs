//! Replays overload against the real core in virtual time, judges what happened and compares it
//! with what a scenario expects.
//!
//! ```text
//! scenario (TOML) -> story -> world (core, peers, links) -> judges, expectations -> report
//! ```
//!
//! The same scenario and seed give the same tape, whose hash stands in the report, on every
//! machine and in every build.

pub mod amount;
pub mod batch;
mod calendar;
pub mod chain;
pub mod deck;
pub mod dice;
pub mod expect;
pub mod explain;
pub mod fact;
pub mod frame;
pub mod histogram;
pub mod judge;
pub mod line;
pub mod page;
mod peer;
pub mod replay;
pub mod report;
pub mod scenario;
pub mod script;
pub mod series;
pub mod shrink;
mod sink;
pub mod swarm;
pub mod tape;
mod world;

use expect::Check;
use judge::{Conviction, Kind, isolation};
use scenario::Story;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub use peer::Published;

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// The numbers.
    pub report: report::Report,
    /// What a judge found, if one did. Expectations are not compared then.
    pub conviction: Option<Conviction>,
    /// Every expectation, in the order of the table, and whether it holds.
    pub expectations: Vec<Check>,
}

impl Outcome {
    /// The exit code: 0 all holds, 1 an expectation does not, 3 safety, 4 liveness.
    pub fn code(&self) -> u8 {
        match &self.conviction {
            Some(conviction) if conviction.finding.kind == Kind::Safety => 3,
            Some(_) => 4,
            None => u8::from(self.unmet().next().is_some()),
        }
    }

    /// Expectations that do not hold.
    pub fn unmet(&self) -> impl Iterator<Item = &Check> {
        self.expectations.iter().filter(|check| !check.holds)
    }
}

impl Outcome {
    /// The outcome as JSON. `wall` is the time the run took, in nanoseconds.
    pub fn json(&self, wall: u64) -> Value {
        let mut document = self.report.json(wall);
        let unmet: Vec<String> = self.unmet().map(ToString::to_string).collect();
        document["expectations"] = json!({
            "compared": self.expectations.len(),
            "unmet": unmet,
            "checks": self.expectations.iter().map(Check::json).collect::<Vec<_>>(),
        });
        document["conviction"] = self.conviction.as_ref().map_or(Value::Null, |conviction| {
            json!({
                "judge": conviction.finding.judge,
                "what": conviction.finding.what,
                "at_ns": conviction.at,
                "events": conviction.events,
                "replay": conviction.command,
            })
        });
        document["exit"] = json!(self.code());
        document
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.report)?;
        if let Some(conviction) = &self.conviction {
            return writeln!(f, "{conviction}");
        }
        self.unmet().try_for_each(|unmet| writeln!(f, "{unmet}"))?;
        let all = self.expectations.len();
        let held = all - self.unmet().count();
        writeln!(f, "{held} of {all} expectations hold; every judge is content")
    }
}

/// What to keep of a run besides its numbers.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// The numbers over time: about 300 points, at most 601. The run is the same with it.
    pub series: bool,
    /// Told the virtual time as the run goes on, in nanoseconds.
    pub clock: Option<Arc<AtomicU64>>,
    /// Every input of every shard. The run is the same with it.
    pub tape: bool,
}

/// Runs a story; twice when it asks for isolation.
///
/// Errors: what the broker refused while the world was built, as text.
pub fn run(story: &Story) -> Result<Outcome, String> {
    watch(story, Watch::default())
}

/// Runs a story once and writes its tape.
///
/// Errors: what the broker refused while the world was built, as text.
pub fn record(story: &Story) -> Result<Vec<u8>, String> {
    world::run(story, false, Watch { tape: true, ..Watch::default() }).map(|ran| ran.tape)
}

/// Runs a story as [`run`] does, and watches it.
///
/// Errors: what the broker refused while the world was built, as text.
pub fn watch(story: &Story, watch: Watch) -> Result<Outcome, String> {
    let isolation = story.expect.isolation;
    let mut ran = world::run(story, isolation, watch.clone())?;
    if isolation && ran.conviction.is_none() {
        let without = world::run(&story.without_stalled(), true, Watch { series: false, ..watch })?;
        ran.conviction = without.conviction;
        if let Err(finding) = isolation::compare(&ran.traces, &without.traces) {
            let at = finding.at.unwrap_or(ran.report.ended);
            let command = story.command();
            ran.conviction = Some(Conviction { finding, at, events: Vec::new(), command });
        }
    }
    let mut expectations = Vec::new();
    if ran.conviction.is_none() {
        expectations = expect::compare(&story.expect, &ran.report);
        if isolation {
            expectations.push(Check::isolated());
        }
    }
    Ok(Outcome { report: ran.report, conviction: ran.conviction, expectations })
}
