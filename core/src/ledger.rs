//! The books. Every message ends in exactly one column, in records and in bytes.
//!
//! ```text
//! offered  = admitted + refused[place][reason] + shed[place][reason] + waiting
//! admitted = sequenced + evicted[place][reason] + queued
//! expected = delivered + dropped[place][reason] + left + lag (waiting, taken, mid-write)
//! ```
//!
//! No column is computed from the others, and nothing else in the project counts a message.

use crate::verdict::{Place, Reason};
use core::ops::{AddAssign, SubAssign};

/// A count of records and of their encoded bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Records.
    pub records: u64,
    /// Bytes of their frames.
    pub bytes: u64,
}

impl Tally {
    /// Nothing.
    pub const ZERO: Self = Self { records: 0, bytes: 0 };

    /// Whether both counts are zero.
    pub const fn is_zero(self) -> bool {
        self.records == 0 && self.bytes == 0
    }

    /// This tally `n` times over.
    pub const fn times(self, n: u64) -> Self {
        Self { records: self.records * n, bytes: self.bytes * n }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.records += other.records;
        self.bytes += other.bytes;
    }
}

impl SubAssign for Tally {
    fn sub_assign(&mut self, other: Self) {
        debug_assert!(self.records >= other.records && self.bytes >= other.bytes);
        self.records -= other.records;
        self.bytes -= other.bytes;
    }
}

impl core::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::ZERO, |mut sum, tally| {
            sum += tally;
            sum
        })
    }
}

/// One tally per place and reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table([[Tally; Reason::ALL.len()]; Place::ALL.len()]);

impl Table {
    /// Adds `tally` under a place and reason.
    pub(crate) fn add(&mut self, place: Place, reason: Reason, tally: Tally) {
        self.0[place as usize][reason as usize] += tally;
    }

    /// What is booked under a place and reason.
    pub const fn get(&self, place: Place, reason: Reason) -> Tally {
        self.0[place as usize][reason as usize]
    }

    /// Everything in the table.
    pub fn total(&self) -> Tally {
        self.iter().map(|(_, _, tally)| tally).sum()
    }

    /// Every cell that is not zero, in ledger order.
    pub fn iter(&self) -> impl Iterator<Item = (Place, Reason, Tally)> {
        Place::ALL.into_iter().flat_map(move |place| {
            let cells = Reason::ALL.into_iter().map(move |r| (place, r, self.get(place, r)));
            cells.filter(|(_, _, tally)| !tally.is_zero())
        })
    }
}

/// The three identities, for a shard or for one tenant of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Everything a publisher brought.
    pub offered: Tally,
    /// Passed checkpoints 3 and 4.
    pub admitted: Tally,
    /// Answered no.
    pub refused: Table,
    /// Unacked and discarded; the publisher is told the count.
    pub shed: Table,
    /// Gauge: parked, holding nothing.
    pub waiting: Tally,
    /// Got its sequence numbers.
    pub sequenced: Tally,
    /// Was admitted and then pushed out.
    pub evicted: Table,
    /// Gauge: admitted and not yet sequenced.
    pub queued: Tally,
    /// Reached a subscription.
    pub expected: Tally,
    /// Its last byte was accepted by the layer under the shell.
    pub delivered: Tally,
    /// We ended it.
    pub dropped: Table,
    /// The peer ended it: it unsubscribed or went away.
    pub left: Tally,
    /// Gauge: reached a subscription and not yet ended (waiting, taken or in mid-write).
    pub lag: Tally,
}

/// The totals of one subscription: enough to say why it is not getting messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubBooks {
    /// Reached this subscription.
    pub expected: Tally,
    /// Its last byte was accepted by the layer under the shell.
    pub delivered: Tally,
    /// We ended it.
    pub dropped: Tally,
    /// Where and why the latest of them was dropped.
    pub last_drop: Option<(Place, Reason)>,
    /// Not yet ended.
    pub lag: Tally,
}

/// The totals of one topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopicBooks {
    /// Got sequence numbers here.
    pub sequenced: Tally,
    /// Reached a subscription.
    pub expected: Tally,
    /// Delivered to a subscription.
    pub delivered: Tally,
    /// Dropped for a subscription.
    pub dropped: Tally,
    /// Ended by the peer.
    pub left: Tally,
    /// Not yet ended.
    pub lag: Tally,
}

/// An identity that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which one.
    pub what: &'static str,
    /// What is kept.
    pub kept: u64,
    /// What it should be.
    pub due: u64,
}

impl core::fmt::Display for Broken {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}: kept {}, should be {}", self.what, self.kept, self.due)
    }
}

/// Compares a kept number with what it should be.
#[cfg(any(test, feature = "check"))]
pub(crate) fn same(what: &'static str, kept: u64, due: u64) -> Result<(), Broken> {
    if kept == due { Ok(()) } else { Err(Broken { what, kept, due }) }
}

#[cfg(any(test, feature = "check"))]
pub(crate) fn same_tally(what: &'static str, kept: Tally, due: Tally) -> Result<(), Broken> {
    same(what, kept.records, due.records)?;
    same(what, kept.bytes, due.bytes)
}

impl Books {
    /// Whether the three identities hold.
    #[cfg(any(test, feature = "check"))]
    pub fn check(&self) -> Result<(), Broken> {
        let parts = [self.admitted, self.refused.total(), self.shed.total(), self.waiting];
        same_tally("offered = admitted + refused + shed + waiting", self.offered, sum(parts))?;
        let parts = [self.sequenced, self.evicted.total(), self.queued];
        same_tally("admitted = sequenced + evicted + queued", self.admitted, sum(parts))?;
        let parts = [self.delivered, self.dropped.total(), self.left, self.lag];
        same_tally("expected = delivered + dropped + left + lag", self.expected, sum(parts))
    }
}

#[cfg(any(test, feature = "check"))]
fn sum<const N: usize>(parts: [Tally; N]) -> Tally {
    parts.into_iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    const ONE: Tally = Tally { records: 1, bytes: 10 };

    #[test]
    fn a_table_lists_only_what_happened() {
        let mut table = Table::default();
        table.add(Place::Backlog, Reason::DropOld, ONE);
        table.add(Place::Backlog, Reason::DropOld, ONE.times(2));
        let cells: Vec<_> = table.iter().collect();
        assert_eq!(cells, [(Place::Backlog, Reason::DropOld, ONE.times(3))]);
        assert_eq!(table.total(), ONE.times(3));
    }

    #[test]
    fn each_identity_is_checked_in_records_and_bytes() {
        let breaks: [fn(&mut Books); 3] =
            [|b| b.offered += ONE, |b| b.queued += ONE, |b| b.delivered.bytes += 1];
        for damage in breaks {
            let mut books = Books::default();
            books.check().unwrap();
            damage(&mut books);
            let broken = books.check().unwrap_err();
            assert!(broken.to_string().contains("should be"), "{broken}");
        }
    }
}
