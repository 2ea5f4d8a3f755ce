//! How a connection begins, what keeps it alive, and with which codes it ends.

use super::private::{fault, send};
use super::*;
use serde_json::{Value, json};
use std::time::Duration;

const TARGET: &str = "/app/app-key?protocol=7";

/// A handshake with more lines: the head of its answer, and the frames after it.
fn greet(world: &mut World, target: &str, more: &str) -> (String, Vec<String>) {
    let peer = world.connect();
    let request = upgrade(target).replace("\r\n\r\n", &format!("\r\n{more}\r\n"));
    world.feed(peer, request.as_bytes());
    let out = std::mem::take(&mut world.peers[peer].out);
    let end = out.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    (String::from_utf8(out[..end].to_vec()).unwrap(), frames(&out[end..]))
}

fn is_welcome(frames: &[String]) -> bool {
    matches!(frames, [one] if one.contains("pusher:connection_established"))
}

#[test]
fn an_error_frame_comes_before_each_close_whatever_version_the_client_speaks() {
    for version in 4..=7 {
        let app = App { max_connections: 2, ..App::development() };
        let mut world = World::with(Shard::new(Limits::default(), vec![app], || 5).unwrap());
        let target = format!("/app/app-key?protocol={version}");
        let [silent, stays] = [world.connect(), world.connect()];
        for peer in [silent, stays] {
            assert!(is_welcome(&world.handshake(peer, &target)), "{version}");
        }
        let ended = |frames: &[String], code: u64| {
            let (said, _) = fault(frames);
            assert_eq!((frames.len(), said), (2, json!(code)), "{version}: {frames:?}");
            assert!(frames[1].starts_with(&format!("close {code} ")), "{version}: {frames:?}");
        };
        ended(&greet(&mut world, &target, "").1, 4004);
        world.timeout(silent);
        let asked = world.frames(silent);
        let ping = r#"{"event":"pusher:ping","data":"{}"}"#;
        assert_eq!(asked, [if version < 5 { "opcode 9" } else { ping }], "{version}");
        world.timeout(silent);
        ended(&world.frames(silent), 4201);
        let session = world.peers[stays].session.as_mut().unwrap();
        session.shut_down(&mut world.shard);
        while world.run() {}
        ended(&world.frames(stays), 4200);
    }
}

#[test]
fn what_a_client_calls_itself_is_not_judged() {
    let mut world = World::new();
    for more in
        ["", "client=&version=", "version=not.a.version", "version=%00&client=%ff", "version"]
    {
        let frames = greet(&mut world, &format!("{TARGET}&{more}"), "").1;
        assert!(is_welcome(&frames), "{more}: {frames:?}");
    }
}

#[test]
fn no_subprotocol_is_chosen() {
    let mut world = World::new();
    let (head, frames) = greet(&mut world, TARGET, "Sec-WebSocket-Protocol: pusher, soap\r\n");
    assert!(is_welcome(&frames));
    assert!(!head.to_lowercase().contains("sec-websocket-protocol"), "{head}");
}

#[test]
fn any_page_may_connect_unless_the_app_lists_some() {
    let listed = vec!["https://a.example".to_owned(), "http://b.example:8080".to_owned()];
    for (allowed_origins, lists) in [(Vec::new(), false), (listed, true)] {
        let app = App { allowed_origins, ..App::development() };
        let mut world = World::with(Shard::new(Limits::default(), vec![app], || 5).unwrap());
        for (origin, is_listed) in [
            ("https://a.example", true),
            ("https://A.example", true),
            ("http://b.example:8080", true),
            ("http://a.example", false),
            ("https://a.example:444", false),
            ("https://a.example.evil", false),
            ("null", false),
        ] {
            let frames = greet(&mut world, TARGET, &format!("Origin: {origin}\r\n")).1;
            if is_listed || !lists {
                assert!(is_welcome(&frames), "{origin}: {frames:?}");
            } else {
                assert_eq!(fault(&frames).0, 4009, "{origin}: {frames:?}");
                assert!(frames[1].starts_with("close 4009 "), "{origin}: {frames:?}");
            }
        }
        assert!(is_welcome(&greet(&mut world, TARGET, "").1), "who is no page is let in");
    }
}

#[test]
fn clients_are_told_how_long_they_may_be_silent_and_never_not_at_all() {
    let mut world = World::new();
    for (timeout, told) in [(30_000, 30), (1_999, 1), (10, 1)] {
        world.shard.settings.activity_timeout = Duration::from_millis(timeout);
        let frames = greet(&mut world, TARGET, "").1;
        let value: Value = serde_json::from_str(&frames[0]).unwrap();
        assert_eq!(value.as_object().unwrap().len(), 2, "event and data: {value}");
        let data: Value = serde_json::from_str(value["data"].as_str().unwrap()).unwrap();
        assert_eq!(data["activity_timeout"], told);
    }
}

