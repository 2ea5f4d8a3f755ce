//! A server on loopback, and a peer that speaks frames and knows nothing else.

use bytes::Bytes;
use quinn::{Connection, ConnectionError, Endpoint, ReadError, RecvStream, SendStream, VarInt};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sluicegate_core::{Books, Broker, Limits, Place, Reason, TenantId, TopicId};
use sluicegate_quic::server::{self, Serving};
use sluicegate_quic::settings::Settings;
use sluicegate_quic::shard::Shard;
use sluicegate_quic::transport::{self, Keys};
use sluicegate_wire::quic::{
    ALPN, Assembler, Frame, MAX_TOKEN, Mode, Policy, Refusal, Retry, Start, decode, put_publish,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Nothing on loopback takes this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often a state is looked at.
const PACE: Duration = Duration::from_millis(1);

/// A server, and what a client must trust.
pub(crate) struct Stage {
    serving: Option<Serving>,
    pub(crate) shard: Arc<Shard>,
    pub(crate) gate: Gate,
}

impl Stage {
    /// A server of its own for one test.
    pub(crate) fn new(limits: Limits, settings: Settings) -> Self {
        limits.check().unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let certificate = CertificateDer::from(made.cert);
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let transport = transport::transport(&settings, &limits, true);
        let server = transport::server(vec![certificate.clone()], key, transport).unwrap();
        let keys = Keys { reset: [7; 32], ids: 7 };
        let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let runtime = quinn::default_runtime().unwrap();
        let endpoint =
            Endpoint::new(transport::endpoint(&keys), Some(server), socket, runtime).unwrap();
        let address = endpoint.local_addr().unwrap();
        let shard = Shard::new(Broker::new(limits, 7), Arc::new(settings), None);
        let serving = server::serve(&shard, endpoint);
        Self { serving: Some(serving), shard, gate: Gate { address, certificate } }
    }

    /// One with the defaults.
    pub(crate) fn usual() -> Self {
        Self::new(Limits::default(), Settings::default())
    }

    /// One whose core has other limits.
    pub(crate) fn with(limits: &[(&str, u64)]) -> Self {
        Self::new(set(limits), Settings::default())
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        self.serving.as_ref().expect("it serves until it is stopped").endpoint().clone()
    }

    /// Stops the server, on a task of its own.
    pub(crate) fn stop(mut self) -> tokio::task::JoinHandle<()> {
        let serving = self.serving.take().expect("it is stopped once");
        tokio::spawn(serving.stop())
    }

    /// A connection that the server knows.
    pub(crate) async fn join(&self) -> Peer {
        self.gate.dial(Dial::default()).await.hello("default", "").await
    }

    /// A connection that the server knows, of a client with these windows.
    pub(crate) async fn join_by(&self, dial: Dial) -> Peer {
        self.gate.dial(dial).await.hello("default", "").await
    }

    /// Waits until the core is as it should be.
    pub(crate) async fn until(&self, what: &str, is: impl Fn(&Broker) -> bool) {
        until(what, || self.shard.look(&is)).await;
    }

    pub(crate) fn books(&self) -> Books {
        self.shard.look(|broker| broker.ledger().clone())
    }

    pub(crate) fn topic(&self, name: &str) -> TopicId {
        let tenant = TenantId::from_bits(0);
        self.shard.look(|broker| broker.find_topic(tenant, name)).expect("it was bound")
    }

    /// Waits until nothing more happens, and looks whether all is in order.
    pub(crate) async fn settle(&self) {
        self.until("quiescence", |broker| broker.check_quiescent().is_ok()).await;
        self.shard.look(Broker::check).unwrap();
    }

    /// Waits until nobody is left, and nothing is held for those that were.
    pub(crate) async fn empty(&self) {
        self.until("everybody to be gone", |broker| broker.counts() == (0, 0)).await;
        self.settle().await;
        let look = |broker: &Broker| (broker.inflight(), broker.jobs(), broker.ledger().lag);
        let (inflight, jobs, lag) = self.shard.look(look);
        assert_eq!((inflight, jobs, lag.is_zero()), (0, (0, 0), true));
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.shard.look(Broker::check).unwrap();
        }
    }
}

