//! Publishing: checkpoints 1 and 2, and the worker that empties the queue.

use crate::client::Handle;
use crate::error::{PublishError, Refusal};
use crate::link;
use crate::state::{Item, Reply, Shared, State};
use bytes::Bytes;
use quinn::{Connection, SendStream};
use sluicegate_core::Ticket;
use sluicegate_core::client::queue::{Answer as Place, Popped};
use sluicegate_core::client::window::{Answer, Permit};
use sluicegate_wire::quic::{MAX_RECORDS, Mode, PUBLISH_HEAD, Retry, put_publish, records_len};
use std::sync::Arc;
use tokio::sync::oneshot;

/// What single publishes are gathered into while they wait.
const GATHERED_RECORDS: usize = 64;
const GATHERED_BYTES: usize = 64 << 10;

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
        let refused = match state.queue.push(item) {
            Place::Queued => None,
            Place::Refused(item, _) => Some(item),
            Place::Waits(ticket) => state.queue.cancel(ticket),
        };
        if let Some(item) = refused {
            state.window.give_back(item.permit);
            state.pump();
            return Err(PublishError::Full);
        }
        drop(state);
        shared.queued.notify_one();
        Ok(())
    }

    async fn enqueue(&self, records: Vec<Bytes>, reply: Option<Reply>) -> Result<(), PublishError> {
        let cost = cost(&records)?;
        let shared = self.handle.shared();
        let permit = permit(shared, cost).await?;
        let item = Item { topic: self.topic, records, permit, reply };
        let place = place(shared, item)?;
        shared.queued.notify_one();
        if let Some(mut waiting) = place {
            let told = (&mut waiting.told).await;
            waiting.is_over = true;
            told.map_err(|_| shared.lock().publish_end())?;
            shared.queued.notify_one();
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
    match state.queue.push(item) {
        Place::Queued => Ok(None),
        Place::Refused(item, why) => {
            let closing = state.is_closing;
            state.window.give_back(item.permit);
            state.pump();
            Err(if closing { state.publish_end() } else { PublishError::Refused(why.into()) })
        }
        Place::Waits(ticket) => {
            let (tell, told) = oneshot::channel();
            state.queue_waits.insert(ticket, tell);
            Ok(Some(InQueue { shared, ticket, told, is_over: false }))
        }
    }
}

/// Somebody waits for a place in the queue; dropped, nobody does.
struct InQueue<'a> {
    shared: &'a Shared,
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
        state.queue_waits.remove(&self.ticket);
        if let Some(item) = state.queue.cancel(self.ticket) {
            state.window.give_back(item.permit);
            state.pump();
        }
    }
}

/// A frame that is being written; dropped, its records may have been published or not.
struct Writing<'a> {
    shared: &'a Shared,
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
        state.sent(self.frame.len() as u64, self.records);
        state.pump();
    }
}

/// Sends what is queued, in order, until the connection is over; when the client is being closed,
/// until nothing is left and all of it has arrived; or, when the server goes away, until what was
/// sent is answered and the subscriptions have all that was theirs.
pub(crate) async fn work(shared: &Arc<Shared>, connection: &Connection) {
    let Ok(mut stream) = connection.open_uni().await else { return };
    loop {
        let mut queued = std::pin::pin!(shared.queued.notified());
        queued.as_mut().enable();
        let (next, closing, leaving) = {
            let mut state = shared.lock();
            let leaving = state.leaves_at().is_some();
            // What waits is for the next server.
            let next = if leaving { None } else { next(&mut state, shared) };
            (next, state.is_closing, leaving)
        };
        match next {
            Some(writing) => {
                if stream.write_chunk(writing.frame.clone()).await.is_err() {
                    return;
                }
            }
            None if closing => return finish(shared, stream).await,
            None if leaving => {
                finish(shared, stream).await;
                return link::heard_out(shared).await;
            }
            None => queued.await,
        }
    }
}

/// Waits until everything was acknowledged by the peer's transport, and every answer is there.
async fn finish(shared: &Shared, mut stream: SendStream) {
    if stream.finish().is_ok() && matches!(stream.stopped().await, Ok(None)) {
        shared.lock().arrived();
    }
    while shared.lock().has_unanswered() {
        let mut queued = std::pin::pin!(shared.queued.notified());
        queued.as_mut().enable();
        if shared.lock().has_unanswered() {
            queued.await;
        }
    }
}

fn pop(state: &mut State) -> Option<Item> {
    if let Some(item) = state.carried.take() {
        return Some(item);
    }
    let Popped { item, admitted } = state.queue.pop()?;
    if let Some(tell) = admitted.and_then(|ticket| state.queue_waits.remove(&ticket)) {
        // Who waited may have given up: the place is taken all the same.
        let _ = tell.send(());
    }
    Some(item)
}

/// The next frame, of one batch, or of many single records of a topic.
fn next<'a>(state: &mut State, shared: &'a Shared) -> Option<Writing<'a>> {
    loop {
        let item = pop(state)?;
        let number = match state.topics[item.topic].publishes() {
            Ok(Some(number)) => number,
            Ok(None) => {
                state.carried = Some(item);
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
                gather(state, topic, (&mut records, &mut permits));
                Mode::Unacked
            }
        };
        let mut frame = Vec::new();
        put_publish(&mut frame, number, mode, &records);
        let unacked = if mode == Mode::Unacked { records.len() as u64 } else { 0 };
        return Some(Writing { shared, frame: frame.into(), permits, records: unacked });
    }
}

/// Adds what waits behind and may travel in the same batch.
fn gather(state: &mut State, topic: usize, batch: (&mut Vec<Bytes>, &mut Vec<Permit>)) {
    let (records, permits) = batch;
    let most = usize::try_from(state.max_frame).unwrap_or(usize::MAX);
    let most = most.saturating_sub(PUBLISH_HEAD).min(GATHERED_BYTES);
    let mut bytes = records_len(records);
    while let Some(item) = pop(state) {
        // Two counts that become one: more than it takes, never less.
        let len = records_len(&item.records);
        let fits = records.len() + item.records.len() <= GATHERED_RECORDS && bytes + len <= most;
        if item.topic != topic || item.reply.is_some() || !fits {
            state.carried = Some(item);
            return;
        }
        bytes += len;
        records.extend(item.records);
        permits.push(item.permit);
    }
}
