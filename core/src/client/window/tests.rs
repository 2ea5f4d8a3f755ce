use super::*;
use crate::model::{self, count};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use proptest::prelude::*;

const KIB: u64 = 1 << 10;
const CAPACITY: u64 = 10 * KIB;
const WAITERS: u64 = 6;

/// A window of 10 KiB for frames of up to 20 KiB.
fn window() -> Window {
    Window::new(&Limits {
        publish_inflight_bytes: CAPACITY,
        max_frame_bytes: 20 * KIB,
        publish_waiters: WAITERS,
        ..Limits::default()
    })
}

const LARGEST: u64 = 20 * KIB + OVERHEAD;

fn granted(window: &mut Window, cost: u64) -> Permit {
    match window.ask(cost) {
        Answer::Granted(permit) => permit,
        other => panic!("{cost}: {other:?}"),
    }
}

fn waits(window: &mut Window, cost: u64) -> Ticket {
    match window.ask(cost) {
        Answer::Waits(ticket) => ticket,
        other => panic!("{cost}: {other:?}"),
    }
}

/// Everything the window has to say: who got how much.
fn polled(window: &mut Window) -> Vec<(Ticket, Permit)> {
    let answers = core::iter::from_fn(|| window.poll());
    answers.map(|(ticket, answer)| (ticket, answer.unwrap())).collect()
}

fn tickets(granted: &[(Ticket, Permit)]) -> Vec<Ticket> {
    granted.iter().map(|(ticket, _)| *ticket).collect()
}

#[test]
fn just_fits_and_just_does_not() {
    let mut window = window();
    let most = granted(&mut window, CAPACITY - 1);
    let rest = granted(&mut window, 1);
    let ticket = waits(&mut window, 1);
    assert_eq!((window.in_flight(), window.waiting()), (CAPACITY, 1));
    assert_eq!(window.poll(), None);
    window.give_back(rest);
    assert_eq!(polled(&mut window), [(ticket, Permit { cost: 1 })]);
    assert_eq!((window.in_flight(), window.waiting()), (CAPACITY, 0));
    window.give_back(most);
    assert_eq!(window.in_flight(), 1);
}

#[test]
fn the_defaults_are_four_mebibytes_and_the_largest_frame() {
    let mut window = Window::new(&Limits::default());
    let frame = (16 << 20) + 256 + 16 * 4_096;
    let why = Refusal::never(Place::Window, Reason::Oversize);
    assert_eq!(window.ask(frame + 1), Answer::Refused(why));
    let all = granted(&mut window, 4 << 20);
    let _ = waits(&mut window, frame);
    window.give_back(all);
    assert_eq!(polled(&mut window).len(), 1);
}

#[test]
fn a_small_item_does_not_overtake_a_large_one() {
    let mut window = window();
    let half = granted(&mut window, CAPACITY / 2);
    let large = waits(&mut window, CAPACITY);
    let small = waits(&mut window, 1);
    let smaller = waits(&mut window, 0);
    assert_eq!(window.poll(), None, "there is room for the small ones, but not for the first");
    window.give_back(half);
    let mut first = polled(&mut window);
    assert_eq!(tickets(&first), [large]);
    let newcomer = waits(&mut window, 0);
    window.give_back(first.remove(0).1);
    assert_eq!(tickets(&polled(&mut window)), [small, smaller, newcomer]);
}

#[test]
fn an_item_larger_than_the_window_travels_alone() {
    let mut window = window();
    let alone = granted(&mut window, CAPACITY + 1);
    assert_eq!(window.in_flight(), CAPACITY + 1);
    let small = waits(&mut window, 1);
    let large = waits(&mut window, CAPACITY + 1);
    window.give_back(alone);
    let mut first = polled(&mut window);
    assert_eq!(tickets(&first), [small]);
    window.give_back(first.remove(0).1);
    assert_eq!(tickets(&polled(&mut window)), [large]);
}

