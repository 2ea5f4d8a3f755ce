//! One connection: made, and served until it ends.

use crate::error::ConnectError;
use crate::options::Options;
use crate::publishing;
use crate::state::Shared;
use crate::{subscription, transport};
use bytes::Bytes;
use quinn::{Connection, ConnectionError, Endpoint, RecvStream, SendStream, VarInt};
use sluicegate_wire::quic::{self, Assembler, CLOSE_DONE, Code, Frame, VERSION};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::time::{sleep_until, timeout};

/// The longest frame on the control stream.
const CONTROL_FRAME: u64 = 64 << 10;

/// Bytes that one read takes from a stream.
const READ: usize = 64 << 10;

/// Where the server is.
#[derive(Debug)]
pub(crate) struct Target {
    address: SocketAddr,
    name: String,
    endpoint: Endpoint,
}

impl Target {
    /// Looks an address up.
    pub(crate) async fn find(url: &str, options: &Options) -> Result<Self, ConnectError> {
        let wrong = || ConnectError::Address(url.to_owned());
        let place = url.strip_prefix("quic://").ok_or_else(wrong)?;
        let (host, _) = place.rsplit_once(':').ok_or_else(wrong)?;
        let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let address = match place.parse() {
            Ok(address) => address,
            Err(_) => resolve(place).await.ok_or_else(|| {
                ConnectError::Unreachable(format!("the name `{host}` has no address"))
            })?,
        };
        let endpoint = match &options.endpoint {
            Some(endpoint) => endpoint.clone(),
            None => transport::endpoint(address.is_ipv6())?,
        };
        Ok(Self { address, name, endpoint })
    }
}

#[cfg(not(madsim))]
async fn resolve(place: &str) -> Option<SocketAddr> {
    tokio::net::lookup_host(place).await.ok()?.next()
}

/// Under the scheduler of tests there are no names.
#[cfg(madsim)]
async fn resolve(_: &str) -> Option<SocketAddr> {
    None
}

/// A connection whose server has said welcome.
#[derive(Debug)]
pub(crate) struct Link {
    connection: Connection,
    send: SendStream,
    control: Control,
    /// The longest frame that the broker takes, in bytes.
    pub(crate) max_frame: u64,
    /// Streams on which is published.
    pub(crate) streams: u32,
}

/// Connects and says who it is.
pub(crate) async fn connect(target: &Target, options: &Options) -> Result<Link, ConnectError> {
    let is_local = target.address.ip().is_loopback();
    let config = transport::client(options, is_local)?;
    let Target { address, name, endpoint } = target;
    let met = async {
        let token = options.fetch_token().await.map_err(ConnectError::Token)?;
        let connecting = endpoint
            .connect_with(config, *address, name)
            .map_err(|error| ConnectError::Unreachable(error.to_string()))?;
        let connection = connecting.await.map_err(ended)?;
        match greet(&connection, options, &token).await {
            Ok(link) => Ok(link),
            // The code of the connection says more than the end of a stream.
            Err(error) => Err(connection.close_reason().map_or(error, ended)),
        }
    };
    timeout(options.connect_timeout, met).await.unwrap_or(Err(ConnectError::TimedOut))
}

async fn greet(
    connection: &Connection,
    options: &Options,
    token: &str,
) -> Result<Link, ConnectError> {
    let (mut send, stream) = connection.open_bi().await.map_err(ended)?;
    let hello = Frame::Hello {
        oldest: VERSION,
        newest: VERSION,
        features: 0,
        tenant: &options.tenant,
        token,
    };
    let gone = || ConnectError::Unreachable("the server ended the connection".to_owned());
    send.write_all(&hello.bytes()).await.map_err(|_| gone())?;
    let assembler = Assembler::new(CONTROL_FRAME);
    let mut control = Control { stream, assembler, rest: Bytes::new() };
    let Some(frame) = control.next().await else {
        connection.closed().await;
        return Err(gone());
    };
    match quic::decode(&frame) {
        Ok(Some(Frame::Welcome(welcome))) => {
            let max_frame = welcome.max_frame_bytes;
            let streams = options.publish_workers.min(welcome.max_publish_streams).max(1);
            Ok(Link { connection: connection.clone(), send, control, max_frame, streams })
        }
        _ => Err(ConnectError::Unreachable("the server does not speak the protocol".to_owned())),
    }
}

