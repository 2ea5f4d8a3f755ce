use super::*;
use crate::model::{self, count};
use alloc::vec::Vec;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// One line of a trace: the time, the sample (none: the queue is empty), whether it is dropped,
/// whether the outlet counts as overloaded afterwards.
type Line = (u64, Option<u64>, bool, bool);

const KEEP: bool = false;
const DROP: bool = true;
const CALM: bool = false;
const OVER: bool = true;

/// A line in milliseconds.
fn ms(at: u64, sojourn: u64, dropped: bool, overloaded: bool) -> Line {
    (at * MS, Some(sojourn * MS), dropped, overloaded)
}

fn feed(codel: &mut Codel, settings: &Settings, at: u64, sojourn: Option<u64>) -> bool {
    let now = Instant::from_nanos(at);
    match sojourn {
        Some(sojourn) => codel.observe(settings, now, Duration::from_nanos(sojourn)),
        None => {
            codel.empty(settings, now);
            false
        }
    }
}

/// Plays a trace at 5 ms in 100 ms.
fn trace(lines: &[Line]) {
    let mut codel = Codel::new();
    for (number, &(at, sojourn, dropped, overloaded)) in lines.iter().enumerate() {
        let answer = feed(&mut codel, &Settings::LOOPBACK, at, sojourn);
        assert_eq!((answer, codel.is_overloaded()), (dropped, overloaded), "line {number}");
    }
}

/// Makes the outlet overloaded at 105 ms; its second interval is from there to 205 ms.
fn onset() -> Vec<Line> {
    [ms(0, 0, KEEP, CALM), ms(1, 50, KEEP, CALM), ms(105, 50, KEEP, OVER)].to_vec()
}

#[test]
fn the_first_sample_of_an_interval_is_kept() {
    trace(&[
        ms(1, 50, KEEP, CALM), // opens 1..=101
        ms(2, 50, KEEP, CALM),
        ms(101, 50, KEEP, CALM), // the last instant still belongs to it
        ms(102, 50, KEEP, OVER), // opens 102..=202: the first of it
        ms(103, 50, DROP, OVER),
        ms(202, 50, DROP, OVER),
        ms(203, 99, KEEP, OVER), // opens 203..=303
        ms(203, 99, DROP, OVER),
        ms(303, 99, DROP, OVER),
    ]);
}

#[test]
fn a_boundary_is_hit_to_the_nanosecond() {
    let end = 101 * MS;
    for (at, overloaded) in [(end - 1, CALM), (end, CALM), (end + 1, OVER)] {
        trace(&[ms(1, 50, KEEP, CALM), (at, Some(50 * MS), KEEP, overloaded)]);
    }
    // A sample at the last instant still counts for the interval that ends there.
    trace(&[
        ms(1, 50, KEEP, CALM),
        (end, Some(5 * MS), KEEP, CALM),
        (end + 1, Some(50 * MS), KEEP, CALM),
    ]);
}

#[test]
fn comparisons_are_strict() {
    // A minimum of exactly the target is no overload, one nanosecond more is.
    for (minimum, overloaded) in [(5 * MS, CALM), (5 * MS + 1, OVER)] {
        trace(&[
            ms(1, 50, KEEP, CALM),
            (2 * MS, Some(minimum), KEEP, CALM),
            ms(102, 50, KEEP, overloaded),
        ]);
    }
    // Exactly twice the target is young enough, one nanosecond more is not.
    let mut lines = onset();
    lines.push((106 * MS, Some(10 * MS), KEEP, OVER));
    lines.push((106 * MS, Some(10 * MS + 1), DROP, OVER));
    trace(&lines);
}

#[test]
fn an_empty_queue_is_a_sample_of_zero() {
    // It clears the interval it falls into ...
    let mut lines = onset();
    lines.push(ms(106, 50, DROP, OVER));
    lines.push((107 * MS, None, KEEP, OVER));
    lines.push(ms(108, 50, DROP, OVER)); // overload ends with an interval, not before
    lines.push(ms(206, 50, KEEP, CALM));
    lines.push(ms(207, 50, KEEP, CALM));
    trace(&lines);
    // ... and it ends an interval like any other sample, as the first of the next.
    let mut lines = onset();
    lines.push((206 * MS, None, KEEP, OVER));
    lines.push(ms(207, 50, DROP, OVER));
    lines.push(ms(307, 50, KEEP, CALM));
    trace(&lines);
}

#[test]
fn one_short_wait_clears_an_interval() {
    for position in 0..4 {
        let sojourn = |at| if at == position { 5 } else { 50 };
        let mut lines = onset();
        lines[2] = ms(105, sojourn(0), KEEP, OVER);
        for at in 1..4 {
            lines.push(ms(105 + 30 * at, sojourn(at), sojourn(at) > 10, OVER));
        }
        lines.push(ms(206, 50, KEEP, CALM));
        lines.push(ms(207, 50, KEEP, CALM));
        lines.push(ms(307, 50, KEEP, OVER));
        trace(&lines);
    }
}

