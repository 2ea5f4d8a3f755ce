//! Tapes as bytes: a head, then inputs and marks, each appended as it happens.
//!
//! ```text
//! "SLUICEGATE TAPE" 0 | version | seed | n | n times: length, name, value of a limit | items
//! item: an input | 0xfe shard: the next inputs are that shard's | 0xff fingerprint (8 bytes)
//! ```
//!
//! Numbers are LEB128. Only limits that differ from their defaults are written. A mark holds the
//! shard's fingerprint between two inputs: a player who comes by with another one has decided
//! otherwise. A recorder that was stopped in the middle of an item leaves a tape that ends there.

use super::{Input, Kind, MOST, leb128, push_leb128};
use crate::broker::Broker;
use crate::limits::{self, Limits};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

const MAGIC: &[u8; 16] = b"SLUICEGATE TAPE\0";
const VERSION: u8 = 2;
const SHARD: u8 = 0xfe;
const MARK: u8 = 0xff;
/// Inputs between two marks, at most.
const MARK_AFTER: u32 = 1_024;
/// The longest item: a byte and its numbers, of ten bytes each.
const LONGEST: usize = 1 + 10 * MOST;

/// Writes a tape. A host appends each turn of each shard and stores what comes out.
#[derive(Debug)]
pub struct Recorder {
    bytes: Vec<u8>,
    shard: Option<u32>,
    unmarked: u32,
}

impl Recorder {
    /// A tape of shards with these limits and this seed. Its head is the first of its bytes.
    pub fn new(limits: &Limits, seed: u64) -> Self {
        let mut bytes = MAGIC.to_vec();
        bytes.push(VERSION);
        push_leb128(&mut bytes, seed);
        let defaults = Limits::default();
        let differ = limits::KEYS.iter().filter_map(|key| {
            let value = limits.get(key.name)?;
            (defaults.get(key.name) != Some(value)).then_some((key.name, value))
        });
        let differ: Vec<_> = differ.collect();
        push_leb128(&mut bytes, differ.len() as u64);
        for (name, value) in differ {
            push_leb128(&mut bytes, name.len() as u64);
            bytes.extend(name.bytes());
            push_leb128(&mut bytes, value);
        }
        Self { bytes, shard: None, unmarked: 0 }
    }

    /// Appends what a shard has recorded since the last time. Cost: O(that).
    pub fn append(&mut self, broker: &mut Broker) {
        let inputs = broker.take_inputs();
        if inputs.is_empty() {
            return;
        }
        if self.shard != Some(broker.number()) {
            self.shard = Some(broker.number());
            self.bytes.push(SHARD);
            push_leb128(&mut self.bytes, broker.number().into());
        }
        for input in &inputs {
            input.encode(&mut self.bytes);
        }
        self.unmarked += u32::try_from(inputs.len()).unwrap_or(MARK_AFTER);
        if self.unmarked >= MARK_AFTER {
            self.mark(broker);
        }
    }

    /// Appends a shard's fingerprint: what comes after it on the tape was decided from there on.
    /// Everything it has recorded must have been appended.
    pub fn mark(&mut self, broker: &Broker) {
        if self.shard != Some(broker.number()) {
            self.shard = Some(broker.number());
            self.bytes.push(SHARD);
            push_leb128(&mut self.bytes, broker.number().into());
        }
        self.bytes.push(MARK);
        self.bytes.extend(broker.fingerprint().to_le_bytes());
        self.unmarked = 0;
    }

    /// Bytes written since they were last taken. Cost: O(1).
    pub const fn pending(&self) -> usize {
        self.bytes.len()
    }

    /// What was written since the last time.
    pub fn take(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.bytes)
    }
}

/// A tape that can be played.
#[derive(Clone, Debug)]
pub struct Tape<'a> {
    /// The limits of its shards.
    pub limits: Limits,
    /// Their seed.
    pub seed: u64,
    items: &'a [u8],
    /// Where the items begin.
    head: usize,
}

/// What is on a tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// What was done to a shard.
    Input {
        /// Its number.
        shard: u32,
        /// What.
        input: Input,
    },
    /// What a shard's fingerprint was then.
    Mark {
        /// Its number.
        shard: u32,
        /// See [`Broker::fingerprint`].
        fingerprint: u64,
    },
}

