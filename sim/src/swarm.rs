//! Swarm: random worlds until time is up or a judge convicts. What a campaign came by is tallied,
//! and what it never came by is a finding too.

use crate::deck::Reached;
use crate::dice;
use crate::judge::{Conviction, Finding, Kind as Promise};
use crate::script::{Script, caught};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// How often one who waits is told how far the campaign is.
const PULSE: Duration = Duration::from_millis(100);
/// One world of so many is a story: it takes as long as many tapes.
const STORY_EVERY: u64 = 20;
/// Worlds after which a campaign must have come by everything.
const MANY: u64 = 1_000;

/// What a campaign may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The first world's seed; the next ones have the next numbers.
    pub seed: u64,
    /// Worlds at most.
    pub runs: u64,
    /// Threads.
    pub threads: usize,
}

/// One world.
#[derive(Debug)]
struct World {
    number: u64,
    hash: u64,
    inputs: u64,
    shards: u64,
    is_story: bool,
    reached: Reached,
    convicted: Option<(Conviction, Case)>,
}

/// What was done in a world.
#[derive(Clone, Debug)]
pub enum Case {
    /// A random story: the text of its file.
    Story(String),
    /// A random tape.
    Tape(Box<Script>),
}

/// A world that was convicted.
#[derive(Debug)]
pub struct Convicted {
    /// Its seed.
    pub seed: u64,
    /// Of what.
    pub conviction: Conviction,
    /// What was done in it.
    pub case: Case,
}

/// What a campaign came to.
#[derive(Debug, Default)]
pub struct Campaign {
    /// Worlds played.
    pub worlds: u64,
    /// Those of them that were random stories; the others were random tapes.
    pub stories: u64,
    /// Those of them with several shards.
    pub sharded: u64,
    /// Inputs played.
    pub inputs: u64,
    /// What was come by.
    pub reached: Reached,
    /// The convicted world with the least seed.
    pub convicted: Option<Convicted>,
    /// A hash of the worlds' hashes; the order in which they ended does not matter.
    pub hash: u64,
}

/// What a campaign must come by.
pub const MARKS: &[&str] = &[
    "demoted to parked",
    "dropped backlog/deadline",
    "dropped backlog/drop_new",
    "dropped backlog/drop_old",
    "dropped backlog/retention",
    "dropped backlog/slow_consumer",
    "dropped backlog/stale",
    "dropped egress/closed",
    "dropped egress/drop_new",
    "dropped egress/drop_old",
    "dropped egress/shutdown",
    "dropped memory/pressure",
    "dropped memory/saturated",
    "dropped memory/severe",
    "dropped mesh/mesh_full",
    "evicted schedule/shutdown",
    "evicted schedule/tenant_share",
    "flushed",
    "gap merge",
    "gap told",
    "joined by another shard's answer",
    "normal to pressure",
    "normal to saturated",
    "normal to severe",
    "parked",
    "paused",
    "pressure to normal",
    "pressure to saturated",
    "pressure to severe",
    "pushed out",
    "refused admission/bytes_conn",
    "refused admission/bytes_shard",
    "refused admission/bytes_tenant",
    "refused admission/closed",
    "refused admission/shutdown",
    "refused memory/saturated",
    "refused schedule/busy",
    "refused schedule/closed",
    "refused schedule/deadline",
    "refused schedule/queue_full",
    "resumed",
    "saturated to normal",
    "saturated to pressure",
    "severe to normal",
    "severe to pressure",
    "severe to saturated",
    "shed admission/bytes_conn",
    "shed admission/bytes_shard",
    "shed admission/bytes_tenant",
    "shed admission/closed",
    "shed admission/shutdown",
    "shed memory/saturated",
    "shed schedule/busy",
    "shed schedule/queue_full",
];

impl Campaign {
    /// Marks that were never reached, when it was long enough to reach them all.
    pub fn missed(&self) -> Vec<&'static str> {
        if self.worlds < MANY || self.convicted.is_some() {
            return Vec::new();
        }
        let mut missed: Vec<&str> =
            MARKS.iter().filter(|mark| !self.reached.0.contains_key(**mark)).copied().collect();
        if self.sharded * 10 < self.worlds {
            missed.push("a tenth of the worlds with several shards");
        }
        missed
    }

    fn add(&mut self, world: World, seed: u64) {
        self.worlds += 1;
        self.stories += u64::from(world.is_story);
        self.sharded += u64::from(world.shards > 1);
        self.inputs += world.inputs;
        self.reached.merge(&world.reached);
        self.hash ^= world.hash.rotate_left(u32::try_from(world.number % 64).unwrap_or(0));
        if let Some((conviction, case)) = world.convicted {
            let seed = seed.wrapping_add(world.number);
            if self.convicted.as_ref().is_none_or(|known| seed < known.seed) {
                self.convicted = Some(Convicted { seed, conviction, case });
            }
        }
    }
}

