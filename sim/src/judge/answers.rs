//! Answers: what a client asks over its connection is answered once and in order, however full its
//! queue of records is, or the connection ends.

use super::{Finding, Found};
use crate::fact::Fact;
use std::collections::{BTreeMap, VecDeque};

const NAME: &str = "answers";

/// Follows questions.
#[derive(Debug, Default)]
pub struct Answers {
    /// By subscriber, the numbers of questions without an answer.
    open: BTreeMap<u32, VecDeque<u64>>,
}

impl Answers {
    /// Follows a fact. Cost: O(log subscribers that ask).
    pub fn hear(&mut self, fact: &Fact) -> Found {
        match *fact {
            Fact::Asked(sub, number) => self.open.entry(sub).or_default().push_back(number),
            Fact::Answered(sub, number) => {
                let next = self.open.get_mut(&sub).and_then(VecDeque::pop_front);
                if next != Some(number) {
                    let what = match next {
                        Some(next) => format!("question {number} was answered before {next}"),
                        None => format!("question {number} was answered, and not asked"),
                    };
                    return Err(Finding::safety(NAME, what));
                }
            }
            Fact::Left(sub, _) => drop(self.open.remove(&sub)),
            _ => {}
        }
        Ok(())
    }

    /// Nothing is on its way to a subscriber that is there and reads, and nothing will be.
    pub fn end(&self, sub: u32, name: &str) -> Found {
        match self.open.get(&sub).map_or(0, VecDeque::len) {
            0 => Ok(()),
            open => {
                let what = format!("{open} questions of {name}, which reads, got no answer");
                Err(Finding::liveness(NAME, what))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Kind;

    fn hear(facts: &[Fact]) -> (Answers, Found) {
        let mut judge = Answers::default();
        let found = facts.iter().try_for_each(|fact| judge.hear(fact));
        (judge, found)
    }

    #[test]
    fn an_answer_that_is_lost_doubled_or_out_of_turn_is_convicted() {
        let asked = [Fact::Asked(3, 0), Fact::Asked(3, 1), Fact::Asked(4, 0)];
        let with = |more: &[Fact]| hear(&[&asked[..], more].concat());
        let (judge, found) = with(&[Fact::Answered(3, 0), Fact::Answered(4, 0)]);
        found.unwrap();
        judge.end(4, "calm").unwrap();
        let lost = judge.end(3, "busy").unwrap_err();
        assert_eq!((lost.judge, lost.kind), (NAME, Kind::Liveness));
        assert!(lost.what.contains("1 questions of busy"), "{}", lost.what);
        for wrong in [
            &[Fact::Answered(3, 1)][..],
            &[Fact::Answered(4, 0), Fact::Answered(4, 0)],
            &[Fact::Answered(5, 0)],
        ] {
            assert_eq!(with(wrong).1.unwrap_err().kind, Kind::Safety, "{wrong:?}");
        }
    }

    #[test]
    fn a_connection_that_ended_is_owed_nothing() {
        let (judge, found) = hear(&[Fact::Asked(3, 0), Fact::Left(3, 0)]);
        found.unwrap();
        judge.end(3, "gone").unwrap();
    }
}
