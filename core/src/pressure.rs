//! Memory pressure: raw `memory.pressure` text to samples, samples to a factor on the budget.
//!
//! Source of the format and of the meaning of `full`: the kernel's PSI documentation
//! (Documentation/accounting/psi.rst).

use crate::time::Instant;

/// One reading of the `full` line: the share of time in which all tasks stalled on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Average over 10 s, in hundredths of a percent.
    pub avg10: u32,
    /// Stall time since boot, in microseconds.
    pub total: u64,
}

impl Sample {
    /// Reads the text of a `memory.pressure` file. `None` when it is not in the kernel's format.
    pub fn parse(text: &str) -> Option<Self> {
        let full = text.lines().find_map(|line| line.strip_prefix("full "))?;
        let mut avg10 = None;
        let mut total = None;
        for field in full.split_ascii_whitespace() {
            match field.split_once('=')? {
                ("avg10", value) => avg10 = Some(hundredths(value)?),
                ("total", value) => total = Some(value.parse().ok()?),
                _ => {}
            }
        }
        Some(Self { avg10: avg10?, total: total? })
    }
}

/// "12.34" as 1234; at most 100.00.
fn hundredths(value: &str) -> Option<u32> {
    let (whole, part) = value.split_once('.')?;
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if part.len() != 2 || whole.len() > 3 || !digits(whole) || !digits(part) {
        return None;
    }
    let sum = whole.parse::<u32>().ok()? * 100 + part.parse::<u32>().ok()?;
    (sum <= 10_000).then_some(sum)
}

/// The factor on the memory budget, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Factor(u32);

impl Factor {
    /// No pressure.
    pub const ONE: Self = Self(1000);
    /// The least it becomes.
    pub const FLOOR: Self = Self(800);

    /// Thousandths.
    pub const fn thousandths(self) -> u32 {
        self.0
    }

    /// The budget that is left of `bytes`.
    pub fn of(self, bytes: u64) -> u64 {
        let share = u128::from(bytes) * u128::from(self.0) / 1000;
        u64::try_from(share).expect("a factor is at most 1")
    }
}

/// Turns samples into a factor.
///
/// Above the threshold (or with more than 5 % of the time stalled since the last sample) the
/// factor shrinks by a tenth per sample, down to 0.8; below half of both it grows by 0.1 per
/// sample, up to 1. One unreadable sample holds it; from the second on it is 1, as with no source.
#[derive(Clone, Debug)]
pub struct Controller {
    /// In hundredths of a percent.
    threshold: u32,
    factor: Factor,
    last: Option<(Instant, u64)>,
    unreadable: bool,
}

/// Stalled share of the time between two samples that counts as pressure, in ten-thousandths.
const STALL: u64 = 500;

impl Controller {
    /// A controller with no pressure yet. `threshold_percent` is compared with `full avg10`.
    pub fn new(threshold_percent: u64) -> Self {
        let threshold = u32::try_from(threshold_percent.min(100)).expect("at most 100") * 100;
        Self { threshold, factor: Factor::ONE, last: None, unreadable: false }
    }

    /// The factor in force.
    pub const fn factor(&self) -> Factor {
        self.factor
    }

    /// Takes a reading, or `None` when there was nothing readable.
    pub fn sample(&mut self, now: Instant, sample: Option<Sample>) -> Factor {
        let Some(sample) = sample else {
            if self.unreadable {
                self.factor = Factor::ONE;
                self.last = None;
            }
            self.unreadable = true;
            return self.factor;
        };
        self.unreadable = false;
        let stall = self.stall(now, sample.total);
        if sample.avg10 > self.threshold || stall > STALL {
            self.factor = Factor((self.factor.0 * 9 / 10).max(Factor::FLOOR.0));
        } else if sample.avg10 * 2 < self.threshold && stall * 2 < STALL {
            self.factor = Factor((self.factor.0 + 100).min(Factor::ONE.0));
        }
        self.factor
    }

