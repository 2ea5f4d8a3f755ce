//! Request heads and small responses.
use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::fmt;

/// The longest head.
pub const MAX_HEAD: usize = 8 * 1024;

/// What a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parse<'a> { /// The head is not complete.
    NeedMore, /// A head.
    Head(Head<'a>) }

/// A request head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "skeleton")]
pub struct Head<'a> { pub len: usize, pub method: &'a str, pub path: &'a str, pub query: &'a str, pub content_length: u64, pub keep_alive: bool, pub expect_continue: bool, pub host: Option<&'a str>, pub origin: Option<&'a str>, pub upgrade: Option<Upgrade<'a>> }
/// A WebSocket handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upgrade<'a> { /// Sec-WebSocket-Key.
    pub key: &'a str }

/// Why a head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "skeleton")]
pub enum Fault { HeadTooLong }
impl Fault { /// The HTTP status to answer with.
    pub fn status(self) -> u16 { todo!() }
    /// The whole response, which closes the connection.
    pub fn response(self) -> Vec<u8> { todo!() } }
impl fmt::Display for Fault { fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result { todo!() } }

/// Parses the head at the front of `buf`.
pub fn parse<'a>(_buf: &'a [u8]) -> Result<Parse<'a>, Fault> { todo!() }
/// The whole 101 response.
pub fn switching_protocols(_key: &str) -> Vec<u8> { todo!() }
/// A whole response.
pub fn response(_status: u16, _content_type: &str, _keep_alive: bool, _body: &[u8]) -> Vec<u8> { todo!() }
/// What a response carries besides its status.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "skeleton")]
pub struct Content<'a> { pub content_type: &'a str, pub headers: &'a [(&'a str, &'a str)], pub body: &'a [u8] }
/// A whole response with more headers.
pub fn response_with(_status: u16, _keep_alive: bool, _content: Content<'_>) -> Vec<u8> { todo!() }
/// The decoded pairs of a query.
pub fn pairs(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> { query.split('&').map(|_| todo!()) }
