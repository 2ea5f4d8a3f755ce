//! Questions of the HTTP API about channels and users. Whoever owns them answers; what a request
//! asks for is gathered until every answer is there.

use super::auth::{self, Signed};
use super::ledger;
use super::rest::Reply;
use super::route::Api;
use crate::account::{Account, Losing, Sheet};
use crate::channels::Counts;
use crate::note::{Answer, Asker, Cached, Name, Peer, Question};
use crate::shard::Shard;
use serde_json::{Map, Value, json};
use sluicegate_core::TenantId;
use sluicegate_host::metrics::{self, Numbers};
use sluicegate_wire::http::{self, PLAIN};
use sluicegate_wire::pusher::{self, Kind};
use sluicegate_wire::rest::parameter;
use std::sync::Arc;

/// What a request gathers. Bounded by what it names; a list of channels by those that are occupied.
#[derive(Debug)]
pub(super) struct Gather {
    what: What,
    /// Answers that have not come.
    left: u32,
}

#[derive(Debug)]
enum What {
    /// And what it keeps, when that is asked for.
    Channel(Info, Option<Cached>),
    /// The deprecated form of the same.
    ChannelStats(Name, Counts),
    Channels(Name, Wanted, Vec<(Arc<str>, Counts)>),
    /// The account of one connection.
    Account(Peer, Option<Box<Account>>),
    /// Who loses most, of an app.
    Losing(TenantId, Vec<Losing>),
    /// All books: what has come is summed up.
    Sheet(Option<Box<Sheet>>),
    /// The page for metrics collectors: what has come is summed up.
    Numbers(Option<Box<Numbers>>),
    /// What a publish asked about its channels; and whether it was a batch.
    Published(Vec<Info>, bool),
    Terminate(Name),
    Users(Name, Vec<Arc<str>>),
}

/// What is told about a channel.
#[derive(Clone, Debug)]
pub(super) struct Info {
    channel: Name,
    wanted: Wanted,
    counts: Counts,
}

/// The attributes that are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    users: bool,
    subscriptions: bool,
    /// What a cache channel keeps; of one channel only.
    cache: bool,
}

impl Wanted {
    /// Reads a list such as `user_count,subscription_count`.
    pub(super) fn parse(list: &str) -> Result<Self, Reply> {
        let mut wanted = Self::default();
        for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "user_count" => wanted.users = true,
                "subscription_count" => wanted.subscriptions = true,
                "cache" => wanted.cache = true,
                other => {
                    let text = format!(
                        "info: {other:?} is not known, ask for user_count, subscription_count or \
                         cache"
                    );
                    return Err(Reply::new(400, text));
                }
            }
        }
        Ok(wanted)
    }

    /// Of several channels at once no cached events are told.
    pub(super) fn of_many(self) -> Result<Self, Reply> {
        if self.cache {
            let text = "info: cache is told of one channel: ask for /channels/NAME";
            return Err(Reply::new(400, text));
        }
        Ok(self)
    }

    const fn is_empty(self) -> bool {
        !self.users && !self.subscriptions
    }
}

impl Info {
    pub(super) fn new(tenant: TenantId, channel: &str, wanted: Wanted) -> Self {
        // Only presence channels know users.
        let users = wanted.users && pusher::kind(channel) == Kind::Presence;
        let channel = Name { tenant, text: channel.into() };
        Self { channel, wanted: Wanted { users, ..wanted }, counts: Counts::default() }
    }

    fn attributes(&self) -> Map<String, Value> {
        attributes(self.wanted, self.counts)
    }
}

fn attributes(wanted: Wanted, counts: Counts) -> Map<String, Value> {
    let mut map = Map::new();
    if wanted.users {
        map.insert("user_count".to_owned(), counts.users.into());
    }
    if wanted.subscriptions {
        map.insert("subscription_count".to_owned(), counts.subscriptions.into());
    }
    map
}

