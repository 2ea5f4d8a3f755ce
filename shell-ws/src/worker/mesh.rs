//! What comes from other event loops and goes to them, and what all of them know.

use super::Worker;
use super::fallback::Moved;
use crate::note::Note;
use crate::shard::Shard;
use sluicegate_core::Parcel;

/// Something that one event loop sends another. They arrive in the order in which they were sent.
#[derive(Debug)]
pub enum Letter {
    /// The core's: carried, never looked into.
    Core(Parcel),
    /// A socket, which is that loop's from now on.
    Moved(Box<Moved>),
    /// Of the shell.
    Shell(Note),
}

impl Worker {
    /// What all shards know, as inputs of this one. Before the letters are looked for: what others
    /// sent before they said it has come.
    pub(super) fn hear_node(&mut self) {
        self.all_closed = self.node.is_closed();
        self.shard.broker.node(self.node.is_saturated());
        if let Some(loan) = &mut self.loan {
            loan.settle(&mut self.shard.broker);
        }
    }

    /// What this shard has to say to all: whether it is saturated.
    pub(super) fn tell_node(&self) {
        self.node.set_saturated(self.port.number(), self.shard.broker.is_saturated());
    }

    /// Hands the shard the letters that have come, as far as the core wants any. Each turn begins
    /// with another sender, so that none is always last.
    pub(super) fn carry(&mut self) {
        let others: Vec<u32> = self.port.others().collect();
        let Some(turn) = self.shard.process.turns.checked_rem(others.len() as u64) else { return };
        let first = usize::try_from(turn).expect("an index");
        let mut come = Vec::new();
        for from in others[first..].iter().chain(&others[..first]) {
            let mut arrived = self.port.receive(*from);
            while self.shard.broker.wants_parcels() {
                match arrived.next() {
                    Some(Letter::Core(parcel)) => self.shard.broker.receive(*from, parcel),
                    Some(Letter::Moved(moved)) => come.push(*moved),
                    Some(Letter::Shell(note)) => self.shard.take_note(note),
                    None => break,
                }
            }
        }
        come.into_iter().for_each(|moved| self.moved_in(moved));
    }

    /// Sends what the shard has for others, as far as the ways have room. What finds none waits
    /// where it is, which is bounded there.
    pub(super) fn post(&mut self) {
        for to in self.port.others() {
            let (shard, moves) = (&mut self.shard, &mut self.moves[to as usize]);
            let mut note_is_next = false;
            self.port.send(to, || {
                note_is_next = !note_is_next;
                let moved = moves.pop_front().map(Letter::Moved);
                moved.or_else(|| next_letter(shard, to, note_is_next))
            });
        }
    }
}

/// Notes and parcels take turns, so that neither keeps the other from the ways. Nobody depends on
/// the order among them: what an owner says to members waits at their end for the word of welcome,
/// whichever way its record comes.
fn next_letter(shard: &mut Shard, to: u32, note_is_next: bool) -> Option<Letter> {
    let note = |shard: &mut Shard| shard.poll_note(to).map(Letter::Shell);
    let parcel = |shard: &mut Shard| shard.broker.poll_parcel(to).map(Letter::Core);
    match note_is_next {
        true => note(shard).or_else(|| parcel(shard)),
        false => parcel(shard).or_else(|| note(shard)),
    }
}
