//! Virtual time: the events to come, in a total order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events ordered by time, and by the order of their entry at equal times.
///
/// Cost of each call: O(log n) in the events waiting.
#[derive(Debug)]
pub(crate) struct Calendar<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    entered: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: u64,
    order: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl<E> Default for Calendar<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), entered: 0 }
    }
}

impl<E> Calendar<E> {
    /// Enters an event at `at` nanoseconds.
    pub(crate) fn enter(&mut self, at: u64, event: E) {
        self.heap.push(Reverse(Entry { at, order: self.entered, event }));
        self.entered += 1;
    }

    /// Takes the earliest event and its time.
    pub(crate) fn take(&mut self) -> Option<(u64, E)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }

    /// The time of the earliest event.
    pub(crate) fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_keep_the_order_of_entry() {
        let mut calendar = Calendar::default();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (1, 'b')] {
            calendar.enter(at, event);
        }
        assert_eq!(calendar.next(), Some(1));
        let order: String = std::iter::from_fn(|| calendar.take()).map(|(_, e)| e).collect();
        assert_eq!(order, "abcd");
    }
}
