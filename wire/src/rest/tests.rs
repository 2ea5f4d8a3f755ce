use super::*;
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

fn read(body: &Value) -> Result<Trigger, BadBody> {
    trigger(body.to_string().as_bytes())
}

/// A good body with one field set to something else.
fn with(field: &str, value: Value) -> Value {
    let mut body = json!({"name": "e", "channels": ["c"], "data": "d"});
    body[field] = value;
    body
}

#[test]
fn a_body_names_one_channel_or_several() {
    let body = json!({
        "name": "e", "channels": ["a", "presence-b", "a"], "data": "{\"x\":1}",
        "socket_id": "1.2", "info": "user_count", "more": {"ignored": [1]},
    });
    let expected = Trigger {
        name: "e".into(),
        channels: vec!["a".into(), "presence-b".into()],
        data: "{\"x\":1}".into(),
        socket_id: Some("1.2".into()),
        info: Some("user_count".into()),
    };
    assert_eq!(read(&body), Ok(expected), "a channel that is named twice gets the event once");
    let body = json!({
        "name": "e", "channel": "#server-to-user-u1", "data": "", "socket_id": null, "info": null,
    });
    let expected = Trigger {
        name: "e".into(),
        channels: vec!["#server-to-user-u1".into()],
        data: "".into(),
        socket_id: None,
        info: None,
    };
    assert_eq!(read(&body), Ok(expected));
}

#[test]
fn each_bad_body_is_named() {
    let no_name = json!({"channel": "c", "data": ""});
    let no_channel = json!({"name": "e", "data": ""});
    let no_data = json!({"name": "e", "channel": "c"});
    let bad_char = BadName::Char { at: 1, found: ':' };
    let cases = [
        (no_name, BadBody::Missing("name")),
        (no_channel, BadBody::Missing("channels")),
        (no_data, BadBody::Missing("data")),
        (json!({}), BadBody::Missing("name")),
        (json!([]), BadBody::NotAnObject),
        (json!(["c", ["c"], "d", "i", "n", "1.2"]), BadBody::NotAnObject),
        (json!(null), BadBody::NotAnObject),
        (with("name", json!(5)), BadBody::NotText("name")),
        (with("name", json!("")), BadBody::Missing("name")),
        (with("name", json!("pusher:x")), BadBody::ReservedName),
        (with("name", json!("pusher_internal:x")), BadBody::ReservedName),
        (with("data", json!({"a": 1})), BadBody::NotText("data")),
        (with("data", json!(null)), BadBody::Missing("data")),
        (with("channels", json!("c")), BadBody::NotAList("channels")),
        (with("channels", json!({"0": "c"})), BadBody::NotAList("channels")),
        (with("channels", json!(["c", 5])), BadBody::NotAList("channels")),
        (with("channels", json!([])), BadBody::Missing("channels")),
        (with("channels", json!(["c", "a:b"])), BadBody::BadChannel { index: 1, why: bad_char }),
        (with("channels", json!([""])), BadBody::BadChannel { index: 0, why: BadName::Empty }),
        (with("channel", json!("c")), BadBody::BothChannels),
        (with("socket_id", json!("1")), BadBody::BadSocketId),
        (with("socket_id", json!("")), BadBody::BadSocketId),
        (with("socket_id", json!(1.2)), BadBody::NotText("socket_id")),
        (with("info", json!(["user_count"])), BadBody::NotText("info")),
    ];
    for (body, expected) in cases {
        assert_eq!(read(&body), Err(expected), "{body}");
        assert_eq!(expected.status(), 400);
        assert!(!expected.to_string().is_empty());
    }
    assert!(read(&with("name", json!("pusher"))).is_ok(), "only with the colon");
    assert_eq!(trigger(b"{\"name\":\"\xff\"}"), Err(BadBody::NotUtf8));
    assert_eq!(trigger(b""), Err(BadBody::NotJson { line: 1, column: 0 }));
    assert_eq!(trigger(b"{\n\"name\" 1}"), Err(BadBody::NotJson { line: 2, column: 8 }));
    assert_eq!(trigger(b"{\"name\":\"a\",\"name\":\"b\"}"), Err(BadBody::Repeated));
    let deep = format!("{{\"name\":\"e\",\"x\":{}1{}}}", "[".repeat(200_000), "]".repeat(200_000));
    assert_eq!(trigger(deep.as_bytes()), Err(BadBody::Missing("channels")), "no recursion");
}

