//! Whole connections of the Pusher server, without sockets: any bytes, cut anywhere, come in;
//! transports take any part of what is offered; time passes. Nothing panics, the books close after
//! each step, and what a transport got is whole responses and frames. Sessions of the HTTP fallback
//! are fed by what others post.
#![no_main]

use hmac::{Hmac, KeyInit, Mac};
use libfuzzer_sys::fuzz_target;
use md5::{Digest, Md5};
use sha2::Sha256;
use sluicegate_core::{Effect, Instant, Limits, Notice, Offer, Progress};
use sluicegate_wire::fallback;
use sluicegate_ws::apps::App;
use sluicegate_ws::session::fallback::{Name, Part, Post, Verb};
use sluicegate_ws::session::{Action, MAX_MESSAGE, Session, Took};
use sluicegate_ws::shard::Shard;
use std::collections::BTreeMap;

const SECONDS: u64 = 1_700_000_000;

/// Steps of one input.
const STEPS: usize = 300;

/// What a connection may have received and not digested.
const INBOX: usize = 256 << 10;

const CHANNELS: [&str; 6] =
    ["a", "private-a", "presence-a", "cache-a", "private-cache-a", "private-encrypted-a"];

/// Small limits, so that a few steps reach every bound.
fn limits() -> Limits {
    Limits {
        band_dwell_ms: 1,
        codel_target_ms: 5,
        control_reserve_bytes: 2_048,
        high_water_bytes: 3_000,
        max_connections: 12,
        max_topics: 5,
        memory_budget: 1 << 20,
        pub_queue_total: 8,
        retention_ms: 2_000,
        slow_consumer_after_ms: 3_000,
        ..Limits::default()
    }
}

/// What a step takes its numbers and bytes from.
struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn below(&mut self, most: usize) -> usize {
        usize::from(self.byte().unwrap_or(0)) % most
    }

    fn some(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte().unwrap_or(0)).min(self.0.len());
        let (some, rest) = self.0.split_at(len);
        self.0 = rest;
        some
    }
}

struct Peer {
    session: Option<Session>,
    inbox: Vec<u8>,
    /// What it got since it was understood last.
    out: Vec<u8>,
    is_websocket: bool,
    socket_id: String,
    /// In 255ths, what its transport takes of an offer.
    takes: u64,
}

struct World {
    shard: Shard,
    peers: Vec<Peer>,
    /// Sessions of the fallback.
    relays: BTreeMap<Name, usize>,
    refusing: Vec<sluicegate_core::OutletId>,
    millis: u64,
}

impl World {
    fn new() -> Self {
        let app = App {
            subscription_counts: true,
            authorized_only: false,
            max_connections: 6,
            ..App::development()
        };
        let mut shard = Shard::new(limits(), vec![app], || 0x0123_4567_89ab_cdef).expect("it fits");
        shard.is_ready = true;
        shard.unix_seconds = SECONDS;
        Self { shard, peers: Vec::new(), relays: BTreeMap::new(), refusing: Vec::new(), millis: 0 }
    }

    fn connect(&mut self) {
        let Ok(mut session) = Session::open(&mut self.shard) else { return };
        session.settle(&mut self.shard, self.peers.len() as u64);
        self.push(session, false);
    }

    fn push(&mut self, session: Session, is_websocket: bool) {
        self.peers.push(Peer {
            session: Some(session),
            inbox: Vec::new(),
            out: Vec::new(),
            is_websocket,
            socket_id: String::new(),
            takes: 255,
        });
    }

    /// Answers what a peer has posted, if it has.
    fn post(&mut self, at: usize) -> bool {
        let post = self.peers[at].session.as_mut().and_then(Session::take_post);
        let Some(post) = post else { return false };
        let part = self.posted(&post);
        let session = self.peers[at].session.as_mut().expect("it has posted");
        assert!(session.is_carrying() && session.can_carry());
        session.answer(&mut self.shard, part);
        assert!(!session.is_carrying());
        true
    }

