use super::*;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

/// Every frame as bytes, in order of their names; `PROTOCOL.md` points here.
const VECTORS: &str = include_str!("../../tests/vectors/quic.txt");

const WHY: Refusal = Refusal { place: 5, reason: 14, retry: Retry::After(300) };

fn samples() -> Vec<(&'static str, Frame<'static>)> {
    let records = Records::decode(&[2, 2, b'h', b'i', 0]).unwrap();
    let request = 77;
    let subscribe = |policy, start| Frame::Subscribe {
        request,
        topic: 3,
        policy,
        batches: 16,
        bytes: 1 << 20,
        start,
    };
    let welcome = Welcome {
        version: 1,
        features: 0,
        session: 0x0102_0304_0506_0708,
        time_ms: 1_700_000_000_000,
        max_frame_bytes: 16 << 20,
        max_subscriptions: 4096,
        max_topics: 4096,
        max_publish_streams: 8,
        idle_ms: 30_000,
    };
    let hello =
        Frame::Hello { oldest: 1, newest: 2, features: 0, tenant: "default", token: "secret" };
    vec![
        ("ack", Frame::Ack { request, first: 100 }),
        ("bind", Frame::Bind { request, publish: true, subscribe: false, topic: "orders" }),
        ("bound", Frame::Bound { request, topic: 3, epoch: 0xdead_beef }),
        ("ended", Frame::Ended { why: Refusal { place: 6, reason: 18, retry: Retry::Never } }),
        ("error", Frame::Error { code: Code::Malformed, text: "no frame has the type 0x7f" }),
        ("events", Frame::Events { first: 100, records }),
        ("gap", Frame::Gap { first: 3, last: 9, records: 5, why: WHY }),
        ("go_away", Frame::GoAway { grace_ms: 10_000 }),
        ("hello", hello),
        ("ping", Frame::Ping { token: 7 }),
        ("pong", Frame::Pong { token: 7 }),
        ("publish", Frame::Publish { topic: 3, mode: Mode::Unacked, records }),
        ("publish_acked", Frame::Publish { topic: 3, mode: Mode::Acked { request }, records }),
        ("publish_waiting", Frame::Publish { topic: 3, mode: Mode::Waiting { request }, records }),
        ("refused", Frame::Refused { request, why: Refusal { retry: Retry::Unknown, ..WHY } }),
        ("shed", Frame::Shed { records: 112, why: WHY }),
        ("subscribe_at", subscribe(Policy::Block, Start::At { epoch: 9, sequence: 100 })),
        ("subscribe_earliest", subscribe(Policy::DropNew, Start::Earliest)),
        ("subscribe_last", subscribe(Policy::DropOld, Start::Last(100))),
        ("subscribe_latest", subscribe(Policy::Latest, Start::Tail)),
        ("subscribe_tail", subscribe(Policy::Default, Start::Tail)),
        ("subscribed", Frame::Subscribed { request, subscription: 4, epoch: 9, start: 101 }),
        ("unsubscribe", Frame::Unsubscribe { subscription: 4 }),
        ("welcome", Frame::Welcome(welcome)),
    ]
}

/// The one frame of a stream.
fn only(stream: &[u8]) -> Vec<u8> {
    let mut rest = stream;
    let frame = Assembler::new(1 << 20).take(&mut rest).unwrap().unwrap();
    assert!(rest.is_empty());
    frame
}

#[test]
fn every_frame_is_what_the_vectors_say() {
    let mut table = String::new();
    for (name, frame) in samples() {
        let line = alloc::format!("{name} {}\n", hex::encode(frame.bytes()));
        table.push_str(&line);
    }
    assert_eq!(table, VECTORS, "this is the table now:\n{table}");
    for ((_, frame), line) in samples().into_iter().zip(VECTORS.lines()) {
        let (name, bytes) = line.split_once(' ').unwrap();
        let stream = hex::decode(bytes).unwrap();
        assert_eq!(decode(&only(&stream)), Ok(Some(frame)), "{name}");
    }
}

#[test]
fn a_frame_that_is_cut_short_is_a_fault() {
    for (name, frame) in samples() {
        let whole = only(&frame.bytes());
        for len in 0..whole.len() {
            assert!(decode(&whole[..len]).is_err(), "{name} at {len}");
        }
    }
}

