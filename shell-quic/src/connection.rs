//! One connection: who it is, what it asks for, what it publishes.

use self::reset::until_reset;
use crate::access;
use crate::clock::unix_millis;
use crate::fault::Wrong;
use crate::settings::Settings;
use crate::shard::{Newcomer, Shard, Taken, Wanted};
use bytes::Bytes;
use quinn::{Connection, ConnectionError, Incoming, RecvStream, SendStream, VarInt};
use sluicegate_core::{ConnId, Place, Reason, Refusal, Retry};
use sluicegate_host::strangers::Unwelcome;
use sluicegate_wire::quic::{self, Assembler, Code, Frame};
use std::fmt;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

/// The longest frame of a connection that has not said who it is.
const STRANGERS_FRAME: u64 = 64 << 10;

/// Bytes that one read takes from a stream.
const READ: usize = 64 << 10;

/// Serves one connection until it is over. `known` is told when the handshake and the hello are
/// done, or have failed.
pub(crate) async fn serve(shard: Arc<Shard>, incoming: Incoming, known: impl FnOnce() + Send) {
    let (began, patience) = (Instant::now(), shard.settings().hello_timeout);
    let address = incoming.remote_address().ip();
    let link = match timeout(patience, async { incoming.await }).await {
        Ok(Ok(link)) => link,
        // There is nobody to tell.
        Ok(Err(error)) => {
            shard.turn_away(address, Unwelcome::Handshake, &error.to_string());
            return known();
        }
        Err(_) => {
            shard.turn_away(address, Unwelcome::TimedOut, "the handshake took too long");
            return known();
        }
    };
    let left = patience.saturating_sub(began.elapsed());
    let met = timeout(left, meet(&shard, &link)).await;
    known();
    match met.unwrap_or(Err(Met::Wrong(Wrong::TimedOut))) {
        Ok((conn, control, lasts)) => {
            let result = tokio::select! {
                biased;
                () = expire(lasts) => Err(Wrong::Expired),
                result = go_on(&shard, &link, conn, control) => result,
            };
            let mut state = shard.lock();
            match link.close_reason() {
                // The peer took its leave: what it did not take is its choice.
                Some(ConnectionError::ApplicationClosed(_)) if result.is_ok() => {
                    state.leave(conn);
                }
                _ => state.die(conn),
            }
            drop(state);
            shard.bell().ring();
            match result {
                // Whoever has ended its control stream may still have the connection.
                Ok(()) => link.close(VarInt::from_u32(0), b""),
                Err(wrong) => close(&link, wrong.code(), &wrong.to_string()),
            }
        }
        Err(met) => {
            let (code, text) = (met.code(), met.to_string());
            let why = if link.close_reason().is_some() { Unwelcome::Left } else { met.unwelcome() };
            shard.turn_away(address, why, &text);
            close(&link, code, &text);
        }
    }
}

/// Why a newcomer is not let in.
enum Met {
    NoRoom(Refusal),
    Wrong(Wrong),
}

impl Met {
    const fn code(&self) -> Code {
        match self {
            Self::NoRoom(_) => Code::Busy,
            Self::Wrong(wrong) => wrong.code(),
        }
    }

    /// As it is counted.
    const fn unwelcome(&self) -> Unwelcome {
        match self {
            Self::NoRoom(_) => Unwelcome::Busy,
            Self::Wrong(Wrong::Malformed(_)) => Unwelcome::Malformed,
            Self::Wrong(Wrong::TimedOut) => Unwelcome::TimedOut,
            Self::Wrong(Wrong::Unauthenticated(_) | Wrong::Expired) => Unwelcome::Unauthenticated,
            Self::Wrong(Wrong::Unexpected(_)) => Unwelcome::Unexpected,
            Self::Wrong(Wrong::Version { .. }) => Unwelcome::Version,
        }
    }
}

impl fmt::Display for Met {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoom(why) => write!(f, "no room: {}, {}", why.place.name(), why.reason.name()),
            Self::Wrong(wrong) => write!(f, "{wrong}"),
        }
    }
}

