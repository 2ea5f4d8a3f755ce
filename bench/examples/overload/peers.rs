//! The two ends of the load as values: who reads events, and who publishes them.

use crate::support::masked;
use mio::net::TcpStream;
use std::io::{ErrorKind, Read, Write};

/// The most that is read of a socket at once.
const CHUNK: usize = 64 << 10;
/// Digits of the instant at the front of an event's data.
pub(crate) const STAMP: usize = 20;

/// How a connection looks after it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// More may be there at once.
    More,
    /// Nothing is there.
    Dry,
    /// The server has ended it.
    Over,
}

/// Reads a chunk behind what is kept.
fn read(stream: &mut TcpStream, kept: &mut Vec<u8>) -> Stream {
    let before = kept.len();
    kept.resize(before + CHUNK, 0);
    let outcome = loop {
        match stream.read(&mut kept[before..]) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            outcome => break outcome,
        }
    };
    kept.truncate(before + outcome.as_ref().map_or(0, |n| *n));
    match outcome {
        Ok(0) => Stream::Over,
        Ok(_) => Stream::More,
        Err(error) if error.kind() == ErrorKind::WouldBlock => Stream::Dry,
        Err(_) => Stream::Over,
    }
}

/// What one frame says to a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// An event that was published at this instant, in nanoseconds.
    Event(u64),
    /// It is asked for a sign of life.
    Ping,
    /// It is told to come back.
    Leave,
    Close(u16),
    Other,
}

/// A subscriber. It reads whatever comes.
pub(crate) struct Reader {
    /// Until the server has ended it.
    pub(crate) stream: Option<TcpStream>,
    pub(crate) is_ready: bool,
    kept: Vec<u8>,
    /// It was told to come back, by an event and then by a close frame, and nothing came behind.
    pub(crate) was_told: bool,
    is_leaving: bool,
}

impl Reader {
    pub(crate) const fn new(stream: TcpStream) -> Self {
        let stream = Some(stream);
        Self { stream, is_ready: true, kept: Vec::new(), was_told: false, is_leaving: false }
    }

    /// Reads a chunk. Each event that has come is told by the instant of its publish.
    pub(crate) fn read(&mut self, mut event: impl FnMut(u64)) {
        let Some(stream) = &mut self.stream else { return };
        let outcome = read(stream, &mut self.kept);
        self.is_ready = outcome == Stream::More;
        let mut at = 0;
        while let Some((said, len)) = frame(&self.kept[at..]) {
            at += len;
            let answer = match said {
                Said::Event(sent) => {
                    event(sent);
                    None
                }
                Said::Ping => Some(masked(0x81, br#"{"event":"pusher:pong","data":{}}"#)),
                Said::Close(code) => Some(masked(0x88, &code.to_be_bytes())),
                Said::Leave | Said::Other => None,
            };
            self.was_told = said == Said::Close(4200) && self.is_leaving;
            self.is_leaving |= said == Said::Leave;
            if let Some(answer) = answer {
                // A few bytes on a socket that we never write to: if they do not fit, it is over.
                drop(stream.write_all(&answer));
            }
        }
        self.kept.drain(..at);
        if outcome == Stream::Over {
            self.stream = None;
        }
    }
}

/// The first frame of these bytes, and its length.
fn frame(bytes: &[u8]) -> Option<(Said, usize)> {
    let (head, len) = match *bytes.get(1)? {
        126 => (4, u64::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?))),
        127 => (10, u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?)),
        len => (2, u64::from(len)),
    };
    let end = head + usize::try_from(len).ok()?;
    let payload = bytes.get(head..end)?;
    let said = match bytes[0] & 0x0f {
        1 => text(payload),
        8 => Said::Close(payload.first_chunk().map_or(1005, |code| u16::from_be_bytes(*code))),
        _ => Said::Other,
    };
    Some((said, end))
}

