//! Reading: bounded per socket and turn, to the end of what the kernel has or to the end of the
//! socket's turn, after which it is queued again.

use super::Worker;
use super::socket::{Key, Socket};
use crate::session::{Action, Took};
use crate::shard::Shard;
use std::io::{ErrorKind, Read};

/// What one read takes.
pub(super) const CHUNK: usize = 64 << 10;

/// What a socket may read in one turn.
const BYTES_PER_TURN: usize = 128 << 10;

/// Requests or frames that a socket may bring in one turn.
const ITEMS_PER_TURN: u32 = 256;

/// An inbox that has grown beyond this is given back when it is empty.
const KEPT_INBOX: usize = 4 << 10;

/// Why a socket's turn is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The connection failed.
    Failed,
    /// It waits: for bytes, for a response to go out, for the core to resume it.
    Idle,
    /// The peer sends nothing more.
    Ended,
    /// It had its share: others first.
    Spent,
}

/// What became of bytes that a socket has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Digested {
    /// Nothing further is taken now.
    Blocked,
    /// More bytes are wanted.
    Hungry,
    /// The turn's items are used up.
    Spent,
}

impl Worker {
    /// Reads a socket and lets its session digest what is there.
    pub(super) fn serve(&mut self, key: Key) {
        if !key.is_live(&self.sockets) {
            return;
        }
        let socket = &mut self.sockets[key.index];
        socket.is_queued = false;
        let turn = take_turn(socket, &mut self.shard, &mut self.scratch);
        // Reading may answer, under TLS.
        let is_pending = socket.stream.is_pending();
        if let Some(post) = socket.session.take_post() {
            self.posted(key, post);
            if !key.is_live(&self.sockets) {
                return;
            }
        }
        let socket = &mut self.sockets[key.index];
        let action = match turn {
            Turn::Failed => Action::Drop,
            // Its last bytes are still on their way: the end comes after them.
            Turn::Ended if socket.is_ending => Action::None,
            Turn::Ended => self.hung_up(key),
            Turn::Idle => Action::None,
            Turn::Spent => {
                self.queue(key);
                Action::None
            }
        };
        if is_pending {
            self.want_writable(key, true);
        }
        self.report_unread(key);
        if key.is_live(&self.sockets) {
            self.act(key, action);
        }
    }

    /// What a socket has sent of something that is not whole counts as memory that is held.
    fn report_unread(&mut self, key: Key) {
        if !key.is_live(&self.sockets) {
            return;
        }
        let socket = &mut self.sockets[key.index];
        let unread = (socket.session.conn(), socket.inbox.len() + socket.session.unread());
        if socket.reported == unread || socket.reported.0 != unread.0 && unread.1 == 0 {
            return;
        }
        socket.reported = unread;
        // Refused where the connection is ending, and where it may publish less than a request
        // holds: what it sends is refused then.
        let _ = self.shard.broker.reassembly(unread.0, unread.1 as u64);
    }

    /// Serves a socket in the next turn.
    pub(super) fn queue(&mut self, key: Key) {
        let socket = &mut self.sockets[key.index];
        if !std::mem::replace(&mut socket.is_queued, true) {
            self.again.push_back(key);
        }
    }
}

fn take_turn(socket: &mut Socket, shard: &mut Shard, scratch: &mut [u8]) -> Turn {
    let mut items = ITEMS_PER_TURN;
    let mut bytes = 0;
    let mut digested = digest_inbox(socket, shard, &mut items);
    loop {
        match digested {
            Digested::Blocked => return Turn::Idle,
            Digested::Spent => return Turn::Spent,
            Digested::Hungry if socket.is_at_end => return Turn::Ended,
            Digested::Hungry if !socket.is_readable => return Turn::Idle,
            Digested::Hungry if bytes >= BYTES_PER_TURN => return Turn::Spent,
            Digested::Hungry => {}
        }
        match socket.stream.read(scratch) {
            Ok(0) => socket.is_at_end = true,
            Ok(n) => {
                bytes += n;
                digested = digest(socket, shard, &mut scratch[..n], &mut items);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => socket.is_readable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Turn::Failed,
        }
    }
}

/// Lets the session digest bytes that were just read. What it leaves is kept; usually it leaves
/// nothing, and nothing is copied.
fn digest(socket: &mut Socket, shard: &mut Shard, fresh: &mut [u8], items: &mut u32) -> Digested {
    if !socket.inbox.is_empty() {
        socket.inbox.extend_from_slice(fresh);
        return digest_inbox(socket, shard, items);
    }
    let (used, digested) = feed(socket, shard, fresh, items);
    socket.inbox.extend_from_slice(&fresh[used..]);
    digested
}

fn digest_inbox(socket: &mut Socket, shard: &mut Shard, items: &mut u32) -> Digested {
    if socket.inbox.len() < socket.need {
        return Digested::Hungry;
    }
    let mut inbox = std::mem::take(&mut socket.inbox);
    let (used, digested) = feed(socket, shard, &mut inbox, items);
    inbox.drain(..used);
    if !inbox.is_empty() || inbox.capacity() <= KEPT_INBOX {
        socket.inbox = inbox;
    }
    digested
}

/// Feeds a session item by item. Returns how many bytes are done with.
fn feed(
    socket: &mut Socket,
    shard: &mut Shard,
    buf: &mut [u8],
    items: &mut u32,
) -> (usize, Digested) {
    let mut used = 0;
    // What it needed, it needed for an item that is whole now.
    socket.need = 0;
    loop {
        if socket.session.is_paused(shard) {
            return (used, Digested::Blocked);
        }
        if *items == 0 {
            return (used, Digested::Spent);
        }
        match socket.session.receive(shard, &mut buf[used..]) {
            Took::Blocked => return (used, Digested::Blocked),
            Took::Need(total) => {
                debug_assert!(total > buf.len() - used, "more than there is");
                socket.need = total;
                return (used, Digested::Hungry);
            }
            Took::Used(n) => {
                used += n;
                *items -= 1;
            }
        }
    }
}
