//! Pusher Channels messages, protocol versions 4 to 7: what clients send, what they are sent,
//! and what channel names mean.
//!
//! Clients encode the `data` of `pusher:*` events as an object or as a string that holds one;
//! both are read. What the server sends follows the protocol to the byte: `data` is a string for
//! every channel event, an object for errors.
//!
//! Bounds: a message is as long as the frame limit lets it be, nested at most [`MAX_DEPTH`]
//! levels, and nothing is kept. Reading recurses nowhere, so no nesting can exhaust the stack.

mod outbound;
mod presence;
mod user;

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json;

pub use outbound::{
    cache_miss, client_event, client_event_frame, connection_established, error, event, event_data,
    event_frame, gap, ping, pong, subscription_error, subscription_succeeded,
};
pub use presence::{
    BadMember, MAX_USER_ID, MAX_USER_INFO, Member, member, member_added, member_removed,
    presence_succeeded,
};
pub use user::{
    BadUser, MAX_WATCHLIST, SignedIn, is_user_id, server_to_user_channel, signed_in,
    signin_success, subscription_count, watchlist_events,
};

/// The deepest nesting of a message: beyond it readers of relayed data may overflow.
pub const MAX_DEPTH: usize = 64;

/// The longest channel name of hosted Pusher, prefix included.
pub const MAX_CHANNEL: usize = 164;

/// The longest event name, in characters.
pub const MAX_EVENT_NAME: usize = 200;

/// What a client sent. Texts are borrowed from the message where they hold no escape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// An event `client-*` for the other subscribers of a channel.
    Client {
        /// The event's name, with its prefix.
        event: Cow<'a, str>,
        /// The channel, unchecked.
        channel: Cow<'a, str>,
        /// Valid JSON exactly as it was sent; `null` when it was absent.
        data: &'a str,
    },
    /// Any event that has no meaning here. It must never be relayed.
    Other {
        /// The event's name.
        event: Cow<'a, str>,
    },
    /// `pusher:ping`, whatever its data.
    Ping,
    /// `pusher:pong`, whatever its data.
    Pong,
    /// `pusher:signin`.
    Signin {
        /// `key:signature`, unchecked.
        auth: Cow<'a, str>,
        /// The JSON text that is signed.
        user_data: Cow<'a, str>,
    },
    /// `pusher:subscribe`.
    Subscribe {
        /// The channel, unchecked.
        channel: Cow<'a, str>,
        /// `key:signature`, unchecked; some clients send `""` for public channels.
        auth: Option<Cow<'a, str>>,
        /// The JSON text that is signed.
        channel_data: Option<Cow<'a, str>>,
        /// How many of the events that a cache channel keeps the client wants: 1 to
        /// [`MAX_REWIND`]. An extension: the protocol knows only the last one.
        rewind: Option<u32>,
    },
    /// `pusher:unsubscribe`.
    Unsubscribe {
        /// The channel, unchecked.
        channel: Cow<'a, str>,
    },
}

/// Why a text is no command. The field that is wrong is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The field is absent or null.
    Missing(&'static str),
    /// The message, or the field, is not a JSON object.
    NotAnObject(&'static str),
    /// The message, or the text in the field, is not JSON.
    NotJson(&'static str),
    /// The field is not a string.
    NotText(&'static str),
    /// This field is no whole number from 1 to so many.
    NotWithin(&'static str, u32),
    /// An object names one of the protocol's fields twice.
    Repeated(&'static str),
    /// Nested deeper than [`MAX_DEPTH`].
    TooDeep,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Missing(field) => write!(f, "{field}: missing, send it"),
            Self::NotAnObject(part) => write!(f, "{part}: send a JSON object"),
            Self::NotJson(part) => write!(f, "{part}: not JSON"),
            Self::NotText(field) => write!(f, "{field}: send a JSON string"),
            Self::NotWithin(field, most) => {
                write!(f, "{field}: send a whole number from 1 to {most}")
            }
            Self::Repeated(part) => write!(f, "{part}: holds a field twice"),
            Self::TooDeep => write!(f, "message: nested deeper than {MAX_DEPTH} levels"),
        }
    }
}

impl core::error::Error for Malformed {}

/// The most events of a cache channel that a client may ask for.
pub const MAX_REWIND: u32 = 1_000;

/// The name of the whole text in [`Malformed`].
const MESSAGE: &str = "message";

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    event: Option<&'a RawValue>,
    #[serde(borrow)]
    channel: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

/// Reads one text message.
///
/// Unknown fields are ignored.
///
/// Cost: O(bytes). Allocates only for texts with escapes, for data in a string, and a byte per
/// level of nested data.
pub fn command(text: &str) -> Result<Command<'_>, Malformed> {
    let envelope: Envelope<'_> = object(text, MESSAGE)?;
    if json::deeper_than(text, MAX_DEPTH) {
        return Err(Malformed::TooDeep);
    }
    let event = required(envelope.event, "event")?;
    Ok(match &*event {
        "pusher:ping" => Command::Ping,
        "pusher:pong" => Command::Pong,
        "pusher:signin" => Body::read(envelope.data)?.signin()?,
        "pusher:subscribe" => Body::read(envelope.data)?.subscribe()?,
        "pusher:unsubscribe" => Body::read(envelope.data)?.unsubscribe()?,
        name if name.starts_with("client-") => {
            let channel = required(envelope.channel, "channel")?;
            Command::Client { event, channel, data: envelope.data.map_or("null", RawValue::get) }
        }
        _ => Command::Other { event },
    })
}

/// Reads the fields of an object; the text is called `part` in errors.
fn object<'a, T: Deserialize<'a>>(text: &'a str, part: &'static str) -> Result<T, Malformed> {
    if !json::is_object(text) {
        let json = serde_json::from_str::<&RawValue>(text).is_ok();
        return Err(if json { Malformed::NotAnObject(part) } else { Malformed::NotJson(part) });
    }
    serde_json::from_str(text).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => Malformed::Repeated(part),
        _ => Malformed::NotJson(part),
    })
}

