//! Order and gaps: per topic and subscriber the sequence strictly increases, every missing number
//! was announced before the next record, and the announced numbers are the dropped ones.
//!
//! A topic numbers records in the order in which it admitted them, from [`FIRST`]. The judge
//! rebuilds that numbering from the publishers' side and reads each subscriber's records with it.

use super::{Finding, Found};
use crate::fact::{Fact, Publish};
use sluicegate_core::SubBooks;
use std::collections::VecDeque;

const NAME: &str = "order";

/// The sequence number of a topic's first record.
pub const FIRST: u64 = 1;

/// Rebuilds every topic's sequence and follows every subscriber through it.
#[derive(Debug)]
pub struct Order {
    topics: Vec<Topic>,
    /// By publisher and number: the place in the topic's admissions, if admitted.
    places: Vec<Vec<Option<usize>>>,
    subscribers: Vec<Reader>,
    /// Set once the broker pushed out unacked publishes: which ones, nobody is told, so the
    /// numbers cannot be rebuilt.
    blurred: bool,
}

/// A topic's admissions, in order.
#[derive(Debug, Default)]
struct Topic {
    entries: Vec<Entry>,
    /// Entries before this one have their final number.
    numbered: usize,
    next: u64,
}

#[derive(Debug)]
struct Entry {
    records: u32,
    /// Was parked and never got room.
    void: bool,
    first: u64,
}

/// What one subscriber saw.
#[derive(Debug, Default)]
struct Reader {
    topic: usize,
    /// The place of the last publish received, plus one.
    place: usize,
    /// The number after the last record received.
    next: u64,
    missing: u64,
    told: u64,
    /// Announced runs without a hole, ahead of `next`.
    runs: VecDeque<(u64, u64)>,
}

impl Order {
    /// A judge over these publishers, topics, and subscribers' topics.
    pub fn new(publishers: usize, topics: usize, subscribers: &[usize]) -> Self {
        let topic = || Topic { next: FIRST, ..Topic::default() };
        let reader = |topic: &usize| Reader { topic: *topic, next: FIRST, ..Reader::default() };
        Self {
            topics: std::iter::repeat_with(topic).take(topics).collect(),
            places: vec![Vec::new(); publishers],
            subscribers: subscribers.iter().map(reader).collect(),
            blurred: false,
        }
    }

    /// Follows a fact. Cost: O(1) amortised.
    pub fn hear(&mut self, fact: &Fact) -> Found {
        match *fact {
            Fact::Offered(publish) => {
                let places = &mut self.places[at(publish.publisher)];
                if places.len() as u64 != publish.number {
                    return bad(format!("publish {} was offered out of turn", publish.number));
                }
                places.push(None);
            }
            Fact::Admitted(publish) | Fact::Parked(publish) => {
                let topic = &mut self.topics[at(publish.topic)];
                let place = Some(topic.entries.len());
                topic.entries.push(Entry { records: publish.records, void: false, first: 0 });
                self.places[at(publish.publisher)][index(publish.number)] = place;
            }
            Fact::Failed(publish, _) => {
                let place = self.place(&publish)?;
                let topic = &mut self.topics[at(publish.topic)];
                if place < topic.numbered && !self.blurred {
                    return bad("a publish failed after it, or a later one, was sequenced");
                }
                topic.entries[place].void = true;
            }
            Fact::Committed(publish, first) => return self.committed(&publish, first),
            Fact::Received(sub, publish) => return self.received(sub, &publish),
            Fact::GapTold(sub, records, first, last) => {
                return self.told(sub, records, (first, last));
            }
            _ => {}
        }
        Ok(())
    }

    /// Unacked publishes were pushed out: from now on only the order is judged.
    pub const fn blur(&mut self) {
        self.blurred = true;
    }

    /// At the end: missing, announced and dropped numbers are the same ones. `drained`: nothing
    /// waits for the subscriber any more.
    pub fn end(&mut self, sub: u32, books: &SubBooks, drained: bool) -> Found {
        if self.blurred {
            return Ok(());
        }
        let reader = &self.subscribers[at(sub)];
        let (missing, told, dropped) = (reader.missing, reader.told, books.dropped.records);
        let topic = &mut self.topics[reader.topic];
        topic.number(topic.entries.len());
        let all = missing + (topic.next - reader.next);
        let fair = if drained {
            told == dropped && all == dropped
        } else {
            missing <= told && told <= dropped && dropped <= all
        };
        if fair {
            return Ok(());
        }
        bad(format!(
            "subscriber {sub}: {missing} numbers are missing before its last record, {all} in all; \
             {told} were announced and {dropped} are booked as dropped"
        ))
    }

    fn place(&self, publish: &Publish) -> Result<usize, Finding> {
        let places = &self.places[at(publish.publisher)];
        let place = places.get(index(publish.number)).copied().flatten();
        let what = || format!("publish {} was never admitted", publish.number);
        place.ok_or_else(|| Finding::safety(NAME, what()))
    }

    fn committed(&mut self, publish: &Publish, first: u64) -> Found {
        let place = self.place(publish)?;
        let due = self.topics[at(publish.topic)].first(place);
        if self.blurred || due == first {
            return Ok(());
        }
        bad(format!("publish {} was told sequence {first}, but it is {due}", publish.number))
    }

