//! The keys of a program's configuration: one table for the file, the environment and the flags.

use crate::words;
use anyhow::{Result, ensure};
use sluicegate_core::Limits;
use sluicegate_core::limits::KEYS;
use std::fmt::Write;

/// A key that takes a whole number.
#[derive(Debug)]
pub struct Number<S: 'static> {
    /// As it is written.
    pub name: &'static str,
    /// What is counted.
    pub unit: &'static str,
    /// The least value.
    pub min: u64,
    /// The greatest value.
    pub max: u64,
    /// A sentence for people.
    pub help: &'static str,
    /// What is in force.
    pub get: fn(&S) -> u64,
    /// Puts a value in force that is within the range.
    pub set: fn(&mut S, u64),
}

impl<S> Number<S> {
    /// Puts a value in force.
    ///
    /// # Errors
    /// Outside its range: names the key, the value and the range.
    pub fn put(&self, settings: &mut S, value: u64) -> Result<()> {
        let Self { name, unit, min, max, .. } = self;
        ensure!(
            (*min..=*max).contains(&value),
            "`{name}` is {value}, but must be between {min} and {max} {unit}"
        );
        (self.set)(settings, value);
        Ok(())
    }
}

/// A key that takes text.
#[derive(Debug)]
pub struct Text<S: 'static> {
    /// As it is written.
    pub name: &'static str,
    /// A sentence for people.
    pub help: &'static str,
    /// What is in force.
    pub get: fn(&S) -> String,
    /// Puts a value in force, or says what it must be.
    pub set: fn(&mut S, &str) -> Result<()>,
}

/// Every key of a program, besides the limits of the core.
#[derive(Debug)]
pub struct Table<S: 'static> {
    /// Those that take text.
    pub texts: &'static [Text<S>],
    /// Those that take a whole number.
    pub numbers: &'static [Number<S>],
}

impl<S> Table<S> {
    /// The key of this name, if it takes text.
    pub fn text(&self, name: &str) -> Option<&'static Text<S>> {
        self.texts.iter().find(|text| text.name == name)
    }

    /// The key of this name, if it takes a number.
    pub fn number(&self, name: &str) -> Option<&'static Number<S>> {
        self.numbers.iter().find(|number| number.name == name)
    }

    /// Whether there is a key of this name.
    pub fn has(&self, name: &str) -> bool {
        self.text(name).is_some() || self.number(name).is_some()
    }

    /// Whether there is a key or a limit of the core of this name.
    pub fn knows(&self, name: &str) -> bool {
        self.has(name) || KEYS.iter().any(|key| key.name == name)
    }

    /// Unit, least and greatest value of a key, or of a limit of the core, that takes a number.
    pub fn range(&self, name: &str) -> Option<(&'static str, u64, u64)> {
        let number = self.number(name).map(|number| (number.unit, number.min, number.max));
        let limit = || KEYS.iter().find(|key| key.name == name);
        number.or_else(|| limit().map(|key| (key.unit, key.min, key.max)))
    }

    /// The key or limit whose name is nearest to one that is not known.
    pub fn nearest(&self, name: &str) -> &'static str {
        let texts = self.texts.iter().map(|text| text.name);
        let all = texts.chain(self.numbers.iter().map(|number| number.name));
        words::nearest(name, all.chain(KEYS.iter().map(|key| key.name))).expect("there are limits")
    }

    /// Every key with its value, as lines of a file; texts are quoted by `quoted`.
    pub fn print(&self, settings: &S, quoted: fn(&str) -> String) -> String {
        let mut out = String::new();
        for Text { name, help, get, .. } in self.texts {
            let _ = writeln!(out, "# {help}\n{name} = {}", quoted(&get(settings)));
        }
        for Number { name, unit, help, get, .. } in self.numbers {
            let _ = writeln!(out, "# {help} ({unit})\n{name} = {}", get(settings));
        }
        out
    }
}

/// Every limit of the core with its value, as lines of a file, but `left_out`.
pub fn print_limits(limits: &Limits, left_out: &[&str]) -> String {
    let mut out = String::new();
    for key in KEYS.iter().filter(|key| !left_out.contains(&key.name)) {
        let value = limits.get(key.name).expect("the table lists what there is");
        let _ = writeln!(out, "# {} ({})\n{} = {value}", key.help, key.unit, key.name);
    }
    out
}

/// Casts a number that the range of its key has bounded.
pub fn small<T: TryFrom<u64>>(value: u64) -> T {
    T::try_from(value).ok().expect("the range of the key is within the type's")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: Table<(String, u16)> = Table {
        texts: &[Text {
            name: "name",
            help: "its name",
            get: |settings| settings.0.clone(),
            set: |settings, text| {
                ensure!(!text.is_empty(), "it is empty");
                text.clone_into(&mut settings.0);
                Ok(())
            },
        }],
        numbers: &[Number {
            name: "port",
            unit: "as a TCP port",
            min: 1,
            max: 65_535,
            help: "where it listens",
            get: |settings| settings.1.into(),
            set: |settings, value| settings.1 = small(value),
        }],
    };

    #[test]
    fn a_number_is_taken_within_its_range_only() {
        let port = TABLE.number("port").unwrap();
        let mut settings = (String::new(), 7);
        for good in [1, 65_535] {
            port.put(&mut settings, good).unwrap();
            assert_eq!((port.get)(&settings), good);
        }
        for bad in [0, 65_536, u64::MAX] {
            let error = port.put(&mut settings, bad).unwrap_err().to_string();
            let due = format!("`port` is {bad}, but must be between 1 and 65535 as a TCP port");
            assert_eq!(error, due);
        }
        assert_eq!(settings.1, 65_535);
    }

    #[test]
    fn keys_and_limits_are_known_and_others_have_a_nearest() {
        assert!(TABLE.has("name") && TABLE.has("port") && !TABLE.has("max_topics"));
        assert!(TABLE.knows("max_topics") && !TABLE.knows("nam"));
        assert_eq!((TABLE.nearest("nam"), TABLE.nearest("max_topic")), ("name", "max_topics"));
        assert_eq!(TABLE.range("port"), Some(("as a TCP port", 1, 65_535)));
        assert_eq!(TABLE.range("lossless").map(|(_, min, max)| (min, max)), Some((0, 1)));
        assert_eq!(TABLE.range("name"), None);
    }

    #[test]
    fn what_is_in_force_is_printed_as_lines_of_a_file() {
        let text = TABLE.print(&("a".to_owned(), 7), |text| format!("'{text}'"));
        let due = "# its name\nname = 'a'\n# where it listens (as a TCP port)\nport = 7\n";
        assert_eq!(text, due);
        let limits = print_limits(&Limits::default(), &["shards"]);
        assert_eq!(limits.matches(" = ").count() + 1, KEYS.len());
        assert!(limits.contains("\nlossless = 0\n") && !limits.contains("shards = "), "{limits}");
    }
}
