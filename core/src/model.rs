//! What the tests against a model share: a run of random operations, and the count of what it came
//! by. A run that never came by a case proves nothing about it, and fails.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use core::fmt::Debug;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestError, TestRunner};
use std::cell::RefCell;
use std::{println, thread_local};

/// How many cases are run, in percent of what a test asks for. Fewer, where each of many builds is
/// tried: then nothing has to be come by. More, at night.
const PERCENT: &str = "SLUICEGATE_CASES_PERCENT";

thread_local! {
    /// How often each case was come by, on the thread of the test.
    static REACHED: RefCell<BTreeMap<String, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// The run came by a case.
pub(crate) fn count(what: &str) {
    REACHED.with_borrow_mut(|reached| match reached.get_mut(what) {
        Some(times) => *times += 1,
        None => drop(reached.insert(what.to_owned(), 1)),
    });
}

/// The run of a test in `file`, whose failures are kept beside it and tried first.
pub(crate) fn cases(file: &'static str, cases: u32) -> Config {
    Config { cases, ..Config::with_source_file(file) }
}

fn percent() -> u32 {
    let asked = std::env::var(PERCENT).ok();
    asked.map_or(100, |asked| asked.parse().expect("a number of percent"))
}

/// What a whole run counts, for the part of it that is run.
pub(crate) fn scaled(whole: u64) -> u64 {
    whole * u64::from(percent()) / 100
}

/// Tries what `made` makes, and the smallest that still fails is told. Then each of `due` must have
/// been [counted](count). Returns how often everything was.
pub(crate) fn run<S>(config: Config, made: &S, due: &[&str], test: impl Fn(S::Value)) -> u64
where
    S: Strategy,
    S::Value: Debug,
{
    let cases = scaled(config.cases.into()).max(1);
    let cases = u32::try_from(cases).expect("a number of cases");
    REACHED.with_borrow_mut(BTreeMap::clear);
    let result = TestRunner::new(Config { cases, ..config }).run(made, |value| {
        test(value);
        Ok(())
    });
    match result {
        Ok(()) => {}
        Err(TestError::Abort(why)) => panic!("{why}"),
        Err(TestError::Fail(why, value)) => panic!("{why}\nwith {value:?}"),
    }
    let reached = REACHED.with_borrow(Clone::clone);
    println!("{reached:#?}");
    let missed: BTreeMap<_, _> = due
        .iter()
        .filter(|what| percent() >= 100 && !reached.contains_key(**what))
        .map(|what| (what, 0))
        .collect();
    assert!(missed.is_empty(), "never reached: {missed:?}");
    reached.values().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::any;

    #[test]
    fn a_run_that_misses_a_case_fails() {
        let run = |due| run(Config::with_cases(20), &any::<bool>(), due, |_| count("one"));
        assert!(run(&["one"]) >= 1);
        let missed = std::panic::catch_unwind(|| run(&["one", "two"]));
        assert_eq!(missed.is_err(), percent() >= 100);
    }
}
