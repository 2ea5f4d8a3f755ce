//! Notes of a shard: to the shards that own channels and users, and what becomes of those that
//! come.
//!
//! A note to the shard itself is taken at once, so that one loop and many loops walk the same way.
//! What concerns a session is kept as a word for it until the loop hands it over.

use super::{NOBODY, Shard};
use crate::account::{Account, Losing, Sheet};
use crate::channels::{self, Meaning};
use crate::hooks::{self, What};
use crate::note::{Answer, Asker, Cached, Member, Name, Note, Peer, Question};
use crate::roster::Full;
use crate::socket_id;
use crate::users;
use bytes::Bytes;
use sluicegate_core::{
    Ack, ConnId, Keep, Lane, Message, OutletId, SubId, Tally, TenantId, Verdict,
};
use sluicegate_wire::pusher::{self, Kind};
use sluicegate_wire::ws;
use std::sync::Arc;
use std::time::Duration;

/// Bytes that may wait for a connection whose entry into a channel is not answered yet.
const HELD: usize = 64 << 10;

/// Notes that may wait for another shard before sockets are read no further.
const CROWDED: usize = 1024;

/// What a session is told.
#[derive(Debug)]
pub enum Word {
    /// Its entry into a presence channel: the word of welcome, or no room.
    Entered {
        /// The number it gave the entry.
        serial: u64,
        /// A finished frame.
        outcome: Result<Bytes, Full>,
    },
    /// A question of its request is answered.
    Answer {
        /// The request's number.
        request: u64,
        /// Which question.
        index: u32,
        /// The answer.
        answer: Answer,
    },
    /// More waited for it than may wait.
    Overflow,
    /// The app's server wishes it closed.
    Terminate,
}

/// A presence channel that a connection is entering.
#[derive(Debug)]
pub(super) struct Held {
    /// The number of the entry.
    serial: u64,
    /// What others say in the channel, once its owner has answered: it waits for the word of
    /// welcome. What they say before is of the time before the entry: the word of welcome knows it.
    frames: Option<Vec<Bytes>>,
    bytes: usize,
}

/// What sessions do.
impl Shard {
    /// A connection comes into a channel.
    pub(crate) fn enter(
        &mut self,
        channel: Name,
        outlet: OutletId,
        member: Option<Member>,
        serial: u64,
    ) {
        let peer = self.peer(outlet);
        self.tell_owner(&channel.clone(), Note::Enter { channel, peer, member, serial });
    }

    /// A connection is in a channel no more.
    pub(crate) fn leave(&mut self, channel: Name, outlet: OutletId) {
        let peer = self.peer(outlet);
        self.tell_owner(&channel.clone(), Note::Leave { channel, peer });
    }

    /// Somebody came into a cache channel that keeps nothing.
    pub(crate) fn miss(&mut self, channel: Name) {
        self.tell_owner(&channel.clone(), Note::Miss { channel });
    }

    /// A user signs in through a connection, or has gone.
    pub(crate) fn sign(&mut self, user: Name, outlet: OutletId, on: bool) {
        let peer = self.peer(outlet);
        let to = self.owner_of_user(user.tenant, &user.text);
        self.post(to, if on { Note::SignIn { user, peer } } else { Note::SignOut { user, peer } });
    }

    /// A connection is told when these users come and go, or no longer.
    pub(crate) fn watch(&mut self, tenant: TenantId, ids: &[Arc<str>], outlet: OutletId, on: bool) {
        let peer = self.peer(outlet);
        for to in 0..self.shards() {
            let owned = |id: &&Arc<str>| self.owner_of_user(tenant, id) == to;
            let ids: Vec<_> = ids.iter().filter(owned).map(Arc::clone).collect();
            if !ids.is_empty() {
                let note = match on {
                    true => Note::Watch { tenant, ids, peer },
                    false => Note::Unwatch { tenant, ids, peer },
                };
                self.post(to, note);
            }
        }
    }

