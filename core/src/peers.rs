//! Who is connected: connections, their outlets and their subscriptions, as tables.

use crate::codel::{Codel, Settings};
use crate::id::{ConnId, OutletId, SubId};
use crate::lag::{Gaps, Load};
use crate::ledger::SubBooks;
use crate::list::{Link, List, node};
use crate::notice::Gap;
use crate::replay::Past;
use crate::ring::{Ring, Slot};
use crate::slab::{NONE, Slab};
use crate::time::Instant;
use crate::timer::Timed;
use crate::verdict::{Place, Policy, Reason, Refusal};
use crate::writer::Write;

/// What kind of pipe an outlet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pipe {
    /// One order and one byte limit (`high_water_bytes`) over many subscriptions: a WebSocket.
    /// Takes `DropOld` and `DropNew` subscriptions.
    Shared,
    /// One subscription with limits of its own: a QUIC stream.
    Single,
}

/// How a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// What waits is sent first.
    AfterFlush,
    /// What waits is dropped and counted; only a frame in mid-write is finished.
    Now,
}

/// The bucket of an outlet that is in none.
pub(crate) const NO_BUCKET: u8 = u8::MAX;

/// Why reading from a source is paused; bits, since several can hold. The last two pause all
/// sources of a connection.
pub(crate) const PAUSE_PARKED: u8 = 1;
pub(crate) const PAUSE_CONTROL: u8 = 2;
pub(crate) const PAUSE_FULL: u8 = 4;

/// A peer's transport connection, or one of its sources: a stream of publishes that waits for
/// itself alone. Everything but `parked`, `paused` and `closing` is the connection's.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) tenant: u32,
    /// The connection of a source; of a connection itself its own index.
    pub(crate) conn: u32,
    /// In-flight publish bytes (checkpoint 3).
    pub(crate) inflight: u64,
    /// What the parked publishes that stand in line will take of the connection's bytes: with
    /// `inflight` never more than there are.
    pub(crate) promised: u32,
    /// What its sources have parked, in bytes.
    pub(crate) waiting: u32,
    /// Bytes of unfinished frames that its host holds.
    pub(crate) reassembly: u64,
    /// Its parked publishes, oldest first: the one it brought last, and those pushed out since.
    pub(crate) parked: List<OfSource>,
    pub(crate) paused: u8,
    /// We are ending it; the flushed notice is due when its outlets are empty.
    pub(crate) closing: bool,
    pub(crate) flushed: bool,
    /// The core asked the host to close it.
    pub(crate) condemned: bool,
    /// Its live subscriptions, for their equal shares of checkpoint 6.
    pub(crate) subs: u32,
    /// Records shed and not told yet, and where and why they were.
    pub(crate) shed: u64,
    pub(crate) shed_why: (Place, Reason),
    pub(crate) outlets: List<OfConn>,
    pub(crate) sources: List<Source>,
    /// Sources, and perhaps the connection itself, for whose first parked publish the connection
    /// has no bytes.
    pub(crate) short: List<Short>,
    /// Of a connection: with those that are to be told of shed records. Of a source: with the
    /// others of its connection.
    other: Link,
    aside: Link,
}

/// One ordered pipe to a peer.
#[derive(Debug)]
pub(crate) struct Outlet {
    pub(crate) conn: u32,
    /// Its connection's, so that a write need not look there.
    pub(crate) tenant: u32,
    /// Its connection is closing: the flushed notice is due when all is written.
    pub(crate) closing: Option<Close>,
    pub(crate) pipe: Pipe,
    pub(crate) ring: Ring,
    /// Data waiting behind the mark, and data that is taken.
    pub(crate) waiting: Load,
    pub(crate) taken: Load,
    pub(crate) write: Write,
    pub(crate) subs: List<OfOutlet>,
    /// Subscriptions that are catching up and have half of their limit queued.
    pub(crate) stalled: List<Behind>,
    /// Subscriptions with untold gaps and nothing waiting.
    pub(crate) due: List<Due>,
    /// How long what leaves the queue has waited.
    pub(crate) codel: Codel,
    /// Everything before this position of its queue was sampled: each batch is, once at most.
    pub(crate) judged: u64,
    /// Its transport refused bytes since the queue was empty: only then can anything be stale.
    pub(crate) pressed: bool,
    /// By how much waits, while it refuses.
    pub(crate) bucket: u8,
    heavy: Link,
    slow: Link,
    slow_at: Instant,
    pub(crate) ready: Link,
    of_conn: Link,
}

