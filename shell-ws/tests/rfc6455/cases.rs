//! The cases, by the numbers that the Autobahn suite gives them.

use super::stream::{Case, Said, close, frame};

const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;
/// Without FIN.
const FIRST_TEXT: u8 = 0x01;
const FIRST_BINARY: u8 = 0x02;
const MORE: u8 = 0x00;
const LAST: u8 = 0x80;

const BAD_FRAME: Said = Said::Close(Some(1002));
const BAD_TEXT: Said = Said::Close(Some(1007));
const KOSME: &str = "cebae1bdb9cf83cebcceb5";

/// Sections 1 to 5 and 7: what any server must make of these frames.
pub(crate) fn protocol() -> Vec<Case> {
    [framing(), pings(), reserved_bits(), opcodes(), fragments(), closing(), close_codes()].concat()
}

fn case(name: impl Into<String>, frames: &[Vec<u8>], said: &[Said]) -> Case {
    Case::new(name, frames, said)
}

fn text(text: &str) -> Said {
    Said::Text(text.into())
}

fn pong(payload: &[u8]) -> Said {
    Said::Pong(payload.into())
}

fn framing() -> Vec<Case> {
    let sizes = [0, 125, 126, 127, 128, 65_535, 65_536];
    let both = |(n, size): (usize, usize)| {
        let (letters, bytes) = (vec![b'*'; size], vec![0xfe; size]);
        [
            case(format!("1.1.{n}"), &[frame(TEXT, &letters)], &[Said::Text(letters.clone())]),
            case(format!("1.2.{n}"), &[frame(BINARY, &bytes)], &[Said::Binary(bytes.clone())]),
        ]
    };
    (1..).zip(sizes).flat_map(both).collect()
}

fn pings() -> Vec<Case> {
    let (odd, full, over) = ([0, 0xff, 0xfe, 0xfd], [0xfe; 125], [0xfe; 126]);
    let ten: Vec<Vec<u8>> = (0..10).map(|n| format!("payload-{n}").into_bytes()).collect();
    let pings: Vec<_> = ten.iter().map(|payload| frame(PING, payload)).collect();
    let pongs: Vec<_> = ten.iter().map(|payload| pong(payload)).collect();
    let unasked = frame(PONG, b"unasked");
    vec![
        case("2.1", &[frame(PING, b"")], &[pong(b"")]),
        case("2.2", &[frame(PING, b"Hello, world!")], &[pong(b"Hello, world!")]),
        case("2.3", &[frame(PING, &odd)], &[pong(&odd)]),
        case("2.4", &[frame(PING, &full)], &[pong(&full)]),
        case("2.5", &[frame(PING, &over)], &[BAD_FRAME]),
        case("2.7", &[frame(PONG, b"")], &[]),
        case("2.8", std::slice::from_ref(&unasked), &[]),
        case("2.9", &[unasked, frame(PING, b"ping")], &[pong(b"ping")]),
        case("2.10", &pings, &pongs),
    ]
}

fn reserved_bits() -> Vec<Case> {
    let (hello, ping) = (frame(TEXT, b"Hello"), frame(PING, b""));
    let after = |first| [hello.clone(), frame(first, b"Hello"), ping.clone()];
    let failed = [text("Hello"), BAD_FRAME];
    vec![
        case("3.1", &[frame(TEXT | 0x10, b"Hello")], &[BAD_FRAME]),
        case("3.2", &after(TEXT | 0x20), &failed),
        case("3.3", &after(TEXT | 0x30), &failed),
        case("3.4", &after(TEXT | 0x40), &failed),
        case("3.5", &[frame(BINARY | 0x50, &[0, 0xff])], &[BAD_FRAME]),
        case("3.6", &[frame(PING | 0x60, b"Hello")], &[BAD_FRAME]),
        case("3.7", &[frame(CLOSE | 0x70, &close(1000, b""))], &[BAD_FRAME]),
    ]
}

fn opcodes() -> Vec<Case> {
    let (hello, ping) = (frame(TEXT, b"Hello"), frame(PING, b""));
    let mut cases = Vec::new();
    for (section, first) in [("4.1", 3), ("4.2", 11)] {
        for n in 1..=5 {
            let payload = if n % 2 == 0 { "unknown" } else { "" };
            let unknown = frame(LAST | (first + n - 1), payload.as_bytes());
            let name = format!("{section}.{n}");
            cases.push(if n < 3 {
                case(name, &[unknown], &[BAD_FRAME])
            } else {
                let after = [hello.clone(), unknown, ping.clone()];
                case(name, &after, &[text("Hello"), BAD_FRAME])
            });
        }
    }
    cases
}