    fn posted(&mut self, post: &Post) -> Part {
        let found = self.relays.get(&post.name).copied();
        let found = found.filter(|at| self.peers[*at].session.is_some());
        match (post.verb, found) {
            (Verb::Send, None) => Part::Whole(404, Vec::new()),
            (Verb::Send, Some(at)) => match fallback::frames(&post.body, MAX_MESSAGE) {
                Ok(frames) => {
                    self.feed(at, &frames);
                    Part::Whole(204, Vec::new())
                }
                Err(_) => Part::Whole(400, Vec::new()),
            },
            (Verb::Poll | Verb::Stream, Some(at)) => {
                self.feed(at, &fallback::here());
                Part::Whole(200, Vec::new())
            }
            (Verb::Poll | Verb::Stream, None) => match Session::fallback(&mut self.shard, post) {
                Ok(mut session) => {
                    session.settle(&mut self.shard, self.peers.len() as u64);
                    self.relays.insert(post.name.clone(), self.peers.len());
                    self.push(session, true);
                    Part::Whole(200, b"o\n".to_vec())
                }
                Err((code, reason)) => Part::Whole(200, fallback::refusal(code, &reason)),
            },
        }
    }

    fn act(&mut self, at: usize, action: Action) {
        if action == Action::Drop
            && let Some(session) = self.peers[at].session.take()
        {
            session.end(&mut self.shard);
        }
    }

    fn digest(&mut self, at: usize) -> bool {
        let peer = &mut self.peers[at];
        let Some(session) = &mut peer.session else { return false };
        let mut moved = false;
        while !session.is_paused(&self.shard) {
            let before = peer.inbox.len();
            match session.receive(&mut self.shard, &mut peer.inbox) {
                Took::Used(n) => {
                    assert!(n <= before, "more than there was");
                    peer.inbox.drain(..n);
                }
                Took::Need(total) => {
                    assert!(total > before, "it has what it needs");
                    break;
                }
                Took::Blocked => break,
            }
            moved = true;
        }
        let bytes = peer.inbox.len() + session.unread();
        let _ = self.shard.broker.reassembly(session.conn(), bytes as u64);
        moved
    }

    /// Lets everything run that can; bounded, since nothing new comes in.
    fn run(&mut self) {
        for _ in 0..1_000 {
            let mut moved = self.shard.broker.step(64) == Progress::More;
            self.shard.tell_counts();
            while let Some((owner, word)) = self.shard.poll_word() {
                moved = true;
                if let Some(session) = &mut self.peers[index(owner)].session {
                    session.word(&mut self.shard, word);
                }
            }
            while let Some(effect) = self.shard.broker.poll() {
                moved = true;
                match effect {
                    Effect::Write(offer) => self.write(offer),
                    Effect::Notice(notice) => self.notice(notice),
                }
            }
            while self.shard.poll_hook().is_some() {}
            for at in 0..self.peers.len() {
                moved |= self.digest(at);
                moved |= self.post(at);
            }
            if !moved {
                return;
            }
        }
        panic!("it never comes to rest");
    }

    fn write(&mut self, offer: Offer) {
        let owner = self.shard.owner_of_outlet(offer.outlet).expect("offers have an owner");
        let peer = &mut self.peers[index(owner)];
        let accepted = (offer.bytes * peer.takes).div_ceil(255);
        let mut left = usize::try_from(accepted).expect("it fits");
        for frame in self.shard.broker.frames(offer) {
            let part = frame.len().min(left);
            peer.out.extend_from_slice(&frame[..part]);
            left -= part;
        }
        assert_eq!(left, 0, "an offer holds as much as it says");
        if accepted < offer.bytes {
            self.refusing.push(offer.outlet);
        }
        self.shard.broker.sent(offer, accepted);
        peer.session.as_mut().expect("it is written to").written(accepted);
        understand(peer);
    }

    fn notice(&mut self, notice: Notice) {
        let conn = match notice {
            Notice::Close { conn, .. }
            | Notice::Committed { conn, .. }
            | Notice::Failed { conn, .. }
            | Notice::Flushed { conn }
            | Notice::Shed { conn, .. } => conn,
            _ => return,
        };
        let Some(owner) = self.shard.owner_of_conn(conn).filter(|owner| *owner != u64::MAX) else {
            return;
        };
        let at = index(owner);
        let Some(session) = self.peers[at].session.as_mut().filter(|it| it.owns(conn)) else {
            return;
        };
        let action = session.notice(&mut self.shard, notice);
        self.act(at, action);
    }

    fn feed(&mut self, at: usize, bytes: &[u8]) {
        let peer = &mut self.peers[at];
        if peer.session.is_some() && peer.inbox.len() < INBOX {
            peer.inbox.extend_from_slice(bytes);
        }
    }

