//! What the tasks and handles of one client share: checkpoints 1, 2 and 7, and who waits for what.

use crate::error::{Disconnected, PublishError, Refusal, TopicError};
use crate::lane::Lane;
use crate::options::SubscribeOptions;
use crate::topic::{Bound, Right, Topic};
use bytes::Bytes;
use sluicegate_core::client::inbox::Inbox;
use sluicegate_core::client::window::{Permit, Window};
use sluicegate_core::{Limits, Ticket};
use sluicegate_wire::quic::{Frame, Mode, Retry, Start};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// The most topics of one client.
const MAX_TOPICS: usize = 4096;

/// When a publish that a stopping server has refused may be tried again: by then it is queued for
/// the next one.
const NEXT_SERVER: Retry = Retry::After(100);

/// For how long a server that goes away is believed that it stays.
const LONGEST_GRACE: Duration = Duration::from_hours(1);

/// One client's state, for its handles and tasks.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// There may be something to publish: all workers look.
    pub(crate) queued: Notify,
    /// There is something for the control stream.
    pub(crate) asked: Notify,
    /// The server goes away.
    pub(crate) leaving: Notify,
    /// A subscription's stream is over, or nobody wants it any more.
    pub(crate) parted: Notify,
    /// The client is being closed.
    pub(crate) closing: Notify,
    /// It is closed.
    pub(crate) closed: Notify,
    pub(crate) limits: Limits,
}

impl Shared {
    pub(crate) fn new(limits: Limits, workers: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State::new(&limits, workers)),
            queued: Notify::new(),
            asked: Notify::new(),
            leaving: Notify::new(),
            parted: Notify::new(),
            closing: Notify::new(),
            closed: Notify::new(),
            limits,
        })
    }

    /// Nothing more is published, and what is queued goes out.
    pub(crate) fn close(&self) {
        self.lock().close();
        self.closing.notify_one();
        self.queued.notify_waiters();
        self.parted.notify_waiters();
    }

    /// Never held across an await.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of what a client published and received, in records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Handed to the transport without asking for an answer.
    pub sent: u64,
    /// Answered: sequenced in their topic.
    pub acked: u64,
    /// Answered: not published.
    pub refused: u64,
    /// Discarded by the broker, which has told.
    pub shed: u64,
    /// Their connection ended before the answer: they may have been published.
    pub unknown: u64,
    /// Of those that were sent without asking: at most so many may not have arrived, because their
    /// connection ended.
    pub unconfirmed: u64,
    /// Connections that have ended, and not by us.
    pub disconnects: u64,
    /// Connections that were made after the first.
    pub reconnects: u64,
}

/// A batch on its way to the broker.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) topic: usize,
    pub(crate) records: Vec<Bytes>,
    pub(crate) permit: Permit,
    /// Who waits for the answer; none when there is none.
    pub(crate) reply: Option<Reply>,
}

/// Who waits for the answer to a publish.
#[derive(Debug)]
pub(crate) struct Reply {
    /// Within the broker's deadline, or at once.
    pub(crate) waits: bool,
    pub(crate) tell: oneshot::Sender<Result<u64, PublishError>>,
}

/// A request that was not answered.
#[derive(Debug)]
enum Ask {
    Bind { topic: usize, right: Right },
    Publish { tell: oneshot::Sender<Result<u64, PublishError>>, permit: Permit, records: u64 },
    Subscribe { sub: u64 },
}

/// A subscription of the application, over all connections.
#[derive(Debug)]
pub(crate) struct Sub {
    topic: usize,
    options: SubscribeOptions,
    pub(crate) inbox: Inbox<Bytes>,
    pub(crate) waker: Option<Waker>,
    /// The topic's epoch, and the number of the record that comes next.
    pub(crate) position: Option<(u64, u64)>,
    /// Its number on the connection.
    pub(crate) number: Option<u32>,
    /// How many streams it has had: what is left of an older one is not taken, it comes again.
    life: u64,
    /// Who waits for the first confirmation.
    tell: Option<oneshot::Sender<Result<(), TopicError>>>,
    pub(crate) ended: Option<TopicError>,
    /// Told when its reader may go on, or shall end.
    pub(crate) reader: Arc<Notify>,
}

impl Sub {
    fn end(&mut self, why: TopicError) {
        if let Some(tell) = self.tell.take() {
            // Who has asked may have given up.
            let _ = tell.send(Err(why));
        }
        self.ended.get_or_insert(why);
        self.wake();
    }