fn fragments() -> Vec<Case> {
    let [one, two] = [frame(FIRST_TEXT, b"fragment1"), frame(LAST, b"fragment2")];
    let (more, stray) = (frame(MORE, b"more"), frame(LAST, b"stray"));
    let (ping, hello) = (frame(PING, b"ping"), frame(TEXT, b"Hello"));
    let (joined, ponged) = (text("fragment1fragment2"), pong(b"ping"));
    let [a, b, c, d] =
        [(MORE, b"b"), (MORE, b"c"), (MORE, b"d"), (LAST, b"e")].map(|(f, p)| frame(f, p));
    let start = frame(FIRST_TEXT, b"a");
    let long = [start, a, ping.clone(), b, c, ping.clone(), d, ping.clone()];
    let told = [ponged.clone(), ponged.clone(), text("abcde"), ponged.clone()];
    vec![
        case("5.1", &[frame(0x09, b"frag"), frame(LAST, b"ment")], &[BAD_FRAME]),
        case("5.2", &[frame(0x0a, b"frag"), frame(LAST, b"ment")], &[BAD_FRAME]),
        case("5.3", &[one.clone(), two.clone()], std::slice::from_ref(&joined)),
        case("5.6", &[one.clone(), ping, two.clone()], &[ponged, joined.clone()]),
        case("5.9", &[stray.clone(), hello.clone()], &[BAD_FRAME]),
        case("5.12", &[more.clone(), hello.clone()], &[BAD_FRAME]),
        case("5.15", &[one.clone(), two, more.clone(), hello], &[joined, BAD_FRAME]),
        case("5.16", &[more, frame(FIRST_TEXT, b"x"), stray.clone()], &[BAD_FRAME]),
        case("5.17", &[stray.clone(), frame(FIRST_TEXT, b"x"), stray], &[BAD_FRAME]),
        case("5.18", &[one, frame(TEXT, b"fragment2")], &[BAD_FRAME]),
        case("5.19", &long, &told),
        case(
            "5.x binary",
            &[frame(FIRST_BINARY, &[0xff]), frame(MORE, b""), frame(LAST, &[0xfe])],
            &[Said::Binary(vec![0xff, 0xfe])],
        ),
        case("5.x binary in text", &[frame(FIRST_TEXT, b"a"), frame(BINARY, b"b")], &[BAD_FRAME]),
    ]
}

fn closing() -> Vec<Case> {
    let (hello, ping, bye) =
        (frame(TEXT, b"Hello"), frame(PING, b""), frame(CLOSE, &close(1000, b"")));
    let normal = Said::Close(Some(1000));
    let (big, long) = (vec![b'*'; 60_000], vec![b'*'; 123]);
    let greeted = [text("Hello"), normal.clone()];
    let first = frame(FIRST_TEXT, b"fragment1");
    let in_order = [frame(TEXT, &big), hello.clone(), bye.clone(), ping.clone()];
    let only = std::slice::from_ref(&normal);
    let reason = |payload: &[u8]| [frame(CLOSE, payload)];
    vec![
        case("7.1.1", &[hello.clone(), bye.clone()], &greeted),
        case("7.1.2", &[bye.clone(), bye.clone()], only),
        case("7.1.3", &[bye.clone(), ping], only),
        case("7.1.4", &[bye.clone(), hello], only),
        case("7.1.5", &[first, bye, frame(LAST, b"fragment2")], only),
        case("7.1.6", &in_order, &[Said::Text(big), text("Hello"), normal.clone()]),
        case("7.3.1", &reason(b""), &[Said::Close(None)]),
        case("7.3.2", &reason(b"a"), &[BAD_FRAME]),
        case("7.3.3", &reason(&close(1000, b"")), only),
        case("7.3.4", &reason(&close(1000, b"Hello World!")), only),
        case("7.3.5", &reason(&close(1000, &long)), only),
        case("7.3.6", &reason(&close(1000, &[b'*'; 124])), &[BAD_FRAME]),
        case(
            "7.5.1",
            &reason(&close(1000, &hex(&format!("{KOSME}eda080656469746564")))),
            &[BAD_TEXT],
        ),
    ]
}

