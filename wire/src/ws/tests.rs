use super::*;
use alloc::string::{String, ToString};
use alloc::vec;
use proptest::prelude::*;

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A frame from a client: `first` is its first byte.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    match payload.len() {
        len @ 0..126 => out.push(0x80 | u8::try_from(len).unwrap()),
        len @ 126..0x1_0000 => {
            out.push(0x80 | 126);
            out.extend(u16::try_from(len).unwrap().to_be_bytes());
        }
        len => {
            out.push(0x80 | 127);
            out.extend((len as u64).to_be_bytes());
        }
    }
    out.extend(MASK);
    out.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, key)| byte ^ key));
    out
}

/// An event that outlives the buffers.
#[derive(Clone, Debug, PartialEq)]
enum Owned {
    Text(String),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>, String),
}

impl From<Event<'_>> for Owned {
    fn from(event: Event<'_>) -> Self {
        match event {
            Event::Text(text) => Self::Text(text.into()),
            Event::Binary(bytes) => Self::Binary(bytes.into()),
            Event::Ping(bytes) => Self::Ping(bytes.into()),
            Event::Pong(bytes) => Self::Pong(bytes.into()),
            Event::Close { code, reason } => Self::Close(code, reason.into()),
        }
    }
}

/// What a stream gives when it arrives in pieces of these sizes, as a shell would read it: the
/// events, then how it ended.
fn read(max: usize, stream: &[u8], mut cuts: impl FnMut() -> usize) -> (Vec<Owned>, Option<Fault>) {
    let mut decoder = Decoder::new(max);
    let mut buffer = Vec::new();
    let mut events = Vec::new();
    let mut rest = stream;
    loop {
        match decoder.decode(&mut buffer) {
            Ok(Step::Need(total)) => {
                assert!(total > buffer.len(), "asks for more than there is");
                assert!(total <= max.max(MAX_CONTROL) + MAX_HEAD, "and for no more than fits");
                if rest.is_empty() {
                    return (events, None);
                }
                let (piece, after) = rest.split_at(cuts().clamp(1, rest.len()));
                buffer.extend(piece);
                rest = after;
            }
            Ok(Step::Took { consumed, event }) => {
                assert!(consumed > 0);
                events.extend(event.map(Owned::from));
                assert!(decoder.held() <= max, "reassembly stays within the limit");
                buffer.drain(..consumed);
            }
            Err(fault) => {
                assert_eq!(decoder.decode(&mut buffer), Err(fault), "a fault is final");
                return (events, Some(fault));
            }
        }
    }
}

fn whole(max: usize, stream: &[u8]) -> (Vec<Owned>, Option<Fault>) {
    let together = read(max, stream, || usize::MAX);
    let bytewise = read(max, stream, || 1);
    assert_eq!(together, bytewise, "however the stream is cut");
    together
}

fn fault(stream: &[u8]) -> Fault {
    whole(1 << 20, stream).1.expect("a fault")
}

fn events(stream: &[u8]) -> Vec<Owned> {
    let (events, fault) = whole(1 << 20, stream);
    assert_eq!(fault, None);
    events
}

fn text(text: &str) -> Owned {
    Owned::Text(text.into())
}

