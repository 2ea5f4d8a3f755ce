//! Request heads (RFC 9112 §2 to §6, RFC 6455 §4.2.1) and whole small responses.
//!
//! Bounds: a head is at most [`MAX_HEAD`] bytes with at most [`MAX_HEADERS`] fields; parsing
//! allocates nothing and borrows everything from the buffer. Bodies are framed by Content-Length
//! alone: any Transfer-Encoding is refused, and so is whatever two parsers could read differently
//! (repeated lengths, folded lines, blanks before a colon), so that no request can hide in
//! another one.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

/// The longest head, with its blank line.
pub const MAX_HEAD: usize = 8 * 1024;

/// The most header fields.
pub const MAX_HEADERS: usize = 64;

/// What a buffer begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parse<'a> {
    /// A head that may still become whole: read more.
    NeedMore,
    /// A whole head.
    Head(Head<'a>),
}

/// A request head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// Bytes of the head with its blank line: the body begins here.
    pub len: usize,
    /// As sent: methods are case-sensitive.
    pub method: &'a str,
    /// As sent, not decoded; begins with `/`.
    pub path: &'a str,
    /// What follows the first `?`, not decoded; empty when there is none.
    pub query: &'a str,
    /// Bytes of the body; 0 when the field is absent.
    pub content_length: u64,
    /// Whether the connection stays open after the response.
    pub keep_alive: bool,
    /// Whether the response may come in chunks: not over HTTP/1.0.
    pub takes_chunks: bool,
    /// Whether the client waits for `100 Continue` before it sends its body.
    pub expect_continue: bool,
    /// The Host field.
    pub host: Option<&'a str>,
    /// The Origin field, which browsers send.
    pub origin: Option<&'a str>,
    /// Present when a GET of HTTP/1.1 asks for `websocket` in Connection and Upgrade.
    pub upgrade: Option<Upgrade<'a>>,
}

/// A WebSocket handshake of version 13.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upgrade<'a> {
    /// Sec-WebSocket-Key: 16 bytes in base64.
    pub key: &'a str,
}

