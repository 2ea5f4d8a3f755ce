//! Who is in a presence channel: users, each with the sockets through which it is there.
//!
//! The members of a channel live here once, with the shard that serves it. A user is announced
//! with its first socket and taken back with its last; what it said of itself first, stays.

use sluicegate_core::{OutletId, TopicId};
use std::collections::BTreeMap;

/// The most users of one channel: a limit of the protocol.
pub const MAX_USERS: usize = 100;

/// The rosters of all presence channels that anybody is in.
#[derive(Debug, Default)]
pub struct Rosters(BTreeMap<TopicId, Roster>);

/// One channel's members.
#[derive(Debug, Default)]
pub struct Roster {
    /// Invariant: each has at least one socket.
    users: BTreeMap<String, User>,
    /// The user behind each socket.
    sockets: BTreeMap<OutletId, String>,
    /// The channel's name.
    channel: String,
}

#[derive(Debug)]
struct User {
    info: String,
    sockets: u32,
}

/// What a socket's coming or going changed for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Its user was there already, or still is.
    None,
    /// Its user came, or went.
    User,
}

impl Rosters {
    /// The members of a channel; `None` while nobody is there.
    pub fn get(&self, topic: TopicId) -> Option<&Roster> {
        self.0.get(&topic)
    }

    /// Whether a user may come in: a channel that is full still takes more sockets of its users.
    pub fn has_room(&self, topic: TopicId, user_id: &str) -> bool {
        self.get(topic).is_none_or(|roster| {
            roster.users.len() < MAX_USERS || roster.users.contains_key(user_id)
        })
    }

    /// A socket comes in. Only when there is room, and once.
    pub fn join(
        &mut self,
        (topic, channel): (TopicId, &str),
        socket: OutletId,
        (user_id, info): (&str, &str),
    ) -> Change {
        let roster = self.0.entry(topic).or_default();
        if roster.sockets.is_empty() {
            channel.clone_into(&mut roster.channel);
        }
        let before = roster.sockets.insert(socket, user_id.to_owned());
        assert!(before.is_none(), "a socket is in a channel once");
        if let Some(user) = roster.users.get_mut(user_id) {
            user.sockets += 1;
            return Change::None;
        }
        roster.users.insert(user_id.to_owned(), User { info: info.to_owned(), sockets: 1 });
        Change::User
    }

    /// A socket goes; whose it was, if it was there, and what that changed.
    pub fn leave(&mut self, topic: TopicId, socket: OutletId) -> Option<(String, Change)> {
        let roster = self.0.get_mut(&topic)?;
        let user_id = roster.sockets.remove(&socket)?;
        let user = roster.users.get_mut(&user_id).expect("the user of a socket is there");
        user.sockets -= 1;
        let mut change = Change::None;
        if user.sockets == 0 {
            roster.users.remove(&user_id);
            change = Change::User;
        }
        if roster.sockets.is_empty() {
            self.0.remove(&topic);
        }
        Some((user_id, change))
    }

    /// Channels with members.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no channel has any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Roster {
    /// The channel's name.
    pub fn channel(&self) -> &str {
        &self.channel
    }

    /// Ids and infos of the users, in order of id.
    pub fn members(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.users.iter().map(|(id, user)| (id.as_str(), user.info.as_str()))
    }

    /// Every socket.
    pub fn sockets(&self) -> impl Iterator<Item = OutletId> {
        self.sockets.keys().copied()
    }

    /// The user behind a socket.
    pub fn user_of(&self, socket: OutletId) -> Option<&str> {
        self.sockets.get(&socket).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic() -> TopicId {
        TopicId::from_bits(1)
    }

    fn join(rosters: &mut Rosters, n: u64, user: (&str, &str)) -> Change {
        rosters.join((topic(), "presence-a"), socket(n), user)
    }

    fn socket(n: u64) -> OutletId {
        OutletId::from_bits(n)
    }

    #[test]
    fn a_user_comes_with_its_first_socket_and_goes_with_its_last() {
        let mut rosters = Rosters::default();
        assert_eq!(join(&mut rosters, 1, ("a", "1")), Change::User);
        assert_eq!(join(&mut rosters, 2, ("a", "2")), Change::None);
        assert_eq!(join(&mut rosters, 3, ("b", "3")), Change::User);
        let members: Vec<_> = rosters.get(topic()).unwrap().members().collect();
        assert_eq!(members, [("a", "1"), ("b", "3")], "what a user said first stays");
        assert_eq!(rosters.get(topic()).unwrap().user_of(socket(2)), Some("a"));
        assert_eq!(rosters.leave(topic(), socket(1)), Some(("a".to_owned(), Change::None)));
        assert_eq!(rosters.leave(topic(), socket(1)), None);
        assert_eq!(rosters.leave(topic(), socket(2)), Some(("a".to_owned(), Change::User)));
        assert_eq!(rosters.leave(topic(), socket(3)), Some(("b".to_owned(), Change::User)));
        assert!(rosters.is_empty() && rosters.get(topic()).is_none());
    }

    #[test]
    fn a_full_channel_takes_more_sockets_of_its_users() {
        let mut rosters = Rosters::default();
        for n in 0..MAX_USERS as u64 {
            assert!(rosters.has_room(topic(), &n.to_string()));
            join(&mut rosters, n, (&n.to_string(), "null"));
        }
        assert!(!rosters.has_room(topic(), "one more"));
        assert!(rosters.has_room(topic(), "7"));
        assert_eq!(rosters.len(), 1);
    }
}