#[test]
fn what_no_broker_takes_is_refused_at_once() {
    let mut window = window();
    let why = Refusal::never(Place::Window, Reason::Oversize);
    for cost in [LARGEST + 1, u64::MAX] {
        assert_eq!(window.ask(cost), Answer::Refused(why));
    }
    let largest = granted(&mut window, LARGEST);
    assert_eq!(window.ask(LARGEST + 1), Answer::Refused(why), "it does not wait either");
    assert_eq!((window.waiting(), largest.cost()), (0, LARGEST));
    window.give_back(largest);
}

#[test]
fn the_line_is_bounded() {
    let mut window = window();
    let all = granted(&mut window, CAPACITY);
    let mut line: Vec<Ticket> = (0..WAITERS).map(|_| waits(&mut window, 1)).collect();
    let why = Refusal::after(Place::Window, Reason::Limit, RETRY_MS);
    assert_eq!(window.ask(1), Answer::Refused(why));
    assert!(window.cancel(line.remove(3)));
    line.push(waits(&mut window, 1));
    window.give_back(all);
    assert_eq!(tickets(&polled(&mut window)), line);
}

#[test]
fn who_leaves_the_line_strands_nobody() {
    for leaver in 0..3 {
        let mut window = window();
        let half = granted(&mut window, CAPACITY / 2);
        let rest = granted(&mut window, CAPACITY / 2);
        let mut line = [CAPACITY, CAPACITY / 2, CAPACITY / 2].map(|cost| waits(&mut window, cost));
        assert!(window.cancel(line[leaver]));
        assert!(!window.cancel(line[leaver]), "a ticket is good for leaving once");
        // A newcomer in the same slot is nobody's ticket but its own.
        let newcomer = waits(&mut window, 0);
        assert!(!window.cancel(line[leaver]));
        line[leaver] = newcomer;
        window.give_back(half);
        let without_large = leaver == 0;
        assert_eq!(window.is_due(), without_large);
        let some = polled(&mut window);
        assert_eq!(tickets(&some), if without_large { line[1..2].to_vec() } else { Vec::new() });
        window.give_back(rest);
        let more = polled(&mut window);
        let expected =
            if without_large { [line[2], newcomer].to_vec() } else { [line[0]].to_vec() };
        assert_eq!(tickets(&more), expected);
        some.into_iter().chain(more).for_each(|(_, permit)| window.give_back(permit));
        polled(&mut window).into_iter().for_each(|(_, permit)| window.give_back(permit));
        assert_eq!((window.in_flight(), window.waiting()), (0, 0));
    }
}

#[test]
fn leaving_at_the_head_lets_those_behind_go() {
    let mut window = window();
    let half = granted(&mut window, CAPACITY / 2);
    let large = waits(&mut window, CAPACITY);
    let small = waits(&mut window, 1);
    assert!(!window.is_due());
    assert!(window.cancel(large));
    assert!(window.is_due(), "nothing came back, and yet somebody can go");
    assert_eq!(tickets(&polled(&mut window)), [small]);
    assert_eq!(window.in_flight(), half.cost() + 1);
}

#[test]
fn closing_answers_everybody() {
    let mut window = window();
    let all = granted(&mut window, CAPACITY);
    let line = [1, 2].map(|cost| waits(&mut window, cost));
    window.close();
    let closed = Refusal::never(Place::Window, Reason::Closed);
    assert_eq!(window.ask(1), Answer::Refused(closed));
    assert_eq!(window.poll(), Some((line[0], Err(closed))));
    assert_eq!(window.poll(), Some((line[1], Err(closed))));
    assert_eq!(window.poll(), None);
    window.give_back(all);
    assert_eq!((window.in_flight(), window.poll()), (0, None));
}

#[test]
#[should_panic(expected = "its own window")]
fn a_permit_of_another_window_is_our_mistake() {
    let permit = granted(&mut window(), 1);
    window().give_back(permit);
}

// ---- the model: plain lists, and sums instead of counters

#[derive(Clone, Debug)]
enum Op {
    Ask(u64),
    Cancel(usize),
    /// Leaves with a ticket that was answered before.
    CancelStale(usize),
    Close,
    GiveBack(usize),
    Poll,
}

