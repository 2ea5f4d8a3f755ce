//! The tape: every input of a shard as plain numbers, written by any host, applied again anywhere.
//!
//! A tape holds lengths and hashed names, never payloads. Applied to a shard with the same limits
//! and seed it gives the same answers, effects and books, bit for bit. The same inputs, made from
//! random bytes, are what the fuzzer and the model tests feed: [`Broker::apply`] takes any input
//! and ignores what a host may not do.

use super::{Broker, Close, Effect, Lane, Message, Pipe, Progress, Wish};
use crate::id::{ConnId, OutletId, SubId, TenantId, TopicId};
use crate::ledger::Tally;
use crate::mesh::{Body, Carried, Fetch, Head, Named, Parcel};
use crate::pressure::Sample;
use crate::replay::{Keep, Past, Spot, Start};
use crate::time::Instant;
use crate::verdict::{Place, Reason, Refusal, Retry, Verdict};
use alloc::vec::Vec;
use core::num::NonZeroU32;

mod file;
mod play;

pub use file::{Damage, Item, Items, Recorder, Tape};

/// The most numbers of an input.
const MOST: usize = 16;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $width:literal)*) => {
        /// What an input does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            const ALL: &[(Self, usize)] = &[$((Self::$kind, $width),)*];
        }
    };
}

kinds! {
    /// Time.
    Advance 1
    /// Connection, how (after flushing, now), bytes of the last frame.
    Close 3
    /// Connection.
    Gone 1
    /// Bytes lent, bytes that could be lent.
    Lease 2
    /// Tenant.
    Open 1
    /// Connection, pipe (shared, single).
    Outlet 2
    /// The next effect.
    Poll 0
    /// The next parcel for this shard.
    PollParcel 1
    /// Whether it could be read, `avg10`, total.
    Pressure 3
    /// Connection, topic, bytes, records, ack (none, now, wait), whether one outlet is left out (1:
    /// of this shard, 2 and more: of shard 0 and so on), which, and what is kept (the default,
    /// nothing, from 2 on: one record less, the newest).
    Publish 8
    /// Connection, bytes.
    Reassembly 2
    /// From which shard, and the parcel.
    Receive 16
    /// Connection, records, bytes, and the refusal.
    Refuse 6
    /// Outlet.
    Refused 1
    /// Outlet, bytes, lane (first, in line).
    Send 3
    /// Outlet, bytes.
    Sent 2
    /// Outlet.
    Shut 1
    /// Nothing new from now on.
    Shutdown 0
    /// Deliveries at most.
    Step 1
    /// Outlet, topic, policy, batches, bytes, and the start.
    Subscribe 8
    /// Weight.
    Tenant 1
    /// Tenant, hash of the name, its length.
    Topic 3
    /// Subscription.
    Unsubscribe 1
    /// Outlet.
    Writable 1
    /// Whether a shard of the process is saturated.
    Node 1
    /// Tenant.
    Forget 1
    /// Tenant, weight.
    Reweigh 2
    /// Connection, records, bytes, and the refusal.
    Shed 6
    /// Connection.
    Source 1
}

/// One input of a shard: a command or an event, or one step of a host's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    kind: Kind,
    numbers: [u64; MOST],
}

/// What a shard answered to an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to answer.
    Done,
    /// No host may do that: nothing was done.
    Ignored,
    /// A new id, as bits.
    Id(u64),
    /// No.
    Refused(Refusal),
    /// To a publish.
    Verdict(Verdict),
    /// To a poll.
    Effect(Option<Effect>),
    /// To a step.
    Progress(Progress),
    /// To a poll for parcels: whether there was one.
    Parcel(bool),
}

impl Input {
    fn new<const N: usize>(kind: Kind, some: [u64; N]) -> Self {
        debug_assert!(Kind::ALL.contains(&(kind, N)), "as many numbers as its kind says");
        let mut numbers = [0; MOST];
        numbers[..N].copy_from_slice(&some);
        Self { kind, numbers }
    }

