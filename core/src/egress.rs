//! Checkpoint 6, egress: who writes now, how much, and what a short write leaves behind.
//!
//! Question:  which outlet gets the next offer, and which of its frames go into it?
//! Invariant: an outlet is in a ready list exactly while it has work, does not refuse and has no
//!            open offer; a frame that was begun is finished before any other byte.
//! When full: a short write makes the outlet refuse until it is writable; what was not begun goes
//!            back to the queue, where checkpoint 5 decides. Control frames have a reserve: half
//!            of it pauses the peer's commands, more than all of it closes the connection.
//! Proof:     `any_split_of_the_writes_gives_the_same_bytes`, `a_short_write_pins_what_was_begun`,
//!            `sparse_outlets_go_first`, `control_overflow_closes`,
//!            `books_close_under_random_operations`, `stuck`.
//!
//! The ready lists follow FQ-CoDel (RFC 8290, section 4.1): new outlets before old ones, a byte
//! quantum each.

use crate::list::List;
use crate::peers::{Outlet, Ready};
use crate::slab::Slab;
use crate::writer::{QUANTUM, State};

/// The ready lists of a shard.
#[derive(Debug)]
pub(crate) struct Egress {
    new: List<Ready>,
    old: List<Ready>,
}

impl Egress {
    pub(crate) fn new() -> Self {
        Self { new: List::default(), old: List::default() }
    }

    /// Puts an outlet that has work into the list of new ones, if it may write.
    pub(crate) fn wake(&mut self, outlets: &mut Slab<Outlet>, index: u32) {
        if Self::may_enlist(&outlets[index]) {
            self.enlist(outlets, index);
        }
    }

    /// The same for one that got a control frame while it had nothing to write: it goes before
    /// those that got records. Whoever waits for an answer has it before its publish is delivered
    /// to everybody else.
    pub(crate) fn wake_first(&mut self, outlets: &mut Slab<Outlet>, index: u32) {
        if Self::may_enlist(&outlets[index]) {
            Self::prepare(&mut outlets[index]);
            self.new.push_front(outlets, index);
        }
    }

    fn may_enlist(outlet: &Outlet) -> bool {
        outlet.write.state == State::Idle && !outlet.write.refusing && outlet.has_work()
    }

    fn prepare(outlet: &mut Outlet) {
        outlet.write.state = State::Ready;
        outlet.write.deficit = QUANTUM;
        outlet.write.is_new = true;
    }

    /// The same for one that is known to be idle, not to refuse and to have work.
    #[inline]
    pub(crate) fn enlist(&mut self, outlets: &mut Slab<Outlet>, index: u32) {
        Self::prepare(&mut outlets[index]);
        self.new.push_back(outlets, index);
    }