    fn received(&mut self, sub: u32, publish: &Publish) -> Found {
        let place = self.place(publish)?;
        let reader = &mut self.subscribers[at(sub)];
        if place < reader.place || reader.topic != at(publish.topic) {
            return bad(format!("publish {} came twice, late, or unasked for", publish.number));
        }
        reader.place = place + 1;
        if self.blurred {
            return Ok(());
        }
        let first = self.topics[reader.topic].first(place);
        reader.missing += first - reader.next;
        reader.next = first + u64::from(publish.records);
        if reader.missing > reader.told {
            return bad(format!(
                "sequence {first} came although {} of the numbers before it are missing and only \
                 {} were announced",
                reader.missing, reader.told
            ));
        }
        while reader.runs.front().is_some_and(|&(_, last)| last < first) {
            reader.runs.pop_front();
        }
        if reader.runs.front().is_some_and(|&(start, _)| start < reader.next) {
            return bad(format!("sequence {first} came although it was announced as lost"));
        }
        Ok(())
    }

    fn told(&mut self, sub: u32, records: u32, (first, last): (u64, u64)) -> Found {
        let reader = &mut self.subscribers[at(sub)];
        let span = last.checked_sub(first).map_or(0, |span| span + 1);
        reader.told += u64::from(records);
        if self.blurred {
            return Ok(());
        }
        if first < reader.next || u64::from(records) > span || records == 0 {
            return bad(format!("a gap of {records} records in {first}..={last} makes no sense"));
        }
        if u64::from(records) == span {
            reader.runs.push_back((first, last));
        }
        Ok(())
    }
}

impl Topic {
    /// The first number of the entry at `place`. It and all before it are sequenced.
    fn first(&mut self, place: usize) -> u64 {
        self.number(place + 1);
        self.entries[place].first
    }

    fn number(&mut self, until: usize) {
        while self.numbered < until {
            let entry = &mut self.entries[self.numbered];
            entry.first = self.next;
            self.next += if entry.void { 0 } else { u64::from(entry.records) };
            self.numbered += 1;
        }
    }
}

fn at(index: u32) -> usize {
    usize::try_from(index).expect("an index of a vector")
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("an index of a vector")
}

fn bad(what: impl Into<String>) -> Found {
    Err(Finding::safety(NAME, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_core::Tally;

    fn publish(number: u64) -> Publish {
        Publish { publisher: 0, topic: 0, number, records: 1, bytes: 50 }
    }

    /// Six admitted publishes and one subscriber.
    fn judge() -> Order {
        let mut judge = Order::new(1, 1, &[0]);
        for number in 0..6 {
            judge.hear(&Fact::Offered(publish(number))).unwrap();
            judge.hear(&Fact::Admitted(publish(number))).unwrap();
        }
        judge
    }

    fn hear(judge: &mut Order, facts: &[Fact]) -> Found {
        facts.iter().try_for_each(|fact| judge.hear(fact))
    }

    fn received(number: u64) -> Fact {
        Fact::Received(0, publish(number))
    }

    fn gap(records: u32, first: u64, last: u64) -> Fact {
        Fact::GapTold(0, records, FIRST + first, FIRST + last)
    }

    fn dropped(records: u64) -> SubBooks {
        SubBooks { dropped: Tally { records, bytes: 0 }, ..SubBooks::default() }
    }

    #[test]
    fn an_announced_gap_is_in_order() {
        let mut judge = judge();
        let facts = [received(0), gap(2, 1, 2), received(3), gap(2, 4, 5)];
        hear(&mut judge, &facts).unwrap();
        judge.end(0, &dropped(4), true).unwrap();
        judge.end(0, &dropped(3), true).unwrap_err();
    }

    #[test]
    fn merged_runs_may_span_received_records() {
        let mut judge = judge();
        hear(&mut judge, &[gap(2, 0, 2), received(1), received(3)]).unwrap();
        judge.end(0, &dropped(2), false).unwrap();
        judge.end(0, &dropped(1), false).unwrap_err();
    }

    #[test]
    fn doctored_streams_are_convicted() {
        let streams: [&[Fact]; 8] = [
            &[received(1), received(0)],
            &[received(0), received(0)],
            &[received(0), received(2)],
            &[received(0), received(2), gap(1, 1, 1)],
            &[gap(1, 1, 1), received(0), received(1)],
            &[received(0), gap(2, 1, 1)],
            &[received(2), gap(1, 1, 1)],
            &[received(6)],
        ];
        for facts in streams {
            let found = hear(&mut judge(), facts).unwrap_err();
            assert_eq!(found.judge, NAME);
        }
    }

    #[test]
    fn acks_tell_the_number_records_get() {
        let mut judge = judge();
        let why = sluicegate_core::Refusal {
            place: sluicegate_core::Place::Schedule,
            reason: sluicegate_core::Reason::Deadline,
            retry: sluicegate_core::Retry::Never,
        };
        judge.hear(&Fact::Failed(publish(1), why)).unwrap();
        judge.hear(&Fact::Committed(publish(2), FIRST + 1)).unwrap();
        judge.hear(&Fact::Committed(publish(3), FIRST + 3)).unwrap_err();
        judge.hear(&Fact::Failed(publish(0), why)).unwrap_err();
    }
}
