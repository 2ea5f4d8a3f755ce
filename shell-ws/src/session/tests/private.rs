//! Private channels, and the events that their subscribers send each other.

use super::*;
use crate::session::auth::tests::token;
use serde_json::{Value, json};

/// Subscribes with what the app's server signed.
fn join(world: &mut World, peer: usize, socket_id: &str, channel: &str) -> Value {
    let auth = token(&App::development(), &format!("{socket_id}:{channel}"));
    ask(world, peer, &json!({ "channel": channel, "auth": auth }))
}

pub(super) fn ask(world: &mut World, peer: usize, data: &Value) -> Value {
    let text = json!({ "event": "pusher:subscribe", "data": data }).to_string();
    let frames = world.say(peer, &text);
    serde_json::from_str(&frames[0]).unwrap()
}

/// Two subscribers of one private channel.
fn pair(world: &mut World) -> [usize; 2] {
    [(); 2].map(|()| {
        let (peer, id) = world.client();
        let answer = join(world, peer, &id, "private-a");
        assert_eq!(answer["event"], "pusher_internal:subscription_succeeded");
        peer
    })
}

pub(super) fn send(name: &str, channel: &str, data: &Value) -> String {
    json!({ "event": name, "channel": channel, "data": data }).to_string()
}

pub(super) fn fault(frames: &[String]) -> (Value, String) {
    let value: Value = serde_json::from_str(&frames[0]).unwrap();
    assert_eq!(value["event"], "pusher:error", "{value}");
    (value["data"]["code"].clone(), value["data"]["message"].as_str().unwrap().to_owned())
}

#[test]
fn a_private_channel_is_for_those_whom_the_app_signs() {
    let mut world = World::new();
    let (peer, id) = world.client();
    let (_, other) = world.client();
    for channel in ["private-a", "private-encrypted-a", "private-encrypteda"] {
        for (auth, what) in [
            (json!(null), "missing"),
            (json!(""), "missing"),
            (json!(token(&App::development(), &format!("{other}:{channel}"))), "does not match"),
            (json!(token(&App::development(), &format!("{id}:private-b"))), "does not match"),
            (json!("other-key:00"), "not the key"),
        ] {
            let answer = ask(&mut world, peer, &json!({ "channel": channel, "auth": auth }));
            assert_eq!(answer["event"], "pusher:subscription_error", "{auth}");
            assert_eq!(
                (&answer["data"]["type"], &answer["data"]["status"]),
                (&json!("AuthError"), &json!(401))
            );
            assert!(answer["data"]["error"].as_str().unwrap().contains(what), "{answer}");
        }
        assert_eq!(join(&mut world, peer, &id, channel)["data"], "{}");
    }
    let data = r#"{"user_id":"1"}"#;
    let auth = token(&App::development(), &format!("{id}:private-c:{data}"));
    let wish = json!({ "channel": "private-c", "auth": auth, "channel_data": data });
    assert_eq!(ask(&mut world, peer, &wish)["data"], "{}", "a signature may cover channel_data");
    world.publish(&event(&["private-a", "private-encrypted-a"], "1"));
    assert_eq!(world.frames(peer).len(), 2);
}

#[test]
fn a_client_event_goes_to_the_others_as_it_came() {
    let mut world = World::new();
    let [first, second] = pair(&mut world);
    for data in [json!({ "x": [1, "2"] }), json!("text"), json!(null)] {
        let text = send("client-move", "private-a", &data);
        assert_eq!(world.say(first, &text), [""; 0], "not to its sender, and no answer");
        let frames = world.frames(second);
        let value: Value = serde_json::from_str(&frames[0]).unwrap();
        assert_eq!(value, json!({ "event": "client-move", "channel": "private-a", "data": data }));
    }
    let books = world.shard.broker.ledger();
    assert_eq!((books.delivered.records, books.dropped.total().records), (3, 0));
}

