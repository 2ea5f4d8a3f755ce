//! Expectations: what a scenario says must hold, against what happened.

use crate::amount::{Bound, Unit};
use crate::fact::Stop;
use crate::report::Report;
use crate::scenario::{Cells, Expect};
use serde_json::{Value, json};
use sluicegate_core::{Band, Place, Reason, Table};
use std::fmt;

/// An expectation and what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was looked at, as the scenario names it.
    pub what: String,
    /// What it should be.
    pub due: String,
    /// What it is.
    pub found: String,
    /// Whether it holds.
    pub holds: bool,
}

impl Check {
    /// Isolation, which a judge compares: without a conviction it holds.
    pub(crate) fn isolated() -> Self {
        let text = |text: &str| text.to_owned();
        let (what, due, found) = (text("isolation"), text("= true"), text("true"));
        Self { what, due, found, holds: true }
    }

    /// The check as JSON.
    pub fn json(&self) -> Value {
        let Self { what, due, found, holds } = self;
        json!({ "what": what, "due": due, "found": found, "holds": holds })
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {} {}, found {}", self.what, self.due, self.found)
    }
}

/// Compares a report with every expectation.
pub fn compare(expect: &Expect, report: &Report) -> Vec<Check> {
    let mut compared = Compared::default();
    compared.whole(expect, report);
    let books = &report.books;
    let tables = [
        ("dropped", &expect.dropped, &books.dropped),
        ("evicted", &expect.evicted, &books.evicted),
        ("refused", &expect.refused, &books.refused),
        ("shed", &expect.shed, &books.shed),
    ];
    for (kind, cells, table) in tables {
        compared.cells(kind, cells, table);
    }
    compared.tenants(expect, report);
    compared.peers(expect, report);
    compared.0
}

/// What was compared.
#[derive(Default)]
struct Compared(Vec<Check>);

impl Compared {
    fn whole(&mut self, expect: &Expect, report: &Report) {
        if let Some(due) = expect.drained {
            self.that("drained", &due, &report.drained);
            // Whoever expected nothing to be left wants to know what was.
            if let Some(check) = self.0.last_mut().filter(|_| !report.drained) {
                check.found = format!("false: {}", report.left.join("; "));
            }
        }
        self.bound("transitions", &expect.transitions, report.transitions());
        self.bound("factor_min", &expect.factor_min, report.factor_min().thousandths().into());
        let last = report.factor_final().thousandths();
        self.bound("factor_final", &expect.factor_final, last.into());
        self.bound("backlog_peak", &expect.backlog_peak, report.peaks.backlog);
        self.bound("held_peak", &expect.held_peak, report.peaks.held);
        self.bound("queue_peak", &expect.queue_peak, report.peaks.queued);
        if let Some(stops) = &expect.propagation {
            let found = report.stops.iter().map(|(stop, _)| *stop);
            let found = found.filter(|stop| stops.contains(stop)).collect();
            self.that("propagation", &Stops(stops.clone()), &Stops(found));
        }
        if let Some(fairness) = &expect.fairness {
            let found = report.fairness.unwrap_or(0);
            self.bound("fairness of tenants", &Some(fairness.jain.clone()), found);
        }
        if let Some(bands) = &expect.bands {
            let all = [Band::Normal, Band::Pressure, Band::Severe, Band::Saturated];
            let entered: Vec<Band> = all.into_iter().filter(|band| report.entered(*band)).collect();
            let mut due = bands.clone();
            due.sort_unstable();
            self.that("bands", &Bands(due), &Bands(entered));
        }
        let Some(spared) = &expect.nobody_but else { return };
        for row in &report.subscribers {
            if !spared.contains(&row.name) {
                let lost = row.books.dropped.records + row.closed;
                self.that(&format!("records lost by {}", row.name), &0, &lost);
            }
        }
    }

    fn cells(&mut self, kind: &str, cells: &Cells, table: &Table) {
        for (name, (place, reason, bound)) in cells {
            let belongs = |p: Place, r: Reason| {
                place.is_none_or(|place| place == p) && reason.is_none_or(|reason| reason == r)
            };
            let counted = table.iter().filter(|(p, r, _)| belongs(*p, *r));
            let sum = counted.map(|(_, _, tally)| tally.records).sum();
            self.bound(&format!("{kind} {name}"), &Some(bound.clone()), sum);
        }
    }

