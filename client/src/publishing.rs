//! Publishing: checkpoints 1 and 2, and the worker that empties the queue.

use crate::client::Handle;
use crate::error::{PublishError, Refusal};
use crate::lane::Lane;
use crate::link;
use crate::state::{Item, Reply, Shared, State};
use bytes::Bytes;
use quinn::Connection;
use sluicegate_core::Ticket;
use sluicegate_core::client::queue::Answer as Place;
use sluicegate_core::client::window::{Answer, Permit};
use sluicegate_wire::quic::{MAX_RECORDS, Mode, PUBLISH_HEAD, Retry, put_publish, records_len};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::oneshot;

/// What single publishes are gathered into while they wait.
const GATHERED_RECORDS: usize = 64;
const GATHERED_BYTES: usize = 64 << 10;

/// The largest chunk that the transport is handed. Its window is charged with a chunk until all of
/// it is acknowledged; the memory of a frame is free when its last chunk is.
const CHUNK: usize = 64 << 10;

/// The broker of this connection would take a frame of this length for a fault.
const TOO_LONG: Refusal = Refusal {
    place: Some(sluicegate_core::Place::Window),
    reason: Some(sluicegate_core::Reason::Oversize),
    retry: Retry::Never,
};

/// Publishes to one topic. Clones publish to the same.
///
/// Records of one publisher are sequenced in the order in which its calls got their place in the
/// queue.
#[derive(Clone, Debug)]
pub struct Publisher {
    handle: Arc<Handle>,
    topic: usize,
}

impl Publisher {
    pub(crate) const fn new(handle: Arc<Handle>, topic: usize) -> Self {
        Self { handle, topic }
    }

    /// Publishes a record and waits only for room in the window and the queue (checkpoints 1 and
    /// 2). What becomes of it is not told one by one: see
    /// [`Client::stats`](crate::Client::stats).
    ///
    /// Dropping the future gives up what it holds; a record that has its place in the queue is
    /// published all the same.
    ///
    /// # Errors
    /// When the client is closed, or too many wait already.
    pub async fn publish(&self, record: impl Into<Bytes>) -> Result<(), PublishError> {
        self.publish_batch(vec![record.into()]).await
    }

    /// The same for a batch, which is queued, kept or dropped whole: 1 to 4,096 records.
    ///
    /// # Errors
    /// As [`publish`](Self::publish), and for a batch of another size.
    pub async fn publish_batch(&self, records: Vec<Bytes>) -> Result<(), PublishError> {
        self.enqueue(records, None).await
    }

    /// Publishes a record and waits until it is sequenced: answers its number. The broker answers
    /// at once whether it has room.
    ///
    /// # Errors
    /// [`PublishError::Refused`] says where, why, and when to try again;
    /// [`PublishError::Unknown`] that the connection ended before the answer.
    pub async fn publish_acked(&self, record: impl Into<Bytes>) -> Result<u64, PublishError> {
        self.publish_batch_acked(vec![record.into()], false).await
    }

    /// The same for a batch; with `waits` the broker waits for room as long as its own deadline
    /// says (`publish_queue_wait_ms`).
    ///
    /// # Errors
    /// As [`publish_acked`](Self::publish_acked), and for a batch of another size.
    pub async fn publish_batch_acked(
        &self,
        records: Vec<Bytes>,
        waits: bool,
    ) -> Result<u64, PublishError> {
        let (tell, told) = oneshot::channel();
        self.enqueue(records, Some(Reply { waits, tell })).await?;
        told.await.unwrap_or_else(|_| Err(self.handle.shared().lock().publish_end()))
    }

