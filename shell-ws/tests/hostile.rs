//! Bad input and bad peers: each gets its code, and the others are served all the while.

mod support;

use std::process::Command;
use support::{Client, Frame, PING, PONG, Server, event, masked, post, post_to, until};

/// A server and a client that must not notice anything.
struct Bystander {
    server: Server,
    client: Client,
    count: u32,
}

impl Bystander {
    fn new() -> Self {
        Self::of(Server::start())
    }

    fn of(server: Server) -> Self {
        let (mut client, _) = server.client();
        client.subscribe("steady");
        Self { server, client, count: 0 }
    }

    fn is_served(&mut self) {
        self.count += 1;
        let data = format!("event {}", self.count);
        assert_eq!(self.server.publish(&event("steady", &data)), 200);
        let text = self.client.text();
        assert!(text.contains(&data), "{text}");
    }
}

#[test]
fn broken_frames_are_closed_with_their_code() {
    let mut bystander = Bystander::new();
    let oversize = [&[0x81, 0xff][..], &(1_u64 << 40).to_be_bytes(), &[0; 4]].concat();
    for (frame, code) in [
        (oversize, 1009),
        (masked(0x81, &[b'a'; 65_535]), 0),
        (vec![0x81, 0x01, b'a'], 1002),
        (masked(0x81, b"\xc0\x80"), 1007),
        (masked(0xf1, b"a"), 1002),
    ] {
        let (mut client, _) = bystander.server.client();
        client.send(&frame);
        if code == 0 {
            assert!(client.text().contains("pusher:error"), "just fits, and is no JSON");
        } else {
            assert_eq!(client.frame(), Frame::Close(code));
            assert!(client.is_over());
        }
        bystander.is_served();
    }
}

