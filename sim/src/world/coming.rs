//! Peers that come and go: joining, leaving, connections that break, and trying again.

use super::host::Knock;
use super::{Event, Peer, Shared, Who, World, at, index, refused, slot};
use crate::fact::Fact;
use crate::frame::Parser;
use crate::judge::Found;
use crate::line::Line;
use crate::peer::{Link, Publisher};
use crate::scenario::{Outage, Presence, draw};
use crate::sink::{Follower, Phase, Readers, Sink, Subscriber};
use sluicegate_core::{Ack, ConnId, OutletId, Pipe, Rand, Refusal, SubId, TopicId};
use std::collections::{BTreeMap, VecDeque};

/// What a subscription got from the broker.
type Place = (ConnId, OutletId, SubId);

impl World<'_> {
    /// Makes a follower, and connects it if it is there from the start.
    pub(super) fn add_follower(
        &mut self,
        group: usize,
        number: u32,
        name: String,
    ) -> Result<(), String> {
        let spec = &self.story.subscribers[group];
        let topic = index(spec.topic + at(number) % spec.spread);
        let shards = self.story.shards();
        let shard = match &spec.connection {
            Some(name) => self.shared_of(name, spec.shard.unwrap_or(0)),
            None => spec.shard.unwrap_or_else(|| number % shards),
        };
        let dice = self.rand.fork("subscriber").fork(&name);
        let this = index(self.followers.len());
        self.names.followers.push(name.clone());
        let presence = &spec.presence;
        let join = self.schedule(Peer::Follower(this), presence, &dice);
        let (present, came, is_over, rider) = (None, 0, false, None);
        let follower = Follower { group, topic, shard, name, dice, present, came, is_over, rider };
        self.followers.push(follower);
        if join { self.join_at_start(Peer::Follower(this)) } else { Ok(()) }
    }

    /// The shard of a shared connection, which is noted if it is new.
    fn shared_of(&mut self, name: &str, shard: u32) -> u32 {
        if let Some(known) = self.shared.iter().find(|shared| shared.name == name) {
            return known.shard;
        }
        let name = name.to_owned();
        self.shared.push(Shared { name, shard, conn: None, users: 0, sink: None });
        shard
    }

    /// Makes a publisher, and connects it if it is there from the start.
    pub(super) fn add_source(
        &mut self,
        group: usize,
        number: u32,
        name: String,
    ) -> Result<(), String> {
        let spec = &self.story.publishers[group];
        let topic = index(spec.topic + at(number) % spec.spread);
        let shard = spec.shard.unwrap_or_else(|| number % self.story.shards());
        let rand = self.rand.fork("publisher").fork(&name);
        let mut source = Publisher::new((group, spec), (topic, shard), &rand);
        source.client = self.worker(group);
        let this = index(self.publishers.len());
        self.names.publishers.push(name);
        if let Some(at) = source.next() {
            self.calendar.enter(at, Event::Tick(this));
        }
        let ridden = spec.over.as_ref().map(|over| self.follower_of(over, number));
        let join =
            ridden.is_none() && self.schedule(Peer::Source(this), &spec.presence, &source.dice);
        self.jury.source(this, spec.ack != Ack::None);
        self.publishers.push(source);
        if let Some(follower) = ridden {
            self.followers[at(follower)].rider = Some(this);
            return self.ride_at_start(follower);
        }
        if join { self.join_at_start(Peer::Source(this)) } else { Ok(()) }
    }

    /// Enters what a peer will do. True when it is there from the start.
    fn schedule(&mut self, peer: Peer, presence: &Presence, dice: &Rand) -> bool {
        let join = draw(&mut dice.fork("join"), presence.join);
        if join > 0 {
            self.calendar.enter(join, Event::Join(peer));
        }
        if let Some(leave) = presence.leave {
            let leave = draw(&mut dice.fork("leave"), leave);
            self.calendar.enter(leave, Event::Leave(peer));
        }
        for (number, outage) in presence.outages.iter().enumerate() {
            self.calendar.enter(outage.at, Event::Break(peer, number));
        }
        join == 0
    }

    fn join_at_start(&mut self, peer: Peer) -> Result<(), String> {
        let (what, name) = match peer {
            Peer::Follower(follower) => ("subscriber", self.followers[at(follower)].name.clone()),
            Peer::Source(source) => ("publisher", self.names.publisher(source).to_owned()),
        };
        match self.join(peer) {
            Ok(found) => found.map_err(|finding| finding.what),
            Err(why) if self.presence(peer).retry.is_some() => {
                self.turned_away(peer, why).map_err(|finding| finding.what)
            }
            Err(why) => Err(refused(&format!("{what} `{name}`"), why)),
        }
    }

    fn presence(&self, peer: Peer) -> &Presence {
        match peer {
            Peer::Follower(this) => {
                &self.story.subscribers[self.followers[at(this)].group].presence
            }
            Peer::Source(this) => &self.publishers[at(this)].spec.presence,
        }
    }

    /// A peer wants to join, or to leave: its shard hears it in its next turn.
    pub(super) fn knock(&mut self, peer: Peer, on: bool) {
        let shard = match peer {
            Peer::Follower(this) => {
                let follower = &self.followers[at(this)];
                let shared = self.story.subscribers[follower.group].connection.is_some();
                if on && follower.present.is_none() && !shared {
                    self.followers[at(this)].shard = self.open_shard(follower.shard);
                }
                self.followers[at(this)].shard
            }
            Peer::Source(this) => {
                let source = &self.publishers[at(this)];
                if on && source.link.is_none() {
                    self.publishers[at(this)].shard = self.open_shard(source.shard);
                }
                self.publishers[at(this)].shard
            }
        };
        let knock = if on { Knock::Join(peer) } else { Knock::Leave(peer) };
        self.shards[at(shard)].host.knocks.push(knock);
        self.wake(shard);
    }

    /// This shard, or the next one that does not shut down.
    fn open_shard(&self, shard: u32) -> u32 {
        let shards = self.story.shards();
        let others = (0..shards).map(|step| (shard + step) % shards);
        let mut open = others.filter(|shard| self.shards[at(*shard)].host.grace.is_none());
        open.next().unwrap_or(shard)
    }

    /// What a peer wanted.
    pub(super) fn answer(&mut self, shard: u32, knock: Knock) -> Found {
        match knock {
            Knock::Finish => self.begin_to_finish(shard),
            Knock::Join(peer) => {
                let there = match peer {
                    Peer::Follower(this) => {
                        let follower = &self.followers[at(this)];
                        follower.present.is_some() || follower.is_over
                    }
                    Peer::Source(this) => {
                        let source = &self.publishers[at(this)];
                        source.link.is_some() || source.is_over
                    }
                };
                if there {
                    return Ok(());
                }
                match self.join(peer) {
                    Ok(found) => found,
                    Err(why) => self.turned_away(peer, why),
                }
            }
            Knock::Leave(Peer::Follower(this)) => {
                self.followers[at(this)].is_over = true;
                if let Some(rider) = self.followers[at(this)].rider {
                    self.publishers[at(rider)].is_over = true;
                }
                let present = self.followers[at(this)].present;
                present.map_or(Ok(()), |subscriber| self.end_subscriber(subscriber, None))
            }
            Knock::Leave(Peer::Source(this)) => {
                self.publishers[at(this)].is_over = true;
                self.end_source(this)
            }
            Knock::Lost(subscriber) => self.end_subscriber(subscriber, None),
            Knock::LostSource(publisher) => self.end_source(publisher),
        }
    }

    fn turned_away(&mut self, peer: Peer, why: Refusal) -> Found {
        let (source, this) = match peer {
            Peer::Follower(this) => {
                self.rows[self.followers[at(this)].group].turned_away += 1;
                (false, this)
            }
            Peer::Source(this) => {
                self.publishers[at(this)].seen.turned_away += 1;
                (true, this)
            }
        };
        self.retry(peer);
        self.put(Fact::TurnedAway(source, this, why))
    }

    /// A peer that the broker refused or closed tries again, if its kind does.
    pub(super) fn retry(&mut self, peer: Peer) {
        let Some(range) = self.presence(peer).retry else { return };
        let dice = match peer {
            Peer::Follower(this) => &mut self.followers[at(this)].dice,
            Peer::Source(this) => &mut self.publishers[at(this)].dice,
        };
        let again = self.now + draw(dice, range);
        self.calendar.enter(again, Event::Join(peer));
    }

    fn join(&mut self, peer: Peer) -> Result<Found, Refusal> {
        match peer {
            Peer::Follower(this) => self.join_follower(this),
            Peer::Source(this) => self.join_source(this),
        }
    }

    fn join_source(&mut self, publisher: u32) -> Result<Found, Refusal> {
        let source = &self.publishers[at(publisher)];
        let shard = source.shard;
        let bound = self.bind(shard, at(source.topic))?;
        self.shards[at(shard)].set_who(bound.0, Who::Source(publisher));
        Ok(self.link(publisher, bound))
    }

    /// A publisher's connection is there, and the broker knows its topic.
    pub(super) fn link(&mut self, publisher: u32, bound: (ConnId, TopicId)) -> Found {
        let source = &mut self.publishers[at(publisher)];
        let name = self.names.publisher(publisher);
        let dice = self.rand.fork("publisher").fork(name).fork("link");
        let dice = dice.fork(&source.came.to_string());
        let line = Line::new(source.spec.line.draw(&dice), dice.fork("frames"));
        source.link = Some(Link::new(bound, line));
        source.came += 1;
        source.seen.connects += 1;
        let shard = source.shard;
        self.put(Fact::SourceCame(publisher, shard))?;
        self.pump(publisher)
    }

    /// Opens a connection and looks its topic up; both or nothing.
    fn bind(&mut self, shard: u32, topic: usize) -> Result<(ConnId, TopicId), Refusal> {
        let (name, tenant) = &self.story.topics[topic];
        let this = &mut self.shards[at(shard)];
        let tenant = this.tenants[*tenant];
        let conn = this.broker.open(tenant)?;
        match this.broker.topic(tenant, name) {
            Ok(topic) => Ok((conn, topic)),
            Err(why) => {
                this.broker.gone(conn);
                Err(why)
            }
        }
    }

    fn join_follower(&mut self, this: u32) -> Result<Found, Refusal> {
        let follower = &self.followers[at(this)];
        let (group, topic, shard) = (follower.group, follower.topic, follower.shard);
        let spec = &self.story.subscribers[group];
        let shared = spec.connection.as_ref();
        let shared = shared.and_then(|name| self.shared.iter().position(|s| s.name == *name));
        let reused = shared.and_then(|n| self.shared[n].sink).filter(|_| spec.pipe == Pipe::Shared);
        let rides = self.topic_of_rider(this)?;
        let (conn, outlet, sub) = self.subscribe(shard, (group, topic), (shared, reused))?;
        let subscriber = index(self.subscribers.len());
        let follower = &mut self.followers[at(this)];
        follower.present = Some(subscriber);
        follower.came += 1;
        let name = match follower.came {
            1 => follower.name.clone(),
            times => format!("{}#{times}", follower.name),
        };
        let dice = self.rand.fork("subscriber").fork(&follower.name).fork("link");
        let dice = dice.fork(&follower.came.to_string());
        let sink = match reused {
            Some(sink) => {
                if let Readers::Many(readers) = &mut self.sinks[at(sink)].readers {
                    readers.insert(topic, subscriber);
                }
                sink
            }
            None => self.add_sink((shard, conn, outlet), (group, subscriber, topic), &dice),
        };
        if let Some(shared) = shared {
            self.shared[shared].users += 1;
            self.shared[shared].sink = Some(sink).filter(|_| spec.pipe == Pipe::Shared);
        }
        *slot(&mut self.shards[at(shard)].subs, sub.index()) = subscriber;
        let inbox = self.inbox(group, &dice);
        let asking = self.asking(group, &dice);
        let (phase, received, books) = (Phase::Present, 0, None);
        let follower = this;
        self.subscribers.push(Subscriber {
            follower,
            group,
            topic,
            sink,
            sub,
            shard,
            phase,
            received,
            books,
            inbox,
            asking,
        });
        self.names.subscribers.push(name);
        self.rows[group].connects += 1;
        if let Some(traces) = &mut self.traces {
            traces.push(Vec::new());
        }
        self.jury.follows(subscriber, spec.wish.policy);
        let start = self.shards[at(shard)].broker.start_of(sub);
        let mut found = self.put(Fact::Subscribed(subscriber, topic, shard));
        if let Some(start) = start {
            found = found.and_then(|()| self.put(Fact::Joined(subscriber, start)));
        }
        self.ask_first(subscriber, &dice);
        Ok(found.and_then(|()| rides.map_or(Ok(()), |topic| self.ride(this, (conn, topic)))))
    }

    /// Everything a subscription needs of the broker, or nothing.
    fn subscribe(
        &mut self,
        shard: u32,
        (group, topic): (usize, u32),
        (shared, reused): (Option<usize>, Option<u32>),
    ) -> Result<Place, Refusal> {
        let spec = &self.story.subscribers[group];
        let open = shared.and_then(|shared| self.shared[shared].conn);
        let (conn, topic) = match open {
            Some(conn) => {
                let (name, tenant) = &self.story.topics[at(topic)];
                let this = &mut self.shards[at(shard)];
                (conn, this.broker.topic(this.tenants[*tenant], name)?)
            }
            None => self.bind(shard, at(topic))?,
        };
        let broker = &mut self.shards[at(shard)].broker;
        let outlet = match reused {
            Some(sink) => Ok(self.sinks[at(sink)].outlet),
            None => broker.outlet(conn, spec.pipe),
        };
        let both = outlet.and_then(|outlet| match broker.subscribe(outlet, topic, spec.wish) {
            Ok(sub) => Ok((outlet, sub)),
            Err(why) => {
                if reused.is_none() {
                    broker.shut(outlet);
                }
                Err(why)
            }
        });
        let (outlet, sub) = both.inspect_err(|_| {
            if open.is_none() {
                broker.gone(conn);
            }
        })?;
        if let Some(shared) = shared.filter(|_| open.is_none()) {
            self.shared[shared].conn = Some(conn);
            self.shards[at(shard)].set_who(conn, Who::Shared(shared));
        }
        Ok((conn, outlet, sub))
    }

    fn add_sink(
        &mut self,
        (shard, conn, outlet): (u32, ConnId, OutletId),
        (group, subscriber, topic): (usize, u32, u32),
        dice: &Rand,
    ) -> u32 {
        let spec = &self.story.subscribers[group];
        let this = index(self.sinks.len());
        let many = spec.connection.is_some() && spec.pipe == Pipe::Shared;
        let readers = if many {
            Readers::Many(BTreeMap::from([(topic, subscriber)]))
        } else {
            Readers::One(subscriber)
        };
        self.sinks.push(Sink {
            shard,
            conn,
            outlet,
            line: Line::new(spec.line.draw(dice), dice.fork("frames")),
            parser: Parser::default(),
            in_flight: VecDeque::new(),
            unread: VecDeque::new(),
            unread_bytes: 0,
            expecting: false,
            refusing: false,
            cut: false,
            closed: false,
            readers,
        });
        *slot(&mut self.shards[at(shard)].outlets, outlet.index()) = this;
        if spec.connection.is_none() {
            self.shards[at(shard)].set_who(conn, Who::Sink(this));
        }
        this
    }

    /// The subscription of an id.
    pub(super) fn subscriber_of(&self, shard: u32, sub: SubId) -> Option<u32> {
        let subscriber = *self.shards[at(shard)].subs.get(at(sub.index()))?;
        let found = self.subscribers.get(at(subscriber))?;
        (found.sub == sub && found.phase == Phase::Present).then_some(subscriber)
    }

    /// A connection breaks.
    pub(super) fn lose(&mut self, peer: Peer, number: usize) -> Found {
        let Outage { back, half_open, .. } = self.presence(peer).outages[number];
        let now = self.now;
        match peer {
            Peer::Follower(this) => {
                let Some(subscriber) = self.followers[at(this)].present else { return Ok(()) };
                if half_open {
                    self.followers[at(this)].present = None;
                    let sink = &mut self.sinks[at(self.subscribers[at(subscriber)].sink)];
                    sink.cut = true;
                    sink.line.cut(now);
                } else {
                    self.tell_shard(
                        self.subscribers[at(subscriber)].shard,
                        Knock::Lost(subscriber),
                    );
                }
            }
            Peer::Source(this) => {
                let source = &mut self.publishers[at(this)];
                let Some(link) = &mut source.link else { return Ok(()) };
                link.cut = half_open;
                if !half_open {
                    self.tell_shard(self.publishers[at(this)].shard, Knock::LostSource(this));
                }
            }
        }
        if let Some(back) = back {
            let dice = match peer {
                Peer::Follower(this) => &mut self.followers[at(this)].dice,
                Peer::Source(this) => &mut self.publishers[at(this)].dice,
            };
            let again = now + draw(dice, back);
            self.calendar.enter(again, Event::Join(peer));
        }
        Ok(())
    }

    fn tell_shard(&mut self, shard: u32, knock: Knock) {
        self.shards[at(shard)].host.knocks.push(knock);
        self.wake(shard);
    }
}
