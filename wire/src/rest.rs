//! The Pusher Channels HTTP API: bodies of `POST /events`, `POST /batch_events` and the deprecated
//! `POST /channels/{channel}/events`, and the text that is signed.
//!
//! Bounds: a body is as long as the caller lets it be; at most [`MAX_CHANNELS`] channels are
//! kept, whatever it holds. Reading recurses nowhere. Every refusal names the field, what is
//! wrong and what to send; hashing and comparing signatures is the caller's.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::http;
use crate::json;
use crate::pusher::{self, BadName, MAX_CHANNEL, MAX_EVENT_NAME};

/// The most channels of one call.
pub const MAX_CHANNELS: usize = 100;

/// The most bytes of data that hosted Pusher takes.
pub const MAX_DATA: usize = 10 * 1024;

/// One event for a set of channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// The event's name: 1 to [`MAX_EVENT_NAME`] characters, with no reserved prefix.
    pub name: String,
    /// 1 to [`MAX_CHANNELS`] checked names (or `#server-to-user-{id}`), each once, in the order
    /// of the body.
    pub channels: Vec<String>,
    /// The publisher's text, JSON or not.
    pub data: String,
    /// The connection that does not get the event: `digits.digits`.
    pub socket_id: Option<String>,
    /// The attributes asked for, separated by commas, unchecked.
    pub info: Option<String>,
}

/// The most events of one batch that hosted Pusher takes.
pub const MAX_BATCH: usize = 10;

/// Limits that operators set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most bytes of `data`.
    pub data: usize,
    /// The most characters of a channel's name.
    pub channel: usize,
    /// The most events of one batch.
    pub batch: usize,
}

impl Default for Bounds {
    /// Those of hosted Pusher.
    fn default() -> Self {
        Self { data: MAX_DATA, channel: MAX_CHANNEL, batch: MAX_BATCH }
    }
}

/// Why a body is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadBody {
    /// The name of this channel (counted from 0).
    BadChannel {
        /// Its place in the body.
        index: usize,
        /// What is wrong with it.
        why: BadName,
    },
    /// `socket_id` is not `digits.digits`.
    BadSocketId,
    /// Both `channel` and `channels`.
    BothChannels,
    /// More data than the limit.
    DataTooLong {
        /// Its bytes.
        len: usize,
        /// The most it may have.
        max: usize,
    },
    /// The field is absent, null or empty.
    Missing(&'static str),
    /// An event name that is too long.
    NameTooLong {
        /// Its characters.
        len: usize,
    },
    /// JSON, but not an object.
    NotAnObject,
    /// Not JSON; where reading stopped.
    NotJson {
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
    },
    /// The field is not a list of strings.
    NotAList(&'static str),
    /// The field is not a string.
    NotText(&'static str),
    /// Not UTF-8.
    NotUtf8,
    /// One of the API's fields came twice.
    Repeated,
    /// An event name with a prefix of the protocol.
    ReservedName,
    /// More channels than one call may name.
    TooManyChannels {
        /// How many.
        count: usize,
    },
}

impl BadBody {
    /// The HTTP status to answer with: 413 for too much data, else 400.
    pub const fn status(self) -> u16 {
        match self {
            Self::DataTooLong { .. } => 413,
            _ => 400,
        }
    }
}

impl fmt::Display for BadBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BadChannel { index, why } => write!(f, "channels[{index}]: {why}"),
            Self::BadSocketId => f.write_str("socket_id: send digits.digits, such as 123.456"),
            Self::BothChannels => f.write_str("channel and channels: send one of them"),
            Self::DataTooLong { len, max } => {
                write!(f, "data: {len} bytes, the limit is {max}: send less")
            }
            Self::Missing(field) => write!(f, "{field}: missing or empty, send it"),
            Self::NameTooLong { len } => {
                write!(f, "name: {len} characters, the limit is {MAX_EVENT_NAME}: shorten it")
            }
            Self::NotAList("batch") => f.write_str("batch: send a list of events"),
            Self::NotAList(field) => write!(f, "{field}: send a list of strings"),
            Self::NotAnObject => f.write_str("body: send a JSON object"),
            Self::NotJson { line, column } => {
                write!(f, "body: not JSON at line {line} column {column}")
            }
            Self::NotText(field) => {
                write!(f, "{field}: send a JSON string (encode objects as text)")
            }
            Self::NotUtf8 => f.write_str("body: not UTF-8"),
            Self::Repeated => f.write_str("body: holds a field twice, send each once"),
            Self::ReservedName => {
                f.write_str("name: pusher: and pusher_internal: are reserved, use another prefix")
            }
            Self::TooManyChannels { count } => {
                write!(f, "channels: {count} named, the limit is {MAX_CHANNELS}: split the call")
            }
        }
    }
}

