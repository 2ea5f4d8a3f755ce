//! The hub: the only file that knows the order of the checkpoints.
//!
//! A message's walk: [`publish`](Broker::publish) asks checkpoints 3 and 4 for room and queues a
//! job; [`step`](Broker::step) picks jobs fairly, gives them sequence numbers and offers them to
//! each subscription (checkpoint 5); [`poll`](Broker::poll), `frames` and `sent` write
//! what is queued (checkpoint 6). Each part is a file under `broker/`.

use crate::admission::Admission;
use crate::codel;
use crate::egress::Egress;
use crate::heavy::Heaviest;
use crate::id::{ConnId, OutletId, TenantId};
use crate::lease::Permit;
use crate::ledger::{Books, Ledger, Tally};
use crate::limits::Limits;
use crate::list::List;
use crate::memory::Memory;
use crate::names::Names;
use crate::notice::Notice;
use crate::peers::{
    Behind, Blocking, CONN, OUTLET, Outlet, PAUSE_CONTROL, PAUSE_PARKED, Peers, Slow,
};
pub use crate::peers::{Close, Pipe};
use crate::pool::{Lease, LeaseWish};
use crate::pressure::{Controller, Sample};
use crate::rand::Rand;
use crate::replay::{Keep, Start};
use crate::schedule::Schedule;
use crate::shed::{Band, Bands};
use crate::slab::Slab;
use crate::time::Instant;
use crate::timer::Timers;
use crate::topic::{Idle, Kept, Retained, Topic, Unused};
use crate::verdict::{Ack, Place, Policy, Reason, Refusal};
pub use crate::writer::Lane;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;

mod catch_up;
#[cfg(any(test, feature = "check"))]
mod check;
mod draft;
mod fan_out;
mod fan_run;
mod fetch;
mod forbid;
mod join;
mod leave;
mod look;
mod mesh;
mod publish;
mod relief;
mod settle;
mod shutdown;
mod slow;
mod sources;
mod tape;
#[cfg(test)]
mod tests;
mod topics;
mod write;

use mesh::Mesh;
use shutdown::Phase;
pub use tape::{Damage, Input, Item, Items, Kind, Outcome, Recorder, Tape};
pub use write::Frames;

/// One published batch, encoded once.
#[derive(Clone, Debug)]
pub struct Message {
    /// The frame, as the peer's transport takes it; at most `max_frame_bytes`.
    pub frame: Bytes,
    /// Records in it: 1 to 4096.
    pub records: u32,
    /// What the publisher asked for.
    pub ack: Ack,
    /// This outlet of a shard is not in the audience (the publisher's own).
    pub except: Option<(u32, OutletId)>,
    /// What its topic keeps of it.
    pub keep: Keep,
}

/// What a subscription wants. Zero means the server's limit, which is also the most it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// What happens when it is full.
    pub policy: Policy,
    /// At most this many batches waiting; single outlets only.
    pub batches: u32,
    /// At most this many bytes waiting; single outlets only.
    pub bytes: u64,
    /// With which batch it starts.
    pub start: Start,
}

impl Wish {
    /// This policy, with the server's limits, from the next batch on.
    pub const fn policy(policy: Policy) -> Self {
        Self { policy, batches: 0, bytes: 0, start: Start::Tail }
    }
}

/// Permission to write: an outlet, and how much may go now.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Which outlet.
    pub outlet: OutletId,
    /// How many bytes its frames hold.
    pub bytes: u64,
}

/// Something for the host to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Tell a peer, or do something to it.
    Notice(Notice),
    /// Write the frames of the offer, then settle it.
    Write(Offer),
}

/// Whether [`Broker::step`] has more to do.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing to do until an input arrives.
    Idle,
    /// Write what is offered, then step again without sleeping.
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

/// Who shares the shard fairly with the others.
#[derive(Debug, Default)]
struct Tenant {
    names: Names,
    topics: u32,
    /// Topics nobody uses, longest unused first.
    idle: List<Idle>,
    /// Topics that only their log is a use of, longest unused first.
    kept: List<Kept>,
}

