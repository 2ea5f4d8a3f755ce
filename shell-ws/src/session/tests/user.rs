//! Users that sign in, what is sent to them alone, and who watches them.

use super::private::ask;
use super::query::call;
use super::*;
use crate::session::auth::tests::token;
use serde_json::{Value, json};

/// What a client says to sign in, with a good signature.
fn sign_in(socket_id: &str, user: &Value) -> String {
    let data = user.to_string();
    let auth = token(&App::development(), &format!("{socket_id}::user::{data}"));
    json!({ "event": "pusher:signin", "data": { "auth": auth, "user_data": data } }).to_string()
}

/// A new client that has signed in, and what it was told.
fn user(world: &mut World, user: &Value) -> (usize, Vec<Value>) {
    let (peer, id) = world.client();
    let frames = world.say(peer, &sign_in(&id, user));
    (peer, frames.iter().map(|frame| serde_json::from_str(frame).unwrap()).collect())
}

/// The events of a watchlist frame: a name and ids each.
fn watched(frame: &str) -> Vec<(String, Value)> {
    let frame: Value = serde_json::from_str(frame).unwrap();
    assert_eq!(frame["event"], "pusher_internal:watchlist_events");
    let data: Value = serde_json::from_str(frame["data"].as_str().unwrap()).unwrap();
    let events = data["events"].as_array().unwrap().iter();
    events
        .map(|event| (event["name"].as_str().unwrap().to_owned(), event["user_ids"].clone()))
        .collect()
}