/// What a signed request asks for, or why it is answered at once. The app `id` exists.
pub(super) fn ask(
    shard: &Shard,
    id: &str,
    api: &Api<'_>,
    request: Signed<'_>,
) -> Result<Gather, Reply> {
    let (app, tenant) = shard.apps.by_id(id).ok_or_else(|| Reply::new(404, "no such app"))?;
    auth::check(app, request, shard.unix_seconds)
        .map_err(|fault| Reply::new(401, fault.to_string()))?;
    let what = match api {
        Api::Channels => channels(tenant, request.query)?,
        Api::Channel(channel) => one_channel(shard, tenant, channel, request.query)?,
        Api::Users(channel) => {
            check_name(shard, channel)?;
            if pusher::kind(channel) != Kind::Presence {
                let text = "only presence channels know their users: name one that begins with \
                            presence-";
                return Err(Reply::new(400, text));
            }
            no_more(request.query)?;
            What::Users(Name { tenant, text: (**channel).into() }, Vec::new())
        }
        Api::Terminate(user) => {
            if !pusher::is_user_id(user) {
                return Err(Reply::new(400, format!("{user:?} cannot be the id of a user")));
            }
            What::Terminate(Name { tenant, text: (**user).into() })
        }
        Api::Losing => What::Losing(tenant, Vec::new()),
        Api::ChannelStats(channel) => {
            check_name(shard, channel)?;
            What::ChannelStats(Name { tenant, text: (**channel).into() }, Counts::default())
        }
        Api::BatchEvents | Api::ChannelEvents(_) | Api::Events => {
            return Err(Reply::new(405, "publishes ask nothing"));
        }
    };
    Ok(Gather { what, left: 0 })
}

fn check_name(shard: &Shard, channel: &str) -> Result<(), Reply> {
    pusher::check_channel(channel, shard.settings.max_channel_name)
        .map_err(|why| Reply::new(400, why.to_string()))
}

/// A question without parameters has none but those of its signature.
fn no_more(query: &str) -> Result<(), Reply> {
    const SIGNED: [&str; 5] =
        ["auth_key", "auth_signature", "auth_timestamp", "auth_version", "body_md5"];
    let more = http::pairs(query).find(|(name, _)| {
        let is_known = |known: &&str| name.eq_ignore_ascii_case(known);
        !name.is_empty() && !SIGNED.iter().any(is_known)
    });
    match more {
        Some((name, _)) => {
            let text = format!("{name:?}: no parameter is known here: leave it out");
            Err(Reply::new(400, text))
        }
        None => Ok(()),
    }
}

fn channels(tenant: TenantId, query: &str) -> Result<What, Reply> {
    let prefix = parameter(query, "filter_by_prefix").unwrap_or_default();
    let wanted = Wanted::parse(&parameter(query, "info").unwrap_or_default())?.of_many()?;
    if wanted.users && !prefix.starts_with("presence-") {
        let text = "info: user_count is known of presence channels only: send \
                    filter_by_prefix=presence-";
        return Err(Reply::new(400, text));
    }
    Ok(What::Channels(Name { tenant, text: prefix.into() }, wanted, Vec::new()))
}

fn one_channel(shard: &Shard, tenant: TenantId, channel: &str, query: &str) -> Result<What, Reply> {
    check_name(shard, channel)?;
    let wanted = Wanted::parse(&parameter(query, "info").unwrap_or_default())?;
    if wanted.users && pusher::kind(channel) != Kind::Presence {
        let text = "info: user_count is known of presence channels only: leave it out";
        return Err(Reply::new(400, text));
    }
    if wanted.cache && !pusher::is_cache(channel) {
        let text = "info: only cache channels keep an event: leave cache out";
        return Err(Reply::new(400, text));
    }
    Ok(What::Channel(Info::new(tenant, channel, wanted), None))
}

impl Gather {
    /// What a publish asked about its channels.
    pub(super) fn published(infos: Vec<Info>, is_batch: bool) -> Self {
        Self { what: What::Published(infos, is_batch), left: 0 }
    }

    /// The page for metrics collectors.
    pub(super) const fn metrics() -> Self {
        Self { what: What::Numbers(None), left: 0 }
    }

    /// All books.
    pub(super) const fn sheet() -> Self {
        Self { what: What::Sheet(None), left: 0 }
    }

    /// The account of a connection; none when it is no id of a connection of this process.
    pub(super) fn account(shard: &Shard, socket_id: &str) -> Option<Self> {
        let (number, outlet) = shard.find_socket(socket_id)?;
        let peer = Peer { shard: number, outlet };
        (number < shard.shards()).then_some(Self { what: What::Account(peer, None), left: 0 })
    }

