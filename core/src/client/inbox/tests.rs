use super::*;
use crate::model::{self, count};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use proptest::prelude::*;

const LIMIT: u64 = 3;

fn inbox(policy: Policy) -> Inbox<()> {
    Inbox::new(&Limits { subscription_queue: LIMIT, ..Limits::default() }, policy)
}

/// An event of one record.
fn event(first: u64) -> Event<()> {
    Event { first, records: 1, bytes: 10, value: () }
}

fn gap(first: u64, last: u64, records: u64, reason: Reason) -> Gap {
    Gap { first, last, records, place: Place::Inbox, reason }
}

fn filled(policy: Policy) -> Inbox<()> {
    let mut inbox = inbox(policy);
    (1..=LIMIT).for_each(|first| assert_eq!(inbox.push(event(first)), Answer::Queued));
    inbox
}

fn taken(inbox: &mut Inbox<()>) -> Vec<Next<()>> {
    core::iter::from_fn(|| inbox.take()).map(|taken| taken.next).collect()
}

#[test]
fn each_policy_at_its_limit() {
    use Next::{Event, Gap};
    let mut new = filled(Policy::DropNew);
    assert_eq!(new.push(event(4)), Answer::Dropped(Reason::DropNew));
    let kept = [1, 2, 3].map(|first| Event(event(first)));
    assert_eq!(taken(&mut new)[..3], kept);

    let mut old = filled(Policy::DropOld);
    assert_eq!(old.push(event(4)), Answer::Dropped(Reason::DropOld));
    let kept = [2, 3, 4].map(|first| Event(event(first)));
    assert_eq!(taken(&mut old)[1..], kept);

    let mut latest = inbox(Policy::Latest);
    assert_eq!(latest.push(event(1)), Answer::Queued);
    assert_eq!(latest.push(event(2)), Answer::Dropped(Reason::DropOld));
    assert_eq!(latest.push(event(3)), Answer::Dropped(Reason::DropOld));
    let told = [Gap(gap(1, 2, 2, Reason::DropOld)), Event(event(3))];
    assert_eq!(taken(&mut latest), told);

    let mut block = filled(Policy::Block);
    assert_eq!(block.push(event(4)), Answer::Full(event(4)));
    assert_eq!(taken(&mut block).len(), 3);
    assert_eq!(Inbox::<()>::new(&Limits::default(), Policy::DropNew).limit, 256);
}

#[test]
fn a_blocked_reader_is_called_back_once() {
    let mut inbox = filled(Policy::Block);
    let resumes = |inbox: &mut Inbox<()>| inbox.take().unwrap().resume;
    assert!(!resumes(&mut inbox), "nobody was sent away");
    assert_eq!(inbox.push(event(4)), Answer::Queued);
    for _ in 0..2 {
        assert_eq!(inbox.push(event(5)), Answer::Full(event(5)));
    }
    assert_eq!(inbox.books().expected, Tally { records: 4, bytes: 40 }, "what came back is not in");
    assert!(resumes(&mut inbox));
    assert!(!resumes(&mut inbox));
    assert_eq!(inbox.push(event(5)), Answer::Queued);
    assert_eq!(inbox.books().dropped, Tally::ZERO);
}

#[test]
fn a_gap_that_is_taken_makes_no_room() {
    let mut inbox = inbox(Policy::Block);
    inbox.lost(gap(1, 9, 9, Reason::Limit));
    (10..13).for_each(|first| assert_eq!(inbox.push(event(first)), Answer::Queued));
    assert_eq!(inbox.push(event(13)), Answer::Full(event(13)));
    let told = Taken { next: Next::Gap(gap(1, 9, 9, Reason::Limit)), resume: false };
    assert_eq!(inbox.take(), Some(told));
    assert_eq!(inbox.take(), Some(Taken { next: Next::Event(event(10)), resume: true }));
}

