//! Bytes to frames.

use super::reader::Reader;
use super::{
    Code, Fault, Frame, MAX_NAME, MAX_TEXT, MAX_TOKEN, Mode, Policy, Records, Refusal, Retry,
    Start, Welcome,
};

/// Types of frames. Those from [`OPTIONAL`] on may be passed over by who does not know them.
pub(super) mod kind {
    pub(crate) const HELLO: u8 = 0x01;
    pub(crate) const WELCOME: u8 = 0x02;
    pub(crate) const BIND: u8 = 0x03;
    pub(crate) const BOUND: u8 = 0x04;
    pub(crate) const PUBLISH: u8 = 0x05;
    pub(crate) const ACK: u8 = 0x06;
    pub(crate) const REFUSED: u8 = 0x07;
    pub(crate) const SHED: u8 = 0x08;
    pub(crate) const SUBSCRIBE: u8 = 0x09;
    pub(crate) const SUBSCRIBED: u8 = 0x0a;
    pub(crate) const EVENTS: u8 = 0x0b;
    pub(crate) const GAP: u8 = 0x0c;
    pub(crate) const UNSUBSCRIBE: u8 = 0x0d;
    pub(crate) const ENDED: u8 = 0x0e;
    pub(crate) const PING: u8 = 0x0f;
    pub(crate) const PONG: u8 = 0x10;
    pub(crate) const GO_AWAY: u8 = 0x11;
    pub(crate) const ERROR: u8 = 0x12;
    pub(crate) const OPTIONAL: u8 = 0x80;
}

/// Reads one frame, as [`Assembler`](super::Assembler) gives it. None for a type that a later
/// version has added and that may be passed over. Cost: O(records).
///
/// # Errors
/// For any bytes that are no frame; the peer has broken the protocol.
pub fn decode(frame: &[u8]) -> Result<Option<Frame<'_>>, Fault> {
    match frame.first() {
        Some(kind::OPTIONAL..) => Ok(None),
        _ => known(frame).map(Some),
    }
}

fn known(frame: &[u8]) -> Result<Frame<'_>, Fault> {
    let mut fields = Reader(frame);
    let kind = fields.byte()?;
    // Batches end with their records and have no room for more fields.
    match kind {
        kind::EVENTS => {
            let first = fields.fixed()?;
            return Ok(Frame::Events { first, records: Records::decode(fields.0)? });
        }
        kind::PUBLISH => {
            let (topic, mode) = (fields.small()?, mode(&mut fields)?);
            return Ok(Frame::Publish { topic, mode, records: Records::decode(fields.0)? });
        }
        _ => {}
    }
    let frame = match kind {
        kind::HELLO | kind::BIND | kind::SUBSCRIBE | kind::UNSUBSCRIBE => ask(kind, &mut fields)?,
        kind::PING => Frame::Ping { token: fields.fixed()? },
        kind::PONG => Frame::Pong { token: fields.fixed()? },
        _ => answer(kind, &mut fields)?,
    };
    fields.end()?;
    Ok(frame)
}

/// What clients send.
fn ask<'a>(kind: u8, fields: &mut Reader<'a>) -> Result<Frame<'a>, Fault> {
    Ok(match kind {
        kind::HELLO => Frame::Hello {
            oldest: fields.small()?,
            newest: fields.small()?,
            features: fields.number()?,
            tenant: fields.text(MAX_NAME)?,
            token: fields.text(MAX_TOKEN)?,
        },
        kind::BIND => {
            let (request, rights) = (fields.number()?, fields.byte()?);
            if rights > 3 {
                return Err(Fault::Choice(rights));
            }
            let topic = fields.text(MAX_NAME)?;
            Frame::Bind { request, publish: rights & 1 > 0, subscribe: rights & 2 > 0, topic }
        }
        kind::SUBSCRIBE => Frame::Subscribe {
            request: fields.number()?,
            topic: fields.small()?,
            policy: policy(fields)?,
            batches: fields.small()?,
            bytes: fields.number()?,
            start: start(fields)?,
        },
        _ => Frame::Unsubscribe { subscription: fields.small()? },
    })
}

/// What servers send.
fn answer<'a>(kind: u8, fields: &mut Reader<'a>) -> Result<Frame<'a>, Fault> {
    Ok(match kind {
        kind::WELCOME => Frame::Welcome(welcome(fields)?),
        kind::BOUND => Frame::Bound {
            request: fields.number()?,
            topic: fields.small()?,
            epoch: fields.fixed()?,
        },
        kind::ACK => Frame::Ack { request: fields.number()?, first: fields.number()? },
        kind::REFUSED => Frame::Refused { request: fields.number()?, why: refusal(fields)? },
        kind::SHED => Frame::Shed { records: fields.number()?, why: refusal(fields)? },
        kind::SUBSCRIBED => Frame::Subscribed {
            request: fields.number()?,
            subscription: fields.small()?,
            epoch: fields.fixed()?,
            start: fields.number()?,
        },
        kind::GAP => Frame::Gap {
            first: fields.number()?,
            last: fields.number()?,
            records: fields.number()?,
            why: refusal(fields)?,
        },
        kind::ENDED => Frame::Ended { why: refusal(fields)? },
        kind::GO_AWAY => Frame::GoAway { grace_ms: fields.number()? },
        kind::ERROR => {
            let number = fields.byte()?;
            let code = Code::from_number(number.into()).ok_or(Fault::Choice(number))?;
            Frame::Error { code, text: fields.text(MAX_TEXT)? }
        }
        kind => return Err(Fault::Type(kind)),
    })
}

fn welcome(fields: &mut Reader<'_>) -> Result<Welcome, Fault> {
    Ok(Welcome {
        version: fields.small()?,
        features: fields.number()?,
        session: fields.fixed()?,
        time_ms: fields.number()?,
        max_frame_bytes: fields.number()?,
        max_subscriptions: fields.small()?,
        max_topics: fields.small()?,
        max_publish_streams: fields.small()?,
        idle_ms: fields.number()?,
    })
}

fn mode(fields: &mut Reader<'_>) -> Result<Mode, Fault> {
    Ok(match fields.byte()? {
        0 => Mode::Unacked,
        1 => Mode::Acked { request: fields.number()? },
        2 => Mode::Waiting { request: fields.number()? },
        other => return Err(Fault::Choice(other)),
    })
}

fn policy(fields: &mut Reader<'_>) -> Result<Policy, Fault> {
    Ok(match fields.byte()? {
        0 => Policy::Default,
        1 => Policy::Block,
        2 => Policy::DropNew,
        3 => Policy::DropOld,
        4 => Policy::Latest,
        other => return Err(Fault::Choice(other)),
    })
}

fn start(fields: &mut Reader<'_>) -> Result<Start, Fault> {
    Ok(match fields.byte()? {
        0 => Start::Tail,
        1 => Start::Earliest,
        2 => Start::Last(fields.number()?),
        3 => Start::At { epoch: fields.fixed()?, sequence: fields.number()? },
        other => return Err(Fault::Choice(other)),
    })
}

fn refusal(fields: &mut Reader<'_>) -> Result<Refusal, Fault> {
    let (place, reason) = (fields.byte()?, fields.byte()?);
    let retry = match fields.byte()? {
        0 => Retry::Never,
        1 => Retry::After(fields.small()?),
        2 => Retry::Unknown,
        other => return Err(Fault::Choice(other)),
    };
    Ok(Refusal { place, reason, retry })
}
