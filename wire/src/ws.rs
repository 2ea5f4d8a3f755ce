//! RFC 6455 frames, server side: base framing (§5.2), masking (§5.3), fragmentation (§5.4),
//! control frames (§5.5), close codes (§7.4) and UTF-8 (§8.1). No extensions.
//!
//! Bounds: a message is at most `max_message` bytes, so a read buffer of
//! `max_message +` [`MAX_HEAD`] bytes holds any frame that is accepted. A frame that alone or with
//! the fragments before it would pass the limit is refused on its header, before its payload
//! arrives. A message in one frame is unmasked in place and borrowed from the caller's buffer;
//! only a fragmented message is copied, into one buffer of at most `max_message` bytes.
//!
//! ```
//! use sluicegate_wire::ws::{Decoder, Event, Step};
//!
//! let mut decoder = Decoder::new(1024);
//! let mut buffer = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
//! assert_eq!(decoder.decode(&mut buffer[..3]), Ok(Step::Need(11)));
//! let hello = Step::Took { consumed: 11, event: Some(Event::Text("Hello")) };
//! assert_eq!(decoder.decode(&mut buffer), Ok(hello));
//! ```

use alloc::vec::Vec;
use core::fmt;

/// The longest head of a frame from a client: two bytes, eight of length, four of mask.
pub const MAX_HEAD: usize = 14;

/// The longest payload of a control frame (RFC 6455 §5.5).
pub const MAX_CONTROL: usize = 125;

/// The longest reason of a close frame: a control payload less the code.
pub const MAX_REASON: usize = MAX_CONTROL - 2;

/// The kind of a frame (RFC 6455 §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// The next fragment of the message that is open.
    Continuation,
    /// UTF-8 text, or its first fragment.
    Text,
    /// Bytes, or their first fragment.
    Binary,
    /// The last frame of a side.
    Close,
    /// Asks for a pong with the same payload.
    Ping,
    /// Answers a ping, or says that the peer is alive.
    Pong,
}

impl Opcode {
    const fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0x0 => Self::Continuation,
            0x1 => Self::Text,
            0x2 => Self::Binary,
            0x8 => Self::Close,
            0x9 => Self::Ping,
            0xA => Self::Pong,
            _ => return None,
        })
    }

    const fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0x0,
            Self::Text => 0x1,
            Self::Binary => 0x2,
            Self::Close => 0x8,
            Self::Ping => 0x9,
            Self::Pong => 0xA,
        }
    }

    const fn is_control(self) -> bool {
        self.bits() >= 0x8
    }
}

/// A whole message or control frame, borrowed from the caller's buffer (unmasked in place) or,
/// when it came in fragments, from the decoder's reassembly buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A text message.
    Text(&'a str),
    /// A binary message.
    Binary(&'a [u8]),
    /// A ping: answer at once with a pong of the same payload, at most 125 bytes.
    Ping(&'a [u8]),
    /// A pong.
    Pong(&'a [u8]),
    /// The client's close frame: nothing after it is read.
    Close {
        /// A code that may be on the wire (§7.4), or none.
        code: Option<u16>,
        /// At most 123 bytes; empty without a code.
        reason: &'a str,
    },
}

/// What one call of [`Decoder::decode`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Nothing was used. It is worth calling again when the buffer holds this many bytes in
    /// total: more than it holds now, at most the message limit and [`MAX_HEAD`].
    Need(usize),
    /// One frame was used up.
    Took {
        /// Bytes of the buffer that are done with: at least 1.
        consumed: usize,
        /// What the frame completed: none when it was a fragment that is not the last one, or
        /// came after a close.
        event: Option<Event<'a>>,
    },
}

/// How a client broke the protocol. The connection is over: answer with [`Fault::close_code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A close code that must not be on the wire, or that nobody has defined.
    BadCloseCode(u16),
    /// A close frame with one byte, which is half a code.
    ClosePayload,
    /// A control frame without FIN.
    FragmentedControl,
    /// A text or binary frame inside a fragmented message.
    InterleavedData,
    /// Text or a close reason that is not UTF-8.
    InvalidUtf8,
    /// A 64-bit length with its highest bit set.
    LengthOverflow,
    /// A control frame of more than 125 bytes.
    LongControl,
    /// A length in more bytes than it needs.
    NonMinimalLength,
    /// A reserved bit: no extension was negotiated.
    ReservedBits(u8),
    /// More than the message limit, counting the fragments before.
    TooBig {
        /// Bytes the message would have so far.
        size: u64,
        /// The limit.
        max: usize,
    },
    /// A continuation without a message to continue.
    UnexpectedContinuation,
    /// An opcode that RFC 6455 leaves reserved.
    UnknownOpcode(u8),
    /// A frame without a mask, which a client must not send.
    Unmasked,
}

impl Fault {
    /// The close code to answer with: 1002, 1007 or 1009 (RFC 6455 §7.4.1).
    pub const fn close_code(self) -> u16 {
        match self {
            Self::InvalidUtf8 => 1007,
            Self::TooBig { .. } => 1009,
            Self::BadCloseCode(_)
            | Self::ClosePayload
            | Self::FragmentedControl
            | Self::InterleavedData
            | Self::LengthOverflow
            | Self::LongControl
            | Self::NonMinimalLength
            | Self::ReservedBits(_)
            | Self::UnexpectedContinuation
            | Self::UnknownOpcode(_)
            | Self::Unmasked => 1002,
        }
    }
}

impl fmt::Display for Fault {
    /// One sentence that fits a close reason.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BadCloseCode(code) => write!(f, "close code {code} may not be sent"),
            Self::ClosePayload => f.write_str("close frame of 1 byte: send a 2-byte code or none"),
            Self::FragmentedControl => f.write_str("fragmented control frame: set FIN"),
            Self::InterleavedData => {
                f.write_str("new message inside a fragmented one: send continuation frames")
            }
            Self::InvalidUtf8 => f.write_str("text is not UTF-8: send bytes as binary"),
            Self::LengthOverflow => f.write_str("64-bit length with its highest bit set"),
            Self::LongControl => {
                write!(f, "control frame of more than {MAX_CONTROL} bytes: shorten it")
            }
            Self::NonMinimalLength => f.write_str("length in more bytes than it needs"),
            Self::ReservedBits(bits) => {
                write!(f, "reserved bits {bits:03b}: no extension was negotiated")
            }
            Self::TooBig { size, max } => {
                write!(f, "message of {size} bytes: the limit is {max}")
            }
            Self::UnexpectedContinuation => {
                f.write_str("continuation frame without a message: start with text or binary")
            }
            Self::UnknownOpcode(opcode) => write!(f, "unknown opcode {opcode:#x}"),
            Self::Unmasked => f.write_str("unmasked frame: clients must mask"),
        }
    }
}