fn close_codes() -> Vec<Case> {
    let valid = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999];
    let registered = [1012, 1013, 1014];
    let invalid = [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999];
    let undefined = [5000, 65_535];
    let all = [
        ("7.7", &valid[..], true),
        ("7.7 registered since", &registered, true),
        ("7.9", &invalid, false),
        ("7.13", &undefined, false),
    ];
    let number = |(section, codes, is_good): (&'static str, &[u16], bool)| {
        let make = move |(n, code): (usize, &u16)| {
            let said = if is_good { Said::Close(Some(*code)) } else { BAD_FRAME };
            case(format!("{section}.{n} ({code})"), &[frame(CLOSE, &close(*code, b""))], &[said])
        };
        (1..).zip(codes).map(make).collect::<Vec<_>>()
    };
    all.into_iter().flat_map(number).collect()
}

/// Section 6: texts, whole and in fragments of one byte.
pub(crate) fn texts() -> Vec<Case> {
    let hello = "48656c6c6f2dc2b540c39fc3b6c3a4c3bcc3a0c3a12d5554462d382121";
    let mut cases = Vec::new();
    for (section, list) in TABLE {
        for (n, word) in (1..).zip(list.split_whitespace()) {
            let (digits, is_good) = match word.strip_prefix('!') {
                Some(digits) => (digits, false),
                None => (word, true),
            };
            cases.extend(both_ways(&format!("{section}.{n}"), &hex(digits), is_good));
        }
    }
    cases.extend(both_ways("6.2", &hex(hello), true));
    cases.extend(both_ways("6.12.8", &(0x80..=0xbf).collect::<Vec<u8>>(), false));
    for (n, range) in (1..).zip([0xc0..=0xdf, 0xe0..=0xef, 0xf0..=0xf7, 0xf8..=0xfb, 0xfc..=0xfd]) {
        let lonely: Vec<u8> = range.flat_map(|byte| [byte, b' ']).collect();
        cases.extend(both_ways(&format!("6.13.{n}"), &lonely, false));
    }
    let planes = (0..=16).flat_map(|plane| [0xfffe, 0xffff].map(|low| plane << 16 | low));
    for (n, point) in (1..).zip(planes) {
        let point = char::from_u32(point).expect("no surrogate").to_string();
        cases.extend(both_ways(&format!("6.22.{n}"), point.as_bytes(), true));
    }
    cases.extend(empty_and_fail_fast());
    cases
}

fn both_ways(name: &str, bytes: &[u8], is_good: bool) -> [Case; 2] {
    let said = if is_good { Said::Text(bytes.into()) } else { BAD_TEXT };
    let mut parts = vec![frame(FIRST_TEXT, b"")];
    parts.extend(bytes.iter().map(|byte| frame(MORE, &[*byte])));
    parts.push(frame(LAST, b""));
    let said = [said];
    [case(name, &[frame(TEXT, bytes)], &said), case(format!("{name} in fragments"), &parts, &said)]
}

fn empty_and_fail_fast() -> Vec<Case> {
    let (none, middle) = (frame(MORE, b""), frame(MORE, b"*"));
    let kosme = hex(KOSME);
    let beyond = hex("f4908080");
    let cut = [&kosme[..], &beyond[..1]].concat();
    let whole = [&kosme[..], &beyond[..], b"edited"].concat();
    vec![
        case("6.1.1", &[frame(TEXT, b"")], &[text("")]),
        case("6.1.2", &[frame(FIRST_TEXT, b""), none, frame(LAST, b"")], &[text("")]),
        case("6.1.3", &[frame(FIRST_TEXT, b""), middle, frame(LAST, b"")], &[text("*")]),
        // Nothing follows: the answer must not wait for the end of the message.
        case("6.4.1", &[frame(FIRST_TEXT, &kosme), frame(MORE, &beyond)], &[BAD_TEXT]),
        case("6.4.2", &[frame(FIRST_TEXT, &cut), frame(MORE, &beyond[1..2])], &[BAD_TEXT]),
        // A frame is looked at when it is whole.
        case("6.4.3", &[frame(TEXT, &whole)], &[BAD_TEXT]),
    ]
}