impl<T: Into<Wrong>> From<T> for Met {
    fn from(wrong: T) -> Self {
        Self::Wrong(wrong.into())
    }
}

fn close(link: &Connection, code: Code, text: &str) {
    let mut end = text.len().min(quic::MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    link.close(VarInt::from_u32(code.number().into()), &text.as_bytes()[..end]);
}

/// A control stream in the making, and later.
struct Control {
    stream: RecvStream,
    assembler: Assembler,
    /// Read and not used.
    rest: Bytes,
}

impl Control {
    /// The next frame, or none when the peer has finished the stream or is gone.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, Wrong> {
        loop {
            let mut bytes = &self.rest[..];
            let frame = self.assembler.take(&mut bytes)?;
            let used = self.rest.len() - bytes.len();
            let _ = self.rest.split_to(used);
            if frame.is_some() {
                return Ok(frame);
            }
            match self.stream.read_chunk(READ, true).await {
                Ok(Some(chunk)) => self.rest = chunk.bytes,
                Ok(None) | Err(_) => return Ok(None),
            }
        }
    }
}

/// Hears the hello and lets the peer in.
async fn meet(
    shard: &Arc<Shard>,
    link: &Connection,
) -> Result<(ConnId, Control, Option<Duration>), Met> {
    let gone = || Wrong::Unexpected("the connection ended before its hello");
    let (send, stream) = link.accept_bi().await.map_err(|_| gone())?;
    let mut control =
        Control { stream, assembler: Assembler::new(STRANGERS_FRAME), rest: Bytes::new() };
    let frame = control.next().await?.ok_or_else(gone)?;
    let hello = quic::decode(&frame).map_err(Wrong::from)?;
    let Some(Frame::Hello { oldest, newest, tenant, token, .. }) = hello else {
        return Err(Wrong::Unexpected("the first frame is not a hello").into());
    };
    if !(oldest..=newest).contains(&quic::VERSION) {
        return Err(Wrong::Version { speaks: (oldest, newest) }.into());
    }
    let Settings { tenants, jwt, .. } = shard.settings();
    let now = Duration::from_millis(unix_millis());
    let access = access::check(tenants, jwt.as_ref(), (tenant, token), now);
    let access = access.map_err(Wrong::Unauthenticated)?;
    let lasts = access.lasts;
    let newcomer = Newcomer { link: link.clone(), control: send, access, version: quic::VERSION };
    let conn = shard.lock().open(newcomer).map_err(Met::NoRoom)?;
    shard.bell().ring();
    Ok((conn, control, lasts))
}

/// Waits until what the peer has shown is worth nothing any more: one timer, and no look at a clock
/// for anything that it sends.
async fn expire(lasts: Option<Duration>) {
    match lasts {
        Some(lasts) => sleep(lasts).await,
        None => pending().await,
    }
}

/// Serves a peer until it is gone, or wrong.
async fn go_on(
    shard: &Arc<Shard>,
    link: &Connection,
    conn: ConnId,
    control: Control,
) -> Result<(), Wrong> {
    let settings = shard.settings();
    let streams = settings.max_publish_streams.try_into().unwrap_or(u32::MAX);
    link.set_max_concurrent_uni_streams(VarInt::from_u32(streams));
    let asked = pin!(hear(shard, link, conn, control));
    let published = pin!(accept(shard, link, conn));
    tokio::select! {
        biased;
        result = asked => result,
        result = published => result,
    }
}

/// Hears what the peer asks for.
async fn hear(
    shard: &Arc<Shard>,
    link: &Connection,
    conn: ConnId,
    mut control: Control,
) -> Result<(), Wrong> {
    let mut spare = None;
    while let Some(frame) = control.next().await? {
        let Some(frame) = quic::decode(&frame)? else { continue };
        match frame {
            Frame::Bind { request, publish, subscribe, topic } => {
                shard.lock().bind(conn, request, (publish, subscribe, topic));
            }
            Frame::Subscribe { request, topic, policy, batches, bytes, start } => {
                let wanted = Wanted { request, topic, policy, batches, bytes, start };
                subscribe((shard, link), conn, wanted, &mut spare).await;
            }
            Frame::Unsubscribe { subscription } => shard.lock().unsubscribe(conn, subscription),
            Frame::Ping { token } => shard.lock().pong(conn, token),
            Frame::Pong { .. } => {}
            _ => return Err(Wrong::Unexpected("a frame that no client sends on this stream")),
        }
        shard.bell().ring();
        // Who asks faster than the answers are taken is not heard until they are.
        wait_while_crowded(shard, conn).await;
    }
    Ok(())
}

