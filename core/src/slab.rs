//! A vector with holes: stable indices, reuse, and a generation per slot that makes old ids stale.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// No slot.
pub const NONE: u32 = u32::MAX;

/// Values at stable indices.
#[derive(Clone, Debug)]
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// How many values are held.
    pub fn len(&self) -> u32 {
        count(self.slots.len() - self.free.len())
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stores a value. Returns its index and generation. Cost: O(1) amortised.
    pub fn insert(&mut self, value: T) -> (u32, u32) {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            debug_assert!(slot.value.is_none(), "a free slot is empty");
            slot.value = Some(value);
            return (index, slot.generation);
        }
        let index = count(self.slots.len());
        assert!(index < NONE, "indices fit in 32 bits");
        self.slots.push(Slot { generation: 0, value: Some(value) });
        (index, 0)
    }

    /// Takes a value out; its id is stale from now on. Cost: O(1).
    pub fn remove(&mut self, index: u32) -> T {
        let slot = &mut self.slots[index as usize];
        let value = slot.value.take().expect("only held slots are removed");
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        value
    }

    /// The value of an id, unless the id is stale.
    pub fn get(&self, index: u32, generation: u32) -> Option<&T> {
        let slot = self.slots.get(index as usize)?;
        if slot.generation == generation { slot.value.as_ref() } else { None }
    }

    /// The value of a held slot, to change, and its generation.
    pub fn entry(&mut self, index: u32) -> (&mut T, u32) {
        let slot = &mut self.slots[index as usize];
        (slot.value.as_mut().expect("inner indices are live"), slot.generation)
    }

    /// The generation of a held slot.
    pub fn generation(&self, index: u32) -> u32 {
        self.slots[index as usize].generation
    }

    /// All held values in index order. Off the hot path: for checks and reports.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| slot.value.as_ref().map(|value| (count(index), value)))
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, index: u32) -> &T {
        self.slots[index as usize].value.as_ref().expect("inner indices are live")
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.slots[index as usize].value.as_mut().expect("inner indices are live")
    }
}

/// A count that the limits keep far below 32 bits.
fn count(n: usize) -> u32 {
    u32::try_from(n).expect("limits keep every table below 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_slot_makes_the_old_id_stale() {
        let mut slab = Slab::default();
        let (index, old) = slab.insert('a');
        assert_eq!(slab.remove(index), 'a');
        let (again, new) = slab.insert('b');
        assert_eq!(again, index);
        assert_eq!(slab.get(index, old), None);
        assert_eq!(slab.get(index, new), Some(&'b'));
        assert_eq!(slab.len(), 1);
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(0, &'b')]);
        assert_eq!(slab.get(9, 0), None);
        assert!(!slab.is_empty());
        assert_eq!(slab.generation(index), new);
    }
}
