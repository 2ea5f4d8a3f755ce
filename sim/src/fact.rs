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
    /// The publisher's number of it, from 0; some may never be offered.
    pub number: u64,
    /// Records in it.
    pub records: u32,
    /// Bytes of its frame.
    pub bytes: u32,
}

/// A place that fills up when a `block` subscription stands still, from there back to the
/// publishers' applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// Checkpoint 5: the subscription is at its limit.
    Backlog,
    /// The topic's lane: jobs wait although nothing else holds them.
    Lane,
    /// Checkpoint 4: no slot.
    Schedule,
    /// Checkpoint 3: no bytes.
    Admission,
    /// The publisher is no longer read.
    Source,
    /// The publisher's transport takes nothing.
    Transport,
    /// Checkpoint 2: the queue of the client's worker.
    Queue,
    /// Checkpoint 1: the client's window.
    Window,
}

impl Stop {
    /// Every stop.
    pub const ALL: [Self; 8] = [
        Self::Backlog,
        Self::Lane,
        Self::Schedule,
        Self::Admission,
        Self::Source,
        Self::Transport,
        Self::Queue,
        Self::Window,
    ];

    /// The name used in scenarios and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Backlog => "backlog",
            Self::Lane => "lane",
            Self::Schedule => "schedule",
            Self::Admission => "admission",
            Self::Source => "source",
            Self::Transport => "transport",
            Self::Queue => "queue",
            Self::Window => "window",
        }
    }
}

/// What happened. A subscriber's index stands for one connection of it: one that comes back gets
/// a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The last byte of a publish was accepted by a subscriber's transport; its first sequence.
    Accepted(u32, Publish, u64),
    /// A publish was admitted.
    Admitted(Publish),
    /// The answer to a question reached its subscriber; the question's number.
    Answered(u32, u64),
    /// A subscriber asked something over its connection; the question's number, from 0.
    Asked(u32, u64),
    /// A shard's memory band changed.
    Band(u32, Band),
    /// A shard took so many parcels of another: to, from, parcels.
    Carried(u32, u32, u32),
    /// The core gave a subscriber up.
    Closed(u32, Refusal),
    /// An acked publish got its sequence number.
    Committed(Publish, u64),
    /// A shard's pressure factor changed.
    Factor(u32, Factor),
    /// A parked publish ended without room.
    Failed(Publish, Refusal),
    /// The shard began to shut down.
    Finishing(u32),
    /// A place is full: what, and the index of the subscriber, topic or publisher.
    Full(Stop, u32),
    /// The core announced a gap to a subscriber.
    Gap(u32, Gap),
    /// A gap notice reached a subscriber: records, first, last.
    GapTold(u32, u32, u64, u64),
    /// A publisher could not send, and did not make the publish. Publisher, records.
    HeldBack(u32, u32),
    /// A subscription is in force: subscriber, its first sequence.
    Joined(u32, u64),
    /// A subscriber's connection ended, by itself or by a fault; records on their way to it.
    Left(u32, u64),
    /// A shard's loan changed: shard, what it has besides its floor, what it could have.
    Leased(u32, u64, u64),
    /// A publish was handed to the broker.
    Offered(Publish),
    /// A client's inbox dropped a publish.
    Overrun(u32, Publish, Reason),
    /// A publish waits for room.
    Parked(Publish),
    /// A publisher is no longer read.
    Paused(u32),
    /// A publish reached a subscriber; its first sequence.
    Received(u32, Publish, u64),
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
    /// A publisher connected: publisher, shard.
    SourceCame(u32, u32),
    /// A publisher's connection ended.
    SourceLeft(u32),
    /// A subscriber asked for a topic: subscriber, topic, shard.
    Subscribed(u32, u32, u32),
    /// A subscriber's application took a publish from its inbox.
    Took(u32, Publish),
    /// A shard did a turn: shard, work allowed, deliveries prepared.
    Turned(u32, u32, u64),
    /// The broker refused a peer: publisher or not, its index, why.
    TurnedAway(bool, u32, Refusal),
    /// A subscriber's transport takes bytes again.
    Writable(u32),
    /// A subscriber's transport was offered bytes and took so many.
    Wrote(u32, u64, u64),
}

