//! The frames of the QUIC broker, version 1. `wire/PROTOCOL.md` describes them.
//!
//! On a stream each frame has its length in front, a [varint](mod@varint); [`Assembler`] finds the
//! frames, [`decode`] reads one, [`Frame::put`] writes one with its length. Every field is checked
//! before anything is allocated for it; a decoded frame borrows from its bytes.
//!
//! ```
//! use sluicegate_wire::quic::{self, Assembler, Frame};
//!
//! let mut stream = Vec::new();
//! Frame::Ping { token: 7 }.put(&mut stream);
//! let frame = Assembler::new(1024).take(&mut &stream[..]).unwrap().unwrap();
//! assert_eq!(quic::decode(&frame), Ok(Some(Frame::Ping { token: 7 })));
//! ```

mod assembler;
mod decode;
mod encode;
mod reader;
mod records;
#[cfg(test)]
mod tests;
pub mod varint;

pub use assembler::Assembler;
pub use decode::decode;
pub use encode::{events_head, put_publish};
pub use records::{Iter, MAX_RECORDS, Records, len as records_len, put as put_records};

use core::fmt;

/// The ALPN identifier of the protocol.
pub const ALPN: &[u8] = b"sluicegate/1";

/// The protocol's version.
pub const VERSION: u16 = 1;

/// The longest topic and tenant names, in bytes.
pub const MAX_NAME: usize = 200;

/// The longest token, in bytes: a JWT with room.
pub const MAX_TOKEN: usize = 8 << 10;

/// The longest text of an error, in bytes.
pub const MAX_TEXT: usize = 1024;

/// The most of a publish besides its records: type, topic, mode and request.
pub const PUBLISH_HEAD: usize = 1 + varint::MAX_LEN + 1 + varint::MAX_LEN;

/// The most of events before their records on a stream: length, type and first number.
pub const EVENTS_HEAD: usize = varint::MAX_LEN + 1 + 8;

/// What a publisher wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing; what is shed is told in sums.
    Unacked,
    /// At once, whether there is room.
    Acked {
        /// The number that the answer carries; the client's to choose.
        request: u64,
    },
    /// Within the server's deadline.
    Waiting {
        /// The number that the answer carries; the client's to choose.
        request: u64,
    },
}

/// What a subscription does when it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The topic waits for it.
    Block,
    /// As the server is configured.
    Default,
    /// The new batch is dropped.
    DropNew,
    /// The oldest is dropped.
    DropOld,
    /// Only the newest is kept.
    Latest,
}

/// With which record a subscription begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// A record of the topic's life with this epoch.
    At {
        /// As it was told before.
        epoch: u64,
        /// The record's number.
        sequence: u64,
    },
    /// The oldest one that is held.
    Earliest,
    /// The n-th newest that is held.
    Last(u64),
    /// The next one.
    Tail,
}

/// Whether and when the same request may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// After this many milliseconds.
    After(u16),
    /// Not without a change.
    Never,
    /// It may have been done: look before it is repeated.
    Unknown,
}

/// A typed "no". Places and reasons are numbers of the table in `PROTOCOL.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Where.
    pub place: u8,
    /// Why.
    pub reason: u8,
    /// What next.
    pub retry: Retry,
}

/// Why a side ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The server had no room for the connection.
    Busy,
    /// The server has closed the connection for a reason of load, which the text names.
    Evicted,
    /// A frame could not be read.
    Malformed,
    /// A wait for the peer was too long.
    TimedOut,
    /// The token that was shown is worth nothing any more: a new one is needed.
    Expired,
    /// Token and tenant do not go together.
    Unauthenticated,
    /// A frame that has no place where it came, or more streams than are allowed.
    Unexpected,
    /// No version in common.
    Version,
}

impl Code {
    /// Every code.
    pub const ALL: [Self; 8] = [
        Self::Busy,
        Self::Evicted,
        Self::Expired,
        Self::Malformed,
        Self::TimedOut,
        Self::Unauthenticated,
        Self::Unexpected,
        Self::Version,
    ];

    /// On the wire, and as the application error code of the QUIC connection.
    pub const fn number(self) -> u8 {
        match self {
            Self::Malformed => 1,
            Self::Version => 2,
            Self::Unauthenticated => 3,
            Self::Unexpected => 4,
            Self::TimedOut => 5,
            Self::Busy => 6,
            Self::Evicted => 7,
            Self::Expired => 8,
        }
    }

    /// The code with this number.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|code| u64::from(code.number()) == number)
    }
}

/// The application error code of a connection that ends as it should.
pub const CLOSE_DONE: u32 = 0;

/// With what a server resets a subscription's stream whose client does not read its end: where and
/// why, as in [`Frame::Ended`].
pub const fn reset_code(place: u8, reason: u8) -> u32 {
    0x1_0000 | (place as u32) << 8 | reason as u32
}