    /// Ten-thousandths of the time since the last sample that were stalled.
    fn stall(&mut self, now: Instant, total: u64) -> u64 {
        let before = self.last.replace((now, total));
        let Some((then, earlier)) = before else { return 0 };
        let micros = u64::try_from(now.since(then).as_micros()).unwrap_or(u64::MAX).max(1);
        let share = u128::from(total.saturating_sub(earlier)) * 10_000 / u128::from(micros);
        u64::try_from(share.min(10_000)).expect("at most 10 000")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn text(avg10: &str, total: u64) -> alloc::string::String {
        format!(
            "some avg10=1.00 avg60=0.00 avg300=0.00 total=9\n\
             full avg10={avg10} avg60=0.00 avg300=0.00 total={total}\n"
        )
    }

    #[test]
    fn kernel_text_is_read_and_anything_else_is_not() {
        assert_eq!(Sample::parse(&text("12.34", 567)), Some(Sample { avg10: 1234, total: 567 }));
        assert_eq!(Sample::parse(&text("100.00", 0)).unwrap().avg10, 10_000);
        let bad = ["", "full", "full avg10=1.00", "some avg10=1.00 total=1", "\u{0}\u{7f}garbage"];
        let values =
            ["NaN", "1", "1.0", "-1.00", "+1.00", "100.01", "1e9", "1000000000.00", ".", "1."];
        assert!(bad.iter().all(|text| Sample::parse(text).is_none()));
        for value in values {
            assert_eq!(Sample::parse(&text(value, 0)), None, "{value}");
        }
        assert_eq!(Sample::parse("full avg10=1.00 total=99999999999999999999"), None);
        assert_eq!(Sample::parse("full avg10=1.00 total"), None);
    }

    #[test]
    fn the_factor_falls_to_its_floor_and_comes_back() {
        let mut controller = Controller::new(15);
        let mut at = 0;
        let mut feed = |avg10: u32| {
            at += 1000;
            let sample = Sample { avg10, total: 0 };
            controller.sample(Instant::from_millis(at), Some(sample)).thousandths()
        };
        assert_eq!(feed(1500), 1000, "at the threshold is not above it");
        assert_eq!([feed(1501), feed(9000), feed(9000)], [900, 810, 800]);
        assert_eq!([feed(750), feed(1000)], [800, 800], "between half and all holds");
        assert_eq!([feed(749), feed(0), feed(0)], [900, 1000, 1000]);
    }

    #[test]
    fn stalled_time_counts_before_the_average_follows() {
        let mut controller = Controller::new(15);
        let mut feed = |second: u64, total: u64| {
            let sample = Sample { avg10: 0, total };
            controller.sample(Instant::from_millis(second * 1000), Some(sample)).thousandths()
        };
        assert_eq!(feed(1, 1_000_000), 1000, "one sample has no rate");
        assert_eq!(feed(2, 1_050_000), 1000, "5 % is not above 5 %");
        assert_eq!(feed(3, 1_101_000), 900);
        assert_eq!(feed(4, 0), 1000, "a counter that went back is no stall");
    }

    #[test]
    fn unreadable_holds_once_and_then_lets_go() {
        let mut controller = Controller::new(15);
        let high = Some(Sample { avg10: 9000, total: 0 });
        assert_eq!(controller.sample(Instant::from_millis(1), high).thousandths(), 900);
        assert_eq!(controller.sample(Instant::from_millis(2), None).thousandths(), 900);
        assert_eq!(controller.sample(Instant::from_millis(3), None), Factor::ONE);
        assert_eq!(controller.factor(), Factor::ONE);
    }

    #[test]
    fn more_pressure_never_raises_the_factor() {
        for start in [0, 1501, 9000] {
            let mut last = 1001;
            for avg10 in (0..=10_000).step_by(50) {
                let mut controller = Controller::new(15);
                let first = Some(Sample { avg10: start, total: 0 });
                controller.sample(Instant::from_millis(1), first);
                let next = Some(Sample { avg10, total: 0 });
                let factor = controller.sample(Instant::from_millis(2), next).thousandths();
                assert!(factor <= last);
                last = factor;
            }
        }
    }

    #[test]
    fn a_factor_scales_a_budget() {
        assert_eq!(Factor::FLOOR.of(1000), 800);
        assert_eq!(Factor::ONE.of(u64::MAX), u64::MAX);
    }
}
