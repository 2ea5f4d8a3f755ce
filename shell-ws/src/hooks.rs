//! Webhooks: what an app's server is told of channels, members and client events.
//!
//! Event loops only say what happened; [`queue`] decides what is told, when, and what is given up;
//! `sender` carries requests on a thread of its own, so that no endpoint delays an event.

pub mod queue;
#[cfg(feature = "server")]
pub mod sender;

use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

/// Something that may be told to an app's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The app: its place.
    pub app: usize,
    /// The channel.
    pub channel: Arc<str>,
    /// What happened.
    pub what: What,
}

/// What happened in a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Somebody subscribed to a cache channel that keeps nothing.
    CacheMiss,
    /// A subscriber sent an event to the others.
    ClientEvent {
        /// The event's name.
        event: String,
        /// JSON, as it was sent.
        data: String,
        /// The sender's connection.
        socket_id: String,
        /// The sender, on a presence channel.
        user_id: Option<Arc<str>>,
    },
    /// A user came into a presence channel.
    MemberAdded(Arc<str>),
    /// A user went from a presence channel.
    MemberRemoved(Arc<str>),
    /// The channel has its first subscription.
    Occupied,
    /// How many subscriptions the channel has.
    SubscriptionCount(u64),
    /// The channel lost its last subscription.
    Vacated,
}

/// The kinds of events, as configurations name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `cache_miss`
    CacheMiss,
    /// `channel_occupied`
    ChannelOccupied,
    /// `channel_vacated`
    ChannelVacated,
    /// `client_event`
    ClientEvent,
    /// `member_added`
    MemberAdded,
    /// `member_removed`
    MemberRemoved,
    /// `subscription_count`
    SubscriptionCount,
}

/// An endpoint of an app's server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// Where requests go: `http://` or `https://`.
    pub url: String,
    /// Which events it is told; none means all.
    #[serde(default)]
    pub events: Vec<Kind>,
    /// Only channels whose name begins with this.
    #[serde(default)]
    pub channel_prefix: String,
    /// The most events in one request.
    #[serde(default = "one")]
    pub batch: usize,
}

/// A URL without what may be secret in it: user, password, query.
pub fn shown(url: &str) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or_default();
    match plain.split_once("://") {
        Some((scheme, rest)) => {
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let host = host.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}{path}")
        }
        None => "(no URL)".to_owned(),
    }
}

/// The most events that one request may be configured to hold.
pub const MAX_BATCH: usize = 1_000;

const fn one() -> usize {
    1
}

impl Kind {
    /// As configurations name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CacheMiss => "cache_miss",
            Self::ChannelOccupied => "channel_occupied",
            Self::ChannelVacated => "channel_vacated",
            Self::ClientEvent => "client_event",
            Self::MemberAdded => "member_added",
            Self::MemberRemoved => "member_removed",
            Self::SubscriptionCount => "subscription_count",
        }
    }
}

impl Webhook {
    /// Whether this endpoint is told of an event.
    pub fn wants(&self, event: &Event) -> bool {
        let kind = event.what.kind();
        (self.events.is_empty() || self.events.contains(&kind))
            && event.channel.starts_with(&*self.channel_prefix)
    }
}

impl What {
    /// Its kind.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::CacheMiss => Kind::CacheMiss,
            Self::ClientEvent { .. } => Kind::ClientEvent,
            Self::MemberAdded(_) => Kind::MemberAdded,
            Self::MemberRemoved(_) => Kind::MemberRemoved,
            Self::Occupied => Kind::ChannelOccupied,
            Self::SubscriptionCount(_) => Kind::SubscriptionCount,
            Self::Vacated => Kind::ChannelVacated,
        }
    }
}

