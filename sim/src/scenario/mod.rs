//! Scenarios: from a TOML file to stories that can be run.

mod bad;
mod file;
mod resolve;

pub use bad::BadInput;
pub use file::{PublisherExpect, SubscriberExpect};

use crate::amount::{Bound, Bytes, Count, Thousandths};
use crate::line::LineSpec;
use bad::Source;
use sluicegate_core::{Ack, Band, Limits, Pipe, Place, Reason, Wish};
use std::collections::BTreeMap;

/// One run: a scenario file, or one variant of it, with everything resolved and checked.
#[derive(Clone, Debug)]
pub struct Story {
    /// The file as it was named.
    pub file: String,
    /// The variant's name, empty for the only one.
    pub variant: String,
    /// One line.
    pub title: String,
    /// A paragraph.
    pub about: String,
    /// Seed of everything random.
    pub seed: u64,
    /// Publishers stop here, in nanoseconds.
    pub duration: u64,
    /// The run ends here, drained or not.
    pub end: u64,
    /// The broker's configuration.
    pub limits: Limits,
    /// What the shard's work costs.
    pub cpu: Cpu,
    /// Name and weight of every tenant.
    pub tenants: Vec<(String, u32)>,
    /// Name of every topic and the index of its tenant.
    pub topics: Vec<(String, usize)>,
    /// Groups of equal publishers.
    pub publishers: Vec<PublisherGroup>,
    /// Groups of equal subscribers.
    pub subscribers: Vec<SubscriberGroup>,
    /// Readings of the memory pressure: time and text, `None` for an unreadable file. In order.
    pub pressure: Vec<(u64, Option<String>)>,
    /// What must hold.
    pub expect: Expect,
}

/// What the shard's work costs in virtual time, and how it is portioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Nanoseconds of a turn.
    pub turn: u64,
    /// Nanoseconds of reading one publish.
    pub read: u64,
    /// Nanoseconds of one delivery.
    pub delivery: u64,
    /// Deliveries one `step` prepares at most.
    pub work: u32,
    /// Publishes read from one connection in a turn at most.
    pub reads: u32,
}

impl Cpu {
    /// Whether work takes no time.
    pub const fn is_free(&self) -> bool {
        self.turn == 0 && self.read == 0 && self.delivery == 0
    }
}

/// Equal publishers.
#[derive(Clone, Debug)]
pub struct PublisherGroup {
    /// The group's name.
    pub name: String,
    /// How many.
    pub count: u32,
    /// Index of the topic.
    pub topic: usize,
    /// Publishes per second outside bursts.
    pub rate: u64,
    /// Least and most bytes of a frame.
    pub size: (u32, u32),
    /// Records of a publish.
    pub records: u32,
    /// What is asked for.
    pub ack: Ack,
    /// First and last moment of publishing.
    pub active: (u64, u64),
    /// From, to, factor on the rate; in order, apart from each other.
    pub bursts: Vec<(u64, u64, u64)>,
    /// The way to the broker; its buffer is the publisher's window.
    pub line: LineSpec,
}

/// Equal subscribers.
#[derive(Clone, Debug)]
pub struct SubscriberGroup {
    /// The group's name.
    pub name: String,
    /// How many.
    pub count: u32,
    /// Index of the topic.
    pub topic: usize,
    /// The kind of outlet.
    pub pipe: Pipe,
    /// Policy and limits.
    pub wish: Wish,
    /// The way from the broker.
    pub line: LineSpec,
}

/// Expected counts by place and reason; `None` stands for any.
pub type Cells = BTreeMap<String, (Option<Place>, Option<Reason>, Bound<Count>)>;

/// What must hold at the end.
#[derive(Clone, Debug, Default)]
pub struct Expect {
    /// Whether everything must have drained.
    pub drained: Option<bool>,
    /// Whether the stalled must change nobody else's trace.
    pub isolation: bool,
    /// Only these groups may lose records.
    pub nobody_but: Option<Vec<String>>,
    /// Exactly these bands are entered, besides normal at the start.
    pub bands: Option<Vec<Band>>,
    /// Changes of the band.
    pub transitions: Option<Bound<Count>>,
    /// Least pressure factor.
    pub factor_min: Option<Bound<Thousandths>>,
    /// Last pressure factor.
    pub factor_final: Option<Bound<Thousandths>>,
    /// Most bytes that waited for one subscriber.
    pub backlog_peak: Option<Bound<Bytes>>,
    /// Most bytes the shard held.
    pub held_peak: Option<Bound<Bytes>>,
    /// Most publish jobs queued.
    pub queue_peak: Option<Bound<Count>>,
    /// Dropped records.
    pub dropped: Cells,
    /// Evicted records.
    pub evicted: Cells,
    /// Refused records.
    pub refused: Cells,
    /// Shed records.
    pub shed: Cells,
    /// By group of publishers.
    pub publishers: BTreeMap<String, PublisherExpect>,
    /// By group of subscribers.
    pub subscribers: BTreeMap<String, SubscriberExpect>,
}

impl Story {
    /// The name in tables: the file's name without folder and ending, and the variant.
    pub fn name(&self) -> String {
        let path = std::path::Path::new(&self.file);
        let stem = path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
        if self.variant.is_empty() { stem } else { format!("{stem} ({})", self.variant) }
    }

    /// The command that runs exactly this again.
    pub fn command(&self) -> String {
        let Self { file, seed, variant, .. } = self;
        let mut command = format!("sluicegate-sim run {} --seed {seed}", quoted(file));
        if !variant.is_empty() {
            command += &format!(" --variant {}", quoted(variant));
        }
        command
    }

    /// The same story without the subscribers that ever stall.
    pub fn without_stalled(&self) -> Self {
        let mut story = self.clone();
        story.subscribers.retain(|group| group.line.stalls.is_empty());
        story
    }
}

/// A word as a shell takes it: quoted when a shell would read more into it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Reads a scenario: its stories, one per variant. `file` names it in errors.
pub fn read(file: &str, text: &str) -> Result<Vec<Story>, BadInput> {
    let source = Source { file, text };
    let parsed: file::File = toml::from_str(text).map_err(|error| source.bad_toml(&error))?;
    resolve::stories(&source, &parsed)
}

#[cfg(test)]
mod tests;
