//! One connection that echoes, as a value: bytes in, bytes out.

use sluicegate_wire::http::{self, Parse};
use sluicegate_wire::ws::{self, Decoder, Event, Fault, Opcode, Step};

/// A connection. Holds at most one message that is not whole, and what it answers to the bytes that
/// it was given last: give it more when that has gone out.
#[derive(Debug)]
pub(crate) struct Conn {
    max_message: usize,
    phase: Phase,
    inbox: Vec<u8>,
    /// It is not worth looking before the inbox holds this much.
    need: usize,
    out: Vec<u8>,
}

#[derive(Debug)]
enum Phase {
    Http,
    WebSocket(Decoder),
    /// Nothing more is read or said.
    Over,
}

impl Conn {
    /// A connection whose messages are at most `max_message` bytes.
    pub(crate) const fn new(max_message: usize) -> Self {
        Self { max_message, phase: Phase::Http, inbox: Vec::new(), need: 0, out: Vec::new() }
    }

    /// Takes what was received, and answers whatever in it is whole.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        if matches!(self.phase, Phase::Over) {
            return;
        }
        self.inbox.extend_from_slice(bytes);
        if self.inbox.len() < self.need {
            return;
        }
        let mut inbox = std::mem::take(&mut self.inbox);
        let mut used = 0;
        self.need = 0;
        while let Some(taken) = self.step(&mut inbox[used..]) {
            used += taken;
        }
        inbox.drain(..used);
        self.inbox = inbox;
    }

    /// What is to be sent. Take from its front what was sent.
    pub(crate) const fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Whether the connection ends when all was sent.
    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// Takes one item, or nothing when more must come first.
    fn step(&mut self, buf: &mut [u8]) -> Option<usize> {
        match &mut self.phase {
            Phase::Http => self.shake_hands(buf),
            Phase::WebSocket(decoder) => match decoder.decode(buf) {
                Ok(Step::Need(total)) => {
                    self.need = total;
                    None
                }
                Ok(Step::Took { consumed, event }) => {
                    let ends = event.is_some_and(|event| answer(event, &mut self.out));
                    decoder.release();
                    if ends {
                        self.phase = Phase::Over;
                    }
                    Some(consumed)
                }
                Err(fault) => {
                    self.fail(fault);
                    Some(buf.len())
                }
            },
            Phase::Over => None,
        }
    }

    fn shake_hands(&mut self, buf: &[u8]) -> Option<usize> {
        let (answer, taken, phase) = match http::parse(buf) {
            Ok(Parse::NeedMore) => return None,
            Ok(Parse::Head(head)) => match head.upgrade {
                Some(upgrade) => {
                    let hello = http::switching_protocols(upgrade.key);
                    (hello, head.len, Phase::WebSocket(Decoder::new(self.max_message)))
                }
                None => {
                    let text = b"this server speaks WebSocket\n";
                    (http::response(400, http::PLAIN, false, text), buf.len(), Phase::Over)
                }
            },
            Err(fault) => (fault.response(), buf.len(), Phase::Over),
        };
        self.out.extend(answer);
        self.phase = phase;
        Some(taken)
    }

    fn fail(&mut self, fault: Fault) {
        self.out.extend(ws::close_frame(fault.close_code(), &fault.to_string()));
        self.phase = Phase::Over;
    }
}

/// Answers one event. True when the connection ends.
fn answer(event: Event<'_>, out: &mut Vec<u8>) -> bool {
    match event {
        Event::Text(text) => out.extend(ws::frame(Opcode::Text, text.as_bytes())),
        Event::Binary(bytes) => out.extend(ws::frame(Opcode::Binary, bytes)),
        Event::Ping(payload) => out.extend(ws::frame(Opcode::Pong, payload)),
        Event::Pong(_) => {}
        Event::Close { code, .. } => {
            out.extend(match code {
                Some(code) => ws::close_frame(code, ""),
                None => ws::frame(Opcode::Close, b""),
            });
            return true;
        }
    }
    false
}