async fn wait_while_crowded(shard: &Shard, conn: ConnId) {
    loop {
        let mut turned = pin!(shard.turned().notified());
        turned.as_mut().enable();
        if !shard.look(|broker| broker.is_crowded(conn)) {
            return;
        }
        turned.await;
    }
}

/// Answers a subscribe. `spare` keeps a stream that was opened for one that was refused: the peer
/// learns of a stream by its first byte, and of that one it never should.
async fn subscribe(
    (shard, link): (&Arc<Shard>, &Connection),
    conn: ConnId,
    wanted: Wanted,
    spare: &mut Option<SendStream>,
) {
    if spare.is_none() {
        *spare = open_now(link).await;
    }
    let Some(stream) = spare else {
        let why = Refusal { place: Place::Table, reason: Reason::Limit, retry: Retry::After(100) };
        return shard.lock().refuse(conn, wanted.request, why);
    };
    let stopped = stream.stopped();
    let Some(outlet) = shard.lock().subscribe(conn, spare, wanted) else { return };
    let shard = Arc::clone(shard);
    tokio::spawn(async move {
        // Stopped by the peer, or finished and acknowledged; or the connection is over.
        let Ok(by_peer) = stopped.await else { return };
        let mut state = shard.lock();
        if by_peer.is_some() {
            state.stopped(outlet);
        }
        state.arrived(conn, outlet);
        drop(state);
        shard.bell().ring();
    });
}