    /// Publishes a record if there is room at this moment.
    ///
    /// # Errors
    /// [`PublishError::Full`] when there is none.
    pub fn try_publish(&self, record: impl Into<Bytes>) -> Result<(), PublishError> {
        let records = vec![record.into()];
        let cost = cost(&records)?;
        let shared = self.handle.shared();
        let mut state = shared.lock();
        if state.is_closing {
            return Err(state.publish_end());
        }
        let permit = match state.window.ask(cost) {
            Answer::Granted(permit) => permit,
            Answer::Refused(why) => return Err(PublishError::Refused(why.into())),
            Answer::Waits(ticket) => {
                state.window.cancel(ticket);
                return Err(PublishError::Full);
            }
        };
        let item = Item { topic: self.topic, records, permit, reply: None };
        let queue = &mut state.lane_of(self.topic).queue;
        let refused = match queue.push(item) {
            Place::Queued => None,
            Place::Refused(item, _) => Some(item),
            Place::Waits(ticket) => queue.cancel(ticket),
        };
        if let Some(item) = refused {
            state.window.give_back(item.permit);
            state.pump();
            return Err(PublishError::Full);
        }
        drop(state);
        shared.queued.notify_waiters();
        Ok(())
    }

    async fn enqueue(&self, records: Vec<Bytes>, reply: Option<Reply>) -> Result<(), PublishError> {
        let cost = cost(&records)?;
        let shared = self.handle.shared();
        let permit = permit(shared, cost).await?;
        let item = Item { topic: self.topic, records, permit, reply };
        let place = place(shared, item)?;
        shared.queued.notify_waiters();
        if let Some(mut waiting) = place {
            let told = (&mut waiting.told).await;
            waiting.is_over = true;
            told.map_err(|_| shared.lock().publish_end())?;
            shared.queued.notify_waiters();
        }
        Ok(())
    }
}

/// What a batch costs the window: payload, 256, and 16 for each record.
fn cost(records: &[Bytes]) -> Result<u64, PublishError> {
    let count = records.len() as u64;
    if count == 0 || count > MAX_RECORDS {
        return Err(PublishError::Size);
    }
    let payload: u64 = records.iter().map(|record| record.len() as u64).sum();
    Ok(payload + 256 + 16 * count)
}

/// Waits for bytes of the window.
async fn permit(shared: &Arc<Shared>, cost: u64) -> Result<Permit, PublishError> {
    let (ticket, told) = {
        let mut state = shared.lock();
        match state.window.ask(cost) {
            Answer::Granted(permit) => return Ok(permit),
            Answer::Refused(_) if state.is_closing => return Err(state.publish_end()),
            Answer::Refused(why) => return Err(PublishError::Refused(why.into())),
            Answer::Waits(ticket) => {
                let (tell, told) = oneshot::channel();
                state.window_waits.insert(ticket, tell);
                (ticket, told)
            }
        }
    };
    let mut waiting = InWindow { shared, ticket, told };
    match (&mut waiting.told).await {
        Ok(Ok(permit)) => Ok(permit),
        Ok(Err(_)) | Err(_) => Err(shared.lock().publish_end()),
    }
}

/// Somebody waits in the window's line; dropped, nobody does.
struct InWindow<'a> {
    shared: &'a Shared,
    ticket: Ticket,
    told: oneshot::Receiver<Result<Permit, Refusal>>,
}

impl Drop for InWindow<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.window_waits.remove(&self.ticket);
        if !state.window.cancel(self.ticket)
            && let Ok(Ok(permit)) = self.told.try_recv()
        {
            state.window.give_back(permit);
        }
        state.pump();
    }
}

/// Asks for a place in the queue. Answers who waits for one, or none when there was one.
fn place(shared: &Shared, item: Item) -> Result<Option<InQueue<'_>>, PublishError> {
    let mut state = shared.lock();
    let topic = item.topic;
    match state.lane_of(topic).queue.push(item) {
        Place::Queued => Ok(None),
        Place::Refused(item, why) => {
            let closing = state.is_closing;
            state.window.give_back(item.permit);
            state.pump();
            Err(if closing { state.publish_end() } else { PublishError::Refused(why.into()) })
        }
        Place::Waits(ticket) => {
            let (tell, told) = oneshot::channel();
            state.lane_of(topic).waits.insert(ticket, tell);
            Ok(Some(InQueue { shared, topic, ticket, told, is_over: false }))
        }
    }
}