#[test]
fn what_just_fits_each_limit_and_what_just_does_not() {
    let name = |len: usize| read(&with("name", json!("\u{e9}".repeat(len))));
    assert!(name(MAX_EVENT_NAME).is_ok());
    assert_eq!(name(MAX_EVENT_NAME + 1), Err(BadBody::NameTooLong { len: MAX_EVENT_NAME + 1 }));

    let data = |len: usize| read(&with("data", json!("\n".repeat(len))));
    assert!(data(MAX_DATA).is_ok(), "decoded bytes count, not their escapes");
    let over = BadBody::DataTooLong { len: MAX_DATA + 1, max: MAX_DATA };
    assert_eq!(data(MAX_DATA + 1), Err(over));
    assert_eq!(over.status(), 413);

    let channel = |len: usize| read(&with("channels", json!(["c".repeat(len)])));
    assert!(channel(MAX_CHANNEL).is_ok());
    let why = BadName::TooLong { len: MAX_CHANNEL + 1, max: MAX_CHANNEL };
    assert_eq!(channel(MAX_CHANNEL + 1), Err(BadBody::BadChannel { index: 0, why }));
    let user = format!("#server-to-user-{}", "u".repeat(MAX_CHANNEL));
    assert!(matches!(read(&with("channels", json!([user]))), Err(BadBody::BadChannel { .. })));

    let channels = |count: usize| {
        let names: Vec<_> = (0..count).map(|index| format!("c{index}")).collect();
        read(&with("channels", json!(names)))
    };
    assert_eq!(channels(MAX_CHANNELS).unwrap().channels.len(), MAX_CHANNELS);
    for count in [MAX_CHANNELS + 1, 5000] {
        assert_eq!(channels(count), Err(BadBody::TooManyChannels { count }));
    }
}

#[test]
fn the_limits_are_those_of_hosted_pusher() {
    use crate::pusher::{MAX_USER_ID, MAX_USER_INFO, MAX_WATCHLIST};
    assert_eq!((MAX_DATA, MAX_CHANNELS, MAX_BATCH), (10_240, 100, 10));
    assert_eq!((MAX_CHANNEL, MAX_EVENT_NAME), (164, 200));
    assert_eq!((MAX_USER_ID, MAX_USER_INFO, MAX_WATCHLIST), (128, 1_024, 100));
}

#[test]
fn channels_beyond_the_limit_are_counted_and_not_kept() {
    let body = format!("{{\"name\":\"e\",\"channels\":[{}1]}}", "1,".repeat(99_999));
    let info = allocation_counter::measure(|| {
        let count = 100_000;
        assert_eq!(trigger(body.as_bytes()), Err(BadBody::TooManyChannels { count }));
    });
    assert!(info.bytes_max < 8 * 1024, "{info:?}");
}

#[test]
fn bounds_are_the_operators() {
    let bounds = Bounds { data: 3, channel: 200, ..Bounds::default() };
    let body = |data: &str| {
        let body = json!({"name": "e", "channel": "c".repeat(200), "data": data}).to_string();
        trigger_within(body.as_bytes(), bounds)
    };
    assert!(body("abc").is_ok());
    assert_eq!(body("abcd"), Err(BadBody::DataTooLong { len: 4, max: 3 }));
}

#[test]
fn socket_ids_are_digits_dot_digits() {
    for id in ["1.2", "123456789.9876543210", "0.0"] {
        assert!(check_socket_id(id), "{id}");
    }
    for id in ["", ".", "1", "1.", ".1", "1.2.3", "1.2\n", " 1.2", "a.1", "1,2", "\u{0661}.1"] {
        assert!(!check_socket_id(id), "{id}");
    }
}

#[test]
fn the_signed_text_of_the_protocols_example() {
    use hmac::{Hmac, KeyInit, Mac};
    let text = string_to_sign(
        "POST",
        "/apps/3/events",
        "body_md5=ec365a775a4cd0599faeb73354201b6f&auth_version=1.0&\
         auth_key=278d425bdf160c739803&auth_timestamp=1353088179&auth_signature=da45",
    );
    let expected = "POST\n/apps/3/events\nauth_key=278d425bdf160c739803&\
        auth_timestamp=1353088179&auth_version=1.0&body_md5=ec365a775a4cd0599faeb73354201b6f";
    assert_eq!(text, expected);
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(b"7ad3773142a6692b25b8").unwrap();
    mac.update(text.as_bytes());
    assert_eq!(
        hex::encode(mac.finalize().into_bytes()),
        "da454824c97ba181a32ccc17a72625ba02771f50b50e1e7430e47a1f3f457e6c"
    );
}