    /// The outlet whose turn it is; it leaves the lists. Cost: O(1) amortised.
    pub(crate) fn next(&mut self, outlets: &mut Slab<Outlet>) -> Option<u32> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let index = list.pop_front(outlets)?;
            let write = &mut outlets[index].write;
            write.is_new = false;
            if write.deficit > 0 {
                write.state = State::Offered;
                return Some(index);
            }
            write.deficit += QUANTUM;
            self.old.push_back(outlets, index);
        }
    }

    /// An outlet whose turn is over has more: it goes on if it has credit.
    pub(crate) fn enlist_again(&mut self, outlets: &mut Slab<Outlet>, index: u32) {
        let write = &mut outlets[index].write;
        write.state = State::Ready;
        if write.deficit > 0 {
            self.old.push_front(outlets, index);
        } else {
            self.old.push_back(outlets, index);
        }
    }

    /// An outlet goes away, or refuses before it had an offer.
    pub(crate) fn forget(&mut self, outlets: &mut Slab<Outlet>, index: u32) {
        if outlets[index].write.state == State::Ready {
            let list = if outlets[index].write.is_new { &mut self.new } else { &mut self.old };
            list.unlink(outlets, index);
            outlets[index].write.state = State::Idle;
        }
    }

    #[cfg(any(test, feature = "check"))]
    pub(crate) fn check(&self, outlets: &Slab<Outlet>) -> Result<(), crate::ledger::Broken> {
        use crate::ledger::same;
        let mut ready = 0;
        for (_, outlet) in outlets.iter() {
            let write = &outlet.write;
            ready += u64::from(write.state == State::Ready);
            let due = outlet.has_work() && !write.refusing && write.state != State::Offered;
            same(
                "egress: ready while it has work",
                (write.state == State::Ready).into(),
                due.into(),
            )?;
            same("egress: linked while ready", outlet.ready.is_linked().into(), due.into())?;
        }
        same("egress: lists", u64::from(self.new.len() + self.old.len()), ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Pipe;

    fn settle(egress: &mut Egress, outlets: &mut Slab<Outlet>, index: u32, bytes: u64) {
        if outlets[index].write.settle(bytes) && outlets[index].has_work() {
            egress.enlist_again(outlets, index);
        }
    }

    #[test]
    fn sparse_outlets_go_first() {
        let mut outlets = Slab::default();
        let mut egress = Egress::new();
        let [bulk, sparse] = [0, 1].map(|conn| {
            let index = outlets.insert(Outlet::new(conn, 0, Pipe::Shared)).0;
            outlets[index].write.push_first(0);
            egress.wake(&mut outlets, index);
            index
        });
        assert_eq!(egress.next(&mut outlets), Some(bulk));
        settle(&mut egress, &mut outlets, bulk, 64 << 10);
        assert_eq!(egress.next(&mut outlets), Some(sparse), "new before old");
        settle(&mut egress, &mut outlets, sparse, 100);
        assert_eq!(egress.next(&mut outlets), Some(sparse), "it has credit left");
        outlets[sparse].write.pop_first();
        settle(&mut egress, &mut outlets, sparse, 100);
        assert_eq!(egress.next(&mut outlets), Some(bulk));
        settle(&mut egress, &mut outlets, bulk, 0);
        egress.check(&outlets).unwrap();
        egress.forget(&mut outlets, bulk);
        assert_eq!(egress.next(&mut outlets), None);
        assert!(egress.check(&outlets).is_err(), "an outlet with work was forgotten");
    }
    /// Outlets that have much to write, in this order in the list of old ones.
    fn bulky<const N: usize>(egress: &mut Egress, outlets: &mut Slab<Outlet>) -> [u32; N] {
        core::array::from_fn(|_| {
            let index = outlets.insert(Outlet::new(0, 0, Pipe::Shared)).0;
            outlets[index].write.push_first(0);
            egress.wake(outlets, index);
            index
        })
    }

    #[test]
    fn who_spent_its_credit_to_the_last_byte_goes_behind_the_others() {
        let quantum = u64::try_from(QUANTUM).unwrap();
        let mut outlets = Slab::default();
        let mut egress = Egress::new();
        let [over, exact] = bulky(&mut egress, &mut outlets);
        for (outlet, bytes) in [(over, quantum + 1), (exact, quantum)] {
            assert_eq!(egress.next(&mut outlets), Some(outlet));
            settle(&mut egress, &mut outlets, outlet, bytes);
        }
        assert_eq!(egress.next(&mut outlets), Some(over));
    }

    #[test]
    fn who_has_no_credit_left_gets_a_quantum_before_its_turn() {
        let quantum = u64::try_from(QUANTUM).unwrap();
        let mut outlets = Slab::default();
        let mut egress = Egress::new();
        let [exact, over] = bulky(&mut egress, &mut outlets);
        for (outlet, bytes) in [(exact, quantum), (over, quantum + 1)] {
            assert_eq!(egress.next(&mut outlets), Some(outlet));
            settle(&mut egress, &mut outlets, outlet, bytes);
        }
        assert_eq!(egress.next(&mut outlets), Some(exact));
        settle(&mut egress, &mut outlets, exact, quantum - 1);
        assert_eq!(egress.next(&mut outlets), Some(exact), "one byte of the quantum is left");
    }
}
