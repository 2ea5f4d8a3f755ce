//! Results of criterion as values, and as the tables and bars of a README.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

const BEGIN: &str = "<!-- written by `cargo xtask bench` -->\n";
const END: &str = "<!-- end -->\n";
/// The longest bar, in characters.
const WIDTH: f64 = 50.0;
/// Those who are drawn: the subscribers of a topic.
const AUDIENCES: [&str; 3] = ["10", "1000", "10000"];

/// One benchmark of criterion's.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Timed {
    /// `group/name`.
    name: String,
    /// Median time of one operation.
    nanos: f64,
}

impl Timed {
    /// Reads criterion's two files. Its times are per iteration; its throughput says how many
    /// operations that is.
    pub(super) fn parse(group: &str, benchmark: &str, estimates: &str) -> Result<Self> {
        let benchmark: Value = serde_json::from_str(benchmark).context("benchmark.json")?;
        let estimates: Value = serde_json::from_str(estimates).context("estimates.json")?;
        let name = [&benchmark["function_id"], &benchmark["value_str"]];
        let name = name.iter().find_map(|id| id.as_str()).context("it has no name")?;
        let parts = benchmark["throughput"]["Elements"].as_f64().context("no throughput")?;
        let median = estimates["median"]["point_estimate"].as_f64().context("no median")?;
        ensure!(parts > 0.0 && median > 0.0, "{median} ns for {parts} operations");
        Ok(Self { name: format!("{group}/{name}"), nanos: median / parts })
    }
}

fn nanos(timed: &[Timed], name: &str) -> Result<f64> {
    let found = timed.iter().find(|timed| timed.name == name);
    Ok(found.with_context(|| format!("`{name}` was not timed"))?.nanos)
}

/// The yardstick of an operation: for deliveries a channel per subscriber, else a semaphore.
fn yardstick(operation: &str) -> String {
    match operation.rsplit_once('_') {
        Some(("delivery" | "burst" | "dead", audience)) => format!("mpsc/{audience}"),
        _ => "semaphore/acquire_and_release".to_owned(),
    }
}

/// Time, instructions and ratio of every operation that has a count.
pub(super) fn table(timed: &[Timed], counts: &toml::Table) -> Result<String> {
    let mut text = "| operation | ns | instructions | yardstick | its ns | ratio |\n\
                    |---|---:|---:|---|---:|---:|\n"
        .to_owned();
    for (name, count) in counts {
        let count = count.as_float().with_context(|| format!("`{name}` has no count"))?;
        let (own, yardstick) = (nanos(timed, &format!("operations/{name}"))?, yardstick(name));
        let its = nanos(timed, &yardstick)?;
        let ratio = own / its;
        text += &format!(
            "| `{name}` | {own:.1} | {count:.0} | `{yardstick}` | {its:.1} | {ratio:.2} |\n"
        );
    }
    Ok(text)
}

/// Bars of what a delivery costs, ours and the channel's, at three sizes of the audience.
pub(super) fn chart(timed: &[Timed]) -> Result<String> {
    let mut bars = Vec::new();
    for audience in AUDIENCES {
        for (who, name) in [("sluicegate", "operations/delivery_"), ("tokio mpsc", "mpsc/")] {
            bars.push((who, audience, nanos(timed, &format!("{name}{audience}"))?));
        }
    }
    let longest = bars.iter().map(|bar| bar.2).fold(0.0, f64::max);
    let mut text = "```text\nns per delivery, by subscribers of the topic\n".to_owned();
    for (who, audience, nanos) in bars {
        let bar: String =
            (0..50).filter(|at| f64::from(*at) < nanos / longest * WIDTH).map(|_| '█').collect();
        text += &format!("{who} {audience:>6} {bar} {nanos:.0}\n");
    }
    Ok(text + "```\n")
}

/// The text with what stands between the two marks replaced.
pub(super) fn between(text: &str, made: &str) -> Result<String> {
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some(format!("{before}{BEGIN}\n{made}\n{END}{after}"))
    });
    parts.with_context(|| format!("a line `{}` or `{}` is missing", BEGIN.trim(), END.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(name: &str, nanos: f64) -> Timed {
        Timed { name: name.to_owned(), nanos }
    }

    const ESTIMATES: &str =
        r#"{"mean": {"point_estimate": 9.0}, "median": {"point_estimate": 50.0}}"#;

    #[test]
    fn a_median_is_divided_by_what_an_iteration_does() {
        let own = r#"{"function_id": "x", "value_str": null, "throughput": {"Elements": 20}}"#;
        assert_eq!(Timed::parse("a", own, ESTIMATES).unwrap(), timed("a/x", 2.5));
        let by_value = own.replace("\"x\"", "null").replacen("null,", "null, \"a\": 1,", 1);
        let by_value = by_value.replace("\"value_str\": null", "\"value_str\": \"10\"");
        assert_eq!(Timed::parse("a", &by_value, ESTIMATES).unwrap(), timed("a/10", 2.5));
        assert!(Timed::parse("a", &own.replace("20", "0"), ESTIMATES).is_err());
        assert!(Timed::parse("a", own, "{}").unwrap_err().to_string().contains("no median"));
    }

    #[test]
    fn an_operation_is_told_beside_its_yardstick() {
        let times = [
            timed("operations/delivery_10", 30.0),
            timed("operations/refuse", 20.0),
            timed("mpsc/10", 60.0),
            timed("semaphore/acquire_and_release", 10.0),
        ];
        let counts = "delivery_10 = 300.4\nrefuse = 50.0".parse().unwrap();
        let text = table(&times, &counts).unwrap();
        assert!(
            text.contains("| `delivery_10` | 30.0 | 300 | `mpsc/10` | 60.0 | 0.50 |"),
            "{text}"
        );
        assert!(text.ends_with("| 10.0 | 2.00 |\n"), "{text}");
        let error = table(&times[1..], &counts).unwrap_err().to_string();
        assert!(error.contains("`operations/delivery_10` was not timed"), "{error}");
    }

    #[test]
    fn the_longest_bar_is_the_dearest() {
        let mut times = Vec::new();
        for audience in AUDIENCES {
            times.push(timed(&format!("operations/delivery_{audience}"), 10.0));
            times.push(timed(&format!("mpsc/{audience}"), 40.0));
        }
        let text = chart(&times).unwrap();
        let lengths: Vec<_> = text.lines().map(|line| line.matches('█').count()).collect();
        assert_eq!(lengths, [0, 0, 13, 50, 13, 50, 13, 50, 0]);
    }

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let text = format!("a\n{BEGIN}old\n{END}b\n");
        assert_eq!(between(&text, "new\n").unwrap(), format!("a\n{BEGIN}\nnew\n\n{END}b\n"));
        assert!(between("a", "new").unwrap_err().to_string().contains("is missing"));
    }
}
