//! A peer that stops reading loses only its own, and the books say how much and where.

mod support;

use std::process::Command;
use support::{Client, Server, event, post, until};

const EVENTS: u64 = 4_000;
const DATA: usize = 4_000;

/// Publishes all events, one after the other, each with its number.
fn publish_all(server: &Server) -> std::thread::JoinHandle<()> {
    let address = server.address;
    std::thread::spawn(move || {
        let mut publisher = Client::connect(address);
        for n in 0..EVENTS {
            let data = format!("{n:06}{}", "x".repeat(DATA));
            assert_eq!(publisher.send(&post(&event("news", &data))).response().status, 200);
        }
    })
}

fn number(text: &str) -> u64 {
    let start = text.find(r#""data":""#).expect("an event") + 8;
    text[start..start + 6].parse().expect("a number")
}

#[test]
fn what_waited_too_long_for_a_slow_reader_is_dropped_as_stale() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-ws"));
    let limits = ["--set", "high_water_bytes=4194304", "--set", "codel_interval_ms=20"];
    let server = Server::with(command.args(["--port", "0"]).args(limits));
    let (mut slow, _) = server.client();
    slow.subscribe("news");
    publish_all(&server).join().unwrap();
    let dropped = |reason: &str| {
        let labels = format!("column=\"dropped\",place=\"backlog\",reason=\"{reason}\"");
        server.metric("sluicegate_records_total", &labels)
    };
    // Another event loop may have it later than its publisher was answered.
    until("all to be in its queue", || server.column("expected") == EVENTS);
    let full = dropped("drop_old");
    assert!(full > 0, "the backlog's limit holds");
    let (mut last, mut read) = (None, 0);
    while last != Some(EVENTS - 1) {
        let n = number(&slow.text());
        assert!(last < Some(n), "in order, each once");
        (last, read) = (Some(n), read + 1);
        // Slower than its queue could be written, until what it does not read is too old.
        if read % 4 == 0 && server.metric("sluicegate_lag_records", "") > 0 {
            let _ = dropped("stale");
        }
    }
    until("the lag to be gone", || server.metric("sluicegate_lag_records", "") == 0);
    let stale = dropped("stale");
    assert!(stale > 0, "what it reads at last is not what it missed long ago");
    assert_eq!(dropped("drop_old"), full, "the queue did not grow");
    assert_eq!((server.column("delivered"), server.column("dropped")), (read, full + stale));
    assert_eq!(read + full + stale, EVENTS);
}

#[test]
fn a_slow_reader_loses_its_own_and_the_books_add_up() {
    // What is stale is dropped when it is read again: here only the backlog's limit drops.
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-ws"));
    let server = Server::with(command.args(["--port", "0", "--set", "codel_target_ms=0"]));
    let ((mut healthy, _), (mut slow, _)) = (server.client(), server.client());
    healthy.subscribe("news");
    slow.subscribe("news");
    let publishing = publish_all(&server);
    for n in 0..EVENTS {
        assert_eq!(number(&healthy.text()), n, "the healthy one loses nothing");
    }
    publishing.join().unwrap();

    // Another event loop may have it later than the healthy one's.
    until("all to be in both queues", || server.column("expected") == 2 * EVENTS);
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