    /// Asks. True when there is nothing to wait for.
    pub(super) fn start(&mut self, shard: &mut Shard, asker: Asker) -> bool {
        let mut ask = |question: Question, index| shard.ask(Asker { index, ..asker }, &question);
        self.left = match &self.what {
            What::Channel(info, _) => {
                let name = &info.channel;
                let cached = info.wanted.cache.then(|| Question::Cached(name.clone()));
                ask(Question::Channel(name.clone()), 0)
                    + cached.map_or(0, |question| ask(question, 0))
            }
            What::ChannelStats(name, _) => ask(Question::Channel(name.clone()), 0),
            What::Channels(from, ..) => {
                ask(Question::Channels(from.tenant, Arc::clone(&from.text)), 0)
            }
            What::Account(peer, _) => ask(Question::Account(*peer), 0),
            What::Losing(tenant, _) => ask(Question::Losing(*tenant), 0),
            What::Numbers(_) => ask(Question::Numbers, 0),
            What::Sheet(_) => ask(Question::Sheet, 0),
            What::Terminate(user) => ask(Question::Terminate(user.clone()), 0),
            What::Users(name, _) => ask(Question::Users(name.clone()), 0),
            What::Published(infos, _) => (0_u32..)
                .zip(infos)
                .filter(|(_, info)| !info.wanted.is_empty())
                .map(|(index, info)| ask(Question::Channel(info.channel.clone()), index))
                .sum(),
        };
        self.left == 0
    }

    /// An answer has come. True when it was the last one.
    pub(super) fn take(&mut self, index: u32, answer: Answer) -> bool {
        match (&mut self.what, answer) {
            (What::Channel(info, _), Answer::Counts(counts)) => info.counts = counts,
            (What::ChannelStats(_, found), Answer::Counts(counts)) => *found = counts,
            (What::Channel(_, kept), Answer::Cached(found)) => *kept = found,
            (What::Channels(_, _, found), Answer::Channels(some)) => found.extend(some),
            (What::Users(_, ids), Answer::Users(some)) => ids.extend(some),
            (What::Published(infos, _), Answer::Counts(counts)) => {
                if let Some(info) = infos.get_mut(index as usize) {
                    info.counts = counts;
                }
            }
            (What::Account(_, account), Answer::Account(found)) => *account = found,
            (What::Losing(_, found), Answer::Losing(some)) => found.extend(some),
            (What::Sheet(Some(sum)), Answer::Sheet(some)) => sum.add(&some),
            (What::Sheet(sum), Answer::Sheet(some)) => *sum = Some(some),
            (What::Numbers(Some(sum)), Answer::Numbers(some)) => sum.add(&some),
            (What::Numbers(sum), Answer::Numbers(some)) => *sum = Some(some),
            (What::Terminate(_), Answer::Done) => {}
            (what, answer) => debug_assert!(false, "{answer:?} is no answer to {what:?}"),
        }
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    /// The response: its status, its content type and its body.
    pub(super) fn response(self) -> (u16, &'static str, String) {
        match self.what {
            What::Numbers(sum) => {
                let text = sum.map_or_else(String::new, |sum| sum.text());
                (200, metrics::CONTENT_TYPE, text)
            }
            What::Account(_, None) => (404, PLAIN, format!("{NO_CONNECTION}\n")),
            mut what => (200, "application/json", json_body(&mut what)),
        }
    }
}

/// What is said about a socket id that nobody has.
pub(super) const NO_CONNECTION: &str = "no connection has this socket id, or it has gone: an \
    account ends with its connection";

fn json_body(what: &mut What) -> String {
    match what {
        What::Numbers(_) => json!({}),
        What::Account(_, account) => account.as_deref().map_or(Value::Null, ledger::account),
        What::Losing(_, found) => ledger::losing(found),
        What::Sheet(sum) => sum.as_deref().map_or(Value::Null, ledger::sheet),
        What::Channel(info, kept) => {
            let mut body = info.attributes();
            if info.wanted.cache {
                let entry = |Cached { data, ttl }: &Cached| json!({ "data": data, "ttl": ttl });
                body.insert("cache".to_owned(), kept.as_ref().map(entry).into());
            }
            body.insert("occupied".to_owned(), (info.counts.subscriptions > 0).into());
            Value::Object(body)
        }
        What::ChannelStats(_, Counts { subscriptions, users }) => json!({
            "connection_count": subscriptions,
            "occupied": *subscriptions > 0,
            "user_count": users,
        }),
        What::Channels(_, wanted, found) => {
            let entry = |(name, counts): &(Arc<str>, Counts)| {
                (name.to_string(), Value::Object(attributes(*wanted, *counts)))
            };
            json!({ "channels": found.iter().map(entry).collect::<Map<_, _>>() })
        }
        What::Published(infos, true) => {
            json!({ "batch": infos.iter().map(Info::attributes).collect::<Vec<_>>() })
        }
        What::Published(infos, false) => {
            let entry = |info: &Info| (info.channel.text.to_string(), info.attributes().into());
            json!({ "channels": infos.iter().map(entry).collect::<Map<_, _>>() })
        }
        What::Terminate(_) => json!({}),
        What::Users(_, ids) => {
            json!({ "users": ids.iter().map(|id| json!({ "id": &**id })).collect::<Vec<_>>() })
        }
    }
    .to_string()
}
