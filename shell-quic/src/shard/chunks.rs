//! The frames of an offer as the chunks that a QUIC stream takes.
//!
//! The core charges a frame to its memory until every outlet that it was offered to has taken all
//! of it. What streams have taken is charged to the send window of their connection, chunk by
//! chunk, and a chunk until all of it is acknowledged. Chunks that are not copied share the memory
//! of their frame, which is free when the last of them is acknowledged everywhere: so the transport
//! may keep a frame of 16 MiB for what its window counts as a chunk of 64 KiB, once for all
//! connections.

use bytes::Bytes;
use sluicegate_core::Frames;
use sluicegate_wire::quic::{EVENTS_HEAD, events_head};

/// Blocks of at most this many bytes are copied together with their heads: one chunk for many.
/// Larger ones are handed over without a copy, which costs the transport a chunk more for the
/// head.
const COPIED: usize = 4 << 10;

/// The largest chunk: the transport keeps one until all of it was acknowledged.
const CHUNK: usize = 64 << 10;

/// Chunks of an offer, in order.
pub(super) fn of(mut frames: Frames<'_>, chunks: &mut Vec<Bytes>) {
    let mut gathered = Vec::new();
    while let Some(block) = frames.next() {
        match frames.sequence() {
            // A control frame is written as it is.
            0 => gathered.extend_from_slice(block),
            first => {
                events_head(&mut gathered, first, block.len());
                if block.len() <= COPIED {
                    gathered.extend_from_slice(block);
                } else {
                    flush(&mut gathered, chunks);
                    cut(frames.handle().expect("a frame came"), chunks);
                }
            }
        }
        if gathered.len() > CHUNK - COPIED - EVENTS_HEAD {
            flush(&mut gathered, chunks);
        }
    }
    flush(&mut gathered, chunks);
}

fn flush(gathered: &mut Vec<u8>, chunks: &mut Vec<Bytes>) {
    if !gathered.is_empty() {
        cut(std::mem::take(gathered).into(), chunks);
    }
}

fn cut(mut bytes: Bytes, chunks: &mut Vec<Bytes>) {
    while bytes.len() > CHUNK {
        chunks.push(bytes.split_to(CHUNK));
    }
    chunks.push(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_frame_is_cut_where_it_lies() {
        for (len, due) in [(1, 1), (CHUNK, 1), (CHUNK + 1, 2), (16 << 20, 256)] {
            let frame = Bytes::from(vec![7; len]);
            let mut all = vec![Bytes::from_static(b"head")];
            cut(frame.clone(), &mut all);
            assert_eq!(all.len(), 1 + due, "{len} bytes");
            let mut at = 0;
            for chunk in &all[1..] {
                assert!(chunk.len() == CHUNK || at + chunk.len() == len, "only the last is short");
                assert_eq!(chunk.as_ptr(), frame[at..].as_ptr(), "it was copied");
                at += chunk.len();
            }
            assert_eq!(at, len);
        }
    }
}
