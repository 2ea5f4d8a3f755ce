use super::*;

/// A second of a good server: 100 calls due, half of them taken.
fn second() -> Tally {
    let mut tally = Tally { nanos: 1_000_000_000, due: 100, taken: 50, ..Tally::default() };
    (tally.refused, tally.held, tally.delivered) = (30, 20, 100);
    tally.latency.add(1_000_000);
    tally
}

fn books(pairs: &[(&str, u64)]) -> Books {
    pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// A run that meets everything.
fn good() -> Run {
    let columns = [
        ("admitted", 50),
        ("sequenced", 50),
        ("expected", 100),
        ("delivered", 97),
        ("dropped", 2),
        ("left", 1),
        ("lag", 0),
        ("refused", 50),
    ];
    let totals = Totals { taken: 50, refused: 50, received: 97, ..Totals::default() };
    Run {
        subscribers: 2,
        peak: 50,
        rate: 100,
        overload: vec![second()],
        after: vec![second()],
        bound: Duration::from_millis(10),
        books: books(&columns),
        totals,
        end: End {
            grace: Duration::from_secs(10),
            code: Some(0),
            books: books(&columns[..7]),
            totals,
            ..End::default()
        },
        ..Run::default()
    }
}

/// Spoils one thing of a run.
type Spoil = fn(&mut Run);

fn missed(run: &Run) -> Vec<&'static str> {
    run.criteria().iter().filter(|it| !it.is_met).map(|it| it.name).collect()
}

#[test]
fn each_criterion_can_be_missed_alone() {
    assert_eq!(missed(&good()), [""; 0]);
    let spoilt: [(&str, Spoil); 19] = [
        ("overload", |run| run.overload[0].due = 94),
        ("overload", |run| (run.overload[0].refused, run.overload[0].held) = (0, 0)),
        ("goodput", |run| run.overload[0].delivered = 89),
        ("p99", |run| (0..3).for_each(|_| run.overload[0].latency.add(20_000_000))),
        ("answers", |run| run.overload[0].unadvised = 1),
        ("answers", |run| run.after[0].failed = 1),
        ("recovery", |run| run.recovery[0] = Duration::from_millis(5_001)),
        ("recovery", |run| run.recovery[1] = Duration::from_millis(5_001)),
        ("counters", |run| run.totals.taken -= 1),
        ("counters", |run| run.totals.received -= 1),
        ("counters", |run| run.totals.refused += 1),
        ("counters", |run| run.books.extend(books(&[("dropped", 3)]))),
        ("counters", |run| run.books.extend(books(&[("sequenced", 49)]))),
        ("end", |run| run.end.took = Duration::from_millis(10_001)),
        ("end", |run| run.end.code = None),
        ("farewell", |run| run.end.stayed = 1),
        ("farewell", |run| run.end.untold = 1),
        ("last books", |run| run.end.totals.received += 1),
        ("last books", |run| run.end.books.clear()),
    ];
    for (name, spoil) in spoilt {
        let mut run = good();
        spoil(&mut run);
        assert_eq!(missed(&run), [name]);
    }
}

#[test]
fn a_call_without_an_answer_may_have_been_taken() {
    let mut run = good();
    run.end.totals.taken -= 1;
    assert_eq!(missed(&run), ["last books"]);
    run.end.totals.unanswered = 1;
    assert_eq!(missed(&run), [""; 0]);
}

#[test]
fn a_second_is_a_line_and_a_bar() {
    let text = good().drawing();
    let bar = format!("{}{}\n", "#".repeat(20), "-".repeat(12) + &".".repeat(8));
    let line = "   1      100       50       30       20       50      1.0  ";
    assert!(text.contains(&format!("\n{line}{bar}")), "{text}");
    assert!(text.contains("\nmet     goodput     100 % of the peak"), "{text}");
    let mut bad = good();
    bad.end.code = Some(1);
    assert!(bad.drawing().contains("\nMISSED  end         with code 1"), "{}", bad.drawing());
    assert_eq!(bad.json()["criteria"][6]["is_met"], false);
}
