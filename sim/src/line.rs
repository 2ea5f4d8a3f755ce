//! A link in one direction: bandwidth, delay, a send buffer, and times when the peer reads nothing.
//!
//! Exact in integers: the buffer's level is kept in billionths of a byte and the line's clock
//! stands still while the peer does not read.

use crate::scenario::draw;
use sluicegate_core::Rand;

/// Billionths.
const NANO: u128 = 1_000_000_000;

/// What a line is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineSpec {
    /// Bytes per second. At least 1.
    pub bandwidth: u64,
    /// Nanoseconds a byte travels after it has left the buffer.
    pub delay: u64,
    /// Nanoseconds that a frame may come later than that.
    pub jitter: u64,
    /// Frames out of a million that come by retransmission.
    pub loss: u32,
    /// Nanoseconds until a lost frame is sent again.
    pub retransmit: u64,
    /// Bytes the buffers and windows of both ends take. At least 1.
    pub buffer: u64,
    /// When the peer reads nothing: from, to; in order, apart from each other.
    pub stalls: Vec<(u64, u64)>,
}

/// One direction of a connection.
///
/// A byte is in the buffer from its acceptance until it has crossed; a peer that reads nothing
/// lets no byte leave. All times are in nanoseconds and must not go backwards.
#[derive(Debug)]
pub struct Line {
    spec: LineSpec,
    /// Running time at which the buffer is empty, times the bandwidth.
    empty_at: u128,
    /// No frame arrives before the one ahead of it.
    last: u64,
    /// For jitter and loss.
    dice: Rand,
}

impl Line {
    /// An empty line.
    pub const fn new(spec: LineSpec, dice: Rand) -> Self {
        Self { spec, empty_at: 0, last: 0, dice }
    }

    /// What the line is like.
    pub const fn spec(&self) -> &LineSpec {
        &self.spec
    }

    /// Whether the peer reads nothing at `now`.
    pub fn is_stalled(&self, now: u64) -> bool {
        self.spec.stalls.iter().any(|&(from, to)| (from..to).contains(&now))
    }

    /// Bytes in the buffer.
    pub fn level(&self, now: u64) -> u64 {
        let left = self.empty_at.saturating_sub(self.moved(now)).div_ceil(NANO);
        u64::try_from(left).expect("the buffer's level is at most its size")
    }

    /// Bytes the buffer has room for.
    pub fn room(&self, now: u64) -> u64 {
        self.spec.buffer.saturating_sub(self.level(now))
    }

    /// Takes `bytes` into the buffer; they must fit into the room, or the buffer must be empty.
    pub fn accept(&mut self, now: u64, bytes: u64) {
        debug_assert!(bytes <= self.room(now) || self.level(now) == 0);
        self.empty_at = self.empty_at.max(self.moved(now)) + u128::from(bytes) * NANO;
    }

    /// When the byte that has `behind` accepted bytes after it arrives at the peer, or `None` if
    /// the peer never reads again.
    pub fn arrival(&self, behind: u64) -> Option<u64> {
        let crossed = self.empty_at - u128::from(behind) * NANO;
        Some(self.wall(crossed)?.saturating_add(self.spec.delay))
    }

    /// When a frame that ends `behind` bytes before what was accepted last reaches the peer, with
    /// its jitter, and after its retransmission if it is lost. Asked once per frame, in order.
    pub fn land(&mut self, behind: u64) -> Option<u64> {
        let mut at = self.arrival(behind)?;
        if self.spec.jitter > 0 {
            at = at.saturating_add(draw(&mut self.dice, (0, self.spec.jitter)));
        }
        if self.spec.loss > 0 && self.dice.below(1_000_000) < self.spec.loss.into() {
            at = at.saturating_add(self.spec.retransmit);
        }
        self.last = self.last.max(at);
        Some(self.last)
    }

    /// When the buffer holds at most `bytes`, or `None` if the peer never reads again.
    pub fn drained_to(&self, bytes: u64) -> Option<u64> {
        self.wall(self.empty_at.saturating_sub(u128::from(bytes) * NANO))
    }

    /// From `now` on nothing crosses any more.
    pub fn cut(&mut self, now: u64) {
        self.spec.stalls.retain(|stall| stall.0 < now);
        match self.spec.stalls.last_mut().filter(|stall| stall.1 >= now) {
            Some(stall) => stall.1 = u64::MAX,
            None => self.spec.stalls.push((now, u64::MAX)),
        }
    }

