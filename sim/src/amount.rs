//! Amounts as people write them: durations, sizes, counts, factors; and bounds on them.

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// What a number in a scenario counts.
pub trait Unit {
    /// What a value looks like, for messages.
    const LIKE: &'static str;
    /// Reads a value as it is written after a comparator.
    fn parse(text: &str) -> Option<u64>;
    /// Writes a value for people.
    fn show(value: u64) -> String;
}

/// Plain numbers: records, jobs, changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count;

/// Bytes: `512`, `"1KiB"`, `"2MB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes;

/// Nanoseconds: `"500ms"`, `"2s"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nanos;

/// Thousandths: `"0.8"`, `"1"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thousandths;

/// Millionths: a part of all, `0.01` or `"1%"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Millionths;

/// Splits "1.5ms" into 1.5 (as an exact fraction) and "ms".
fn split(text: &str) -> Option<(Decimal, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'));
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    Some((Decimal::parse(number)?, unit.trim()))
}

/// `digits / 10^places`, at most nine places.
struct Decimal {
    digits: u128,
    places: u32,
}

impl Decimal {
    fn parse(text: &str) -> Option<Self> {
        let text = text.replace('_', "");
        let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
        if whole.is_empty() || part.len() > 9 || text.ends_with('.') {
            return None;
        }
        let places = u32::try_from(part.len()).ok()?;
        let digits = format!("{whole}{part}").parse::<u64>().ok()?;
        Some(Self { digits: u128::from(digits), places })
    }

    /// This number of units of `scale`, if that is a whole number.
    fn times(&self, scale: u64) -> Option<u64> {
        let product = self.digits * u128::from(scale);
        let divisor = 10_u128.pow(self.places);
        product.is_multiple_of(divisor).then(|| u64::try_from(product / divisor).ok())?
    }
}

impl Unit for Count {
    const LIKE: &'static str = "a whole number such as 100";

    fn parse(text: &str) -> Option<u64> {
        let (number, unit) = split(text)?;
        number.times(1).filter(|_| unit.is_empty())
    }

    fn show(value: u64) -> String {
        value.to_string()
    }
}

impl Unit for Bytes {
    const LIKE: &'static str = "a size such as 512, \"1KiB\", \"2MB\" or \"1GiB\"";

    fn parse(text: &str) -> Option<u64> {
        let (number, unit) = split(text)?;
        let scale = match unit {
            "" | "B" => 1,
            "KB" => 1_000,
            "KiB" => 1 << 10,
            "MB" => 1_000_000,
            "MiB" => 1 << 20,
            "GB" => 1_000_000_000,
            "GiB" => 1 << 30,
            _ => return None,
        };
        number.times(scale)
    }

    fn show(value: u64) -> String {
        match value {
            0..10_240 => format!("{value} B"),
            10_240..10_485_760 => format!("{} KiB", value >> 10),
            _ => format!("{} MiB", value >> 20),
        }
    }
}

impl Unit for Nanos {
    const LIKE: &'static str = "a duration such as \"500ms\", \"2s\" or \"3min\"";

    fn parse(text: &str) -> Option<u64> {
        let (number, unit) = split(text)?;
        let scale = match unit {
            "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "min" => 60_000_000_000,
            _ => return None,
        };
        number.times(scale)
    }

    fn show(value: u64) -> String {
        format!("{}.{:06} s", value / 1_000_000_000, value % 1_000_000_000 / 1_000)
    }
}

impl Unit for Thousandths {
    const LIKE: &'static str = "a factor such as 0.8 or 1";

    fn parse(text: &str) -> Option<u64> {
        let (number, unit) = split(text)?;
        number.times(1000).filter(|_| unit.is_empty())
    }

    fn show(value: u64) -> String {
        format!("{}.{:03}", value / 1000, value % 1000)
    }
}

impl Unit for Millionths {
    const LIKE: &'static str = "a part such as 0.01 or \"1%\"";

    fn parse(text: &str) -> Option<u64> {
        let (number, unit) = split(text)?;
        match unit {
            "" => number.times(1_000_000),
            "%" => number.times(10_000),
            _ => None,
        }
    }

    fn show(value: u64) -> String {
        format!("{}.{:04}%", value / 10_000, value % 10_000)
    }
}

/// An amount of one unit, written as a number or as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount<U> {
    /// The number in base units.
    pub value: u64,
    unit: PhantomData<U>,
}

impl<U> Amount<U> {
    /// This many base units.
    pub const fn of(value: u64) -> Self {
        Self { value, unit: PhantomData }
    }
}

impl<'de, U: Unit> Deserialize<'de> for Amount<U> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = from.deserialize_any(Scalar(U::LIKE, ""))?;
        let value = U::parse(&text);
        value
            .map(Self::of)
            .ok_or_else(|| Error::custom(format!("found {text:?}, expected {}", U::LIKE)))
    }
}

/// A range of amounts, such as a size drawn anew for each publish: `"1KiB..4KiB"` or one amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<U> {
    /// Least, inclusive.
    pub least: u64,
    /// Most, inclusive.
    pub most: u64,
    unit: PhantomData<U>,
}

impl<U> Span<U> {
    /// Least and most.
    pub const fn ends(&self) -> (u64, u64) {
        (self.least, self.most)
    }
}