#[test]
fn a_loss_is_told_before_the_next_event() {
    use Next::{Event, Gap};
    let mut inbox = filled(Policy::DropNew);
    for first in 4..7 {
        assert_eq!(inbox.push(event(first)), Answer::Dropped(Reason::DropNew));
    }
    assert_eq!(inbox.take().unwrap().next, Event(event(1)));
    assert_eq!(inbox.push(event(7)), Answer::Queued);
    assert_eq!(inbox.push(event(8)), Answer::Dropped(Reason::DropNew));
    let told = [
        Event(event(2)),
        Event(event(3)),
        Gap(gap(4, 6, 3, Reason::DropNew)),
        Event(event(7)),
        Gap(gap(8, 8, 1, Reason::DropNew)),
    ];
    assert_eq!(taken(&mut inbox), told);
    assert!(inbox.is_empty());
    assert_eq!(inbox.books().last_drop, Some((Place::Inbox, Reason::DropNew)));
    assert_eq!(inbox.books().dropped, Tally { records: 4, bytes: 40 });
}

#[test]
fn what_the_broker_lost_is_told_with_what_is_lost_here() {
    let mut inbox = inbox(Policy::DropOld);
    let remote = Gap { place: Place::Backlog, ..gap(4, 8, 5, Reason::Limit) };
    assert_eq!(inbox.push(event(3)), Answer::Queued);
    inbox.lost(remote);
    assert!(!inbox.is_empty());
    (9..11).for_each(|first| assert_eq!(inbox.push(event(first)), Answer::Queued));
    // The event before the broker's gap is dropped, then the one behind it: one run in all.
    assert_eq!(inbox.push(event(11)), Answer::Dropped(Reason::DropOld));
    assert_eq!(inbox.push(event(12)), Answer::Dropped(Reason::DropOld));
    let mut told = taken(&mut inbox);
    assert_eq!(told.remove(0), Next::Gap(gap(3, 9, 7, Reason::DropOld)));
    assert_eq!(told, [10, 11, 12].map(|first| Next::Event(event(first))));
    // Only what was dropped here is booked here.
    assert_eq!(inbox.books().dropped.records, 2);
}

#[test]
fn an_event_of_many_records_is_lost_as_many() {
    let mut inbox = filled(Policy::DropNew);
    let batch = Event { first: 4, records: 4_096, bytes: 9, value: () };
    assert_eq!(inbox.push(batch), Answer::Dropped(Reason::DropNew));
    assert_eq!(taken(&mut inbox)[3], Next::Gap(gap(4, 4_099, 4_096, Reason::DropNew)));
    assert_eq!(inbox.books().dropped, Tally { records: 4_096, bytes: 9 });
}

#[test]
fn a_beginning_is_told_whatever_the_policy_drops() {
    use Next::{Event, Gap};
    let begun = Beginning { epoch: 2, start: 5 };
    let mut new = filled(Policy::DropNew);
    new.begin(begun);
    assert_eq!(new.push(event(5)), Answer::Dropped(Reason::DropNew));
    let told = [Next::Beginning(begun), Gap(gap(5, 5, 1, Reason::DropNew))];
    assert_eq!(taken(&mut new)[3..], told);

    let mut old = filled(Policy::DropOld);
    old.begin(begun);
    (5..8).for_each(|first| assert_eq!(old.push(event(first)), Answer::Dropped(Reason::DropOld)));
    assert_eq!(old.push(event(8)), Answer::Dropped(Reason::DropOld));
    let mut told = taken(&mut old);
    assert_eq!(told.remove(0), Gap(gap(1, 3, 3, Reason::DropOld)));
    assert_eq!(told.remove(0), Next::Beginning(begun));
    assert_eq!(told.remove(0), Gap(gap(5, 5, 1, Reason::DropOld)));
    assert_eq!(told, [6, 7, 8].map(|first| Event(event(first))));

    let mut block = filled(Policy::Block);
    block.begin(begun);
    assert_eq!(block.len(), 3, "it takes no place");
    assert_eq!(taken(&mut block)[3], Next::Beginning(begun));
}

