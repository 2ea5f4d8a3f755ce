//! The deck: plays inputs of one shard or of several on the real core, and lets the judges hear
//! what comes of each.
//!
//! A tape has lengths and no payloads. The deck cuts every publish's frame out of one great piece
//! of zeros, at a place of its own: the address of an offered slice tells whose it is.

mod frames;
mod heal;
mod hear;
mod memory;

use crate::amount::{Nanos, Unit};
use crate::judge::contract::{Contract, Thing};
use crate::judge::sequence::Sequence;
use crate::judge::{Finding, Found};
use frames::Frames;
pub use memory::Reached;
use memory::Shard;
use sluicegate_core::{
    Ack, Broker, ConnId, Effect, Input, Kind, Limits, Outcome, OutletId, Parcel, Recorder, SubId,
};
use std::collections::{BTreeMap, VecDeque};

/// Inputs kept for a verdict.
const RECENT: usize = 20;

/// Shards being played, and their judges.
#[derive(Debug)]
pub struct Deck {
    shards: Vec<Shard>,
    /// Every shard of the process is here: parcels go from one to the other.
    whole: bool,
    wires: BTreeMap<(u32, u32), VecDeque<Parcel>>,
    frames: Frames,
    sequence: Sequence,
    /// Subscriptions so far, over all shards: each has its number.
    subs: u32,
    recent: VecDeque<(u64, u32, Input, Outcome)>,
    recorder: Option<Recorder>,
    reached: Reached,
    /// Inputs played, and a hash of them and of what they were answered.
    played: u64,
    hash: crate::tape::Tape,
}

impl Deck {
    /// The shards of these numbers, empty.
    pub fn new(limits: &Limits, seed: u64, numbers: &[u32]) -> Self {
        let shards: Vec<Shard> =
            numbers.iter().map(|number| Shard::new(limits, seed, *number)).collect();
        Self {
            whole: shards.len() as u64 == limits.shards,
            shards,
            wires: BTreeMap::new(),
            frames: Frames::default(),
            sequence: Sequence::default(),
            subs: 0,
            recent: VecDeque::new(),
            recorder: None,
            reached: Reached::default(),
            played: 0,
            hash: crate::tape::Tape::default(),
        }
    }

    /// From now on a tape is written.
    pub fn record(&mut self, limits: &Limits, seed: u64) {
        self.recorder = Some(Recorder::new(limits, seed));
        self.shards.iter_mut().for_each(|shard| shard.broker.record_inputs(true));
    }

    /// Ends the recording: the tape, with a mark of every shard at its end if they are sound.
    pub fn take_tape(&mut self, marked: bool) -> Vec<u8> {
        let Some(mut recorder) = self.recorder.take() else { return Vec::new() };
        for shard in &mut self.shards {
            recorder.append(&mut shard.broker);
            if marked {
                recorder.mark(&shard.broker);
            }
        }
        recorder.take()
    }

    /// The latest time of any shard, in nanoseconds.
    pub fn latest(&self) -> u64 {
        self.brokers().map(|broker| broker.now().as_nanos()).max().unwrap_or(0)
    }

    /// Does one input and judges nothing.
    pub(crate) fn play_unjudged(&mut self, shard: u32, input: &Input) -> Outcome {
        let at = self.place(shard);
        self.act(at, input)
    }

    fn act(&mut self, at: usize, input: &Input) -> Outcome {
        match input.kind() {
            Kind::PollParcel if self.whole => self.poll_parcel(at, input),
            Kind::Receive if self.whole => self.carry(at, input),
            _ => {
                let Self { shards, frames, .. } = self;
                let slot = frames.slot_of(input);
                shards[at].broker.apply_with(input, &mut |bytes| frames::cut(slot, bytes))
            }
        }
    }

    /// A shard.
    ///
    /// # Panics
    /// When there is none of this number.
    pub fn broker(&self, shard: u32) -> &Broker {
        &self.shards[self.place(shard)].broker
    }

    /// Every shard, in order of number.
    pub fn brokers(&self) -> impl Iterator<Item = &Broker> {
        self.shards.iter().map(|shard| &shard.broker)
    }

    /// What the shards came by so far.
    pub fn reached(&self) -> Reached {
        let mut reached = self.reached.clone();
        self.brokers().for_each(|broker| reached.add_books(broker.ledger()));
        reached
    }

    /// Something else was come by.
    pub(crate) fn mark_reached(&mut self, what: &str) {
        self.reached.add(what);
    }

    /// Inputs played.
    pub const fn played(&self) -> u64 {
        self.played
    }

    /// A hash of every input and answer so far.
    pub const fn hash(&self) -> crate::tape::Tape {
        self.hash
    }