/// One subscription of one outlet to one topic.
#[derive(Debug)]
pub(crate) struct Sub {
    pub(crate) outlet: u32,
    pub(crate) topic: u32,
    /// The first sequence number it gets; while it is behind, the next one.
    pub(crate) start: u64,
    /// The bytes of its topic before that one; kept while it is behind, and where another shard
    /// said where it starts.
    pub(crate) passed: u64,
    /// Where it is in the topic's audience. While it is behind: its past among all, if it has one.
    pub(crate) place: u32,
    pub(crate) policy: Policy,
    pub(crate) stage: Stage,
    pub(crate) unplaced: Unplaced,
    /// While it is behind.
    pub(crate) line: Line,
    /// Counted in its topic's `holding`.
    pub(crate) holds: bool,
    pub(crate) waiting: Load,
    pub(crate) taken: Load,
    pub(crate) limit: Load,
    /// Slots in the ring that name it, dead ones too.
    pub(crate) slots: u32,
    pub(crate) books: SubBooks,
    pub(crate) gaps: Gaps,
    of_outlet: Link,
    due: Link,
    behind: Link,
    blocking: Link,
    block_until: Instant,
}

/// What the start of a subscription is given as, until the owner of its topic says where that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unplaced {
    /// A sequence number.
    No,
    Earliest,
    /// `start` counts back from the head.
    Last,
    /// `start` is a number of the topic's life with the epoch in `passed`.
    At,
}

/// Where a subscription that is catching up waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// In none: it asked the owner of its topic for batches, and the answer is not complete.
    Asked,
    /// With those that have just begun.
    Begun,
    /// With those that may have room.
    Ready,
    /// With those of its outlet that have none.
    Stalled,
}

/// A subscription's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// In the audience.
    Live,
    /// Catching up with its topic; not in the audience yet.
    Behind,
    /// Waits for the answer of the shard that owns its topic.
    Pending,
    /// Out of the audience; what is queued is still delivered.
    Draining,
    /// Its slots from this ring position on are dead.
    Left(u64),
}

#[derive(Debug)]
pub(crate) struct OfConn;
/// The sources of a connection.
#[derive(Debug)]
pub(crate) struct Source;
/// Those of them that are short of bytes.
#[derive(Debug)]
pub(crate) struct Short;
/// The parked jobs of a source.
#[derive(Debug)]
pub(crate) struct OfSource;
#[derive(Debug)]
pub(crate) struct OfOutlet;
#[derive(Debug)]
pub(crate) struct Due;
/// Subscriptions that are catching up: those that may have room, and those of an outlet that have
/// none.
#[derive(Debug)]
pub(crate) struct Behind;
/// Refusing outlets in which something waits.
#[derive(Debug)]
pub(crate) struct Heavy;
/// Outlets at their limit whose transport takes nothing.
#[derive(Debug)]
pub(crate) struct Slow;
/// Subscriptions that hold their topic.
#[derive(Debug)]
pub(crate) struct Blocking;
#[derive(Debug)]
pub(crate) struct Untold;
/// Outlets that have something to write; the two lists of checkpoint 6 share one link.
#[derive(Debug)]
pub(crate) struct Ready;

node!(OfConn, Outlet, of_conn);
node!(OfOutlet, Sub, of_outlet);
node!(Due, Sub, due);
node!(Behind, Sub, behind);
node!(Blocking, Sub, blocking);
node!(Slow, Outlet, slow);
node!(Heavy, Outlet, heavy);

