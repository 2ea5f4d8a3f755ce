//! What was measured, what was asked for, and a drawing of it.

use crate::load::Totals;
use crate::tally::Tally;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// How much of the peak is delivered at least while more is offered, in percent.
const GOODPUT: u64 = 90;
/// How much of what should be due is due at least, in percent: the load keeps its pace.
const DUE: u64 = 95;
/// How soon after the overload the last call was refused, and the last event came late, at most.
const RECOVERY: Duration = Duration::from_secs(5);
/// Columns of a bar.
const WIDTH: u64 = 40;

/// Columns of the server's books, in records; `refused_calls` are those that it refused unread.
pub(crate) type Books = BTreeMap<String, u64>;

/// How the server ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct End {
    /// From the signal to the end of the process.
    pub(crate) took: Duration,
    pub(crate) grace: Duration,
    pub(crate) code: Option<i32>,
    /// Subscribers whose connection stayed, and subscribers who were not told before it ended.
    pub(crate) stayed: usize,
    pub(crate) untold: usize,
    /// What its last words say.
    pub(crate) books: Books,
    pub(crate) totals: Totals,
    pub(crate) failed: u64,
}

/// Everything measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    pub(crate) subscribers: usize,
    /// Publishes per second that reach everybody, of the best round without a pause.
    pub(crate) peak: u64,
    /// What was to be offered per second.
    pub(crate) rate: u64,
    pub(crate) overload: Vec<Tally>,
    pub(crate) after: Vec<Tally>,
    /// From the end of the overload to the last refusal, and to the last event that came late.
    pub(crate) recovery: [Duration; 2],
    /// The longest that the queues of the server should take.
    pub(crate) bound: Duration,
    /// Once nothing is on its way any more.
    pub(crate) books: Books,
    pub(crate) totals: Totals,
    pub(crate) end: End,
}

/// One thing that was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Criterion {
    pub(crate) name: &'static str,
    pub(crate) is_met: bool,
    pub(crate) said: String,
}

impl Run {
    /// Everything that was asked for.
    pub(crate) fn criteria(&self) -> Vec<Criterion> {
        let mut criteria = self.under_load();
        criteria.push(self.account("counters", &self.books, &self.totals));
        criteria.extend(self.shutdown());
        criteria
    }

    fn under_load(&self) -> Vec<Criterion> {
        let all = Tally::sum(&self.overload);
        let (due, goodput) = (all.rate(all.due), all.goodput(self.subscribers));
        let percent = |part: u64, whole: u64| part * 100 / whole.max(1);
        let p99 = all.latency.percentile(99).map(Duration::from_nanos);
        let both = Tally::sum(self.overload.iter().chain(&self.after));
        let ms = Duration::as_millis;
        let [refused, late] = self.recovery;
        vec![
            Criterion {
                name: "overload",
                is_met: percent(due, self.rate) >= DUE && all.refused + all.held > 0,
                said: format!(
                    "{due} calls per second were due of {}, at least {DUE} %; {} were refused and \
                     {} held back, at least one",
                    self.rate, all.refused, all.held
                ),
            },
            Criterion {
                name: "goodput",
                is_met: percent(goodput, self.peak) >= GOODPUT,
                said: format!(
                    "{} % of the peak, {goodput} of {} per second; at least {GOODPUT} %",
                    percent(goodput, self.peak),
                    self.peak
                ),
            },
            Criterion {
                name: "p99",
                is_met: p99.is_some_and(|p99| p99 <= self.bound),
                said: match p99 {
                    Some(p99) => format!("{} ms; at most {} ms", ms(&p99), ms(&self.bound)),
                    None => "nothing was delivered".to_owned(),
                },
            },
            Criterion {
                name: "answers",
                is_met: both.unadvised == 0 && both.failed == 0,
                said: format!(
                    "of {} refusals {} do not say when to come back; {} calls failed otherwise",
                    both.refused, both.unadvised, both.failed
                ),
            },
            Criterion {
                name: "recovery",
                is_met: refused <= RECOVERY && late <= RECOVERY,
                said: format!(
                    "the last refusal after {} ms, the last late event after {} ms; at most {} s",
                    ms(&refused),
                    ms(&late),
                    RECOVERY.as_secs()
                ),
            },
        ]
    }

