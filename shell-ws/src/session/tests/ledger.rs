//! The books as JSON, and why a connection does not get messages.

use super::query::call;
use super::*;
use serde_json::{Value, json};

fn get(world: &mut World, path: &str) -> (u16, Value) {
    let peer = world.connect();
    world.feed(peer, format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
    let answer = world.http(peer);
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, text) = answer.split_once("\r\n\r\n").unwrap();
    (status, serde_json::from_str(text).unwrap_or_else(|_| json!(text)))
}

/// A subscriber that reads everything and one that stopped, after many events; their socket ids.
fn world() -> (World, [String; 2]) {
    let mut world =
        World::with(shard_with(Limits { high_water_bytes: 2_048, ..Limits::default() }));
    let (reads, reader) = world.client();
    let (stops, stopped) = world.client();
    for peer in [reads, stops] {
        world.subscribe(peer, "news");
        world.subscribe(peer, "silent");
    }
    world.stopped.push(stops);
    for n in 0..30 {
        let answer = world.publish(&event(&["news"], &n.to_string()));
        assert!(answer.starts_with("HTTP/1.1 200 "));
    }
    (world, [reader, stopped])
}

#[test]
fn the_books_are_shown_by_place_and_reason_and_app() {
    let (mut world, _) = world();
    let (status, sheet) = get(&mut world, "/ledger");
    assert_eq!((status, &sheet["loops"]), (200, &json!(1)));
    let books = &sheet["books"];
    let records = |column: &str| books[column]["records"].as_u64().unwrap();
    assert_eq!((records("offered"), records("sequenced"), records("expected")), (30, 30, 60));
    assert_eq!(records("expected"), records("delivered") + records("dropped") + records("lag"));
    assert!(records("dropped") > 0 && records("lag") > 0);
    let cells = &books["dropped"]["cells"];
    assert_eq!(cells[0]["place"], "backlog");
    assert_eq!(cells[0]["reason"], "drop_old");
    assert_eq!(
        (cells.as_array().unwrap().len(), &cells[0]["records"]),
        (1, &json!(records("dropped")))
    );
    assert_eq!(sheet["apps"], json!({ "1001": books }), "the one app has them all");
}

#[test]
fn a_connection_is_told_why_it_does_not_get_messages() {
    let (mut world, [reader, stopped]) = world();
    let (status, account) = get(&mut world, &format!("/ledger/connections/{reader}"));
    assert_eq!((status, &account["app"], &account["loop"]), (200, &json!("1001"), &json!(0)));
    assert_eq!(account["delivered"]["records"], 30);
    assert_eq!(account["queue"]["takes_nothing"], false);
    assert!(account["why"][0].as_str().unwrap().contains("handed to the kernel"), "{account}");
    let (_, account) = get(&mut world, &format!("/ledger/connections/{stopped}"));
    let why = account["why"].to_string();
    assert!(why.contains("takes nothing now") && why.contains("backlog: drop_old"), "{why}");
    let records = |of: &Value| of["records"].as_u64().unwrap();
    let channels = account["channels"].as_array().unwrap();
    assert_eq!(channels.len(), 2);
    for channel in channels {
        let is_news = channel["channel"] == "news";
        assert_eq!(records(&channel["expected"]), if is_news { 30 } else { 0 });
        let last = json!({ "place": "backlog", "reason": "drop_old" });
        assert_eq!(channel["dropped"]["last"], if is_news { last } else { Value::Null });
    }
    let parts = ["delivered", "dropped", "lag"].map(|column| records(&account[column]));
    assert_eq!(parts.iter().sum::<u64>(), 30);
    assert!(parts[1] > 0 && account["queue"]["events"].as_u64().unwrap() > 0);
    world.end_of_input(1);
    world.timeout(1);
    for id in [stopped.as_str(), "1.2", "x"] {
        let (status, text) = get(&mut world, &format!("/ledger/connections/{id}"));
        assert!(status == 404 && text.as_str().unwrap().contains("socket id"), "{text}");
    }
}

#[test]
fn an_app_is_told_which_of_its_connections_lose_most() {
    let (mut world, [_, stopped]) = world();
    let path = "/apps/1001/ledger/connections";
    let (status, found) = call(&mut world, "GET", path, "", "");
    assert_eq!(status, 200);
    let found = found["connections"].as_array().unwrap();
    assert_eq!((found.len(), &found[0]["socket_id"]), (1, &json!(stopped)));
    let lost = found[0]["dropped"]["records"].as_u64().unwrap();
    assert!(lost > 0);
    assert!(world.publish(&event(&["news"], "1")).starts_with("HTTP/1.1 200 "));
    let (_, found) = call(&mut world, "GET", path, "", "");
    assert_eq!(found["connections"][0]["dropped"]["records"], lost, "not asked again so soon");
    world.shard.broker.advance(Instant::from_millis(5_001));
    let (_, found) = call(&mut world, "GET", path, "", "");
    assert_eq!(found["connections"][0]["dropped"]["records"], lost + 1);
    assert_eq!(get(&mut world, path).0, 401, "who is told has the app's secret");
}
