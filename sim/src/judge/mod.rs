//! The judges: each holds one property, hears every fact, and counts for itself.
//!
//! A judge never asks the broker what it should find: it counts from what peers saw, and
//! compares. What it says is a [`Finding`]; the world adds when, the last events and the command.

pub mod answers;
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

/// Every judge and what it promises, in alphabetical order.
pub const ALL: &[(&str, &str)] = &[
    ("answers", "what a client asks is answered, in order, or its connection ends"),
    ("books", "the core recounts itself and finds what it keeps"),
    ("conservation", "the books add up and say what the peers saw"),
    ("contract", "single calls answer, bound and drop only as they may"),
    ("crash", "nothing that a host may do stops the core"),
    ("fairness", "tenants get shares of the work by their weights"),
    ("framing", "every stream is whole frames and at most one begun"),
    ("freshness", "the newest record of a topic survives"),
    ("hysteresis", "memory bands do not flap"),
    ("isolation", "peers that read nothing change nobody else's trace"),
    ("lossless", "under `block` nothing is lost, and pressure travels in order"),
    ("memory", "queues, leases and idle shards hold what they may"),
    ("order", "sequences increase, and what is missing was announced before"),
    ("permits", "permits come back, and every acked publish has one answer"),
    ("rotation", "no tenant with work is left behind by another one"),
    ("sequence", "one order everywhere, and from its start on each record comes or is told"),
    ("shutdown", "a shard that shuts down takes nothing new and ends in time"),
    ("stuck", "no work waits that nothing will wake"),
];

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

#[cfg(test)]
mod tests {
    use super::ALL;
    use std::path::Path;

    /// The names in the sources, so that a new judge cannot be left out.
    #[test]
    fn the_table_names_every_judge() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut folders = vec![root];
        let mut found = std::collections::BTreeSet::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let is_judge = path.components().any(|part| part.as_os_str() == "judge");
                let text = std::fs::read_to_string(&path).unwrap();
                for line in text.lines().map(str::trim) {
                    let outside = line.split_once("judge: \"");
                    let inside = line.split_once("NAME: &str = \"").filter(|_| is_judge);
                    let name = outside.or(inside).map(|parts| parts.1);
                    let name = name.filter(|name| name.starts_with(char::is_lowercase));
                    found.extend(name.and_then(|n| n.split_once('"')).map(|n| n.0.to_owned()));
                }
            }
        }
        let names: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        assert_eq!(Vec::from_iter(found), names);
    }
}