#[test]
fn silence_ends_an_interval_and_no_more() {
    // A peer that read nothing for an hour: what waited is judged by the interval before.
    let hour = 3_600_000;
    let mut lines = onset();
    lines.push(ms(hour, hour - 110, KEEP, OVER));
    lines.push(ms(hour, hour - 120, DROP, OVER));
    lines.push(ms(hour + 1, 9, KEEP, OVER));
    trace(&lines);
    // A queue that was empty before the silence starts calm after it.
    let mut lines = onset();
    lines.push((106 * MS, None, KEEP, OVER));
    lines.push(ms(hour, 50, KEEP, CALM));
    lines.push(ms(hour, 50, KEEP, CALM));
    trace(&lines);
}

#[test]
fn what_waited_behind_one_large_frame_is_not_judged_by_it_alone() {
    trace(&[
        ms(0, 0, KEEP, CALM),
        ms(1, 0, KEEP, CALM),     // the large frame; writing it takes 300 ms
        ms(301, 299, KEEP, CALM), // those behind it go out at once
        ms(301, 298, KEEP, CALM),
        ms(301, 200, KEEP, CALM),
        ms(302, 0, KEEP, CALM),
        ms(402, 1, KEEP, CALM),
    ]);
}

#[test]
fn a_clock_that_goes_back_changes_nothing() {
    let mut lines = onset();
    lines.push(ms(50, 50, DROP, OVER)); // still before the end of the interval
    lines.push(ms(0, 0, KEEP, OVER));
    lines.push(ms(206, 50, KEEP, CALM));
    trace(&lines);
    let mut codel = Codel::new();
    assert!(!feed(&mut codel, &Settings::LOOPBACK, u64::MAX, Some(u64::MAX)));
    assert!(!feed(&mut codel, &Settings::LOOPBACK, u64::MAX, Some(u64::MAX)));
    assert!(!feed(&mut codel, &Settings::LOOPBACK, 0, Some(u64::MAX)));
}

#[test]
fn a_target_of_zero_is_off_and_the_defaults_are_what_they_say() {
    let millis = Duration::from_millis;
    assert_eq!(Settings::new(Duration::ZERO, millis(100)), None);
    assert_eq!(Settings::new(millis(5), millis(100)), Some(Settings::LOOPBACK));
    assert_eq!(Settings::new(millis(75), millis(500)), Some(Settings::REMOTE));
    assert!(Settings::new(Duration::MAX / 2, Duration::MAX).is_some());
}

#[test]
#[should_panic(expected = "checked before")]
fn an_interval_as_short_as_the_target_is_a_mistake() {
    Settings::new(Duration::from_millis(5), Duration::from_millis(5));
}

// ---- the model: it keeps every sample and looks at them all

/// What becomes of each sample: dropped, and overloaded afterwards.
fn model(target: u64, interval: u64, samples: &[(u64, u64)]) -> Vec<(bool, bool)> {
    // The queue was empty at the epoch.
    let mut intervals: Vec<(u64, Vec<u64>)> = [(0, [0].to_vec())].to_vec();
    let mut answers = Vec::new();
    for &(at, sojourn) in samples {
        let (end, own) = intervals.last_mut().unwrap();
        let first = at > *end;
        if first {
            intervals.push((at + interval, [sojourn].to_vec()));
        } else {
            own.push(sojourn);
        }
        let before = intervals.len().checked_sub(2).map(|before| &intervals[before].1);
        let overloaded = before.is_some_and(|all| *all.iter().min().unwrap() > target);
        answers.push((overloaded && !first && sojourn > 2 * target, overloaded));
    }
    answers
}

#[derive(Clone, Debug)]
struct Run {
    target: u64,
    interval: u64,
    /// Time since the sample before (it may be negative), and sojourn; none is an empty queue.
    samples: Vec<(i64, Option<u64>)>,
}

const SAMPLES: usize = 512;

fn run() -> impl Strategy<Value = Run> {
    let samples = proptest::collection::vec(any::<u64>(), SAMPLES);
    (1..40_u64, 1..400_u64, 0..3_u64, samples).prop_map(|(target, more, load, samples)| {
        let interval = target + more;
        let samples = samples.into_iter().map(|bits| {
            let sojourn = sojourn(target, load, bits % 3_000_000);
            (step(interval, bits / 3_000_000), sojourn)
        });
        Run { target, interval, samples: samples.collect() }
    })
}

