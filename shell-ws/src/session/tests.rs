use super::auth::Signed;
use super::auth::tests::sign;
use super::*;
use crate::apps::App;
use crate::shard::tests::{shard, shard_with};
use sluicegate_core::{Effect, Instant, Limits, Place, Progress, Rand, Reason};

const NOW: u64 = 1_700_000_000;

/// A shard and the sessions on it. Transports take everything, unless they are stingy.
struct World {
    shard: Shard,
    peers: Vec<Peer>,
    stingy: Option<Rand>,
    /// Outlets of transports that took less than they were offered.
    refusing: Vec<OutletId>,
    /// Peers whose transports take nothing.
    stopped: Vec<usize>,
}

struct Peer {
    session: Option<Session>,
    /// Received and not digested.
    inbox: Vec<u8>,
    /// What the session has sent.
    out: Vec<u8>,
    is_shut: bool,
}

impl World {
    fn new() -> Self {
        Self::with(shard())
    }

    fn with(mut shard: Shard) -> Self {
        shard.unix_seconds = NOW;
        shard.broker.advance(Instant::from_millis(1));
        Self { shard, peers: Vec::new(), stingy: None, refusing: Vec::new(), stopped: Vec::new() }
    }

    fn connect(&mut self) -> usize {
        let mut session = Session::open(&mut self.shard).unwrap();
        session.settle(&mut self.shard, self.peers.len() as u64);
        self.peers.push(Peer {
            session: Some(session),
            inbox: Vec::new(),
            out: Vec::new(),
            is_shut: false,
        });
        self.peers.len() - 1
    }

