//! Checkpoint 1, window: publish bytes in flight, shared by the workers of a client.
//!
//! Question:  may these bytes be in flight now, or when is it their turn?
//! Invariant: what is in flight is within the window, or is one item that is larger than it; a
//!            permit is granted to the first who waits, or to a newcomer when nobody waits.
//! When full: waits, first come, first served; no item overtakes a larger one. A waiter more than
//!            the line takes is refused (`limit`), and so is at once what no broker would take
//!            (`oversize`).
//! Proof:     `just_fits_and_just_does_not`, `a_small_item_does_not_overtake_a_large_one`,
//!            `an_item_larger_than_the_window_travels_alone`,
//!            `what_no_broker_takes_is_refused_at_once`,
//!            `who_leaves_the_line_strands_nobody`, `closing_answers_everybody`,
//!            `the_window_agrees_with_its_model`.

use super::line::Line;
use crate::id::Ticket;
use crate::limits::Limits;
use crate::verdict::{Place, Reason, Refusal};

/// What a batch costs besides its payload, at most: 256 bytes, and 16 for each of 4,096 records.
const OVERHEAD: u64 = 256 + 16 * 4_096;
/// Advice on when the line may be shorter.
const RETRY_MS: u16 = 50;

/// The window.
///
/// After [`give_back`](Self::give_back), [`cancel`](Self::cancel) and [`close`](Self::close) the
/// host calls [`poll`](Self::poll) until it answers none.
#[derive(Debug)]
pub struct Window {
    capacity: u64,
    /// More than this is never granted.
    largest: u64,
    /// The sum of all permits that are out.
    in_flight: u64,
    /// Costs that wait.
    line: Line<u64>,
    is_closed: bool,
}

/// Bytes of the window: given back in a line the reader can see, when the publish is answered or
/// given up.
#[must_use = "a permit that is not given back is lost to the window"]
#[derive(Debug, PartialEq, Eq)]
pub struct Permit {
    cost: u64,
}

impl Permit {
    /// How many bytes.
    pub const fn cost(&self) -> u64 {
        self.cost
    }
}

/// What became of a request for bytes.
#[must_use = "a grant holds bytes, and who waits has to be told its turn"]
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// Go ahead.
    Granted(Permit),
    /// Nothing was taken.
    Refused(Refusal),
    /// Holds nothing; [`Window::poll`] names the ticket when its turn has come.
    Waits(Ticket),
}

impl Window {
    /// An empty window of `publish_inflight_bytes`.
    pub fn new(limits: &Limits) -> Self {
        let waiters = u32::try_from(limits.publish_waiters).expect("its key keeps it below");
        Self {
            capacity: limits.publish_inflight_bytes,
            largest: limits.max_frame_bytes + OVERHEAD,
            in_flight: 0,
            line: Line::new(waiters),
            is_closed: false,
        }
    }

    /// Asks for the bytes that a batch costs: its payload, 256, and 16 for each record.
    /// Cost: O(1).
    pub fn ask(&mut self, cost: u64) -> Answer {
        if self.is_closed {
            return Answer::Refused(CLOSED);
        }
        if cost > self.largest {
            return Answer::Refused(Refusal::never(Place::Window, Reason::Oversize));
        }
        if self.line.is_empty() && self.fits(cost) {
            return Answer::Granted(self.grant(cost));
        }
        if self.line.is_full() {
            return Answer::Refused(Refusal::after(Place::Window, Reason::Limit, RETRY_MS));
        }
        Answer::Waits(self.line.join(cost))
    }

    /// Takes a permit back: its publish was answered, or given up. Cost: O(1).
    pub fn give_back(&mut self, permit: Permit) {
        let Permit { cost } = permit;
        assert!(cost <= self.in_flight, "a permit comes back to its own window, once");
        self.in_flight -= cost;
    }

    /// Leaves the line. False when the ticket does not wait: it was answered, and whoever has its
    /// permit gives that back. Cost: O(1).
    pub fn cancel(&mut self, ticket: Ticket) -> bool {
        self.line.leave(ticket).is_some()
    }

    /// The next answer to one who waits. Cost: O(1).
    pub fn poll(&mut self) -> Option<(Ticket, Result<Permit, Refusal>)> {
        if !self.is_due() {
            return None;
        }
        let (ticket, cost) = self.line.next()?;
        let answer = if self.is_closed { Err(CLOSED) } else { Ok(self.grant(cost)) };
        Some((ticket, answer))
    }

    /// Grants nothing any more; who waits is refused. Permits still come back.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Whether [`poll`](Self::poll) has an answer. At rest it has none, or somebody waits for ever.
    pub fn is_due(&self) -> bool {
        self.line.first().is_some_and(|cost| self.is_closed || self.fits(*cost))
    }

    /// Bytes of all permits that are out.
    pub const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// How many wait.
    pub fn waiting(&self) -> u32 {
        self.line.len()
    }

    /// Whether a permit for `cost` can go out now. One alone always can.
    const fn fits(&self, cost: u64) -> bool {
        self.in_flight == 0 || self.in_flight + cost <= self.capacity
    }

    const fn grant(&mut self, cost: u64) -> Permit {
        self.in_flight += cost;
        Permit { cost }
    }
}

const CLOSED: Refusal = Refusal::never(Place::Window, Reason::Closed);

#[cfg(test)]
mod tests;
