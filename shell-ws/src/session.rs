//! One connection, from its first byte to its last, as a value.
//!
//! A session gets bytes and notices and makes calls of the core; it has no socket and no clock.
//! The host tells it which deadline ran out; [`Session::wait`] says which one runs.
//!
//! ```text
//!  Http (request, response, request …) ─┬─► WebSocket ─┬─► Closing ─► Lingering
//!                                       └──────────────┘
//! ```
//!
//! A session of the HTTP fallback begins as a WebSocket: [`Session::fallback`].
//!
//! Bounds: a session holds no queue. An HTTP request is read when the response before it has gone
//! out; a WebSocket's commands are read while the core does not pause it.

mod auth;
mod channel;
mod client_event;
pub mod fallback;
mod http;
mod ledger;
mod query;
mod rest;
mod route;
mod subscribing;
mod user;
mod websocket;

#[cfg(test)]
mod tests;

use crate::shard::{Shard, Word};
use bytes::Bytes;
use fallback::{Part, Post};
use http::Http;
use sluicegate_core::{Close, ConnId, Gap, Lane, Notice, OutletId, Refusal, SubId};
use sluicegate_wire::pusher;
use sluicegate_wire::ws::{self, Opcode};
use websocket::WebSocket;

pub use subscribing::MAX_CHANNELS;

/// The largest message of a WebSocket client: the data of an event (10 KiB, every character
/// escaped) and its envelope.
pub const MAX_MESSAGE: usize = 64 << 10;

/// One connection.
#[derive(Debug)]
pub struct Session {
    link: Link,
    mode: Mode,
    /// Changes whenever a deadline starts anew.
    serial: u64,
    /// The client asked to be told what it loses.
    wants_gaps: bool,
}

#[derive(Debug)]
enum Mode {
    /// The core flushes; what is read is thrown away.
    Closing,
    Http(Http),
    /// Our side is shut. What is read is thrown away until the peer's side is shut too: no reset
    /// may overtake our last bytes.
    Lingering,
    WebSocket(Box<WebSocket>),
}

/// What became of bytes that were received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Took {
    /// Nothing is read until a response has gone out.
    Blocked,
    /// Nothing was used; it is worth calling again with this many bytes in total.
    Need(usize),
    /// So many bytes are done with: call again with the rest.
    Used(usize),
}

/// What the host must do to the transport.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Close it at once.
    Drop,
    /// Nothing.
    None,
    /// Shut the sending side, and go on reading.
    ShutDown,
}

/// Which deadline runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// WebSocket: until the peer is asked for a sign of life.
    Activity,
    /// None: a response carries what is said in a session of the fallback, which has its own.
    Carry,
    /// HTTP fallback: a client must ask for its next response.
    Detached,
    /// What waits must be written.
    Flush,
    /// WebSocket: the app is for users who say who they are.
    Identity,
    /// HTTP: until the next request begins.
    Idle,
    /// The peer must shut its side.
    Linger,
    /// WebSocket: the peer must give a sign of life.
    Pong,
    /// HTTP: a request must be whole.
    Request,
    /// HTTP: a response must be made and written.
    Response,
}

impl Wait {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Activity,
        Self::Carry,
        Self::Detached,
        Self::Flush,
        Self::Identity,
        Self::Idle,
        Self::Linger,
        Self::Pong,
        Self::Request,
        Self::Response,
    ];
}

/// A session's place in the core.
#[derive(Clone, Copy, Debug)]
struct Link {
    owner: u64,
    conn: ConnId,
    outlet: OutletId,
}

/// What one part of a session did with received bytes.
#[derive(Debug)]
enum Step {
    Blocked,
    /// So many bytes were used, and the connection is being closed.
    Closing(usize),
    Need(usize),
    /// The connection is a WebSocket from here on.
    Upgraded(usize, Link, Box<WebSocket>),
    Used(usize),
}

impl Link {
    fn send(self, shard: &mut Shard, frame: Vec<u8>, lane: Lane) {
        self.send_frame(shard, Bytes::from(frame), lane);
    }

    /// Queues control bytes. Without room for them the core gives the connection up and says so
    /// in a close notice, so there is nothing to do about it here.
    fn send_frame(self, shard: &mut Shard, frame: Bytes, lane: Lane) {
        let _ = shard.broker.send(self.outlet, frame, lane);
    }