#[test]
fn whatever_a_client_sends_is_a_sign_of_life() {
    for frame in [
        masked(0x81, PING.as_bytes()),
        masked(0x81, b"no command"),
        masked(0x82, b"\x00\xff"),
        masked(0x89, b""),
        masked(0x8a, b""),
        masked(0x01, b"the first part"),
    ] {
        let mut world = World::new();
        let (peer, _) = world.client();
        world.timeout(peer);
        assert_eq!(world.wait(peer), Wait::Pong);
        world.feed(peer, &frame);
        assert_eq!(world.wait(peer), Wait::Activity, "{frame:?}");
        assert!(!world.peers[peer].is_shut);
    }
}

#[test]
fn what_a_client_is_sent_is_no_sign_of_its_life() {
    let mut world = World::new();
    let (peer, _) = world.client();
    world.subscribe(peer, "news");
    let wait = |world: &World| world.peers[peer].session.as_ref().unwrap().wait();
    let before = wait(&world);
    for _ in 0..3 {
        world.publish(&event(&["news"], "1"));
    }
    assert_eq!(world.frames(peer).len(), 3);
    assert_eq!(wait(&world), before, "it gets events and says nothing: it is asked all the same");
}

#[test]
fn errors_that_close_nothing_have_no_code_that_clients_take_for_a_close() {
    let mut world = World::new();
    let (peer, _) = world.client();
    let subscribe = |data: Value| json!({ "event": "pusher:subscribe", "data": data }).to_string();
    let mut said = vec![
        "{".to_owned(),
        "7".to_owned(),
        "{}".to_owned(),
        send("pusher:nothing", "news", &json!({})),
        send("message", "news", &json!({})),
        send("client-e", "news", &json!({})),
        send("client-e", "private-a", &json!({})),
        send("pusher:signin", "", &json!({ "auth": "app-key:00", "user_data": "{}" })),
        subscribe(json!({})),
        subscribe(json!({ "channel": "a b" })),
        subscribe(json!({ "channel": "private-a", "auth": "app-key:00" })),
        subscribe(json!({ "channel": "#server-to-user-u" })),
        subscribe(json!({ "channel": "a", "rewind": 1 })),
    ];
    said.push(format!(
        r#"{{"event":"client-e","channel":"c","data":{}1{}}}"#,
        "[".repeat(99),
        "]".repeat(99)
    ));
    for text in said {
        let frames = world.say(peer, &text);
        assert_eq!(frames.len(), 1, "{text}: {frames:?}");
        let value: Value = serde_json::from_str(&frames[0]).unwrap();
        if value["event"] == "pusher:subscription_error" {
            assert!(value["data"].get("code").is_none(), "{value}");
            continue;
        }
        assert_eq!(value["event"], "pusher:error", "{text}: {value}");
        let code = value["data"].get("code").map(|code| code.as_u64().unwrap());
        assert!(code.is_none_or(|code| (4300..4400).contains(&code)), "{text}: {value}");
    }
    assert!(!world.peers[peer].is_shut && world.say(peer, PING).len() == 1);
}

#[test]
fn longer_names_are_for_the_operator_to_allow() {
    for max in [164, 200] {
        let mut world = World::new();
        world.shard.settings.max_channel_name = max;
        let (peer, _) = world.client();
        for (len, is_legal) in [(max, true), (max + 1, false)] {
            let name = "c".repeat(len);
            world.frames(peer);
            let word = if is_legal { "subscription_succeeded" } else { "InvalidChannel" };
            assert!(world.subscribe(peer, &name)[0].contains(word), "{len} of {max}");
            let status = if is_legal { 200 } else { 400 };
            let answer = world.publish(&event(&[&name], "1"));
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{len} of {max}: {answer}");
        }
    }
}

#[test]
fn a_subscription_begins_with_its_welcome_and_misses_nothing_after_it() {
    let mut world = World::new();
    let (peer, _) = world.client();
    let publishers: Vec<usize> = (0..6).map(|_| world.connect()).collect();
    let wish = |event: &str| {
        let data = json!({ "channel": "news" });
        masked(0x81, json!({ "event": event, "data": data }).to_string().as_bytes())
    };
    // All in one turn: what others say between one wish and the next.
    for (n, publisher) in publishers.into_iter().enumerate() {
        world.peers[publisher].inbox.extend(post(&event(&["news"], &n.to_string()), NOW).bytes());
        world.digest(publisher);
        match n {
            1 | 3 => world.peers[peer].inbox.extend(wish("pusher:subscribe")),
            2 => world.peers[peer].inbox.extend(wish("pusher:unsubscribe")),
            _ => {}
        }
        world.digest(peer);
    }
    while world.run() {}
    let frames = world.frames(peer);
    let short = |frame: &String| {
        let value: Value = serde_json::from_str(frame).unwrap();
        match value["event"].as_str().unwrap().split_once(':') {
            Some((_, name)) => name.to_owned(),
            None => value["data"].as_str().unwrap().to_owned(),
        }
    };
    let told: Vec<String> = frames.iter().map(short).collect();
    let last = told.iter().rposition(|word| word == "subscription_succeeded").unwrap();
    assert_eq!(told[0], "subscription_succeeded", "nothing before it: {told:?}");
    let rest = &told[last + 1..];
    assert!(rest.ends_with(&["4".to_owned(), "5".to_owned()]), "nothing after it is missed");
    let mut once = rest.to_vec();
    once.dedup();
    assert_eq!(once, rest, "nothing comes twice: {told:?}");
}
