//! The channels of one connection: entering, being in, leaving.
//!
//! A presence channel is asked for with its owner first, who makes the connection a member or has
//! no room; then the connection subscribes, and its word of welcome goes out in line before the
//! first record and before any other member is announced to it. Other channels are subscribed to
//! at once. A topic that another shard owns may still be awaited then.

use super::Link;
use super::auth::{self, Unauthorized};
use super::channel;
use super::user::User;
use crate::note::{Member, Name};
use crate::roster::{Full, MAX_USERS};
use crate::shard::Shard;
use bytes::Bytes;
use sluicegate_core::{Lane, Policy, Refusal, SubId, TenantId, TopicId, Wish};
use sluicegate_wire::pusher::{self, BadMember, BadName, Kind, MAX_CHANNEL, MAX_USER_INFO};
use sluicegate_wire::ws::{self, Opcode};
use std::sync::Arc;

/// The most channels of one connection: a limit of the protocol, not of load.
pub const MAX_CHANNELS: usize = 200;

/// For whom a connection speaks.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) tenant: TenantId,
    /// What the server calls it; signatures cover it.
    pub(super) socket_id: String,
    /// The user that has signed in.
    pub(super) user: Option<User>,
}

/// The channels of one connection. Invariant: at most [`MAX_CHANNELS`] in all.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    /// Invariant: sorted by topic, each once.
    taken: Vec<Taken>,
    /// Presence channels whose owner has not answered.
    entering: Vec<Entering>,
    /// Those of `taken` whose topic's owner has not answered.
    awaited: Vec<Awaited>,
    /// Numbers the entries.
    serial: u64,
}

#[derive(Debug)]
struct Taken {
    topic: TopicId,
    sub: SubId,
    channel: Arc<str>,
    /// Who it is there, on a presence channel.
    user_id: Option<Arc<str>>,
}

#[derive(Debug)]
struct Entering {
    serial: u64,
    channel: Arc<str>,
    user_id: Arc<str>,
    rewind: Option<u32>,
}

#[derive(Debug)]
struct Awaited {
    sub: SubId,
    /// A finished frame.
    welcome: Bytes,
}

/// What a client asks for when it wants to be in a channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) channel: &'a str,
    /// The signature, and what it covers besides.
    pub(super) token: (&'a str, Option<&'a str>),
    /// How many of the events that a cache channel keeps.
    pub(super) rewind: Option<u32>,
}

impl Subscriptions {
    /// The client wants to be in a channel.
    pub(super) fn subscribe(
        &mut self,
        shard: &mut Shard,
        link: Link,
        client: &Client,
        asked: Asked<'_>,
    ) {
        if let Err(no) = self.try_subscribe(shard, link, client, asked) {
            no.say(shard, link, asked.channel);
        }
    }

    fn try_subscribe(
        &mut self,
        shard: &mut Shard,
        link: Link,
        client: &Client,
        Asked { channel, token, rewind }: Asked<'_>,
    ) -> Result<(), No> {
        channel::check(channel, &shard.settings).map_err(No::from)?;
        if rewind.is_some() && !pusher::is_cache(channel) {
            let text = "rewind: only cache channels keep events: leave it out";
            return Err(No::new("InvalidRewind", text, 400));
        }
        let member = authorize(shard, client, channel, token)?;
        if self.entering.iter().any(|entering| *entering.channel == *channel) {
            return Ok(());
        }
        if let Some(at) = self.find(shard, client, channel) {
            if self.awaited.iter().any(|awaited| awaited.sub == self.taken[at].sub) {
                return Ok(());
            }
        } else if self.taken.len() + self.entering.len() >= MAX_CHANNELS {
            let text = format!(
                "{MAX_CHANNELS} channels on one connection is the most: unsubscribe from one, or \
                 open another connection"
            );
            return Err(No::new("LimitReached", text, 403));
        }
        let name = Name { tenant: client.tenant, text: channel.into() };
        match member {
            Some(member) => self.ask(shard, link, name, (member, rewind)),
            None if self.find(shard, client, channel).is_some() => {
                link.say(shard, &pusher::subscription_succeeded(channel), Lane::InLine);
            }
            None => {
                let welcome = text_frame(&pusher::subscription_succeeded(channel));
                self.take(shard, link, name.clone(), (None, welcome, rewind))?;
                if counts(channel) {
                    shard.enter(name, link.outlet, None, 0);
                }
                self.note_miss(shard, client, channel);
            }
        }
        Ok(())
    }

