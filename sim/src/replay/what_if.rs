//! "What if": what came from outside, under other limits.
//!
//! Each transport takes what it took then. From one `writable` to the next short write it took a
//! known number of bytes; where no short write followed, it took all there was, and would have
//! taken more. A shard does as much in a step as it did then; where it had nothing left to do after
//! a step, it had time, and does all there is. A source that is paused is read no further: its
//! publishes wait in its transport. A connection that the core gave up then is given up only if the
//! core gives it up again.

use super::Sums;
use crate::deck::Deck;
use crate::script::Script;
use sluicegate_core::{ConnId, Effect, Input, Kind, Limits, Notice, Outcome, OutletId, Progress};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Rounds of one turn at most.
const ENDLESS: u32 = 100_000;

/// What the recording says about the outside.
#[derive(Debug, Default)]
struct Outside {
    /// By the input that made an outlet: bytes it took in each of its windows; none: all.
    windows: BTreeMap<usize, VecDeque<Option<u64>>>,
    /// Inputs that only answered what the core had decided.
    answers: BTreeSet<usize>,
    /// Steps after which the shard had more to do: it was short of time.
    short: BTreeSet<usize>,
}

/// Plays the script once under its own limits, to learn what came from outside.
fn learn(script: &Script) -> Outside {
    let mut outside = Outside::default();
    let mut deck = Deck::new(&script.limits, script.seed, &script.shards);
    let mut made = vec![None; script.ops.len()];
    let mut outlets: BTreeMap<(u32, u64), (usize, u64, u64)> = BTreeMap::new();
    let mut given_up: BTreeSet<(u32, u64)> = BTreeSet::new();
    for (at, op) in script.ops.iter().enumerate() {
        let Some(input) = op.resolve(&made, deck.now(op.shard)) else { continue };
        let n = input.numbers();
        if matches!(input.kind(), Kind::Gone | Kind::Close) && given_up.contains(&(op.shard, n[0]))
        {
            outside.answers.insert(at);
        }
        let outcome = deck.play_unjudged(op.shard, &input);
        match (input.kind(), outcome) {
            (Kind::Step, Outcome::Progress(Progress::More)) => {
                outside.short.insert(at);
            }
            (Kind::Outlet, Outcome::Id(bits)) => {
                outlets.insert((op.shard, bits), (at, 0, 0));
            }
            (Kind::Poll, Outcome::Effect(Some(Effect::Write(offer)))) => {
                if let Some(own) = outlets.get_mut(&(op.shard, offer.outlet.to_bits())) {
                    own.2 = offer.bytes;
                }
            }
            (
                Kind::Poll,
                Outcome::Effect(Some(Effect::Notice(
                    Notice::Close { conn, .. } | Notice::Flushed { conn },
                ))),
            ) => {
                given_up.insert((op.shard, conn.to_bits()));
            }
            (Kind::Sent, Outcome::Done) => {
                if let Some((by, took, offered)) = outlets.get_mut(&(op.shard, n[0])) {
                    *took += n[1].min(*offered);
                    if n[1] < *offered {
                        outside.windows.entry(*by).or_default().push_back(Some(*took));
                        *took = 0;
                    }
                }
            }
            _ => {}
        }
        if let Outcome::Id(bits) = outcome {
            made[at] = Some(bits);
        }
    }
    outside
}

struct Player<'a> {
    script: &'a Script,
    outside: Outside,
    deck: Deck,
    made: Vec<Option<u64>>,
    /// What an outlet may still take in its window; none: all. And the input that made it.
    rooms: BTreeMap<(u32, u64), (Option<u64>, usize)>,
    /// Publishes of paused sources, by source.
    held: BTreeMap<(u32, u64), VecDeque<Input>>,
    /// The work of the last step of each shard, and whether it was short of time then.
    work: BTreeMap<u32, (u64, bool)>,
    sums: Sums,
}

/// What would have become of a script under `limits`: an estimate.
pub fn what_if(script: &Script, limits: &Limits) -> Sums {
    let outside = learn(script);
    let mut player = Player {
        script,
        outside,
        deck: Deck::new(limits, script.seed, &script.shards),
        made: vec![None; script.ops.len()],
        rooms: BTreeMap::new(),
        held: BTreeMap::new(),
        work: BTreeMap::new(),
        sums: Sums::default(),
    };
    for at in 0..script.ops.len() {
        player.play(at);
    }
    for shard in script.shards.clone() {
        player.turn(shard);
    }
    player.sums.close(&player.deck);
    player.sums.held_back = player.held.values().map(|held| held.len() as u64).sum();
    player.sums
}

