//! What a deck remembers of one shard, and what it looks at after each input.

use super::Thing;
use super::frames::Slice;
use crate::fact::{Publish, name_cell};
use crate::judge::conservation::Conservation;
use crate::judge::contract::{Contract, Dropped};
use crate::judge::rotation::{Rotation, Turn};
use crate::judge::{Finding, Found, Kind as Promise};
use sluicegate_core::{
    Band, Books, Broker, ConnId, Input, Kind, Limits, OutletId, Pipe, Policy, Reason, SubId, Tally,
    TenantId, Ticket, TopicId,
};
use std::collections::BTreeMap;

/// A shard is recounted after each of so many first inputs.
const ALWAYS: u64 = 50_000;
/// With more outlets than this they are not looked at one by one after each input.
const MANY: u64 = 1_000;

/// What is known of a connection, or of a source of one.
#[derive(Debug)]
pub(super) struct Conn {
    /// Its number among all of its shard: whose publishes come in order.
    pub(super) number: u32,
    /// The connection of a source, which is answered; of a connection itself.
    pub(super) conn: ConnId,
    pub(super) tenant: usize,
    /// It is a connection that got sources.
    pub(super) has_sources: bool,
    /// Publishes that it or its sources made.
    pub(super) made: u64,
    pub(super) paused: bool,
    /// We end it: its commands get no answers any more.
    pub(super) ending: bool,
    /// It had a publish parked once.
    pub(super) parked: bool,
}

impl Conn {
    pub(super) const fn new(number: u32, conn: ConnId, tenant: usize) -> Self {
        let (has_sources, made, paused, ending, parked) = (false, 0, false, false, false);
        Self { number, conn, tenant, has_sources, made, paused, ending, parked }
    }
}

/// What is known of an outlet.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) conn: ConnId,
    pub(super) pipe: Pipe,
    pub(super) open: Option<Open>,
    /// The rest of a frame that is in mid-write, and what it is.
    pub(super) begun: Option<(Slice, Part)>,
    pub(super) refusing: bool,
    /// It refused once.
    pub(super) pressed: bool,
    pub(super) subs: Vec<SubId>,
}

/// An offer that is not settled.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) bytes: u64,
    pub(super) slices: Vec<(Slice, Part)>,
}

/// What an offered slice is of: a batch for a subscription (its first sequence number, its
/// publish), or control bytes.
pub(super) type Part = Option<(SubId, u64, u64)>;

/// What is known of a subscription.
#[derive(Debug)]
pub(super) struct Sub {
    pub(super) number: u32,
    pub(super) topic: TopicId,
    pub(super) policy: Policy,
    /// It started with the next batch.
    pub(super) is_tail: bool,
    /// Batches and bytes, as it asked for, within the server's limits.
    pub(super) limit: (u64, u64),
    pub(super) is_alive: bool,
    dropped: Tally,
}

/// A topic as this shard knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Topic {
    pub(super) tenant: usize,
    /// This shard gives its numbers.
    pub(super) is_owned: bool,
}

/// An acked publish without an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) conn: ConnId,
    pub(super) topic: TopicId,
    pub(super) publish: Publish,
    /// Its number among all.
    pub(super) made: u64,
}

/// One shard, its judges, and what is known of its peers.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) broker: Broker,
    pub(super) conns: BTreeMap<ConnId, Conn>,
    pub(super) outlets: BTreeMap<OutletId, Outlet>,
    pub(super) subs: BTreeMap<SubId, Sub>,
    pub(super) topics: BTreeMap<TopicId, Topic>,
    pub(super) asked: BTreeMap<Ticket, Asked>,
    pub(super) tenants: Vec<TenantId>,
    /// Tenants of whom some subscription may hold a topic.
    pub(super) blocking: Vec<bool>,
    pub(super) conservation: Conservation,
    pub(super) contract: Contract,
    pub(super) rotation: Rotation,
    /// By number of the subscription; those of other shards have none.
    pub(super) by_number: BTreeMap<u32, SubId>,
    pub(super) numbers: u32,
    /// Publishers ended without having been told everything: what was refused cannot be compared
    /// with what they saw.
    pub(super) is_blurred: bool,
    /// The inputs hold numbers that no peer could have brought.
    pub(super) is_odd: bool,
    pub(super) is_shutting: bool,
    /// Some connection is gone, perhaps before it was told what was shed.
    pub(super) has_left: bool,
    band: Band,
}

/// What a shard was like before an input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    pub(super) is_stale: bool,
    pub(super) fingerprint: u64,
    pub(super) band: Band,
}

