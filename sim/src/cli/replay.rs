//! `replay`: a tape as it was, or under other limits.

use super::tapes::{self, code, verdict};
use super::{BAD_INPUT, say};
use serde_json::json;
use sluicegate_core::{Tally, Tape};
use sluicegate_sim::amount::{Nanos, Unit};
use sluicegate_sim::replay::{Replayed, Sums, replay, what_if};
use sluicegate_sim::script::Script;
use std::path::PathBuf;

/// What `replay` is told.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// A tape, such as `run --tape` and `swarm` write.
    #[arg(value_name = "TAPE")]
    tape: PathBuf,
    /// Another value for a limit, `key=value`; may be given several times. The answer is an
    /// estimate: what came from outside stays as it was.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
}

/// The exit code for a tape that was decided otherwise than now, or that does not tell how.
const DIFFERS: u8 = 1;

/// Replays a tape. The exit code: 0 as recorded and every judge content, 1 decided otherwise or
/// with no fingerprint that could tell, else by the kind of the verdict; with `--set`, 0.
pub(crate) fn run(options: &Options) -> u8 {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let replayed = replayed(options);
    std::panic::set_hook(hook);
    match replayed {
        Ok(code) => code,
        Err(message) => {
            eprintln!("error: {message}");
            BAD_INPUT
        }
    }
}

fn replayed(options: &Options) -> Result<u8, String> {
    let bytes = tapes::read(&options.tape)?;
    let tape = tapes::open(&options.tape, &bytes)?;
    let name = options.tape.display();
    if !options.set.is_empty() {
        return estimate(options, &tape);
    }
    let mut replayed = replay(&tape).map_err(|damage| format!("{name}: {damage}"))?;
    if let Some(conviction) = &mut replayed.conviction {
        conviction.command = format!("sluicegate-sim replay {name}");
    }
    if options.json {
        say(document(&replayed));
    } else {
        print(&replayed);
    }
    Ok(match &replayed.conviction {
        Some(conviction) => code(conviction),
        None if decisions(&replayed) == "same" => 0,
        None => DIFFERS,
    })
}

/// Whether what was decided is what was recorded, in a word.
const fn decisions(replayed: &Replayed) -> &'static str {
    match (replayed.marks, replayed.differs) {
        (_, Some(_)) => "different",
        (0, None) => "unknown",
        (_, None) => "same",
    }
}

fn print(replayed: &Replayed) {
    let Replayed { shards, inputs, ended, marks, differs, is_cut, conviction, sums } = replayed;
    let ended = Nanos::show(*ended);
    let count = if shards.len() == 1 { "shard" } else { "shards" };
    say(format_args!("{inputs} inputs of {} {count}, to {ended}, healed at the end", shards.len()));
    if *is_cut {
        say("the tape was cut off: its recorder was stopped in the middle of an input");
    }
    match (marks, differs) {
        (0, None) => {
            say("NOT COMPARED: the tape has no fingerprint, so nothing tells how it was decided; \
             recorders write one after every 1,024 inputs and at the end")
        }
        (marks, None) => {
            say(format_args!(
                "every decision is the recorded one: {marks} of {marks} fingerprints are equal"
            ));
        }
        (_, Some(input)) => {
            say(format_args!("DECIDED OTHERWISE than recorded, at input {input} or before it"));
        }
    }
    for (name, Tally { records, bytes }) in sums.lines.iter().filter(|line| !line.1.is_zero()) {
        say(format_args!("  {name:<30} {records:>12} records {bytes:>16} B"));
    }
    say(format_args!("  {:<30} {:>12} B", "held at most", sums.held_peak));
    match conviction {
        Some(conviction) => say(conviction),
        None => say("every judge is content"),
    }
}

fn document(replayed: &Replayed) -> serde_json::Value {
    json!({
        "shards": replayed.shards,
        "inputs": replayed.inputs,
        "ended_ns": replayed.ended,
        "decisions": decisions(replayed),
        "marks": replayed.marks,
        "differs_at": replayed.differs,
        "cut": replayed.is_cut,
        "books": books(&replayed.sums),
        "conviction": verdict(replayed.conviction.as_ref()),
    })
}

