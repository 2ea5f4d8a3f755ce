//! What one roll of a plan does.

use super::super::{KIB, Roll};
use super::{Dealer, MILLI, Pipe, TENANTS, Takes, hash, place, size};
use crate::judge::Found;
use sluicegate_core::{Input, Kind, Outcome, Start, Verdict};

/// Operations.
impl Dealer<'_> {
    pub(super) fn roll(&mut self, (kind, a, b): Roll) -> Found {
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
            74 => match (a as usize >> 4).checked_rem(self.side(shard).conns.len()) {
                Some(at) if b % 2 == 0 => {
                    let (conn, tenant) = self.side(shard).conns[at];
                    self.source(shard, conn, tenant)?;
                }
                _ => {
                    self.connect(shard, place(a, 2))?;
                }
            },
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
        // By default, nothing, the newest one, the newest four.
        let keep = [0, 0, 0, 1, 2, 5][place(a >> 16, 6)];
        let numbers = [conn, topic, bytes, records, ack, has, except, keep];
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

    /// A call is refused by its host, or what needs no answer is turned away there.
    fn refuse(&mut self, shard: u32, a: u32, b: u32) -> Found {
        let conns = &self.side(shard).conns;
        let Some(at) = (a as usize).checked_rem(conns.len()) else { return Ok(()) };
        let conn = conns[at].0;
        let numbers = [conn, u64::from(1 + b % 5), u64::from(b % 900), 5, 14, 0];
        let kind = [Kind::Refuse, Kind::Shed][place(b >> 16, 2)];
        self.act(shard, kind, &numbers)?;
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
            (Kind::Open, 3) if a & 16 == 0 => Input::with(Kind::Source, &[id]),
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