    fn step(&mut self, source: &mut Source<'_>) -> Option<()> {
        let kind = source.byte()?;
        if self.peers.is_empty() || kind == 0 && self.peers.len() < 16 {
            self.connect();
        }
        let at = source.below(self.peers.len().max(1));
        let at = Some(at).filter(|at| *at < self.peers.len())?;
        match kind % 14 {
            1 | 2 => self.feed(at, source.some()),
            3 => self.feed(at, UPGRADE),
            4 => {
                let text = command(source, &self.peers[at].socket_id);
                self.feed(at, &frame(0x81, text.as_bytes()));
            }
            5 => {
                let first = source.byte()?;
                self.feed(at, &frame(first, source.some()));
            }
            6 => {
                let request = call(source);
                self.feed(at, request.as_bytes());
            }
            7 => self.peers[at].takes = u64::from(source.byte()?),
            8 => self.refusing.drain(..).for_each(|outlet| self.shard.broker.writable(outlet)),
            9 => {
                self.millis += 1 << source.below(12);
                self.shard.broker.advance(Instant::from_millis(self.millis));
            }
            10 => self.timeout(at),
            11 => self.end(at),
            13 => {
                let request = post(source, &self.peers[at].socket_id);
                self.feed(at, request.as_bytes());
            }
            12 => {
                if let Some(session) =
                    self.peers[at].session.as_mut().filter(|_| source.below(4) == 0)
                {
                    session.shut_down(&mut self.shard);
                }
            }
            _ => {}
        }
        Some(())
    }

    fn timeout(&mut self, at: usize) {
        if let Some(session) = &mut self.peers[at].session {
            let action = session.timeout(&mut self.shard);
            self.act(at, action);
        }
    }

    fn end(&mut self, at: usize) {
        if let Some(session) = &mut self.peers[at].session {
            let action = session.end_of_input(&mut self.shard);
            self.act(at, action);
        }
    }
}

fn index(owner: u64) -> usize {
    usize::try_from(owner).expect("an index")
}

/// Takes whole responses and frames off what a peer got: it must be nothing else.
fn understand(peer: &mut Peer) {
    loop {
        let out = &peer.out;
        let used = if peer.is_websocket { a_frame(out) } else { a_response(out) };
        let Some(used) = used else { return };
        let taken: Vec<u8> = peer.out.drain(..used).collect();
        peer.is_websocket |= taken.starts_with(b"HTTP/1.1 101 ");
        let id = br#"socket_id\":\""#;
        if let Some(start) = taken.windows(id.len()).position(|part| part == id) {
            let rest = taken[start + id.len()..].split(|byte| *byte == b'\\').next();
            peer.socket_id = String::from_utf8_lossy(rest.unwrap_or_default()).into_owned();
        }
    }
}

fn a_response(out: &[u8]) -> Option<usize> {
    let begins = b"HTTP/1.1 ".iter().zip(out).all(|(due, is)| due == is);
    assert!(begins, "no response: {:?}", String::from_utf8_lossy(out));
    let end = out.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&out[..end]).expect("heads are text");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let length: usize = length.map_or(0, |length| length.parse().expect("a length"));
    (out.len() >= end + length).then_some(end + length)
}

fn a_frame(out: &[u8]) -> Option<usize> {
    let (first, second) = (*out.first()?, *out.get(1)?);
    let opcode = first & 0x0f;
    assert!(first & 0xf0 == 0x80 && matches!(opcode, 1 | 8 | 9 | 10), "no frame: {first:x}");
    let (at, len) = match second {
        126 => (4, usize::from(u16::from_be_bytes([*out.get(2)?, *out.get(3)?]))),
        127 => {
            let eight: [u8; 8] = out.get(2..10)?.try_into().expect("eight bytes");
            (10, usize::try_from(u64::from_be_bytes(eight)).expect("it fits"))
        }
        len => (2, usize::from(len)),
    };
    let payload = out.get(at..at + len)?;
    if opcode == 1 {
        let text = std::str::from_utf8(payload).expect("texts are UTF-8");
        serde_json::from_str::<serde_json::Value>(text).expect("texts are JSON");
    }
    Some(at + len)
}

const UPGRADE: &[u8] =
    b"GET /app/app-key?protocol=7 HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

fn sign(text: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(b"app-secret").expect("any key");
    mac.update(text.as_bytes());
    hex::encode(mac.finalize().into_bytes())
}

