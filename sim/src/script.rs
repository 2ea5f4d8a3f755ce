//! A script: the inputs of a tape with names instead of numbers for what earlier ones made, and
//! steps instead of moments for time. Leaving some out leaves the rest meaningful.

use crate::amount::{Nanos, Unit};
use crate::deck::{Deck, Reached};
use crate::judge::{Conviction, Finding, Kind as Promise};
use crate::tape::Tape as Hash;
use sluicegate_core::{Books, Damage, Input, Item, Kind, Limits, Outcome, Tally, Tape};
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The most inputs of a script: it is held in memory.
const MOST: usize = 4_000_000;

/// One input of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// Whose input it is.
    pub shard: u32,
    /// With the moment of an advance as a step from the one before.
    pub input: Input,
    /// Which of its numbers are ids, and which inputs gave them.
    refs: [Option<(u8, u32)>; 3],
}

/// Inputs of some shards.
#[derive(Clone, Debug)]
pub struct Script {
    /// The limits of the shards.
    pub limits: Limits,
    /// Their seed.
    pub seed: u64,
    /// Their numbers.
    pub shards: Vec<u32>,
    /// What is done to them, in order.
    pub ops: Vec<Op>,
}

/// Writes a script while its inputs are played.
#[derive(Debug)]
pub(crate) struct Writer {
    script: Script,
    /// Who gave an id: shard, kind of thing, bits.
    given: BTreeMap<(u32, Kind, u64), u32>,
}

/// What playing a script came to.
#[derive(Debug)]
pub struct Played {
    /// What a judge found, if one did.
    pub conviction: Option<Conviction>,
    /// Inputs that were played when it did.
    pub inputs: usize,
    /// A hash of every input and answer.
    pub hash: Hash,
    /// What was come by.
    pub reached: Reached,
    /// The tape, when one was asked for.
    pub tape: Vec<u8>,
    /// Records that were offered, and that were delivered.
    pub records: (u64, u64),
}

/// Which of an input's numbers are ids, and what makes such a thing.
fn ids(input: &Input) -> &'static [(u8, Kind)] {
    match input.kind() {
        Kind::Forget | Kind::Open | Kind::Reweigh | Kind::Topic => &[(0, Kind::Tenant)],
        Kind::Close
        | Kind::Gone
        | Kind::Outlet
        | Kind::Reassembly
        | Kind::Refuse
        | Kind::Shed
        | Kind::Source => &[(0, Kind::Open)],
        Kind::Publish if input.numbers()[5] == 1 => {
            &[(0, Kind::Open), (1, Kind::Topic), (6, Kind::Outlet)]
        }
        Kind::Publish => &[(0, Kind::Open), (1, Kind::Topic)],
        Kind::Refused | Kind::Send | Kind::Sent | Kind::Shut | Kind::Writable => {
            &[(0, Kind::Outlet)]
        }
        Kind::Subscribe => &[(0, Kind::Outlet), (1, Kind::Topic)],
        Kind::Unsubscribe => &[(0, Kind::Subscribe)],
        Kind::Advance
        | Kind::Lease
        | Kind::Node
        | Kind::Poll
        | Kind::PollParcel
        | Kind::Pressure
        | Kind::Receive
        | Kind::Shutdown
        | Kind::Step
        | Kind::Tenant => &[],
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).expect("an index of a vector")
}

impl Writer {
    pub(crate) fn new(limits: &Limits, seed: u64, shards: &[u32]) -> Self {
        let (limits, shards) = (limits.clone(), shards.to_vec());
        let script = Script { limits, seed, shards, ops: Vec::new() };
        Self { script, given: BTreeMap::new() }
    }

    /// Appends an input. `now`: the shard's time before it.
    pub(crate) fn push(&mut self, shard: u32, now: u64, input: &Input, outcome: Option<&Outcome>) {
        let mut numbers = input.numbers().to_vec();
        if input.kind() == Kind::Advance {
            numbers[0] = numbers[0].saturating_sub(now);
        }
        let mut refs = [None; 3];
        for (own, (slot, kind)) in refs.iter_mut().zip(ids(input)) {
            let bits = numbers[usize::from(*slot)];
            *own = self.given.get(&(shard, *kind, bits)).map(|by| (*slot, *by));
        }
        let op = Op { shard, input: Input::with(input.kind(), &numbers), refs };
        let by = u32::try_from(self.script.ops.len()).expect("a script is bounded");
        if let Some(Outcome::Id(bits)) = outcome {
            // A source is used where a connection is.
            let is_source = input.kind() == Kind::Source;
            let kind = if is_source { Kind::Open } else { input.kind() };
            self.given.entry((shard, kind, *bits)).or_insert(by);
        }
        self.script.ops.push(op);
    }

    pub(crate) fn script(self) -> Script {
        self.script
    }
}

