//! Subscriptions: checkpoint 7, and the reader that fills it.

use crate::client::Handle;
use crate::error::{Refusal, TopicError};
use crate::state::{Shared, Sub};
use bytes::Bytes;
use futures_core::Stream;
use quinn::{Connection, ReadError, RecvStream, VarInt};
use sluicegate_core::client::inbox::{Answer, Beginning, Event as Kept, Next};
use sluicegate_core::{Gap, Place, Reason};
use sluicegate_wire::quic::{self, Assembler, Code, Frame, Retry, varint};
use std::future::poll_fn;
use std::mem::take;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::Notify;

/// Bytes that one read takes from a stream.
const READ: usize = 64 << 10;

/// What happens on a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Records were lost, at the broker or in this process.
    Gap(Gap),
    /// A record.
    Record {
        /// Its number in the topic.
        sequence: u64,
        /// What was published.
        payload: Bytes,
    },
    /// The topic's life began anew while there was no connection: numbers begin anew too. It comes
    /// between the records of both lives, whatever the policy drops of them; a life of which no
    /// record is left is not told when a later one has begun.
    Restarted {
        /// The topic's epoch.
        epoch: u64,
        /// The number of the first record that can come.
        start: u64,
    },
}

/// A subscription, and which of its streams.
type Life = (u64, u64);

/// Its stream broke the protocol, or stopped without a last word.
const BROKEN: TopicError = TopicError::Ended(Refusal {
    place: Some(Place::Table),
    reason: Some(Reason::Gone),
    retry: Retry::Never,
});

/// What is left of the batch that was taken last.
#[derive(Debug)]
struct Batch {
    /// The number of the next record, and how many there are.
    next: u64,
    left: u32,
    block: Bytes,
    /// Where the next record is in the block.
    at: usize,
}

/// Records of one topic, in order, from one connection after the other. Dropped, it ends.
#[derive(Debug)]
pub struct Subscription {
    handle: Arc<Handle>,
    id: u64,
    batch: Batch,
    is_over: bool,
}

impl Subscription {
    pub(crate) const fn new(handle: Arc<Handle>, id: u64) -> Self {
        let batch = Batch { next: 0, left: 0, block: Bytes::new(), at: 0 };
        Self { handle, id, batch, is_over: false }
    }

    /// The next event; none after the end. Dropping the future loses nothing.
    ///
    /// # Errors
    /// Once, when the broker has ended it, or the client is closed.
    pub async fn next(&mut self) -> Option<Result<Event, TopicError>> {
        poll_fn(|context| self.poll(context)).await
    }

    /// What arrived in this process and what became of it, in records and bytes.
    pub fn books(&self) -> sluicegate_core::SubBooks {
        let state = self.handle.shared().lock();
        state.subs.get(&self.id).map(|sub| sub.inbox.books()).unwrap_or_default()
    }

    fn record(&mut self) -> Option<Event> {
        let Batch { next, left, block, at } = &mut self.batch;
        *left = left.checked_sub(1)?;
        let mut rest = &block[*at..];
        let len = varint::take(&mut rest).and_then(|len| usize::try_from(len).ok());
        let len = len.expect("the block was checked when it came");
        let from = block.len() - rest.len();
        *at = from + len;
        // The last one takes the handle of the block with it.
        let payload = if *left > 0 { block.slice(from..*at) } else { take(block).slice(from..*at) };
        let sequence = *next;
        *next += 1;
        Some(Event::Record { sequence, payload })
    }

