//! A publish on its way to its topic.

use crate::id::{ConnId, OutletId, Ticket};
use crate::lease::Permit;
use crate::ledger::Tally;
use crate::list::Link;
use crate::replay::Keep;
use crate::time::Instant;
use crate::verdict::Ack;

/// Where a job came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A publish that was admitted here.
    Here,
    /// A publish that another shard admitted, to a topic that this one owns.
    Forwarded { shard: u32, flight: Ticket },
    /// A batch that the owner of its topic sequenced; `plain` when no credit bounds it.
    Batch { plain: bool },
}

/// One publish on its way to its topic.
#[derive(Debug)]
pub(crate) struct Job {
    /// Whose bytes it takes, and who is answered.
    pub(crate) conn: ConnId,
    /// Which source of the connection, or the connection itself, brought it.
    pub(crate) source: ConnId,
    pub(crate) topic: u32,
    pub(crate) message: u32,
    pub(crate) tally: Tally,
    pub(crate) ack: Ack,
    /// The publisher's own outlet, and its shard.
    pub(crate) except: Option<(u32, OutletId)>,
    /// What its topic keeps of it.
    pub(crate) keep: Keep,
    /// Invariant: of a job of this shard, none exactly while it is parked.
    pub(crate) permit: Option<Permit>,
    pub(crate) origin: Origin,
    /// In its lane: among those that are queued, or those that wait for room.
    pub(super) link: Link,
    /// Among its tenant's queued jobs, or among its source's parked ones.
    pub(super) other: Link,
    pub(super) timer: Link,
    pub(super) deadline: Instant,
}

impl Job {
    pub(crate) fn new(conn: ConnId, topic: u32, message: u32, tally: Tally, ack: Ack) -> Self {
        Self {
            conn,
            source: conn,
            topic,
            message,
            tally,
            ack,
            except: None,
            keep: Keep::No,
            permit: None,
            origin: Origin::Here,
            link: Link::default(),
            other: Link::default(),
            timer: Link::default(),
            deadline: Instant::NEVER,
        }
    }
}