#[test]
fn fields_of_later_versions_are_passed_over_or_refused_by_their_tag() {
    for (name, frame) in samples() {
        let mut bytes = only(&frame.bytes());
        bytes.extend([7, 2, 1, 2]);
        let is_batch = matches!(frame, Frame::Events { .. } | Frame::Publish { .. });
        let expected = if is_batch { Err(Fault::Trailing) } else { Ok(Some(frame)) };
        assert_eq!(decode(&bytes), expected, "{name}: an odd tag");
        let tag = bytes.len() - 4;
        bytes[tag] = 8;
        let expected = if is_batch { Fault::Trailing } else { Fault::Required(8) };
        assert_eq!(decode(&bytes), Err(expected), "{name}: an even tag");
    }
}

#[test]
fn unknown_types_are_passed_over_or_refused_by_their_high_bit() {
    assert_eq!(decode(&[0x80, 1, 2, 3]), Ok(None));
    assert_eq!(decode(&[0x13]), Err(Fault::Type(0x13)));
    assert_eq!(decode(&[]), Err(Fault::Truncated));
}

#[test]
fn every_field_has_its_range() {
    let long = "x".repeat(MAX_NAME + 1);
    let bind = Frame::Bind { request: 1, publish: true, subscribe: true, topic: &long };
    let fault = Fault::TextTooLong { len: MAX_NAME + 1, most: MAX_NAME };
    assert_eq!(decode(&only(&bind.bytes())), Err(fault));
    for (bytes, fault) in [
        // Rights, mode, policy, start, retry, code: one more than there are.
        (&[0x03, 1, 4, 0][..], Fault::Choice(4)),
        (&[0x05, 1, 3], Fault::Choice(3)),
        (&[0x09, 1, 1, 5], Fault::Choice(5)),
        (&[0x09, 1, 1, 0, 1, 1, 4], Fault::Choice(4)),
        (&[0x0e, 0, 0, 3], Fault::Choice(3)),
        (&[0x12, 9, 0], Fault::Choice(9)),
        (&[0x03, 1, 1, 1, 0xff], Fault::NotUtf8),
        (&[0x0e, 0, 0, 1, 0x80, 1, 0, 0], Fault::Number(0x1_0000)),
    ] {
        assert_eq!(decode(bytes), Err(fault), "{bytes:x?}");
    }
}

#[test]
fn a_publish_and_its_events_share_the_block_of_records() {
    let records = [&b"one"[..], b"", b"three"];
    let mut publish = Vec::new();
    put_publish(&mut publish, 3, Mode::Unacked, &records);
    let publish = only(&publish);
    let Ok(Some(Frame::Publish { records: block, .. })) = decode(&publish) else { panic!() };
    let mut events = Vec::new();
    events_head(&mut events, 100, block.block().len());
    events.extend_from_slice(block.block());
    let events = only(&events);
    let Ok(Some(Frame::Events { first, records: read })) = decode(&events) else { panic!() };
    assert_eq!((first, read.into_iter().collect::<Vec<_>>()), (100, records.to_vec()));
}

#[test]
fn codes_are_found_by_their_numbers() {
    for code in Code::ALL {
        assert_eq!(Code::from_number(code.number().into()), Some(code));
    }
    assert_eq!(Code::from_number(0), None);
}

#[test]
fn a_reset_says_where_and_why() {
    assert_eq!(reset_reason(reset_code(5, 14).into()), Some((5, 14)));
    assert_eq!((reset_reason(0), reset_reason(0x2_0000)), (None, None));
}

proptest! {
    #[test]
    fn any_bytes_are_a_frame_or_a_fault(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        if let Ok(Some(frame)) = decode(&bytes) {
            // What was read is what would be written, but for long forms and unknown fields.
            let again = only(&frame.bytes());
            prop_assert_eq!(decode(&again), Ok(Some(frame)));
        }
    }

    #[test]
    fn numbers_of_any_size_come_back(
        numbers in (0..=varint::MAX, 0..=varint::MAX, any::<u64>()),
        retry in prop_oneof![
            Just(Retry::Never),
            any::<u16>().prop_map(Retry::After),
            Just(Retry::Unknown),
        ],
        (place, reason) in any::<(u8, u8)>(),
    ) {
        let (request, sequence, epoch) = numbers;
        let why = Refusal { place, reason, retry };
        for frame in [
            Frame::Ack { request, first: sequence },
            Frame::Refused { request, why },
            Frame::Gap { first: request, last: sequence, records: request, why },
            Frame::Bound { request, topic: u32::MAX, epoch },
        ] {
            let bytes = only(&frame.bytes());
            prop_assert_eq!(decode(&bytes), Ok(Some(frame)));
        }
    }
}
