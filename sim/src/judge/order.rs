//! Order and gaps: per topic and subscriber the sequence strictly increases, every missing number
//! was announced before the next record, and the announced numbers are the dropped ones.
//!
//! Peers see the sequence of each record. The judge notes which publish has which numbers: the
//! same for everybody, without overlap, and in the order in which a source brought them.

use super::{Finding, Found};
use crate::fact::{Fact, Publish};
use sluicegate_core::SubBooks;
use std::collections::{BTreeMap, VecDeque};

const NAME: &str = "order";

/// The sequence number of a topic's first record.
pub const FIRST: u64 = 1;

/// Knows every topic's sequence and follows every subscriber through it.
#[derive(Debug, Default)]
pub struct Order {
    topics: Vec<Topic>,
    sources: Vec<Source>,
    subscribers: Vec<Reader>,
}

/// A publisher.
#[derive(Debug, Default)]
struct Source {
    /// By number.
    publishes: Vec<Known>,
}

/// What is known of a publish.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// It was admitted, or waits for room.
    taken: bool,
    /// Its first sequence number; 0 while nobody has seen it.
    first: u64,
}

/// A topic's sequence as far as somebody has seen it.
#[derive(Debug, Default)]
struct Topic {
    seen: Life,
    /// The sequence that it had before it was retired. Answers may still be on their way.
    before: Life,
}

/// One sequence of a topic, from its first number on.
#[derive(Debug, Default)]
struct Life {
    /// How many records each publish has, by its first sequence number.
    records: BTreeMap<u64, u32>,
    /// The first sequence number of each, by publisher and number.
    orders: BTreeMap<(u32, u64), u64>,
}

