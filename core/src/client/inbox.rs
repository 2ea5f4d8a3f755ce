//! Checkpoint 7, inbox: events of one subscription that the application has not taken.
//!
//! Question:  an event arrived; is it kept, is something dropped, or does the reader stop?
//! Invariant: expected = delivered + dropped + lag; whatever is lost between two events is told
//!            before the second of them, with the exact count; that the topic began anew is told in
//!            its place, or with a later beginning when nothing between the two was left.
//! When full: by policy: `drop_new` drops this event, `drop_old` and `latest` the oldest, `block`
//!            hands it back: the reader keeps it and reads no further until there is room, and the
//!            transport's window carries that to the broker. A beginning is no record: it is never
//!            dropped, and takes no place; there are at most as many as places, and one.
//! Proof:     `each_policy_at_its_limit`, `a_blocked_reader_is_called_back_once`,
//!            `a_loss_is_told_before_the_next_event`,
//!            `a_beginning_is_told_whatever_the_policy_drops`,
//!            `beginnings_with_nothing_between_are_one`,
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
    /// Invariant: no beginning stands right behind another.
    slots: VecDeque<Slot<T>>,
    /// How many of them are events.
    events: u32,
    /// What was lost behind the last slot.
    tail: Option<Gap>,
    books: SubBooks,
    limit: u32,
    policy: Policy,
    /// The reader got an event back and was not called since.
    is_blocked: bool,
}

/// What is kept, and what was lost between it and the one before.
#[derive(Debug)]
struct Slot<T> {
    gap: Option<Gap>,
    kept: Kept<T>,
}

#[derive(Debug)]
enum Kept<T> {
    Beginning(Beginning),
    Event(Event<T>),
}

/// A topic began anew: what comes after it has numbers of another epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// The topic's epoch.
    pub epoch: u64,
    /// The number of the first record that can come.
    pub start: u64,
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
    /// The topic began anew.
    Beginning(Beginning),
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

impl<T> Slot<T> {
    const fn is_beginning(&self) -> bool {
        matches!(self.kept, Kept::Beginning(_))
    }

    #[cfg(any(test, feature = "check"))]
    const fn event(&self) -> Option<&Event<T>> {
        match &self.kept {
            Kept::Beginning(_) => None,
            Kept::Event(event) => Some(event),
        }
    }
}

impl<T> Inbox<T> {
    /// An empty inbox of `subscription_queue` events, of one under [`Policy::Latest`].
    pub fn new(limits: &Limits, policy: Policy) -> Self {
        let limit = if policy == Policy::Latest { 1 } else { limits.subscription_queue };
        Self {
            slots: VecDeque::new(),
            events: 0,
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

    /// The topic began anew, behind all that arrived. It is told whatever the policy, and takes no
    /// place. Cost: O(1) amortised.
    pub fn begin(&mut self, beginning: Beginning) {
        let kept = Kept::Beginning(beginning);
        match self.slots.back_mut() {
            Some(last) if last.is_beginning() => {
                last.kept = kept;
                // What was lost in a life of which nothing is left.
                if let Some(lost) = self.tail.take() {
                    join(&mut last.gap, lost);
                }
            }
            _ => self.slots.push_back(Slot { gap: self.tail.take(), kept }),
        }
    }

    /// Takes what is next: a loss comes before the event that follows it, and at once when no event
    /// is left. Cost: O(1).
    pub fn take(&mut self) -> Option<Taken<T>> {
        let gap = self.slots.front_mut().map_or(&mut self.tail, |slot| &mut slot.gap);
        if let Some(gap) = gap.take() {
            return Some(Taken { next: Next::Gap(gap), resume: false });
        }
        let event = match self.slots.pop_front()?.kept {
            Kept::Beginning(beginning) => {
                return Some(Taken { next: Next::Beginning(beginning), resume: false });
            }
            Kept::Event(event) => event,
        };
        self.events -= 1;
        self.books.deliver(event.tally());
        let resume = core::mem::take(&mut self.is_blocked);
        Some(Taken { next: Next::Event(event), resume })
    }

    /// How many events it holds.
    pub const fn len(&self) -> u32 {
        self.events
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
        self.slots.push_back(Slot { gap, kept: Kept::Event(event) });
        self.events += 1;
    }

    /// Drops the oldest event. Its loss, and what was lost before it, is told before the next.
    fn drop_oldest(&mut self) {
        // The first slot, or the one behind a beginning.
        let at = usize::from(self.slots.front().is_some_and(Slot::is_beginning));
        let Some(Slot { mut gap, kept: Kept::Event(event) }) = self.slots.remove(at) else {
            return;
        };
        self.events -= 1;
        let lost = self.book_drop(&event, Reason::DropOld);
        join(&mut gap, lost);
        let next = self.slots.get_mut(at).map_or(&mut self.tail, |slot| &mut slot.gap);
        if let Some(later) = next.take() {
            join(&mut gap, later);
        }
        *next = gap;
        self.join_beginnings(at);
    }

    /// The event between the beginnings before and at this place was dropped: the later one stays,
    /// with the losses of both.
    fn join_beginnings(&mut self, at: usize) {
        if at == 0 || !self.slots.get(at).is_some_and(Slot::is_beginning) {
            return;
        }
        let Some(Slot { mut gap, .. }) = self.slots.remove(at - 1) else { return };
        let Some(later) = self.slots.get_mut(at - 1) else { return };
        if let Some(lost) = later.gap.take() {
            join(&mut gap, lost);
        }
        later.gap = gap;
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
        let events = || self.slots.iter().filter_map(Slot::event);
        let held: Tally = events().map(Event::tally).sum();
        same("inbox: records held", self.books.lag.records, held.records)?;
        same("inbox: bytes held", self.books.lag.bytes, held.bytes)?;
        same("inbox: events counted", self.events.into(), events().count() as u64)?;
        let pairs = self.slots.iter().zip(self.slots.iter().skip(1));
        let double = pairs.filter(|(one, next)| one.is_beginning() && next.is_beginning());
        same("inbox: beginnings in a row", double.count() as u64, 0)?;
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
