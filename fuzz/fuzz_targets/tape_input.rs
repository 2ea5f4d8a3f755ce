//! Any bytes are inputs up to the first that is none; what was read is written as it was meant.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluicegate_core::Input;

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while !rest.is_empty() {
        let before = rest.len();
        let Some(input) = Input::decode(&mut rest) else { return };
        assert!(rest.len() < before, "an input takes bytes");
        let mut written = Vec::new();
        input.encode(&mut written);
        let mut again = written.as_slice();
        assert_eq!(Input::decode(&mut again), Some(input), "what is written is read again");
        assert!(again.is_empty(), "and nothing else");
    }
});
