//! Everything that reads bytes from outside, under libFuzzer: the targets of `fuzz/`.
//!
//! What a run finds goes to the build folder; `fuzz/corpus/` is changed by hand, with
//! `cargo fuzz cmin`.

use crate::apt;
use crate::program::Program;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use std::time::Duration;

const BUILD_LIMIT: Duration = Duration::from_secs(1_800);
/// What a target may take beyond its time, to start and to end.
const GRACE: Duration = Duration::from_secs(120);
/// The time of each target in CI.
const SHORT: Duration = Duration::from_secs(10);
const CARGO: &str = "cargo +nightly";

/// Which targets, and for how long.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long each target runs: `30s`, `10m` or `2h`.
    #[arg(long = "for", value_name = "TIME", default_value = "1m", value_parser = time)]
    time: Duration,
    /// The targets; all of them if none is named.
    targets: Vec<String>,
}

pub(crate) fn step(workspace: &Workspace) -> Result<()> {
    run(workspace, &Options { time: SHORT, targets: Vec::new() })
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let known = targets(&workspace.read("fuzz/Cargo.toml")?)?;
    for name in &options.targets {
        let names = known.join(", ");
        ensure!(known.contains(name), "no fuzz target is called `{name}`; there are {names}");
    }
    ensure_tools(workspace)?;
    let build = format!("{CARGO} fuzz build");
    Program::new(&build, &workspace.root, BUILD_LIMIT).run()?;
    let chosen = if options.targets.is_empty() { &known } else { &options.targets };
    for name in chosen {
        let found = workspace.target.join("fuzz-corpus").join(name);
        std::fs::create_dir_all(&found).with_context(|| format!("{}", found.display()))?;
        let seconds = options.time.as_secs().max(1);
        let line = format!(
            "{CARGO} fuzz run {name} {} fuzz/corpus/{name} -- \
             -max_total_time={seconds} -timeout=10 -verbosity=0 -print_final_stats=1",
            found.display()
        );
        Program::new(&line, &workspace.root, options.time + GRACE).run().with_context(|| {
            format!("fuzz/artifacts/{name}/ has the input: make it a test beside the decoder")
        })?;
    }
    Ok(())
}

fn ensure_tools(workspace: &Workspace) -> Result<()> {
    for (answers, install) in [
        (CARGO, "rustup toolchain install nightly --profile minimal"),
        ("cargo fuzz", "cargo install --locked cargo-fuzz"),
    ] {
        if !apt::answers(answers) {
            Program::new(install, &workspace.root, BUILD_LIMIT).run()?;
        }
    }
    Ok(())
}

/// The names of the programs in the fuzzing crate's manifest.
fn targets(manifest: &str) -> Result<Vec<String>> {
    let table: toml::Table = manifest.parse().context("fuzz/Cargo.toml is not TOML")?;
    let bins = table.get("bin").and_then(toml::Value::as_array).context("no [[bin]]")?;
    let names = bins.iter().map(|bin| bin.get("name")?.as_str().map(str::to_owned));
    names.collect::<Option<_>>().context("a [[bin]] has no name")
}

/// `30s`, `10m`, `2h`.
fn time(text: &str) -> Result<Duration, String> {
    let split = text.len().saturating_sub(1);
    let parts = text.is_char_boundary(split).then(|| text.split_at(split));
    let scale = match parts.map(|(_, unit)| unit) {
        Some("s") => Some(1),
        Some("m") => Some(60),
        Some("h") => Some(3_600),
        _ => None,
    };
    let number = parts.and_then(|(number, _)| number.parse::<u32>().ok());
    let seconds = number.zip(scale).map(|(number, scale)| u64::from(number) * scale);
    let seconds = seconds.filter(|seconds| *seconds > 0);
    seconds.map(Duration::from_secs).ok_or_else(|| "write a time as 30s, 10m or 2h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(time("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(time("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(time("2h"), Ok(Duration::from_secs(7_200)));
        for text in ["", "s", "10", "0s", "-1s", "1d", "1é", "5000000000s"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_target_has_its_source_and_a_corpus_and_every_source_is_a_target() {
        let workspace = Workspace::find().unwrap();
        let named = targets(&workspace.read("fuzz/Cargo.toml").unwrap()).unwrap();
        let files = workspace.files().unwrap();
        for name in &named {
            let corpus = format!("fuzz/corpus/{name}/");
            assert!(files.iter().any(|file| file.starts_with(&corpus)), "{corpus} is empty");
        }
        let sources = files.iter().filter_map(|file| {
            let name = file.strip_prefix("fuzz/fuzz_targets/")?.strip_suffix(".rs")?;
            Some(name.to_owned())
        });
        assert_eq!(sources.collect::<BTreeSet<_>>(), named.into_iter().collect());
    }
}
