//! What one subscriber has seen, and the records that it is sent.

use hdrhistogram::Histogram;
use sluicegate_host::clock::Clock;

/// Bytes of a record that say which it is and when it was sent.
pub(super) const STAMP: usize = 16;

/// Nanoseconds that latencies go up to: a minute.
const MOST: u64 = 60_000_000_000;

/// An empty histogram of nanoseconds, exact to 0.1 %.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, MOST, 3).expect("sound bounds")
}

/// Writes number and time into the front of a record, as far as they fit.
pub(super) fn stamp(record: &mut [u8], number: u64, clock: &Clock) {
    let mut front = [0; STAMP];
    front[..8].copy_from_slice(&number.to_be_bytes());
    front[8..].copy_from_slice(&clock.now().as_nanos().to_be_bytes());
    let len = record.len().min(STAMP);
    record[..len].copy_from_slice(&front[..len]);
}

/// What one subscriber has seen of the records that count.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    clock: Clock,
    /// Records numbered below are warm-up.
    from: u64,
    pub(super) received: u64,
    /// With those of the warm-up.
    pub(super) all: u64,
    /// Told as lost.
    pub(super) lost: u64,
    /// Came out of order, or twice.
    pub(super) disordered: u64,
    next: u64,
    pub(super) last_at: u64,
    pub(super) latency: Histogram<u64>,
}

impl Tally {
    pub(super) fn new(clock: Clock, from: u64) -> Self {
        let latency = histogram();
        Self {
            clock,
            from,
            received: 0,
            all: 0,
            lost: 0,
            disordered: 0,
            next: 0,
            last_at: 0,
            latency,
        }
    }

    /// A record came. Records too short for a number are only counted: `number` is their place
    /// among all.
    pub(super) fn see(&mut self, record: &[u8], number: u64) {
        let number = word(record, 0).unwrap_or(number);
        self.disordered += u64::from(number < self.next);
        self.next = number + 1;
        self.all += 1;
        if number < self.from {
            return;
        }
        self.received += 1;
        self.last_at = self.clock.now().as_nanos();
        if let Some(sent) = word(record, 8) {
            self.latency.saturating_record(self.last_at.saturating_sub(sent).max(1));
        }
    }
}

/// Eight bytes of a record's stamp, where it has so many.
fn word(record: &[u8], at: usize) -> Option<u64> {
    record.get(at..at + 8)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

/// How long ago a record was sent, in nanoseconds; none of one too short to say.
pub(super) fn age(record: &[u8], clock: &Clock) -> Option<u64> {
    word(record, 8).map(|sent| clock.now().as_nanos().saturating_sub(sent))
}
