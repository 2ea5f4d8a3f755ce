//! Instructions per operation, as values: read, written, compared.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;

/// How far a figure may be from the one that is checked in, in percent of it. A better one is a
/// difference too: otherwise what was won is lost again unseen.
const TOLERANCE_PERCENT: f64 = 5.0;

const HEAD: &str = "\
# Instructions per operation, release build. `cargo xtask instructions` compares, and fails beyond
# five percent in either direction; `cargo xtask instructions --update` writes this file.
";

/// One line of `sluicegate-bench list`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) name: String,
    pub(super) unit: String,
    /// Units in one repetition.
    pub(super) parts: u64,
    /// Repetitions of the longer of two runs.
    pub(super) times: u64,
}

impl Operation {
    pub(super) fn parse(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, unit, parts, times] = words[..] else {
            anyhow::bail!("`{line}` is not `name unit parts times`");
        };
        let number = |text: &str| {
            let number = text.parse::<u64>().ok().filter(|number| *number > 0);
            number.with_context(|| format!("`{text}` in `{line}` is no number above 0"))
        };
        Ok(Self {
            name: name.to_owned(),
            unit: unit.to_owned(),
            parts: number(parts)?,
            times: number(times)?,
        })
    }
}

/// The number of instructions in a file of callgrind's: its line `summary: N`, else `totals: N`.
pub(super) fn collected(text: &str) -> Result<u64> {
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
    let found = value("summary:").or_else(|| value("totals:"));
    let number = found.context("callgrind wrote neither `summary:` nor `totals:`")?;
    number.trim().parse().with_context(|| format!("`{number}` is no number of instructions"))
}

/// What a longer run cost more than a shorter one, per part that it did more; to a tenth.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
pub(super) fn per_part([few, many]: [u64; 2], parts: u64) -> Result<f64> {
    let more = many.checked_sub(few).filter(|more| *more > 0 && parts > 0);
    let more = more.with_context(|| format!("{many} instructions are no more than {few}"))?;
    Ok((more as f64 * 10.0 / parts as f64).round() / 10.0)
}

/// Figures by the name of their operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures(BTreeMap<String, f64>);

impl Figures {
    pub(super) fn insert(&mut self, name: String, figure: f64) {
        self.0.insert(name, figure);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Reads `name = number` lines.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let table: toml::Table = text.parse().context("not TOML")?;
        let mut figures = Self::default();
        for (name, value) in table {
            let figure = value.as_float().filter(|figure| *figure > 0.0);
            let figure = figure.with_context(|| {
                format!("`{name}` is {value}, but must be a number above 0 with a decimal, 12.0")
            })?;
            figures.insert(name, figure);
        }
        ensure!(figures.len() > 0, "it holds no figure: write it with `--update`");
        Ok(figures)
    }

    pub(super) fn toml(&self) -> String {
        let lines = self.0.iter().map(|(name, figure)| format!("{name} = {figure:.1}\n"));
        HEAD.to_owned() + &lines.collect::<String>()
    }

    pub(super) fn json(&self) -> String {
        // Names are words of letters, digits and underscores: nothing to escape.
        let lines = self.0.iter().map(|(name, figure)| format!("  \"{name}\": {figure:.1}"));
        format!("{{\n{}\n}}", lines.collect::<Vec<_>>().join(",\n"))
    }
}

/// A figure that is not what is checked in; `None` where one is missing.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    name: String,
    kept: Option<f64>,
    now: Option<f64>,
}

/// What differs by more than the tolerance, and what only one side has.
pub(super) fn changes(kept: &Figures, now: &Figures) -> Vec<Change> {
    let mut names: Vec<&String> = kept.0.keys().chain(now.0.keys()).collect();
    names.sort();
    names.dedup();
    let change = |name: &String| {
        let (kept, now) = (kept.0.get(name).copied(), now.0.get(name).copied());
        let near = kept
            .zip(now)
            .is_some_and(|(kept, now)| (now - kept).abs() * 100.0 <= kept * TOLERANCE_PERCENT);
        (!near).then(|| Change { name: name.clone(), kept, now })
    };
    names.into_iter().filter_map(change).collect()
}

