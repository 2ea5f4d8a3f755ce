//! Any text is a sample in range or none.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluicegate_core::Sample;

fuzz_target!(|text: &str| {
    if let Some(sample) = Sample::parse(text) {
        assert!(sample.avg10 <= 10_000, "a share of the time is at most 100.00 %");
    }
});