fn optional<'a>(
    raw: Option<&'a RawValue>,
    field: &'static str,
) -> Result<Option<Cow<'a, str>>, Malformed> {
    raw.map(|raw| json::text(raw).ok_or(Malformed::NotText(field))).transpose()
}

fn required<'a>(raw: Option<&'a RawValue>, field: &'static str) -> Result<Cow<'a, str>, Malformed> {
    optional(raw, field)?.ok_or(Malformed::Missing(field))
}

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    auth: Option<&'a RawValue>,
    #[serde(borrow)]
    channel: Option<&'a RawValue>,
    #[serde(borrow)]
    channel_data: Option<&'a RawValue>,
    #[serde(borrow)]
    rewind: Option<&'a RawValue>,
    #[serde(borrow)]
    user_data: Option<&'a RawValue>,
}

fn rewind(raw: &RawValue) -> Result<u32, Malformed> {
    let number = raw.get().parse().ok();
    let within = number.filter(|number| (1..=MAX_REWIND).contains(number));
    within.ok_or(Malformed::NotWithin("rewind", MAX_REWIND))
}

/// The `data` of a `pusher:*` event.
struct Body<'a> {
    auth: Option<Cow<'a, str>>,
    channel: Option<Cow<'a, str>>,
    channel_data: Option<Cow<'a, str>>,
    rewind: Option<u32>,
    user_data: Option<Cow<'a, str>>,
}

impl<'a> Body<'a> {
    /// Reads an object, or a string that holds one.
    fn read(data: Option<&'a RawValue>) -> Result<Self, Malformed> {
        let raw = data.ok_or(Malformed::Missing("data"))?;
        match json::text(raw) {
            None => Self::parse(raw.get()),
            Some(Cow::Borrowed(text)) => Self::parse(text),
            Some(Cow::Owned(text)) => Body::parse(&text).map(Body::into_owned),
        }
    }

    fn parse(text: &'a str) -> Result<Self, Malformed> {
        let fields: Fields<'a> = object(text, "data")?;
        Ok(Self {
            auth: optional(fields.auth, "auth")?,
            channel: optional(fields.channel, "channel")?,
            channel_data: optional(fields.channel_data, "channel_data")?,
            rewind: fields.rewind.map(rewind).transpose()?,
            user_data: optional(fields.user_data, "user_data")?,
        })
    }

    fn into_owned(self) -> Body<'static> {
        let owned = |text: Option<Cow<'_, str>>| text.map(|text| Cow::Owned(text.into_owned()));
        Body {
            auth: owned(self.auth),
            channel: owned(self.channel),
            channel_data: owned(self.channel_data),
            rewind: self.rewind,
            user_data: owned(self.user_data),
        }
    }

    fn signin(self) -> Result<Command<'a>, Malformed> {
        Ok(Command::Signin {
            auth: self.auth.ok_or(Malformed::Missing("auth"))?,
            user_data: self.user_data.ok_or(Malformed::Missing("user_data"))?,
        })
    }

    fn subscribe(self) -> Result<Command<'a>, Malformed> {
        Ok(Command::Subscribe {
            channel: self.channel.ok_or(Malformed::Missing("channel"))?,
            auth: self.auth,
            channel_data: self.channel_data,
            rewind: self.rewind,
        })
    }

    fn unsubscribe(self) -> Result<Command<'a>, Malformed> {
        Ok(Command::Unsubscribe { channel: self.channel.ok_or(Malformed::Missing("channel"))? })
    }
}

/// What a channel's name says about who may subscribe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `presence-`: with a signature over the member's data.
    Presence,
    /// `private-`: with a signature.
    Private,
    /// `private-encrypted-`: with a signature; the data is opaque here.
    PrivateEncrypted,
    /// Anyone.
    Public,
}

