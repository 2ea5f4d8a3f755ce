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
mod calendar;
pub mod deck;
pub mod dice;
pub mod expect;
pub mod fact;
pub mod frame;
pub mod histogram;
pub mod judge;
pub mod line;
mod peer;
pub mod replay;
pub mod report;
pub mod scenario;
pub mod script;
pub mod shrink;
mod sink;
pub mod swarm;
pub mod tape;
mod world;

use expect::Unmet;
use judge::{Conviction, Kind, isolation};
use scenario::Story;
use std::fmt;

pub use peer::Published;

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// The numbers.
    pub report: report::Report,
    /// What a judge found, if one did. Expectations are not compared then.
    pub conviction: Option<Conviction>,
    /// Expectations compared.
    pub expectations: u64,
    /// Expectations that do not hold.
    pub unmet: Vec<Unmet>,
}

impl Outcome {
    /// The exit code: 0 all holds, 1 an expectation does not, 3 safety, 4 liveness.
    pub fn code(&self) -> u8 {
        match &self.conviction {
            Some(conviction) if conviction.finding.kind == Kind::Safety => 3,
            Some(_) => 4,
            None if self.unmet.is_empty() => 0,
            None => 1,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.report)?;
        if let Some(conviction) = &self.conviction {
            return writeln!(f, "{conviction}");
        }
        self.unmet.iter().try_for_each(|unmet| writeln!(f, "{unmet}"))?;
        let held = self.expectations - self.unmet.len() as u64;
        writeln!(f, "{held} of {} expectations hold; every judge is content", self.expectations)
    }
}

/// Runs a story; twice when it asks for isolation.
///
/// Errors: what the broker refused while the world was built, as text.
pub fn run(story: &Story) -> Result<Outcome, String> {
    let mut ran = world::run(story, story.expect.isolation)?;
    if story.expect.isolation && ran.conviction.is_none() {
        let without = world::run(&story.without_stalled(), true)?;
        ran.conviction = without.conviction;
        if let Err(finding) = isolation::compare(&ran.traces, &without.traces) {
            let at = finding.at.unwrap_or(ran.report.ended);
            let command = story.command();
            ran.conviction = Some(Conviction { finding, at, events: Vec::new(), command });
        }
    }
    let mut compared = expect::Compared::default();
    if ran.conviction.is_none() {
        compared = expect::compare(&story.expect, &ran.report);
        compared.count += u64::from(story.expect.isolation);
    }
    let expect::Compared { count: expectations, unmet } = compared;
    Ok(Outcome { report: ran.report, conviction: ran.conviction, expectations, unmet })
}
