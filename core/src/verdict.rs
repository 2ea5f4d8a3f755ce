//! Answers: what became of a publish, and why something was refused. Plain values, never strings.

use crate::id::Ticket;

/// Where in the chain a record ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Place {
    /// Checkpoint 3: in-flight publish bytes.
    Admission = 0,
    /// Checkpoint 5: what waits for one subscription.
    Backlog = 1,
    /// Checkpoint 6: what was handed to one outlet.
    Egress = 2,
    /// The shard's memory budget and its bands.
    Memory = 3,
    /// Checkpoint M: batches on their way between shards.
    Mesh = 4,
    /// Checkpoint 4: queued publish jobs.
    Schedule = 5,
    /// The table of names: tenants, topics, connections, subscriptions.
    Table = 6,
    /// Checkpoint 7: what a client's application has not taken from one subscription.
    Inbox = 7,
    /// Checkpoint 2: publishes queued for one worker of a client.
    Queue = 8,
    /// Checkpoint 1: publish bytes in flight of one client.
    Window = 9,
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

    /// The number used between programs. It never changes, and is never used again.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The place with this number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

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
    Busy = 0,
    /// In-flight bytes of the shard are used up.
    BytesShard = 1,
    /// In-flight bytes of the tenant are used up.
    BytesTenant = 2,
    /// In-flight bytes of the connection are used up.
    BytesConn = 3,
    /// The connection ended, or is ending.
    Closed = 4,
    /// The wait for room ended without room.
    Deadline = 5,
    /// The subscription was full and keeps what it has.
    DropNew = 6,
    /// The subscription was full and gave up its oldest.
    DropOld = 7,
    /// The id is stale.
    Gone = 8,
    /// The count of such things is at its limit.
    Limit = 9,
    /// The way to the other shard was full.
    MeshFull = 10,
    /// The policy is not allowed here.
    NotAllowed = 11,
    /// Dearer than the whole budget: it can never fit.
    Oversize = 12,
    /// The memory band `pressure`: more than half full.
    Pressure = 13,
    /// The publish queue is full.
    QueueFull = 14,
    /// The topic's replay log no longer held it.
    Retention = 15,
    /// The memory band `saturated`.
    Saturated = 16,
    /// The memory band `severe`: more than a sixteenth full.
    Severe = 17,
    /// The shard is shutting down.
    Shutdown = 18,
    /// At its limit for `slow_consumer_after_ms`, and its transport took no byte.
    SlowConsumer = 19,
    /// Waited too long in a queue that did not drain.
    Stale = 20,
    /// Pushed out for a tenant below its guarantee, by one above it.
    TenantShare = 21,
    /// Pushed out of its slot while its topic was held, by a publish to a topic that can run.
    TopicHeld = 22,
}

impl Reason {
    /// Every reason, in ledger order.
    pub const ALL: [Self; 23] = [
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
        Self::TopicHeld,
    ];

    /// The number used between programs. It never changes, and is never used again.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The reason with this number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

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
            Self::TopicHeld => "topic_held",
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

    /// Peers of other versions know these numbers: a new one is added behind all others.
    #[test]
    fn numbers_stay_what_they_are() {
        let of = |name| Reason::ALL.into_iter().find(|reason| reason.name() == name).unwrap();
        for (code, name) in
            [(0, "busy"), (11, "not_allowed"), (21, "tenant_share"), (22, "topic_held")]
        {
            assert_eq!(of(name).code(), code);
        }
        assert_eq!((Place::Schedule.code(), Place::Table.code(), Place::Window.code()), (5, 6, 9));
        assert!(Place::ALL.into_iter().all(|it| Place::from_code(it.code()) == Some(it)));
        assert!(Reason::ALL.into_iter().all(|it| Reason::from_code(it.code()) == Some(it)));
        assert_eq!((Place::from_code(10), Reason::from_code(23)), (None, None));
    }
}
