//! Scenarios: from a TOML file to stories that can be run.

mod bad;
mod config;
mod file;
mod limit;
mod resolve;
mod schema;

pub use bad::BadInput;
pub use config::ServerConfig;
pub use file::{PublisherExpect, SubscriberExpect, TenantExpect};
pub use limit::{BadLimit, set_limit};
pub use schema::schema;

use crate::amount::{Bound, Bytes, Count, Thousandths};
use crate::fact::Stop;
use crate::line::LineSpec;
use bad::Source;
use sluicegate_core::{Ack, Band, Limits, Pipe, Place, Rand, Reason, Wish};
use std::collections::BTreeMap;

/// Least and most; what is drawn lies between them, both included.
pub type Range = (u64, u64);

/// Draws from a range.
pub(crate) fn draw(rand: &mut Rand, (least, most): Range) -> u64 {
    least + rand.below(most - least + 1)
}

/// One run: a scenario file, or one variant of it, with everything resolved and checked.
#[derive(Clone, Debug)]
pub struct Story {
    /// The file as it was named.
    pub file: String,
    /// The server's configuration whose limits it has, as it was named; `None`: its own.
    pub config: Option<String>,
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
    /// What a shard's work costs.
    pub cpu: Cpu,
    /// The ways between shards.
    pub mesh: Mesh,
    /// When a shard's work costs more.
    pub slow: Vec<Slow>,
    /// When a shard shuts down, in order of time.
    pub shutdowns: Vec<Shutdown>,
    /// The judges look at barriers only, and nobody recounts between them.
    pub plain: bool,
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

/// The way from one shard to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mesh {
    /// Nanoseconds a parcel travels.
    pub delay: u64,
    /// Parcels on their way at most, per ordered pair of shards.
    pub ring: u32,
}

/// A shard whose work costs more for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slow {
    /// Which shard.
    pub shard: u32,
    /// From, to, in nanoseconds.
    pub time: Range,
    /// How many times as much.
    pub times: u64,
}

/// A shard that shuts down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// When it begins, in nanoseconds.
    pub at: u64,
    /// Which shard.
    pub shard: u32,
}

/// A link as a group describes it; each peer draws its own from the ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSpec {
    /// Bytes per second.
    pub bandwidth: Range,
    /// Nanoseconds a byte travels after it has left the buffer.
    pub delay: Range,
    /// Nanoseconds that a frame may come later than that, drawn for each.
    pub jitter: u64,
    /// Frames out of a million that are lost once and come by retransmission.
    pub loss: u32,
    /// Nanoseconds until a lost frame is sent again.
    pub retransmit: u64,
    /// Bytes the buffers and windows of both ends take.
    pub buffer: u64,
    /// When the peer reads nothing: from, to; in order, apart from each other.
    pub stalls: Vec<(u64, u64)>,
}

impl LinkSpec {
    /// The line of one peer.
    pub(crate) fn draw(&self, rand: &Rand) -> LineSpec {
        LineSpec {
            bandwidth: draw(&mut rand.fork("bandwidth"), self.bandwidth),
            delay: draw(&mut rand.fork("delay"), self.delay),
            jitter: self.jitter,
            loss: self.loss,
            retransmit: self.retransmit,
            buffer: self.buffer,
            stalls: self.stalls.clone(),
        }
    }
}

/// When a peer is connected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// It connects, drawn for each peer; 0 is before anything else happens.
    pub join: Range,
    /// It leaves for good, drawn for each peer.
    pub leave: Option<Range>,
    /// Its connection breaks; in order of time.
    pub outages: Vec<Outage>,
    /// After the broker refused or closed it, it tries again after so long, drawn each time.
    pub retry: Option<Range>,
}

/// A connection that breaks, for every peer of a group at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// When, in nanoseconds.
    pub at: u64,
    /// After so long the peer connects again, drawn for each; `None`: never.
    pub back: Option<Range>,
    /// The broker is told nothing: what it writes fills the window and is never acknowledged.
    pub half_open: bool,
}

