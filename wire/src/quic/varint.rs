//! Variable-length integers (RFC 9000 §16): the two high bits of the first byte say how many bytes
//! there are; 62 bits of value, big-endian.

use alloc::vec::Vec;

/// The greatest number that can be written.
pub const MAX: u64 = (1 << 62) - 1;

/// The longest encoding.
pub const MAX_LEN: usize = 8;

/// Appends a number in its shortest form. One above [`MAX`] is written as that.
pub fn put(out: &mut Vec<u8>, value: u64) {
    let value = value.min(MAX);
    let len = len(value);
    let tag = u64::from(len.trailing_zeros()) << (8 * len - 2);
    out.extend_from_slice(&(value | tag).to_be_bytes()[MAX_LEN - len..]);
}

/// How many bytes a number takes.
pub const fn len(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// Takes a number off the front; none, and nothing taken, when it is not all there. Any form is
/// read, not only the shortest.
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let first = *bytes.first()?;
    let len = 1 << (first >> 6);
    let (number, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    let value = number.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    Some(value & (u64::MAX >> (66 - 8 * len)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_rfc_9000_appendix_a() {
        for (bytes, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ] {
            assert_eq!(take(&mut &*bytes), Some(value), "{bytes:x?}");
        }
    }

    #[test]
    fn what_is_not_all_there_is_left_alone() {
        for bytes in [&[][..], &[0x40], &[0x80, 0, 0], &[0xc0; 7]] {
            let mut rest = bytes;
            assert_eq!(take(&mut rest), None);
            assert_eq!(rest, bytes);
        }
    }

    proptest! {
        #[test]
        fn numbers_come_back_in_the_shortest_form(shift in 0u32..62, value in 0..=MAX) {
            let value = value >> shift;
            let mut out = Vec::new();
            put(&mut out, value);
            prop_assert_eq!(out.len(), len(value));
            let mut rest = &out[..];
            prop_assert_eq!(take(&mut rest), Some(value));
            prop_assert!(rest.is_empty());
        }
    }
}