impl core::error::Error for BadBody {}

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    channel: Option<&'a RawValue>,
    #[serde(borrow)]
    channels: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    socket_id: Option<&'a RawValue>,
}

/// Reads the body of `POST /events` within the bounds of hosted Pusher.
pub fn trigger(body: &[u8]) -> Result<Trigger, BadBody> {
    trigger_within(body, Bounds::default())
}

/// Reads the body of `POST /events`.
///
/// Unknown fields are ignored. Cost: O(bytes of the body) and 100 x 100 comparisons of names.
pub fn trigger_within(body: &[u8], bounds: Bounds) -> Result<Trigger, BadBody> {
    let fields: Fields<'_> = fields(body)?;
    let name = name(text(fields.name, "name")?)?;
    let channels = channels(&fields, bounds.channel)?;
    let data = data(text(fields.data, "data")?, bounds.data)?;
    let socket_id = socket_id(text(fields.socket_id, "socket_id")?)?;
    Ok(Trigger { name, channels, data, socket_id, info: text(fields.info, "info")? })
}

/// Reads `POST /events` from its query: what a call without a body says. Several channels are
/// `channels[]=a&channels[]=b`.
///
/// Cost: O(bytes of the query) for each of its fields, and 100 x 100 comparisons of names.
pub fn trigger_of_query(query: &str, bounds: Bounds) -> Result<Trigger, BadBody> {
    let name = name(parameter(query, "name"))?;
    // A plain `channels` is signed as a list of the same names is, and would be one name.
    let items = || http::pairs(query).filter(|(key, _)| list_of(key) == Some("channels"));
    let named = match (parameter(query, "channel"), items().count()) {
        (None, 0) => return Err(BadBody::Missing("channels")),
        (Some(channel), 0) => Vec::from([channel]),
        (None, 1..=MAX_CHANNELS) => items().map(|(_, value)| value.into_owned()).collect(),
        (None, count) => return Err(BadBody::TooManyChannels { count }),
        (Some(_), _) => return Err(BadBody::BothChannels),
    };
    let channels = unique(named, bounds.channel)?;
    let data = data(parameter(query, "data"), bounds.data)?;
    let socket_id = socket_id(parameter(query, "socket_id"))?;
    Ok(Trigger { name, channels, data, socket_id, info: parameter(query, "info") })
}

/// A parameter of a query; the items of a list, `name[]` or `name[0]`, joined by commas.
pub fn parameter(query: &str, name: &str) -> Option<String> {
    let plain = http::pairs(query).find(|(key, _)| key == name);
    if let Some((_, value)) = plain {
        return Some(value.into_owned());
    }
    let items = http::pairs(query).filter(|(key, _)| list_of(key) == Some(name));
    let values: Vec<_> = items.map(|(_, value)| value).collect();
    (!values.is_empty()).then(|| values.join(","))
}

/// The list that a parameter is an item of: `a` of `a[]` and of `a[0]`.
fn list_of(name: &str) -> Option<&str> {
    name.strip_suffix(']')?.rsplit_once('[').map(|(list, _)| list)
}

/// Reads the deprecated `POST /channels/{channel}/events`: the event's name and perhaps a socket id
/// in the query, and the data as it is in the body.
///
/// Unknown parameters are ignored. Cost: O(bytes of query and body).
pub fn channel_event(
    channel: &str,
    query: &str,
    body: &[u8],
    bounds: Bounds,
) -> Result<Trigger, BadBody> {
    let name = name(parameter(query, "name"))?;
    let channels = unique(Vec::from([String::from(channel)]), bounds.channel)?;
    let data = core::str::from_utf8(body).map_err(|_| BadBody::NotUtf8)?;
    if data.len() > bounds.data {
        return Err(BadBody::DataTooLong { len: data.len(), max: bounds.data });
    }
    let socket_id = socket_id(parameter(query, "socket_id"))?;
    Ok(Trigger { name, channels, data: String::from(data), socket_id, info: None })
}

/// Why a batch is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadBatch {
    /// The body as a whole.
    Body(BadBody),
    /// This event, counted from 0.
    Event {
        /// Its place in the batch.
        index: usize,
        /// What is wrong with it.
        why: BadBody,
    },
    /// More events than a batch may have.
    TooMany {
        /// How many.
        count: usize,
        /// The most it may have.
        max: usize,
    },
}