/// Whether publishers use the client's window and queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// Each peer is a client of one worker.
    Each,
    /// The group's peers are the workers of one client: they share its window.
    One,
    /// No: they write to their transport, and what does not fit is not made.
    Raw,
}

/// Equal publishers.
#[derive(Clone, Debug)]
pub struct PublisherGroup {
    /// The group's name.
    pub name: String,
    /// How many.
    pub count: u32,
    /// Index of the topic, the first of `spread`.
    pub topic: usize,
    /// The peers take turns over so many topics. At least 1.
    pub spread: usize,
    /// The shard they connect to; `None`: they take turns over all.
    pub shard: Option<u32>,
    /// Window and queue.
    pub client: Client,
    /// The group of subscribers over whose connections they publish, each over one; `None`: they
    /// have connections of their own.
    pub over: Option<String>,
    /// When they are connected.
    pub presence: Presence,
    /// Publishes per second outside bursts, drawn for each peer.
    pub rate: Range,
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
    /// The way to the broker; its buffer is the transport's window.
    pub line: LinkSpec,
}

/// Equal subscribers.
#[derive(Clone, Debug)]
pub struct SubscriberGroup {
    /// The group's name.
    pub name: String,
    /// How many.
    pub count: u32,
    /// Index of the topic, the first of `spread`.
    pub topic: usize,
    /// The peers take turns over so many topics. At least 1.
    pub spread: usize,
    /// The shard they connect to; `None`: they take turns over all.
    pub shard: Option<u32>,
    /// All peers of all groups with this name share one connection.
    pub connection: Option<String>,
    /// Events per second that the application takes from its inbox, drawn for each peer; `None`:
    /// whatever arrives is taken.
    pub takes: Option<Range>,
    /// Nanoseconds between two questions that each peer asks over its connection, drawn for each;
    /// `None`: it asks nothing.
    pub asks: Option<Range>,
    /// When they are connected.
    pub presence: Presence,
    /// The kind of outlet.
    pub pipe: Pipe,
    /// Policy and limits.
    pub wish: Wish,
    /// The way from the broker.
    pub line: LinkSpec,
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
    /// The places that fill when a `block` subscription stands still, in this order.
    pub propagation: Option<Vec<Stop>>,
    /// Fairness between tenants.
    pub fairness: Option<Fairness>,
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
    /// By tenant.
    pub tenants: BTreeMap<String, TenantExpect>,
    /// By group of publishers.
    pub publishers: BTreeMap<String, PublisherExpect>,
    /// By group of subscribers.
    pub subscribers: BTreeMap<String, SubscriberExpect>,
}

/// How equal tenants' shares of the work must be.
#[derive(Clone, Debug)]
pub struct Fairness {
    /// Jain's index over their cost by weight.
    pub jain: Bound<Thousandths>,
    /// Counted from, to, in nanoseconds.
    pub time: Range,
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
        let Self { file, config, seed, variant, .. } = self;
        let mut command = format!("sluicegate-sim run {} --seed {seed}", quoted(file));
        if let Some(config) = config {
            command += &format!(" --config {}", quoted(config));
        }
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

    /// How many shards there are.
    pub fn shards(&self) -> u32 {
        u32::try_from(self.limits.shards).expect("its key keeps it below")
    }
}

/// The names of a group's members.
pub(crate) fn members(name: &str, count: u32) -> Vec<String> {
    if count == 1 {
        return vec![name.to_owned()];
    }
    (1..=count).map(|number| format!("{name}-{number}")).collect()
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
    read_under(file, text, None)
}

/// The same, with the limits of a server's configuration in the place of the scenario's, as far as
/// it says them.
pub fn read_under(
    file: &str,
    text: &str,
    config: Option<&ServerConfig>,
) -> Result<Vec<Story>, BadInput> {
    let source = Source { file, text };
    let parsed: file::File = toml::from_str(text).map_err(|error| source.bad_toml(&error))?;
    resolve::stories(&source, &parsed, config).map_err(|mut bad| {
        if let Some(config) = config {
            bad.message += &format!(" (under the limits of {})", config.file);
        }
        bad
    })
}

#[cfg(test)]
mod tests;
