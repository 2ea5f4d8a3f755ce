use super::*;
use crate::scenario::{self, Story};
use crate::{Outcome, Watch, run, watch};

fn story(duration: &str, more: &str) -> Story {
    let text = format!(
        r#"
title = "t"
about = "a"
duration = "{duration}"
[[topic]]
name = "news"
[[publisher]]
name = "feed"
topic = "news"
rate = 100
[[subscriber]]
name = "reader"
count = 2
topic = "news"
[[subscriber]]
name = "sleeper"
topic = "news"
buffer = "8KiB"
stalls = [{{ at = "50ms" }}]
{more}"#
    );
    scenario::read("t.toml", &text).unwrap().remove(0)
}

fn watched(story: &Story) -> (Outcome, Series) {
    let mut outcome = watch(story, Watch { series: true, ..Watch::default() }).unwrap();
    let series = outcome.report.watched.take().expect("it was asked for").series;
    (outcome, series)
}

#[test]
fn watching_changes_nothing() {
    let pressed = "[limits]\nhigh_water_bytes = '16KiB'\n[cpu]\ndelivery = '1ms'";
    for more in ["", pressed] {
        let story = story("3s", more);
        let plain = run(&story).unwrap();
        assert!(plain.report.watched.is_none());
        let (outcome, _) = watched(&story);
        assert_eq!(outcome.report.tape, plain.report.tape);
        assert_eq!(outcome.to_string(), plain.to_string());
    }
}

#[test]
fn the_last_point_is_what_the_books_say() {
    let (outcome, series) = watched(&story("3s", "[limits]\nhigh_water_bytes = '16KiB'"));
    let books = &outcome.report.books;
    let last = |plot, name| *series.column(plot, name).unwrap().values.last().unwrap();
    assert_eq!(series.at.last(), Some(&outcome.report.ended));
    assert_eq!(last("publish", "offered"), Some(300));
    assert_eq!(last("publish", "held back"), Some(0));
    assert_eq!(last("deliver", "delivered"), Some(books.delivered.records));
    assert_eq!(last("lost", "dropped backlog/drop_old"), Some(books.dropped.total().records));
    assert_eq!(last("lag", "sleeper"), Some(books.lag.records));
    assert!(books.dropped.total().records > 0 && books.lag.records > 0);
    let first_drop = &series.column("lost", "dropped backlog/drop_old").unwrap().values;
    assert_eq!((first_drop.len(), first_drop[0]), (series.at.len(), Some(0)));
}

#[test]
fn a_most_is_the_peak_wherever_it_was() {
    let (outcome, series) = watched(&story("3s", ""));
    let peaks = outcome.report.peaks;
    let most =
        |plot, name| series.column(plot, name).unwrap().values.iter().max().unwrap().unwrap();
    assert_eq!(most("memory", "held"), peaks.held);
    assert_eq!(most("jobs", "queued"), peaks.queued);
    assert_eq!(most("jobs", "parked"), peaks.parked);
}

#[test]
fn points_are_regular_and_bounded_however_long_the_run_is() {
    // What never drains goes on for ten seconds more: points are merged, more or less often.
    for (duration, least) in [("20s", 370), ("3s", 290), ("1s", 240), ("300ms", 300)] {
        let full = "[limits]\nhigh_water_bytes = '8KiB'";
        let (_, series) = watched(&story(duration, full));
        let points = series.at.len();
        assert!((least..=KEPT).contains(&points), "{duration}: {points}");
        assert!(series.columns.iter().all(|column| column.values.len() == points));
        let steps: Vec<u64> = series.at.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let (last, others) = steps.split_last().unwrap();
        assert!(others.iter().all(|step| *step == others[0]), "{duration}: {steps:?}");
        assert!((1..=others[0]).contains(last), "{duration}: {last}");
        assert_eq!(series.at[0], 0);
    }
}

#[test]
fn two_points_become_one() {
    let mut series = Series::default();
    for (at, value) in [(0, Some(9)), (1, Some(5)), (2, None), (3, Some(2))] {
        series.at.push(at);
        series.put(("p", "level"), Kind::Level, value);
        series.put(("p", "most"), Kind::Most, value);
    }
    series.put(("p", "late"), Kind::Total, Some(1));
    assert_eq!(series.column("p", "late").unwrap().values, [0, 0, 0, 1].map(Some));
    series.thin();
    assert_eq!(series.at, [0, 2, 3]);
    assert_eq!(series.column("p", "level").unwrap().values, [Some(9), None, Some(2)]);
    assert_eq!(series.column("p", "most").unwrap().values, [Some(9), Some(5), Some(2)]);
    assert_eq!(series.column("p", "late").unwrap().values, [Some(0), Some(0), Some(1)]);
}

#[test]
fn an_interval_is_the_next_round_number() {
    let table = [(0, 1), (1, 1), (3, 4), (6, 8), (9, 10), (33_333_334, 40_000_000), (81, 100)];
    for (least, due) in table {
        assert_eq!(round(least), due, "{least}");
    }
}
