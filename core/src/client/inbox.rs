//! Checkpoint 7, inbox: events of one subscription that the application has not taken.
//!
//! Question:  an event arrived; is it kept, is something dropped, or does the reader stop?
//! Invariant: expected = delivered + dropped + lag; whatever is lost between two events is told
//!            before the second of them, with the exact count.
//! When full: by policy: `drop_new` drops this event, `drop_old` and `latest` the oldest, `block`
//!            hands it back: the reader keeps it and reads no further until there is room, and the
//!            transport's window carries that to the broker.
//! Proof:     `each_policy_at_its_limit`, `a_blocked_reader_is_called_back_once`,
//!            `a_loss_is_told_before_the_next_event`,
//!            `what_the_broker_lost_is_told_with_what_is_lost_here`,
//!            `numbers_from_a_hostile_peer_do_no_harm`, `the_inbox_agrees_with_its_model`.

#[cfg(any(test, feature = "check"))]
use crate::ledger::{Broken, same};
use crate::ledger::{SubBooks, Tally};
use crate::limits::Limits;
use crate::notice::Gap;
use crate::verdict::{Place, Policy, Reason};
use alloc::collections::VecDeque;

/// The inbox.
#[derive(Debug)]
pub struct Inbox<T> {
    slots: VecDeque<Slot<T>>,
    /// What was lost behind the last slot.
    tail: Option<Gap>,
    books: SubBooks,
    limit: u32,
    policy: Policy,
    /// The reader got an event back and was not called since.
    is_blocked: bool,
}

/// An event, and what was lost between it and the one before.
#[derive(Debug)]
struct Slot<T> {
    gap: Option<Gap>,
    event: Event<T>,
}

/// Records that arrived together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<T> {
    /// Sequence number of the first.
    pub first: u64,
    /// How many.
    pub records: u32,
    /// Bytes of their frame.
    pub bytes: u32,
    /// The records themselves.
    pub value: T,
}

/// What became of an event.
#[must_use = "under `block` the event may come back"]
#[derive(Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// This event (`drop_new`) was dropped, or an older one for it (`drop_old`).
    Dropped(Reason),
    /// `block`: it comes back. Read no further until [`Taken::resume`].
    Full(Event<T>),
    /// It is kept, and nothing was dropped.
    Queued,
}

/// What the application gets next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// Records.
    Event(Event<T>),
    /// Records were lost here.
    Gap(Gap),
}

/// What the application took.
#[must_use = "a reader that stopped has to be called"]
#[derive(Debug, PartialEq, Eq)]
pub struct Taken<T> {
    /// What it gets.
    pub next: Next<T>,
    /// There is room again for the reader that was answered [`Answer::Full`].
    pub resume: bool,
}

impl<T> Event<T> {
    fn tally(&self) -> Tally {
        Tally { records: self.records.into(), bytes: self.bytes.into() }
    }

    /// What is told when it is lost.
    const fn lost(&self, reason: Reason) -> Gap {
        let Self { first, records, .. } = *self;
        let last = first.saturating_add(records.saturating_sub(1) as u64);
        Gap { first, last, records: records as u64, place: Place::Inbox, reason }
    }
}

impl<T> Inbox<T> {
    /// An empty inbox of `subscription_queue` events, of one under [`Policy::Latest`].
    pub fn new(limits: &Limits, policy: Policy) -> Self {
        let limit = if policy == Policy::Latest { 1 } else { limits.subscription_queue };
        Self {
            slots: VecDeque::new(),
            tail: None,
            books: SubBooks::default(),
            limit: u32::try_from(limit).expect("its key keeps it below"),
            policy,
            is_blocked: false,
        }
    }

    /// An event arrived. Cost: O(1) amortised.
    pub fn push(&mut self, event: Event<T>) -> Answer<T> {
        if self.len() < self.limit {
            self.append(event);
            return Answer::Queued;
        }
        match self.policy {
            Policy::Block => {
                self.is_blocked = true;
                Answer::Full(event)
            }
            Policy::DropNew => {
                self.books.expect(event.tally());
                let lost = self.book_drop(&event, Reason::DropNew);
                join(&mut self.tail, lost);
                Answer::Dropped(Reason::DropNew)
            }
            Policy::DropOld | Policy::Latest => {
                self.drop_oldest();
                self.append(event);
                Answer::Dropped(Reason::DropOld)
            }
        }
    }

    /// The broker told that records were lost before they came here, behind all that arrived. It
    /// takes no place. Cost: O(1).
    pub fn lost(&mut self, gap: Gap) {
        join(&mut self.tail, gap);
    }

    /// Takes what is next: a loss comes before the event that follows it, and at once when no event
    /// is left. Cost: O(1).
    pub fn take(&mut self) -> Option<Taken<T>> {
        let gap = self.slots.front_mut().map_or(&mut self.tail, |slot| &mut slot.gap);
        if let Some(gap) = gap.take() {
            return Some(Taken { next: Next::Gap(gap), resume: false });
        }
        let event = self.slots.pop_front()?.event;
        self.books.deliver(event.tally());
        let resume = core::mem::take(&mut self.is_blocked);
        Some(Taken { next: Next::Event(event), resume })
    }

    /// How many events it holds.
    pub fn len(&self) -> u32 {
        u32::try_from(self.slots.len()).expect("no more than the limit")
    }

    /// Whether there is nothing to take.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.tail.is_none()
    }

    /// What arrived here and what became of it; every drop is at the inbox, for the policy's
    /// reason. What an inbox holds when it is given up is its lag.
    pub const fn books(&self) -> SubBooks {
        self.books
    }

    fn append(&mut self, event: Event<T>) {
        self.books.expect(event.tally());
        let gap = self.tail.take();
        self.slots.push_back(Slot { gap, event });
    }

    /// Drops the oldest event. Its loss, and what was lost before it, is told before the next.
    fn drop_oldest(&mut self) {
        let Some(Slot { mut gap, event }) = self.slots.pop_front() else { return };
        let lost = self.book_drop(&event, Reason::DropOld);
        join(&mut gap, lost);
        let next = self.slots.front_mut().map_or(&mut self.tail, |slot| &mut slot.gap);
        if let Some(later) = next.take() {
            join(&mut gap, later);
        }
        *next = gap;
    }

    fn book_drop(&mut self, event: &Event<T>, reason: Reason) -> Gap {
        self.books.dropped += event.tally();
        self.books.lag -= event.tally();
        self.books.last_drop = Some((Place::Inbox, reason));
        event.lost(reason)
    }

    /// Recounts what is kept.
    #[cfg(any(test, feature = "check"))]
    pub fn check(&self) -> Result<(), Broken> {
        self.books.check()?;
        let held: Tally = self.slots.iter().map(|slot| slot.event.tally()).sum();
        same("inbox: records held", self.books.lag.records, held.records)?;
        same("inbox: bytes held", self.books.lag.bytes, held.bytes)?;
        let over = self.len().saturating_sub(self.limit);
        same("inbox: events over the limit", over.into(), 0)
    }
}

/// Adds a later loss to a run. The numbers come from a peer: whatever they are, none overflows.
fn join(run: &mut Option<Gap>, later: Gap) {
    match run {
        None => *run = Some(later),
        Some(run) => {
            run.last = run.last.max(later.last);
            run.records = run.records.saturating_add(later.records);
        }
    }
}

#[cfg(test)]
mod tests;