impl BadBatch {
    /// The HTTP status to answer with.
    pub const fn status(self) -> u16 {
        match self {
            Self::Body(why) | Self::Event { why, .. } => why.status(),
            Self::TooMany { .. } => 400,
        }
    }
}

impl fmt::Display for BadBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Body(why) => why.fmt(f),
            Self::Event { index, why } => write!(f, "batch[{index}]: {why}"),
            Self::TooMany { count, max } => {
                write!(f, "batch: {count} events, the limit is {max}: split the call")
            }
        }
    }
}

impl core::error::Error for BadBatch {}

#[derive(Deserialize)]
struct BatchFields<'a> {
    #[serde(borrow)]
    batch: Option<&'a RawValue>,
}

/// Reads the body of `POST /batch_events` within the bounds of hosted Pusher.
pub fn batch(body: &[u8]) -> Result<Vec<Trigger>, BadBatch> {
    batch_within(body, Bounds::default())
}

/// Reads the body of `POST /batch_events`: its events in order, each as
/// [`trigger_within`] reads it. Cost: O(bytes of the body), and what each event costs.
pub fn batch_within(body: &[u8], bounds: Bounds) -> Result<Vec<Trigger>, BadBatch> {
    const FIELD: &str = "batch";
    let fields: BatchFields<'_> = fields(body).map_err(BadBatch::Body)?;
    let raw = fields.batch.ok_or(BadBatch::Body(BadBody::Missing(FIELD)))?;
    let list: List<'_> =
        serde_json::from_str(raw.get()).map_err(|_| BadBatch::Body(BadBody::NotAList(FIELD)))?;
    let max = bounds.batch.min(MAX_CHANNELS);
    match list.count {
        0 => Err(BadBatch::Body(BadBody::Missing(FIELD))),
        count if count > max => Err(BadBatch::TooMany { count, max }),
        _ => (0..)
            .zip(list.items)
            .map(|(index, raw)| {
                let read = trigger_within(raw.get().as_bytes(), bounds);
                read.map_err(|why| BadBatch::Event { index, why })
            })
            .collect(),
    }
}

fn fields<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, BadBody> {
    let body = core::str::from_utf8(body).map_err(|_| BadBody::NotUtf8)?;
    let not_json =
        |error: &serde_json::Error| BadBody::NotJson { line: error.line(), column: error.column() };
    if !json::is_object(body) {
        return Err(match serde_json::from_str::<&RawValue>(body) {
            Ok(_) => BadBody::NotAnObject,
            Err(error) => not_json(&error),
        });
    }
    serde_json::from_str(body).map_err(|error| match error.classify() {
        Category::Data => BadBody::Repeated,
        _ => not_json(&error),
    })
}

fn text(raw: Option<&RawValue>, field: &'static str) -> Result<Option<String>, BadBody> {
    let Some(raw) = raw else { return Ok(None) };
    let text = json::text(raw).ok_or(BadBody::NotText(field))?;
    Ok(Some(text.into_owned()))
}

fn name(name: Option<String>) -> Result<String, BadBody> {
    let name = name.filter(|name| !name.is_empty()).ok_or(BadBody::Missing("name"))?;
    let len = name.chars().count();
    if len > MAX_EVENT_NAME {
        return Err(BadBody::NameTooLong { len });
    }
    if name.starts_with("pusher:") || name.starts_with("pusher_internal:") {
        return Err(BadBody::ReservedName);
    }
    Ok(name)
}

fn data(data: Option<String>, max: usize) -> Result<String, BadBody> {
    let data = data.ok_or(BadBody::Missing("data"))?;
    match data.len() {
        len if len > max => Err(BadBody::DataTooLong { len, max }),
        _ => Ok(data),
    }
}

fn socket_id(id: Option<String>) -> Result<Option<String>, BadBody> {
    match &id {
        Some(id) if !check_socket_id(id) => Err(BadBody::BadSocketId),
        _ => Ok(id),
    }
}

/// The channels of either field, checked, each once.
fn channels(fields: &Fields<'_>, max: usize) -> Result<Vec<String>, BadBody> {
    let named = match (text(fields.channel, "channel"), fields.channels) {
        (Ok(None), None) => return Err(BadBody::Missing("channels")),
        (Ok(None), Some(raw)) => list(raw)?,
        (Ok(Some(channel)), None) => Vec::from([channel]),
        (Err(error), None) => return Err(error),
        (_, Some(_)) => return Err(BadBody::BothChannels),
    };
    unique(named, max)
}