#[test]
fn a_user_signs_in_with_what_the_app_signed_and_stays_who_it_is() {
    let mut world = World::new();
    let (peer, id) = world.client();
    for (text, what) in [
        (sign_in("1.1", &json!({ "id": "u" })), "does not match"),
        (sign_in(&id, &json!({})), "id: missing"),
        (sign_in(&id, &json!({ "id": "" })), "an id has"),
        (json!({ "event": "pusher:signin", "data": {} }).to_string(), "auth: missing"),
    ] {
        let frames = world.say(peer, &text);
        let value: Value = serde_json::from_str(&frames[0]).unwrap();
        assert_eq!(value["event"], "pusher:error");
        assert!(value["data"].get("code").is_none(), "clients act on codes: {value}");
        assert!(value["data"]["message"].as_str().unwrap().contains(what), "{value}");
    }
    for _ in 0..2 {
        let frames = world.say(peer, &sign_in(&id, &json!({ "id": "u" })));
        let value: Value = serde_json::from_str(&frames[0]).unwrap();
        assert_eq!(value["event"], "pusher:signin_success");
        assert_eq!(value["data"]["user_data"], r#"{"id":"u"}"#);
    }
    let frames = world.say(peer, &sign_in(&id, &json!({ "id": "v" })));
    assert!(frames[0].contains("signed in as"), "{frames:?}");
    assert_eq!(world.shard.users().len(), 1);
    world.end_of_input(peer);
    assert!(world.shard.users().is_empty(), "nobody is kept");
}

#[test]
fn what_is_sent_to_a_user_reaches_all_its_connections_and_nobody_else() {
    let mut world = World::new();
    let channel = json!({ "channel": "#server-to-user-u", "auth": "" });
    let [one, two] = [(); 2].map(|()| user(&mut world, &json!({ "id": "u" })).0);
    let (other, _) = user(&mut world, &json!({ "id": "v" }));
    let (stranger, _) = world.client();
    for peer in [one, two] {
        let answer = ask(&mut world, peer, &channel);
        assert_eq!(answer["event"], "pusher_internal:subscription_succeeded");
    }
    for peer in [other, stranger] {
        let answer = ask(&mut world, peer, &channel);
        assert_eq!(answer["data"]["type"], "AuthError", "nobody listens to others");
    }
    assert!(world.publish(&event(&["#server-to-user-u"], "1")).starts_with("HTTP/1.1 200 "));
    for peer in [one, two] {
        let value: Value = serde_json::from_str(&world.frames(peer)[0]).unwrap();
        assert_eq!((&value["channel"], &value["data"]), (&json!("#server-to-user-u"), &json!("1")));
    }
    assert!(world.frames(other).is_empty() && world.frames(stranger).is_empty());
    assert_eq!(world.shard.channels().len(), 0, "it is nobody else's channel");
}

#[test]
fn a_user_is_a_member_of_a_presence_channel_without_saying_so_again() {
    let mut world = World::new();
    let (peer, id) = world.client();
    world.say(peer, &sign_in(&id, &json!({ "id": "u", "user_info": { "n": 1 } })));
    let auth = token(&App::development(), &format!("{id}:presence-a"));
    let answer = ask(&mut world, peer, &json!({ "channel": "presence-a", "auth": auth }));
    let data: Value = serde_json::from_str(answer["data"].as_str().unwrap()).unwrap();
    assert_eq!(data["presence"]["hash"]["u"], json!({ "n": 1 }));
}

#[test]
fn watchers_are_told_who_is_there_and_who_comes_and_goes() {
    let mut world = World::new();
    let (_, told) = user(&mut world, &json!({ "id": "b" }));
    assert_eq!(told.len(), 1, "who watches nobody is told of nobody");
    let (a, told) = user(&mut world, &json!({ "id": "a", "watchlist": ["b", "c"] }));
    let status = vec![("online".to_owned(), json!(["b"])), ("offline".to_owned(), json!(["c"]))];
    assert_eq!(watched(&told[1].to_string()), status);
    let (c, _) = user(&mut world, &json!({ "id": "c" }));
    let (tab, _) = user(&mut world, &json!({ "id": "c" }));
    let frames = world.frames(a);
    assert_eq!(frames.len(), 1, "with the first connection only");
    assert_eq!(watched(&frames[0]), [("online".to_owned(), json!(["c"]))]);
    world.end_of_input(c);
    assert!(world.frames(a).is_empty(), "the other tab is still there");
    world.feed(tab, &masked(0x88, b""));
    assert_eq!(watched(&world.frames(a)[0]), [("offline".to_owned(), json!(["c"]))]);
    world.end_of_input(a);
    assert_eq!(world.shard.users().len(), 1, "nobody watches any more");
}

#[test]
fn a_long_watchlist_is_cut_and_said_so() {
    let mut world = World::new();
    let ids: Vec<_> = (0..101).map(|n| format!("u{n}")).collect();
    let (_, told) = user(&mut world, &json!({ "id": "a", "watchlist": ids }));
    assert_eq!(told[0]["event"], "pusher:signin_success");
    assert_eq!(told[1]["data"]["code"], 4302);
    let events = watched(&told[2].to_string());
    assert_eq!(events[0].1.as_array().unwrap().len(), 100);
}

#[test]
fn the_app_ends_the_connections_of_one_user() {
    let mut world = World::new();
    let [one, two] = [(); 2].map(|()| user(&mut world, &json!({ "id": "u" })).0);
    let (member, id) = world.client();
    let data = json!({ "user_id": "u" }).to_string();
    let auth = token(&App::development(), &format!("{id}:presence-a:{data}"));
    ask(
        &mut world,
        member,
        &json!({ "channel": "presence-a", "auth": auth, "channel_data": data }),
    );
    let answer = call(&mut world, "POST", "/apps/1001/users/u/terminate_connections", "", "{}");
    assert_eq!(answer, (200, json!({})));
    for peer in [one, two] {
        let frames = world.frames(peer);
        assert_eq!(frames.len(), 2, "{frames:?}");
        assert!(frames[0].contains("4009") && frames[1].starts_with("close 4009 "), "{frames:?}");
        assert!(world.peers[peer].is_shut);
    }
    assert!(world.frames(member).is_empty(), "who merely calls itself so stays");
    assert!(world.shard.users().is_empty());
    let answer =
        call(&mut world, "POST", "/apps/1001/users/nobody/terminate_connections", "", "{}");
    assert_eq!(answer.0, 200);
    let answer = call(&mut world, "POST", "/apps/1001/users/a%3Ab/terminate_connections", "", "{}");
    assert_eq!(answer.0, 400);
}

#[test]
fn an_app_for_known_users_closes_strangers() {
    let app = App { authorized_only: true, ..App::development() };
    let mut world = World::with(Shard::new(Limits::default(), vec![app], || 5).unwrap());
    let (stranger, _) = world.client();
    assert_eq!(world.wait(stranger), Wait::Identity);
    let before = world.peers[stranger].session.as_ref().unwrap().wait();
    world.subscribe(stranger, "a");
    world.say(stranger, r#"{"event":"pusher:ping"}"#);
    let after = world.peers[stranger].session.as_ref().unwrap().wait();
    assert_eq!(before, after, "whatever it says does not make its time longer");
    world.timeout(stranger);
    let frames = world.frames(stranger);
    assert!(frames.last().unwrap().starts_with("close 4009 "), "{frames:?}");
    let (known, _) = user(&mut world, &json!({ "id": "u" }));
    assert_eq!(world.wait(known), Wait::Activity);
    let (subscriber, id) = world.client();
    let auth = token(&App::development(), &format!("{id}:private-a"));
    ask(&mut world, subscriber, &json!({ "channel": "private-a", "auth": auth }));
    assert_eq!(world.wait(subscriber), Wait::Activity);
}
