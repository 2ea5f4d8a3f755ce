//! What no other Pusher server has, for clients that ask for it.

use super::*;
use crate::apps::Places;
use serde_json::{Value, json};

/// An event's number, or how many a gap stands for, below zero.
fn numbers(frames: &[String]) -> Vec<i64> {
    let number = |frame: &String| {
        let value: Value = serde_json::from_str(frame).unwrap();
        assert_eq!(value["channel"], "news");
        let data = value["data"].as_str().unwrap();
        if value["event"] == "pusher:gap" {
            let gap: Value = serde_json::from_str(data).unwrap();
            assert_eq!((&gap["place"], &gap["reason"]), (&json!("backlog"), &json!("drop_old")));
            return -gap["events"].as_i64().unwrap();
        }
        data.parse().unwrap()
    };
    frames.iter().map(number).collect()
}

#[test]
fn what_a_client_loses_is_told_between_what_it_gets_if_it_asked_for_it() {
    let limits = || Limits { high_water_bytes: 4_096, ..Limits::default() };
    for (query, wants) in [("&gaps=1", true), ("", false), ("&gaps=0", false)] {
        let mut world = World::with(shard_with(limits()));
        let slow = world.connect();
        world.handshake(slow, &format!("/app/app-key?protocol=7{query}"));
        world.subscribe(slow, "news");
        let mut seen = Vec::new();
        for round in 0..3 {
            world.stopped.push(slow);
            for n in 0..40 {
                assert!(
                    world
                        .publish(&event(&["news"], &(round * 40 + n).to_string()))
                        .starts_with("HTTP/1.1 200 ")
                );
            }
            world.stopped.clear();
            for outlet in std::mem::take(&mut world.refusing) {
                world.shard.broker.writable(outlet);
            }
            while world.run() {}
            seen.extend(numbers(&world.frames(slow)));
        }
        let mut next = 0;
        for number in &seen {
            match (number, wants) {
                (lost @ ..0, true) => next -= lost,
                (number, true) => {
                    assert_eq!(*number, next, "{seen:?}");
                    next += 1;
                }
                (number, false) => assert!(*number >= 0, "{seen:?}"),
            }
        }
        let gaps = seen.iter().filter(|number| **number < 0).count();
        assert_eq!((gaps, next), if wants { (3, 120) } else { (0, 0) }, "{seen:?}");
    }
}

/// Serves the development app with another `rewind`.
fn serve(world: &mut World, rewind: u32) {
    let places: Places = vec![Some(App { rewind, ..App::development() })];
    world.shard.serve(&places);
}

fn data_of(frames: &[String]) -> Vec<String> {
    let data = |frame: &String| serde_json::from_str::<Value>(frame).unwrap()["data"].clone();
    frames.iter().map(|frame| data(frame).as_str().unwrap_or("none").to_owned()).collect()
}

#[test]
fn a_cache_channel_keeps_as_many_events_as_its_app_says_for_those_who_ask() {
    for (kept, rewind, expected) in [
        (3, Some(2), vec!["4", "5"]),
        (3, Some(3), vec!["3", "4", "5"]),
        (3, Some(1_000), vec!["3", "4", "5"]),
        (3, None, vec!["5"]),
        (0, Some(3), vec!["5"]),
        (1, Some(3), vec!["5"]),
    ] {
        let mut world = World::new();
        serve(&mut world, kept);
        for n in 1..=5 {
            world.publish(&event(&["cache-a"], &n.to_string()));
        }
        let (peer, _) = world.client();
        let data = json!({ "channel": "cache-a", "rewind": rewind });
        let text = json!({ "event": "pusher:subscribe", "data": data }).to_string();
        let mut told = data_of(&world.say(peer, &text));
        assert_eq!(told.remove(0), "{}", "the word of welcome");
        assert_eq!(told, expected, "{kept} {rewind:?}");
        world.publish(&event(&["cache-a"], "6"));
        assert_eq!(data_of(&world.frames(peer)), ["6"]);
    }
}

#[test]
fn a_channel_that_keeps_nothing_cannot_be_rewound() {
    let mut world = World::new();
    let (peer, _) = world.client();
    let mut ask = |channel: &str, rewind: Value| {
        let data = json!({ "channel": channel, "rewind": rewind });
        world.say(peer, &json!({ "event": "pusher:subscribe", "data": data }).to_string())
    };
    let no = ask("a", json!(2));
    assert!(
        no[0].contains("subscription_error") && no[0].contains("only cache channels"),
        "{no:?}"
    );
    let no = ask("cache-a", json!(0));
    assert!(no[0].contains("pusher:error") && no[0].contains("from 1 to 1000"), "{no:?}");
    let yes = ask("cache-a", json!(2));
    assert!(yes[0].contains("succeeded") && yes[1].contains("cache_miss"), "{yes:?}");
}