fn text(payload: &[u8]) -> Said {
    let has = |part: &[u8]| find(payload, part).is_some();
    // An event of ours first: nearly all are.
    let data = find(payload, br#""data":""#).and_then(|at| payload.get(at + 8..at + 8 + STAMP));
    let stamp = data.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    match stamp {
        Some(sent) => Said::Event(sent),
        None if has(b"pusher:ping") => Said::Ping,
        None if has(b"pusher:error") && has(b"4200") => Said::Leave,
        None => Said::Other,
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

/// What a call was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// It says when to come back.
    pub(crate) has_advice: bool,
}

/// A connection that publishes: one call at a time, as the libraries do.
pub(crate) struct Caller {
    pub(crate) stream: Option<TcpStream>,
    /// When the call that is under way was due, in nanoseconds.
    pub(crate) call: Option<u64>,
    unsent: Vec<u8>,
    kept: Vec<u8>,
}

impl Caller {
    pub(crate) const fn new(stream: TcpStream) -> Self {
        Self { stream: Some(stream), call: None, unsent: Vec::new(), kept: Vec::new() }
    }

    pub(crate) fn begin(&mut self, due: u64, request: Vec<u8>) {
        self.call = Some(due);
        self.unsent = request;
        self.write();
    }

    /// Writes what is left of the request.
    pub(crate) fn write(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        while !self.unsent.is_empty() {
            match stream.write(&self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Whoever cannot be written to is found to be over when it is read.
                Err(_) => return,
            }
        }
    }

    /// Reads the answer, if it has come. When the server has ended it, `stream` is none.
    pub(crate) fn read(&mut self) -> Option<Answer> {
        let stream = self.stream.as_mut()?;
        let outcome = loop {
            match read(stream, &mut self.kept) {
                Stream::More => {}
                outcome => break outcome,
            }
        };
        if outcome == Stream::Over {
            self.stream = None;
        }
        let (answer, len) = answer(&self.kept)?;
        self.kept.drain(..len);
        Some(answer)
    }
}

/// The first whole response of these bytes, and its length.
fn answer(bytes: &[u8]) -> Option<(Answer, usize)> {
    let end = find(bytes, b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let value = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
    let number = |text: Option<&str>| text.and_then(|text| text.trim().parse::<usize>().ok());
    let len = end + number(value("content-length:")).unwrap_or(0);
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let has_advice = number(value("retry-after:")).is_some_and(|seconds| seconds > 0);
    (bytes.len() >= len).then_some((Answer { status, has_advice }, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server's frame.
    fn framed(first: u8, payload: &[u8]) -> Vec<u8> {
        let len = u16::try_from(payload.len()).unwrap();
        let mut frame = vec![first];
        match u8::try_from(len) {
            Ok(len @ 0..=125) => frame.push(len),
            _ => {
                frame.push(126);
                frame.extend(len.to_be_bytes());
            }
        }
        frame.extend(payload);
        frame
    }

    #[test]
    fn frames_are_read_whole_and_never_before_their_last_byte() {
        let long = "x".repeat(200);
        let event = |pad: &str| {
            format!(r#"{{"event":"e","channel":"news","data":"{:020}{pad}"}}"#, 123_456)
        };
        let leave = r#"{"event":"pusher:error","data":{"code":4200,"message":"m"}}"#;
        for (first, payload, expected) in [
            (0x81, event("").into_bytes(), Said::Event(123_456)),
            (0x81, event(&long).into_bytes(), Said::Event(123_456)),
            (0x81, br#"{"event":"pusher:ping","data":"{}"}"#.to_vec(), Said::Ping),
            (0x81, leave.as_bytes().to_vec(), Said::Leave),
            (0x88, 4200_u16.to_be_bytes().to_vec(), Said::Close(4200)),
            (0x88, Vec::new(), Said::Close(1005)),
            (0x81, br#"{"event":"other","data":"{}"}"#.to_vec(), Said::Other),
        ] {
            let bytes = framed(first, &payload);
            assert!((0..bytes.len()).all(|short| frame(&bytes[..short]).is_none()));
            let longer = [&bytes[..], b"more"].concat();
            assert_eq!(frame(&longer), Some((expected, bytes.len())));
        }
    }

    #[test]
    fn an_answer_is_read_with_its_body_and_its_advice() {
        let text =
            b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nContent-Length: 2\r\n\r\nno";
        assert!((0..text.len()).all(|short| answer(&text[..short]).is_none()));
        let refused = Answer { status: 503, has_advice: true };
        assert_eq!(answer(text), Some((refused, text.len())));
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1";
        let taken = Answer { status: 200, has_advice: false };
        assert_eq!(answer(text), Some((taken, text.len() - 8)));
    }
}
