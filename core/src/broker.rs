//! The hub: one shard of the broker, as a value.
#![expect(unused_variables, clippy::todo, reason = "signatures first")]
use crate::*;
use bytes::Bytes;

/// One published batch, encoded once.
#[derive(Clone, Debug)]
pub struct Message {
    /// The frame, as the peer's transport takes it.
    pub frame: Bytes,
    /// Records in it; 1..=4096.
    pub records: u32,
    /// What the publisher asked for.
    pub ack: Ack,
    /// This outlet is not in the audience (the publisher's own).
    pub except: Option<OutletId>,
}

/// What kind of pipe an outlet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pipe {
    /// One order and one byte limit over many subscriptions (a WebSocket). Takes `DropOld` and
    /// `DropNew` subscriptions.
    Shared,
    /// One subscription with limits of its own (a QUIC stream).
    Single,
}

/// What a subscription wants. Zero means the server's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// What happens when it is full.
    pub policy: Policy,
    /// At most this many batches waiting; single outlets only.
    pub batches: u32,
    /// At most this many bytes waiting; single outlets only.
    pub bytes: u64,
}

/// Where control bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Before all data that is not in mid-write: acks, pongs, errors, gap notices.
    First,
    /// In order with the data: subscribed, ended.
    InLine,
}

/// How a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// What waits is sent first.
    AfterFlush,
    /// What waits is dropped and counted; only a frame in mid-write is finished.
    Now,
}

/// Permission to write: an outlet, and how much may go now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Which outlet.
    pub outlet: OutletId,
    /// How many bytes its frames hold.
    pub bytes: u64,
}

/// Whether `step` has more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing to do until an input arrives.
    Idle,
    /// Write what is offered, then step again.
    More,
}

/// What waits in an outlet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Batches not yet handed out.
    pub batches: u32,
    /// Their cost in bytes.
    pub bytes: u64,
    /// Whether the transport took less than it was offered, and has not become writable since.
    pub refusing: bool,
}

/// One shard.
pub struct Broker;

impl Broker {
    /// An empty shard. `limits` must pass [`Limits::check`]. Same limits, seed and inputs: same outputs.
    pub fn new(limits: Limits, seed: u64) -> Self {
        todo!()
    }

    // ---- commands

    /// Adds a tenant with a share of `weight` (1..=1000).
    pub fn tenant(&mut self, weight: u32) -> Result<TenantId, Refusal> {
        todo!()
    }
    /// A peer connected.
    pub fn open(&mut self, tenant: TenantId) -> Result<ConnId, Refusal> {
        todo!()
    }
    /// Adds an ordered pipe to the peer.
    pub fn outlet(&mut self, conn: ConnId, pipe: Pipe) -> Result<OutletId, Refusal> {
        todo!()
    }
    /// The topic of this name, made if new. Resolve once, then use the id; a stale id answers Gone.
    pub fn topic(&mut self, tenant: TenantId, name: &str) -> Result<TopicId, Refusal> {
        todo!()
    }
    /// The topic of this name if it exists.
    pub fn find_topic(&self, tenant: TenantId, name: &str) -> Option<TopicId> {
        todo!()
    }
    /// Subscribes from the next batch on.
    pub fn subscribe(&mut self, outlet: OutletId, topic: TopicId, wish: Wish) -> Result<SubId, Refusal> {
        todo!()
    }
    /// Ends a subscription: what waits for it has left.
    pub fn unsubscribe(&mut self, sub: SubId) -> Result<(), Refusal> {
        todo!()
    }
    /// Whether `jobs` publishes of `bytes` frame bytes in all would be admitted now.
    pub fn room(&self, conn: ConnId, jobs: u32, bytes: u64) -> Result<(), Refusal> {
        todo!()
    }
    /// Publishes a batch: checkpoints 3 and 4, one decision.
    pub fn publish(&mut self, conn: ConnId, topic: TopicId, message: Message) -> Verdict {
        todo!()
    }
    /// Queues control bytes (one whole frame). They are never dropped; overflow closes the connection.
    pub fn send(&mut self, outlet: OutletId, frame: Bytes, lane: Lane) -> Result<(), Refusal> {
        todo!()
    }
    /// We end the connection: `last` is its last frame (may be empty). A flushed notice follows.
    pub fn close(&mut self, conn: ConnId, how: Close, last: Bytes) -> Result<(), Refusal> {
        todo!()
    }