impl core::error::Error for Fault {}

/// Decodes what one client sends: frames must be masked.
///
/// The same bytes give the same events and the same fault however they are cut into buffers.
#[derive(Clone, Debug)]
pub struct Decoder {
    max: usize,
    /// Payload of the fragments so far. Invariant: capacity at most `max`.
    held: Vec<u8>,
    /// Bytes at the front of `held` that are whole characters, while a text is open.
    checked: usize,
    phase: Phase,
}

/// What may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Anything but a continuation.
    Idle,
    /// A fragmented message is open; the opcode is that of its first frame.
    Open(Opcode),
    /// A fragmented message was handed out and its buffer is still held.
    Complete,
    /// The client's close frame came.
    Closed,
    Broken(Fault),
}

/// A frame's head.
#[derive(Clone, Copy)]
struct Head {
    fin: bool,
    opcode: Opcode,
    mask: [u8; 4],
    /// Bytes of the head.
    size: usize,
    /// Bytes of the payload.
    len: usize,
}

enum Peek {
    Need(usize),
    Head(Head),
}

impl Decoder {
    /// A decoder whose messages are at most `max_message` bytes. Allocates nothing.
    pub const fn new(max_message: usize) -> Self {
        Self { max: max_message, held: Vec::new(), checked: 0, phase: Phase::Idle }
    }

    /// Takes at most one frame from the front of `buf`, which must begin where the last frame
    /// ended.
    ///
    /// Call it until it answers [`Step::Need`], then read more *behind* the bytes it left. A
    /// fault is final: every later call answers the same one. What follows a close frame is
    /// consumed unread.
    ///
    /// Cost: O(bytes of the frame), and once more O(bytes of the message) for the last fragment of
    /// a text; no allocation unless the frame is part of a fragmented message. The reassembly
    /// buffer is freed by the call after the one that hands its message out, or by
    /// [`Decoder::release`].
    pub fn decode<'a>(&'a mut self, buf: &'a mut [u8]) -> Result<Step<'a>, Fault> {
        self.release();
        match self.phase {
            Phase::Broken(fault) => return Err(fault),
            Phase::Closed if buf.is_empty() => return Ok(Step::Need(1)),
            Phase::Closed => return Ok(Step::Took { consumed: buf.len(), event: None }),
            Phase::Idle | Phase::Open(_) | Phase::Complete => {}
        }
        let head = match self.peek(buf) {
            Ok(Peek::Head(head)) => head,
            Ok(Peek::Need(total)) => return Ok(Step::Need(total)),
            Err(fault) => {
                self.phase = Phase::Broken(fault);
                return Err(fault);
            }
        };
        let consumed = head.size + head.len;
        if buf.len() < consumed {
            return Ok(Step::Need(consumed));
        }
        let payload = &mut buf[head.size..consumed];
        unmask(payload, head.mask);
        // Either the payload is the whole of it, or it joins what is held.
        let (opcode, whole): (Opcode, &'a [u8]) = match (head.opcode, self.phase, head.fin) {
            (Opcode::Text | Opcode::Binary, _, false) => {
                self.phase = Phase::Open(head.opcode);
                self.checked = 0;
                return self.part(payload, consumed);
            }
            (Opcode::Continuation, _, false) => return self.part(payload, consumed),
            (Opcode::Continuation, Phase::Open(opcode), true) => {
                self.hold(payload);
                self.phase = Phase::Complete;
                (opcode, &self.held)
            }
            (opcode, _, _) => (opcode, payload),
        };
        if opcode == Opcode::Close {
            self.phase = Phase::Closed;
        }
        match event(opcode, whole) {
            Ok(event) => Ok(Step::Took { consumed, event: Some(event) }),
            Err(fault) => {
                self.phase = Phase::Broken(fault);
                Err(fault)
            }
        }
    }

