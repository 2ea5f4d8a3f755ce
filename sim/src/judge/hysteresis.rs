//! Hysteresis: a memory band is kept for its least time before a milder one is entered, so that a
//! shard changes its band no oftener than that allows.

use super::{Finding, Found};
use crate::amount::{Nanos, Unit};
use crate::fact::Fact;
use sluicegate_core::Band;
use std::collections::BTreeMap;

const NAME: &str = "hysteresis";

/// Watches the bands of all shards.
#[derive(Debug, Default)]
pub struct Hysteresis {
    /// The least time in a band, in nanoseconds.
    dwell: u64,
    shards: BTreeMap<u32, Shard>,
}

#[derive(Debug)]
struct Shard {
    band: Band,
    since: u64,
    began: u64,
    changes: u64,
}

impl Hysteresis {
    /// A judge over this least time in a band, in nanoseconds.
    pub fn new(dwell: u64) -> Self {
        Self { dwell, shards: BTreeMap::new() }
    }

    /// Follows a fact. Cost: O(log shards) for a change of a band.
    pub fn hear(&mut self, now: u64, fact: &Fact) -> Found {
        let Fact::Band(number, band) = *fact else { return Ok(()) };
        let Some(shard) = self.shards.get_mut(&number) else {
            let shard = Shard { band, since: now, began: now, changes: 0 };
            self.shards.insert(number, shard);
            return Ok(());
        };
        let (before, stayed) = (shard.band, now - shard.since);
        (shard.band, shard.since) = (band, now);
        shard.changes += 1;
        if band < before && stayed < self.dwell {
            let what = format!(
                "shard {number} left the band {} for {} after {}, the least is {}",
                before.name(),
                band.name(),
                Nanos::show(stayed),
                Nanos::show(self.dwell)
            );
            return Err(Finding::safety(NAME, what));
        }
        // Each way back takes its time, and there are as many ways up: three steps of one each.
        let time = now - shard.began;
        let most = 6 + 6 * time.checked_div(self.dwell).unwrap_or(u64::MAX / 6 - 1);
        if shard.changes > most {
            let changes = shard.changes;
            let what = format!("shard {number} changed its band {changes} times, {most} at most");
            return Err(Finding::safety(NAME, what));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(bands: &[(u64, Band)]) -> Found {
        let mut judge = Hysteresis::new(100);
        bands.iter().try_for_each(|(at, band)| judge.hear(*at, &Fact::Band(0, *band)))
    }

    #[test]
    fn a_band_may_rise_at_once_and_fall_after_its_time() {
        let up = [(0, Band::Normal), (5, Band::Pressure), (6, Band::Saturated)];
        hear(&up).unwrap();
        hear(&[&up[..], &[(106, Band::Normal)]].concat()).unwrap();
        hear(&[&up[..], &[(105, Band::Normal)]].concat()).unwrap_err();
    }

    #[test]
    fn a_band_that_flaps_is_convicted() {
        let flap = (0..40).map(|n| (n, [Band::Pressure, Band::Severe][n as usize % 2]));
        let found = hear(&flap.collect::<Vec<_>>()).unwrap_err();
        assert_eq!(found.judge, NAME);
    }
}
