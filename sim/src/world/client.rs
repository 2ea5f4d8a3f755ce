//! Publishers: what their applications make, the client's window (checkpoint 1) and queues (2), and
//! their transports.

use super::{Event, World, at, index};
use crate::fact::{Fact, Publish, Stop};
use crate::judge::Found;
use crate::peer::{Made, Worker};
use crate::scenario::Client;
use sluicegate_core::client::queue;
use sluicegate_core::client::window::{self, Permit, Window};
use sluicegate_core::{Ack, Ticket};
use std::collections::{BTreeMap, VecDeque};

/// A batch costs this much besides its payload, and for each of its records.
const BATCH: u64 = 256;
const RECORD: u64 = 16;

/// The clients' windows, and who waits for them.
#[derive(Debug, Default)]
pub(super) struct Clients {
    pub(super) windows: Vec<Window>,
    /// By client and ticket, the publisher.
    waiting: BTreeMap<(usize, Ticket), u32>,
    /// The client that a whole group shares.
    of_group: BTreeMap<usize, usize>,
    /// Workers that may be able to send.
    ready: VecDeque<u32>,
}

impl World<'_> {
    /// The worker of a new publisher, if its group uses the client.
    pub(super) fn worker(&mut self, group: usize) -> Option<Worker> {
        let limits = &self.story.limits;
        let Clients { windows, of_group, .. } = &mut self.clients;
        let next = windows.len();
        let client = match self.story.publishers[group].client {
            Client::Each => next,
            Client::One => *of_group.entry(group).or_insert(next),
            Client::Raw => return None,
        };
        if client == next {
            windows.push(Window::new(limits));
        }
        Some(Worker::new(client, limits))
    }

    /// An application makes its next publish, or holds it back.
    pub(super) fn tick(&mut self, publisher: u32) -> Found {
        let now = self.now;
        let source = &mut self.publishers[at(publisher)];
        if let Some(at) = source.next() {
            self.calendar.enter(at, Event::Tick(publisher));
        }
        // Before it has joined and after it has left there is nobody to make a publish.
        if source.came == 0 || source.is_over {
            return Ok(());
        }
        let bytes = source.size();
        let busy = match (&source.client, &source.link) {
            (Some(worker), _) => worker.is_busy(),
            (None, Some(link)) => !link.takes(bytes),
            (None, None) => true,
        };
        if busy {
            let records = source.spec.records;
            source.seen.held_back += u64::from(records);
            return self.put(Fact::HeldBack(publisher, records));
        }
        let made = source.make(publisher, bytes, now);
        match source.client.as_ref().map(|worker| worker.client) {
            Some(client) => self.ask(client, made),
            None => self.send(made),
        }
    }

    fn send(&mut self, made: Made) -> Found {
        let publisher = made.0.publisher;
        let source = &mut self.publishers[at(publisher)];
        let came = source.came;
        let link = source.link.as_mut().expect("only what is connected sends");
        if let Some(arrival) = link.send(made, self.now) {
            self.calendar.enter(arrival, Event::Arrive(publisher, came));
        }
        self.note_publisher(publisher);
        Ok(())
    }

    /// Asks the window for what a publish costs.
    fn ask(&mut self, client: usize, made: Made) -> Found {
        let Publish { publisher, records, bytes, .. } = made.0;
        let cost = u64::from(bytes) + BATCH + RECORD * u64::from(records);
        match self.clients.windows[client].ask(cost) {
            window::Answer::Granted(permit) => self.enqueue(made, permit)?,
            window::Answer::Refused(_) => return self.give_up(made),
            window::Answer::Waits(ticket) => {
                self.clients.waiting.insert((client, ticket), publisher);
                let worker = self.publishers[at(publisher)].client.as_mut();
                worker.expect("it was asked for").asking = Some((ticket, made));
                return self.put(Fact::Full(Stop::Window, publisher));
            }
        }
        self.pump_ready()
    }

    /// The client does not take a publish: it is not made.
    fn give_up(&mut self, (publish, _): Made) -> Found {
        let records = publish.records;
        self.publishers[at(publish.publisher)].seen.held_back += u64::from(records);
        self.put(Fact::HeldBack(publish.publisher, records))
    }

    /// Brings a publish with its permit to its worker's queue.
    fn enqueue(&mut self, made: Made, permit: Permit) -> Found {
        let publisher = made.0.publisher;
        let worker = self.publishers[at(publisher)].client.as_mut().expect("it has a permit");
        let client = worker.client;
        match worker.queue.push((made, permit)) {
            queue::Answer::Queued => {}
            queue::Answer::Refused((made, permit), _) => {
                self.clients.windows[client].give_back(permit);
                self.clients.ready.push_back(publisher);
                return self.give_up(made);
            }
            queue::Answer::Waits(_) => {
                worker.queueing = true;
                self.put(Fact::Full(Stop::Queue, publisher))?;
            }
        }
        self.note_publisher(publisher);
        self.clients.ready.push_back(publisher);
        Ok(())
    }

    /// A worker may be able to send.
    pub(super) fn pump(&mut self, publisher: u32) -> Found {
        if self.publishers[at(publisher)].client.is_none() {
            return Ok(());
        }
        self.clients.ready.push_back(publisher);
        self.pump_ready()
    }

    fn pump_ready(&mut self) -> Found {
        while let Some(publisher) = self.clients.ready.pop_front() {
            self.pump_one(publisher)?;
        }
        Ok(())
    }

    fn pump_one(&mut self, publisher: u32) -> Found {
        loop {
            let source = &mut self.publishers[at(publisher)];
            let (Some(worker), Some(link)) = (&mut source.client, &source.link) else { break };
            if worker.next.is_none()
                && let Some(popped) = worker.queue.pop()
            {
                worker.queueing &= popped.admitted.is_none();
                worker.next = Some(popped.item);
            }
            let Some(((publish, _), _)) = &worker.next else { break };
            if !link.takes(publish.bytes) {
                if std::mem::replace(&mut worker.is_blocked, true) {
                    break;
                }
                return self.put(Fact::Full(Stop::Transport, publisher));
            }
            worker.is_blocked = false;
            let (made, permit) = worker.next.take().expect("it was just seen");
            let client = worker.client;
            if source.spec.ack == Ack::None {
                self.send(made)?;
                self.give_back(client, permit)?;
            } else {
                worker.permits.insert(made.0.number, permit);
                self.send(made)?;
            }
        }
        Ok(())
    }

    /// A permit comes back; those who waited for it go on.
    fn give_back(&mut self, client: usize, permit: Permit) -> Found {
        self.clients.windows[client].give_back(permit);
        while let Some((ticket, answer)) = self.clients.windows[client].poll() {
            let publisher = self.clients.waiting.remove(&(client, ticket));
            let publisher = publisher.expect("who waits is noted");
            let worker = self.publishers[at(publisher)].client.as_mut();
            let asking = worker.and_then(|worker| worker.asking.take());
            let (_, made) = asking.expect("it waits with its publish");
            match answer {
                Ok(permit) => self.enqueue(made, permit)?,
                Err(_) => self.give_up(made)?,
            }
        }
        Ok(())
    }

    /// An acked publish has its answer: its permit comes back.
    pub(super) fn answered(&mut self, publish: &Publish) -> Found {
        let Some(worker) = &mut self.publishers[at(publish.publisher)].client else {
            return Ok(());
        };
        let client = worker.client;
        let Some(permit) = worker.permits.remove(&publish.number) else { return Ok(()) };
        self.give_back(client, permit)?;
        self.pump_ready()
    }

    /// A connection is gone: nobody will answer what was sent over it.
    pub(super) fn give_up_answers(&mut self, publisher: u32) -> Found {
        let Some(worker) = &mut self.publishers[at(publisher)].client else { return Ok(()) };
        worker.is_blocked = false;
        let client = worker.client;
        for (_, permit) in std::mem::take(&mut worker.permits) {
            self.give_back(client, permit)?;
        }
        self.pump_ready()
    }

    /// Publishes that clients hold.
    pub(super) fn in_clients(&self) -> u64 {
        let workers = self.publishers.iter().filter_map(|source| source.client.as_ref());
        let held = workers.map(|worker| {
            let next = u64::from(worker.next.is_some());
            let asking = u64::from(worker.asking.is_some());
            u64::from(worker.queue.len()) + u64::from(worker.queue.waiting()) + next + asking
        });
        held.sum()
    }

    /// The indices of every publisher that its core does not read.
    pub(super) fn paused(&self) -> Vec<u32> {
        let paused = |(at, source): (usize, &crate::peer::Publisher)| {
            source.link.as_ref().is_some_and(|link| link.paused).then(|| index(at))
        };
        self.publishers.iter().enumerate().filter_map(paused).collect()
    }
}
