//! Conservation: every record that was offered ends in exactly one column of the books, and the
//! books say what the peers saw.

use super::{Finding, Found};
use crate::fact::{Fact, Publish, name_cell};
use sluicegate_core::{Books, Place, Reason, Refusal, SubBooks, Tally};
use std::collections::BTreeMap;

const NAME: &str = "conservation";

/// Counts by place and reason.
type Cells = BTreeMap<(Place, Reason), Tally>;

/// Counts what publishers and subscribers saw.
#[derive(Debug, Default)]
pub struct Conservation {
    offered: Tally,
    refused: Cells,
    shed: Cells,
    shed_told: u64,
    /// Acked publishes that were admitted and then pushed out.
    pushed_out: Cells,
    /// Publishers that went away and could not be told what they lost.
    departed: u64,
    /// Records of all publishes that ever waited for room: their publisher may go, or the shard
    /// shut down, and then nobody hears what became of them.
    parked: u64,
    accepted: Tally,
    subscribers: Vec<Seen>,
    touched: Vec<u32>,
}

/// What one subscriber's link saw.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    accepted: Tally,
    received: Tally,
    /// On their way when it went.
    unconfirmed: u64,
    gone: bool,
    touched: bool,
}

/// What the world knows of one subscriber.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// The core's books of it.
    pub books: SubBooks,
    /// Accepted by its transport and not yet received, counted in the link.
    pub in_flight: Tally,
}

impl Conservation {
    /// Counts a fact. Cost: O(log cells).
    pub fn hear(&mut self, fact: &Fact) {
        match *fact {
            Fact::Offered(publish) => self.offered += tally(&publish),
            Fact::Failed(publish, why) if was_admitted(why) => {
                add(&mut self.pushed_out, why, &publish);
            }
            Fact::Refused(publish, why) | Fact::Failed(publish, why) => {
                add(&mut self.refused, why, &publish);
            }
            Fact::Shed(publish, why) => add(&mut self.shed, why, &publish),
            Fact::ShedTold(_, records) => self.shed_told += records,
            Fact::SourceLeft(_) => self.departed += 1,
            Fact::Parked(publish) => self.parked += u64::from(publish.records),
            Fact::Accepted(sub, publish, _) => {
                self.accepted += tally(&publish);
                let seen = self.seen(sub);
                seen.accepted += tally(&publish);
                if !seen.touched {
                    seen.touched = true;
                    self.touched.push(sub);
                }
            }
            Fact::Received(sub, publish, _) => self.seen(sub).received += tally(&publish),
            Fact::Left(sub, records) => {
                let seen = self.seen(sub);
                (seen.unconfirmed, seen.gone) = (records, true);
            }
            _ => {}
        }
    }

    /// A publish that its host turned away by itself, and told so: the numbers of the place and of
    /// the reason, as a tape has them, and whether it was shed, as one that is not acked is.
    pub fn hear_turned_away(
        &mut self,
        publish: &Publish,
        (place, reason): (u64, u64),
        is_shed: bool,
    ) {
        let at = |number: u64, of: usize| usize::try_from(number % of as u64).unwrap_or(0);
        let place = Place::ALL[at(place, Place::ALL.len())];
        let reason = Reason::ALL[at(reason, Reason::ALL.len())];
        let table = if is_shed { &mut self.shed } else { &mut self.refused };
        *table.entry((place, reason)).or_default() += tally(publish);
        self.shed_told += if is_shed { u64::from(publish.records) } else { 0 };
    }

    fn seen(&mut self, sub: u32) -> &mut Seen {
        let at = at(sub);
        if self.subscribers.len() <= at {
            self.subscribers.resize(at + 1, Seen::default());
        }
        &mut self.subscribers[at]
    }

    /// Compares what moves with every record: offered, delivered, and the books of those that were
    /// written to since the last call. Cost: O(those).
    pub fn compare(
        &mut self,
        (offered, delivered): (Tally, Tally),
        books: impl Fn(u32) -> Option<SubBooks>,
    ) -> Found {
        same("offered", offered, self.offered)?;
        same("delivered", delivered, self.accepted)?;
        while let Some(sub) = self.touched.pop() {
            let seen = &mut self.subscribers[at(sub)];
            seen.touched = false;
            if let Some(books) = books(sub) {
                same("a subscriber's delivered", books.delivered, seen.accepted)?;
            }
        }
        Ok(())
    }