impl Event {
    /// As requests hold it: JSON, with a client's data exactly as it was sent.
    pub fn json(&self) -> String {
        let channel = &*self.channel;
        let value = match &self.what {
            What::CacheMiss => json!({ "name": "cache_miss", "channel": channel }),
            What::ClientEvent { event, data, socket_id, user_id } => {
                let told = json!({
                    "name": "client_event", "channel": channel, "event": event,
                    "socket_id": socket_id,
                });
                let mut told = told.to_string();
                told.pop();
                if let Some(id) = user_id {
                    told += &format!(r#","user_id":{}"#, json!(&**id));
                }
                return told + &format!(r#","data":{data}}}"#);
            }
            What::MemberAdded(id) => {
                json!({ "name": "member_added", "channel": channel, "user_id": &**id })
            }
            What::MemberRemoved(id) => {
                json!({ "name": "member_removed", "channel": channel, "user_id": &**id })
            }
            What::Occupied => json!({ "name": "channel_occupied", "channel": channel }),
            What::SubscriptionCount(count) => json!({
                "name": "subscription_count", "channel": channel, "subscription_count": count,
            }),
            What::Vacated => json!({ "name": "channel_vacated", "channel": channel }),
        };
        value.to_string()
    }

    /// What it takes to keep it, about.
    fn cost(&self) -> usize {
        let more = match &self.what {
            What::ClientEvent { event, data, socket_id, .. } => {
                event.len() + data.len() + socket_id.len()
            }
            What::MemberAdded(id) | What::MemberRemoved(id) => id.len(),
            _ => 0,
        };
        128 + self.channel.len() + more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(what: What) -> Event {
        Event { app: 0, channel: "presence-a".into(), what }
    }

    #[test]
    fn events_are_told_as_the_documentation_names_them() {
        let id: Arc<str> = "u".into();
        for (what, expected) in [
            (What::CacheMiss, json!({ "name": "cache_miss", "channel": "presence-a" })),
            (What::Occupied, json!({ "name": "channel_occupied", "channel": "presence-a" })),
            (What::Vacated, json!({ "name": "channel_vacated", "channel": "presence-a" })),
            (
                What::MemberAdded(Arc::clone(&id)),
                json!({ "name": "member_added", "channel": "presence-a", "user_id": "u" }),
            ),
            (
                What::MemberRemoved(Arc::clone(&id)),
                json!({ "name": "member_removed", "channel": "presence-a", "user_id": "u" }),
            ),
            (
                What::SubscriptionCount(7),
                json!({
                    "name": "subscription_count", "channel": "presence-a",
                    "subscription_count": 7,
                }),
            ),
            (
                What::ClientEvent {
                    event: "client-e".to_owned(),
                    data: r#"{"a":[1]}"#.to_owned(),
                    socket_id: "1.2".to_owned(),
                    user_id: Some(id),
                },
                json!({
                    "name": "client_event", "channel": "presence-a", "event": "client-e",
                    "data": { "a": [1] }, "socket_id": "1.2", "user_id": "u",
                }),
            ),
        ] {
            let text = event(what).json();
            assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), expected);
        }
    }

    #[test]
    fn a_clients_data_is_told_exactly() {
        let data = r#"{"b": 1e400, "a": 12345678901234567890123}"#.to_owned();
        let (name, socket_id) = ("client-e".to_owned(), "1.2".to_owned());
        let what = What::ClientEvent { event: name, data: data.clone(), socket_id, user_id: None };
        assert!(event(what).json().ends_with(&format!(r#","data":{data}}}"#)));
    }

    #[test]
    fn nothing_secret_of_a_url_is_shown() {
        for (url, expected) in [
            ("https://user:pass@h:1/a/b?token=x#y", "https://h:1/a/b"),
            ("http://h", "http://h"),
            ("http://h?x", "http://h"),
            ("secret", "(no URL)"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }

    #[test]
    fn an_endpoint_is_told_what_it_asks_for() {
        let all: Webhook = toml::from_str(r#"url = "http://h/""#).unwrap();
        assert!(all.wants(&event(What::Occupied)) && all.batch == 1);
        let text = "url = \"http://h/\"\nevents = [\"channel_vacated\"]\nchannel_prefix = \"pre\"";
        let some: Webhook = toml::from_str(text).unwrap();
        assert!(some.wants(&event(What::Vacated)) && !some.wants(&event(What::Occupied)));
        let other = Event { channel: "a".into(), ..event(What::Vacated) };
        assert!(!some.wants(&other));
    }
}