impl<'de, U: Unit> Deserialize<'de> for Span<U> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = from.deserialize_any(Scalar(U::LIKE, RANGE))?;
        let bad = || {
            let like = U::LIKE;
            Error::custom(format!("found {text:?}, expected {like}, or a range `least..most`"))
        };
        let (least, most) = text.split_once("..").unwrap_or((&text, &text));
        let (least, most) = U::parse(least).zip(U::parse(most)).ok_or_else(bad)?;
        if least > most {
            let (first, last) = text.split_once("..").unwrap_or((&text, &text));
            return Err(Error::custom(format!(
                "found {text:?}, a range whose least is above its most: write \"{}..{}\"",
                last.trim(),
                first.trim()
            )));
        }
        Ok(Self { least, most, unit: PhantomData })
    }
}

/// What a number must be: `"= 0"`, `">= 100"`, `"< 5"`, `"10..20"` (both ends belong), or a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound<U> {
    least: u64,
    most: u64,
    text: String,
    unit: PhantomData<U>,
}

impl<U: Unit> Bound<U> {
    /// Reads a bound. `None` when it is not one, or when no number could satisfy it.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let compared = [">=", "<=", ">", "<", "="]
            .into_iter()
            .find_map(|sign| text.strip_prefix(sign).map(|rest| (sign, rest)));
        let (least, most) = match compared {
            Some((sign, rest)) => {
                let value = U::parse(rest)?;
                match sign {
                    ">=" => (value, u64::MAX),
                    "<=" => (0, value),
                    ">" => (value.checked_add(1)?, u64::MAX),
                    "<" => (0, value.checked_sub(1)?),
                    _ => (value, value),
                }
            }
            None => match text.split_once("..") {
                Some((least, most)) => (U::parse(least)?, U::parse(most)?),
                None => U::parse(text).map(|value| (value, value))?,
            },
        };
        (least <= most).then(|| Self { least, most, text: text.to_owned(), unit: PhantomData })
    }

    /// Whether `value` satisfies it.
    pub fn holds(&self, value: u64) -> bool {
        (self.least..=self.most).contains(&value)
    }

    /// The least number that satisfies it.
    pub const fn least(&self) -> u64 {
        self.least
    }

    /// The greatest number that satisfies it.
    pub const fn most(&self) -> u64 {
        self.most
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl<'de, U: Unit> Deserialize<'de> for Bound<U> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = from.deserialize_any(Scalar(U::LIKE, BOUND))?;
        Self::parse(&text).ok_or_else(|| {
            let signs = "`= n`, `>= n`, `<= n`, `> n`, `< n` or `n..m`";
            let like = U::LIKE;
            Error::custom(format!(
                "found {text:?}, expected a bound that numbers can meet: {signs}, where n is {like}"
            ))
        })
    }
}

/// A number or a text, as text: a limit's value, which only its key's unit can read.
#[derive(Clone, Debug)]
pub(crate) struct Text(pub(crate) String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let like = "a number, or text such as \"1MiB\" or \"2s\"";
        from.deserialize_any(Scalar(like, "")).map(Self)
    }
}

/// What a range and a bound may be besides one value.
const RANGE: &str = "; or a range `least..most`";
const BOUND: &str = "; or a bound on it: `= n`, `>= n`, `<= n`, `> n`, `< n`, `n..m`";

/// A number or a text, as text: what it is like, and what else it may be.
struct Scalar(&'static str, &'static str);

impl Visitor<'_> for Scalar {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.0, self.1)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<String, E> {
        Ok(value.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact_or_nothing() {
        assert_eq!(Nanos::parse("500ms"), Some(500_000_000));
        assert_eq!(Nanos::parse("1.5s"), Some(1_500_000_000));
        assert_eq!(Bytes::parse("1.5KiB"), Some(1536));
        assert_eq!(Bytes::parse("1_000"), Some(1000));
        assert_eq!(Thousandths::parse("0.81"), Some(810));
        let bad = ["", "s", "5", "1.5ns", ".5s", "5.s", "-1s", "1e3s", "5 parsecs", "1s 2ms"];
        assert!(bad.iter().all(|text| Nanos::parse(text).is_none()));
        assert_eq!([Count::parse("1.5"), Count::parse("1KiB"), Bytes::parse("1s")], [None; 3]);
        assert_eq!(Nanos::parse("99999999999999999999s"), None);
    }

    #[test]
    fn every_comparator_holds_on_one_side_only() {
        let holds = |text: &str, value| Bound::<Count>::parse(text).unwrap().holds(value);
        let table = [
            ("= 5", [false, true, false]),
            ("5", [false, true, false]),
            (">= 5", [false, true, true]),
            ("> 5", [false, false, true]),
            ("<= 5", [true, true, false]),
            ("< 5", [true, false, false]),
            ("5..6", [false, true, true]),
            ("3..4", [true, false, false]),
        ];
        for (text, due) in table {
            assert_eq!([4, 5, 6].map(|value| holds(text, value)), due, "{text}");
        }
    }

    #[test]
    fn a_bound_that_nothing_satisfies_is_no_bound() {
        for text in ["< 0", "6..5", "=", "", "about 5", "== 5", "!= 5", "5..", ">= 1KiB"] {
            assert_eq!(Bound::<Count>::parse(text), None, "{text}");
        }
    }
}