/// Somebody waits for a place in the queue; dropped, nobody does.
struct InQueue<'a> {
    shared: &'a Shared,
    topic: usize,
    ticket: Ticket,
    told: oneshot::Receiver<()>,
    is_over: bool,
}

impl Drop for InQueue<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = self.shared.lock();
        let lane = state.lane_of(self.topic);
        lane.waits.remove(&self.ticket);
        if let Some(item) = lane.queue.cancel(self.ticket) {
            state.window.give_back(item.permit);
            state.pump();
        }
    }
}

/// A frame that is being written; dropped, its records may have been published or not.
struct Writing<'a> {
    shared: &'a Shared,
    lane: usize,
    frame: Bytes,
    permits: Vec<Permit>,
    records: u64,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        for permit in self.permits.drain(..) {
            state.window.give_back(permit);
        }
        state.stats.sent += self.records;
        state.lanes[self.lane].sent(self.frame.len() as u64, self.records);
        state.pump();
    }
}

/// Publishes on so many streams until the connection is over; when the client is being closed,
/// until nothing is left and all of it has arrived; or, when the server goes away, until what was
/// sent is answered and the subscriptions have all that was theirs.
pub(crate) async fn work(shared: &Arc<Shared>, connection: &Connection, streams: u32) {
    let streams = streams as usize;
    let worker = |at| Box::pin(Worker { shared, at, streams, turn: 0 }.run(connection));
    let mut workers: Vec<_> = (0..streams).map(worker).collect();
    // In this task, so that all end when it is dropped.
    let over = poll_fn(|context| {
        let mut is_lost = false;
        workers.retain_mut(|worker| match worker.as_mut().poll(context) {
            Poll::Ready(is_done) => {
                is_lost |= !is_done;
                false
            }
            Poll::Pending => true,
        });
        if is_lost || workers.is_empty() { Poll::Ready(!is_lost) } else { Poll::Pending }
    });
    if !over.await {
        return;
    }
    answered(shared).await;
    if shared.lock().leaves_at().is_some() {
        link::heard_out(shared).await;
    }
}

/// One stream, and the lanes that go out on it.
struct Worker<'a> {
    shared: &'a Shared,
    /// The first of its lanes; the others are `streams` apart.
    at: usize,
    streams: usize,
    /// With which of its lanes it begins.
    turn: usize,
}

impl Worker<'_> {
    /// Sends what is queued, in order of each lane, until nothing more is to be sent here and all
    /// of it has arrived. False when the stream, or its connection, is lost.
    async fn run(mut self, connection: &Connection) -> bool {
        let Ok(mut stream) = connection.open_uni().await else { return false };
        loop {
            let mut queued = std::pin::pin!(self.shared.queued.notified());
            queued.as_mut().enable();
            let (next, is_over) = {
                let mut state = self.shared.lock();
                let leaving = state.leaves_at().is_some();
                // What waits is for the next server.
                let next = if leaving { None } else { self.next(&mut state) };
                (next, leaving || state.is_closing)
            };
            match next {
                Some(writing) => {
                    for chunk in chunks(writing.frame.clone()) {
                        if stream.write_chunk(chunk).await.is_err() {
                            return false;
                        }
                    }
                }
                None if is_over => break,
                None => queued.await,
            }
        }
        if stream.finish().is_ok() && matches!(stream.stopped().await, Ok(None)) {
            let mut state = self.shared.lock();
            let mine = state.lanes.iter_mut().skip(self.at).step_by(self.streams);
            mine.for_each(|lane| {
                // They have arrived.
                let _ = lane.settle();
            });
        }
        true
    }

    /// The next frame of its lanes, each in its turn.
    fn next<'a>(&mut self, state: &mut State) -> Option<Writing<'a>>
    where
        Self: 'a,
    {
        let mine = (state.lanes.len() - self.at).div_ceil(self.streams);
        for _ in 0..mine {
            let lane = self.at + self.streams * (self.turn % mine);
            self.turn = (self.turn + 1) % mine;
            let writing = next(state, self.shared, lane);
            if writing.is_some() {
                return writing;
            }
        }
        None
    }
}

