//! Several event loops as values: letters between them come late, in order per pair, while sockets
//! come, go and say things.

use super::{Peer, frames, masked, upgrade};
use crate::apps::App;
use crate::note::Note;
use crate::session::Session;
use crate::session::auth::tests::token;
use crate::shard::Shard;
use crate::socket_id;
use proptest::prelude::*;
use serde_json::{Value, json};
use sluicegate_core::{
    Ack, Broker, ConnId, Effect, Instant, Keep, Limits, Message, Notice, Parcel, Verdict,
};
use sluicegate_wire::ws;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const SHARDS: u32 = 3;
const CHANNELS: [&str; 3] = ["presence-a", "presence-b", "presence-cache-c"];
const USERS: u32 = 4;

#[derive(Debug)]
enum Letter {
    Core(Parcel),
    Shell(Note),
}

/// What a client has understood of one channel.
#[derive(Debug, Default)]
struct View {
    /// Members, once it was welcomed.
    members: Option<BTreeSet<String>>,
}

struct Client {
    shard: usize,
    peer: Peer,
    socket_id: String,
    views: BTreeMap<&'static str, View>,
    /// What it wants: the channels it asked for last, and as whom.
    wishes: BTreeMap<&'static str, u32>,
}

struct Loops {
    shards: Vec<Shard>,
    sources: Vec<ConnId>,
    /// By sender and receiver.
    ways: Vec<VecDeque<Letter>>,
    /// Those that left stay as `None`.
    clients: Vec<Option<Client>>,
    published: u64,
}

fn at(shard: u32) -> usize {
    shard as usize
}

impl Loops {
    fn new() -> Self {
        let mut limits = Limits::default();
        limits.set("shards", SHARDS.into()).unwrap();
        let shard = |number| {
            let broker = Broker::shard(limits.clone(), 7, number);
            let apps = vec![App::development()];
            let mut shard = Shard::numbered(broker, apps, socket_id::key(|| 5)).unwrap();
            shard.is_ready = true;
            shard.broker.advance(Instant::from_millis(1));
            shard
        };
        let mut shards: Vec<_> = (0..SHARDS).map(shard).collect();
        let source = |shard: &mut Shard| {
            let tenant = shard.apps.by_key("app-key").unwrap().1;
            shard.open_source(tenant, u64::MAX).unwrap()
        };
        let sources = shards.iter_mut().map(source).collect();
        let ways = (0..SHARDS * SHARDS).map(|_| VecDeque::new()).collect();
        Self { shards, sources, ways, clients: Vec::new(), published: 0 }
    }

    fn connect(&mut self, shard: u32) {
        let number = self.clients.len();
        let host = &mut self.shards[at(shard)];
        let mut session = Session::open(host).unwrap();
        session.settle(host, number as u64);
        let peer =
            Peer { session: Some(session), inbox: Vec::new(), out: Vec::new(), is_shut: false };
        let (views, wishes) = (BTreeMap::new(), BTreeMap::new());
        let client = Client { shard: at(shard), peer, socket_id: String::new(), views, wishes };
        self.clients.push(Some(client));
        self.feed(number, upgrade("/app/app-key?protocol=7").as_bytes());
        self.turn(shard, 0);
    }

    fn feed(&mut self, number: usize, bytes: &[u8]) {
        let Some(client) = &mut self.clients[number] else { return };
        let shard = &mut self.shards[client.shard];
        let mut bytes = bytes.to_vec();
        let mut rest = bytes.as_mut_slice();
        while let Some(session) = &mut client.peer.session
            && let super::Took::Used(n) = session.receive(shard, rest)
        {
            rest = &mut rest[n..];
            if rest.is_empty() {
                return;
            }
        }
    }

    fn say(&mut self, number: usize, value: &Value) {
        self.feed(number, &masked(0x81, value.to_string().as_bytes()));
    }

    fn subscribe(&mut self, number: usize, channel: &'static str, user: u32) {
        let Some(client) = &mut self.clients[number] else { return };
        client.wishes.entry(channel).or_insert(user);
        let user = client.wishes[channel];
        let data = json!({ "user_id": user.to_string() }).to_string();
        let text = format!("{}:{channel}:{data}", client.socket_id);
        let auth = token(&App::development(), &text);
        let data = json!({ "channel": channel, "auth": auth, "channel_data": data });
        self.say(number, &json!({ "event": "pusher:subscribe", "data": data }));
    }

    fn unsubscribe(&mut self, number: usize, channel: &'static str) {
        let Some(client) = &mut self.clients[number] else { return };
        client.wishes.remove(channel);
        client.views.remove(channel);
        let data = json!({ "channel": channel });
        self.say(number, &json!({ "event": "pusher:unsubscribe", "data": data }));
        // What was on its way to it before the server knew is not a fault.
        let shard = self.clients[number].as_ref().unwrap().shard;
        self.turn(u32::try_from(shard).unwrap(), 0);
        self.clients[number].as_mut().unwrap().views.remove(channel);
    }

