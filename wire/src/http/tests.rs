use super::*;
use alloc::string::String;
use alloc::vec;
use proptest::prelude::*;

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

fn head(text: &str) -> Head<'_> {
    match parse(text.as_bytes()) {
        Ok(Parse::Head(head)) => head,
        other => panic!("{other:?} from {text}"),
    }
}

fn fault(text: &str) -> Fault {
    parse(text.as_bytes()).expect_err(text)
}

/// A GET with these further lines.
fn get(lines: &[&str]) -> String {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

/// A handshake with these lines in place of key and version.
fn handshake(lines: &[&str]) -> String {
    get(&[&["Upgrade: websocket", "Connection: Upgrade"], lines].concat())
}

#[test]
fn a_request_is_split_and_nothing_of_it_is_decoded() {
    let text = "POST /apps/1/events?a=%20b&c=d?e HTTP/1.1\r\nhost: h:1\r\n\
        Origin: http://o\r\ncontent-length: 17\r\nExpect: 100-Continue\r\n\r\n{\"name\"";
    let head = head(text);
    assert_eq!(&text[head.len..], "{\"name\"");
    assert_eq!((head.method, head.path), ("POST", "/apps/1/events"));
    assert_eq!(head.query, "a=%20b&c=d?e");
    assert_eq!((head.content_length, head.keep_alive, head.expect_continue), (17, true, true));
    assert_eq!((head.host, head.origin, head.upgrade), (Some("h:1"), Some("http://o"), None));
}

#[test]
fn a_head_needs_more_until_its_blank_line() {
    let text = get(&["Accept: */*"]);
    for len in 0..text.len() {
        assert_eq!(parse(&text.as_bytes()[..len]), Ok(Parse::NeedMore), "{len}");
    }
    assert_eq!(head(&text).len, text.len());
}

#[test]
fn targets_are_paths_or_urls() {
    let split = |target: &str| {
        let text = format!("GET {target} HTTP/1.0\r\n\r\n");
        parse(text.as_bytes()).map(|parse| match parse {
            Parse::Head(head) => (String::from(head.path), String::from(head.query)),
            Parse::NeedMore => panic!("{target}"),
        })
    };
    let of = |path: &str, query: &str| Ok((path.into(), query.into()));
    assert_eq!(split("/"), of("/", ""));
    assert_eq!(split("//a?b"), of("//a", "b"));
    assert_eq!(split("http://host:1/a?b=http://c"), of("/a", "b=http://c"));
    assert_eq!(split("HTTPS://host/"), of("/", ""));
    for target in ["*", "host:443", "http://host", "ftp://host/a", "a/b"] {
        assert_eq!(split(target), Err(Fault::BadTarget), "{target}");
    }
}

#[test]
fn keep_alive_follows_version_and_connection() {
    let kept = |line: &str, connection: &str| {
        head(&format!("GET / {line}\r\nHost: a\r\n{connection}\r\n")).keep_alive
    };
    assert!(kept("HTTP/1.1", ""));
    assert!(!kept("HTTP/1.1", "Connection: foo, Close\r\n"));
    assert!(!kept("HTTP/1.0", ""));
    assert!(kept("HTTP/1.0", "Connection: Keep-Alive\r\n"));
    assert!(!kept("HTTP/1.0", "Connection: keep-alive\r\nConnection: close\r\n"));
}

#[test]
fn a_handshake_is_recognised() {
    let key = format!("Sec-WebSocket-Key: {KEY}");
    let version = "Sec-WebSocket-Version: 13";
    let upgrade = Some(Upgrade { key: KEY });
    assert_eq!(head(&handshake(&[&key, version])).upgrade, upgrade);
    let firefox = ["connection: keep-alive, Upgrade", "upgrade: h2c, WebSocket", &key, version];
    assert_eq!(head(&get(&firefox)).upgrade, upgrade);
    let halves = [
        get(&["Upgrade: websocket", &key, version]),
        get(&["Connection: Upgrade", &key, version]),
        get(&["Connection: Upgrade", "Upgrade: h2c", &key, version]),
        handshake(&[&key, version]).replace("GET", "POST"),
        handshake(&[&key, version]).replace("HTTP/1.1", "HTTP/1.0"),
    ];
    for text in halves {
        assert_eq!(head(&text).upgrade, None, "{text}");
    }
}

#[test]
fn a_bad_handshake_is_refused_by_name() {
    let key = format!("Sec-WebSocket-Key: {KEY}");
    let version = "Sec-WebSocket-Version: 13";
    for version in ["Sec-WebSocket-Version: 8", "Sec-WebSocket-Version: 13, 8", "X: y"] {
        assert_eq!(fault(&handshake(&[&key, version])), Fault::WebSocketVersion);
    }
    assert_eq!(fault(&handshake(&[version])), Fault::MissingKey);
    let long = "A".repeat(2000);
    for bad in ["", "short", "dGhlIHNhbXBsZSBub25jZQ", "dGhlIHNhbXBsZSBub25jZWE=", "****", &long] {
        let key = format!("Sec-WebSocket-Key: {bad}");
        assert_eq!(fault(&handshake(&[&key, version])), Fault::BadKey, "{bad}");
    }
    let twice = handshake(&[&key, &key, version]);
    assert_eq!(fault(&twice), Fault::Repeated("Sec-WebSocket-Key"));
}

#[test]
fn what_two_parsers_could_read_differently_is_refused() {
    let length = |value: &str| fault(&get(&[&format!("Content-Length: {value}")]));
    for bad in ["", "-1", "+1", "1 2", "1,1", "0x1", "1.0", "18446744073709551616"] {
        assert_eq!(length(bad), Fault::BadContentLength, "{bad}");
    }
    assert_eq!(head(&get(&["Content-Length: 18446744073709551615"])).content_length, u64::MAX);
    for second in ["Content-Length: 6", "content-length: 5"] {
        let twice = get(&["Content-Length: 5", second]);
        assert_eq!(fault(&twice), Fault::Repeated("Content-Length"));
    }
    let both = get(&["Content-Length: 5", "Transfer-Encoding: chunked"]);
    assert_eq!(fault(&both), Fault::BothLengths);
    assert_eq!(fault(&get(&["Transfer-Encoding: Chunked"])), Fault::ChunkedBody);
    assert_eq!(fault(&get(&["Transfer-Encoding: gzip, chunked"])), Fault::TransferCoding);
    let codings = get(&["Transfer-Encoding: chunked", "Transfer-Encoding: identity"]);
    assert_eq!(fault(&codings), Fault::Repeated("Transfer-Encoding"));
    assert_eq!(fault(&get(&["Content-Length : 5"])), Fault::Malformed("header name"));
    assert!(matches!(fault(&get(&["A: b", " folded: c"])), Fault::Malformed(_)));
    assert_eq!(fault(&get(&["Host: b"])), Fault::Repeated("Host"));
    assert_eq!(fault("GET / HTTP/1.1\r\n\r\n"), Fault::MissingHost);
}

#[test]
fn bytes_that_are_no_http_1_are_refused() {
    assert_eq!(fault("GET / HTTP/2.0\r\n\r\n"), Fault::Version);
    assert_eq!(fault("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Fault::Version);
    assert_eq!(fault("\x16\x03\x01\x02\x00\x01"), Fault::Malformed("request line"));
    assert_eq!(fault(&get(&["A: \x00"])), Fault::Malformed("header value"));
    assert_eq!(fault(&get(&["A: b\rc: d"])), Fault::Malformed("header value"));
    assert_eq!(parse(b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n"), Err(Fault::NotText("Host")));
    assert!(parse(b"GET / HTTP/1.1\r\nHost: a\r\nX: \xff\r\n\r\n").is_ok(), "nobody reads it");
}

#[test]
fn a_head_that_just_fits_and_one_that_just_does_not() {
    let of = |len: usize| {
        let bare = get(&["X: "]).len();
        get(&[&format!("X: {}", "x".repeat(len - bare))])
    };
    let fits = of(MAX_HEAD);
    assert_eq!(fits.len(), MAX_HEAD);
    assert_eq!(head(&fits).len, MAX_HEAD);
    assert_eq!(head(&(fits.clone() + "body")).len, MAX_HEAD);
    assert_eq!(parse(&fits.as_bytes()[..MAX_HEAD - 1]), Ok(Parse::NeedMore));
    let over = of(MAX_HEAD + 1);
    assert_eq!(fault(&over), Fault::HeadTooLong);
    assert_eq!(fault(&over[..MAX_HEAD]), Fault::HeadTooLong, "as soon as it cannot fit");
    assert_eq!(parse(&vec![b'a'; 1 << 20]), Err(Fault::HeadTooLong));
}

#[test]
fn as_many_fields_as_fit_and_one_more() {
    let fields = |count: usize| get(&vec!["A: b"; count - 1]);
    assert_eq!(head(&fields(MAX_HEADERS)).method, "GET");
    assert_eq!(fault(&fields(MAX_HEADERS + 1)), Fault::TooManyHeaders);
}

#[test]
fn faults_answer_with_their_status_and_say_why() {
    let faults = [
        (Fault::BadContentLength, 400),
        (Fault::BadKey, 400),
        (Fault::BadTarget, 400),
        (Fault::BothLengths, 400),
        (Fault::ChunkedBody, 411),
        (Fault::HeadTooLong, 431),
        (Fault::Malformed("line end"), 400),
        (Fault::MissingHost, 400),
        (Fault::MissingKey, 400),
        (Fault::NotText("Host"), 400),
        (Fault::Repeated("Host"), 400),
        (Fault::TooManyHeaders, 431),
        (Fault::TransferCoding, 501),
        (Fault::Version, 505),
        (Fault::WebSocketVersion, 426),
    ];
    for (fault, status) in faults {
        assert_eq!(fault.status(), status);
        assert!(!reason(status).is_empty());
        let response = String::from_utf8(fault.response()).unwrap();
        assert!(response.starts_with(&format!("HTTP/1.1 {status} {}\r\n", reason(status))));
        assert!(response.contains("\r\nConnection: close\r\n"));
        assert!(response.ends_with(&format!("\r\n\r\n{fault}\n")));
    }
    let upgrade = String::from_utf8(Fault::WebSocketVersion.response()).unwrap();
    assert!(upgrade.contains("\r\nSec-WebSocket-Version: 13\r\n"));
    assert!(upgrade.contains("\r\nUpgrade: websocket\r\n"));
}

#[test]
fn the_handshake_of_rfc_6455_section_1_3() {
    let expected = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
        Connection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    assert_eq!(switching_protocols(KEY), expected.as_bytes());
}

#[test]
fn responses_are_whole_and_exactly_allocated() {
    let plain = response(200, "application/json", true, b"{}");
    let expected = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\
        Connection: keep-alive\r\n\r\n{}";
    assert_eq!(plain, expected.as_bytes());
    assert_eq!(plain.len(), plain.capacity());
    let content = Content { content_type: PLAIN, headers: &[("Retry-After", "2")], body: b"" };
    let busy = response_with(503, false, content);
    let expected = "HTTP/1.1 503 Service Unavailable\r\n\
        Content-Type: text/plain; charset=utf-8\r\nContent-Length: 0\r\nConnection: close\r\n\
        Retry-After: 2\r\n\r\n";
    assert_eq!(busy, expected.as_bytes());
    assert_eq!(busy.len(), busy.capacity());
}

#[test]
fn pairs_are_decoded_in_order() {
    let decoded = |query| pairs(query).map(|(k, v)| (k.into(), v.into())).collect::<Vec<_>>();
    let of = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|&(k, v)| (String::from(k), String::from(v))).collect::<Vec<_>>()
    };
    assert_eq!(decoded(""), []);
    assert_eq!(decoded("b=2&a=1&&=&c"), of(&[("b", "2"), ("a", "1"), ("", ""), ("c", "")]));
    assert_eq!(decoded("a%5B%5d=x+y%2B&e=%C3%A9"), of(&[("a[]", "x y+"), ("e", "\u{e9}")]));
    assert_eq!(
        decoded("a=%&b=%4&c=%zz&d=%%41"),
        of(&[("a", "%"), ("b", "%4"), ("c", "%zz"), ("d", "%A")])
    );
    assert_eq!(decoded("a=%ff&b=c=d"), of(&[("a", "\u{fffd}"), ("b", "c=d")]));
}

#[test]
fn parsing_allocates_nothing() {
    let text = handshake(&[&format!("Sec-WebSocket-Key: {KEY}"), "Sec-WebSocket-Version: 13"]);
    let info = allocation_counter::measure(|| {
        assert!(matches!(parse(text.as_bytes()), Ok(Parse::Head(head)) if head.upgrade.is_some()));
        assert_eq!(pairs("protocol=7&client=js&version=8.6.0&flash=false").count(), 4);
    });
    assert_eq!(info.count_total, 0);
}

proptest! {
    #[test]
    fn any_bytes_are_a_head_or_a_fault(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn any_lines_are_a_head_or_a_fault(
        target in "[ -~]{0,20}",
        lines in prop::collection::vec(
            "(Host|Content-Length|Connection|Upgrade|Transfer-Encoding|Expect): \\PC{0,20}",
            0..8,
        ),
    ) {
        let text = format!("GET /{target} HTTP/1.1\r\n{}\r\n\r\n", lines.join("\r\n"));
        if let Ok(Parse::Head(head)) = parse(text.as_bytes()) {
            prop_assert!(head.len <= text.len() && head.path.starts_with('/'));
        }
    }

    #[test]
    fn a_shorter_prefix_never_says_something_else(cut in 0_usize..200) {
        let text = get(&["Content-Length: 5", "Connection: close"]);
        let cut = cut.min(text.len() - 1);
        prop_assert_eq!(parse(&text.as_bytes()[..cut]), Ok(Parse::NeedMore));
    }

    #[test]
    fn encoded_pairs_read_back(pair in (any::<String>(), any::<String>())) {
        let encode = |text: &str| text.bytes().map(|b| format!("%{b:02X}")).collect::<String>();
        let query = format!("{}={}", encode(&pair.0), encode(&pair.1));
        let (name, value) = pairs(&query).next().unwrap();
        prop_assert_eq!((name.into_owned(), value.into_owned()), pair);
    }

    #[test]
    fn any_query_has_pairs(query in any::<String>()) {
        prop_assert!(pairs(&query).count() <= query.len());
    }
}

#[test]
fn segments_of_a_path_are_decoded_and_a_plus_stays() {
    for (text, expected) in [
        ("presence-a%3Bb", "presence-a;b"),
        ("a+b", "a+b"),
        ("a%2", "a%2"),
        ("%61%20", "a "),
        ("plain", "plain"),
    ] {
        assert_eq!(decode_segment(text), expected);
    }
}