/// A batch on its way to its topic's audience.
#[derive(Debug)]
struct FanOut {
    tenant: u32,
    topic: u32,
    message: u32,
    first: u64,
    tally: Tally,
    cost: u64,
    /// The place in the audience that is next.
    served: u32,
    /// Subscriptions reached and not booked yet.
    reached: u32,
    /// Index of the outlet that is not in the audience, or `NONE`.
    except: u32,
    conn: ConnId,
    /// Of a batch that was admitted here.
    permit: Option<Permit>,
    /// The owner of its topic is another shard.
    is_foreign: bool,
    /// What was lost before it on its way here: the first sequence number, and how much.
    lost: Option<(u64, Tally)>,
}

/// One shard of the broker. See the crate's documentation for the turn a host repeats.
#[derive(Debug)]
pub struct Broker {
    limits: Limits,
    now: Instant,
    epochs: Rand,
    tenants: Vec<Tenant>,
    topics: Slab<Topic>,
    /// Topics of all tenants that nobody uses, longest unused first.
    unused: List<Unused>,
    /// Topics with a log, longest silent first.
    retained: Timers<Retained>,
    /// Subscriptions that are catching up and may have room.
    behind: List<Behind>,
    /// Those that have just begun, and get their first batch before anything is sequenced.
    begun: List<Behind>,
    /// Of steps too small to be halved, the next one is theirs.
    behind_next: bool,
    peers: Peers,
    memory: Memory,
    ledger: Ledger,
    admission: Admission,
    schedule: Schedule,
    egress: Egress,
    pressure: Controller,
    /// The shard's part of the memory budget.
    lease: Lease,
    bands: Bands,
    /// Some shard of the process is saturated, as the host said last.
    node_saturated: bool,
    fan: Option<FanOut>,
    /// Connections with a publish that was pushed out: one that is parked may have bytes now.
    unstood: Vec<ConnId>,
    /// Outlets at their limit whose transport takes nothing.
    slow: Timers<Slow>,
    /// Staleness, unless it is off.
    codel: Option<codel::Settings>,
    /// How often a subscription came to hold its topic.
    holds: u64,
    /// Subscriptions that hold their topic and have a deadline.
    blocking: Timers<Blocking>,
    mesh: Mesh,
    /// Refusing outlets, by how much waits in them.
    heaviest: Heaviest,
    phase: Phase,
    /// Inputs since the host took them last; none while they are not recorded.
    tape: Option<Vec<Input>>,
    /// Invariant: empty when the host's turn ends; grows by what one turn causes.
    notices: VecDeque<Notice>,
}

/// The most tenants of a shard; their books are the largest fixed part.
const MAX_TENANTS: usize = 10_000;

/// Setting up: tenants, connections, outlets, topics, subscriptions.
impl Broker {
    /// An empty shard, the only one or the first. Same limits, seed and inputs give the same
    /// outputs, bit for bit.
    ///
    /// # Panics
    /// When `limits` does not pass [`Limits::check`].
    pub fn new(limits: Limits, seed: u64) -> Self {
        Self::shard(limits, seed, 0)
    }

    /// An empty shard, number `shard` of `limits.shards`. All shards of a process have the same
    /// limits, and the same tenants in the same order.
    ///
    /// # Panics
    /// When `limits` does not pass [`Limits::check`], or there are not that many shards.
    pub fn shard(limits: Limits, seed: u64, shard: u32) -> Self {
        let shards = u32::try_from(limits.shards).expect("a small range");
        if let Err(error) = limits.check() {
            panic!("limits must be checked before they are used: {error}");
        }
        Self {
            now: Instant::ZERO,
            epochs: Rand::new(seed ^ u64::from(shard) << 32).fork("topic epochs"),
            tenants: Vec::new(),
            topics: Slab::default(),
            unused: List::default(),
            retained: Timers::new(Duration::from_millis(limits.retention_ms)),
            behind: List::default(),
            begun: List::default(),
            behind_next: false,
            peers: Peers::default(),
            memory: Memory::default(),
            ledger: Ledger::default(),
            admission: Admission::new(&limits),
            schedule: Schedule::new(&limits),
            egress: Egress::new(),
            pressure: Controller::new(limits.pressure_threshold_percent),
            lease: Lease::new(limits.memory_budget, shards),
            mesh: Mesh::new(shard, shards),
            bands: Bands::new(Duration::from_millis(limits.band_dwell_ms)),
            node_saturated: false,
            fan: None,
            unstood: Vec::new(),
            slow: Timers::new(Duration::from_millis(limits.slow_consumer_after_ms)),
            codel: codel::Settings::new(
                Duration::from_millis(limits.codel_target_ms),
                Duration::from_millis(limits.codel_interval_ms),
            ),
            holds: 0,
            blocking: Timers::new(Duration::from_millis(limits.block_deadline_ms)),
            heaviest: Heaviest::default(),
            phase: Phase::Running,
            tape: None,
            notices: VecDeque::new(),
            limits,
        }
    }

