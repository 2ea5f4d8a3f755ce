use super::*;

const GOOD: &str = "\
//! Checkpoint 5: what waits.
//!
//! Question: what is dropped?
//! Invariant: bytes match slots.
//! When full: the policy
//! decides.
//! Proof: `just_fits`, `slots_match`,
//! `conservation`, `operations`.
//!
//! More about `this`.
struct A;
";
const TESTS: &str = "#[test]\nfn just_fits() {}\nproptest! {\n    #[test]\n    /// Why.\n    \
                         fn slots_match(a in b) {}\n}\nfn helper() {}\n";

fn findings(docs: &str) -> Vec<String> {
    let files = ["sim/src/judges/conservation.rs", "fuzz/fuzz_targets/operations.rs"];
    let tests = Source::parse("core/src/a.rs", TESTS.to_owned()).unwrap();
    let proofs = proofs(&[tests], &files.map(String::from));
    let source = Source::parse("core/src/backlog.rs", docs.to_owned()).unwrap();
    checkpoint(&source, &proofs).iter().map(ToString::to_string).collect()
}

#[test]
fn labels_with_proofs_that_exist_are_fine() {
    assert_eq!(findings(GOOD), [""; 0]);
    assert_eq!(findings(&GOOD.replace("Question:", "*Question:*")), [""; 0]);
}

#[test]
fn a_missing_label_is_found() {
    for label in LABELS {
        let found = findings(&GOOD.replace(label, "Well:"));
        assert!(found[0].contains(&format!("the line `{label}` is missing")), "{found:?}");
    }
    let swapped =
        GOOD.replace("Question:", "Invariant:").replacen("Invariant: b", "Question: b", 1);
    assert!(findings(&swapped)[0].contains("out of order"));
}

#[test]
fn a_proof_that_does_not_exist_is_found() {
    for name in ["just_fits", "slots_match", "conservation", "operations"] {
        let found = findings(&GOOD.replace(&format!("`{name}`"), "`helper`"));
        assert!(found.len() == 1 && found[0].contains("`helper` is no test"), "{found:?}");
    }
    let found = findings(&GOOD.replace(", `slots", ", slots").replace('`', ""));
    assert!(found[0].contains("names nothing"), "{found:?}");
}

#[test]
fn a_checkpoint_without_a_file_is_found() {
    assert_eq!(check(&[], &BTreeSet::new()).len(), CHECKPOINTS.len());
}