    fn poll(&mut self, context: &Context<'_>) -> Poll<Option<Result<Event, TopicError>>> {
        loop {
            if let Some(event) = self.record() {
                return Poll::Ready(Some(Ok(event)));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            let mut state = self.handle.shared().lock();
            let Some(sub) = state.subs.get_mut(&self.id) else { return Poll::Ready(None) };
            let Some(taken) = sub.inbox.take() else {
                if let Some(why) = sub.ended {
                    self.is_over = true;
                    return Poll::Ready(Some(Err(why)));
                }
                sub.waker = Some(context.waker().clone());
                return Poll::Pending;
            };
            if taken.resume {
                sub.reader.notify_waiters();
            }
            match taken.next {
                Next::Gap(gap) => return Poll::Ready(Some(Ok(Event::Gap(gap)))),
                Next::Beginning(Beginning { epoch, start }) => {
                    return Poll::Ready(Some(Ok(Event::Restarted { epoch, start })));
                }
                Next::Event(Kept { first, records, value: block, .. }) => {
                    let mut rest = &block[..];
                    varint::take(&mut rest).expect("the block was checked when it came");
                    let at = block.len() - rest.len();
                    drop(state);
                    self.batch = Batch { next: first, left: records, block, at };
                }
            }
        }
    }
}

impl Stream for Subscription {
    type Item = Result<Event, TopicError>;

    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Event, TopicError>>> {
        self.get_mut().poll(context)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let shared = self.handle.shared();
        shared.lock().drop_sub(self.id);
        shared.parted.notify_waiters();
        shared.asked.notify_one();
    }
}

/// Reads one subscription's stream until it ends.
pub(crate) async fn read(shared: Arc<Shared>, connection: Connection, stream: RecvStream) {
    let mut reader = Reader {
        assembler: Assembler::new(shared.limits.max_frame_bytes + quic::EVENTS_HEAD as u64),
        stream,
        rest: Bytes::new(),
    };
    let frame = match reader.next().await {
        Ok(frame) => frame,
        Err(Stop::Lost) => return,
        // Nobody knows whose it was: all are asked for again, on a new connection.
        Err(Stop::Ended(_)) => return fault(&connection),
    };
    let Ok(Some(Frame::Subscribed { request, subscription, epoch, start })) = quic::decode(&frame)
    else {
        return fault(&connection);
    };
    let (life, wake) = {
        let mut state = shared.lock();
        let Some(life) = state.subscribed(request, subscription) else {
            drop(state);
            shared.asked.notify_one();
            return reader.stop();
        };
        let Some(sub) = state.living(life) else { return reader.stop() };
        begin(sub, epoch, start);
        (life, Arc::clone(&sub.reader))
    };
    loop {
        let mut gone = std::pin::pin!(wake.notified());
        gone.as_mut().enable();
        // After enabling: what is told in between is not missed.
        if shared.lock().living(life).is_none() {
            return reader.stop();
        }
        let frame = tokio::select! {
            biased;
            frame = reader.next() => frame,
            () = gone => continue,
        };
        let frame = match frame {
            Ok(frame) => Bytes::from(frame),
            Err(stop) => {
                over(&shared, life, stop);
                return reader.stop();
            }
        };
        if !arrive(&shared, (life, &wake), &frame).await {
            return reader.stop();
        }
    }
}

/// A subscription's stream is over. A server that stops ends the stream and not the subscription:
/// the next one goes on.
fn over(shared: &Shared, life: Life, stop: Stop) {
    match stop {
        Stop::Ended(TopicError::Ended(why)) if why.is_shutdown() => shared.lock().part_sub(life),
        Stop::Ended(why) => shared.lock().end_sub(life, why),
        Stop::Lost => shared.lock().part_sub(life),
    }
    shared.parted.notify_waiters();
}

/// The server does not keep to the protocol.
fn fault(connection: &Connection) {
    let code = u32::from(Code::Unexpected.number());
    connection.close(code.into(), b"a stream that does not begin with Subscribed");
}

/// The subscription is in force on this connection.
fn begin(sub: &mut Sub, epoch: u64, start: u64) {
    let is_new = sub.position.is_some_and(|(before, _)| before != epoch);
    sub.position = Some((epoch, start));
    if is_new {
        sub.inbox.begin(Beginning { epoch, start });
        sub.wake();
    }
}

/// Takes one frame of a subscription. False when nothing more is to be read.
async fn arrive(shared: &Shared, (life, wake): (Life, &Notify), frame: &Bytes) -> bool {
    match quic::decode(frame) {
        Ok(Some(Frame::Events { first, records })) => {
            let value = frame.slice_ref(records.block());
            let bytes = u32::try_from(records.block().len()).unwrap_or(u32::MAX);
            let event = Kept { first, records: records.count(), bytes, value };
            push(shared, (life, wake), event).await
        }
        Ok(Some(Frame::Gap { first, last, records, why })) => {
            let mut state = shared.lock();
            let Some(sub) = state.living(life) else { return false };
            let place = Place::from_code(why.place).unwrap_or(Place::Backlog);
            let reason = Reason::from_code(why.reason).unwrap_or(Reason::Gone);
            sub.inbox.lost(Gap { first, last, records, place, reason });
            if let Some((_, next)) = &mut sub.position {
                *next = (*next).max(last.saturating_add(1));
            }
            sub.wake();
            true
        }
        Ok(Some(Frame::Ended { why })) => {
            over(shared, life, Stop::Ended(TopicError::Ended(why.into())));
            false
        }
        Ok(None) => true,
        Ok(Some(_)) | Err(_) => {
            over(shared, life, Stop::Ended(BROKEN));
            false
        }
    }
}

/// Puts an event into the inbox; where that blocks, waits until there is room.
async fn push(shared: &Shared, (life, wake): (Life, &Notify), event: Kept<Bytes>) -> bool {
    let next = event.first.saturating_add(event.records.into());
    let mut event = event;
    loop {
        let mut resumed = std::pin::pin!(wake.notified());
        resumed.as_mut().enable();
        {
            let mut state = shared.lock();
            // If its connection is gone, the next one brings it again.
            let Some(sub) = state.living(life) else { return false };
            match sub.inbox.push(event) {
                Answer::Queued | Answer::Dropped(_) => {
                    if let Some((_, position)) = &mut sub.position {
                        *position = next;
                    }
                    sub.wake();
                    return true;
                }
                Answer::Full(back) => event = back,
            }
        }
        resumed.await;
    }
}

/// Why there is no next frame.
enum Stop {
    /// The stream is over: by a reset, or without a last word, or because it broke the protocol.
    Ended(TopicError),
    /// The connection is gone: the next one goes on.
    Lost,
}

struct Reader {
    stream: RecvStream,
    assembler: Assembler,
    /// Read and not used.
    rest: Bytes,
}

impl Reader {
    /// The next frame.
    async fn next(&mut self) -> Result<Vec<u8>, Stop> {
        loop {
            let mut bytes = &self.rest[..];
            let frame = self.assembler.take(&mut bytes).map_err(|_| Stop::Ended(BROKEN))?;
            let used = self.rest.len() - bytes.len();
            let _ = self.rest.split_to(used);
            if let Some(frame) = frame {
                return Ok(frame);
            }
            match self.stream.read_chunk(READ, true).await {
                Ok(Some(chunk)) => self.rest = chunk.bytes,
                Ok(None) => return Err(Stop::Ended(BROKEN)),
                Err(ReadError::Reset(code)) => return Err(Stop::Ended(reset(code))),
                Err(_) => return Err(Stop::Lost),
            }
        }
    }

    fn stop(mut self) {
        // An error means that it has ended by itself.
        let _ = self.stream.stop(VarInt::from_u32(0));
    }
}

/// What the broker says to a client that does not read.
fn reset(code: VarInt) -> TopicError {
    let (place, reason) = quic::reset_reason(code.into_inner())
        .map_or((None, None), |(p, r)| (Place::from_code(p), Reason::from_code(r)));
    TopicError::Ended(Refusal { place, reason, retry: Retry::Never })
}
