//! The tape's hash: a fingerprint of every input and every effect of a run.

use std::fmt;

/// A running 64-bit hash over words, after FNV-1a, with a fold so that high bits reach low ones.
/// The same on every machine and in every build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tape(u64);

impl Default for Tape {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Tape {
    /// The hash as a number.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Appends words.
    pub fn put(&mut self, words: &[u64]) {
        for word in words {
            self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3);
            self.0 ^= self.0 >> 29;
        }
    }
}

impl fmt::Display for Tape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(words: &[u64]) -> Tape {
        let mut tape = Tape::default();
        tape.put(words);
        tape
    }

    #[test]
    fn the_hash_is_pinned_and_depends_on_every_word_and_on_their_order() {
        assert_eq!(hash(&[]).to_string(), "cbf29ce484222325");
        assert_eq!(hash(&[1, 2, 3]), hash(&[1, 2, 3]));
        let others = [&[1, 2][..], &[1, 3, 2], &[1, 2, 3, 0], &[1, 2, 1 << 63 | 3]];
        assert!(others.iter().all(|words| hash(words) != hash(&[1, 2, 3])));
    }
}
