//! What a run of tests says about a fault.

use super::fault::Fault;
use crate::program::Captured;

/// What became of a fault.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Every named test failed.
    Convicted,
    /// The tests did not do what the fault's head promises.
    Unconvicted {
        /// Told to whoever has to mend the test or the patch.
        why: String,
        /// What the program printed.
        output: String,
    },
}

impl Outcome {
    pub(super) const fn word(&self) -> &'static str {
        match self {
            Self::Convicted => "convicted",
            Self::Unconvicted { .. } => "NOT CAUGHT",
        }
    }
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ran {
    Failed,
    Passed,
}

/// How the test of this name ended, if it ran. `name` is a function, or a path that ends in one;
/// where several tests have it, one that failed counts.
fn ran(name: &str, output: &str) -> Option<Ran> {
    let mut found = None;
    for line in output.lines() {
        let Some((path, rest)) =
            line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
        else {
            continue;
        };
        // A test that must panic is written `path - should panic`.
        let path = path.split(" - ").next().unwrap_or(path);
        if path != name && !path.ends_with(&format!("::{name}")) {
            continue;
        }
        if rest.ends_with("FAILED") {
            return Some(Ran::Failed);
        }
        if rest.ends_with("ok") {
            found = Some(Ran::Passed);
        }
    }
    found
}

/// Those of the named tests that did not end as they should.
pub(super) fn absent(names: &[String], output: &str, should: Ran) -> Vec<String> {
    names.iter().filter(|name| ran(name, output) != Some(should)).cloned().collect()
}

/// The verdict on a fault after its run.
pub(super) fn judge(fault: &Fault, captured: Captured) -> Outcome {
    let Captured { success, text: output } = captured;
    let why = if success {
        "everything passed although the code is broken".to_owned()
    } else if output.contains("error: could not compile") {
        "the broken code does not compile, so no test has judged it".to_owned()
    } else if fault.command.is_some() {
        let silent = fault.convicted_by.iter().filter(|word| !output.contains(*word));
        let silent: Vec<_> = silent.cloned().collect();
        if silent.is_empty() {
            return Outcome::Convicted;
        }
        format!("the command failed, but its output does not name: {}", silent.join(", "))
    } else {
        let silent = absent(&fault.convicted_by, &output, Ran::Failed);
        if silent.is_empty() {
            return Outcome::Convicted;
        }
        format!("these tests were named and did not fail: {}", silent.join(", "))
    };
    Outcome::Unconvicted { why, output }
}

#[cfg(test)]
mod tests {
    use super::super::fault::tests::PATCH;
    use super::*;

    const BOTH_FAIL: &str = "\
running 2 tests
test ledger::tests::books_close ... FAILED
test egress::tests::a_short_write_is_booked - should panic ... FAILED
";

    fn verdict(head: &str, success: bool, output: &str) -> String {
        let fault = Fault::parse("delivered", head).unwrap();
        match judge(&fault, Captured { success, text: output.to_owned() }) {
            Outcome::Convicted => "convicted".to_owned(),
            Outcome::Unconvicted { why, .. } => why,
        }
    }

    #[test]
    fn a_fault_is_convicted_when_every_named_test_fails() {
        assert_eq!(verdict(PATCH, false, BOTH_FAIL), "convicted");
    }

    #[test]
    fn a_test_that_passes_or_does_not_run_convicts_nobody() {
        let one = BOTH_FAIL.replace("books_close ... FAILED", "books_close ... ok");
        assert!(verdict(PATCH, false, &one).ends_with("did not fail: books_close"));
        assert!(verdict(PATCH, false, "running 0 tests").contains("books_close, a_short"));
        assert!(verdict(PATCH, true, BOTH_FAIL).contains("everything passed"));
        let other = BOTH_FAIL.replace("books_close", "not_books_close");
        assert!(verdict(PATCH, false, &other).ends_with("did not fail: books_close"));
    }

    #[test]
    fn code_that_does_not_compile_convicts_nobody() {
        let output = format!("{BOTH_FAIL}error: could not compile `sluicegate-core`");
        assert!(verdict(PATCH, false, &output).contains("does not compile"));
    }

    #[test]
    fn a_command_convicts_by_name() {
        let head = PATCH.replace("# package", "# command: cargo run\n# package");
        assert_eq!(verdict(&head, false, "books_close and a_short_write_is_booked"), "convicted");
        assert!(verdict(&head, false, "books_close").ends_with("name: a_short_write_is_booked"));
    }

    #[test]
    fn before_the_fault_every_named_test_must_have_passed() {
        let names = ["books_close", "a_short_write_is_booked"].map(String::from);
        let output = BOTH_FAIL.replace("FAILED", "ok");
        assert!(absent(&names, &output, Ran::Passed).is_empty());
        assert_eq!(absent(&names, BOTH_FAIL, Ran::Passed), names);
        assert_eq!(absent(&names, "running 0 tests", Ran::Passed), names);
    }
}
