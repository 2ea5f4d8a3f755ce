//! Which page a path is.

use super::fallback::{Name, Verb};

use sluicegate_wire::http;
use std::borrow::Cow;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route<'a> {
    /// `/apps/{id}/…`: the HTTP API of an app.
    Api(&'a str, Api<'a>),
    /// `/app/{key}`; `None` for any other path below `/app`.
    App(Option<&'a str>),
    /// `/app/{key}/{server}/{session}/{verb}`, also below `/pusher`: the HTTP fallback.
    Fallback(Name, Verb),
    Health,
    /// `/ledger`
    Ledger,
    /// `/ledger/connections/{socket_id}`
    LedgerOf(&'a str),
    Metrics,
    Ready,
    Unknown,
}

/// A call of the HTTP API. Names are decoded and unchecked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Api<'a> {
    /// `POST /batch_events`
    BatchEvents,
    /// `GET /channels/{channel}`
    Channel(Cow<'a, str>),
    /// `POST /channels/{channel}/events`, which is deprecated.
    ChannelEvents(Cow<'a, str>),
    /// `GET /channels/{channel}/stats`, which is deprecated.
    ChannelStats(Cow<'a, str>),
    /// `GET /channels`
    Channels,
    /// `POST /events`
    Events,
    /// `GET /ledger/connections`
    Losing,
    /// `POST /users/{id}/terminate_connections`
    Terminate(Cow<'a, str>),
    /// `GET /channels/{channel}/users`
    Users(Cow<'a, str>),
}

impl Api<'_> {
    /// The method that it is called with.
    pub(super) const fn method(&self) -> &'static str {
        match self {
            Self::BatchEvents | Self::ChannelEvents(_) | Self::Events | Self::Terminate(_) => {
                "POST"
            }
            Self::Channel(_)
            | Self::ChannelStats(_)
            | Self::Channels
            | Self::Losing
            | Self::Users(_) => "GET",
        }
    }
}

/// What is said about a path that leads nowhere.
pub(super) const PAGES: &str = "no such page; there are POST /apps/{id}/events, \
    /apps/{id}/batch_events and /apps/{id}/users/{user}/terminate_connections, \
    GET /apps/{id}/channels, /apps/{id}/channels/{channel} and \
    /apps/{id}/channels/{channel}/users, /apps/{id}/ledger/connections, GET /health, /ready, \
    /metrics, /ledger and /ledger/connections/{socket_id}";

pub(super) fn route(path: &str) -> Route<'_> {
    // Where clients look for the fallback, unless they are told otherwise.
    if let Some((name, verb)) = fallback(path.strip_prefix("/pusher").unwrap_or(path)) {
        return Route::Fallback(name, verb);
    }
    let mut parts = path.strip_prefix('/').unwrap_or(path).split('/');
    match (parts.next(), parts.next()) {
        (Some("health"), None) => Route::Health,
        (Some("ledger"), None) => Route::Ledger,
        (Some("ledger"), Some("connections")) => match (parts.next(), parts.next()) {
            (Some(socket_id), None) => Route::LedgerOf(socket_id),
            _ => Route::Unknown,
        },
        (Some("metrics"), None) => Route::Metrics,
        (Some("ready"), None) => Route::Ready,
        (Some("app"), Some(key)) if !key.is_empty() && parts.next().is_none() => {
            Route::App(Some(key))
        }
        (Some("app"), _) => Route::App(None),
        (Some("apps"), Some(id)) if !id.is_empty() => {
            let rest = [parts.next(), parts.next(), parts.next(), parts.next()];
            api(rest).map_or(Route::Unknown, |api| Route::Api(id, api))
        }
        _ => Route::Unknown,
    }
}

fn fallback(path: &str) -> Option<(Name, Verb)> {
    let mut parts = path.strip_prefix("/app/")?.split('/');
    let parts =
        [parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next().unwrap_or("")];
    let [key, server, session, verb, ""] = parts else { return None };
    Some((Name::new(key, server, session)?, Verb::named(verb)?))
}

fn api<'a>(parts: [Option<&'a str>; 4]) -> Option<Api<'a>> {
    let name = |text: &'a str| (!text.is_empty()).then(|| http::decode_segment(text));
    Some(match parts {
        [Some("events"), None, ..] => Api::Events,
        [Some("batch_events"), None, ..] => Api::BatchEvents,
        [Some("channels"), None, ..] => Api::Channels,
        [Some("ledger"), Some("connections"), None, _] => Api::Losing,
        [Some("channels"), Some(channel), None, _] => Api::Channel(name(channel)?),
        [Some("channels"), Some(channel), Some(page), None] => match page {
            "events" => Api::ChannelEvents(name(channel)?),
            "stats" => Api::ChannelStats(name(channel)?),
            "users" => Api::Users(name(channel)?),
            _ => return None,
        },
        [Some("users"), Some(user), Some("terminate_connections"), None] => {
            Api::Terminate(name(user)?)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fallback(key: &str, server: u16, verb: Verb) -> Route<'static> {
        let name = Name::new(key, &server.to_string(), "abcdefgh").unwrap();
        Route::Fallback(name, verb)
    }

    #[test]
    fn paths_lead_to_routes() {
        for (path, expected) in [
            ("/app/key", Route::App(Some("key"))),
            ("/app", Route::App(None)),
            ("/app/", Route::App(None)),
            ("/app/key/more", Route::App(None)),
            ("/app/key/0/abcdefgh/xhr", fallback("key", 0, Verb::Poll)),
            ("/app/key/999/abcdefgh/xhr_send", fallback("key", 999, Verb::Send)),
            ("/pusher/app/key/7/abcdefgh/xhr_streaming", fallback("key", 7, Verb::Stream)),
            ("/app/key/1000/abcdefgh/xhr", Route::App(None)),
            ("/app/key/+7/abcdefgh/xhr", Route::App(None)),
            ("/app/key/7/abcdefg/xhr", Route::App(None)),
            ("/app/key/7/abcdefg~/xhr", Route::App(None)),
            ("/app/key/7/abcdefgh/websocket", Route::App(None)),
            ("/app/key/7/abcdefgh/xhr/more", Route::App(None)),
            ("/app//7/abcdefgh/xhr", Route::App(None)),
            ("/pusher/app/key", Route::Unknown),
            ("/apps/1001/events", Route::Api("1001", Api::Events)),
            ("/apps/1001/batch_events", Route::Api("1001", Api::BatchEvents)),
            ("/apps/1001/channels", Route::Api("1001", Api::Channels)),
            ("/apps/1001/channels/a%3Bb", Route::Api("1001", Api::Channel("a;b".into()))),
            ("/apps/1001/channels/a+b/users", Route::Api("1001", Api::Users("a+b".into()))),
            ("/apps/1001/channels/a/events", Route::Api("1001", Api::ChannelEvents("a".into()))),
            ("/apps/1001/channels/a/stats", Route::Api("1001", Api::ChannelStats("a".into()))),
            ("/apps/1001/channels//stats", Route::Unknown),
            (
                "/apps/1001/users/u/terminate_connections",
                Route::Api("1001", Api::Terminate("u".into())),
            ),
            ("/apps//events", Route::Unknown),
            ("/apps/1/2/events", Route::Unknown),
            ("/apps/1001/event", Route::Unknown),
            ("/apps/1001/channels/", Route::Unknown),
            ("/apps/1001/channels/a/users/b", Route::Unknown),
            ("/apps/1001/users//terminate_connections", Route::Unknown),
            ("/users/u/terminate_connections", Route::Unknown),
            ("/apps/1001/ledger/connections", Route::Api("1001", Api::Losing)),
            ("/apps/1001/ledger", Route::Unknown),
            ("/ledger", Route::Ledger),
            ("/ledger/connections/1.2", Route::LedgerOf("1.2")),
            ("/ledger/connections", Route::Unknown),
            ("/ledger/connections/1.2/3", Route::Unknown),
            ("/health", Route::Health),
            ("/health/", Route::Unknown),
            ("/", Route::Unknown),
            ("", Route::Unknown),
            ("/application", Route::Unknown),
        ] {
            assert_eq!(route(path), expected, "{path}");
        }
    }
}
