//! Pure codecs: bytes to values and values to bytes. Nothing here reads a socket or a clock.
//!
//! | module | text it follows | bound on what it holds |
//! |---|---|---|
//! | [`ws`] | RFC 6455 §5, §7.4, §8.1, server side | one buffer of `max_message` bytes |
//! | [`fallback`] | the HTTP fallback of pusher-js | nothing |
//! | [`http`] | RFC 9112 heads, RFC 6455 §4.2 | nothing; a head is at most 8 KiB and 64 headers |
//! | [`pusher`] | Pusher Channels protocol 4 to 7 | nothing; JSON at most 64 levels deep |
//! | [`quic`] | `PROTOCOL.md` | one frame of `max_frame_bytes` |
//! | [`rest`] | Pusher Channels HTTP API | nothing; 100 channels, 10 KiB of data |
//!
//! Every decoder answers any bytes with a value or a typed fault, and none of them panics.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod fallback;
pub mod http;
mod json;
pub mod pusher;
pub mod quic;
pub mod rest;
pub mod ws;
