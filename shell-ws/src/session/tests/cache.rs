//! Cache channels: a new subscriber is given the last event of the app's server right after its
//! word of welcome, or told that there is none.

use super::private::send;
use super::query::call;
use super::*;
use crate::hooks::{Webhook, What};
use crate::session::auth::tests::token;
use serde_json::{Value, json};

const KINDS: [&str; 4] =
    ["cache-a", "private-cache-a", "presence-cache-a", "private-encrypted-cache-a"];

/// What a client sends to be in a channel.
fn wish(socket_id: &str, channel: &str) -> String {
    let member = json!({ "user_id": socket_id }).to_string();
    let is_presence = channel.starts_with("presence-");
    let covered = if is_presence { format!(":{member}") } else { String::new() };
    let auth = token(&App::development(), &format!("{socket_id}:{channel}{covered}"));
    let mut data = json!({ "channel": channel, "auth": auth });
    if is_presence {
        data["channel_data"] = member.into();
    }
    json!({ "event": "pusher:subscribe", "data": data }).to_string()
}

/// Frames by their events, with the data of those of the app.
fn events(frames: &[String]) -> Vec<String> {
    let short = |frame: &String| {
        let value: Value = serde_json::from_str(frame).unwrap();
        let event = value["event"].as_str().unwrap();
        match event.split_once(':') {
            Some((_, name)) => name.to_owned(),
            None => format!("{event} {}", value["data"].as_str().unwrap_or("object")),
        }
    };
    frames.iter().map(short).collect()
}

/// A new client subscribes: who it is, and what it is sent then.
fn join(world: &mut World, channel: &str) -> (usize, Vec<String>) {
    let (peer, id) = world.client();
    let frames = world.say(peer, &wish(&id, channel));
    (peer, events(&frames))
}

fn told(world: &mut World, peer: usize) -> Vec<String> {
    events(&world.frames(peer))
}

