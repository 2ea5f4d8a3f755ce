//! Shrinking: from a convicted script to a small one that the same judge convicts.
//!
//! Delta debugging: large pieces are left out first, then smaller ones, then single inputs; then
//! the numbers of those that are left go towards zero and the limits to their defaults.

use crate::judge::Conviction;
use crate::script::{Played, Script};
use sluicegate_core::{Kind, Limits, limits};

/// Plays at most, so that a script that plays slowly ends too.
const MOST_PLAYS: u32 = 6_000;

/// What shrinking came to.
#[derive(Debug)]
pub struct Shrunk {
    /// The smallest script found.
    pub script: Script,
    /// What it is convicted of.
    pub conviction: Conviction,
    /// How often something was played.
    pub plays: u32,
}

struct Search {
    judge: &'static str,
    best: Script,
    conviction: Conviction,
    plays: u32,
}

/// Shrinks a script; none when no judge convicts it. `watch` hears how many inputs are left.
pub fn shrink(script: &Script, mut watch: impl FnMut(usize)) -> Option<Shrunk> {
    let Played { conviction, inputs, .. } = script.play(false);
    let conviction = conviction?;
    let judge = conviction.finding.judge;
    let mut search = Search { judge, best: script.clone(), conviction, plays: 1 };
    let kept: Vec<usize> = (0..inputs).collect();
    search.attempt(script.only(&kept));
    loop {
        let before = search.best.clone();
        search.leave_out(&mut watch);
        search.lower_numbers();
        search.simplify_limits();
        watch(search.best.ops.len());
        let same = before.ops == search.best.ops && before.limits == search.best.limits;
        if same || search.is_over() {
            break;
        }
    }
    let Search { best: script, conviction, plays, .. } = search;
    Some(Shrunk { script, conviction, plays })
}

impl Search {
    const fn is_over(&self) -> bool {
        self.plays >= MOST_PLAYS
    }

    /// Takes a script if the same judge convicts it.
    fn attempt(&mut self, script: Script) -> bool {
        if self.is_over() || script.limits.check().is_err() {
            return false;
        }
        self.plays += 1;
        let Played { conviction, inputs, .. } = script.play(false);
        match conviction {
            Some(conviction) if conviction.finding.judge == self.judge => {
                let kept: Vec<usize> = (0..inputs).collect();
                self.best = script.only(&kept);
                self.conviction = conviction;
                true
            }
            _ => false,
        }
    }

    /// Leaves out pieces, from half of all inputs down to one.
    fn leave_out(&mut self, watch: &mut impl FnMut(usize)) {
        let mut piece = self.best.ops.len().div_ceil(2);
        while piece > 0 && !self.is_over() {
            // From the end: what is late is named by nobody.
            let mut end = self.best.ops.len();
            while end > 0 && !self.is_over() {
                let from = end.saturating_sub(piece);
                let kept: Vec<usize> = (0..from).chain(end..self.best.ops.len()).collect();
                self.attempt(self.best.only(&kept));
                end = from.min(self.best.ops.len());
            }
            watch(self.best.ops.len());
            piece = if piece == 1 { 0 } else { piece.div_ceil(2) };
        }
    }

    fn lower_numbers(&mut self) {
        let mut at = 0;
        while at < self.best.ops.len() {
            let op = self.best.ops[at];
            for slot in 0..op.input.numbers().len() {
                if op.is_id(slot) || op.input.kind() == Kind::Receive {
                    continue;
                }
                self.lower(at, slot);
            }
            at += 1;
        }
    }

    /// Lowers one number as far as it goes.
    fn lower(&mut self, at: usize, slot: usize) {
        let number = |script: &Script| script.ops.get(at).map(|op| op.input.numbers()[slot]);
        let Some(first) = number(&self.best) else { return };
        for low in [0, 1] {
            if first > low && self.change(at, slot, low) {
                return;
            }
        }
        let (mut low, mut high) = (1, first);
        while low + 1 < high && !self.is_over() {
            let middle = low + (high - low) / 2;
            if self.change(at, slot, middle) {
                high = middle;
            } else {
                low = middle;
            }
            // A round number is as good as the least one.
            if high - low < high / 8 {
                break;
            }
        }
    }

    fn change(&mut self, at: usize, slot: usize, number: u64) -> bool {
        let mut script = self.best.clone();
        let Some(op) = script.ops.get_mut(at) else { return false };
        *op = op.with(slot, number);
        self.attempt(script)
    }

    fn simplify_limits(&mut self) {
        let defaults = Limits::default();
        for key in limits::KEYS {
            let (own, default) = (self.best.limits.get(key.name), defaults.get(key.name));
            let (Some(value), false) = (default, own == default || key.name == "shards") else {
                continue;
            };
            let mut script = self.best.clone();
            script.limits.set(key.name, value).expect("a default is within its range");
            self.attempt(script);
        }
    }
}
