//! A peer that stops reading loses only its own, and the books say how much and where.

mod support;

use support::{Server, event, post, until};

const EVENTS: u64 = 4_000;
const DATA: usize = 4_000;

#[test]
fn a_slow_reader_loses_its_own_and_the_books_add_up() {
    let server = Server::start();
    let ((mut healthy, _), (mut slow, _)) = (server.client(), server.client());
    healthy.subscribe("news");
    slow.subscribe("news");
    let address = server.address;
    let publishing = std::thread::spawn(move || {
        let mut publisher = support::Client::connect(address);
        for n in 0..EVENTS {
            let data = format!("{n:06}{}", "x".repeat(DATA));
            assert_eq!(publisher.send(&post(&event("news", &data))).response().status, 200);
        }
    });
    let number = |text: &str| {
        let start = text.find(r#""data":""#).expect("an event") + 8;
        text[start..start + 6].parse::<u64>().expect("a number")
    };
    for n in 0..EVENTS {
        assert_eq!(number(&healthy.text()), n, "the healthy one loses nothing");
    }
    publishing.join().unwrap();

    let (expected, dropped) = (server.column("expected"), server.column("dropped"));
    let (delivered, lag) =
        (server.column("delivered"), server.metric("sluicegate_lag_records", ""));
    assert_eq!(expected, 2 * EVENTS);
    assert_eq!(dropped + delivered + lag, expected);
    assert!(dropped > EVENTS / 2, "only {dropped} dropped");
    let place = "column=\"dropped\",place=\"backlog\",reason=\"drop_old\"";
    assert_eq!(server.metric("sluicegate_records_total", place), dropped);

    // A peer that takes nothing costs nothing. A loop that does not sleep makes hundreds of turns
    // during a scrape, which takes about ten.
    let turns: Vec<u64> = (0..5).map(|_| server.metric("sluicegate_turns_total", "")).collect();
    let most = turns.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(most < Some(50), "{turns:?}");

    // What it gets once it reads again is what was delivered and what waits.
    let survivors = delivered + lag - EVENTS;
    let mut last = None;
    for _ in 0..survivors {
        let n = number(&slow.text());
        assert!(last < Some(n), "in order, each once");
        last = Some(n);
    }
    assert_eq!(last, Some(EVENTS - 1), "the newest survives");
    until("the lag to be gone", || server.metric("sluicegate_lag_records", "") == 0);
    assert_eq!(server.column("dropped"), dropped);
    assert_eq!(slow.ask(support::PING), support::PONG);
}
