//! Doubly linked lists threaded through a slab: push, pop and unlink in O(1), no allocation.

use crate::slab::{NONE, Slab};
use core::marker::PhantomData;

/// A value's place in one list. A value that can be in several lists has several links.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    prev: u32,
    next: u32,
    /// Invariant: true exactly while the value is in the list of this link.
    linked: bool,
}

impl Default for Link {
    fn default() -> Self {
        Self { prev: NONE, next: NONE, linked: false }
    }
}

impl Link {
    /// Whether the value is in the list.
    pub const fn is_linked(&self) -> bool {
        self.linked
    }
}

/// A value that can be in the list named `K`.
pub trait Node<K> {
    /// Its link.
    fn node(&self) -> &Link;
    /// Its link, to change.
    fn node_mut(&mut self) -> &mut Link;
}

/// Says which link of a value belongs to which list.
macro_rules! node {
    ($list:ty, $value:ty, $field:ident) => {
        impl $crate::list::Node<$list> for $value {
            fn node(&self) -> &$crate::list::Link {
                &self.$field
            }
            fn node_mut(&mut self) -> &mut $crate::list::Link {
                &mut self.$field
            }
        }
    };
}
pub(crate) use node;

/// The list named `K`.
#[derive(Clone, Debug)]
pub struct List<K> {
    head: u32,
    tail: u32,
    len: u32,
    name: PhantomData<K>,
}

impl<K> Default for List<K> {
    fn default() -> Self {
        Self { head: NONE, tail: NONE, len: 0, name: PhantomData }
    }
}

impl<K> List<K> {
    /// How many values are linked.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether none is.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first value's index.
    pub const fn front(&self) -> Option<u32> {
        if self.head == NONE { None } else { Some(self.head) }
    }

    /// The last value's index.
    pub const fn back(&self) -> Option<u32> {
        if self.tail == NONE { None } else { Some(self.tail) }
    }

    /// Appends. The value must not be in the list.
    pub fn push_back<T: Node<K>>(&mut self, slab: &mut Slab<T>, index: u32) {
        let link = slab[index].node_mut();
        assert!(!link.linked, "a value is in a list once");
        *link = Link { prev: self.tail, next: NONE, linked: true };
        match self.tail {
            NONE => self.head = index,
            tail => slab[tail].node_mut().next = index,
        }
        self.tail = index;
        self.len += 1;
    }

    /// Prepends. The value must not be in the list.
    pub fn push_front<T: Node<K>>(&mut self, slab: &mut Slab<T>, index: u32) {
        let link = slab[index].node_mut();
        assert!(!link.linked, "a value is in a list once");
        *link = Link { prev: NONE, next: self.head, linked: true };
        match self.head {
            NONE => self.tail = index,
            head => slab[head].node_mut().prev = index,
        }
        self.head = index;
        self.len += 1;
    }

    /// Unlinks the first value.
    pub fn pop_front<T: Node<K>>(&mut self, slab: &mut Slab<T>) -> Option<u32> {
        let index = self.front()?;
        self.unlink(slab, index);
        Some(index)
    }

    /// Unlinks a value. It must be in this list.
    #[inline]
    pub fn unlink<T: Node<K>>(&mut self, slab: &mut Slab<T>, index: u32) {
        let link = core::mem::take(slab[index].node_mut());
        assert!(link.linked, "only a linked value is unlinked");
        match link.prev {
            NONE => self.head = link.next,
            prev => slab[prev].node_mut().next = link.next,
        }
        match link.next {
            NONE => self.tail = link.prev,
            next => slab[next].node_mut().prev = link.prev,
        }
        self.len -= 1;
    }

    /// Unlinks a value if it is linked.
    pub fn unlink_if<T: Node<K>>(&mut self, slab: &mut Slab<T>, index: u32) {
        if slab[index].node().linked {
            self.unlink(slab, index);
        }
    }

    /// The first value's index; it is the last one then.
    pub fn rotated<T: Node<K>>(&mut self, slab: &mut Slab<T>) -> Option<u32> {
        let first = self.front()?;
        self.rotate(slab);
        Some(first)
    }

    /// Moves the first value to the end.
    pub fn rotate<T: Node<K>>(&mut self, slab: &mut Slab<T>) {
        if self.head == self.tail {
            return;
        }
        let first = self.head;
        let link = slab[first].node_mut();
        let second = link.next;
        *link = Link { prev: self.tail, next: NONE, linked: true };
        slab[self.tail].node_mut().next = first;
        slab[second].node_mut().prev = NONE;
        (self.head, self.tail) = (second, first);
    }

    /// The indices from first to last.
    pub fn iter<'a, T: Node<K>>(&self, slab: &'a Slab<T>) -> impl Iterator<Item = u32> + 'a {
        let mut at = self.head;
        core::iter::from_fn(move || {
            let index = at;
            (index != NONE).then(|| {
                at = slab[index].node().next;
                index
            })
        })
    }

    /// The indices from last to first.
    pub fn iter_back<'a, T: Node<K>>(&self, slab: &'a Slab<T>) -> impl Iterator<Item = u32> + 'a {
        let mut at = self.tail;
        core::iter::from_fn(move || {
            let index = at;
            (index != NONE).then(|| {
                at = slab[index].node().prev;
                index
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    struct Letters;
    struct Letter(Link);

    impl Node<Letters> for Letter {
        fn node(&self) -> &Link {
            &self.0
        }
        fn node_mut(&mut self) -> &mut Link {
            &mut self.0
        }
    }

    #[test]
    fn any_value_can_leave_and_order_stays() {
        let mut slab = Slab::default();
        let mut list = List::<Letters>::default();
        let at: Vec<u32> = (0..5).map(|_| slab.insert(Letter(Link::default())).0).collect();
        for &index in &at[1..] {
            list.push_back(&mut slab, index);
        }
        list.push_front(&mut slab, at[0]);
        list.unlink(&mut slab, at[2]);
        list.unlink(&mut slab, at[4]);
        list.unlink_if(&mut slab, at[4]);
        assert_eq!(list.iter(&slab).collect::<Vec<_>>(), [at[0], at[1], at[3]]);
        list.rotate(&mut slab);
        assert_eq!(list.iter(&slab).collect::<Vec<_>>(), [at[1], at[3], at[0]]);
        assert_eq!(list.iter_back(&slab).collect::<Vec<_>>(), [at[0], at[3], at[1]]);
        assert_eq!((list.back(), list.len()), (Some(at[0]), 3));
        assert_eq!(list.pop_front(&mut slab), Some(at[1]));
        list.rotate(&mut slab);
        assert_eq!(list.iter(&slab).collect::<Vec<_>>(), [at[0], at[3]]);
        list.rotate(&mut slab);
        assert_eq!(list.len(), 2);
        list.unlink(&mut slab, at[3]);
        assert_eq!(list.pop_front(&mut slab), Some(at[0]));
        assert_eq!(list.pop_front(&mut slab), None);
        assert!(list.is_empty());
        list.rotate(&mut slab);
        list.push_back(&mut slab, at[2]);
        list.rotate(&mut slab);
        assert_eq!(list.iter(&slab).collect::<Vec<_>>(), [at[2]]);
        assert!(!slab[at[0]].0.is_linked());
    }
}
