//! The HTTP fallback without sockets: what a request asks, how it is answered in parts, and a
//! session that begins where a WebSocket's handshake ends.

use super::*;
use crate::session::fallback::{Part, Verb};
use sluicegate_wire::fallback;

fn request(session: &str, verb: &str, more: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST /pusher/app/app-key/7/{session}/{verb}?protocol=7 HTTP/1.1\r\nHost: h\r\n{more}\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

fn posted(world: &mut World, peer: usize, request: &str) -> Box<Post> {
    world.feed(peer, request.as_bytes());
    assert_eq!(world.http(peer), "", "the host answers it");
    let session = world.peers[peer].session.as_mut().unwrap();
    assert!(session.is_carrying() && session.can_carry());
    assert_eq!(session.wait().0, Wait::Carry);
    let post = session.take_post().expect("it is whole");
    assert_eq!(session.take_post(), None, "it is told once");
    post
}

fn answer(world: &mut World, peer: usize, part: Part) -> String {
    world.peers[peer].session.as_mut().unwrap().answer(&mut world.shard, part);
    while world.run() {}
    world.http(peer)
}

/// A session of the fallback as a peer, whose transport takes frames.
fn open(world: &mut World, post: &Post) -> Result<usize, (u16, String)> {
    let mut session = Session::fallback(&mut world.shard, post)?;
    session.settle(&mut world.shard, world.peers.len() as u64);
    let session = Some(session);
    world.peers.push(Peer { session, inbox: Vec::new(), out: Vec::new(), is_shut: false });
    while world.run() {}
    Ok(world.peers.len() - 1)
}

#[test]
fn a_post_is_answered_in_parts_and_the_connection_stays() {
    let mut world = World::new();
    let peer = world.connect();
    let post = posted(&mut world, peer, &request("abcdefgh", "xhr_streaming", "", ""));
    assert_eq!((post.verb, post.name.key(), post.chunked), (Verb::Stream, "app-key", true));
    let head = answer(&mut world, peer, Part::Begin { chunked: true, bytes: b"o\n".to_vec() });
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"), "{head}");
    assert!(head.ends_with("\r\n\r\n2\r\no\n\r\n"), "{head}");
    assert_eq!(
        answer(&mut world, peer, Part::More(b"0123456789\n".to_vec())),
        "b\r\n0123456789\n\r\n"
    );
    assert_eq!(world.wait(peer), Wait::Carry);
    assert_eq!(answer(&mut world, peer, Part::End(b"h\n".to_vec())), "2\r\nh\n\r\n0\r\n\r\n");
    assert_eq!(world.wait(peer), Wait::Idle);
    let post = posted(&mut world, peer, &request("abcdefgh", "xhr_send", "", "[]"));
    assert_eq!((post.verb, post.body.as_slice()), (Verb::Send, &b"[]"[..]));
    let told = answer(&mut world, peer, Part::Whole(204, Vec::new()));
    assert!(told.starts_with("HTTP/1.1 204 No Content\r\nConnection: keep-alive\r\n"), "{told}");
    let last = request("abcdefgh", "xhr", "Connection: close\r\n", "");
    assert_eq!(posted(&mut world, peer, &last).verb, Verb::Poll);
    let told = answer(&mut world, peer, Part::Whole(200, b"h\n".to_vec()));
    assert!(told.contains("Connection: close\r\n") && told.ends_with("\r\n\r\nh\n"), "{told}");
    assert!(world.peers[peer].is_shut);
}

#[test]
fn nothing_is_made_while_what_was_made_is_on_its_way() {
    let mut world = World::new();
    let peer = world.connect();
    posted(&mut world, peer, &request("abcdefgh", "xhr_streaming", "", ""));
    world.stopped.push(peer);
    answer(&mut world, peer, Part::Begin { chunked: true, bytes: b"o\n".to_vec() });
    let session = world.peers[peer].session.as_ref().unwrap();
    assert!(session.is_carrying() && !session.can_carry());
    world.stopped.clear();
    let outlet = session.outlet();
    world.shard.broker.writable(outlet);
    while world.run() {}
    assert!(world.peers[peer].session.as_ref().unwrap().can_carry());
}

#[test]
fn a_session_is_a_websocket_after_its_handshake() {
    let app = App { max_connections: 1, ..App::development() };
    let mut world = World::with(Shard::new(Limits::default(), vec![app], || 5).unwrap());
    world.shard.is_ready = true;
    let peer = world.connect();
    let post = posted(&mut world, peer, &request("abcdefgh", "xhr", "", ""));
    let one = open(&mut world, &post).unwrap();
    assert!(world.frames(one)[0].contains("pusher:connection_established"));
    assert_eq!(open(&mut world, &post).unwrap_err().0, 4004, "it counts as a connection");
    let wish = serde_json::json!({ "event": "pusher:subscribe", "data": { "channel": "a" } });
    let body = serde_json::json!([wish.to_string()]).to_string();
    world.feed(one, &fallback::frames(body.as_bytes(), MAX_MESSAGE).unwrap());
    assert!(world.frames(one)[0].contains("subscription_succeeded"));
    world.timeout(one);
    assert_eq!(world.wait(one), Wait::Pong);
    world.feed(one, &fallback::here());
    assert_eq!(world.wait(one), Wait::Activity, "asking for a response is a sign of life");
    world.peers[one].out.clear();
    world.peers[one].session.as_mut().unwrap().flooded(&mut world.shard);
    while world.run() {}
    assert!(world.frames(one).concat().contains("4100"));
    assert!(world.peers[one].is_shut);
}

#[test]
fn who_is_refused_has_no_session() {
    let mut world = World::new();
    for (key, query, code) in
        [("nobody", "protocol=7", 4001), ("app-key", "protocol=3", 4007), ("app-key", "", 4008)]
    {
        let peer = world.connect();
        let whole = request("abcdefgh", "xhr", "", "").replace("protocol=7", query);
        let post = posted(&mut world, peer, &whole.replace("app-key", key));
        assert_eq!(open(&mut world, &post).unwrap_err().0, code);
    }
    let page = "https://a.example".to_owned();
    let app = App { allowed_origins: vec![page], ..App::development() };
    let mut world = World::with(Shard::new(Limits::default(), vec![app], || 5).unwrap());
    for (origin, code) in [("https://a.example", None), ("https://b.example", Some(4009))] {
        let peer = world.connect();
        let whole = request("abcdefgh", "xhr", &format!("Origin: {origin}\r\n"), "");
        let post = posted(&mut world, peer, &whole);
        assert_eq!(open(&mut world, &post).err().map(|(code, _)| code), code, "{origin}");
    }
}

#[test]
fn names_lead_to_all_shards_and_the_secret_decides() {
    let mut world = World::new();
    let peer = world.connect();
    let name = posted(&mut world, peer, &request("abcdefgh", "xhr", "", "")).name;
    let owners: Vec<u32> = (0..64).map(|secret| name.owner(&[secret; 32], 4)).collect();
    assert!((0..4).all(|shard| owners.contains(&shard)));
    assert_eq!(name.owner(&[7; 32], 1), 0);
}
