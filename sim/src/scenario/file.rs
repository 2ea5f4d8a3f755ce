//! A scenario file as it is written: every key there is, and nothing else.

use crate::amount::{Amount, Bound, Bytes, Count, Millionths, Nanos, Span, Text, Thousandths};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

/// A value and where it is written.
pub(super) type At<T> = Spanned<T>;
/// A table whose keys are names.
pub(super) type Table<T> = BTreeMap<Spanned<String>, Spanned<T>>;

/// The whole file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) title: At<String>,
    pub(super) about: At<String>,
    #[serde(default)]
    pub(super) seed: u64,
    pub(super) duration: At<Amount<Nanos>>,
    pub(super) drain: Option<At<Amount<Nanos>>>,
    #[serde(default)]
    pub(super) limits: Table<Text>,
    #[serde(default)]
    pub(super) cpu: Cpu,
    #[serde(default)]
    pub(super) mesh: Mesh,
    #[serde(default)]
    pub(super) slow: Vec<Slow>,
    #[serde(default)]
    pub(super) shutdown: Vec<Shutdown>,
    #[serde(default)]
    pub(super) tenant: Vec<Tenant>,
    #[serde(default)]
    pub(super) topic: Vec<Topic>,
    #[serde(default)]
    pub(super) publisher: Vec<Publisher>,
    #[serde(default)]
    pub(super) subscriber: Vec<Subscriber>,
    #[serde(default)]
    pub(super) pressure: Vec<Pressure>,
    #[serde(default)]
    pub(super) expect: Expect,
    #[serde(default)]
    pub(super) variant: Vec<Variant>,
}

/// What the shard's work costs, and how it is portioned.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cpu {
    pub(super) turn: Option<At<Amount<Nanos>>>,
    pub(super) read: Option<At<Amount<Nanos>>>,
    pub(super) delivery: Option<At<Amount<Nanos>>>,
    pub(super) work: Option<At<u32>>,
    pub(super) reads: Option<At<u32>>,
}

