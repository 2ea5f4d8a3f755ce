//! Users: what one says of itself when it signs in, and what clients are told of users.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{MAX_DEPTH, Malformed, is_name_char, object};
use crate::json::{self, Part};

use Part::{Quoted, Raw};

/// The longest id of a user that signs in, in characters: with `#server-to-user-` in front it is a
/// channel's name.
const MAX_SIGNED_IN_ID: usize = 128;

/// The most users on one watchlist.
pub const MAX_WATCHLIST: usize = 100;

/// The field's name in [`Malformed`].
const DATA: &str = "user_data";

/// A user that signs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedIn<'a> {
    /// The user's id.
    pub id: Cow<'a, str>,
    /// Valid JSON exactly as it was sent; `null` when it was absent.
    pub user_info: &'a str,
    /// Users whose coming and going the client is told: the first [`MAX_WATCHLIST`] of those it
    /// named, each once.
    pub watchlist: Vec<String>,
    /// Whether it named more.
    pub is_cut: bool,
}

/// Why a user's data is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadUser {
    /// The id, or one on the watchlist, holds what ids may not hold, or is empty or too long.
    Id,
    /// It is no JSON object with an `id`.
    Malformed(Malformed),
    /// `watchlist` is no list of strings.
    Watchlist,
}

impl fmt::Display for BadUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Id => write!(
                f,
                "user_data: an id has 1 to {MAX_SIGNED_IN_ID} characters of A-Z a-z 0-9 _ - = @ , \
                 . ;"
            ),
            Self::Malformed(fault) => fault.fmt(f),
            Self::Watchlist => f.write_str("watchlist: send a list of user ids, each a string"),
        }
    }
}

impl core::error::Error for BadUser {}

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    user_info: Option<&'a RawValue>,
    #[serde(borrow)]
    watchlist: Option<&'a RawValue>,
}

/// Reads the `user_data` of `pusher:signin`. Cost: O(bytes), and 100 x 100 comparisons of ids.
pub fn signed_in(user_data: &str) -> Result<SignedIn<'_>, BadUser> {
    let fields: Fields<'_> = object(user_data, DATA).map_err(BadUser::Malformed)?;
    if json::deeper_than(user_data, MAX_DEPTH) {
        return Err(BadUser::Malformed(Malformed::TooDeep));
    }
    let raw = fields.id.ok_or(BadUser::Malformed(Malformed::Missing("id")))?;
    let id = json::text(raw).ok_or(BadUser::Malformed(Malformed::NotText("id")))?;
    if !is_user_id(&id) {
        return Err(BadUser::Id);
    }
    let named: Vec<&RawValue> = match fields.watchlist {
        Some(raw) => serde_json::from_str(raw.get()).map_err(|_| BadUser::Watchlist)?,
        None => Vec::new(),
    };
    let is_cut = named.len() > MAX_WATCHLIST;
    let mut watchlist: Vec<String> = Vec::new();
    for raw in named.into_iter().take(MAX_WATCHLIST) {
        let id = json::text(raw).ok_or(BadUser::Watchlist)?;
        if !is_user_id(&id) {
            return Err(BadUser::Id);
        }
        if !watchlist.iter().any(|known| *known == *id) {
            watchlist.push(id.into_owned());
        }
    }
    let user_info = fields.user_info.map_or("null", RawValue::get);
    Ok(SignedIn { id, user_info, watchlist, is_cut })
}

/// Whether it may be the id of a user that signs in.
pub fn is_user_id(id: &str) -> bool {
    (1..=MAX_SIGNED_IN_ID).contains(&id.len()) && id.chars().all(is_name_char)
}

/// The channel of one signed-in user.
pub fn server_to_user_channel(id: &str) -> String {
    ["#server-to-user-", id].concat()
}

