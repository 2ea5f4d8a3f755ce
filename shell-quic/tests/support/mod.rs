//! A server on loopback, and a peer that speaks frames and knows nothing else.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(dead_code, reason = "each test program uses a part of it")]

use bytes::Bytes;
use quinn::{Connection, Endpoint, RecvStream, SendStream};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sluicegate_core::{Broker, Limits};
use sluicegate_quic::server::{self, Serving};
use sluicegate_quic::settings::Settings;
use sluicegate_quic::shard::Shard;
use sluicegate_quic::transport::{self, Keys};
use sluicegate_wire::quic::{ALPN, Assembler, Frame, MAX_TOKEN, decode};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Nothing on loopback takes this long.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server, and what a client must trust.
pub struct Stage {
    pub serving: Serving,
    pub address: SocketAddr,
    certificate: CertificateDer<'static>,
}

impl Stage {
    /// A server of its own for one test.
    pub fn new(limits: Limits, settings: Settings) -> Self {
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
        Self { serving: server::serve(&shard, endpoint), address, certificate }
    }

    /// A connection on which nothing was said.
    pub async fn dial(&self) -> Peer {
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
        quic.max_concurrent_uni_streams(5000_u32.into());
        config.transport_config(Arc::new(quic));
        let endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let link = endpoint.connect_with(config, self.address, "localhost").unwrap();
        let link = within(link).await.unwrap();
        let (send, recv) = link.open_bi().await.unwrap();
        Peer { endpoint, link, send, control: Reader::new(recv), requests: 0 }
    }

    /// A connection that the server knows.
    pub async fn join(&self) -> Peer {
        self.join_as("default", "").await
    }

    pub async fn join_as(&self, tenant: &str, token: &str) -> Peer {
        let mut peer = self.dial().await;
        peer.say(&Frame::Hello { oldest: 1, newest: 1, features: 0, tenant, token }).await;
        let welcome = peer.control.next().await.unwrap();
        assert!(matches!(decode(&welcome), Ok(Some(Frame::Welcome(_)))));
        peer
    }
}

/// What does not come in time is a failure.
pub async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("it did not come in time")
}

/// A client that speaks frames.
pub struct Peer {
    pub endpoint: Endpoint,
    pub link: Connection,
    pub send: SendStream,
    pub control: Reader,
    requests: u64,
}

impl Peer {
    pub async fn say(&mut self, frame: &Frame<'_>) {
        within(self.send.write_all(&frame.bytes())).await.unwrap();
    }

    pub fn request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    /// Binds a topic for both.
    pub async fn bind(&mut self, topic: &str) -> u32 {
        let request = self.request();
        self.say(&Frame::Bind { request, publish: true, subscribe: true, topic }).await;
        let answer = self.control.next().await.unwrap();
        match decode(&answer) {
            Ok(Some(Frame::Bound { request: of, topic, .. })) if of == request => topic,
            other => panic!("{other:?}"),
        }
    }

    /// The next stream that the server opens.
    pub async fn accept(&self) -> Reader {
        Reader::new(within(self.link.accept_uni()).await.unwrap())
    }

    pub async fn publisher(&self) -> SendStream {
        within(self.link.open_uni()).await.unwrap()
    }
}

/// Frames of one stream.
pub struct Reader {
    pub stream: RecvStream,
    assembler: Assembler,
    rest: Bytes,
}

impl Reader {
    fn new(stream: RecvStream) -> Self {
        let assembler = Assembler::new((16 << 20) + MAX_TOKEN as u64);
        Self { stream, assembler, rest: Bytes::new() }
    }

    /// The next frame; none at the end of the stream.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        within(async {
            loop {
                let mut bytes = &self.rest[..];
                let frame = self.assembler.take(&mut bytes).unwrap();
                let used = self.rest.len() - bytes.len();
                let _ = self.rest.split_to(used);
                if frame.is_some() {
                    return frame;
                }
                self.rest = self.stream.read_chunk(1 << 16, true).await.ok()??.bytes;
            }
        })
        .await
    }
}
