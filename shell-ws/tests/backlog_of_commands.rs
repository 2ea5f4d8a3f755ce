//! Commands that came at once, after one that came in parts: each is answered, whatever ended the
//! turn in which they were read.

mod support;

use std::process::Command;
use support::{Client, Frame, Server, masked};

/// A program with little room for answers to commands: a few of them pause a connection.
fn easily_paused() -> Server {
    let folder = std::env::temp_dir().join(format!("sluicegate-backlog-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the folder for temporary files can be written");
    let file = folder.join("ws.toml");
    let app = "[[app]]\nid = \"1001\"\nkey = \"app-key\"\nsecret = \"app-secret\"\n";
    std::fs::write(&file, format!("{app}[limits]\ncontrol_reserve_bytes = 1024\n"))
        .expect("a file can be written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-ws"));
    let server = Server::with(command.args(["--port", "0", "--config"]).arg(&file));
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
    server
}

/// Sends the first part of a long command, which the server has seen when this returns.
fn begin(server: &Server, client: &mut Client, whole: &[u8]) {
    client.send(&whole[..whole.len() / 2]);
    // One loop serves both sockets, and this one came later.
    assert_eq!(server.connect().request("GET /health", "").status, 200);
}

fn all_are_answered(server: &Server, count: u32) {
    let (mut client, _) = server.client();
    let long = masked(0x81, format!("{{{}", " ".repeat(60_000)).as_bytes());
    begin(server, &mut client, &long);
    let mut rest = long[long.len() / 2..].to_vec();
    for n in 0..count {
        rest.extend(masked(0x89, format!("{n:0100}").as_bytes()));
    }
    client.send(&rest);
    assert!(client.text().contains("not JSON"), "the long one is no command");
    for n in 0..count {
        assert_eq!(client.frame(), Frame::Pong(format!("{n:0100}").into_bytes()));
    }
}

#[test]
fn a_backlog_on_a_paused_connection_is_answered_when_it_resumes() {
    all_are_answered(&easily_paused(), 100);
}

#[test]
fn a_backlog_of_more_than_one_turn_is_answered_in_the_next() {
    all_are_answered(&Server::start(), 400);
}
