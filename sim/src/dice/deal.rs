//! What a plan's numbers mean, on shards as they are then: setting up, and turns.

mod roll;

use super::Plan;
use crate::deck::Deck;
use crate::judge::{Conviction, Finding, Found, Kind as Promise};
use crate::script::{Played, Script, Writer, caught};
use sluicegate_core::{Effect, Input, Kind, Limits, Notice, Outcome, OutletId, Progress};
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
    /// Connections and their sources.
    conns: Vec<(u64, usize)>,
    /// Sources, and their connections.
    sources: Vec<(u64, u64)>,
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

    /// A connection gets a source besides itself.
    fn source(&mut self, shard: u32, conn: u64, tenant: usize) -> Found {
        if let Some(source) = self.id(shard, Kind::Source, &[conn])? {
            let side = self.side(shard);
            side.conns.push((source, tenant));
            side.sources.push((source, conn));
        }
        Ok(())
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
        let ends = |(source, of): &(u64, u64)| *source == conn || *of == conn;
        let (ended, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut side.sources).into_iter().partition(ends);
        side.sources = kept;
        side.conns.retain(|(own, _)| ended.iter().all(|(source, _)| source != own));
        let sources = ended.iter().filter(|(_, of)| *of == conn);
        side.gone.extend(sources.map(|(source, _)| (Kind::Open, *source)));
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

fn place(number: u32, of: usize) -> usize {
    number as usize % of
}
