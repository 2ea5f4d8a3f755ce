//! The report as one HTML file: data, pictures and the code that draws them, and nothing that is
//! fetched. It opens from a disk, without a network, and can be sent to somebody.
//!
//! The page's code never makes HTML out of text, so that whatever a scenario file says is shown
//! and not obeyed. The data is JSON inside a script element that browsers do not run.

use crate::batch::{Ended, Run};
use crate::chain::CHECKPOINTS;
use crate::judge;
use crate::scenario::{Presence, Story};
use serde_json::{Value, json};
use sluicegate_core::limits;

/// The page, with a place for each part.
const TEMPLATE: &str = include_str!("../assets/report.html");
/// What goes into it. The data is last, so that no text in it is taken for a place.
const PARTS: [(&str, &str); 7] = [
    ("{{uplot.css}}", include_str!("../assets/vendor/uPlot.min.css")),
    ("{{report.css}}", include_str!("../assets/report.css")),
    ("{{uplot.js}}", include_str!("../assets/vendor/uPlot.iife.min.js")),
    ("{{numbers.mjs}}", include_str!("../assets/numbers.mjs")),
    ("{{chain.mjs}}", include_str!("../assets/chain.mjs")),
    ("{{plots.mjs}}", include_str!("../assets/plots.mjs")),
    ("{{report.mjs}}", include_str!("../assets/report.mjs")),
];

/// The page for a list of runs.
pub fn page(runs: &[Run]) -> String {
    let mut page = TEMPLATE.to_owned();
    for (place, part) in PARTS {
        page = page.replacen(place, part, 1);
    }
    page.replacen("{{data}}", &inert(&document(runs)), 1)
}

/// What the page shows, as JSON.
pub fn document(runs: &[Run]) -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "runs": runs.iter().map(run).collect::<Vec<_>>(),
    })
}

/// JSON in which nothing can end a script element, begin a comment or break a line of code.
fn inert(document: &Value) -> String {
    let mut text = String::new();
    for c in document.to_string().chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            _ => text.push(c),
        }
    }
    text
}

fn run(run: &Run) -> Value {
    let story = &run.job.story;
    let mut document = match &run.ended {
        Ended::Ran(outcome) => outcome.json(run.wall),
        Ended::Crashed(what) | Ended::Refused(what) => json!({
            "name": story.name(),
            "title": story.title,
            "seed": story.seed,
            "failure": what,
        }),
    };
    document["exit"] = json!(run.code());
    document["about"] = json!(story.about);
    document["file"] = json!(story.file);
    document["command"] = json!(story.command());
    document["scenario"] = json!(*run.job.text);
    document["duration_ns"] = json!(story.duration);
    document["limits"] = limits_in_force(story);
    let Ended::Ran(outcome) = &run.ended else { return document };
    let report = &outcome.report;
    document["judges"] = judges(run, outcome);
    document["chain"] = CHECKPOINTS.iter().map(|place| place.json(story, report)).collect();
    document["series"] = report.watched.as_ref().map_or(Value::Null, |w| w.series.json());
    document["marks"] = marks(story);
    let latencies = report.subscribers.iter().map(|row| {
        let buckets: Vec<_> = row.latency.buckets().collect();
        json!({ "name": row.name, "buckets": buckets })
    });
    document["latencies"] = latencies.collect();
    document
}

/// Every limit, its default, and whether the scenario changed it.
fn limits_in_force(story: &Story) -> Value {
    let rows = limits::KEYS.iter().map(|key| {
        let value = story.limits.get(key.name).expect("the table names the struct's fields");
        json!({
            "name": key.name,
            "value": value,
            "default": key.default,
            "unit": key.unit,
            "help": key.help,
        })
    });
    rows.collect()
}

/// What is done to the world, and when.
fn marks(story: &Story) -> Value {
    let mark = |what: String, from: u64, to: u64| {
        let to = Some(to).filter(|to| *to < story.end);
        json!({ "what": what, "from_ns": from, "to_ns": to })
    };
    let mut marks = Vec::new();
    let mut outages = |name: &str, presence: &Presence| {
        for outage in &presence.outages {
            let how = if outage.half_open { "is half-open" } else { "is cut off" };
            let back = outage.back.map_or(u64::MAX, |back| outage.at.saturating_add(back.1));
            marks.push(mark(format!("{name} {how}"), outage.at, back));
        }
    };
    story.subscribers.iter().for_each(|group| outages(&group.name, &group.presence));
    story.publishers.iter().for_each(|group| outages(&group.name, &group.presence));
    for group in &story.subscribers {
        let stalls = group.line.stalls.iter();
        let what = format!("{} reads nothing", group.name);
        marks.extend(stalls.map(|&(from, to)| mark(what.clone(), from, to)));
    }
    for group in &story.publishers {
        marks.extend(group.bursts.iter().map(|&(from, to, times)| {
            mark(format!("{} publishes {times} times as much", group.name), from, to)
        }));
    }
    marks.extend(story.slow.iter().map(|slow| {
        let what = format!("shard {} is {} times slower", slow.shard, slow.times);
        mark(what, slow.time.0, slow.time.1)
    }));
    marks.extend(story.shutdowns.iter().map(|shutdown| {
        mark(format!("shard {} shuts down", shutdown.shard), shutdown.at, u64::MAX)
    }));
    marks.into()
}

/// Each judge with its promise and its verdict.
fn judges(run: &Run, outcome: &crate::Outcome) -> Value {
    let convicted = outcome.conviction.as_ref().map(|conviction| conviction.finding.judge);
    let rows = judge::ALL.iter().map(|(name, promise)| {
        let verdict = match convicted {
            Some(judge) if judge == *name => "convicts",
            _ if *name == "isolation" && !run.job.story.expect.isolation => "not asked",
            Some(_) => "no objection until then",
            None => "content",
        };
        json!({ "name": name, "promise": promise, "verdict": verdict })
    });
    rows.collect()
}

#[cfg(test)]
mod tests;