    fn disconnect(&mut self, number: usize) {
        let Some(client) = self.clients[number].take() else { return };
        if let Some(session) = client.peer.session {
            session.end(&mut self.shards[client.shard]);
        }
    }

    fn publish(&mut self, shard: u32, channel: &'static str) {
        self.published += 1;
        let text = json!({
            "event": "e", "channel": channel, "data": self.published.to_string(),
        });
        let frame = ws::frame(ws::Opcode::Text, text.to_string().as_bytes());
        let source = self.sources[at(shard)];
        let host = &mut self.shards[at(shard)];
        let tenant = host.apps.by_key("app-key").unwrap().1;
        let topic = host.broker.topic(tenant, channel).unwrap();
        let message = Message {
            frame: frame.into(),
            records: 1,
            ack: Ack::None,
            except: None,
            keep: Keep::No,
        };
        let verdict = host.broker.publish(source, topic, message);
        assert!(matches!(verdict, Verdict::Queued(_)), "there is room");
    }

    /// A turn of one loop, which takes at most so many letters of each way. Whether it did
    /// anything.
    fn turn(&mut self, shard: u32, letters: usize) -> bool {
        let mut moved = false;
        for from in 0..SHARDS {
            for _ in 0..letters {
                let host = &mut self.shards[at(shard)];
                if !host.broker.wants_parcels() {
                    break;
                }
                match self.ways[at(from * SHARDS + shard)].pop_front() {
                    Some(Letter::Core(parcel)) => host.broker.receive(from, parcel),
                    Some(Letter::Shell(note)) => host.take_note(note),
                    None => break,
                }
                moved = true;
            }
        }
        moved |= self.carry_out(shard);
        moved |= self.shards[at(shard)].broker.step(64) == sluicegate_core::Progress::More;
        moved |= self.carry_out(shard);
        for to in (0..SHARDS).filter(|to| *to != shard) {
            let host = &mut self.shards[at(shard)];
            let way = &mut self.ways[at(shard * SHARDS + to)];
            while let Some(note) = host.poll_note(to) {
                way.push_back(Letter::Shell(note));
                moved = true;
            }
            while let Some(parcel) = host.broker.poll_parcel(to) {
                way.push_back(Letter::Core(parcel));
                moved = true;
            }
        }
        moved
    }

    fn session(&mut self, owner: u64) -> Option<(&mut Session, &mut Shard)> {
        let client = self.clients.get_mut(usize::try_from(owner).ok()?)?.as_mut()?;
        Some((client.peer.session.as_mut()?, &mut self.shards[client.shard]))
    }

    fn carry_out(&mut self, shard: u32) -> bool {
        let mut moved = false;
        loop {
            if let Some((owner, word)) = self.shards[at(shard)].poll_word() {
                if let Some((session, host)) = self.session(owner) {
                    session.word(host, word);
                }
                moved = true;
                continue;
            }
            let Some(effect) = self.shards[at(shard)].broker.poll() else { return moved };
            moved = true;
            match effect {
                Effect::Write(offer) => self.write(shard, offer),
                Effect::Notice(Notice::Joined { sub, .. }) => self.joined(shard, sub, None),
                Effect::Notice(Notice::Ended { sub, why }) => self.joined(shard, sub, Some(why)),
                Effect::Notice(Notice::Flushed { conn } | Notice::Close { conn, .. }) => {
                    panic!("no connection is closed by the server here: {conn:?}")
                }
                Effect::Notice(_) => {}
            }
        }
    }

    fn joined(
        &mut self,
        shard: u32,
        sub: sluicegate_core::SubId,
        refusal: Option<sluicegate_core::Refusal>,
    ) {
        let owner = self.shards[at(shard)].joined(sub);
        if let Some((session, host)) = owner.and_then(|owner| self.session(owner)) {
            session.joined(host, sub, refusal);
        }
    }

    fn write(&mut self, shard: u32, offer: sluicegate_core::Offer) {
        let host = &mut self.shards[at(shard)];
        let owner = host.owner_of_outlet(offer.outlet);
        let owner = owner.and_then(|owner| usize::try_from(owner).ok());
        let client = owner.and_then(|owner| self.clients.get_mut(owner)?.as_mut());
        if let Some(client) = client {
            host.broker.frames(offer).for_each(|frame| client.peer.out.extend(frame));
            host.broker.sent(offer, offer.bytes);
            client.peer.session.as_mut().unwrap().written(offer.bytes);
            client.understand();
        } else {
            host.broker.sent(offer, offer.bytes);
        }
    }

