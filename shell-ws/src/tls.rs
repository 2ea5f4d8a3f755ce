//! TLS for an event loop: what rustls accepts is on its way, whatever the socket takes of it.
//!
//! The bytes of a write belong to rustls from the moment when it says how many it took; they are
//! never offered to it again. Ciphertext that the socket does not take stays in rustls, at most
//! 64 KiB of it, and goes out when the socket is writable.

use anyhow::{Context, Result, ensure};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, ServerConnection};
use serde::Deserialize;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

/// What one connection's ciphertext may take while its socket takes none.
const PENDING: usize = 64 << 10;

/// Where the certificate is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// The certificate and those it depends on, in PEM.
    pub cert: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
}

impl Files {
    fn load(&self) -> Result<CertifiedKey> {
        let Self { cert, key } = self;
        let chain = CertificateDer::pem_file_iter(cert)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .with_context(|| format!("[tls] `cert` is {}: it cannot be read", cert.display()))?;
        ensure!(
            !chain.is_empty(),
            "[tls] `cert` is {}: there is no certificate in it, in PEM",
            cert.display()
        );
        let private = PrivateKeyDer::from_pem_file(key)
            .with_context(|| format!("[tls] `key` is {}: it cannot be read", key.display()))?;
        CertifiedKey::from_der(chain, private, &ring::default_provider()).with_context(|| {
            let (cert, key) = (cert.display(), key.display());
            format!("[tls] {cert} and {key} do not belong together")
        })
    }
}

/// The certificate in force, for every event loop.
#[derive(Debug)]
pub struct Identity {
    files: Files,
    current: RwLock<Arc<CertifiedKey>>,
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Identity {
    /// Reads the files.
    pub fn load(files: Files) -> Result<Arc<Self>> {
        let current = RwLock::new(Arc::new(files.load()?));
        Ok(Arc::new(Self { files, current }))
    }

    /// Reads the files again: new connections get the new certificate, others live on. A pair that
    /// is wrong changes nothing.
    pub fn reload(&self) -> Result<()> {
        let fresh = Arc::new(self.files.load()?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// What connections are made with.
    pub fn config(self: &Arc<Self>) -> Result<Arc<ServerConfig>> {
        let resolver: Arc<dyn ResolvesServerCert> = Arc::<Self>::clone(self);
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .context("no version of TLS is left")?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// The server's side of a connection over a socket that does not block.
#[derive(Debug)]
pub struct Tls<S> {
    conn: Box<ServerConnection>,
    socket: S,
}

impl<S: Read + Write> Tls<S> {
    /// Speaks TLS over a socket that was just accepted.
    pub fn new(config: Arc<ServerConfig>, socket: S) -> Result<Self, rustls::Error> {
        let mut conn = Box::new(ServerConnection::new(config)?);
        conn.set_buffer_limit(Some(PENDING));
        Ok(Self { conn, socket })
    }

    /// The socket.
    pub const fn socket(&mut self) -> &mut S {
        &mut self.socket
    }

    /// Whether the socket has not taken everything that is on its way.
    pub fn is_pending(&self) -> bool {
        self.conn.wants_write()
    }

    /// Says that nothing more will be written. Flush afterwards.
    pub fn close_notify(&mut self) {
        self.conn.send_close_notify();
    }

    /// Writes what is on its way, until the socket takes no more.
    pub fn flush_some(&mut self) -> io::Result<()> {
        while self.conn.wants_write() {
            match self.conn.write_tls(&mut self.socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes some ciphertext and makes of it what it is. False at the end of what the peer sends.
    fn receive(&mut self) -> io::Result<bool> {
        if self.conn.read_tls(&mut self.socket)? == 0 {
            return Ok(false);
        }
        let outcome = self.conn.process_new_packets();
        // What it answers: of a handshake, or an alert that says what is wrong.
        let flushed = self.flush_some();
        outcome.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        flushed?;
        Ok(true)
    }
}

impl<S: Read + Write> Read for Tls<S> {
    /// Plaintext comes out before any more ciphertext goes in, so that no message is too large.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.conn.reader().read(buf) {
                Ok(n) => return Ok(n),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The peer has ended without a word: for HTTP and WebSocket, which say themselves
                // where they end, that is an end like others.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) => return Err(error),
            }
            if !self.receive()? {
                // Says so from now on, or finds the last plaintext.
                return match self.conn.reader().read(buf) {
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
                    result => result,
                };
            }
        }
    }
}

impl<S: Read + Write> Write for Tls<S> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buf)])
    }

