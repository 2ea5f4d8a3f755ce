//! The loop around connections that echo. A socket is read when all that was answered has gone out;
//! after the last frame our side is shut, and what still comes is thrown away until the peer's is
//! shut too, so that no reset overtakes that frame.

use super::conn::Conn;
use anyhow::{Context, Result, bail};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;

/// The most connections at a time. Further ones are closed.
const MAX_PEERS: usize = 256;

/// What one read takes.
const CHUNK: usize = 64 << 10;

const LISTENER: Token = Token(0);

struct Peer {
    stream: TcpStream,
    conn: Conn,
    is_shut: bool,
}

/// Serves whoever connects. Ends only with an error.
pub(crate) fn serve(mut listener: TcpListener, max_message: usize) -> Result<()> {
    let mut poll = Poll::new().context("no event queue")?;
    let mut events = Events::with_capacity(MAX_PEERS);
    let mut peers: BTreeMap<Token, Peer> = BTreeMap::new();
    let mut next = LISTENER.0;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            outcome => outcome.context("the event queue is broken")?,
        }
        for event in &events {
            if event.token() != LISTENER {
                let ended = peers.get_mut(&event.token()).is_some_and(|peer| !peer.turn());
                if ended {
                    peers.remove(&event.token());
                }
                continue;
            }
            while let Some(mut stream) = accept(&listener)? {
                if peers.len() == MAX_PEERS {
                    continue;
                }
                next += 1;
                let interest = Interest::READABLE | Interest::WRITABLE;
                poll.registry().register(&mut stream, Token(next), interest)?;
                let peer = Peer { stream, conn: Conn::new(max_message), is_shut: false };
                peers.insert(Token(next), peer);
            }
        }
    }
}

fn accept(listener: &TcpListener) -> Result<Option<TcpStream>> {
    match listener.accept() {
        Ok((stream, _)) => {
            // It matters for latency only.
            let _ = stream.set_nodelay(true);
            Ok(Some(stream))
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => bail!("cannot accept: {error}"),
    }
}

impl Peer {
    /// Reads and writes until the kernel has nothing more. False when the connection has ended.
    fn turn(&mut self) -> bool {
        let mut chunk = [0; CHUNK];
        loop {
            while !self.conn.out().is_empty() {
                match self.stream.write(self.conn.out()) {
                    Ok(sent) => drop(self.conn.out().drain(..sent)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => return false,
                }
            }
            if self.conn.is_over() && !self.is_shut {
                self.is_shut = true;
                if self.stream.shutdown(Shutdown::Write).is_err() {
                    return false;
                }
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return false,
                Ok(len) => self.conn.receive(&chunk[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }
}