/// An operation made of one number: to let proptest choose costs fifty times as much.
fn op(bits: u64) -> Op {
    let (kind, number) = (bits % 1_000, bits / 1_000);
    let at = usize::try_from(number).unwrap();
    match kind {
        0..320 => Op::Ask(number % (CAPACITY / 2)),
        320..400 => {
            let edges =
                [0, 1, CAPACITY - 1, CAPACITY, CAPACITY + 1, LARGEST, LARGEST + 1, u64::MAX];
            Op::Ask(edges[at % edges.len()])
        }
        400..430 => Op::CancelStale(at),
        430..540 => Op::Cancel(at),
        540..770 => Op::GiveBack(at),
        770..999 => Op::Poll,
        _ => Op::Close,
    }
}

#[derive(Default)]
struct Model {
    /// Costs of the permits that are out, by number.
    held: Vec<(u64, u64)>,
    /// Who waits, by number.
    line: Vec<(u64, u64)>,
    is_closed: bool,
    numbers: u64,
}

#[derive(Debug, PartialEq)]
enum Said {
    Granted(u64),
    Refused(Reason),
    Waits(u64),
}

impl Model {
    fn in_flight(&self) -> u64 {
        self.held.iter().map(|(_, cost)| cost).sum()
    }

    fn has_room(&self, cost: u64) -> bool {
        let free = CAPACITY.checked_sub(self.in_flight());
        self.in_flight() == 0 || free.is_some_and(|free| cost <= free)
    }

    fn ask(&mut self, cost: u64) -> Said {
        self.numbers += 1;
        if self.is_closed {
            Said::Refused(Reason::Closed)
        } else if cost > LARGEST {
            Said::Refused(Reason::Oversize)
        } else if self.line.is_empty() && self.has_room(cost) {
            self.held.push((self.numbers, cost));
            Said::Granted(self.numbers)
        } else if self.line.len() as u64 == WAITERS {
            Said::Refused(Reason::Limit)
        } else {
            self.line.push((self.numbers, cost));
            Said::Waits(self.numbers)
        }
    }

    fn poll(&mut self) -> Option<Said> {
        let &(number, cost) = self.line.first()?;
        if self.is_closed {
            self.line.remove(0);
            return Some(Said::Refused(Reason::Closed));
        }
        if !self.has_room(cost) {
            return None;
        }
        self.line.remove(0);
        self.held.push((number, cost));
        Some(Said::Granted(number))
    }
}

/// The window and its model, with the names that one has for what the other knows by number.
struct Pair {
    window: Window,
    model: Model,
    permits: BTreeMap<u64, Permit>,
    tickets: BTreeMap<u64, Ticket>,
    stale: Vec<Ticket>,
}

impl Pair {
    fn new() -> Self {
        Self {
            window: window(),
            model: Model::default(),
            permits: BTreeMap::new(),
            tickets: BTreeMap::new(),
            stale: Vec::new(),
        }
    }

    fn apply(&mut self, op: &Op) {
        let what = match *op {
            Op::Ask(cost) => self.ask(cost),
            Op::Cancel(at) => self.cancel(at),
            Op::CancelStale(at) => match self.stale.len() {
                0 => "no stale ticket",
                len => {
                    assert!(!self.window.cancel(self.stale[at % len]), "a stale ticket");
                    "stale ticket"
                }
            },
            Op::Close => {
                self.window.close();
                self.model.is_closed = true;
                "closes"
            }
            Op::GiveBack(at) => self.give_back(at),
            Op::Poll => self.poll(),
        };
        count(what);
        self.compare();
    }

