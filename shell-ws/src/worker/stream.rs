//! A connection's bytes: as they are, under TLS, or as lines in the responses of others.

use super::fallback::Carrier;
use crate::session::fallback::Name;
use crate::tls::Tls;
use mio::net::TcpStream;
use sluicegate_core::Offer;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;

#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    /// Boxed: it is larger than the others, and rare.
    Relay(Box<Relay>),
    Tls(Tls<TcpStream>),
}

/// A session of the HTTP fallback has no stream of its own.
#[derive(Debug)]
pub(super) struct Relay {
    pub(super) name: Name,
    /// Whose response carries what is said in it.
    pub(super) carrier: Option<Carrier>,
    /// What is on its way in a response, and how much of it: an offer stays open until its lines
    /// are written, or whoever asks for the next response shows that they came.
    pub(super) open: Option<(Offer, u64)>,
    /// How often it was left without one.
    pub(super) detached: u64,
}

impl Relay {
    pub(super) const fn new(name: Name) -> Self {
        Self { name, carrier: None, open: None, detached: 0 }
    }
}

impl Stream {
    /// What the event queue watches.
    pub(super) const fn socket(&mut self) -> Option<&mut TcpStream> {
        match self {
            Self::Plain(socket) => Some(socket),
            Self::Relay(_) => None,
            Self::Tls(tls) => Some(tls.socket()),
        }
    }

    /// Whether something that was accepted here has not reached the kernel.
    pub(super) fn is_pending(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Relay(_) => false,
            Self::Tls(tls) => tls.is_pending(),
        }
    }

    /// Brings what was accepted to the kernel, as far as that takes it.
    pub(super) fn push(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) | Self::Relay(_) => Ok(()),
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
        let _ = self.socket().map(|socket| socket.shutdown(Shutdown::Write));
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buf),
            // What comes in is put into its inbox.
            Self::Relay(_) => Err(ErrorKind::WouldBlock.into()),
            Self::Tls(tls) => tls.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(buf),
            Self::Relay(_) => Err(ErrorKind::WouldBlock.into()),
            Self::Tls(tls) => tls.write(buf),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write_vectored(slices),
            Self::Relay(_) => Err(ErrorKind::WouldBlock.into()),
            Self::Tls(tls) => tls.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.push()
    }
}
