use super::*;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use proptest::prelude::*;
use serde_json::{Value, json};

fn subscribe(data: &Value) -> Result<Command<'static>, Malformed> {
    let text = json!({"event": "pusher:subscribe", "data": data}).to_string();
    command(&text).map(|command| match command {
        Command::Subscribe { channel, auth, channel_data, rewind } => Command::Subscribe {
            channel: channel.into_owned().into(),
            auth: auth.map(|text| text.into_owned().into()),
            channel_data: channel_data.map(|text| text.into_owned().into()),
            rewind,
        },
        other => panic!("{other:?}"),
    })
}

fn subscription(channel: &str, auth: Option<&str>, data: Option<&str>) -> Command<'static> {
    let own = |text: &str| Cow::Owned(String::from(text));
    let (channel_data, rewind) = (data.map(own), None);
    Command::Subscribe { channel: own(channel), auth: auth.map(own), channel_data, rewind }
}

#[test]
fn pings_and_pongs_are_read_whatever_their_data() {
    for data in ["{}", r#""""#, "[]", "null", "7", r#""x""#, r#"{"a":[1]}"#] {
        for (event, expected) in [("ping", Command::Ping), ("pong", Command::Pong)] {
            let text = format!(r#"{{"event":"pusher:{event}","data":{data}}}"#);
            assert_eq!(command(&text), Ok(expected), "{text}");
        }
    }
    assert_eq!(command(r#"{"event":"pusher:ping"}"#), Ok(Command::Ping));
    assert_eq!(command(" {\n\"data\" : {}, \"event\":\"pusher:pin\\u0067\" } "), Ok(Command::Ping));
}

#[test]
fn subscriptions_come_as_an_object_or_as_a_string_that_holds_one() {
    let forms = [
        (json!({"channel": "c"}), subscription("c", None, None)),
        (json!({"channel": "c", "auth": ""}), subscription("c", Some(""), None)),
        (
            json!({"channel": "c", "auth": null, "channel_data": null}),
            subscription("c", None, None),
        ),
        (
            json!({"auth": "k:s", "channel": "presence-c", "channel_data": "{\"user_id\":1}"}),
            subscription("presence-c", Some("k:s"), Some("{\"user_id\":1}")),
        ),
        (json!({"channel": "c", "more": [{}]}), subscription("c", None, None)),
        (json!({"channel": "caf\u{e9}\n"}), subscription("caf\u{e9}\n", None, None)),
    ];
    for (data, expected) in forms {
        assert_eq!(subscribe(&data), Ok(expected.clone()), "{data}");
        assert_eq!(subscribe(&json!(data.to_string())), Ok(expected), "encoded twice: {data}");
    }
}

#[test]
fn each_malformed_subscription_is_named() {
    let cases = [
        (json!(null), Malformed::Missing("data")),
        (json!({}), Malformed::Missing("channel")),
        (json!("{}"), Malformed::Missing("channel")),
        (json!({"channel": null}), Malformed::Missing("channel")),
        (json!({"channel": 5}), Malformed::NotText("channel")),
        (json!({"channel": ["c"]}), Malformed::NotText("channel")),
        (json!({"channel": "c", "auth": 5}), Malformed::NotText("auth")),
        (json!({"channel": "c", "channel_data": {}}), Malformed::NotText("channel_data")),
        (json!(["c", "auth", "data", "user"]), Malformed::NotAnObject("data")),
        (json!("[]"), Malformed::NotAnObject("data")),
        (json!(5), Malformed::NotAnObject("data")),
        (json!(true), Malformed::NotAnObject("data")),
        (json!("{\"channel\":"), Malformed::NotJson("data")),
        (json!("nonsense"), Malformed::NotJson("data")),
        (json!(""), Malformed::NotJson("data")),
    ];
    for (data, expected) in cases {
        assert_eq!(subscribe(&data), Err(expected), "{data}");
    }
    let absent = r#"{"event":"pusher:subscribe"}"#;
    assert_eq!(command(absent), Err(Malformed::Missing("data")), "28 bytes that ended a peer");
    let twice = r#"{"event":"pusher:subscribe","data":{"channel":"a","channel":"b"}}"#;
    assert_eq!(command(twice), Err(Malformed::Repeated("data")));
    let surrogate = r#"{"event":"pusher:subscribe","data":{"channel":"\ud800"}}"#;
    assert_eq!(command(surrogate), Err(Malformed::NotText("channel")));
}

#[test]
fn each_malformed_message_is_named() {
    let cases = [
        ("", Malformed::NotJson("message")),
        ("nonsense", Malformed::NotJson("message")),
        ("{\"event\":\"a\"", Malformed::NotJson("message")),
        ("{\"event\":\"a\"}}", Malformed::NotJson("message")),
        ("{\"event\":\"a\",}", Malformed::NotJson("message")),
        ("null", Malformed::NotAnObject("message")),
        ("5", Malformed::NotAnObject("message")),
        ("\"pusher:ping\"", Malformed::NotAnObject("message")),
        ("[\"pusher:ping\",null,{}]", Malformed::NotAnObject("message")),
        ("{}", Malformed::Missing("event")),
        ("{\"event\":null}", Malformed::Missing("event")),
        ("{\"event\":5}", Malformed::NotText("event")),
        ("{\"event\":{\"a\":1}}", Malformed::NotText("event")),
        ("{\"event\":\"pusher:ping\",\"event\":\"a\"}", Malformed::Repeated("message")),
        ("{\"event\":\"client-a\"}", Malformed::Missing("channel")),
        ("{\"event\":\"client-a\",\"channel\":1}", Malformed::NotText("channel")),
        ("{\"event\":\"pusher:unsubscribe\"}", Malformed::Missing("data")),
        ("{\"event\":\"pusher:unsubscribe\",\"data\":{}}", Malformed::Missing("channel")),
        ("{\"event\":\"pusher:signin\",\"data\":{}}", Malformed::Missing("auth")),
        ("{\"event\":\"pusher:signin\",\"data\":{\"auth\":\"\"}}", Malformed::Missing("user_data")),
        (
            "{\"event\":\"pusher:signin\",\"data\":{\"auth\":\"\",\"user_data\":{}}}",
            Malformed::NotText("user_data"),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(command(text), Err(expected), "{text}");
        assert!(!expected.to_string().is_empty());
    }
}

#[test]
fn the_deepest_nesting_that_fits_and_one_level_more() {
    let nested = |levels: usize, open: &str, close: &str| {
        let (open, close) = (open.repeat(levels - 1), close.repeat(levels - 1));
        format!(r#"{{"event":"client-a","channel":"c","data":{open}0{close}}}"#)
    };
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        assert!(command(&nested(MAX_DEPTH, open, close)).is_ok());
        assert_eq!(command(&nested(MAX_DEPTH + 1, open, close)), Err(Malformed::TooDeep));
        assert_eq!(command(&nested(200_000, open, close)), Err(Malformed::TooDeep));
    }
    let unclosed = "[".repeat(200_000);
    assert_eq!(command(&unclosed), Err(Malformed::NotJson("message")));
    assert!(subscribe(&json!({"channel": unclosed})).is_ok(), "brackets in a string nest nothing");
    let hidden = json!(nested(200_000, "[", "]"));
    assert_eq!(subscribe(&hidden), Ok(subscription("c", None, None)), "no recursion inside");
}

#[test]
fn other_events_are_told_apart() {
    let unsubscribe = r#"{"event":"pusher:unsubscribe","data":"{\"channel\":\"c\"}"}"#;
    assert_eq!(command(unsubscribe), Ok(Command::Unsubscribe { channel: "c".into() }));
    let signin = r#"{"event":"pusher:signin","data":{"auth":"k:s","user_data":"{\"id\":\"u\"}"}}"#;
    let user_data = "{\"id\":\"u\"}".into();
    assert_eq!(command(signin), Ok(Command::Signin { auth: "k:s".into(), user_data }));
    for name in ["message", "pusher:other", "pusher_internal:member_added", "clientx", ""] {
        let text = json!({"event": name, "channel": 5, "data": 1}).to_string();
        assert_eq!(command(&text), Ok(Command::Other { event: name.into() }));
    }
}

#[test]
fn every_command_with_fields_may_be_encoded_twice() {
    for (event, data) in [
        ("subscribe", json!({ "channel": "c", "auth": "k:s", "channel_data": "{\"user_id\":1}" })),
        ("unsubscribe", json!({ "channel": "c" })),
        ("signin", json!({ "auth": "k:s", "user_data": "{\"id\":\"u\"}" })),
    ] {
        let text = |data: Value| json!({ "event": format!("pusher:{event}"), "data": data });
        let [once, twice] = [text(data.clone()), text(data.to_string().into())];
        let [once, twice] = [once.to_string(), twice.to_string()];
        assert!(command(&once).is_ok(), "{once}");
        assert_eq!(command(&once), command(&twice));
    }
}

#[test]
fn data_of_client_events_is_kept_byte_for_byte() {
    for data in [r#"{ "a" : 1.0 }"#, r#""te\u0078t""#, "null", "[1,\t2]", "1e400"] {
        let text = format!(
            r#"{{"event":"client-e","channel":"private-c","data": {data} ,"user_id":"x"}}"#
        );
        let expected =
            Command::Client { event: "client-e".into(), channel: "private-c".into(), data };
        assert_eq!(command(&text), Ok(expected));
    }
    let absent = r#"{"event":"client-","channel":""}"#;
    let expected = Command::Client { event: "client-".into(), channel: "".into(), data: "null" };
    assert_eq!(command(absent), Ok(expected));
}

#[test]
fn commands_without_escapes_allocate_nothing() {
    let texts = [
        r#"{"event":"pusher:subscribe","data":{"auth":"k:0a","channel":"private-c"}}"#,
        r#"{"event":"pusher:unsubscribe","data":{"channel":"private-c"}}"#,
        r#"{"event":"client-e","channel":"private-c","data":{"a":1,"b":"c\n"}}"#,
        r#"{"event":"pusher:ping","data":{}}"#,
        r#"{"event":"pusher:subscribe"}"#,
    ];
    let mut read = 0;
    let info = allocation_counter::measure(|| {
        read = texts.iter().filter(|text| command(text).is_ok()).count();
    });
    assert_eq!((read, info.count_total), (4, 0));
}

#[test]
fn kinds_follow_prefixes() {
    let cases = [
        ("a", Kind::Public, false),
        ("", Kind::Public, false),
        ("privat-x", Kind::Public, false),
        ("cache-a", Kind::Public, true),
        ("a-cache-b", Kind::Public, false),
        ("private-a", Kind::Private, false),
        ("private-", Kind::Private, false),
        ("private-encryptedx", Kind::Private, false),
        ("private-cache-a", Kind::Private, true),
        ("presence-a", Kind::Presence, false),
        ("presence-cache-a", Kind::Presence, true),
        ("private-encrypted-a", Kind::PrivateEncrypted, false),
        ("private-encrypted-cache-a", Kind::PrivateEncrypted, true),
        ("private-cache", Kind::Private, false),
    ];
    for (channel, expected, cache) in cases {
        assert_eq!((kind(channel), is_cache(channel)), (expected, cache), "{channel}");
    }
}

#[test]
fn channel_names_hold_few_characters_and_a_bounded_number() {
    let legal = "ABZabz019_-=@,.;";
    assert_eq!(check_channel(legal, MAX_CHANNEL), Ok(()));
    assert_eq!(check_channel("", MAX_CHANNEL), Err(BadName::Empty));
    for char in (0..=0x17f).filter_map(char::from_u32).filter(|&char| !legal.contains(char)) {
        let name = format!("a{char}b");
        let expected = if char.is_ascii_alphanumeric() {
            Ok(())
        } else {
            Err(BadName::Char { at: 1, found: char })
        };
        assert_eq!(check_channel(&name, MAX_CHANNEL), expected, "{char:?}");
    }
    for max in [1, MAX_CHANNEL, 200] {
        assert_eq!(check_channel(&"x".repeat(max), max), Ok(()));
        let over = "x".repeat(max + 1);
        assert_eq!(check_channel(&over, max), Err(BadName::TooLong { len: max + 1, max }));
    }
    let why = check_channel("a:b", 10).unwrap_err().to_string();
    assert!(why.contains("':' at byte 1"), "{why}");
}

#[test]
fn the_channel_of_a_user_is_a_form_of_its_own() {
    assert_eq!(server_to_user("#server-to-user-u1"), Some("u1"));
    for name in ["#server-to-user-", "#server-to-user-a b", "server-to-user-u1", "#other", "#"] {
        assert_eq!(server_to_user(name), None, "{name}");
    }
    let found = check_channel("#server-to-user-u1", MAX_CHANNEL);
    assert_eq!(found, Err(BadName::Char { at: 0, found: '#' }));
}

#[test]
fn outbound_texts_are_the_protocol_to_the_byte() {
    let cases = [
        (
            connection_established("123.456", 120),
            concat!(
                r#"{"event":"pusher:connection_established","data":"#,
                r#""{\"socket_id\":\"123.456\",\"activity_timeout\":120}"}"#
            ),
        ),
        (pong(), r#"{"event":"pusher:pong","data":"{}"}"#),
        (ping(), r#"{"event":"pusher:ping","data":"{}"}"#),
        (
            subscription_succeeded("c"),
            r#"{"event":"pusher_internal:subscription_succeeded","channel":"c","data":"{}"}"#,
        ),
        (cache_miss("c\""), r#"{"event":"pusher:cache_miss","channel":"c\""}"#),
        (
            subscription_error("c", "AuthError", "a \"b\"", 401),
            concat!(
                r#"{"event":"pusher:subscription_error","channel":"c","#,
                r#""data":{"type":"AuthError","error":"a \"b\"","status":401}}"#
            ),
        ),
        (
            error(Some(4009), "no\n"),
            r#"{"event":"pusher:error","data":{"code":4009,"message":"no\n"}}"#,
        ),
        (error(None, "no"), r#"{"event":"pusher:error","data":{"message":"no"}}"#),
        (
            event("c", "e", r#"{"a":"\u0000"}"#),
            r#"{"event":"e","channel":"c","data":"{\"a\":\"\\u0000\"}"}"#,
        ),
        (event("c", "e", ""), r#"{"event":"e","channel":"c","data":""}"#),
        (
            client_event("presence-c", "client-e", "[1]", Some("u\"")),
            r#"{"event":"client-e","channel":"presence-c","data":[1],"user_id":"u\""}"#,
        ),
        (
            client_event("private-c", "client-e", "\"text\"", None),
            r#"{"event":"client-e","channel":"private-c","data":"text"}"#,
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(text, expected);
        assert!(serde_json::from_str::<Value>(&text).is_ok());
    }
}

#[test]
fn an_event_frame_is_one_exact_allocation() {
    let data = "{\"a\":\"b\"}\u{1}\u{e9}".repeat(100);
    let mut frame = Vec::new();
    let info = allocation_counter::measure(|| frame = event_frame("c", "e", &data));
    assert_eq!(info.count_total, 1);
    assert_eq!(info.bytes_total, u64::try_from(frame.len()).unwrap());
    let info = allocation_counter::measure(|| {
        frame = client_event_frame("presence-c", "client-e", "{}", Some("u"));
    });
    assert_eq!(info.count_total, 1);
    let text = client_event("presence-c", "client-e", "{}", Some("u"));
    assert_eq!(frame, crate::ws::frame(crate::ws::Opcode::Text, text.as_bytes()));
}

/// HMAC-SHA256 in hex with the secret of the protocol's examples.
fn sign(text: &str) -> String {
    use hmac::{Hmac, KeyInit, Mac};
    let secret = b"7ad3773142a6692b25b8";
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(secret).unwrap();
    mac.update(text.as_bytes());
    hex::encode(mac.finalize().into_bytes())
}

#[test]
fn signed_texts_give_the_signatures_of_the_protocol() {
    let id = "1234.1234";
    assert_eq!(
        sign(&channel_string_to_sign(id, "private-foobar", None)),
        "58df8b0c36d6982b82c3ecf6b4662e34fe8c25bba48f5369f135bf843651c3a4"
    );
    let member = r#"{"user_id":10,"user_info":{"name":"Mr. Channels"}}"#;
    assert_eq!(
        sign(&channel_string_to_sign(id, "presence-foobar", Some(member))),
        "31935e7d86dba64c2a90aed31fdc61869f9b22ba9d8863bba239c03ca481bc80"
    );
    assert_eq!(
        sign(&signin_string_to_sign(id, r#"{"id":"12345"}"#)),
        "4708d583dada6a56435fb8bc611c77c359a31eebde13337c16ab43aa6de336ba"
    );
}

/// Any JSON, not too deep.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let key = prop_oneof![
            prop::sample::select(alloc::vec!["event", "data", "channel", "auth"])
                .prop_map(String::from),
            "\\PC{0,4}",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..4)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_text_is_a_command_or_malformed(text in "[\\[\\]{}\":,a-z\\\\0-9 ]{0,60}|\\PC{0,60}") {
        let _ = command(&text);
    }

    #[test]
    fn any_json_is_a_command_or_malformed(
        event in prop::sample::select(alloc::vec![
            "pusher:subscribe", "pusher:unsubscribe", "pusher:signin", "pusher:ping", "client-a",
        ]),
        channel in any_json(),
        data in any_json(),
        encoded in any::<bool>(),
    ) {
        let data = if encoded { json!(data.to_string()) } else { data };
        let _ = command(&data.to_string());
        let text = json!({"event": event, "channel": channel, "data": data}).to_string();
        if let Ok(Command::Client { data: raw, .. }) = command(&text) {
            prop_assert_eq!(serde_json::from_str::<Value>(raw).unwrap(), data);
        }
    }

    #[test]
    fn a_publisher_gets_its_data_through_byte_for_byte(
        channel in any::<String>(), name in any::<String>(), data in any::<String>(),
    ) {
        let text = event(&channel, &name, &data);
        let read: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(read, json!({"event": name, "channel": channel, "data": data}));
        let frame = event_frame(&channel, &name, &data);
        prop_assert_eq!(frame, crate::ws::frame(crate::ws::Opcode::Text, text.as_bytes()));
    }

    #[test]
    fn names_that_pass_match_the_servers_pattern(name in "#?[a-z:/,.; \u{e9}-]{0,12}") {
        let legal = !name.is_empty() && !name.contains(['#', ':', '/', ' ', '\u{e9}']);
        prop_assert_eq!(check_channel(&name, 100).is_ok(), legal);
    }
}

#[test]
fn the_data_of_an_event_comes_out_of_its_frame_as_it_went_in() {
    for length in [0, 1, 90, 125, 126, 300, 65_000, 70_000] {
        for of in ["x", "\"", "é", "\u{1}"] {
            let data = of.repeat(length);
            assert_eq!(event_data(&event_frame("cache-c", "e", &data)), Some(data));
        }
    }
    for bytes in [&b""[..], b"\x81", b"\x81\x02{}", b"\x81\x05{\"a\""] {
        assert_eq!(event_data(bytes), None);
    }
}

#[test]
fn a_client_can_ask_for_so_many_of_the_last_events() {
    for (rewind, expected) in [
        (json!(1), Ok(Some(1))),
        (json!(1000), Ok(Some(1000))),
        (json!(0), Err(Malformed::NotWithin("rewind", 1000))),
        (json!(1001), Err(Malformed::NotWithin("rewind", 1000))),
        (json!(-1), Err(Malformed::NotWithin("rewind", 1000))),
        (json!(1.5), Err(Malformed::NotWithin("rewind", 1000))),
        (json!("5"), Err(Malformed::NotWithin("rewind", 1000))),
        (Value::Null, Ok(None)),
    ] {
        let read = subscribe(&json!({ "channel": "cache-a", "rewind": rewind }));
        let found = read.map(|command| match command {
            Command::Subscribe { rewind, .. } => rewind,
            other => panic!("{other:?}"),
        });
        assert_eq!(found, expected, "{rewind}");
    }
    let text = Malformed::NotWithin("rewind", 1000).to_string();
    assert_eq!(text, "rewind: send a whole number from 1 to 1000");
}

#[test]
fn a_gap_is_told_as_an_event_of_its_channel() {
    let text = gap("a\"b", 7, ("backlog", "drop_old"));
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&value["event"], &value["channel"]), (&json!("pusher:gap"), &json!("a\"b")));
    let data: Value = serde_json::from_str(value["data"].as_str().unwrap()).unwrap();
    assert_eq!(data, json!({ "events": 7, "place": "backlog", "reason": "drop_old" }));
}
