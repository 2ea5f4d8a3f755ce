//! Who is in a presence channel: users, each with the connections through which it is there.
//!
//! A user is announced with its first connection and taken back with its last; what it said of
//! itself first, stays.

use crate::note::{Member, Peer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most users of one channel: a limit of the protocol.
pub const MAX_USERS: usize = 100;

/// A channel has as many users as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// One channel's members.
#[derive(Debug, Default)]
pub struct Roster {
    /// Invariant: each has at least one connection.
    users: BTreeMap<Arc<str>, User>,
    /// The user behind each connection.
    peers: BTreeMap<Peer, Arc<str>>,
}

#[derive(Debug)]
struct User {
    info: Arc<str>,
    peers: u32,
}

impl Roster {
    /// A connection comes in. True when its user was not there before. A channel that is full still
    /// takes more connections of its users; one that is in already changes nothing.
    pub fn join(&mut self, peer: Peer, member: &Member) -> Result<bool, Full> {
        if self.peers.contains_key(&peer) {
            return Ok(false);
        }
        if let Some((id, _)) = self.users.get_key_value(&member.user_id) {
            let id = Arc::clone(id);
            self.users.get_mut(&id).expect("just found").peers += 1;
            self.peers.insert(peer, id);
            return Ok(false);
        }
        if self.users.len() >= MAX_USERS {
            return Err(Full);
        }
        let user = User { info: Arc::clone(&member.info), peers: 1 };
        self.users.insert(Arc::clone(&member.user_id), user);
        self.peers.insert(peer, Arc::clone(&member.user_id));
        Ok(true)
    }

    /// A connection goes. Its user, if that was its last one here.
    pub fn leave(&mut self, peer: Peer) -> Option<Arc<str>> {
        let id = self.peers.remove(&peer)?;
        let user = self.users.get_mut(&id).expect("the user of a connection is there");
        user.peers -= 1;
        if user.peers > 0 {
            return None;
        }
        self.users.remove(&id);
        Some(id)
    }

    /// Ids and infos of the users, in order of id.
    pub fn members(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.users.iter().map(|(id, user)| (&**id, &*user.info))
    }

    /// Ids of the users, in order.
    pub fn ids(&self) -> impl Iterator<Item = &Arc<str>> {
        self.users.keys()
    }

    /// Whether a connection is in.
    pub fn contains(&self, peer: Peer) -> bool {
        self.peers.contains_key(&peer)
    }

    /// Every connection, those of one event loop together.
    pub fn peers(&self) -> impl Iterator<Item = Peer> {
        self.peers.keys().copied()
    }

    /// How many users are there.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Whether nobody is there.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_core::OutletId;

    fn join(roster: &mut Roster, n: u64, (id, info): (&str, &str)) -> Result<bool, Full> {
        roster.join(peer(n), &Member { user_id: id.into(), info: info.into() })
    }

    fn peer(n: u64) -> Peer {
        Peer { shard: 0, outlet: OutletId::from_bits(n) }
    }

    #[test]
    fn a_user_comes_with_its_first_connection_and_goes_with_its_last() {
        let mut roster = Roster::default();
        assert_eq!(join(&mut roster, 1, ("a", "1")), Ok(true));
        assert_eq!(join(&mut roster, 1, ("a", "1")), Ok(false), "it is in already");
        assert_eq!(join(&mut roster, 2, ("a", "2")), Ok(false));
        assert_eq!(join(&mut roster, 3, ("b", "3")), Ok(true));
        let members: Vec<_> = roster.members().collect();
        assert_eq!(members, [("a", "1"), ("b", "3")], "what a user said first stays");
        assert_eq!(roster.leave(peer(1)), None);
        assert_eq!(roster.leave(peer(1)), None);
        assert_eq!(roster.leave(peer(2)).as_deref(), Some("a"));
        assert_eq!(roster.leave(peer(3)).as_deref(), Some("b"));
        assert!(roster.is_empty() && roster.peers().next().is_none());
    }

    #[test]
    fn a_full_channel_takes_more_connections_of_its_users() {
        let mut roster = Roster::default();
        for n in 0..MAX_USERS as u64 {
            assert_eq!(join(&mut roster, n, (&n.to_string(), "null")), Ok(true));
        }
        assert_eq!(join(&mut roster, 1_000, ("one more", "null")), Err(Full));
        assert_eq!(join(&mut roster, 1_001, ("7", "null")), Ok(false));
        assert_eq!((roster.len(), MAX_USERS), (100, 100));
    }
}
