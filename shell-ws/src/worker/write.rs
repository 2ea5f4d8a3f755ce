//! Writing: what the core offers, in one call of the kernel where it fits.

use super::Worker;
use super::socket::Key;
use super::stream::Stream;
use mio::Interest;
use sluicegate_core::{Broker, Offer};
use std::io::{self, ErrorKind, IoSlice, Write};

/// Frames per call of the kernel.
const SLICES: usize = 64;

impl Worker {
    /// Writes an offer and settles it.
    pub(super) fn write(&mut self, offer: Offer) {
        let owner = self.shard.owner_of_outlet(offer.outlet).map(Key::from_bits);
        let owner = owner.filter(|key| key.is_live(&self.sockets));
        let Some(key) =
            owner.filter(|key| self.sockets[key.index].session.outlet() == offer.outlet)
        else {
            debug_assert!(false, "an outlet lives as long as its socket");
            return self.shard.broker.sent(offer, 0);
        };
        let socket = &mut self.sockets[key.index];
        if matches!(socket.stream, Stream::Relay(_)) {
            return self.carry_offer(key, offer);
        }
        match write_all(&mut socket.stream, &self.shard.broker, offer) {
            Ok(accepted) => {
                self.shard.broker.sent(offer, accepted);
                let is_short = accepted < offer.bytes || socket.stream.is_pending();
                if let Some(is_free) = socket.session.written(accepted) {
                    if is_free {
                        self.freed(key);
                    }
                    self.deadlines.update(&mut self.sockets, key.index, self.now);
                }
                if is_short {
                    self.stalled(key);
                    self.want_writable(key, true);
                }
            }
            Err(_) => self.drop_socket(key),
        }
    }

    /// The kernel takes bytes again: first those that are pending, then the core's.
    pub(super) fn writable(&mut self, key: Key) {
        let socket = &mut self.sockets[key.index];
        if socket.stream.push().is_err() {
            return self.drop_socket(key);
        }
        if socket.stream.is_pending() {
            return;
        }
        if std::mem::take(&mut socket.is_ending) {
            socket.stream.shut_down();
            if socket.is_at_end {
                return self.drop_socket(key);
            }
            self.deadlines.update(&mut self.sockets, key.index, self.now);
        }
        let socket = &self.sockets[key.index];
        let outlet = socket.session.outlet();
        self.shard.broker.writable(outlet);
        self.want_writable(key, false);
    }

    /// Ends our side of a stream, once all that was written has gone. When the peer's side has
    /// ended too, nothing is left to wait for.
    pub(super) fn end_stream(&mut self, key: Key) {
        let socket = &mut self.sockets[key.index];
        socket.stream.say_end();
        if socket.stream.push().is_err() {
            return self.drop_socket(key);
        }
        if socket.stream.is_pending() {
            socket.is_ending = true;
            return self.want_writable(key, true);
        }
        socket.stream.shut_down();
        if socket.is_at_end {
            self.drop_socket(key);
        }
    }

    /// Asks, or stops asking, to be told when a socket is writable. Asking tells at once if it is.
    pub(super) fn want_writable(&mut self, key: Key, on: bool) {
        let socket = &mut self.sockets[key.index];
        if socket.wants_writable == on {
            return;
        }
        socket.wants_writable = on;
        let readable = Interest::READABLE;
        let interest = if on { readable | Interest::WRITABLE } else { readable };
        let registry = self.poll.registry();
        let Some(stream) = socket.stream.socket() else { return };
        if let Err(error) = registry.reregister(stream, key.token(), interest) {
            tracing::error!(%error, "a socket cannot be watched any more: closing it");
            self.drop_socket(key);
        }
    }
}

/// Writes the frames of an offer until the kernel takes no more. Returns how many bytes it took.
fn write_all(stream: &mut impl Write, broker: &Broker, offer: Offer) -> io::Result<u64> {
    let mut frames = broker.frames(offer);
    let mut accepted = 0;
    while let Some(first) = frames.next() {
        let (bytes, written) = match frames.next() {
            // One frame, as most offers are: there is no list for the kernel to copy and to walk.
            None => (first.len(), retry(|| stream.write(first))),
            Some(second) => write_run(stream, [first, second], &mut frames),
        };
        let taken = match written {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(taken) => taken,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(accepted),
            Err(error) => return Err(error),
        };
        accepted += taken as u64;
        if taken < bytes {
            return Ok(accepted);
        }
    }
    Ok(accepted)
}

/// Writes several frames at once. Returns how many bytes they have, and how many were taken.
fn write_run<'a>(
    stream: &mut impl Write,
    [first, second]: [&'a [u8]; 2],
    frames: &mut impl Iterator<Item = &'a [u8]>,
) -> (usize, io::Result<usize>) {
    let mut slices = [IoSlice::new(&[]); SLICES];
    let mut count = 0;
    for (slice, frame) in slices.iter_mut().zip([first, second].into_iter().chain(frames)) {
        *slice = IoSlice::new(frame);
        count += 1;
    }
    let bytes = slices[..count].iter().map(|slice| slice.len()).sum();
    (bytes, retry(|| stream.write_vectored(&slices[..count])))
}

/// Calls again what a signal has interrupted.
fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use mio::net::TcpStream;
    use sluicegate_core::{Effect, Lane, Limits, Notice, Pipe};
    use std::io::Read;
    use std::net::TcpListener;

    #[test]
    fn an_offer_of_more_frames_than_fit_one_call_is_written_whole() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut reader = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let writer = listener.accept().unwrap().0;
        writer.set_nonblocking(true).unwrap();
        let mut stream = TcpStream::from_std(writer);

        let mut broker = Broker::new(Limits::default(), 1);
        let tenant = broker.tenant(1).unwrap();
        let conn = broker.open(tenant).unwrap();
        let outlet = broker.outlet(conn, Pipe::Shared).unwrap();
        let sent: Vec<u8> = (0..80).collect();
        assert!(sent.len() > SLICES);
        for (n, byte) in sent.iter().enumerate() {
            let lane = if n < SLICES { Lane::First } else { Lane::InLine };
            broker.send(outlet, Bytes::from(vec![*byte]), lane).unwrap();
        }
        let offer = loop {
            match broker.poll() {
                Some(Effect::Write(offer)) => break offer,
                Some(Effect::Notice(Notice::Pause { .. })) => {}
                other => panic!("an offer is due, not {other:?}"),
            }
        };
        assert!(broker.frames(offer).count() > SLICES);
        assert_eq!(write_all(&mut stream, &broker, offer).unwrap(), offer.bytes);
        drop(stream);
        let mut received = Vec::new();
        reader.read_to_end(&mut received).unwrap();
        assert_eq!(received, sent);
    }
}
