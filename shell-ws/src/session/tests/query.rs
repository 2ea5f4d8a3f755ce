//! Questions of the HTTP API, batches, and what subscribers are told of their number.

use super::private::ask;
use super::*;
use crate::hooks::{Webhook, What};
use crate::session::auth::tests::token;
use serde_json::{Value, json};

/// Calls the HTTP API with a good signature; status and body, which is text where it is no JSON.
pub(super) fn call(
    world: &mut World,
    method: &str,
    path: &str,
    query: &str,
    body: &str,
) -> (u16, Value) {
    let signed = Signed { method, path, stripped: path, query, body: body.as_bytes() };
    let query = sign(&App::development(), signed, NOW);
    let length = body.len();
    let request =
        format!("{method} {path}?{query} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n");
    let peer = world.connect();
    world.feed(peer, (request + body).as_bytes());
    let answer = world.http(peer);
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, text) = answer.split_once("\r\n\r\n").unwrap();
    (status, serde_json::from_str(text).unwrap_or_else(|_| json!(text)))
}

fn get(world: &mut World, path: &str, query: &str) -> (u16, Value) {
    call(world, "GET", &format!("/apps/1001{path}"), query, "")
}

fn member(world: &mut World, user_id: &str) -> usize {
    let (peer, id) = world.client();
    let data = json!({ "user_id": user_id }).to_string();
    let auth = token(&App::development(), &format!("{id}:presence-a:{data}"));
    let wish = json!({ "channel": "presence-a", "auth": auth, "channel_data": data });
    assert_eq!(ask(world, peer, &wish)["event"], "pusher_internal:subscription_succeeded");
    peer
}

#[test]
fn channels_and_users_are_told_as_they_are() {
    let mut world = World::new();
    assert_eq!(get(&mut world, "/channels", ""), (200, json!({ "channels": {} })));
    for user in ["1", "1", "2"] {
        member(&mut world, user);
    }
    let (peer, _) = world.client();
    world.subscribe(peer, "a");
    let all = json!({ "channels": { "a": {}, "presence-a": {} } });
    assert_eq!(get(&mut world, "/channels", ""), (200, all));
    let some = json!({ "channels": { "presence-a": { "user_count": 2 } } });
    let query = "filter_by_prefix=presence-&info=user_count";
    assert_eq!(get(&mut world, "/channels", query), (200, some));
    let one = json!({ "occupied": true, "user_count": 2, "subscription_count": 3 });
    let query = "info=user_count,subscription_count";
    assert_eq!(get(&mut world, "/channels/presence-a", query), (200, one));
    assert_eq!(get(&mut world, "/channels/b", ""), (200, json!({ "occupied": false })));
    let users = json!({ "users": [{ "id": "1" }, { "id": "2" }] });
    assert_eq!(get(&mut world, "/channels/presence-a/users", ""), (200, users));
    assert_eq!(get(&mut world, "/channels/presence-b/users", ""), (200, json!({ "users": [] })));
    world.end_of_input(peer);
    assert_eq!(get(&mut world, "/channels/a", "").1["occupied"], false);
}

#[test]
fn each_bad_question_is_refused() {
    let mut world = World::new();
    for (path, query) in [
        ("/channels", "info=user_count"),
        ("/channels", "filter_by_prefix=presenc&info=user_count"),
        ("/channels", "info=everything"),
        ("/channels/a", "info=user_count"),
        ("/channels/a%20b", ""),
        ("/channels/a/users", ""),
        ("/channels/private-a/users", ""),
        ("/channels/presence-a/users", "info=user_count"),
        ("/channels/presence-a/users", "filter_by_prefix="),
    ] {
        let (status, text) = get(&mut world, path, query);
        assert_eq!(status, 400, "{path}?{query}: {text}");
        assert!(text.as_str().unwrap().len() > 10, "it says why");
    }
    let request = "GET /apps/1001/channels HTTP/1.1\r\nHost: h\r\n\r\n";
    let peer = world.connect();
    world.feed(peer, request.as_bytes());
    assert!(world.http(peer).starts_with("HTTP/1.1 401 "), "nobody asks without a signature");
    assert_eq!(call(&mut world, "GET", "/apps/7/channels", "", "").0, 404);
}

