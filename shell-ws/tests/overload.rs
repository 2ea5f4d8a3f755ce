//! More than there is room for: who does not read, who offers too much, an end under load.

mod support;

use serde_json::{Value, json};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use support::{Answer, Client, Frame, PING, PONG, Server, event, post, post_to, until};

const DATA: usize = 3 << 10;

fn server(workers: usize, sets: &[&str]) -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-ws"));
    command.args(["--port", "0", "--workers", &workers.to_string()]);
    Server::with(command.args(sets.iter().flat_map(|set| ["--set", set])))
}

fn subscribers(server: &Server, count: usize) -> Vec<(Client, String)> {
    let mut clients: Vec<_> = (0..count).map(|_| server.client()).collect();
    for (client, _) in &mut clients {
        client.subscribe("news");
    }
    clients
}

/// A signed call that publishes all of this at once.
fn batch(data: &[String]) -> Vec<u8> {
    let one = |data| json!({ "name": "e", "channel": "news", "data": data });
    post_to(
        "batch_events",
        &json!({ "batch": data.iter().map(one).collect::<Vec<_>>() }).to_string(),
    )
}

/// The data of an event.
fn data(text: &str) -> String {
    let event: Value = serde_json::from_str(text).expect("events are JSON");
    assert_eq!((&event["event"], &event["channel"]), (&json!("e"), &json!("news")), "{text}");
    event["data"].as_str().expect("it is text").to_owned()
}

/// Fails unless a call was refused with an advice when to come back.
fn check_advice(answer: &Answer) {
    assert_eq!(answer.status, 503, "{}", answer.body);
    let advice = answer.head.lines().find_map(|line| line.strip_prefix("Retry-After: "));
    let seconds = advice.and_then(|advice| advice.parse::<u64>().ok());
    assert!(seconds > Some(0), "{}", answer.head);
}

#[test]
fn one_stalled_consumer_changes_nothing_for_the_others() {
    const OTHERS: usize = 49;
    const AT_ONCE: usize = 10;
    const LOSSES: u64 = 100;
    // Whoever reads gets all, though half of what is published at once is more than may wait.
    let limits = ["high_water_bytes=16384", "codel_target_ms=0", "slow_consumer_after_ms=0"];
    let server = server(1, &limits);
    let (mut stalled, stalled_id) = server.client_of_few_bytes();
    stalled.subscribe("news");
    let mut others = subscribers(&server, OTHERS);
    let account = |id: &str| server.page(&format!("/ledger/connections/{id}"));
    let records = |tally: &Value| tally["records"].as_u64().expect("a tally");

    let mut publisher = server.connect();
    let mut published = Vec::new();
    until("the stalled one to lose records", || {
        let fresh: Vec<String> = (published.len()..published.len() + AT_ONCE)
            .map(|number| format!("{number:06}{}", "x".repeat(DATA)))
            .collect();
        assert_eq!(publisher.send(&batch(&fresh)).response().status, 200);
        // All read before more comes: however slow this machine is, none of them is.
        let (first, rest) = others.split_first_mut().expect("there are some");
        let received: Vec<String> = (0..AT_ONCE).map(|_| first.0.text()).collect();
        assert!(received.iter().map(|text| data(text)).eq(fresh.iter().cloned()), "in order");
        for (other, _) in rest {
            assert!(received.iter().all(|text| other.text() == *text), "identical");
        }
        published.extend(fresh);
        records(&account(&stalled_id)["dropped"]) >= LOSSES
    });
    let all = published.len() as u64;

    let books = server.books();
    let lost = account(&stalled_id);
    assert_eq!(lost["queue"]["takes_nothing"], true);
    assert_eq!(records(&books["expected"]), all * (OTHERS as u64 + 1));
    let delivered = all * OTHERS as u64 + records(&lost["delivered"]);
    assert_eq!(records(&books["delivered"]), delivered);
    for unit in ["records", "bytes"] {
        assert_eq!(books["dropped"][unit], lost["dropped"][unit], "all of it is the stalled one's");
        assert_eq!(books["lag"][unit], lost["lag"][unit], "nobody else waits");
        assert_eq!(books["dropped"]["cells"][0][unit], lost["dropped"][unit]);
    }
    let place = "column=\"dropped\",place=\"backlog\",reason=\"drop_old\"";
    let dropped = server.metric("sluicegate_records_total", place);
    assert_eq!(dropped, records(&lost["dropped"]));
    assert_eq!(dropped, server.column("dropped"));
    for (other, id) in &mut others {
        assert_eq!(other.ask(PING), PONG, "nothing twice");
        let account = account(id);
        assert_eq!((records(&account["expected"]), records(&account["delivered"])), (all, all));
    }

    // Once it reads again, it gets what was delivered and what waits, each once, and no more.
    let mut numbers = (0..all - dropped).map(|_| stalled.text()).map(|text| data(&text));
    let mut left = published.iter();
    assert!(numbers.all(|number| left.any(|one| *one == number)), "in order, each once");
    assert_eq!(left.len(), 0, "the newest survives");
    assert_eq!(stalled.ask(PING), PONG);
    let books = server.books();
    assert_eq!([records(&books["dropped"]), records(&books["lag"])], [dropped, 0]);
    assert_eq!(records(&books["left"]), 0);
}