    /// Running time until `now`, times the bandwidth.
    fn moved(&self, now: u64) -> u128 {
        let ended = |&(from, to): &(u64, u64)| now.min(to).saturating_sub(from);
        let stood: u64 = self.spec.stalls.iter().map(ended).sum();
        u128::from(now - stood) * u128::from(self.spec.bandwidth)
    }

    /// The wall time at which the line has moved this far.
    fn wall(&self, moved: u128) -> Option<u64> {
        let running = moved.div_ceil(u128::from(self.spec.bandwidth));
        let mut at = u64::try_from(running).ok()?;
        for &(from, to) in &self.spec.stalls {
            if at <= from {
                break;
            }
            if to == u64::MAX {
                return None;
            }
            at = at.checked_add(to - from)?;
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(stalls: &[(u64, u64)]) -> Line {
        let stalls = stalls.to_vec();
        Line::new(spec(1_000_000_000, 7, 100, stalls), Rand::new(1))
    }

    fn spec(bandwidth: u64, delay: u64, buffer: u64, stalls: Vec<(u64, u64)>) -> LineSpec {
        LineSpec { bandwidth, delay, jitter: 0, loss: 0, retransmit: 0, buffer, stalls }
    }

    #[test]
    fn a_byte_crosses_in_its_time() {
        let mut line = line(&[]);
        line.accept(10, 60);
        assert_eq!([line.level(10), line.level(30), line.room(30)], [60, 40, 60]);
        assert_eq!([line.arrival(0), line.arrival(59)], [Some(77), Some(18)]);
        line.accept(30, 60);
        assert_eq!([line.room(30), line.room(31)], [0, 1]);
        assert_eq!(line.drained_to(50), Some(80));
        assert_eq!(line.room(80), 50, "exactly half");
    }

    #[test]
    fn nothing_moves_while_the_peer_reads_nothing() {
        let mut line = line(&[(20, 50), (60, 65)]);
        line.accept(10, 30);
        assert_eq!([20, 49, 50, 60, 64, 70].map(|t| line.level(t)), [20, 20, 20, 10, 10, 5]);
        assert_eq!(line.arrival(0), Some(75 + 7));
        assert_eq!([19, 20, 49, 50].map(|t| line.is_stalled(t)), [false, true, true, false]);
    }

    #[test]
    fn a_peer_that_never_reads_again_never_makes_room() {
        let mut line = line(&[(20, u64::MAX)]);
        line.accept(10, 100);
        assert_eq!([line.arrival(0), line.drained_to(50)], [None, None]);
        assert_eq!(line.arrival(90), Some(20 + 7), "it had read the first ten");
        assert_eq!(line.level(1 << 60), 90);
    }

    #[test]
    fn slow_and_odd_bandwidths_do_not_drift() {
        let mut line = Line::new(spec(3, 0, 1000, vec![]), Rand::new(1));
        for _ in 0..300 {
            line.accept(0, 1);
        }
        assert_eq!(line.arrival(0), Some(100_000_000_000));
    }

    #[test]
    fn jitter_and_loss_delay_frames_and_never_reorder_them() {
        let spec = LineSpec {
            jitter: 500,
            loss: 100_000,
            retransmit: 10_000,
            ..spec(1_000_000_000, 100, 1 << 20, vec![])
        };
        let mut line = Line::new(spec, Rand::new(5));
        let (mut last, mut late) = (0, 0);
        for frame in 0..1_000 {
            let now = frame * 1_000;
            line.accept(now, 10);
            let at = line.land(0).unwrap();
            assert!(at >= last && at >= now + 110);
            late += u32::from(at >= now + 10_000);
            last = at;
        }
        assert!((80..1_000).contains(&late), "a lost frame holds up those behind it: {late}");
    }

    #[test]
    fn a_line_that_is_cut_lets_nothing_cross_any_more() {
        for stalls in [&[][..], &[(5, 50)], &[(50, 60)]] {
            let mut line = line(stalls);
            line.accept(10, 50);
            line.cut(20);
            assert_eq!((line.arrival(0), line.drained_to(10)), (None, None), "{stalls:?}");
            assert!(line.is_stalled(1 << 60));
        }
    }
}
