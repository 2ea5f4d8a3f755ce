//! Names to topics. One small file, so that the map behind it can change.
//!
//! A B-tree: its order does not depend on a hash, and no set of names makes it slow. Paid per
//! look-up of a name, never per publish or delivery.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

/// The topics of one tenant by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(BTreeMap<Arc<str>, u32>);

impl Names {
    /// The topic's index. Cost: O(log names).
    pub(crate) fn get(&self, name: &str) -> Option<u32> {
        self.0.get(name).copied()
    }

    pub(crate) fn insert(&mut self, name: Arc<str>, topic: u32) {
        let before = self.0.insert(name, topic);
        debug_assert!(before.is_none(), "a name is bound once");
    }

    pub(crate) fn remove(&mut self, name: &str) {
        let before = self.0.remove(name);
        debug_assert!(before.is_some(), "only bound names are unbound");
    }
}
