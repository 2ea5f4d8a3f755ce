//! Replays: a tape played as it was, or as it would have been with other limits.
//!
//! As it was: every input again, with every judge; the fingerprints on the tape must be those of
//! the shards now. With other limits: what came from outside stays, and each transport takes what
//! it took then; the rest is decided anew. That is an estimate: peers would have done otherwise.

mod what_if;

use crate::deck::Deck;
use crate::fact::name_cell;
use crate::judge::{Conviction, Finding, Kind as Promise};
use crate::script::caught;
use sluicegate_core::{Books, Damage, Item, Tally, Tape};

pub use what_if::what_if;

/// What a replay came to.
#[derive(Debug)]
pub struct Replayed {
    /// Numbers of the shards.
    pub shards: Vec<u32>,
    /// Inputs played.
    pub inputs: u64,
    /// The time at the end, in nanoseconds.
    pub ended: u64,
    /// Fingerprints compared.
    pub marks: u64,
    /// The input before which a shard's fingerprint was another one for the first time.
    pub differs: Option<u64>,
    /// The tape ends in the middle of an item.
    pub is_cut: bool,
    /// What a judge found, if one did: while it played, or when all faults ended after it.
    pub conviction: Option<Conviction>,
    /// What the books said at the end.
    pub sums: Sums,
}

/// Books of all shards together, and what was held at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Name and count of each column, and of each cell that is not zero.
    pub lines: Vec<(String, Tally)>,
    /// Most bytes that one shard held.
    pub held_peak: u64,
    /// Most publishes that were queued, and parked, in one shard.
    pub jobs_peak: (u64, u64),
    /// Publishes that arrived while their source was paused, and were never read.
    pub held_back: u64,
}

impl Sums {
    /// Adds the shards' books.
    fn close(&mut self, deck: &Deck) {
        for broker in deck.brokers() {
            let books = broker.ledger();
            for (name, tally) in Books::columns(books) {
                self.add(name.to_owned(), tally);
            }
            for (name, table) in [
                ("refused", &books.refused),
                ("shed", &books.shed),
                ("evicted", &books.evicted),
                ("dropped", &books.dropped),
            ] {
                for (place, reason, tally) in table.iter() {
                    self.add(format!("{name} {}", name_cell(place, reason)), tally);
                }
            }
        }
    }

    fn add(&mut self, name: String, tally: Tally) {
        match self.lines.iter_mut().find(|(own, _)| *own == name) {
            Some((_, sum)) => *sum += tally,
            None => self.lines.push((name, tally)),
        }
    }

    fn look(&mut self, deck: &Deck, shard: u32) {
        let broker = deck.broker(shard);
        self.held_peak = self.held_peak.max(broker.held());
        let (queued, parked) = broker.jobs();
        let (most_queued, most_parked) = self.jobs_peak;
        self.jobs_peak = (most_queued.max(queued.into()), most_parked.max(parked.into()));
    }

    /// The count of a line.
    pub fn get(&self, name: &str) -> Tally {
        self.lines.iter().find(|(own, _)| own == name).map_or(Tally::ZERO, |(_, tally)| *tally)
    }
}

/// Plays a tape as it was.
///
/// Errors: where it is damaged.
pub fn replay(tape: &Tape<'_>) -> Result<Replayed, Damage> {
    let mut shards: Vec<u32> = Vec::new();
    let mut is_cut = false;
    for item in tape.items() {
        match item {
            Ok(Item::Input { shard, .. } | Item::Mark { shard, .. }) => {
                if !shards.contains(&shard) {
                    shards.push(shard);
                }
            }
            Err(Damage::Cut(_)) => is_cut = true,
            Err(damage) => return Err(damage),
        }
    }
    shards.sort_unstable();
    let mut deck = Deck::new(&tape.limits, tape.seed, &shards);
    let (mut marks, mut differs, mut sums) = (0, None, Sums::default());
    let mut closed = false;
    let run = || {
        for item in tape.items().map_while(Result::ok) {
            match item {
                Item::Input { shard, input } => {
                    deck.apply(shard, &input)?;
                    sums.look(&deck, shard);
                }
                Item::Mark { shard, fingerprint } => {
                    marks += 1;
                    if deck.broker(shard).fingerprint() != fingerprint {
                        differs = differs.or_else(|| Some(deck.played()));
                    }
                }
            }
        }
        sums.close(&deck);
        closed = true;
        if shards.is_empty() { Ok(()) } else { deck.heal() }
    };
    let found = convicted(caught(run));
    if !closed {
        sums.close(&deck);
    }
    let conviction = found.map(|finding| Conviction {
        at: deck.latest(),
        events: deck.recent(),
        command: String::new(),
        finding,
    });
    let (inputs, ended) = (deck.played(), deck.latest());
    Ok(Replayed { shards, inputs, ended, marks, differs, is_cut, conviction, sums })
}

fn convicted(ran: Result<Result<(), Finding>, String>) -> Option<Finding> {
    match ran {
        Ok(found) => found.err(),
        Err(what) => Some(Finding { judge: "crash", kind: Promise::Safety, what, at: None }),
    }
}