/// Why a request is refused. The connection ends: where its next request begins is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Content-Length that is not a decimal number below 2^64.
    BadContentLength,
    /// Sec-WebSocket-Key that is not 16 bytes in base64.
    BadKey,
    /// A target that is neither a path nor a URL.
    BadTarget,
    /// Both Content-Length and Transfer-Encoding.
    BothLengths,
    /// A body in chunks.
    ChunkedBody,
    /// More than [`MAX_HEAD`] bytes.
    HeadTooLong,
    /// Bytes that are no request of HTTP/1; the part that is wrong.
    Malformed(&'static str),
    /// A request of HTTP/1.1 without Host.
    MissingHost,
    /// A handshake without Sec-WebSocket-Key.
    MissingKey,
    /// The value of this field is not text.
    NotText(&'static str),
    /// This field came twice.
    Repeated(&'static str),
    /// More than [`MAX_HEADERS`] fields.
    TooManyHeaders,
    /// A Transfer-Encoding that is not known here.
    TransferCoding,
    /// An HTTP version other than 1.0 and 1.1.
    Version,
    /// A handshake whose Sec-WebSocket-Version is not 13.
    WebSocketVersion,
}

impl Fault {
    /// The HTTP status to answer with.
    pub const fn status(self) -> u16 {
        match self {
            Self::BadContentLength
            | Self::BadKey
            | Self::BadTarget
            | Self::BothLengths
            | Self::Malformed(_)
            | Self::MissingHost
            | Self::MissingKey
            | Self::NotText(_)
            | Self::Repeated(_) => 400,
            Self::ChunkedBody => 411,
            Self::WebSocketVersion => 426,
            Self::HeadTooLong | Self::TooManyHeaders => 431,
            Self::TransferCoding => 501,
            Self::Version => 505,
        }
    }

    /// The whole response: the sentence of `Display` as plain text, and `Connection: close`.
    pub fn response(self) -> Vec<u8> {
        let headers: &[_] = match self {
            Self::WebSocketVersion => &[("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")],
            _ => &[],
        };
        let body = format!("{self}\n");
        let content = Content { content_type: PLAIN, headers, body: body.as_bytes() };
        response_with(self.status(), false, content)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BadContentLength => f.write_str("Content-Length: send one decimal number"),
            Self::BadKey => f.write_str("Sec-WebSocket-Key: send 16 random bytes in base64"),
            Self::BadTarget => f.write_str("request target: send a path that begins with /"),
            Self::BothLengths => {
                f.write_str("Content-Length and Transfer-Encoding: send Content-Length alone")
            }
            Self::ChunkedBody => {
                f.write_str("Transfer-Encoding: chunked is not served, send Content-Length")
            }
            Self::HeadTooLong => {
                write!(f, "request head of more than {MAX_HEAD} bytes: send a shorter one")
            }
            Self::Malformed(part) => write!(f, "not an HTTP/1 request: bad {part}"),
            Self::MissingHost => f.write_str("Host: missing, send one"),
            Self::MissingKey => f.write_str("Sec-WebSocket-Key: missing, send one"),
            Self::NotText(field) => write!(f, "{field}: the value is not text"),
            Self::Repeated(field) => write!(f, "{field}: sent more than once, send one"),
            Self::TooManyHeaders => {
                write!(f, "more than {MAX_HEADERS} header fields: send fewer")
            }
            Self::TransferCoding => {
                f.write_str("Transfer-Encoding: not served, send Content-Length")
            }
            Self::Version => f.write_str("HTTP version: speak HTTP/1.1"),
            Self::WebSocketVersion => f.write_str("Sec-WebSocket-Version: send 13"),
        }
    }
}

impl core::error::Error for Fault {}

/// Parses the head at the front of `buf`.
///
/// Cost: O(bytes of the head), from its start on each call. At [`MAX_HEAD`] bytes without a blank
/// line the answer is [`Fault::HeadTooLong`], so a buffer of that size always suffices.
pub fn parse(buf: &[u8]) -> Result<Parse<'_>, Fault> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let len = match request.parse(&buf[..buf.len().min(MAX_HEAD)]) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if buf.len() >= MAX_HEAD => return Err(Fault::HeadTooLong),
        Ok(httparse::Status::Partial) => return Ok(Parse::NeedMore),
        Err(error) => return Err(syntax(error)),
    };
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version)
    else {
        return Err(Fault::Malformed("request line"));
    };
    let mut fields = Fields::default();
    for header in request.headers.iter() {
        fields.read(header.name, header.value)?;
    }
    if minor == 1 && fields.host.is_none() {
        return Err(Fault::MissingHost);
    }
    let (path, query) = split_target(target)?;
    let upgrade = if minor == 1 && method == "GET" { fields.handshake()? } else { None };
    Ok(Parse::Head(Head {
        len,
        method,
        path,
        query,
        content_length: fields.body_length()?,
        keep_alive: !fields.close && (minor == 1 || fields.keep_alive),
        takes_chunks: minor == 1,
        expect_continue: fields.expect_continue,
        host: fields.host,
        origin: fields.origin,
        upgrade,
    }))
}

fn syntax(error: httparse::Error) -> Fault {
    use httparse::Error;
    match error {
        Error::HeaderName => Fault::Malformed("header name"),
        Error::HeaderValue => Fault::Malformed("header value"),
        Error::NewLine => Fault::Malformed("line end"),
        Error::Status => Fault::Malformed("status"),
        Error::Token => Fault::Malformed("request line"),
        Error::TooManyHeaders => Fault::TooManyHeaders,
        Error::Version => Fault::Version,
    }
}

/// Path and query of a target in origin form or absolute form (RFC 9112 §3.2).
fn split_target(target: &str) -> Result<(&str, &str), Fault> {
    let origin = if target.starts_with('/') {
        target
    } else {
        let (scheme, rest) = target.split_once("://").ok_or(Fault::BadTarget)?;
        if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
            return Err(Fault::BadTarget);
        }
        &rest[rest.find('/').ok_or(Fault::BadTarget)?..]
    };
    Ok(origin.split_once('?').unwrap_or((origin, "")))
}