    /// Asks the owner of a presence channel for a place among its members.
    fn ask(
        &mut self,
        shard: &mut Shard,
        link: Link,
        name: Name,
        (member, rewind): (Member, Option<u32>),
    ) {
        self.serial += 1;
        let (serial, channel) = (self.serial, Arc::clone(&name.text));
        let user_id = Arc::clone(&member.user_id);
        self.entering.push(Entering { serial, channel, user_id, rewind });
        shard.hold(link.outlet, Arc::clone(&name.text), serial);
        shard.enter(name, link.outlet, Some(member), serial);
    }

    /// The owner of a presence channel has answered.
    pub(super) fn entered(
        &mut self,
        shard: &mut Shard,
        link: Link,
        client: &Client,
        (serial, outcome): (u64, Result<Bytes, Full>),
    ) {
        let Some(at) = self.entering.iter().position(|entering| entering.serial == serial) else {
            // It was left again before the answer came.
            return;
        };
        let Entering { channel, user_id, rewind, .. } = self.entering.remove(at);
        let name = Name { tenant: client.tenant, text: channel };
        match outcome {
            Ok(welcome) if self.find(shard, client, &name.text).is_some() => {
                link.send_frame(shard, welcome, Lane::InLine);
            }
            Ok(welcome) => {
                let asked = (Some(user_id), welcome, rewind);
                match self.take(shard, link, name.clone(), asked) {
                    Ok(true) => self.note_miss(shard, client, &name.text),
                    // What others say waits on, until the topic's owner has answered too.
                    Ok(false) => return,
                    Err(no) => {
                        shard.forget(link.outlet, &name.text);
                        shard.leave(name.clone(), link.outlet);
                        no.say(shard, link, &name.text);
                    }
                }
            }
            Err(Full) => {
                let text = format!("{MAX_USERS} users are in this channel, which is the most");
                No::new("LimitReached", text, 403).say(shard, link, &name.text);
            }
        }
        shard.release(link.outlet, &name.text);
    }

    /// Subscribes, and says the word of welcome unless the topic's owner has to answer first:
    /// whether it was said.
    fn take(
        &mut self,
        shard: &mut Shard,
        link: Link,
        name: Name,
        (user_id, welcome, rewind): (Option<Arc<str>>, Bytes, Option<u32>),
    ) -> Result<bool, No> {
        let topic = shard.broker.topic(name.tenant, &name.text).map_err(No::from)?;
        let start = channel::start(&name.text, rewind);
        let wish = Wish { start, ..Wish::policy(Policy::DropOld) };
        let sub = shard.broker.subscribe(link.outlet, topic, wish).map_err(No::from)?;
        // The topic holds its name already.
        let channel = shard.broker.topic_name(topic).unwrap_or(name.text);
        let place = self.taken.partition_point(|taken| taken.topic < topic);
        self.taken.insert(place, Taken { topic, sub, channel: Arc::clone(&channel), user_id });
        if shard.broker.start_of(sub).is_none() {
            shard.await_joining(sub, link.owner);
            self.awaited.push(Awaited { sub, welcome });
            return Ok(false);
        }
        confirm(shard, link, (sub, &channel), welcome);
        Ok(true)
    }

    /// A client that is in a channel now was told that the channel keeps nothing: so is its owner.
    fn note_miss(&self, shard: &mut Shard, client: &Client, channel: &str) {
        let Some(at) = self.find(shard, client, channel) else { return };
        let Taken { sub, channel, .. } = &self.taken[at];
        if is_miss(shard, *sub, channel) {
            shard.miss(Name { tenant: client.tenant, text: Arc::clone(channel) });
        }
    }