    /// Asks the owners that can answer. Returns how many answers will come.
    pub(crate) fn ask(&mut self, asker: Asker, question: &Question) -> u32 {
        let owners = match question {
            Question::Channels(..) | Question::Losing(_) | Question::Numbers | Question::Sheet => {
                0..self.shards()
            }
            Question::Account(peer) => one(peer.shard),
            Question::Cached(name) | Question::Channel(name) | Question::Users(name) => {
                one(self.owner_of(name))
            }
            Question::Terminate(user) => one(self.owner_of_user(user.tenant, &user.text)),
        };
        let count = owners.end - owners.start;
        for to in owners {
            self.post(to, Note::Ask { asker, question: question.clone() });
        }
        count
    }

    /// From here on no member of a channel is announced to a connection before its word of welcome:
    /// what others say waits for [`release`](Self::release).
    pub(crate) fn hold(&mut self, outlet: OutletId, channel: Arc<str>, serial: u64) {
        self.held.insert((outlet, channel), Held { serial, frames: None, bytes: 0 });
    }

    /// The word of welcome was said: what has waited for it is sent.
    pub(crate) fn release(&mut self, outlet: OutletId, channel: &Arc<str>) {
        let held = self.held.remove(&(outlet, Arc::clone(channel)));
        for frame in held.and_then(|held| held.frames).into_iter().flatten() {
            // Without room the core gives the connection up, and a notice says so.
            let _ = self.broker.send(outlet, frame, Lane::InLine);
        }
    }

    /// A connection enters a channel no more.
    pub(crate) fn forget(&mut self, outlet: OutletId, channel: &Arc<str>) {
        self.held.remove(&(outlet, Arc::clone(channel)));
    }

    /// A subscription waits for the owner of its topic: the notice about it is for this socket.
    pub(crate) fn await_joining(&mut self, sub: SubId, owner: u64) {
        self.awaited.insert(sub, owner);
    }

    /// The socket that waits for a subscription, if one does. It is asked once.
    pub fn joined(&mut self, sub: SubId) -> Option<u64> {
        self.awaited.remove(&sub)
    }

    /// Something happened in a channel: for the app's server, if it wants to know anything.
    pub(crate) fn happened(&mut self, channel: &Name, what: What) {
        if let Some(app) = self.apps.told(channel.tenant) {
            let channel = Arc::clone(&channel.text);
            self.hooks.push_back(hooks::Event { app, channel, what });
        }
    }

    fn peer(&self, outlet: OutletId) -> Peer {
        Peer { shard: self.number(), outlet }
    }

    fn owner_of(&self, channel: &Name) -> u32 {
        self.broker.owner(channel.tenant, &channel.text)
    }

    fn owner_of_user(&self, tenant: TenantId, id: &str) -> u32 {
        self.broker.owner(tenant, &pusher::server_to_user_channel(id))
    }

    fn tell_owner(&mut self, channel: &Name, note: Note) {
        self.post(self.owner_of(channel), note);
    }

    fn post(&mut self, to: u32, note: Note) {
        if to == self.number() {
            self.take_note(note);
        } else {
            self.notes[to as usize].push_back(note);
        }
    }
}

const fn one(shard: u32) -> std::ops::Range<u32> {
    shard..shard + 1
}

/// What the loop does.
impl Shard {
    /// The next note for another shard.
    pub fn poll_note(&mut self, to: u32) -> Option<Note> {
        self.notes[to as usize].pop_front()
    }

    /// Whether so much waits for other shards that sockets should not be read for now: each thing
    /// they say may make a note.
    pub fn is_crowded(&self) -> bool {
        self.notes.iter().any(|notes| notes.len() >= CROWDED)
    }

    /// The next of what happened in this turn for apps' servers.
    pub fn poll_hook(&mut self) -> Option<hooks::Event> {
        self.hooks.pop_front()
    }