impl Player<'_> {
    fn play(&mut self, at: usize) {
        let op = self.script.ops[at];
        let shard = op.shard;
        let Some(input) = op.resolve(&self.made, self.deck.now(shard)) else { return };
        let n = input.numbers();
        match input.kind() {
            Kind::Sent | Kind::Refused | Kind::Poll => return,
            Kind::Gone | Kind::Close if self.outside.answers.contains(&at) => return,
            Kind::Writable => return self.writable(shard, n[0]),
            Kind::Advance if self.work.get(&shard).is_some_and(|(_, short)| !short) => {
                self.turn(shard);
            }
            Kind::Publish => {
                let conn = ConnId::from_bits(n[0]);
                if self.deck.broker(shard).is_paused(conn) {
                    self.held.entry((shard, n[0])).or_default().push_back(input);
                    return;
                }
            }
            _ => {}
        }
        let outcome = self.deck.play_unjudged(shard, &input);
        if let Outcome::Id(bits) = outcome {
            self.made[at] = Some(bits);
            if input.kind() == Kind::Outlet {
                let first = self.window(at);
                self.rooms.insert((shard, bits), (first, at));
            }
        }
        if input.kind() == Kind::Step {
            self.work.insert(shard, (n[0].max(1), self.outside.short.contains(&at)));
            self.write(shard);
        }
        self.sums.look(&self.deck, shard);
    }

    /// What an outlet takes in its next window.
    fn window(&mut self, by: usize) -> Option<u64> {
        self.outside.windows.get_mut(&by).and_then(VecDeque::pop_front).flatten()
    }

    fn writable(&mut self, shard: u32, outlet: u64) {
        let Some((_, by)) = self.rooms.get(&(shard, outlet)).copied() else { return };
        // A window that is not used up is taken along.
        let refusing = self.deck.broker(shard).backlog(OutletId::from_bits(outlet));
        let next = self.window(by);
        let room = self.rooms.get_mut(&(shard, outlet)).expect("it was just seen");
        room.0 = match (room.0, next) {
            (Some(left), Some(more)) => Some(left + more),
            _ => next,
        };
        if refusing.is_some_and(|backlog| backlog.refusing) {
            self.deck.play_unjudged(shard, &Input::with(Kind::Writable, &[outlet]));
        }
    }

    /// Until the shard has nothing left to do.
    fn turn(&mut self, shard: u32) {
        let (work, _) = self.work.get(&shard).copied().unwrap_or((1_000, false));
        for _ in 0..ENDLESS {
            let progress = self.deck.play_unjudged(shard, &Input::with(Kind::Step, &[work]));
            self.write(shard);
            self.sums.look(&self.deck, shard);
            if progress == Outcome::Progress(Progress::Idle) {
                return;
            }
        }
    }

    fn write(&mut self, shard: u32) {
        let poll = Input::with(Kind::Poll, &[]);
        while let Outcome::Effect(Some(effect)) = self.deck.play_unjudged(shard, &poll) {
            match effect {
                Effect::Write(offer) => {
                    let room = self.rooms.get_mut(&(shard, offer.outlet.to_bits()));
                    let took = match room {
                        Some((Some(room), _)) => {
                            let took = offer.bytes.min(*room);
                            *room -= took;
                            took
                        }
                        _ => offer.bytes,
                    };
                    let sent = Input::with(Kind::Sent, &[offer.outlet.to_bits(), took]);
                    self.deck.play_unjudged(shard, &sent);
                }
                Effect::Notice(Notice::Close { conn, .. } | Notice::Flushed { conn }) => {
                    let gone = Input::with(Kind::Gone, &[conn.to_bits()]);
                    self.deck.play_unjudged(shard, &gone);
                }
                Effect::Notice(Notice::Resume { conn }) => self.resume(shard, conn),
                Effect::Notice(_) => {}
            }
        }
    }

    /// A source is read again.
    fn resume(&mut self, shard: u32, conn: ConnId) {
        let key = (shard, conn.to_bits());
        while !self.deck.broker(shard).is_paused(conn) {
            let Some(publish) = self.held.get_mut(&key).and_then(VecDeque::pop_front) else {
                return;
            };
            self.deck.play_unjudged(shard, &publish);
        }
    }
}