    /// The owner of an awaited topic has answered: the subscription is in force, or never will be.
    pub(super) fn joined(
        &mut self,
        shard: &mut Shard,
        link: Link,
        client: &Client,
        (sub, refusal): (SubId, Option<Refusal>),
    ) {
        let Some(at) = self.awaited.iter().position(|awaited| awaited.sub == sub) else { return };
        let Awaited { welcome, .. } = self.awaited.swap_remove(at);
        let Some(at) = self.taken.iter().position(|taken| taken.sub == sub) else { return };
        let channel = Arc::clone(&self.taken[at].channel);
        match refusal {
            None => {
                confirm(shard, link, (sub, &channel), welcome);
                self.note_miss(shard, client, &channel);
            }
            Some(why) => {
                self.taken.remove(at);
                shard.forget(link.outlet, &channel);
                No::from(why).say(shard, link, &channel);
                depart(shard, link, client.tenant, Arc::clone(&channel));
            }
        }
        shard.release(link.outlet, &channel);
    }

    /// The client wants to be in a channel no more.
    pub(super) fn unsubscribe(
        &mut self,
        shard: &mut Shard,
        link: Link,
        client: &Client,
        channel: &str,
    ) {
        let entering = self.entering.iter().position(|entering| *entering.channel == *channel);
        let is_taken = self.find(shard, client, channel).is_some();
        if let Some(at) = entering {
            let Entering { channel, .. } = self.entering.remove(at);
            shard.forget(link.outlet, &channel);
            if !is_taken {
                depart(shard, link, client.tenant, channel);
            }
        }
        let Some(at) = self.find(shard, client, channel) else { return };
        let Taken { sub, channel, .. } = self.taken.remove(at);
        // A stale subscription has ended already.
        let _ = shard.broker.unsubscribe(sub);
        if let Some(at) = self.awaited.iter().position(|awaited| awaited.sub == sub) {
            self.awaited.swap_remove(at);
            shard.joined(sub);
            shard.forget(link.outlet, &channel);
        }
        depart(shard, link, client.tenant, channel);
    }

    /// The connection is ending: it is in no channel any more. With `unsubscribe`, because the
    /// peer wished so: what waits has left, it was not dropped.
    pub(super) fn leave_all(
        &mut self,
        shard: &mut Shard,
        link: Link,
        (tenant, unsubscribe): (TenantId, bool),
    ) {
        for Awaited { sub, .. } in self.awaited.drain(..) {
            shard.joined(sub);
            if let Some(taken) = self.taken.iter().find(|taken| taken.sub == sub) {
                shard.forget(link.outlet, &taken.channel);
            }
        }
        for Entering { channel, .. } in std::mem::take(&mut self.entering) {
            shard.forget(link.outlet, &channel);
            let is_taken = self.taken.iter().any(|taken| taken.channel == channel);
            if !is_taken {
                depart(shard, link, tenant, channel);
            }
        }
        for Taken { sub, channel, .. } in self.taken.drain(..) {
            if unsubscribe {
                let _ = shard.broker.unsubscribe(sub);
            }
            depart(shard, link, tenant, channel);
        }
    }

    /// The topic of a channel that the connection is in, and who it is there.
    pub(super) fn taken(
        &self,
        shard: &Shard,
        client: &Client,
        channel: &str,
    ) -> Option<(TopicId, Option<&str>)> {
        let taken = &self.taken[self.find(shard, client, channel)?];
        Some((taken.topic, taken.user_id.as_deref()))
    }

    /// Whether it is in a channel that needs the app's word, or asks for one.
    pub(super) fn is_authorized(&self) -> bool {
        !self.entering.is_empty()
            || self.taken.iter().any(|taken| pusher::kind(&taken.channel) != Kind::Public)
    }

    fn find(&self, shard: &Shard, client: &Client, channel: &str) -> Option<usize> {
        let topic = shard.broker.find_topic(client.tenant, channel)?;
        self.taken.binary_search_by_key(&topic, |taken| taken.topic).ok()
    }
}

