//! What is wrong with a configuration, in words that name the place, the value and the way out.
//!
//! No secret may get into a message: lines are named, never shown.

use crate::settings::SERVER;
use anyhow::anyhow;
use sluicegate_core::LimitError;
use sluicegate_core::limits::KEYS;
use sluicegate_host::words;
use std::path::Path;

/// What cannot be read as a configuration.
pub(super) fn bad_toml(path: &Path, text: &str, error: &toml::de::Error) -> anyhow::Error {
    let start = error.span().map_or(0, |span| span.start);
    let before = text.get(..start).unwrap_or(text);
    let place = before.matches('\n').count();
    let line = text.lines().nth(place).unwrap_or("");
    let message = if line.contains("secret") && !error.message().starts_with("unknown field") {
        "on the line of a secret, which is not shown: a `secret` is text in double quotes on one \
         line, secret = \"…\""
            .to_owned()
    } else {
        people(error.message(), line)
    };
    anyhow!("{}:{}: {message}", path.display(), place + 1)
}

/// A message of the TOML reader in the words of the file.
fn people(message: &str, line: &str) -> String {
    let message = message.trim_end();
    let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    match words.split_first() {
        Some((&word @ ("bind" | "port" | "workers"), _)) if message.starts_with("unknown") => {
            format!("unknown key `{word}`: write it below [server]")
        }
        Some((word, known)) if message.starts_with("unknown field") => {
            format!("unknown key `{word}`; there are {}", known.join(", "))
        }
        Some((word, _)) if message.starts_with("missing field") => {
            format!("missing key `{word}`: an [[app]] has an id, a key and a secret")
        }
        _ if line.trim_start().starts_with("[app]") || line.trim() == "[[app]" => {
            "an app begins with [[app]], with two brackets".to_owned()
        }
        _ => message
            .replace("invalid type: string ", "found ")
            .replace("invalid type: map", "found a table")
            .replace("invalid type: sequence", "found a list")
            .replace("invalid type: ", "found the ")
            .replace("expected a string", "expected text in double quotes")
            .replace("expected a sequence", "expected a list, such as [[app]]")
            .replace("expected a map", "expected a section, such as [limits]"),
    }
}

/// A limit whose value is no whole number.
pub(super) fn bad_value(name: &str, value: &toml::Value) -> String {
    match SERVER.range(name) {
        None => bad_limit(&LimitError::Unknown(name)).to_string(),
        Some((unit, min, max)) => format!(
            "`{name}` is {value}, but must be a whole number, without quotes, between {min} and \
             {max} {unit}"
        ),
    }
}

/// A limit that the core does not take.
pub(super) fn bad_limit(error: &LimitError<'_>) -> anyhow::Error {
    match error {
        LimitError::Unknown(name) => {
            let nearest = nearest(name).expect("the table is not empty");
            anyhow!("{error}; did you mean `{nearest}`?")
        }
        _ => anyhow!("{error}"),
    }
}

/// The valid key that needs the fewest changes.
fn nearest(name: &str) -> Option<&'static str> {
    words::nearest(name, KEYS.iter().map(|key| key.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_not_known_is_answered_with_the_nearest() {
        assert_eq!(nearest("memory_buget"), Some("memory_budget"));
    }
}
