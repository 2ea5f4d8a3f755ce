//! A stream that its peer gives up while nothing is read from it.

use quinn::RecvStream;
use std::future::pending;
use std::time::Duration;
use tokio::time::sleep;

/// How long a reset may go unseen where bytes that came before it have not been read.
const PACE: Duration = Duration::from_secs(1);

/// Waits until the peer gives a stream up; for ever, when it cannot any more, which frees the
/// stream. Takes no byte from it.
///
/// quinn wakes a reader for bytes, their end or a reset where it has nothing to read. Where it has,
/// only `received_reset` would, which in 0.11.12 keeps the waker for as long as the connection
/// lasts if nothing comes any more (quinn pull request 2856): there we look again.
pub(super) async fn until_reset(stream: &mut RecvStream) {
    loop {
        match stream.read_chunk(0, true).await {
            Ok(None) => pending().await,
            Ok(Some(_)) => sleep(PACE).await,
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport;
    use quinn::{ClientConfig, Connection, Endpoint, SendStream, TransportConfig, VarInt};
    use rustls::RootCertStore;
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use std::net::Ipv4Addr;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Wake, Waker};
    use tokio::time::timeout;

    /// Two ends of a connection, and what keeps them.
    struct Ends {
        client: Connection,
        server: Connection,
        _endpoints: [Endpoint; 2],
    }

    async fn ends() -> Ends {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into();
        let certificate = made.cert.der().clone();
        let config =
            transport::server(vec![certificate.clone()], key, TransportConfig::default()).unwrap();
        let listener = Endpoint::server(config, (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![sluicegate_wire::quic::ALPN.to_vec()];
        let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
        let config = ClientConfig::new(Arc::new(tls));
        let dialer = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let dial = dialer.connect_with(config, address, "localhost").unwrap();
        let (client, server) = tokio::join!(dial, async { listener.accept().await.unwrap().await });
        Ends { client: client.unwrap(), server: server.unwrap(), _endpoints: [listener, dialer] }
    }

    impl Ends {
        /// A stream on which so much was written, and its other end.
        async fn stream(&self, bytes: &[u8]) -> (SendStream, RecvStream) {
            let mut sender = self.client.open_uni().await.unwrap();
            sender.write_all(bytes).await.unwrap();
            (sender, self.server.accept_uni().await.unwrap())
        }
    }

    struct Nobody;

    impl Wake for Nobody {
        fn wake(self: Arc<Self>) {}
    }

    /// Looks at a stream once, for a reader of whom nothing may be kept.
    fn look(stream: &mut RecvStream) {
        let reader = Arc::new(Nobody);
        let waker = Waker::from(Arc::clone(&reader));
        let looked = pin!(until_reset(stream)).poll(&mut Context::from_waker(&waker));
        assert!(looked.is_pending());
        drop(waker);
        assert_eq!(Arc::strong_count(&reader), 1, "nothing is left behind");
    }

    #[tokio::test]
    async fn a_look_at_a_stream_leaves_nothing_behind() {
        let ends = ends().await;
        let (mut sender, mut stream) = ends.stream(b"words").await;
        sender.finish().unwrap();
        assert_eq!(sender.stopped().await.unwrap(), None, "all has come");
        look(&mut stream);
        assert_eq!(stream.read_chunk(9, true).await.unwrap().unwrap().bytes, &b"words"[..]);
        look(&mut stream);
        assert!(stream.read_chunk(9, true).await.unwrap().is_none(), "nothing was taken");
    }

    #[tokio::test]
    async fn a_reset_is_seen_whatever_was_not_read() {
        let ends = ends().await;
        for unread in [0, 1] {
            let (mut sender, mut stream) = ends.stream(b"a").await;
            let read = stream.read_chunk(1 - unread, true).await.unwrap().unwrap();
            assert_eq!(read.bytes.len(), 1 - unread);
            let watch = timeout(Duration::from_secs(30), until_reset(&mut stream));
            let reset = async { sender.reset(VarInt::from_u32(0)).unwrap() };
            let (seen, ()) = tokio::join!(watch, reset);
            seen.expect("it was reset");
        }
    }
}