/// Place and reason of a [`reset_code`]; none of any other number.
pub fn reset_reason(code: u64) -> Option<(u8, u8)> {
    let [0, 0, 0, 0, 0, 1, place, reason] = code.to_be_bytes() else { return None };
    Some((place, reason))
}

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A publish was sequenced.
    Ack {
        /// Of the publish.
        request: u64,
        /// The number of its first record.
        first: u64,
    },
    /// The client wants a number for a topic's name.
    Bind {
        /// The client's to choose.
        request: u64,
        /// It wants to publish.
        publish: bool,
        /// It wants to subscribe.
        subscribe: bool,
        /// The name.
        topic: &'a str,
    },
    /// The answer.
    Bound {
        /// Of the bind.
        request: u64,
        /// The number of the topic on this connection.
        topic: u32,
        /// The topic's epoch; zero while the shard that knows it has not told.
        epoch: u64,
    },
    /// The last frame of a subscription's stream.
    Ended {
        /// Where and why.
        why: Refusal,
    },
    /// The last frame of a connection that ends badly.
    Error {
        /// For programs.
        code: Code,
        /// For people.
        text: &'a str,
    },
    /// Records of a subscription.
    Events {
        /// The number of the first.
        first: u64,
        /// One published batch.
        records: Records<'a>,
    },
    /// Records of a subscription were lost.
    Gap {
        /// The number of the first that was lost.
        first: u64,
        /// The number of the last that was lost.
        last: u64,
        /// How many of `first..=last`.
        records: u64,
        /// Where the first was lost, and why.
        why: Refusal,
    },
    /// The server stops: nothing new is taken.
    GoAway {
        /// What is on its way has this long.
        grace_ms: u64,
    },
    /// The first frame of a connection.
    Hello {
        /// The oldest version that the client speaks.
        oldest: u16,
        /// The newest version that the client speaks.
        newest: u16,
        /// Optional abilities, as bits. None is defined.
        features: u64,
        /// Whose connection it is.
        tenant: &'a str,
        /// What proves it; may be empty.
        token: &'a str,
    },
    /// A sign of life is wanted.
    Ping {
        /// Comes back.
        token: u64,
    },
    /// The sign of life.
    Pong {
        /// Of the ping.
        token: u64,
    },
    /// A batch for a topic.
    Publish {
        /// As it was bound.
        topic: u32,
        /// What the publisher wants to know.
        mode: Mode,
        /// What is published.
        records: Records<'a>,
    },
    /// The answer "no" to a bind, a subscribe or a publish.
    Refused {
        /// Whose.
        request: u64,
        /// Where, why, what next.
        why: Refusal,
    },
    /// Unacked records of this connection were discarded since the last such frame.
    Shed {
        /// How many.
        records: u64,
        /// Where and why.
        why: Refusal,
    },
    /// The client wants a topic's records.
    Subscribe {
        /// The client's to choose.
        request: u64,
        /// As it was bound.
        topic: u32,
        /// When it is full.
        policy: Policy,
        /// At most this many batches wait; zero for as many as the server allows.
        batches: u32,
        /// At most this many bytes wait; zero for as many as the server allows.
        bytes: u64,
        /// Where it begins.
        start: Start,
    },
    /// The first frame of a subscription's stream.
    Subscribed {
        /// Of the subscribe.
        request: u64,
        /// For unsubscribing.
        subscription: u32,
        /// The topic's epoch.
        epoch: u64,
        /// The number of the first record that can come.
        start: u64,
    },
    /// The client has enough.
    Unsubscribe {
        /// As it was told.
        subscription: u32,
    },
    /// The server knows the client.
    Welcome(Welcome),
}

/// What a client is told first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Of both.
    pub version: u16,
    /// Abilities that both have, as bits.
    pub features: u64,
    /// Names the connection in the server's log.
    pub session: u64,
    /// Milliseconds since 1970 on the server's clock.
    pub time_ms: u64,
    /// The longest frame it takes, in bytes.
    pub max_frame_bytes: u64,
    /// Subscriptions that the connection may have at once.
    pub max_subscriptions: u32,
    /// Topics that the connection may have bound at once.
    pub max_topics: u32,
    /// Streams for publishing that the connection may have at once.
    pub max_publish_streams: u32,
    /// How long the server is silent at most.
    pub idle_ms: u64,
}

/// How a peer broke the protocol. The connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A choice that this field does not have.
    Choice(u8),
    /// So many records are not there, or are not allowed.
    Count(u64),
    /// A text is not UTF-8.
    NotUtf8,
    /// A number that this field does not take.
    Number(u64),
    /// A field that must be understood and is not.
    Required(u64),
    /// A text that is longer than allowed.
    TextTooLong {
        /// Its bytes.
        len: usize,
        /// The most.
        most: usize,
    },
    /// A frame that is longer than allowed.
    TooLarge {
        /// Its bytes.
        len: u64,
        /// The most.
        most: u64,
    },
    /// Bytes after the last record.
    Trailing,
    /// A field is not all there.
    Truncated,
    /// A type that must be understood and is not.
    Type(u8),
}

impl core::error::Error for Fault {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Choice(choice) => write!(f, "{choice} is no choice of its field"),
            Self::Count(count) => write!(f, "{count} records cannot be in this frame"),
            Self::NotUtf8 => write!(f, "a text is not UTF-8"),
            Self::Number(number) => write!(f, "{number} is out of its field's range"),
            Self::Required(tag) => write!(f, "field {tag} must be understood and is not"),
            Self::TextTooLong { len, most } => {
                write!(f, "a text has {len} bytes, but at most {most} are allowed")
            }
            Self::TooLarge { len, most } => {
                write!(f, "a frame has {len} bytes, but at most {most} are allowed")
            }
            Self::Trailing => write!(f, "there are bytes after the last record"),
            Self::Truncated => write!(f, "a field is not all there"),
            Self::Type(kind) => write!(f, "no frame has the type {kind:#04x}"),
        }
    }
}