    pub(crate) fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Everything behind the lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) window: Window,
    pub(crate) window_waits: BTreeMap<Ticket, oneshot::Sender<Result<Permit, Refusal>>>,
    /// At least one.
    pub(crate) lanes: Vec<Lane>,
    pub(crate) topics: Vec<Topic>,
    asks: BTreeMap<u64, Ask>,
    next_request: u64,
    /// What the control stream shall ask for. Bounded by the topics and subscriptions that ask.
    outbox: VecDeque<Vec<u8>>,
    /// What it shall say besides: a server that goes away is told this too. Bounded by the
    /// subscriptions that end, and for the rest by twice the most topics.
    replies: VecDeque<Vec<u8>>,
    pub(crate) subs: BTreeMap<u64, Sub>,
    next_sub: u64,
    is_up: bool,
    /// The server goes away: nothing new is asked of it, and at this time it is left.
    leaves_at: Option<Instant>,
    /// The longest frame of a publish stream, in bytes.
    pub(crate) max_frame: u64,
    pub(crate) is_closing: bool,
    is_closed: bool,
    /// Why there will be no connection, though the application has not closed the client.
    pub(crate) given_up: Option<Disconnected>,
    pub(crate) stats: Stats,
}

impl State {
    fn new(limits: &Limits, workers: usize) -> Self {
        Self {
            window: Window::new(limits),
            window_waits: BTreeMap::new(),
            lanes: (0..workers.max(1)).map(|_| Lane::new(limits)).collect(),
            topics: Vec::new(),
            asks: BTreeMap::new(),
            next_request: 1,
            outbox: VecDeque::new(),
            replies: VecDeque::new(),
            subs: BTreeMap::new(),
            next_sub: 0,
            is_up: false,
            leaves_at: None,
            max_frame: limits.max_frame_bytes,
            is_closing: false,
            is_closed: false,
            given_up: None,
            stats: Stats::default(),
        }
    }

    fn request(&mut self, ask: Ask) -> u64 {
        let request = self.next_request;
        self.next_request += 1;
        self.asks.insert(request, ask);
        request
    }

    /// Wants a right to a topic. Answers its place, and who tells when it is granted; none when it
    /// is already.
    pub(crate) fn want(
        &mut self,
        name: &str,
        right: Right,
    ) -> Result<(usize, Option<Bound>), TopicError> {
        if self.is_closing {
            return Err(self.topic_end());
        }
        let same = |topic: &Topic| &*topic.name == name;
        let at = self.topics.iter().position(same).unwrap_or(self.topics.len());
        if at == MAX_TOPICS {
            let why = sluicegate_core::Refusal {
                place: sluicegate_core::Place::Table,
                reason: sluicegate_core::Reason::Limit,
                retry: sluicegate_core::Retry::Never,
            };
            return Err(TopicError::Refused(why.into()));
        }
        if at == self.topics.len() {
            self.topics.push(Topic::new(name));
        }
        let told = self.topics[at].want(right);
        if self.asks_more() {
            self.bind(at, right);
        }
        Ok((at, told))
    }

    /// Asks for a right, unless it is there, or asked for.
    fn bind(&mut self, at: usize, right: Right) {
        if !self.topics[at].ask(right) {
            return;
        }
        let request = self.request(Ask::Bind { topic: at, right });
        let (publish, subscribe) = (right == Right::Publish, right == Right::Subscribe);
        let topic = &self.topics[at].name;
        self.outbox.push_back(Frame::Bind { request, publish, subscribe, topic }.bytes());
    }

    /// A connection is there, with so many publish streams: everything is asked for again.
    pub(crate) fn up(&mut self, max_frame: u64, streams: u64) {
        self.is_up = true;
        // Each stream may be in the middle of a frame, and the broker holds one of the longest for
        // all of them together.
        self.max_frame = max_frame / streams.max(1);
        for at in 0..self.topics.len() {
            self.bind(at, Right::Publish);
            self.bind(at, Right::Subscribe);
        }
    }

    /// The server has said that it goes away, and how long it stays. What was not asked yet is
    /// asked of the next one.
    pub(crate) fn go_away(&mut self, grace_ms: u64) {
        let grace = Duration::from_millis(grace_ms).min(LONGEST_GRACE);
        self.leaves_at.get_or_insert_with(|| Instant::now() + grace);
        self.outbox.clear();
    }

    /// When the server is left; none while it has not said that it goes away.
    pub(crate) const fn leaves_at(&self) -> Option<Instant> {
        self.leaves_at
    }

    /// Whether the connection is there and stays.
    const fn asks_more(&self) -> bool {
        self.is_up && self.leaves_at.is_none()
    }

    /// Whether no stream of a subscription goes on: all have said their last word.
    pub(crate) fn is_heard_out(&self) -> bool {
        self.subs.values().all(|sub| sub.number.is_none() || sub.ended.is_some())
    }