fn books(sums: &Sums) -> serde_json::Value {
    let lines = sums.lines.iter().filter(|(_, tally)| !tally.is_zero());
    let mut books: serde_json::Map<_, _> = lines
        .map(|(name, tally)| {
            (name.clone(), json!({ "records": tally.records, "bytes": tally.bytes }))
        })
        .collect();
    for (name, number) in peaks(sums) {
        books.insert(name.to_owned(), json!(number));
    }
    books.into()
}

fn peaks(sums: &Sums) -> [(&'static str, u64); 4] {
    [
        ("held peak", sums.held_peak),
        ("queued peak", sums.jobs_peak.0),
        ("parked peak", sums.jobs_peak.1),
        ("held back", sums.held_back),
    ]
}

/// What other limits would have made of it.
fn estimate(options: &Options, tape: &Tape<'_>) -> Result<u8, String> {
    let name = options.tape.display();
    let mut limits = tape.limits.clone();
    tapes::set(&mut limits, &options.set)?;
    if limits.shards != tape.limits.shards {
        return Err("`--set shards`: the peers of a tape are on the shards where they were".into());
    }
    let script = Script::of(tape).map_err(|damage| format!("{name}: {damage}"))?;
    let recorded = replay(tape).map_err(|damage| format!("{name}: {damage}"))?.sums;
    let before = what_if(&script, &tape.limits);
    let after = what_if(&script, &limits);
    if options.json {
        let document = json!({
            "estimate": true,
            "set": options.set,
            "recorded": books(&recorded),
            "before": books(&before),
            "after": books(&after),
        });
        say(document);
        return Ok(0);
    }
    say("AN ESTIMATE: what came from outside is as it was; peers would have done otherwise");
    say("before: the same estimate under the limits of the tape; recorded: what really was");
    say(format_args!("after: {}", options.set.join(", ")));
    say(table(&recorded, &before, &after).trim_end());
    Ok(0)
}

/// Three books side by side, in records.
fn table(recorded: &Sums, before: &Sums, after: &Sums) -> String {
    let mut text = format!(
        "{:<26} {:>12} {:>12} {:>12} {:>12}\n",
        "records", "recorded", "before", "after", "change"
    );
    let mut line = |name: &str, [recorded, before, after]: [u64; 3]| {
        if [recorded, before, after] == [0; 3] {
            return;
        }
        let change = match after.checked_sub(before) {
            Some(0) => String::new(),
            Some(more) => format!("+{more}"),
            None => format!("-{}", before - after),
        };
        text += &format!("{name:<26} {recorded:>12} {before:>12} {after:>12} {change:>12}\n");
    };
    let names = [recorded, before, after].into_iter().flat_map(|sums| &sums.lines);
    let names = names.map(|(name, _)| name);
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
            line(name, [recorded, before, after].map(|sums| sums.get(name).records));
        }
    }
    let [recorded, before, after] = [recorded, before, after].map(peaks);
    for (at, (name, recorded)) in recorded.into_iter().enumerate() {
        line(name, [recorded, before[at].1, after[at].1]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn books_stand_side_by_side() {
        let one = |records| Tally { records, bytes: records };
        let before = Sums {
            lines: vec![("offered".into(), one(5)), ("dropped egress/drop_old".into(), one(2))],
            ..Sums::default()
        };
        let after =
            Sums { lines: vec![("offered".into(), one(5))], held_peak: 7, ..Sums::default() };
        let text = table(&before, &before, &after);
        let words: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[1], ["offered", "5", "5", "5"]);
        assert_eq!(words[2], ["dropped", "egress/drop_old", "2", "2", "0", "-2"]);
        assert_eq!(words[3], ["held", "peak", "0", "0", "7", "+7"]);
    }
}