/// The changes, for a person.
pub(super) fn table(changes: &[Change]) -> String {
    let shown = |figure: Option<f64>| figure.map_or_else(|| "none".into(), |f| format!("{f:.1}"));
    let mut text = format!("{:<28} {:>10} {:>10} {:>8}", "operation", "checked in", "now", "");
    for Change { name, kept, now } in changes {
        let by = match (kept, now) {
            (Some(kept), Some(now)) => format!("{:+.1}%", (now - kept) * 100.0 / kept),
            (None, _) => "new".to_owned(),
            (_, None) => "gone".to_owned(),
        };
        text += &format!("\n{name:<28} {:>10} {:>10} {by:>8}", shown(*kept), shown(*now));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(text: &str) -> Figures {
        Figures::parse(text).unwrap()
    }

    #[test]
    fn a_line_of_the_list_is_read() {
        let operation = Operation::parse("delivery_10 delivery 10 1000").unwrap();
        assert_eq!((operation.parts, operation.times), (10, 1_000));
        assert_eq!((&*operation.name, &*operation.unit), ("delivery_10", "delivery"));
        for bad in ["", "a b 1", "a b 1 x", "a b 0 1", "a b 1 2 3"] {
            assert!(Operation::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_count_is_read_from_what_callgrind_writes() {
        let text = "version: 1\nevents: Ir\nfn=(1) x\n1 2\nsummary: 1234567\ntotals: 7\n";
        assert_eq!(collected(text).unwrap(), 1_234_567);
        assert_eq!(collected("events: Ir\ntotals: 89\n").unwrap(), 89);
        assert!(collected("events: Ir\n").is_err());
        assert!(collected("summary: many\n").is_err());
    }

    #[test]
    fn the_difference_is_divided() {
        assert_eq!(per_part([1_000, 3_005], 20).unwrap(), 100.3);
        assert!(per_part([5, 5], 1).unwrap_err().to_string().contains("no more than 5"));
        assert!(per_part([6, 5], 1).is_err());
    }

    #[test]
    fn figures_are_written_as_they_are_read() {
        let both = figures("b = 20.5\na = 1.0\n");
        assert_eq!(figures(&both.toml()), both);
        assert!(both.toml().ends_with("a = 1.0\nb = 20.5\n"));
        assert_eq!(both.json(), "{\n  \"a\": 1.0,\n  \"b\": 20.5\n}");
    }

    #[test]
    fn a_file_that_compares_nothing_is_refused() {
        assert!(Figures::parse("").is_err());
        let error = Figures::parse("a = 0.0").unwrap_err().to_string();
        assert!(error.contains("`a` is 0"), "{error}");
        assert!(Figures::parse("a = \"1\"").is_err());
    }

    #[test]
    fn five_percent_is_near_and_more_is_not() {
        let kept = figures("a = 100.0");
        for near in ["a = 105.0", "a = 95.0", "a = 100.0"] {
            assert_eq!(changes(&kept, &figures(near)), []);
        }
        for (far, by) in [("a = 105.1", "+5.1%"), ("a = 94.9", "-5.1%")] {
            let found = changes(&kept, &figures(far));
            assert!(found.len() == 1 && table(&found).ends_with(by), "{}", table(&found));
        }
    }

    #[test]
    fn a_new_operation_and_one_that_is_gone_are_changes() {
        let found = changes(&figures("a = 1.0\nb = 2.0"), &figures("b = 2.0\nc = 3.0"));
        let text = table(&found);
        assert_eq!(found.len(), 2, "{text}");
        assert!(text.contains("gone") && text.ends_with("new"), "{text}");
    }
}