    /// The connection is gone.
    pub(crate) fn down(&mut self) {
        self.is_up = false;
        self.leaves_at = None;
        self.outbox.clear();
        self.replies.clear();
        for (_, ask) in std::mem::take(&mut self.asks) {
            if let Ask::Publish { tell, permit, records } = ask {
                self.stats.unknown += records;
                self.window.give_back(permit);
                // Who has asked may have given up.
                let _ = tell.send(Err(PublishError::Unknown));
            }
        }
        self.stats.unconfirmed += self.lanes.iter_mut().map(Lane::settle).sum::<u64>();
        self.topics.iter_mut().for_each(Topic::down);
        for sub in self.subs.values_mut() {
            sub.number = None;
            sub.reader.notify_waiters();
        }
        self.pump();
    }

    /// Tells those whose turn in the window has come.
    pub(crate) fn pump(&mut self) {
        while let Some((ticket, result)) = self.window.poll() {
            let Some(tell) = self.window_waits.remove(&ticket) else {
                if let Ok(permit) = result {
                    self.window.give_back(permit);
                }
                continue;
            };
            if let Err(Ok(permit)) = tell.send(result.map_err(Refusal::from)) {
                self.window.give_back(permit);
            }
        }
    }

    /// An answer of the broker. False when it answers nothing that was asked.
    pub(crate) fn bound(&mut self, request: u64, number: u32) -> bool {
        let Some(Ask::Bind { topic: at, right }) = self.asks.remove(&request) else { return false };
        self.topics[at].grant(right, number);
        if right == Right::Publish {
            return true;
        }
        let of = |(id, sub): (&u64, &Sub)| {
            let asks = sub.topic == at && sub.number.is_none() && sub.ended.is_none();
            asks.then_some(*id)
        };
        let waiting: Vec<u64> = self.subs.iter().filter_map(of).collect();
        for sub in waiting {
            self.subscribe(sub);
        }
        true
    }

    pub(crate) fn acked(&mut self, request: u64, first: u64) -> bool {
        let Some(Ask::Publish { tell, permit, records }) = self.asks.remove(&request) else {
            return false;
        };
        self.stats.acked += records;
        self.window.give_back(permit);
        let _ = tell.send(Ok(first));
        self.pump();
        true
    }

    pub(crate) fn refused(&mut self, request: u64, why: Refusal) -> bool {
        match self.asks.remove(&request) {
            None => return false,
            // The server stops, which it may say here first: the next one is asked again.
            Some(Ask::Bind { .. } | Ask::Subscribe { .. }) if why.is_shutdown() => {}
            Some(Ask::Bind { topic, right }) => self.refuse_topic(topic, right, why),
            Some(Ask::Publish { tell, permit, records }) => {
                let retry = if why.is_shutdown() { NEXT_SERVER } else { why.retry };
                let why = Refusal { retry, ..why };
                self.stats.refused += records;
                self.window.give_back(permit);
                let _ = tell.send(Err(PublishError::Refused(why)));
                self.pump();
            }
            Some(Ask::Subscribe { sub }) => {
                if let Some(sub) = self.subs.get_mut(&sub) {
                    sub.end(TopicError::Refused(why));
                }
            }
        }
        true
    }

    fn refuse_topic(&mut self, at: usize, right: Right, why: Refusal) {
        self.topics[at].refuse(right, why);
        if right == Right::Publish {
            return;
        }
        for sub in self.subs.values_mut().filter(|sub| sub.topic == at) {
            sub.end(TopicError::Refused(why));
        }
    }

    /// A subscription of a topic that was wanted.
    pub(crate) fn add_sub(
        &mut self,
        limits: &Limits,
        topic: usize,
        options: SubscribeOptions,
    ) -> (u64, oneshot::Receiver<Result<(), TopicError>>) {
        let (tell, told) = oneshot::channel();
        let id = self.next_sub;
        self.next_sub += 1;
        let sub = Sub {
            topic,
            options,
            inbox: Inbox::new(limits, options.queue),
            waker: None,
            position: None,
            number: None,
            life: 0,
            tell: Some(tell),
            ended: None,
            reader: Arc::new(Notify::new()),
        };
        self.subs.insert(id, sub);
        if self.topics[topic].subscribes().is_some() {
            self.subscribe(id);
        }
        (id, told)
    }

