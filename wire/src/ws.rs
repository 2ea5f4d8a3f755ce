//! RFC 6455 frames, server side.
use alloc::vec::Vec;
use core::fmt;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode { /// More of a fragmented message.
    Continuation, /// UTF-8 text.
    Text, /// Bytes.
    Binary, /// The end.
    Close, /// Asks for a pong.
    Ping, /// Answers a ping.
    Pong }

/// A whole message or control frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> { /// A text message.
    Text(&'a str), /// A binary message.
    Binary(&'a [u8]), /// A ping.
    Ping(&'a [u8]), /// A pong.
    Pong(&'a [u8]), /// A close.
    Close { /// The code, if any.
        code: Option<u16>, /// The reason.
        reason: &'a str } }

/// What one call of [`Decoder::decode`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> { /// More bytes are needed: the total the buffer must hold.
    Need(usize), /// Bytes were used up.
    Took { /// How many.
        consumed: usize, /// What they completed.
        event: Option<Event<'a>> } }

/// How a client broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "skeleton")]
pub enum Fault { BadCloseCode(u16), ClosePayload, FragmentedControl, Interleaved, InvalidUtf8, LengthOverflow, LongControl, NonMinimalLength, ReservedBits(u8), TooBig { size: u64, max: usize }, UnexpectedContinuation, UnknownOpcode(u8), Unmasked }

impl Fault { /// The close code to answer with.
    pub fn close_code(self) -> u16 { todo!() } }
impl fmt::Display for Fault { fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result { todo!() } }

/// Decodes what one client sends.
#[derive(Debug)]
pub struct Decoder { max: usize, held: Vec<u8> }
impl Decoder {
    /// A decoder whose messages are at most `max_message` bytes.
    pub fn new(max_message: usize) -> Self { Self { max: max_message, held: Vec::new() } }
    /// Takes at most one frame from the front of `buf`.
    pub fn decode<'a>(&'a mut self, _buf: &'a mut [u8]) -> Result<Step<'a>, Fault> { todo!("{}", self.max) }
    /// Bytes the reassembly buffer occupies.
    pub fn held(&self) -> usize { self.held.capacity() }
}

/// The head of a frame to a client.
#[derive(Clone, Copy, Debug)]
pub struct Header { bytes: [u8; 10], len: u8 }
impl AsRef<[u8]> for Header { fn as_ref(&self) -> &[u8] { &self.bytes[..usize::from(self.len)] } }
/// The head of an unmasked final frame.
pub fn header(_opcode: Opcode, _len: usize) -> Header { todo!() }
/// A whole frame.
pub fn frame(_opcode: Opcode, _payload: &[u8]) -> Vec<u8> { todo!() }
/// A close frame.
pub fn close_frame(_code: u16, _reason: &str) -> Vec<u8> { todo!() }
