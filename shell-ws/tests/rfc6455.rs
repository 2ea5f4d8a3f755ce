//! Conformance to RFC 6455: the cases of the Autobahn suite by its numbers, against the echo
//! example as a value (cut in every way) and over sockets, and against the server itself.
//!
//! The suite sends some cases frame by frame and octet by octet under numbers of their own (2.6,
//! 2.11, 5.4, 5.5, 9.5 and the like): here every case is cut in all these ways under its first one.

mod support;

#[path = "rfc6455/cases.rs"]
mod cases;
#[path = "../examples/echo/conn.rs"]
mod conn;
#[path = "../examples/echo/serve.rs"]
mod serve;
#[path = "rfc6455/stream.rs"]
mod stream;

use conn::Conn;
use mio::net::TcpListener;
use sluicegate_core::Rand;
use std::io::Write;
use std::net::SocketAddr;
use std::thread;
use stream::{Case, Said, frame, read};
use support::{Client, Server};

const MAX_MESSAGE: usize = 16 << 20;
const HELLO: &str = "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// What a connection that echoes says to a stream that comes in pieces of these sizes.
fn echoed(sent: &[u8], mut piece: impl FnMut() -> usize) -> Vec<Said> {
    let mut conn = Conn::new(MAX_MESSAGE);
    conn.receive(format!("{HELLO}\r\n").as_bytes());
    assert!(conn.out().starts_with(b"HTTP/1.1 101 "));
    conn.out().clear();
    let mut rest = sent;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(piece().clamp(1, rest.len()));
        conn.receive(now);
        rest = later;
    }
    assert!(conn.is_over(), "a close frame ends it");
    read(conn.out()).expect("it says whole frames")
}

#[track_caller]
fn check(case: &Case, how: &str, said: &[Said]) {
    assert!(said == case.said, "{} {how}: {said:?}, not {:?}", case.name, case.said);
}

fn cut_in_every_way(cases: &[Case]) {
    let mut rand = Rand::new(6455);
    for case in cases {
        check(case, "whole", &echoed(&case.sent, || usize::MAX));
        check(case, "byte by byte", &echoed(&case.sent, || 1));
        for _ in 0..4 {
            let size = || usize::try_from(1 + rand.below(97)).expect("it is small");
            check(case, "in pieces", &echoed(&case.sent, size));
        }
        check(case, "in pieces of 997", &echoed(&case.sent, || 997));
    }
}

#[test]
fn sections_1_to_5_and_7_however_the_stream_is_cut() {
    cut_in_every_way(&cases::protocol());
}

#[test]
fn section_6_however_the_stream_is_cut() {
    cut_in_every_way(&cases::texts());
}

#[test]
fn sections_9_and_10_whole_and_in_chops() {
    for case in cases::limits() {
        check(&case, "whole", &echoed(&case.sent, || usize::MAX));
        check(&case, "in chops", &echoed(&case.sent, || 16 << 10));
    }
}

/// The echo example on a port of its own. It ends with the test program.
fn start() -> SocketAddr {
    let listener = TcpListener::bind(([127, 0, 0, 1], 0).into()).expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    thread::spawn(|| serve::serve(listener, MAX_MESSAGE));
    address
}

/// Sends a case while its answers are read, so that neither side waits for the other.
fn exchange(client: &mut Client, case: &Case) -> Vec<Said> {
    let mut stream = client.stream.try_clone().expect("a socket can be cloned");
    let sent = case.sent.clone();
    // The server stops to read when it has ended the connection, so this may fail at any point.
    let sender = thread::spawn(move || drop(stream.write_all(&sent)));
    let bytes = client.rest();
    sender.join().expect("it does not panic");
    read(&bytes).unwrap_or_else(|fault| panic!("{}: {fault}", case.name))
}

#[test]
fn every_section_over_sockets() {
    let address = start();
    for case in [cases::protocol(), cases::texts(), cases::limits()].concat() {
        let mut client = Client::connect(address);
        let said = exchange(client.upgrade("/"), &case);
        check(&case, "over a socket", &said);
    }
}

#[test]
fn the_server_says_the_same_pongs_and_closes() {
    let server = Server::start();
    for case in [cases::protocol(), cases::texts()].concat() {
        let (mut client, _) = server.client();
        let said = exchange(&mut client, &case);
        // It answers texts that are no commands, and binary messages not at all.
        let control: Vec<_> = said.into_iter().filter(Said::is_control).collect();
        assert_eq!(control, case.control(), "{}", case.name);
    }
}

#[test]
fn sections_12_and_13_compression_is_not_offered() {
    let offers = [
        "permessage-deflate",
        "permessage-deflate; client_max_window_bits; server_no_context_takeover",
        "x-webkit-deflate-frame",
    ];
    let server = Server::start();
    for offer in offers {
        for (address, path) in [(start(), "/"), (server.address, "/app/app-key?protocol=7")] {
            let mut client = Client::connect(address);
            let hello = HELLO.replacen("GET /", &format!("GET {path}"), 1);
            let request = format!("{hello}Sec-WebSocket-Extensions: {offer}\r\n\r\n");
            let answer = client.send(request.as_bytes()).response();
            assert_eq!(answer.status, 101, "it is an offer, and not a demand");
            assert!(!answer.head.to_lowercase().contains("sec-websocket-extensions"), "{offer}");
            // Compressed `Hello`, as RFC 7692 §7.2.3.1 has it: nobody has agreed to that.
            client.send(&frame(0xc1, &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00]));
            let said = read(&client.rest()).expect("it says whole frames");
            assert_eq!(said.last(), Some(&Said::Close(Some(1002))), "{offer}");
        }
    }
}
