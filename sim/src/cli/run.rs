//! `run`: stories, on every core, printed in the order in which they were named.

use super::bar::Bar;
use super::snapshots::Snapshots;
use super::{BAD_INPUT, jobs, only, say, tapes};
use serde_json::json;
use sluicegate_sim::Outcome;
use sluicegate_sim::batch::{self, Ended, Job, Listener, Progress, Run};
use sluicegate_sim::page;
use std::num::NonZero;
use std::path::PathBuf;
use std::str::FromStr;

/// What `run` is told.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Scenario files, or folders of them (every *.toml in it, in order of name).
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Seed of everything random, instead of the scenario's; a range runs each story with all.
    #[arg(long, value_name = "N|N..M")]
    seed: Option<Seeds>,
    /// Run only the variant of this name.
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,
    /// Take the limits that a server's configuration file says, instead of the scenario's.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["check_snapshots", "update_snapshots"])]
    config: Option<PathBuf>,
    /// Print one JSON document per line and story instead of tables.
    #[arg(long)]
    json: bool,
    /// Let the judges recount everything at barriers only, once per virtual second: faster.
    #[arg(long)]
    plain: bool,
    /// Write a report with pictures: one HTML file that needs nothing else.
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Write the tape of the story, which must be one; a convicted one writes its tape anyway.
    #[arg(long, value_name = "TAPE")]
    tape: Option<PathBuf>,
    /// Compare the tables of each file with those kept in `snapshots/` beside it: says which lines
    /// differ, and exits with 1 if any do or a file has none.
    #[arg(long, conflicts_with_all = ["seed", "variant", "update_snapshots"])]
    check_snapshots: bool,
    /// Keep the tables of each file in `snapshots/` beside it, where they differ from those there.
    #[arg(long, conflicts_with_all = ["seed", "variant"])]
    update_snapshots: bool,
    /// How many stories run at the same time; one per core if it is not given.
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
}

/// `7`, or `1..8`: both ends belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seeds {
    first: u64,
    last: u64,
}

/// The most seeds in one call.
const MOST_SEEDS: u64 = 100_000;

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let number = |text: &str| text.trim().parse().ok();
        let seeds = number(first).zip(number(last)).map(|(first, last)| Self { first, last });
        seeds
            .filter(|seeds| seeds.first <= seeds.last && seeds.last - seeds.first < MOST_SEEDS)
            .ok_or_else(|| format!("a seed is a number, or a range of at most {MOST_SEEDS}: 1..8"))
    }
}

