//! Answers: what became of a publish, and why something was refused. Plain values, never strings.

use crate::id::Ticket;

/// Where in the chain a record ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Place {
    /// Checkpoint 3: in-flight publish bytes.
    Admission,
    /// Checkpoint 5: what waits for one subscription.
    Backlog,
    /// Checkpoint 6: what was handed to one outlet.
    Egress,
    /// The shard's memory budget and its bands.
    Memory,
    /// Checkpoint M: batches on their way between shards.
    Mesh,
    /// Checkpoint 4: queued publish jobs.
    Schedule,
    /// The table of names: tenants, topics, connections, subscriptions.
    Table,
    /// Checkpoint 7: what a client's application has not taken from one subscription.
    Inbox,
    /// Checkpoint 2: publishes queued for one worker of a client.
    Queue,
    /// Checkpoint 1: publish bytes in flight of one client.
    Window,
}

impl Place {
    /// Every place, in ledger order: those of a broker, then those of a client.
    pub const ALL: [Self; 10] = [
        Self::Admission,
        Self::Backlog,
        Self::Egress,
        Self::Memory,
        Self::Mesh,
        Self::Schedule,
        Self::Table,
        Self::Inbox,
        Self::Queue,
        Self::Window,
    ];

    /// The name used in metrics, scenarios and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admission => "admission",
            Self::Backlog => "backlog",
            Self::Egress => "egress",
            Self::Memory => "memory",
            Self::Mesh => "mesh",
            Self::Schedule => "schedule",
            Self::Table => "table",
            Self::Inbox => "inbox",
            Self::Queue => "queue",
            Self::Window => "window",
        }
    }
}

/// Why. A closed list: there is no "other".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Reason {
    /// The source has a parked publish already; it was told to pause.
    Busy,
    /// In-flight bytes of the shard are used up.
    BytesShard,
    /// In-flight bytes of the tenant are used up.
    BytesTenant,
    /// In-flight bytes of the connection are used up.
    BytesConn,
    /// The connection ended, or is ending.
    Closed,
    /// The wait for room ended without room.
    Deadline,
    /// The subscription was full and keeps what it has.
    DropNew,
    /// The subscription was full and gave up its oldest.
    DropOld,
    /// The id is stale.
    Gone,
    /// The count of such things is at its limit.
    Limit,
    /// The way to the other shard was full.
    MeshFull,
    /// The policy is not allowed here.
    NotAllowed,
    /// Dearer than the whole budget: it can never fit.
    Oversize,
    /// The memory band `pressure`: more than half full.
    Pressure,
    /// The publish queue is full.
    QueueFull,
    /// The topic's replay log no longer held it.
    Retention,
    /// The memory band `saturated`.
    Saturated,
    /// The memory band `severe`: more than a sixteenth full.
    Severe,
    /// The shard is shutting down.
    Shutdown,
    /// At its limit for `slow_consumer_after_ms`, and its transport took no byte.
    SlowConsumer,
    /// Waited too long in a queue that did not drain.
    Stale,
    /// Pushed out for a tenant below its guarantee, by one above it.
    TenantShare,
}

impl Reason {
    /// Every reason, in ledger order.
    pub const ALL: [Self; 22] = [
        Self::Busy,
        Self::BytesShard,
        Self::BytesTenant,
        Self::BytesConn,
        Self::Closed,
        Self::Deadline,
        Self::DropNew,
        Self::DropOld,
        Self::Gone,
        Self::Limit,
        Self::MeshFull,
        Self::NotAllowed,
        Self::Oversize,
        Self::Pressure,
        Self::QueueFull,
        Self::Retention,
        Self::Saturated,
        Self::Severe,
        Self::Shutdown,
        Self::SlowConsumer,
        Self::Stale,
        Self::TenantShare,
    ];

    /// The name used in metrics, scenarios and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::BytesShard => "bytes_shard",
            Self::BytesTenant => "bytes_tenant",
            Self::BytesConn => "bytes_conn",
            Self::Closed => "closed",
            Self::Deadline => "deadline",
            Self::DropNew => "drop_new",
            Self::DropOld => "drop_old",
            Self::Gone => "gone",
            Self::Limit => "limit",
            Self::MeshFull => "mesh_full",
            Self::NotAllowed => "not_allowed",
            Self::Oversize => "oversize",
            Self::Pressure => "pressure",
            Self::QueueFull => "queue_full",
            Self::Retention => "retention",
            Self::Saturated => "saturated",
            Self::Severe => "severe",
            Self::Shutdown => "shutdown",
            Self::SlowConsumer => "slow_consumer",
            Self::Stale => "stale",
            Self::TenantShare => "tenant_share",
        }
    }
}

/// Whether, and when, the same request may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// After this many milliseconds.
    After(u16),
    /// Not without a change on the caller's side.
    Never,
}

/// A typed "no".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Refusal {
    /// Where it was refused.
    pub place: Place,
    /// Why.
    pub reason: Reason,
    /// What the caller should do.
    pub retry: Retry,
}

const _: () = assert!(size_of::<Refusal>() <= 8);

impl Refusal {
    pub(crate) const fn never(place: Place, reason: Reason) -> Self {
        Self { place, reason, retry: Retry::Never }
    }

    pub(crate) const fn after(place: Place, reason: Reason, millis: u16) -> Self {
        Self { place, reason, retry: Retry::After(millis) }
    }

    pub(crate) const GONE: Self = Self::never(Place::Table, Reason::Gone);
}

/// What became of a publish at checkpoints 3 and 4.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Admitted. If the publish asked for an ack, a committed notice follows.
    Queued(Ticket),
    /// Waits for room, holding nothing. Its source is paused until a resume notice.
    Parked(Ticket),
    /// Acked publish, answered no. Nothing was taken.
    Refused(Refusal),
    /// Unacked publish, discarded and counted. The publisher learns it in the next shed notice.
    Shed(Refusal),
}

/// What the publisher asked for. It decides what happens when there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ack {
    /// No answer: `drop`, or `backpressure` when `pub_ingress_wait` or `lossless` is set.
    None,
    /// An answer at once: `fail`.
    Now,
    /// An answer within `publish_queue_wait`: `wait`.
    Wait,
}

/// What a full subscription does with the next batch (checkpoint 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The topic accepts no further batch. Only where `lossless` is set.
    Block,
    /// The new batch is dropped for this subscription.
    DropNew,
    /// The oldest batches not yet taken are dropped until the new one fits.
    DropOld,
    /// `DropOld` with a limit of one batch.
    Latest,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shed::Band;
    use alloc::collections::BTreeSet;

    #[test]
    fn every_name_is_one_word_and_is_there_once() {
        let places = Place::ALL.map(Place::name);
        let reasons = Reason::ALL.map(Reason::name);
        let bands = Band::ALL.map(Band::name);
        for names in [&places[..], &reasons, &bands] {
            let different: BTreeSet<_> = names.iter().collect();
            assert_eq!(different.len(), names.len(), "{names:?}");
            let good = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(names.iter().all(|name| !name.is_empty() && name.chars().all(good)));
        }
    }
}