    /// A connected WebSocket client and its socket id.
    fn client(&mut self) -> (usize, String) {
        let peer = self.connect();
        let frames = self.handshake(peer, "/app/app-key?protocol=7");
        let start = frames[0].find(r#"socket_id\":\""#).unwrap() + 14;
        let id = frames[0][start..].split('\\').next().unwrap().to_owned();
        (peer, id)
    }

    fn handshake(&mut self, peer: usize, target: &str) -> Vec<String> {
        self.feed(peer, upgrade(target).as_bytes());
        let out = std::mem::take(&mut self.peers[peer].out);
        let end = out.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        assert!(out.starts_with(b"HTTP/1.1 101 "));
        frames(&out[end..])
    }

    /// Hands bytes over, digests what can be, and lets the core run until nothing moves.
    fn feed(&mut self, peer: usize, bytes: &[u8]) {
        self.peers[peer].inbox.extend_from_slice(bytes);
        while self.digest(peer) | self.run() {}
    }

    fn digest(&mut self, peer: usize) -> bool {
        let peer = &mut self.peers[peer];
        let Some(session) = &mut peer.session else { return false };
        let mut moved = false;
        while !session.is_paused(&self.shard) {
            match session.receive(&mut self.shard, &mut peer.inbox) {
                Took::Used(n) => peer.inbox.drain(..n),
                Took::Need(_) | Took::Blocked => break,
            };
            moved = true;
        }
        moved
    }

    fn run(&mut self) -> bool {
        self.shard.tell_counts();
        let mut moved = self.shard.broker.step(100) == Progress::More;
        while let Some((owner, word)) = self.shard.poll_word() {
            moved = true;
            let peer = &mut self.peers[usize::try_from(owner).unwrap()];
            if let Some(session) = &mut peer.session {
                session.word(&mut self.shard, word);
            }
        }
        while let Some(effect) = self.shard.broker.poll() {
            moved = true;
            match effect {
                Effect::Write(offer) => {
                    let owner = self.shard.owner_of_outlet(offer.outlet).unwrap();
                    let peer = &mut self.peers[usize::try_from(owner).unwrap()];
                    let part = |rand: &mut Rand| match rand.below(3) {
                        0 => rand.below(offer.bytes + 1),
                        _ => offer.bytes,
                    };
                    let is_stopped = self.stopped.iter().any(|stopped| *stopped as u64 == owner);
                    let all = if is_stopped { 0 } else { offer.bytes };
                    let accepted = self.stingy.as_mut().map_or(all, part);
                    if self.stingy.is_none() && !is_stopped {
                        self.shard.broker.frames(offer).for_each(|frame| peer.out.extend(frame));
                    }
                    if accepted < offer.bytes {
                        self.refusing.push(offer.outlet);
                    }
                    self.shard.broker.sent(offer, accepted);
                    peer.session.as_mut().unwrap().written(accepted);
                }
                Effect::Notice(notice) => self.notice(notice),
            }
        }
        moved
    }

    fn notice(&mut self, notice: Notice) {
        if let Notice::Gap { sub, gap } = notice {
            let (outlet, topic) = self.shard.broker.ends_of(sub).unwrap();
            let owner = usize::try_from(self.shard.owner_of_outlet(outlet).unwrap()).unwrap();
            let channel = self.shard.broker.topic_name(topic).unwrap();
            let session = self.peers[owner].session.as_mut().unwrap();
            return session.gap(&mut self.shard, &channel, &gap);
        }
        let (Notice::Close { conn, .. }
        | Notice::Committed { conn, .. }
        | Notice::Failed { conn, .. }
        | Notice::Flushed { conn }
        | Notice::Shed { conn, .. }) = notice
        else {
            return;
        };
        let owner = usize::try_from(self.shard.owner_of_conn(conn).unwrap()).unwrap();
        let session = self.peers[owner].session.as_mut().unwrap();
        assert!(session.owns(conn));
        let action = session.notice(&mut self.shard, notice);
        self.act(owner, action);
    }

    fn act(&mut self, peer: usize, action: Action) {
        match action {
            Action::None => {}
            Action::ShutDown => self.peers[peer].is_shut = true,
            Action::Drop => {
                if let Some(session) = self.peers[peer].session.take() {
                    session.end(&mut self.shard);
                }
            }
        }
    }

    fn timeout(&mut self, peer: usize) {
        let action = self.peers[peer].session.as_mut().unwrap().timeout(&mut self.shard);
        self.act(peer, action);
        while self.run() {}
    }

    fn wait(&self, peer: usize) -> Wait {
        self.peers[peer].session.as_ref().unwrap().wait().0
    }

    fn end_of_input(&mut self, peer: usize) {
        let session = self.peers[peer].session.as_mut().unwrap();
        let action = session.end_of_input(&mut self.shard);
        self.act(peer, action);
        while self.run() {}
    }

    /// What a peer got since the last time, as HTTP.
    fn http(&mut self, peer: usize) -> String {
        String::from_utf8(std::mem::take(&mut self.peers[peer].out)).unwrap()
    }

    /// What a peer got since the last time, as frames.
    fn frames(&mut self, peer: usize) -> Vec<String> {
        frames(&std::mem::take(&mut self.peers[peer].out))
    }

    /// Sends a text message and returns what comes back.
    fn say(&mut self, peer: usize, text: &str) -> Vec<String> {
        self.feed(peer, &masked(0x81, text.as_bytes()));
        self.frames(peer)
    }

    fn subscribe(&mut self, peer: usize, channel: &str) -> Vec<String> {
        let data = serde_json::json!({ "channel": channel, "auth": "" });
        self.say(
            peer,
            &serde_json::json!({ "event": "pusher:subscribe", "data": data }).to_string(),
        )
    }

    /// Publishes over a new connection and returns the response.
    fn publish(&mut self, body: &str) -> String {
        let peer = self.connect();
        self.feed(peer, post(body, NOW).as_bytes());
        self.http(peer)
    }
}

fn upgrade(target: &str) -> String {
    format!(
        "GET {target} HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}

fn post(body: &str, timestamp: u64) -> String {
    let path = "/apps/1001/events";
    let signed = Signed { method: "POST", path, stripped: path, query: "", body: body.as_bytes() };
    let query = sign(&App::development(), signed, timestamp);
    let length = body.len();
    format!("POST {path}?{query} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// A client's frame. The mask is zero, which leaves the payload as it is.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        len @ 0..=125 => frame.push(0x80 | u8::try_from(len).unwrap()),
        len => {
            frame.push(0x80 | 126);
            frame.extend(u16::try_from(len).unwrap().to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

/// Texts as they are, closes as `close CODE REASON`, the rest by opcode.
fn frames(mut bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    while let [first, second, rest @ ..] = bytes {
        let (len, rest) = match second {
            126 => (usize::from(u16::from_be_bytes([rest[0], rest[1]])), &rest[2..]),
            127 => panic!("no test needs frames that long"),
            len => (usize::from(*len), rest),
        };
        let (payload, rest) = rest.split_at(len);
        let text = || String::from_utf8(payload.to_vec()).unwrap();
        found.push(match first & 0x0f {
            1 => text(),
            8 if len >= 2 => {
                let code = u16::from_be_bytes([payload[0], payload[1]]);
                format!("close {code} {}", std::str::from_utf8(&payload[2..]).unwrap())
            }
            8 => "close".to_owned(),
            10 => format!("pong {}", text()),
            opcode => format!("opcode {opcode}"),
        });
        bytes = rest;
    }
    found
}

mod apps;
mod cache;
mod extras;
mod fallback;
mod handshake;
mod ledger;
mod presence;
mod private;
mod query;
mod shards;
mod user;

fn event(channels: &[&str], data: &str) -> String {
    serde_json::json!({ "name": "e", "channels": channels, "data": data }).to_string()
}

#[test]
fn pages_are_answered_one_after_the_other() {
    let mut world = World::new();
    let peer = world.connect();
    let request = "GET /health HTTP/1.1\r\nHost: h\r\n\r\nGET /ready HTTP/1.1\r\nHost: h\r\n\r\n";
    world.feed(peer, request.as_bytes());
    let answer = world.http(peer);
    assert_eq!(answer.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{answer}");
    assert!(answer.find("alive").unwrap() < answer.find("ready").unwrap());
    assert_eq!(world.wait(peer), Wait::Idle);
    for (request, status) in [
        ("GET /nothing", 404),
        ("POST /health", 405),
        ("GET /apps/1001/events", 405),
        ("GET /app/app-key", 426),
        ("GET /metrics", 200),
        ("HEAD /health", 405),
    ] {
        world.feed(peer, format!("{request} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        let answer = world.http(peer);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
    }
    assert!(world.peers[peer].is_shut, "HEAD ends the connection");
}

#[test]
fn the_next_request_waits_until_a_response_is_out() {
    let mut shard = shard();
    let mut session = Session::open(&mut shard).unwrap();
    let mut request = *b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n";
    let len = request.len();
    assert_eq!(session.receive(&mut shard, &mut request), Took::Used(len));
    assert_eq!(session.receive(&mut shard, &mut request), Took::Blocked);
    assert_eq!(session.wait().0, Wait::Response);
    let Some(Effect::Write(offer)) = shard.broker.poll() else { panic!("a response is due") };
    shard.broker.sent(offer, 10);
    assert_eq!(session.written(10), Some(false));
    assert_eq!(session.receive(&mut shard, &mut request), Took::Blocked);
    shard.broker.writable(session.outlet());
    let Some(Effect::Write(offer)) = shard.broker.poll() else { panic!("the rest is due") };
    shard.broker.sent(offer, offer.bytes);
    assert_eq!(session.written(offer.bytes), Some(true));
    assert_eq!(session.receive(&mut shard, &mut request), Took::Used(len));
}

#[test]
fn bad_requests_end_the_connection_with_their_status() {
    let long = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", "h".repeat(1 << 20));
    let hello = upgrade("/app/app-key?protocol=7");
    let hello_with_body = hello.replace("\r\n\r\n", "\r\nContent-Length: 3\r\n\r\nabc");
    for (request, status) in [
        ("rubbish\r\n\r\n", 400),
        (long.as_str(), 431),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 999999\r\n\r\n", 413),
        (hello_with_body.as_str(), 400),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n", 400),
    ] {
        let mut world = World::new();
        let peer = world.connect();
        world.feed(peer, request.as_bytes());
        let answer = world.http(peer);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1);
        assert!(world.peers[peer].is_shut && world.wait(peer) == Wait::Linger);
        world.end_of_input(peer);
        assert!(world.peers[peer].session.is_none());
    }
}

#[test]
fn a_request_that_stops_is_told_so() {
    for by_deadline in [false, true] {
        let mut world = World::new();
        let peer = world.connect();
        world.feed(peer, b"GET /health HTTP/1.1\r\nHo");
        assert_eq!(world.wait(peer), Wait::Request);
        let status = if by_deadline {
            world.timeout(peer);
            408
        } else {
            world.end_of_input(peer);
            400
        };
        let answer = world.http(peer);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(world.peers[peer].is_shut);
    }
}

#[test]
fn a_silent_connection_is_closed_without_a_word() {
    let mut world = World::new();
    let peer = world.connect();
    assert_eq!(world.wait(peer), Wait::Request);
    world.timeout(peer);
    assert_eq!(world.http(peer), "");
    assert!(world.peers[peer].is_shut);
    world.timeout(peer);
    assert!(world.peers[peer].session.is_none(), "the peer's FIN did not come in time");
    assert_eq!(world.shard.broker.counts(), (0, 0));
}

#[test]
fn clients_that_ask_first_are_told_to_go_on() {
    let mut world = World::new();
    let peer = world.connect();
    let request = post(&event(&["a"], "1"), NOW);
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    world.feed(peer, format!("{head}\r\nExpect: 100-continue\r\n\r\n").as_bytes());
    assert_eq!(world.http(peer), "HTTP/1.1 100 Continue\r\n\r\n");
    world.feed(peer, &body.as_bytes()[..5]);
    assert_eq!(world.http(peer), "", "once");
    world.feed(peer, &body.as_bytes()[5..]);
    assert!(world.http(peer).starts_with("HTTP/1.1 200 OK\r\n"));
}

#[test]
fn the_first_frame_is_connection_established() {
    let mut world = World::new();
    for version in 4..=7 {
        let peer = world.connect();
        let target = format!("/app/app-key?client=js&protocol={version}&version=8.6.0&flash=false");
        let frames = world.handshake(peer, &target);
        assert_eq!(frames.len(), 1);
        let value: serde_json::Value = serde_json::from_str(&frames[0]).unwrap();
        assert_eq!(value["event"], "pusher:connection_established");
        let data: serde_json::Value =
            serde_json::from_str(value["data"].as_str().unwrap()).unwrap();
        assert!(sluicegate_wire::rest::check_socket_id(data["socket_id"].as_str().unwrap()));
        assert_eq!(data["activity_timeout"], 120);
        assert_eq!(world.wait(peer), Wait::Activity);
        assert!(world.subscribe(peer, "news")[0].contains("subscription_succeeded"), "{version}");
    }
}

#[test]
fn a_bad_handshake_is_switched_first_and_closed_with_its_code() {
    for (target, code) in [
        ("/app/nobody?protocol=7", 4001),
        ("/app?protocol=7", 4005),
        ("/app/?protocol=7", 4005),
        ("/app/app-key/more?protocol=7", 4005),
        ("/elsewhere?protocol=7", 4005),
        ("/app/app-key?protocol=3", 4007),
        ("/app/app-key?protocol=8", 4007),
        ("/app/app-key?protocol=x", 4007),
        ("/app/app-key?protocol=", 4007),
        ("/app/app-key", 4008),
    ] {
        let mut world = World::new();
        let peer = world.connect();
        let frames = world.handshake(peer, target);
        assert_eq!(frames.len(), 2, "{target}: {frames:?}");
        let value: serde_json::Value = serde_json::from_str(&frames[0]).unwrap();
        assert_eq!(value["event"], "pusher:error");
        assert_eq!(value["data"]["code"], code, "{target}");
        assert!(frames[1].starts_with(&format!("close {code} ")), "{frames:?}");
        assert!(world.peers[peer].is_shut);
    }
}

#[test]
fn a_full_core_sends_clients_away_for_a_while() {
    let mut limits = Limits::default();
    limits.set("max_connections", 1).unwrap();
    let mut world = World::with(shard_with(limits));
    let peer = world.connect();
    let frames = world.handshake(peer, "/app/app-key?protocol=7");
    assert!(frames[1].starts_with("close 4100 "), "{frames:?}");
    assert!(Session::open(&mut world.shard).is_err());
}

#[test]
fn a_full_core_refuses_publishers_and_counts_them() {
    let mut limits = Limits::default();
    limits.set("max_connections", 1).unwrap();
    let mut world = World::with(shard_with(limits));
    let refused = world.publish(&event(&["a"], "1"));
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("\r\nRetry-After: 1\r\n"), "{refused}");
    assert_eq!(world.shard.process.refused_calls, 1);
}

#[test]
fn pings_of_every_shape_are_answered() {
    let mut world = World::new();
    let (peer, _) = world.client();
    let pong = r#"{"event":"pusher:pong","data":"{}"}"#;
    for data in ["", r#","data":{}"#, r#","data":"""#, r#","data":[]"#, r#","data":null"#] {
        assert_eq!(world.say(peer, &format!(r#"{{"event":"pusher:ping"{data}}}"#)), [pong]);
    }
    world.feed(peer, &masked(0x89, b"abc"));
    assert_eq!(world.frames(peer), ["pong abc"]);
    world.feed(peer, &masked(0x82, b"\xff\x00"));
    world.feed(peer, &masked(0x8a, b""));
    assert_eq!(world.say(peer, r#"{"event":"pusher:pong","data":{}}"#), [""; 0]);
}

#[test]
fn fragments_make_one_message() {
    let mut world = World::new();
    let (peer, _) = world.client();
    world.feed(peer, &masked(0x01, br#"{"event":"#));
    world.feed(peer, &masked(0x89, b"in between"));
    assert_eq!(world.frames(peer), ["pong in between"]);
    world.feed(peer, &masked(0x00, br#""pusher:"#));
    world.feed(peer, &masked(0x80, br#"ping"}"#));
    assert_eq!(world.frames(peer), [r#"{"event":"pusher:pong","data":"{}"}"#]);
}

#[test]
fn subscribing_twice_delivers_once_and_unsubscribing_ends_it() {
    let mut world = World::new();
    let (peer, _) = world.client();
    let succeeded =
        r#"{"event":"pusher_internal:subscription_succeeded","channel":"news","data":"{}"}"#;
    for _ in 0..2 {
        assert_eq!(world.subscribe(peer, "news"), [succeeded]);
    }
    assert!(world.publish(&event(&["news"], "one")).starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(world.frames(peer), [r#"{"event":"e","channel":"news","data":"one"}"#]);
    let leave = r#"{"event":"pusher:unsubscribe","data":{"channel":"news"}}"#;
    for _ in 0..2 {
        assert_eq!(world.say(peer, leave), [""; 0]);
    }
    world.publish(&event(&["news"], "two"));
    assert_eq!(world.frames(peer), [""; 0]);
    assert_eq!(world.subscribe(peer, "news"), [succeeded]);
    world.publish(&event(&["news"], "three"));
    assert_eq!(world.frames(peer), [r#"{"event":"e","channel":"news","data":"three"}"#]);
}

#[test]
fn channels_that_are_not_served_are_refused_by_name() {
    let mut world = World::new();
    let (peer, _) = world.client();
    for (channel, kind, status) in [
        ("a b", "InvalidChannel", 400),
        ("", "InvalidChannel", 400),
        (&"a".repeat(165), "InvalidChannel", 400),
    ] {
        let frames = world.subscribe(peer, channel);
        let value: serde_json::Value = serde_json::from_str(&frames[0]).unwrap();
        assert_eq!(value["event"], "pusher:subscription_error", "{channel}");
        assert_eq!((&value["channel"], &value["data"]["type"]), (&channel.into(), &kind.into()));
        assert_eq!(value["data"]["status"], status);
        // A publisher must not think that somebody gets it.
        let refused = world.publish(&event(&["served", channel], "1"));
        assert!(refused.starts_with("HTTP/1.1 400 "), "{refused}");
        let sentence = value["data"]["error"].as_str().unwrap();
        assert!(refused.contains(sentence), "{sentence:?} is missing in {refused}");
    }
    assert_eq!(world.shard.broker.ledger().offered.records, 0);
    assert!(world.subscribe(peer, &"a".repeat(164))[0].contains("succeeded"), "just fits");
    let frames = world.subscribe(peer, &"ä".repeat(20_000));
    assert!(frames[0].len() < 1000, "what is sent back is bounded");
    assert_eq!(world.shard.broker.counts().1, 1);
}

#[test]
fn two_hundred_channels_are_the_most() {
    let mut world = World::new();
    let (peer, _) = world.client();
    for n in 0..MAX_CHANNELS {
        assert!(world.subscribe(peer, &format!("c{n}"))[0].contains("succeeded"));
    }
    let refused = world.subscribe(peer, "more").remove(0);
    assert!(refused.contains("LimitReached") && refused.contains("200"), "{refused}");
    assert!(world.subscribe(peer, "c7")[0].contains("succeeded"), "not one more");
    world.say(peer, r#"{"event":"pusher:unsubscribe","data":{"channel":"c0"}}"#);
    assert!(world.subscribe(peer, "more")[0].contains("succeeded"));
}

#[test]
fn what_is_no_command_is_answered_and_closes_nothing() {
    let mut world = World::new();
    let (peer, _) = world.client();
    let code = |world: &mut World, text: &str| {
        let frames = world.say(peer, text);
        let value: serde_json::Value = serde_json::from_str(&frames[0]).unwrap();
        assert_eq!(value["event"], "pusher:error", "{text}");
        value["data"]["code"].clone()
    };
    let client = r#"{"event":"client-e","channel":"news","data":{}}"#;
    assert_eq!(code(&mut world, client), 4301);
    for text in [
        "{",
        "[]",
        "7",
        "{}",
        r#"{"event":"pusher:subscribe"}"#,
        r#"{"event":"pusher:subscribe","data":"x"}"#,
        r#"{"event":"pusher:signin","data":{"auth":"a","user_data":"{}"}}"#,
        r#"{"event":"pusher_internal:member_added","channel":"news","data":"{}"}"#,
    ] {
        assert!(code(&mut world, text).is_null(), "clients act on other codes: {text}");
    }
    assert_eq!(world.say(peer, r#"{"event":"pusher:ping"}"#).len(), 1);
}

#[test]
fn broken_frames_close_with_the_right_code() {
    let oversize = [&[0x81, 0xff][..], &(64 * 1024 + 1_u64).to_be_bytes(), &[0; 4]].concat();
    for (frame, code) in [
        (oversize, 1009),
        (vec![0x81, 0x01, b'a'], 1002),
        (masked(0x81, b"\xff\xfe"), 1007),
        (masked(0xc1, b"a"), 1002),
        (masked(0x83, b"a"), 1002),
        (masked(0x80, b"a"), 1002),
        (masked(0x09, b""), 1002),
    ] {
        let mut world = World::new();
        let (peer, _) = world.client();
        world.feed(peer, &frame);
        let frames = world.frames(peer);
        assert!(frames[0].starts_with(&format!("close {code} ")), "{frames:?}");
        assert_eq!(frames.len(), 1);
        assert!(world.peers[peer].is_shut);
    }
}

#[test]
fn a_close_is_answered_and_what_waited_has_left() {
    for (payload, answer) in [(&b"\x03\xe8bye"[..], "close 1000 "), (&b""[..], "close")] {
        let mut world = World::new();
        let (peer, _) = world.client();
        world.subscribe(peer, "news");
        world.publish(&event(&["news"], "seen"));
        world.frames(peer);
        world.feed(peer, &[masked(0x88, payload), masked(0x81, b"unread")].concat());
        assert_eq!(world.frames(peer), [answer]);
        assert!(world.peers[peer].is_shut);
        assert_eq!(world.shard.broker.counts().1, 0);
        world.end_of_input(peer);
        assert!(world.peers[peer].session.is_none());
        assert!(world.shard.broker.ledger().dropped.total().is_zero());
    }
}

#[test]
fn a_silent_client_is_asked_and_then_closed() {
    let mut world = World::new();
    let (peer, _) = world.client();
    world.timeout(peer);
    assert_eq!(world.frames(peer), [r#"{"event":"pusher:ping","data":"{}"}"#]);
    assert_eq!(world.wait(peer), Wait::Pong);
    assert_eq!(world.say(peer, r#"{"event":"pusher:pong","data":{}}"#), [""; 0]);
    assert_eq!(world.wait(peer), Wait::Activity, "it has answered");
    world.timeout(peer);
    world.timeout(peer);
    let frames = world.frames(peer);
    assert!(frames[1].contains(r#""code":4201"#), "{frames:?}");
    assert!(frames[2].starts_with("close 4201 "));
    assert_eq!(frames.len(), 3);
}

#[test]
fn old_clients_are_asked_in_a_way_they_answer() {
    let mut world = World::new();
    let peer = world.connect();
    world.handshake(peer, "/app/app-key?protocol=4");
    world.timeout(peer);
    assert_eq!(world.frames(peer), ["opcode 9"]);
}

#[test]
fn each_word_of_a_client_starts_its_deadline_anew() {
    let mut world = World::new();
    let (peer, _) = world.client();
    let before = world.peers[peer].session.as_ref().unwrap().wait();
    world.feed(peer, &masked(0x8a, b""));
    assert_ne!(world.peers[peer].session.as_ref().unwrap().wait(), before);
}

#[test]
fn half_closed_clients_get_what_waits() {
    let mut world = World::new();
    let (peer, _) = world.client();
    world.subscribe(peer, "news");
    let session = world.peers[peer].session.as_mut().unwrap();
    assert_eq!(session.end_of_input(&mut world.shard), Action::None);
    while world.run() {}
    assert_eq!(world.frames(peer), ["close 1000 "]);
    assert!(world.peers[peer].is_shut);
}

#[test]
fn a_publish_is_answered_when_it_is_sequenced() {
    let mut shard = shard();
    shard.unix_seconds = NOW;
    let mut session = Session::open(&mut shard).unwrap();
    session.settle(&mut shard, 0);
    let mut request = post(&event(&["a", "b"], "1"), NOW).into_bytes();
    let len = request.len();
    assert_eq!(session.receive(&mut shard, &mut request), Took::Used(len));
    assert_eq!(session.receive(&mut shard, &mut request), Took::Blocked);
    assert_eq!(shard.broker.poll(), None, "nothing to say yet");
    assert_eq!(shard.broker.step(100), Progress::Idle);
    for last in [false, true] {
        let Some(Effect::Notice(notice @ Notice::Committed { conn, .. })) = shard.broker.poll()
        else {
            panic!("a committed notice is due");
        };
        assert!(session.owns(conn));
        assert_eq!(session.notice(&mut shard, notice), Action::None);
        assert_eq!(session.wait().0, Wait::Response);
        assert_eq!(shard.broker.ledger().sequenced.records, 2);
        if last {
            assert!(matches!(shard.broker.poll(), Some(Effect::Write(_))));
        }
    }
}

#[test]
fn the_publisher_itself_can_be_left_out() {
    let mut world = World::new();
    let ((one, id), (two, _)) = (world.client(), world.client());
    // The entropy of these tests repeats, so only the first half tells sockets apart.
    for peer in [one, two] {
        world.subscribe(peer, "news");
    }
    let body = |socket_id: &str| {
        serde_json::json!({ "name": "e", "channel": "news", "data": "", "socket_id": socket_id })
            .to_string()
    };
    assert!(world.publish(&body(&id)).starts_with("HTTP/1.1 200 "));
    assert_eq!((world.frames(one).len(), world.frames(two).len()), (0, 1));
    assert!(world.publish(&body("9.9")).starts_with("HTTP/1.1 200 "), "nobody has this id");
    assert_eq!((world.frames(one).len(), world.frames(two).len()), (1, 1));
    assert!(world.publish(&body("nine")).starts_with("HTTP/1.1 400 "));
}

#[test]
fn every_bad_call_has_its_status_and_publishes_nothing() {
    let mut world = World::new();
    let data = |len: usize| event(&["a"], &"x".repeat(len));
    let good = post(&event(&["a"], "1"), NOW);
    for (request, status) in [
        (good.replace("/apps/1001/", "/apps/1002/"), 404),
        (good.replace("auth_signature=", "auth_signature=0"), 401),
        (good.replace("auth_key=app", "auth_key=ppa"), 401),
        (good.replace(r#""1""#, r#""2""#), 401),
        (post(&event(&["a"], "1"), NOW - 600), 401),
        (good.replace("POST /apps", "PUT /apps"), 405),
        (post("{", NOW), 400),
        (post("[]", NOW), 400),
        (post(r#"{"name":"e","channel":"a","data":{}}"#, NOW), 400),
        (post(r#"{"name":"e","channel":"a b","data":""}"#, NOW), 400),
        (post(r#"{"name":"pusher:e","channel":"a","data":""}"#, NOW), 400),
        (post(r#"{"name":"e","channel":"a","data":"","info":"users"}"#, NOW), 400),
        (post(&data(10 * 1024 + 1), NOW), 413),
    ] {
        let peer = world.connect();
        world.feed(peer, request.as_bytes());
        let answer = world.http(peer);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}\n{answer}");
        let (_, text) = answer.split_once("\r\n\r\n").unwrap();
        assert!(text.ends_with('\n') && text.len() > 10, "it says why: {text}");
        assert_eq!(world.wait(peer), Wait::Idle, "the connection is kept");
    }
    assert_eq!(world.shard.broker.ledger().offered.records, 0);
    assert!(world.publish(&data(10 * 1024)).starts_with("HTTP/1.1 200 "), "just fits");
    assert!(world.publish(r#"{"name":"e","channel":"a","data":""}"#).starts_with("HTTP/1.1 200 "));
}

/// A world whose limits are the defaults but for these.
fn limited(changes: &[(&str, u64)]) -> World {
    let mut limits = Limits::default();
    for (key, value) in changes {
        limits.set(key, *value).unwrap();
    }
    World::with(shard_with(limits))
}

/// Records that a publisher brought, that were refused for a cause, and that went on.
fn brought(world: &World, place: Place, reason: Reason) -> [u64; 3] {
    let books = world.shard.broker.ledger();
    [books.offered.records, books.refused.get(place, reason).records, books.sequenced.records]
}

#[test]
fn a_call_is_admitted_whole_or_refused_whole() {
    let mut world = limited(&[("pub_queue_depth", 4), ("pub_queue_total", 4)]);
    let (first, second) = (world.connect(), world.connect());
    world.peers[first].inbox.extend(post(&event(&["a", "b"], "1"), NOW).as_bytes());
    world.peers[second].inbox.extend(post(&event(&["a", "b", "c"], "1"), NOW).as_bytes());
    assert!(world.digest(first) && world.digest(second));
    while world.run() {}
    let refused = world.http(second);
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("\r\nRetry-After: 1\r\n") && refused.contains("queue_full"));
    assert!(world.http(first).starts_with("HTTP/1.1 200 "));
    assert_eq!(brought(&world, Place::Schedule, Reason::QueueFull), [5, 3, 2]);
}

#[test]
fn a_call_that_can_never_be_admitted_is_told_so() {
    for (key, place) in [("pub_queue_total", Place::Schedule), ("max_topics", Place::Table)] {
        let mut world = limited(&[("pub_queue_depth", 2), (key, 2)]);
        let refused = world.publish(&event(&["a", "b", "c"], "1"));
        assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
        assert!(!refused.contains("Retry-After"), "{refused}");
        for part in ["3 named", key, "at most 2"] {
            assert!(refused.contains(part), "{part:?} is missing in {refused}");
        }
        assert_eq!(brought(&world, place, Reason::Oversize), [3, 3, 0]);
        assert!(world.publish(&event(&["a", "b"], "1")).starts_with("HTTP/1.1 200 "), "just fits");
    }
}

#[test]
fn a_call_for_more_bytes_than_there_ever_are_is_told_so() {
    let few = 128 << 10;
    let mut world = limited(&[("max_frame_bytes", few - (64 << 10)), ("pub_inflight_bytes", few)]);
    let names: Vec<String> = (0..20).map(|n| format!("c{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let refused = world.publish(&event(&names, &"x".repeat(10_000)));
    assert!(refused.starts_with("HTTP/1.1 413 ") && refused.contains("send less"), "{refused}");
    assert_eq!(brought(&world, Place::Admission, Reason::Oversize), [20, 20, 0]);
    assert!(world.publish(&event(&names[..10], "x")).starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_topic_that_cannot_be_made_refuses_the_whole_call_and_is_booked() {
    for (channels, others) in [(&["a", "b"][..], &["x"][..]), (&["a"], &["x", "y"])] {
        let mut world = limited(&[("max_topics", 2)]);
        let (peer, _) = world.client();
        for channel in others {
            world.subscribe(peer, channel);
        }
        let refused = world.publish(&event(channels, "1"));
        assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
        assert!(refused.contains("refused at table: limit"), "{refused}");
        let records = channels.len() as u64;
        assert_eq!(brought(&world, Place::Table, Reason::Limit), [records, records, 0]);
    }
}

#[test]
fn topics_of_one_call_do_not_make_way_for_one_another() {
    let mut world = limited(&[("max_topics", 3)]);
    for channel in ["x", "a", "y"] {
        assert!(world.publish(&event(&[channel], "1")).starts_with("HTTP/1.1 200 "));
    }
    let answer = world.publish(&event(&["a", "b", "c"], "1"));
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(brought(&world, Place::Table, Reason::Limit), [6, 0, 6]);
}

#[test]
fn load_is_asked_about_before_signatures() {
    let mut limits = Limits::default();
    limits.set("memory_budget", 1 << 20).unwrap();
    let mut world = World::with(shard_with(limits));
    let peer = world.connect();
    let (_, outlet) = world.shard.open_house().unwrap();
    world.shard.broker.send(outlet, Bytes::from(vec![0; 1 << 20]), Lane::InLine).unwrap();
    world.shard.broker.advance(Instant::from_millis(2));
    assert_eq!(world.shard.broker.band(), sluicegate_core::Band::Saturated);
    let request = post(&event(&["a"], "1"), NOW).replace("auth_signature=", "auth_signature=0");
    world.peers[peer].inbox.extend(request.as_bytes());
    assert!(world.digest(peer));
    let answer = loop {
        match world.shard.broker.poll().expect("an answer is due") {
            Effect::Write(offer) if offer.outlet == outlet => world.shard.broker.sent(offer, 0),
            Effect::Write(offer) => {
                break world.shard.broker.frames(offer).next().unwrap().to_vec();
            }
            Effect::Notice(_) => {}
        }
    };
    assert!(answer.starts_with(b"HTTP/1.1 503 "), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(world.shard.broker.ledger().offered.records, 0);
}

#[test]
fn one_socket_can_publish_for_several_apps() {
    let other = App {
        id: "1002".to_owned(),
        key: "other".to_owned(),
        secret: crate::apps::Secret::new("other-secret".to_owned()),
        name: String::new(),
        ..App::development()
    };
    let apps = vec![App::development(), other.clone()];
    let mut world = World::with(Shard::new(Limits::default(), apps, || 5).unwrap());
    world.shard.is_ready = true;
    let peer = world.connect();
    let body = event(&["a"], "1");
    let path = "/apps/1002/events";
    let signed = Signed { method: "POST", path, stripped: path, query: "", body: body.as_bytes() };
    let query = sign(&other, signed, NOW);
    let length = body.len();
    let theirs = format!(
        "POST {path}?{query} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    world.feed(peer, (post(&body, NOW) + &theirs + &post(&body, NOW)).as_bytes());
    assert_eq!(world.http(peer).matches("HTTP/1.1 200 OK\r\n").count(), 3);
    let records = |id| {
        let (_, tenant) = world.shard.apps.by_id(id).unwrap();
        world.shard.broker.tenant_books(tenant).unwrap().sequenced.records
    };
    assert_eq!((records("1001"), records("1002")), (2, 1));
    assert_eq!(world.shard.broker.counts().0, 2, "the socket's and one that publishes");
}

#[test]
fn stopping_sends_everyone_away_with_a_code() {
    let mut world = World::new();
    let (client, _) = world.client();
    let idle = world.connect();
    world.shard.is_ready = false;
    for peer in [client, idle] {
        let session = world.peers[peer].session.as_mut().unwrap();
        session.shut_down(&mut world.shard);
    }
    while world.run() {}
    let frames = world.frames(client);
    assert!(frames[0].contains(r#""code":4200"#) && frames[1].starts_with("close 4200 "));
    assert_eq!(world.http(idle), "");
    assert!(world.peers.iter().all(|peer| peer.is_shut));
    let late = world.connect();
    world.feed(late, b"GET /ready HTTP/1.1\r\nHost: h\r\n\r\n");
    let answer = world.http(late);
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Connection: close"));
    assert!(world.peers[late].is_shut);
}

#[test]
fn a_publish_that_is_being_answered_when_the_server_stops_is_answered() {
    let mut world = World::new();
    let peer = world.connect();
    world.peers[peer].inbox.extend(post(&event(&["a"], "1"), NOW).as_bytes());
    assert!(world.digest(peer));
    world.shard.is_ready = false;
    world.peers[peer].session.as_mut().unwrap().shut_down(&mut world.shard);
    while world.run() {}
    let answer = world.http(peer);
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.contains("Connection: close"),
        "{answer}"
    );
    assert!(world.peers[peer].is_shut);
}

#[test]
fn a_client_that_reads_no_answers_is_paused_and_then_given_up() {
    let mut shard = shard();
    let mut session = Session::open(&mut shard).unwrap();
    session.settle(&mut shard, 0);
    let mut hello = upgrade("/app/app-key?protocol=7").into_bytes();
    assert_eq!(session.receive(&mut shard, &mut hello), Took::Used(hello.len()));
    let mut handled = 0;
    while !session.is_paused(&shard) {
        let mut ping = masked(0x89, b"x");
        assert!(matches!(session.receive(&mut shard, &mut ping), Took::Used(_)));
        handled += 1;
        assert!(handled < 1000, "the core pauses at half its reserve");
    }
    assert!(matches!(shard.broker.poll(), Some(Effect::Notice(Notice::Pause { .. }))));
    // A host that does not mind is given up by the core.
    let notice = loop {
        let mut ping = masked(0x89, b"x");
        assert!(matches!(session.receive(&mut shard, &mut ping), Took::Used(_)));
        match shard.broker.poll() {
            Some(Effect::Notice(notice @ Notice::Close { why, .. })) => {
                assert_eq!(why.reason, Reason::Limit);
                break notice;
            }
            Some(Effect::Write(offer)) => shard.broker.sent(offer, 0),
            _ => {}
        }
    };
    assert_eq!(session.notice(&mut shard, notice), Action::None);
    assert_eq!(session.wait().0, Wait::Flush);
    shard.broker.writable(session.outlet());
    let mut out = Vec::new();
    while let Some(effect) = shard.broker.poll() {
        if let Effect::Write(offer) = effect {
            shard.broker.frames(offer).for_each(|frame| out.extend(frame));
            shard.broker.sent(offer, offer.bytes);
        }
    }
    assert!(out.ends_with(&ws::close_frame(4100, "replies were not read")), "{out:?}");
    assert_eq!(session.timeout(&mut shard), Action::Drop);
    session.end(&mut shard);
    assert_eq!(shard.broker.counts(), (0, 0));
}

/// What HTTP clients send, and what WebSocket clients send; most of it is sound.
fn pieces() -> [Vec<Vec<u8>>; 2] {
    let text = |text: &str| masked(0x81, text.as_bytes());
    let http = vec![
        upgrade("/app/app-key?protocol=7").into_bytes(),
        upgrade("/app/app-key?protocol=4").into_bytes(),
        upgrade("/app/other?protocol=7").into_bytes(),
        post(&event(&["a", "b", "c"], "data"), NOW).into_bytes(),
        post(&event(&["a"], &"x".repeat(5_000)), NOW).into_bytes(),
        post(&event(&["b"], &"x".repeat(5_000)), NOW).into_bytes(),
        post("{}", NOW).into_bytes(),
        b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n".to_vec(),
        b"GET /health HTTP/1.0\r\n\r\n".to_vec(),
    ];
    let websocket = vec![
        text(r#"{"event":"pusher:subscribe","data":{"channel":"a"}}"#),
        text(r#"{"event":"pusher:subscribe","data":{"channel":"b"}}"#),
        text(r#"{"event":"pusher:unsubscribe","data":{"channel":"a"}}"#),
        text(PING),
        text("{"),
        masked(0x01, b"{"),
        masked(0x80, b"}"),
        masked(0x89, b"ping"),
    ];
    [http, websocket]
}

const PING: &str = r#"{"event":"pusher:ping","data":{}}"#;

#[test]
fn whatever_comes_nothing_panics_and_nothing_is_left() {
    let pieces = pieces();
    let mut seen = [0; 3];
    for seed in 0..60 {
        let mut rand = Rand::new(seed);
        let mut limits = Limits::default();
        limits.set("high_water_bytes", 8 << 10).unwrap();
        let mut world = World::with(shard_with(limits));
        world.stingy = Some(rand.fork("transports"));
        for _ in 0..400 {
            let peer = usize::try_from(rand.below(6)).unwrap();
            if peer >= world.peers.len() {
                world.connect();
                continue;
            }
            disturb(&mut world, peer, &pieces, &mut rand);
        }
        world.stingy = None;
        for peer in 0..world.peers.len() {
            world.act(peer, Action::Drop);
        }
        while world.run() {}
        let books = world.shard.broker.ledger();
        assert_eq!(world.shard.broker.counts(), (0, 0), "seed {seed}");
        assert_eq!((books.lag.records, books.queued.records), (0, 0), "seed {seed}");
        let ends = [books.delivered, books.dropped.total(), books.left].map(|tally| tally.records);
        assert_eq!(books.expected.records, ends.iter().sum::<u64>(), "seed {seed}");
        seen.iter_mut().zip(ends).for_each(|(sum, n)| *sum += n);
    }
    assert!(seen.iter().all(|n| *n > 10), "every end was met: {seen:?}");
}

/// One random thing happens to a peer.
fn disturb(world: &mut World, peer: usize, pieces: &[Vec<Vec<u8>>; 2], rand: &mut Rand) {
    if world.peers[peer].session.is_none() {
        let fresh = world.connect();
        let (session, owner) = (world.peers.pop().unwrap().session, peer as u64);
        assert_eq!(fresh, world.peers.len());
        let mut session = session.unwrap();
        session.settle(&mut world.shard, owner);
        world.peers[peer].session = Some(session);
        world.peers[peer].inbox.clear();
        return;
    }
    match rand.below(40) {
        0 => world.timeout(peer),
        1 => world.act(peer, Action::Drop),
        2 if world.peers[peer].inbox.is_empty() => world.end_of_input(peer),
        3..=7 => {
            for outlet in std::mem::take(&mut world.refusing) {
                world.shard.broker.writable(outlet);
            }
            (0..world.peers.len()).for_each(|peer| world.feed(peer, b""));
        }
        _ => {
            let session = world.peers[peer].session.as_ref().unwrap();
            let sound = matches!(session.mode, Mode::WebSocket(_)) != (rand.below(100) == 0);
            let pieces = &pieces[usize::from(sound)];
            let mut piece =
                pieces[usize::try_from(rand.below(pieces.len() as u64)).unwrap()].clone();
            let mut place = || usize::try_from(rand.below(piece.len() as u64)).unwrap();
            let (mut at, cut) = (place(), place());
            match rand.below(100) {
                0 => piece[at] ^= 0x10,
                1 => piece.truncate(cut),
                2 => piece = masked(0x88, b"\x03\xe8"),
                _ => {}
            }
            // In two parts, so that every kind of piece is cut everywhere.
            at = at.min(piece.len());
            world.feed(peer, &piece[..at]);
            world.feed(peer, &piece[at..]);
        }
    }
    let wait = world.peers[peer].session.as_ref().map(Session::wait);
    if wait.is_some_and(|(wait, _)| wait == Wait::Linger) && rand.below(2) == 0 {
        world.end_of_input(peer);
    }
}

#[test]
fn an_app_may_be_full_or_off() {
    let app = App { max_connections: 1, ..App::development() };
    let off =
        App { id: "2".to_owned(), key: "off".to_owned(), enabled: false, ..App::development() };
    let apps = vec![app, off];
    let mut world = World::with(Shard::new(Limits::default(), apps, || 5).unwrap());
    world.shard.is_ready = true;
    let (first, _) = world.client();
    let late = world.connect();
    let frames = world.handshake(late, "/app/app-key?protocol=7");
    assert!(frames[1].starts_with("close 4004 "), "never 4100, which clients repeat: {frames:?}");
    world.end_of_input(first);
    world.client();
    let stranger = world.connect();
    let frames = world.handshake(stranger, "/app/off?protocol=7");
    assert!(frames[1].starts_with("close 4003 "), "{frames:?}");
    let peer = world.connect();
    world.feed(peer, b"GET /apps/2/channels HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(world.http(peer).starts_with("HTTP/1.1 403 "));
}

#[test]
fn a_prefix_may_stand_before_every_path_and_be_signed_or_not() {
    let mut world = World::new();
    world.shard.settings.path_prefix = "/rt".to_owned();
    let peer = world.connect();
    assert_eq!(world.handshake(peer, "/rt/app/app-key?protocol=7").len(), 1);
    let body = event(&["a"], "1");
    let (path, stripped) = ("/rt/apps/1001/events", "/apps/1001/events");
    for signed in [path, stripped] {
        let signed = Signed {
            method: "POST",
            path: signed,
            stripped: signed,
            query: "",
            body: body.as_bytes(),
        };
        let query = sign(&App::development(), signed, NOW);
        let length = body.len();
        let request =
            format!("POST {path}?{query} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n");
        let peer = world.connect();
        world.feed(peer, (request + &body).as_bytes());
        assert!(world.http(peer).starts_with("HTTP/1.1 200 "));
    }
}
