//! A server that does what a test tells it, frame by frame, over QUIC on the loopback interface.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(dead_code, reason = "each test program uses a part of it")]

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Connection, Endpoint, RecvStream, SendStream, ServerConfig, TransportConfig, VarInt};
use sluicegate_client::{Client, Options, Reconnect, Trust};
use sluicegate_wire::quic::{self, ALPN, Assembler, Frame, Refusal, Retry, Welcome};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// No step of a test takes longer.
const DEADLINE: Duration = Duration::from_secs(20);

/// Waits for something that must come.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, what).await.expect("it has to come")
}

/// Polls a state until it is there.
pub(crate) async fn until(mut is_there: impl FnMut() -> bool) {
    soon(async {
        while !is_there() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// A "no" as the broker writes it.
pub(crate) const fn no(place: u8, reason: u8, retry: Retry) -> Refusal {
    Refusal { place, reason, retry }
}

/// Where connections come in.
pub(crate) struct Server {
    endpoint: Endpoint,
    trust: Trust,
    /// Its certificate.
    pub(crate) pem: String,
    pub(crate) max_frame_bytes: u64,
    pub(crate) max_publish_streams: u32,
}

impl Server {
    pub(crate) fn start() -> Self {
        let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = own.signing_key.serialize_der().try_into().unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        tls.alpn_protocols = vec![ALPN.to_vec()];
        let tls = QuicServerConfig::try_from(tls).unwrap();
        let mut config = ServerConfig::with_crypto(Arc::new(tls));
        let mut transport = TransportConfig::default();
        // A publisher that is not read stops soon.
        transport.stream_receive_window(VarInt::from_u32(64 << 10));
        config.transport_config(Arc::new(transport));
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let endpoint = Endpoint::server(config, any).unwrap();
        let trust = Trust::Certificates(vec![own.cert.der().clone()]);
        Self {
            endpoint,
            trust,
            pem: own.cert.pem(),
            max_frame_bytes: 16 << 20,
            max_publish_streams: 8,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("quic://{}", self.endpoint.local_addr().unwrap())
    }

    /// Options that trust it, and come back at once.
    pub(crate) fn options(&self) -> Options {
        let span = Duration::from_millis(1);
        Options {
            reconnect: Reconnect { first: span, most: span, attempts: None },
            seed: Some(1),
            ..Options::new(self.trust.clone())
        }
    }

    /// The next connection, before its hello is answered.
    pub(crate) async fn meet(&self) -> Peer {
        soon(async {
            let connection = self.endpoint.accept().await.unwrap().await.unwrap();
            let (send, recv) = connection.accept_bi().await.unwrap();
            Peer { connection, send, control: Frames::new(recv) }
        })
        .await
    }

    /// Lets connections fail, for ever.
    pub(crate) async fn refused(&self) {
        loop {
            let connecting = self.endpoint.accept().await.unwrap();
            assert!(connecting.await.is_err(), "it was trusted");
        }
    }

    /// The next connection, welcomed.
    pub(crate) async fn greet(&self) -> Peer {
        let mut peer = self.meet().await;
        peer.expect(|frame| assert!(matches!(frame, Frame::Hello { .. }), "{frame:?}")).await;
        self.welcome(&mut peer).await;
        peer
    }

    /// Answers a hello.
    pub(crate) async fn welcome(&self, peer: &mut Peer) {
        let welcome = Welcome {
            version: 1,
            features: 0,
            session: 1,
            time_ms: 0,
            max_frame_bytes: self.max_frame_bytes,
            max_subscriptions: 4096,
            max_topics: 4096,
            max_publish_streams: self.max_publish_streams,
            idle_ms: 30_000,
        };
        peer.tell(&Frame::Welcome(welcome)).await;
    }

    /// A client, and the server's side of it.
    pub(crate) async fn pair(&self, options: Options) -> (Client, Peer) {
        let url = self.url();
        let (client, peer) = tokio::join!(Client::connect(&url, options), self.greet());
        (client.unwrap(), peer)
    }
}

/// One connection.
pub(crate) struct Peer {
    pub(crate) connection: Connection,
    pub(crate) send: SendStream,
    pub(crate) control: Frames,
}

impl Peer {
    /// Looks at the next frame of the control stream.
    pub(crate) async fn expect<T>(&mut self, look: impl FnOnce(Frame<'_>) -> T) -> T {
        self.control.expect(look).await
    }

    pub(crate) async fn tell(&mut self, frame: &Frame<'_>) {
        self.send.write_all(&frame.bytes()).await.unwrap();
    }

    /// The next frame must be a bind with these rights: it is answered.
    pub(crate) async fn bind(&mut self, rights: (bool, bool), number: u32) {
        let request = self.asked_bind(rights).await;
        self.tell(&Frame::Bound { request, topic: number, epoch: 7 }).await;
    }

    pub(crate) async fn asked_bind(&mut self, rights: (bool, bool)) -> u64 {
        self.expect(|frame| match frame {
            Frame::Bind { request, publish, subscribe, .. } => {
                assert_eq!((publish, subscribe), rights);
                request
            }
            other => panic!("{other:?}"),
        })
        .await
    }

    /// The next frame must be a subscribe: its request, and where it begins.
    pub(crate) async fn asked_subscribe(&mut self) -> (u64, quic::Start) {
        self.expect(|frame| match frame {
            Frame::Subscribe { request, start, .. } => (request, start),
            other => panic!("{other:?}"),
        })
        .await
    }

    /// Confirms a subscribe on a stream of its own.
    pub(crate) async fn subscribed(&self, request: u64, start: u64) -> SendStream {
        let mut stream = self.connection.open_uni().await.unwrap();
        let frame = Frame::Subscribed { request, subscription: 3, epoch: 7, start };
        stream.write_all(&frame.bytes()).await.unwrap();
        stream
    }

    /// The client's publish stream.
    pub(crate) async fn publishes(&self) -> Frames {
        Frames::new(soon(self.connection.accept_uni()).await.unwrap())
    }
}

/// Frames of one stream.
pub(crate) struct Frames {
    pub(crate) stream: RecvStream,
    assembler: Assembler,
    rest: Vec<u8>,
}

impl Frames {
    fn new(stream: RecvStream) -> Self {
        Self { stream, assembler: Assembler::new(64 << 20), rest: Vec::new() }
    }

    /// The next frame; none at the end.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let mut bytes = &self.rest[..];
            let frame = self.assembler.take(&mut bytes).unwrap();
            self.rest = bytes.to_vec();
            if frame.is_some() {
                return frame;
            }
            self.rest = self.stream.read_chunk(64 << 10, true).await.ok()??.bytes.to_vec();
        }
    }

    pub(crate) async fn expect<T>(&mut self, look: impl FnOnce(Frame<'_>) -> T) -> T {
        let frame = soon(self.next()).await.expect("the stream goes on");
        look(quic::decode(&frame).unwrap().expect("it is known"))
    }
}

/// Events as the broker writes them.
pub(crate) fn events(first: u64, records: &[&str]) -> Vec<u8> {
    let (mut block, mut out) = (Vec::new(), Vec::new());
    quic::put_records(&mut block, records);
    quic::events_head(&mut out, first, block.len());
    out.extend(block);
    out
}
