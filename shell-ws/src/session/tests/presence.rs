//! Presence channels: who is told what when users come and go.

use super::private::{ask, fault, send};
use super::*;
use crate::roster::MAX_USERS;
use crate::session::auth::tests::token;
use serde_json::{Value, json};

const CHANNEL: &str = "presence-a";

fn wish(socket_id: &str, member: &Value) -> Value {
    let data = member.to_string();
    let auth = token(&App::development(), &format!("{socket_id}:{CHANNEL}:{data}"));
    json!({ "channel": CHANNEL, "auth": auth, "channel_data": data })
}

/// A new client in the channel, and what it was told.
fn join(world: &mut World, member: &Value) -> (usize, Value) {
    let (peer, id) = world.client();
    let answer = ask(world, peer, &wish(&id, member));
    (peer, answer)
}

fn user(id: &str) -> Value {
    json!({ "user_id": id, "user_info": { "name": id } })
}

/// The object in the string of an event's data.
fn data(frame: &str) -> (String, Value) {
    let value: Value = serde_json::from_str(frame).unwrap();
    let event = value["event"].as_str().unwrap().to_owned();
    (event, serde_json::from_str(value["data"].as_str().unwrap()).unwrap())
}

#[test]
fn a_user_is_announced_with_its_first_socket_and_taken_back_with_its_last() {
    let mut world = World::new();
    let (first, answer) = join(&mut world, &user("1"));
    let (event, all) = data(&answer.to_string());
    assert_eq!(event, "pusher_internal:subscription_succeeded");
    assert_eq!(
        all["presence"],
        json!({ "ids": ["1"], "hash": { "1": { "name": "1" } }, "count": 1 })
    );
    let (second, answer) = join(&mut world, &json!({ "user_id": 2 }));
    assert_eq!(data(&answer.to_string()).1["presence"]["ids"], json!(["1", "2"]));
    let told = world.frames(first);
    assert_eq!(
        data(&told[0]),
        ("pusher_internal:member_added".to_owned(), json!({ "user_id": "2", "user_info": null }))
    );
    let (tab, _) = join(&mut world, &json!({ "user_id": "2", "user_info": "other" }));
    assert!(world.frames(first).is_empty() && world.frames(second).is_empty(), "a second tab");
    world.say(
        second,
        &json!({ "event": "pusher:unsubscribe", "data": { "channel": CHANNEL } }).to_string(),
    );
    assert!(world.frames(first).is_empty(), "the other tab is still there");
    world.feed(tab, &masked(0x88, b""));
    let told = world.frames(first);
    assert_eq!(
        data(&told[0]),
        ("pusher_internal:member_removed".to_owned(), json!({ "user_id": "2" }))
    );
    world.end_of_input(first);
    assert!(world.shard.channels().is_empty(), "nobody is kept");
}

#[test]
fn a_socket_that_asks_again_is_told_again_and_nobody_else() {
    let mut world = World::new();
    let (first, _) = join(&mut world, &user("1"));
    let (peer, id) = world.client();
    let wish = wish(&id, &user("2"));
    for _ in 0..2 {
        let answer = ask(&mut world, peer, &wish);
        assert_eq!(data(&answer.to_string()).1["presence"]["count"], 2);
    }
    assert_eq!(world.frames(first).len(), 1);
    assert_eq!(world.shard.broker.counts().1, 2);
}

#[test]
fn members_say_who_they_are_and_are_not_too_many() {
    let mut world = World::new();
    let (peer, id) = world.client();
    let refused = |world: &mut World, wish: &Value| {
        let answer = ask(world, peer, wish);
        assert_eq!(answer["event"], "pusher:subscription_error", "{answer}");
        answer["data"]["type"].as_str().unwrap().to_owned()
    };
    let unsigned = json!({ "channel": CHANNEL, "auth": "app-key:00", "channel_data": "{}" });
    assert_eq!(refused(&mut world, &unsigned), "AuthError");
    let auth = token(&App::development(), &format!("{id}:{CHANNEL}"));
    assert_eq!(refused(&mut world, &json!({ "channel": CHANNEL, "auth": auth })), "BadMember");
    assert_eq!(refused(&mut world, &wish(&id, &json!({ "name": "x" }))), "BadMember");
    for n in 0..MAX_USERS {
        join(&mut world, &user(&n.to_string()));
    }
    assert_eq!(refused(&mut world, &wish(&id, &user("one more"))), "LimitReached");
    let again = ask(&mut world, peer, &wish(&id, &user("7")));
    assert_eq!(data(&again.to_string()).1["presence"]["count"], MAX_USERS);
}