#[test]
fn client_events_that_break_a_rule_are_answered_and_relayed_to_nobody() {
    let mut world = World::new();
    let [first, second] = pair(&mut world);
    world.subscribe(first, "news");
    for (name, channel, what) in [
        ("client-e", "news", "private or presence"),
        ("client-e", "private-b", "subscribe"),
        ("client-e", "private-encrypted-a", "not encrypted"),
    ] {
        let frames = world.say(first, &send(name, channel, &json!({})));
        let (code, text) = fault(&frames);
        assert_eq!(code, 4301);
        assert!(text.contains(what), "{text}");
    }
    let large = json!("x".repeat(10_239));
    let (_, text) = fault(&world.say(first, &send("client-e", "private-a", &large)));
    assert!(text.contains("10241 bytes, the limit is 10240"), "{text}");
    let mut refused = 0;
    for _ in 0..12 {
        refused += world.say(first, &send("client-e", "private-a", &json!({}))).len();
    }
    assert_eq!((refused, world.frames(second).len()), (2, 10), "ten in a second");
    assert_eq!(world.shard.broker.ledger().offered.records, 10, "what breaks a rule is no record");
}

#[test]
fn an_app_allows_client_events_when_it_says_so() {
    let app = App { client_events: false, ..App::development() };
    let mut world = World::with(Shard::new(Limits::default(), vec![app], || 5).unwrap());
    world.shard.is_ready = true;
    let (peer, id) = world.client();
    join(&mut world, peer, &id, "private-a");
    let (code, text) = fault(&world.say(peer, &send("client-e", "private-a", &json!({}))));
    assert_eq!(code, 4301);
    assert!(text.contains("`client_events`"), "{text}");
}

#[test]
fn a_client_learns_how_many_of_its_events_were_discarded() {
    let mut world = limited(&[("pub_queue_depth", 1), ("pub_queue_total", 1)]);
    let [first, second] = pair(&mut world);
    let frames: Vec<u8> = (0..3)
        .flat_map(|n| masked(0x81, send("client-e", "private-a", &json!(n)).as_bytes()))
        .collect();
    world.peers[first].inbox.extend(frames);
    while world.digest(first) {}
    world.run();
    let books = world.shard.broker.ledger();
    assert_eq!((books.sequenced.records, books.shed.total().records), (1, 2));
    let (code, text) = fault(&world.frames(first));
    assert_eq!(code, 4301);
    assert!(text.contains("2 of your client events were discarded"), "{text}");
    assert_eq!(world.frames(second).len(), 1);
}

#[test]
fn what_is_no_client_event_is_relayed_to_nobody() {
    let mut world = World::new();
    let [first, second] = pair(&mut world);
    for name in [
        "",
        "e",
        "client",
        "clientx-e",
        "Client-e",
        "pusher:e",
        "pusher:error",
        "pusher_internal:member_added",
        "pusher_internal:subscription_succeeded",
    ] {
        let (code, text) = fault(&world.say(first, &send(name, "private-a", &json!({}))));
        assert!(code.is_null() && text.starts_with("unknown event"), "{name}: {code} {text}");
    }
    assert_eq!(world.frames(second), [""; 0]);
    assert_eq!(world.shard.broker.ledger().offered.records, 0);
}

#[test]
fn a_client_event_carries_what_the_protocol_names_and_nothing_else() {
    let mut world = World::new();
    let [first, second] = pair(&mut world);
    let text = r#"{"user_id":"forged","event":"client-e","socket_id":"1.1","more":{"x":1},
        "channel":"private-a","data":{"a":1}}"#;
    assert!(world.say(first, text).is_empty());
    let expected = r#"{"event":"client-e","channel":"private-a","data":{"a":1}}"#;
    assert_eq!(world.frames(second), [expected], "nobody is anybody on a private channel");
}

#[test]
fn who_has_left_a_channel_sends_nothing_to_it() {
    let mut world = World::new();
    let [first, second] = pair(&mut world);
    let leave = r#"{"event":"pusher:unsubscribe","data":{"channel":"private-a"}}"#;
    assert!(world.say(first, leave).is_empty());
    let (code, text) = fault(&world.say(first, &send("client-e", "private-a", &json!({}))));
    assert!(code == 4301 && text.contains("subscribe"), "{code} {text}");
    assert_eq!(world.frames(second), [""; 0]);
}