#[test]
fn beginnings_with_nothing_between_are_one() {
    let begun = |epoch| Beginning { epoch, start: 1 };
    let mut inbox = inbox(Policy::DropOld);
    for epoch in 1..=100 {
        inbox.begin(begun(epoch));
        inbox.lost(gap(1, 1, 1, Reason::Limit));
    }
    assert_eq!(inbox.slots.len(), 1);
    for epoch in 101..=200 {
        let _ = inbox.push(event(1));
        inbox.begin(begun(epoch));
        inbox.check().unwrap();
        assert!(inbox.slots.len() as u64 <= 2 * LIMIT + 1);
    }
    // Of 100 events three are left, each with its beginning; all that was lost is told.
    let told = taken(&mut inbox);
    let lost = told.iter().map(|next| if let Next::Gap(gap) = next { gap.records } else { 0 });
    assert_eq!(lost.sum::<u64>(), 100 + 97);
    let begins = told.into_iter().filter(|next| matches!(next, Next::Beginning(_)));
    let begins: Vec<_> = begins.collect();
    assert_eq!(begins, [197, 198, 199, 200].map(|epoch| Next::Beginning(begun(epoch))));
}

#[test]
fn numbers_from_a_hostile_peer_do_no_harm() {
    let worst = Event { first: u64::MAX, records: u32::MAX, bytes: u32::MAX, value: () };
    for policy in [Policy::DropNew, Policy::DropOld, Policy::Latest, Policy::Block] {
        let mut inbox = inbox(policy);
        for first in [u64::MAX, 0, 7, 7, u64::MAX, 1, 0] {
            let _ = inbox.push(Event { first, ..worst });
            let _ = inbox.push(Event { first, records: 0, ..worst });
            inbox.lost(gap(first, 0, u64::MAX, Reason::Closed));
            inbox.begin(Beginning { epoch: first, start: u64::MAX });
            inbox.check().unwrap();
        }
        let _ = taken(&mut inbox);
        inbox.check().unwrap();
    }
}

// ---- the model: a log of everything that came, each with its fate

#[derive(Clone, Debug)]
enum Op {
    Begin,
    Lost { records: u32 },
    Push { records: u32, bytes: u32 },
    Take,
}