    /// Takes nothing while ciphertext of before is waiting: a peer that does not read is seen to.
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush_some()?;
        if self.is_pending() {
            return Err(ErrorKind::WouldBlock.into());
        }
        match self.conn.writer().write_vectored(slices)? {
            0 => Err(ErrorKind::WouldBlock.into()),
            taken => self.flush_some().map(|()| taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flush_some()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};
    use std::collections::VecDeque;
    use std::path::Path;

    /// A certificate for localhost that trusts itself, as PEM: certificate and key.
    fn certificate() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    fn write(folder: &Path, (cert, key): (&str, &str)) -> Files {
        std::fs::create_dir_all(folder).unwrap();
        let files = Files { cert: folder.join("cert.pem"), key: folder.join("key.pem") };
        std::fs::write(&files.cert, cert).unwrap();
        std::fs::write(&files.key, key).unwrap();
        files
    }

    fn folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("sluicegate-tls-{}-{name}", std::process::id()))
    }

    fn client(cert: &str) -> ClientConnection {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap()
    }

    /// One side's view of two pipes that take and give as little as they are told.
    #[derive(Debug, Default)]
    struct Stingy {
        incoming: VecDeque<u8>,
        outgoing: VecDeque<u8>,
        /// Bytes that the next calls take or give, one after the other; 0 would block.
        plan: VecDeque<usize>,
    }

    impl Stingy {
        fn share(&mut self, most: usize) -> io::Result<usize> {
            match self.plan.pop_front().unwrap_or(usize::MAX).min(most) {
                0 => Err(ErrorKind::WouldBlock.into()),
                n => Ok(n),
            }
        }
    }

    impl Read for Stingy {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let n = self.share(buf.len().min(self.incoming.len()))?;
            for (byte, from) in buf.iter_mut().zip(self.incoming.drain(..n)) {
                *byte = from;
            }
            Ok(n)
        }
    }

    impl Write for Stingy {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            let n = self.share(buf.len())?;
            self.outgoing.extend(&buf[..n]);
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Lets the client read and write as it likes; the plaintext it got.
    fn serve_client(client: &mut ClientConnection, wire: &mut Stingy) -> Vec<u8> {
        let mut got = Vec::new();
        while !wire.outgoing.is_empty() {
            let (front, _) = wire.outgoing.as_slices();
            let mut bytes = front;
            let n = client.read_tls(&mut bytes).unwrap();
            wire.outgoing.drain(..n);
            client.process_new_packets().unwrap();
            let mut buf = [0; 4096];
            while let Ok(n @ 1..) = client.reader().read(&mut buf) {
                got.extend(&buf[..n]);
            }
        }
        while client.wants_write() {
            let mut out = Vec::new();
            client.write_tls(&mut out).unwrap();
            wire.incoming.extend(out);
        }
        got
    }

    fn pair(name: &str) -> (Tls<Stingy>, ClientConnection) {
        let (cert, key) = certificate();
        let folder = folder(name);
        let identity = Identity::load(write(&folder, (&cert, &key))).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        (Tls::new(identity.config().unwrap(), Stingy::default()).unwrap(), client(&cert))
    }

    /// Nothing, a few bytes, or many.
    fn share() -> impl Strategy<Value = usize> {
        prop_oneof![Just(0), 1_usize..40, 100_usize..40_000]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// Whatever the socket takes and gives, each byte arrives once and in order, both ways.
        #[test]
        fn any_number_of_bytes_at_a_time_is_the_same_stream(
            plan in prop::collection::vec(share(), 0..400),
            sizes in prop::collection::vec(1_usize..50_000, 1..12),
        ) {
            let (mut server, mut client) = pair("any");
            server.socket().plan = plan.into();
            let total = sizes.iter().sum::<usize>();
            let sent: Vec<u8> = (0..=250).cycle().take(total).collect();
            client.writer().write_all(&sent[..sent.len().min(30_000)]).unwrap();
            let asked = sent.len().min(30_000);
            let (mut read, mut got, mut written) = (Vec::<u8>::new(), Vec::<u8>::new(), 0);
            let mut buf = [0; 8192];
            for _ in 0..20_000 {
                got.extend(serve_client(&mut client, server.socket()));
                match server.read(&mut buf) {
                    Ok(n) => read.extend(&buf[..n]),
                    Err(error) => prop_assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
                if read.len() == asked && written < sent.len() {
                    let end = (written + 20_000).min(sent.len());
                    let middle = written + (end - written) / 3;
                    let slices =
                        [IoSlice::new(&sent[written..middle]), IoSlice::new(&sent[middle..end])];
                    match server.write_vectored(&slices) {
                        Ok(n) => written += n,
                        Err(error) => prop_assert_eq!(error.kind(), ErrorKind::WouldBlock),
                    }
                }
                server.flush_some().unwrap();
                if got.len() == sent.len() {
                    break;
                }
            }
            prop_assert_eq!(&read[..], &sent[..asked]);
            prop_assert!(got == sent, "{} of {} bytes came back", got.len(), sent.len());
        }
    }

    #[test]
    fn a_peer_that_does_not_read_is_noticed_within_bounds() {
        let (mut server, mut client) = pair("slow");
        let mut buf = [0; 1024];
        while client.is_handshaking() || server.conn.is_handshaking() {
            serve_client(&mut client, server.socket());
            let _ = server.read(&mut buf);
        }
        server.socket().plan = std::iter::repeat_n(0, 100_000).collect();
        let mut taken = 0;
        while let Ok(n) = server.write(&[7; 10_000]) {
            taken += n;
        }
        assert!(server.is_pending() && taken <= PENDING, "{taken}");
        server.socket().plan.clear();
        server.flush_some().unwrap();
        assert!(!server.is_pending());
        assert_eq!(serve_client(&mut client, server.socket()).len(), taken);
    }

    #[test]
    fn a_new_pair_is_taken_and_a_wrong_one_changes_nothing() {
        let folder = folder("reload");
        let first = certificate();
        let files = write(&folder, (&first.0, &first.1));
        let identity = Identity::load(files.clone()).unwrap();
        let serial = |identity: &Identity| identity.current.read().unwrap().cert[0].to_vec();
        let before = serial(&identity);
        let second = certificate();
        write(&folder, (&second.0, &first.1));
        let error = format!("{:#}", identity.reload().unwrap_err());
        assert!(error.contains("do not belong together"), "{error}");
        assert_eq!(serial(&identity), before);
        write(&folder, (&second.0, &second.1));
        identity.reload().unwrap();
        assert_ne!(serial(&identity), before);
        for (cert, key, what) in [("", &*second.1, "no certificate"), (&*second.0, "", "`key`")] {
            let error = format!("{:#}", Identity::load(write(&folder, (cert, key))).unwrap_err());
            assert!(error.contains(what), "{error}");
        }
        std::fs::remove_file(&files.cert).unwrap();
        let error = format!("{:#}", identity.reload().unwrap_err());
        assert!(error.contains("cannot be read"), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