/// Limits with some keys set.
pub(crate) fn set(keys: &[(&str, u64)]) -> Limits {
    let mut limits = Limits::default();
    for (key, value) in keys {
        limits.set(key, *value).unwrap();
    }
    limits
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, is: impl Fn() -> bool) {
    let seen = async {
        while !is() {
            tokio::time::sleep(PACE).await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, seen).await;
    assert!(found.is_ok(), "waited in vain for {what}");
}

/// What does not come in time is a failure.
pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("it did not come in time")
}

/// Where a server is reached, and how it proves itself.
#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) address: SocketAddr,
    pub(crate) certificate: CertificateDer<'static>,
}

/// What a client grants.
#[derive(Clone, Copy)]
pub(crate) struct Dial {
    /// Subscriptions.
    pub(crate) streams: u32,
    /// Bytes on each stream that it has not read.
    pub(crate) window: u32,
}

impl Default for Dial {
    fn default() -> Self {
        Self { streams: 5000, window: 1 << 20 }
    }
}

/// One who reads little at a time.
pub(crate) const SLOW: Dial = Dial { streams: 16, window: 4 << 10 };

impl Gate {
    pub(crate) fn config(&self, dial: Dial) -> quinn::ClientConfig {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![ALPN.to_vec()];
        let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
        let mut config = quinn::ClientConfig::new(Arc::new(tls));
        let mut quic = quinn::TransportConfig::default();
        quic.max_concurrent_uni_streams(dial.streams.into());
        quic.stream_receive_window(dial.window.into());
        config.transport_config(Arc::new(quic));
        config
    }

    /// A connection on which nothing was said.
    pub(crate) async fn dial(&self, dial: Dial) -> Peer {
        let endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let config = self.config(dial);
        let link = endpoint.connect_with(config, self.address, "localhost").unwrap();
        let link = within(link).await.unwrap();
        let (send, recv) = link.open_bi().await.unwrap();
        Peer { endpoint, link, send, control: Reader::new(recv), requests: 0 }
    }
}

/// A client that speaks frames.
pub(crate) struct Peer {
    pub(crate) endpoint: Endpoint,
    pub(crate) link: Connection,
    pub(crate) send: SendStream,
    pub(crate) control: Reader,
    requests: u64,
}

impl Peer {
    /// Says who it is, and is let in.
    pub(crate) async fn hello(mut self, tenant: &str, token: &str) -> Self {
        self.say(&Frame::Hello { oldest: 1, newest: 1, features: 0, tenant, token }).await;
        let welcome = self.control.next().await.unwrap();
        assert!(matches!(decode(&welcome), Ok(Some(Frame::Welcome(_)))), "{welcome:x?}");
        self
    }

    pub(crate) async fn say(&mut self, frame: &Frame<'_>) {
        self.write(&frame.bytes()).await;
    }

