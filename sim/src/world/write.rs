//! From an offer to the far end of a link: what a transport takes, and what arrives.

use super::{Event, World, at};
use crate::fact::{Fact, Publish};
use crate::frame::{ANSWER, GAP, HEADER, Item};
use crate::judge::{Finding, Found, Kind};
use crate::sink::Flight;
use sluicegate_core::{Gap, Lane, Offer, SubId};

fn framing(what: String) -> Finding {
    Finding { judge: "framing", kind: Kind::Safety, what, at: None }
}

pub(super) fn publish(item: &Item) -> Publish {
    let Item { length: bytes, topic, publisher, records, number, .. } = *item;
    Publish { publisher, topic, number, records, bytes }
}

impl World<'_> {
    /// Tells a subscriber, in its own stream, what it lost.
    pub(super) fn tell(&mut self, shard: u32, sub: SubId, gap: Gap) -> Found {
        let Some(subscriber) = self.subscriber_of(shard, sub) else { return Ok(()) };
        let reader = &self.subscribers[at(subscriber)];
        let item = Item {
            length: HEADER,
            topic: reader.topic,
            publisher: GAP,
            records: u32::try_from(gap.records).expect("no run publishes 2^32 records"),
            number: gap.first,
            at: gap.last,
        };
        let outlet = self.sinks[at(reader.sink)].outlet;
        // Without room for it the connection is given up: a notice of that follows.
        let _ = self.shards[at(shard)].broker.send(outlet, item.encode(), Lane::First);
        self.put(Fact::Gap(subscriber, gap))
    }

    /// Writes what is offered, as far as the transport has room.
    pub(super) fn write(&mut self, shard: u32, offer: Offer) -> Found {
        let now = self.now;
        let this = &mut self.shards[at(shard)];
        let number = this.sink(offer.outlet);
        let waiting = this.broker.backlog(offer.outlet).unwrap_or_default().bytes;
        self.peaks.backlog = self.peaks.backlog.max(waiting + offer.bytes);
        let sink = &mut self.sinks[at(number)];
        let room = sink.room(now);
        let (mut took, mut offered) = (0, 0);
        let mut frames = this.broker.frames(offer);
        let mut whole = std::mem::take(&mut self.whole);
        while let Some(bytes) = frames.next() {
            let first = frames.sequence();
            offered += bytes.len() as u64;
            let fits = usize::try_from(room - took).unwrap_or(usize::MAX).min(bytes.len());
            let read = sink.parser.read(&bytes[..fits], |end, item| {
                whole.push((took + end, item, first));
            });
            if let Err(what) = read {
                let name = self.names.subscriber(sink.name());
                return Err(framing(format!("{name}: {what}")));
            }
            took += fits as u64;
        }
        sink.line.accept(now, took);
        for &(end, item, first) in &whole {
            let at = sink.line.land(took - end).filter(|_| !sink.cut);
            sink.in_flight.push_back(Flight { at, item, first });
        }
        if let Some(at) = sink.expect_next() {
            self.calendar.enter(at, Event::Deliver(number));
        }
        if took < offer.bytes {
            this.host.refusing.push_back(number);
            sink.refusing = true;
            if let Some(at) = sink.half_free() {
                self.calendar.enter(at, Event::Writable(number));
            }
        }
        this.broker.sent(offer, took);
        let reader = sink.name();
        self.note_transport(number);
        self.put(Fact::Wrote(reader, offer.bytes, took))?;
        if offered != offer.bytes || offered == 0 {
            return Err(framing(format!("an offer of {} bytes had {offered}", offer.bytes)));
        }
        for (_, item, first) in whole.drain(..) {
            let reader = self.sinks[at(number)].reader(item.topic);
            if let Some(reader) = reader.filter(|_| item.is_data()) {
                self.put(Fact::Accepted(reader, publish(&item), first))?;
            }
        }
        self.whole = whole;
        Ok(())
    }

    /// Frames have arrived at the far end of an outlet.
    pub(super) fn deliver(&mut self, number: u32) -> Found {
        let now = self.now;
        self.sinks[at(number)].expecting = false;
        loop {
            let sink = &mut self.sinks[at(number)];
            let front = sink.in_flight.front().filter(|_| !sink.cut && !sink.closed);
            if front.is_none_or(|flight| flight.at.is_none_or(|at| at > now)) {
                break;
            }
            let flight = sink.in_flight.pop_front().expect("the front was just seen");
            if sink.unread.is_empty() && self.receive(number, &flight)? {
                continue;
            }
            let sink = &mut self.sinks[at(number)];
            sink.unread_bytes += u64::from(flight.item.length);
            sink.unread.push_back(flight);
        }
        if let Some(at) = self.sinks[at(number)].expect_next() {
            self.calendar.enter(at, Event::Deliver(number));
        }
        Ok(())
    }

    /// A frame reaches a subscriber. False when it stays in the transport: the inbox is full.
    pub(super) fn receive(&mut self, number: u32, flight: &Flight) -> Result<bool, Finding> {
        let Flight { item, first, .. } = *flight;
        let Some(reader) = self.sinks[at(number)].reader(item.topic) else { return Ok(true) };
        if item.publisher == ANSWER {
            self.answered_question(reader, &item)?;
            return Ok(true);
        }
        if !self.keep(reader, (&item, first))? {
            return Ok(false);
        }
        if item.publisher == GAP {
            self.put(Fact::GapTold(reader, item.records, item.number, item.at))?;
            return Ok(true);
        }
        let now = self.now;
        let subscriber = &mut self.subscribers[at(reader)];
        subscriber.received += u64::from(item.records);
        let row = &mut self.rows[subscriber.group];
        row.received += u64::from(item.records);
        if subscriber.inbox.is_none() {
            row.latency.add(now - item.at);
            self.watching.latency(subscriber.group, now - item.at);
        }
        if let Some(traces) = &mut self.traces {
            traces[at(reader)].push((now, item.publisher, item.number));
        }
        self.put(Fact::Received(reader, publish(&item), first))?;
        Ok(true)
    }
}
