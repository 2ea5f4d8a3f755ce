//! Who is in which channel, kept once, by the event loop that owns the channel.
//!
//! A change is a value, and [`Channels::apply`] is the only way in: it says what the change means
//! for others, and does nothing about it.

use crate::note::{Member, Name, Peer};
use crate::roster::{Full, Roster};
use sluicegate_core::Instant;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// The channels that anybody is in. Memory: bounded by the core's subscriptions, of which each
/// connection in a channel has one.
#[derive(Debug, Default)]
pub struct Channels(BTreeMap<Name, Channel>);

/// One channel. Invariant: somebody is in it.
#[derive(Debug, Default)]
struct Channel {
    /// Connections that came in and have not gone.
    subscriptions: u64,
    /// Who is in a presence channel; empty for others.
    roster: Roster,
    /// When somebody last was told that a cache channel keeps nothing, and it was told on.
    missed: Option<Instant>,
}

/// What becomes of a channel.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// A connection comes in; to a presence channel as a member.
    Enter(Peer, Option<&'a Member>),
    /// A connection that came in has gone.
    Leave(Peer),
}

/// What a change means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meaning {
    /// The channel has its first connection, or lost its last one.
    pub occupied: Option<bool>,
    /// How many connections are in it, when that changed.
    pub subscriptions: Option<u64>,
    /// A presence channel has a new user, or lost one.
    pub user: Option<User>,
}

/// A user that came or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// With this id it came.
    Added(Arc<str>),
    /// With this id it went.
    Removed(Arc<str>),
}

/// How many are in a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections.
    pub subscriptions: u64,
    /// Users, of a presence channel.
    pub users: u64,
}

impl Channels {
    /// Makes a change. One that finds no room, or repeats another one, changes nothing.
    /// Cost: O(log channels + log members).
    pub fn apply(&mut self, name: &Name, change: Change<'_>) -> Result<Meaning, Full> {
        let mut meaning = Meaning::default();
        match change {
            Change::Enter(peer, member) => {
                let channel = self.0.entry(name.clone()).or_default();
                if let Some(member) = member {
                    if channel.roster.contains(peer) {
                        return Ok(meaning);
                    }
                    // A channel that is full is not empty: there is nothing to take back.
                    if channel.roster.join(peer, member)? {
                        meaning.user = Some(User::Added(Arc::clone(&member.user_id)));
                    }
                }
                channel.subscriptions += 1;
                meaning.occupied = (channel.subscriptions == 1).then_some(true);
                meaning.subscriptions = Some(channel.subscriptions);
            }
            Change::Leave(peer) => {
                let Some(channel) = self.0.get_mut(name) else { return Ok(meaning) };
                if !channel.roster.is_empty() && !channel.roster.contains(peer) {
                    return Ok(meaning);
                }
                meaning.user = channel.roster.leave(peer).map(User::Removed);
                channel.subscriptions -= 1;
                meaning.subscriptions = Some(channel.subscriptions);
                if channel.subscriptions == 0 {
                    self.0.remove(name);
                    meaning.occupied = Some(false);
                }
            }
        }
        Ok(meaning)
    }

    /// Somebody who came into a cache channel was told that it keeps nothing. Whether that is to be
    /// told on: once while the channel is occupied, and once more after `again`, as what it has
    /// kept meanwhile is forgotten then. Cost: O(log channels).
    pub fn miss(&mut self, name: &Name, now: Instant, again: Duration) -> bool {
        let Some(channel) = self.0.get_mut(name) else { return false };
        let is_news = channel.missed.is_none_or(|before| now.since(before) >= again);
        if is_news {
            channel.missed = Some(now);
        }
        is_news
    }

    /// The members of a presence channel; `None` while nobody is there.
    pub fn roster(&self, name: &Name) -> Option<&Roster> {
        self.0.get(name).map(|channel| &channel.roster)
    }

    /// How many are in a channel.
    pub fn counts(&self, name: &Name) -> Counts {
        self.0.get(name).map(Channel::counts).unwrap_or_default()
    }

