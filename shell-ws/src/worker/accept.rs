//! The listening socket.

use super::LISTENER;
use anyhow::{Context, Result, anyhow};
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

/// Connections that the kernel may hold for us; it cuts this to its own limit.
const BACKLOG: i32 = 65_535;

/// What the kernel may hold of one connection's bytes: enough for a full pipe, and no more, so
/// that a peer that stops reading is seen to.
const SEND_BUFFER: usize = 256 << 10;

/// Beyond this much unsent data the kernel says "not writable".
const NOT_SENT: u32 = 64 << 10;

/// A socket that listens and is in no event queue yet.
#[derive(Debug)]
pub struct Listener(std::net::TcpListener);

impl Listener {
    /// Listens. Several listeners may share an address: the kernel spreads connections over them.
    pub fn bind(address: SocketAddr, is_shared: bool) -> Result<Self> {
        listen(address, is_shared).map(Self).map_err(|error| explain(address, &error))
    }

    /// Fails where somebody listens already: listeners that share an address would not notice, and
    /// get a part of that one's connections.
    pub fn probe(address: SocketAddr) -> Result<()> {
        Self::bind(address, false).map(drop)
    }

    /// Where it listens: with the real port.
    pub fn address(&self) -> Result<SocketAddr> {
        self.0.local_addr().context("a listener has an address")
    }
}

/// The listener, and whether there is something to accept.
#[derive(Debug)]
pub(super) struct Acceptor {
    listener: TcpListener,
    is_ready: bool,
    /// Out of file descriptors: accepting is tried again when a socket is closed, and at times.
    is_stalled: bool,
}

/// What became of one attempt.
#[derive(Debug)]
pub(super) enum Accepted {
    /// Nothing to accept now.
    None,
    /// A connection that ended before it was accepted, or whose options cannot be set.
    Lost,
    /// Accepting has stalled since this attempt.
    Stalled,
    Stream(TcpStream),
}

impl Acceptor {
    pub(super) fn new(Listener(std): Listener, registry: &Registry) -> Result<Self> {
        let mut listener = TcpListener::from_std(std);
        registry.register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self { listener, is_ready: false, is_stalled: false })
    }

    pub(super) const fn ready(&mut self) {
        self.is_ready = true;
    }

    /// Whether it is worth trying.
    pub(super) const fn wants(&self) -> bool {
        self.is_ready && !self.is_stalled
    }

    /// Whether it waits for a file descriptor.
    pub(super) const fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// A file descriptor may be free again.
    pub(super) const fn retry(&mut self) {
        self.is_stalled = false;
    }

    pub(super) fn accept(&mut self) -> Accepted {
        match self.listener.accept() {
            Ok((stream, _)) => match configure(&stream) {
                Ok(()) => Accepted::Stream(stream),
                Err(_) => Accepted::Lost,
            },
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.is_ready = false;
                Accepted::None
            }
            Err(error) if is_exhausted(&error) => {
                self.is_stalled = true;
                Accepted::Stalled
            }
            // The peer's fault, or a signal: the next one may be fine.
            Err(_) => Accepted::Lost,
        }
    }

    pub(super) fn close(mut self, registry: &Registry) {
        // Closing the descriptor deregisters it all the same.
        let _ = registry.deregister(&mut self.listener);
    }
}

fn listen(address: SocketAddr, is_shared: bool) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(is_shared)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn configure(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.set_tcp_notsent_lowat(NOT_SENT)
}

fn is_exhausted(error: &io::Error) -> bool {
    const ENOMEM: i32 = 12;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const ENOBUFS: i32 = 105;
    matches!(error.raw_os_error(), Some(ENOMEM | ENFILE | EMFILE | ENOBUFS))
}

fn explain(address: SocketAddr, error: &io::Error) -> anyhow::Error {
    let port = address.port();
    match error.kind() {
        ErrorKind::AddrInUse => anyhow!(
            "port {port} is in use: stop the program that listens on {address}, or start this one \
             with --port and another number (0 takes any free one)"
        ),
        ErrorKind::PermissionDenied => anyhow!(
            "port {port} needs rights that this process does not have: use --port with a number \
             from 1024 on"
        ),
        ErrorKind::AddrNotAvailable => anyhow!(
            "{} is no address of this machine: use --bind with one that is, such as 127.0.0.1",
            address.ip()
        ),
        _ => anyhow!("cannot listen on {address}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_listening_say_what_to_do() {
        let address: SocketAddr = "127.0.0.1:6001".parse().unwrap();
        for (kind, fix) in [
            (ErrorKind::AddrInUse, "port 6001 is in use: stop"),
            (ErrorKind::PermissionDenied, "use --port with a number"),
            (ErrorKind::AddrNotAvailable, "use --bind with one that is"),
            (ErrorKind::Other, "cannot listen on 127.0.0.1:6001"),
        ] {
            let text = explain(address, &kind.into()).to_string();
            assert!(text.contains(fix), "{text}");
        }
    }

    #[test]
    fn only_running_out_stalls() {
        for (code, stalls) in [(12, true), (23, true), (24, true), (105, true), (103, false)] {
            assert_eq!(is_exhausted(&io::Error::from_raw_os_error(code)), stalls, "{code}");
        }
    }
}