    fn say(self, shard: &mut Shard, text: &str, lane: Lane) {
        self.send(shard, ws::frame(Opcode::Text, text.as_bytes()), lane);
    }

    fn close(self, shard: &mut Shard, how: Close, last: Vec<u8>) {
        // Refused only when the connection is closing already.
        let _ = shard.broker.close(self.conn, how, Bytes::from(last));
    }

    /// Ends a WebSocket with a code: an error frame for clients that know no close codes, then the
    /// close frame.
    fn close_with(self, shard: &mut Shard, how: Close, code: u16, reason: &str) {
        let lane = if how == Close::Now { Lane::First } else { Lane::InLine };
        if code >= 4000 {
            self.say(shard, &pusher::error(Some(code), reason), lane);
        }
        self.close(shard, how, ws::close_frame(code, reason));
    }
}

impl Session {
    /// A new connection, which speaks HTTP until it says otherwise.
    pub fn open(shard: &mut Shard) -> Result<Self, Refusal> {
        let (conn, outlet) = shard.open_house()?;
        let link = Link { owner: u64::MAX, conn, outlet };
        Ok(Self { link, mode: Mode::Http(Http::default()), serial: 0, wants_gaps: false })
    }

    /// Names the session: `owner` is what the shard answers when it is asked whose an id of the
    /// core is.
    pub fn settle(&mut self, shard: &mut Shard, owner: u64) {
        self.link.owner = owner;
        shard.settle(self.link.conn, self.link.outlet, owner);
    }

    /// Takes at most one request or frame from the front of `buf`; frames are unmasked in place.
    /// Cost: O(bytes it takes), and for a request that is not whole O(bytes of its head).
    pub fn receive(&mut self, shard: &mut Shard, buf: &mut [u8]) -> Took {
        let step = match &mut self.mode {
            Mode::Closing | Mode::Lingering if buf.is_empty() => return Took::Need(1),
            Mode::Closing | Mode::Lingering => return Took::Used(buf.len()),
            Mode::Http(http) => http.receive(shard, self.link, buf),
            Mode::WebSocket(socket) => socket.receive(shard, self.link, buf),
        };
        let used = match step {
            Step::Blocked => return Took::Blocked,
            Step::Need(total) => return Took::Need(total),
            Step::Closing(used) => {
                self.begin_closing(shard);
                used
            }
            Step::Upgraded(used, link, socket) => {
                self.leave_mode(shard);
                self.wants_gaps = socket.wants_gaps();
                shard.broker.gone(self.link.conn);
                self.link = link;
                self.mode = Mode::WebSocket(socket);
                used
            }
            Step::Used(used) => used,
        };
        self.serial += 1;
        Took::Used(used)
    }

    /// The peer sends nothing more, and all it sent was offered to [`receive`](Self::receive). What
    /// waits for it is still sent.
    pub fn end_of_input(&mut self, shard: &mut Shard) -> Action {
        match &mut self.mode {
            Mode::Closing => return Action::None,
            Mode::Lingering => return Action::Drop,
            Mode::Http(http) => http.end_of_input(shard, self.link),
            Mode::WebSocket(_) => {
                self.link.close(shard, Close::AfterFlush, ws::close_frame(1000, ""))
            }
        }
        self.begin_closing(shard);
        Action::None
    }

    /// The transport accepted bytes. `None`: that changes nothing, and no deadline either. True
    /// when there is something to read again that was blocked.
    pub fn written(&mut self, bytes: u64) -> Option<bool> {
        match &mut self.mode {
            Mode::Http(http) => Some(http.written(bytes)),
            Mode::Closing | Mode::Lingering | Mode::WebSocket(_) => None,
        }
    }

    /// What the shard has to say to this session: what others answer, or wish.
    pub fn word(&mut self, shard: &mut Shard, word: Word) {
        let ended = match &mut self.mode {
            Mode::WebSocket(socket) => socket.word(shard, self.link, word),
            Mode::Http(http) => match word {
                Word::Answer { request, index, answer } => {
                    http.answered(shard, self.link, (request, index), answer)
                }
                Word::Entered { .. } | Word::Overflow | Word::Terminate => false,
            },
            Mode::Closing | Mode::Lingering => false,
        };
        if ended {
            self.begin_closing(shard);
            self.serial += 1;
        }
    }

    /// The owner of a topic has answered a subscription: it is in force, or refused.
    pub fn joined(&mut self, shard: &mut Shard, sub: SubId, refusal: Option<Refusal>) {
        if let Mode::WebSocket(socket) = &mut self.mode {
            socket.joined(shard, self.link, (sub, refusal));
        }
    }

