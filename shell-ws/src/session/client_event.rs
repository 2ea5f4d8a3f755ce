//! Client events: what a subscriber may send to the other subscribers of its channel. These are
//! rules of the protocol; whether there is room for one is the core's decision.

use sluicegate_core::{Instant, Refusal};
use sluicegate_wire::pusher::{self, Kind, MAX_EVENT_NAME, close};
use std::fmt;

/// The most bytes of an event's data.
const MAX_DATA: usize = 10 << 10;

/// The most events of one connection in a second.
const PER_SECOND: u64 = 10;

/// Nanoseconds that one event takes of the allowance.
const PRICE: u64 = 1_000_000_000 / PER_SECOND;

/// Why an event is not relayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejected {
    /// The channel is public, or nobody may read what is sent to it.
    Channel,
    /// The data is this long.
    Data(usize),
    /// The name has this many characters.
    Name(usize),
    NotSubscribed,
    /// The app does not allow any.
    Off,
    /// There is no room for it.
    Overloaded(Refusal),
    /// There were too many in the last second.
    Rate,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Channel => f.write_str(
                "client events need a private or presence channel that is not encrypted",
            ),
            Self::Data(len) => write!(f, "data: {len} bytes, the limit is {MAX_DATA}"),
            Self::Name(len) => write!(f, "event: {len} characters, the limit is {MAX_EVENT_NAME}"),
            Self::NotSubscribed => f.write_str("subscribe to the channel before you send to it"),
            Self::Off => f.write_str("client events are off: set `client_events` of the app"),
            Self::Overloaded(why) => {
                write!(f, "refused at {}: {}; send it again", why.place.name(), why.reason.name())
            }
            Self::Rate => {
                write!(f, "more than {PER_SECOND} client events in a second: send fewer")
            }
        }
    }
}

/// Whether an event keeps the rules that do not depend on the connection.
pub(super) fn check(
    allowed: bool,
    name: &str,
    (channel, data): (&str, &str),
) -> Result<(), Rejected> {
    if !allowed {
        return Err(Rejected::Off);
    }
    match pusher::kind(channel) {
        Kind::Presence | Kind::Private => {}
        Kind::PrivateEncrypted | Kind::Public => return Err(Rejected::Channel),
    }
    let characters = name.chars().count();
    if characters > MAX_EVENT_NAME {
        return Err(Rejected::Name(characters));
    }
    if data.len() > MAX_DATA {
        return Err(Rejected::Data(data.len()));
    }
    Ok(())
}

/// How many events a connection may still send: a bucket that fills in a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    /// When the bucket is full again, in nanoseconds.
    full_at: u64,
}

impl Allowance {
    pub(super) const fn new() -> Self {
        Self { full_at: 0 }
    }

    /// Takes one event out of it.
    pub(super) fn spend(&mut self, now: Instant) -> Result<(), Rejected> {
        let now = now.as_nanos();
        let after = self.full_at.max(now) + PRICE;
        if after > now + PER_SECOND * PRICE {
            return Err(Rejected::Rate);
        }
        self.full_at = after;
        Ok(())
    }
}

/// Tells a client that so many of its events were discarded.
pub(super) fn shed(records: u64) -> String {
    let text = format!("the server is overloaded: {records} of your client events were discarded");
    pusher::error(Some(close::CLIENT_EVENT_REJECTED), &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_events_in_any_second_and_no_more() {
        let mut allowance = Allowance::new();
        let mut sent = Vec::new();
        for ms in 0..3_000 {
            if allowance.spend(Instant::from_millis(ms)).is_ok() {
                sent.push(ms);
            }
        }
        assert_eq!(sent[..11], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 100]);
        assert_eq!(sent.len(), 10 + 29);
        assert_eq!(allowance.spend(Instant::from_millis(2_999)), Err(Rejected::Rate));
    }

    #[test]
    fn each_rule_just_holds_and_just_does_not() {
        let (name, data) = ("client-".to_owned() + &"n".repeat(193), "x".repeat(MAX_DATA));
        let ask = |channel, name: &str, data: &str| check(true, name, (channel, data));
        assert_eq!(ask("private-a", &name, &data), Ok(()));
        assert_eq!(ask("presence-a", &name, &data), Ok(()));
        assert_eq!(ask("private-a", &(name.clone() + "n"), &data), Err(Rejected::Name(201)));
        assert_eq!(ask("private-a", &name, &(data.clone() + "x")), Err(Rejected::Data(10_241)));
        for channel in ["a", "private-encrypted-a", "cache-a"] {
            assert_eq!(ask(channel, &name, &data), Err(Rejected::Channel), "{channel}");
        }
        assert_eq!(check(false, &name, ("private-a", &data)), Err(Rejected::Off));
    }
}