/// An operation made of one number: to let proptest choose costs fifty times as much.
fn op(bits: u64) -> Op {
    let number = u32::try_from(bits / 1_000 % 400).unwrap();
    match bits % 1_000 {
        0..520 => Op::Push { records: 1 + number % 3, bytes: 1 + number / 4 },
        520..570 => Op::Lost { records: 1 + number % 4 },
        570..600 => Op::Begin,
        _ => Op::Take,
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// A beginning, which is told or overtaken by a later one.
    Begun,
    Dropped,
    Kept,
    /// Lost by the broker.
    Never,
    /// Delivered, or a loss that was told.
    Told,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    first: u64,
    records: u32,
    bytes: u32,
    fate: Fate,
    /// A loss that was told stays lost.
    was_dropped: bool,
}

struct Pair {
    inbox: Inbox<u64>,
    policy: Policy,
    log: Vec<Entry>,
    /// The reader's: it came back and waits for room.
    held: Option<Event<u64>>,
    next: u64,
    pushed: u64,
}

impl Pair {
    fn new(policy: Policy) -> Self {
        let limits = Limits { subscription_queue: LIMIT, ..Limits::default() };
        let inbox = Inbox::new(&limits, policy);
        Self { inbox, policy, log: Vec::new(), held: None, next: 1, pushed: 0 }
    }

    fn limit(&self) -> usize {
        if self.policy == Policy::Latest { 1 } else { 3 }
    }

    fn kept(&self) -> usize {
        self.log.iter().filter(|entry| entry.fate == Fate::Kept).count()
    }

    fn apply(&mut self, op: &Op) -> &'static str {
        let what = match *op {
            // A reader that holds an event reads no further.
            Op::Begin | Op::Lost { .. } | Op::Push { .. } if self.held.is_some() => {
                "the reader waits"
            }
            Op::Begin => {
                let (first, fate) = (self.next, Fate::Begun);
                self.inbox.begin(Beginning { epoch: 7, start: first });
                self.log.push(Entry { first, records: 0, bytes: 0, fate, was_dropped: false });
                "begun"
            }
            Op::Lost { records } => {
                let (first, last) = (self.next, self.next + u64::from(records) - 1);
                self.next = last + 1;
                self.inbox.lost(gap(first, last, records.into(), Reason::Severe));
                self.log.push(Entry {
                    first,
                    records,
                    bytes: 0,
                    fate: Fate::Never,
                    was_dropped: false,
                });
                "lost by the broker"
            }
            Op::Push { records, bytes } => {
                self.pushed += 1;
                let event = Event { first: self.next, records, bytes, value: self.pushed };
                self.next += u64::from(records);
                self.push(event)
            }
            Op::Take => self.take(),
        };
        self.compare();
        what
    }

    fn push(&mut self, event: Event<u64>) -> &'static str {
        let Event { first, records, bytes, .. } = event;
        let mut entry = Entry { first, records, bytes, fate: Fate::Kept, was_dropped: false };
        let full = self.kept() == self.limit();
        let again = event.clone();
        let answer = self.inbox.push(event);
        if !full {
            assert_eq!(answer, Answer::Queued);
            self.log.push(entry);
            return "queued";
        }
        match self.policy {
            Policy::Block => {
                assert_eq!(answer, Answer::Full(again.clone()));
                self.held = Some(again);
                return "full";
            }
            Policy::DropNew => {
                assert_eq!(answer, Answer::Dropped(Reason::DropNew));
                entry.fate = Fate::Dropped;
                entry.was_dropped = true;
            }
            Policy::DropOld | Policy::Latest => {
                assert_eq!(answer, Answer::Dropped(Reason::DropOld));
                let oldest = self.log.iter_mut().find(|entry| entry.fate == Fate::Kept).unwrap();
                oldest.fate = Fate::Dropped;
                oldest.was_dropped = true;
            }
        }
        self.log.push(entry);
        match self.policy {
            Policy::DropNew => "dropped this",
            Policy::Latest => "dropped the one",
            _ => "dropped the oldest",
        }
    }

    fn take(&mut self) -> &'static str {
        let taken = self.inbox.take();
        let open = self.log.iter().position(|entry| entry.fate != Fate::Told);
        let Some(open) = open else {
            assert_eq!(taken, None);
            return "nothing to take";
        };
        let Taken { next, resume } = taken.unwrap();
        match next {
            Next::Event(event) => {
                let entry = &mut self.log[open];
                assert_eq!(entry.fate, Fate::Kept, "a loss is told first");
                let due = (entry.first, entry.records, entry.bytes);
                assert_eq!((event.first, event.records, event.bytes), due);
                entry.fate = Fate::Told;
                assert_eq!(resume, self.held.is_some(), "room calls the reader");
                match self.held.take() {
                    Some(held) => {
                        assert_eq!(self.push(held), "queued", "there is room for it");
                        "taken, and the reader was called"
                    }
                    None => "taken",
                }
            }
            Next::Beginning(told) => {
                assert!(!resume);
                // The last before the next event; what was lost before it was told.
                let run = self.log[open..].iter_mut().take_while(|entry| entry.fate != Fate::Kept);
                let mut run: Vec<&mut Entry> = run.collect();
                let last = run.iter().rposition(|entry| entry.fate == Fate::Begun).unwrap();
                assert_eq!(told, Beginning { epoch: 7, start: run[last].first });
                let mut overtaken = 0;
                for entry in run.drain(..=last).filter(|entry| entry.fate != Fate::Told) {
                    assert_eq!(entry.fate, Fate::Begun, "a loss is told first");
                    entry.fate = Fate::Told;
                    overtaken += 1;
                }
                if overtaken > 1 { "a beginning for several" } else { "a beginning" }
            }
            Next::Gap(told) => {
                assert!(!resume);
                let run = self.log[open..].iter_mut().take_while(|entry| entry.fate != Fate::Kept);
                let mut run: Vec<&mut Entry> = run.collect();
                // What was lost before the last beginning is told before it.
                let last = run.iter().rposition(|entry| entry.fate == Fate::Begun);
                run.truncate(last.unwrap_or(run.len()));
                run.retain(|entry| !matches!(entry.fate, Fate::Begun | Fate::Told));
                let records: u64 = run.iter().map(|entry| u64::from(entry.records)).sum();
                let last = run.last().unwrap();
                let last = last.first + u64::from(last.records) - 1;
                assert_eq!((told.first, told.last, told.records), (run[0].first, last, records));
                let reason = match (run[0].fate, self.policy) {
                    (Fate::Never, _) => Reason::Severe,
                    (_, Policy::DropNew) => Reason::DropNew,
                    _ => Reason::DropOld,
                };
                assert_eq!((told.place, told.reason), (Place::Inbox, reason));
                let kinds: BTreeSet<bool> = run.iter().map(|entry| entry.was_dropped).collect();
                run.into_iter().for_each(|entry| entry.fate = Fate::Told);
                if kinds.len() == 2 { "a gap of both kinds" } else { "a gap" }
            }
        }
    }

    fn compare(&self) {
        self.inbox.check().unwrap();
        let sum = |which: fn(&Entry) -> bool| -> Tally {
            let entries = self.log.iter().filter(|entry| which(entry));
            let tally =
                |e: &Entry| Tally { records: u64::from(e.records), bytes: u64::from(e.bytes) };
            entries.map(tally).sum()
        };
        let books = self.inbox.books();
        // What the broker lost never came here.
        let came = |e: &Entry| e.bytes > 0;
        assert_eq!(books.expected, sum(came), "expected");
        assert_eq!(books.dropped, sum(|e| e.was_dropped), "dropped");
        assert_eq!(books.lag, sum(|e| e.fate == Fate::Kept), "lag");
        let delivered = |e: &Entry| e.bytes > 0 && e.fate == Fate::Told && !e.was_dropped;
        assert_eq!(books.delivered, sum(delivered), "delivered");
        assert_eq!(self.inbox.len() as usize, self.kept(), "events");
        let open = self.log.iter().any(|entry| entry.fate != Fate::Told);
        assert_eq!(self.inbox.is_empty(), !open);
        // The freshest survives where the oldest is dropped.
        if matches!(self.policy, Policy::DropOld | Policy::Latest) {
            let newest = self.log.iter().rev().find(came_here);
            assert!(newest.is_none_or(|entry| !entry.was_dropped));
        }
    }
}

fn came_here(entry: &&Entry) -> bool {
    entry.bytes > 0
}

#[test]
fn the_inbox_agrees_with_its_model() {
    let policies = [Policy::Block, Policy::DropNew, Policy::DropOld, Policy::Latest];
    let policy = proptest::sample::select(policies.to_vec());
    let operations = (policy, proptest::collection::vec(any::<u64>().prop_map(op), 60..100));
    let reached =
        model::run(model::cases(file!(), 6_000), &operations, REACHED, |(policy, operations)| {
            let mut pair = Pair::new(policy);
            for op in &operations {
                count(pair.apply(op));
            }
            while pair.take() != "nothing to take" {}
            pair.compare();
            assert!(pair.inbox.is_empty() && pair.inbox.books().lag.is_zero());
        });
    assert!(reached >= model::scaled(100_000));
}

/// What a run must come by.
const REACHED: &[&str] = &[
    "a beginning",
    "a beginning for several",
    "a gap",
    "a gap of both kinds",
    "begun",
    "dropped the oldest",
    "dropped the one",
    "dropped this",
    "full",
    "lost by the broker",
    "nothing to take",
    "queued",
    "taken",
    "taken, and the reader was called",
    "the reader waits",
];