/// The ways between shards.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mesh {
    pub(super) delay: Option<At<Amount<Nanos>>>,
    pub(super) ring: Option<At<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Slow {
    pub(super) shard: Option<At<u32>>,
    pub(super) at: At<Amount<Nanos>>,
    pub(super) r#for: Option<Amount<Nanos>>,
    pub(super) times: At<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Shutdown {
    pub(super) at: At<Amount<Nanos>>,
    pub(super) shard: Option<At<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tenant {
    pub(super) name: At<String>,
    pub(super) weight: Option<At<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Topic {
    pub(super) name: At<String>,
    pub(super) tenant: Option<At<String>>,
    pub(super) count: Option<At<u32>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AckMode {
    None,
    Now,
    Wait,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum PolicyName {
    Block,
    DropNew,
    DropOld,
    Latest,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum PipeName {
    Shared,
    Single,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ClientKind {
    Each,
    One,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Outage {
    pub(super) at: Amount<Nanos>,
    pub(super) back: Option<Span<Nanos>>,
    #[serde(default)]
    pub(super) half_open: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Publisher {
    pub(super) name: At<String>,
    pub(super) count: Option<At<u32>>,
    pub(super) topic: At<String>,
    pub(super) shard: Option<At<u32>>,
    pub(super) client: Option<ClientKind>,
    pub(super) over: Option<At<String>>,
    pub(super) rate: At<Span<Count>>,
    pub(super) size: Option<At<Span<Bytes>>>,
    #[serde(default)]
    pub(super) oversize: bool,
    pub(super) records: Option<At<u32>>,
    pub(super) ack: Option<AckMode>,
    pub(super) from: Option<At<Amount<Nanos>>>,
    pub(super) until: Option<At<Amount<Nanos>>>,
    #[serde(default)]
    pub(super) bursts: Vec<At<Burst>>,
    pub(super) bandwidth: Option<At<Span<Bytes>>>,
    pub(super) delay: Option<At<Span<Nanos>>>,
    pub(super) jitter: Option<At<Amount<Nanos>>>,
    pub(super) loss: Option<At<Amount<Millionths>>>,
    pub(super) retransmit: Option<At<Amount<Nanos>>>,
    pub(super) join: Option<At<Span<Nanos>>>,
    pub(super) leave: Option<At<Span<Nanos>>>,
    #[serde(default)]
    pub(super) outages: Vec<At<Outage>>,
    pub(super) retry: Option<At<Span<Nanos>>>,
    pub(super) window: Option<At<Amount<Bytes>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Burst {
    pub(super) at: Amount<Nanos>,
    pub(super) r#for: Amount<Nanos>,
    pub(super) times: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Subscriber {
    pub(super) name: At<String>,
    pub(super) count: Option<At<u32>>,
    pub(super) topic: At<String>,
    pub(super) shard: Option<At<u32>>,
    pub(super) connection: Option<At<String>>,
    pub(super) takes: Option<At<Span<Count>>>,
    pub(super) asks: Option<At<Span<Nanos>>>,
    pub(super) policy: Option<At<PolicyName>>,
    pub(super) pipe: Option<At<PipeName>>,
    pub(super) batches: Option<u32>,
    pub(super) bytes: Option<Amount<Bytes>>,
    pub(super) bandwidth: Option<At<Span<Bytes>>>,
    pub(super) delay: Option<At<Span<Nanos>>>,
    pub(super) jitter: Option<At<Amount<Nanos>>>,
    pub(super) loss: Option<At<Amount<Millionths>>>,
    pub(super) retransmit: Option<At<Amount<Nanos>>>,
    pub(super) join: Option<At<Span<Nanos>>>,
    pub(super) leave: Option<At<Span<Nanos>>>,
    #[serde(default)]
    pub(super) outages: Vec<At<Outage>>,
    pub(super) retry: Option<At<Span<Nanos>>>,
    pub(super) buffer: Option<At<Amount<Bytes>>>,
    #[serde(default)]
    pub(super) stalls: Vec<At<Stall>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stall {
    pub(super) at: Amount<Nanos>,
    pub(super) r#for: Option<Amount<Nanos>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pressure {
    pub(super) at: At<Amount<Nanos>>,
    pub(super) text: Option<At<String>>,
    #[serde(default)]
    pub(super) unreadable: bool,
}

/// What must hold at the end of a run.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expect {
    pub(super) drained: Option<bool>,
    pub(super) isolation: Option<bool>,
    pub(super) lost: Option<Lost>,
    pub(super) bands: Option<At<Vec<At<String>>>>,
    pub(super) propagation: Option<At<Vec<At<String>>>>,
    pub(super) fairness: Option<At<Fairness>>,
    pub(super) transitions: Option<Bound<Count>>,
    pub(super) factor_min: Option<Bound<Thousandths>>,
    pub(super) factor_final: Option<Bound<Thousandths>>,
    pub(super) backlog_peak: Option<Bound<Bytes>>,
    pub(super) held_peak: Option<Bound<Bytes>>,
    pub(super) queue_peak: Option<Bound<Count>>,
    #[serde(default)]
    pub(super) dropped: Table<Bound<Count>>,
    #[serde(default)]
    pub(super) evicted: Table<Bound<Count>>,
    #[serde(default)]
    pub(super) refused: Table<Bound<Count>>,
    #[serde(default)]
    pub(super) shed: Table<Bound<Count>>,
    #[serde(default)]
    pub(super) tenant: Table<TenantExpect>,
    #[serde(default)]
    pub(super) publisher: Table<PublisherExpect>,
    #[serde(default)]
    pub(super) subscriber: Table<SubscriberExpect>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lost {
    pub(super) nobody_but: Vec<At<String>>,
}

/// How equal tenants' shares must be, and when.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fairness {
    pub(super) tenants: Bound<Thousandths>,
    pub(super) from: Amount<Nanos>,
    pub(super) until: Amount<Nanos>,
}

/// What the books of a tenant must say, in records over all shards.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantExpect {
    /// Brought by its publishers.
    pub offered: Option<Bound<Count>>,
    /// Got sequence numbers.
    pub sequenced: Option<Bound<Count>>,
    /// Answered no.
    pub refused: Option<Bound<Count>>,
    /// Discarded.
    pub shed: Option<Bound<Count>>,
    /// Admitted and then pushed out.
    pub evicted: Option<Bound<Count>>,
    /// Accepted by its subscribers' transports.
    pub delivered: Option<Bound<Count>>,
    /// Dropped for its subscribers.
    pub dropped: Option<Bound<Count>>,
}

/// What a group of publishers must have seen, in records.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublisherExpect {
    /// Handed to the broker.
    pub offered: Option<Bound<Count>>,
    /// Answered no, at once or after waiting.
    pub refused: Option<Bound<Count>>,
    /// Discarded.
    pub shed: Option<Bound<Count>>,
    /// Not made because the window was full.
    pub held_back: Option<Bound<Count>>,
    /// Connections that the broker took.
    pub connects: Option<Bound<Count>>,
    /// Connections that the broker refused.
    pub turned_away: Option<Bound<Count>>,
}

/// What a group of subscribers must have seen, in records over all of the group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubscriberExpect {
    /// Received through the link.
    pub received: Option<Bound<Count>>,
    /// Accepted by the transport.
    pub delivered: Option<Bound<Count>>,
    /// Dropped by the broker.
    pub dropped: Option<Bound<Count>>,
    /// Neither delivered nor dropped at the end.
    pub lag: Option<Bound<Count>>,
    /// Taken by the applications from their inboxes.
    pub taken: Option<Bound<Count>>,
    /// Dropped by the clients' inboxes.
    pub overrun: Option<Bound<Count>>,
    /// On their way when their connection ended.
    pub unconfirmed: Option<Bound<Count>>,
    /// Connections that the broker took.
    pub connects: Option<Bound<Count>>,
    /// Connections that the broker refused.
    pub turned_away: Option<Bound<Count>>,
    /// Connections that the broker gave up.
    pub closed: Option<Bound<Count>>,
    /// Questions asked.
    pub asked: Option<Bound<Count>>,
    /// Answers received.
    pub answered: Option<Bound<Count>>,
    /// 99th percentile of the time from a question to its answer.
    pub answer_p99: Option<Bound<Nanos>>,
    /// The longest of the same.
    pub answer_max: Option<Bound<Nanos>>,
    /// Jain's index over what the group's peers received.
    pub jain: Option<Bound<Thousandths>>,
    /// Median of the time from offer to receipt.
    pub latency_p50: Option<Bound<Nanos>>,
    /// 99th percentile of the same.
    pub latency_p99: Option<Bound<Nanos>>,
    /// The longest of the same.
    pub latency_max: Option<Bound<Nanos>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Variant {
    pub(super) name: At<String>,
    #[serde(default)]
    pub(super) limits: Table<Text>,
    #[serde(default)]
    pub(super) cpu: Cpu,
    #[serde(default)]
    pub(super) expect: Expect,
}
