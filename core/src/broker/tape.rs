//! The tape: every input of a shard as plain numbers, written by any host, applied again anywhere.
//!
//! A tape holds lengths and hashed names, never payloads. Applied to a shard with the same limits
//! and seed it gives the same answers, effects and books, bit for bit. The same inputs, made from
//! random bytes, are what the fuzzer and the model tests feed: [`Broker::apply`] takes any input
//! and ignores what a host may not do.

use super::{Broker, Close, Effect, Lane, Message, Offer, Pipe, Progress, Wish};
use crate::id::{ConnId, OutletId, SubId, TenantId, TopicId};
use crate::ledger::Tally;
use crate::mesh::{Body, Carried, Head, Named, Parcel};
use crate::pressure::Sample;
use crate::replay::Start;
use crate::time::Instant;
use crate::verdict::{Ack, Place, Policy, Reason, Refusal, Retry, Verdict};
use crate::writer::State;
use alloc::vec::Vec;
use bytes::Bytes;

mod file;

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
    /// Connection, topic, bytes, records, ack (none, now, wait), whether one outlet is left out,
    /// which.
    Publish 7
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
    tape_gone(conn: ConnId) Gone [conn.to_bits()];
    tape_lease(lent: u64, lendable: u64) Lease [lent, lendable];
    tape_open(tenant: TenantId) Open [tenant.to_bits()];
    tape_outlet(conn: ConnId, pipe: Pipe) Outlet [conn.to_bits(), pipe as u64];
    tape_poll() Poll [];
    tape_poll_parcel(to: u32) PollParcel [to.into()];
    tape_reassembly(conn: ConnId, bytes: u64) Reassembly [conn.to_bits(), bytes];
    tape_refused(outlet: OutletId) Refused [outlet.to_bits()];
    tape_send(outlet: OutletId, bytes: u64, lane: Lane) Send [outlet.to_bits(), bytes, lane as u64];
    tape_sent(outlet: OutletId, bytes: u64) Sent [outlet.to_bits(), bytes];
    tape_shut(outlet: OutletId) Shut [outlet.to_bits()];
    tape_shutdown() Shutdown [];
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
        self.note(Kind::Publish, || {
            let (known, except) = optional(message.except.map(OutletId::to_bits));
            let Message { frame, records, ack, .. } = message;
            let (bytes, records) = (frame.len() as u64, u64::from(*records));
            [conn.to_bits(), topic.to_bits(), bytes, records, *ack as u64, known, except]
        });
    }

    pub(super) fn tape_refuse(&mut self, conn: ConnId, brought: Tally, why: Refusal) {
        self.note(Kind::Refuse, || {
            let [place, reason, retry] = of_refusal(why);
            [conn.to_bits(), brought.records, brought.bytes, place, reason, retry]
        });
    }

    pub(super) fn tape_subscribe(&mut self, outlet: OutletId, topic: TopicId, wish: &Wish) {
        self.note(Kind::Subscribe, || {
            let (start, first, second) = match wish.start {
                Start::Tail => (0, 0, 0),
                Start::Earliest => (1, 0, 0),
                Start::Last(n) => (2, n, 0),
                Start::At { epoch, sequence } => (3, epoch, sequence),
            };
            let Wish { policy, batches, bytes, .. } = *wish;
            let (outlet, topic) = (outlet.to_bits(), topic.to_bits());
            [outlet, topic, policy as u64, batches.into(), bytes, start, first, second]
        });
    }

    pub(super) fn tape_receive(&mut self, from: u32, parcel: &Parcel) {
        self.note(Kind::Receive, || of_parcel(from, parcel));
    }
}