/// A client's frame, masked with zeros.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match u16::try_from(payload.len()).expect("they are short").to_be_bytes() {
        [0, len @ 0..=125] => frame.push(0x80 | len),
        len => {
            frame.push(0x80 | 126);
            frame.extend(len);
        }
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

/// A command that is well made, with a good signature.
fn command(source: &mut Source<'_>, socket_id: &str) -> String {
    let channel = CHANNELS[source.below(CHANNELS.len())];
    let user = source.below(3);
    let value = match source.below(6) {
        0 | 1 => {
            let member = format!(r#"{{"user_id":"{user}"}}"#);
            let data = channel.starts_with("presence-").then_some(member);
            let covered = data.as_ref().map_or(String::new(), |data| format!(":{data}"));
            let auth = format!("app-key:{}", sign(&format!("{socket_id}:{channel}{covered}")));
            serde_json::json!({ "event": "pusher:subscribe",
                "data": { "channel": channel, "auth": auth, "channel_data": data } })
        }
        2 => serde_json::json!({ "event": "pusher:unsubscribe", "data": { "channel": channel } }),
        3 => {
            let data = format!(r#"{{"id":"{user}","watchlist":["0","1"]}}"#);
            let auth = format!("app-key:{}", sign(&format!("{socket_id}::user::{data}")));
            serde_json::json!({ "event": "pusher:signin",
                "data": { "auth": auth, "user_data": data } })
        }
        4 => {
            let data = String::from_utf8_lossy(source.some()).into_owned();
            serde_json::json!({ "event": "client-e", "channel": channel, "data": data })
        }
        _ => serde_json::json!({ "event": "pusher:ping", "data": {} }),
    };
    value.to_string()
}

/// A call of the HTTP API with a good signature.
fn call(source: &mut Source<'_>) -> String {
    let channel = CHANNELS[source.below(CHANNELS.len())];
    let data = String::from_utf8_lossy(source.some()).into_owned();
    let event = serde_json::json!({ "name": "e", "channel": channel, "data": data });
    let (method, page, body) = match source.below(7) {
        0 | 1 => ("POST", "events".to_owned(), event.to_string()),
        2 => {
            let batch = serde_json::json!({ "batch": [event.clone(), event] });
            ("POST", "batch_events".to_owned(), batch.to_string())
        }
        3 => ("GET", "channels".to_owned(), String::new()),
        4 => ("GET", format!("channels/{channel}/users"), String::new()),
        5 => ("POST", format!("users/{}/terminate_connections", source.below(3)), String::new()),
        _ => ("GET", "ledger/connections".to_owned(), String::new()),
    };
    let digest = match body.is_empty() {
        true => String::new(),
        false => format!("&body_md5={}", hex::encode(Md5::digest(body.as_bytes()))),
    };
    let query = format!("auth_key=app-key&auth_timestamp={SECONDS}&auth_version=1.0{digest}");
    let signature = sign(&format!("{method}\n/apps/1001/{page}\n{query}"));
    let length = body.len();
    format!(
        "{method} /apps/1001/{page}?{query}&auth_signature={signature} HTTP/1.1\r\nHost: h\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

/// A request of the HTTP fallback, for one of few sessions.
fn post(source: &mut Source<'_>, socket_id: &str) -> String {
    let session = source.below(3);
    let (verb, body) = match source.below(5) {
        0 => ("xhr", String::new()),
        1 => ("xhr_streaming", String::new()),
        2 => ("xhr_send", String::from_utf8_lossy(source.some()).into_owned()),
        _ => ("xhr_send", serde_json::json!([command(source, socket_id)]).to_string()),
    };
    let length = body.len();
    format!(
        "POST /pusher/app/app-key/1/session{session}/{verb}?protocol=7 HTTP/1.1\r\nHost: h\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

fuzz_target!(|bytes: &[u8]| {
    let mut world = World::new();
    let mut source = Source(bytes);
    for _ in 0..STEPS {
        if world.step(&mut source).is_none() {
            break;
        }
        world.run();
        if let Err(broken) = world.shard.broker.check() {
            panic!("{broken}");
        }
    }
    for at in 0..world.peers.len() {
        world.act(at, Action::Drop);
    }
    world.run();
    let broker = &world.shard.broker;
    assert!(broker.check().is_ok());
    assert_eq!(broker.counts().1, 0, "nobody subscribes any more");
    assert!(world.shard.channels().is_empty() && world.shard.users().is_empty());
});