#[test]
fn signed_pairs_are_decoded_lowered_and_sorted() {
    let text = string_to_sign("GET", "/x%20y", "B=1&A=%2Fp+q&AUTH_SIGNATURE=z&a=%20&filter");
    assert_eq!(text, "GET\n/x%20y\na=/p q&a= &b=1&filter=", "equal names stay in order");
    assert_eq!(string_to_sign("GET", "/", ""), "GET\n/\n");
}

#[test]
fn lists_are_joined_where_a_library_signs_them_so() {
    let joined = |query| string_to_sign_joined("GET", "/x", query);
    let query = "info%5B0%5D=a&b=1&INFO[1]=b&auth_signature=z&c[]=%2C&c[]=";
    assert_eq!(joined(query).as_deref(), Some("GET\n/x\nb=1&c=,,&info=a,b"));
    let many = (0..12).map(|n| format!("a[{n}]={n}")).collect::<Vec<_>>().join("&");
    assert_eq!(
        joined(&many).as_deref(),
        Some("GET\n/x\na=0,1,2,3,4,5,6,7,8,9,10,11"),
        "as they came"
    );
    for plain in ["", "a=b", "a]=b", "a=[]"] {
        assert_eq!(joined(plain), None, "{plain}");
    }
    let apart = string_to_sign("GET", "/x", "c[]=2&b=1&c[]=1");
    assert_eq!(apart, "GET\n/x\nb=1&c[]=2&c[]=1", "others sign each item");
}

#[test]
fn a_parameter_may_be_a_list() {
    for (query, expected) in [
        ("a=1", Some("1")),
        ("a=1&a=2", Some("1")),
        ("a[]=x%20y&b=1&a[]=2", Some("x y,2")),
        ("a[0]=1&a[7]=2", Some("1,2")),
        ("b[]=1&A=2", None),
        ("", None),
    ] {
        assert_eq!(parameter(query, "a").as_deref(), expected, "{query}");
    }
}

