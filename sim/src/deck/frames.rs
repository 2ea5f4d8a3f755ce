//! Whose bytes an offered slice holds, told by its address.

use bytes::Bytes;
use sluicegate_core::{Input, Kind};
use std::sync::OnceLock;

/// The longest frame there is.
const LONGEST: usize = 64 << 20;
/// Publishes that can be told apart while their frames live.
const PLACES: usize = 1 << 20;

/// Zeros that nobody writes, so that they take no memory.
fn zeros() -> &'static Bytes {
    static ZEROS: OnceLock<Bytes> = OnceLock::new();
    ZEROS.get_or_init(|| Bytes::from(vec![0; LONGEST + PLACES + 1]))
}

/// A publish that was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    /// The shard that it came to, and which of its publishers brought it, if that is known.
    pub(super) source: (u32, Option<u32>),
    pub(super) records: u32,
    pub(super) bytes: u64,
    pub(super) except: Option<u64>,
}

/// The frames of a deck: one place for each publish, and one for all control frames.
#[derive(Debug, Default)]
pub(super) struct Frames {
    made: Vec<Made>,
}

/// A slice that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    /// Where it begins among the zeros.
    pub(super) at: usize,
    pub(super) bytes: u64,
}

/// The frame of `bytes` bytes at a place.
pub(super) fn cut(place: usize, bytes: usize) -> Bytes {
    zeros().slice(place..place + bytes.min(LONGEST))
}

impl Frames {
    /// Where the frame of an input is cut.
    pub(super) fn slot_of(&self, input: &Input) -> usize {
        match input.kind() {
            Kind::Publish | Kind::Receive => self.made.len() % PLACES,
            _ => PLACES,
        }
    }

    /// Notes the publish whose frame was cut last. Its number.
    pub(super) fn made(&mut self, made: Made) -> u64 {
        self.made.push(made);
        self.made.len() as u64 - 1
    }

    /// The publish of a number.
    pub(super) fn number(&self, number: u64) -> Option<Made> {
        self.made.get(usize::try_from(number).ok()?).copied()
    }

    /// An offered slice, as its place.
    pub(super) fn slice(slice: &[u8]) -> Slice {
        let at = (slice.as_ptr() as usize).wrapping_sub(zeros().as_ptr() as usize);
        Slice { at, bytes: slice.len() as u64 }
    }

    /// The latest publish whose frame begins at a place.
    pub(super) fn publish(&self, place: usize) -> Option<(u64, Made)> {
        let latest = (self.made.len().checked_sub(1 + place)?) / PLACES * PLACES + place;
        self.made.get(latest).map(|made| (latest as u64, *made))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_known_by_where_it_begins() {
        let mut frames = Frames::default();
        let made = Made { source: (0, None), records: 1, bytes: 500, except: None };
        for number in 0..5 {
            let input = Input::with(Kind::Publish, &[0, 0, 500]);
            let frame = cut(frames.slot_of(&input), 500);
            assert_eq!(frames.made(made), number);
            let slice = Frames::slice(&frame);
            assert_eq!(frames.publish(slice.at).map(|found| found.0), Some(number));
            assert_eq!(Frames::slice(&frame[9..]).at, slice.at + 9);
        }
        assert!(frames.publish(5).is_none() && frames.publish(PLACES).is_none());
    }
}
