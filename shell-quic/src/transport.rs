//! What QUIC is told: TLS, windows, datagram sizes, and the keys that a restart must not change.

use anyhow::{Context, Result};
use quinn::congestion::CubicConfig;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{
    AckFrequencyConfig, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, ServerConfig,
    TransportConfig, VarInt,
};
use quinn_proto::HashedConnectionIdGenerator;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sluicegate_core::Limits;
use sluicegate_wire::quic::ALPN;
use std::sync::Arc;
use std::time::Duration;

use crate::settings::Settings;

/// What one stream may have sent that was not read.
const STREAM_WINDOW: u32 = 512 << 10;

/// What one connection may have been sent that it has not acknowledged.
pub const SEND_WINDOW: u64 = 2 << 20;

/// Datagrams on the loopback interface: twice the throughput of 1200 bytes; ten of them make a
/// segment that UDP can still carry.
pub const LOOPBACK_MTU: u16 = 4096;

/// The largest datagram that is received.
const LARGEST: u16 = 65_527;

/// Streams of a client that has not said who it is: its control stream and publish streams.
const STRANGERS_STREAMS: u32 = 3;

/// How QUIC runs between the server and its clients. `is_local` says that all of them are on this
/// machine.
pub fn transport(settings: &Settings, limits: &Limits, is_local: bool) -> TransportConfig {
    let mut transport = TransportConfig::default();
    let window = |bytes: u64| VarInt::from_u64(bytes).unwrap_or(VarInt::MAX);
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(VarInt::from_u32(20));
    acks.max_ack_delay(Some(Duration::from_millis(2)));
    let idle = IdleTimeout::from(VarInt::from_u64(settings.idle_timeout_ms).unwrap_or(VarInt::MAX));
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(STRANGERS_STREAMS))
        .max_idle_timeout(Some(idle))
        .keep_alive_interval(Some(Duration::from_millis(settings.idle_timeout_ms / 6)))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(window(limits.pub_conn_inflight_bytes))
        .send_window(SEND_WINDOW)
        .datagram_receive_buffer_size(None)
        .ack_frequency_config(Some(acks));
    datagrams(&mut transport, is_local);
    transport
}

/// Bytes that QUIC may hold for one connection besides the core's memory budget: what it was sent
/// and has not acknowledged, and what it sent and nobody has read.
pub const fn windows(limits: &Limits) -> u64 {
    SEND_WINDOW + limits.pub_conn_inflight_bytes
}

/// Sizes of datagrams, for both ends.
pub fn datagrams(transport: &mut TransportConfig, is_local: bool) {
    if is_local {
        let mut cubic = CubicConfig::default();
        cubic.initial_window(64 * u64::from(LOOPBACK_MTU));
        transport
            .initial_mtu(LOOPBACK_MTU)
            .min_mtu(LOOPBACK_MTU)
            .mtu_discovery_config(None)
            .congestion_controller_factory(Arc::new(cubic));
    } else {
        let mut discovery = MtuDiscoveryConfig::default();
        // Loss in bursts looks like a black hole: it is tried again soon.
        discovery.black_hole_cooldown(Duration::from_secs(2));
        transport.mtu_discovery_config(Some(discovery));
    }
}

/// Keys that must be the same after a restart, so that clients of the process before are told at
/// once that it is gone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Keys {
    /// Signs stateless resets.
    pub reset: [u8; 32],
    /// Marks connection ids as ours.
    pub ids: u64,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}

/// The endpoint's side of QUIC.
pub fn endpoint(keys: &Keys) -> EndpointConfig {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &keys.reset);
    let mut config = EndpointConfig::new(Arc::new(key));
    let ids = keys.ids;
    config.cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(ids)));
    config.max_udp_payload_size(LARGEST).expect("it is the largest that there is");
    config
}

/// The server's side of a connection: its certificate, and how QUIC runs.
pub fn server(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    transport: TransportConfig,
) -> Result<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .context("TLS 1.3 cannot be set up")?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .context("the certificate and the key do not go together")?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let tls = QuicServerConfig::try_from(tls).context("the certificate cannot be used for QUIC")?;
    let mut server = ServerConfig::with_crypto(Arc::new(tls));
    server.transport_config(Arc::new(transport)).migration(false);
    Ok(server)
}
