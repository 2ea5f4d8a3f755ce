//! What the server sends, each text in one exact allocation.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::Deserialize;

use crate::json::{self, Part};
use crate::ws::{Opcode, header};

use Part::{Quoted, Raw};

/// The first frame of a connection. Its data is a string that holds an object.
///
/// Clients validate `socket_id` as `digits.digits` and refuse an `activity_timeout` (seconds)
/// of 0.
pub fn connection_established(socket_id: &str, activity_timeout: u32) -> String {
    let id = json::string(&[Quoted(socket_id)]);
    let data = format!(r#"{{"socket_id":{id},"activity_timeout":{activity_timeout}}}"#);
    json::string(&[
        Raw(r#"{"event":"pusher:connection_established","data":"#),
        Quoted(&data),
        Raw("}"),
    ])
}

/// Answers `pusher:ping`.
pub fn pong() -> String {
    r#"{"event":"pusher:pong","data":"{}"}"#.into()
}

/// Asks a client for a sign of life.
pub fn ping() -> String {
    r#"{"event":"pusher:ping","data":"{}"}"#.into()
}

/// Confirms a subscription to a channel without members. Data is `"{}"`: clients parse it.
pub fn subscription_succeeded(channel: &str) -> String {
    json::string(&[
        Raw(r#"{"event":"pusher_internal:subscription_succeeded","channel":"#),
        Quoted(channel),
        Raw(r#","data":"{}"}"#),
    ])
}

/// Tells a new subscriber of a cache channel that it keeps nothing.
pub fn cache_miss(channel: &str) -> String {
    json::string(&[Raw(r#"{"event":"pusher:cache_miss","channel":"#), Quoted(channel), Raw("}")])
}

/// Tells a subscriber that so many events of a channel were dropped before the next one that it
/// gets, and where and why. An extension, for clients that asked for it.
pub fn gap(channel: &str, events: u64, (place, reason): (&str, &str)) -> String {
    let (place, reason) = (json::string(&[Quoted(place)]), json::string(&[Quoted(reason)]));
    let data = format!(r#"{{"events":{events},"place":{place},"reason":{reason}}}"#);
    json::string(&[
        Raw(r#"{"event":"pusher:gap","channel":"#),
        Quoted(channel),
        Raw(r#","data":"#),
        Quoted(&data),
        Raw("}"),
    ])
}

/// Refuses a subscription and leaves the connection open. `kind` is a word such as `AuthError`,
/// `status` reads like an HTTP status.
pub fn subscription_error(channel: &str, kind: &str, error: &str, status: u16) -> String {
    json::string(&[
        Raw(r#"{"event":"pusher:subscription_error","channel":"#),
        Quoted(channel),
        Raw(r#","data":{"type":"#),
        Quoted(kind),
        Raw(r#","error":"#),
        Quoted(error),
        Raw(r#","status":"#),
        Raw(&status.to_string()),
        Raw("}}"),
    ])
}

/// An error of the connection. Data is an object, its code an integer.
///
/// Clients act on codes 4000 to 4299 as if the connection had been closed with them: without a
/// close, send 43xx or none.
pub fn error(code: Option<u16>, message: &str) -> String {
    let code = code.map_or_else(String::new, |code| format!(r#""code":{code},"#));
    json::string(&[
        Raw(r#"{"event":"pusher:error","data":{"#),
        Raw(&code),
        Raw(r#""message":"#),
        Quoted(message),
        Raw("}}"),
    ])
}

/// An event from the HTTP API. `data` is the publisher's text: the client gets it back byte for
/// byte, JSON or not.
pub fn event(channel: &str, name: &str, data: &str) -> String {
    json::string(&event_parts(channel, name, data))
}

/// The same as a finished text frame, in exactly one allocation. Cost: O(bytes), twice.
pub fn event_frame(channel: &str, name: &str, data: &str) -> Vec<u8> {
    frame(&event_parts(channel, name, data))
}

/// The data of an event, out of its [`event_frame`]; none of any other bytes. Cost: O(bytes).
pub fn event_data(frame: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Event {
        data: String,
    }
    let head = match frame.get(1)? {
        0..=125 => 2,
        126 => 4,
        _ => 10,
    };
    let event: Event = serde_json::from_slice(frame.get(head..)?).ok()?;
    Some(event.data)
}

const fn event_parts<'a>(channel: &'a str, name: &'a str, data: &'a str) -> [Part<'a>; 7] {
    [
        Raw(r#"{"event":"#),
        Quoted(name),
        Raw(r#","channel":"#),
        Quoted(channel),
        Raw(r#","data":"#),
        Quoted(data),
        Raw("}"),
    ]
}

/// A client's event as the other subscribers get it. `data` is JSON and keeps its type;
/// `user_id` is the sender's on a presence channel.
pub fn client_event(channel: &str, name: &str, data: &str, user_id: Option<&str>) -> String {
    json::string(&client_event_parts(channel, name, data, user_id))
}

/// The same as a finished text frame, in exactly one allocation.
pub fn client_event_frame(channel: &str, name: &str, data: &str, user_id: Option<&str>) -> Vec<u8> {
    frame(&client_event_parts(channel, name, data, user_id))
}

fn client_event_parts<'a>(
    channel: &'a str,
    name: &'a str,
    data: &'a str,
    user_id: Option<&'a str>,
) -> [Part<'a>; 9] {
    let (key, user) = match user_id {
        Some(id) => (Raw(r#","user_id":"#), Quoted(id)),
        None => (Raw(""), Raw("")),
    };
    [
        Raw(r#"{"event":"#),
        Quoted(name),
        Raw(r#","channel":"#),
        Quoted(channel),
        Raw(r#","data":"#),
        Raw(data),
        key,
        user,
        Raw("}"),
    ]
}

/// The parts as one final text frame.
fn frame(parts: &[Part<'_>]) -> Vec<u8> {
    let length = json::length(parts);
    let header = header(Opcode::Text, length);
    let mut frame = Vec::with_capacity(header.as_ref().len() + length);
    frame.extend_from_slice(header.as_ref());
    json::write(&mut frame, parts);
    frame
}