/// Why a connection is over, in the words of its server if there are any.
fn ended(error: ConnectionError) -> ConnectError {
    match error {
        ConnectionError::ApplicationClosed(close) => ConnectError::Refused {
            code: Code::from_number(close.error_code.into_inner()),
            text: String::from_utf8_lossy(&close.reason).into_owned(),
        },
        ConnectionError::TimedOut => ConnectError::TimedOut,
        other => ConnectError::Unreachable(other.to_string()),
    }
}

/// Serves a connection until it ends: by itself; or because all was published and the client is
/// being closed; or because the server goes away, and what was under way is done or its grace
/// over. Answers with which code the server has closed it; none when it has not.
pub(crate) async fn serve(shared: &Arc<Shared>, link: Link) -> Option<Code> {
    let Link { connection, send, control, streams, .. } = link;
    tokio::select! {
        biased;
        () = hear(shared, control) => {}
        () = ask(shared, send) => {}
        () = accept(shared, &connection) => {}
        () = publishing::work(shared, &connection, streams) => {}
        () = grace(shared) => {}
    }
    // A server that goes away has ended the connection when all is here: not all of it is read.
    let leaves_at = shared.lock().leaves_at();
    if let Some(leaves_at) = leaves_at {
        // Who does not read what has come in time does so from the next server, if it has it.
        tokio::select! {
            biased;
            () = heard_out(shared) => {}
            () = sleep_until(leaves_at) => {}
        }
    }
    let said = connection.close_reason().and_then(|error| ended(error).code());
    connection.close(VarInt::from_u32(CLOSE_DONE), b"done");
    said
}

/// Ends when the server has said that it goes away, and its grace is over.
async fn grace(shared: &Shared) {
    loop {
        let mut told = std::pin::pin!(shared.leaving.notified());
        told.as_mut().enable();
        let leaves_at = shared.lock().leaves_at();
        if let Some(leaves_at) = leaves_at {
            return sleep_until(leaves_at).await;
        }
        told.await;
    }
}

/// Waits until the streams of all subscriptions are over, or the client is being closed.
pub(crate) async fn heard_out(shared: &Shared) {
    loop {
        let mut parted = std::pin::pin!(shared.parted.notified());
        parted.as_mut().enable();
        {
            let state = shared.lock();
            if state.is_closing || state.is_heard_out() {
                return;
            }
        }
        parted.await;
    }
}

/// Hears the broker's answers.
async fn hear(shared: &Shared, mut control: Control) {
    while let Some(frame) = control.next().await {
        let Ok(frame) = quic::decode(&frame) else { return };
        let Some(frame) = frame else { continue };
        let goes_away = matches!(frame, Frame::GoAway { .. });
        let mut state = shared.lock();
        let is_due = match frame {
            Frame::Ack { request, first } => state.acked(request, first),
            Frame::Bound { request, topic, .. } => state.bound(request, topic),
            Frame::Refused { request, why } => state.refused(request, why.into()),
            Frame::Shed { records, .. } => {
                state.stats.shed += records;
                true
            }
            Frame::Ping { token } => {
                state.pong(token);
                true
            }
            Frame::GoAway { grace_ms } => {
                state.go_away(grace_ms);
                true
            }
            Frame::Pong { .. } => true,
            _ => false,
        };
        drop(state);
        if !is_due {
            return;
        }
        if goes_away {
            shared.leaving.notify_waiters();
        }
        // A topic that is bound may be published to, and has subscriptions that wait for it.
        shared.queued.notify_waiters();
        shared.asked.notify_one();
    }
}

/// Writes what is asked.
async fn ask(shared: &Shared, mut send: SendStream) {
    loop {
        let frame = shared.lock().take_asked();
        match frame {
            None => shared.asked.notified().await,
            Some(frame) => {
                if send.write_all(&frame).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Takes the streams of subscriptions.
async fn accept(shared: &Arc<Shared>, connection: &Connection) {
    while let Ok(stream) = connection.accept_uni().await {
        tokio::spawn(subscription::read(Arc::clone(shared), connection.clone(), stream));
    }
}

/// The control stream's frames.
#[derive(Debug)]
struct Control {
    stream: RecvStream,
    assembler: Assembler,
    /// Read and not used.
    rest: Bytes,
}

impl Control {
    /// The next frame; none when the connection is over, or the server writes no frames.
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let mut bytes = &self.rest[..];
            let frame = self.assembler.take(&mut bytes).ok()?;
            let used = self.rest.len() - bytes.len();
            let _ = self.rest.split_to(used);
            if frame.is_some() {
                return frame;
            }
            self.rest = self.stream.read_chunk(READ, true).await.ok()??.bytes;
        }
    }
}