    /// The next word for a session, and the name of its socket, which may have gone.
    pub fn poll_word(&mut self) -> Option<(u64, Word)> {
        self.words.pop_front()
    }

    /// Whether there is a word for a session.
    pub fn has_words(&self) -> bool {
        !self.words.is_empty()
    }

    /// A note of some shard.
    pub fn take_note(&mut self, note: Note) {
        match note {
            Note::Enter { channel, peer, member, serial } => {
                self.take_enter(&channel, peer, member.as_ref(), serial);
            }
            Note::Leave { channel, peer } => {
                let change = channels::Change::Leave(peer);
                if let Ok(meaning) = self.channels.apply(&channel, change) {
                    self.carry_out(&channel, peer, meaning, None);
                }
            }
            Note::Miss { channel } => {
                let again = Duration::from_millis(self.broker.limits().retention_ms);
                if self.channels.miss(&channel, self.broker.now(), again) {
                    self.happened(&channel, What::CacheMiss);
                }
            }
            Note::Entered { outlet, channel, serial, outcome } => {
                let held = self.held.get_mut(&(outlet, channel));
                if let Some(held) = held.filter(|held| held.serial == serial) {
                    held.frames = Some(Vec::new());
                }
                self.word(outlet, Word::Entered { serial, outcome });
            }
            Note::Say { channel, to, frame } => {
                to.into_iter().for_each(|outlet| self.say(outlet, &channel, &frame));
            }
            Note::SignIn { user, peer } => self.change_user(&user, users::Change::SignIn(peer)),
            Note::SignOut { user, peer } => self.change_user(&user, users::Change::SignOut(peer)),
            Note::Watch { tenant, ids, peer } => self.take_watch(tenant, &ids, peer),
            Note::Unwatch { tenant, ids, peer } => {
                for text in ids {
                    self.users.apply(&Name { tenant, text }, users::Change::Unwatch(peer));
                }
            }
            Note::Terminate { outlets } => {
                outlets.into_iter().for_each(|outlet| self.word(outlet, Word::Terminate));
            }
            Note::Ask { asker, question } => {
                let answer = self.answer(question);
                self.post(asker.shard, Note::Answer { asker, answer });
            }
            Note::Answer { asker, answer } => {
                let Asker { socket, request, index, .. } = asker;
                self.words.push_back((socket, Word::Answer { request, index, answer }));
            }
        }
    }

    fn word(&mut self, outlet: OutletId, word: Word) {
        if let Some(owner) = self.owner_of_outlet(outlet).filter(|owner| *owner != NOBODY) {
            self.words.push_back((owner, word));
        }
    }

    fn say(&mut self, outlet: OutletId, channel: &Option<Arc<str>>, frame: &Bytes) {
        // Hardly any connection is entering anything at any time.
        let held = channel.as_ref().filter(|_| !self.held.is_empty());
        let held = held.and_then(|channel| self.held.get_mut(&(outlet, Arc::clone(channel))));
        let Some(held) = held else {
            // Without room the core gives the connection up, and a notice says so.
            let _ = self.broker.send(outlet, frame.clone(), Lane::InLine);
            return;
        };
        let Some(frames) = &mut held.frames else { return };
        held.bytes += frame.len();
        if held.bytes > HELD {
            return self.word(outlet, Word::Overflow);
        }
        frames.push(frame.clone());
    }
}

/// As the owner of channels.
impl Shard {
    fn take_enter(&mut self, channel: &Name, peer: Peer, member: Option<&Member>, serial: u64) {
        let outcome = self.channels.apply(channel, channels::Change::Enter(peer, member));
        let outcome = match outcome {
            Ok(meaning) => {
                let info = member.map(|member| &*member.info);
                let welcome = member.and_then(|_| self.welcome(channel));
                if let Some(frame) = welcome {
                    let (outlet, outcome) = (peer.outlet, Ok(frame));
                    let channel = Arc::clone(&channel.text);
                    self.post(peer.shard, Note::Entered { outlet, channel, serial, outcome });
                }
                return self.carry_out(channel, peer, meaning, info);
            }
            Err(full) => Err(full),
        };
        let (outlet, channel) = (peer.outlet, Arc::clone(&channel.text));
        self.post(peer.shard, Note::Entered { outlet, channel, serial, outcome });
    }

