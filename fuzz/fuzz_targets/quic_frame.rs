//! Any bytes, cut anywhere, give the same frames and the same fault; what is decoded and written
//! again is decoded as the same, and no frame holds more than its limit.
//!
//! The first byte is the limit on frames, the second where the stream is cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluicegate_wire::quic::{Assembler, Fault, decode};

/// The frames, and how the stream ended.
fn read(most: u64, stream: &[u8], piece: usize) -> (Vec<Vec<u8>>, Option<Fault>) {
    let mut assembler = Assembler::new(most);
    let mut frames = Vec::new();
    for mut piece in stream.chunks(piece) {
        loop {
            match assembler.take(&mut piece) {
                Ok(Some(frame)) => {
                    assert!(!frame.is_empty() && frame.len() as u64 <= most);
                    frames.push(frame);
                }
                Ok(None) => break,
                Err(fault) => return (frames, Some(fault)),
            }
        }
        assert!(piece.is_empty(), "what was not used belongs to nobody");
        assert!(assembler.held() <= most);
    }
    (frames, None)
}

fuzz_target!(|bytes: &[u8]| {
    let [most, piece, stream @ ..] = bytes else { return };
    let most = u64::from(*most) * 16;
    let whole = read(most, stream, usize::MAX);
    assert_eq!(read(most, stream, usize::from(*piece).max(1)), whole);
    for frame in &whole.0 {
        let Ok(Some(decoded)) = decode(frame) else { continue };
        let again = decoded.bytes();
        // Fields of later versions are passed over, and numbers get their shortest form: then the
        // frame is shorter than it was.
        let written = Assembler::new(u64::MAX).take(&mut &again[..]).unwrap().unwrap();
        assert!(written.len() <= frame.len());
        assert_eq!(decode(&written), Ok(Some(decoded)));
    }
});
