//! TLS and QUIC from the client's side.

use crate::error::ConnectError;
use crate::options::{Options, Trust};
use quinn::congestion::CubicConfig;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{AckFrequencyConfig, ClientConfig, EndpointConfig, TransportConfig, VarInt};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_platform_verifier::BuilderVerifierExt;
use sha2::{Digest, Sha256};
use sluicegate_wire::quic::ALPN;
use std::sync::Arc;
use std::time::Duration;

/// What one subscription may have been sent that was not read.
const STREAM_WINDOW: u32 = 512 << 10;

/// What one connection may have been sent that was not read.
const CONNECTION_WINDOW: u32 = 17 << 20;

/// Publishes that were sent and not acknowledged.
const SEND_WINDOW: u64 = 2 << 20;

/// Subscriptions of one connection that the server may open streams for.
const STREAMS: u32 = 4096 + 16;

/// Datagrams on the loopback interface, as the server's.
const LOOPBACK_MTU: u16 = 4096;

/// The largest datagram that is received.
const LARGEST: u16 = 65_527;

/// Silence after which a connection is lost.
const IDLE: u32 = 30_000;

/// The endpoint of a client that has none of its own.
#[cfg(not(madsim))]
pub(crate) fn endpoint(is_ipv6: bool) -> Result<quinn::Endpoint, ConnectError> {
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
    let any: SocketAddr =
        if is_ipv6 { (Ipv6Addr::UNSPECIFIED, 0).into() } else { (Ipv4Addr::UNSPECIFIED, 0).into() };
    let unreachable = |error: std::io::Error| ConnectError::Unreachable(error.to_string());
    let socket = UdpSocket::bind(any).map_err(unreachable)?;
    let runtime = Arc::new(quinn::TokioRuntime);
    quinn::Endpoint::new(endpoint_config(), None, socket, runtime).map_err(unreachable)
}

/// Under the scheduler of tests there are no sockets.
#[cfg(madsim)]
pub(crate) fn endpoint(_: bool) -> Result<quinn::Endpoint, ConnectError> {
    Err(ConnectError::Options("an endpoint is needed here".to_owned()))
}

/// What an endpoint of a client's own must be made with, so that it takes large datagrams.
pub fn endpoint_config() -> EndpointConfig {
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(LARGEST).expect("it is the largest that there is");
    config
}

/// How to connect.
pub(crate) fn client(options: &Options, is_local: bool) -> Result<ClientConfig, ConnectError> {
    let wrong = |error: Error| ConnectError::Options(error.to_string());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(wrong)?;
    let mut tls = match &options.trust {
        Trust::Certificates(certificates) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates {
                roots.add(certificate.clone()).map_err(wrong)?;
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        }
        Trust::Fingerprint(fingerprint) => {
            let verifier = Pinned { fingerprint: *fingerprint, algorithms };
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
                .with_no_client_auth()
        }
        Trust::System => builder.with_platform_verifier().map_err(wrong)?.with_no_client_auth(),
    };
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let tls = QuicClientConfig::try_from(tls)
        .map_err(|error| ConnectError::Options(error.to_string()))?;
    let mut config = ClientConfig::new(Arc::new(tls));
    config.transport_config(Arc::new(transport(is_local)));
    Ok(config)
}

fn transport(is_local: bool) -> TransportConfig {
    let mut transport = TransportConfig::default();
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(VarInt::from_u32(20));
    acks.max_ack_delay(Some(Duration::from_millis(2)));
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(STREAMS))
        .max_idle_timeout(Some(VarInt::from_u32(IDLE).into()))
        .keep_alive_interval(Some(Duration::from_secs(5)))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW))
        .send_window(SEND_WINDOW)
        .datagram_receive_buffer_size(None)
        .ack_frequency_config(Some(acks));
    if is_local {
        let mut cubic = CubicConfig::default();
        cubic.initial_window(64 * u64::from(LOOPBACK_MTU));
        transport
            .initial_mtu(LOOPBACK_MTU)
            .min_mtu(LOOPBACK_MTU)
            .mtu_discovery_config(None)
            .congestion_controller_factory(Arc::new(cubic));
    }
    transport
}

/// Knows one certificate by its hash, whoever has signed it and whatever it is named.
#[derive(Debug)]
struct Pinned {
    fingerprint: [u8; 32],
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let shown: [u8; 32] = Sha256::digest(own).into();
        if shown == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("QUIC has TLS 1.3 only".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, own, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