    /// Bytes the reassembly buffer occupies: at most `max_message`, 0 between messages.
    pub const fn held(&self) -> usize {
        self.held.capacity()
    }

    /// Frees the buffer of a message that was handed out or will never be complete. Of use when
    /// the next [`Decoder::decode`] may be long in coming.
    pub fn release(&mut self) {
        match self.phase {
            Phase::Idle | Phase::Open(_) => return,
            Phase::Complete => self.phase = Phase::Idle,
            Phase::Closed | Phase::Broken(_) => {}
        }
        self.held = Vec::new();
    }

    /// Reads a head as far as it is there and checks each part as soon as it is.
    fn peek(&self, buf: &[u8]) -> Result<Peek, Fault> {
        let Some(&first) = buf.first() else { return Ok(Peek::Need(2)) };
        let (fin, opcode) = self.first(first)?;
        let Some(&second) = buf.get(1) else { return Ok(Peek::Need(2)) };
        if second & 0x80 == 0 {
            return Err(Fault::Unmasked);
        }
        let short = usize::from(second & 0x7F);
        if opcode.is_control() && short > MAX_CONTROL {
            return Err(Fault::LongControl);
        }
        let extended = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let size = 2 + extended + 4;
        let Some(digits) = buf.get(2..2 + extended) else { return Ok(Peek::Need(size)) };
        let len = match extended {
            0 => short as u64,
            _ => digits.iter().fold(0, |len, &byte| len << 8 | u64::from(byte)),
        };
        let least = [0, 126, 1 << 16][extended.div_ceil(4)];
        if len >> 63 != 0 {
            return Err(Fault::LengthOverflow);
        } else if len < least {
            return Err(Fault::NonMinimalLength);
        }
        let len = self.fits(opcode, len)?;
        let Some(mask) = buf.get(size - 4..).and_then(|rest| rest.first_chunk()) else {
            return Ok(Peek::Need(size + len));
        };
        Ok(Peek::Head(Head { fin, opcode, mask: *mask, size, len }))
    }

    /// Checks the first byte of a head.
    fn first(&self, byte: u8) -> Result<(bool, Opcode), Fault> {
        let fin = byte & 0x80 != 0;
        if byte & 0x70 != 0 {
            return Err(Fault::ReservedBits(byte >> 4 & 0x7));
        }
        let bits = byte & 0x0F;
        let opcode = Opcode::from_bits(bits).ok_or(Fault::UnknownOpcode(bits))?;
        let open = matches!(self.phase, Phase::Open(_));
        match opcode {
            _ if opcode.is_control() && !fin => Err(Fault::FragmentedControl),
            Opcode::Continuation if !open => Err(Fault::UnexpectedContinuation),
            Opcode::Text | Opcode::Binary if open => Err(Fault::InterleavedData),
            _ => Ok((fin, opcode)),
        }
    }

    /// The payload's length, when the message stays within the limit with it.
    fn fits(&self, opcode: Opcode, len: u64) -> Result<usize, Fault> {
        let before = if opcode.is_control() { 0 } else { self.held.len() as u64 };
        let max = if opcode.is_control() { MAX_CONTROL } else { self.max };
        let size = before + len;
        match usize::try_from(len) {
            Ok(len) if size <= max as u64 => Ok(len),
            _ => Err(Fault::TooBig { size, max }),
        }
    }