#[test]
fn a_batch_is_published_in_order_and_answered_in_order() {
    let mut world = World::new();
    let (peer, _) = world.client();
    world.subscribe(peer, "a");
    let event = |data: &str, channel: &str, info: Option<&str>| {
        let mut event = json!({ "name": "e", "channel": channel, "data": data });
        event["info"] = json!(info);
        event
    };
    let batch = json!({ "batch": [
        event("1", "a", None),
        event("2", "b", Some("subscription_count")),
        event("3", "a", Some("subscription_count,user_count")),
    ]});
    let path = "/apps/1001/batch_events";
    let told = json!({ "batch": [{}, { "subscription_count": 0 }, { "subscription_count": 1 }] });
    assert_eq!(call(&mut world, "POST", path, "", &batch.to_string()), (200, told));
    let data = |frame: &String| serde_json::from_str::<Value>(frame).unwrap()["data"].clone();
    assert_eq!(world.frames(peer).iter().map(data).collect::<Vec<_>>(), ["1", "3"]);
    let quiet = json!({ "batch": [event("4", "a", None)] }).to_string();
    assert_eq!(call(&mut world, "POST", path, "", &quiet), (200, json!({})));
    let eleven = json!({ "batch": vec![event("5", "a", None); 11] }).to_string();
    for body in ["{}", "[]", r#"{"batch":[]}"#, r#"{"batch":[{}]}"#, eleven.as_str()] {
        assert_eq!(call(&mut world, "POST", path, "", body).0, 400, "{body}");
    }
    assert_eq!(world.frames(peer).len(), 1, "a refused batch publishes nothing");
}

/// Calls with a query that is sent as one text and signed as another.
fn call_signed_as(world: &mut World, method: &str, path: &str, texts: [&str; 2]) -> (u16, Value) {
    let [sent, signed] = texts;
    let query = |query: &str| {
        let body = b"".as_slice();
        sign(&App::development(), Signed { method, path, stripped: path, query, body }, NOW)
    };
    let signature = query(signed).rsplit_once("&auth_signature=").unwrap().1.to_owned();
    let unsigned = query(sent).rsplit_once("&auth_signature=").unwrap().0.to_owned();
    let peer = world.connect();
    let request = format!(
        "{method} {path}?{unsigned}&auth_signature={signature} HTTP/1.1\r\nHost: h\r\n\
         Content-Length: 0\r\n\r\n"
    );
    world.feed(peer, request.as_bytes());
    let answer = world.http(peer);
    let (_, text) = answer.split_once("\r\n\r\n").unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(text).unwrap_or_else(|_| json!(text)))
}

#[test]
fn lists_in_a_query_are_read_and_may_be_signed_apart_or_joined() {
    let mut world = World::new();
    member(&mut world, "1");
    let path = "/apps/1001/channels/presence-a";
    let sent = "info%5B0%5D=user_count&info%5B1%5D=subscription_count";
    let told = json!({ "occupied": true, "user_count": 1, "subscription_count": 1 });
    for signed in [sent, "info=user_count,subscription_count"] {
        let answer = call_signed_as(&mut world, "GET", path, [sent, signed]);
        assert_eq!(answer, (200, told.clone()), "{signed}");
    }
    for signed in ["info=subscription_count,user_count", "info=user_count", ""] {
        assert_eq!(call_signed_as(&mut world, "GET", path, [sent, signed]).0, 401, "{signed}");
    }
}

