//! The head of a patch: what it breaks and who must notice.

use super::report::Located;
use anyhow::{Result, bail, ensure};
use std::collections::BTreeSet;

/// A deliberate fault.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    /// The file's stem.
    pub(super) name: String,
    /// What is broken, in words.
    pub(super) what: String,
    /// Tests that must fail; under a command, words its output must hold.
    pub(super) convicted_by: Vec<String>,
    /// Whose tests are run.
    pub(super) package: String,
    /// Run instead of the package's tests.
    pub(super) command: Option<String>,
}

impl Fault {
    /// Reads the `# key: value` lines above the diff.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self> {
        let mut fault = Self {
            name: name.to_owned(),
            what: String::new(),
            convicted_by: Vec::new(),
            package: String::new(),
            command: None,
        };
        for line in text.lines().map_while(|line| line.strip_prefix('#')) {
            let Some((key, value)) = line.split_once(':') else { continue };
            let value = value.trim().to_owned();
            match key.trim() {
                "fault" => fault.what = value,
                "convicted by" => {
                    let names = value.split(',').map(|name| name.trim().to_owned());
                    fault.convicted_by = names.filter(|name| !name.is_empty()).collect();
                }
                "package" => fault.package = value,
                "command" => fault.command = Some(value),
                other => bail!(
                    "`# {other}:` is no key of a fault; use fault, convicted by, package, command"
                ),
            }
        }
        ensure!(!fault.what.is_empty(), "a line `# fault: what is broken` is missing");
        ensure!(!fault.convicted_by.is_empty(), "a line `# convicted by: test_name` is missing");
        ensure!(!fault.package.is_empty(), "a line `# package: sluicegate-…` is missing");
        ensure!(
            text.lines().any(|line| line.starts_with("+++ ")),
            "there is no diff below the head"
        );
        Ok(fault)
    }

    /// What is run where nothing is broken: every unit and integration test of the package whose
    /// name holds one of ours.
    pub(super) fn healthy_line(&self) -> String {
        match &self.command {
            Some(command) => command.clone(),
            None => format!(
                "cargo test --package {} --tests --no-fail-fast -- {}",
                self.package,
                self.convicted_by.join(" ")
            ),
        }
    }

    /// What is run where it is broken: those of the tests that were found that are ours, and no
    /// target without one.
    pub(super) fn broken_line(&self, found: &[Located]) -> String {
        if let Some(command) = &self.command {
            return command.clone();
        }
        let (package, targets) = (&self.package, self.ours(found, |at| &at.target));
        let paths = self.ours(found, |at| &at.path);
        format!("cargo test --package {package} {targets} --no-fail-fast -- --exact {paths}")
    }

    /// What builds that; none where it is a command of its own.
    pub(super) fn build_line(&self, found: &[Located]) -> Option<String> {
        let (package, targets) = (&self.package, self.ours(found, |at| &at.target));
        let line = format!("cargo test --package {package} {targets} --no-run");
        self.command.is_none().then_some(line)
    }

    /// Something of each of the tests that were found and are ours, once.
    fn ours(&self, found: &[Located], what: impl Fn(&Located) -> &String) -> String {
        let is_ours = |at: &&Located| self.convicted_by.iter().any(|name| at.is_called(name));
        let words: BTreeSet<&str> =
            found.iter().filter(is_ours).map(|at| what(at).as_str()).collect();
        words.into_iter().collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) const PATCH: &str = "\
# fault: a delivery is not booked
# convicted by: books_close, a_short_write_is_booked
# package: sluicegate-core
--- a/core/src/egress.rs
+++ b/core/src/egress.rs
@@ -1 +0,0 @@
-books.delivered += tally;
";

    #[test]
    fn a_head_is_read() {
        let fault = Fault::parse("delivered", PATCH).unwrap();
        assert_eq!(fault.what, "a delivery is not booked");
        assert_eq!(fault.convicted_by, ["books_close", "a_short_write_is_booked"]);
        assert_eq!(
            fault.healthy_line(),
            "cargo test --package sluicegate-core --tests --no-fail-fast -- books_close \
             a_short_write_is_booked"
        );
        let command = PATCH.replace("# package", "# command: cargo run\n# package");
        let command = Fault::parse("delivered", &command).unwrap();
        assert_eq!([command.healthy_line(), command.broken_line(&[])], ["cargo run"; 2]);
    }

    #[test]
    fn only_the_targets_with_named_tests_are_run() {
        let at =
            |target: &str, path: &str| Located { target: target.to_owned(), path: path.to_owned() };
        let found = [
            at("--lib", "ledger::tests::books_close"),
            at("--lib", "random::books_close_under_random_operations"),
            at("--test whole", "a_short_write_is_booked"),
            at("--test other", "something_else"),
        ];
        assert_eq!(
            Fault::parse("delivered", PATCH).unwrap().broken_line(&found),
            "cargo test --package sluicegate-core --lib --test whole --no-fail-fast -- --exact \
             a_short_write_is_booked ledger::tests::books_close"
        );
    }

    #[test]
    fn an_incomplete_head_says_what_is_missing() {
        for (line, missing) in [
            ("# fault: a delivery is not booked\n", "# fault:"),
            ("# convicted by: books_close, a_short_write_is_booked\n", "# convicted by:"),
            ("# package: sluicegate-core\n", "# package:"),
            ("+++ b/core/src/egress.rs\n", "no diff"),
        ] {
            let error = Fault::parse("x", &PATCH.replace(line, "")).unwrap_err().to_string();
            assert!(error.contains(missing), "{error}");
        }
        let error =
            Fault::parse("x", &PATCH.replace("package", "pakcage")).unwrap_err().to_string();
        assert!(error.contains("`# pakcage:` is no key"), "{error}");
    }
}
