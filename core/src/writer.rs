//! The write side of one outlet: control frames, what is begun, what is on offer.

use alloc::collections::VecDeque;

/// Byte quantum of the ready lists.
pub(crate) const QUANTUM: i64 = 64 << 10;

/// Where control bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Before all data that is not in mid-write: acks, pongs, errors, gap notices.
    First,
    /// In order with the data: subscribed, ended.
    InLine,
}

/// The write side of one outlet.
#[derive(Debug, Default)]
pub(crate) struct Write {
    pub(crate) state: State,
    /// From a short write until the transport is writable again.
    pub(crate) refusing: bool,
    /// The frame in mid-write: the front of which queue, and how many of its bytes are out.
    pub(crate) begun: Option<(Lane, u64)>,
    /// Control frames that go before the data.
    first: VecDeque<u32>,
    /// Bytes of control frames in both lanes.
    pub(crate) control: u64,
    /// They are more than half of the reserve; the connection is paused.
    pub(crate) control_full: bool,
    pub(crate) offered: Offered,
    /// Byte credit in the ready lists.
    pub(crate) deficit: i64,
    /// Which of the two ready lists it is in.
    pub(crate) is_new: bool,
}

/// What an open offer holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Offered {
    pub(crate) firsts: u32,
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing to write, or refusing.
    #[default]
    Idle,
    /// In a ready list.
    Ready,
    /// Has an open offer.
    Offered,
}

/// What became of a frame when an offer was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Finished,
    Begun,
    Untouched,
}

impl Write {
    /// A turn in which `bytes` went out is over. Whether it may have another one.
    #[inline]
    pub(crate) fn settle(&mut self, bytes: u64) -> bool {
        let spent = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.deficit = self.deficit.saturating_sub(spent).max(-QUANTUM);
        self.state = State::Idle;
        !self.refusing
    }

    pub(crate) fn has_first(&self) -> bool {
        !self.first.is_empty()
    }

    pub(crate) fn push_first(&mut self, message: u32) {
        self.first.push_back(message);
    }

    pub(crate) fn first_at(&self, at: u32) -> Option<u32> {
        self.first.get(at as usize).copied()
    }

    pub(crate) fn pop_first(&mut self) -> Option<u32> {
        self.first.pop_front()
    }

    /// Control frames of the first lane, in order.
    pub(crate) fn firsts(&self) -> impl Iterator<Item = u32> {
        self.first.iter().copied()
    }

    /// Bytes of the front frame of a lane that are out already.
    pub(crate) fn out(&self, lane: Lane) -> u64 {
        match self.begun {
            Some((begun, out)) if begun == lane => out,
            _ => 0,
        }
    }

    /// Spends accepted bytes on the front frame of a lane.
    pub(crate) fn spend(&mut self, lane: Lane, frame: u64, accepted: &mut u64) -> Progress {
        let need = frame - self.out(lane);
        if *accepted >= need {
            *accepted -= need;
            if self.out(lane) > 0 {
                self.begun = None;
            }
            return Progress::Finished;
        }
        if *accepted == 0 {
            return if self.out(lane) > 0 { Progress::Begun } else { Progress::Untouched };
        }
        self.begun = Some((lane, self.out(lane) + *accepted));
        *accepted = 0;
        Progress::Begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spending_finishes_begins_or_leaves_a_frame() {
        let mut write = Write::default();
        let mut accepted = 7;
        assert_eq!(write.spend(Lane::InLine, 5, &mut accepted), Progress::Finished);
        assert_eq!(write.spend(Lane::InLine, 5, &mut accepted), Progress::Begun);
        assert_eq!(write.begun, Some((Lane::InLine, 2)));
        assert_eq!(write.spend(Lane::InLine, 5, &mut accepted), Progress::Begun);
        assert_eq!(write.spend(Lane::First, 5, &mut accepted), Progress::Untouched);
        accepted = 3;
        assert_eq!(write.spend(Lane::InLine, 5, &mut accepted), Progress::Finished);
        assert_eq!((write.begun, accepted), (None, 0));
    }
}