    fn ask(&mut self, cost: u64) -> &'static str {
        match (self.window.ask(cost), self.model.ask(cost)) {
            (Answer::Granted(permit), Said::Granted(number)) => {
                assert_eq!(permit.cost(), cost);
                let alone = permit.cost() > CAPACITY;
                self.permits.insert(number, permit);
                if alone { "larger than the window" } else { "granted" }
            }
            (Answer::Waits(ticket), Said::Waits(number)) => {
                self.tickets.insert(number, ticket);
                "waits"
            }
            (Answer::Refused(why), Said::Refused(due)) => {
                assert_eq!((why.place, why.reason), (Place::Window, due));
                why.reason.name()
            }
            (answer, due) => panic!("{answer:?}, but should be {due:?}"),
        }
    }

    fn cancel(&mut self, at: usize) -> &'static str {
        if self.model.line.is_empty() {
            return "nobody to leave";
        }
        let at = at % self.model.line.len();
        let (number, _) = self.model.line.remove(at);
        let ticket = self.tickets.remove(&number).unwrap();
        assert!(self.window.cancel(ticket));
        self.stale.push(ticket);
        match at {
            0 if self.window.is_due() => "the first left and let others go",
            0 => "the first left",
            _ => "another left",
        }
    }

    fn give_back(&mut self, at: usize) -> &'static str {
        if self.model.held.is_empty() {
            return "nothing to give back";
        }
        let at = at % self.model.held.len();
        let (number, cost) = self.model.held.remove(at);
        let permit = self.permits.remove(&number).unwrap();
        assert_eq!(permit.cost(), cost);
        self.window.give_back(permit);
        "given back"
    }

    fn poll(&mut self) -> &'static str {
        let first = self.model.line.first().map(|(number, _)| *number);
        match (self.window.poll(), self.model.poll()) {
            (None, None) => "nobody's turn",
            (Some((ticket, answer)), Some(due)) => {
                assert_eq!(Some(ticket), self.tickets.remove(&first.unwrap()), "in their order");
                self.stale.push(ticket);
                match (answer, due) {
                    (Ok(permit), Said::Granted(number)) => {
                        self.permits.insert(number, permit);
                        "granted in turn"
                    }
                    (Err(why), Said::Refused(due)) => {
                        assert_eq!((why.place, why.reason), (Place::Window, due));
                        "refused in the line"
                    }
                    (answer, due) => panic!("{answer:?}, but should be {due:?}"),
                }
            }
            (answer, due) => panic!("{answer:?}, but should be {due:?}"),
        }
    }

    fn compare(&self) {
        assert_eq!(self.window.in_flight(), self.model.in_flight(), "bytes in flight");
        let held: u64 = self.permits.values().map(Permit::cost).sum();
        assert_eq!(held, self.window.in_flight(), "permits that are out");
        assert_eq!(u64::from(self.window.waiting()), self.model.line.len() as u64, "waiters");
        let over = self.window.in_flight() > CAPACITY;
        assert!(!over || self.permits.values().filter(|permit| permit.cost > 0).count() == 1);
    }

    /// When everything comes back, everybody gets an answer, and nothing stays behind.
    fn drain(&mut self) {
        for _ in 0..2 * (WAITERS + 1) {
            while self.window.is_due() {
                self.apply(&Op::Poll);
            }
            while !self.permits.is_empty() {
                self.apply(&Op::GiveBack(0));
            }
        }
        assert_eq!((self.window.in_flight(), self.window.waiting()), (0, 0));
        assert!(self.tickets.is_empty(), "everybody got an answer");
    }
}

#[test]
fn the_window_agrees_with_its_model() {
    let operations = proptest::collection::vec(any::<u64>().prop_map(op), 200..400);
    let reached = model::run(model::cases(file!(), 2_000), &operations, REACHED, |operations| {
        let mut pair = Pair::new();
        operations.iter().for_each(|op| pair.apply(op));
        pair.drain();
    });
    assert!(reached >= model::scaled(100_000));
}

/// What a run must come by.
const REACHED: &[&str] = &[
    "another left",
    "closed",
    "closes",
    "given back",
    "granted",
    "granted in turn",
    "larger than the window",
    "limit",
    "nobody's turn",
    "oversize",
    "refused in the line",
    "stale ticket",
    "the first left",
    "the first left and let others go",
    "waits",
];
