//! Checkpoint 2, queue: publishes queued for one worker of a client.
//!
//! Question:  is there a place for this publish, or when is it its turn?
//! Invariant: items leave in the order in which they came, those that waited included; until it is
//!            closed somebody waits only while the queue is full.
//! When full: waits, first come, first served: every item that leaves lets the first who waits in.
//!            A waiter more than the line takes is refused (`limit`) and gets its item back.
//! Proof:     `just_fits_and_just_does_not`, `whoever_takes_an_item_learns_who_came_in`,
//!            `a_publish_given_up_comes_back_and_strands_nobody`,
//!            `closing_gives_back_what_waits_and_drains_what_is_queued`,
//!            `the_queue_agrees_with_its_model`.

use super::line::Line;
use crate::id::Ticket;
use crate::limits::Limits;
use crate::verdict::{Place, Reason, Refusal};
use alloc::collections::VecDeque;

/// Advice on when the line may be shorter.
const RETRY_MS: u16 = 50;

/// The queue.
#[derive(Debug)]
pub struct Queue<T> {
    items: VecDeque<T>,
    depth: u32,
    line: Line<T>,
    is_closed: bool,
}

/// What became of a publish.
#[must_use = "a refused item comes back, and who waits has to be told its turn"]
#[derive(Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// It has its place.
    Queued,
    /// It comes back.
    Refused(T, Refusal),
    /// It waits before the queue; [`Queue::pop`] names the ticket when it has come in.
    Waits(Ticket),
}

/// What left the queue.
#[must_use = "who came in has to be told"]
#[derive(Debug, PartialEq, Eq)]
pub struct Popped<T> {
    /// The oldest publish.
    pub item: T,
    /// Who waited first, and has the free place now.
    pub admitted: Option<Ticket>,
}

impl<T> Queue<T> {
    /// An empty queue of `publish_queue_depth`.
    pub fn new(limits: &Limits) -> Self {
        let number = |limit| u32::try_from(limit).expect("its key keeps it below");
        Self {
            items: VecDeque::new(),
            depth: number(limits.publish_queue_depth),
            line: Line::new(number(limits.publish_waiters)),
            is_closed: false,
        }
    }

    /// Brings a publish. Cost: O(1) amortised.
    pub fn push(&mut self, item: T) -> Answer<T> {
        if self.is_closed {
            return Answer::Refused(item, CLOSED);
        }
        if self.len() < self.depth {
            self.items.push_back(item);
            return Answer::Queued;
        }
        if self.line.is_full() {
            let why = Refusal::after(Place::Queue, Reason::Limit, RETRY_MS);
            return Answer::Refused(item, why);
        }
        Answer::Waits(self.line.join(item))
    }

    /// Takes the oldest publish and lets the first who waits in. Cost: O(1).
    pub fn pop(&mut self) -> Option<Popped<T>> {
        let item = self.items.pop_front()?;
        let first = if self.is_closed { None } else { self.line.next() };
        let admitted = first.map(|(ticket, waited)| {
            self.items.push_back(waited);
            ticket
        });
        Some(Popped { item, admitted })
    }

    /// Gives a publish up that waits: it comes back. None when the ticket does not wait: the
    /// publish is queued, or is gone. Cost: O(1).
    pub fn cancel(&mut self, ticket: Ticket) -> Option<T> {
        self.line.leave(ticket)
    }

    /// Takes nothing any more. What is queued can be taken; the host calls
    /// [`poll`](Self::poll) until it answers none.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// After closing: the next publish that waited in vain. Cost: O(1).
    pub fn poll(&mut self) -> Option<(Ticket, T, Refusal)> {
        if !self.is_closed {
            return None;
        }
        self.line.next().map(|(ticket, item)| (ticket, item, CLOSED))
    }

    /// How many have a place.
    pub fn len(&self) -> u32 {
        u32::try_from(self.items.len()).expect("no more than the depth")
    }

    /// Whether nothing can be taken.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// How many wait before the queue.
    pub fn waiting(&self) -> u32 {
        self.line.len()
    }
}

const CLOSED: Refusal = Refusal::never(Place::Queue, Reason::Closed);

#[cfg(test)]
mod tests;
