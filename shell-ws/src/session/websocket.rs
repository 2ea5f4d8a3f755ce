//! The WebSocket side of a connection: the Pusher protocol's commands.

use super::client_event::{self, Allowance, Rejected};
use super::subscribing::{Asked, Client, Subscriptions};
use super::user;
use super::{Link, MAX_MESSAGE, Step, Wait};
use crate::apps::Seat;
use crate::hooks::What;
use crate::note::Name;
use crate::shard::{Shard, Word};
use bytes::Bytes;
use sluicegate_core::{Ack, Close, Keep, Lane, Message, Refusal, SubId, TenantId, Verdict};
use sluicegate_wire::pusher::{self, Command, close};
use sluicegate_wire::ws::{self, Decoder, Event, Opcode};

/// Clients of earlier protocol versions do not answer `pusher:ping`.
const ANSWERS_PING: u8 = 5;

/// A connection that speaks WebSocket.
#[derive(Debug)]
pub(super) struct WebSocket {
    decoder: Decoder,
    speaker: Speaker,
    wants_gaps: bool,
    /// It counts until this is gone.
    _seat: Seat,
}

/// What the protocol knows about the client.
#[derive(Debug)]
struct Speaker {
    client: Client,
    subscriptions: Subscriptions,
    protocol: u8,
    awaits_pong: bool,
    /// The app wants to know who it is, and it has not said so.
    is_stranger: bool,
    events: Allowance,
}

impl WebSocket {
    pub(super) fn new(
        shard: &Shard,
        (tenant, seat): (TenantId, Seat),
        (protocol, wants_gaps): (u8, bool),
        socket_id: String,
    ) -> Self {
        let app = shard.apps.by_tenant(tenant);
        let speaker = Speaker {
            client: Client { tenant, socket_id, user: None },
            subscriptions: Subscriptions::default(),
            protocol,
            awaits_pong: false,
            is_stranger: app.is_some_and(|app| app.authorized_only),
            events: Allowance::new(),
        };
        Self { decoder: Decoder::new(MAX_MESSAGE), speaker, wants_gaps, _seat: seat }
    }

    /// Whether the client asked to be told what it loses.
    pub(super) const fn wants_gaps(&self) -> bool {
        self.wants_gaps
    }

    pub(super) fn receive(&mut self, shard: &mut Shard, link: Link, buf: &mut [u8]) -> Step {
        let len = buf.len();
        match self.decoder.decode(buf) {
            Ok(ws::Step::Need(total)) => Step::Need(total),
            Ok(ws::Step::Took { consumed, event }) => {
                self.speaker.awaits_pong = false;
                let closing = event.is_some_and(|event| self.speaker.event(shard, link, event));
                self.decoder.release();
                if closing { Step::Closing(consumed) } else { Step::Used(consumed) }
            }
            Err(fault) => {
                link.close_with(shard, Close::Now, fault.close_code(), &fault.to_string());
                Step::Closing(len)
            }
        }
    }

    /// Bytes of a message whose last fragment has not come.
    pub(super) const fn unread(&self) -> usize {
        self.decoder.held()
    }

    /// The connection is ending: nobody is in a channel through it any more.
    pub(super) fn leave(&mut self, shard: &mut Shard, link: Link) {
        self.speaker.leave(shard, link, false);
    }

    /// Other apps are served. True when the connection is being closed, as its app is not.
    pub(super) fn apps_changed(&self, shard: &mut Shard, link: Link) -> bool {
        let (code, text) = match shard.apps.by_tenant(self.speaker.client.tenant) {
            Some(app) if app.enabled => return false,
            Some(_) => (close::APP_DISABLED, "this app is switched off"),
            None => (close::APP_UNKNOWN, "this app is not served any more"),
        };
        link.close_with(shard, Close::AfterFlush, code, text);
        true
    }

    /// The shard answers, or says what others wish. True when the connection is being closed.
    pub(super) fn word(&mut self, shard: &mut Shard, link: Link, word: Word) -> bool {
        let Speaker { subscriptions, client, .. } = &mut self.speaker;
        match word {
            Word::Entered { serial, outcome } => {
                subscriptions.entered(shard, link, client, (serial, outcome));
                false
            }
            // A WebSocket asks nothing.
            Word::Answer { .. } => false,
            Word::Overflow => {
                let text = "too much to say before a channel was entered";
                link.close_with(shard, Close::Now, close::OVER_CAPACITY, text);
                true
            }
            Word::Terminate => {
                let text = "the app's server has ended this user's connections";
                link.close_with(shard, Close::Now, close::UNAUTHORIZED, text);
                true
            }
        }
    }

