//! Playing: what an input says is done, as its host once did it.

use super::{Input, Kind, MOST, Outcome, choose, keep, narrow, refusal, start};
use crate::broker::fetch::Answer;
use crate::broker::{Broker, Close, Lane, Message, Offer, Pipe, Wish};
use crate::id::{ConnId, OutletId, SubId, TenantId, Ticket, TopicId};
use crate::lag::Load;
use crate::ledger::Tally;
use crate::memory::Held;
use crate::mesh::{self, Body, Carried, Fetch, Head, Named, Parcel};
use crate::peers::{Line, Sub, Unplaced};
use crate::pressure::Sample;
use crate::replay::{Past, Spot};
use crate::time::Instant;
use crate::verdict::{Ack, Policy, Refusal};
use crate::writer::State;
use bytes::Bytes;

/// The longest frame that is played.
const MOST_BYTES: u64 = 64 << 20;

/// The end of an answer comes after all that was kept.
const END: Tally = Tally { records: u64::MAX >> 1, bytes: u64::MAX >> 1 };

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
            Kind::Node => self.node(n[0] % 2 == 1),
            Kind::Pressure => {
                let sample = Sample { avg10: narrow(n[1]), total: n[2] };
                self.pressure((n[0] == 1).then_some(sample));
            }
            Kind::Refused => self.refused(OutletId::from_bits(n[0])),
            Kind::Shut => self.shut(OutletId::from_bits(n[0])),
            Kind::Shutdown => self.shutdown(),
            Kind::Writable => self.writable(OutletId::from_bits(n[0])),
            Kind::Refuse | Kind::Shed => {
                let brought = Tally { records: n[1], bytes: n[2] };
                let (conn, why) = (ConnId::from_bits(n[0]), refusal([n[3], n[4], n[5]]));
                match input.kind {
                    Kind::Refuse => self.refuse(conn, brought, why),
                    _ => self.shed(conn, brought, why),
                }
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
            Kind::Source => id(self.source(conn).map(ConnId::to_bits)),
            Kind::Open => id(self.open(TenantId::from_bits(n[0])).map(ConnId::to_bits)),
            Kind::Outlet => {
                let pipe = choose(&[Pipe::Shared, Pipe::Single], n[1]);
                id(self.outlet(conn, pipe).map(OutletId::to_bits))
            }
            Kind::Publish => {
                let ack = choose(&[Ack::None, Ack::Now, Ack::Wait], n[4]);
                let outlet = OutletId::from_bits(n[6]);
                let except = match n[5] {
                    0 => None,
                    1 => Some((self.mesh.shard, outlet)),
                    more => Some((narrow(more - 2), outlet)),
                };
                let frame = framed(n[2], frame);
                let (records, keep) = (narrow(n[3]), keep(n[7]));
                let message = Message { frame, records, ack, except, keep };
                Outcome::Verdict(self.publish(conn, TopicId::from_bits(n[1]), message))
            }
            Kind::Reassembly => done(self.reassembly(conn, n[1])),
            Kind::Send => {
                let lane = choose(&[Lane::First, Lane::InLine], n[2]);
                done(self.send(outlet, framed(n[1], frame), lane))
            }
            Kind::Subscribe => {
                let start = start([n[5], n[6], n[7]]);
                let policies = [Policy::Block, Policy::DropNew, Policy::DropOld, Policy::Latest];
                let policy = choose(&policies, n[2]);
                let wish = Wish { policy, batches: narrow(n[3]), bytes: n[4], start };
                id(self.subscribe(outlet, TopicId::from_bits(n[1]), wish).map(SubId::to_bits))
            }
            Kind::Forget => done(self.forget(TenantId::from_bits(n[0])).map(drop)),
            Kind::Reweigh => done(self.reweigh(TenantId::from_bits(n[0]), narrow(n[1]))),
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
        // Those of a topic of another shard that have a place, but for the one that asks for it.
        let waits = |id: SubId| {
            let sub = self.peers.sub(id).ok().filter(|sub| sub.line == Line::Asked)?;
            let placed = sub.unplaced == Unplaced::No;
            (placed || matches!(parcel.body, Body::Place(..))).then_some(sub)
        };
        match &parcel.body {
            Body::Forward(job, ..) => fits(job, 0),
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
            Body::Interest { .. } | Body::Credit(..) | Body::Fetch(_) => true,
            Body::Place(sub, place) => {
                let unplaced = |sub: &Sub| sub.unplaced != Unplaced::No;
                waits(*sub).is_some_and(unplaced) && is_place(place)
            }
            Body::Past(sub, job, spot) => {
                let size = Tally { records: job.records, bytes: job.frame.len() as u64 };
                let small = spot.before.records.max(spot.before.bytes) < 1 << 60;
                let may_come = small && waits(*sub).is_some();
                fits(job, spot.first) && may_come && self.may_follow(*sub, *spot, size)
            }
            Body::Fetched(sub, head, _) => {
                let end = Spot { first: head.next, offset: head.offset, before: END };
                waits(*sub).is_some() && self.may_follow(*sub, end, Tally::ZERO)
            }
        }
    }

    /// Whether a batch, or the end of an answer, can come next for a subscription: not before what
    /// it has, or has been sent and not yet taken.
    fn may_follow(&self, id: SubId, next: Spot, size: Tally) -> bool {
        let Ok(sub) = self.peers.sub(id) else { return false };
        let before = self.peers.past_of(id.index).map(|past| past.before).unwrap_or_default();
        let mut at = Spot { first: sub.start, offset: sub.passed, before };
        for (_, answer) in self.mesh.answers.iter().filter(|(of, _)| *of == id) {
            let Answer::Batch(entry) = answer else { return false };
            let Held { first, offset, tally, .. } = *self.memory.get(entry.message);
            let before = sum(entry.before, tally);
            at = Spot { first: first + tally.records, offset: offset + tally.bytes, before };
        }
        let within =
            |part: Tally, whole: Tally| part.records <= whole.records && part.bytes <= whole.bytes;
        let past = self.peers.past_of(id.index).filter(|past| !within(past.whole, at.before));
        let ahead = next.first >= at.first && next.offset >= at.offset;
        let fits = past.is_none_or(|past| {
            let beyond = next.first >= past.next && next.offset >= past.offset;
            let inside = next.first + size.records <= past.next
                && within(at.before, next.before)
                && within(sum(next.before, size), past.whole);
            beyond || inside
        });
        ahead && fits && next.first.max(next.offset) < 1 << 60
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

fn carried(numbers: &[u64], frame: Framing<'_>) -> Carried {
    Carried {
        frame: framed(numbers[0], frame),
        records: numbers[1],
        at: Instant::from_nanos(numbers[2]),
        except: (numbers[3] == 1).then(|| (narrow(numbers[4]), OutletId::from_bits(numbers[5]))),
    }
}

fn sum(mut one: Tally, other: Tally) -> Tally {
    one += other;
    one
}

fn tally(numbers: &[u64]) -> Tally {
    Tally { records: numbers[0], bytes: numbers[1] }
}

/// Whether an owner could say that a subscription starts there.
fn is_place(place: &mesh::Place) -> bool {
    let mesh::Place { from, offset, past, .. } = place;
    let Past { next, offset: head, whole, before } = past;
    let numbers = [*from, *offset, *next, *head, whole.records, whole.bytes];
    let is_part = before.records <= whole.records && before.bytes <= whole.bytes;
    let is_ahead = past.is_over() || (next > from && head >= offset);
    is_part && is_ahead && numbers.iter().all(|number| *number < 1 << 60)
}

fn parcel(numbers: &[u64; MOST], frame: Framing<'_>) -> Parcel {
    let rest = &numbers[5..];
    let head = || Head { next: rest[0], offset: rest[1], epoch: rest[2] };
    let no = |at: usize| refusal([rest[at], rest[at + 1], rest[at + 2]]);
    let body = match numbers[4] % 11 {
        0 => Body::Forward(carried(rest, frame), Ticket::from_bits(rest[6]), keep(rest[7])),
        1 if rest[4] == 1 => Body::Done(Ticket::from_bits(rest[0]), Ok(rest[1])),
        1 => Body::Done(Ticket::from_bits(rest[0]), Err(no(1))),
        2 => Body::Interest { on: rest[0] == 1, block: rest[1] == 1 },
        3 => Body::Joined(if rest[3] == 1 { Ok(head()) } else { Err(no(0)) }),
        4 => Body::Batch(carried(rest, frame), rest[6], rest[7]),
        5 => Body::Lost(head()),
        6 => Body::Credit(narrow(rest[0]), rest[1]),
        7 => Body::Fetch(Fetch {
            sub: SubId::from_bits(rest[0]),
            start: start([rest[1], rest[2], rest[3]]),
            is_placed: rest[4] == 1,
            room: Load { batches: narrow(rest[5]), bytes: rest[6] },
        }),
        8 => {
            let (whole, before) = (tally(&rest[6..]), tally(&rest[8..]));
            let past = Past { next: rest[4], offset: rest[5], whole, before };
            let place = mesh::Place { wanted: rest[1], from: rest[2], offset: rest[3], past };
            Body::Place(SubId::from_bits(rest[0]), place)
        }
        9 => {
            let spot = Spot { first: rest[6], offset: rest[7], before: tally(&rest[9..]) };
            Body::Past(SubId::from_bits(rest[8]), carried(rest, frame), spot)
        }
        _ => Body::Fetched(SubId::from_bits(rest[3]), head(), rest[4] == 1),
    };
    let name = Named { hash: numbers[2], bytes: narrow(numbers[3]) };
    Parcel { tenant: narrow(numbers[1]), topic: name.on_tape().into(), name, body }
}
