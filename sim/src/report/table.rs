//! The table: fixed width, no wall clock in it, so that it can be kept as a snapshot.

use super::{Moment, PublisherRow, Report, SubscriberRow};
use crate::amount::{Bytes, Nanos, Thousandths, Unit};
use crate::fact::name_cell;
use sluicegate_core::Table;
use std::fmt;

/// The longest bar.
const BAR: u64 = 40;
/// Changes of the band or the factor that are printed.
const MOMENTS: usize = 24;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} · {}", self.name, self.title)?;
        writeln!(f)?;
        self.publisher_rows(f)?;
        self.subscriber_rows(f)?;
        self.presence(f)?;
        self.identities(f)?;
        let books = &self.books;
        let tables = [
            ("refused", &books.refused),
            ("shed", &books.shed),
            ("evicted", &books.evicted),
            ("dropped", &books.dropped),
        ];
        tables.into_iter().try_for_each(|(kind, table)| cells(f, kind, table))?;
        self.stop_rows(f)?;
        self.peak_rows(f)?;
        self.memory(f)?;
        let Self { seed, tape, facts, .. } = self;
        let ended = Nanos::show(self.ended);
        writeln!(f, "tape {tape}, {facts} events, seed {seed}, ended at {ended}")
    }
}

impl Report {
    fn publisher_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = ["publishers", "peers", "offered", "refused", "shed", "held back"];
        row(f, &heads.map(str::to_owned))?;
        for PublisherRow { name, peers, seen } in &self.publishers {
            let numbers = [seen.offered, seen.refused, seen.shed, seen.held_back];
            row(f, &line(name, *peers, &numbers))?;
        }
        writeln!(f)
    }

    fn subscriber_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads =
            ["subscribers", "peers", "expected", "delivered", "dropped", "lag", "p50 us", "p99 us"];
        row(f, &heads.map(str::to_owned))?;
        for SubscriberRow { name, peers, books, latency, closed, .. } in &self.subscribers {
            let numbers = [books.expected, books.delivered, books.dropped, books.lag];
            let mut cells = line(name, *peers, &numbers.map(|tally| tally.records));
            let micros = |nanos: u64| (nanos / 1_000).to_string();
            let percentile = |p| latency.percentile(p).map_or_else(|| "-".to_owned(), micros);
            cells.extend([percentile(50), percentile(99)]);
            if *closed > 0 {
                cells.push(format!("{closed} closed"));
            }
            row(f, &cells)?;
        }
        writeln!(f)
    }

    /// Who came more than once, was turned away, or left something; and applications.
    fn presence(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut any = false;
        for row in &self.subscribers {
            let again = row.connects.saturating_sub(row.peers.into());
            let counts = [
                (again, "came again"),
                (row.turned_away, "turned away"),
                (row.unconfirmed, "records unconfirmed"),
                (row.taken, "records taken"),
                (row.overrun, "dropped by inboxes"),
            ];
            any |= counts_of(f, &row.name, &counts)?;
            any |= answers(f, row)?;
        }
        for PublisherRow { name, peers, seen } in &self.publishers {
            let again = seen.connects.saturating_sub((*peers).into());
            let counts = [(again, "came again"), (seen.turned_away, "turned away")];
            any |= counts_of(f, name, &counts)?;
        }
        if any { writeln!(f) } else { Ok(()) }
    }

    /// Places that were full, and how fair the tenants were served.
    fn stop_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(index) = self.fairness {
            writeln!(f, "fairness of tenants {}", Thousandths::show(index))?;
            writeln!(f)?;
        }
        if self.stops.is_empty() {
            return Ok(());
        }
        writeln!(f, "full for the first time")?;
        for (stop, at) in &self.stops {
            writeln!(f, "  {:<24}{:>14}", stop.name(), Nanos::show(*at))?;
        }
        writeln!(f)
    }

    /// The three identities of the books, in records.
    fn identities(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let b = &self.books;
        let returned = Some(("returned", b.returned.records)).filter(|(_, records)| *records > 0);
        let lines: [(&[(&str, u64)], _, _); 3] = [
            (
                &[
                    ("offered", b.offered.records),
                    ("admitted", b.admitted.records),
                    ("refused", b.refused.total().records),
                    ("shed", b.shed.total().records),
                    ("waiting", b.waiting.records),
                ],
                returned,
                None,
            ),
            (
                &[
                    ("admitted", b.admitted.records),
                    ("sequenced", b.sequenced.records),
                    ("evicted", b.evicted.total().records),
                    ("queued", b.queued.records),
                ],
                None,
                returned,
            ),
            (
                &[
                    ("expected", b.expected.records),
                    ("delivered", b.delivered.records),
                    ("dropped", b.dropped.total().records),
                    ("left", b.left.records),
                    ("lag", b.lag.records),
                ],
                None,
                None,
            ),
        ];
        for (parts, left, right) in lines {
            for (at, (name, count)) in parts.iter().enumerate() {
                if let Some((also, more)) = left.filter(|_| at == 1) {
                    write!(f, " + {also} {more}")?;
                }
                let sign = ["", " = ", " + "][at.min(2)];
                write!(f, "{sign}{name} {count}")?;
            }
            if let Some((also, more)) = right {
                write!(f, " + {also} {more}")?;
            }
            writeln!(f)?;
        }
        writeln!(f)
    }

    fn peak_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peaks = &self.peaks;
        writeln!(f, "peaks")?;
        writeln!(f, "  backlog of one subscriber {:>12}", Bytes::show(peaks.backlog))?;
        writeln!(f, "  held by the shard         {:>12}", Bytes::show(peaks.held))?;
        writeln!(f, "  publishes queued          {:>12}", peaks.queued)?;
        writeln!(f, "  publishes parked          {:>12}", peaks.parked)?;
        writeln!(f)
    }

    fn memory(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "memory: {} changes of the band", self.transitions())?;
        for Moment { at, shard, band, factor } in self.moments.iter().take(MOMENTS) {
            let factor = Thousandths::show(factor.thousandths().into());
            write!(f, "  {:>14}  {:<10} factor {factor}", Nanos::show(*at), band.name())?;
            if self.shards > 1 {
                write!(f, "  shard {shard}")?;
            }
            writeln!(f)?;
        }
        if self.moments.len() > MOMENTS {
            writeln!(f, "  and {} more", self.moments.len() - MOMENTS)?;
        }
        writeln!(f)
    }
}

