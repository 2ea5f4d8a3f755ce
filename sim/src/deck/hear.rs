//! From inputs and answers to what the judges hear.

use super::frames::{Frames, Made, Slice};
use super::memory::{Asked, Before, Conn, Open, Outlet, Part, Sub, Topic};
use super::{
    Ack, ConnId, Deck, Effect, Finding, Found, Input, Kind, Outcome, OutletId, SubId, Thing,
};
use crate::fact::{Fact, Publish};
use crate::judge::contract::Contract;
use crate::judge::sequence::Batch;
use sluicegate_core::{Notice, Offer, Pipe, Policy, Tally, TenantId, Ticket, TopicId, Verdict};

/// One number for an outlet of any shard.
fn key(shard: u32, outlet: u64) -> u64 {
    outlet ^ u64::from(shard) << 56
}

fn framing(what: impl Into<String>) -> Found {
    let kind = crate::judge::Kind::Safety;
    Err(Finding { judge: "framing", kind, what: what.into(), at: None })
}

impl Deck {
    pub(super) fn hear(
        &mut self,
        at: usize,
        input: &Input,
        outcome: &Outcome,
        before: &Before,
    ) -> Found {
        let n = input.numbers();
        match (input.kind(), outcome) {
            (Kind::Publish, Outcome::Verdict(verdict)) => {
                return self.published(at, input, *verdict, before);
            }
            (Kind::Poll, Outcome::Effect(Some(Effect::Notice(notice)))) => {
                return self.notice(at, notice);
            }
            (Kind::Poll, Outcome::Effect(Some(Effect::Write(offer)))) => {
                return self.offered(at, *offer);
            }
            (Kind::Sent, Outcome::Done) => return self.sent(at, OutletId::from_bits(n[0]), n[1]),
            (Kind::Receive, Outcome::Done) if !self.whole => {
                let from = u32::try_from(n[0]).unwrap_or(u32::MAX);
                let records = u32::try_from(n[6]).unwrap_or(u32::MAX);
                self.frames.made(Made { source: (from, None), records, bytes: n[5], except: None });
            }
            (_, Outcome::Id(bits)) => return self.made(at, input, *bits),
            (Kind::Refuse | Kind::Shed, _) if !before.is_stale => self.turned_away(at, input),
            (Kind::Close | Kind::Gone | Kind::Shut | Kind::Unsubscribe, Outcome::Done) => {
                self.ended(at, input);
            }
            (Kind::Shutdown, _) => {
                self.shards[at].is_blurred = true;
                self.shards[at].is_shutting = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// Something has a new id.
    fn made(&mut self, at: usize, input: &Input, bits: u64) -> Found {
        let shard = &mut self.shards[at];
        let n = input.numbers();
        match input.kind() {
            Kind::Tenant => {
                shard.tenants.push(TenantId::from_bits(bits));
                shard.blocking.push(false);
                shard.rotation.tenant(n[0] & u64::from(u32::MAX));
            }
            Kind::Open => {
                shard.contract.gave(Thing::Conn, bits)?;
                let number = shard.numbers;
                shard.numbers += 1;
                let tenant = place(TenantId::from_bits(n[0]).index());
                let conn = ConnId::from_bits(bits);
                let own = Conn::new(number, conn, tenant);
                shard.conns.insert(conn, own);
            }
            Kind::Source => {
                shard.contract.gave(Thing::Conn, bits)?;
                let number = shard.numbers;
                shard.numbers += 1;
                let conn = ConnId::from_bits(n[0]);
                let Some(whole) = shard.conns.get_mut(&conn) else {
                    return framing(format!("{conn:?} got a source and is not there"));
                };
                whole.has_sources = true;
                let own = Conn::new(number, conn, whole.tenant);
                shard.conns.insert(ConnId::from_bits(bits), own);
                self.reached.add("a source");
            }
            Kind::Outlet => {
                shard.contract.gave(Thing::Outlet, bits)?;
                let outlet = Outlet {
                    conn: ConnId::from_bits(n[0]),
                    pipe: if n[1].is_multiple_of(2) { Pipe::Shared } else { Pipe::Single },
                    open: None,
                    begun: None,
                    refusing: false,
                    pressed: false,
                    subs: Vec::new(),
                };
                shard.outlets.insert(OutletId::from_bits(bits), outlet);
            }
            Kind::Topic => {
                let tenant = place(TenantId::from_bits(n[0]).index());
                let id = TopicId::from_bits(bits);
                let is_owned = shard.broker.owner_of(id) == Some(shard.broker.number());
                shard.topics.insert(id, Topic { tenant, is_owned });
            }
            Kind::Subscribe => return self.subscribed(at, n, bits),
            _ => {}
        }
        Ok(())
    }

    fn subscribed(&mut self, at: usize, n: &[u64], bits: u64) -> Found {
        let shard = &mut self.shards[at];
        shard.contract.gave(Thing::Sub, bits)?;
        let (outlet, topic) = (OutletId::from_bits(n[0]), TopicId::from_bits(n[1]));
        let id = SubId::from_bits(bits);
        let policies = [Policy::Block, Policy::DropNew, Policy::DropOld, Policy::Latest];
        let policy = policies[usize::try_from(n[2] % 4).expect("less than four")];
        let mut sub = Sub::new(self.subs, topic, policy);
        sub.is_tail = n[5].is_multiple_of(4);
        let limits = shard.broker.limits();
        let least = |wished: u64, most: u64| if wished == 0 { most } else { wished.min(most) };
        let batches = n[3] & u64::from(u32::MAX);
        sub.limit = (
            least(batches, limits.subscription_batches).max(1),
            least(n[4], limits.subscription_bytes),
        );
        // Who asks for a record is promised it, or a gap from there on.
        let next = shard.broker.topic_books(topic).map_or(0, |books| books.sequenced.records) + 1;
        let start = shard.broker.start_of(id);
        let promised = match (n[5] % 4, start) {
            (3, Some(start)) if shard.broker.topic_epoch(topic) == Some(n[6]) => {
                Some(n[7].clamp(1, next).min(start))
            }
            (3, Some(_)) => Some(1),
            _ => start,
        };
        let tenant = shard.topics.get(&topic).map(|topic| topic.tenant);
        if let Some(tenant) = tenant {
            shard.blocking[tenant] |= policy == Policy::Block;
            let audience = shard.broker.audience(topic).unwrap_or(0);
            shard.rotation.audience(tenant, audience + 1);
        }
        if let Some(pipe) = shard.outlets.get_mut(&outlet) {
            pipe.subs.push(id);
        }
        shard.by_number.insert(self.subs, id);
        shard.subs.insert(id, sub);
        let number = shard.broker.number();
        self.sequence.subscribed(key(number, outlet.to_bits()), promised);
        if let Some(began) = shard.broker.began(id) {
            self.sequence.began(self.subs, began);
        }
        self.subs += 1;
        Ok(())
    }

    fn ended(&mut self, at: usize, input: &Input) {
        let shard = &mut self.shards[at];
        let bits = input.numbers()[0];
        let conn = ConnId::from_bits(bits);
        match input.kind() {
            Kind::Unsubscribe => shard.end_sub(SubId::from_bits(bits)),
            Kind::Shut => shard.end_outlet(OutletId::from_bits(bits)),
            kind => shard.end_conn(conn, kind == Kind::Close),
        }
    }

    /// A host refused a call whole.
    /// A host has turned a publish away by itself.
    fn turned_away(&mut self, at: usize, input: &Input) {
        let n = input.numbers();
        let shard = &mut self.shards[at];
        let Some(conn) = shard.conns.get_mut(&ConnId::from_bits(n[0])) else { return };
        let number = |n: u64| u32::try_from(n).ok().filter(|n| *n < 1 << 30);
        let (Some(records), Some(bytes)) = (number(n[1]), number(n[2])) else {
            shard.is_odd = true;
            return;
        };
        let conn = conn.conn;
        let Some(conn) = shard.conns.get_mut(&conn) else { return };
        let publisher = conn.number;
        let publish = Publish { publisher, topic: 0, number: conn.made, records, bytes };
        conn.made += 1;
        shard.conservation.hear(&Fact::Offered(publish));
        let is_shed = input.kind() == Kind::Shed;
        shard.conservation.hear_turned_away(&publish, (n[3], n[4]), is_shed);
    }

    fn published(&mut self, at: usize, input: &Input, verdict: Verdict, before: &Before) -> Found {
        let n = input.numbers();
        let shard = &mut self.shards[at];
        let number = shard.broker.number();
        let (conn, topic) = (ConnId::from_bits(n[0]), TopicId::from_bits(n[1]));
        let records = u32::try_from(n[3] & u64::from(u32::MAX)).expect("32 bits");
        let bytes = u32::try_from(n[2].min(64 << 20)).expect("64 MiB");
        let except = match n[5] {
            0 => None,
            1 => Some(key(number, n[6])),
            more => Some(key(u32::try_from(more - 2).unwrap_or(u32::MAX), n[6])),
        };
        let publisher = shard.conns.get(&conn).map(|own| own.number);
        let made = Made { source: (number, publisher), records, bytes: bytes.into(), except };
        let made = self.frames.made(made);
        let Some(own) = shard.conns.get_mut(&conn) else { return Ok(()) };
        if let Some(outlet) = except {
            self.sequence.leaves_out(outlet);
        }
        let conn = own.conn;
        let Some(own) = shard.conns.get_mut(&conn) else { return Ok(()) };
        let publish = Publish { publisher: own.number, topic: 0, number: own.made, records, bytes };
        own.made += 1;
        own.parked |= matches!(verdict, Verdict::Parked(_));
        let ack = [Ack::None, Ack::Now, Ack::Wait][usize::try_from(n[4] % 3).expect("below 3")];
        let bands = [before.band, shard.broker.band()];
        Contract::answered(shard.broker.limits(), ack, verdict, bands)?;
        shard.rotation.offered(own.tenant, Tally { records: records.into(), bytes: bytes.into() });
        shard.conservation.hear(&Fact::Offered(publish));
        match verdict {
            Verdict::Queued(ticket) | Verdict::Parked(ticket) => {
                if ack != Ack::None {
                    return self.ask(at, ticket, Asked { conn, topic, publish, made });
                }
            }
            Verdict::Refused(why) => shard.conservation.hear(&Fact::Refused(publish, why)),
            Verdict::Shed(why) => shard.conservation.hear(&Fact::Shed(publish, why)),
        }
        Ok(())
    }

    fn ask(&mut self, at: usize, ticket: Ticket, asked: Asked) -> Found {
        let shard = &mut self.shards[at];
        let ending = shard.conns.get(&asked.conn).is_some_and(|conn| conn.ending);
        if shard.asked.insert(ticket, asked).is_some() || ending {
            return framing(format!("{ticket:?} stands for two publishes, or for one that ended"));
        }
        Ok(())
    }

    fn notice(&mut self, at: usize, notice: &Notice) -> Found {
        let shard = &mut self.shards[at];
        match *notice {
            Notice::Close { conn, .. } => {
                if let Some(own) = shard.conns.get_mut(&conn) {
                    own.ending = true;
                    own.paused = false;
                    shard.is_blurred = true;
                }
            }
            Notice::Committed { ticket, first, .. } => {
                let Some(asked) = shard.asked.remove(&ticket) else { return Ok(()) };
                if shard.topics.get(&asked.topic).is_some_and(|topic| topic.is_owned) {
                    return self.number(at, asked.topic, first, asked.made);
                }
            }
            Notice::Failed { ticket, why, .. } => {
                if let Some(asked) = shard.asked.remove(&ticket) {
                    shard.conservation.hear(&Fact::Failed(asked.publish, why));
                }
            }
            Notice::Ended { sub, .. } => shard.end_sub(sub),
            Notice::Flushed { .. } => self.reached.add("flushed"),
            Notice::Gap { sub, gap } => {
                self.reached.add("gap told");
                if gap.records < gap.last - gap.first + 1 {
                    self.reached.add("gap merge");
                }
                if let Some(sub) = shard.subs.get(&sub) {
                    return self.sequence.told(sub.number, gap);
                }
            }
            Notice::Joined { sub, start } => {
                self.reached.add("joined by another shard's answer");
                if let Some(own) = shard.subs.get(&sub) {
                    if let Some(began) = shard.broker.began(sub) {
                        self.reached.add("joined with a past");
                        self.sequence.began(own.number, began);
                    }
                    return self.sequence.joined(own.number, start);
                }
            }
            Notice::Pause { conn } => return self.pause(at, conn, true),
            Notice::Resume { conn } => return self.pause(at, conn, false),
            Notice::Shed { conn, records, .. } => {
                let publisher = shard.conns.get(&conn).map_or(0, |conn| conn.number);
                shard.conservation.hear(&Fact::ShedTold(publisher, records));
            }
        }
        Ok(())
    }

    fn pause(&mut self, at: usize, conn: ConnId, paused: bool) -> Found {
        self.reached.add(if paused { "paused" } else { "resumed" });
        let shard = &mut self.shards[at];
        match shard.conns.get_mut(&conn).filter(|conn| !conn.ending) {
            // It says that it is worth asking who is.
            Some(own) if own.has_sources => own.paused = shard.broker.is_paused(conn),
            Some(own) if own.paused == paused => {
                return framing(format!("{conn:?} was told twice whether it is paused"));
            }
            Some(own) => own.paused = paused,
            None => {}
        }
        Ok(())
    }

    /// A publish has the sequence number `first` in a topic as a shard knows it.
    fn number(&mut self, at: usize, topic: TopicId, first: u64, made: u64) -> Found {
        let broker = &self.shards[at].broker;
        let Some(epoch) = broker.topic_epoch(topic) else { return Ok(()) };
        // From a shard that is not here the same batch may come twice, as a new one and as one of
        // the past, and nothing shows that it is the same.
        if !self.whole && broker.owner_of(topic) != Some(broker.number()) {
            return Ok(());
        }
        let Some(publish) = self.frames.number(made) else { return Ok(()) };
        let Made { source, records, except, .. } = publish;
        let batch = Batch { publish: made, records: records.into(), source, except };
        self.sequence.numbered(epoch, first, batch)
    }

    /// An outlet may write.
    fn offered(&mut self, at: usize, offer: Offer) -> Found {
        let broker = &self.shards[at].broker;
        let slices: Vec<Slice> = broker.frames(offer).map(Frames::slice).collect();
        let whose = broker.offered(offer);
        let sum: u64 = slices.iter().map(|slice| slice.bytes).sum();
        if sum != offer.bytes || sum == 0 || whose.len() != slices.len() {
            return framing(format!("an offer of {} bytes has {sum}", offer.bytes));
        }
        let Some(outlet) = self.shards[at].outlets.get(&offer.outlet) else {
            return framing(format!("an offer for {:?}, which is gone", offer.outlet));
        };
        if outlet.open.is_some() {
            return framing(format!("two offers at once for {:?}", offer.outlet));
        }
        let mut parts = Vec::with_capacity(slices.len());
        let mut rest = outlet.begun;
        for (slice, whose) in slices.into_iter().zip(whose) {
            let part = match rest.take() {
                Some((due, part)) if due == slice => part,
                Some((due, _)) => {
                    return framing(format!(
                        "{:?}: {} bytes of a frame are still to come, but {} others were offered",
                        offer.outlet, due.bytes, slice.bytes
                    ));
                }
                None => self.part(slice, whose)?,
            };
            parts.push((slice, part));
        }
        for (_, part) in &parts {
            let Some((sub, first, made)) = part else { continue };
            let Some(topic) = self.shards[at].subs.get(sub).map(|sub| sub.topic) else { continue };
            self.number(at, topic, *first, *made)?;
        }
        let outlet = self.shards[at].outlets.get_mut(&offer.outlet).expect("it was just seen");
        outlet.open = Some(Open { bytes: offer.bytes, slices: parts });
        Ok(())
    }

    /// What a whole frame is.
    fn part(&self, slice: Slice, whose: Option<(SubId, u64)>) -> Result<Part, Finding> {
        let Some((sub, first)) = whose else { return Ok(None) };
        match self.frames.publish(slice.at) {
            Some((made, publish)) if publish.bytes == slice.bytes => Ok(Some((sub, first, made))),
            _ => framing(format!("{} bytes were offered that are no whole frame", slice.bytes))
                .map(|()| None),
        }
    }

    /// An outlet's offer is settled.
    fn sent(&mut self, at: usize, id: OutletId, bytes: u64) -> Found {
        let Some(outlet) = self.shards[at].outlets.get_mut(&id) else { return Ok(()) };
        let Some(open) = outlet.open.take() else { return Ok(()) };
        let mut left = bytes.min(open.bytes);
        let mut begun = outlet.begun.take().is_some();
        let mut whole = Vec::new();
        for (slice, part) in open.slices {
            if left < slice.bytes {
                if left > 0 || begun {
                    let place = usize::try_from(left).expect("less than a frame");
                    let rest = Slice { at: slice.at + place, bytes: slice.bytes - left };
                    outlet.begun = Some((rest, part));
                }
                break;
            }
            begun = false;
            left -= slice.bytes;
            whole.extend(part);
        }
        for (sub, first, made) in whole {
            self.delivered(at, sub, first, made)?;
        }
        Ok(())
    }

    /// The last byte of a batch was accepted.
    fn delivered(&mut self, at: usize, sub: SubId, first: u64, made: u64) -> Found {
        let shard = &mut self.shards[at];
        let (Some(sub), Some(publish)) = (shard.subs.get(&sub), self.frames.number(made)) else {
            return Ok(());
        };
        let records = publish.records;
        let bytes = u32::try_from(publish.bytes).expect("64 MiB");
        let fact = Publish { publisher: 0, topic: 0, number: made, records, bytes };
        shard.conservation.hear(&Fact::Accepted(sub.number, fact, first));
        shard.conservation.hear(&Fact::Received(sub.number, fact, first));
        let Some(epoch) = shard.broker.topic_epoch(sub.topic) else { return Ok(()) };
        self.sequence.received(sub.number, epoch, (first, records.into()))
    }
}

fn place(index: u32) -> usize {
    usize::try_from(index).expect("an index of a vector")
}
