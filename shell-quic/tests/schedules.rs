//! The tasks of the shell and of the client over a network in memory. `cargo xtask madsim` runs
//! this file under a scheduler that picks tasks at random, hundreds of times.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[path = "support/memory.rs"]
mod memory;

use memory::{Network, TestRuntime};
use quinn::Endpoint;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use sluicegate_core::{Broker, Limits};
use sluicegate_quic::server::{self, Serving};
use sluicegate_quic::settings::Settings;
use sluicegate_quic::shard::Shard;
use sluicegate_quic::transport::{self, Keys};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

fn address(last: u8) -> SocketAddr {
    ([10, 0, 0, last], 4433).into()
}

fn serve(network: &Network) -> (Serving, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into();
    let (settings, limits) = (Settings::default(), Limits::default());
    let quic = transport::transport(&settings, &limits, false);
    let chain = vec![made.cert.der().clone()];
    let server = transport::server(chain.clone(), key, quic).unwrap();
    let config = transport::endpoint(&Keys { reset: [3; 32], ids: 3 });
    let socket = network.socket(address(1));
    let endpoint =
        Endpoint::new_with_abstract_socket(config, Some(server), socket, Arc::new(TestRuntime))
            .unwrap();
    let shard = Shard::new(Broker::new(limits, 7), Arc::new(settings), None);
    (server::serve(&shard, endpoint), chain[0].clone())
}

#[tokio::test]
async fn a_server_stops_when_nobody_is_there() {
    let network = Network::new(7, 50, Duration::from_millis(20));
    let (serving, _) = serve(&network);
    serving.stop().await;
}
