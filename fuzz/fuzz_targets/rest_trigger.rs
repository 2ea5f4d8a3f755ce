//! Any bytes are a trigger or a batch within its limits, or a bad body; any text can be signed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluicegate_wire::rest::{self, MAX_BATCH, MAX_CHANNELS, MAX_DATA};

fuzz_target!(|bytes: &[u8]| {
    match rest::trigger(bytes) {
        Ok(trigger) => {
            assert!((1..=MAX_CHANNELS).contains(&trigger.channels.len()));
            assert!(!trigger.name.is_empty() && trigger.data.len() <= MAX_DATA);
            assert!(trigger.socket_id.is_none_or(|id| rest::check_socket_id(&id)));
        }
        Err(bad) => {
            assert!(matches!(bad.status(), 400 | 413));
            assert!(!bad.to_string().is_empty());
        }
    }
    match rest::batch(bytes) {
        Ok(events) => assert!((1..=MAX_BATCH).contains(&events.len())),
        Err(bad) => assert!(matches!(bad.status(), 400 | 413) && !bad.to_string().is_empty()),
    }
    if let Ok(query) = core::str::from_utf8(bytes) {
        let text = rest::string_to_sign("GET", "/", query);
        assert!(text.starts_with("GET\n/\n"));
    }
});
