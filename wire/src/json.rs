//! JSON written into a measured buffer, and the few reading rules serde_json does not have.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use serde::Deserialize;
use serde_json::value::RawValue;

/// Where text goes: a buffer, or a count that tells how large the buffer must be.
pub(crate) trait Sink {
    fn text(&mut self, text: &str);
}

impl Sink for String {
    fn text(&mut self, text: &str) {
        self.push_str(text);
    }
}

impl Sink for Vec<u8> {
    fn text(&mut self, text: &str) {
        self.extend_from_slice(text.as_bytes());
    }
}

/// Counts bytes.
#[derive(Default)]
pub(crate) struct Length(pub(crate) usize);

impl Sink for Length {
    fn text(&mut self, text: &str) {
        self.0 += text.len();
    }
}

/// A part of a JSON text.
#[derive(Clone, Copy)]
pub(crate) enum Part<'a> {
    /// JSON already.
    Raw(&'a str),
    /// Text that becomes a JSON string.
    Quoted(&'a str),
}

/// Writes the parts one after the other.
pub(crate) fn write(sink: &mut impl Sink, parts: &[Part<'_>]) {
    for part in parts {
        match *part {
            Part::Raw(json) => sink.text(json),
            Part::Quoted(text) => quote(sink, text),
        }
    }
}

/// The parts as one text, in one exact allocation.
pub(crate) fn string(parts: &[Part<'_>]) -> String {
    let mut out = String::with_capacity(length(parts));
    write(&mut out, parts);
    out
}

/// Bytes the parts will have.
pub(crate) fn length(parts: &[Part<'_>]) -> usize {
    let mut length = Length::default();
    write(&mut length, parts);
    length.0
}

/// Writes a JSON string: what needs no escape goes in runs, byte for byte.
fn quote(sink: &mut impl Sink, text: &str) {
    const HEX: &str = "0123456789abcdef";
    sink.text("\"");
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|byte| byte < 0x20 || byte == b'"' || byte == b'\\')
    {
        let (run, tail) = rest.split_at(at);
        sink.text(run);
        let byte = tail.as_bytes()[0];
        rest = &tail[1..];
        match byte {
            b'"' => sink.text("\\\""),
            b'\\' => sink.text("\\\\"),
            b'\n' => sink.text("\\n"),
            b'\r' => sink.text("\\r"),
            b'\t' => sink.text("\\t"),
            control => {
                let low = usize::from(control & 0xF);
                sink.text(if control < 0x10 { "\\u000" } else { "\\u001" });
                sink.text(&HEX[low..=low]);
            }
        }
    }
    sink.text(rest);
    sink.text("\"");
}

/// A JSON string, borrowed when it holds no escape.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The value as text, when it is a JSON string.
pub(crate) fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    if !raw.get().starts_with('"') {
        return None;
    }
    serde_json::from_str::<Text<'_>>(raw.get()).ok().map(|text| text.0)
}

/// Whether the text begins like a JSON object. Derived readers take arrays for structs too.
pub(crate) fn is_object(text: &str) -> bool {
    text.trim_start_matches([' ', '\t', '\r', '\n']).starts_with('{')
}

/// Whether valid JSON is nested deeper than `max`. Cost: O(bytes), no recursion.
pub(crate) fn deeper_than(json: &str, max: usize) -> bool {
    let mut depth = 0_usize;
    let mut quoted = false;
    let mut bytes = json.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if quoted => {
                bytes.next();
            }
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => {
                depth += 1;
                if depth > max {
                    return true;
                }
            }
            b'}' | b']' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn depth_counts_brackets_outside_of_strings() {
        assert!(!deeper_than(r#"{"a":[1,[2],"[[[\"[{"]}"#, 3));
        assert!(deeper_than(r#"{"a":[1,[2]]}"#, 2));
        assert!(!deeper_than("[][][]", 1));
    }

    #[test]
    fn each_control_character_is_escaped_and_no_other_byte_is() {
        for byte in 0..0x80_u8 {
            let text = char::from(byte).to_string();
            let json = string(&[Part::Quoted(&text)]);
            let escaped = byte < 0x20 || byte == b'"' || byte == b'\\';
            assert_eq!(json.len() > 3, escaped, "{json}");
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }

    proptest! {
        #[test]
        fn a_quoted_string_reads_back_and_was_measured_exactly(text in any::<String>()) {
            let parts = [Part::Quoted(&text)];
            let json = string(&parts);
            prop_assert_eq!(json.len(), json.capacity());
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text.clone());
            // An independent writer: serde_json's own.
            let peer = serde_json::to_string(&text).unwrap();
            let short = peer.replace("\\b", "\\u0008").replace("\\f", "\\u000c");
            if !text.contains('\\') {
                prop_assert_eq!(json, short);
            }
        }
    }
}
