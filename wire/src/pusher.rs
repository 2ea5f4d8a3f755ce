//! Pusher Channels messages.
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// What a client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "skeleton")]
pub enum Command<'a> {
    Client { event: Cow<'a, str>, channel: Cow<'a, str>, data: &'a str },
    Other { event: Cow<'a, str> }, Ping, Pong,
    Signin { auth: Cow<'a, str>, user_data: Cow<'a, str> },
    Subscribe { channel: Cow<'a, str>, auth: Option<Cow<'a, str>>, channel_data: Option<Cow<'a, str>> },
    Unsubscribe { channel: Cow<'a, str> } }
/// Why a text is no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "skeleton")]
pub enum Malformed { Missing(&'static str), NotAnObject(&'static str), NotJson, NotText(&'static str), TooDeep }
impl fmt::Display for Malformed { fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result { todo!() } }
/// Reads one text message.
pub fn command(_text: &str) -> Result<Command<'_>, Malformed> { todo!() }

/// The kind of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "skeleton")]
pub enum Kind { Presence, Private, PrivateEncrypted, Public }
/// The kind, by prefix.
pub fn kind(_channel: &str) -> Kind { todo!() }
/// Whether it keeps its last event.
pub fn is_cache(_channel: &str) -> bool { todo!() }
/// Why a name is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "skeleton")]
pub enum BadName { Char { at: usize, found: char }, Empty, TooLong { len: usize, max: usize } }
impl fmt::Display for BadName { fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result { todo!() } }
/// Checks a channel name.
pub fn check_channel(_name: &str, _max: usize) -> Result<(), BadName> { todo!() }
/// The longest channel name of hosted Pusher.
pub const MAX_CHANNEL: usize = 164;
/// The longest event name.
pub const MAX_EVENT_NAME: usize = 200;
/// The user id of `#server-to-user-{id}`.
pub fn server_to_user(_channel: &str) -> Option<&str> { todo!() }

/// First frame.
pub fn connection_established(_socket_id: &str, _activity_timeout: u32) -> String { todo!() }
/// Pong.
pub fn pong() -> String { todo!() }
/// Ping.
pub fn ping() -> String { todo!() }
/// Subscribed.
pub fn subscription_succeeded(_channel: &str) -> String { todo!() }
/// Not subscribed.
pub fn subscription_error(_channel: &str, _kind: &str, _error: &str, _status: u16) -> String { todo!() }
/// An error.
pub fn error(_code: Option<u16>, _message: &str) -> String { todo!() }
/// An event.
pub fn event(_channel: &str, _name: &str, _data: &str) -> String { todo!() }
/// An event as one frame.
pub fn event_frame(_channel: &str, _name: &str, _data: &str) -> Vec<u8> { todo!() }

/// Close codes.
#[expect(missing_docs, reason = "skeleton")]
pub mod close {
    pub const TLS_REQUIRED: u16 = 4000;
    pub const APP_UNKNOWN: u16 = 4001;
    pub const APP_DISABLED: u16 = 4003;
    pub const OVER_QUOTA: u16 = 4004;
    pub const PATH_NOT_FOUND: u16 = 4005;
    pub const BAD_VERSION: u16 = 4006;
    pub const UNSUPPORTED_PROTOCOL: u16 = 4007;
    pub const NO_PROTOCOL: u16 = 4008;
    pub const UNAUTHORIZED: u16 = 4009;
    pub const OVER_CAPACITY: u16 = 4100;
    pub const RECONNECT: u16 = 4200;
    pub const PONG_MISSING: u16 = 4201;
    pub const IDLE: u16 = 4202;
    pub const CLIENT_EVENT_REJECTED: u16 = 4301;
    pub const WATCHLIST_TRUNCATED: u16 = 4302;
}