    /// Writes to the control stream what need not be a frame.
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        within(self.send.write_all(bytes)).await.unwrap();
    }

    pub(crate) const fn request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    /// Binds a topic for both.
    pub(crate) async fn bind(&mut self, topic: &str) -> u32 {
        self.try_bind(topic, true, true).await.unwrap()
    }

    pub(crate) async fn try_bind(
        &mut self,
        topic: &str,
        publish: bool,
        subscribe: bool,
    ) -> Result<u32, Refusal> {
        let request = self.request();
        self.say(&Frame::Bind { request, publish, subscribe, topic }).await;
        let answer = self.control.next().await.unwrap();
        match decode(&answer) {
            Ok(Some(Frame::Bound { request: of, topic, .. })) if of == request => Ok(topic),
            Ok(Some(Frame::Refused { request: of, why })) if of == request => Err(why),
            other => panic!("{other:?}"),
        }
    }

    /// Asks for a subscription; the answer is still to come.
    pub(crate) async fn ask(
        &mut self,
        topic: u32,
        policy: Policy,
        batches: u32,
        start: Start,
    ) -> u64 {
        let request = self.request();
        self.say(&Frame::Subscribe { request, topic, policy, batches, bytes: 0, start }).await;
        request
    }

    /// A subscription in force.
    pub(crate) async fn subscribe(&mut self, topic: u32, policy: Policy, start: Start) -> Sub {
        self.subscribe_some(topic, policy, 0, start).await
    }

    /// A subscription in force for which at most so many batches wait.
    pub(crate) async fn subscribe_some(
        &mut self,
        topic: u32,
        policy: Policy,
        batches: u32,
        start: Start,
    ) -> Sub {
        let request = self.ask(topic, policy, batches, start).await;
        let mut events = self.accept().await;
        match events.item().await {
            Item::Subscribed { request: of, number, epoch, start } if of == request => {
                Sub { events, number, epoch, start }
            }
            other => panic!("{other:?}"),
        }
    }

    /// The next stream that the server opens.
    pub(crate) async fn accept(&self) -> Reader {
        Reader::new(within(self.link.accept_uni()).await.unwrap())
    }

    pub(crate) async fn publisher(&self) -> SendStream {
        within(self.link.open_uni()).await.unwrap()
    }

    /// The number of the first record of an acked publish.
    pub(crate) async fn acked(&mut self, request: u64) -> u64 {
        let answer = self.control.next().await.unwrap();
        match decode(&answer) {
            Ok(Some(Frame::Ack { request: of, first })) if of == request => first,
            other => panic!("{other:?}"),
        }
    }

    /// Why a request is answered no.
    pub(crate) async fn refused(&mut self, request: u64) -> Refusal {
        let answer = self.control.next().await.unwrap();
        match decode(&answer) {
            Ok(Some(Frame::Refused { request: of, why })) if of == request => why,
            other => panic!("{other:?}"),
        }
    }

    /// Records that are told as shed, and why.
    pub(crate) async fn shed(&mut self) -> (u64, Refusal) {
        let answer = self.control.next().await.unwrap();
        match decode(&answer) {
            Ok(Some(Frame::Shed { records, why })) => (records, why),
            other => panic!("{other:?}"),
        }
    }

    /// Whether the server still hears this peer.
    pub(crate) async fn is_heard(&mut self, token: u64) {
        self.say(&Frame::Ping { token }).await;
        let pong = self.control.next().await.unwrap();
        assert_eq!(decode(&pong), Ok(Some(Frame::Pong { token })));
    }

    /// The code with which the server closes the connection.
    pub(crate) async fn closed(&self) -> u64 {
        match within(self.link.closed()).await {
            ConnectionError::ApplicationClosed(close) => close.error_code.into_inner(),
            other => panic!("{other:?}"),
        }
    }

    /// Is gone without a word: its datagrams come from elsewhere now, which the server ignores.
    pub(crate) fn die(&self) {
        let elsewhere = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        self.endpoint.rebind(elsewhere).unwrap();
    }
}

/// A subscription in force.
pub(crate) struct Sub {
    pub(crate) events: Reader,
    pub(crate) number: u32,
    pub(crate) epoch: u64,
    pub(crate) start: u64,
}

/// What comes on a subscription's stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Subscribed {
        request: u64,
        number: u32,
        epoch: u64,
        start: u64,
    },
    Records(u64, Vec<Vec<u8>>),
    Gap {
        first: u64,
        last: u64,
        records: u64,
        why: Refusal,
    },
    Ended(Refusal),
    /// The end of the stream.
    End,
    Reset(u64),
}

/// Frames of one stream.
pub(crate) struct Reader {
    pub(crate) stream: RecvStream,
    assembler: Assembler,
    rest: Bytes,
}

