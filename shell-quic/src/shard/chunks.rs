//! The frames of an offer as the chunks that a QUIC stream takes.

use bytes::Bytes;
use sluicegate_core::Frames;
use sluicegate_wire::quic::events_head;

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
        if gathered.len() >= CHUNK - COPIED {
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