/// Checked names, each once.
fn unique(named: Vec<String>, max: usize) -> Result<Vec<String>, BadBody> {
    let mut unique = Vec::with_capacity(named.len());
    for (index, channel) in named.into_iter().enumerate() {
        let user = channel.len() <= max && pusher::server_to_user(&channel).is_some();
        if !user {
            pusher::check_channel(&channel, max)
                .map_err(|why| BadBody::BadChannel { index, why })?;
        }
        if !unique.contains(&channel) {
            unique.push(channel);
        }
    }
    Ok(unique)
}

fn list(raw: &RawValue) -> Result<Vec<String>, BadBody> {
    const FIELD: &str = "channels";
    let list: List<'_> = serde_json::from_str(raw.get()).map_err(|_| BadBody::NotAList(FIELD))?;
    match list.count {
        0 => Err(BadBody::Missing(FIELD)),
        1..=MAX_CHANNELS => {
            let texts = list.items.into_iter();
            texts.map(|raw| json::text(raw).map(|text| text.into_owned())).collect::<Option<_>>()
        }
        .ok_or(BadBody::NotAList(FIELD)),
        count => Err(BadBody::TooManyChannels { count }),
    }
}

/// A list of which the first [`MAX_CHANNELS`] items are kept and the rest counted.
struct List<'a> {
    count: usize,
    items: Vec<&'a RawValue>,
}

impl<'de> Deserialize<'de> for List<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items;
        impl<'de> Visitor<'de> for Items {
            type Value = List<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List<'de>, A::Error> {
                let mut list = List { count: 0, items: Vec::new() };
                while let Some(item) = seq.next_element()? {
                    list.count += 1;
                    if list.count <= MAX_CHANNELS {
                        list.items.push(item);
                    }
                }
                Ok(list)
            }
        }
        deserializer.deserialize_seq(Items)
    }
}

/// Whether it is `digits.digits`, as every client library demands.
pub fn check_socket_id(id: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    id.split_once('.').is_some_and(|(left, right)| digits(left) && digits(right))
}

/// The text that a request's signature covers.
///
/// `METHOD`, `path` as it was sent, and the pairs of `query` without `auth_signature`: decoded,
/// names in lower case, sorted by name (equal names stay in order), `name=value` joined by `&`.
/// Cost: O(n log n) in the pairs, which the limit on heads bounds.
pub fn string_to_sign(method: &str, path: &str, query: &str) -> String {
    let mut pairs = lowered(query);
    pairs.sort_by(|(left, _), (right, _)| left.cmp(right));
    signed(method, path, &pairs)
}

/// The same as libraries sign it that join lists: `a[0]=x&a[1]=y` is `a=x,y`, in the order in which
/// the items came. None when the query holds no list.
pub fn string_to_sign_joined(method: &str, path: &str, query: &str) -> Option<String> {
    let mut joined: Vec<(String, String)> = Vec::new();
    let mut items: Vec<(String, String)> = Vec::new();
    for (name, value) in lowered(query) {
        match list_of(&name) {
            Some(list) => items.push((list.into(), value)),
            None => joined.push((name, value)),
        }
    }
    items.sort_by(|(left, _), (right, _)| left.cmp(right));
    for list in items.chunk_by(|(left, _), (right, _)| left == right) {
        let values: Vec<&str> = list.iter().map(|(_, value)| &**value).collect();
        joined.push((list[0].0.clone(), values.join(",")));
    }
    joined.sort_by(|(left, _), (right, _)| left.cmp(right));
    (!items.is_empty()).then(|| signed(method, path, &joined))
}

/// What is signed of a query.
fn lowered(query: &str) -> Vec<(String, String)> {
    http::pairs(query)
        .map(|(name, value)| (name.to_lowercase(), value.into_owned()))
        .filter(|(name, _)| name != "auth_signature")
        .collect()
}

fn signed(method: &str, path: &str, pairs: &[(String, String)]) -> String {
    let length: usize = pairs.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    let mut out = String::with_capacity(method.len() + path.len() + length + 2);
    for part in [method, "\n", path, "\n"] {
        out.push_str(part);
    }
    for (index, (name, value)) in pairs.iter().enumerate() {
        for part in [if index == 0 { "" } else { "&" }, name, "=", value] {
            out.push_str(part);
        }
    }
    out
}

#[cfg(test)]
mod tests;
