//! Sequence: a topic gives each batch one number everywhere, in the order in which its source
//! brought it; each subscriber gets numbers in rising order, and from its start on every number
//! came or was told as lost, before the next one and only once.
//!
//! Where [`order`](super::order) rebuilds the numbers from what was admitted, this judge reads the
//! numbers that the frames themselves bear. It needs no acks, and follows who joins late, starts in
//! the past, or is left out of a publish.

use super::{Finding, Found};
use sluicegate_core::Gap;
use std::collections::BTreeMap;

const NAME: &str = "sequence";

/// A batch that has its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Which publish, in the order in which all were offered.
    pub publish: u64,
    /// Records in it.
    pub records: u64,
    /// The shard that took it in, and from which of its publishers, if that is known.
    pub source: Source,
    /// The outlet that is left out, if any.
    pub except: Option<u64>,
}

/// One life of a topic.
#[derive(Debug, Default)]
struct Numbers {
    /// By first number.
    batches: BTreeMap<u64, Batch>,
    /// The first number of each, by source and then in the order in which all were offered.
    orders: BTreeMap<(Source, u64), u64>,
}

/// A shard, and one of its publishers, if that is known.
type Source = (u32, Option<u32>);

/// What one subscription saw.
#[derive(Debug, Default)]
struct Reader {
    /// The next number it may get; none while it is not in force.
    at: Option<u64>,
    outlet: u64,
    /// Where its topic was when it began. Of the numbers before that only so many records are due
    /// to it that have not come, as those of before were kept.
    began: u64,
    owed: u64,
    /// Its start was told later, and nothing else since: a gap may reach back before it.
    is_placed: bool,
    /// Gaps that were told and may reach beyond `at`.
    told: Vec<Gap>,
    /// Records told as lost, found missing, and of those perhaps left out.
    records: u64,
    lost: u64,
    spared: u64,
}

/// Follows every topic and every subscription.
#[derive(Debug, Default)]
pub struct Sequence {
    /// By epoch.
    topics: BTreeMap<u64, Numbers>,
    readers: Vec<Reader>,
    /// Outlets that some publish left out.
    spared: std::collections::BTreeSet<u64>,
}

impl Sequence {
    /// A subscription was made: its number is the next free one. `at` is the first number it is
    /// promised, once that is known.
    pub fn subscribed(&mut self, outlet: u64, at: Option<u64>) {
        self.readers.push(Reader { at, outlet, ..Reader::default() });
    }

    /// A subscription is in force.
    pub fn joined(&mut self, reader: u32, start: u64) -> Found {
        let reader = &mut self.readers[index(reader)];
        if reader.at.replace(start).is_some() {
            return bad("a subscription joined twice");
        }
        reader.is_placed = true;
        Ok(())
    }

    /// A subscription that was just given its start began when its topic's next number was `next`;
    /// `owed` records of those before it were kept for it.
    pub fn began(&mut self, reader: u32, (next, owed): (u64, u64)) {
        let reader = &mut self.readers[index(reader)];
        (reader.began, reader.owed) = (next, owed);
    }

    /// A publish leaves out an outlet.
    pub fn leaves_out(&mut self, outlet: u64) {
        self.spared.insert(outlet);
    }

    /// A batch has the number `first`. Cost: O(log batches).
    pub fn numbered(&mut self, epoch: u64, first: u64, batch: Batch) -> Found {
        let Numbers { batches, orders } = self.topics.entry(epoch).or_default();
        if let Some(known) = batches.insert(first, batch) {
            if known == batch {
                return Ok(());
            }
            let (one, other) = (known.publish, batch.publish);
            return bad(format!("publishes {one} and {other} both have sequence {first}"));
        }
        let Batch { publish, source, .. } = batch;
        let before = orders.range((source, 0)..(source, publish)).next_back();
        let after = orders.range((source, publish)..=(source, u64::MAX)).next();
        if before.is_some_and(|(_, at)| *at > first) || after.is_some_and(|(_, at)| *at < first) {
            let shard = source.0;
            return bad(format!(
                "publish {publish} has sequence {first}, out of the order in which its source \
                 brought them to shard {shard}"
            ));
        }
        orders.insert((source, publish), first);
        let overlaps =
            batches.range(..first).next_back().is_some_and(|(at, b)| at + b.records > first);
        if overlaps { bad(format!("sequence {first} was given twice")) } else { Ok(()) }
    }

