use super::*;

#[test]
fn random_tapes_are_convicted_of_nothing_and_play_the_same_again() {
    let config = Config { cases: 40, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let result = runner.run(&plans(), |plan| {
        let (script, played) = plan.deal();
        if let Some(conviction) = played.conviction {
            return Err(TestCaseError::fail(conviction.to_string()));
        }
        let again = script.play(false);
        prop_assert_eq!(again.hash, played.hash);
        prop_assert!(again.conviction.is_none());
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

#[test]
fn a_seed_is_one_plan() {
    let [one, same, other] = [7, 7, 8].map(plan);
    assert_eq!(one.rolls, same.rolls);
    assert_ne!(one.rolls, other.rolls);
}
