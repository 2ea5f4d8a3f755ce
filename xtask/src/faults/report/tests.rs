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

#[test]
fn a_test_is_found_in_its_target() {
    let output = "\
     Running unittests src/lib.rs (target/debug/deps/core-1)
test a::b ... ok
     Running unittests src/main.rs (target/debug/deps/ws-1)
test c - should panic ... ok
     Running tests/whole.rs (target/debug/deps/whole-1)
test d ... FAILED
     Running tests/folder/main.rs (target/debug/deps/folder-1)
test e ... ok
test result: ok. 1 passed
";
    let found = located(output);
    let found: Vec<_> = found.iter().map(|at| (&*at.target, &*at.path)).collect();
    let expected =
        [("--lib", "a::b"), ("--bins", "c"), ("--test whole", "d"), ("--test folder", "e")];
    assert_eq!(found, expected);
}