const fn optional(bits: Option<u64>) -> (u64, u64) {
    match bits {
        None => (0, 0),
        Some(bits) => (1, bits),
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

fn carried(numbers: &[u64], frame: Framing<'_>) -> Carried {
    Carried {
        frame: framed(numbers[0], frame),
        records: numbers[1],
        at: Instant::from_nanos(numbers[2]),
        except: (numbers[3] == 1).then(|| (narrow(numbers[4]), OutletId::from_bits(numbers[5]))),
    }
}

fn of_head(Head { next, offset, epoch }: Head) -> [u64; 3] {
    [next, offset, epoch]
}

/// From whom, of which topic, which body, and its numbers.
fn of_parcel(from: u32, parcel: &Parcel) -> [u64; MOST] {
    let mut body = Vec::with_capacity(MOST);
    let tag = match &parcel.body {
        Body::Forward(job, flight) => {
            body.extend(of_carried(job));
            body.push(flight.to_bits());
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

fn parcel(numbers: &[u64; MOST], frame: Framing<'_>) -> Parcel {
    use crate::id::Ticket;
    let rest = &numbers[5..];
    let head = || Head { next: rest[0], offset: rest[1], epoch: rest[2] };
    let no = |at: usize| refusal([rest[at], rest[at + 1], rest[at + 2]]);
    let body = match numbers[4] % 7 {
        0 => Body::Forward(carried(rest, frame), Ticket::from_bits(rest[6])),
        1 if rest[4] == 1 => Body::Done(Ticket::from_bits(rest[0]), Ok(rest[1])),
        1 => Body::Done(Ticket::from_bits(rest[0]), Err(no(1))),
        2 => Body::Interest { on: rest[0] == 1, block: rest[1] == 1 },
        3 => Body::Joined(if rest[3] == 1 { Ok(head()) } else { Err(no(0)) }),
        4 => Body::Batch(carried(rest, frame), rest[6], rest[7]),
        5 => Body::Lost(head()),
        _ => Body::Credit(narrow(rest[0]), rest[1]),
    };
    let name = Named { hash: numbers[2], bytes: narrow(numbers[3]) };
    Parcel { tenant: narrow(numbers[1]), topic: name.on_tape().into(), name, body }
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).expect("32 bits")
}

/// The longest frame that is played.
const MOST_BYTES: u64 = 64 << 20;

/// Makes a frame of a length; a tape holds no payloads.
type Framing<'a> = &'a mut dyn FnMut(usize) -> Bytes;

fn framed(bytes: u64, frame: Framing<'_>) -> Bytes {
    frame(usize::try_from(bytes.min(MOST_BYTES)).expect("it is bounded"))
}

/// Playing.
impl Broker {
    /// Does what an input says, as its host once did. Whatever the numbers are, nothing panics that
    /// a host could not make panic with them: what no host may do is ignored.
    pub fn apply(&mut self, input: &Input) -> Outcome {
        self.apply_with(input, &mut |bytes| Bytes::from(alloc::vec![0; bytes]))
    }

    /// The same, with frames of the caller's: `frame` is asked for one of that many bytes. Who
    /// keeps their addresses knows in an offer which publish each slice is of.
    pub fn apply_with(&mut self, input: &Input, frame: Framing<'_>) -> Outcome {
        let n = &input.numbers;
        match input.kind {
            Kind::Advance if n[0] < self.now.as_nanos() => return Outcome::Ignored,
            Kind::Advance => self.advance(Instant::from_nanos(n[0])),
            Kind::Gone => self.gone(ConnId::from_bits(n[0])),
            Kind::Lease => self.lease(n[0], n[1]),
            Kind::Pressure => {
                let sample = Sample { avg10: narrow(n[1]), total: n[2] };
                self.pressure((n[0] == 1).then_some(sample));
            }
            Kind::Refused => self.refused(OutletId::from_bits(n[0])),
            Kind::Shut => self.shut(OutletId::from_bits(n[0])),
            Kind::Shutdown => self.shutdown(),
            Kind::Writable => self.writable(OutletId::from_bits(n[0])),
            Kind::Refuse => {
                let brought = Tally { records: n[1], bytes: n[2] };
                self.refuse(ConnId::from_bits(n[0]), brought, refusal([n[3], n[4], n[5]]));
            }
            Kind::Sent => return self.apply_sent(OutletId::from_bits(n[0]), n[1]),
            Kind::Receive => return self.apply_receive(n, frame),
            Kind::Poll => return Outcome::Effect(self.poll()),
            Kind::PollParcel => return Outcome::Parcel(self.poll_parcel(narrow(n[0])).is_some()),
            Kind::Step => return Outcome::Progress(self.step(narrow(n[0]))),
            _ => return self.apply_command(input, frame),
        }
        Outcome::Done
    }

    fn apply_command(&mut self, input: &Input, frame: Framing<'_>) -> Outcome {
        let n = &input.numbers;
        let id = |result: Result<u64, Refusal>| result.map_or_else(Outcome::Refused, Outcome::Id);
        let done =
            |result: Result<(), Refusal>| result.map_or_else(Outcome::Refused, |()| Outcome::Done);
        let conn = ConnId::from_bits(n[0]);
        let outlet = OutletId::from_bits(n[0]);
        match input.kind {
            Kind::Close => {
                let how = choose(&[Close::AfterFlush, Close::Now], n[1]);
                done(self.close(conn, how, framed(n[2], frame)))
            }
            Kind::Open => id(self.open(TenantId::from_bits(n[0])).map(ConnId::to_bits)),
            Kind::Outlet => {
                let pipe = choose(&[Pipe::Shared, Pipe::Single], n[1]);
                id(self.outlet(conn, pipe).map(OutletId::to_bits))
            }
            Kind::Publish => {
                let ack = choose(&[Ack::None, Ack::Now, Ack::Wait], n[4]);
                let except = (n[5] == 1).then(|| OutletId::from_bits(n[6]));
                let frame = framed(n[2], frame);
                let message = Message { frame, records: narrow(n[3]), ack, except };
                Outcome::Verdict(self.publish(conn, TopicId::from_bits(n[1]), message))
            }
            Kind::Reassembly => done(self.reassembly(conn, n[1])),
            Kind::Send => {
                let lane = choose(&[Lane::First, Lane::InLine], n[2]);
                done(self.send(outlet, framed(n[1], frame), lane))
            }
            Kind::Subscribe => {
                let start = match n[5] % 4 {
                    0 => Start::Tail,
                    1 => Start::Earliest,
                    2 => Start::Last(n[6]),
                    _ => Start::At { epoch: n[6], sequence: n[7] },
                };
                let policies = [Policy::Block, Policy::DropNew, Policy::DropOld, Policy::Latest];
                let policy = choose(&policies, n[2]);
                let wish = Wish { policy, batches: narrow(n[3]), bytes: n[4], start };
                id(self.subscribe(outlet, TopicId::from_bits(n[1]), wish).map(SubId::to_bits))
            }
            Kind::Tenant => id(self.tenant(narrow(n[0])).map(TenantId::to_bits)),
            Kind::Topic => {
                let name = Named { hash: n[1], bytes: narrow(n[2]) };
                self.tape_topic(TenantId::from_bits(n[0]), name);
                let topic = self.topic_named(TenantId::from_bits(n[0]), &name.on_tape(), name);
                id(topic.map(TopicId::to_bits))
            }
            Kind::Unsubscribe => done(self.unsubscribe(SubId::from_bits(n[0]))),
            _ => Outcome::Ignored,
        }
    }

    fn apply_sent(&mut self, outlet: OutletId, bytes: u64) -> Outcome {
        match self.peers.outlet(outlet) {
            Ok(pipe) if pipe.write.state == State::Offered => {
                let most = pipe.write.offered.bytes;
                self.sent(Offer { outlet, bytes: most }, bytes.min(most));
                Outcome::Done
            }
            _ => Outcome::Ignored,
        }
    }

    /// Whether a parcel could come from another shard: it answers what was asked, and carries what
    /// could be published.
    fn is_sound(&self, parcel: &Parcel) -> bool {
        let tenant = TenantId { index: parcel.tenant, generation: 0 };
        let topic = self.find_topic(tenant, &parcel.topic).map(|topic| &self.topics[topic.index]);
        let fits = |job: &Carried, first: u64| {
            let records = (1..=4096).contains(&job.records);
            records && !job.frame.is_empty() && first < 1 << 60
        };
        match &parcel.body {
            Body::Forward(job, _) => fits(job, 0),
            Body::Done(flight, _) => {
                let flight = self.mesh.flights.get(flight.index, flight.generation);
                flight.zip(topic).is_some_and(|(flight, topic)| {
                    self.topics[flight.topic].name == topic.name && topic.tenant == parcel.tenant
                })
            }
            Body::Joined(_) => topic.is_some_and(|topic| topic.asked),
            Body::Batch(job, first, offset) => {
                let ahead = topic.is_none_or(|topic| *offset >= topic.passed);
                fits(job, *first) && ahead && *offset < 1 << 60
            }
            Body::Lost(head) => head.next < 1 << 60 && head.offset < 1 << 60,
            Body::Interest { .. } | Body::Credit(..) => true,
        }
    }

    /// Parcels of a shard's own peers are sound; those of a fuzzer are ignored.
    fn apply_receive(&mut self, numbers: &[u64; MOST], frame: Framing<'_>) -> Outcome {
        let parcel = parcel(numbers, frame);
        let from = narrow(numbers[0]);
        let known = (parcel.tenant as usize) < self.tenants.len() && from < self.mesh.shards;
        if !known || from == self.mesh.shard || !self.is_sound(&parcel) {
            return Outcome::Ignored;
        }
        self.receive(from, parcel);
        Outcome::Done
    }
}