    fn tenants(&mut self, expect: &Expect, report: &Report) {
        for (tenant, books) in &report.tenants {
            let Some(due) = expect.tenants.get(tenant) else { continue };
            let name = |what: &str| format!("tenant {tenant}: {what}");
            self.bound(&name("offered"), &due.offered, books.offered.records);
            self.bound(&name("sequenced"), &due.sequenced, books.sequenced.records);
            self.bound(&name("delivered"), &due.delivered, books.delivered.records);
            for (what, bound, table) in [
                ("refused", &due.refused, &books.refused),
                ("shed", &due.shed, &books.shed),
                ("evicted", &due.evicted, &books.evicted),
                ("dropped", &due.dropped, &books.dropped),
            ] {
                self.bound(&name(what), bound, table.total().records);
            }
        }
    }

    fn peers(&mut self, expect: &Expect, report: &Report) {
        for row in &report.publishers {
            let Some(due) = expect.publishers.get(&row.name) else { continue };
            let name = |what: &str| format!("publisher {}: {what}", row.name);
            self.bound(&name("offered"), &due.offered, row.seen.offered);
            self.bound(&name("refused"), &due.refused, row.seen.refused);
            self.bound(&name("shed"), &due.shed, row.seen.shed);
            self.bound(&name("held_back"), &due.held_back, row.seen.held_back);
            self.bound(&name("connects"), &due.connects, row.seen.connects);
            self.bound(&name("turned_away"), &due.turned_away, row.seen.turned_away);
        }
        for row in &report.subscribers {
            let Some(due) = expect.subscribers.get(&row.name) else { continue };
            let name = |what: &str| format!("subscriber {}: {what}", row.name);
            self.bound(&name("received"), &due.received, row.received);
            self.bound(&name("delivered"), &due.delivered, row.books.delivered.records);
            self.bound(&name("dropped"), &due.dropped, row.books.dropped.records);
            self.bound(&name("lag"), &due.lag, row.books.lag.records);
            self.bound(&name("taken"), &due.taken, row.taken);
            self.bound(&name("overrun"), &due.overrun, row.overrun);
            self.bound(&name("unconfirmed"), &due.unconfirmed, row.unconfirmed);
            self.bound(&name("connects"), &due.connects, row.connects);
            self.bound(&name("turned_away"), &due.turned_away, row.turned_away);
            self.bound(&name("closed"), &due.closed, row.closed);
            self.bound(&name("jain"), &due.jain, row.jain.unwrap_or(0));
            self.bound(&name("asked"), &due.asked, row.asked);
            self.bound(&name("answered"), &due.answered, row.answered);
            let answer = |percent| row.answers.percentile(percent).unwrap_or(u64::MAX);
            self.bound(&name("answer_p99"), &due.answer_p99, answer(99));
            self.bound(&name("answer_max"), &due.answer_max, answer(100));
            let latency = |percent| row.latency.percentile(percent).unwrap_or(u64::MAX);
            self.bound(&name("latency_p50"), &due.latency_p50, latency(50));
            self.bound(&name("latency_p99"), &due.latency_p99, latency(99));
            self.bound(&name("latency_max"), &due.latency_max, latency(100));
        }
    }

    fn bound<U: Unit>(&mut self, what: &str, bound: &Option<Bound<U>>, found: u64) {
        let Some(bound) = bound else { return };
        let (due, holds) = (bound.text().to_owned(), bound.holds(found));
        self.0.push(Check { what: what.to_owned(), due, found: U::show(found), holds });
    }

    fn that<T: PartialEq + fmt::Display>(&mut self, what: &str, due: &T, found: &T) {
        let (holds, due, found) = (due == found, format!("= {due}"), found.to_string());
        self.0.push(Check { what: what.to_owned(), due, found, holds });
    }
}

#[derive(PartialEq)]
struct Stops(Vec<Stop>);

impl fmt::Display for Stops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|stop| stop.name()).collect();
        write!(f, "[{}]", names.join(", "))
    }
}

#[derive(PartialEq)]
struct Bands(Vec<Band>);

impl fmt::Display for Bands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|band| band.name()).collect();
        write!(f, "[{}]", names.join(", "))
    }
}
