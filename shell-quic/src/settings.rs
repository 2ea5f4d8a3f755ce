//! What a server is told about itself, besides the core's limits.

use crate::access::Tenant;
use crate::jwt::Jwt;
use std::time::Duration;

/// Bounds and times of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Who shares it. At least one.
    pub tenants: Vec<Tenant>,
    /// Signed tokens that open them; with none, only their own do.
    pub jwt: Option<Jwt>,
    /// Subscriptions of one connection.
    pub max_subscriptions: u64,
    /// Topics that one connection may have bound.
    pub max_topics: u64,
    /// Streams on which one connection may publish.
    pub max_publish_streams: u64,
    /// Connections from one address that have not said who they are.
    pub max_strangers: u64,
    /// All connections that have not said who they are.
    pub max_handshakes: u64,
    /// For a handshake and a hello.
    pub hello_timeout: Duration,
    /// Silence after which a connection is over.
    pub idle_timeout_ms: u64,
    /// At the end, for the last bytes to be acknowledged.
    pub farewell: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tenants: vec![Tenant::open("default")],
            jwt: None,
            max_subscriptions: 4096,
            max_topics: 4096,
            max_publish_streams: 8,
            max_strangers: 64,
            max_handshakes: 1024,
            hello_timeout: Duration::from_secs(10),
            idle_timeout_ms: 30_000,
            farewell: Duration::from_secs(2),
        }
    }
}
