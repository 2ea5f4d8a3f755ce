//! Any text is stories or a message that names the file; what a story says of itself can be shown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluicegate_sim::scenario;

fuzz_target!(|text: &str| {
    match scenario::read("fuzz.toml", text) {
        Ok(stories) => {
            assert!(!stories.is_empty());
            for story in stories {
                assert!(story.duration > 0 && story.duration <= story.end);
                assert!(story.limits.check().is_ok(), "a story's limits fit together");
                assert!(story.command().starts_with("sluicegate-sim run fuzz.toml --seed "));
                assert!(!story.name().chars().any(char::is_control));
            }
        }
        Err(bad) => {
            let message = bad.to_string();
            assert!(message.starts_with("fuzz.toml:"), "{message}");
            let plain = |c: char| !c.is_control() || c == '\n';
            assert!(message.chars().all(plain), "{message:?}");
        }
    }
});
