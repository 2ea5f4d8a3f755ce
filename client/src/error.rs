//! What can go wrong, for programs and for people.

use sluicegate_core::{Place, Reason};
use sluicegate_wire::quic::{self, Code, Retry};
use std::fmt;
use std::time::Duration;

/// A "no" of the broker or of the client itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Where; none when the broker is newer and names a place that this client does not know.
    pub place: Option<Place>,
    /// Why; none likewise.
    pub reason: Option<Reason>,
    /// Whether and when the same may succeed.
    pub retry: Retry,
}

impl Refusal {
    /// Said by a server that stops: the next one may say yes.
    pub(crate) fn is_shutdown(&self) -> bool {
        self.reason == Some(Reason::Shutdown)
    }
}

impl From<quic::Refusal> for Refusal {
    fn from(why: quic::Refusal) -> Self {
        let quic::Refusal { place, reason, retry } = why;
        Self { place: Place::from_code(place), reason: Reason::from_code(reason), retry }
    }
}

impl From<sluicegate_core::Refusal> for Refusal {
    fn from(why: sluicegate_core::Refusal) -> Self {
        let retry = match why.retry {
            sluicegate_core::Retry::After(millis) => Retry::After(millis),
            sluicegate_core::Retry::Never => Retry::Never,
        };
        Self { place: Some(why.place), reason: Some(why.reason), retry }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.map_or("unknown", Place::name);
        let reason = self.reason.map_or("unknown", Reason::name);
        write!(f, "{reason} at {place}, ")?;
        match self.retry {
            Retry::After(millis) => write!(f, "try again after {millis} ms"),
            Retry::Never => write!(f, "the same will be refused again"),
            Retry::Unknown => write!(f, "it may have been done"),
        }
    }
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The address is none.
    Address(String),
    /// The options contradict themselves.
    Options(String),
    /// The server has said no.
    Refused {
        /// For programs; none for a code that this client does not know.
        code: Option<Code>,
        /// For people.
        text: String,
    },
    /// There is no token to show: what [`TokenSource`](crate::TokenSource) says.
    Token(String),
    /// No welcome in time.
    TimedOut,
    /// There is no way to the server, or it is not the one that is trusted.
    Unreachable(String),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(text) => {
                write!(f, "`{text}` is no address: write quic://HOST:PORT, such as ")?;
                write!(f, "quic://127.0.0.1:4433")
            }
            Self::Options(text) => write!(f, "options: {text}"),
            Self::Refused { text, .. } => write!(f, "the server refused: {text}"),
            Self::Token(text) => write!(f, "there is no token to show (token_source): {text}"),
            Self::TimedOut => write!(f, "no welcome from the server in time (connect_timeout)"),
            Self::Unreachable(text) => write!(f, "no connection: {text}"),
        }
    }
}

impl std::error::Error for ConnectError {}

impl ConnectError {
    /// What the server has said, for programs.
    pub(crate) const fn code(&self) -> Option<Code> {
        match self {
            Self::Refused { code, .. } => *code,
            _ => None,
        }
    }
}

/// Why a client has given up its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnected {
    /// What the server said last; none when there was no server to say anything, or a code that
    /// this client does not know.
    pub code: Option<Code>,
    /// The same as a refusal, with its advice: [`Retry::Never`] when another client with the same
    /// options would meet the same.
    pub why: Refusal,
}

impl Disconnected {
    /// After a word that is final.
    pub(crate) const fn told(code: Code) -> Self {
        let reason = Some(Reason::NotAllowed);
        let why = Refusal { place: Some(Place::Table), reason, retry: Retry::Never };
        Self { code: Some(code), why }
    }

    /// After the last try, which could be made again.
    pub(crate) fn after(error: &ConnectError, again: Duration) -> Self {
        let code = error.code();
        let reason = Some(if code == Some(Code::Busy) { Reason::Limit } else { Reason::Gone });
        let retry = Retry::After(u16::try_from(again.as_millis()).unwrap_or(u16::MAX));
        Self { code, why: Refusal { place: Some(Place::Table), reason, retry } }
    }
}

impl fmt::Display for Disconnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = match self.code {
            Some(Code::Busy) => "the server has no room",
            Some(Code::Expired) => "the token has come to its end",
            Some(Code::Unauthenticated) => "token and tenant do not go together",
            Some(Code::Version) => "the server speaks no version of the protocol that this does",
            Some(Code::Malformed | Code::Unexpected) => {
                "the server does not understand this client"
            }
            Some(_) => "the server has ended it",
            None => "the server cannot be reached",
        };
        write!(f, "the connection was given up, {said}: {}", self.why)
    }
}

/// What became of a publish that was not sequenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishError {
    /// The application has closed the client.
    Closed,
    /// The client has given up its connection: it was not published.
    Disconnected(Disconnected),
    /// There is no room in the window or the queue at this moment: only of a publish that does not
    /// wait.
    Full,
    /// A batch has 1 to 4,096 records, and less than 16 MiB.
    Size,
    /// The broker, or the client, has said no: it was not published.
    Refused(Refusal),
    /// The connection ended before the answer: it may have been published.
    Unknown,
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => write!(f, "the client is closed"),
            Self::Disconnected(why) => write!(f, "{why}"),
            Self::Full => write!(f, "the client's window or queue is full: wait, or try later"),
            Self::Size => write!(f, "a batch has 1 to 4096 records and less than 16 MiB"),
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::Unknown => write!(f, "the connection ended: it may have been published"),
        }
    }
}

impl std::error::Error for PublishError {}

/// Why there is no subscription, or none any more; or why a topic cannot be published to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicError {
    /// The application has closed the client.
    Closed,
    /// The client has given up its connection, and with it all that is left of the client: the
    /// server does not want it, or it was tried in vain as often as the options say.
    Disconnected(Disconnected),
    /// The broker has ended it.
    Ended(Refusal),
    /// The broker has said no.
    Refused(Refusal),
}

impl fmt::Display for TopicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => write!(f, "the client is closed"),
            Self::Disconnected(why) => write!(f, "{why}"),
            Self::Ended(why) => write!(f, "the broker ended the subscription: {why}"),
            Self::Refused(why) => write!(f, "refused: {why}"),
        }
    }
}

impl std::error::Error for TopicError {}