/// Confirms `pusher:signin`. Data is an object; `user_data` comes back as it was sent.
pub fn signin_success(user_data: &str) -> String {
    json::string(&[
        Raw(r#"{"event":"pusher:signin_success","data":{"user_data":"#),
        Quoted(user_data),
        Raw("}}"),
    ])
}

/// Tells who on a watchlist is there and who is not. The data is a string that holds an object;
/// there is no channel.
pub fn watchlist_events(online: &[&str], offline: &[&str]) -> String {
    let mut data = String::from(r#"{"events":["#);
    let mut comma = "";
    for (name, ids) in [("online", online), ("offline", offline)] {
        if ids.is_empty() {
            continue;
        }
        json::write(&mut data, &[Raw(comma), Raw(r#"{"name":"#), Quoted(name)]);
        data.push_str(r#","user_ids":["#);
        for (at, id) in ids.iter().enumerate() {
            json::write(&mut data, &[Raw(if at == 0 { "" } else { "," }), Quoted(id)]);
        }
        data.push_str("]}");
        comma = ",";
    }
    data.push_str("]}");
    json::string(&[
        Raw(r#"{"event":"pusher_internal:watchlist_events","data":"#),
        Quoted(&data),
        Raw("}"),
    ])
}

/// Tells how many subscriptions a channel has.
pub fn subscription_count(channel: &str, count: u64) -> String {
    let count = count.to_string();
    let data = json::string(&[Raw(r#"{"subscription_count":"#), Raw(&count), Raw("}")]);
    super::presence::internal("subscription_count", channel, &data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use serde_json::Value;

    #[test]
    fn a_user_has_an_id_and_perhaps_an_info_and_a_watchlist() {
        let user = signed_in(r#"{"id":"u1","user_info":{"n":1},"watchlist":["a","b","a"]}"#);
        let user = user.unwrap();
        assert_eq!((&*user.id, user.user_info, user.is_cut), ("u1", r#"{"n":1}"#, false));
        assert_eq!(user.watchlist, ["a", "b"]);
        assert_eq!(signed_in(r#"{"id":"u"}"#).unwrap().user_info, "null");
        assert!(signed_in(r#"{"id":"u","watchlist":null}"#).unwrap().watchlist.is_empty());
    }

    #[test]
    fn each_bad_user_is_named() {
        let malformed = |fault| Err(BadUser::Malformed(fault));
        for (text, expected) in [
            ("", malformed(Malformed::NotJson(DATA))),
            ("[]", malformed(Malformed::NotAnObject(DATA))),
            ("{}", malformed(Malformed::Missing("id"))),
            (r#"{"id":5}"#, malformed(Malformed::NotText("id"))),
            (r#"{"id":"a","id":"b"}"#, malformed(Malformed::Repeated(DATA))),
            (r#"{"id":""}"#, Err(BadUser::Id)),
            (r#"{"id":"a:b"}"#, Err(BadUser::Id)),
            (r#"{"id":"a","watchlist":5}"#, Err(BadUser::Watchlist)),
            (r#"{"id":"a","watchlist":[5]}"#, Err(BadUser::Watchlist)),
            (r#"{"id":"a","watchlist":["a b"]}"#, Err(BadUser::Id)),
        ] {
            assert_eq!(signed_in(text), expected, "{text}");
        }
        let id = |len: usize| format!(r#"{{"id":"{}"}}"#, "u".repeat(len));
        assert!(signed_in(&id(128)).is_ok());
        assert_eq!(signed_in(&id(129)), Err(BadUser::Id));
        let deep = format!(r#"{{"id":"a","user_info":{}{}}}"#, "[".repeat(65), "]".repeat(65));
        assert_eq!(signed_in(&deep), malformed(Malformed::TooDeep));
    }

    #[test]
    fn a_long_watchlist_is_cut() {
        let list = |len: usize| {
            let ids: Vec<_> = (0..len).map(|n| format!("u{n}")).collect();
            serde_json::json!({ "id": "a", "watchlist": ids }).to_string()
        };
        assert!(!signed_in(&list(100)).unwrap().is_cut);
        let text = list(101);
        let user = signed_in(&text).unwrap();
        assert!(user.is_cut);
        assert_eq!(user.watchlist.len(), 100);
        assert_eq!(user.watchlist[99], "u99");
    }

    #[test]
    fn clients_are_told_of_users_as_they_read_it() {
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let success = read(&signin_success(r#"{"id":"u1"}"#));
        assert_eq!(success["event"], "pusher:signin_success");
        assert_eq!(success["data"]["user_data"], r#"{"id":"u1"}"#);
        let events = read(&watchlist_events(&["a", "b"], &["c"]));
        assert_eq!(events["event"], "pusher_internal:watchlist_events");
        assert!(events.get("channel").is_none());
        let data = read(events["data"].as_str().unwrap());
        let expected = serde_json::json!({ "events": [
            { "name": "online", "user_ids": ["a", "b"] },
            { "name": "offline", "user_ids": ["c"] },
        ]});
        assert_eq!(data, expected);
        let one = read(&watchlist_events(&[], &["c"]));
        let one = read(one["data"].as_str().unwrap());
        assert_eq!(one["events"].as_array().unwrap().len(), 1);
        let count = read(&subscription_count("a", 7));
        assert_eq!(count["event"], "pusher_internal:subscription_count");
        assert_eq!(count["channel"], "a");
        assert_eq!(count["data"], r#"{"subscription_count":7}"#);
    }
}