    fn welcome(&self, channel: &Name) -> Option<Bytes> {
        let roster = self.channels.roster(channel)?;
        Some(text_frame(&pusher::presence_succeeded(&channel.text, roster.members())))
    }

    /// Tells whom a change concerns.
    fn carry_out(&mut self, channel: &Name, peer: Peer, meaning: Meaning, info: Option<&str>) {
        if meaning.occupied == Some(true) {
            self.happened(channel, What::Occupied);
        }
        let text = match meaning.user {
            Some(channels::User::Added(id)) => {
                self.happened(channel, What::MemberAdded(Arc::clone(&id)));
                Some(pusher::member_added(&channel.text, &id, info.unwrap_or("null")))
            }
            Some(channels::User::Removed(id)) => {
                self.happened(channel, What::MemberRemoved(Arc::clone(&id)));
                Some(pusher::member_removed(&channel.text, &id))
            }
            None => None,
        };
        if let Some(text) = text {
            let roster = self.channels.roster(channel);
            let others = roster.into_iter().flat_map(|roster| roster.peers());
            let others: Vec<_> = others.filter(|other| *other != peer).collect();
            self.say_to_all(&others, Some(&channel.text), text_frame(&text));
        }
        if meaning.occupied == Some(false) {
            self.happened(channel, What::Vacated);
        }
        let counts = meaning.subscriptions.is_some_and(|count| count > 0)
            && pusher::kind(&channel.text) != Kind::Presence
            && self.apps.by_tenant(channel.tenant).is_some_and(|app| app.subscription_counts);
        if counts {
            self.counting.note(channel);
        }
    }

    /// Says something to connections of any shard. Those of one shard must stand together.
    fn say_to_all(&mut self, peers: &[Peer], channel: Option<&Arc<str>>, frame: Bytes) {
        for group in peers.chunk_by(|left, right| left.shard == right.shard) {
            let to = group.iter().map(|peer| peer.outlet).collect();
            let (channel, frame) = (channel.map(Arc::clone), frame.clone());
            self.post(group[0].shard, Note::Say { channel, to, frame });
        }
    }

    /// Tells the subscribers of channels whose number has changed, as a record of the channel: it
    /// waits, and is dropped, like others.
    pub fn tell_counts(&mut self) {
        let now = self.broker.now();
        while let Some(name) = self.counting.due(now) {
            let count = self.channels.counts(&name).subscriptions;
            if count == 0 {
                continue;
            }
            let is_told = self.publish_count(&name, count);
            self.happened(&name, What::SubscriptionCount(count));
            self.counting.told(name, count, is_told, now);
        }
    }

    fn publish_count(&mut self, name: &Name, count: u64) -> bool {
        let Some(source) = self.own_source(name.tenant) else { return false };
        let Ok(topic) = self.broker.topic(name.tenant, &name.text) else { return false };
        let frame = text_frame(&pusher::subscription_count(&name.text, count));
        let message = Message { frame, records: 1, ack: Ack::None, except: None, keep: Keep::No };
        matches!(self.broker.publish(source, topic, message), Verdict::Queued(_))
    }

    /// The connection through which the shard itself publishes for an app.
    fn own_source(&mut self, tenant: TenantId) -> Option<ConnId> {
        if let Some(source) = self.sources.get(&tenant) {
            return Some(*source);
        }
        let source = self.open_source(tenant, NOBODY).ok()?;
        self.sources.insert(tenant, source);
        Some(source)
    }