/// Runs what was asked for. The greatest exit code.
pub(crate) fn run(options: &Options) -> u8 {
    let jobs = match asked(options) {
        Ok(jobs) => jobs,
        Err(message) => {
            eprintln!("error: {message}");
            return BAD_INPUT;
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = options.jobs.map_or(threads, NonZero::get);
    let keep = options.report.is_some();
    let json = options.json;
    if options.tape.is_some() && jobs.len() != 1 {
        eprintln!("error: `--tape` writes the tape of one story, and these are {}", jobs.len());
        return BAD_INPUT;
    }
    let tape = options.tape.clone();
    let snapshots = (options.update_snapshots || options.check_snapshots).then(Snapshots::default);
    let mut printer =
        Printer { json, bar: Bar::new(), code: 0, keep, kept: vec![], tape, snapshots };
    batch::run(jobs, threads, keep, &mut printer);
    printer.bar.clear();
    let snapshots = printer.snapshots.take();
    let written = match &snapshots {
        Some(snapshots) if options.check_snapshots => {
            printer.code = printer.code.max(snapshots.compare());
            Ok(())
        }
        snapshots => snapshots.as_ref().map_or(Ok(()), Snapshots::write),
    };
    let reported = options.report.as_ref().map_or(Ok(()), |file| {
        tapes::write(file, page::page(&printer.kept).as_bytes())?;
        eprintln!("report: {}", file.display());
        Ok(())
    });
    for message in [written, reported].into_iter().filter_map(Result::err) {
        eprintln!("error: {message}");
        printer.code = printer.code.max(BAD_INPUT);
    }
    printer.code
}

fn asked(options: &Options) -> Result<Vec<Job>, String> {
    let mut jobs = jobs(&options.paths, options.config.as_deref())?;
    let written = [("--report", &options.report), ("--tape", &options.tape)];
    for (flag, path) in written {
        path.as_deref().map_or(Ok(()), |path| tapes::check_place(flag, path))?;
    }
    if let Some(variant) = &options.variant {
        only(&mut jobs, variant)?;
    }
    jobs.iter_mut().for_each(|job| job.story.plain = options.plain);
    let Some(Seeds { first, last }) = options.seed else { return Ok(jobs) };
    let seeded = jobs.iter().flat_map(|job| {
        (first..=last).map(|seed| {
            let mut job = job.clone();
            job.story.seed = seed;
            job
        })
    });
    Ok(seeded.collect())
}

/// Prints each run as it comes.
struct Printer {
    json: bool,
    bar: Bar,
    code: u8,
    /// A report will be written.
    keep: bool,
    kept: Vec<Run>,
    tape: Option<PathBuf>,
    snapshots: Option<Snapshots>,
}

impl Listener for Printer {
    fn ended(&mut self, run: Run) {
        self.bar.clear();
        self.code = self.code.max(run.code());
        if self.json {
            say(document(&run));
        } else if let Ended::Ran(outcome) = &run.ended {
            print(outcome, run.wall);
        }
        tell_failure(&run);
        let kept = tapes::keep(&run, self.tape.as_deref());
        if let Err(message) = kept {
            eprintln!("error: {message}");
            self.code = self.code.max(BAD_INPUT);
        }
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.add(&run);
        }
        if self.keep {
            self.kept.push(run);
        }
    }

    fn pulse(&mut self, progress: Progress) {
        self.bar.draw(progress);
    }
}

fn print(outcome: &Outcome, wall: u64) {
    say(outcome);
    let delivered = outcome.report.books.delivered.records;
    let rate = u128::from(delivered) * 1_000_000_000 / u128::from(wall.max(1));
    let name = &outcome.report.name;
    eprintln!("{name}: {delivered} deliveries in {} ms, {rate} per second", wall / 1_000_000);
}

/// Says what failed and the one command that shows it again.
fn tell_failure(run: &Run) {
    let (name, command) = (run.job.story.name(), run.job.story.command());
    match &run.ended {
        Ended::Ran(_) if run.code() == 0 => {}
        Ended::Ran(_) => eprintln!("{name} failed; repeat: {command}"),
        Ended::Refused(message) => eprintln!("error: {}: {message}", run.job.story.file),
        Ended::Crashed(message) => eprintln!("{name} crashed: {message}; repeat: {command}"),
    }
}

fn document(run: &Run) -> serde_json::Value {
    let mut document = match &run.ended {
        Ended::Ran(outcome) => outcome.json(run.wall),
        Ended::Crashed(what) | Ended::Refused(what) => {
            json!({ "name": run.job.story.name(), "seed": run.job.story.seed, "failure": what })
        }
    };
    let delivered = document["books"]["delivered"]["records"].as_u64();
    if let Some((delivered, cpu)) = delivered.zip(run.cpu) {
        let rate = u128::from(delivered) * 1_000_000_000 / u128::from(cpu.max(1));
        document["cpu_ns"] = json!(cpu);
        document["deliveries_per_cpu_second"] = json!(u64::try_from(rate).unwrap_or(u64::MAX));
    }
    document["exit"] = json!(run.code());
    document["command"] = json!(run.job.story.command());
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_number_or_a_range() {
        let seeds = |text: &str| text.parse::<Seeds>().ok().map(|s| (s.first, s.last));
        assert_eq!(seeds("7"), Some((7, 7)));
        assert_eq!(seeds("1..8"), Some((1, 8)));
        assert_eq!(seeds("0..99999"), Some((0, 99_999)));
        assert_eq!(seeds("18446744073709551615"), Some((u64::MAX, u64::MAX)));
        for text in ["", "x", "8..1", "-1", "1..", "0..100000", "0..18446744073709551615"] {
            assert_eq!(seeds(text), None, "{text}");
        }
    }
}