impl Played {
    /// What a deck came to.
    pub(crate) fn of(deck: &Deck, conviction: Option<Conviction>, inputs: usize) -> Self {
        let tally = |column: fn(&Books) -> Tally| -> u64 {
            deck.brokers().map(|broker| column(broker.ledger()).records).sum()
        };
        Self {
            conviction,
            inputs,
            hash: deck.hash(),
            records: (tally(|books| books.offered), tally(|books| books.delivered)),
            reached: deck.reached(),
            tape: Vec::new(),
        }
    }
}

impl Script {
    /// Plays a tape once, with no judge but the core's own, to know which input gave which id.
    ///
    /// Errors: where the tape is damaged. What comes before a cut is kept.
    pub fn of(tape: &Tape<'_>) -> Result<Self, Damage> {
        let mut shards: Vec<u32> = Vec::new();
        for item in tape.items() {
            match item {
                Ok(Item::Input { shard, .. } | Item::Mark { shard, .. }) => {
                    if !shards.contains(&shard) {
                        shards.push(shard);
                    }
                }
                Err(Damage::Cut(_)) => break,
                Err(damage) => return Err(damage),
            }
        }
        shards.sort_unstable();
        let mut deck = Deck::new(&tape.limits, tape.seed, &shards);
        let mut writer = Writer::new(&tape.limits, tape.seed, &shards);
        let inputs = tape.items().map_while(Result::ok).filter_map(|item| match item {
            Item::Input { shard, input } => Some((shard, input)),
            Item::Mark { .. } => None,
        });
        let mut over = false;
        for (shard, input) in inputs.take(MOST) {
            let now = deck.now(shard);
            let play = || deck.play_unjudged(shard, &input);
            // After a crash the ids of the rest are not known, and not needed.
            let outcome = if over { None } else { caught(play).ok() };
            over |= outcome.is_none();
            writer.push(shard, now, &input, outcome.as_ref());
        }
        Ok(writer.script())
    }

    /// Plays it with every judge, to the first conviction or to the end and through the healing
    /// after it.
    pub fn play(&self, record: bool) -> Played {
        let mut deck = Deck::new(&self.limits, self.seed, &self.shards);
        if record {
            deck.record(&self.limits, self.seed);
        }
        let mut made = vec![None; self.ops.len()];
        let mut inputs = 0;
        let mut tape = Vec::new();
        let run = || {
            for (at, op) in self.ops.iter().enumerate() {
                inputs = at + 1;
                let Some(input) = op.resolve(&made, deck.now(op.shard)) else { continue };
                if let Outcome::Id(bits) = deck.apply(op.shard, &input)? {
                    made[at] = Some(bits);
                }
            }
            tape = deck.take_tape(true);
            deck.heal()
        };
        let found = match caught(run) {
            Ok(Ok(())) => None,
            Ok(Err(finding)) => Some(finding),
            Err(what) => Some(Finding { judge: "crash", kind: Promise::Safety, what, at: None }),
        };
        let crashed = found.as_ref().is_some_and(|finding| finding.judge == "crash");
        // What heals is not on the tape: whoever plays it heals by himself.
        if tape.is_empty() {
            tape = deck.take_tape(!crashed);
        }
        let conviction = found.map(|finding| Conviction {
            at: deck.latest(),
            events: deck.recent(),
            command: String::new(),
            finding,
        });
        Played { tape, ..Played::of(&deck, conviction, inputs) }
    }

    /// Only these of its inputs, and what they name among them.
    pub fn only(&self, kept: &[usize]) -> Self {
        let mut moved = vec![None; self.ops.len()];
        let mut ops = Vec::with_capacity(kept.len());
        for &at in kept {
            let mut op = self.ops[at];
            let named = op.refs.iter().flatten().all(|(_, by)| moved[index(*by)].is_some());
            if !named {
                continue;
            }
            for (_, by) in op.refs.iter_mut().flatten() {
                *by = moved[index(*by)].expect("it was just seen");
            }
            moved[at] = Some(u32::try_from(ops.len()).expect("a script is bounded"));
            ops.push(op);
        }
        Self { ops, limits: self.limits.clone(), shards: self.shards.clone(), seed: self.seed }
    }

    /// Its inputs for people, one per line, with names for what they make.
    pub fn lines(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::with_capacity(self.ops.len());
        let mut counts: BTreeMap<Kind, u32> = BTreeMap::new();
        let mut lines = Vec::with_capacity(self.ops.len());
        for op in &self.ops {
            let word = match op.input.kind() {
                Kind::Tenant => "tenant",
                Kind::Open => "conn",
                Kind::Source => "source",
                Kind::Outlet => "outlet",
                Kind::Topic => "topic",
                Kind::Subscribe => "sub",
                _ => "",
            };
            let text = op.text(&names);
            if word.is_empty() {
                names.push(String::new());
                lines.push(text);
                continue;
            }
            let count = counts.entry(op.input.kind()).or_default();
            *count += 1;
            let name = format!("{word}{count}");
            lines.push(format!("{name} = {text}"));
            names.push(name);
        }
        if self.shards.len() > 1 {
            let shards = self.ops.iter().map(|op| op.shard);
            lines = lines.iter().zip(shards).map(|(l, s)| format!("shard {s}: {l}")).collect();
        }
        lines
    }
}