impl Reader {
    pub(crate) const fn new(stream: RecvStream) -> Self {
        let assembler = Assembler::new((16 << 20) + MAX_TOKEN as u64);
        Self { stream, assembler, rest: Bytes::new() }
    }

    /// What was read from the stream before all that comes.
    pub(crate) fn put_back(&mut self, bytes: Bytes) {
        assert!(self.rest.is_empty(), "something else comes before it");
        self.rest = bytes;
    }

    /// The next frame; none at the end of the stream or the connection.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        within(self.frame()).await.unwrap_or(None)
    }

    async fn frame(&mut self) -> Result<Option<Vec<u8>>, ReadError> {
        loop {
            let mut bytes = &self.rest[..];
            let frame = self.assembler.take(&mut bytes).unwrap();
            let used = self.rest.len() - bytes.len();
            let _ = self.rest.split_to(used);
            if frame.is_some() {
                return Ok(frame);
            }
            match self.stream.read_chunk(1 << 16, true).await? {
                Some(chunk) => self.rest = chunk.bytes,
                None => return Ok(None),
            }
        }
    }

    /// What comes next on a subscription's stream.
    pub(crate) async fn item(&mut self) -> Item {
        let frame = match within(self.frame()).await {
            Ok(Some(frame)) => frame,
            Ok(None) => return Item::End,
            Err(ReadError::Reset(code)) => return Item::Reset(code.into_inner()),
            Err(error) => panic!("{error}"),
        };
        match decode(&frame) {
            Ok(Some(Frame::Subscribed { request, subscription: number, epoch, start })) => {
                Item::Subscribed { request, number, epoch, start }
            }
            Ok(Some(Frame::Events { first, records })) => {
                Item::Records(first, records.into_iter().map(<[u8]>::to_vec).collect())
            }
            Ok(Some(Frame::Gap { first, last, records, why })) => {
                Item::Gap { first, last, records, why }
            }
            Ok(Some(Frame::Ended { why })) => Item::Ended(why),
            other => panic!("{other:?}"),
        }
    }

    /// Reads batches of one record until it has been told of the record `last`. Answers the numbers
    /// of those that came and how many were lost, with why the first was. Everything is in order.
    pub(crate) async fn read_until(&mut self, mut next: u64, last: u64) -> Read {
        let mut read = Read::default();
        while next <= last {
            match self.item().await {
                Item::Records(first, records) => {
                    assert_eq!(first, next, "a record came that a gap should have announced");
                    assert_eq!(records.len(), 1);
                    read.came.push(first);
                    next = first + 1;
                }
                Item::Gap { first, last, records, why } => {
                    assert_eq!(first, next);
                    assert!(last >= first && records <= last - first + 1);
                    read.lost += records;
                    read.why.get_or_insert(why);
                    next = last + 1;
                }
                other => panic!("{other:?} instead of {next}"),
            }
        }
        read
    }
}

/// What a subscriber got.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) came: Vec<u64>,
    pub(crate) lost: u64,
    pub(crate) why: Option<Refusal>,
}

/// A publish as bytes.
pub(crate) fn publish<R: AsRef<[u8]>>(topic: u32, mode: Mode, records: &[R]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_publish(&mut bytes, topic, mode, records);
    bytes
}

pub(crate) async fn send(stream: &mut SendStream, bytes: &[u8]) {
    within(stream.write_all(bytes)).await.unwrap();
}

/// A refusal that no repetition changes.
pub(crate) fn never(place: Place, reason: Reason) -> Refusal {
    Refusal { place: place.code(), reason: reason.code(), retry: Retry::Never }
}

/// Where and why, whatever is advised.
pub(crate) fn is(why: Refusal, place: Place, reason: Reason) -> bool {
    (why.place, why.reason) == (place.code(), reason.code())
}

pub(crate) fn code(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap()
}
