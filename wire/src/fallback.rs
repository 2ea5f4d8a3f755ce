//! The HTTP fallback of Pusher clients: WebSocket messages as lines of a response, and the other
//! way as bodies of requests. A dialect of SockJS 0.3; `pusher-js`, `src/core/http`, is what it
//! follows.
//!
//! | line | meaning | as a WebSocket |
//! |---|---|---|
//! | `o` | the session is new | the handshake is over |
//! | `a["…","…"]` | messages | text messages |
//! | `a[]` | a sign of life, which is not answered | a pong |
//! | `h` | asks for a sign of life | a ping, or `pusher:ping` |
//! | `c[4200,"…"]` | the session is over | a close frame |
//!
//! A client posts a JSON array of messages; an empty one is its ping.
//!
//! Bounds: a batch is what was pushed into it; a body is as long as the caller lets it be, and no
//! message of it is longer than the caller says.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::error::Category;

use crate::json::{self, Part};
use crate::pusher;
use crate::ws::{self, Opcode};

/// So many characters of one response, and the client that has them all asks for the next one. It
/// loses what comes behind them.
pub const RESPONSE_CHARS: u64 = 256 << 10;

/// Lines on their way to a client.
#[derive(Debug, Default)]
pub struct Batch {
    out: Vec<u8>,
    /// The last line is an array of messages, and has no end.
    is_open: bool,
}

impl Batch {
    /// Says that the session is new.
    pub fn open(&mut self) {
        self.line(b"o");
    }

    /// Adds whole frames of a server. Bytes that are none are left out: nobody sends such.
    /// Cost: O(bytes).
    pub fn push(&mut self, mut frames: &[u8]) {
        while let Some((opcode, payload, rest)) = split(frames) {
            self.frame(opcode, payload);
            frames = rest;
        }
        debug_assert!(frames.is_empty(), "only whole frames");
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether there is no line.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// The lines, each with its end.
    pub fn finish(mut self) -> Vec<u8> {
        self.end_messages();
        self.out
    }

    fn frame(&mut self, opcode: u8, payload: &[u8]) {
        match opcode {
            TEXT if payload.starts_with(PING.as_bytes()) => self.line(b"h"),
            TEXT => self.message(&String::from_utf8_lossy(payload)),
            PING_FRAME => self.line(b"h"),
            PONG_FRAME => self.line(b"a[]"),
            CLOSE => self.close(payload),
            _ => debug_assert!(false, "a server sends no frame of kind {opcode}"),
        }
    }

    fn message(&mut self, text: &str) {
        let before = if self.is_open { "," } else { "a[" };
        self.is_open = true;
        json::write(&mut self.out, &[Part::Raw(before), Part::Quoted(text)]);
    }

    fn close(&mut self, payload: &[u8]) {
        // A close frame without a code means the same as this one to a client.
        let (code, reason) = match payload {
            [high, low, reason @ ..] => (u16::from_be_bytes([*high, *low]), reason),
            _ => (1000, &b""[..]),
        };
        self.end_messages();
        let (code, reason) = (alloc::format!("c[{code},"), String::from_utf8_lossy(reason));
        let parts = [Part::Raw(&code), Part::Quoted(&reason), Part::Raw("]\n")];
        json::write(&mut self.out, &parts);
    }

    fn line(&mut self, line: &[u8]) {
        self.end_messages();
        self.out.extend_from_slice(line);
        self.out.push(b'\n');
    }

    fn end_messages(&mut self) {
        if core::mem::take(&mut self.is_open) {
            self.out.extend_from_slice(b"]\n");
        }
    }
}

const TEXT: u8 = 0x1;
const CLOSE: u8 = 0x8;
const PING_FRAME: u8 = 0x9;
const PONG_FRAME: u8 = 0xA;

/// How the message begins that asks for a sign of life. No publisher can send one like it.
const PING: &str = r#"{"event":"pusher:ping","#;

/// The first frame, without a mask: its kind, its payload, and what is behind it.
fn split(frames: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[first, second], rest) = frames.split_first_chunk()?;
    let (len, rest) = match second {
        126 => {
            let (len, rest) = rest.split_first_chunk()?;
            (u64::from(u16::from_be_bytes(*len)), rest)
        }
        127 => {
            let (len, rest) = rest.split_first_chunk()?;
            (u64::from_be_bytes(*len), rest)
        }
        short => (u64::from(short), rest),
    };
    let (payload, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
    Some((first & 0xF, payload, rest))
}

/// The length of these lines as a client counts it, in UTF-16 code units: what UTF-8 has four bytes
/// for is two of them.
pub fn chars(lines: &[u8]) -> u64 {
    let units = |byte: &u8| u64::from(byte & 0xC0 != 0x80) + u64::from(*byte >= 0xF0);
    lines.iter().map(units).sum()
}

/// Why a body is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadSend {
    /// Not an array of strings.
    NotMessages,
    /// Not JSON in UTF-8.
    NotJson,
    /// A message of more than so many bytes.
    TooLong(usize),
}