const PUBLISHERS: usize = 3;

/// Publishes without a pause until nobody listens any more; counts what was taken.
fn publish_to_the_end(address: SocketAddr, publisher: usize, taken: &AtomicUsize) {
    let mut refused = false;
    let mut numbers = 0..;
    // Nobody listens: the only way out.
    while let Ok(stream) = TcpStream::connect(address) {
        let mut client = Client::over(stream);
        let calls = numbers.by_ref().map(|number| {
            let data = format!("{publisher} {number} {}", "x".repeat(DATA));
            (number, client.call(&post(&event("news", &data))))
        });
        // A call without an answer may have been published: its number is not used again.
        for (number, answer) in calls {
            let Some(answer) = answer else { break };
            if answer.status == 200 {
                assert!(!refused, "what is being stopped takes nothing any more");
                taken.store(number + 1, Ordering::Release);
            } else {
                check_advice(&answer);
                refused = true;
            }
        }
    }
}

/// Reads until the server ends the connection: the numbers of each publisher. Our side of it stays.
fn read_to_the_end(mut client: Client) -> (Client, [Vec<usize>; PUBLISHERS]) {
    let mut numbers = [const { Vec::new() }; PUBLISHERS];
    let farewell = loop {
        let text = client.text();
        if text.contains("pusher:error") {
            break text;
        }
        let data = data(&text);
        let mut words = data.split(' ');
        let mut word = || words.next().and_then(|word| word.parse::<usize>().ok());
        let publisher = word().expect("who published it");
        numbers[publisher].push(word().expect("its number"));
    };
    assert!(farewell.contains(r#""code":4200"#), "{farewell}");
    assert_eq!(client.frame(), Frame::Close(4200));
    assert!(client.is_over(), "the close frame is the last one");
    (client, numbers)
}

#[test]
fn stopped_under_load_every_client_is_told_before_its_connection_ends() {
    const CLIENTS: usize = 30;
    const LATE: usize = 5;
    const TAKEN: usize = 20;
    const WAITING: u64 = 20;
    // A thread that does not run is no slow reader. The grace is longer than we wait: what ends
    // in time did so because nothing was left to do.
    let limits = ["high_water_bytes=16777216", "codel_target_ms=0", "shutdown_grace_s=30"];
    let mut server = server(2, &limits);
    let mut clients = subscribers(&server, CLIENTS);
    let late = clients.split_off(CLIENTS - LATE);
    let read = |(client, _): (Client, String)| thread::spawn(move || read_to_the_end(client));
    let mut readers: Vec<_> = clients.into_iter().map(read).collect();
    let taken: Arc<[AtomicUsize; PUBLISHERS]> = Arc::default();
    let publishers: Vec<_> = (0..PUBLISHERS)
        .map(|publisher| {
            let (address, taken) = (server.address, Arc::clone(&taken));
            thread::spawn(move || publish_to_the_end(address, publisher, &taken[publisher]))
        })
        .collect();
    let counts = || [0, 1, 2].map(|publisher| taken[publisher].load(Ordering::Acquire));
    until("all to publish", || counts().iter().all(|count| *count >= TAKEN));
    let waiting =
        |id: &str| server.page(&format!("/ledger/connections/{id}"))["queue"]["events"].as_u64();
    until("events to wait for those who do not read yet", || {
        late.iter().all(|(_, id)| waiting(id) >= Some(WAITING))
    });
    let before = counts();
    server.signal("TERM");
    readers.extend(late.into_iter().map(read));
    let mut ended = Vec::new();
    for reader in readers {
        let (client, read) = reader.join().expect("a client is told");
        for (numbers, before) in read.iter().zip(before) {
            assert!(numbers.is_sorted_by(|one, next| one < next), "in order, each once");
            let first = numbers.iter().copied().take(before);
            assert!(first.eq(0..before), "what was taken before the end is flushed");
        }
        let back = TcpStream::connect(server.address);
        assert!(back.is_err(), "whoever was told to go cannot come back to the same server");
        ended.push(client);
    }
    drop(ended);
    for publisher in publishers {
        publisher.join().expect("a publisher is answered well, or not at all");
    }
    assert!(server.wait().success());
}

/// One round of calls of this many events, all sent before any of them is answered. Returns what
/// was taken, and how many calls were refused.
fn offer(callers: &mut [Client], round: usize, size: usize) -> (Vec<String>, u64) {
    let events = |at: usize| (0..size).map(move |number| format!("{round} {at} {number}"));
    let calls: Vec<Vec<String>> = (0..callers.len()).map(|at| events(at).collect()).collect();
    let requests: Vec<Vec<u8>> = calls.iter().map(|call| batch(call)).collect();
    for (caller, request) in callers.iter_mut().zip(&requests) {
        caller.send(request);
    }
    let (mut taken, mut refused) = (Vec::new(), 0);
    for (caller, call) in callers.iter_mut().zip(calls) {
        let answer = caller.response();
        if answer.status == 200 {
            taken.extend(call);
        } else {
            check_advice(&answer);
            refused += 1;
        }
    }
    (taken, refused)
}

#[test]
fn offered_twice_what_it_can_do_it_refuses_with_advice_and_recovers() {
    const CALLERS: usize = 16;
    const REFUSED: u64 = 100;
    // Once there is no room for a larger call, there is some for a part of it.
    const SIZES: [usize; 2] = [1, 3];
    let server = server(1, &["pub_queue_total=4", "pub_queue_depth=4", "codel_target_ms=0"]);
    let mut subscribers = subscribers(&server, 8);
    let mut callers: Vec<Client> = (0..CALLERS).map(|_| server.connect()).collect();
    let (mut round, mut taken, mut refused) = (0, 0, [0, 0]);
    until("enough refusals", || {
        let kind = round % 2;
        let (mut expected, calls) = offer(&mut callers, round, SIZES[kind]);
        expected.sort();
        for (subscriber, _) in &mut subscribers {
            let mut received: Vec<_> = expected.iter().map(|_| data(&subscriber.text())).collect();
            received.sort();
            assert_eq!(received, expected, "what was taken and nothing else");
        }
        round += 1;
        taken += expected.len() as u64;
        refused[kind] += calls;
        refused.iter().all(|calls| *calls >= REFUSED)
    });

    // The load has ended: whoever calls next is served.
    let mut late = server.connect();
    for caller in callers.iter_mut().chain([&mut late]) {
        assert_eq!(caller.send(&post(&event("news", "at last"))).response().status, 200);
        taken += 1;
    }
    for (subscriber, _) in &mut subscribers {
        for _ in 0..=CALLERS {
            assert_eq!(data(&subscriber.text()), "at last");
        }
        assert_eq!(subscriber.ask(PING), PONG, "nothing else came");
    }
    let books = server.books();
    let records = |column: &str| books[column]["records"].as_u64().expect("a column");
    for column in ["admitted", "sequenced"] {
        assert_eq!(records(column), taken, "{column}");
    }
    assert_eq!(records("delivered"), taken * subscribers.len() as u64);
    for column in ["shed", "waiting", "evicted", "queued", "dropped", "left", "lag"] {
        assert_eq!(records(column), 0, "{column}");
    }
    // A call that finds no room at all is counted unread; one that brings more than there is room
    // for, by its records.
    assert_eq!(server.metric("sluicegate_refused_calls_total", ""), refused[0]);
    assert_eq!(records("refused"), refused[1] * SIZES[1] as u64);
    let cells = books["refused"]["cells"].as_array().expect("cells");
    assert!(cells.iter().all(|cell| cell["reason"] == "queue_full"), "{cells:?}");
}

#[test]
fn while_memory_is_full_all_calls_are_refused_with_advice_and_afterwards_none_is() {
    const CALLS: usize = 20;
    let server = server(1, &["memory_budget=1048576"]);
    let (mut subscriber, _) = server.client();
    subscriber.subscribe("news");
    let mut caller = server.connect();
    assert_eq!(caller.send(&post(&event("news", "before"))).response().status, 200);
    // Subscriptions are held in memory, and cannot be let go of as what waits could.
    let mut full = Vec::new();
    until("the memory to be full", || {
        let (mut client, _) = server.client();
        let refused = (0..200).any(|number| {
            let channel = format!("room-{}-{number}", full.len());
            let wish = json!({ "event": "pusher:subscribe", "data": { "channel": channel } });
            client.ask(&wish.to_string()).contains("memory: saturated")
        });
        full.push(client);
        refused
    });
    assert_eq!(server.metric("sluicegate_band", "saturated"), 1);
    let unread = || server.metric("sluicegate_refused_calls_total", "");
    let refused = unread();
    for _ in 0..CALLS {
        check_advice(&caller.send(&post(&event("news", "refused"))).response());
        // Whoever comes now, and whoever has no right to: load is asked about first.
        let mut strangers = [server.connect(), server.connect()];
        check_advice(&strangers[0].send(&post(&event("news", "refused"))).response());
        check_advice(&strangers[1].request("POST /apps/1001/events", "{}"));
    }
    assert_eq!(unread() - refused, 3 * CALLS as u64, "each is counted");
    assert_eq!(server.column("offered"), 1);

    drop(full);
    let mut tried = 0;
    until("room for a publish", || {
        let answer = caller.send(&post(&event("news", "after"))).response();
        if answer.status != 200 {
            check_advice(&answer);
            tried += 1;
        }
        answer.status == 200
    });
    assert_eq!([(); 2].map(|()| data(&subscriber.text())), ["before", "after"]);
    assert_eq!(subscriber.ask(PING), PONG, "nothing else came");
    assert_eq!(unread() - refused, 3 * CALLS as u64 + tried);
    let books = server.books();
    for column in ["offered", "admitted", "sequenced", "expected", "delivered"] {
        assert_eq!(books[column]["records"], 2, "{column}");
    }
}
