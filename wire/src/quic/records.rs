//! The records of a batch: a count, and as many lengths with bytes.

use super::reader::Reader;
use super::{Fault, varint};
use alloc::vec::Vec;

/// The most records of a batch.
pub const MAX_RECORDS: u64 = 4096;

/// The records of one batch, checked when they were decoded: the bytes are all there, and nothing
/// else is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records<'a> {
    count: u32,
    /// With the count in front.
    block: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    /// Checks a block: everything after the fields of its frame. Cost: O(records).
    pub(super) fn decode(block: &'a [u8]) -> Result<Self, Fault> {
        let mut reader = Reader(block);
        let count = reader.number()?;
        // Each record has a length of at least one byte.
        if count == 0 || count > MAX_RECORDS.min(reader.0.len() as u64) {
            return Err(Fault::Count(count));
        }
        let rest = reader.0;
        for _ in 0..count {
            reader.bytes()?;
        }
        if !reader.0.is_empty() {
            return Err(Fault::Trailing);
        }
        let count = u32::try_from(count).expect("it is below MAX_RECORDS");
        Ok(Self { count, block, rest })
    }

    /// How many: 1 to [`MAX_RECORDS`].
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The block as it is on the wire, the same in a publish and in its events.
    pub const fn block(&self) -> &'a [u8] {
        self.block
    }
}

impl<'a> IntoIterator for Records<'a> {
    type Item = &'a [u8];
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        Iter { left: self.count, rest: Reader(self.rest) }
    }
}

/// The records one by one.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    left: u32,
    rest: Reader<'a>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        self.rest.bytes().ok()
    }
}

/// Appends a block. `records` must be 1 to [`MAX_RECORDS`].
pub fn put<R: AsRef<[u8]>>(out: &mut Vec<u8>, records: &[R]) {
    debug_assert!(!records.is_empty() && records.len() as u64 <= MAX_RECORDS);
    varint::put(out, records.len() as u64);
    for record in records {
        let record = record.as_ref();
        varint::put(out, record.len() as u64);
        out.extend_from_slice(record);
    }
}

/// How many bytes [`put`] appends.
pub fn len<R: AsRef<[u8]>>(records: &[R]) -> usize {
    let one = |record: &R| {
        let len = record.as_ref().len();
        varint::len(len as u64) + len
    };
    varint::len(records.len() as u64) + records.iter().map(one).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_count_is_held_against_the_bytes_that_are_there() {
        for (block, fault) in [
            (&[0][..], Fault::Count(0)),
            (&[2, 0], Fault::Count(2)),
            (&[0x50, 0x01], Fault::Count(4097)),
            (&[1, 2, 7], Fault::Truncated),
            (&[1, 1, 7, 7], Fault::Trailing),
            (&[], Fault::Truncated),
        ] {
            assert_eq!(Records::decode(block), Err(fault), "{block:?}");
        }
    }

    proptest! {
        #[test]
        fn records_come_back(
            records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 1..20),
        ) {
            let mut out = Vec::new();
            put(&mut out, &records);
            prop_assert_eq!(out.len(), len(&records));
            let read = Records::decode(&out).unwrap();
            prop_assert_eq!(read.block(), &out[..]);
            prop_assert_eq!(read.count() as usize, records.len());
            prop_assert_eq!(read.into_iter().collect::<Vec<_>>(), records);
        }
    }
}