    /// Compares the server's books with what publishers were answered and subscribers have read.
    fn account(&self, name: &'static str, books: &Books, totals: &Totals) -> Criterion {
        let get = |column: &str| books.get(column).copied();
        let [admitted, sequenced, expected] = ["admitted", "sequenced", "expected"].map(get);
        let [delivered, dropped, left, lag] = ["delivered", "dropped", "left", "lag"].map(get);
        let all = self.subscribers as u64;
        // Who was answered by the end of the connection may have been served or not.
        let taken = totals.taken..=totals.taken + totals.unanswered;
        let ends = [delivered, dropped, left, lag].into_iter().sum::<Option<u64>>();
        let is_met = admitted.is_some_and(|admitted| taken.contains(&admitted))
            && expected.is_some()
            && expected == ends
            && (name != "counters" || expected == sequenced.map(|count| count * all))
            && delivered == Some(totals.received)
            && get("refused").is_none_or(|refused| refused == totals.refused);
        let show = |count: Option<u64>| count.map_or_else(|| "?".to_owned(), |it| it.to_string());
        let said = format!(
            "{} calls taken, {} unanswered, {} admitted; {} deliveries expected = {} delivered + \
             {} dropped + {} left + {} unsent; {} received",
            totals.taken,
            totals.unanswered,
            show(admitted),
            show(expected),
            show(delivered),
            show(dropped),
            show(left),
            show(lag),
            totals.received
        );
        Criterion { name, is_met, said }
    }

    fn shutdown(&self) -> [Criterion; 3] {
        let End { took, grace, code, stayed, untold, failed, .. } = self.end;
        let code_said = code.map_or_else(|| "a signal".to_owned(), |code| format!("code {code}"));
        [
            Criterion {
                name: "end",
                is_met: took <= grace && code == Some(0),
                said: format!(
                    "with {code_said} {} ms after SIGTERM; at most {} s and code 0",
                    took.as_millis(),
                    grace.as_secs()
                ),
            },
            Criterion {
                name: "farewell",
                is_met: stayed + untold == 0 && failed == 0,
                said: format!(
                    "{untold} subscribers ended without 4200, {stayed} not at all; {failed} calls \
                     failed otherwise than by the end"
                ),
            },
            self.account("last books", &self.end.books, &self.end.totals),
        ]
    }

    /// For people: a bar per second, then what was asked for.
    pub(crate) fn drawing(&self) -> String {
        let mut text = format!(
            "peak {} publishes per second to {} subscribers; {} per second are due\n\n\
             {:>4} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
            self.peak,
            self.subscribers,
            self.rate,
            "s",
            "due",
            "taken",
            "refused",
            "held",
            "goodput",
            "p99 ms"
        );
        let seconds = self.overload.iter().chain(&self.after).enumerate();
        for (at, second) in seconds {
            if at == self.overload.len() {
                text += "     half of the peak is due\n";
            }
            let columns = |count: u64| {
                let columns = second.rate(count) * WIDTH / self.rate.max(1);
                usize::try_from(columns.min(WIDTH)).expect("a few columns")
            };
            // What was due before may be answered now: then the bar would be longer.
            let bar = "#".repeat(columns(second.taken))
                + &"-".repeat(columns(second.refused))
                + &".".repeat(columns(second.held));
            let bar = bar.get(..usize::try_from(WIDTH).expect("a few columns")).unwrap_or(&bar);
            let p99 = second.latency.percentile(99).unwrap_or(0) / 1_000;
            let line = format!(
                "{:>4} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6}.{}  {bar}",
                at + 1,
                second.rate(second.due),
                second.rate(second.taken),
                second.rate(second.refused),
                second.rate(second.held),
                second.goodput(self.subscribers),
                p99 / 1_000,
                p99 % 1_000 / 100,
            );
            text += line.trim_end();
            text.push('\n');
        }
        text +=
            "     # taken, - refused with 503, . held back: all publishers wait for answers\n\n";
        for Criterion { name, is_met, said } in self.criteria() {
            let word = if is_met { "met" } else { "MISSED" };
            text += &format!("{word:<7} {name:<10}  {said}\n");
        }
        text
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let spans = |spans: &[Tally]| -> Vec<Value> {
            spans.iter().map(|span| span.json(self.subscribers)).collect()
        };
        let criteria: Vec<Value> = (self.criteria().into_iter())
            .map(|it| json!({ "name": it.name, "is_met": it.is_met, "said": it.said }))
            .collect();
        json!({
            "subscribers": self.subscribers,
            "peak_per_s": self.peak,
            "rate_per_s": self.rate,
            "overload": Tally::sum(&self.overload).json(self.subscribers),
            "overload_by_second": spans(&self.overload),
            "after_by_second": spans(&self.after),
            "recovery_ms": self.recovery.map(|time| time.as_secs_f64() * 1e3),
            "books": self.books,
            "end_ms": self.end.took.as_secs_f64() * 1e3,
            "exit_code": self.end.code,
            "last_books": self.end.books,
            "criteria": criteria,
        })
    }
}

#[cfg(test)]
mod tests;
