//! Lossless mode from end to end: where the block of a subscriber that stopped reading arrives, and
//! in which order; then everything drains.

use super::*;
use crate::client::queue::{self, Queue};
use crate::client::window::{self, Window};
use alloc::collections::{BTreeMap, VecDeque};

/// What a transport holds between the client and the broker.
const PIPE: u64 = 256 << 10;

/// The places that a block can reach, in the order in which it has to.
const ORDER: [&str; 7] =
    ["backlog", "lane", "room at 3 and 4", "source", "transport", "client queue", "client window"];

struct Item {
    frame: Bytes,
    permit: window::Permit,
}

/// One client with one worker, its transport, the broker, and one subscriber under `block`.
struct Chain {
    bench: Bench,
    source: ConnId,
    topic: TopicId,
    outlet: OutletId,
    sub: SubId,
    window: Window,
    queue: Queue<Item>,
    pipe: VecDeque<Item>,
    in_pipe: u64,
    unanswered: BTreeMap<crate::id::Ticket, window::Permit>,
    reads: bool,
    published: u64,
    reached: Vec<&'static str>,
}

impl Chain {
    fn new(limits: Limits) -> Self {
        let limits = Limits { lossless: 1, subscription_batches: 4, ..limits };
        let (window, queue) = (Window::new(&limits), Queue::new(&limits));
        let mut bench = Bench::new(limits);
        let (source, _) = bench.peer(Pipe::Shared);
        let (_, outlet) = bench.peer(Pipe::Single);
        let topic = bench.topic("t");
        let sub = bench.broker.subscribe(outlet, topic, Wish::policy(Policy::Block)).unwrap();
        Self {
            bench,
            source,
            topic,
            outlet,
            sub,
            window,
            queue,
            pipe: VecDeque::new(),
            in_pipe: 0,
            unanswered: BTreeMap::new(),
            reads: false,
            published: 0,
            reached: Vec::new(),
        }
    }

    fn reach(&mut self, place: &'static str) {
        if !self.reached.contains(&place) {
            self.reached.push(place);
        }
    }

    /// The application publishes. False when it has to wait.
    fn publish(&mut self, size: usize) -> bool {
        let window::Answer::Granted(permit) = self.window.ask(size as u64 + 272) else {
            self.reach("client window");
            return false;
        };
        self.published += 1;
        let item = Item { frame: Bytes::from(alloc::vec![b'x'; size]), permit };
        match self.queue.push(item) {
            queue::Answer::Queued => {}
            queue::Answer::Waits(_) => self.reach("client queue"),
            queue::Answer::Refused(..) => panic!("the line is long enough"),
        }
        true
    }

    /// The worker writes, the host reads, the broker runs, the subscriber may read.
    fn turn(&mut self) {
        while self.in_pipe < PIPE
            && let Some(popped) = self.queue.pop()
        {
            self.in_pipe += popped.item.frame.len() as u64;
            self.pipe.push_back(popped.item);
        }
        if self.in_pipe >= PIPE && self.bench.broker.is_paused(self.source) {
            self.reach("transport");
        }
        while !self.bench.broker.is_paused(self.source)
            && let Some(Item { frame, permit }) = self.pipe.pop_front()
        {
            self.in_pipe -= frame.len() as u64;
            let message =
                Message { frame, records: 1, ack: Ack::Wait, except: None, keep: Keep::Default };
            let ticket = match self.bench.broker.publish(self.source, self.topic, message) {
                Verdict::Queued(ticket) => ticket,
                Verdict::Parked(ticket) => {
                    self.reach("room at 3 and 4");
                    ticket
                }
                verdict => panic!("nothing is refused: {verdict:?}"),
            };
            self.unanswered.insert(ticket, permit);
            self.run();
        }
        self.run();
    }

    fn run(&mut self) {
        let reads = self.reads;
        self.bench.run(|_| if reads { ALL } else { 0 });
        for notice in core::mem::take(&mut self.bench.notices) {
            match notice {
                Notice::Committed { ticket, .. } => {
                    let permit = self.unanswered.remove(&ticket).expect("answered once");
                    self.window.give_back(permit);
                }
                Notice::Failed { why, .. } => panic!("nothing fails: {why:?}"),
                _ => {}
            }
        }
        if self.bench.broker.blocked_by(self.topic) == Some(self.sub) {
            self.reach("backlog");
        }
        if self.bench.broker.jobs().0 > 0 {
            self.reach("lane");
        }
        if self.bench.broker.is_paused(self.source) {
            self.reach("source");
        }
    }

    /// The subscriber reads again: all that was published arrives.
    fn heal(&mut self) {
        self.reads = true;
        self.bench.broker.writable(self.outlet);
        while !(self.pipe.is_empty() && self.queue.is_empty() && self.unanswered.is_empty()) {
            self.run();
            self.turn();
        }
        let books = self.bench.broker.ledger();
        assert_eq!(books.delivered.records, self.published);
        assert!(books.dropped.total().is_zero() && books.shed.total().is_zero());
        assert!(books.refused.total().is_zero() && books.evicted.total().is_zero());
    }
}

fn story(limits: Limits, size: usize) -> Chain {
    let mut chain = Chain::new(limits);
    while chain.publish(size) {
        chain.turn();
    }
    assert_eq!(chain.reached, ORDER);
    chain
}

#[test]
fn a_block_reaches_the_publisher_through_slots() {
    let limits = Limits { publish_inflight_bytes: 1 << 20, ..Limits::default() };
    let mut chain = story(limits, 1 << 10);
    assert_eq!(chain.bench.broker.jobs(), (256, 1), "the slots are what is full");
    assert!(chain.bench.broker.inflight() < 1 << 20);
    chain.heal();
}

#[test]
fn a_block_reaches_the_publisher_through_bytes() {
    let limits =
        Limits { publish_inflight_bytes: 256 << 20, publish_queue_depth: 8, ..Limits::default() };
    let mut chain = story(limits, 1 << 20);
    let (queued, parked) = chain.bench.broker.jobs();
    assert_eq!((queued, parked), (16, 1), "17 MiB of the connection are what is full");
    chain.heal();
}
