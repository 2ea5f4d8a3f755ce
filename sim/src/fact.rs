//! What happened, one value per input and effect: the judges hear these, the tape hashes them.

use crate::amount::{Nanos, Unit};
use sluicegate_core::{Band, Factor, Gap, Place, Reason, Refusal, Sample};
use std::collections::VecDeque;

/// One publish, as its publisher knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish {
    /// Index of the publisher.
    pub publisher: u32,
    /// Index of the topic.
    pub topic: u32,
    /// The publisher's number of it, from 0.
    pub number: u64,
    /// Records in it.
    pub records: u32,
    /// Bytes of its frame.
    pub bytes: u32,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The last byte of a publish was accepted by a subscriber's transport.
    Accepted(u32, Publish),
    /// A publish was admitted.
    Admitted(Publish),
    /// The memory band changed.
    Band(Band),
    /// The core gave a subscriber up.
    Closed(u32, Refusal),
    /// An acked publish got its sequence number.
    Committed(Publish, u64),
    /// The pressure factor changed.
    Factor(Factor),
    /// A parked publish ended without room.
    Failed(Publish, Refusal),
    /// The core announced a gap to a subscriber.
    Gap(u32, Gap),
    /// A gap notice reached a subscriber: records, first, last.
    GapTold(u32, u32, u64, u64),
    /// A publisher could not send: its window was full. Publisher, records.
    HeldBack(u32, u32),
    /// A publish was handed to the broker.
    Offered(Publish),
    /// A publish waits for room.
    Parked(Publish),
    /// A publisher is no longer read.
    Paused(u32),
    /// A publish reached a subscriber.
    Received(u32, Publish),
    /// An acked publish was answered no.
    Refused(Publish, Refusal),
    /// A publisher is read again.
    Resumed(u32),
    /// A reading of the memory pressure.
    Sampled(Option<Sample>),
    /// An unacked publish was discarded.
    Shed(Publish, Refusal),
    /// A publisher learned how many of its records were shed.
    ShedTold(u32, u64),
    /// The shard did a turn: work allowed, deliveries prepared.
    Turned(u32, u64),
    /// A subscriber's transport takes bytes again.
    Writable(u32),
    /// A subscriber's transport was offered bytes and took so many.
    Wrote(u32, u64, u64),
}

impl Fact {
    /// The fact as words, for the tape. Different facts have different words.
    fn words(&self) -> [u64; 7] {
        let publish = |tag: u64, p: &Publish, a: u64, b: u64| {
            let size = u64::from(p.records) << 32 | u64::from(p.bytes);
            [tag, u64::from(p.publisher), u64::from(p.topic), p.number, size, a, b]
        };
        let short = |tag, a: u64, b: u64, c: u64| [tag, a, b, c, 0, 0, 0];
        match *self {
            Self::Accepted(sub, p) => publish(1, &p, sub.into(), 0),
            Self::Admitted(p) => publish(2, &p, 0, 0),
            Self::Band(band) => short(3, band as u64, 0, 0),
            Self::Closed(sub, why) => short(4, sub.into(), cell(why), 0),
            Self::Committed(p, first) => publish(5, &p, first, 0),
            Self::Factor(factor) => short(6, factor.thousandths().into(), 0, 0),
            Self::Failed(p, why) => publish(7, &p, cell(why), 0),
            Self::Gap(sub, gap) => {
                let why = (gap.place as u64) << 8 | gap.reason as u64;
                [8, sub.into(), gap.first, gap.last, gap.records, why, 0]
            }
            Self::GapTold(sub, records, first, last) => {
                [9, sub.into(), first, last, records.into(), 0, 0]
            }
            Self::HeldBack(publisher, records) => short(10, publisher.into(), records.into(), 0),
            Self::Offered(p) => publish(11, &p, 0, 0),
            Self::Parked(p) => publish(12, &p, 0, 0),
            Self::Paused(publisher) => short(13, publisher.into(), 0, 0),
            Self::Received(sub, p) => publish(14, &p, sub.into(), 0),
            Self::Refused(p, why) => publish(15, &p, cell(why), 0),
            Self::Resumed(publisher) => short(16, publisher.into(), 0, 0),
            Self::Sampled(None) => short(17, 0, 0, 0),
            Self::Sampled(Some(s)) => short(17, 1, s.avg10.into(), s.total),
            Self::Shed(p, why) => publish(18, &p, cell(why), 0),
            Self::ShedTold(publisher, records) => short(19, publisher.into(), records, 0),
            Self::Turned(work, deliveries) => short(20, work.into(), deliveries, 0),
            Self::Writable(sub) => short(21, sub.into(), 0, 0),
            Self::Wrote(sub, offered, took) => short(22, sub.into(), offered, took),
        }
    }

