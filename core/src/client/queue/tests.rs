use super::*;
use crate::model::{self, count};
use alloc::vec::Vec;
use proptest::prelude::*;

const DEPTH: u64 = 4;
const WAITERS: u64 = 3;

fn queue() -> Queue<u64> {
    let limits =
        Limits { publish_queue_depth: DEPTH, publish_waiters: WAITERS, ..Limits::default() };
    Queue::new(&limits)
}

fn filled() -> (Queue<u64>, Vec<Ticket>) {
    let mut queue = queue();
    (0..DEPTH).for_each(|item| assert_eq!(queue.push(item), Answer::Queued));
    let tickets = (0..WAITERS).map(|at| match queue.push(DEPTH + at) {
        Answer::Waits(ticket) => ticket,
        other => panic!("{other:?}"),
    });
    let tickets = tickets.collect();
    (queue, tickets)
}

fn popped(queue: &mut Queue<u64>) -> Option<(u64, Option<Ticket>)> {
    queue.pop().map(|Popped { item, admitted }| (item, admitted))
}

#[test]
fn just_fits_and_just_does_not() {
    let (mut queue, _) = filled();
    assert_eq!((u64::from(queue.len()), u64::from(queue.waiting())), (DEPTH, WAITERS));
    let why = Refusal::after(Place::Queue, Reason::Limit, RETRY_MS);
    assert_eq!(queue.push(99), Answer::Refused(99, why));
    assert!(!queue.is_empty());
    assert_eq!(Queue::<()>::new(&Limits::default()).depth, 64);
}

#[test]
fn whoever_takes_an_item_learns_who_came_in() {
    let (mut queue, tickets) = filled();
    for (item, ticket) in (0..).zip(tickets) {
        assert_eq!(popped(&mut queue), Some((item, Some(ticket))));
        assert_eq!(u64::from(queue.len()), DEPTH);
        assert_eq!(queue.cancel(ticket), None, "it is in the queue");
    }
    let rest: Vec<_> = core::iter::from_fn(|| popped(&mut queue)).collect();
    assert_eq!(rest, [(3, None), (4, None), (5, None), (6, None)]);
}

#[test]
fn a_publish_given_up_comes_back_and_strands_nobody() {
    for leaver in 0..3 {
        let (mut queue, mut tickets) = filled();
        let ticket = tickets.remove(leaver);
        assert_eq!(queue.cancel(ticket), Some(DEPTH + leaver as u64));
        assert_eq!(queue.cancel(ticket), None);
        match queue.push(7) {
            Answer::Waits(newcomer) => tickets.push(newcomer),
            other => panic!("{other:?}"),
        }
        assert_eq!(queue.cancel(ticket), None, "a newcomer in the same slot is not meant");
        let admitted: Vec<_> = (0..3).map(|_| popped(&mut queue).unwrap().1.unwrap()).collect();
        assert_eq!(admitted, tickets);
        assert_eq!(queue.waiting(), 0);
    }
}

#[test]
fn closing_gives_back_what_waits_and_drains_what_is_queued() {
    let (mut queue, tickets) = filled();
    assert_eq!(queue.poll(), None, "nobody waits in vain before it is closed");
    queue.close();
    let closed = Refusal::never(Place::Queue, Reason::Closed);
    assert_eq!(queue.push(9), Answer::Refused(9, closed));
    assert_eq!(popped(&mut queue), Some((0, None)), "nobody comes in any more");
    for (item, ticket) in (DEPTH..).zip(tickets) {
        assert_eq!(queue.poll(), Some((ticket, item, closed)));
    }
    assert_eq!(queue.poll(), None);
    assert_eq!(core::iter::from_fn(|| popped(&mut queue)).count(), 3);
}

// ---- the model: one list of everything that came, the queue being its beginning

#[derive(Clone, Debug)]
enum Op {
    Cancel(usize),
    CancelStale(usize),
    Close,
    Poll,
    Pop,
    Push,
}

/// An operation made of one number: to let proptest choose costs fifty times as much.
fn op(bits: u64) -> Op {
    let at = usize::try_from(bits / 1_000).unwrap();
    match bits % 1_000 {
        0..500 => Op::Push,
        500..800 => Op::Pop,
        800..925 => Op::Cancel(at),
        925..950 => Op::CancelStale(at),
        950..999 => Op::Poll,
        _ => Op::Close,
    }
}

#[derive(Default)]
struct Pair {
    queue: Option<Queue<u64>>,
    /// Items in the order in which they came; those with a ticket were never told a place.
    all: Vec<(u64, Option<Ticket>)>,
    is_closed: bool,
    stale: Vec<Ticket>,
    items: u64,
}