    /// The owner of a topic has answered a subscription.
    pub(super) fn joined(
        &mut self,
        shard: &mut Shard,
        link: Link,
        answer: (SubId, Option<Refusal>),
    ) {
        let Speaker { subscriptions, client, .. } = &mut self.speaker;
        subscriptions.joined(shard, link, client, answer);
    }

    pub(super) const fn wait(&self) -> Wait {
        match &self.speaker {
            Speaker { is_stranger: true, .. } => Wait::Identity,
            Speaker { awaits_pong: true, .. } => Wait::Pong,
            _ => Wait::Activity,
        }
    }

    /// A deadline ran out. True when the connection is being closed.
    pub(super) fn timeout(&mut self, shard: &mut Shard, link: Link) -> bool {
        if self.speaker.is_stranger {
            let text = "this app is for users that sign in, or join a private channel, in time";
            link.close_with(shard, Close::Now, close::UNAUTHORIZED, text);
            return true;
        }
        if self.speaker.awaits_pong {
            // What waits for a peer that is not there would never be flushed.
            let reason = "no sign of life after a ping";
            link.close_with(shard, Close::Now, close::PONG_MISSING, reason);
            return true;
        }
        self.speaker.awaits_pong = true;
        if self.speaker.protocol >= ANSWERS_PING {
            link.say(shard, &pusher::ping(), Lane::First);
        } else {
            link.send(shard, ws::frame(Opcode::Ping, b""), Lane::First);
        }
        false
    }
}

impl Speaker {
    /// True when the connection is being closed.
    fn event(&mut self, shard: &mut Shard, link: Link, event: Event<'_>) -> bool {
        match event {
            // The protocol has no binary messages.
            Event::Binary(_) | Event::Pong(_) => {}
            Event::Ping(payload) => link.send(shard, ws::frame(Opcode::Pong, payload), Lane::First),
            Event::Text(text) => self.text(shard, link, text),
            Event::Close { code, .. } => {
                // The peer ended it: what waits has left, it was not dropped.
                self.leave(shard, link, true);
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
            Ok(Command::Subscribe { channel, auth, channel_data, rewind }) => {
                let token = (auth.as_deref().unwrap_or(""), channel_data.as_deref());
                let asked = Asked { channel: &channel, token, rewind };
                self.subscriptions.subscribe(shard, link, &self.client, asked);
                self.is_stranger &= !self.subscriptions.is_authorized();
                return;
            }
            Ok(Command::Unsubscribe { channel }) => {
                return self.subscriptions.unsubscribe(shard, link, &self.client, &channel);
            }
            Ok(Command::Client { event, channel, data }) => {
                match self.relay(shard, link, &event, (&channel, data)) {
                    Ok(()) => return,
                    Err(why) => pusher::error(Some(close::CLIENT_EVENT_REJECTED), &why.to_string()),
                }
            }
            Ok(Command::Signin { auth, user_data }) => {
                user::sign_in(shard, link, &mut self.client, (&*auth, &*user_data));
                self.is_stranger &= self.client.user.is_none();
                return;
            }
            Ok(Command::Other { .. }) => pusher::error(
                None,
                "unknown event: send pusher:subscribe, pusher:unsubscribe, pusher:signin, \
                 pusher:ping or pusher:pong",
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
        let app = shard.apps.by_tenant(self.client.tenant);
        client_event::check(app.is_some_and(|app| app.client_events), name, (channel, data))?;
        let taken = self.subscriptions.taken(shard, &self.client, channel);
        let (topic, user) = taken.ok_or(Rejected::NotSubscribed)?;
        self.events.spend(shard.broker.now())?;
        let frame = Bytes::from(pusher::client_event_frame(channel, name, data, user));
        let told = shard.apps.told(self.client.tenant).is_some().then(|| What::ClientEvent {
            event: name.to_owned(),
            data: data.to_owned(),
            socket_id: self.client.socket_id.clone(),
            user_id: user.map(Into::into),
        });
        let except = Some((shard.broker.number(), link.outlet));
        let message = Message { frame, records: 1, ack: Ack::None, except, keep: Keep::No };
        // What is discarded now or later, the client is told by a notice.
        match shard.broker.publish(link.conn, topic, message) {
            Verdict::Queued(_) | Verdict::Parked(_) => {}
            Verdict::Shed(_) => return Ok(()),
            Verdict::Refused(why) => return Err(Rejected::Overloaded(why)),
        }
        if let Some(what) = told {
            let channel = Name { tenant: self.client.tenant, text: channel.into() };
            shard.happened(&channel, what);
        }
        Ok(())
    }

    fn leave(&mut self, shard: &mut Shard, link: Link, unsubscribe: bool) {
        let tenant = self.client.tenant;
        self.subscriptions.leave_all(shard, link, (tenant, unsubscribe));
        if let Some(user) = self.client.user.take() {
            user::sign_out(shard, link, tenant, user);
        }
    }
}
