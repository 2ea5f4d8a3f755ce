//! The usual part of a fan-out, in one tight loop: peers that take bytes and have room, and peers
//! that stopped and lose their oldest batch for the new one. It decides nothing of its own: each
//! case is one of [`View::decide`](crate::backlog::View::decide), and whatever else there is to do
//! ends the loop, for `reach` to do.

use super::fan_out::{book_loss, view};
use super::{Broker, FanOut};
use crate::backlog::Decision;
use crate::ledger::Ledger;
use crate::memory::{Held, Memory};
use crate::peers::{Outlet, Peers, Pipe, SLOT, Sub};
use crate::ring::Slot;
use crate::shed::Band;
use crate::slab::Slab;
use crate::topic::Topic;
use crate::verdict::{Place, Policy, Reason};
use crate::writer::State;

/// A batch joins a queue; its message's references and the slot's bytes are the caller's.
#[inline(always)]
pub(super) fn enqueue(fan: &FanOut, (index, sub): (u32, &mut Sub), outlet: &mut Outlet) {
    sub.waiting.add(fan.cost);
    sub.slots += 1;
    sub.books.expect(fan.tally);
    outlet.waiting.add(fan.cost);
    outlet.ring.push(Slot { message: fan.message, sub: index });
}

/// Where a batch that is given up is counted.
struct Tables<'a> {
    ledger: &'a mut Ledger,
    memory: &'a mut Memory,
    topics: &'a mut Slab<Topic>,
    band: Band,
    /// Outlets at their limit are timed.
    is_timed: bool,
    /// Single outlets that refuse have a limit of their own.
    is_narrow: bool,
}

impl Broker {
    /// Queues the batch for one subscription after the other, while nothing but that is to be
    /// done. What is counted per message is counted once.
    pub(super) fn queue_run(&mut self, fan: &mut FanOut, room: &mut u32) {
        if fan.lost.is_some() || fan.tally.records == 0 {
            return;
        }
        let band = self.shedding();
        let Self { egress, ledger, limits, memory, peers, topics, .. } = self;
        let audience = core::mem::take(&mut topics[fan.topic].audience);
        let is_timed = limits.slow_consumer_after_ms > 0;
        let is_narrow = limits.egress_shed == 1;
        let mut tables = Tables { ledger, memory, topics, band, is_timed, is_narrow };
        let (mut queued, mut passed) = (0, 0);
        for &index in audience.get(fan.served as usize..).unwrap_or_default() {
            if queued == *room {
                break;
            }
            let Peers { outlets, subs, .. } = &mut *peers;
            let sub = &mut subs[index];
            if sub.start > fan.first || sub.outlet == fan.except {
                passed += 1;
                continue;
            }
            let at = sub.outlet;
            let outlet = &mut outlets[at];
            if outlet.write.refusing {
                if !tables.replace_oldest(fan, index, (subs, outlet)) {
                    break;
                }
            } else {
                let is_block = sub.policy == Policy::Block;
                if is_block || view(fan, sub, outlet, Band::Normal).decide() != Decision::Accept {
                    break;
                }
                enqueue(fan, (index, sub), outlet);
                if outlet.write.state == State::Idle {
                    egress.enlist(outlets, at);
                }
            }
            queued += 1;
        }
        topics[fan.topic].audience = audience;
        memory.retain(fan.message, queued);
        memory.charge(SLOT * u64::from(queued));
        fan.reached += queued;
        fan.served += queued + passed;
        *room -= queued;
    }
}

impl Tables<'_> {
    /// At an outlet that refuses and is full: its oldest batch, of the same cost, makes room for
    /// the new one, so that what waits there stays the same. False when there is anything else to
    /// be done; then nothing is done.
    #[inline]
    fn replace_oldest(
        &mut self,
        fan: &FanOut,
        index: u32,
        (subs, outlet): (&mut Slab<Sub>, &mut Outlet),
    ) -> bool {
        let sub = &subs[index];
        let is_odd = (self.is_timed && !outlet.is_slow())
            || (self.is_narrow && outlet.pipe == Pipe::Single)
            || !outlet.stalled.is_empty()
            || outlet.ring.nears_compaction();
        if is_odd || view(fan, sub, outlet, self.band).decide() != Decision::DropOldest {
            return false;
        }
        let Some((position, slot)) = outlet.ring.oldest() else { return false };
        if slot.sub == crate::slab::NONE || slot.message == fan.message {
            return false;
        }
        let &Held { cost, first, tally, .. } = self.memory.get(slot.message);
        let load = match outlet.pipe {
            Pipe::Shared => outlet.waiting,
            Pipe::Single => sub.waiting,
        };
        let fits = load.batches <= sub.limit.batches && load.bytes <= sub.limit.bytes;
        let loser = &mut subs[slot.sub];
        let gives_up = matches!(loser.policy, Policy::DropOld | Policy::Latest);
        let stays = loser.is_active() && loser.waiting.batches > 1;
        if cost != fan.cost || !fits || !gives_up || !stays {
            return false;
        }
        let freed = outlet.ring.give_up(position);
        self.memory.discharge(SLOT * freed);
        outlet.waiting.remove(cost);
        loser.waiting.remove(cost);
        loser.slots -= 1;
        let why = (Place::Backlog, Reason::DropOld);
        let topic = &mut self.topics[loser.topic];
        book_loss((self.ledger, self.memory, topic, loser, outlet), (first, tally), why);
        self.memory.release(slot.message);
        enqueue(fan, (index, &mut subs[index]), outlet);
        true
    }
}
