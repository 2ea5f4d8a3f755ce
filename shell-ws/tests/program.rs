//! The program: its start, its errors, its end.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use support::{Frame, Server, event, masked};

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