impl Shard {
    pub(super) fn new(limits: &Limits, seed: u64, number: u32) -> Self {
        Self {
            broker: Broker::shard(limits.clone(), seed, number),
            conns: BTreeMap::new(),
            outlets: BTreeMap::new(),
            subs: BTreeMap::new(),
            topics: BTreeMap::new(),
            asked: BTreeMap::new(),
            tenants: Vec::new(),
            blocking: Vec::new(),
            conservation: Conservation::default(),
            contract: Contract::default(),
            rotation: Rotation::new(limits.quantum_bytes),
            by_number: BTreeMap::new(),
            numbers: 0,
            is_blurred: false,
            is_odd: false,
            is_shutting: false,
            has_left: false,
            band: Band::Normal,
        }
    }

    pub(super) fn before(&self, input: &Input) -> Before {
        let stale = |thing, at: usize| {
            input.numbers().get(at).is_some_and(|id| self.contract.is_stale(thing, *id))
        };
        let is_stale = match input.kind() {
            Kind::Close
            | Kind::Gone
            | Kind::Outlet
            | Kind::Publish
            | Kind::Reassembly
            | Kind::Refuse
            | Kind::Shed
            | Kind::Source => stale(Thing::Conn, 0),
            Kind::Refused
            | Kind::Send
            | Kind::Sent
            | Kind::Shut
            | Kind::Subscribe
            | Kind::Writable => stale(Thing::Outlet, 0),
            Kind::Unsubscribe => stale(Thing::Sub, 0),
            _ => false,
        };
        let fingerprint = if is_stale { self.broker.fingerprint() } else { 0 };
        Before { is_stale, fingerprint, band: self.broker.band() }
    }

    /// Recounts everything, and compares what is kept with what may be. `told`: peers were told
    /// everything there was to tell.
    /// A shard is recounted less often when there is much to recount.
    pub(super) fn look(&mut self, told: bool, played: u64, reached: &mut Reached) -> Found {
        let outlets = self.outlets.len() as u64;
        let rarely = if played < ALWAYS { 1 } else { 64 + outlets };
        if played.is_multiple_of(rarely) {
            self.broker.check().map_err(|broken| Finding {
                judge: "books",
                kind: Promise::Safety,
                what: broken.to_string(),
                at: None,
            })?;
        }
        let broker = &self.broker;
        let by_number = &self.by_number;
        if !self.is_odd {
            let held = |number| by_number.get(&number).and_then(|sub| broker.sub_books(*sub));
            let books = broker.ledger();
            self.conservation.compare((books.offered, books.delivered), held)?;
            if told && !self.is_blurred {
                self.conservation.compare_tables(broker.ledger())?;
            }
        }
        let band = broker.band();
        if band != self.band {
            reached.add(format!("{} to {}", self.band.name(), band.name()));
            self.band = band;
        }
        self.contract.band(broker.limits(), broker.now().as_nanos(), band)?;
        if outlets > MANY {
            return Ok(());
        }
        self.drops()?;
        self.bounds()?;
        self.turns()
    }

    /// What was dropped since the last input, and whether it may have been.
    fn drops(&mut self) -> Found {
        for outlet in self.outlets.keys().copied().collect::<Vec<_>>() {
            let now = self.broker.backlog(outlet).is_some_and(|backlog| backlog.refusing);
            let pipe = self.outlets.get_mut(&outlet).expect("its key was just seen");
            let refusing = pipe.refusing || now;
            (pipe.refusing, pipe.pressed) = (now, pipe.pressed || now);
            let pressed = pipe.pressed;
            for id in &pipe.subs {
                let Some(sub) = self.subs.get_mut(id).filter(|sub| sub.is_alive) else { continue };
                let Some(books) = self.broker.sub_books(*id) else { continue };
                if books.dropped == sub.dropped {
                    continue;
                }
                sub.dropped = books.dropped;
                let Some(why) = books.last_drop else { continue };
                Contract::dropped(&Dropped { why, policy: sub.policy, refusing, pressed })?;
            }
        }
        Ok(())
    }

    /// What may wait, and how much of it.
    fn bounds(&self) -> Found {
        let limits = self.broker.limits();
        let (queued, _) = self.broker.jobs();
        Contract::bound("publishes queued", queued.into(), limits.pub_queue_total)?;
        Contract::bound("bytes in flight", self.broker.inflight(), limits.pub_inflight_bytes)?;
        for (id, outlet) in &self.outlets {
            let Some(backlog) = self.broker.backlog(*id) else { continue };
            let alive = |id: &&SubId| self.subs.get(id).is_some_and(|sub| sub.is_alive);
            let mut alive = outlet.subs.iter().filter(alive);
            let (Some(sub), None) = (alive.next(), alive.next()) else { continue };
            let sub = &self.subs[sub];
            if outlet.pipe != Pipe::Single || outlet.subs.len() > 1 {
                continue;
            }
            let (batches, bytes) = (u64::from(backlog.batches), backlog.bytes);
            match sub.policy {
                Policy::DropNew => {
                    Contract::bound("batches under drop_new", batches, sub.limit.0)?;
                    if batches > 1 && sub.is_tail {
                        Contract::bound("bytes under drop_new", bytes, sub.limit.1)?;
                    }
                }
                Policy::Block => Contract::bound("batches under block", batches, sub.limit.0)?,
                Policy::DropOld | Policy::Latest => {}
            }
        }
        Ok(())
    }

