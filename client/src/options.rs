//! What an application tells its client.

use quinn::Endpoint;
use rustls::pki_types::CertificateDer;
use sluicegate_core::Limits;
use sluicegate_core::Policy as Queue;
use sluicegate_wire::quic::Code;
pub use sluicegate_wire::quic::{Policy, Start};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The most streams on which one client publishes.
const MAX_WORKERS: u32 = 8;

/// How the client knows that the server is the right one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// It shows a certificate that one of these has signed, or one of these.
    Certificates(Vec<CertificateDer<'static>>),
    /// The SHA-256 of its certificate is this, as `sluicegate-quic serve` prints it.
    Fingerprint([u8; 32]),
    /// The operating system trusts whoever has signed its certificate, which is for the host of
    /// the address. On Apple's systems and Windows the system itself verifies it; elsewhere the
    /// roots are read when a connection is made, from where `SSL_CERT_FILE` and `SSL_CERT_DIR`
    /// say, or else from where the system keeps them.
    ///
    /// Cost: some milliseconds for each connection, to read the roots.
    System,
}

/// A token, or why there is none, for people.
type Fetched = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

/// Fetches the token that a connection shows, such as a signed one that lasts for minutes. It is
/// asked before each connection, and what it takes counts towards `connect_timeout`.
///
/// A client that has one makes its connection again when its token has come to its end, or is not
/// accepted any more; one that has none gives up then.
#[derive(Clone)]
pub struct TokenSource(Arc<dyn Fn() -> Fetched + Send + Sync>);

impl TokenSource {
    /// One that asks this. What it answers instead of a token is shown to people; the client asks
    /// again at its next try.
    pub fn new<F, A>(fetch: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<String, String>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(fetch())))
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSource").finish_non_exhaustive()
    }
}

/// How a client connects, and what it holds. `Options::new(trust)` is a start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who the server must be.
    pub trust: Trust,
    /// Whose records; `default` on a server that nobody has configured.
    pub tenant: String,
    /// What proves it; may be empty on an open server.
    pub token: String,
    /// Where a token comes from, for each connection; none for `token` on all of them.
    pub token_source: Option<TokenSource>,
    /// `publish_inflight_bytes`, `publish_queue_depth`, `publish_waiters` and
    /// `subscription_queue` are the client's; each must pass [`Limits::check`].
    pub limits: Limits,
    /// Streams on which is published, 1 to 8, or as few as the server allows: what a lost packet
    /// holds up is one of them. Each has a queue of `publish_queue_depth`, and all share
    /// `publish_inflight_bytes`. A topic stays on one, and in order. With several the longest
    /// batch is the server's longest frame divided by them.
    pub publish_workers: u32,
    /// After a connection is lost.
    pub reconnect: Reconnect,
    /// For the handshake and the welcome.
    pub connect_timeout: Duration,
    /// On which socket, and by the runtime it was made with: where QUIC's drivers run. None for a
    /// socket of its own, driven where the client is made.
    pub endpoint: Option<Endpoint>,
    /// Where the jitter of reconnecting comes from; none for the kernel.
    pub seed: Option<u64>,
}

/// How often and how soon a lost connection is made again: with full jitter, each wait is a random
/// part of a span that doubles from `first` to `most`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reconnect {
    /// The first span.
    pub first: Duration,
    /// The longest span.
    pub most: Duration,
    /// How often in a row it is tried in vain; none for ever, 0 for never.
    pub attempts: Option<u32>,
}

impl Default for Reconnect {
    fn default() -> Self {
        Self { first: Duration::from_millis(100), most: Duration::from_secs(10), attempts: None }
    }
}

impl Options {
    /// The usual, for a server that is trusted like this.
    pub fn new(trust: Trust) -> Self {
        Self {
            trust,
            tenant: "default".to_owned(),
            token: String::new(),
            token_source: None,
            limits: Limits::default(),
            publish_workers: 1,
            reconnect: Reconnect::default(),
            connect_timeout: Duration::from_secs(10),
            endpoint: None,
            seed: None,
        }
    }

    /// # Errors
    /// When there are more workers than there may be, or none.
    pub(crate) fn check_workers(&self) -> Result<(), String> {
        if (1..=MAX_WORKERS).contains(&self.publish_workers) {
            return Ok(());
        }
        let workers = self.publish_workers;
        Err(format!("`publish_workers` is {workers}, but must be between 1 and {MAX_WORKERS}"))
    }

    /// What the next connection shows.
    ///
    /// # Errors
    /// When there is none to be had.
    pub(crate) async fn fetch_token(&self) -> Result<String, String> {
        match &self.token_source {
            None => Ok(self.token.clone()),
            Some(TokenSource(fetch)) => fetch().await,
        }
    }

    /// Whether a server that says this would say it again, to all that this client can show.
    pub(crate) const fn is_final(&self, code: Code) -> bool {
        match code {
            Code::Malformed | Code::Unexpected | Code::Version => true,
            Code::Expired | Code::Unauthenticated => self.token_source.is_none(),
            Code::Busy | Code::Evicted | Code::TimedOut => false,
        }
    }
}

/// What a subscription wants, at the broker and in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// With which record it begins.
    pub start: Start,
    /// What the broker does when what waits there for this subscription is full.
    pub policy: Policy,
    /// At most this many batches wait at the broker; 0 for as many as it allows.
    pub batches: u32,
    /// At most this many bytes wait at the broker; 0 for as many as it allows.
    pub bytes: u64,
    /// What happens when `subscription_queue` events wait in this process: under
    /// [`Queue::Block`] the stream is not read, and the broker's policy decides.
    pub queue: Queue,
}

impl Default for SubscribeOptions {
    fn default() -> Self {
        Self {
            start: Start::Tail,
            policy: Policy::Default,
            batches: 0,
            bytes: 0,
            queue: Queue::DropNew,
        }
    }
}

impl SubscribeOptions {
    /// Nothing is lost while the connection lives: who publishes waits for this subscription.
    /// Needs a server with `lossless = 1`.
    pub fn lossless() -> Self {
        Self { policy: Policy::Block, queue: Queue::Block, ..Self::default() }
    }
}
