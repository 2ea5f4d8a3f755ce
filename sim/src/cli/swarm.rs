//! `swarm`: random worlds until time is up or a judge convicts.

use super::tapes::{self, Watch, bar, code, verdict};
use super::{BAD_INPUT, say};
use serde_json::json;
use sluicegate_sim::scenario;
use sluicegate_sim::swarm::{self, Bounds, Campaign, Case, Convicted, MARKS};
use std::num::NonZero;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// What `swarm` is told.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many worlds; without this and `--for`, 1000.
    #[arg(long, value_name = "N")]
    runs: Option<u64>,
    /// For how long: `90s`, `30m`, `2h`.
    #[arg(long = "for", value_name = "TIME")]
    time: Option<Time>,
    /// Seed of the first world; the next ones have the next numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where the tape of a convicted world is written.
    #[arg(long, value_name = "TAPE")]
    tape: Option<PathBuf>,
    /// How many worlds run at the same time; one per core if it is not given.
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
    /// Print nothing but a hash of every input and answer of every world.
    #[arg(long, conflicts_with = "json")]
    hash: bool,
}

/// `90s`, `30m`, `2h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Time(Duration);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(char::is_alphabetic);
        let seconds = match &text[digits.len()..] {
            "s" => Some(1),
            "m" | "min" => Some(60),
            "h" => Some(3_600),
            _ => None,
        };
        let number: Option<u64> = digits.parse().ok();
        let seconds = number.zip(seconds).and_then(|(number, of)| number.checked_mul(of));
        let seconds = seconds.filter(|seconds| *seconds > 0);
        let time = seconds.map(|seconds| Self(Duration::from_secs(seconds)));
        time.ok_or_else(|| "a time is a number with its unit: 90s, 30m, 2h".to_owned())
    }
}

/// Runs a campaign. The exit code: 0 nothing found, 1 something was never come by, else by kind.
pub(crate) fn run(options: &Options) -> u8 {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = options.jobs.map_or(threads, NonZero::get);
    let usual = if options.time.is_some() { u64::MAX } else { 1_000 };
    let runs = options.runs.unwrap_or(usual);
    let bounds = Bounds { seed: options.seed, runs, threads };
    let limit = options.time.map(|time| time.0);
    let mut watch = Watch::new();
    // What a world says when it crashes is in its verdict.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let campaign = swarm::run(&bounds, |campaign| {
        let elapsed = watch.elapsed();
        watch.draw(|| line(campaign, elapsed, limit, runs));
        limit.is_none_or(|limit| elapsed < limit)
    });
    std::panic::set_hook(hook);
    watch.clear();
    report(options, &campaign, watch.elapsed())
}

fn line(campaign: &Campaign, elapsed: Duration, limit: Option<Duration>, runs: u64) -> String {
    let part = match limit {
        Some(limit) => elapsed.as_millis() * 1_000 / limit.as_millis().max(1),
        None => u128::from(campaign.worlds) * 1_000 / u128::from(runs.max(1)),
    };
    let Campaign { worlds, inputs, .. } = campaign;
    let bar = bar(u64::try_from(part).unwrap_or(1_000));
    format!("{bar} {worlds} worlds, {inputs} inputs")
}

fn report(options: &Options, campaign: &Campaign, elapsed: Duration) -> u8 {
    let missed = campaign.missed();
    let written = campaign.convicted.as_ref().map(|convicted| keep(options, convicted));
    let command = written.as_ref().and_then(|written| written.clone().ok()).unwrap_or_default();
    if options.json {
        say(document(campaign, &missed, &command, elapsed));
    } else if options.hash {
        say(format_args!("{:016x} of {} worlds", campaign.hash, campaign.worlds));
    } else {
        print(campaign, &missed, &command, elapsed);
    }
    if let Some(Err(message)) = written {
        eprintln!("error: {message}");
        return BAD_INPUT;
    }
    match &campaign.convicted {
        Some(convicted) => code(&convicted.conviction),
        None => u8::from(!missed.is_empty()),
    }
}

/// Plays a convicted world once more and writes its tape, and the scenario if it was one. The
/// command that shows it again.
fn keep(options: &Options, convicted: &Convicted) -> Result<String, String> {
    let Convicted { seed, .. } = convicted;
    let tape = options.tape.clone().unwrap_or_else(|| format!("swarm-{seed}.tape").into());
    match &convicted.case {
        Case::Tape(script) => {
            tapes::write(&tape, &script.play(true).tape)?;
            Ok(format!("sluicegate-sim replay {}", tape.display()))
        }
        Case::Story(text) => {
            let file = tape.with_extension("toml");
            tapes::write(&file, text.as_bytes())?;
            let name = file.display().to_string();
            let stories = scenario::read(&name, text).map_err(|error| error.to_string())?;
            let recorded = stories.first().map(tapes::recorded).transpose()?;
            tapes::write(&tape, &recorded.unwrap_or_default())?;
            Ok(format!("sluicegate-sim run {name}"))
        }
    }
}

fn print(campaign: &Campaign, missed: &[&str], command: &str, elapsed: Duration) {
    let Campaign { worlds, stories, sharded, inputs, reached, .. } = campaign;
    let seconds = elapsed.as_secs_f64();
    say(format_args!(
        "{worlds} worlds, {sharded} of them with several shards, {stories} of them stories; \
         {inputs} inputs"
    ));
    for (what, times) in &reached.0 {
        let mark = if MARKS.contains(&what.as_str()) { ' ' } else { '+' };
        say(format_args!("{times:>12} {mark} {what}"));
    }
    eprintln!("{seconds:.1} s");
    match &campaign.convicted {
        None if missed.is_empty() => say("every judge is content"),
        None => say(format_args!("never come by: {}", missed.join(", "))),
        Some(Convicted { seed, conviction, .. }) => {
            let mut conviction = conviction.clone();
            command.clone_into(&mut conviction.command);
            say(format_args!("the world of seed {seed}: {conviction}"));
            if command.contains(" replay ") {
                say(format_args!("shrink: {}", command.replacen(" replay ", " shrink ", 1)));
            }
        }
    }
}

fn document(
    campaign: &Campaign,
    missed: &[&str],
    command: &str,
    elapsed: Duration,
) -> serde_json::Value {
    let conviction = campaign.convicted.as_ref().map(|convicted| {
        let mut conviction = convicted.conviction.clone();
        command.clone_into(&mut conviction.command);
        conviction
    });
    json!({
        "worlds": campaign.worlds,
        "stories": campaign.stories,
        "sharded": campaign.sharded,
        "inputs": campaign.inputs,
        "hash": format!("{:016x}", campaign.hash),
        "reached": campaign.reached.0,
        "missed": missed,
        "seed": campaign.convicted.as_ref().map(|convicted| convicted.seed),
        "conviction": verdict(conviction.as_ref()),
        "wall_ns": u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_unit() {
        let seconds = |text: &str| text.parse::<Time>().map(|time| time.0.as_secs());
        assert_eq!(["90s", "30m", "2h"].map(|text| seconds(text).unwrap()), [90, 1_800, 7_200]);
        for text in ["90", "s", "-1s", "0s", "1d", "99999999999999999999h"] {
            assert!(seconds(text).unwrap_err().contains("90s"), "{text}");
        }
    }
}