    /// Whose turn it was.
    fn turns(&mut self) -> Found {
        if self.broker.limits().shards > 1 || self.is_shutting {
            return Ok(());
        }
        let turn = |(tenant, blocks): (&TenantId, &bool)| {
            let books = self.broker.tenant_books(*tenant);
            let busy = books.is_some_and(|books| books.queued.records > 0);
            let sequenced = books.map_or(Tally::ZERO, |books| books.sequenced);
            Turn { sequenced, busy: busy && !blocks }
        };
        let turns: Vec<Turn> = self.tenants.iter().zip(&self.blocking).map(turn).collect();
        self.rotation.turned(&turns)
    }

    /// The subscriptions of an outlet are over.
    pub(super) fn end_subs(&mut self, outlet: OutletId) {
        let Some(pipe) = self.outlets.get(&outlet) else { return };
        for id in pipe.subs.clone() {
            self.end_sub(id);
        }
    }

    pub(super) fn end_sub(&mut self, id: SubId) {
        self.contract.ended(Thing::Sub, id.to_bits());
        if let Some(sub) = self.subs.get_mut(&id) {
            sub.is_alive = false;
        }
    }

    pub(super) fn end_outlet(&mut self, outlet: OutletId) {
        self.end_subs(outlet);
        self.contract.ended(Thing::Outlet, outlet.to_bits());
        self.outlets.remove(&outlet);
    }

    /// A connection ends, or, unless it merely `closes`, is gone; or a source is.
    pub(super) fn end_conn(&mut self, conn: ConnId, closes: bool) {
        let Some(own) = self.conns.get(&conn) else { return };
        let (is_source, parked) = (own.conn != conn, own.parked);
        for (_, own) in self.conns.iter_mut().filter(|(id, own)| own.conn == conn || **id == conn) {
            own.ending = true;
            own.paused = false;
        }
        if is_source {
            // Its connection is told what becomes of what it brought.
            self.conns.remove(&conn);
            return self.contract.ended(Thing::Conn, conn.to_bits());
        }
        let outlets = self.outlets_of(conn);
        let open = self.asked.values().any(|asked| asked.conn == conn);
        self.is_blurred |= open || parked;
        self.asked.retain(|_, asked| asked.conn != conn);
        if closes {
            return outlets.into_iter().for_each(|outlet| self.end_subs(outlet));
        }
        outlets.into_iter().for_each(|outlet| self.end_outlet(outlet));
        let gone = self.conns.iter().filter(|(_, own)| own.conn == conn).map(|(id, _)| *id);
        for id in gone.collect::<Vec<_>>() {
            self.conns.remove(&id);
            self.contract.ended(Thing::Conn, id.to_bits());
        }
        self.has_left = true;
    }

    fn outlets_of(&self, conn: ConnId) -> Vec<OutletId> {
        let own = self.outlets.iter().filter(|(_, outlet)| outlet.conn == conn);
        own.map(|(id, _)| *id).collect()
    }
}

impl Sub {
    pub(super) const fn new(number: u32, topic: TopicId, policy: Policy) -> Self {
        Self {
            number,
            topic,
            policy,
            is_tail: false,
            limit: (u64::MAX, u64::MAX),
            is_alive: true,
            dropped: Tally::ZERO,
        }
    }
}

/// What runs came by: how often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached(pub BTreeMap<String, u64>);

impl Reached {
    /// Once more.
    pub fn add(&mut self, what: impl Into<String>) {
        *self.0.entry(what.into()).or_default() += 1;
    }

    /// All that another one came by.
    pub fn merge(&mut self, other: &Self) {
        for (what, times) in &other.0 {
            *self.0.entry(what.clone()).or_default() += times;
        }
    }

    /// Records by place and reason, and publishes that were pushed out and waited again.
    pub fn add_books(&mut self, books: &Books) {
        for (name, table) in [
            ("refused", &books.refused),
            ("shed", &books.shed),
            ("evicted", &books.evicted),
            ("dropped", &books.dropped),
        ] {
            for (place, reason, tally) in table.iter() {
                let what = format!("{name} {}", name_cell(place, reason));
                *self.0.entry(what).or_default() += tally.records;
                if matches!(reason, Reason::TenantShare | Reason::TopicHeld) {
                    *self.0.entry("pushed out".to_owned()).or_default() += tally.records;
                }
            }
        }
        if !books.returned.is_zero() {
            *self.0.entry("demoted to parked".to_owned()).or_default() += books.returned.records;
        }
    }
}
