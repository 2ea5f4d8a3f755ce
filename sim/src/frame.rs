//! The frames of the simulated protocol, and the parser a simulated subscriber reads them with.
//!
//! ```text
//! length u32 | topic u32 | publisher u32 | records u32 | number u64 | at u64 | payload
//! ```
//!
//! Little endian. The payload is a function of the number, so that a byte out of place shows.
//! A gap notice has no payload and the publisher [`GAP`]: its number and `at` are the first and
//! the last record lost. The answer to a question has none either, and the publisher [`ANSWER`]:
//! its number is the question's, and `at` is when that was asked.

use bytes::Bytes;

/// Bytes before the payload; also the length of the shortest frame.
pub const HEADER: u32 = 32;

/// The publisher of a gap notice.
pub const GAP: u32 = u32::MAX;

/// The publisher of an answer.
pub const ANSWER: u32 = u32::MAX - 1;

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Length of the whole frame.
    pub length: u32,
    /// Index of the topic in the scenario.
    pub topic: u32,
    /// Index of the publisher, [`GAP`] or [`ANSWER`].
    pub publisher: u32,
    /// Records in it; of a gap: records lost.
    pub records: u32,
    /// The publisher's number of this publish; of a gap: the first record lost.
    pub number: u64,
    /// When it was offered, in nanoseconds; of a gap: the last record lost.
    pub at: u64,
}

/// The payload's period: a prime, so that no power of two hides a shift.
const PERIOD: usize = 251;
/// The longest piece of payload compared at once.
const PIECE: usize = 4096;

static PATTERN: [u8; PERIOD + PIECE] = {
    let mut bytes = [0; PERIOD + PIECE];
    let mut at = 1;
    while at < bytes.len() {
        bytes[at] = if at % PERIOD == 0 { 0 } else { bytes[at - 1] + 1 };
        at += 1;
    }
    bytes
};

/// The pattern from byte `at` of the payload of frame `number` on, at most [`PIECE`] bytes.
fn pattern(number: u64, at: u64) -> &'static [u8] {
    let period = PERIOD as u64;
    let phase = usize::try_from((number % period + at % period) % period).expect("below 251");
    &PATTERN[phase..phase + PIECE]
}

impl Item {
    /// Whether somebody published it: else the broker says it by itself.
    pub const fn is_data(&self) -> bool {
        self.publisher < ANSWER
    }

    /// The frame's bytes.
    pub fn encode(&self) -> Bytes {
        let length = usize::try_from(self.length).expect("a frame fits into memory");
        let mut frame = Vec::with_capacity(length);
        for word in [self.length, self.topic, self.publisher, self.records] {
            frame.extend_from_slice(&word.to_le_bytes());
        }
        frame.extend_from_slice(&self.number.to_le_bytes());
        frame.extend_from_slice(&self.at.to_le_bytes());
        while frame.len() < length {
            let done = frame.len() as u64 - u64::from(HEADER);
            let piece = pattern(self.number, done);
            frame.extend_from_slice(&piece[..piece.len().min(length - frame.len())]);
        }
        frame.into()
    }

    fn decode(header: &[u8; HEADER as usize]) -> Self {
        let word = |at: usize| {
            u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes of the header"))
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Self {
            length: word(0),
            topic: word(4),
            publisher: word(8),
            records: word(12),
            number: long(16),
            at: long(24),
        }
    }
}

/// Reads a byte stream as whole frames plus one proper prefix.
#[derive(Debug, Default)]
pub struct Parser {
    header: [u8; HEADER as usize],
    /// Bytes of the header read. Invariant: all of them while a payload is being read.
    have: usize,
    /// Set once the header is whole.
    item: Option<Item>,
    /// Payload bytes read.
    payload: u32,
}

/// Bytes that are not a frame of this protocol: what was wrong.
pub type Garbled = &'static str;

impl Parser {
    /// Reads `bytes`; `whole` hears each frame that ends in them and the offset of its end.
    pub fn read(&mut self, bytes: &[u8], mut whole: impl FnMut(u64, Item)) -> Result<(), Garbled> {
        let mut at = 0;
        while at < bytes.len() || self.item.is_some_and(|item| self.is_whole(item)) {
            let rest = &bytes[at..];
            at += match self.item {
                None => self.head(rest)?,
                Some(item) if self.is_whole(item) => {
                    whole(at as u64, item);
                    *self = Self::default();
                    0
                }
                Some(item) => self.body(item, rest)?,
            };
        }
        Ok(())
    }

    /// Whether the stream ends between two frames.
    pub fn between_frames(&self) -> bool {
        self.have == 0
    }

    fn is_whole(&self, item: Item) -> bool {
        HEADER + self.payload == item.length
    }

    fn head(&mut self, bytes: &[u8]) -> Result<usize, Garbled> {
        let take = bytes.len().min(HEADER as usize - self.have);
        self.header[self.have..self.have + take].copy_from_slice(&bytes[..take]);
        self.have += take;
        if self.have == HEADER as usize {
            let item = Item::decode(&self.header);
            if item.length < HEADER || item.records == 0 {
                return Err("a frame's header is impossible");
            }
            self.item = Some(item);
        }
        Ok(take)
    }

    fn body(&mut self, item: Item, bytes: &[u8]) -> Result<usize, Garbled> {
        let left = usize::try_from(item.length - HEADER - self.payload).expect("32 bits fit");
        let due = pattern(item.number, u64::from(self.payload));
        let take = bytes.len().min(left).min(due.len());
        if bytes[..take] != due[..take] {
            return Err("a frame's payload is not what was published");
        }
        self.payload += u32::try_from(take).expect("at most one piece");
        Ok(take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(number: u64, length: u32) -> Item {
        Item { length, topic: 1, publisher: 2, records: 3, number, at: 9 }
    }

    fn parse(parser: &mut Parser, bytes: &[u8]) -> Result<Vec<(u64, Item)>, Garbled> {
        let mut items = Vec::new();
        parser.read(bytes, |end, item| items.push((end, item)))?;
        Ok(items)
    }

    #[test]
    fn any_cut_of_the_bytes_gives_the_same_frames() {
        let items = [item(0, 32), item(1, 33), item(7, 9000), item(300, 32)];
        let stream: Vec<u8> = items.iter().flat_map(|item| item.encode().to_vec()).collect();
        for cut in [1, 3, 31, 32, 33, 5000, stream.len()] {
            let mut parser = Parser::default();
            let mut read = Vec::new();
            for bytes in stream.chunks(cut) {
                read.extend(parse(&mut parser, bytes).unwrap().into_iter().map(|(_, item)| item));
            }
            assert_eq!(read, items, "cut {cut}");
            assert!(parser.between_frames());
        }
    }

    #[test]
    fn a_lost_a_doubled_and_a_changed_byte_are_noticed() {
        let frame = item(5, 100).encode().to_vec();
        let two = [&frame[..], &frame[..]].concat();
        let lost = [&two[..50], &two[51..]].concat();
        let doubled = [&two[..50], &two[49..]].concat();
        let mut changed = two.clone();
        changed[60] ^= 1;
        for stream in [lost, doubled, changed] {
            assert!(parse(&mut Parser::default(), &stream).is_err());
        }
        let mut parser = Parser::default();
        assert_eq!(parse(&mut parser, &two[..150]).unwrap(), [(100, item(5, 100))]);
        assert!(!parser.between_frames(), "a proper prefix is left");
    }
}
