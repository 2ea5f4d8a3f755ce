//! Limits as people write them: one grammar for stories, `--set` and servers' files.

use super::bad::unknown;
use crate::amount::{Bytes, Count, Nanos, Unit};
use sluicegate_core::{Limits, limits};

/// What is wrong with a limit: its name, or its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadLimit {
    /// There is no limit of this name.
    Name(String),
    /// It cannot have this value.
    Value(String),
}

impl std::fmt::Display for BadLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Name(message) | Self::Value(message)) = self;
        f.write_str(message)
    }
}

/// Sets a limit: a plain number of its unit, or one with a unit, such as `64KiB` or `10ms`.
///
/// # Errors
/// Name the limit, the value and what it could be.
pub fn set_limit(limits: &mut Limits, name: &str, text: &str) -> Result<(), BadLimit> {
    let key = limits::KEYS.iter().find(|key| key.name == name).ok_or_else(|| {
        let known: Vec<&str> = limits::KEYS.iter().map(|key| key.name).collect();
        BadLimit::Name(unknown("limit", name, &known))
    })?;
    let number = Count::parse(text).or_else(|| match key.unit {
        "bytes" => Bytes::parse(text),
        "milliseconds" => Nanos::parse(text).filter(|n| n % 1_000_000 == 0).map(|n| n / 1_000_000),
        _ => None,
    });
    let number = number.ok_or_else(|| {
        let like = match key.unit {
            "bytes" => Bytes::LIKE,
            "milliseconds" => "a number of milliseconds, or text such as \"2s\"",
            _ => Count::LIKE,
        };
        BadLimit::Value(format!("`{} = {text}` must be {like}", key.name))
    })?;
    limits.set(key.name, number).map_err(|error| BadLimit::Value(error.to_string()))
}