fn line(name: &str, peers: u32, numbers: &[u64]) -> Vec<String> {
    let mut cells = vec![name.to_owned(), peers.to_string()];
    cells.extend(numbers.iter().map(u64::to_string));
    cells
}

/// One row: a name of 16 columns and numbers of 11.
fn row(f: &mut fmt::Formatter<'_>, cells: &[String]) -> fmt::Result {
    let (name, rest) = cells.split_first().expect("a row has a name");
    write!(f, "{name:<16}")?;
    rest.iter().try_for_each(|cell| write!(f, "{cell:>11}"))?;
    writeln!(f)
}

/// The counts of a group that are not zero, on one line. Whether there are any.
fn counts_of(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    counts: &[(u64, &str)],
) -> Result<bool, fmt::Error> {
    let found = counts.iter().filter(|(count, _)| *count > 0);
    let found: Vec<String> = found.map(|(count, what)| format!("{count} {what}")).collect();
    if found.is_empty() {
        return Ok(false);
    }
    writeln!(f, "{name}: {}", found.join(", "))?;
    Ok(true)
}

/// What a group asked, and how long answers took. Whether it asked.
fn answers(f: &mut fmt::Formatter<'_>, row: &SubscriberRow) -> Result<bool, fmt::Error> {
    let SubscriberRow { name, asked, answered, answers, .. } = row;
    if *asked == 0 {
        return Ok(false);
    }
    write!(f, "{name}: {asked} questions, {answered} answered")?;
    if let Some((usual, longest)) = answers.percentile(99).zip(answers.percentile(100)) {
        let (usual, longest) = (Nanos::show(usual), Nanos::show(longest));
        write!(f, ", 99 of 100 within {usual}, all within {longest}")?;
    }
    writeln!(f)?;
    Ok(true)
}

/// One line per place and reason, with a bar.
fn cells(f: &mut fmt::Formatter<'_>, kind: &str, table: &Table) -> fmt::Result {
    let Some(most) = table.iter().map(|(_, _, tally)| tally.records).max() else { return Ok(()) };
    writeln!(f, "{kind}")?;
    for (place, reason, tally) in table.iter() {
        let length = (tally.records * BAR).div_ceil(most.max(1));
        let bar = "#".repeat(usize::try_from(length).expect("at most 40"));
        let name = name_cell(place, reason);
        writeln!(f, "  {name:<24}{:>11}  {bar}", tally.records)?;
    }
    writeln!(f)
}