    /// One line for people.
    fn line(&self, names: &Names) -> String {
        let publish = |p: &Publish| {
            let name = names.publisher(p.publisher);
            format!("{name}'s publish {} ({} records, {} B)", p.number, p.records, p.bytes)
        };
        let sub = |index: u32| names.subscriber(index);
        match self {
            Self::Accepted(s, p) => format!("{}'s transport took all of {}", sub(*s), publish(p)),
            Self::Admitted(p) => format!("{} was admitted", publish(p)),
            Self::Band(band) => format!("the memory band is {}", band.name()),
            Self::Closed(s, why) => format!("{} was given up: {}", sub(*s), place(*why)),
            Self::Committed(p, first) => format!("{} got sequence {first}", publish(p)),
            Self::Factor(factor) => {
                format!("the pressure factor is {}/1000", factor.thousandths())
            }
            Self::Failed(p, why) => format!("{} failed: {}", publish(p), place(*why)),
            Self::Gap(s, gap) => {
                let cell = name_cell(gap.place, gap.reason);
                let Gap { first, last, records, .. } = gap;
                format!("{} lost {records} records of {first}..={last} at {cell}", sub(*s))
            }
            Self::GapTold(s, records, first, last) => {
                format!("{} learned that {records} of {first}..={last} are lost", sub(*s))
            }
            Self::HeldBack(p, records) => {
                format!("{} held {records} records back", names.publisher(*p))
            }
            Self::Offered(p) => format!("{} was offered", publish(p)),
            Self::Parked(p) => format!("{} waits for room", publish(p)),
            Self::Paused(p) => format!("{} is no longer read", names.publisher(*p)),
            Self::Received(s, p) => format!("{} received {}", sub(*s), publish(p)),
            Self::Refused(p, why) => format!("{} was refused: {}", publish(p), place(*why)),
            Self::Resumed(p) => format!("{} is read again", names.publisher(*p)),
            Self::Sampled(sample) => format!("memory pressure: {sample:?}"),
            Self::Shed(p, why) => format!("{} was shed: {}", publish(p), place(*why)),
            Self::ShedTold(p, records) => {
                format!("{} learned that {records} records were shed", names.publisher(*p))
            }
            Self::Turned(work, done) => format!("a turn of work {work} prepared {done}"),
            Self::Writable(s) => format!("{}'s transport is writable", sub(*s)),
            Self::Wrote(s, offered, took) => {
                format!("{}'s transport took {took} of {offered} bytes", sub(*s))
            }
        }
    }
}

/// `place/reason` as it is written in scenarios and reports.
pub fn name_cell(place: Place, reason: Reason) -> String {
    format!("{}/{}", place.name(), reason.name())
}

fn place(why: Refusal) -> String {
    name_cell(why.place, why.reason)
}

const fn cell(why: Refusal) -> u64 {
    (why.place as u64) << 8 | why.reason as u64
}

/// Names by index, for verdicts.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Of every publisher.
    pub publishers: Vec<String>,
    /// Of every subscriber.
    pub subscribers: Vec<String>,
}

impl Names {
    /// A publisher's name.
    pub fn publisher(&self, index: u32) -> &str {
        look(&self.publishers, index)
    }

    /// A subscriber's name.
    pub fn subscriber(&self, index: u32) -> &str {
        look(&self.subscribers, index)
    }
}

fn look(names: &[String], index: u32) -> &str {
    usize::try_from(index).ok().and_then(|index| names.get(index)).map_or("?", String::as_str)
}

/// Facts kept for a verdict.
const RECENT: usize = 20;

/// The log of a run: the tape's hash and the last facts.
#[derive(Debug, Default)]
pub struct Log {
    tape: crate::tape::Tape,
    facts: u64,
    recent: VecDeque<(u64, Fact)>,
}

impl Log {
    /// Appends a fact. Cost: O(1).
    pub fn put(&mut self, now: u64, fact: Fact) {
        self.tape.put(&[now]);
        self.tape.put(&fact.words());
        self.facts += 1;
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((now, fact));
    }

    /// The hash of everything so far.
    pub const fn tape(&self) -> crate::tape::Tape {
        self.tape
    }

    /// How many facts there were.
    pub const fn facts(&self) -> u64 {
        self.facts
    }

    /// The last facts, oldest first, one line each.
    pub fn recent(&self, names: &Names) -> Vec<String> {
        let line = |(at, fact): &(u64, Fact)| format!("{}  {}", Nanos::show(*at), fact.line(names));
        self.recent.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_keeps_the_last_facts_and_hashes_all() {
        let names = Names { publishers: vec!["feed".into()], subscribers: vec![] };
        let (mut log, mut other) = (Log::default(), Log::default());
        for records in 0..30 {
            log.put(5, Fact::HeldBack(0, records));
            other.put(5, Fact::HeldBack(0, records.max(1)));
        }
        let recent = log.recent(&names);
        assert_eq!(recent.len(), RECENT);
        assert_eq!(recent[19], "0.000000 s  feed held 29 records back");
        assert_eq!(recent, other.recent(&names));
        assert_ne!(log.tape(), other.tape(), "the first fact differed");
    }
}