impl Timed<Blocking> for Sub {
    fn deadline(&self) -> Instant {
        self.block_until
    }
    fn set_deadline(&mut self, at: Instant) {
        self.block_until = at;
    }
}

impl Timed<Slow> for Outlet {
    fn deadline(&self) -> Instant {
        self.slow_at
    }
    fn set_deadline(&mut self, at: Instant) {
        self.slow_at = at;
    }
}

node!(Untold, Conn, other);
node!(Source, Conn, other);
node!(Short, Conn, aside);
node!(Ready, Outlet, ready);

impl Conn {
    fn new(tenant: u32) -> Self {
        Self {
            tenant,
            conn: NONE,
            inflight: 0,
            promised: 0,
            waiting: 0,
            reassembly: 0,
            parked: List::default(),
            paused: 0,
            closing: false,
            flushed: false,
            condemned: false,
            subs: 0,
            shed: 0,
            shed_why: (Place::Admission, Reason::Busy),
            outlets: List::default(),
            sources: List::default(),
            short: List::default(),
            other: Link::default(),
            aside: Link::default(),
        }
    }

    /// Whether a connection is among those that are to be told of shed records.
    pub(crate) const fn untold_is_linked(&self) -> bool {
        self.other.is_linked()
    }

    /// Whether its first parked publish waits for bytes of the connection.
    pub(crate) const fn is_short(&self) -> bool {
        self.aside.is_linked()
    }
}

impl Outlet {
    pub(crate) fn new(conn: u32, tenant: u32, pipe: Pipe) -> Self {
        Self {
            conn,
            tenant,
            closing: None,
            pipe,
            ring: Ring::default(),
            waiting: Load::default(),
            taken: Load::default(),
            write: Write::default(),
            subs: List::default(),
            stalled: List::default(),
            due: List::default(),
            codel: Codel::new(),
            judged: 0,
            pressed: false,
            bucket: NO_BUCKET,
            heavy: Link::default(),
            slow: Link::default(),
            slow_at: Instant::NEVER,
            ready: Link::default(),
            of_conn: Link::default(),
        }
    }

    /// Whether its transport took no byte since it was at its limit.
    pub(crate) const fn is_slow(&self) -> bool {
        self.slow.is_linked()
    }

    /// Its queue is empty: nobody waits, and its peer keeps up.
    #[inline]
    pub(crate) fn keeps_up(&mut self, codel: Option<&Settings>, now: Instant) {
        self.pressed = false;
        if let Some(settings) = codel {
            self.codel.empty(settings, now);
        }
    }

    /// Whether its next offer is nothing but slots of its queue.
    pub(crate) fn is_plain(&self) -> bool {
        self.due.is_empty() && !self.write.has_first() && self.write.begun.is_none()
    }

    /// Whether bytes that its transport takes change a list it is in.
    pub(crate) const fn is_watched(&self) -> bool {
        self.is_slow() || self.bucket != NO_BUCKET
    }

    /// Whether somebody waits for its turn to be over.
    pub(crate) const fn is_eventful(&self) -> bool {
        self.write.control_full || self.closing.is_some() || !self.stalled.is_empty()
    }

    /// Whether there is anything to write or to tell.
    pub(crate) fn has_work(&self) -> bool {
        !self.ring.is_empty() || self.write.has_first() || !self.due.is_empty()
    }
}

impl Sub {
    pub(crate) fn new(outlet: u32, topic: u32, policy: Policy, limit: Load) -> Self {
        Self {
            outlet,
            topic,
            start: 0,
            passed: 0,
            place: NONE,
            policy,
            stage: Stage::Live,
            unplaced: Unplaced::No,
            line: Line::Ready,
            holds: false,
            waiting: Load::default(),
            taken: Load::default(),
            limit,
            slots: 0,
            books: SubBooks::default(),
            gaps: Gaps::default(),
            of_outlet: Link::default(),
            due: Link::default(),
            behind: Link::default(),
            blocking: Link::default(),
            block_until: Instant::NEVER,
        }
    }

