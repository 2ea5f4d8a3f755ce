//! Effects that are rare enough for a queue: what the host must tell a peer or do to it.

use crate::id::{ConnId, SubId, Ticket};
use crate::verdict::{Place, Reason, Refusal};

/// Something for the host to do, in cause order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Close this connection: the core gave it up. Answer with
    /// [`Broker::gone`](crate::Broker::gone) or [`Broker::close`](crate::Broker::close).
    Close {
        /// Whose.
        conn: ConnId,
        /// Why.
        why: Refusal,
    },
    /// An acked publish was sequenced into its topic.
    Committed {
        /// The publisher.
        conn: ConnId,
        /// From the publish's verdict.
        ticket: Ticket,
        /// Sequence number of its first record.
        first: u64,
    },
    /// We ended a subscription of a single outlet: what waited for it is dropped and counted.
    Ended {
        /// Whose; stale from now on.
        sub: SubId,
        /// Why.
        why: Refusal,
    },
    /// An acked publish that was parked ended without room.
    Failed {
        /// The publisher.
        conn: ConnId,
        /// From the publish's verdict.
        ticket: Ticket,
        /// Why.
        why: Refusal,
    },
    /// The last byte of a closing connection was accepted by its transport.
    Flushed {
        /// Whose.
        conn: ConnId,
    },
    /// Records of this subscription were dropped. Comes before the next record after them.
    Gap {
        /// Whose.
        sub: SubId,
        /// What was lost.
        gap: Gap,
    },
    /// A subscription to a topic of another shard is in force: records follow.
    Joined {
        /// Whose.
        sub: SubId,
        /// The first sequence number it may get.
        start: u64,
    },
    /// Read nothing further from this connection, or source of one. Of a connection that has
    /// sources it is about these, too: which of them are [paused](crate::Broker::is_paused) may
    /// have changed.
    Pause {
        /// Whose.
        conn: ConnId,
    },
    /// Read from this connection, or source of one, again. Of a connection that has sources it is
    /// about these, too: which of them are [paused](crate::Broker::is_paused) may have changed.
    Resume {
        /// Whose.
        conn: ConnId,
    },
    /// Unacked publishes of this connection were shed at one place for one reason since the last
    /// such notice.
    Shed {
        /// The publisher.
        conn: ConnId,
        /// How many records.
        records: u64,
        /// Where.
        place: Place,
        /// Why.
        reason: Reason,
    },
}

/// A run of lost records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Sequence number of the first lost record.
    pub first: u64,
    /// Sequence number of the last lost record.
    pub last: u64,
    /// How many records in `first..=last` were lost; fewer than the span when runs were merged, or
    /// when some were never kept and are from before the subscription began.
    pub records: u64,
    /// Where the first of them was lost.
    pub place: Place,
    /// Why the first of them was lost.
    pub reason: Reason,
}

const _: () = assert!(size_of::<Notice>() <= 48);