#[test]
fn a_call_without_a_body_says_in_its_query_what_it_publishes() {
    let mut world = World::new();
    let (peer, _) = world.client();
    for channel in ["a", "b"] {
        world.subscribe(peer, channel);
    }
    let path = "/apps/1001/events";
    let query = "name=e&data=%7B%22x%22%3A1%7D&channels%5B%5D=a&channels%5B%5D=b";
    assert_eq!(call(&mut world, "POST", path, query, ""), (200, json!({})));
    let frame =
        |channel: &str| format!(r#"{{"event":"e","channel":"{channel}","data":"{{\"x\":1}}"}}"#);
    assert_eq!(world.frames(peer), [frame("a"), frame("b")]);
    let asked =
        call(&mut world, "POST", path, "name=e&data=&channel=a&info=subscription_count", "");
    assert_eq!(asked, (200, json!({ "channels": { "a": { "subscription_count": 1 } } })));
    assert_eq!(world.frames(peer).len(), 1);
    for query in ["", "name=e&channel=a", "name=e&data=1", "name=pusher:e&data=&channel=a"] {
        assert_eq!(call(&mut world, "POST", path, query, "").0, 400, "{query}");
    }
    let body = r#"{"name":"e","channel":"b","data":"body"}"#;
    assert_eq!(call(&mut world, "POST", path, "name=q&data=q&channel=a", body).0, 200);
    assert_eq!(world.frames(peer), [r#"{"event":"e","channel":"b","data":"body"}"#]);
}

#[test]
fn a_publish_is_told_about_its_channels() {
    let mut world = World::new();
    member(&mut world, "1");
    let body = json!({
        "name": "e", "channels": ["presence-a", "b"], "data": "",
        "info": "user_count,subscription_count",
    });
    let told = json!({ "channels": {
        "presence-a": { "user_count": 1, "subscription_count": 1 },
        "b": { "subscription_count": 0 },
    }});
    let answer = call(&mut world, "POST", "/apps/1001/events", "", &body.to_string());
    assert_eq!(answer, (200, told));
    let users = body.to_string().replace(",subscription_count", "");
    let told = json!({ "channels": { "presence-a": { "user_count": 1 }, "b": {} } });
    assert_eq!(call(&mut world, "POST", "/apps/1001/events", "", &users), (200, told));
}

#[test]
fn subscribers_are_told_how_many_they_are_where_the_app_wants_it() {
    for (wants, expected) in [(false, 0), (true, 1)] {
        let app = App { subscription_counts: wants, ..App::development() };
        let mut world = World::with(Shard::new(Limits::default(), vec![app], || 5).unwrap());
        let (first, _) = world.client();
        let answer = world.subscribe(first, "a");
        assert_eq!(answer.len(), 1 + expected, "{answer:?}");
        let (second, _) = world.client();
        world.subscribe(second, "a");
        let told = world.frames(first);
        assert_eq!(told.len(), expected);
        if wants {
            let value: Value = serde_json::from_str(&told[0]).unwrap();
            assert_eq!(value["event"], "pusher_internal:subscription_count");
            assert_eq!(value["data"], r#"{"subscription_count":2}"#);
            assert!(answer[0].contains("subscription_succeeded"), "first the answer");
        }
        world.end_of_input(second);
        assert_eq!(world.frames(first).len(), expected);
        let quiet = member(&mut world, "1");
        let other = member(&mut world, "2");
        world.end_of_input(other);
        let told = world.frames(quiet);
        assert_eq!(told.len(), 2, "members are told of users instead: {told:?}");
        assert!(told[0].contains("member_added") && told[1].contains("member_removed"));
    }
}

#[test]
fn the_apps_server_is_told_of_each_count_where_the_app_wants_it() {
    for (subscription_counts, expected) in [(true, vec![1, 2, 1]), (false, vec![])] {
        let (url, events, channel_prefix) = ("http://h/".to_owned(), Vec::new(), String::new());
        let webhooks = vec![Webhook { url, events, channel_prefix, batch: 1 }];
        let app = App { webhooks, subscription_counts, ..App::development() };
        let mut world = World::with(Shard::new(Limits::default(), vec![app], || 5).unwrap());
        let [first, second] = [(); 2].map(|()| world.client().0);
        world.subscribe(first, "a");
        world.subscribe(second, "a");
        world.end_of_input(second);
        world.end_of_input(first);
        let mut told = Vec::new();
        while let Some(event) = world.shard.poll_hook() {
            if let What::SubscriptionCount(count) = event.what {
                told.push(count);
            }
        }
        assert_eq!(told, expected);
    }
}

#[test]
fn the_deprecated_form_publishes_and_is_accepted() {
    let mut world = World::new();
    let ((first, _), (second, id)) = (world.client(), world.client());
    for peer in [first, second] {
        world.subscribe(peer, "a");
    }
    let path = "/apps/1001/channels/a/events";
    let query = format!("name=e&socket_id={id}");
    assert_eq!(call(&mut world, "POST", path, &query, "{\"x\":1}"), (202, json!({})));
    let frames = world.frames(first);
    let event: Value = serde_json::from_str(&frames[0]).unwrap();
    assert_eq!(event, json!({ "event": "e", "channel": "a", "data": "{\"x\":1}" }));
    assert!(world.frames(second).is_empty(), "the connection that is named is left out");
    assert_eq!(world.shard.broker.ledger().offered.records, 1);
    for (query, body, status) in [
        ("", "x", 400),
        ("name=pusher:e", "x", 400),
        ("name=e&socket_id=x", "x", 400),
        ("name=e", &"x".repeat((10 << 10) + 1), 413),
    ] {
        assert_eq!(call(&mut world, "POST", path, query, body).0, status, "{query}");
    }
    assert_eq!(call(&mut world, "POST", "/apps/1001/channels/a%20b/events", "name=e", "").0, 400);
    assert_eq!(call(&mut world, "GET", path, "name=e", "").0, 405);
    let events = r#"{"name":"e","channel":"a","data":""}"#;
    assert_eq!(call(&mut world, "POST", "/apps/1001/events", "", events).0, 200);
}

#[test]
fn the_deprecated_question_is_answered_with_all_counts() {
    let mut world = World::new();
    for user in ["1", "1", "2"] {
        member(&mut world, user);
    }
    let told = |connections: u32, users: u32| {
        let occupied = connections > 0;
        json!({ "connection_count": connections, "occupied": occupied, "user_count": users })
    };
    assert_eq!(get(&mut world, "/channels/presence-a/stats", ""), (200, told(3, 2)));
    let (peer, _) = world.client();
    world.subscribe(peer, "a");
    assert_eq!(get(&mut world, "/channels/a/stats", ""), (200, told(1, 0)));
    assert_eq!(get(&mut world, "/channels/b/stats", ""), (200, told(0, 0)));
    assert_eq!(get(&mut world, "/channels/a%20b/stats", "").0, 400);
}