    /// Whether it gets records of its topic: now, or once it caught up.
    pub(crate) const fn is_active(&self) -> bool {
        matches!(self.stage, Stage::Live | Stage::Behind | Stage::Pending)
    }

    #[cfg(any(test, feature = "check"))]
    pub(crate) const fn is_blocking(&self) -> bool {
        self.blocking.is_linked()
    }

    /// Whether its oldest batch may be given up: another one follows, and it is not `block`.
    pub(crate) const fn may_lose_one(&self) -> bool {
        self.waiting.batches > 1 && !matches!(self.policy, Policy::Block)
    }

    /// Whether nothing of it is queued or taken.
    pub(crate) const fn is_drained(&self) -> bool {
        self.waiting.batches == 0 && self.taken.batches == 0
    }

    /// Whether its slot at a ring position is dead.
    pub(crate) const fn is_dead(&self, position: u64) -> bool {
        matches!(self.stage, Stage::Left(from) if position >= from)
    }
}

/// Bytes charged for a table entry, for a slot of a ring, and for a run of lost records. Fixed, so
/// that what is held, and so every decision, is the same on every machine and in every version.
pub(crate) const CONN: u64 = 128;
pub(crate) const OUTLET: u64 = 320;
pub(crate) const SUB: u64 = 256;
pub(crate) const SLOT: u64 = size_of::<Slot>() as u64;

pub(crate) const RUN: u64 = 32;

const _: () = assert!(size_of::<Gap>() as u64 == RUN);
const _: () = assert!(size_of::<Conn>() as u64 <= CONN);
const _: () = assert!(size_of::<Outlet>() as u64 <= OUTLET);
const _: () = assert!(size_of::<Sub>() as u64 <= SUB);

#[derive(Debug, Default)]
pub(crate) struct Peers {
    pub(crate) conns: Slab<Conn>,
    pub(crate) outlets: Slab<Outlet>,
    pub(crate) subs: Slab<Sub>,
    /// How many of `conns` are sources.
    pub(crate) sources: u32,
    /// Connections with shed records they were not told of.
    pub(crate) untold: List<Untold>,
    /// What subscriptions that are behind have still to get from before they began.
    pub(crate) pasts: Slab<Past>,
}

impl Peers {
    /// What a subscription has still to get from before it began, if there is anything.
    pub(crate) fn past_of(&self, index: u32) -> Option<&Past> {
        let sub = &self.subs[index];
        let has_one = sub.stage == Stage::Behind && sub.place != NONE;
        has_one.then(|| &self.pasts[sub.place])
    }

    pub(crate) fn conn(&self, id: ConnId) -> Result<&Conn, Refusal> {
        self.conns.get(id.index, id.generation).ok_or(Refusal::GONE)
    }

    /// A connection that is not a source of one.
    pub(crate) fn whole(&self, id: ConnId) -> Result<&Conn, Refusal> {
        let conn = self.conn(id)?;
        let is_whole = conn.conn == id.index;
        if is_whole { Ok(conn) } else { Err(Refusal::never(Place::Table, Reason::NotAllowed)) }
    }

    pub(crate) fn add_conn(&mut self, tenant: u32) -> ConnId {
        let (index, generation) = self.conns.insert(Conn::new(tenant));
        self.conns[index].conn = index;
        ConnId { index, generation }
    }

    pub(crate) fn add_source(&mut self, conn: u32) -> ConnId {
        let source = Conn { conn, ..Conn::new(self.conns[conn].tenant) };
        let (index, generation) = self.conns.insert(source);
        let mut sources = core::mem::take(&mut self.conns[conn].sources);
        sources.push_back(&mut self.conns, index);
        self.conns[conn].sources = sources;
        self.sources += 1;
        ConnId { index, generation }
    }