    /// Until nothing moves anywhere.
    fn settle(&mut self) {
        while (0..SHARDS).fold(false, |moved, shard| self.turn(shard, usize::MAX) | moved) {}
    }
}

impl Client {
    /// Reads what came, as pusher-js would, and finds what must not come.
    fn understand(&mut self) {
        let out = std::mem::take(&mut self.peer.out);
        let head = out.windows(4).position(|four| four == b"\r\n\r\n");
        let start = if out.starts_with(b"HTTP/1.1 101") { head.unwrap() + 4 } else { 0 };
        for text in frames(&out[start..]) {
            let value: Value = serde_json::from_str(&text).unwrap();
            let data = value["data"].as_str().map(serde_json::from_str::<Value>);
            let data = data.and_then(Result::ok).unwrap_or(Value::Null);
            let event = value["event"].as_str().unwrap();
            if event == "pusher:connection_established" {
                data["socket_id"].as_str().unwrap().clone_into(&mut self.socket_id);
                continue;
            }
            let channel = value["channel"].as_str().unwrap();
            let channel = CHANNELS.into_iter().find(|known| *known == channel).unwrap();
            if !self.wishes.contains_key(channel) {
                // It has left, and the server may not have known.
                continue;
            }
            let view = self.views.entry(channel).or_default();
            let id = || data["user_id"].as_str().unwrap().to_owned();
            match event {
                "pusher_internal:subscription_succeeded" => {
                    let ids = data["presence"]["ids"].as_array().unwrap().iter();
                    let ids = ids.map(|id| id.as_str().unwrap().to_owned());
                    view.members = Some(ids.collect());
                }
                "pusher_internal:member_added" => {
                    let members = view.members.as_mut().expect("a welcome comes first");
                    assert!(members.insert(id()), "added twice");
                }
                "pusher_internal:member_removed" => {
                    let members = view.members.as_mut().expect("a welcome comes first");
                    assert!(members.remove(&id()), "removed twice");
                }
                "pusher:cache_miss" => assert!(view.members.is_some(), "a welcome comes first"),
                "e" => assert!(view.members.is_some(), "a record before the welcome"),
                other => panic!("unexpected {other}: {text}"),
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Connect(u32),
    Subscribe(usize, usize, u32),
    Unsubscribe(usize, usize),
    Disconnect(usize),
    Publish(u32, usize),
    Turn(u32, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let client = || 0..12_usize;
    let channel = || 0..CHANNELS.len();
    prop_oneof![
        2 => (0..SHARDS).prop_map(Step::Connect),
        6 => (client(), channel(), 0..USERS).prop_map(|(c, n, u)| Step::Subscribe(c, n, u)),
        3 => (client(), channel()).prop_map(|(c, n)| Step::Unsubscribe(c, n)),
        1 => client().prop_map(Step::Disconnect),
        4 => (0..SHARDS, channel()).prop_map(|(s, n)| Step::Publish(s, n)),
        12 => (0..SHARDS, 0..4_usize).prop_map(|(s, n)| Step::Turn(s, n)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whenever letters come: who is in a channel sees exactly those who are in it, nobody twice,
    /// and nothing before the word of welcome.
    #[test]
    fn members_on_all_loops_see_each_other(steps in prop::collection::vec(step(), 1..200)) {
        let mut loops = Loops::new();
        for step in steps {
            let live = |number: usize, loops: &Loops| {
                loops.clients.get(number).is_some_and(Option::is_some)
            };
            match step {
                Step::Connect(shard) if loops.clients.len() < 12 => loops.connect(shard),
                Step::Subscribe(client, channel, user) if live(client, &loops) => {
                    loops.subscribe(client, CHANNELS[channel], user);
                }
                Step::Unsubscribe(client, channel) if live(client, &loops) => {
                    loops.unsubscribe(client, CHANNELS[channel]);
                }
                Step::Disconnect(client) if live(client, &loops) => loops.disconnect(client),
                Step::Publish(shard, channel) => loops.publish(shard, CHANNELS[channel]),
                Step::Turn(shard, letters) => {
                    loops.turn(shard, letters);
                }
                _ => {}
            }
        }
        loops.settle();
        for channel in CHANNELS {
            let clients = || loops.clients.iter().flatten();
            let inside = || clients().filter(|client| client.wishes.contains_key(channel));
            let users: BTreeSet<String> =
                inside().map(|client| client.wishes[channel].to_string()).collect();
            for client in inside() {
                prop_assert_eq!(client.views[channel].members.as_ref(), Some(&users));
            }
        }
        for shard in &loops.shards {
            prop_assert!(shard.broker.check().is_ok());
        }
        for number in 0..loops.clients.len() {
            loops.disconnect(number);
        }
        loops.settle();
        let is_kept = loops.shards.iter().any(|shard| !shard.channels().is_empty());
        prop_assert!(!is_kept, "nobody is kept");
    }
}