    // ---- events

    /// Time moves only here, never backwards. Fires due timers.
    pub fn advance(&mut self, now: Instant) {
        todo!()
    }
    /// The transport takes bytes again.
    pub fn writable(&mut self, outlet: OutletId) {
        todo!()
    }
    /// For hosts that wait: the transport took nothing of an offer that stays open.
    pub fn refused(&mut self, outlet: OutletId) {
        todo!()
    }
    /// Settles an offer: the transport took `bytes`. Less than offered means it refuses now.
    pub fn sent(&mut self, offer: Offer, bytes: u64) {
        todo!()
    }
    /// The transport is gone: what waited has left. Always the last call for a connection.
    pub fn gone(&mut self, conn: ConnId) {
        todo!()
    }
    /// A reading of the memory pressure, or that there was nothing readable. Once per second.
    pub fn pressure(&mut self, sample: Option<Sample>) {
        todo!()
    }
    /// Runs queued publishes, fairly, until `work` deliveries are prepared.
    pub fn step(&mut self, work: u32) -> Progress {
        todo!()
    }

    // ---- effects

    /// The next effect that is not a write.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        todo!()
    }
    /// Who writes now. `None` while a notice waits.
    pub fn poll_ready(&mut self) -> Option<Offer> {
        todo!()
    }
    /// The bytes of an offer, in order: borrowed, no copy. The first may be the rest of a frame.
    pub fn frames(&self, offer: Offer) -> impl Iterator<Item = &[u8]> {
        todo!();
        #[expect(unreachable_code, reason = "signatures first")]
        core::iter::empty()
    }
    /// When `advance` is wanted next even if nothing happens.
    pub fn next_deadline(&self) -> Option<Instant> {
        todo!()
    }

    // ---- looks

    /// The time of the last `advance`.
    pub fn now(&self) -> Instant {
        todo!()
    }
    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        todo!()
    }
    /// The shard's books.
    pub fn ledger(&self) -> &Books {
        todo!()
    }
    /// One tenant's books.
    pub fn tenant_books(&self, tenant: TenantId) -> Option<&Books> {
        todo!()
    }
    /// One topic's totals.
    pub fn topic_books(&self, topic: TopicId) -> Option<TopicBooks> {
        todo!()
    }
    /// One subscription's totals.
    pub fn sub_books(&self, sub: SubId) -> Option<SubBooks> {
        todo!()
    }
    /// Subscriptions of a topic.
    pub fn audience(&self, topic: TopicId) -> Option<u32> {
        todo!()
    }
    /// What waits in an outlet.
    pub fn backlog(&self, outlet: OutletId) -> Option<Backlog> {
        todo!()
    }
    /// The memory band.
    pub fn band(&self) -> Band {
        todo!()
    }
    /// The pressure factor on the memory budget.
    pub fn factor(&self) -> Factor {
        todo!()
    }
    /// Bytes held now.
    pub fn held(&self) -> u64 {
        todo!()
    }
    /// In-flight publish bytes of the shard.
    pub fn inflight(&self) -> u64 {
        todo!()
    }
    /// Publish jobs queued, and publishes parked.
    pub fn jobs(&self) -> (u32, u32) {
        todo!()
    }
    /// Recounts everything and compares. Cost: O(everything).
    #[cfg(any(test, feature = "check"))]
    pub fn check(&self) -> Result<(), Broken> {
        todo!()
    }
    /// The stuck-state predicate: work that nothing will ever wake. For quiescent points. Cost: O(everything).
    #[cfg(any(test, feature = "check"))]
    pub fn check_quiescent(&self) -> Result<(), Broken> {
        todo!()
    }
}
