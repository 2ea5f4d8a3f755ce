//! Who is signed in, and who wants to know: kept once, by the event loop that owns the user.

use crate::note::{Name, Peer};
use std::collections::{BTreeMap, BTreeSet};

/// The users that are signed in or watched. Memory: bounded by connections, of which each is signed
/// in once and watches at most a hundred.
#[derive(Debug, Default)]
pub struct Users(BTreeMap<Name, User>);

/// One user. Invariant: one of the two is not empty.
#[derive(Debug, Default)]
struct User {
    /// Connections through which it is signed in.
    peers: BTreeSet<Peer>,
    /// Connections that are told when it comes and goes.
    watchers: BTreeSet<Peer>,
}

/// What becomes of a user.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// It signs in through a connection.
    SignIn(Peer),
    /// A connection through which it was signed in has gone.
    SignOut(Peer),
    /// A connection is told of it from now on.
    Watch(Peer),
    /// And no longer.
    Unwatch(Peer),
}

impl Users {
    /// Makes a change. True when the user came with its first connection or went with its last.
    /// Cost: O(log users + log connections).
    pub fn apply(&mut self, name: &Name, change: Change) -> bool {
        let user = self.0.entry(name.clone()).or_default();
        let was_online = !user.peers.is_empty();
        match change {
            Change::SignIn(peer) => user.peers.insert(peer),
            Change::SignOut(peer) => user.peers.remove(&peer),
            Change::Watch(peer) => user.watchers.insert(peer),
            Change::Unwatch(peer) => user.watchers.remove(&peer),
        };
        let is_online = !user.peers.is_empty();
        if !is_online && user.watchers.is_empty() {
            self.0.remove(name);
        }
        was_online != is_online
    }

    /// Whether a user is signed in.
    pub fn is_online(&self, name: &Name) -> bool {
        self.0.get(name).is_some_and(|user| !user.peers.is_empty())
    }

    /// Connections through which a user is signed in, those of one event loop together.
    pub fn peers(&self, name: &Name) -> impl Iterator<Item = Peer> {
        self.0.get(name).into_iter().flat_map(|user| user.peers.iter().copied())
    }

    /// Connections that watch a user, those of one event loop together.
    pub fn watchers(&self, name: &Name) -> impl Iterator<Item = Peer> {
        self.0.get(name).into_iter().flat_map(|user| user.watchers.iter().copied())
    }

    /// Users that are known.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_core::{OutletId, TenantId};

    fn peer(n: u64) -> Peer {
        Peer { shard: 0, outlet: OutletId::from_bits(n) }
    }

    #[test]
    fn a_user_is_there_from_its_first_connection_to_its_last_and_forgotten_after() {
        let mut users = Users::default();
        let name = Name { tenant: TenantId::from_bits(1), text: "u".into() };
        assert!(!users.apply(&name, Change::Watch(peer(9))));
        assert!(users.apply(&name, Change::SignIn(peer(1))));
        assert!(!users.apply(&name, Change::SignIn(peer(1))), "twice is once");
        assert!(!users.apply(&name, Change::SignIn(peer(2))));
        assert!(users.is_online(&name));
        assert!(!users.apply(&name, Change::SignOut(peer(1))));
        assert!(!users.apply(&name, Change::SignOut(peer(1))));
        assert_eq!(users.peers(&name).collect::<Vec<_>>(), [peer(2)]);
        assert!(users.apply(&name, Change::SignOut(peer(2))));
        assert_eq!(users.watchers(&name).collect::<Vec<_>>(), [peer(9)]);
        assert!(!users.apply(&name, Change::Unwatch(peer(9))));
        assert!(users.is_empty() && !users.is_online(&name));
        assert!(!users.apply(&name, Change::SignOut(peer(2))));
        assert!(users.is_empty(), "nobody is made by going");
    }
}
