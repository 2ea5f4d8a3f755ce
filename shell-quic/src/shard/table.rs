//! Values by the ids of the core.

/// Values by id; a later holder of a slot never gets an earlier one's. Grows with the core's slots.
#[derive(Debug)]
pub(super) struct Table<T> {
    slots: Vec<Option<(u64, T)>>,
    len: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), len: 0 }
    }
}

/// The slot of an id: its low half, dense.
fn slot(id: u64) -> usize {
    usize::try_from(id & 0xffff_ffff).expect("32 bits")
}

impl<T> Table<T> {
    pub(super) fn insert(&mut self, id: u64, value: T) {
        let slot = slot(id);
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, || None);
        }
        self.len += usize::from(self.slots[slot].replace((id, value)).is_none());
    }

    pub(super) fn get(&mut self, id: u64) -> Option<&mut T> {
        match self.slots.get_mut(slot(id)) {
            Some(Some((held, value))) if *held == id => Some(value),
            _ => None,
        }
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<T> {
        self.get(id)?;
        self.len -= 1;
        self.slots[slot(id)].take().map(|(_, value)| value)
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The ids of all. Cost: O(slots): not for a path that is often taken.
    pub(super) fn ids(&self) -> Vec<u64> {
        self.slots.iter().flatten().map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_holder_of_a_slot_never_gets_an_earlier_ones_value() {
        let mut table = Table::default();
        let (old, new) = (1_u64 << 32 | 3, 2_u64 << 32 | 3);
        table.insert(old, 'a');
        assert_eq!(table.get(new), None);
        assert_eq!(table.len(), 1);
        assert_eq!(table.remove(new), None);
        assert_eq!(table.remove(old), Some('a'));
        table.insert(new, 'b');
        assert_eq!((table.get(old).copied(), table.get(new).copied()), (None, Some('b')));
        assert_eq!((table.ids(), table.len()), (vec![new], 1));
        assert_eq!(table.get(7), None);
    }
}
