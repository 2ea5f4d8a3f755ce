//! Presence channels: what a member says of itself, and what members are told of each other.

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{MAX_DEPTH, Malformed, object};
use crate::json::{self, Part};

use Part::{Quoted, Raw};

/// The longest id of a user, in characters.
pub const MAX_USER_ID: usize = 128;

/// The longest `user_info`, in bytes of JSON.
pub const MAX_USER_INFO: usize = 1 << 10;

/// The field's name in [`Malformed`].
const DATA: &str = "channel_data";

/// Who a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// The user's id as text; a number is read as its digits.
    pub user_id: Cow<'a, str>,
    /// Valid JSON exactly as it was sent; `null` when it was absent.
    pub user_info: &'a str,
}

/// Why a member's data is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadMember {
    /// The id has this many characters.
    LongId(usize),
    /// The info has this many bytes.
    LongInfo(usize),
    /// It is no JSON object with a `user_id`.
    Malformed(Malformed),
}

impl fmt::Display for BadMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::LongId(len) => {
                write!(f, "user_id: {len} characters, send 1 to {MAX_USER_ID}")
            }
            Self::LongInfo(len) => {
                write!(f, "user_info: {len} bytes, the limit is {MAX_USER_INFO}")
            }
            Self::Malformed(fault) => fault.fmt(f),
        }
    }
}

impl core::error::Error for BadMember {}

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    user_id: Option<&'a RawValue>,
    #[serde(borrow)]
    user_info: Option<&'a RawValue>,
}

/// Reads the `channel_data` of a member. Cost: O(bytes).
pub fn member(channel_data: &str) -> Result<Member<'_>, BadMember> {
    let fields: Fields<'_> = object(channel_data, DATA).map_err(BadMember::Malformed)?;
    if json::deeper_than(channel_data, MAX_DEPTH) {
        return Err(BadMember::Malformed(Malformed::TooDeep));
    }
    let raw = fields.user_id.ok_or(BadMember::Malformed(Malformed::Missing("user_id")))?;
    let is_number = raw.get().starts_with(|char: char| char == '-' || char.is_ascii_digit());
    let user_id = json::text(raw).or_else(|| is_number.then(|| Cow::Borrowed(raw.get())));
    let user_id = user_id.ok_or(BadMember::Malformed(Malformed::NotText("user_id")))?;
    let characters = user_id.chars().count();
    if characters == 0 || characters > MAX_USER_ID {
        return Err(BadMember::LongId(characters));
    }
    let user_info = fields.user_info.map_or("null", RawValue::get);
    if user_info.len() > MAX_USER_INFO {
        return Err(BadMember::LongInfo(user_info.len()));
    }
    Ok(Member { user_id, user_info })
}

/// Confirms a subscription to a presence channel: everybody who is there, the new member too, by
/// id and info. The data is a string that holds an object.
pub fn presence_succeeded<'a>(
    channel: &str,
    members: impl Iterator<Item = (&'a str, &'a str)> + Clone,
) -> String {
    let mut data = String::from(r#"{"presence":{"ids":["#);
    for (at, (id, _)) in members.clone().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        json::write(&mut data, &[Raw(comma), Quoted(id)]);
    }
    data.push_str(r#"],"hash":{"#);
    let mut count = 0;
    for (id, info) in members {
        let comma = if count == 0 { "" } else { "," };
        json::write(&mut data, &[Raw(comma), Quoted(id), Raw(":"), Raw(info)]);
        count += 1;
    }
    data.push_str(&alloc::format!(r#"}},"count":{count}}}}}"#));
    internal("subscription_succeeded", channel, &data)
}

/// A user came in with a first connection.
pub fn member_added(channel: &str, user_id: &str, user_info: &str) -> String {
    let parts =
        [Raw(r#"{"user_id":"#), Quoted(user_id), Raw(r#","user_info":"#), Raw(user_info), Raw("}")];
    internal("member_added", channel, &json::string(&parts))
}

/// A user's last connection went.
pub fn member_removed(channel: &str, user_id: &str) -> String {
    let data = json::string(&[Raw(r#"{"user_id":"#), Quoted(user_id), Raw("}")]);
    internal("member_removed", channel, &data)
}

pub(super) fn internal(event: &str, channel: &str, data: &str) -> String {
    json::string(&[
        Raw(r#"{"event":"pusher_internal:"#),
        Raw(event),
        Raw(r#"","channel":"#),
        Quoted(channel),
        Raw(r#","data":"#),
        Quoted(data),
        Raw("}"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use serde_json::Value;

    #[test]
    fn a_member_is_a_user_with_an_id_and_perhaps_an_info() {
        let found = |text| member(text).map(|found| (found.user_id.into_owned(), found.user_info));
        assert_eq!(found(r#"{"user_id":"a"}"#), Ok(("a".into(), "null")));
        let text = r#"{"user_info":{"n": [1]},"user_id":10,"more":1}"#;
        assert_eq!(found(text), Ok(("10".into(), r#"{"n": [1]}"#)));
        assert_eq!(found(r#"{"user_id":"\u0061"}"#), Ok(("a".into(), "null")));
        let missing = BadMember::Malformed(Malformed::Missing("user_id"));
        for (text, fault) in [
            ("{}", missing),
            (r#"{"user_id":null}"#, missing),
            ("", BadMember::Malformed(Malformed::NotJson(DATA))),
            ("[]", BadMember::Malformed(Malformed::NotAnObject(DATA))),
            (r#"{"user_id":{}}"#, BadMember::Malformed(Malformed::NotText("user_id"))),
            (r#"{"user_id":true}"#, BadMember::Malformed(Malformed::NotText("user_id"))),
            (r#"{"user_id":""}"#, BadMember::LongId(0)),
        ] {
            assert_eq!(member(text), Err(fault), "{text}");
        }
        let id = |len: usize| format!(r#"{{"user_id":"{}"}}"#, "ü".repeat(len));
        assert!(member(&id(128)).is_ok());
        assert_eq!(member(&id(129)), Err(BadMember::LongId(129)));
        let info = |len: usize| format!(r#"{{"user_id":1,"user_info":"{}"}}"#, "x".repeat(len));
        assert!(member(&info(1_022)).is_ok());
        assert_eq!(member(&info(1_023)), Err(BadMember::LongInfo(1_025)));
    }

    #[test]
    fn members_are_told_as_clients_read_them() {
        let data = |text: &str| {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(value["channel"], "presence-a");
            serde_json::from_str::<Value>(value["data"].as_str().unwrap()).unwrap()
        };
        let members = [("1", "null"), ("b\"", r#"{"name":"B"}"#)];
        let all = data(&presence_succeeded("presence-a", members.into_iter()));
        assert_eq!(all["presence"]["ids"], serde_json::json!(["1", "b\""]));
        assert_eq!(all["presence"]["count"], 2);
        assert_eq!(all["presence"]["hash"]["b\""]["name"], "B");
        assert!(all["presence"]["hash"]["1"].is_null());
        let none = data(&presence_succeeded("presence-a", [].into_iter()));
        assert_eq!(none["presence"], serde_json::json!({"ids": [], "hash": {}, "count": 0}));
        assert_eq!(data(&member_added("presence-a", "1", "[2]"))["user_info"][0], 2);
        assert_eq!(data(&member_removed("presence-a", "1"))["user_id"], "1");
    }
}
