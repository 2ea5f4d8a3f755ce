//! Frames to bytes.

use super::decode::kind;
use super::{Frame, Mode, Policy, Refusal, Retry, Start, Welcome, records, varint};
use alloc::vec::Vec;

impl Frame<'_> {
    /// Appends the frame with its length in front.
    pub fn put(&self, out: &mut Vec<u8>) {
        let mut body = Vec::with_capacity(64);
        self.put_body(&mut body);
        varint::put(out, body.len() as u64);
        out.extend_from_slice(&body);
    }

    /// The frame with its length in front.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(72);
        self.put(&mut out);
        out
    }

    fn put_body(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello { .. }
            | Self::Bind { .. }
            | Self::Subscribe { .. }
            | Self::Unsubscribe { .. }
            | Self::Publish { .. } => self.put_asked(out),
            Self::Ping { token } => {
                out.push(kind::PING);
                out.extend_from_slice(&token.to_be_bytes());
            }
            Self::Pong { token } => {
                out.push(kind::PONG);
                out.extend_from_slice(&token.to_be_bytes());
            }
            _ => self.put_answer(out),
        }
    }

    /// What clients send.
    fn put_asked(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Hello { oldest, newest, features, tenant, token } => {
                out.push(kind::HELLO);
                varint::put(out, oldest.into());
                varint::put(out, newest.into());
                varint::put(out, features);
                put_bytes(out, tenant.as_bytes());
                put_bytes(out, token.as_bytes());
            }
            Self::Bind { request, publish, subscribe, topic } => {
                out.push(kind::BIND);
                varint::put(out, request);
                out.push(u8::from(publish) | u8::from(subscribe) << 1);
                put_bytes(out, topic.as_bytes());
            }
            Self::Subscribe { request, topic, policy, batches, bytes, start } => {
                out.push(kind::SUBSCRIBE);
                varint::put(out, request);
                varint::put(out, topic.into());
                out.push(policy_number(policy));
                varint::put(out, batches.into());
                varint::put(out, bytes);
                put_start(out, start);
            }
            Self::Unsubscribe { subscription } => {
                out.push(kind::UNSUBSCRIBE);
                varint::put(out, subscription.into());
            }
            Self::Publish { topic, mode, records } => {
                put_publish_head(out, topic, mode);
                out.extend_from_slice(records.block());
            }
            _ => unreachable!("the caller has sorted them"),
        }
    }

    /// What servers send.
    fn put_answer(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Ack { request, first } => put_numbers(out, kind::ACK, [request, first]),
            Self::Bound { request, topic, epoch } => {
                put_numbers(out, kind::BOUND, [request, topic.into()]);
                out.extend_from_slice(&epoch.to_be_bytes());
            }
            Self::Ended { why } => {
                out.push(kind::ENDED);
                put_refusal(out, why);
            }
            Self::Error { code, text } => {
                out.extend([kind::ERROR, code.number()]);
                put_bytes(out, text.as_bytes());
            }
            Self::Events { first, records } => {
                out.push(kind::EVENTS);
                out.extend_from_slice(&first.to_be_bytes());
                out.extend_from_slice(records.block());
            }
            Self::Gap { first, last, records, why } => {
                put_numbers(out, kind::GAP, [first, last, records]);
                put_refusal(out, why);
            }
            Self::GoAway { grace_ms } => put_numbers(out, kind::GO_AWAY, [grace_ms]),
            Self::Refused { request, why } => {
                put_numbers(out, kind::REFUSED, [request]);
                put_refusal(out, why);
            }
            Self::Shed { records, why } => {
                put_numbers(out, kind::SHED, [records]);
                put_refusal(out, why);
            }
            Self::Subscribed { request, subscription, epoch, start } => {
                put_numbers(out, kind::SUBSCRIBED, [request, subscription.into()]);
                out.extend_from_slice(&epoch.to_be_bytes());
                varint::put(out, start);
            }
            Self::Welcome(ref welcome) => put_welcome(out, welcome),
            _ => unreachable!("the caller has sorted them"),
        }
    }
}

/// Appends the frame of a publish, with its length in front. `records` must be 1 to
/// [`MAX_RECORDS`](super::MAX_RECORDS). Cost: one copy of the records.
pub fn put_publish<R: AsRef<[u8]>>(out: &mut Vec<u8>, topic: u32, mode: Mode, records: &[R]) {
    let mut head = Vec::with_capacity(super::PUBLISH_HEAD);
    put_publish_head(&mut head, topic, mode);
    let len = head.len() + records::len(records);
    out.reserve(varint::len(len as u64) + len);
    varint::put(out, len as u64);
    out.extend_from_slice(&head);
    records::put(out, records);
}

/// Appends what goes before a block of records of `block` bytes to make it events: at most
/// [`EVENTS_HEAD`](super::EVENTS_HEAD) bytes.
pub fn events_head(out: &mut Vec<u8>, first: u64, block: usize) {
    varint::put(out, 1 + 8 + block as u64);
    out.push(kind::EVENTS);
    out.extend_from_slice(&first.to_be_bytes());
}

fn put_publish_head(out: &mut Vec<u8>, topic: u32, mode: Mode) {
    out.push(kind::PUBLISH);
    varint::put(out, topic.into());
    match mode {
        Mode::Unacked => out.push(0),
        Mode::Acked { request } => {
            out.push(1);
            varint::put(out, request);
        }
        Mode::Waiting { request } => {
            out.push(2);
            varint::put(out, request);
        }
    }
}

fn put_numbers<const N: usize>(out: &mut Vec<u8>, kind: u8, numbers: [u64; N]) {
    out.push(kind);
    for number in numbers {
        varint::put(out, number);
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

const fn policy_number(policy: Policy) -> u8 {
    match policy {
        Policy::Default => 0,
        Policy::Block => 1,
        Policy::DropNew => 2,
        Policy::DropOld => 3,
        Policy::Latest => 4,
    }
}

fn put_start(out: &mut Vec<u8>, start: Start) {
    match start {
        Start::Tail => out.push(0),
        Start::Earliest => out.push(1),
        Start::Last(records) => {
            out.push(2);
            varint::put(out, records);
        }
        Start::At { epoch, sequence } => {
            out.push(3);
            out.extend_from_slice(&epoch.to_be_bytes());
            varint::put(out, sequence);
        }
    }
}

fn put_refusal(out: &mut Vec<u8>, why: Refusal) {
    out.extend([why.place, why.reason]);
    match why.retry {
        Retry::Never => out.push(0),
        Retry::After(millis) => {
            out.push(1);
            varint::put(out, millis.into());
        }
        Retry::Unknown => out.push(2),
    }
}

fn put_welcome(out: &mut Vec<u8>, welcome: &Welcome) {
    out.push(kind::WELCOME);
    varint::put(out, welcome.version.into());
    varint::put(out, welcome.features);
    out.extend_from_slice(&welcome.session.to_be_bytes());
    for number in [
        welcome.time_ms,
        welcome.max_frame_bytes,
        welcome.max_subscriptions.into(),
        welcome.max_topics.into(),
        welcome.max_publish_streams.into(),
        welcome.idle_ms,
    ] {
        varint::put(out, number);
    }
}