    /// A batch reached a subscription. Cost: O(what is missing before it).
    pub fn received(&mut self, reader: u32, epoch: u64, (first, records): (u64, u64)) -> Found {
        let name = reader;
        let reader = &mut self.readers[index(reader)];
        let Some(at) = reader.at else {
            return bad(format!("sequence {first} came before its start"));
        };
        if first < at {
            return bad(format!("subscription {name}: sequence {first} came, but {at} was due"));
        }
        let told = |gap: &Gap| is_whole(gap) && gap.first < first + records && first <= gap.last;
        if reader.told.iter().any(told) {
            return bad(format!("subscription {name}: sequence {first} came and was told as lost"));
        }
        self.miss(name, epoch, (at, first))?;
        let reader = &mut self.readers[index(name)];
        reader.at = Some(first + records);
        reader.is_placed = false;
        if first < reader.began {
            let Some(owed) = reader.owed.checked_sub(records) else {
                return bad(format!("subscription {name}: {first} came, but was never kept"));
            };
            reader.owed = owed;
        }
        reader.told.retain(|gap| gap.last >= first + records);
        Ok(())
    }

    /// A subscription was told a gap.
    pub fn told(&mut self, reader: u32, gap: Gap) -> Found {
        let name = reader;
        let reader = &mut self.readers[index(reader)];
        let span = gap.last.checked_sub(gap.first).map_or(0, |span| span + 1);
        if gap.records == 0 || gap.records > span {
            let Gap { first, last, records, .. } = gap;
            return bad(format!("a gap of {records} records in {first}..={last} makes no sense"));
        }
        let placed = std::mem::take(&mut reader.is_placed);
        if placed && reader.at.is_some_and(|at| gap.first < at && at <= gap.last + 1) {
            reader.at = Some(gap.first);
        }
        if reader.at.is_some_and(|at| gap.first < at) {
            let first = gap.first;
            return bad(format!(
                "subscription {name}: {first} is told as lost after it, or a later one, came"
            ));
        }
        reader.records += gap.records;
        reader.told.push(gap);
        Ok(())
    }

    /// Nothing waits for a subscription any more, and its topic's next number is `head`.
    pub fn end(&mut self, reader: u32, epoch: u64, head: u64) -> Found {
        let name = reader;
        let Some(at) = self.readers[index(reader)].at else { return Ok(()) };
        self.miss(name, epoch, (at, head.max(at)))?;
        let Reader { records, owed, lost, spared, .. } = self.readers[index(name)];
        let lost = lost + owed;
        if records + spared >= lost && records <= lost {
            return Ok(());
        }
        bad(format!("subscription {name}: {records} records were told as lost, but {lost} were"))
    }

    /// The numbers `from..to` did not come: each was told, or its publish left this outlet out.
    /// What is from before the subscription began is counted at the end.
    fn miss(&mut self, name: u32, epoch: u64, (from, to): (u64, u64)) -> Found {
        let batches = &self.topics.entry(epoch).or_default().batches;
        let reader = &mut self.readers[index(name)];
        let perhaps = self.spared.contains(&reader.outlet);
        for number in from.max(reader.began)..to {
            let batch = batches.range(..=number).next_back();
            let batch = batch.filter(|(first, batch)| *first + batch.records > number);
            let left_out = batch.map_or(perhaps, |(_, batch)| batch.except == Some(reader.outlet));
            if reader.told.iter().any(|gap| (gap.first..=gap.last).contains(&number)) {
                reader.lost += 1;
                reader.spared += u64::from(left_out);
            } else if !left_out {
                return bad(format!(
                    "subscription {name}: {number} neither came nor was told as lost"
                ));
            }
        }
        Ok(())
    }
}