/// The items of a tape, in order.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    rest: &'a [u8],
    shard: u32,
    shards: u32,
    /// Where the rest begins.
    at: usize,
}

/// Why bytes are not a tape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It ends in the middle of what is at this byte. What was before it can be played.
    Cut(usize),
    /// No item begins at this byte.
    Item(usize),
    /// A limit is unknown, or has a value that it cannot have.
    Limit(String),
    /// It does not begin like a tape.
    Magic,
    /// At this byte follow inputs of a shard that there is not.
    Shard(usize, u32),
    /// It was written by another version.
    Version(u8),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut(at) => write!(f, "the tape ends in the middle of what is at byte {at}"),
            Self::Item(at) => write!(f, "the tape is damaged at byte {at}: no input is like that"),
            Self::Limit(what) => write!(f, "the tape's limits: {what}"),
            Self::Magic => write!(f, "this is not a tape: it does not begin like one"),
            Self::Shard(at, shard) => {
                write!(f, "the tape is damaged at byte {at}: there is no shard {shard}")
            }
            Self::Version(version) => {
                write!(f, "the tape has version {version}, and this program reads {VERSION}")
            }
        }
    }
}

impl core::error::Error for Damage {}

impl<'a> Tape<'a> {
    /// Reads the head. Nothing is held besides the limits, whatever the bytes say.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Damage> {
        let mut rest = bytes.strip_prefix(MAGIC).ok_or(Damage::Magic)?;
        let cut = |rest: &[u8]| Damage::Cut(bytes.len() - rest.len());
        let (version, after) = rest.split_first().ok_or_else(|| cut(rest))?;
        if *version != VERSION {
            return Err(Damage::Version(*version));
        }
        rest = after;
        let number = |rest: &mut &'a [u8]| leb128(rest).ok_or_else(|| cut(rest));
        let seed = number(&mut rest)?;
        let mut limits = Limits::default();
        for _ in 0..number(&mut rest)? {
            let length = usize::try_from(number(&mut rest)?).unwrap_or(usize::MAX);
            let (name, after) = rest.split_at_checked(length).ok_or_else(|| cut(rest))?;
            rest = after;
            let value = number(&mut rest)?;
            let set =
                limits.set(&String::from_utf8_lossy(name), value).map_err(|error| text(&error));
            set.map_err(Damage::Limit)?;
        }
        limits.check().map_err(|error| Damage::Limit(text(&error)))?;
        Ok(Self { limits, seed, items: rest, head: bytes.len() - rest.len() })
    }

    /// Its items, read as they are asked for.
    pub fn items(&self) -> Items<'a> {
        let shards = u32::try_from(self.limits.shards).expect("a small range");
        Items { rest: self.items, shard: 0, shards, at: self.head }
    }
}

fn text(error: &limits::LimitError<'_>) -> String {
    alloc::format!("{error}")
}

impl Items<'_> {
    fn take(&mut self) -> Option<Result<Item, Damage>> {
        loop {
            let (first, after) = self.rest.split_first()?;
            let mut rest = after;
            let item = match *first {
                SHARD => {
                    let Some(number) = leb128(&mut rest) else { return Some(Err(self.damage())) };
                    let shard = u32::try_from(number).unwrap_or(u32::MAX);
                    if shard >= self.shards {
                        return Some(Err(Damage::Shard(self.at, shard)));
                    }
                    self.shard = shard;
                    None
                }
                MARK => {
                    let Some((mark, after)) = rest.split_first_chunk::<8>() else {
                        return Some(Err(self.damage()));
                    };
                    rest = after;
                    let fingerprint = u64::from_le_bytes(*mark);
                    Some(Item::Mark { shard: self.shard, fingerprint })
                }
                _ => {
                    rest = self.rest;
                    let Some(input) = Input::decode(&mut rest) else {
                        return Some(Err(self.damage()));
                    };
                    Some(Item::Input { shard: self.shard, input })
                }
            };
            self.at += self.rest.len() - rest.len();
            self.rest = rest;
            if let Some(item) = item {
                return Some(Ok(item));
            }
        }
    }

    fn damage(&self) -> Damage {
        let known = self.rest.first().is_some_and(|kind| {
            usize::from(*kind) < Kind::ALL.len() || *kind == SHARD || *kind == MARK
        });
        // Every number but its last byte goes on.
        let goes_on = known && self.rest.len() < LONGEST;
        if goes_on { Damage::Cut(self.at) } else { Damage::Item(self.at) }
    }
}