    /// Adds a tenant with a share of `weight` (1 to 1000). Cost: O(1).
    pub fn tenant(&mut self, weight: u32) -> Result<TenantId, Refusal> {
        self.tape_tenant(weight);
        if self.tenants.len() >= MAX_TENANTS {
            return Err(Refusal::never(Place::Table, Reason::Limit));
        }
        let index = self.schedule.add_tenant(weight.clamp(1, 1000));
        self.admission.add_tenant();
        self.tenants.push(Tenant::default());
        self.ledger.tenants.push(Books::default());
        Ok(TenantId { index, generation: 0 })
    }

    /// From now on a tenant has a share of `weight` (1 to 1000). Cost: O(1).
    pub fn reweigh(&mut self, tenant: TenantId, weight: u32) -> Result<(), Refusal> {
        self.tape_reweigh(tenant, weight);
        let index = self.tenant_index(tenant)?;
        self.schedule.reweigh(index, weight.clamp(1, 1000));
        Ok(())
    }

    fn tenant_index(&self, tenant: TenantId) -> Result<u32, Refusal> {
        let known = (tenant.index as usize) < self.tenants.len() && tenant.generation == 0;
        if known { Ok(tenant.index) } else { Err(Refusal::GONE) }
    }

    /// A peer connected. Cost: O(1).
    pub fn open(&mut self, tenant: TenantId) -> Result<ConnId, Refusal> {
        self.tape_open(tenant);
        let tenant = self.tenant_index(tenant)?;
        if !self.is_running() {
            return Err(Self::shutting_down());
        }
        if u64::from(self.counts().0) >= self.limits.max_connections {
            return Err(Refusal::after(Place::Table, Reason::Limit, 1_000));
        }
        self.memory.charge(CONN);
        Ok(self.peers.add_conn(tenant))
    }

    /// Adds an ordered pipe to the peer. Cost: O(1).
    pub fn outlet(&mut self, conn: ConnId, pipe: Pipe) -> Result<OutletId, Refusal> {
        self.tape_outlet(conn, pipe);
        if self.peers.whole(conn)?.closing {
            return Err(Refusal::never(Place::Table, Reason::Closed));
        }
        self.memory.charge(OUTLET);
        Ok(self.peers.add_outlet(conn.index, pipe))
    }
}

/// Events.
impl Broker {
    /// Time moves only here, and never backwards. Fires due timers. Cost: O(due timers).
    pub fn advance(&mut self, now: Instant) {
        self.tape_advance(now);
        assert!(now >= self.now, "time goes forward");
        self.now = now;
        while let Some(job) = self.schedule.due(now) {
            self.expire(job);
        }
        self.end_slow();
        self.end_grace();
        self.note_calm();
        self.forget_due();
        self.update_band();
        self.retire_some();
    }

    /// A reading of the memory pressure, or that nothing was readable. Once per second.
    pub fn pressure(&mut self, sample: Option<Sample>) {
        self.tape_pressure(sample);
        self.pressure.sample(self.now, sample);
        self.update_band();
    }

    fn update_band(&mut self) {
        let before = self.bands.band();
        self.bands.update(self.now, self.memory.bytes(), self.budget());
        if before == Band::Saturated && self.bands.band() != Band::Saturated {
            self.pay_credit();
            self.serve_parked();
        }
    }

    fn budget(&self) -> u64 {
        self.pressure.factor().of(self.lease.effective())
    }

    /// What the shard wants of the process-wide memory budget. Ask once per turn. Cost: O(1).
    pub const fn lease_wish(&self) -> LeaseWish {
        self.lease.wish(self.memory.bytes())
    }

    /// The host's answer: what the shard has on loan besides its floor, and what the pool would
    /// lend now. Cost: O(1).
    pub fn lease(&mut self, lent: u64, lendable: u64) {
        self.tape_lease(lent, lendable);
        self.lease.set(lent, lendable);
        self.update_band();
    }