#[test]
fn a_client_event_names_its_user() {
    let mut world = World::new();
    let (first, _) = join(&mut world, &user("1"));
    let (second, _) = join(&mut world, &user("2"));
    world.frames(first);
    let text = json!({ "event": "client-e", "channel": CHANNEL, "data": {}, "user_id": "forged" });
    assert!(world.say(second, &text.to_string()).is_empty());
    let told: Value = serde_json::from_str(&world.frames(first)[0]).unwrap();
    assert_eq!((&told["user_id"], &told["data"]), (&json!("2"), &json!({})));
    let (code, _) = fault(&world.say(second, &send("client-e", "presence-b", &json!({}))));
    assert_eq!(code, 4301);
}

#[test]
fn a_large_roster_behind_other_answers_closes_nothing() {
    let mut world = limited(&[("control_reserve_bytes", 8 << 10)]);
    for n in 0..60 {
        let info = "x".repeat(900);
        join(&mut world, &json!({ "user_id": n.to_string(), "user_info": info }));
    }
    let (peer, id) = world.client();
    world.peers[peer].inbox.extend(masked(0x81, br#"{"event":"pusher:ping"}"#));
    let text = json!({ "event": "pusher:subscribe", "data": wish(&id, &user("60")) }).to_string();
    world.peers[peer].inbox.extend(masked(0x81, text.as_bytes()));
    while world.digest(peer) {}
    world.run();
    let frames = world.frames(peer);
    assert_eq!(frames.len(), 2, "the pong, and the roster");
    assert_eq!(data(&frames[1]).1["presence"]["count"], 61);
}

#[test]
fn a_signature_covers_the_text_as_it_was_sent_and_all_of_it() {
    let mut world = World::new();
    let (peer, id) = world.client();
    let data = "{ \"user_id\" :\t\"\\u0031\",\n \"user_info\":{\"n\":1.0} }";
    let auth = |text: &str| token(&App::development(), text);
    let mut wish = json!({ "channel": CHANNEL, "channel_data": data });
    for text in [
        format!("{id}:{CHANNEL}"),
        format!("{id}:{CHANNEL}:{}", r#"{"user_id":"1","user_info":{"n":1.0}}"#),
        format!("{id}:{CHANNEL}:{data} "),
        format!("1.1:{CHANNEL}:{data}"),
        format!("{id}:presence-b:{data}"),
    ] {
        wish["auth"] = auth(&text).into();
        assert_eq!(ask(&mut world, peer, &wish)["data"]["type"], "AuthError", "{text}");
    }
    wish["auth"] = auth(&format!("{id}:{CHANNEL}:{data}")).into();
    let answer = ask(&mut world, peer, &wish);
    let members = data_of(&answer);
    assert_eq!(members["presence"]["ids"], json!(["1"]), "{answer}");
}

fn data_of(answer: &Value) -> Value {
    data(&answer.to_string()).1
}

#[test]
fn a_member_whose_connection_is_lost_goes_like_one_that_leaves() {
    type Way = fn(&mut World, usize);
    let ways: [Way; 4] = [
        |world, peer| {
            world.timeout(peer);
            world.timeout(peer);
        },
        |world, peer| world.end_of_input(peer),
        |world, peer| {
            world.act(peer, Action::Drop);
            while world.run() {}
        },
        |world, peer| world.feed(peer, &masked(0x81, b"\xff")),
    ];
    for (n, way) in ways.into_iter().enumerate() {
        let mut world = World::new();
        let (stays, _) = join(&mut world, &user("1"));
        let (goes, _) = join(&mut world, &user("2"));
        world.frames(stays);
        way(&mut world, goes);
        let told = world.frames(stays);
        assert_eq!(told.len(), 1, "way {n}");
        let removed = "pusher_internal:member_removed".to_owned();
        assert_eq!(data(&told[0]), (removed, json!({ "user_id": "2" })), "way {n}");
    }
}

#[test]
fn who_comes_later_sees_what_a_user_said_of_itself_first() {
    let mut world = World::new();
    join(&mut world, &json!({ "user_id": "1", "user_info": "first" }));
    let (_, answer) = join(&mut world, &json!({ "user_id": "1", "user_info": "second" }));
    assert_eq!(data_of(&answer)["presence"]["hash"], json!({ "1": "first" }));
    let (_, answer) = join(&mut world, &user("2"));
    assert_eq!(data_of(&answer)["presence"]["hash"]["1"], "first");
}