impl Iterator for Items<'_> {
    type Item = Result<Item, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.take();
        if let Some(Err(_)) = next {
            self.rest = &[];
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pipe, Policy, Wish};
    use alloc::string::ToString;
    use alloc::vec;

    fn limits() -> Limits {
        Limits { shards: 2, high_water_bytes: 4_000, ..Limits::default() }
    }

    fn tape() -> Vec<u8> {
        let mut recorder = Recorder::new(&limits(), 7);
        for shard in [1, 0] {
            let mut broker = Broker::shard(limits(), 7, shard);
            broker.record_inputs(true);
            let tenant = broker.tenant(1).unwrap();
            let conn = broker.open(tenant).unwrap();
            recorder.append(&mut broker);
            let outlet = broker.outlet(conn, Pipe::Shared).unwrap();
            let topic = broker.topic(tenant, "a").unwrap();
            broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap();
            recorder.append(&mut broker);
            recorder.mark(&broker);
        }
        recorder.take()
    }

    fn read(bytes: &[u8]) -> Result<Vec<Item>, Damage> {
        Tape::read(bytes)?.items().collect()
    }

    #[test]
    fn what_was_recorded_is_read_and_plays_to_its_marks() {
        let bytes = tape();
        let tape = Tape::read(&bytes).unwrap();
        assert_eq!((&tape.limits, tape.seed), (&limits(), 7));
        let mut shards = [0, 1].map(|shard| Broker::shard(limits(), 7, shard));
        let mut marks = 0;
        for item in tape.items() {
            match item.unwrap() {
                Item::Input { shard, input } => {
                    shards[shard as usize].apply(&input);
                }
                Item::Mark { shard, fingerprint } => {
                    assert_eq!(shards[shard as usize].fingerprint(), fingerprint);
                    marks += 1;
                }
            }
        }
        assert_eq!(marks, 2);
        assert_eq!(read(&bytes).unwrap().len(), 2 * 5 + 2);
    }

    #[test]
    fn a_fingerprint_tells_one_record_from_two() {
        let books = |records| {
            let mut broker = Broker::new(Limits::default(), 1);
            let tenant = broker.tenant(1).unwrap();
            let conn = broker.open(tenant).unwrap();
            let brought = crate::Tally { records, bytes: 9 };
            broker.refuse(conn, brought, crate::Refusal::GONE);
            broker.fingerprint()
        };
        assert_ne!(books(1), books(2));
        assert_eq!(books(2), books(2));
    }

    #[test]
    fn a_tape_that_was_cut_says_where_and_gives_what_was_before() {
        let bytes = tape();
        let all = read(&bytes).unwrap();
        let head = Tape::read(&bytes).unwrap().head;
        for cut in head..bytes.len() {
            let items: Vec<_> = Tape::read(&bytes[..cut]).unwrap().items().collect();
            let whole: Vec<_> = items.iter().map_while(|item| item.clone().ok()).collect();
            assert_eq!(whole, all[..whole.len()], "cut at {cut}");
            assert!(items.len() - whole.len() <= 1, "the end is told once");
            if let Some(Err(damage)) = items.last() {
                assert!(matches!(damage, Damage::Cut(at) if *at < cut), "{damage}");
            }
        }
        for cut in MAGIC.len()..head {
            assert!(matches!(Tape::read(&bytes[..cut]), Err(Damage::Cut(_))), "cut at {cut}");
        }
    }

    #[test]
    fn what_is_no_tape_is_told_with_what_is_wrong() {
        let bytes = tape();
        let changed = |at: usize, to: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = to;
            read(&bytes).unwrap_err().to_string()
        };
        assert_eq!(changed(0, b'x'), "this is not a tape: it does not begin like one");
        assert_eq!(changed(16, 9), "the tape has version 9, and this program reads 2");
        assert_eq!(changed(20, b'x'), "the tape's limits: no limit is called `xigh_water_bytes`");
        let head = Tape::read(&bytes).unwrap().head;
        assert!(changed(head + 1, 2).ends_with("there is no shard 2"));
        let many = [bytes, vec![0x80; 4_000]].concat();
        assert!(matches!(read(&many), Err(Damage::Item(_))), "it is too long to be cut");
    }
}
