//! The HTTP fallback of Pusher clients: what a request of it asks, and how its responses look.
//!
//! A session of the fallback is a [`Session`](super::Session) like that of a WebSocket. Its frames
//! leave in responses of other sessions, which speak HTTP, and come in as their bodies: who answers
//! whom, the host knows.

use super::MAX_MESSAGE;
use crate::socket_id::Key;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use sluicegate_wire::http::{self, Content, Head, Length};
use std::sync::Arc;

/// The longest body of an `xhr_send`: a message of which each character is escaped.
pub const MAX_SEND: usize = 2 * MAX_MESSAGE;

/// The name that a client gave its session, which is one of an app.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    key: Arc<str>,
    server: u16,
    session: [u8; 8],
}

impl Name {
    /// The name in a path; none where no client makes such a one.
    pub(super) fn new(key: &str, server: &str, session: &str) -> Option<Self> {
        let is_number = !server.is_empty() && server.bytes().all(|byte| byte.is_ascii_digit());
        let server = is_number.then(|| server.parse().ok())?.filter(|number| *number < 1000)?;
        let session: [u8; 8] = session.as_bytes().try_into().ok()?;
        let is_plain = session.iter().all(u8::is_ascii_alphanumeric) && !key.is_empty();
        is_plain.then(|| Self { key: key.into(), server, session })
    }

    /// The key of the app.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Which of so many shards has the session. Clients choose the name, and cannot choose the
    /// shard: the secret is not theirs.
    pub fn owner(&self, secret: &Key, shards: u32) -> u32 {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key of any length");
        mac.update(&self.server.to_le_bytes());
        mac.update(&self.session);
        mac.update(self.key.as_bytes());
        let bytes = mac.finalize().into_bytes();
        let (word, _) = bytes.split_first_chunk().expect("32 bytes");
        u32::from_le_bytes(*word) % shards
    }
}

/// What is asked of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `xhr`: the next lines, or those that come next.
    Poll,
    /// `xhr_send`: to take messages.
    Send,
    /// `xhr_streaming`: all lines from now on.
    Stream,
}

impl Verb {
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "xhr" => Self::Poll,
            "xhr_send" => Self::Send,
            "xhr_streaming" => Self::Stream,
            _ => return None,
        })
    }
}

/// A whole request of the fallback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// Of which session.
    pub name: Name,
    /// What is asked.
    pub verb: Verb,
    /// As sent: for a session that is new.
    pub query: String,
    /// The page that it is of.
    pub origin: Option<String>,
    /// Messages, where it brings some.
    pub body: Vec<u8>,
    /// Whether its response may come in chunks.
    pub chunked: bool,
}

impl Post {
    pub(super) fn new(name: Name, verb: Verb, head: &Head<'_>, body: &[u8]) -> Self {
        let body = if verb == Verb::Send { body.to_vec() } else { Vec::new() };
        let (query, origin) = (head.query.to_owned(), head.origin.map(str::to_owned));
        Self { name, verb, query, origin, body, chunked: head.takes_chunks }
    }
}

/// A part of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The beginning of one that goes on.
    Begin {
        /// Whether it comes in chunks, or ends with the connection.
        chunked: bool,
        /// The first lines.
        bytes: Vec<u8>,
    },
    /// Its last lines.
    End(Vec<u8>),
    /// More of it.
    More(Vec<u8>),
    /// All of it: a status and a body.
    Whole(u16, Vec<u8>),
}

/// What a request of the fallback is at.
#[derive(Debug, Default)]
pub(super) enum Exchange {
    /// There is none.
    #[default]
    None,
    /// It is whole, and the host does not know it yet.
    Asked(Box<Post>),
    /// Its response goes on.
    Streams { chunked: bool },
    /// Its response has not begun.
    Waits,
}

impl Exchange {
    pub(super) const fn is_chunked(&self) -> bool {
        matches!(self, Self::Streams { chunked: true })
    }
}

/// Any page may use the fallback, as any may open a WebSocket. Nothing between may keep, change or
/// hold back what is said.
const HEADERS: &[(&str, &str)] = &[
    ("Access-Control-Allow-Origin", "*"),
    ("Cache-Control", "no-store, no-transform"),
    ("X-Accel-Buffering", "no"),
    ("X-Content-Type-Options", "nosniff"),
];

/// What browsers are told that ask before they post JSON to another origin.
pub(super) const PREFLIGHT: &[(&str, &str)] = &[
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Allow-Methods", "POST, OPTIONS"),
    ("Access-Control-Allow-Headers", "Content-Type"),
    ("Access-Control-Max-Age", "86400"),
];

/// The type of lines: browsers hand over no type of text before they have looked at much of it.
const LINES: &str = "application/javascript; charset=utf-8";

pub(super) fn whole(status: u16, keep_alive: bool, body: &[u8]) -> Vec<u8> {
    if status == 204 {
        return http::response_head(status, keep_alive, Length::None, HEADERS);
    }
    let content_type = if status == 200 { LINES } else { http::PLAIN };
    http::response_with(status, keep_alive, Content { content_type, headers: HEADERS, body })
}

pub(super) fn stream_head(keep_alive: bool, chunked: bool) -> Vec<u8> {
    let length = if chunked { Length::Chunks } else { Length::UntilEnd };
    let headers = [HEADERS, &[("Content-Type", LINES)]].concat();
    http::response_head(200, keep_alive, length, &headers)
}

pub(super) fn put(out: &mut Vec<u8>, chunked: bool, bytes: &[u8]) {
    match chunked {
        true => http::chunk(out, bytes),
        false => out.extend_from_slice(bytes),
    }
}