/// The header fields that matter here.
#[derive(Default)]
struct Fields<'a> {
    close: bool,
    coding: Option<&'a str>,
    expect_continue: bool,
    host: Option<&'a str>,
    keep_alive: bool,
    key: Option<&'a str>,
    length: Option<&'a str>,
    origin: Option<&'a str>,
    /// `upgrade` among the options of Connection.
    upgrade: bool,
    version: Option<&'a str>,
    /// `websocket` among the protocols of Upgrade.
    websocket: bool,
}

impl<'a> Fields<'a> {
    fn read(&mut self, name: &str, value: &'a [u8]) -> Result<(), Fault> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("Connection") {
            for option in list(value) {
                self.close |= option.eq_ignore_ascii_case(b"close");
                self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                self.upgrade |= option.eq_ignore_ascii_case(b"upgrade");
            }
        } else if is("Upgrade") {
            self.websocket |= list(value).any(|name| name.eq_ignore_ascii_case(b"websocket"));
        } else if is("Expect") {
            self.expect_continue |= value.trim_ascii().eq_ignore_ascii_case(b"100-continue");
        } else if is("Content-Length") {
            once(&mut self.length, "Content-Length", value)?;
        } else if is("Host") {
            once(&mut self.host, "Host", value)?;
        } else if is("Origin") {
            once(&mut self.origin, "Origin", value)?;
        } else if is("Sec-WebSocket-Key") {
            once(&mut self.key, "Sec-WebSocket-Key", value)?;
        } else if is("Sec-WebSocket-Version") {
            once(&mut self.version, "Sec-WebSocket-Version", value)?;
        } else if is("Transfer-Encoding") {
            once(&mut self.coding, "Transfer-Encoding", value)?;
        }
        Ok(())
    }

    fn body_length(&self) -> Result<u64, Fault> {
        match (self.length, self.coding) {
            (Some(_), Some(_)) => Err(Fault::BothLengths),
            (None, Some(coding)) if coding.eq_ignore_ascii_case("chunked") => {
                Err(Fault::ChunkedBody)
            }
            (None, Some(_)) => Err(Fault::TransferCoding),
            (Some(length), None) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
                length.parse().map_err(|_| Fault::BadContentLength)
            }
            (Some(_), None) => Err(Fault::BadContentLength),
            (None, None) => Ok(0),
        }
    }

    fn handshake(&self) -> Result<Option<Upgrade<'a>>, Fault> {
        if !self.upgrade || !self.websocket {
            return Ok(None);
        }
        if self.version != Some("13") {
            return Err(Fault::WebSocketVersion);
        }
        let key = self.key.ok_or(Fault::MissingKey)?;
        // 24 characters decode into at most 18 bytes; anything longer does not fit.
        let mut nonce = [0; 18];
        match STANDARD.decode_slice(key, &mut nonce) {
            Ok(16) => Ok(Some(Upgrade { key })),
            _ => Err(Fault::BadKey),
        }
    }
}

/// Stores the value of a field that may come once.
fn once<'a>(field: &mut Option<&'a str>, name: &'static str, value: &'a [u8]) -> Result<(), Fault> {
    let text = core::str::from_utf8(value).map_err(|_| Fault::NotText(name))?;
    match field.replace(text.trim_ascii()) {
        None => Ok(()),
        Some(_) => Err(Fault::Repeated(name)),
    }
}

/// The members of a comma-separated list.
fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// The whole 101 response to a handshake with this key (RFC 6455 §4.2.2).
pub fn switching_protocols(key: &str) -> Vec<u8> {
    const HEAD: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
        Connection: Upgrade\r\nSec-WebSocket-Accept: ";
    const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let digest = Sha1::new().chain_update(key).chain_update(GUID).finalize();
    let mut accept = [0; 28];
    STANDARD.encode_slice(digest, &mut accept).expect("20 bytes are 28 characters in base64");
    [HEAD, &accept, b"\r\n\r\n"].concat()
}