impl Life {
    /// Takes a publish that was seen under this number.
    fn take(&mut self, first: u64, publish: &Publish) -> Result<(), Misfit> {
        let &Publish { publisher, number, records, .. } = publish;
        let ahead = self.records.range(..first).next_back();
        let behind = self.records.range(first..).next();
        let before = self.orders.range((publisher, 0)..(publisher, number)).next_back();
        let after = self.orders.range((publisher, number)..=(publisher, u64::MAX)).next();
        if ahead.is_some_and(|(at, records)| at + u64::from(*records) > first)
            || behind.is_some_and(|(at, _)| first + u64::from(records) > *at)
        {
            return Err(Misfit::Overlaps);
        }
        if before.is_some_and(|(_, at)| *at > first) || after.is_some_and(|(_, at)| *at < first) {
            return Err(Misfit::Overtakes);
        }
        self.records.insert(first, records);
        self.orders.insert((publisher, number), first);
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
enum Misfit {
    Overlaps,
    Overtakes,
}

/// What one subscriber saw.
#[derive(Debug, Default)]
struct Reader {
    topic: u32,
    /// The number after the last record received; 0 before it joined.
    next: u64,
    missing: u64,
    told: u64,
    /// Announced runs without a hole, ahead of `next`.
    runs: VecDeque<(u64, u64)>,
}

impl Order {
    /// Follows a fact. Cost: O(1) amortised; O(log publishes) when a publish is first seen.
    pub fn hear(&mut self, fact: &Fact) -> Found {
        match *fact {
            Fact::Offered(publish) => {
                let publishes = &mut grow(&mut self.sources, publish.publisher).publishes;
                if (publishes.len() as u64) > publish.number {
                    return bad(format!("publish {} was offered out of turn", publish.number));
                }
                publishes.resize(index(publish.number) + 1, Known::default());
            }
            Fact::Admitted(publish) | Fact::Parked(publish) => {
                self.known(&publish)?.taken = true;
            }
            Fact::Failed(publish, _) => return self.failed(&publish),
            Fact::Committed(publish, first) => return self.seen(&publish, first),
            Fact::Subscribed(sub, topic, _) => grow(&mut self.subscribers, sub).topic = topic,
            Fact::Joined(sub, start) => grow(&mut self.subscribers, sub).next = start,
            Fact::Received(sub, publish, first) => return self.received(sub, &publish, first),
            Fact::GapTold(sub, records, first, last) => {
                return self.told(sub, records, (first, last));
            }
            _ => {}
        }
        Ok(())
    }

    /// At the end: missing, announced and dropped numbers are the same ones. `next`: the number
    /// of the topic's next record; `drained`: nothing waits for the subscriber any more.
    pub fn end(&mut self, sub: u32, books: &SubBooks, (next, drained): (u64, bool)) -> Found {
        let reader = grow(&mut self.subscribers, sub);
        if reader.next == 0 {
            return Ok(());
        }
        let (missing, told, dropped) = (reader.missing, reader.told, books.dropped.records);
        let all = missing + next.saturating_sub(reader.next);
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

    /// The shard that owns a topic has no such topic at present: nobody used it, and memory was
    /// short. The next publish to it is the first of another sequence.
    pub fn retired(&mut self, topic: u32) {
        let topic = grow(&mut self.topics, topic);
        if !topic.seen.records.is_empty() {
            topic.before = core::mem::take(&mut topic.seen);
        }
    }

    fn known(&mut self, publish: &Publish) -> Result<&mut Known, Finding> {
        let publishes = &mut grow(&mut self.sources, publish.publisher).publishes;
        let known = publishes.get_mut(index(publish.number));
        let what = || format!("publish {} was never offered", publish.number);
        known.ok_or_else(|| Finding::safety(NAME, what()))
    }

    fn failed(&mut self, publish: &Publish) -> Found {
        match self.known(publish)?.first {
            0 => Ok(()),
            _ => bad(format!("publish {} failed after it was seen", publish.number)),
        }
    }

    /// Somebody saw a publish under a number.
    fn seen(&mut self, publish: &Publish, first: u64) -> Found {
        let known = self.known(publish)?;
        let Known { taken, first: before } = *known;
        if before == first {
            return Ok(());
        }
        known.first = first;
        let number = publish.number;
        if before != 0 {
            return bad(format!("publish {number} has sequence {first} here and {before} there"));
        }
        if !taken {
            return bad(format!("publish {number} was never admitted"));
        }
        let topic = grow(&mut self.topics, publish.topic);
        let retired = !topic.before.records.is_empty();
        if retired && topic.before.take(first, publish).is_ok() {
            return Ok(());
        }
        match topic.seen.take(first, publish) {
            Ok(()) => Ok(()),
            Err(Misfit::Overlaps) => bad(format!("sequence {first} was given to two publishes")),
            Err(Misfit::Overtakes) => {
                bad(format!("publish {number}, sequence {first}, is out of its turn"))
            }
        }
    }

    fn received(&mut self, sub: u32, publish: &Publish, first: u64) -> Found {
        self.seen(publish, first)?;
        let reader = grow(&mut self.subscribers, sub);
        if reader.next == 0 || first < reader.next || reader.topic != publish.topic {
            let number = publish.number;
            return bad(format!("publish {number} came twice, late, or unasked for"));
        }
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
        let reader = grow(&mut self.subscribers, sub);
        let span = last.checked_sub(first).map_or(0, |span| span + 1);
        reader.told += u64::from(records);
        if first < reader.next || u64::from(records) > span || records == 0 {
            return bad(format!("a gap of {records} records in {first}..={last} makes no sense"));
        }
        if u64::from(records) == span {
            reader.runs.push_back((first, last));
        }
        Ok(())
    }
}

/// The entry of an index; the list grows up to it.
fn grow<T: Default>(list: &mut Vec<T>, index: u32) -> &mut T {
    let at = at(index);
    if list.len() <= at {
        list.resize_with(at + 1, T::default);
    }
    &mut list[at]
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
        let mut judge = Order::default();
        for number in 0..6 {
            judge.hear(&Fact::Offered(publish(number))).unwrap();
            judge.hear(&Fact::Admitted(publish(number))).unwrap();
        }
        for sub in [0, 1] {
            judge.hear(&Fact::Subscribed(sub, 0, 0)).unwrap();
            judge.hear(&Fact::Joined(sub, FIRST)).unwrap();
        }
        judge
    }

    fn hear(judge: &mut Order, facts: &[Fact]) -> Found {
        facts.iter().try_for_each(|fact| judge.hear(fact))
    }

    fn as_number(number: u64, first: u64) -> Fact {
        Fact::Received(0, publish(number), FIRST + first)
    }

    fn received(number: u64) -> Fact {
        as_number(number, number)
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
        judge.end(0, &dropped(4), (FIRST + 6, true)).unwrap();
        judge.end(0, &dropped(3), (FIRST + 6, true)).unwrap_err();
        judge.end(0, &dropped(4), (FIRST + 7, true)).unwrap_err();
    }

    #[test]
    fn merged_runs_may_span_received_records() {
        let mut judge = judge();
        hear(&mut judge, &[gap(2, 0, 2), received(1), received(3)]).unwrap();
        judge.end(0, &dropped(2), (FIRST + 6, false)).unwrap();
        judge.end(0, &dropped(1), (FIRST + 6, false)).unwrap_err();
    }

    #[test]
    fn doctored_streams_are_convicted() {
        let other = |number, first| Fact::Received(1, publish(number), FIRST + first);
        let streams: [&[Fact]; 13] = [
            &[received(1), received(0)],
            &[received(0), received(0)],
            &[received(0), received(2)],
            &[received(0), received(2), gap(1, 1, 1)],
            &[gap(1, 1, 1), received(0), received(1)],
            &[received(0), gap(2, 1, 1)],
            &[received(2), gap(1, 1, 1)],
            &[received(6)],
            &[received(0), Fact::Received(2, publish(0), FIRST)],
            &[received(0), received(1), other(0, 1)],
            &[received(0), gap(1, 1, 1), other(0, 0), other(2, 1), as_number(1, 2)],
            &[gap(1, 0, 0), as_number(3, 1), gap(1, 2, 2), as_number(2, 3)],
            &[received(0), Fact::Committed(publish(0), FIRST + 1)],
        ];
        for facts in streams {
            let found = hear(&mut judge(), facts).unwrap_err();
            assert_eq!(found.judge, NAME, "{facts:?}");
        }
    }

    #[test]
    fn publishes_of_different_sources_come_in_any_order() {
        let other = |number| Publish { publisher: 1, ..publish(number) };
        let mut judge = judge();
        judge.hear(&Fact::Offered(other(0))).unwrap();
        judge.hear(&Fact::Parked(other(0))).unwrap();
        judge.hear(&Fact::Received(0, other(0), FIRST)).unwrap();
        judge.hear(&Fact::Received(0, publish(0), FIRST + 1)).unwrap();
    }

    #[test]
    fn a_batch_of_many_records_has_all_its_numbers_to_itself() {
        let big = |number| Publish { records: 3, ..publish(number) };
        let mut judge = judge();
        judge.hear(&Fact::Received(0, big(0), FIRST)).unwrap();
        judge.hear(&Fact::Received(1, big(0), FIRST)).unwrap();
        judge.hear(&Fact::Received(0, big(1), FIRST + 3)).unwrap();
        judge.hear(&Fact::GapTold(1, 2, FIRST + 3, FIRST + 4)).unwrap();
        judge.hear(&Fact::Received(1, big(2), FIRST + 5)).unwrap_err();
    }

    #[test]
    fn a_topic_that_was_retired_begins_again_and_no_other_does() {
        let committed = |number, first| Fact::Committed(publish(number), FIRST + first);
        let mut judge = judge();
        hear(&mut judge, &[committed(0, 0), committed(1, 1)]).unwrap();
        judge.retired(0);
        judge.retired(0);
        hear(&mut judge, &[committed(3, 0), committed(4, 1)]).unwrap();
        hear(&mut judge, &[committed(2, 2)]).unwrap();
        hear(&mut judge, &[committed(5, 1)]).unwrap_err();
        let mut judge = self::judge();
        hear(&mut judge, &[committed(0, 0), committed(1, 0)]).unwrap_err();
    }

    #[test]
    fn what_was_seen_cannot_fail() {
        let why = sluicegate_core::Refusal {
            place: sluicegate_core::Place::Schedule,
            reason: sluicegate_core::Reason::Deadline,
            retry: sluicegate_core::Retry::Never,
        };
        let mut judge = judge();
        judge.hear(&Fact::Failed(publish(1), why)).unwrap();
        judge.hear(&Fact::Committed(publish(2), FIRST + 1)).unwrap();
        judge.hear(&Fact::Failed(publish(2), why)).unwrap_err();
        judge.hear(&Fact::Committed(publish(7), FIRST + 9)).unwrap_err();
    }
}
