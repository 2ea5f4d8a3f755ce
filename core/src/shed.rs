//! Memory bands: how full the shard's memory is, with hysteresis and dwell.
//!
//! A worse band is entered at once; a milder one only after the dwell, so that in any time `t`
//! there are at most about `2 * t / dwell` changes.

use crate::time::Instant;
use core::time::Duration;

/// How much of the effective memory budget is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Band {
    /// No effect.
    #[default]
    Normal,
    /// New batches are dropped for refusing outlets more than half full.
    Pressure,
    /// The same beyond a sixteenth.
    Severe,
    /// Nothing new is admitted.
    Saturated,
}

impl Band {
    /// Every band, mildest first.
    pub const ALL: [Self; 4] = [Self::Normal, Self::Pressure, Self::Severe, Self::Saturated];

    /// The name used in metrics, scenarios and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Pressure => "pressure",
            Self::Severe => "severe",
            Self::Saturated => "saturated",
        }
    }
}

/// Percent of the budget at which a band is entered, and below which it is left.
const PRESSURE: (u64, u64) = (80, 72);
const SEVERE: (u64, u64) = (95, 90);
const SATURATED: (u64, u64) = (100, 80);

/// Whether trimming may stop: less is held than what enters `severe`; and in `saturated`, which
/// admits nothing, than what leaves it: else a shard whose peers never read again would stay in it.
pub(crate) fn is_relieved(band: Band, held: u64, budget: u64) -> bool {
    let percent = if band == Band::Saturated { SATURATED.1 } else { SEVERE.0 };
    u128::from(held) * 100 < u128::from(budget) * u128::from(percent)
}

const _: () = assert!(PRESSURE.1 < PRESSURE.0 && SEVERE.1 < SEVERE.0 && SATURATED.1 < SATURATED.0);

/// The band in force.
#[derive(Clone, Debug)]
pub(crate) struct Bands {
    band: Band,
    since: Instant,
    dwell: Duration,
}

impl Bands {
    pub(crate) const fn new(dwell: Duration) -> Self {
        Self { band: Band::Normal, since: Instant::ZERO, dwell }
    }

    pub(crate) const fn band(&self) -> Band {
        self.band
    }

    /// Compares what is held with the effective budget. Cost: O(1).
    pub(crate) fn update(&mut self, now: Instant, held: u64, budget: u64) {
        let next = target(self.band, held, budget);
        if next == self.band || (next < self.band && now.since(self.since) < self.dwell) {
            return;
        }
        self.band = next;
        self.since = now;
    }

    /// When a milder band may be entered, if one is due by what is held.
    pub(crate) fn deadline(&self, held: u64, budget: u64) -> Option<Instant> {
        (target(self.band, held, budget) < self.band).then(|| self.since + self.dwell)
    }
}

/// Whether this much is more than a calm shard of this budget may hold.
pub(crate) fn is_pressed(held: u64, budget: u64) -> bool {
    target(Band::Normal, held, budget) != Band::Normal
}

fn target(band: Band, held: u64, budget: u64) -> Band {
    let share = u128::from(held) * 100;
    let at = |percent: u64| share >= u128::from(budget) * u128::from(percent);
    let within = |(enter, leave): (u64, u64), inside: bool| at(if inside { leave } else { enter });
    if within(SATURATED, band == Band::Saturated) {
        Band::Saturated
    } else if within(SEVERE, band == Band::Severe) {
        Band::Severe
    } else if within(PRESSURE, band != Band::Normal) {
        Band::Pressure
    } else {
        Band::Normal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DWELL: Duration = Duration::from_millis(100);

    #[test]
    fn bands_enter_and_leave_at_their_own_marks() {
        let mut bands = Bands::new(Duration::ZERO);
        let mut at = |held| {
            bands.update(Instant::ZERO, held, 100);
            bands.band()
        };
        assert_eq!([at(79), at(80), at(72), at(71)], {
            use Band::*;
            [Normal, Pressure, Pressure, Normal]
        });
        assert_eq!([at(95), at(90), at(89)], [Band::Severe, Band::Severe, Band::Pressure]);
        assert_eq!([at(100), at(80), at(79)], [Band::Saturated, Band::Saturated, Band::Pressure]);
        assert_eq!([at(100), at(71)], [Band::Saturated, Band::Normal]);
    }

    #[test]
    fn trimming_stops_below_what_enters_severe_and_below_what_leaves_saturated() {
        for (band, held, relieved) in [
            (Band::Normal, 94, true),
            (Band::Severe, 94, true),
            (Band::Severe, 95, false),
            (Band::Saturated, 79, true),
            (Band::Saturated, 80, false),
        ] {
            assert_eq!(is_relieved(band, held, 100), relieved, "{band:?} {held}");
        }
    }

    #[test]
    fn a_worse_band_is_entered_at_once_a_milder_one_after_the_dwell() {
        let mut bands = Bands::new(DWELL);
        bands.update(Instant::from_millis(1), 100, 100);
        assert_eq!(bands.band(), Band::Saturated);
        assert_eq!(bands.deadline(0, 100), Some(Instant::from_millis(101)));
        assert_eq!(bands.deadline(99, 100), None);
        bands.update(Instant::from_millis(100), 0, 100);
        assert_eq!(bands.band(), Band::Saturated);
        bands.update(Instant::from_millis(101), 0, 100);
        assert_eq!(bands.band(), Band::Normal);
    }

    #[test]
    fn a_level_that_swings_every_millisecond_changes_the_band_rarely() {
        let mut bands = Bands::new(DWELL);
        let mut changes = 0;
        for ms in 1..=1000 {
            let before = bands.band();
            bands.update(Instant::from_millis(ms), if ms % 2 == 0 { 0 } else { 100 }, 100);
            changes += u32::from(bands.band() != before);
        }
        assert!((2..=20).contains(&changes), "{changes}");
    }
}
