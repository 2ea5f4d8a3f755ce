//! Several event loops in one process: whichever a socket came to, it sees one server.

mod support;

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use sluicegate_core::{Broker, Limits};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use support::{Client, Frame, Server, event, masked, post, until};

const LOOPS: usize = 3;

fn server() -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-ws"));
    Server::with(command.args(["--port", "0", "--workers", &LOOPS.to_string()]))
}

/// Clients and their socket ids, at least `each` on every loop: whose it is, the kernel decides and
/// the id tells.
fn clients(server: &Server, each: usize) -> Vec<(Client, String)> {
    let mut clients = Vec::new();
    let mut on = [0; LOOPS];
    until("clients on every loop", || {
        let (client, id) = server.client();
        let first = id.split_once('.').and_then(|(first, _)| first.parse::<usize>().ok());
        on[first.expect("two numbers") % 64] += 1;
        clients.push((client, id));
        on.iter().all(|count| *count >= each)
    });
    clients
}

/// The channel and the data of the next event.
fn next(client: &mut Client) -> (String, String) {
    let event: Value = serde_json::from_str(&client.text()).expect("events are JSON");
    assert_eq!(event["event"], "e");
    let field = |name: &str| event[name].as_str().expect("it is text").to_owned();
    (field("channel"), field("data"))
}

#[test]
fn records_reach_subscribers_on_every_loop_in_one_order_and_the_books_close() {
    const PUBLISHERS: usize = 6;
    const EACH: usize = 40;
    let server = server();
    let channels = ["a", "b", "c", "d", "e"];
    let mut clients = clients(&server, 2);
    for (client, _) in &mut clients {
        for channel in channels {
            client.subscribe(channel);
        }
    }
    for number in 0..LOOPS {
        let sockets = server.metric("sluicegate_loop_sockets", &format!("loop=\"{number}\""));
        assert!(sockets >= 2, "loop {number}: {sockets}");
    }
    thread::scope(|scope| {
        for publisher in 0..PUBLISHERS {
            let mut api = server.connect();
            scope.spawn(move || {
                for number in 0..EACH {
                    let channel = channels[(publisher + number) % channels.len()];
                    let body = event(channel, &format!("{publisher}-{number}"));
                    assert_eq!(api.send(&post(&body)).response().status, 200);
                }
            });
        }
    });
    let mut orders: Vec<BTreeMap<String, Vec<String>>> = Vec::new();
    for (client, _) in &mut clients {
        let mut order = BTreeMap::<_, Vec<_>>::new();
        for _ in 0..PUBLISHERS * EACH {
            let (channel, data) = next(client);
            order.entry(channel).or_default().push(data);
        }
        orders.push(order);
    }
    assert!(orders.iter().all(|order| *order == orders[0]), "one order per channel");
    let published = (PUBLISHERS * EACH) as u64;
    for column in ["offered", "admitted", "sequenced"] {
        assert_eq!(server.column(column), published, "{column}");
    }
    assert_eq!(server.column("expected"), published * clients.len() as u64);
    assert_eq!(server.column("delivered"), server.column("expected"));
    assert!(server.column("forwarded") > 0, "some entered elsewhere than their channel lives");
    assert_eq!(server.column("forwarded"), server.column("received"));
    for column in ["refused", "evicted", "dropped", "left"] {
        assert_eq!(server.column(column), 0, "{column}");
    }
    for level in ["sluicegate_lag_records", "sluicegate_queued_records"] {
        assert_eq!(server.metric(level, ""), 0, "{level}");
    }
}

#[test]
fn the_books_of_all_loops_and_of_each_connection_are_shown_by_any() {
    let server = server();
    let mut clients = clients(&server, 1);
    for (client, _) in &mut clients {
        client.subscribe("news");
    }
    assert_eq!(server.publish(&event("news", "x")), 200);
    for (client, _) in &mut clients {
        assert_eq!(next(client).1, "x");
    }
    let get = |path: &str| {
        let answer = server.connect().request(&format!("GET {path}"), "");
        assert_eq!(answer.status, 200, "{}", answer.body);
        serde_json::from_str::<Value>(&answer.body).expect("it is JSON")
    };
    let sheet = get("/ledger");
    assert_eq!((&sheet["loops"], &sheet["books"]["sequenced"]["records"]), (&json!(3), &json!(1)));
    assert_eq!(sheet["books"]["delivered"]["records"], json!(clients.len()));
    for (_, id) in &clients {
        let first: usize =
            id.split_once('.').and_then(|(first, _)| first.parse().ok()).expect("two numbers");
        // Each request comes over a connection of its own, to whichever loop.
        for _ in 0..2 * LOOPS {
            let account = get(&format!("/ledger/connections/{id}"));
            assert_eq!(account["loop"], json!(first % 64));
            assert_eq!(account["channels"][0]["channel"], "news");
            assert_eq!(account["channels"][0]["delivered"]["records"], 1);
        }
    }
}