    /// Compares what was turned away, cell by cell.
    pub fn compare_tables(&self, books: &Books) -> Found {
        for (kind, cells, table) in
            [("refused", &self.refused, &books.refused), ("shed", &self.shed, &books.shed)]
        {
            for (&(place, reason), seen) in cells {
                let what = format!("{kind} at {}", name_cell(place, reason));
                if !is_silent(reason) || table.get(place, reason).records < seen.records {
                    same(&what, table.get(place, reason), *seen)?;
                }
            }
            for (place, reason, booked) in table.iter() {
                let seen = cells.get(&(place, reason)).copied().unwrap_or_default();
                // What was pushed out waited too.
                let waited = self.parked + books.returned.records;
                let silent = if is_silent(reason) { waited } else { 0 };
                if booked.records > seen.records + silent {
                    same(&format!("{kind} at {}", name_cell(place, reason)), booked, seen)?;
                }
            }
        }
        Ok(())
    }

    /// Compares everything, cell by cell and subscriber by subscriber.
    /// `flying`: what one that went may still receive.
    pub fn compare_all(
        &mut self,
        books: &Books,
        held: impl Fn(u32) -> Option<Held>,
        flying: impl Fn(u32) -> u64,
    ) -> Found {
        self.compare((books.offered, books.delivered), |_| None)?;
        self.compare_tables(books)?;
        for (sub, seen) in (0_u32..).zip(&self.subscribers) {
            let Seen { received, unconfirmed, accepted, gone, .. } = *seen;
            let unconfirmed = if gone { unconfirmed + flying(sub) } else { 0 };
            if gone && received.records + unconfirmed != accepted.records {
                let what = format!(
                    "a subscriber that went had received {} records and {unconfirmed} were on the \
                     way, but its transport had taken {}",
                    received.records, accepted.records
                );
                return Err(Finding::safety(NAME, what));
            }
            let Some(held) = held(sub) else { continue };
            same("a subscriber's delivered", held.books.delivered, seen.accepted)?;
            let mut arrived = seen.received;
            arrived += held.in_flight;
            same("a subscriber's received + in flight", arrived, seen.accepted)?;
            let SubBooks { expected, delivered, dropped, lag, .. } = held.books;
            let parts = [delivered, dropped, lag].into_iter().sum();
            same("a subscriber's delivered + dropped + lag", parts, expected)?;
        }
        Ok(())
    }

    /// At the end of a run: what was shed or pushed out was told, unless its publisher had gone or
    /// it was lost on another shard; and nothing else was, but what another shard pushed out.
    pub fn end(&self, books: &Books) -> Found {
        let due = books.shed.total().records + books.evicted.total().records;
        let pushed: u64 = self.pushed_out.values().map(|tally| tally.records).sum();
        let told = self.shed_told + pushed;
        let excused = self.departed > 0 || !books.forwarded.is_zero();
        // What another shard pushed out is in its books, and answered here.
        let elsewhere = told.saturating_sub(due) <= books.forwarded.records;
        if due == told || (excused && told < due) || (told > due && elsewhere) {
            return Ok(());
        }
        let what =
            format!("publishers learned of {told} records shed or pushed out, but {due} were");
        Err(Finding::safety(NAME, what))
    }
}

/// Whether a publish that waited for room may have ended for this reason without being told.
const fn is_silent(reason: Reason) -> bool {
    matches!(reason, Reason::Closed | Reason::Shutdown)
}

/// Whether a publish that failed had been admitted: the books call it evicted.
fn was_admitted(why: Refusal) -> bool {
    let at_the_end = why.place == Place::Schedule && why.reason == Reason::Shutdown;
    let pushed_out = matches!(why.reason, Reason::TenantShare | Reason::TopicHeld);
    pushed_out || why.place == Place::Table || at_the_end
}

fn at(index: u32) -> usize {
    usize::try_from(index).expect("an index of a vector")
}

fn tally(publish: &Publish) -> Tally {
    Tally { records: publish.records.into(), bytes: publish.bytes.into() }
}

