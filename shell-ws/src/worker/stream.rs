//! A connection's bytes: as they are, or under TLS.

use crate::tls::Tls;
use mio::net::TcpStream;
use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;

#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Tls<TcpStream>),
}

impl Stream {
    /// What the event queue watches.
    pub(super) const fn socket(&mut self) -> &mut TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => tls.socket(),
        }
    }

    /// Whether something that was accepted here has not reached the kernel.
    pub(super) fn is_pending(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.is_pending(),
        }
    }

    /// Brings what was accepted to the kernel, as far as that takes it.
    pub(super) fn push(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(tls) => tls.flush_some(),
        }
    }

    /// Says that nothing more comes. Under TLS that is a word of its own, which may be pending.
    pub(super) fn say_end(&mut self) {
        if let Self::Tls(tls) = self {
            tls.close_notify();
        }
    }

    /// Ends our side, when nothing is pending.
    pub(super) fn shut_down(&mut self) {
        // A peer that is gone already is found out by reading.
        let _ = self.socket().shutdown(Shutdown::Write);
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buf),
            Self::Tls(tls) => tls.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(buf),
            Self::Tls(tls) => tls.write(buf),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write_vectored(slices),
            Self::Tls(tls) => tls.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.push()
    }
}
