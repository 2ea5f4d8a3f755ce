//! Applications that take from an inbox (checkpoint 7) at their own rate.

use super::write::publish;
use super::{Event, World, at};
use crate::fact::Fact;
use crate::frame::{GAP, Item};
use crate::judge::{Finding, Found};
use crate::scenario::draw;
use crate::sink::Reader;
use sluicegate_core::client::inbox::{Answer, Event as Arrival, Inbox, Next, Taken};
use sluicegate_core::{Gap, Place, Rand, Reason};

/// A second.
const SECOND: u64 = 1_000_000_000;

impl World<'_> {
    /// The inbox of a new subscription, if its group has one.
    pub(super) fn inbox(&self, group: usize, dice: &Rand) -> Option<Box<Reader>> {
        let spec = &self.story.subscribers[group];
        let rate = draw(&mut dice.fork("takes"), spec.takes?);
        let inbox = Inbox::new(&self.story.limits, spec.wish.policy);
        let pause = SECOND / rate;
        Some(Box::new(Reader { inbox, pause, is_taking: false, rests_until: 0 }))
    }

    /// Puts what arrived into the inbox, if there is one. False: there is no room, and it waits.
    pub(super) fn keep(
        &mut self,
        subscriber: u32,
        (item, first): (&Item, u64),
    ) -> Result<bool, Finding> {
        let Some(reader) = &mut self.subscribers[at(subscriber)].inbox else { return Ok(true) };
        if item.publisher == GAP {
            // Where it was lost is not in the frame, and does not matter here.
            let (place, reason) = (Place::Backlog, Reason::DropOld);
            let records = item.records.into();
            let gap = Gap { first: item.number, last: item.at, records, place, reason };
            reader.inbox.lost(gap);
            self.start_taking(subscriber);
            return Ok(true);
        }
        let (records, bytes) = (item.records, item.length);
        match reader.inbox.push(Arrival { first, records, bytes, value: (*item, first) }) {
            Answer::Full(_) => return Ok(false),
            Answer::Dropped(why) => self.put(Fact::Overrun(subscriber, publish(item), why))?,
            Answer::Queued => {}
        }
        self.note_inbox(subscriber);
        self.start_taking(subscriber);
        Ok(true)
    }

    fn start_taking(&mut self, subscriber: u32) {
        let now = self.now;
        let Some(reader) = &mut self.subscribers[at(subscriber)].inbox else { return };
        if !std::mem::replace(&mut reader.is_taking, true) {
            self.calendar.enter(reader.rests_until.max(now), Event::Take(subscriber));
        }
    }

    /// An application takes one event.
    pub(super) fn take(&mut self, subscriber: u32) -> Found {
        let now = self.now;
        let this = &mut self.subscribers[at(subscriber)];
        let (group, sink) = (this.group, this.sink);
        let Some(reader) = &mut this.inbox else { return Ok(()) };
        reader.is_taking = false;
        reader.rests_until = now + reader.pause;
        while let Some(Taken { next, resume }) = reader.inbox.take() {
            let Next::Event(event) = next else { continue };
            let (item, _) = event.value;
            let row = &mut self.rows[group];
            row.taken += u64::from(item.records);
            row.latency.add(now - item.at);
            self.watching.latency(group, now - item.at);
            self.put(Fact::Took(subscriber, publish(&item)))?;
            if resume {
                self.read_on(sink)?;
            }
            break;
        }
        let reader = self.subscribers[at(subscriber)].inbox.as_ref();
        if reader.is_some_and(|reader| !reader.inbox.is_empty()) {
            self.start_taking(subscriber);
        }
        Ok(())
    }

    /// There is room in an inbox again: what waited in the transport is read.
    fn read_on(&mut self, number: u32) -> Found {
        while let Some(flight) = self.sinks[at(number)].unread.pop_front() {
            if !self.receive(number, &flight)? {
                self.sinks[at(number)].unread.push_front(flight);
                break;
            }
            self.sinks[at(number)].unread_bytes -= u64::from(flight.item.length);
        }
        let sink = &self.sinks[at(number)];
        if sink.refusing
            && let Some(free) = sink.half_free()
        {
            self.calendar.enter(free.max(self.now), Event::Writable(number));
        }
        Ok(())
    }
}