fn is_whole(gap: &Gap) -> bool {
    gap.records == gap.last - gap.first + 1
}

fn index(number: u32) -> usize {
    usize::try_from(number).expect("an index of a vector")
}

fn bad(what: impl Into<String>) -> Found {
    Err(Finding::safety(NAME, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_core::{Place, Reason};

    const BATCH: Batch = Batch { publish: 0, records: 2, source: (0, Some(3)), except: None };

    fn gap(first: u64, last: u64, records: u64) -> Gap {
        Gap { first, last, records, place: Place::Backlog, reason: Reason::DropNew }
    }

    /// Five batches of two records, and one subscription from the first on.
    fn judge() -> Sequence {
        let mut judge = Sequence::default();
        for publish in 0..5 {
            judge.numbered(9, 1 + 2 * publish, Batch { publish, ..BATCH }).unwrap();
        }
        judge.subscribed(7, Some(1));
        judge
    }

    #[test]
    fn what_comes_in_order_or_is_told_passes() {
        let mut judge = judge();
        judge.received(0, 9, (1, 2)).unwrap();
        judge.told(0, gap(3, 6, 4)).unwrap();
        judge.received(0, 9, (7, 2)).unwrap();
        judge.told(0, gap(9, 10, 2)).unwrap();
        judge.end(0, 9, 11).unwrap();
    }

    #[test]
    fn what_is_late_doubled_untold_or_told_falsely_is_convicted() {
        let breaks: [fn(&mut Sequence) -> Found; 8] = [
            |j| j.received(0, 9, (3, 2)),
            |j| j.received(0, 9, (1, 2)).and_then(|()| j.received(0, 9, (1, 2))),
            |j| j.told(0, gap(1, 4, 4)).and_then(|()| j.received(0, 9, (3, 2))),
            |j| j.received(0, 9, (1, 2)).and_then(|()| j.told(0, gap(1, 2, 2))),
            |j| j.told(0, gap(1, 2, 3)),
            |j| j.end(0, 9, 11),
            |j| j.told(0, gap(1, 10, 9)).and_then(|()| j.end(0, 9, 11)),
            |j| j.joined(0, 1),
        ];
        for damage in breaks {
            assert_eq!(damage(&mut judge()).unwrap_err().judge, NAME);
        }
    }

    #[test]
    fn of_what_was_before_it_began_only_what_was_kept_is_due() {
        for (owed, told, fine) in [(4, 2, true), (4, 1, false), (2, 2, false), (5, 2, false)] {
            let mut judge = judge();
            judge.began(0, (9, owed));
            judge.received(0, 9, (3, 2)).unwrap();
            judge.told(0, gap(5, 8, told)).unwrap();
            judge.received(0, 9, (9, 2)).unwrap();
            assert_eq!(judge.end(0, 9, 11).is_ok(), fine, "{owed} were kept, {told} told as lost");
        }
        let mut judge = judge();
        judge.began(0, (9, 1));
        judge.received(0, 9, (1, 2)).unwrap_err();
    }

    #[test]
    fn numbers_are_given_once_and_in_order_per_source() {
        let mut other = judge();
        other.numbered(9, 1, BATCH).unwrap();
        for (first, source) in [(11, (1, Some(3))), (13, (0, Some(4)))] {
            other.numbered(9, first, Batch { publish: 2, source, ..BATCH }).unwrap();
        }
        for (first, publish) in [(1, 8), (11, 3), (10, 8)] {
            judge().numbered(9, first, Batch { publish, ..BATCH }).unwrap_err();
        }
    }

    #[test]
    fn who_is_left_out_misses_only_that() {
        for (except, fine) in [(Some(7), true), (Some(8), false)] {
            let mut judge = judge();
            judge.leaves_out(7);
            judge.numbered(9, 11, Batch { publish: 5, except, ..BATCH }).unwrap();
            judge.told(0, gap(1, 10, 10)).unwrap();
            assert_eq!(judge.end(0, 9, 13).is_ok(), fine);
        }
    }
}