    /// The virtual time of a shard, in nanoseconds.
    pub fn now(&self, shard: u32) -> u64 {
        self.broker(shard).now().as_nanos()
    }

    /// The last inputs and answers, oldest first.
    pub fn recent(&self) -> Vec<String> {
        let line = |(now, shard, input, outcome): &(u64, u32, Input, Outcome)| {
            let now = Nanos::show(*now);
            format!("{now}  shard {shard}: {} -> {}", show(input), answer(outcome))
        };
        self.recent.iter().map(line).collect()
    }

    fn place(&self, shard: u32) -> usize {
        let found = self.shards.iter().position(|own| own.broker.number() == shard);
        found.expect("a tape names its shards")
    }

    /// Does one input, and judges what came of it.
    pub fn apply(&mut self, shard: u32, input: &Input) -> Result<Outcome, Finding> {
        let at = self.place(shard);
        let before = self.shards[at].before(input);
        let outcome = self.act(at, input);
        self.note(shard, input, outcome);
        if let Some(recorder) = &mut self.recorder {
            recorder.append(&mut self.shards[at].broker);
        }
        if before.is_stale {
            let changed = self.shards[at].broker.fingerprint() != before.fingerprint;
            Contract::stale(&outcome, changed)?;
        }
        self.hear(at, input, &outcome, &before)?;
        let told = outcome == Outcome::Effect(None);
        self.shards[at].look(told, self.played, &mut self.reached)?;
        Ok(outcome)
    }

    fn note(&mut self, shard: u32, input: &Input, outcome: Outcome) {
        self.played += 1;
        self.hash.put(&[u64::from(shard) << 8 | input.kind() as u64]);
        self.hash.put(input.numbers());
        self.hash.put(&words(&outcome));
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((self.now(shard), shard, *input, outcome));
    }

    /// The next parcel goes onto its way.
    fn poll_parcel(&mut self, at: usize, input: &Input) -> Outcome {
        let to = u32::try_from(input.numbers()[0]).unwrap_or(u32::MAX);
        let broker = &mut self.shards[at].broker;
        let parcel = broker.poll_parcel(to);
        let from = broker.number();
        let there = parcel.is_some();
        self.wires.entry((from, to)).or_default().extend(parcel);
        Outcome::Parcel(there)
    }

    /// The next parcel on its way arrives, whatever the input says that it holds.
    fn carry(&mut self, at: usize, input: &Input) -> Outcome {
        let from = u32::try_from(input.numbers()[0]).unwrap_or(u32::MAX);
        let broker = &mut self.shards[at].broker;
        let wire = self.wires.get_mut(&(from, broker.number()));
        let next = if broker.wants_parcels() { wire.and_then(VecDeque::pop_front) } else { None };
        let Some(parcel) = next else { return Outcome::Ignored };
        broker.receive(from, parcel);
        Outcome::Done
    }

    /// Parcels on their way from one shard to another.
    pub fn on_wire(&self, from: u32, to: u32) -> usize {
        self.wires.get(&(from, to)).map_or(0, VecDeque::len)
    }

    fn input(&mut self, shard: u32, kind: Kind, numbers: &[u64]) -> Result<Outcome, Finding> {
        self.apply(shard, &Input::with(kind, numbers))
    }

    /// One turn as a host does it that writes at once: until the shard has nothing left to do.
    /// `takes`: how many bytes an outlet takes of an offer.
    pub fn turn(
        &mut self,
        shard: u32,
        work: u32,
        takes: &mut dyn FnMut(OutletId, u64) -> Option<u64>,
    ) -> Found {
        for _ in 0..ENDLESS {
            let more = self.input(shard, Kind::Step, &[work.into()])?;
            while let Outcome::Effect(Some(effect)) = self.input(shard, Kind::Poll, &[])? {
                self.heed(shard, effect, takes)?;
            }
            let broker = self.broker(shard);
            let due = broker.next_deadline().is_some_and(|at| at <= broker.now());
            let idle = more == Outcome::Progress(sluicegate_core::Progress::Idle);
            if idle && !due {
                return self.quiescent(shard);
            }
            if due {
                let now = broker.now().as_nanos();
                self.input(shard, Kind::Advance, &[now])?;
            }
        }
        Err(Finding {
            judge: "stuck",
            kind: crate::judge::Kind::Liveness,
            what: format!("a turn of shard {shard} does not end"),
            at: None,
        })
    }

    /// What a host does with an effect.
    fn heed(
        &mut self,
        shard: u32,
        effect: Effect,
        takes: &mut dyn FnMut(OutletId, u64) -> Option<u64>,
    ) -> Found {
        use sluicegate_core::Notice;
        match effect {
            Effect::Write(offer) => {
                if let Some(took) = takes(offer.outlet, offer.bytes) {
                    self.input(shard, Kind::Sent, &[offer.outlet.to_bits(), took])?;
                }
            }
            Effect::Notice(Notice::Close { conn, .. } | Notice::Flushed { conn }) => {
                self.input(shard, Kind::Gone, &[conn.to_bits()])?;
            }
            Effect::Notice(_) => {}
        }
        Ok(())
    }

