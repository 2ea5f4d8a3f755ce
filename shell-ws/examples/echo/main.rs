//! A WebSocket server that answers each message with the same message, for tools that test
//! conformance to RFC 6455: `cargo run --example echo -- 127.0.0.1:9001`.
//!
//! It shares the codec of frames and of the handshake (`sluicegate_wire`) with the Pusher server,
//! and nothing else: the server's loop carries sessions of the Pusher protocol, which echo nothing.
//! What that loop and its sessions make of the same frames, `tests/rfc6455.rs` asks as well.

mod conn;
mod serve;

use anyhow::{Context, Result};
use mio::net::TcpListener;
use std::io::{self, Write};
use std::net::SocketAddr;

/// The largest message: as large as the largest that conformance tests send.
const MAX_MESSAGE: usize = 16 << 20;

fn main() -> Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9001".to_owned());
    let address: SocketAddr =
        address.parse().with_context(|| format!("{address}: write an address and a port"))?;
    let listener = TcpListener::bind(address).with_context(|| format!("{address}"))?;
    writeln!(io::stdout(), "echoes on {}", listener.local_addr()?)?;
    serve::serve(listener, MAX_MESSAGE)
}
