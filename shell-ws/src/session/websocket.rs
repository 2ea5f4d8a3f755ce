//! The WebSocket side of a connection: the Pusher protocol's commands.

use super::auth::{self, Unauthorized};
use super::channel::{self, Unserved};
use super::client_event::{self, Allowance, Rejected};
use super::presence;
use super::{Link, MAX_MESSAGE, Step, Wait};
use crate::shard::Shard;
use bytes::Bytes;
use sluicegate_core::{
    Ack, Close, Lane, Message, Policy, Refusal, SubId, TenantId, TopicId, Verdict, Wish,
};
use sluicegate_wire::pusher::{self, Command, Kind, MAX_CHANNEL, close};
use sluicegate_wire::ws::{self, Decoder, Event, Opcode};

/// The most channels of one connection: a limit of the protocol, not of load.
pub const MAX_CHANNELS: usize = 200;

/// Clients of earlier protocol versions do not answer `pusher:ping`.
const ANSWERS_PING: u8 = 5;

/// A connection that speaks WebSocket.
#[derive(Debug)]
pub(super) struct WebSocket {
    decoder: Decoder,
    client: Client,
}

/// What the protocol knows about the client.
#[derive(Debug)]
struct Client {
    tenant: TenantId,
    protocol: u8,
    /// Invariant: sorted by topic, each once, at most [`MAX_CHANNELS`].
    channels: Vec<(TopicId, SubId)>,
    awaits_pong: bool,
    /// What the server calls it; signatures cover it.
    socket_id: String,
    events: Allowance,
}

impl WebSocket {
    pub(super) fn new(tenant: TenantId, protocol: u8, socket_id: String) -> Self {
        let client = Client {
            tenant,
            protocol,
            channels: Vec::new(),
            awaits_pong: false,
            socket_id,
            events: Allowance::new(),
        };
        Self { decoder: Decoder::new(MAX_MESSAGE), client }
    }

    pub(super) fn receive(&mut self, shard: &mut Shard, link: Link, buf: &mut [u8]) -> Step {
        let len = buf.len();
        match self.decoder.decode(buf) {
            Ok(ws::Step::Need(total)) => Step::Need(total),
            Ok(ws::Step::Took { consumed, event }) => {
                self.client.awaits_pong = false;
                let closing = event.is_some_and(|event| self.client.event(shard, link, event));
                self.decoder.release();
                if closing { Step::Closing(consumed) } else { Step::Used(consumed) }
            }
            Err(fault) => {
                link.close_with(shard, Close::Now, fault.close_code(), &fault.to_string());
                Step::Closing(len)
            }
        }
    }

    /// The connection is ending: nobody is in a channel through it any more.
    pub(super) fn leave(&mut self, shard: &mut Shard, link: Link) {
        for (topic, _) in self.client.channels.drain(..) {
            presence::leave(shard, link, topic);
        }
    }

    pub(super) const fn wait(&self) -> Wait {
        if self.client.awaits_pong { Wait::Pong } else { Wait::Activity }
    }

    /// A deadline ran out. True when the connection is being closed.
    pub(super) fn timeout(&mut self, shard: &mut Shard, link: Link) -> bool {
        if self.client.awaits_pong {
            // What waits for a peer that is not there would never be flushed.
            let reason = "no sign of life after a ping";
            link.close_with(shard, Close::Now, close::PONG_MISSING, reason);
            return true;
        }
        self.client.awaits_pong = true;
        if self.client.protocol >= ANSWERS_PING {
            link.say(shard, &pusher::ping(), Lane::First);
        } else {
            link.send(shard, ws::frame(Opcode::Ping, b""), Lane::First);
        }
        false
    }
}

impl Client {
    /// True when the connection is being closed.
    fn event(&mut self, shard: &mut Shard, link: Link, event: Event<'_>) -> bool {
        match event {
            // The protocol has no binary messages.
            Event::Binary(_) | Event::Pong(_) => {}
            Event::Ping(payload) => link.send(shard, ws::frame(Opcode::Pong, payload), Lane::First),
            Event::Text(text) => self.text(shard, link, text),
            Event::Close { code, .. } => {
                // The peer ended it: what waits has left, it was not dropped.
                for (topic, sub) in self.channels.drain(..) {
                    let _ = shard.broker.unsubscribe(sub);
                    presence::leave(shard, link, topic);
                }
                let answer = match code {
                    Some(code) => ws::close_frame(code, ""),
                    None => ws::frame(Opcode::Close, b""),
                };
                link.close(shard, Close::AfterFlush, answer);
                return true;
            }
        }
        false
    }

    fn text(&mut self, shard: &mut Shard, link: Link, text: &str) {
        let fault = match pusher::command(text) {
            Ok(Command::Ping) => return link.say(shard, &pusher::pong(), Lane::First),
            Ok(Command::Pong) => return,
            Ok(Command::Subscribe { channel, auth, channel_data }) => {
                let token = (auth.as_deref().unwrap_or(""), channel_data.as_deref());
                return self.subscribe(shard, link, &channel, token);
            }
            Ok(Command::Unsubscribe { channel }) => {
                return self.unsubscribe(shard, link, &channel);
            }
            Ok(Command::Client { event, channel, data }) => {
                match self.relay(shard, link, &event, (&channel, data)) {
                    Ok(()) => return,
                    Err(why) => pusher::error(Some(close::CLIENT_EVENT_REJECTED), &why.to_string()),
                }
            }
            Ok(Command::Signin { .. }) => pusher::error(None, "pusher:signin: not served yet"),
            Ok(Command::Other { .. }) => pusher::error(
                None,
                "unknown event: send pusher:subscribe, pusher:unsubscribe, pusher:ping or \
                 pusher:pong",
            ),
            Err(fault) => pusher::error(None, &fault.to_string()),
        };
        // An error that closes nothing has no code from 4000 to 4299: clients would act on it.
        link.say(shard, &fault, Lane::First);
    }

