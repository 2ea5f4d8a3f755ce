//! What a plan's numbers mean, on shards as they are then.

use super::{KIB, Plan, Roll};
use crate::deck::Deck;
use crate::judge::{Conviction, Finding, Found, Kind as Promise};
use crate::script::{Played, Script, Writer, caught};
use sluicegate_core::{
    Effect, Input, Kind, Limits, Notice, Outcome, OutletId, Progress, Start, Verdict,
};
use std::collections::BTreeMap;

const TENANTS: u64 = 2;
const TOPICS: u64 = 3;
/// Rounds of a turn after which it counts as endless.
const ENDLESS: u32 = 20_000;
const MILLI: u64 = 1_000_000;

/// How a peer's transport takes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    All,
    /// As many as it was given room for.
    Room(u64),
    /// The host settles its offers later, in full.
    Later,
}

#[derive(Clone, Copy, Debug)]
struct Pipe {
    conn: u64,
    is_single: bool,
    takes: Takes,
    /// The bytes of an offer that the host has not settled.
    pending: Option<u64>,
}

#[derive(Debug, Default)]
struct Side {
    tenants: Vec<u64>,
    topics: Vec<Vec<u64>>,
    conns: Vec<(u64, usize)>,
    pipes: BTreeMap<u64, Pipe>,
    subs: Vec<u64>,
    /// Ids that are stale.
    gone: Vec<(Kind, u64)>,
}

struct Dealer<'a> {
    plan: &'a Plan,
    deck: Deck,
    writer: Writer,
    sides: Vec<Side>,
}

type Did = Result<Outcome, Finding>;

pub(super) fn deal(plan: &Plan) -> (Script, Played) {
    let Plan { limits, seed, .. } = plan;
    let shards: Vec<u32> = (0..count(limits)).collect();
    let sides = shards.iter().map(|_| Side::default()).collect();
    let deck = Deck::new(limits, *seed, &shards);
    let writer = Writer::new(limits, *seed, &shards);
    let mut dealer = Dealer { plan, deck, writer, sides };
    let found = match caught(|| dealer.play()) {
        Ok(found) => found.err(),
        Err(what) => Some(Finding { judge: "crash", kind: Promise::Safety, what, at: None }),
    };
    let Dealer { deck, writer, .. } = dealer;
    let script = writer.script();
    let conviction = found.map(|finding| Conviction {
        at: deck.latest(),
        events: deck.recent(),
        command: String::new(),
        finding,
    });
    let played = Played::of(&deck, conviction, script.ops.len());
    (script, played)
}

fn count(limits: &Limits) -> u32 {
    u32::try_from(limits.shards).expect("its range is small")
}

