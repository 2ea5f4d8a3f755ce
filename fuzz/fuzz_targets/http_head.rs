//! Any bytes are a head, a wish for more, or a fault; what was a fault stays one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluicegate_wire::http::{MAX_HEAD, Parse, pairs, parse};

fuzz_target!(|bytes: &[u8]| {
    match parse(bytes) {
        Ok(Parse::NeedMore) => assert!(bytes.len() < MAX_HEAD, "a full buffer always suffices"),
        Ok(Parse::Head(head)) => {
            assert!(head.len <= bytes.len().min(MAX_HEAD));
            assert!(head.path.starts_with('/'));
            assert!(pairs(head.query).count() <= head.query.len());
            assert_eq!(parse(&bytes[..head.len]), Ok(Parse::Head(head)), "the body is not read");
        }
        Err(fault) => {
            assert!((400..=505).contains(&fault.status()));
            assert!(!fault.response().is_empty());
            let more = [bytes, b"x"].concat();
            assert!(parse(&more).is_err(), "more bytes heal nothing");
        }
    }
});