#[test]
fn the_examples_of_rfc_6455_section_5_7() {
    let hello = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    assert_eq!(events(&hello), [text("Hello")]);
    assert_eq!(masked(0x81, b"Hello"), hello, "the tests' own writer agrees with the RFC");
    let pong = [0x8a, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    assert_eq!(events(&pong), [Owned::Pong(b"Hello".into())]);
    assert_eq!(frame(Opcode::Text, b"Hello"), b"\x81\x05Hello");
    assert_eq!(frame(Opcode::Ping, b"Hello"), b"\x89\x05Hello");
    assert_eq!(header(Opcode::Binary, 256).as_ref(), [0x82, 0x7e, 0x01, 0x00]);
    assert_eq!(header(Opcode::Binary, 65536).as_ref(), [0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(fault(b"\x81\x05Hello"), Fault::Unmasked, "right from servers only");
}

#[test]
fn a_message_in_fragments_is_one_event_and_control_frames_pass_between_them() {
    let stream = [
        masked(0x01, b"Hel"),
        masked(0x89, b"ping"),
        masked(0x00, b""),
        masked(0x8a, b""),
        masked(0x80, b"lo"),
        masked(0x82, b"after"),
    ];
    let expected = [
        Owned::Ping(b"ping".into()),
        Owned::Pong(Vec::new()),
        text("Hello"),
        Owned::Binary(b"after".into()),
    ];
    assert_eq!(events(&stream.concat()), expected);
    let binary = [masked(0x02, &[0xff]), masked(0x80, &[0xfe])].concat();
    assert_eq!(events(&binary), [Owned::Binary(vec![0xff, 0xfe])]);
}

#[test]
fn a_character_may_be_cut_by_fragments_and_must_be_whole_in_the_message() {
    let parts = |last: &[u8]| [masked(0x01, &[0xe2, 0x82]), masked(0x80, last)].concat();
    assert_eq!(events(&parts(&[0xac])), [text("\u{20ac}")]);
    assert_eq!(fault(&parts(&[])), Fault::InvalidUtf8);
    assert_eq!(fault(&masked(0x81, &[0xe2, 0x82])), Fault::InvalidUtf8);
    assert_eq!(fault(&masked(0x81, &[0xed, 0xa0, 0x80])), Fault::InvalidUtf8, "a surrogate");
    assert_eq!(fault(&masked(0x88, &[3, 0xe8, 0xff])), Fault::InvalidUtf8, "a close reason");
}

#[test]
fn text_that_can_be_no_utf_8_any_more_is_refused_before_its_last_fragment() {
    let first = masked(0x01, &[b'a', 0xe2, 0x82]);
    for (next, expected) in [
        (&b"b"[..], Some(Fault::InvalidUtf8)),
        (&[0xac, 0xff], Some(Fault::InvalidUtf8)),
        (&[0xac, 0xf0, 0x9f], None),
        (&[], None),
    ] {
        let parts = [first.clone(), masked(0x00, next)].concat();
        assert_eq!(whole(1 << 20, &parts), (Vec::new(), expected), "{next:?}");
    }
    assert_eq!(fault(&masked(0x01, &[0xc0])), Fault::InvalidUtf8);
    let binary = [masked(0x02, &[0xc0]), masked(0x80, b"")].concat();
    assert_eq!(events(&binary), [Owned::Binary(vec![0xc0])]);
    let second = [first, masked(0x80, &[0xac]), masked(0x01, b"x"), masked(0x80, b"y")].concat();
    assert_eq!(events(&second), [text("a\u{20ac}"), text("xy")], "each message from its start");
}

#[test]
fn a_close_may_be_empty_or_hold_a_code_and_a_reason() {
    assert_eq!(events(&masked(0x88, b"")), [Owned::Close(None, String::new())]);
    let bye = masked(0x88, b"\x03\xe8bye");
    assert_eq!(events(&bye), [Owned::Close(Some(1000), "bye".into())]);
    assert_eq!(fault(&masked(0x88, &[3])), Fault::ClosePayload);
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 2000, 2999, 5000, 65535_u16] {
        assert_eq!(fault(&masked(0x88, &code.to_be_bytes())), Fault::BadCloseCode(code));
    }
    for code in [1000, 1003, 1007, 1011, 1014, 3000, 4000, 4999_u16] {
        let close = masked(0x88, &code.to_be_bytes());
        assert_eq!(events(&close), [Owned::Close(Some(code), String::new())]);
    }
}

#[test]
fn what_follows_a_close_is_not_read() {
    let stream = [masked(0x88, b""), b"\xff\xff anything".to_vec(), masked(0x81, b"x")];
    assert_eq!(events(&stream.concat()), [Owned::Close(None, String::new())]);
}

#[test]
fn each_fault_is_named_as_soon_as_it_can_be_seen() {
    let cases: &[(&[u8], Fault)] = &[
        (&[0x08], Fault::FragmentedControl),
        (&[0x09], Fault::FragmentedControl),
        (&[0xc1], Fault::ReservedBits(0b100)),
        (&[0xa1], Fault::ReservedBits(0b010)),
        (&[0x91], Fault::ReservedBits(0b001)),
        (&[0x80], Fault::UnexpectedContinuation),
        (&[0x00], Fault::UnexpectedContinuation),
        (&[0x83], Fault::UnknownOpcode(3)),
        (&[0x87], Fault::UnknownOpcode(7)),
        (&[0x8b], Fault::UnknownOpcode(11)),
        (&[0x8f], Fault::UnknownOpcode(15)),
        (&[0x81, 0x00], Fault::Unmasked),
        (&[0x89, 0xfe], Fault::LongControl),
        (&[0x88, 0xff], Fault::LongControl),
        (&[0x81, 0xfe, 0, 125], Fault::NonMinimalLength),
        (&[0x81, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff], Fault::NonMinimalLength),
        (&[0x81, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0], Fault::LengthOverflow),
    ];
    for &(bytes, expected) in cases {
        assert_eq!(fault(bytes), expected);
        let before = &bytes[..bytes.len() - 1];
        assert_eq!(whole(1 << 20, before), (Vec::new(), None), "one byte earlier: {expected:?}");
    }
    let open = masked(0x01, b"a");
    assert_eq!(fault(&[open.clone(), vec![0x81]].concat()), Fault::InterleavedData);
    assert_eq!(fault(&[open, vec![0x02]].concat()), Fault::InterleavedData);
    let done = [masked(0x01, b"a"), masked(0x80, b"b"), vec![0x80]].concat();
    assert_eq!(whole(9, &done), (vec![text("ab")], Some(Fault::UnexpectedContinuation)));
}

#[test]
fn lengths_on_each_side_of_each_form_are_read_and_written() {
    for len in [0, 1, 125, 126, 127, 65535, 65536, 70000] {
        let payload = vec![b'x'; len];
        let binary = [Owned::Binary(payload.clone())];
        assert_eq!(read(len, &masked(0x82, &payload), || 4096).0, binary);
        let frame = frame(Opcode::Binary, &payload);
        assert_eq!(frame.len(), frame.capacity(), "one exact allocation");
        assert_eq!(frame.len(), header(Opcode::Binary, len).as_ref().len() + len);
    }
}

#[test]
fn a_message_that_just_fits_and_one_that_just_does_not() {
    for max in [0, 1, 125, 126, 65535, 65536] {
        let fits = vec![b'x'; max];
        assert_eq!(read(max, &masked(0x82, &fits), || 999), (vec![Owned::Binary(fits)], None));
        let over = masked(0x82, &vec![b'x'; max + 1]);
        let expected = Fault::TooBig { size: max as u64 + 1, max };
        let head = over.len() - (max + 1) - MASK.len();
        assert_eq!(whole(max, &over[..head]).1, Some(expected), "before mask and payload");
    }
    let max = 10;
    let parts = |last: &[u8]| [masked(0x01, b"12345"), masked(0x80, last)].concat();
    assert_eq!(whole(max, &parts(b"67890")).0, [text("1234567890")]);
    let refused = Some(Fault::TooBig { size: 11, max });
    assert_eq!(whole(max, &parts(b"678901")), (Vec::new(), refused));
    let huge = [0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    let size = u64::MAX >> 1;
    assert_eq!(whole(max, &huge).1, Some(Fault::TooBig { size, max }));
    let huge_part = [masked(0x01, b"1"), [&[0x80], &huge[1..]].concat()].concat();
    assert_eq!(whole(max, &huge_part).1, Some(Fault::TooBig { size: size + 1, max }));
}

#[test]
fn control_frames_do_not_count_against_the_message_limit() {
    let long = [b'p'; MAX_CONTROL];
    assert_eq!(whole(4, &masked(0x89, &long)), (vec![Owned::Ping(long.into())], None));
    let between = [masked(0x01, b"ab"), masked(0x89, &long), masked(0x80, b"cd")].concat();
    assert_eq!(whole(4, &between), (vec![Owned::Ping(long.into()), text("abcd")], None));
}

#[test]
fn the_reassembly_buffer_is_bounded_and_released_after_its_message() {
    let max = 1000;
    let mut decoder = Decoder::new(max);
    for first in [0x02, 0x00, 0x00] {
        let took = Step::Took { consumed: 2 + 4 + 100, event: None };
        assert_eq!(decoder.decode(&mut masked(first, &[7; 100])), Ok(took));
        assert!((100..=max).contains(&decoder.held()));
    }
    decoder.decode(&mut masked(0x00, &[7; 500])).unwrap();
    decoder.decode(&mut masked(0x00, &[7; 1])).unwrap();
    assert_eq!(decoder.held(), max, "twice 800 would pass the limit");
    let mut last = masked(0x80, &[7; 100]);
    let Ok(Step::Took { event: Some(Event::Binary(bytes)), .. }) = decoder.decode(&mut last) else {
        panic!("the message is complete");
    };
    assert_eq!(bytes, [7; 901]);
    assert!(decoder.held() >= 901);
    assert_eq!(decoder.decode(&mut []), Ok(Step::Need(2)));
    assert_eq!(decoder.held(), 0);
    for first in [0x02, 0x80] {
        decoder.decode(&mut masked(first, &[7; 50])).unwrap();
    }
    decoder.release();
    assert_eq!(decoder.held(), 0);
}

#[test]
fn a_message_that_will_never_be_complete_is_released() {
    for last in [masked(0x88, b""), vec![0x83]] {
        let mut decoder = Decoder::new(1000);
        decoder.decode(&mut masked(0x01, &[b'a'; 100])).unwrap();
        let _ = decoder.decode(&mut last.clone());
        assert!(decoder.held() > 0);
        decoder.release();
        assert_eq!(decoder.held(), 0);
    }
}

#[test]
fn release_keeps_a_message_that_is_still_open() {
    let mut decoder = Decoder::new(100);
    decoder.decode(&mut masked(0x01, b"a")).unwrap();
    decoder.release();
    let took = Step::Took { consumed: 2 + 4 + 1, event: Some(Event::Text("ab")) };
    assert_eq!(decoder.decode(&mut masked(0x80, b"b")), Ok(took));
}

#[test]
fn faults_have_the_close_code_of_their_kind_and_fit_a_close_frame() {
    let faults = [
        (Fault::BadCloseCode(u16::MAX), 1002),
        (Fault::ClosePayload, 1002),
        (Fault::FragmentedControl, 1002),
        (Fault::InterleavedData, 1002),
        (Fault::InvalidUtf8, 1007),
        (Fault::LengthOverflow, 1002),
        (Fault::LongControl, 1002),
        (Fault::NonMinimalLength, 1002),
        (Fault::ReservedBits(7), 1002),
        (Fault::TooBig { size: u64::MAX, max: usize::MAX }, 1009),
        (Fault::UnexpectedContinuation, 1002),
        (Fault::UnknownOpcode(15), 1002),
        (Fault::Unmasked, 1002),
    ];
    for (fault, code) in faults {
        assert_eq!(fault.close_code(), code);
        let reason = fault.to_string();
        assert!(!reason.is_empty() && reason.len() <= MAX_REASON, "{reason}");
    }
}

#[test]
fn a_close_reason_is_cut_at_the_end_of_a_character() {
    assert_eq!(close_frame(4009, "no"), [0x88, 4, 0x0f, 0xa9, b'n', b'o']);
    let fits = "x".repeat(MAX_REASON);
    assert_eq!(&close_frame(1000, &fits)[4..], fits.as_bytes());
    assert_eq!(&close_frame(1000, &(fits.clone() + "y"))[4..], fits.as_bytes());
    let cut = close_frame(1000, &("x".repeat(MAX_REASON - 1) + "\u{e9}"));
    assert_eq!(cut[..2], [0x88, 124]);
    assert_eq!(&cut[4..], "x".repeat(MAX_REASON - 1).as_bytes());
}

#[test]
fn messages_in_one_frame_and_faults_allocate_nothing() {
    let stream = [
        masked(0x81, &[b'x'; 1024]),
        masked(0x82, &[0xff; 70000]),
        masked(0x89, b"ping"),
        masked(0x88, b"\x03\xe8bye"),
    ];
    let mut stream = stream.concat();
    let mut decoder = Decoder::new(1 << 20);
    let mut seen = 0;
    let info = allocation_counter::measure(|| {
        let mut rest = &mut stream[..];
        while let Ok(Step::Took { consumed, event }) = decoder.decode(rest) {
            seen += usize::from(event.is_some());
            rest = &mut rest[consumed..];
        }
        let mut bad = [0x81, 0x00];
        assert_eq!(Decoder::new(1).decode(&mut bad), Err(Fault::Unmasked));
        assert_eq!(header(Opcode::Text, 70000).as_ref().len(), 10);
    });
    assert_eq!((seen, info.count_total), (4, 0));
    let fragments = allocation_counter::measure(|| {
        let mut decoder = Decoder::new(16);
        let mut first = [0x01, 0x81, 0, 0, 0, 0, b'a'];
        decoder.decode(&mut first).unwrap();
    });
    assert_eq!(fragments.count_total, 1, "the counter counts");
}

/// A frame of a valid stream, or now and then of a broken one.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![
        8 => prop::sample::select(vec![0x81_u8, 0x82, 0x01, 0x02, 0x00, 0x80, 0x89, 0x8a]),
        1 => Just(0x88_u8),
        1 => any::<u8>(),
    ];
    let payload = prop_oneof![
        4 => "[a-z\u{e9}\u{20ac}]{0,40}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..300),
    ];
    (first, payload).prop_map(|(first, payload)| masked(first, &payload))
}

proptest! {
    #[test]
    fn any_cutting_of_a_stream_gives_the_same_events(
        frames in prop::collection::vec(any_frame(), 0..12),
        cuts in prop::collection::vec(1_usize..60, 1..20),
        max in 0_usize..400,
    ) {
        let stream = frames.concat();
        let mut next = cuts.iter().cycle();
        let cut = read(max, &stream, || *next.next().unwrap());
        prop_assert_eq!(whole(max, &stream), cut);
    }

    #[test]
    fn what_valid_fragments_carry_arrives_whole(
        message in "\\PC{0,80}",
        cuts in prop::collection::vec(0_usize..90, 0..6),
    ) {
        let bytes = message.as_bytes();
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.sort_unstable();
        cuts.push(bytes.len());
        let mut stream = Vec::new();
        let mut from = 0;
        for (index, &cut) in cuts.iter().enumerate() {
            let fin = if index + 1 == cuts.len() { 0x80 } else { 0x00 };
            let opcode = u8::from(index == 0);
            stream.extend(masked(fin | opcode, &bytes[from..cut]));
            from = cut;
        }
        prop_assert_eq!(whole(400, &stream), (vec![text(&message)], None));
    }

    #[test]
    fn any_bytes_are_events_or_a_fault(stream in prop::collection::vec(any::<u8>(), 0..200)) {
        whole(64, &stream);
    }
}
