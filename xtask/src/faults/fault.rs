//! The head of a patch: what it breaks and who must notice.

use anyhow::{Result, bail, ensure};

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

    /// What is run: every unit and integration test of the package whose name holds one of ours.
    pub(super) fn command_line(&self) -> String {
        match &self.command {
            Some(command) => command.clone(),
            None => format!(
                "cargo test --package {} --tests --no-fail-fast -- {}",
                self.package,
                self.convicted_by.join(" ")
            ),
        }
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
            fault.command_line(),
            "cargo test --package sluicegate-core --tests --no-fail-fast -- books_close \
             a_short_write_is_booked"
        );
        let command = PATCH.replace("# package", "# command: cargo run\n# package");
        assert_eq!(Fault::parse("delivered", &command).unwrap().command_line(), "cargo run");
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