impl fmt::Display for BadSend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMessages => f.write_str("body: send a JSON array of strings"),
            Self::NotJson => f.write_str("body: not JSON"),
            Self::TooLong(max) => write!(f, "body: a message is longer than {max} bytes"),
        }
    }
}

impl core::error::Error for BadSend {}

/// The body of an `xhr_send` as frames of a client, each a message of at most `max` bytes; a ping
/// where it holds none. Cost: O(bytes).
pub fn frames(body: &[u8], max: usize) -> Result<Vec<u8>, BadSend> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let mut out = Vec::with_capacity(body.len() + ws::MAX_HEAD);
    let read = reader.deserialize_seq(Messages { out: &mut out, max });
    let is_too_long = read.and_then(|fits| reader.end().map(|()| !fits));
    match is_too_long {
        Ok(false) if out.is_empty() => Ok(sign_of_life(Opcode::Ping)),
        Ok(false) => Ok(out),
        Ok(true) => Err(BadSend::TooLong(max)),
        Err(error) if error.classify() == Category::Data => Err(BadSend::NotMessages),
        Err(_) => Err(BadSend::NotJson),
    }
}

/// What a client says by asking for a response: that it is there.
pub fn here() -> Vec<u8> {
    sign_of_life(Opcode::Pong)
}

fn sign_of_life(opcode: Opcode) -> Vec<u8> {
    let mut frame = Vec::with_capacity(6);
    put(&mut frame, opcode, b"");
    frame
}

/// Appends a frame as clients send them, under a mask that changes nothing.
fn put(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8]) {
    const MASKED: u8 = 0x80;
    let at = out.len() + 1;
    out.extend_from_slice(ws::header(opcode, payload.len()).as_ref());
    out[at] |= MASKED;
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(payload);
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Reads the array; the value says whether all of its messages are short enough.
struct Messages<'a> {
    out: &'a mut Vec<u8>,
    max: usize,
}

impl<'de> Visitor<'de> for Messages<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of strings")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<bool, A::Error> {
        let mut fits = true;
        while let Some(Text(text)) = list.next_element()? {
            fits &= text.len() <= self.max;
            if fits {
                put(self.out, Opcode::Text, text.as_bytes());
            }
        }
        Ok(fits)
    }
}

/// A client that is not let in: what it is told instead of its first message.
pub fn refusal(code: u16, reason: &str) -> Vec<u8> {
    let mut batch = Batch::default();
    batch.open();
    // The first message is what the client takes for the result of its handshake.
    batch.push(&ws::frame(Opcode::Text, pusher::error(Some(code), reason).as_bytes()));
    batch.push(&ws::close_frame(code, reason));
    batch.finish()
}

#[cfg(test)]
mod tests;
