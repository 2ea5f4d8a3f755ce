use super::*;
use crate::ws::{Decoder, Event, Step};
use alloc::string::ToString;
use alloc::vec;
use proptest::prelude::*;

fn lines(frames: &[Vec<u8>]) -> String {
    let mut batch = Batch::default();
    frames.iter().for_each(|frame| batch.push(frame));
    String::from_utf8(batch.finish()).unwrap()
}

fn text(text: &str) -> Vec<u8> {
    ws::frame(Opcode::Text, text.as_bytes())
}

/// What a WebSocket server understands of frames of a client.
fn understood(mut frames: Vec<u8>, max: usize) -> Vec<String> {
    let mut decoder = Decoder::new(max);
    let mut seen = Vec::new();
    let mut rest = &mut frames[..];
    while !rest.is_empty() {
        let Step::Took { consumed, event } = decoder.decode(rest).unwrap() else {
            panic!("only whole frames");
        };
        match event.unwrap() {
            Event::Text(text) => seen.push(text.to_string()),
            Event::Ping(b"") => seen.push("ping".into()),
            Event::Pong(b"") => seen.push("pong".into()),
            other => panic!("{other:?}"),
        }
        rest = &mut rest[consumed..];
    }
    seen
}

#[test]
fn messages_share_a_line_and_other_frames_have_their_own() {
    let ping = text(&pusher::ping());
    let pong = ws::frame(Opcode::Pong, b"x");
    let frames = [text("a"), text("\"\n"), ping, text("b"), pong, ws::frame(Opcode::Ping, b"")];
    assert_eq!(lines(&frames), "a[\"a\",\"\\\"\\n\"]\nh\na[\"b\"]\na[]\nh\n");
    assert_eq!(lines(&[]), "");
    assert_eq!(lines(&[[text("a"), text("b")].concat()]), "a[\"a\",\"b\"]\n");
}

#[test]
fn each_length_of_a_frame_is_read() {
    for len in [0, 125, 126, 0xFFFF, 0x1_0000] {
        let long = "x".repeat(len);
        assert_eq!(lines(&[text(&long)]), alloc::format!("a[\"{long}\"]\n"), "{len}");
    }
}

#[test]
fn the_end_has_its_code_and_what_came_before_it() {
    let frames = [text("a"), ws::close_frame(4200, "come \"back\"")];
    assert_eq!(lines(&frames), "a[\"a\"]\nc[4200,\"come \\\"back\\\"\"]\n");
    assert_eq!(lines(&[ws::frame(Opcode::Close, b"")]), "c[1000,\"\"]\n");
    let told = String::from_utf8(refusal(4001, "no app")).unwrap();
    let error = serde_json::to_string(&pusher::error(Some(4001), "no app")).unwrap();
    assert_eq!(told, alloc::format!("o\na[{error}]\nc[4001,\"no app\"]\n"));
}

#[test]
fn characters_are_counted_as_their_reader_counts_them() {
    for (text, count) in [("", 0), ("ab\n", 3), ("é", 1), ("€", 1), ("😀", 2), ("a😀é", 4)]
    {
        assert_eq!(chars(text.as_bytes()), count);
        assert_eq!(text.encode_utf16().count() as u64, count);
    }
}

#[test]
fn a_body_is_messages_or_a_ping() {
    let read = |body: &str| frames(body.as_bytes(), 5);
    assert_eq!(understood(read("[]").unwrap(), 5), ["ping"]);
    assert_eq!(understood(here(), 5), ["pong"]);
    assert_eq!(understood(read(r#"["a","\u00e9\n","12345"]"#).unwrap(), 5), ["a", "é\n", "12345"]);
    assert_eq!(understood(read(r#" [ "" ] "#).unwrap(), 5), [""]);
    for (body, why) in [
        (r#"["123456"]"#, BadSend::TooLong(5)),
        (r#"["1","123456","2"]"#, BadSend::TooLong(5)),
        (r#""a""#, BadSend::NotMessages),
        ("[1]", BadSend::NotMessages),
        ("null", BadSend::NotMessages),
        (r#"{"a":"b"}"#, BadSend::NotMessages),
        (r#"["a""#, BadSend::NotJson),
        (r#"["a"]x"#, BadSend::NotJson),
        ("", BadSend::NotJson),
    ] {
        assert_eq!(read(body), Err(why), "{body}");
    }
    assert_eq!(frames(b"[\"\xff\"]", 5), Err(BadSend::NotJson));
}

proptest! {
    #[test]
    fn what_is_sent_is_what_is_understood(
        messages in prop::collection::vec(any::<String>(), 1..5),
        long in "[a-é]{0,300}",
    ) {
        let all = [messages, vec![long]].concat();
        let body = serde_json::to_vec(&all).unwrap();
        prop_assert_eq!(understood(frames(&body, 1 << 16).unwrap(), 1 << 16), &all[..]);
        let sent: Vec<_> = all.iter().map(|message| text(message)).collect();
        let line = lines(&sent);
        let read: Vec<String> = serde_json::from_str(line.strip_prefix('a').unwrap()).unwrap();
        prop_assert_eq!(read, all);
        prop_assert_eq!(line.matches('\n').count(), 1);
    }

    #[test]
    fn no_body_makes_anything_but_whole_frames(body in any::<Vec<u8>>(), max in 0_usize..50) {
        if let Ok(frames) = frames(&body, max) {
            understood(frames, max.max(1));
        }
    }

    #[test]
    fn no_body_like_json_makes_anything_but_whole_frames(body in r#"[\[\]",a\\u0-9 {}]{0,20}"#) {
        if let Ok(frames) = frames(body.as_bytes(), 3) {
            understood(frames, 3);
        }
    }
}
