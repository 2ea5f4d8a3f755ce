//! Clients that ask and are answered beside the records (pings, requests); and clients that publish
//! over the connection on which they subscribe.

use super::{Event, Who, World, at, refused};
use crate::fact::Fact;
use crate::frame::{ANSWER, HEADER, Item};
use crate::judge::Found;
use crate::scenario::draw;
use crate::sink::{Asking, Follower, Phase};
use sluicegate_core::{ConnId, Lane, Pipe, Rand, Refusal, TopicId};
use std::collections::VecDeque;

/// A question that the broker has received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    subscriber: u32,
    number: u64,
    /// When it was asked.
    at: u64,
}

impl World<'_> {
    /// What a new subscription asks, if its group does.
    pub(super) fn asking(&self, group: usize, dice: &Rand) -> Option<Box<Asking>> {
        let pause = draw(&mut dice.fork("asks"), self.story.subscribers[group].asks?);
        Some(Box::new(Asking { pause, asked: 0, on_the_way: VecDeque::new() }))
    }

    /// Enters the first question of a new subscription.
    pub(super) fn ask_first(&mut self, subscriber: u32, dice: &Rand) {
        if let Some(asking) = &self.subscribers[at(subscriber)].asking {
            let phase = dice.fork("first question").below(asking.pause) + 1;
            self.calendar.enter(self.now + phase, Event::Ask(subscriber));
        }
    }

    /// A client asks its next question; as publishers do, until the duration is over.
    pub(super) fn ask_question(&mut self, subscriber: u32) -> Found {
        let now = self.now;
        let this = &mut self.subscribers[at(subscriber)];
        let sink = &self.sinks[at(this.sink)];
        let gone = this.phase != Phase::Present || sink.cut || now >= self.story.duration;
        let Some(asking) = this.asking.as_mut().filter(|_| !gone) else { return Ok(()) };
        let number = asking.asked;
        asking.asked += 1;
        asking.on_the_way.push_back((number, now));
        self.rows[this.group].asked += 1;
        self.calendar.enter(now + sink.line.spec().delay, Event::Question(subscriber));
        self.calendar.enter(now + asking.pause, Event::Ask(subscriber));
        self.put(Fact::Asked(subscriber, number))
    }

    /// A question reaches the broker.
    pub(super) fn question_arrived(&mut self, subscriber: u32) {
        let this = &mut self.subscribers[at(subscriber)];
        let (shard, asking) = (this.shard, this.asking.as_mut());
        let next = asking.and_then(|asking| asking.on_the_way.pop_front());
        let (number, at_time) = next.expect("each arrival has its question");
        let question = Question { subscriber, number, at: at_time };
        self.shards[at(shard)].host.questions.push_back(question);
        self.wake(shard);
    }

    /// Answers what was asked; how many there were. On a pipe that carries everything, as a
    /// WebSocket does, a question behind a publish that is not read waits with it.
    pub(super) fn answer_questions(&mut self, shard: u32) -> u64 {
        let mut answered = 0;
        for _ in 0..self.shards[at(shard)].host.questions.len() {
            let this = &mut self.shards[at(shard)];
            let Some(question) = this.host.questions.pop_front() else { break };
            let Question { subscriber, number, at: asked } = question;
            let subscriber = &self.subscribers[at(subscriber)];
            if subscriber.phase != Phase::Present {
                continue;
            }
            let sink = &self.sinks[at(subscriber.sink)];
            let one_stream = self.story.subscribers[subscriber.group].pipe == Pipe::Shared;
            if one_stream && this.broker.is_paused(sink.conn) {
                this.host.behind.push_back(question);
                continue;
            }
            answered += 1;
            let (length, topic, publisher, records) = (HEADER, subscriber.topic, ANSWER, 1);
            let item = Item { length, topic, publisher, records, number, at: asked };
            // Without room for it the connection is given up: a notice of that follows.
            let _ = this.broker.send(sink.outlet, item.encode(), Lane::First);
        }
        answered
    }

    /// A connection is read again: questions behind its publishes are heard before newer ones.
    pub(super) fn read_questions(&mut self, shard: u32) {
        let host = &mut self.shards[at(shard)].host;
        host.behind.append(&mut host.questions);
        std::mem::swap(&mut host.behind, &mut host.questions);
    }

    /// An answer has come.
    pub(super) fn answered_question(&mut self, subscriber: u32, item: &Item) -> Found {
        let row = &mut self.rows[self.subscribers[at(subscriber)].group];
        row.answered += 1;
        row.answers.add(self.now - item.at);
        self.put(Fact::Answered(subscriber, item.number))
    }

    /// The publisher whose publishes come over a connection.
    pub(super) fn source_of(&self, shard: u32, conn: ConnId) -> Option<u32> {
        match self.shards[at(shard)].who(conn) {
            Who::Source(publisher) => Some(publisher),
            Who::Sink(sink) => {
                let subscriber = &self.subscribers[at(self.sinks[at(sink)].name())];
                self.followers[at(subscriber.follower)].rider
            }
            Who::Nobody | Who::Shared(_) => None,
        }
    }

    /// The member of this number of a group of followers. All of them have been made.
    pub(super) fn follower_of(&self, group: &str, number: u32) -> u32 {
        let groups = &self.story.subscribers;
        let found = groups.iter().position(|spec| spec.name == group);
        let before = &groups[..found.expect("the name was looked up when the file was read")];
        before.iter().map(|spec| spec.count).sum::<u32>() + number
    }

    /// The topic of the publisher that comes with a follower.
    pub(super) fn topic_of_rider(&mut self, follower: u32) -> Result<Option<TopicId>, Refusal> {
        let Follower { rider, shard, .. } = &self.followers[at(follower)];
        let Some(rider) = *rider else { return Ok(None) };
        let (name, tenant) = &self.story.topics[at(self.publishers[at(rider)].topic)];
        let this = &mut self.shards[at(*shard)];
        this.broker.topic(this.tenants[*tenant], name).map(Some)
    }

    /// A follower has connected: its publisher publishes over that connection.
    pub(super) fn ride(&mut self, follower: u32, bound: (ConnId, TopicId)) -> Found {
        let Follower { rider, shard, .. } = &self.followers[at(follower)];
        let Some(rider) = *rider else { return Ok(()) };
        self.publishers[at(rider)].shard = *shard;
        self.link(rider, bound)
    }

    /// The publisher of a follower that may be there from the start.
    pub(super) fn ride_at_start(&mut self, follower: u32) -> Result<(), String> {
        let Some(subscriber) = self.followers[at(follower)].present else { return Ok(()) };
        let conn = self.sinks[at(self.subscribers[at(subscriber)].sink)].conn;
        let topic = self.topic_of_rider(follower).map_err(|why| {
            refused(&format!("the publisher over `{}`", self.followers[at(follower)].name), why)
        })?;
        let found = topic.map_or(Ok(()), |topic| self.ride(follower, (conn, topic)));
        found.map_err(|finding| finding.what)
    }
}