fn add(cells: &mut Cells, why: Refusal, publish: &Publish) {
    *cells.entry((why.place, why.reason)).or_default() += tally(publish);
}

fn same(what: &str, books: Tally, seen: Tally) -> Found {
    if books == seen {
        return Ok(());
    }
    let text = |t: Tally| format!("{} records, {} B", t.records, t.bytes);
    let what = format!("{what}: the books say {}, the peers saw {}", text(books), text(seen));
    Err(Finding::safety(NAME, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_core::Retry;

    const PUBLISH: Publish = Publish { publisher: 0, topic: 0, number: 0, records: 2, bytes: 100 };
    const WHY: Refusal =
        Refusal { place: Place::Schedule, reason: Reason::QueueFull, retry: Retry::Never };
    const TWO: Tally = Tally { records: 2, bytes: 100 };

    fn honest() -> (Conservation, Books, Held) {
        let mut judge = Conservation::default();
        let facts = [Fact::Offered(PUBLISH), Fact::Accepted(0, PUBLISH, 1)];
        facts.iter().for_each(|fact| judge.hear(fact));
        let books = Books {
            offered: TWO,
            admitted: TWO,
            sequenced: TWO,
            expected: TWO,
            delivered: TWO,
            ..Books::default()
        };
        let sub = SubBooks { expected: TWO, delivered: TWO, ..SubBooks::default() };
        (judge, books, Held { books: sub, in_flight: TWO })
    }

    fn judge_it(judge: &mut Conservation, books: &Books, held: Held) -> Found {
        judge.compare((books.offered, books.delivered), |_| Some(held.books))?;
        judge.compare_all(books, |_| Some(held), |_| 0)?;
        judge.end(books)
    }

    #[test]
    fn honest_books_pass() {
        let (mut judge, books, held) = honest();
        judge_it(&mut judge, &books, held).unwrap();
    }

    #[test]
    fn doctored_books_are_convicted() {
        let breaks: [fn(&mut Books, &mut Held); 6] = [
            |books, _| books.offered.records += 1,
            |books, _| books.delivered.bytes -= 1,
            |_, held| held.books.delivered.records -= 1,
            |_, held| held.books.expected.records += 1,
            |_, held| held.in_flight = Tally::ZERO,
            |_, held| held.books.lag.bytes += 1,
        ];
        for damage in breaks {
            let (mut judge, mut books, mut held) = honest();
            damage(&mut books, &mut held);
            judge_it(&mut judge, &books, held).unwrap_err();
        }
    }

    #[test]
    fn facts_that_the_books_do_not_have_are_convicted() {
        let told = Fact::ShedTold(0, 1);
        let pushed = Fact::Failed(PUBLISH, Refusal { reason: Reason::TenantShare, ..WHY });
        let closed = Refusal { reason: Reason::Closed, ..WHY };
        for fact in [
            Fact::Shed(PUBLISH, WHY),
            Fact::Refused(PUBLISH, WHY),
            Fact::Refused(PUBLISH, closed),
            told,
            pushed,
        ] {
            let (mut judge, books, held) = honest();
            judge.hear(&fact);
            let found = judge_it(&mut judge, &books, held).unwrap_err();
            assert_eq!(found.judge, NAME);
        }
    }

    #[test]
    fn no_more_than_went_elsewhere_may_be_pushed_out_elsewhere() {
        let pushed = Fact::Failed(PUBLISH, Refusal { reason: Reason::TenantShare, ..WHY });
        let after = |forwarded, times| {
            let (mut judge, mut books, _) = honest();
            books.forwarded.records = forwarded;
            (0..times).for_each(|_| judge.hear(&pushed));
            judge.end(&books)
        };
        after(2, 1).expect("another shard has it in its books");
        after(1, 1).expect_err("one record more than went there");
        after(2, 2).expect_err("told twice");
        after(0, 1).expect_err("nothing went there");
    }

    #[test]
    fn what_was_on_its_way_to_one_who_went_is_counted() {
        for (records, convicted) in [(2, false), (1, true), (3, true)] {
            let (mut judge, books, _) = honest();
            judge.hear(&Fact::Left(0, records));
            assert_eq!(judge.compare_all(&books, |_| None, |_| 0).is_err(), convicted, "{records}");
        }
    }
}
