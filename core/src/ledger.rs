//! The books. Every message ends in exactly one column, in records and in bytes.
//!
//! ```text
//! offered + returned = admitted + refused[place][reason] + shed[place][reason] + waiting
//! admitted + received = sequenced + evicted[place][reason] + returned + queued + forwarded
//! expected = delivered + dropped[place][reason] + left + lag (waiting, taken, mid-write)
//! ```
//!
//! No column is computed from the others, and nothing else in the project counts a message.

use crate::verdict::{Place, Reason, Refusal};
use alloc::vec::Vec;
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
    /// Was admitted, then had to make room and waits again: it counts as waiting, and may be
    /// admitted once more.
    pub returned: Tally,
    /// Was admitted and went to the shard that owns its topic.
    pub forwarded: Tally,
    /// Came from the shard that admitted it.
    pub received: Tally,
    /// Gauge: admitted or received, and not yet sequenced.
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

impl AddAssign<&Self> for Books {
    /// The books of several shards as one.
    fn add_assign(&mut self, other: &Self) {
        for (mine, theirs) in [
            (&mut self.offered, other.offered),
            (&mut self.admitted, other.admitted),
            (&mut self.waiting, other.waiting),
            (&mut self.sequenced, other.sequenced),
            (&mut self.returned, other.returned),
            (&mut self.forwarded, other.forwarded),
            (&mut self.received, other.received),
            (&mut self.queued, other.queued),
            (&mut self.expected, other.expected),
            (&mut self.delivered, other.delivered),
            (&mut self.left, other.left),
            (&mut self.lag, other.lag),
        ] {
            *mine += theirs;
        }
        for (mine, theirs) in [
            (&mut self.refused, &other.refused),
            (&mut self.shed, &other.shed),
            (&mut self.evicted, &other.evicted),
            (&mut self.dropped, &other.dropped),
        ] {
            theirs.iter().for_each(|(place, reason, tally)| mine.add(place, reason, tally));
        }
    }
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

/// Every counter of one shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) shard: Books,
    /// By tenant index.
    pub(crate) tenants: Vec<Books>,
}

/// Where a batch that reached subscriptions is counted besides the shard.
pub(crate) struct Page<'a> {
    pub(crate) tenant: u32,
    pub(crate) topic: &'a mut TopicBooks,
    pub(crate) sub: &'a mut SubBooks,
}

impl Ledger {
    fn both(&mut self, tenant: u32, entry: impl Fn(&mut Books)) {
        entry(&mut self.shard);
        entry(&mut self.tenants[tenant as usize]);
    }

    pub(crate) fn offered(&mut self, tenant: u32, tally: Tally) {
        self.both(tenant, |books| books.offered += tally);
    }

    pub(crate) fn admitted(&mut self, tenant: u32, tally: Tally) {
        self.both(tenant, |books| {
            books.admitted += tally;
            books.queued += tally;
        });
    }

    pub(crate) fn refused(&mut self, tenant: u32, why: Refusal, tally: Tally) {
        self.both(tenant, |books| books.refused.add(why.place, why.reason, tally));
    }

    pub(crate) fn shed(&mut self, tenant: u32, why: Refusal, tally: Tally) {
        self.both(tenant, |books| books.shed.add(why.place, why.reason, tally));
    }

    pub(crate) fn parked(&mut self, tenant: u32, tally: Tally) {
        self.both(tenant, |books| books.waiting += tally);
    }

    pub(crate) fn unparked(&mut self, tenant: u32, tally: Tally) {
        self.both(tenant, |books| books.waiting -= tally);
    }

    /// An admitted job was pushed out for good.
    pub(crate) fn evicted(&mut self, tenant: u32, why: Refusal, tally: Tally) {
        self.both(tenant, |books| {
            books.evicted.add(why.place, why.reason, tally);
            books.queued -= tally;
        });
    }

    /// An admitted job was pushed out and waits again.
    pub(crate) fn returned(&mut self, tenant: u32, tally: Tally) {
        self.both(tenant, |books| {
            books.returned += tally;
            books.queued -= tally;
            books.waiting += tally;
        });
    }

    /// An admitted job went to the owner of its topic.
    pub(crate) fn forwarded(&mut self, tenant: u32, tally: Tally) {
        self.both(tenant, |books| {
            books.forwarded += tally;
            books.queued -= tally;
        });
    }

    /// A job that another shard admitted came in.
    pub(crate) fn received(&mut self, tenant: u32, tally: Tally) {
        self.both(tenant, |books| {
            books.received += tally;
            books.queued += tally;
        });
    }

    pub(crate) fn sequenced(&mut self, tenant: u32, topic: &mut TopicBooks, tally: Tally) {
        topic.sequenced += tally;
        self.both(tenant, |books| {
            books.sequenced += tally;
            books.queued -= tally;
        });
    }

    /// A batch reached subscriptions; each has booked its own part with [`SubBooks::expect`].
    pub(crate) fn expected(&mut self, tenant: u32, topic: &mut TopicBooks, tally: Tally) {
        topic.expected += tally;
        topic.lag += tally;
        self.both(tenant, |books| {
            books.expected += tally;
            books.lag += tally;
        });
    }

    /// Batches of one tenant were delivered; each has booked its own part with
    /// [`TopicBooks::deliver`] and [`SubBooks::deliver`].
    pub(crate) fn delivered(&mut self, tenant: u32, tally: Tally) {
        self.both(tenant, |books| {
            books.delivered += tally;
            books.lag -= tally;
        });
    }