    /// The host has nothing left to do: nothing may be left that nothing will wake.
    pub fn quiescent(&self, shard: u32) -> Found {
        let at = self.place(shard);
        // Offers that a host has not settled hold up a fan-out, and are no fault of the shard's.
        if self.shards[at].outlets.values().any(|pipe| pipe.open.is_some()) {
            return Ok(());
        }
        crate::judge::stuck::Stuck::quiescent(self.shards[at].broker.check_quiescent())
    }
}

/// Rounds of a turn after which it counts as endless.
const ENDLESS: u32 = 20_000;

/// An input for people: its kind and its numbers.
pub(crate) fn show(input: &Input) -> String {
    let numbers: Vec<String> = input.numbers().iter().map(u64::to_string).collect();
    format!("{:?}({})", input.kind(), numbers.join(", "))
}

/// An answer for people.
fn answer(outcome: &Outcome) -> String {
    use sluicegate_core::Verdict;
    let cell = |why: &sluicegate_core::Refusal| crate::fact::name_cell(why.place, why.reason);
    match outcome {
        Outcome::Refused(why) => format!("refused {}", cell(why)),
        Outcome::Verdict(Verdict::Refused(why)) => format!("refused {}", cell(why)),
        Outcome::Verdict(Verdict::Shed(why)) => format!("shed {}", cell(why)),
        Outcome::Verdict(verdict) => format!("{verdict:?}").to_lowercase(),
        Outcome::Effect(None) => "nothing".to_owned(),
        Outcome::Effect(Some(Effect::Write(offer))) => {
            format!("{:?} may write {} bytes", offer.outlet, offer.bytes)
        }
        Outcome::Effect(Some(Effect::Notice(notice))) => format!("{notice:?}"),
        Outcome::Id(bits) => format!("id {:#x}", bits),
        other => format!("{other:?}").to_lowercase(),
    }
}

/// An answer as words, for the hash.
fn words(outcome: &Outcome) -> [u64; 4] {
    use sluicegate_core::Verdict;
    let why = |why: &sluicegate_core::Refusal| (why.place as u64) << 8 | why.reason as u64;
    match outcome {
        Outcome::Done => [1, 0, 0, 0],
        Outcome::Ignored => [2, 0, 0, 0],
        Outcome::Id(bits) => [3, *bits, 0, 0],
        Outcome::Refused(no) => [4, why(no), 0, 0],
        Outcome::Verdict(Verdict::Queued(ticket)) => [5, ticket.to_bits(), 0, 0],
        Outcome::Verdict(Verdict::Parked(ticket)) => [6, ticket.to_bits(), 0, 0],
        Outcome::Verdict(Verdict::Refused(no)) => [7, why(no), 0, 0],
        Outcome::Verdict(Verdict::Shed(no)) => [8, why(no), 0, 0],
        Outcome::Effect(None) => [9, 0, 0, 0],
        Outcome::Effect(Some(Effect::Write(offer))) => [10, offer.outlet.to_bits(), offer.bytes, 0],
        Outcome::Effect(Some(Effect::Notice(notice))) => notice_words(notice),
        Outcome::Progress(progress) => [12, *progress as u64, 0, 0],
        Outcome::Parcel(there) => [13, (*there).into(), 0, 0],
    }
}

fn notice_words(notice: &sluicegate_core::Notice) -> [u64; 4] {
    use sluicegate_core::Notice;
    match *notice {
        Notice::Close { conn, .. } => [20, conn.to_bits(), 0, 0],
        Notice::Committed { ticket, first, .. } => [21, ticket.to_bits(), first, 0],
        Notice::Ended { sub, .. } => [22, sub.to_bits(), 0, 0],
        Notice::Failed { ticket, .. } => [23, ticket.to_bits(), 0, 0],
        Notice::Flushed { conn } => [24, conn.to_bits(), 0, 0],
        Notice::Gap { sub, gap } => [25, sub.to_bits(), gap.first, gap.records],
        Notice::Joined { sub, start } => [26, sub.to_bits(), start, 0],
        Notice::Pause { conn } => [27, conn.to_bits(), 0, 0],
        Notice::Resume { conn } => [28, conn.to_bits(), 0, 0],
        Notice::Shed { conn, records, place, reason } => {
            let why = u64::from(place.code()) << 8 | u64::from(reason.code());
            [29, conn.to_bits(), records, why]
        }
    }
}
