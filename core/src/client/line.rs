//! Those who wait, first come, first served; any of them may leave before its turn.

use crate::id::Ticket;
use crate::list::{Link, List, Node};
use crate::slab::Slab;

/// A bounded line of waiting values.
#[derive(Debug)]
pub(super) struct Line<T> {
    /// Invariant: all of them are in `order`.
    waiters: Slab<Waiter<T>>,
    order: List<Arrival>,
    most: u32,
}

#[derive(Debug)]
struct Waiter<T> {
    value: T,
    link: Link,
}

#[derive(Debug)]
struct Arrival;

impl<T> Node<Arrival> for Waiter<T> {
    fn node(&self) -> &Link {
        &self.link
    }
    fn node_mut(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl<T> Line<T> {
    /// A line of at most `most`.
    pub(super) fn new(most: u32) -> Self {
        Self { waiters: Slab::default(), order: List::default(), most }
    }

    pub(super) fn len(&self) -> u32 {
        self.order.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.most
    }

    /// Whose turn is next.
    pub(super) fn first(&self) -> Option<&T> {
        self.order.front().map(|index| &self.waiters[index].value)
    }

    /// Lets a value wait behind all others. The line must not be full.
    pub(super) fn join(&mut self, value: T) -> Ticket {
        debug_assert!(!self.is_full(), "who asks for room looks first");
        let (index, generation) = self.waiters.insert(Waiter { value, link: Link::default() });
        self.order.push_back(&mut self.waiters, index);
        Ticket { index, generation }
    }

    /// Takes out the first.
    pub(super) fn next(&mut self) -> Option<(Ticket, T)> {
        let index = self.order.pop_front(&mut self.waiters)?;
        let generation = self.waiters.generation(index);
        Some((Ticket { index, generation }, self.waiters.remove(index).value))
    }

    /// Takes out the holder of a ticket, if it still waits.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<T> {
        self.waiters.get(ticket.index, ticket.generation)?;
        self.order.unlink(&mut self.waiters, ticket.index);
        Some(self.waiters.remove(ticket.index).value)
    }
}