/// A stream, if the peer has granted one. One look: who wants a subscription has granted its
/// stream before.
async fn open_now(link: &Connection) -> Option<SendStream> {
    let mut open = pin!(link.open_uni());
    poll_fn(|context| match open.as_mut().poll(context) {
        Poll::Ready(Ok(stream)) => Poll::Ready(Some(stream)),
        Poll::Ready(Err(_)) | Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Takes the streams on which the peer publishes; their end is no news, a fault on one is the end.
async fn accept(shard: &Arc<Shard>, link: &Connection, conn: ConnId) -> Result<(), Wrong> {
    let Some(resumed) = shard.lock().resumed(conn) else { return Ok(()) };
    let fault = Arc::new(Fault::default());
    let seats = usize::try_from(shard.settings().max_publish_streams).unwrap_or(usize::MAX);
    let seats = Arc::new(Semaphore::new(seats.min(Semaphore::MAX_PERMITS)));
    loop {
        // QUIC counts a stream no more when all of it was read; here it counts until all of it was
        // taken. One that is not accepted keeps its place, and its peer opens no further ones.
        let stream = tokio::select! {
            biased;
            () = fault.told.notified() => return fault.take(),
            stream = take_seat(link, &seats) => stream,
        };
        let Some((stream, seat)) = stream else { return Ok(()) };
        let (shard, fault, resumed) = (Arc::clone(shard), Arc::clone(&fault), Arc::clone(&resumed));
        tokio::spawn(async move {
            let source = Source::new(shard, conn, resumed);
            if let Err(wrong) = source.read(stream, seat).await {
                fault.put(wrong);
            }
        });
    }
}

/// The next stream on which a peer publishes, as soon as one more may be read.
async fn take_seat(
    link: &Connection,
    seats: &Arc<Semaphore>,
) -> Option<(RecvStream, OwnedSemaphorePermit)> {
    let seat = Arc::clone(seats).acquire_owned().await.ok()?;
    link.accept_uni().await.ok().map(|stream| (stream, seat))
}

/// The first fault on any of a connection's streams.
#[derive(Default)]
struct Fault {
    wrong: std::sync::Mutex<Option<Wrong>>,
    told: Notify,
}

impl Fault {
    fn put(&self, wrong: Wrong) {
        let mut slot = self.wrong.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        slot.get_or_insert(wrong);
        drop(slot);
        self.told.notify_one();
    }

    fn take(&self) -> Result<(), Wrong> {
        let mut slot = self.wrong.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        slot.take().map_or(Ok(()), Err)
    }
}

/// What became of a part of a publish stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// All that was whole was taken.
    All,
    /// The peer has given the stream up meanwhile.
    Reset,
}

/// A stream on which a peer publishes. It waits for itself alone.
struct Source {
    shard: Arc<Shard>,
    conn: ConnId,
    /// As the core knows the stream.
    id: ConnId,
    resumed: Arc<Notify>,
}

impl Drop for Source {
    fn drop(&mut self) {
        self.shard.lock().end_source(self.id);
        self.shard.bell().ring();
    }
}

impl Source {
    fn new(shard: Arc<Shard>, conn: ConnId, resumed: Arc<Notify>) -> Self {
        let id = shard.lock().source(conn);
        Self { shard, conn, id, resumed }
    }

    /// Reads publishes until the peer finishes or resets the stream.
    async fn read(self, mut stream: RecvStream, seat: OwnedSemaphorePermit) -> Result<(), Wrong> {
        let most = self.shard.look(|broker| broker.limits().max_frame_bytes);
        let mut assembler = Assembler::new(most);
        let mut held = 0;
        let result = loop {
            let chunk = match stream.read_chunk(READ, true).await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => {
                    // What the peer has brought whole may still be waiting for room: in the core,
                    // which bounds that.
                    drop(seat);
                    self.wait_while_parked().await;
                    break Ok(());
                }
                // A stream that is reset has lost what was not whole; nothing of that was taken.
                Err(_) => break Ok(()),
            };
            match self.take(&mut stream, &mut assembler, &chunk.bytes).await {
                Ok(Heard::All) => {}
                Ok(Heard::Reset) => break Ok(()),
                Err(wrong) => break Err(wrong),
            }
            let now = assembler.held();
            if let Err(wrong) = self.shard.lock().hold(self.conn, held, now) {
                break Err(wrong);
            }
            held = now;
        };
        // What was held is given back, however it ends.
        let _ = self.shard.lock().hold(self.conn, held, 0);
        result
    }

    /// Publishes what is whole.
    async fn take(
        &self,
        stream: &mut RecvStream,
        assembler: &mut Assembler,
        mut bytes: &[u8],
    ) -> Result<Heard, Wrong> {
        while let Some(frame) = assembler.take(&mut bytes)? {
            if self.publish(stream, &Bytes::from(frame)).await? == Heard::Reset {
                return Ok(Heard::Reset);
            }
        }
        self.shard.bell().ring();
        Ok(Heard::All)
    }

    /// Waits until nothing that this stream has brought waits for room. What is the connection's
    /// is not waited for: streams that are over do not pile up.
    async fn wait_while_parked(&self) {
        loop {
            let mut resumed = pin!(self.resumed.notified());
            resumed.as_mut().enable();
            if !self.shard.lock().has_parked(self.id) {
                return;
            }
            resumed.await;
        }
    }

    /// Publishes a frame, as soon as that may be.
    async fn publish(&self, stream: &mut RecvStream, frame: &Bytes) -> Result<Heard, Wrong> {
        loop {
            let mut resumed = pin!(self.resumed.notified());
            let mut turned = pin!(self.shard.turned().notified());
            resumed.as_mut().enable();
            turned.as_mut().enable();
            let taken = self.shard.lock().publish((self.conn, self.id), frame)?;
            match taken {
                Taken::Done | Taken::Gone => return Ok(Heard::All),
                Taken::Later => {
                    self.shard.bell().ring();
                    turned.await;
                }
                Taken::Paused => {
                    self.shard.bell().ring();
                    tokio::select! {
                        biased;
                        () = resumed => {}
                        () = until_reset(stream) => return Ok(Heard::Reset),
                    }
                }
            }
        }
    }
}

mod reset;
