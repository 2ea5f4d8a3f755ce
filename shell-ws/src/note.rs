//! What event loops tell each other besides records: who is in which channel, who is signed in,
//! and questions of the HTTP API. Each goes to the shard that owns the channel or user, or back
//! from it, in the same order per pair of shards as the core's parcels.

use crate::account::{Account, Losing, Sheet};
use crate::channels::Counts;
use crate::roster::Full;
use bytes::Bytes;
use sluicegate_core::{OutletId, TenantId};
use sluicegate_host::metrics::Numbers;
use std::sync::Arc;

/// A channel, or a user, of an app.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// The app.
    pub tenant: TenantId,
    /// What the app calls it.
    pub text: Arc<str>,
}

/// A WebSocket connection of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// Its event loop.
    pub shard: u32,
    /// Its outlet there.
    pub outlet: OutletId,
}

/// Whoever a member of a presence channel is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The user's id.
    pub user_id: Arc<str>,
    /// What it says of itself: JSON.
    pub info: Arc<str>,
}

/// Who waits for an answer: a request of one HTTP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Its event loop.
    pub shard: u32,
    /// The name of the socket there.
    pub socket: u64,
    /// The number of its request: an answer to an earlier one is late.
    pub request: u64,
    /// Which of the request's questions this is.
    pub index: u32,
}

/// Something that one event loop tells another.
#[derive(Clone, Debug)]
pub enum Note {
    /// To the owner of a channel: a connection comes in. To presence channels it comes as a member,
    /// and is answered with [`Entered`](Self::Entered) and the same `serial`.
    Enter {
        /// The channel.
        channel: Name,
        /// Who comes in.
        peer: Peer,
        /// As whom.
        member: Option<Member>,
        /// A number of the asking side.
        serial: u64,
    },
    /// To the owner of a channel: a connection has gone.
    Leave {
        /// The channel.
        channel: Name,
        /// Who has gone.
        peer: Peer,
    },
    /// To the owner of a cache channel: somebody who came into it was told that it keeps nothing.
    Miss {
        /// The channel.
        channel: Name,
    },
    /// From the owner of a presence channel: the word of welcome with all members, or no room.
    Entered {
        /// Who asked.
        outlet: OutletId,
        /// For which channel.
        channel: Arc<str>,
        /// Its number.
        serial: u64,
        /// A finished frame.
        outcome: Result<Bytes, Full>,
    },
    /// From an owner: a frame for these connections, in line with what they are sent.
    Say {
        /// The channel in which it is said, if it is one.
        channel: Option<Arc<str>>,
        /// Who is told.
        to: Vec<OutletId>,
        /// The finished frame.
        frame: Bytes,
    },
    /// To the owner of a user: it signed in through a connection.
    SignIn {
        /// The user.
        user: Name,
        /// The connection.
        peer: Peer,
    },
    /// To the owner of a user: a connection through which it was signed in has gone.
    SignOut {
        /// The user.
        user: Name,
        /// The connection.
        peer: Peer,
    },
    /// To the owner of users: tell this connection who of them is there, and from now on when they
    /// come and go.
    Watch {
        /// The app.
        tenant: TenantId,
        /// The users.
        ids: Vec<Arc<str>>,
        /// Who watches.
        peer: Peer,
    },
    /// To the owner of users: and no longer.
    Unwatch {
        /// The app.
        tenant: TenantId,
        /// The users.
        ids: Vec<Arc<str>>,
        /// Who watched.
        peer: Peer,
    },
    /// From the owner of a user: these connections are to be closed, as the app's server wishes.
    Terminate {
        /// Whose.
        outlets: Vec<OutletId>,
    },
    /// To an owner: a question.
    Ask {
        /// Who wants to know.
        asker: Asker,
        /// What.
        question: Question,
    },
    /// From an owner: the answer.
    Answer {
        /// Who wanted to know.
        asker: Asker,
        /// The answer.
        answer: Answer,
    },
}

/// What the HTTP API asks an owner.
#[derive(Clone, Debug)]
pub enum Question {
    /// What a cache channel keeps.
    Cached(Name),
    /// How many are in a channel.
    Channel(Name),
    /// Which channels of an app that begin with this text has anybody in them.
    Channels(TenantId, Arc<str>),
    /// Why this connection of a loop does or does not get messages.
    Account(Peer),
    /// Which connections of an app lose most.
    Losing(TenantId),
    /// What metrics collectors are shown.
    Numbers,
    /// All books.
    Sheet,
    /// Close the connections of a user.
    Terminate(Name),
    /// Who is in a presence channel.
    Users(Name),
}

/// The event that a cache channel keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cached {
    /// As the publisher sent it.
    pub data: String,
    /// For how many seconds it is still kept.
    pub ttl: u64,
}

/// What an owner answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To `Cached`.
    Cached(Option<Cached>),
    /// To `Channel`.
    Counts(Counts),
    /// To `Channels`.
    Channels(Vec<(Arc<str>, Counts)>),
    /// To `Account`; none when it has gone.
    Account(Option<Box<Account>>),
    /// To `Losing`: those of one shard.
    Losing(Vec<Losing>),
    /// To `Sheet`: the books of one shard.
    Sheet(Box<Sheet>),
    /// To `Numbers`: those of one shard.
    Numbers(Box<Numbers>),
    /// To `Terminate`: those who were told.
    Done,
    /// To `Users`.
    Users(Vec<Arc<str>>),
}