    pub(crate) fn dropped(&mut self, page: Page<'_>, place: Place, reason: Reason, tally: Tally) {
        page.sub.dropped += tally;
        page.sub.lag -= tally;
        page.sub.last_drop = Some((place, reason));
        page.topic.dropped += tally;
        page.topic.lag -= tally;
        self.both(page.tenant, |books| {
            books.dropped.add(place, reason, tally);
            books.lag -= tally;
        });
    }

    pub(crate) fn left(&mut self, page: Page<'_>, tally: Tally) {
        page.sub.lag -= tally;
        page.topic.left += tally;
        page.topic.lag -= tally;
        self.both(page.tenant, |books| {
            books.left += tally;
            books.lag -= tally;
        });
    }
}

impl SubBooks {
    pub(crate) fn expect(&mut self, tally: Tally) {
        self.expected += tally;
        self.lag += tally;
    }

    pub(crate) fn deliver(&mut self, tally: Tally) {
        self.delivered += tally;
        self.lag -= tally;
    }

    /// Whether the identity holds for a subscription that has not left.
    #[cfg(any(test, feature = "check"))]
    pub(crate) fn check(&self) -> Result<(), Broken> {
        let parts = [self.delivered, self.dropped, self.lag];
        same_tally("subscription: expected = delivered + dropped + lag", self.expected, sum(parts))
    }
}

impl TopicBooks {
    pub(crate) fn deliver(&mut self, tally: Tally) {
        self.delivered += tally;
        self.lag -= tally;
    }

    /// Whether the identity holds.
    #[cfg(any(test, feature = "check"))]
    pub(crate) fn check(&self) -> Result<(), Broken> {
        let parts = [self.delivered, self.dropped, self.left, self.lag];
        same_tally("topic: expected = delivered + dropped + left + lag", self.expected, sum(parts))
    }
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
    /// Every column by its name, in the order of the identities; tables summed up.
    pub fn columns(&self) -> [(&'static str, Tally); 16] {
        [
            ("offered", self.offered),
            ("admitted", self.admitted),
            ("refused", self.refused.total()),
            ("shed", self.shed.total()),
            ("waiting", self.waiting),
            ("sequenced", self.sequenced),
            ("evicted", self.evicted.total()),
            ("returned", self.returned),
            ("forwarded", self.forwarded),
            ("received", self.received),
            ("queued", self.queued),
            ("expected", self.expected),
            ("delivered", self.delivered),
            ("dropped", self.dropped.total()),
            ("left", self.left),
            ("lag", self.lag),
        ]
    }

    /// Whether the three identities hold.
    #[cfg(any(test, feature = "check"))]
    pub fn check(&self) -> Result<(), Broken> {
        let parts = [self.admitted, self.refused.total(), self.shed.total(), self.waiting];
        let offered = sum([self.offered, self.returned]);
        same_tally(
            "offered + returned = admitted + refused + shed + waiting",
            offered,
            sum(parts),
        )?;
        let ended = [self.sequenced, self.evicted.total(), self.returned];
        same_tally(
            "admitted + received = sequenced + evicted + returned + queued + forwarded",
            sum([self.admitted, self.received]),
            sum([sum(ended), self.queued, self.forwarded]),
        )?;
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
    fn the_columns_are_all_of_the_books_each_by_its_name() {
        let mut books = Books::default();
        let mut tallies = (1..).map(|n| ONE.times(n));
        for column in [
            &mut books.offered,
            &mut books.admitted,
            &mut books.waiting,
            &mut books.sequenced,
            &mut books.returned,
            &mut books.forwarded,
            &mut books.received,
            &mut books.queued,
            &mut books.expected,
            &mut books.delivered,
            &mut books.left,
            &mut books.lag,
        ] {
            *column = tallies.next().unwrap();
        }
        let Books { refused, shed, evicted, dropped, .. } = &mut books;
        for table in [refused, shed, evicted, dropped] {
            table.add(Place::Schedule, Reason::QueueFull, ONE);
            table.add(Place::Mesh, Reason::MeshFull, tallies.next().unwrap());
        }
        let found = books.columns().map(|(name, tally)| (name, tally.records));
        let due = [
            ("offered", 1),
            ("admitted", 2),
            ("refused", 14),
            ("shed", 15),
            ("waiting", 3),
            ("sequenced", 4),
            ("evicted", 16),
            ("returned", 5),
            ("forwarded", 6),
            ("received", 7),
            ("queued", 8),
            ("expected", 9),
            ("delivered", 10),
            ("dropped", 17),
            ("left", 11),
            ("lag", 12),
        ];
        assert_eq!(found, due);
    }

    #[test]
    fn the_identity_of_a_subscription_and_of_a_topic_is_checked() {
        let mut sub = SubBooks { expected: ONE, delivered: ONE, ..SubBooks::default() };
        sub.check().unwrap();
        sub.lag = ONE;
        assert_eq!(sub.check().unwrap_err().due, 2);
        let mut topic = TopicBooks { expected: ONE, left: ONE, ..TopicBooks::default() };
        topic.check().unwrap();
        topic.lag = ONE;
        assert_eq!(topic.check().unwrap_err().due, 2);
    }

    #[test]
    fn each_identity_is_checked_in_records_and_bytes() {
        let breaks: [fn(&mut Books); 4] = [
            |b| b.offered += ONE,
            |b| b.queued += ONE,
            |b| b.returned += ONE,
            |b| b.delivered.bytes += 1,
        ];
        for damage in breaks {
            let mut books = Books::default();
            books.check().unwrap();
            damage(&mut books);
            let broken = books.check().unwrap_err();
            assert!(broken.to_string().contains("should be"), "{broken}");
        }
    }
}
