//! The judges: each holds one property, hears every fact, and counts for itself.
//!
//! A judge never asks the broker what it should find: it counts from what peers saw, and
//! compares. What it says is a [`Finding`]; the world adds when, the last events and the command.

pub mod conservation;
pub mod contract;
pub mod fairness;
pub mod freshness;
pub mod hysteresis;
pub mod isolation;
mod jury;
pub mod lossless;
pub mod memory;
pub mod order;
pub mod permits;
pub mod rotation;
pub mod sequence;
pub mod shutdown;
pub mod stuck;

pub use jury::Jury;
use std::fmt;

/// What kind of promise was broken; it decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Something that must come never came.
    Liveness,
    /// Something happened that must not.
    Safety,
}

/// What a judge found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The judge's name.
    pub judge: &'static str,
    /// What kind of promise.
    pub kind: Kind,
    /// What was found.
    pub what: String,
    /// The virtual time it belongs to, when that is not the time it was found.
    pub at: Option<u64>,
}

impl Finding {
    fn safety(judge: &'static str, what: impl Into<String>) -> Self {
        Self { judge, kind: Kind::Safety, what: what.into(), at: None }
    }

    fn liveness(judge: &'static str, what: impl Into<String>) -> Self {
        Self { judge, kind: Kind::Liveness, what: what.into(), at: None }
    }
}

/// What a judge answers.
pub type Found = Result<(), Finding>;

/// A finding with everything needed to look into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conviction {
    /// What was found.
    pub finding: Finding,
    /// The virtual time, in nanoseconds.
    pub at: u64,
    /// The last events before it, oldest first.
    pub events: Vec<String>,
    /// The command that shows it again.
    pub command: String,
}

impl fmt::Display for Conviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use crate::amount::{Nanos, Unit};
        let Finding { judge, what, .. } = &self.finding;
        writeln!(f, "judge {judge} convicts at {}: {what}", Nanos::show(self.at))?;
        for event in &self.events {
            writeln!(f, "  {event}")?;
        }
        write!(f, "replay: {}", self.command)
    }
}