#[test]
fn malformed_messages_are_answered_and_close_nothing() {
    let mut bystander = Bystander::new();
    let (mut client, _) = bystander.server.client();
    for text in ["{", "", "null", "[]", "7", "{}", r#"{"event":7}"#, r#"{"event":null}"#] {
        assert!(client.ask(text).contains("pusher:error"), "{text}");
    }
    // One such word has ended other servers.
    for event in ["pusher:subscribe", "pusher:unsubscribe", "pusher:signin", "client-e"] {
        for rest in [
            "",
            r#","data":null"#,
            r#","data":7"#,
            r#","data":[]"#,
            r#","data":{}"#,
            r#","data":"{""#,
            r#","data":{"channel":null}"#,
            r#","data":{"channel":7,"auth":{}}"#,
            r#","data":{"channel":"presence-x","auth":7,"channel_data":{}}"#,
            r#","data":{"auth":null,"user_data":7}"#,
            r#","data":{"auth":"app-key:00","user_data":"{"}"#,
            r#","channel":7,"data":{"channel":[]}"#,
        ] {
            let text = format!(r#"{{"event":"{event}"{rest}}}"#);
            let answer = client.ask(&text);
            let refused = ["pusher:error", "pusher:subscription_error"];
            assert!(refused.iter().any(|word| answer.contains(word)), "{text}: {answer}");
        }
    }
    assert!(client.ask(r#"{"event":"client-x","channel":"steady"}"#).contains("4301"));
    let private = r#"{"event":"pusher:subscribe","data":{"channel":"private-x"}}"#;
    assert!(client.ask(private).contains("pusher:subscription_error"));
    assert_eq!(client.ask(PING), PONG);
    bystander.is_served();
}

#[test]
fn bad_requests_have_their_status() {
    let mut bystander = Bystander::new();
    let good = String::from_utf8(post(&event("a", "1"))).unwrap();
    for (request, status) in [
        (good.replace("auth_signature=", "auth_signature=0"), 401),
        (good.replace("/apps/1001", "/apps/7"), 404),
        (String::from_utf8(post("{")).unwrap(), 400),
        (String::from_utf8(post_to("batch_events", "{}")).unwrap(), 400),
        (String::from_utf8(post_to("batch_events", r#"{"batch":[null]}"#)).unwrap(), 400),
        (String::from_utf8(post(&event("a", &"x".repeat(10_241)))).unwrap(), 413),
        ("\0\r\n\r\n".to_owned(), 400),
        (format!("GET / HTTP/1.1\r\nHost: {}", "h".repeat(8 << 10)), 431),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n".to_owned(), 413),
    ] {
        let answer = bystander.server.connect().send(request.as_bytes()).response();
        assert_eq!(answer.status, status, "{request}");
        assert!(answer.body.len() > 10, "it says what to do: {}", answer.body);
        bystander.is_served();
    }
}

#[test]
fn a_truncated_head_is_answered_when_the_peer_ends() {
    let mut bystander = Bystander::new();
    let mut client = bystander.server.connect();
    client.send(b"GET /health HTTP/1.1\r\nHos").finish();
    assert_eq!(client.response().status, 400);
    assert!(client.is_over());
    bystander.is_served();
}

#[test]
fn a_mebibyte_of_header_is_cut_off_with_an_answer() {
    let mut bystander = Bystander::new();
    let mut client = bystander.server.connect();
    client.send(b"GET / HTTP/1.1\r\nX: ");
    // The server answers and stops caring, so this may fail at any point.
    use std::io::Write;
    let _ = client.stream.write_all(&vec![b'x'; 1 << 20]);
    assert_eq!(client.response().status, 431);
    bystander.is_served();
}

#[test]
fn peers_that_vanish_take_nobody_with_them() {
    let mut bystander = Bystander::new();
    for round in 0..5 {
        let mut doomed: Vec<Client> = (0..20).map(|_| bystander.server.client().0).collect();
        doomed.iter_mut().for_each(|client| {
            client.subscribe("steady");
        });
        bystander.is_served();
        for (n, client) in doomed.into_iter().enumerate() {
            if n % 2 == 0 { client.reset() } else { drop(client) }
        }
        bystander.is_served();
        let server = &bystander.server;
        until("the dead to be noticed", || server.metric("sluicegate_subscriptions", "") == 1);
        assert_eq!(round + 1, bystander.count / 2);
    }
    let (expected, delivered) =
        (bystander.server.column("expected"), |s: &Server| s.column("delivered"));
    let left = bystander.server.column("left");
    assert_eq!(expected, delivered(&bystander.server) + left);
    assert_eq!(bystander.server.column("dropped"), 0, "we ended nothing");
}

#[test]
fn out_of_descriptors_new_peers_wait_and_then_are_served() {
    let script = format!("ulimit -n 40; exec {} --port 0", env!("CARGO_BIN_EXE_sluicegate-ws"));
    let server = Server::with(Command::new("sh").args(["-c", &script]));
    let mut bystander = Bystander::of(server);
    let crowd: Vec<Client> = (0..100).map(|_| bystander.server.connect()).collect();
    // No new connection is possible now, and old ones are served.
    assert_eq!(bystander.client.ask(PING), PONG);
    drop(crowd);
    bystander.is_served();
    assert!(bystander.server.metric("sluicegate_accept_stalls_total", "") >= 1);
}

#[test]
fn what_is_not_whole_counts_as_memory_until_its_peer_has_gone() {
    let server = Server::start();
    let held = || server.metric("sluicegate_memory_held_bytes", "");
    let before = held();
    let (mut socket, _) = server.client();
    let mut begun = masked(0x01, &[b'a'; 50_000]);
    begun.extend(masked(0x00, &[b'a'; 5_000]));
    socket.send(&begun);
    let mut caller = server.connect();
    let head = "POST /apps/1001/events HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n";
    caller.send(head.as_bytes()).send(&[b'x'; 60_000]);
    until("both to be counted", || held() > before + 110_000);
    drop((socket, caller));
    until("both to be forgotten", || held() < before + 50_000);
}
