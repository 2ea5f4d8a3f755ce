//! Frames out of a stream's bytes, however those are cut.

use super::{Fault, varint};
use alloc::vec::Vec;

/// Memory that a frame gets before its bytes are there. A larger frame gets more as it arrives, so
/// that announcing much costs the peer much.
const AHEAD: usize = 64 << 10;

/// Collects one frame after the other from one stream.
///
/// Holds at most one frame: no more than twice what has arrived of it, or 64 KiB.
#[derive(Debug)]
pub struct Assembler {
    most: u64,
    /// The length, as far as it is there, until all of it is.
    head: [u8; varint::MAX_LEN],
    head_len: usize,
    /// How long the frame is; known once the head is done.
    frame: Option<usize>,
    body: Vec<u8>,
}

impl Assembler {
    /// For frames of at most `most` bytes.
    pub const fn new(most: u64) -> Self {
        Self { most, head: [0; varint::MAX_LEN], head_len: 0, frame: None, body: Vec::new() }
    }

    /// Changes the limit for the frames to come.
    pub const fn set_most(&mut self, most: u64) {
        self.most = most;
    }

    /// Takes bytes off the front, up to the end of a frame. Answers that frame, type and fields
    /// and not the length before them, or none when more bytes are needed.
    ///
    /// # Errors
    /// A frame that is empty or above the limit is refused on its length.
    pub fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let len = match self.frame {
            Some(len) => len,
            None => match self.take_head(bytes)? {
                Some(len) => len,
                None => return Ok(None),
            },
        };
        let (part, rest) = bytes.split_at(bytes.len().min(len - self.body.len()));
        *bytes = rest;
        if self.body.capacity() < self.body.len() + part.len() {
            let want = (2 * (self.body.len() + part.len())).clamp(AHEAD.min(len), len);
            self.body.reserve_exact(want - self.body.len());
        }
        self.body.extend_from_slice(part);
        if self.body.len() < len {
            return Ok(None);
        }
        self.frame = None;
        Ok(Some(core::mem::take(&mut self.body)))
    }

    /// Bytes of memory that the unfinished frame holds.
    pub const fn held(&self) -> u64 {
        self.body.capacity() as u64
    }

    /// Whether a frame has begun and not ended.
    pub const fn is_inside(&self) -> bool {
        self.head_len > 0 || self.frame.is_some()
    }

    fn take_head(&mut self, bytes: &mut &[u8]) -> Result<Option<usize>, Fault> {
        while let Some((first, rest)) = bytes.split_first() {
            *bytes = rest;
            self.head[self.head_len] = *first;
            self.head_len += 1;
            let Some(len) = varint::take(&mut &self.head[..self.head_len]) else { continue };
            self.head_len = 0;
            if len == 0 {
                return Err(Fault::Truncated);
            }
            let fits = usize::try_from(len).ok().filter(|_| len <= self.most);
            self.frame = Some(fits.ok_or(Fault::TooLarge { len, most: self.most })?);
            return Ok(self.frame);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn all(assembler: &mut Assembler, mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while let Some(frame) = assembler.take(&mut bytes).unwrap() {
            frames.push(frame);
        }
        assert!(bytes.is_empty());
        frames
    }

    #[test]
    fn a_length_above_the_limit_is_refused_before_anything_is_held() {
        let mut assembler = Assembler::new(100);
        let mut bytes = Vec::new();
        varint::put(&mut bytes, 101);
        let fault = assembler.take(&mut &bytes[..]).unwrap_err();
        assert_eq!(fault, Fault::TooLarge { len: 101, most: 100 });
        assert_eq!(assembler.held(), 0);
    }

    #[test]
    fn announcing_much_costs_the_peer_much() {
        let mut assembler = Assembler::new(16 << 20);
        let mut bytes = Vec::new();
        varint::put(&mut bytes, 16 << 20);
        bytes.push(1);
        assert!(all(&mut assembler, &bytes).is_empty());
        assert!(assembler.held() <= 64 << 10, "{}", assembler.held());
        all(&mut assembler, &vec![0; 1 << 20]);
        assert!(assembler.held() <= 2 << 20 | 2, "{}", assembler.held());
    }

    #[test]
    fn an_empty_frame_is_a_fault() {
        assert_eq!(Assembler::new(100).take(&mut &[0][..]), Err(Fault::Truncated));
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_frames(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200), 0..8),
            cuts in prop::collection::vec(1usize..50, 1..50),
        ) {
            let mut bytes = Vec::new();
            for frame in &frames {
                varint::put(&mut bytes, frame.len() as u64);
                bytes.extend_from_slice(frame);
            }
            let mut assembler = Assembler::new(1000);
            let (mut rest, mut got) = (&bytes[..], Vec::new());
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (part, after) = rest.split_at(rest.len().min(*cut));
                got.extend(all(&mut assembler, part));
                rest = after;
            }
            prop_assert_eq!(got, frames);
            prop_assert!(!assembler.is_inside());
        }
    }
}