    /// Takes a fragment that is not the last one. Text that can be no UTF-8 any more is refused at
    /// once: the rest of the message need not come.
    fn part(&mut self, fragment: &[u8], consumed: usize) -> Result<Step<'static>, Fault> {
        self.hold(fragment);
        if self.phase == Phase::Open(Opcode::Text) {
            match core::str::from_utf8(&self.held[self.checked..]) {
                Ok(_) => self.checked = self.held.len(),
                Err(error) if error.error_len().is_none() => self.checked += error.valid_up_to(),
                Err(_) => {
                    self.phase = Phase::Broken(Fault::InvalidUtf8);
                    return Err(Fault::InvalidUtf8);
                }
            }
        }
        Ok(Step::Took { consumed, event: None })
    }

    /// Appends a fragment. The buffer doubles, and never past the limit.
    fn hold(&mut self, fragment: &[u8]) {
        let len = self.held.len() + fragment.len();
        debug_assert!(len <= self.max, "the head was checked against the limit");
        if len > self.held.capacity() {
            let target = self.held.capacity().saturating_mul(2).min(self.max).max(len);
            self.held.reserve_exact(target - self.held.len());
        }
        self.held.extend_from_slice(fragment);
    }
}

/// A whole payload as an event.
fn event(opcode: Opcode, payload: &[u8]) -> Result<Event<'_>, Fault> {
    Ok(match opcode {
        Opcode::Text => Event::Text(text(payload)?),
        Opcode::Ping => Event::Ping(payload),
        Opcode::Pong => Event::Pong(payload),
        Opcode::Close => return close(payload),
        // The opcode of a message that came in fragments is that of its first frame.
        Opcode::Binary | Opcode::Continuation => Event::Binary(payload),
    })
}

fn text(bytes: &[u8]) -> Result<&str, Fault> {
    core::str::from_utf8(bytes).map_err(|_| Fault::InvalidUtf8)
}

fn close(payload: &[u8]) -> Result<Event<'_>, Fault> {
    let Some((code, reason)) = payload.split_first_chunk() else {
        return match payload {
            [] => Ok(Event::Close { code: None, reason: "" }),
            _ => Err(Fault::ClosePayload),
        };
    };
    let code = u16::from_be_bytes(*code);
    // 1004 to 1006 and 1015 are never on the wire; 1012 to 1014 are in IANA's registry.
    if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
        return Err(Fault::BadCloseCode(code));
    }
    Ok(Event::Close { code: Some(code), reason: text(reason)? })
}

/// Removes the mask, eight bytes at a time.
fn unmask(payload: &mut [u8], mask: [u8; 4]) {
    let [a, b, c, d] = mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (chunks, rest) = payload.as_chunks_mut();
    for chunk in chunks {
        *chunk = (u64::from_ne_bytes(*chunk) ^ wide).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
}

/// The head of a frame to a client: 2, 4 or 10 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    bytes: [u8; 10],
    len: u8,
}

impl AsRef<[u8]> for Header {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The head of a final, unmasked frame with `len` bytes of payload. Allocates nothing.
///
/// A control frame's payload must be at most [`MAX_CONTROL`] bytes (asserted in debug builds).
pub fn header(opcode: Opcode, len: usize) -> Header {
    debug_assert!(!opcode.is_control() || len <= MAX_CONTROL, "control frame of {len} bytes");
    let mut bytes = [0; 10];
    bytes[0] = 0x80 | opcode.bits();
    if let Ok(short) = u8::try_from(len)
        && short < 126
    {
        bytes[1] = short;
        Header { bytes, len: 2 }
    } else if let Ok(medium) = u16::try_from(len) {
        bytes[1] = 126;
        bytes[2..4].copy_from_slice(&medium.to_be_bytes());
        Header { bytes, len: 4 }
    } else {
        bytes[1] = 127;
        bytes[2..].copy_from_slice(&(len as u64).to_be_bytes());
        Header { bytes, len: 10 }
    }
}

/// A whole final, unmasked frame in one exact allocation; the same contract as [`header`].
pub fn frame(opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    let header = header(opcode, payload.len());
    let mut frame = Vec::with_capacity(header.as_ref().len() + payload.len());
    frame.extend_from_slice(header.as_ref());
    frame.extend_from_slice(payload);
    frame
}

/// A close frame; the reason is cut to [`MAX_REASON`] bytes at the end of a character.
pub fn close_frame(code: u16, reason: &str) -> Vec<u8> {
    let reason = &reason[..reason.floor_char_boundary(MAX_REASON)];
    let header = header(Opcode::Close, 2 + reason.len());
    let mut frame = Vec::with_capacity(header.as_ref().len() + 2 + reason.len());
    frame.extend_from_slice(header.as_ref());
    frame.extend_from_slice(&code.to_be_bytes());
    frame.extend_from_slice(reason.as_bytes());
    frame
}

#[cfg(test)]
mod tests;