    pub(crate) fn remove_source(&mut self, index: u32) {
        let conn = self.conns[index].conn;
        let mut sources = core::mem::take(&mut self.conns[conn].sources);
        sources.unlink(&mut self.conns, index);
        self.conns[conn].sources = sources;
        self.sources -= 1;
        let source = self.conns.remove(index);
        debug_assert!(source.parked.is_empty() && !source.is_short(), "nothing of it waits");
    }

    /// A source waits for bytes of its connection, behind those that do already.
    pub(crate) fn line_up(&mut self, source: u32) {
        self.with_short(source, |short, conns| short.push_back(conns, source));
    }

    /// A source does not wait for bytes of its connection, or not any more.
    pub(crate) fn step_out(&mut self, source: u32) {
        self.with_short(source, |short, conns| short.unlink_if(conns, source));
    }

    fn with_short(&mut self, source: u32, act: impl FnOnce(&mut List<Short>, &mut Slab<Conn>)) {
        let conn = self.conns[source].conn;
        let mut short = core::mem::take(&mut self.conns[conn].short);
        act(&mut short, &mut self.conns);
        self.conns[conn].short = short;
    }

    pub(crate) fn outlet(&self, id: OutletId) -> Result<&Outlet, Refusal> {
        self.outlets.get(id.index, id.generation).ok_or(Refusal::GONE)
    }

    /// A subscription that has not left.
    pub(crate) fn sub(&self, id: SubId) -> Result<&Sub, Refusal> {
        let sub = self.subs.get(id.index, id.generation).ok_or(Refusal::GONE)?;
        if sub.is_active() { Ok(sub) } else { Err(Refusal::GONE) }
    }

    pub(crate) fn conn_id(&self, index: u32) -> ConnId {
        ConnId { index, generation: self.conns.generation(index) }
    }

    pub(crate) fn outlet_id(&self, index: u32) -> OutletId {
        OutletId { index, generation: self.outlets.generation(index) }
    }

    pub(crate) fn sub_id(&self, index: u32) -> SubId {
        SubId { index, generation: self.subs.generation(index) }
    }

    pub(crate) fn add_outlet(&mut self, conn: u32, pipe: Pipe) -> OutletId {
        let index = self.outlets.insert(Outlet::new(conn, self.conns[conn].tenant, pipe)).0;
        self.conns[conn].outlets.push_back(&mut self.outlets, index);
        self.outlet_id(index)
    }

    pub(crate) fn remove_outlet(&mut self, index: u32) {
        let conn = self.outlets[index].conn;
        self.conns[conn].outlets.unlink(&mut self.outlets, index);
        let outlet = self.outlets.remove(index);
        debug_assert!(outlet.ring.is_empty() && outlet.subs.is_empty(), "only empty outlets go");
    }

    pub(crate) fn add_sub(&mut self, sub: Sub) -> u32 {
        let outlet = sub.outlet;
        let index = self.subs.insert(sub).0;
        self.outlets[outlet].subs.push_back(&mut self.subs, index);
        index
    }

    /// Frees a subscription that has left and that no slot names any more.
    pub(crate) fn free_sub(&mut self, index: u32) -> bool {
        let sub = &self.subs[index];
        if sub.is_active() || sub.slots > 0 {
            return false;
        }
        let outlet = sub.outlet;
        debug_assert!(sub.books.lag.is_zero(), "a subscription without slots has no lag");
        self.outlets[outlet].due.unlink_if(&mut self.subs, index);
        self.outlets[outlet].subs.unlink(&mut self.subs, index);
        self.subs.remove(index);
        true
    }

    /// A subscription with nothing left to write is told its gaps next.
    pub(crate) fn note_due(&mut self, index: u32) {
        let sub = &self.subs[index];
        if sub.gaps.is_empty() || !sub.is_drained() || sub.due.is_linked() {
            return;
        }
        let outlet = sub.outlet;
        self.outlets[outlet].due.push_back(&mut self.subs, index);
    }
}