    /// An input of this kind. Numbers that are missing are 0; those beyond its own are left out.
    pub fn with(kind: Kind, some: &[u64]) -> Self {
        let (_, width) = Kind::ALL[kind as usize];
        let mut numbers = [0; MOST];
        let own = some.len().min(width);
        numbers[..own].copy_from_slice(&some[..own]);
        Self { kind, numbers }
    }

    /// What it does.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Its numbers, in the order in which [`Kind`] names them. Ids are as bits.
    pub fn numbers(&self) -> &[u64] {
        &self.numbers[..Kind::ALL[self.kind as usize].1]
    }

    /// Appends the input to a tape: a byte for its kind, then its numbers in LEB128.
    pub fn encode(&self, tape: &mut Vec<u8>) {
        let (kind, width) = Kind::ALL[self.kind as usize];
        tape.push(kind as u8);
        for number in &self.numbers[..width] {
            push_leb128(tape, *number);
        }
    }

    /// Takes the next input off a tape; none at its end, or where it is damaged.
    pub fn decode(tape: &mut &[u8]) -> Option<Self> {
        let (first, mut rest) = tape.split_first()?;
        let (kind, width) = *Kind::ALL.get(usize::from(*first))?;
        let mut numbers = [0; MOST];
        for number in &mut numbers[..width] {
            *number = leb128(&mut rest)?;
        }
        *tape = rest;
        Some(Self { kind, numbers })
    }

    /// An input of any kind from any numbers, for fuzzers: each is taken modulo what it may be.
    pub fn from_random(kind: u8, numbers: [u64; MOST]) -> Self {
        let (kind, width) = Kind::ALL[usize::from(kind) % Kind::ALL.len()];
        let mut kept = [0; MOST];
        kept[..width].copy_from_slice(&numbers[..width]);
        Self { kind, numbers: kept }
    }
}

fn push_leb128(tape: &mut Vec<u8>, mut left: u64) {
    loop {
        let low = u8::try_from(left & 0x7f).expect("seven bits");
        left >>= 7;
        tape.push(if left == 0 { low } else { low | 0x80 });
        if left == 0 {
            break;
        }
    }
}