/// A fact as words: a tag, which decides how many there are, and numbers.
struct Words {
    words: [u64; 7],
    len: usize,
}

impl Words {
    fn of<const N: usize>(words: [u64; N]) -> Self {
        let mut all = [0; 7];
        all[..N].copy_from_slice(&words);
        Self { words: all, len: N }
    }

    /// A publish and one more number.
    fn publish<const N: usize>(tag: u64, p: &Publish, more: [u64; N]) -> Self {
        let mut all = [0; 7];
        all[0] = tag << 32 | u64::from(p.publisher);
        all[1] = u64::from(p.topic) << 32 | u64::from(p.records);
        all[2] = p.number;
        all[3] = u64::from(p.bytes);
        all[4..4 + N].copy_from_slice(&more);
        Self { words: all, len: 4 + N }
    }
}

impl Fact {
    /// The fact as words, for the tape. Different facts have different words.
    fn words(&self) -> Words {
        match *self {
            Self::Accepted(sub, p, first) => Words::publish(1, &p, [sub.into(), first]),
            Self::Admitted(p) => Words::publish(2, &p, []),
            Self::Committed(p, first) => Words::publish(5, &p, [first]),
            Self::Failed(p, why) => Words::publish(7, &p, [cell(why)]),
            Self::Offered(p) => Words::publish(11, &p, []),
            Self::Overrun(sub, p, why) => Words::publish(30, &p, [sub.into(), why as u64]),
            Self::Parked(p) => Words::publish(12, &p, []),
            Self::Received(sub, p, first) => Words::publish(14, &p, [sub.into(), first]),
            Self::Refused(p, why) => Words::publish(15, &p, [cell(why)]),
            Self::Shed(p, why) => Words::publish(18, &p, [cell(why)]),
            Self::Took(sub, p) => Words::publish(31, &p, [sub.into()]),
            _ => self.numbers(),
        }
    }

    /// The words of those that are about no publish.
    fn numbers(&self) -> Words {
        match *self {
            Self::Answered(sub, number) => Words::of([35, sub.into(), number]),
            Self::Asked(sub, number) => Words::of([36, sub.into(), number]),
            Self::Band(shard, band) => Words::of([3, shard.into(), band as u64]),
            Self::Carried(to, from, parcels) => {
                Words::of([23, to.into(), from.into(), parcels.into()])
            }
            Self::Closed(sub, why) => Words::of([4, sub.into(), cell(why)]),
            Self::Factor(shard, factor) => {
                Words::of([6, shard.into(), factor.thousandths().into()])
            }
            Self::Finishing(shard) => Words::of([24, shard.into()]),
            Self::Full(stop, who) => Words::of([25, stop as u64, who.into()]),
            Self::Gap(sub, gap) => {
                let why = (gap.place as u64) << 8 | gap.reason as u64;
                Words::of([8, sub.into(), gap.first, gap.last, gap.records, why])
            }
            Self::GapTold(sub, records, first, last) => {
                Words::of([9, sub.into(), first, last, records.into()])
            }
            Self::HeldBack(publisher, records) => Words::of([10, publisher.into(), records.into()]),
            Self::Joined(sub, start) => Words::of([26, sub.into(), start]),
            Self::Leased(shard, lent, more) => Words::of([27, shard.into(), lent, more]),
            Self::Left(sub, records) => Words::of([28, sub.into(), records]),
            Self::Paused(publisher) => Words::of([13, publisher.into()]),
            Self::Resumed(publisher) => Words::of([16, publisher.into()]),
            Self::Sampled(None) => Words::of([17, 0, 0, 0]),
            Self::Sampled(Some(s)) => Words::of([17, 1, s.avg10.into(), s.total]),
            Self::ShedTold(publisher, records) => Words::of([19, publisher.into(), records]),
            Self::SourceCame(publisher, shard) => Words::of([32, publisher.into(), shard.into()]),
            Self::SourceLeft(publisher) => Words::of([33, publisher.into()]),
            Self::Subscribed(sub, topic, shard) => {
                Words::of([29, sub.into(), topic.into(), shard.into()])
            }
            Self::Turned(shard, work, done) => Words::of([20, shard.into(), work.into(), done]),
            Self::TurnedAway(source, who, why) => {
                Words::of([34, source.into(), who.into(), cell(why)])
            }
            Self::Writable(sub) => Words::of([21, sub.into()]),
            Self::Wrote(sub, offered, took) => Words::of([22, sub.into(), offered, took]),
            _ => unreachable!("the facts about a publish are written elsewhere"),
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
            Self::Accepted(s, p, _) => {
                format!("{}'s transport took all of {}", sub(*s), publish(p))
            }
            Self::Admitted(p) => format!("{} was admitted", publish(p)),
            Self::Closed(s, why) => format!("{} was given up: {}", sub(*s), place(*why)),
            Self::Committed(p, first) => format!("{} got sequence {first}", publish(p)),
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
            Self::Overrun(s, p, why) => {
                format!("{}'s inbox dropped {}: {}", sub(*s), publish(p), why.name())
            }
            Self::Parked(p) => format!("{} waits for room", publish(p)),
            Self::Received(s, p, first) => {
                format!("{} received {} as sequence {first}", sub(*s), publish(p))
            }
            Self::Refused(p, why) => format!("{} was refused: {}", publish(p), place(*why)),
            Self::Shed(p, why) => format!("{} was shed: {}", publish(p), place(*why)),
            Self::ShedTold(p, records) => {
                format!("{} learned that {records} records were shed", names.publisher(*p))
            }
            Self::Took(s, p) => format!("{}'s application took {}", sub(*s), publish(p)),
            Self::Writable(s) => format!("{}'s transport is writable", sub(*s)),
            Self::Wrote(s, offered, took) => {
                format!("{}'s transport took {took} of {offered} bytes", sub(*s))
            }
            _ => self.line_of_states(names),
        }
    }