    /// Publishes a client's event to the other subscribers of a channel.
    fn relay(
        &mut self,
        shard: &mut Shard,
        link: Link,
        name: &str,
        (channel, data): (&str, &str),
    ) -> Result<(), Rejected> {
        let app = shard.apps.by_tenant(self.tenant);
        client_event::check(app.is_some_and(|app| app.client_events), name, (channel, data))?;
        let topic = shard
            .broker
            .find_topic(self.tenant, channel)
            .filter(|topic| self.channels.binary_search_by_key(topic, |entry| entry.0).is_ok())
            .ok_or(Rejected::NotSubscribed)?;
        self.events.spend(shard.broker.now())?;
        let user = shard.rosters.get(topic).and_then(|roster| roster.user_of(link.outlet));
        let frame = Bytes::from(pusher::client_event_frame(channel, name, data, user));
        let except = Some((shard.broker.number(), link.outlet));
        let message = Message { frame, records: 1, ack: Ack::None, except };
        // What is discarded now or later, the client is told by a notice.
        match shard.broker.publish(link.conn, topic, message) {
            Verdict::Queued(_) | Verdict::Parked(_) | Verdict::Shed(_) => Ok(()),
            Verdict::Refused(why) => Err(Rejected::Overloaded(why)),
        }
    }

    fn subscribe(
        &mut self,
        shard: &mut Shard,
        link: Link,
        channel: &str,
        token: (&str, Option<&str>),
    ) {
        let answer = match self.try_subscribe(shard, link, channel, token) {
            Ok(topic) if pusher::kind(channel) == Kind::Presence => {
                return presence::join(shard, link, (topic, channel), token.1);
            }
            Ok(_) => pusher::subscription_succeeded(channel),
            Err(No { kind, text, status }) => {
                // A name that is far too long is not sent back.
                let end = channel.floor_char_boundary(2 * MAX_CHANNEL);
                pusher::subscription_error(&channel[..end], kind, &text, status)
            }
        };
        link.say(shard, &answer, Lane::InLine);
    }

    fn try_subscribe(
        &mut self,
        shard: &mut Shard,
        link: Link,
        channel: &str,
        token: (&str, Option<&str>),
    ) -> Result<TopicId, No> {
        channel::check(channel).map_err(No::from)?;
        self.authorize(shard, channel, token)?;
        let known = shard.broker.find_topic(self.tenant, channel);
        let is_in =
            |topic: &TopicId| self.channels.binary_search_by_key(topic, |entry| entry.0).is_ok();
        if let Some(topic) = known.filter(is_in) {
            return Ok(topic);
        }
        if pusher::kind(channel) == Kind::Presence {
            presence::check(shard, known, token.1)?;
        }
        if self.channels.len() >= MAX_CHANNELS {
            let text = format!(
                "{MAX_CHANNELS} channels on one connection is the most: unsubscribe from one, or \
                 open another connection"
            );
            return Err(No::new("LimitReached", text, 403));
        }
        let topic = shard.broker.topic(self.tenant, channel).map_err(No::from)?;
        let wish = Wish::policy(Policy::DropOld);
        let sub = shard.broker.subscribe(link.outlet, topic, wish).map_err(No::from)?;
        let place = self.channels.partition_point(|entry| entry.0 < topic);
        self.channels.insert(place, (topic, sub));
        Ok(topic)
    }

    /// Anybody may subscribe to a public channel; to the others who has the app's server sign it.
    fn authorize(
        &self,
        shard: &Shard,
        channel: &str,
        (token, data): (&str, Option<&str>),
    ) -> Result<(), No> {
        if pusher::kind(channel) == Kind::Public {
            return Ok(());
        }
        let app = shard.apps.by_tenant(self.tenant);
        let app = app.ok_or_else(|| No::from(Unauthorized::Key))?;
        let text = pusher::channel_string_to_sign(&self.socket_id, channel, data);
        auth::check_token(app, token, &text).map_err(No::from)
    }

    fn unsubscribe(&mut self, shard: &mut Shard, link: Link, channel: &str) {
        let Some(topic) = shard.broker.find_topic(self.tenant, channel) else { return };
        let Ok(place) = self.channels.binary_search_by_key(&topic, |entry| entry.0) else { return };
        let (_, sub) = self.channels.remove(place);
        // A stale subscription has ended already.
        let _ = shard.broker.unsubscribe(sub);
        presence::leave(shard, link, topic);
    }
}

/// Why a subscription is refused.
pub(super) struct No {
    kind: &'static str,
    text: String,
    status: u16,
}

impl No {
    pub(super) fn new(kind: &'static str, text: impl Into<String>, status: u16) -> Self {
        Self { kind, text: text.into(), status }
    }
}

impl From<Unserved> for No {
    fn from(why: Unserved) -> Self {
        let (kind, status) = match why {
            Unserved::BadName(_) => ("InvalidChannel", 400),
            Unserved::NotYet => ("NotServed", 501),
        };
        Self::new(kind, why.text(), status)
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