    fn subscribe(&mut self, id: u64) {
        if !self.asks_more() {
            return;
        }
        let pending = |ask: &Ask| matches!(ask, Ask::Subscribe { sub } if *sub == id);
        if self.asks.values().any(pending) {
            return;
        }
        let Sub { topic, options, position, .. } = &self.subs[&id];
        let Some(topic) = self.topics[*topic].subscribes() else { return };
        let SubscribeOptions { start, policy, batches, bytes, .. } = *options;
        let start = position.map_or(start, |(epoch, sequence)| Start::At { epoch, sequence });
        let request = self.request(Ask::Subscribe { sub: id });
        let frame = Frame::Subscribe { request, topic, policy, batches, bytes, start };
        self.outbox.push_back(frame.bytes());
    }

    /// The broker has opened a stream for this request. Answers whose it is, and its life; none
    /// when nobody wants it any more.
    pub(crate) fn subscribed(&mut self, request: u64, number: u32) -> Option<(u64, u64)> {
        let Some(Ask::Subscribe { sub: id }) = self.asks.remove(&request) else { return None };
        let Some(sub) = self.subs.get_mut(&id) else {
            self.replies.push_back(Frame::Unsubscribe { subscription: number }.bytes());
            return None;
        };
        sub.number = Some(number);
        sub.life += 1;
        let life = sub.life;
        if let Some(tell) = sub.tell.take() {
            let _ = tell.send(Ok(()));
        }
        Some((id, life))
    }

    /// The subscription that has this life; none when it is over, or its connection is.
    pub(crate) fn living(&mut self, (id, life): (u64, u64)) -> Option<&mut Sub> {
        let sub = self.subs.get_mut(&id)?;
        (sub.life == life && sub.number.is_some() && sub.ended.is_none()).then_some(sub)
    }

    pub(crate) fn end_sub(&mut self, life: (u64, u64), why: TopicError) {
        if let Some(sub) = self.living(life) {
            sub.end(why);
        }
    }

    /// A subscription's stream is over, and the next connection goes on with it.
    pub(crate) fn part_sub(&mut self, life: (u64, u64)) {
        if let Some(sub) = self.living(life) {
            sub.number = None;
        }
    }

    /// The application has enough of a subscription.
    pub(crate) fn drop_sub(&mut self, id: u64) {
        let Some(sub) = self.subs.remove(&id) else { return };
        sub.reader.notify_waiters();
        if let (Some(subscription), None) = (sub.number, sub.ended) {
            self.replies.push_back(Frame::Unsubscribe { subscription }.bytes());
        }
    }

    pub(crate) fn take_asked(&mut self) -> Option<Vec<u8>> {
        self.replies.pop_front().or_else(|| self.outbox.pop_front())
    }

    /// Answers a ping.
    pub(crate) fn pong(&mut self, token: u64) {
        // A peer that asks again before it was answered gets one answer.
        if self.replies.len() < 2 * MAX_TOPICS {
            self.replies.push_back(Frame::Pong { token }.bytes());
        }
    }

    /// An acked batch goes out now.
    pub(crate) fn publish_asked(&mut self, reply: Reply, permit: Permit, records: u64) -> Mode {
        let Reply { waits, tell } = reply;
        let request = self.request(Ask::Publish { tell, permit, records });
        if waits { Mode::Waiting { request } } else { Mode::Acked { request } }
    }

    /// What a publish gets after the end.
    pub(crate) fn publish_end(&self) -> PublishError {
        self.given_up.map_or(PublishError::Closed, PublishError::Disconnected)
    }

    /// What a topic or a subscription gets after the end.
    pub(crate) fn topic_end(&self) -> TopicError {
        self.given_up.map_or(TopicError::Closed, TopicError::Disconnected)
    }

    /// Nothing more is published: who waits in the window or before the queue is refused.
    pub(crate) fn close(&mut self) {
        self.is_closing = true;
        self.window.close();
        self.pump();
        self.close_lanes(self.publish_end());
    }

    /// There is no connection any more, and there will be none.
    pub(crate) fn end(&mut self) {
        self.close();
        self.is_closed = true;
        self.empty_lanes(self.publish_end());
        self.topics.iter_mut().for_each(Topic::end);
        let why = self.topic_end();
        for sub in self.subs.values_mut() {
            sub.end(why);
            sub.reader.notify_waiters();
        }
    }

    /// Whether a publish waits for its answer.
    pub(crate) fn has_unanswered(&self) -> bool {
        self.asks.values().any(|ask| matches!(ask, Ask::Publish { .. }))
    }

    pub(crate) const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// A batch that is not sent.
    pub(crate) fn give_up(&mut self, item: Item, why: PublishError) {
        let records = item.records.len() as u64;
        self.window.give_back(item.permit);
        match item.reply {
            Some(reply) => {
                let _ = reply.tell.send(Err(why));
            }
            None => self.stats.refused += records,
        }
        self.pump();
    }
}
