//! Any bytes, cut anywhere, give the same events and the same fault, within the decoder's bounds.
//!
//! The first byte is the limit on messages, the second where the stream is cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluicegate_wire::ws::{Decoder, Fault, MAX_CONTROL, MAX_HEAD, Step};

/// The events as text, and how the stream ended.
fn read(max: usize, stream: &[u8], piece: usize) -> (Vec<String>, Option<Fault>) {
    let mut decoder = Decoder::new(max);
    let mut buffer = Vec::new();
    let mut pieces = stream.chunks(piece);
    let mut events = Vec::new();
    loop {
        match decoder.decode(&mut buffer) {
            Ok(Step::Need(total)) => {
                assert!(total > buffer.len() && total <= max.max(MAX_CONTROL) + MAX_HEAD);
                let Some(piece) = pieces.next() else { return (events, None) };
                buffer.extend_from_slice(piece);
            }
            Ok(Step::Took { consumed, event }) => {
                assert!(consumed > 0);
                events.extend(event.map(|event| format!("{event:?}")));
                buffer.drain(..consumed);
            }
            Err(fault) => return (events, Some(fault)),
        }
        assert!(decoder.held() <= max);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [max, piece, stream @ ..] = bytes else { return };
    let max = usize::from(*max) * 4;
    let whole = read(max, stream, usize::MAX);
    assert_eq!(read(max, stream, usize::from(*piece).max(1)), whole);
});