    /// The channels of an app that begin with a text, in order. Cost: O(log channels + those).
    pub fn starting_with<'a>(
        &'a self,
        from: &'a Name,
    ) -> impl Iterator<Item = (&'a Arc<str>, Counts)> {
        self.0
            .range((Bound::Included(from), Bound::Unbounded))
            .take_while(|(name, _)| {
                name.tenant == from.tenant && name.text.starts_with(&*from.text)
            })
            .map(|(name, channel)| (&name.text, channel.counts()))
    }

    /// Channels with anybody in them.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Channel {
    fn counts(&self) -> Counts {
        Counts { subscriptions: self.subscriptions, users: self.roster.len() as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roster::MAX_USERS;
    use proptest::prelude::*;
    use sluicegate_core::{OutletId, TenantId};
    use std::collections::BTreeSet;

    fn name(text: &str) -> Name {
        Name { tenant: TenantId::from_bits(1), text: text.into() }
    }

    fn peer(n: u64) -> Peer {
        Peer { shard: (n % 3) as u32, outlet: OutletId::from_bits(n) }
    }

    fn member(id: u64) -> Member {
        Member { user_id: id.to_string().into(), info: "null".into() }
    }

    #[test]
    fn a_channel_is_occupied_from_its_first_connection_to_its_last() {
        let mut channels = Channels::default();
        let mut apply = |change| channels.apply(&name("a"), change).unwrap();
        let meaning = apply(Change::Enter(peer(1), None));
        assert_eq!((meaning.occupied, meaning.subscriptions), (Some(true), Some(1)));
        let meaning = apply(Change::Enter(peer(2), None));
        assert_eq!((meaning.occupied, meaning.subscriptions), (None, Some(2)));
        assert_eq!(apply(Change::Leave(peer(1))).occupied, None);
        let meaning = apply(Change::Leave(peer(2)));
        assert_eq!((meaning.occupied, meaning.subscriptions), (Some(false), Some(0)));
        assert_eq!(apply(Change::Leave(peer(2))), Meaning::default());
        assert!(channels.is_empty());
    }

    #[test]
    fn a_miss_is_told_on_once_while_the_channel_is_occupied_and_nothing_was_forgotten() {
        let mut channels = Channels::default();
        let again = Duration::from_secs(2);
        let miss = |channels: &mut Channels, ms| {
            channels.miss(&name("a"), Instant::from_millis(ms), again)
        };
        assert!(!miss(&mut channels, 0), "nobody is there");
        for from in [0, 10_000] {
            channels.apply(&name("a"), Change::Enter(peer(1), None)).unwrap();
            let told = [0, 1, 1_999, 2_000, 3_999].map(|ms| miss(&mut channels, from + ms));
            assert_eq!(told, [true, false, false, true, false]);
            channels.apply(&name("a"), Change::Leave(peer(1))).unwrap();
        }
    }

    #[test]
    fn channels_are_listed_by_app_and_beginning() {
        let mut channels = Channels::default();
        for text in ["a", "presence-a", "presence-b", "presencf", "z"] {
            channels.apply(&name(text), Change::Enter(peer(1), None)).unwrap();
        }
        let other = Name { tenant: TenantId::from_bits(2), text: "presence-c".into() };
        channels.apply(&other, Change::Enter(peer(1), None)).unwrap();
        let list = |text: &str| -> Vec<String> {
            channels.starting_with(&name(text)).map(|(text, _)| text.to_string()).collect()
        };
        assert_eq!(list("presence-"), ["presence-a", "presence-b"]);
        assert_eq!(list("").len(), 5);
        assert_eq!(list("zz"), [""; 0]);
    }

    #[test]
    fn nothing_changes_where_there_is_no_room() {
        let mut channels = Channels::default();
        let name = name("presence-a");
        for n in 0..MAX_USERS as u64 {
            channels.apply(&name, Change::Enter(peer(n), Some(&member(n)))).unwrap();
        }
        let before = channels.counts(&name);
        let change = Change::Enter(peer(1_000), Some(&member(1_000)));
        assert_eq!(channels.apply(&name, change), Err(Full));
        assert_eq!(channels.counts(&name), before);
    }

    fn users(model: &BTreeSet<(u64, u64)>) -> BTreeSet<u64> {
        model.iter().map(|entry| entry.1).collect()
    }

    proptest! {
        /// Against the plainest model: the set of those who are in.
        #[test]
        fn counts_and_users_agree_with_a_set(
            steps in prop::collection::vec((0_u64..12, 0_u64..4), 0..200),
        ) {
            let mut channels = Channels::default();
            let mut model: BTreeSet<(u64, u64)> = BTreeSet::new();
            let name = name("presence-a");
            for (n, user) in steps {
                let before = users(&model);
                let member = member(user);
                let known = model.iter().find(|entry| entry.0 == n).copied();
                let change = if let Some(entry) = known {
                    model.remove(&entry);
                    Change::Leave(peer(n))
                } else {
                    model.insert((n, user));
                    Change::Enter(peer(n), Some(&member))
                };
                let meaning = channels.apply(&name, change).unwrap();
                let after = users(&model);
                let id = |id: &u64| id.to_string().into();
                let came = after.difference(&before).next().map(id).map(User::Added);
                let went = before.difference(&after).next().map(id).map(User::Removed);
                prop_assert_eq!(meaning.user, came.or(went));
                let counts = channels.counts(&name);
                prop_assert_eq!(counts.subscriptions, model.len() as u64);
                prop_assert_eq!(counts.users, after.len() as u64);
                prop_assert_eq!(channels.is_empty(), model.is_empty());
                let gone = channels.apply(&name, Change::Leave(peer(99))).unwrap();
                prop_assert_eq!(gone, Meaning::default());
            }
        }
    }
}