    /// Events of a channel were dropped before the next one that is written. First, so right there
    /// between them: the core has everything before the gap written before it tells it.
    pub fn gap(&mut self, shard: &mut Shard, channel: &str, gap: &Gap) {
        if self.wants_gaps {
            let cause = (gap.place.name(), gap.reason.name());
            self.link.say(shard, &pusher::gap(channel, gap.records, cause), Lane::First);
        }
    }

    /// What the core has to say about one of this session's connections.
    pub fn notice(&mut self, shard: &mut Shard, notice: Notice) -> Action {
        let ended = match (notice, &mut self.mode) {
            (Notice::Flushed { .. }, Mode::Closing) => {
                self.mode = Mode::Lingering;
                return Action::ShutDown;
            }
            (Notice::Close { .. }, Mode::Http(_) | Mode::WebSocket(_)) => {
                self.link.close(shard, Close::Now, self.overflow());
                true
            }
            (Notice::Committed { .. }, Mode::Http(http)) => http.committed(shard, self.link, None),
            (Notice::Failed { why, .. }, Mode::Http(http)) => {
                http.committed(shard, self.link, Some(why))
            }
            (Notice::Shed { records, .. }, Mode::WebSocket(_)) => {
                self.link.say(shard, &client_event::shed(records), Lane::First);
                false
            }
            // Pausing is the host's; gaps have a way of their own; sheds are for publishers
            // that want no answer, which only WebSocket clients are.
            _ => false,
        };
        if ended {
            self.begin_closing(shard);
        }
        Action::None
    }

    /// The last frame of a connection whose control frames found no room.
    fn overflow(&self) -> Vec<u8> {
        match self.mode {
            Mode::WebSocket(_) => {
                ws::close_frame(pusher::close::OVER_CAPACITY, "replies were not read")
            }
            _ => Vec::new(),
        }
    }

    /// The deadline that runs, and a number that changes when it starts anew.
    pub const fn wait(&self) -> (Wait, u64) {
        let wait = match &self.mode {
            Mode::Closing => Wait::Flush,
            Mode::Http(http) => http.wait(),
            Mode::Lingering => Wait::Linger,
            Mode::WebSocket(socket) => socket.wait(),
        };
        // Whatever else a stranger says does not make its time longer.
        let serial = if matches!(wait, Wait::Identity) { 0 } else { self.serial };
        (wait, serial)
    }

    /// The deadline of [`wait`](Self::wait) ran out.
    pub fn timeout(&mut self, shard: &mut Shard) -> Action {
        self.serial += 1;
        match &mut self.mode {
            Mode::Closing | Mode::Lingering => return Action::Drop,
            Mode::Http(http) => {
                if !http.timeout(shard, self.link) {
                    return Action::Drop;
                }
            }
            Mode::WebSocket(socket) => {
                if !socket.timeout(shard, self.link) {
                    return Action::None;
                }
            }
        }
        self.begin_closing(shard);
        Action::None
    }

    /// The server is being stopped: what waits is sent, then the connection ends. A request that is
    /// being answered is answered first.
    pub fn shut_down(&mut self, shard: &mut Shard) {
        match &self.mode {
            Mode::Closing | Mode::Lingering => return,
            Mode::Http(http) if http.is_busy() => return,
            Mode::Http(_) => self.link.close(shard, Close::AfterFlush, Vec::new()),
            Mode::WebSocket(_) => {
                let code = pusher::close::RECONNECT;
                self.link.close_with(shard, Close::AfterFlush, code, "the server is being stopped");
            }
        }
        self.begin_closing(shard);
        self.serial += 1;
    }

    /// Other apps are served: a connection of one that is not served any more is closed, and what
    /// waits for it is sent before. A request that is being answered is answered first.
    pub fn apps_changed(&mut self, shard: &mut Shard) {
        let ended = match &mut self.mode {
            Mode::Closing | Mode::Lingering => false,
            Mode::Http(http) => {
                http.apps_changed(shard);
                false
            }
            Mode::WebSocket(socket) => socket.apps_changed(shard, self.link),
        };
        if ended {
            self.begin_closing(shard);
            self.serial += 1;
        }
    }

    /// The transport is gone.
    pub fn end(mut self, shard: &mut Shard) {
        self.leave_mode(shard);
        shard.broker.gone(self.link.conn);
    }