/// Plays worlds until a bound is reached, `go_on` says no, or a judge convicts. `go_on` is asked
/// about ten times per second.
pub fn run(bounds: &Bounds, mut go_on: impl FnMut(&Campaign) -> bool) -> Campaign {
    let (next, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut campaign = Campaign::default();
    let (tell, hear) = sync_channel(bounds.threads.max(1));
    std::thread::scope(|scope| {
        for _ in 0..bounds.threads.max(1) {
            let (tell, next, over) = (tell.clone(), &next, &over);
            scope.spawn(move || work(bounds, next, over, &tell));
        }
        drop(tell);
        loop {
            match hear.recv_timeout(PULSE) {
                Ok(world) => campaign.add(world, bounds.seed),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if campaign.convicted.is_some() || !go_on(&campaign) {
                over.store(true, Relaxed);
            }
        }
    });
    campaign
}

/// Takes worlds until none is left, it is over, or nobody listens.
fn work(bounds: &Bounds, next: &AtomicU64, over: &AtomicBool, tell: &SyncSender<World>) {
    while !over.load(Relaxed) {
        let number = next.fetch_add(1, Relaxed);
        if number >= bounds.runs || tell.send(world(bounds.seed, number)).is_err() {
            return;
        }
    }
}

fn world(seed: u64, number: u64) -> World {
    if number % STORY_EVERY == STORY_EVERY - 1 {
        return story(seed, number);
    }
    let plan = dice::plan(seed.wrapping_add(number));
    let (script, played) = plan.deal();
    World {
        number,
        hash: played.hash.bits(),
        inputs: script.ops.len() as u64,
        shards: plan.limits.shards,
        is_story: false,
        reached: played.reached,
        convicted: played.conviction.map(|conviction| (conviction, Case::Tape(Box::new(script)))),
    }
}

fn story(seed: u64, number: u64) -> World {
    let (text, story) = dice::tale::tale(seed.wrapping_add(number));
    let shards = story.limits.shards;
    let mut world = World {
        number,
        hash: 0,
        inputs: 0,
        shards,
        is_story: true,
        reached: Reached::default(),
        convicted: None,
    };
    let convict = |judge, kind, what| Conviction {
        finding: Finding { judge, kind, what, at: None },
        at: 0,
        events: Vec::new(),
        command: String::new(),
    };
    let conviction = match caught(|| crate::run(&story)) {
        Err(what) => Some(convict("crash", Promise::Safety, what)),
        Ok(Err(what)) => Some(convict("world", Promise::Safety, what)),
        Ok(Ok(outcome)) => {
            world.hash = u64::from_str_radix(&outcome.report.tape, 16).unwrap_or(0);
            world.inputs = outcome.report.facts;
            world.reached.add_books(&outcome.report.books);
            let unmet = outcome.unmet().next().map(ToString::to_string);
            let unmet = unmet.map(|what| convict("drained", Promise::Liveness, what));
            outcome.conviction.or(unmet)
        }
    };
    world.convicted = conviction.map(|conviction| (conviction, Case::Story(text)));
    world
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_campaign_is_the_same_on_one_thread_and_on_three() {
        let run = |threads| run(&Bounds { seed: 5, runs: 12, threads }, |_| true);
        let (one, three) = (run(1), run(3));
        assert_eq!((one.worlds, one.hash, one.inputs), (three.worlds, three.hash, three.inputs));
        assert_eq!(one.reached, three.reached);
    }

    #[test]
    fn what_was_never_reached_is_named() {
        let mut campaign = Campaign { worlds: MANY, sharded: MANY / 10, ..Campaign::default() };
        assert_eq!(campaign.missed().len(), MARKS.len());
        MARKS.iter().for_each(|mark| campaign.reached.add(*mark));
        assert_eq!(campaign.missed(), Vec::<&str>::new());
        campaign.sharded -= 1;
        assert_eq!(campaign.missed(), ["a tenth of the worlds with several shards"]);
        assert!(Campaign { worlds: MANY - 1, ..Campaign::default() }.missed().is_empty());
    }
}