fn leb128(tape: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = tape.split_first()?;
        *tape = rest;
        number |= u64::from(first & 0x7f).checked_shl(shift)?;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Recording: each input of a host, as numbers.
impl Broker {
    /// Begins to record the inputs, or stops. Off at first.
    pub fn record_inputs(&mut self, on: bool) {
        self.tape = on.then(Vec::new);
    }

    /// What was recorded since the last time. A host takes it each turn: it grows by what one turn
    /// brings.
    pub fn take_inputs(&mut self) -> Vec<Input> {
        self.tape.as_mut().map(core::mem::take).unwrap_or_default()
    }

    fn note<const N: usize>(&mut self, kind: Kind, numbers: impl FnOnce() -> [u64; N]) {
        if let Some(tape) = &mut self.tape {
            tape.push(Input::new(kind, numbers()));
        }
    }
}

macro_rules! tape {
    ($($name:ident($($arg:ident: $type:ty),*) $kind:ident [$($number:expr),*];)*) => {
        impl Broker {
            $(pub(super) fn $name(&mut self, $($arg: $type),*) {
                self.note(Kind::$kind, || [$($number),*]);
            })*
        }
    };
}

tape! {
    tape_advance(now: Instant) Advance [now.as_nanos()];
    tape_close(conn: ConnId, how: Close, bytes: u64) Close [conn.to_bits(), how as u64, bytes];
    tape_forget(of: TenantId) Forget [of.to_bits()];
    tape_gone(conn: ConnId) Gone [conn.to_bits()];
    tape_lease(lent: u64, lendable: u64) Lease [lent, lendable];
    tape_node(saturated: bool) Node [saturated.into()];
    tape_open(tenant: TenantId) Open [tenant.to_bits()];
    tape_outlet(conn: ConnId, pipe: Pipe) Outlet [conn.to_bits(), pipe as u64];
    tape_poll() Poll [];
    tape_poll_parcel(to: u32) PollParcel [to.into()];
    tape_reassembly(conn: ConnId, bytes: u64) Reassembly [conn.to_bits(), bytes];
    tape_refused(outlet: OutletId) Refused [outlet.to_bits()];
    tape_reweigh(of: TenantId, weight: u32) Reweigh [of.to_bits(), weight.into()];
    tape_send(outlet: OutletId, bytes: u64, lane: Lane) Send [outlet.to_bits(), bytes, lane as u64];
    tape_sent(outlet: OutletId, bytes: u64) Sent [outlet.to_bits(), bytes];
    tape_shut(outlet: OutletId) Shut [outlet.to_bits()];
    tape_shutdown() Shutdown [];
    tape_source(conn: ConnId) Source [conn.to_bits()];
    tape_step(work: u32) Step [work.into()];
    tape_tenant(weight: u32) Tenant [weight.into()];
    tape_topic(of: TenantId, name: Named) Topic [of.to_bits(), name.hash, name.bytes.into()];
    tape_unsubscribe(sub: SubId) Unsubscribe [sub.to_bits()];
    tape_writable(outlet: OutletId) Writable [outlet.to_bits()];
}

/// What needs more than its arguments.
impl Broker {
    pub(super) fn tape_pressure(&mut self, sample: Option<Sample>) {
        self.note(Kind::Pressure, || match sample {
            None => [0; 3],
            Some(Sample { avg10, total }) => [1, avg10.into(), total],
        });
    }

    pub(super) fn tape_publish(&mut self, conn: ConnId, topic: TopicId, message: &Message) {
        let here = self.mesh.shard;
        self.note(Kind::Publish, || {
            let (known, except) = match message.except {
                None => (0, 0),
                Some((shard, outlet)) if shard == here => (1, outlet.to_bits()),
                Some((shard, outlet)) => (2 + u64::from(shard), outlet.to_bits()),
            };
            let Message { frame, records, ack, .. } = message;
            let (bytes, records) = (frame.len() as u64, u64::from(*records));
            let (conn, topic, keep) = (conn.to_bits(), topic.to_bits(), of_keep(message.keep));
            [conn, topic, bytes, records, *ack as u64, known, except, keep]
        });
    }

    pub(super) fn tape_refuse(&mut self, conn: ConnId, brought: Tally, why: Refusal) {
        self.note(Kind::Refuse, || of_turned_away(conn, brought, why));
    }

    pub(super) fn tape_shed(&mut self, conn: ConnId, brought: Tally, why: Refusal) {
        self.note(Kind::Shed, || of_turned_away(conn, brought, why));
    }

    pub(super) fn tape_subscribe(&mut self, outlet: OutletId, topic: TopicId, wish: &Wish) {
        self.note(Kind::Subscribe, || {
            let [start, first, second] = of_start(wish.start);
            let Wish { policy, batches, bytes, .. } = *wish;
            let (outlet, topic) = (outlet.to_bits(), topic.to_bits());
            [outlet, topic, policy as u64, batches.into(), bytes, start, first, second]
        });
    }

    pub(super) fn tape_receive(&mut self, from: u32, parcel: &Parcel) {
        self.note(Kind::Receive, || of_parcel(from, parcel));
    }
}

fn of_turned_away(conn: ConnId, brought: Tally, why: Refusal) -> [u64; 6] {
    let [place, reason, retry] = of_refusal(why);
    [conn.to_bits(), brought.records, brought.bytes, place, reason, retry]
}

const fn of_start(start: Start) -> [u64; 3] {
    match start {
        Start::Tail => [0, 0, 0],
        Start::Earliest => [1, 0, 0],
        Start::Last(n) => [2, n, 0],
        Start::At { epoch, sequence } => [3, epoch, sequence],
    }
}

fn start([tag, first, second]: [u64; 3]) -> Start {
    match tag % 4 {
        0 => Start::Tail,
        1 => Start::Earliest,
        2 => Start::Last(first),
        _ => Start::At { epoch: first, sequence: second },
    }
}

const fn of_keep(keep: Keep) -> u64 {
    match keep {
        Keep::Default => 0,
        Keep::No => 1,
        Keep::Newest(most) => 1 + most.get() as u64,
    }
}

fn keep(number: u64) -> Keep {
    match number.checked_sub(1) {
        None => Keep::Default,
        Some(most) => NonZeroU32::new(narrow(most)).map_or(Keep::No, Keep::Newest),
    }
}

const fn of_refusal(Refusal { place, reason, retry }: Refusal) -> [u64; 3] {
    let retry = match retry {
        Retry::Never => 0,
        Retry::After(millis) => 1 + millis as u64,
    };
    [place as u64, reason as u64, retry]
}

fn refusal([place, reason, retry]: [u64; 3]) -> Refusal {
    let retry = match retry.checked_sub(1) {
        None => Retry::Never,
        Some(millis) => Retry::After(u16::try_from(millis).unwrap_or(u16::MAX)),
    };
    Refusal { place: choose(&Place::ALL, place), reason: choose(&Reason::ALL, reason), retry }
}

fn choose<T: Copy>(of: &[T], number: u64) -> T {
    of[usize::try_from(number % of.len() as u64).expect("an index")]
}

fn of_carried(carried: &Carried) -> [u64; 6] {
    let (frame, records, at) = (carried.frame.len() as u64, carried.records, carried.at.as_nanos());
    match carried.except {
        None => [frame, records, at, 0, 0, 0],
        Some((shard, outlet)) => [frame, records, at, 1, shard.into(), outlet.to_bits()],
    }
}

fn of_head(Head { next, offset, epoch }: Head) -> [u64; 3] {
    [next, offset, epoch]
}

const fn of_past(Past { next, offset, whole, before }: Past) -> [u64; 6] {
    [next, offset, whole.records, whole.bytes, before.records, before.bytes]
}

/// From whom, of which topic, which body, and its numbers.
fn of_parcel(from: u32, parcel: &Parcel) -> [u64; MOST] {
    let mut body = Vec::with_capacity(MOST);
    let tag = match &parcel.body {
        Body::Forward(job, flight, keep) => {
            body.extend(of_carried(job));
            body.extend([flight.to_bits(), of_keep(*keep)]);
            0
        }
        Body::Done(flight, outcome) => {
            body.push(flight.to_bits());
            body.extend(outcome.map_or_else(of_refusal, |first| [first, 0, 0]));
            body.push(outcome.is_ok().into());
            1
        }
        Body::Interest { on, block } => {
            body.extend([u64::from(*on), u64::from(*block)]);
            2
        }
        Body::Joined(outcome) => {
            body.extend(outcome.map_or_else(of_refusal, of_head));
            body.push(outcome.is_ok().into());
            3
        }
        Body::Batch(job, first, offset) => {
            body.extend(of_carried(job));
            body.extend([*first, *offset]);
            4
        }
        Body::Lost(head) => {
            body.extend(of_head(*head));
            5
        }
        Body::Credit(batches, bytes) => {
            body.extend([u64::from(*batches), *bytes]);
            6
        }
        Body::Fetch(Fetch { sub, start, is_placed, room }) => {
            body.push(sub.to_bits());
            body.extend(of_start(*start));
            body.extend([u64::from(*is_placed), room.batches.into(), room.bytes]);
            7
        }
        Body::Place(sub, place) => {
            body.extend([sub.to_bits(), place.wanted, place.from, place.offset]);
            body.extend(of_past(place.past));
            8
        }
        Body::Past(sub, job, Spot { first, offset, before }) => {
            body.extend(of_carried(job));
            body.extend([*first, *offset, sub.to_bits(), before.records, before.bytes]);
            9
        }
        Body::Fetched(sub, head, is_met) => {
            body.extend(of_head(*head));
            body.extend([sub.to_bits(), u64::from(*is_met)]);
            10
        }
    };
    let Parcel { tenant, name, .. } = parcel;
    let mut numbers = [0; MOST];
    numbers[..5].copy_from_slice(&[
        from.into(),
        (*tenant).into(),
        name.hash,
        name.bytes.into(),
        tag,
    ]);
    numbers[5..5 + body.len()].copy_from_slice(&body);
    numbers
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).expect("32 bits")
}