#[test]
fn a_call_leaves_out_a_socket_of_whichever_loop() {
    const CALLS: usize = 8;
    let server = server();
    let mut clients = clients(&server, 1);
    for (client, _) in &mut clients {
        client.subscribe("news");
    }
    let ids: Vec<String> = clients.iter().map(|(_, id)| id.clone()).collect();
    for id in &ids {
        // Each call comes over a connection of its own, to whichever loop.
        for _ in 0..CALLS {
            let body = json!({ "name": "e", "channel": "news", "data": id, "socket_id": id });
            assert_eq!(server.publish(&body.to_string()), 200);
        }
    }
    assert_eq!(server.publish(&event("news", "the end")), 200);
    for (client, own) in &mut clients {
        for id in ids.iter().filter(|id| *id != own) {
            for _ in 0..CALLS {
                assert_eq!(next(client).1, **id);
            }
        }
        assert_eq!(next(client).1, "the end");
    }
}

#[test]
fn members_of_a_channel_are_one_company_on_all_loops() {
    let server = server();
    let channel = "presence-room";
    let mut clients = clients(&server, 1);
    let all = clients.len();
    for at in 0..all {
        let user = json!({ "user_id": at.to_string() }).to_string();
        let (client, id) = &mut clients[at];
        let mut mac = Hmac::<Sha256>::new_from_slice(b"app-secret").unwrap();
        mac.update(format!("{id}:{channel}:{user}").as_bytes());
        let auth = format!("app-key:{}", hex::encode(mac.finalize().into_bytes()));
        let data = json!({ "channel": channel, "auth": auth, "channel_data": user });
        let answer = client.ask(&json!({ "event": "pusher:subscribe", "data": data }).to_string());
        assert!(answer.contains("subscription_succeeded"), "{answer}");
        assert!(answer.contains(&format!(r#"\"count\":{}"#, at + 1)), "{at}: {answer}");
        for (earlier, _) in &mut clients[..at] {
            let text = earlier.text();
            assert!(text.contains("member_added") && text.contains(&format!("{at}")), "{text}");
        }
    }
    let (last, _) = clients.pop().unwrap();
    drop(last);
    for (client, _) in &mut clients {
        let text = client.text();
        assert!(text.contains("member_removed"), "{text}");
    }
}

#[test]
fn asked_to_stop_every_loop_says_goodbye() {
    let mut server = server();
    let mut clients = clients(&server, 2);
    let mut idle = server.connect();
    assert_eq!(idle.request("GET /health", "").status, 200);
    for (client, _) in &mut clients {
        client.subscribe("news");
    }
    assert_eq!(server.publish(&event("news", "the last")), 200);
    server.signal("TERM");
    for (client, _) in &mut clients {
        assert!(client.text().contains("the last"));
        assert!(client.text().contains(r#""code":4200"#));
        assert_eq!(client.frame(), Frame::Close(4200));
        client.send(&masked(0x88, &4200_u16.to_be_bytes()));
        assert!(client.is_over());
    }
    assert!(idle.is_over());
    drop((clients, idle));
    assert!(server.wait().success());
}

#[test]
fn with_nobody_connected_all_loops_end_at_once() {
    for signal in ["TERM", "INT"] {
        let mut server = server();
        server.signal(signal);
        assert!(server.wait().success());
    }
}

#[test]
fn a_port_on_which_others_listen_is_not_shared() {
    let server = server();
    let port = server.address.port().to_string();
    for workers in ["1", "2"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-ws"));
        let output = command.args(["--port", &port, "--workers", workers]).output().unwrap();
        assert!(!output.status.success());
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(&format!("port {port} is in use")), "{text}");
    }
}

/// A channel of the development app that an event loop owns; each number another one.
fn channel_of(owner: u32, number: usize) -> String {
    let limits = Limits { shards: LOOPS as u64, ..Limits::default() };
    let mut broker = Broker::new(limits, 1);
    // The first tenant is that of sockets which came for no app yet.
    let [_, app] = [(); 2].map(|()| broker.tenant(1).expect("there is room"));
    let names = (0..).map(|n| format!("room-{owner}-{number}-{n}"));
    names.into_iter().find(|name| broker.owner(app, name) == owner).expect("names are spread")
}

fn try_subscribe(client: &mut Client, channel: &str) -> String {
    let data = json!({ "channel": channel });
    client.ask(&json!({ "event": "pusher:subscribe", "data": data }).to_string())
}

#[test]
fn while_one_loop_is_saturated_all_refuse_and_afterwards_none_does() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join("small-budget.toml");
    let app = "[[app]]\nid = \"1001\"\nkey = \"app-key\"\nsecret = \"app-secret\"\n";
    fs::write(&file, format!("{app}[limits]\nmemory_budget = 1048576\n")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-ws"));
    command.args(["--port", "0", "--workers", &LOOPS.to_string(), "--config"]).arg(&file);
    let server = Server::with(&mut command);
    let (mut full, mut others) = (Vec::new(), Vec::new());
    for (client, id) in clients(&server, 8) {
        let first: u64 = id.split_once('.').unwrap().0.parse().unwrap();
        if first.is_multiple_of(64) { full.push(client) } else { others.push(client) }
    }
    // Subscriptions are held in memory; those of the loop's own channels by nobody else.
    let mut number = 0;
    let saturated = full.iter_mut().any(|client| {
        (0..200).any(|_| {
            number += 1;
            try_subscribe(client, &channel_of(0, number)).contains("memory: saturated")
        })
    });
    assert!(saturated, "{number} subscriptions are no problem");
    for client in &mut others {
        until("the others to know", || {
            number += 1;
            try_subscribe(client, &channel_of(1, number)).contains("mesh: saturated")
        });
    }
    assert_eq!(server.publish(&event("news", "x")), 503);
    let mut late = server.connect();
    late.upgrade("/app/app-key?protocol=7");
    assert!(late.text().contains(r#""code":4100"#));
    assert_eq!(server.connect().request("GET /health", "").status, 200);
    drop(full);
    until("room for everybody", || server.publish(&event("news", "x")) == 200);
    let answer = try_subscribe(&mut others[0], "news");
    assert!(answer.contains("subscription_succeeded"), "{answer}");
}

#[test]
fn the_last_event_of_a_cache_channel_waits_for_whoever_comes_on_any_loop() {
    let server = server();
    let enter = |client: &mut Client| {
        let wish = json!({ "event": "pusher:subscribe", "data": { "channel": "cache-a" } });
        let welcome = client.ask(&wish.to_string());
        assert!(welcome.contains("pusher_internal:subscription_succeeded"), "{welcome}");
    };
    let mut early = clients(&server, 1);
    for (client, _) in &mut early {
        enter(client);
        assert_eq!(client.text(), r#"{"event":"pusher:cache_miss","channel":"cache-a"}"#);
    }
    let publish = |data| assert_eq!(server.publish(&event("cache-a", data)), 200);
    publish("one");
    publish("two");
    let mut late = clients(&server, 1);
    for (client, _) in &mut late {
        enter(client);
        assert_eq!(next(client).1, "two", "right after the welcome");
    }
    publish("three");
    for (client, _) in &mut early {
        assert_eq!([(); 3].map(|()| next(client).1), ["one", "two", "three"]);
    }
    for (client, _) in &mut late {
        assert_eq!(next(client).1, "three", "nothing twice");
    }
}

#[test]
fn a_channel_is_rewound_without_a_hole_on_any_loop_while_it_is_published_to() {
    const EVENTS: usize = 600;
    const KEPT: usize = 5;
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rewind.toml");
    let app = "[[app]]\nid = \"1001\"\nkey = \"app-key\"\nsecret = \"app-secret\"\n";
    fs::write(&file, format!("{app}rewind = {KEPT}\n")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-ws"));
    command.args(["--port", "0", "--workers", &LOOPS.to_string(), "--config"]).arg(&file);
    let server = Server::with(&mut command);
    let mut clients = clients(&server, 3);
    let published = AtomicUsize::new(0);
    let subscribe = json!({
        "event": "pusher:subscribe", "data": { "channel": "cache-a", "rewind": KEPT },
    });
    let starts: Vec<_> = thread::scope(|scope| {
        scope.spawn(|| {
            let mut api = server.connect();
            for number in 1..=EVENTS {
                let body = event("cache-a", &number.to_string());
                assert_eq!(api.send(&post(&body)).response().status, 200);
                published.store(number, Ordering::SeqCst);
            }
        });
        let all = clients.len();
        let join = |(at, (client, _)): (usize, &mut (Client, String))| {
            // Spread over the first half, and none before there is something to rewind.
            let before = KEPT + at * EVENTS / (2 * all);
            until("its turn", || published.load(Ordering::SeqCst) >= before);
            let before = published.load(Ordering::SeqCst);
            let welcome = client.ask(&subscribe.to_string());
            assert!(welcome.contains("subscription_succeeded"), "{welcome}");
            // The next one may be there without its answer.
            before..=published.load(Ordering::SeqCst) + 1
        };
        clients.iter_mut().enumerate().map(join).collect()
    });
    for ((client, _), there) in clients.iter_mut().zip(starts) {
        let number = |client: &mut Client| next(client).1.parse::<usize>().expect("a number");
        let first = number(client);
        assert!(there.contains(&(first + KEPT - 1)), "{KEPT} from {first} on, of {there:?}");
        for expected in first + 1..=EVENTS {
            assert_eq!(number(client), expected, "from {first} on each once");
        }
    }
    assert_eq!(server.column("dropped"), 0);
}