impl Pair {
    fn apply(&mut self, op: &Op) -> &'static str {
        let mut queue = self.queue.take().unwrap_or_else(queue);
        let what = match *op {
            Op::Push => self.push(&mut queue),
            Op::Pop => self.pop(&mut queue),
            Op::Poll => self.poll(&mut queue),
            Op::Cancel(at) => self.cancel(&mut queue, at),
            Op::CancelStale(at) => match self.stale.len() {
                0 => "no stale ticket",
                len => {
                    assert_eq!(queue.cancel(self.stale[at % len]), None);
                    "stale ticket"
                }
            },
            Op::Close => {
                queue.close();
                self.is_closed = true;
                "closed"
            }
        };
        let waiting = self.all.iter().filter(|(_, ticket)| ticket.is_some()).count();
        assert_eq!(queue.waiting() as usize, waiting, "waiters");
        assert_eq!(queue.len() as usize, self.all.len() - waiting, "queued");
        assert!(self.is_closed || waiting == 0 || u64::from(queue.len()) == DEPTH, "room is used");
        self.queue = Some(queue);
        what
    }

    fn push(&mut self, queue: &mut Queue<u64>) -> &'static str {
        self.items += 1;
        let item = self.items;
        let answer = queue.push(item);
        let before = self.all.len() as u64;
        if self.is_closed {
            let closed = Refusal::never(Place::Queue, Reason::Closed);
            assert_eq!(answer, Answer::Refused(item, closed));
            "refused"
        } else if before < DEPTH {
            assert_eq!(answer, Answer::Queued);
            self.all.push((item, None));
            "queued"
        } else if before < DEPTH + WAITERS {
            let Answer::Waits(ticket) = answer else { panic!("{answer:?}, but should wait") };
            self.all.push((item, Some(ticket)));
            "waits"
        } else {
            assert!(matches!(answer, Answer::Refused(same, why)
                if same == item && why.reason == Reason::Limit && why.place == Place::Queue));
            "one too many"
        }
    }

    fn pop(&mut self, queue: &mut Queue<u64>) -> &'static str {
        let popped = popped(queue);
        if self.all.first().is_none_or(|(_, ticket)| ticket.is_some()) {
            assert_eq!(popped, None);
            return "empty";
        }
        let (item, _) = self.all.remove(0);
        let first = self.all.iter_mut().find(|(_, ticket)| ticket.is_some());
        let admitted = first.filter(|_| !self.is_closed).and_then(|(_, ticket)| ticket.take());
        assert_eq!(popped, Some((item, admitted)));
        self.stale.extend(admitted);
        if admitted.is_some() { "popped and let in" } else { "popped" }
    }

    fn poll(&mut self, queue: &mut Queue<u64>) -> &'static str {
        let polled = queue.poll().map(|(ticket, item, why)| {
            assert_eq!(why, Refusal::never(Place::Queue, Reason::Closed));
            (item, Some(ticket))
        });
        let first = self.all.iter().position(|(_, ticket)| ticket.is_some());
        let due = first.filter(|_| self.is_closed).map(|at| self.all.remove(at));
        assert_eq!(polled, due);
        self.stale.extend(due.and_then(|(_, ticket)| ticket));
        if due.is_some() { "refused in the line" } else { "nobody to tell" }
    }

    fn cancel(&mut self, queue: &mut Queue<u64>, at: usize) -> &'static str {
        let first = self.all.iter().position(|(_, ticket)| ticket.is_some());
        let Some(first) = first else { return "nobody to leave" };
        let at = first + at % (self.all.len() - first);
        let (item, ticket) = self.all.remove(at);
        assert_eq!(queue.cancel(ticket.unwrap()), Some(item));
        self.stale.extend(ticket);
        if at == first { "the first left" } else { "another left" }
    }
}

#[test]
fn the_queue_agrees_with_its_model() {
    let operations = proptest::collection::vec(any::<u64>().prop_map(op), 250..500);
    let reached = model::run(model::cases(file!(), 2_000), &operations, REACHED, |operations| {
        let mut pair = Pair::default();
        for op in &operations {
            count(pair.apply(op));
        }
        pair.apply(&Op::Close);
        while !pair.all.is_empty() {
            pair.apply(&Op::Pop);
            pair.apply(&Op::Poll);
        }
    });
    assert!(reached >= model::scaled(100_000));
}

/// What a run must come by.
const REACHED: &[&str] = &[
    "another left",
    "closed",
    "empty",
    "nobody to leave",
    "nobody to tell",
    "one too many",
    "popped",
    "popped and let in",
    "queued",
    "refused",
    "refused in the line",
    "stale ticket",
    "the first left",
    "waits",
];
