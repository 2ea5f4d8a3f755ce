//! `shrink`: the smallest tape that the same judge convicts.

use super::tapes::{self, Watch, code, verdict};
use super::{BAD_INPUT, say};
use serde_json::json;
use sluicegate_core::{Limits, limits};
use sluicegate_sim::script::Script;
use sluicegate_sim::shrink::{Shrunk, shrink};
use std::path::PathBuf;

/// What `shrink` is told.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// A tape that some judge convicts.
    #[arg(value_name = "TAPE")]
    tape: PathBuf,
    /// Where the small one is written; `TAPE.min` if it is not given.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print one JSON document instead of the inputs.
    #[arg(long)]
    json: bool,
}

/// Shrinks a tape. The exit code says what it is convicted of; 2 when of nothing.
pub(crate) fn run(options: &Options) -> u8 {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let shrunk = shrunk(options);
    std::panic::set_hook(hook);
    match shrunk {
        Ok(code) => code,
        Err(message) => {
            eprintln!("error: {message}");
            BAD_INPUT
        }
    }
}

fn shrunk(options: &Options) -> Result<u8, String> {
    let bytes = tapes::read(&options.tape)?;
    let tape = tapes::open(&options.tape, &bytes)?;
    let name = options.tape.display();
    let script = Script::of(&tape).map_err(|damage| format!("{name}: {damage}"))?;
    let mut watch = Watch::new();
    let all = script.ops.len();
    let found = shrink(&script, |left| watch.draw(|| format!("{left} of {all} inputs are left")));
    watch.clear();
    let Shrunk { script, mut conviction, plays } =
        found.ok_or_else(|| format!("{name}: no judge convicts this tape of anything"))?;
    let out = options.out.clone().unwrap_or_else(|| {
        let mut name = options.tape.clone().into_os_string();
        name.push(".min");
        name.into()
    });
    tapes::write(&out, &script.play(true).tape)?;
    conviction.command = format!("sluicegate-sim replay {}", out.display());
    let limits = differ(&script.limits);
    if options.json {
        let limits: serde_json::Map<_, _> =
            limits.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        let document = json!({
            "inputs": script.ops.len(),
            "of": all,
            "plays": plays,
            "seed": script.seed,
            "limits": limits,
            "operations": script.lines(),
            "conviction": verdict(Some(&conviction)),
        });
        say(document);
    } else {
        say(format_args!("{} of {all} inputs are left, after {plays} plays:", script.ops.len()));
        for (name, value) in limits {
            say(format_args!("  limit {name} = {value}"));
        }
        for line in script.lines() {
            say(format_args!("  {line}"));
        }
        say(&conviction);
    }
    Ok(code(&conviction))
}

/// The limits that are not the defaults.
fn differ(own: &Limits) -> Vec<(&'static str, u64)> {
    let defaults = Limits::default();
    let keys = limits::KEYS.iter().filter_map(|key| Some((key.name, own.get(key.name)?)));
    keys.filter(|(name, value)| defaults.get(name) != Some(*value)).collect()
}