    fn cached(&self, channel: &Name) -> Option<Cached> {
        let topic = self.broker.find_topic(channel.tenant, &channel.text)?;
        let (frame, admitted) = self.broker.newest_kept(topic)?;
        let kept = Duration::from_millis(self.broker.limits().retention_ms);
        let left = kept.saturating_sub(self.broker.now().since(admitted));
        let data = pusher::event_data(frame)?;
        Some(Cached { data, ttl: left.as_secs() })
    }

    /// When [`tell_counts`](Self::tell_counts) has something to tell, or
    /// [`retire_some`](Self::retire_some) something to do.
    pub fn next_deadline(&self) -> Option<sluicegate_core::Instant> {
        let retiring = self.retiring.is_busy.then_some(sluicegate_core::Instant::ZERO);
        retiring.or_else(|| self.counting.next())
    }

    fn answer(&mut self, question: Question) -> Answer {
        match question {
            Question::Cached(name) => Answer::Cached(self.cached(&name)),
            Question::Channel(name) => Answer::Counts(self.channels.counts(&name)),
            Question::Channels(tenant, text) => {
                let from = Name { tenant, text };
                let found = self.channels.starting_with(&from);
                Answer::Channels(found.map(|(text, counts)| (Arc::clone(text), counts)).collect())
            }
            Question::Account(peer) => {
                let tenant = self.broker.tenant_of(peer.outlet);
                let app = tenant.and_then(|tenant| self.apps.id_of(tenant));
                let read = app.and_then(|app| Account::read(&self.broker, app, peer.outlet));
                Answer::Account(read.map(Box::new))
            }
            Question::Losing(tenant) => {
                let found = self.losses.of(&self.broker, tenant);
                let (key, number) = (&self.key, self.broker.number());
                let losing = |(outlet, dropped): &(OutletId, Tally)| Losing {
                    socket_id: socket_id::name(key, number, *outlet),
                    dropped: *dropped,
                };
                Answer::Losing(found.iter().map(losing).collect())
            }
            Question::Sheet => {
                let sheet = Sheet::read(&self.broker, &self.apps.tenants());
                Answer::Sheet(Box::new(sheet))
            }
            Question::Numbers => Answer::Numbers(Box::new(self.numbers())),
            Question::Users(name) => {
                let roster = self.channels.roster(&name);
                let ids = roster.into_iter().flat_map(|roster| roster.ids().map(Arc::clone));
                Answer::Users(ids.collect())
            }
            Question::Terminate(user) => {
                let peers: Vec<_> = self.users.peers(&user).collect();
                for group in peers.chunk_by(|left, right| left.shard == right.shard) {
                    let outlets = group.iter().map(|peer| peer.outlet).collect();
                    self.post(group[0].shard, Note::Terminate { outlets });
                }
                Answer::Done
            }
        }
    }
}

/// As the owner of users.
impl Shard {
    fn change_user(&mut self, name: &Name, change: users::Change) {
        if !self.users.apply(name, change) {
            return;
        }
        let id = [&*name.text];
        let text = match change {
            users::Change::SignIn(_) => pusher::watchlist_events(&id, &[]),
            _ => pusher::watchlist_events(&[], &id),
        };
        let watchers: Vec<_> = self.users.watchers(name).collect();
        self.say_to_all(&watchers, None, text_frame(&text));
    }

    fn take_watch(&mut self, tenant: TenantId, ids: &[Arc<str>], peer: Peer) {
        let (mut online, mut offline) = (Vec::new(), Vec::new());
        for id in ids {
            let name = Name { tenant, text: Arc::clone(id) };
            self.users.apply(&name, users::Change::Watch(peer));
            if self.users.is_online(&name) { online.push(&**id) } else { offline.push(&**id) }
        }
        let frame = text_frame(&pusher::watchlist_events(&online, &offline));
        self.say_to_all(&[peer], None, frame);
    }
}

fn text_frame(text: &str) -> Bytes {
    Bytes::from(ws::frame(ws::Opcode::Text, text.as_bytes()))
}