/// The kind of a channel, and what its name says after the kind's prefix.
fn split(channel: &str) -> (Kind, &str) {
    let kinds = [
        ("private-encrypted-", Kind::PrivateEncrypted),
        ("private-", Kind::Private),
        ("presence-", Kind::Presence),
    ];
    kinds
        .into_iter()
        .find_map(|(prefix, kind)| Some((kind, channel.strip_prefix(prefix)?)))
        .unwrap_or((Kind::Public, channel))
}

/// The kind of a channel, by its prefix.
pub fn kind(channel: &str) -> Kind {
    split(channel).0
}

/// Whether the channel keeps its last event: `cache-` after the kind's prefix.
pub fn is_cache(channel: &str) -> bool {
    split(channel).1.starts_with("cache-")
}

/// Why a channel's name is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadName {
    /// A character that names may not hold.
    Char {
        /// Its byte offset.
        at: usize,
        /// The character.
        found: char,
    },
    /// No character at all.
    Empty,
    /// Longer than the limit.
    TooLong {
        /// Its bytes.
        len: usize,
        /// The most bytes it may have.
        max: usize,
    },
}

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Char { at, found } => {
                write!(f, "channel name: {found:?} at byte {at}, use A-Z a-z 0-9 _ - = @ , . ;")
            }
            Self::Empty => f.write_str("channel name: empty, send 1 character or more"),
            Self::TooLong { len, max } => {
                write!(f, "channel name: {len} characters, the limit is {max}")
            }
        }
    }
}

impl core::error::Error for BadName {}

/// Checks a channel's name: 1 to `max` characters of `A-Za-z0-9_-=@,.;`.
///
/// `#server-to-user-{id}` does not pass: see [`server_to_user`].
pub fn check_channel(name: &str, max: usize) -> Result<(), BadName> {
    if name.is_empty() {
        return Err(BadName::Empty);
    }
    // Length first, so that the scan is bounded by the limit.
    if name.len() > max {
        return Err(BadName::TooLong { len: name.chars().count(), max });
    }
    match name.char_indices().find(|&(_, char)| !is_name_char(char)) {
        Some((at, found)) => Err(BadName::Char { at, found }),
        None => Ok(()),
    }
}

const fn is_name_char(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '=' | '@' | ',' | '.' | ';')
}

/// The user of `#server-to-user-{id}`, the channel of one signed-in user: at least one character
/// of those that channel names may hold.
///
/// Subscribing to it is for that user alone, whatever else the client presents.
pub fn server_to_user(channel: &str) -> Option<&str> {
    let id = channel.strip_prefix("#server-to-user-")?;
    (!id.is_empty() && id.chars().all(is_name_char)).then_some(id)
}

/// The text that the signature of a subscription covers: `socket_id:channel`, and
/// `:channel_data` when the client sent some, on any kind of channel.
pub fn channel_string_to_sign(
    socket_id: &str,
    channel: &str,
    channel_data: Option<&str>,
) -> String {
    match channel_data {
        Some(data) => [socket_id, ":", channel, ":", data].concat(),
        None => [socket_id, ":", channel].concat(),
    }
}

/// The text that the signature of `pusher:signin` covers.
pub fn signin_string_to_sign(socket_id: &str, user_data: &str) -> String {
    [socket_id, "::user::", user_data].concat()
}

/// Close codes of the protocol, and the codes of errors on an open connection.
///
/// Clients never reconnect after 4000 to 4099, wait after 4100 to 4199, and reconnect at once
/// after 4200 to 4299. A connection is never *closed* with 43xx: clients take that for fatal.
pub mod close {
    /// This app is served over TLS only.
    pub const TLS_REQUIRED: u16 = 4000;
    /// No app has this key.
    pub const APP_UNKNOWN: u16 = 4001;
    /// The app is switched off.
    pub const APP_DISABLED: u16 = 4003;
    /// The app has as many connections as it may.
    pub const OVER_QUOTA: u16 = 4004;
    /// The path is not `/app/{key}`.
    pub const PATH_NOT_FOUND: u16 = 4005;
    /// The client's version is not readable.
    pub const BAD_VERSION: u16 = 4006;
    /// The protocol version is not served.
    pub const UNSUPPORTED_PROTOCOL: u16 = 4007;
    /// No protocol version was sent.
    pub const NO_PROTOCOL: u16 = 4008;
    /// Not authorised, or ended through the HTTP API.
    pub const UNAUTHORIZED: u16 = 4009;
    /// This node is full for now: come back later.
    pub const OVER_CAPACITY: u16 = 4100;
    /// Reconnect at once.
    pub const RECONNECT: u16 = 4200;
    /// A ping was not answered in time.
    pub const PONG_MISSING: u16 = 4201;
    /// Nothing was heard for a day.
    pub const IDLE: u16 = 4202;
    /// Error on an open connection: a client event was not relayed.
    pub const CLIENT_EVENT_REJECTED: u16 = 4301;
    /// Error on an open connection: the watchlist was cut.
    pub const WATCHLIST_TRUNCATED: u16 = 4302;
}

#[cfg(test)]
mod tests;