/// Texts in hex; `!` marks what is no UTF-8.
const TABLE: &[(&str, &str)] = &[
    ("6.3", "!cebae1bdb9cf83cebcceb5eda080656469746564"),
    (
        "6.5",
        "68656c6c6f24776f726c64 68656c6c6fc2a2776f726c64 68656c6c6fe282ac776f726c64 \
         68656c6c6ff0a4ada2776f726c64 cebae1bdb9cf83cebcceb5",
    ),
    (
        "6.6",
        "!ce ceba !cebae1 !cebae1bd cebae1bdb9 !cebae1bdb9cf cebae1bdb9cf83 !cebae1bdb9cf83ce \
         cebae1bdb9cf83cebc !cebae1bdb9cf83cebcce cebae1bdb9cf83cebcceb5",
    ),
    ("6.7", "00 c280 e0a080 f0908080"),
    ("6.8", "!f888808080 !fc8480808080"),
    ("6.9", "7f dfbf efbfbf f48fbfbf"),
    ("6.10", "!f7bfbfbf !fbbfbfbfbf !fdbfbfbfbfbf"),
    ("6.11", "ed9fbf ee8080 efbfbd f48fbfbf !f4908080"),
    ("6.12", "!80 !bf !80bf !80bf80 !80bf80bf !80bf80bf80 !80bf80bf80bf"),
    ("6.14", "!c0 !e080 !f08080 !f8808080 !fc80808080 !df !efbf !f7bfbf !fbbfbfbf !fdbfbfbfbf"),
    ("6.15", "!c0e080f08080f8808080fc80808080dfefbff7bfbffbbfbfbffdbfbfbfbf"),
    ("6.16", "!fe !ff !fefeffff"),
    ("6.17", "!c0af !e080af !f08080af !f8808080af !fc80808080af"),
    ("6.18", "!c1bf !e09fbf !f08fbfbf !f887bfbfbf !fc83bfbfbfbf"),
    ("6.19", "!c080 !e08080 !f0808080 !f880808080 !fc8080808080"),
    ("6.20", "!eda080 !edadbf !edae80 !edafbf !edb080 !edbe80 !edbfbf"),
    (
        "6.21",
        "!eda080edb080 !eda080edbfbf !edadbfedb080 !edadbfedbfbf !edae80edb080 !edae80edbfbf \
         !edafbfedb080 !edafbfedbfbf",
    ),
    ("6.23", "efbfb9 efbfba efbfbb efbfbc efbfbd efbfbe efbfbf"),
];

fn hex(digits: &str) -> Vec<u8> {
    hex::decode(digits).expect("the table has pairs of digits")
}

/// Section 9: large messages, and many.
pub(crate) fn limits() -> Vec<Case> {
    let (kib, mib) = (1 << 10, 1 << 20);
    let mut cases = Vec::new();
    for (n, size) in (1..).zip([64 * kib, 256 * kib, mib, 4 * mib, 8 * mib, 16 * mib]) {
        let letters = vec![b'*'; size];
        let said = [Said::Text(letters.clone())];
        cases.push(case(format!("9.1.{n}"), &[frame(TEXT, &letters)], &said));
        let bytes = vec![0xfe; size];
        let said = [Said::Binary(bytes.clone())];
        cases.push(case(format!("9.2.{n}"), &[frame(BINARY, &bytes)], &said));
    }
    for (n, size) in (1..).zip([256, kib, 4 * kib, 16 * kib, 64 * kib, 256 * kib, mib]) {
        cases.push(in_parts(&format!("9.3.{n}"), b'*', (4 * mib, size)));
        cases.push(in_parts(&format!("9.4.{n}"), 0xfe, (4 * mib, size)));
    }
    for (n, size) in (1..).zip([0, 16, 64, 256, 1024, 4096]) {
        let letters = vec![b'*'; size];
        let many = vec![frame(TEXT, &letters); 1000];
        cases.push(case(format!("9.7.{n}"), &many, &vec![Said::Text(letters); 1000]));
    }
    cases.push(in_parts("10.1.1", b'*', (65_536, 1300)));
    let over = [&[TEXT, 0xff][..], &(16 * mib as u64 + 1).to_be_bytes(), &[0; 4]].concat();
    cases.push(case("9.x one byte too many", &[over], &[Said::Close(Some(1009))]));
    cases
}

/// A message of one byte again and again, in fragments of some size.
fn in_parts(name: &str, byte: u8, (whole, size): (usize, usize)) -> Case {
    let payload = vec![byte; whole];
    let first = if byte.is_ascii() { FIRST_TEXT } else { FIRST_BINARY };
    let mut parts: Vec<_> = payload.chunks(size).map(|chunk| frame(MORE, chunk)).collect();
    parts[0][0] = first;
    let last = parts.last_mut().expect("it has parts");
    last[0] |= LAST;
    let said = if byte.is_ascii() { Said::Text(payload) } else { Said::Binary(payload) };
    case(name, &parts, &[said])
}