#[test]
fn a_call_without_a_body_says_it_in_its_query() {
    let read = |query: &str| trigger_of_query(query, Bounds { data: 3, ..Bounds::default() });
    let both = "name=e+f&data=%7B%7D&channels[]=a&channels[]=b&channels[]=a&socket_id=1.2";
    let expected = Trigger {
        name: "e f".into(),
        channels: vec!["a".into(), "b".into()],
        data: "{}".into(),
        socket_id: Some("1.2".into()),
        info: None,
    };
    assert_eq!(read(both), Ok(expected));
    let one = read("name=e&channel=a&data=&info=user_count&auth_key=k").unwrap();
    assert_eq!((&*one.channels[0], &*one.data), ("a", ""));
    assert_eq!(one.info.as_deref(), Some("user_count"));
    let many = "&channels[]=a".repeat(MAX_CHANNELS + 1);
    for (query, expected) in [
        ("", BadBody::Missing("name")),
        ("name=e&data=", BadBody::Missing("channels")),
        ("name=e&channels=a,b&data=", BadBody::Missing("channels")),
        ("name=e&channel=a", BadBody::Missing("data")),
        ("name=pusher:e&channel=a&data=", BadBody::ReservedName),
        ("name=e&channel=a&channels[]=b&data=", BadBody::BothChannels),
        ("name=e&channel=a&data=1&socket_id=1", BadBody::BadSocketId),
        ("name=e&channel=a&data=1234", BadBody::DataTooLong { len: 4, max: 3 }),
        (
            "name=e&channels[]=a&channels[]=&data=",
            BadBody::BadChannel { index: 1, why: BadName::Empty },
        ),
        (&format!("name=e&data={many}"), BadBody::TooManyChannels { count: MAX_CHANNELS + 1 }),
    ] {
        assert_eq!(read(query), Err(expected), "{query}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_trigger_or_a_bad_body(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = trigger(&body);
    }

    #[test]
    fn any_text_with_the_apis_fields_is_a_trigger_or_a_bad_body(
        values in prop::collection::vec(
            (
                "name|channel|channels|data|socket_id|info",
                "\"\\PC{0,6}\"|[0-9]|\\[\"a\"\\]|null|\\{\\}|x",
            ),
            0..6,
        ),
    ) {
        let pair = |(key, value): &(String, String)| format!("\"{key}\":{value}");
        let pairs: Vec<_> = values.iter().map(pair).collect();
        let body = format!("{{{}}}", pairs.join(","));
        if let Ok(trigger) = trigger(body.as_bytes()) {
            prop_assert!((1..=MAX_CHANNELS).contains(&trigger.channels.len()));
        }
    }

    #[test]
    fn any_query_can_be_signed(query in any::<String>()) {
        prop_assert!(string_to_sign("GET", "/", &query).starts_with("GET\n/\n"));
        let joined = string_to_sign_joined("GET", "/", &query);
        prop_assert!(joined.is_none_or(|text| text.starts_with("GET\n/\n")));
        let _ = trigger_of_query(&query, Bounds::default());
    }

    #[test]
    fn the_order_of_a_query_does_not_change_what_is_signed(
        pairs in prop::collection::btree_map("[a-z]{1,6}", "[a-z0-9]{0,6}", 0..8),
    ) {
        let forward: Vec<_> = pairs.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let backward: Vec<_> = forward.iter().rev().cloned().collect();
        prop_assert_eq!(
            string_to_sign("GET", "/", &forward.join("&")),
            string_to_sign("GET", "/", &backward.join("&"))
        );
    }
}

#[test]
fn a_batch_is_a_list_of_events() {
    let one = json!({ "name": "e", "channel": "a", "data": "1" });
    let two = json!({ "name": "f", "channel": "b", "data": "2", "info": "user_count" });
    let read = |body: &Value| batch(body.to_string().as_bytes());
    let events = read(&json!({ "batch": [one, two] })).unwrap();
    assert_eq!(events.len(), 2);
    assert_eq!((&*events[1].name, &*events[1].channels[0]), ("f", "b"));
    assert_eq!(events[1].info.as_deref(), Some("user_count"));
    let body = |why| Err(BadBatch::Body(why));
    for (text, expected) in [
        (json!({}), body(BadBody::Missing("batch"))),
        (json!({ "batch": null }), body(BadBody::Missing("batch"))),
        (json!({ "batch": [] }), body(BadBody::Missing("batch"))),
        (json!({ "batch": {} }), body(BadBody::NotAList("batch"))),
        (json!([]), body(BadBody::NotAnObject)),
        (
            json!({ "batch": [one, 5] }),
            Err(BadBatch::Event { index: 1, why: BadBody::NotAnObject }),
        ),
        (
            json!({ "batch": [{ "name": "e", "data": "" }] }),
            Err(BadBatch::Event { index: 0, why: BadBody::Missing("channels") }),
        ),
        (json!({ "batch": vec![one.clone(); 11] }), Err(BadBatch::TooMany { count: 11, max: 10 })),
    ] {
        let found = read(&text);
        assert_eq!(found, expected, "{text}");
        assert!(!found.unwrap_err().to_string().is_empty());
    }
    assert_eq!(read(&json!({ "batch": vec![one; 10] })).unwrap().len(), 10);
    let long = json!({ "name": "e", "channel": "a", "data": "x".repeat(MAX_DATA + 1) });
    assert_eq!(read(&json!({ "batch": [long] })).unwrap_err().status(), 413);
}

#[test]
fn the_deprecated_form_has_its_name_in_the_query() {
    let read = |query: &str, body: &[u8]| channel_event("a", query, body, Bounds::default());
    let event = |name: &str, data: &str, socket_id: Option<&str>| {
        let channels = vec!["a".into()];
        Trigger {
            name: name.into(),
            channels,
            data: data.into(),
            socket_id: socket_id.map(Into::into),
            info: None,
        }
    };
    assert_eq!(read("name=e", b"{\"x\":1}"), Ok(event("e", "{\"x\":1}", None)));
    assert_eq!(read("auth_key=k&name=a%20b&socket_id=1.2", b""), Ok(event("a b", "", Some("1.2"))));
    let most = vec![b'x'; MAX_DATA];
    assert!(read("name=e", &most).is_ok());
    let more = vec![b'x'; MAX_DATA + 1];
    let too_long = BadBody::DataTooLong { len: MAX_DATA + 1, max: MAX_DATA };
    assert_eq!(read("name=e", &more), Err(too_long));
    for (query, body, why) in [
        ("", &b""[..], BadBody::Missing("name")),
        ("name=", b"", BadBody::Missing("name")),
        ("name=pusher:e", b"", BadBody::ReservedName),
        ("name=e&socket_id=x", b"", BadBody::BadSocketId),
        ("name=e", b"\xff", BadBody::NotUtf8),
    ] {
        assert_eq!(read(query, body), Err(why), "{query}");
    }
    let bad = channel_event("a b", "name=e", b"", Bounds::default());
    let why = BadName::Char { at: 1, found: ' ' };
    assert_eq!(bad, Err(BadBody::BadChannel { index: 0, why }));
}