/// FNV-1a over the tenant's number and the name, as the core hashes names.
fn hash(tenant: u32, name: &str) -> u64 {
    let bytes = tenant.to_le_bytes().into_iter().chain(name.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn size(raw: u32, large: bool) -> u64 {
    let of = u64::from(raw >> 3);
    match raw % 8 {
        0..4 => 1 + of % 300,
        7 if large => 20_000 + of % 41_000,
        _ if large => 1_000 + of % 9_000,
        _ => 100 + of % 900,
    }
}

/// Setting up, and turns.
impl Dealer<'_> {
    fn play(&mut self) -> Found {
        for shard in 0..self.shards() {
            self.furnish(shard)?;
        }
        for roll in &self.plan.rolls {
            self.roll(*roll)?;
        }
        self.deck.heal()
    }

    fn shards(&self) -> u32 {
        count(&self.plan.limits)
    }

    fn side(&mut self, shard: u32) -> &mut Side {
        &mut self.sides[usize::try_from(shard).expect("shards are few")]
    }

    /// Does an input, and writes it down even when it crashes.
    fn act(&mut self, shard: u32, kind: Kind, numbers: &[u64]) -> Did {
        let input = Input::with(kind, numbers);
        let now = self.deck.now(shard);
        let outcome = caught(|| self.deck.apply(shard, &input));
        let answer = outcome.as_ref().ok().and_then(|outcome| outcome.as_ref().ok());
        self.writer.push(shard, now, &input, answer);
        match outcome {
            Ok(outcome) => outcome,
            Err(what) => Err(Finding { judge: "crash", kind: Promise::Safety, what, at: None }),
        }
    }

    fn id(&mut self, shard: u32, kind: Kind, numbers: &[u64]) -> Result<Option<u64>, Finding> {
        match self.act(shard, kind, numbers)? {
            Outcome::Id(bits) => Ok(Some(bits)),
            _ => Ok(None),
        }
    }

    /// Two tenants with topics, and for each a connection that reads everything.
    fn furnish(&mut self, shard: u32) -> Found {
        for number in 0..TENANTS {
            let Some(tenant) = self.id(shard, Kind::Tenant, &[1 + number])? else { continue };
            let mut topics = Vec::new();
            for topic in 0..TOPICS {
                let name = format!("t{topic}");
                let hash = hash(u32::try_from(number).expect("tenants are few"), &name);
                topics.extend(self.id(shard, Kind::Topic, &[tenant, hash, 2])?);
            }
            self.side(shard).tenants.push(tenant);
            self.side(shard).topics.push(topics.clone());
            let at = usize::try_from(number).expect("tenants are few");
            let Some(conn) = self.connect(shard, at)? else { continue };
            let Some(outlet) = self.pipe(shard, conn, (false, Takes::All))? else { continue };
            for topic in topics {
                self.id(shard, Kind::Subscribe, &[outlet, topic, 2, 0, 0, 0, 0, 0])?;
            }
        }
        Ok(())
    }

    fn connect(&mut self, shard: u32, tenant: usize) -> Result<Option<u64>, Finding> {
        let id = self.side(shard).tenants[tenant];
        let conn = self.id(shard, Kind::Open, &[id])?;
        self.side(shard).conns.extend(conn.map(|conn| (conn, tenant)));
        Ok(conn)
    }

    fn pipe(
        &mut self,
        shard: u32,
        conn: u64,
        (is_single, takes): (bool, Takes),
    ) -> Result<Option<u64>, Finding> {
        let id = self.id(shard, Kind::Outlet, &[conn, is_single.into()])?;
        if let Some(id) = id {
            let pipe = Pipe { conn, is_single, takes, pending: None };
            self.side(shard).pipes.insert(id, pipe);
        }
        Ok(id)
    }

    /// A host's turn, until the shard has nothing left to do.
    fn settle(&mut self, shard: u32, work: u64) -> Found {
        for round in 0..ENDLESS {
            let now = self.deck.now(shard);
            self.act(shard, Kind::Advance, &[now])?;
            let progress = self.act(shard, Kind::Step, &[work])?;
            let wrote = self.write(shard)?;
            let broker = self.deck.broker(shard);
            let due = broker.next_deadline().is_some_and(|at| at <= broker.now());
            if progress == Outcome::Progress(Progress::Idle) && !due {
                return self.deck.quiescent(shard);
            }
            if !wrote && round % 8 == 7 {
                self.give_up_waiting(shard)?;
            }
        }
        let what = format!("a turn of shard {shard} does not end");
        Err(Finding { judge: "stuck", kind: Promise::Liveness, what, at: None })
    }

    /// Transports that hold an offer say that they take nothing.
    fn give_up_waiting(&mut self, shard: u32) -> Found {
        let pipes = self.side(shard).pipes.iter();
        let holding: Vec<u64> =
            pipes.filter(|(_, pipe)| pipe.pending.is_some()).map(|(id, _)| *id).collect();
        for outlet in holding {
            self.act(shard, Kind::Refused, &[outlet])?;
        }
        Ok(())
    }

    fn write(&mut self, shard: u32) -> Result<bool, Finding> {
        let mut wrote = false;
        while let Outcome::Effect(Some(effect)) = self.act(shard, Kind::Poll, &[])? {
            wrote = true;
            match effect {
                Effect::Notice(notice) => self.notice(shard, notice)?,
                Effect::Write(offer) => self.offer(shard, offer.outlet, offer.bytes)?,
            }
        }
        Ok(wrote)
    }

    fn offer(&mut self, shard: u32, outlet: OutletId, bytes: u64) -> Found {
        let id = outlet.to_bits();
        let Some(pipe) = self.side(shard).pipes.get_mut(&id) else { return Ok(()) };
        let took = match &mut pipe.takes {
            Takes::All => bytes,
            Takes::Room(room) => {
                let took = bytes.min(*room);
                *room -= took;
                took
            }
            Takes::Later => {
                pipe.pending = Some(bytes);
                return Ok(());
            }
        };
        self.act(shard, Kind::Sent, &[id, took])?;
        Ok(())
    }

    fn notice(&mut self, shard: u32, notice: Notice) -> Found {
        match notice {
            Notice::Close { conn, .. } if self.deck.now(shard).is_multiple_of(2 * MILLI) => {
                self.gone(shard, conn.to_bits())
            }
            Notice::Close { conn, .. } => self.close(shard, conn.to_bits(), 1),
            Notice::Flushed { conn } => self.gone(shard, conn.to_bits()),
            Notice::Ended { sub, .. } => {
                self.forget_sub(shard, sub.to_bits());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn forget_sub(&mut self, shard: u32, sub: u64) {
        let side = self.side(shard);
        side.subs.retain(|own| *own != sub);
        side.gone.push((Kind::Subscribe, sub));
    }

    fn close(&mut self, shard: u32, conn: u64, how: u64) -> Found {
        self.act(shard, Kind::Close, &[conn, how, 20])?;
        Ok(())
    }

    fn gone(&mut self, shard: u32, conn: u64) -> Found {
        let side = self.side(shard);
        side.conns.retain(|(own, _)| *own != conn);
        let (ended, kept) =
            std::mem::take(&mut side.pipes).into_iter().partition(|(_, pipe)| pipe.conn == conn);
        side.pipes = kept;
        let ended: BTreeMap<u64, Pipe> = ended;
        side.gone.extend(ended.keys().map(|outlet| (Kind::Outlet, *outlet)));
        side.gone.push((Kind::Open, conn));
        self.act(shard, Kind::Gone, &[conn])?;
        Ok(())
    }
}

/// Operations.
impl Dealer<'_> {
    fn roll(&mut self, (kind, a, b): Roll) -> Found {
        let faults = self.plan.faults;
        let shard = (a >> 24) % self.shards();
        match kind {
            0..22 => self.publish(shard, a, b)?,
            22..28 => {
                for n in 0..1 + b % 12 {
                    self.publish(shard, a.rotate_left(n), b ^ n)?;
                }
            }
            28..36 => self.read(shard, a, b)?,
            36..41 => self.settle_or_refuse(shard, a, b)?,
            41..45 => self.pass(shard, u64::from(b % 40))?,
            45..48 if faults.pauses() => self.pass(shard, u64::from(b % 1_500))?,
            48 if faults.pauses() => self.pass(shard, u64::from(b % 90_000))?,
            49..58 => self.join(shard, a, b)?,
            58..60 if faults.leaves() => self.leave(shard, a)?,
            60 if faults.leaves() => self.shut(shard, a)?,
            61..63 => self.end(shard, a, b)?,
            63..67 if faults.control() => self.control(shard, a, b)?,
            67..69 if faults.reassembly() => self.reassemble(shard, a, b)?,
            69..71 if faults.memory() => self.relend(shard, a, b)?,
            71 if faults.memory() => self.press(shard, b)?,
            72 => self.topic(shard, a)?,
            73 if faults.shutdown() && b % 8 == 0 => {
                self.act(shard, Kind::Shutdown, &[])?;
            }
            74 => {
                self.connect(shard, place(a, 2))?;
            }
            75..79 => {
                self.act(shard, Kind::Step, &[u64::from(1 + b % 5)])?;
            }
            79..81 => {
                self.write(shard)?;
            }
            81..84 if faults.stale() => self.stale(shard, a, b)?,
            84 if b % 8 == 0 => self.alternate(shard, a)?,
            85 => self.refuse(shard, a, b)?,
            86..88 if b % 4 == 0 => self.rush(shard, a, b)?,
            88..97 if self.shards() > 1 => self.carry(shard, a, b)?,
            _ => {}
        }
        if a % 4 == 0 {
            return Ok(());
        }
        let work = if faults.small_steps() { [1, 3, 17, 1_000] } else { [1_000; 4] };
        self.settle(shard, work[place(b, 4)])?;
        if self.shards() > 1 && !faults.late_parcels() { self.exchange(shard) } else { Ok(()) }
    }

    fn pass(&mut self, shard: u32, millis: u64) -> Found {
        let now = self.deck.now(shard) + millis * MILLI;
        self.act(shard, Kind::Advance, &[now])?;
        Ok(())
    }

    fn publish(&mut self, shard: u32, a: u32, b: u32) -> Found {
        let faults = self.plan.faults;
        let side = self.side(shard);
        let few = if faults.skewed() { 2 } else { side.conns.len() };
        let Some(at) = (a as usize).checked_rem(few.min(side.conns.len())) else { return Ok(()) };
        let (conn, tenant) = side.conns[at];
        let topic = if faults.skewed() { 0 } else { place(a >> 8, 3) };
        let Some(&topic) = side.topics[tenant].get(topic) else { return Ok(()) };
        let except =
            self.any_pipe(shard, b >> 4).filter(|_| faults.except() && b.is_multiple_of(3));
        let paused = self.deck.broker(shard).is_paused(sluicegate_core::ConnId::from_bits(conn));
        if paused && !(faults.pushy() && b.is_multiple_of(8)) {
            return Ok(());
        }
        let records = if b.is_multiple_of(5) { 3 } else { 1 };
        let ack = [0, 0, 1, 2][place(a >> 12, 4)];
        let bytes = size(b >> 2, faults.large());
        let (has, except) = except.map_or((0, 0), |outlet| (1, outlet));
        let numbers = [conn, topic, bytes, records, ack, has, except];
        let outcome = self.act(shard, Kind::Publish, &numbers)?;
        if matches!(outcome, Outcome::Verdict(Verdict::Parked(_))) {
            self.deck.mark_reached("parked");
        }
        Ok(())
    }

    /// Small batches and large ones in turns: who has room for some of them only, loses runs.
    fn alternate(&mut self, shard: u32, a: u32) -> Found {
        for n in 0..80_u32 {
            let b = if n % 2 == 0 { 1 } else { ((7 + (18_000 << 3)) << 2) + 2 };
            self.publish(shard, a & 0xfff, b)?;
            self.settle(shard, 1_000)?;
        }
        Ok(())
    }

    /// Both tenants bring as much as they may, and the shard works in small steps.
    fn rush(&mut self, shard: u32, a: u32, b: u32) -> Found {
        for n in 0..60 {
            let side = self.side(shard);
            let Some(&(conn, tenant)) = side.conns.get(n % 2) else { return Ok(()) };
            let topic = place(a >> 8, 2).min(side.topics[tenant].len().saturating_sub(1));
            let Some(&topic) = side.topics[tenant].get(topic) else { return Ok(()) };
            self.act(shard, Kind::Publish, &[conn, topic, 1_000, 1, 0, 0, 0])?;
        }
        for _ in 0..b % 60 {
            self.act(shard, Kind::Step, &[1])?;
            self.write(shard)?;
        }
        Ok(())
    }

    fn any_pipe(&mut self, shard: u32, a: u32) -> Option<u64> {
        let witnesses = usize::try_from(TENANTS).expect("tenants are few");
        let all: Vec<u64> = self.side(shard).pipes.keys().copied().collect();
        let all = all.get(witnesses..)?;
        all.get((a as usize).checked_rem(all.len())?).copied()
    }

    fn read(&mut self, shard: u32, a: u32, b: u32) -> Found {
        let Some(outlet) = self.any_pipe(shard, a) else { return Ok(()) };
        let pipe = self.side(shard).pipes.get_mut(&outlet);
        if let Some(Pipe { takes: Takes::Room(room), .. }) = pipe {
            *room += u64::from(if b.is_multiple_of(2) { b % 60 } else { b % 70_000 });
        }
        self.act(shard, Kind::Writable, &[outlet])?;
        Ok(())
    }

    fn settle_or_refuse(&mut self, shard: u32, a: u32, b: u32) -> Found {
        let pipes = self.side(shard).pipes.iter();
        let all: Vec<u64> =
            pipes.filter(|(_, pipe)| pipe.pending.is_some()).map(|(id, _)| *id).collect();
        let Some(at) = (a as usize).checked_rem(all.len()) else { return Ok(()) };
        match b % 4 {
            0 => self.act(shard, Kind::Refused, &[all[at]])?,
            1 => self.act(shard, Kind::Writable, &[all[at]])?,
            _ => {
                let pipe = self.side(shard).pipes.get_mut(&all[at]).expect("it was just seen");
                let bytes = pipe.pending.take().expect("it holds an offer");
                self.act(shard, Kind::Sent, &[all[at], bytes])?
            }
        };
        Ok(())
    }

    fn join(&mut self, shard: u32, a: u32, b: u32) -> Found {
        let faults = self.plan.faults;
        let conns = self.side(shard).conns.clone();
        let own = (a as usize).checked_rem(conns.len()).map(|at| conns[at]);
        let old = own.filter(|(conn, _)| !b.is_multiple_of(3) && !self.is_witness(shard, *conn));
        let (conn, tenant) = match old {
            Some(own) => own,
            None => {
                let tenant = place(a >> 4, 2);
                let Some(conn) = self.connect(shard, tenant)? else { return Ok(()) };
                (conn, tenant)
            }
        };
        let is_single = a & 256 != 0;
        let takes = match (a >> 10) % 4 {
            1 | 2 if faults.stalls() => Takes::Room(0),
            3 if faults.waits() => Takes::Later,
            _ => Takes::All,
        };
        let mut pipes = self.side(shard).pipes.iter();
        let shared = pipes.find(|(_, pipe)| pipe.conn == conn && !pipe.is_single);
        let shared = shared.map(|(id, _)| *id).filter(|_| !is_single && b & 64 == 0);
        let outlet = match shared {
            Some(outlet) => Some(outlet),
            None => self.pipe(shard, conn, (is_single, takes))?,
        };
        let topics = &self.side(shard).topics[tenant];
        let topic = (a as usize >> 12).checked_rem(topics.len()).map(|at| topics[at]);
        let (Some(outlet), Some(topic)) = (outlet, topic) else { return Ok(()) };
        let policy = match (is_single, (b >> 7) % 4) {
            (_, 0) => 2,
            (false, _) | (_, 1) => 1,
            (_, 2) => 3,
            _ => 0,
        };
        let (start, first, second) = self.start(shard, topic, b >> 10);
        let (batches, bytes) = (u64::from((b >> 14) % 4), u64::from((b >> 16) % 3) * 3_000);
        let numbers = [outlet, topic, policy, batches, bytes, start, first, second];
        let sub = self.id(shard, Kind::Subscribe, &numbers)?;
        self.side(shard).subs.extend(sub);
        Ok(())
    }

    fn is_witness(&mut self, shard: u32, conn: u64) -> bool {
        let witnesses = usize::try_from(TENANTS).expect("tenants are few");
        self.side(shard).pipes.values().take(witnesses).any(|pipe| pipe.conn == conn)
    }

    fn start(&self, shard: u32, topic: u64, b: u32) -> (u64, u64, u64) {
        let broker = self.deck.broker(shard);
        let topic = sluicegate_core::TopicId::from_bits(topic);
        let next = broker.topic_books(topic).map_or(0, |books| books.sequenced.records) + 1;
        let epoch = broker.topic_epoch(topic).unwrap_or(0);
        let sequence = next.saturating_sub(u64::from((b >> 3) % 20)) + 2;
        let start = match b % 8 {
            0 => Start::Earliest,
            1 => Start::Last(u64::from(b >> 3) % 9),
            2 => Start::At { epoch, sequence },
            3 => Start::At { epoch: !epoch, sequence },
            _ => Start::Tail,
        };
        match start {
            Start::Tail => (0, 0, 0),
            Start::Earliest => (1, 0, 0),
            Start::Last(n) => (2, n, 0),
            Start::At { epoch, sequence } => (3, epoch, sequence),
        }
    }

    fn leave(&mut self, shard: u32, a: u32) -> Found {
        let side = self.side(shard);
        let Some(at) = (a as usize).checked_rem(side.subs.len()) else { return Ok(()) };
        let sub = side.subs[at];
        self.forget_sub(shard, sub);
        self.act(shard, Kind::Unsubscribe, &[sub])?;
        Ok(())
    }

    fn shut(&mut self, shard: u32, a: u32) -> Found {
        let Some(outlet) = self.any_pipe(shard, a) else { return Ok(()) };
        let side = self.side(shard);
        side.pipes.remove(&outlet);
        side.gone.push((Kind::Outlet, outlet));
        self.act(shard, Kind::Shut, &[outlet])?;
        Ok(())
    }

    fn end(&mut self, shard: u32, a: u32, b: u32) -> Found {
        let faults = self.plan.faults;
        let conns = self.side(shard).conns.clone();
        let Some(at) = (a as usize).checked_rem(conns.len()) else { return Ok(()) };
        let conn = conns[at].0;
        if self.is_witness(shard, conn) {
            return Ok(());
        }
        match b % 3 {
            0 if faults.leaves() => self.gone(shard, conn),
            1 if faults.closes() => self.close(shard, conn, 1),
            2 if faults.closes() => self.close(shard, conn, 0),
            _ => Ok(()),
        }
    }

    fn control(&mut self, shard: u32, a: u32, b: u32) -> Found {
        let Some(outlet) = self.any_pipe(shard, a) else { return Ok(()) };
        let bytes = if b.is_multiple_of(7) { 3_000 } else { 30 };
        self.act(shard, Kind::Send, &[outlet, bytes, u64::from(b % 2)])?;
        Ok(())
    }

    fn reassemble(&mut self, shard: u32, a: u32, b: u32) -> Found {
        let conns = &self.side(shard).conns;
        let Some(at) = (a as usize).checked_rem(conns.len()) else { return Ok(()) };
        let conn = conns[at].0;
        let bytes = if b.is_multiple_of(2) { 0 } else { u64::from(b) % (600 * KIB) };
        self.act(shard, Kind::Reassembly, &[conn, bytes])?;
        Ok(())
    }

    fn relend(&mut self, shard: u32, a: u32, b: u32) -> Found {
        let most = 512 * KIB;
        let lent = u64::from(a) % most;
        let more = if b.is_multiple_of(2) { most - lent } else { 0 };
        self.act(shard, Kind::Lease, &[lent, more])?;
        Ok(())
    }

    fn press(&mut self, shard: u32, b: u32) -> Found {
        let readable = u64::from(!b.is_multiple_of(5));
        self.act(shard, Kind::Pressure, &[readable, u64::from(b % 3_000), b.into()])?;
        Ok(())
    }

    fn topic(&mut self, shard: u32, a: u32) -> Found {
        let tenant = place(a, 2);
        let id = self.side(shard).tenants[tenant];
        let name = format!("other {}", a % 12);
        let number = u32::try_from(tenant).expect("tenants are few");
        self.act(shard, Kind::Topic, &[id, hash(number, &name), name.len() as u64])?;
        Ok(())
    }

    /// A call is refused by its host.
    fn refuse(&mut self, shard: u32, a: u32, b: u32) -> Found {
        let conns = &self.side(shard).conns;
        let Some(at) = (a as usize).checked_rem(conns.len()) else { return Ok(()) };
        let conn = conns[at].0;
        let numbers = [conn, u64::from(1 + b % 5), u64::from(b % 900), 5, 14, 0];
        self.act(shard, Kind::Refuse, &numbers)?;
        Ok(())
    }

    /// An id whose connection, outlet or subscription is gone, and whose slot may be another's.
    fn stale(&mut self, shard: u32, a: u32, b: u32) -> Found {
        let side = self.side(shard);
        let Some(at) = (a as usize).checked_rem(side.gone.len()) else { return Ok(()) };
        let (kind, id) = side.gone[at];
        let topic = side.topics[0].first().copied().unwrap_or(0);
        let input = match (kind, b % 5) {
            (Kind::Open, 0) => Input::with(Kind::Publish, &[id, topic, 100, 1, 1]),
            (Kind::Open, 1) => Input::with(Kind::Outlet, &[id, 0]),
            (Kind::Open, 2) => Input::with(Kind::Reassembly, &[id, 50]),
            (Kind::Open, 3) => Input::with(Kind::Close, &[id, 0, 0]),
            (Kind::Open, _) => Input::with(Kind::Gone, &[id]),
            (Kind::Outlet, 0) => Input::with(Kind::Subscribe, &[id, topic, 2]),
            (Kind::Outlet, 1) => Input::with(Kind::Send, &[id, 30, 0]),
            (Kind::Outlet, 2) => Input::with(Kind::Writable, &[id]),
            (Kind::Outlet, 3) => Input::with(Kind::Refused, &[id]),
            (Kind::Outlet, _) => Input::with(Kind::Shut, &[id]),
            _ => Input::with(Kind::Unsubscribe, &[id]),
        };
        self.act(shard, input.kind(), input.numbers())?;
        Ok(())
    }

    /// Some parcels go from one shard to another.
    fn carry(&mut self, shard: u32, a: u32, b: u32) -> Found {
        let to = (shard + 1 + (a >> 4) % (self.shards() - 1)) % self.shards();
        for _ in 0..1 + b % 19 {
            if self.deck.on_wire(shard, to) < 1 + place(b >> 8, 19) {
                self.act(shard, Kind::PollParcel, &[to.into()])?;
            }
            if self.act(to, Kind::Receive, &[shard.into()])? != Outcome::Done {
                break;
            }
            self.settle(to, 1_000)?;
        }
        Ok(())
    }

    /// Everything that waits for other shards goes there.
    fn exchange(&mut self, shard: u32) -> Found {
        for to in (0..self.shards()).filter(|to| *to != shard) {
            while self.act(shard, Kind::PollParcel, &[to.into()])? == Outcome::Parcel(true) {}
            while self.act(to, Kind::Receive, &[shard.into()])? == Outcome::Done {
                self.settle(to, 1_000)?;
            }
        }
        Ok(())
    }
}

fn place(number: u32, of: usize) -> usize {
    number as usize % of
}
