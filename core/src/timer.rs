//! Timers of equal length: a list in order of arming is in order of deadlines, so arming, re-arming
//! and asking for the next one are O(1).

use crate::list::{List, Node};
use crate::slab::Slab;
use crate::time::Instant;
use core::time::Duration;

/// A value that can wait in the timer list named `K`.
pub trait Timed<K>: Node<K> {
    /// When it is due.
    fn deadline(&self) -> Instant;
    /// Remembers when it is due; called by the list.
    fn set_deadline(&mut self, at: Instant);
}

/// All running timers of one kind.
#[derive(Clone, Debug)]
pub struct Timers<K> {
    list: List<K>,
    length: Duration,
}

impl<K> Timers<K> {
    /// Timers that run for `length`.
    pub fn new(length: Duration) -> Self {
        Self { list: List::default(), length }
    }

    /// How many run.
    pub const fn len(&self) -> u32 {
        self.list.len()
    }

    /// Whether none runs.
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Starts the timer of `index`, anew if it runs.
    pub fn arm<T: Timed<K>>(&mut self, slab: &mut Slab<T>, index: u32, now: Instant) {
        self.list.unlink_if(slab, index);
        slab[index].set_deadline(now + self.length);
        self.list.push_back(slab, index);
    }

    /// Stops the timer of `index`, if it runs.
    pub fn disarm<T: Timed<K>>(&mut self, slab: &mut Slab<T>, index: u32) {
        self.list.unlink_if(slab, index);
    }

    /// The value whose timer ends first.
    pub const fn front(&self) -> Option<u32> {
        self.list.front()
    }

    /// The next deadline.
    pub fn next<T: Timed<K>>(&self, slab: &Slab<T>) -> Option<Instant> {
        self.list.front().map(|index| slab[index].deadline())
    }

    /// Takes one timer that is due at `now`, earliest first.
    pub fn due<T: Timed<K>>(&mut self, slab: &mut Slab<T>, now: Instant) -> Option<u32> {
        let index = self.list.front()?;
        (slab[index].deadline() <= now).then(|| {
            self.list.unlink(slab, index);
            index
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::Link;

    struct Idle;
    struct Peer(Link, Instant);

    impl Node<Idle> for Peer {
        fn node(&self) -> &Link {
            &self.0
        }
        fn node_mut(&mut self) -> &mut Link {
            &mut self.0
        }
    }

    impl Timed<Idle> for Peer {
        fn deadline(&self) -> Instant {
            self.1
        }
        fn set_deadline(&mut self, at: Instant) {
            self.1 = at;
        }
    }

    #[test]
    fn rearming_moves_behind_and_due_is_in_order() {
        let mut slab = Slab::default();
        let mut timers = Timers::<Idle>::new(Duration::from_millis(10));
        let a = slab.insert(Peer(Link::default(), Instant::ZERO)).0;
        let b = slab.insert(Peer(Link::default(), Instant::ZERO)).0;
        timers.arm(&mut slab, a, Instant::from_millis(0));
        timers.arm(&mut slab, b, Instant::from_millis(1));
        timers.arm(&mut slab, a, Instant::from_millis(2));
        assert_eq!(timers.next(&slab), Some(Instant::from_millis(11)));
        assert_eq!(timers.due(&mut slab, Instant::from_millis(10)), None);
        assert_eq!(timers.due(&mut slab, Instant::from_millis(12)), Some(b));
        timers.disarm(&mut slab, a);
        assert_eq!(timers.due(&mut slab, Instant::from_millis(99)), None);
        assert!(timers.is_empty());
        assert_eq!(timers.len(), 0);
    }
}
