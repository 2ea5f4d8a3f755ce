//! Isolation: peers that read nothing change nobody else's trace. The same world runs with and
//! without them, and every other subscriber must receive the same records at the same times.

use super::{Finding, Found};
use crate::amount::{Nanos, Unit};
use std::collections::BTreeMap;

const NAME: &str = "isolation";

/// When a subscriber received which publisher's publish of which number.
pub type Trace = Vec<(u64, u32, u64)>;

/// The traces by subscriber.
pub type Traces = BTreeMap<String, Trace>;

/// Compares every trace of the run without the stalled with the run that has them.
pub fn compare(with: &Traces, without: &Traces) -> Found {
    for (name, alone) in without {
        let empty = Trace::new();
        let beside = with.get(name).unwrap_or(&empty);
        let differs = alone.iter().zip(beside).position(|(a, b)| a != b);
        let shorter = alone.len().min(beside.len());
        let at = match differs {
            Some(at) => at,
            None if alone.len() == beside.len() => continue,
            None => shorter,
        };
        let text = |trace: &Trace| {
            trace.get(at).map_or_else(
                || "nothing more".to_owned(),
                |&(time, publisher, number)| {
                    format!("publish {number} of {publisher} at {}", Nanos::show(time))
                },
            )
        };
        let what = format!(
            "{name}'s receipt {at} depends on peers that read nothing: {} with them, {} without",
            text(beside),
            text(alone)
        );
        let time = beside.get(at).or_else(|| alone.get(at)).map(|entry| entry.0);
        return Err(Finding { at: time, ..Finding::safety(NAME, what) });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traces(trace: &[(u64, u32, u64)]) -> Traces {
        Traces::from([("reader".to_owned(), trace.to_vec())])
    }

    #[test]
    fn equal_traces_pass_and_others_may_come_and_go() {
        let alone = traces(&[(1, 0, 0), (2, 0, 1)]);
        let mut beside = alone.clone();
        beside.insert("sleeper".to_owned(), vec![(9, 0, 0)]);
        compare(&beside, &alone).unwrap();
    }

    #[test]
    fn a_record_that_is_late_missing_or_extra_is_convicted() {
        let alone = traces(&[(1, 0, 0), (2, 0, 1)]);
        let beside: [&[_]; 5] = [
            &[(1, 0, 0), (3, 0, 1)],
            &[(1, 0, 0), (2, 0, 2)],
            &[(1, 0, 0)],
            &[(1, 0, 0), (2, 0, 1), (3, 0, 2)],
            &[],
        ];
        for trace in beside {
            let found = compare(&traces(trace), &alone).unwrap_err();
            assert!(found.what.contains("reader"), "{}", found.what);
        }
        compare(&Traces::new(), &alone).unwrap_err();
    }
}