/// A frame in chunks, which share its memory; most frames are one.
fn chunks(mut frame: Bytes) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || {
        let chunk = frame.split_to(frame.len().min(CHUNK));
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// Waits until every answer is there.
async fn answered(shared: &Shared) {
    while shared.lock().has_unanswered() {
        let mut queued = std::pin::pin!(shared.queued.notified());
        queued.as_mut().enable();
        if shared.lock().has_unanswered() {
            queued.await;
        }
    }
}

/// The next frame of a lane, of one batch, or of many single records of a topic.
fn next<'a>(state: &mut State, shared: &'a Shared, lane: usize) -> Option<Writing<'a>> {
    loop {
        let item = state.lanes[lane].pop()?;
        let number = match state.topics[item.topic].publishes() {
            Ok(Some(number)) => number,
            Ok(None) => {
                state.lanes[lane].carried = Some(item);
                return None;
            }
            Err(why) => {
                state.give_up(item, PublishError::Refused(why));
                continue;
            }
        };
        if (PUBLISH_HEAD + records_len(&item.records)) as u64 > state.max_frame {
            state.give_up(item, PublishError::Refused(TOO_LONG));
            continue;
        }
        let Item { topic, mut records, permit, reply } = item;
        let mut permits = Vec::new();
        let mode = match reply {
            Some(reply) => state.publish_asked(reply, permit, records.len() as u64),
            None => {
                permits.push(permit);
                let most = usize::try_from(state.max_frame).unwrap_or(usize::MAX);
                let batch = (&mut records, &mut permits);
                gather(&mut state.lanes[lane], most, topic, batch);
                Mode::Unacked
            }
        };
        let mut frame = Vec::new();
        put_publish(&mut frame, number, mode, &records);
        let unacked = if mode == Mode::Unacked { records.len() as u64 } else { 0 };
        return Some(Writing { shared, lane, frame: frame.into(), permits, records: unacked });
    }
}

/// Adds what waits behind and may travel in the same batch.
fn gather(lane: &mut Lane, most: usize, topic: usize, batch: (&mut Vec<Bytes>, &mut Vec<Permit>)) {
    let (records, permits) = batch;
    let most = most.saturating_sub(PUBLISH_HEAD).min(GATHERED_BYTES);
    let mut bytes = records_len(records);
    while let Some(item) = lane.pop() {
        // Two counts that become one: more than it takes, never less.
        let len = records_len(&item.records);
        let fits = records.len() + item.records.len() <= GATHERED_RECORDS && bytes + len <= most;
        if item.topic != topic || item.reply.is_some() || !fits {
            lane.carried = Some(item);
            return;
        }
        bytes += len;
        records.extend(item.records);
        permits.push(item.permit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_frame_is_cut_where_it_lies() {
        for (len, due) in [(0, 0), (1, 1), (CHUNK, 1), (CHUNK + 1, 2), (16 << 20, 256)] {
            let frame = Bytes::from(vec![7; len]);
            let all: Vec<Bytes> = chunks(frame.clone()).collect();
            assert_eq!(all.len(), due, "{len} bytes");
            let mut at = 0;
            for chunk in all {
                assert!(chunk.len() == CHUNK || at + chunk.len() == len, "only the last is short");
                assert_eq!(chunk.as_ptr(), frame[at..].as_ptr(), "it was copied");
                at += chunk.len();
            }
            assert_eq!(at, len);
        }
    }
}