impl Op {
    /// The input with ids as they are now, and the moment of an advance. None when something that
    /// it names was not made.
    pub(crate) fn resolve(&self, made: &[Option<u64>], now: u64) -> Option<Input> {
        let mut numbers = self.input.numbers().to_vec();
        for (slot, by) in self.refs.iter().flatten() {
            numbers[usize::from(*slot)] = made[index(*by)]?;
        }
        if self.input.kind() == Kind::Advance {
            numbers[0] = now.saturating_add(numbers[0]);
        }
        Some(Input::with(self.input.kind(), &numbers))
    }

    /// The same with another number in a place that holds no id.
    pub(crate) fn with(&self, slot: usize, number: u64) -> Self {
        let mut numbers = self.input.numbers().to_vec();
        numbers[slot] = number;
        Self { input: Input::with(self.input.kind(), &numbers), ..*self }
    }

    /// Whether a place holds an id.
    pub(crate) fn is_id(&self, slot: usize) -> bool {
        self.refs.iter().flatten().any(|(own, _)| usize::from(*own) == slot)
    }

    fn text(&self, names: &[String]) -> String {
        let n = self.input.numbers();
        let name = |slot: usize| {
            let found = self.refs.iter().flatten().find(|(own, _)| usize::from(*own) == slot);
            found.map_or_else(|| format!("{:#x}", n[slot]), |(_, by)| names[index(*by)].clone())
        };
        let pick = |of: &[&'static str], slot: usize| {
            of[usize::try_from(n[slot] % of.len() as u64).unwrap_or(0)]
        };
        match self.input.kind() {
            Kind::Advance => format!("advance(+{})", Nanos::show(n[0])),
            Kind::Close => {
                format!("close({}, {}, {} B)", name(0), pick(&["after flush", "now"], 1), n[2])
            }
            Kind::Forget => format!("forget({})", name(0)),
            Kind::Gone => format!("gone({})", name(0)),
            Kind::Lease => format!("lease({} B lent, {} B more)", n[0], n[1]),
            Kind::Node => format!("node(saturated {})", n[0]),
            Kind::Open => format!("open({})", name(0)),
            Kind::Outlet => format!("outlet({}, {})", name(0), pick(&["shared", "single"], 1)),
            Kind::Poll => "poll()".to_owned(),
            Kind::PollParcel => format!("poll_parcel(to shard {})", n[0]),
            Kind::Pressure => {
                format!("pressure(readable {}, avg10 {}, total {})", n[0], n[1], n[2])
            }
            Kind::Publish => {
                let except = if n[5] > 0 { format!(", not to {}", name(6)) } else { String::new() };
                let ack = pick(&["none", "now", "wait"], 4);
                let (conn, topic, bytes, records) = (name(0), name(1), n[2], n[3]);
                let keep = match n[7] {
                    0 => String::new(),
                    1 => ", keep nothing".to_owned(),
                    more => format!(", keep the newest {}", more - 1),
                };
                let what = format!("{bytes} B, {records} records, ack {ack}{except}{keep}");
                format!("publish({conn}, {topic}, {what})")
            }
            Kind::Reassembly => format!("reassembly({}, {} B)", name(0), n[1]),
            Kind::Receive => format!("receive(from shard {})", n[0]),
            Kind::Refuse => format!("refuse({}, {} records, {} B)", name(0), n[1], n[2]),
            Kind::Refused => format!("refused({})", name(0)),
            Kind::Reweigh => format!("reweigh({}, {})", name(0), n[1]),
            Kind::Send => {
                format!("send({}, {} B, {})", name(0), n[1], pick(&["first", "in line"], 2))
            }
            Kind::Sent => format!("sent({}, {} B)", name(0), n[1]),
            Kind::Shed => format!("shed({}, {} records, {} B)", name(0), n[1], n[2]),
            Kind::Shut => format!("shut({})", name(0)),
            Kind::Shutdown => "shutdown()".to_owned(),
            Kind::Source => format!("source({})", name(0)),
            Kind::Step => format!("step({})", n[0]),
            Kind::Subscribe => {
                let policy = pick(&["block", "drop_new", "drop_old", "latest"], 2);
                let start = pick(&["tail", "earliest", "last", "at"], 5);
                let (outlet, topic, batches, bytes) = (name(0), name(1), n[3], n[4]);
                let wish = format!("{policy}, {batches} batches, {bytes} B, {start} {}", n[6]);
                format!("subscribe({outlet}, {topic}, {wish})")
            }
            Kind::Tenant => format!("tenant(weight {})", n[0]),
            Kind::Topic => format!("topic({}, {:016x})", name(0), n[1]),
            Kind::Unsubscribe => format!("unsubscribe({})", name(0)),
            Kind::Writable => format!("writable({})", name(0)),
        }
    }
}

/// Runs something that may panic; what it said then.
pub(crate) fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic: Box<dyn Any + Send>| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        text.unwrap_or_else(|| "a panic without words".to_owned())
    })
}