#[test]
fn the_last_event_of_the_app_comes_right_after_the_welcome() {
    for channel in KINDS {
        let mut world = World::new();
        let (first, frames) = join(&mut world, channel);
        assert_eq!(frames, ["subscription_succeeded", "cache_miss"], "{channel}");
        for data in ["one", "two"] {
            let answer = world.publish(&event(&[channel], data));
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
        assert_eq!(told(&mut world, first), ["e one", "e two"]);
        let (second, frames) = join(&mut world, channel);
        assert_eq!(frames, ["subscription_succeeded", "e two"], "{channel}");
        world.publish(&event(&[channel], "three"));
        assert_eq!(told(&mut world, second), ["e three"], "{channel}: once, and nothing twice");
        let mut all = told(&mut world, first);
        all.retain(|frame| frame != "member_added");
        assert_eq!(all, ["e three"], "whoever was there gets nothing again");
    }
}

#[test]
fn a_miss_is_told_in_the_words_of_the_protocol() {
    let mut world = World::new();
    let (peer, _) = world.client();
    let frames = world.subscribe(peer, "cache-a");
    assert_eq!(frames[1], r#"{"event":"pusher:cache_miss","channel":"cache-a"}"#);
    let (peer, _) = world.client();
    assert_eq!(world.subscribe(peer, "a").len(), 1, "other channels miss nothing");
}

#[test]
fn it_is_kept_while_nobody_is_there_and_for_its_time() {
    let limits = Limits { retention_ms: 60_000, ..Limits::default() };
    let mut world = World::with(shard_with(limits));
    let (first, _) = join(&mut world, "cache-a");
    world.publish(&event(&["cache-a", "a"], "one"));
    world.end_of_input(first);
    world.shard.broker.advance(Instant::from_millis(60_000));
    assert_eq!(join(&mut world, "cache-a").1, ["subscription_succeeded", "e one"]);
    assert_eq!(join(&mut world, "a").1, ["subscription_succeeded"], "others keep nothing");
    world.shard.broker.advance(Instant::from_millis(60_001));
    assert_eq!(join(&mut world, "cache-a").1, ["subscription_succeeded", "cache_miss"]);
}

#[test]
fn what_subscribers_say_is_not_kept() {
    let mut world = World::new();
    let (first, _) = join(&mut world, "private-cache-a");
    let (second, _) = join(&mut world, "private-cache-a");
    assert_eq!(world.say(first, &send("client-x", "private-cache-a", &json!("1"))), [""; 0]);
    assert_eq!(told(&mut world, second), ["client-x 1"]);
    let (third, frames) = join(&mut world, "private-cache-a");
    assert_eq!(frames, ["subscription_succeeded", "cache_miss"]);
    world.publish(&event(&["private-cache-a"], "one"));
    world.say(first, &send("client-x", "private-cache-a", &json!("2")));
    assert_eq!(told(&mut world, third), ["e one", "client-x 2"]);
    assert_eq!(join(&mut world, "private-cache-a").1, ["subscription_succeeded", "e one"]);
}

#[test]
fn what_the_server_says_is_not_kept() {
    let app = App { subscription_counts: true, ..App::development() };
    let mut world = World::with(Shard::new(Limits::default(), vec![app], || 7).unwrap());
    world.shard.is_ready = true;
    let (_, frames) = join(&mut world, "cache-a");
    assert_eq!(frames, ["subscription_succeeded", "cache_miss", "subscription_count"]);
    let (_, frames) = join(&mut world, "cache-a");
    assert_eq!(frames[..2], ["subscription_succeeded", "cache_miss"], "the count is not kept");
    world.publish(&event(&["cache-a"], "one"));
    join(&mut world, "cache-a");
    let (_, frames) = join(&mut world, "cache-a");
    assert_eq!(frames[..2], ["subscription_succeeded", "e one"], "nor is it kept in its place");
}

/// What is published in the same turn, before the subscription is asked for or after it, comes
/// once and in order.
#[test]
fn what_is_published_in_the_turn_of_a_subscription_comes_after_what_was_kept() {
    for (kept, welcome) in [(true, "e old"), (false, "cache_miss")] {
        let mut world = World::new();
        let (talker, frames) = join(&mut world, "private-cache-a");
        assert_eq!(frames.len(), 2);
        if kept {
            world.publish(&event(&["private-cache-a"], "old"));
        }
        let (peer, id) = world.client();
        let [before, after] = [world.connect(), world.connect()];
        let mut bring = |peer: usize, bytes: &[u8]| {
            world.peers[peer].inbox.extend_from_slice(bytes);
            world.digest(peer);
        };
        let said =
            |data| masked(0x81, send("client-x", "private-cache-a", &json!(data)).as_bytes());
        bring(before, post(&event(&["private-cache-a"], "before"), NOW).as_bytes());
        bring(talker, &said("before"));
        bring(peer, &masked(0x81, wish(&id, "private-cache-a").as_bytes()));
        bring(after, post(&event(&["private-cache-a"], "after"), NOW).as_bytes());
        bring(talker, &said("after"));
        while world.run() {}
        let mut frames = told(&mut world, peer);
        assert_eq!(frames.drain(..2).collect::<Vec<_>>(), ["subscription_succeeded", welcome]);
        assert_eq!(frames, ["e before", "client-x before", "e after", "client-x after"]);
        assert_eq!(join(&mut world, "private-cache-a").1[1], "e after");
    }
}

#[test]
fn the_http_api_tells_what_is_kept_and_for_how_long() {
    let mut world = World::new();
    let path = "/apps/1001/channels/cache-a";
    let none = json!({ "occupied": false, "cache": null });
    assert_eq!(call(&mut world, "GET", path, "info=cache", ""), (200, none));
    let data = r#"{"é":"\"1\""}"#;
    world.publish(&event(&["cache-a"], data));
    world.shard.broker.advance(Instant::from_millis(10_001));
    let some = json!({ "occupied": false, "cache": { "data": data, "ttl": 3_590 } });
    assert_eq!(call(&mut world, "GET", path, "info=cache", ""), (200, some));
    let both = json!({
        "occupied": false, "subscription_count": 0, "cache": { "data": data, "ttl": 3_590 },
    });
    assert_eq!(call(&mut world, "GET", path, "info=cache,subscription_count", ""), (200, both));
    for (path, advice) in [("channels/a", "leave cache out"), ("channels", "of one channel")] {
        let path = format!("/apps/1001/{path}");
        let (status, text) = call(&mut world, "GET", &path, "info=cache", "");
        assert_eq!(status, 400);
        assert!(text.as_str().unwrap().contains(advice), "{text}");
    }
}

#[test]
fn the_apps_server_hears_of_a_miss_once() {
    let (url, events, channel_prefix) = ("http://h/".to_owned(), Vec::new(), String::new());
    let hook = Webhook { url, events, channel_prefix, batch: 1 };
    let app = App { webhooks: vec![hook], ..App::development() };
    let shard = Shard::new(Limits::default(), vec![app], || 7).unwrap();
    let mut world = World::with(shard);
    world.shard.is_ready = true;
    let misses = |world: &mut World, channel: &str| {
        let (peer, _) = join(world, channel);
        let mut told = Vec::new();
        while let Some(event) = world.shard.poll_hook() {
            told.extend((event.what == What::CacheMiss).then_some(event.channel));
        }
        (peer, told.len())
    };
    for channel in KINDS {
        let (first, told) = misses(&mut world, channel);
        assert_eq!(told, 1, "{channel}");
        let (second, told) = misses(&mut world, channel);
        assert_eq!(told, 0, "{channel}: its server knows");
        world.end_of_input(first);
        world.end_of_input(second);
        assert_eq!(misses(&mut world, channel).1, 1, "{channel}: it was empty since");
    }
    assert_eq!(misses(&mut world, "a").1, 0);
}