/// The time to the next sample, made of a random number: mostly many to an interval; sometimes
/// around its length, or long; sometimes the clock goes back.
fn step(interval: u64, bits: u64) -> i64 {
    let (kind, number) = (bits % 34, bits / 34);
    let forward = match kind {
        0..30 => number % (interval / 4 + 2),
        30 | 31 => interval - 1 + number % 3,
        32 => interval + number % (4 * interval),
        _ => return -i64::try_from(number % (interval / 3 + 1)).unwrap(),
    };
    i64::try_from(forward).unwrap()
}

/// A sojourn, made of a random number, at a calm, a mixed or an overloaded outlet. None is an empty
/// queue.
fn sojourn(target: u64, load: u64, bits: u64) -> Option<u64> {
    let (kind, number) = (bits % 150, bits / 150);
    let high = 2 * target + 1 + number % (7 * target);
    match (load, kind) {
        (_, 0) => None,
        (0, _) => Some(number % (target + 1)),
        (1, 1) => Some(number % (target + 1)),
        (1 | 2, 2) => Some([target, target + 1, 2 * target][usize::try_from(number % 3).unwrap()]),
        (1, 3..20) => Some(target + 1 + number % (target + 1)),
        _ => Some(high),
    }
}

/// The times and sojourns of a run, an empty queue being a sojourn of zero.
fn absolute(run: &Run) -> Vec<(u64, u64)> {
    let mut at = 0_u64;
    let samples = run.samples.iter().map(|(step, sojourn)| {
        at = at.saturating_add_signed(*step);
        (at, sojourn.unwrap_or(0))
    });
    samples.collect()
}

/// The rules that hold for any run, sample by sample.
fn check_rules(run: &Run, samples: &[(u64, u64)], answers: &[(bool, bool)]) {
    let mut changed = None;
    let mut overloaded = false;
    for (&(at, sojourn), &(dropped, now_overloaded)) in samples.iter().zip(answers) {
        assert!(!dropped || (now_overloaded && sojourn > 2 * run.target), "what a drop needs");
        if overloaded != now_overloaded {
            assert!(!dropped, "the first sample of an interval is kept");
            let apart = changed.is_none_or(|before| at > before + run.interval);
            assert!(apart, "one change per interval");
            changed = Some(at);
        }
        overloaded = now_overloaded;
    }
    if samples.iter().all(|(_, sojourn)| *sojourn <= run.target) {
        assert!(answers.iter().all(|(dropped, _)| !dropped), "no wait above the target, no drop");
    }
}

#[test]
fn staleness_agrees_with_its_model() {
    let due = ["dropped", "kept", "kept while overloaded", "onset", "recovery"];
    let reached = model::run(model::cases(file!(), 1_200), &run(), &due, |run| {
        let nanos = Duration::from_nanos;
        let settings = Settings::new(nanos(run.target), nanos(run.interval)).unwrap();
        let mut codel = Codel::new();
        let samples = absolute(&run);
        let due = model(run.target, run.interval, &samples);
        let mut before = false;
        for (number, (at, sojourn)) in samples.iter().enumerate() {
            let sample = run.samples[number].1.map(|_| *sojourn);
            let dropped = feed(&mut codel, &settings, *at, sample);
            assert_eq!((dropped, codel.is_overloaded()), due[number], "sample {number}");
            let what = match (before, codel.is_overloaded()) {
                (false, true) => "onset",
                (true, false) => "recovery",
                (true, true) if dropped => "dropped",
                (true, true) => "kept while overloaded",
                (false, false) => "kept",
            };
            count(what);
            before = codel.is_overloaded();
        }
        check_rules(&run, &samples, &due);
    });
    assert!(reached >= model::scaled(200_000));
}

proptest! {
    #[test]
    fn standing_delay_is_dropped_within_two_intervals(
        target in 1..50_u64,
        more in 1..500_u64,
        beyond in 1..500_u64,
        start in 0..10_000_u64,
        per_interval in 2..40_u64,
    ) {
        let interval = target + more;
        let nanos = Duration::from_nanos;
        let settings = Settings::new(nanos(target), nanos(interval)).unwrap();
        let mut codel = Codel::new();
        let step = (interval / per_interval).max(1);
        let mut at = start.max(1);
        let end = at + 2 * interval;
        let mut dropped = false;
        while at <= end {
            dropped |= feed(&mut codel, &settings, at, Some(2 * target + beyond));
            at += step;
        }
        prop_assert!(dropped, "{settings:?} {step}");
    }

    #[test]
    fn a_clock_that_never_moves_on_never_drops(
        start in any::<u64>(),
        steps in proptest::collection::vec((0..1_000_000_u64, any::<u64>()), 1..100),
    ) {
        let mut codel = Codel::new();
        let mut at = start;
        for (back, sojourn) in steps {
            prop_assert!(!feed(&mut codel, &Settings::LOOPBACK, at, Some(sojourn)));
            at = at.saturating_sub(back);
        }
    }
}
