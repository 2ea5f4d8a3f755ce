//! Bad input: where it is, what is wrong, and what was probably meant.

use std::fmt;
use std::ops::Range;

/// Something in a scenario file that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadInput {
    /// The file as it was named.
    pub file: String,
    /// Line in it, from 1, and its text; `None` when the whole file is meant.
    pub line: Option<(usize, String)>,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.line {
            Some((line, text)) => {
                write!(f, "{}:{line}: {}\n    {line} | {text}", self.file, self.message)
            }
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for BadInput {}

/// A file's name and text, to place errors in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    /// The file as it was named.
    pub(super) file: &'a str,
    /// Its text.
    pub(super) text: &'a str,
}

impl Source<'_> {
    /// An error about the bytes `at`.
    pub(super) fn bad(&self, at: &Range<usize>, message: impl Into<String>) -> BadInput {
        let start = at.start.min(self.text.len());
        let before = self.text.get(..start).unwrap_or("");
        let number = before.matches('\n').count() + 1;
        let text = shown(self.text.lines().nth(number - 1).unwrap_or("").trim());
        let (file, message) = (self.file.to_owned(), message.into());
        BadInput { file, line: Some((number, text)), message }
    }

    /// What is written at `at`, for messages.
    pub(super) fn written(&self, at: &Range<usize>) -> String {
        shown(self.text.get(at.clone()).unwrap_or(""))
    }

    /// An error about the whole file.
    pub(super) fn bad_file(&self, message: impl Into<String>) -> BadInput {
        BadInput { file: self.file.to_owned(), line: None, message: message.into() }
    }

    /// An error of the TOML reader, with the nearest valid key if a key is unknown.
    pub(super) fn bad_toml(&self, error: &toml::de::Error) -> BadInput {
        let message = error.message();
        let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
        let text = match words.split_first() {
            Some((word, known)) if message.starts_with("unknown field") => {
                unknown("key", word, known)
            }
            Some((word, known)) if message.starts_with("unknown variant") => {
                unknown("value", word, known)
            }
            _ => plain(message),
        };
        let key = error.span().and_then(|at| self.key_before(at.start));
        let text = match key {
            Some(key) if text.starts_with("found ") => format!("`{key}`: {text}"),
            _ => text,
        };
        match error.span() {
            // A key missing at the top is missing in the whole file.
            Some(at) if at.start > 0 || !message.starts_with("missing field") => {
                self.bad(&at, text)
            }
            _ => self.bad_file(text),
        }
    }
}

impl Source<'_> {
    /// The key of the value that begins at `start`, if both are on one line.
    fn key_before(&self, start: usize) -> Option<String> {
        let line = self.text.get(..start)?.rsplit('\n').next()?;
        let before = line.trim_end().strip_suffix('=')?.trim_end();
        let is_end = |c: char| c.is_whitespace() || matches!(c, '{' | ',' | '.');
        let key = before.rsplit(is_end).next()?;
        Some(shown(key.trim_matches(['"', '\''])))
    }
}

/// A part of the file for people: not too long, and nothing that a terminal would obey.
fn shown(text: &str) -> String {
    const MOST: usize = 160;
    let mut out = String::new();
    for (place, c) in text.chars().enumerate() {
        if place == MOST {
            return out + "…";
        }
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// The reader's message in the words of a TOML file, without the names of Rust's types.
fn plain(message: &str) -> String {
    let mut text = message.trim_end().to_owned();
    for (of_rust, of_people) in [
        ("missing field", "missing key"),
        ("duplicate key", "this key is given twice: write it once"),
        ("invalid type: map", "found a table"),
        ("invalid type: sequence", "found a list"),
        ("invalid type: string ", "found "),
        ("invalid type: ", "found the "),
        ("invalid value: ", "found the "),
        ("expected a sequence", "expected a list, such as [[name]] or [1, 2]"),
        ("expected a boolean", "expected true or false"),
        ("expected i64", "expected a whole number"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected u64", "expected a whole number from 0 on"),
    ] {
        text = text.replace(of_rust, of_people);
    }
    text
}

/// "unknown key `x`", with the nearest of `known`, or all of them when none is near.
pub(super) fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    let near = known.iter().map(|name| (distance(word, name), name)).min();
    match near {
        Some((steps, name)) if steps <= 1 + word.chars().count() / 3 => {
            format!("unknown {what} `{word}`; did you mean `{name}`?")
        }
        _ if known.is_empty() => {
            format!("unknown {what} `{word}`: the file has no {what}, add one of this name")
        }
        _ => format!("unknown {what} `{word}`; known: {}", known.join(", ")),
    }
}

/// How many letters must change, appear or vanish to make `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let change = corner + usize::from(letter != *other);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_letters() {
        let table = [("", "", 0), ("", "abc", 3), ("rate", "rate", 0), ("raet", "rate", 2)];
        for (a, b, due) in table {
            assert_eq!(distance(a, b), due, "{a} {b}");
        }
        assert_eq!(distance("polcy", "policy"), 1);
    }

    #[test]
    fn the_key_of_a_value_is_found_on_its_line() {
        let text = "a = 1\nsize = '2..1'\nb = [{ at = 1, \"for\" = 2 }]\nlong = [\n 1]";
        let source = Source { file: "t", text };
        let key = |value: &str| source.key_before(text.find(value).unwrap());
        assert_eq!(key("'2..1'").as_deref(), Some("size"));
        assert_eq!(key("2 }").as_deref(), Some("for"));
        assert_eq!(key("1]"), None);
    }

    #[test]
    fn a_near_key_is_named_and_a_far_one_lists_all() {
        assert_eq!(
            unknown("key", "polcy", &["name", "policy"]),
            "unknown key `polcy`; did you mean `policy`?"
        );
        assert_eq!(
            unknown("key", "x", &["name", "policy"]),
            "unknown key `x`; known: name, policy"
        );
    }
}