/// The content type of plain text.
pub const PLAIN: &str = "text/plain; charset=utf-8";

/// What a response carries besides its status.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// The Content-Type field.
    pub content_type: &'a str,
    /// More fields, such as Retry-After. Names and values must hold no line break (asserted in
    /// debug builds).
    pub headers: &'a [(&'a str, &'a str)],
    /// The body.
    pub body: &'a [u8],
}

/// How long the body of a response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// It comes in chunks: see [`chunk`].
    Chunks,
    /// There is none, and nothing says so: for status 204.
    None,
    /// It ends with the connection.
    UntilEnd,
}

/// The head of a response without Content-Length.
pub fn response_head(
    status: u16,
    keep_alive: bool,
    length: Length,
    headers: &[(&str, &str)],
) -> Vec<u8> {
    let mut out = format!("HTTP/1.1 {status} {}\r\n", reason(status)).into_bytes();
    let coding = (length == Length::Chunks).then_some(("Transfer-Encoding", "chunked"));
    let connection = ("Connection", if keep_alive { "keep-alive" } else { "close" });
    for (name, value) in coding.iter().chain([&connection]).chain(headers) {
        debug_assert!(!name.contains(['\r', '\n']) && !value.contains(['\r', '\n']), "{name}");
        for part in [name, ": ", value, "\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// Appends a chunk of a body (RFC 9112 §7.1). Without bytes it appends nothing: an empty chunk is
/// the end of a body.
pub fn chunk(out: &mut Vec<u8>, bytes: &[u8]) {
    if !bytes.is_empty() {
        out.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
    }
}

/// The end of a body in chunks.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// A whole response with Content-Length, in one allocation.
pub fn response(status: u16, content_type: &str, keep_alive: bool, body: &[u8]) -> Vec<u8> {
    response_with(status, keep_alive, Content { content_type, headers: &[], body })
}

/// A whole response with further header fields.
pub fn response_with(status: u16, keep_alive: bool, content: Content<'_>) -> Vec<u8> {
    let status_text = status.to_string();
    let length = content.body.len().to_string();
    let fixed = [
        ("Content-Type", content.content_type),
        ("Content-Length", length.as_str()),
        ("Connection", if keep_alive { "keep-alive" } else { "close" }),
    ];
    let fields = || fixed.iter().chain(content.headers);
    let size = fields().map(|(name, value)| name.len() + value.len() + 4).sum::<usize>();
    let reason = reason(status);
    let mut out = Vec::with_capacity(17 + reason.len() + size + content.body.len());
    for part in ["HTTP/1.1 ", &status_text, " ", reason, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    for (name, value) in fields() {
        debug_assert!(!name.contains(['\r', '\n']) && !value.contains(['\r', '\n']), "{name}");
        for part in [name, ": ", value, "\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(content.body);
    out
}

/// The reason phrase; empty for a status that is not sent here.
const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        202 => "Accepted",
        204 => "No Content",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        411 => "Length Required",
        413 => "Content Too Large",
        417 => "Expectation Failed",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

/// The pairs of a query or form, in order, with `%XX` and `+` decoded.
///
/// A `%` without two hex digits stays as it is; bytes that are not UTF-8 become U+FFFD; empty
/// pairs are skipped and a missing `=` means an empty value. Allocates only for what is encoded.
pub fn pairs(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name, b' '), decode(value, b' '))
    })
}

/// One segment of a path, decoded; what is not encoded well, stays. A plus is a plus there.
pub fn decode_segment(text: &str) -> Cow<'_, str> {
    decode(text, b'+')
}

fn decode(text: &str, plus: u8) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'%', &[high, low, ref after @ ..]) => match (hex(high), hex(low)) {
                (Some(high), Some(low)) => {
                    out.push(high << 4 | low);
                    rest = after;
                }
                _ => out.push(b'%'),
            },
            (b'+', _) => out.push(plus),
            _ => out.push(byte),
        }
    }
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Cow::Owned(String::from_utf8(out).unwrap_or_else(|error| lossy(error.as_bytes())))
}

const fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