    /// One line about a shard, or about who comes and goes.
    fn line_of_states(&self, names: &Names) -> String {
        let sub = |index: u32| names.subscriber(index);
        match self {
            Self::Answered(s, number) => format!("{}'s question {number} is answered", sub(*s)),
            Self::Asked(s, number) => format!("{} asks question {number}", sub(*s)),
            Self::Band(shard, band) => format!("shard {shard}'s memory band is {}", band.name()),
            Self::Carried(to, from, n) => format!("shard {to} took {n} parcels of shard {from}"),
            Self::Factor(shard, factor) => {
                format!("shard {shard}'s pressure factor is {}/1000", factor.thousandths())
            }
            Self::Finishing(shard) => format!("shard {shard} begins to shut down"),
            Self::Full(stop, who) => format!("{} is full ({who})", stop.name()),
            Self::Joined(s, start) => format!("{} is in force from {start} on", sub(*s)),
            Self::Leased(shard, lent, more) => {
                format!("shard {shard} has {lent} B on loan and could have {more} B")
            }
            Self::Left(s, records) => format!("{} is gone, {records} records on the way", sub(*s)),
            Self::Paused(p) => format!("{} is no longer read", names.publisher(*p)),
            Self::Resumed(p) => format!("{} is read again", names.publisher(*p)),
            Self::Sampled(sample) => format!("memory pressure: {sample:?}"),
            Self::SourceCame(p, shard) => {
                format!("{} connects to shard {shard}", names.publisher(*p))
            }
            Self::SourceLeft(p) => format!("{} is gone", names.publisher(*p)),
            Self::Subscribed(s, topic, shard) => {
                format!("{} asks shard {shard} for topic {topic}", sub(*s))
            }
            Self::Turned(shard, work, done) => {
                format!("shard {shard}: a turn of work {work} prepared {done}")
            }
            Self::TurnedAway(source, who, why) => {
                let names = if *source { &names.publishers } else { &names.followers };
                let name = look(names, *who);
                format!("{name} was turned away: {}", place(*why))
            }
            _ => unreachable!("the facts about publishes and streams are written elsewhere"),
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
    /// Of every subscriber's connection.
    pub subscribers: Vec<String>,
    /// Of every subscriber.
    pub followers: Vec<String>,
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
        let Words { words, len } = fact.words();
        self.tape.put(&[now]);
        self.tape.put(&words[..len]);
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
        let names = Names { publishers: vec!["feed".into()], ..Names::default() };
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