    /// How many bytes of unfinished frames the host holds for a connection; part of what the
    /// shard holds. Refused beyond `pub_conn_inflight_bytes`, with nothing changed: no publish of
    /// that size can be admitted. Cost: O(1).
    pub fn reassembly(&mut self, conn: ConnId, bytes: u64) -> Result<(), Refusal> {
        self.tape_reassembly(conn, bytes);
        self.peers.whole(conn)?;
        if bytes > self.limits.pub_conn_inflight_bytes {
            return Err(Refusal::never(Place::Admission, Reason::Oversize));
        }
        let held = core::mem::replace(&mut self.peers.conns[conn.index].reassembly, bytes);
        self.memory.discharge(held);
        self.memory.charge(bytes);
        self.update_band();
        Ok(())
    }

    /// When the next turn is wanted even if nothing happens: now, while publishes can run.
    pub fn next_deadline(&self) -> Option<Instant> {
        let retiring = self.bands.band() != Band::Normal && !self.unused.is_empty();
        if self.wants_step() || retiring {
            return Some(self.now);
        }
        let band = self.bands.deadline(self.memory.bytes(), self.budget());
        let timers = [
            self.schedule.next_deadline(),
            self.retained.next(&self.topics),
            self.slow.next(&self.peers.outlets),
            self.blocking.next(&self.peers.subs),
            self.grace_ends(),
            self.calm_at(),
            band,
        ];
        timers.into_iter().flatten().min()
    }

    /// The next thing for the host to do; `None` ends the turn. Notices come before offers, so that
    /// a gap is told before the record after it. A host that writes at once settles an offer with
    /// [`sent`](Self::sent) before any other input. Cost: O(frames of the offer).
    pub fn poll(&mut self) -> Option<Effect> {
        self.tape_poll();
        loop {
            if let Some(notice) = self.poll_notice() {
                return Some(Effect::Notice(notice));
            }
            if let Some(offer) = self.poll_ready() {
                return Some(Effect::Write(offer));
            }
            if self.notices.is_empty() {
                return None;
            }
        }
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        if let Some(notice) = self.notices.pop_front() {
            self.mesh.unheard -= u32::from(matches!(notice, Notice::Joined { .. }));
            return Some(notice);
        }
        let index = self.peers.untold.pop_front(&mut self.peers.conns)?;
        Some(self.take_shed(index))
    }

    /// What of a connection was shed and not told.
    fn take_shed(&mut self, index: u32) -> Notice {
        let conn = self.peers.conn_id(index);
        let peer = &mut self.peers.conns[index];
        let (records, (place, reason)) = (core::mem::take(&mut peer.shed), peer.shed_why);
        Notice::Shed { conn, records, place, reason }
    }

    /// Adds or removes a reason to pause a connection, and tells the host when that changes it.
    fn pause(&mut self, index: u32, reason: u8, on: bool) {
        let conn = &mut self.peers.conns[index];
        if conn.closing && on {
            return;
        }
        let before = conn.paused;
        conn.paused = if on { before | reason } else { before & !reason };
        let after = conn.paused;
        // Its sources wait for all of this but what it has parked itself.
        let has_sources = !conn.sources.is_empty();
        let all = |bits: u8| has_sources && bits & !PAUSE_PARKED != 0;
        let conn = self.peers.conn_id(index);
        if (before == 0 && after != 0) || (!all(before) && all(after)) {
            self.notices.push_back(Notice::Pause { conn });
        } else if (before != 0 && after == 0) || (all(before) && !all(after)) {
            self.notices.push_back(Notice::Resume { conn });
        }
    }

    /// Compares the control bytes of an outlet with half its reserve.
    fn note_control(&mut self, outlet: u32) {
        let Outlet { conn, write, .. } = &mut self.peers.outlets[outlet];
        let full = write.control * 2 > self.limits.control_reserve_bytes;
        if full == write.control_full {
            return;
        }
        write.control_full = full;
        let conn = *conn;
        self.note_control_of(conn);
    }

    /// A connection is paused while any of its outlets has used half its reserve.
    fn note_control_of(&mut self, conn: u32) {
        let outlets = &self.peers.outlets;
        let is_full = |outlet: u32| outlets[outlet].write.control_full;
        let any = self.peers.conns[conn].outlets.iter(outlets).any(is_full);
        self.pause(conn, PAUSE_CONTROL, any);
    }
}