/// Says the word of welcome of a subscription that is in force, in line before its first record;
/// and, on a cache channel, when no record of the past follows.
fn confirm(shard: &mut Shard, link: Link, (sub, channel): (SubId, &str), welcome: Bytes) {
    let is_miss = is_miss(shard, sub, channel);
    link.send_frame(shard, welcome, Lane::InLine);
    if is_miss {
        link.say(shard, &pusher::cache_miss(channel), Lane::InLine);
    }
}

fn is_miss(shard: &Shard, sub: SubId, channel: &str) -> bool {
    pusher::is_cache(channel) && shard.broker.has_past(sub) == Some(false)
}

fn depart(shard: &mut Shard, link: Link, tenant: TenantId, channel: Arc<str>) {
    if counts(&channel) {
        shard.leave(Name { tenant, text: channel }, link.outlet);
    }
}

/// Whether those in a channel are counted: what goes to one user is nobody else's channel.
fn counts(channel: &str) -> bool {
    pusher::server_to_user(channel).is_none()
}

/// Anybody may subscribe to a public channel, and a user to its own; to the others who has the
/// app's server sign it. On a presence channel: as whom.
fn authorize(
    shard: &Shard,
    client: &Client,
    channel: &str,
    (token, data): (&str, Option<&str>),
) -> Result<Option<Member>, No> {
    if let Some(id) = pusher::server_to_user(channel) {
        let is_own = client.user.as_ref().is_some_and(|user| *user.id == *id);
        return if is_own { Ok(None) } else { Err(Unauthorized::User.into()) };
    }
    let kind = pusher::kind(channel);
    if kind == Kind::Public {
        return Ok(None);
    }
    let app = shard.apps.by_tenant(client.tenant);
    let app = app.ok_or_else(|| No::from(Unauthorized::Key))?;
    let text = pusher::channel_string_to_sign(&client.socket_id, channel, data);
    auth::check_token(app, token, &text).map_err(No::from)?;
    if kind != Kind::Presence {
        return Ok(None);
    }
    let bad = |text: String| No::new("BadMember", text, 400);
    match (data, &client.user) {
        (Some(data), _) => {
            let member = pusher::member(data).map_err(|fault| bad(fault.to_string()))?;
            Ok(Some(Member { user_id: (*member.user_id).into(), info: member.user_info.into() }))
        }
        (None, Some(user)) if user.info.len() > MAX_USER_INFO => {
            let fault = BadMember::LongInfo(user.info.len());
            Err(bad(format!("what you signed in with: {fault}")))
        }
        (None, Some(user)) => {
            let (user_id, info) = (Arc::clone(&user.id), Arc::clone(&user.info));
            Ok(Some(Member { user_id, info }))
        }
        (None, None) => Err(bad("channel_data: missing, send it, or sign in first".to_owned())),
    }
}

fn text_frame(text: &str) -> Bytes {
    Bytes::from(ws::frame(Opcode::Text, text.as_bytes()))
}

/// Why a subscription is refused.
struct No {
    kind: &'static str,
    text: String,
    status: u16,
}

impl No {
    fn new(kind: &'static str, text: impl Into<String>, status: u16) -> Self {
        Self { kind, text: text.into(), status }
    }

    fn say(&self, shard: &mut Shard, link: Link, channel: &str) {
        // A name that is far too long is not sent back.
        let end = channel.floor_char_boundary(2 * MAX_CHANNEL);
        let Self { kind, text, status } = self;
        let answer = pusher::subscription_error(&channel[..end], kind, text, *status);
        link.say(shard, &answer, Lane::InLine);
    }
}

impl From<BadName> for No {
    fn from(why: BadName) -> Self {
        Self::new("InvalidChannel", why.to_string(), 400)
    }
}

impl From<Unauthorized> for No {
    fn from(why: Unauthorized) -> Self {
        Self::new("AuthError", why.to_string(), 401)
    }
}

impl From<Refusal> for No {
    fn from(why: Refusal) -> Self {
        let text = format!("refused at {}: {}", why.place.name(), why.reason.name());
        Self::new("Overloaded", text, 503)
    }
}