    /// The core was told to close the connection.
    fn begin_closing(&mut self, shard: &mut Shard) {
        self.leave_mode(shard);
        self.mode = Mode::Closing;
    }

    /// Frees what only this mode needs.
    fn leave_mode(&mut self, shard: &mut Shard) {
        match &mut self.mode {
            Mode::Http(http) => http.leave(shard),
            Mode::WebSocket(socket) => socket.leave(shard, self.link),
            Mode::Closing | Mode::Lingering => {}
        }
    }

    /// The outlet that is written to the transport.
    pub const fn outlet(&self) -> OutletId {
        self.link.outlet
    }

    /// The connection of the core that is read.
    pub const fn conn(&self) -> ConnId {
        self.link.conn
    }

    /// A new session of the HTTP fallback: from its first byte on what a WebSocket is after its
    /// handshake. Frames go in and out, and the host makes lines of them. Or why there is none: a
    /// close code and its reason.
    pub fn fallback(shard: &mut Shard, post: &Post) -> Result<Self, (u16, String)> {
        let asked = (post.query.as_str(), post.origin.as_deref());
        let (link, admitted) = http::open(shard, u64::MAX, Some(post.name.key()), asked)?;
        let socket = Box::new(http::establish(shard, link, admitted));
        let wants_gaps = socket.wants_gaps();
        Ok(Self { link, mode: Mode::WebSocket(socket), serial: 0, wants_gaps })
    }

    /// What a request of the fallback asks: the host answers it with [`answer`](Self::answer). It
    /// is told once.
    pub fn take_post(&mut self) -> Option<Box<Post>> {
        match &mut self.mode {
            Mode::Http(http) => http.take_post(),
            Mode::Closing | Mode::Lingering | Mode::WebSocket(_) => None,
        }
    }

    /// A part of the response to a request of the fallback.
    pub fn answer(&mut self, shard: &mut Shard, part: Part) {
        let Mode::Http(http) = &mut self.mode else { return };
        http.part(shard, self.link, part);
        if !http.is_carrying() {
            let ends = !http.keeps_alive();
            self.serial += 1;
            if ends {
                self.begin_closing(shard);
            }
        }
    }

    /// Goes on with a request of the fallback that another shard has read.
    pub fn resume(&mut self, keep_alive: bool) {
        if let Mode::Http(http) = &mut self.mode {
            http.resume(keep_alive);
        }
    }

    /// Whether a request of the fallback is being answered, and all that was said is written.
    pub const fn can_carry(&self) -> bool {
        match &self.mode {
            Mode::Http(http) => http.can_carry(),
            Mode::Closing | Mode::Lingering | Mode::WebSocket(_) => false,
        }
    }

    /// Whether a request of the fallback is being answered.
    pub const fn is_carrying(&self) -> bool {
        match &self.mode {
            Mode::Http(http) => http.is_carrying(),
            Mode::Closing | Mode::Lingering | Mode::WebSocket(_) => false,
        }
    }

    /// Whether the connection stays open after the response, as far as is known.
    pub const fn keeps_alive(&self) -> bool {
        match &self.mode {
            Mode::Http(http) => http.keeps_alive(),
            Mode::Closing | Mode::Lingering | Mode::WebSocket(_) => false,
        }
    }

    /// The client has sent more than is taken at once: nothing of it is lost in silence.
    pub fn flooded(&mut self, shard: &mut Shard) {
        if matches!(self.mode, Mode::WebSocket(_)) {
            let text = "more was sent than is taken at once";
            self.link.close_with(shard, Close::Now, pusher::close::OVER_CAPACITY, text);
            self.begin_closing(shard);
        }
    }

    /// Bytes of a message that is not whole.
    pub fn unread(&self) -> usize {
        match &self.mode {
            Mode::WebSocket(socket) => socket.unread(),
            Mode::Closing | Mode::Http(_) | Mode::Lingering => 0,
        }
    }

    /// Whether a connection of the core is this session's.
    pub fn owns(&self, conn: ConnId) -> bool {
        let source = match &self.mode {
            Mode::Http(http) => http.source(),
            _ => None,
        };
        self.link.conn == conn || source == Some(conn)
    }

    /// Whether the core wants nothing further read.
    pub fn is_paused(&self, shard: &Shard) -> bool {
        shard.broker.is_paused(self.link.conn)
    }
}
