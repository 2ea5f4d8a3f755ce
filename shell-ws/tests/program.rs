//! The program: its start, its errors, its end.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use support::{Frame, Server, event, masked, until};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-ws"));
    command.args(arguments).output().expect("the program was built")
}

fn error(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).expect("errors are text")
}

#[test]
fn it_says_what_it_serves_and_where() {
    let server = Server::start();
    let text = server.lines.join("\n");
    assert_eq!(server.lines.len(), 5);
    assert_ne!(server.address.port(), 0);
    for part in ["1001", "app-key", "app-secret", "/health", "/metrics", "Ctrl-C"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    for page in ["/health", "/ready", "/metrics"] {
        assert_eq!(server.connect().request(&format!("GET {page}"), "").status, 200);
    }
}

#[test]
fn asked_to_stop_it_says_goodbye_and_ends_well() {
    for signal in ["TERM", "INT"] {
        let mut server = Server::start();
        let mut clients: Vec<_> = (0..10).map(|_| server.client().0).collect();
        let mut idle = server.connect();
        assert_eq!(idle.request("GET /health", "").status, 200);
        for client in &mut clients {
            client.subscribe("news");
        }
        assert_eq!(server.publish(&event("news", "the last")), 200);
        server.signal(signal);
        for client in &mut clients {
            assert!(client.text().contains("the last"));
            assert!(client.text().contains(r#""code":4200"#));
            assert_eq!(client.frame(), Frame::Close(4200));
            client.send(&masked(0x88, &4200_u16.to_be_bytes()));
            assert!(client.is_over());
        }
        assert!(idle.is_over());
        drop((clients, idle));
        assert!(server.wait().success(), "{signal}");
    }
}

/// The number that a line of the log has under this name.
fn said(line: &str, name: &str) -> u64 {
    let pairs = line.split_whitespace().filter_map(|word| word.split_once('='));
    let mut numbers = pairs.filter(|(key, _)| *key == name).map(|(_, number)| number);
    numbers.next().expect("it is told").parse().expect("it is a number")
}

#[test]
fn its_last_words_are_the_books_of_each_loop() {
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join("last-words.log");
    for workers in ["1", "2"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-ws"));
        let command = command.args(["--port", "0", "--workers", workers]);
        let mut server = Server::with_log(command, fs::File::create(&log).unwrap().into());
        let mut clients: Vec<_> = (0..10).map(|_| server.client().0).collect();
        for client in &mut clients {
            client.subscribe("news");
        }
        for _ in 0..3 {
            assert_eq!(server.publish(&event("news", "x")), 200);
            clients.iter_mut().for_each(|client| drop(client.text()));
        }
        server.signal("TERM");
        clients.iter_mut().for_each(|client| drop(client.rest()));
        drop(clients);
        assert!(server.wait().success());
        let text = fs::read_to_string(&log).unwrap();
        let last: Vec<_> = text.lines().filter(|line| line.contains(" stopped ")).collect();
        assert_eq!(last.len().to_string(), workers, "{text}");
        let sum = |column: &str| last.iter().map(|line| said(line, column)).sum::<u64>();
        let ends = ["admitted", "sequenced", "expected", "delivered", "dropped", "left", "lag"];
        assert_eq!(ends.map(sum), [3, 3, 30, 30, 0, 0, 0], "{text}");
        assert!(!text.contains("WARN"), "{text}");
    }
}

#[test]
fn what_the_grace_was_too_short_for_is_told_in_the_last_words() {
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join("short-grace.log");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-ws"));
    // Nothing is dropped for who does not read: all waits until the end.
    let limits = ["shutdown_grace_s=0", "high_water_bytes=67108864", "codel_target_ms=0"];
    command.args(["--port", "0"]).args(limits.iter().flat_map(|set| ["--set", set]));
    let mut server = Server::with_log(&mut command, fs::File::create(&log).unwrap().into());
    let (mut client, id) = server.client_of_few_bytes();
    client.subscribe("news");
    let waiting = || server.page(&format!("/ledger/connections/{id}"))["queue"]["events"].as_u64();
    let data = "x".repeat(8 << 10);
    until("events to wait", || {
        assert_eq!(server.publish(&event("news", &data)), 200);
        waiting() > Some(0)
    });
    server.signal("TERM");
    assert!(server.wait().success());
    drop(client);
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains("WARN") && text.contains("before all that waited was sent"), "{text}");
}

#[test]
fn with_nobody_connected_it_ends_at_once() {
    let mut server = Server::start();
    server.signal("TERM");
    assert!(server.wait().success());
}

#[test]
fn without_any_grace_everyone_is_told_all_the_same() {
    for workers in ["1", "3"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-ws"));
        let options = ["--port", "0", "--workers", workers, "--set", "shutdown_grace_s=0"];
        let mut server = Server::with(command.args(options));
        let mut clients: Vec<_> = (0..10).map(|_| server.client().0).collect();
        server.signal("TERM");
        for client in &mut clients {
            assert!(client.text().contains(r#""code":4200"#));
            assert_eq!(client.frame(), Frame::Close(4200));
            assert!(client.is_over());
        }
        assert!(server.wait().success());
    }
}

#[test]
fn a_port_in_use_is_named_with_the_way_out() {
    let server = Server::start();
    let port = server.address.port().to_string();
    let text = error(&["--port", &port]);
    assert!(text.contains(&format!("port {port} is in use")) && text.contains("--port"), "{text}");
    let text = error(&["--port", &port, "--json"]);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["event"], "error");
}

#[test]
fn what_is_not_served_is_refused_with_the_way_out() {
    for workers in ["0", "65"] {
        let text = error(&["--workers", workers]);
        assert!(text.contains("--workers") && text.contains("1..=64"), "{text}");
    }
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("three-shards.toml");
    let app = "[[app]]\nid = \"1\"\nkey = \"k\"\nsecret = \"s\"\n";
    fs::write(&file, format!("{app}[limits]\nshards = 3\n")).unwrap();
    let text = error(&["--workers", "2", "--config", file.to_str().unwrap()]);
    assert!(text.contains("`shards` is 3") && text.contains("--workers 3"), "{text}");
    let text = error(&["--bind", "0.0.0.0"]);
    assert!(text.contains("--config"), "{text}");
    for path in ["no-such-file.toml", env!("CARGO_MANIFEST_DIR")] {
        let text = error(&["--config", path]);
        assert!(text.contains(&format!("--config {path}: cannot be read")), "{text}");
        assert!(text.contains("config print"), "{text}");
    }
    let text = error(&["--bind", "localhost"]);
    assert!(text.contains("localhost") && text.contains("such as 127.0.0.1"), "{text}");
    let text = error(&["--port", "70000"]);
    assert!(text.contains("70000") && text.contains("0..=65535"), "{text}");
}

#[test]
fn the_configuration_in_force_can_be_printed() {
    let output = run(&["config", "print"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let value: toml::Table = text.parse().expect("it is TOML");
    assert_eq!(value["app"][0]["id"].as_str(), Some("1001"));
    assert!(value["limits"]["memory_budget"].as_integer() > Some(0));
    assert!(!text.contains("app-secret"));
}
