//! Random tapes and random stories, drawn by proptest: swarm and the tests share these strategies.
//!
//! A plan is plain numbers, so that proptest can shrink it; swarm draws its plans from the same
//! strategies by a seed. Dealing a plan plays it with every judge and writes it as a script.

mod deal;
pub mod tale;

use crate::script::{Played, Script};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestRng, TestRunner};
use sluicegate_core::Limits;

const KIB: u64 = 1 << 10;

/// One random operation: which, and two numbers for its details.
pub type Roll = (u8, u32, u32);

/// A random tape, not yet played.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Limits out of extreme ranges.
    pub limits: Limits,
    /// The shards' seed.
    pub seed: u64,
    /// Which faults may happen.
    pub faults: Faults,
    /// Operations.
    pub rolls: Vec<Roll>,
}

/// What may happen in a run. Each run has a mix of its own: what is rare where everything happens
/// at once is common where the rest is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults(pub u16);

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident $bit:literal)*) => {
        impl Faults {
            $($(#[$doc])*
            pub const fn $name(self) -> bool {
                self.0 & 1 << $bit != 0
            }
            )*
        }
    };
}

faults! {
    /// Transports that take part of what they are offered, or nothing.
    stalls 0
    /// Hosts that settle offers later.
    waits 1
    /// Connections that end.
    leaves 2
    /// Connections that the host closes.
    closes 3
    /// Control frames.
    control 4
    /// Unfinished frames.
    reassembly 5
    /// Loans and pressure.
    memory 6
    /// A shutdown.
    shutdown 7
    /// Publishes that leave out an outlet.
    except 8
    /// Stale ids.
    stale 9
    /// Large frames.
    large 10
    /// Long times without anything.
    pauses 11
    /// Steps of a few deliveries.
    small_steps 12
    /// Sources that publish although they are paused.
    pushy 13
    /// One tenant or topic that gets nearly everything.
    skewed 14
    /// Parcels that are late.
    late_parcels 15
}

/// A plan drawn by a seed: the same on every machine.
pub fn plan(seed: u64) -> Plan {
    drawn(&plans(), seed)
}

/// What a strategy gives for a seed.
fn drawn<S: Strategy>(strategy: &S, seed: u64) -> S::Value {
    let mut bytes = [0; 32];
    for (at, word) in bytes.chunks_mut(8).zip(1_u64..) {
        at.copy_from_slice(&(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word).to_le_bytes());
    }
    let rng_seed = RngSeed::Fixed(seed);
    let config = Config { rng_seed, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, rng);
    strategy.new_tree(&mut runner).expect("no strategy here refuses").current()
}

/// Any plan.
pub fn plans() -> impl Strategy<Value = Plan> {
    let shards = prop_oneof![6 => Just(1_u64), 1 => 2..5_u64];
    let rolls = proptest::collection::vec((0..100_u8, any::<u32>(), any::<u32>()), 20..260);
    (any::<u64>(), shards, queues(), flows(), publishes(), any::<u16>(), rolls).prop_map(
        |(seed, shards, queues, flows, publishes, faults, rolls)| {
            let mut limits = Limits {
                shards,
                max_connections: 40,
                max_frame_bytes: 60 * KIB,
                max_subscriptions: 60,
                max_topics: 8,
                memory_budget: shards << 20,
                ..Limits::default()
            };
            for (name, value) in queues.into_iter().chain(flows).chain(publishes) {
                limits.set(name, value).expect("what is drawn is within its range");
            }
            Plan { limits, seed, faults: Faults(faults), rolls }
        },
    )
}

type Keys = Vec<(&'static str, u64)>;

/// One value for each key.
fn keys(table: &'static [(&'static str, &'static [u64])]) -> impl Strategy<Value = Keys> {
    let one = |(name, values): &(&'static str, &'static [u64])| {
        let name = *name;
        select(*values).prop_map(move |value| (name, value))
    };
    table.iter().map(one).collect::<Vec<_>>()
}

fn queues() -> impl Strategy<Value = Keys> {
    keys(&[
        ("egress_batches", &[1, 3, 64]),
        ("egress_bytes", &[KIB, 40 * KIB, 1 << 20]),
        ("egress_shed", &[0, 0, 1]),
        ("high_water_bytes", &[2 * KIB, 40 * KIB, 800 * KIB]),
        ("offer_batches", &[1, 3, 16]),
        ("offer_bytes", &[KIB, 64 * KIB]),
        ("subscription_batches", &[1, 4, 200]),
        ("subscription_bytes", &[4 * KIB, 400 * KIB]),
        ("control_reserve_bytes", &[4 * KIB, 64 * KIB]),
        ("mesh_depth", &[1, 3, 100]),
    ])
}

fn flows() -> impl Strategy<Value = Keys> {
    keys(&[
        ("allow_block", &[0, 1, 1]),
        ("band_dwell_ms", &[0, 100]),
        ("block_deadline_ms", &[0, 500, 3_000]),
        ("codel_target_ms", &[0, 0, 5, 75]),
        ("codel_interval_ms", &[100]),
        ("lossless", &[0, 0, 0, 1]),
        ("retention_bytes", &[20 * KIB, 1 << 20]),
        ("retention_ms", &[300, 60_000]),
        ("retention_records", &[0, 6, 100]),
        ("shutdown_grace_ms", &[0, 1_000]),
        ("slow_consumer_after_ms", &[0, 2_000, 2_000]),
    ])
}

fn publishes() -> impl Strategy<Value = Keys> {
    keys(&[
        ("pub_conn_inflight_bytes", &[124 * KIB, 400 * KIB]),
        ("pub_inflight_bytes", &[126 * KIB, 300 * KIB]),
        ("pub_ingress_wait", &[0, 0, 1]),
        ("pub_queue_depth", &[1, 3]),
        ("pub_queue_total", &[2, 8, 40]),
        ("pub_tenant_inflight_bytes", &[125 * KIB, 300 * KIB]),
        ("quantum_bytes", &[KIB, 64 * KIB]),
    ])
}

impl Plan {
    /// Plays it, and writes what was done.
    pub fn deal(&self) -> (Script, Played) {
        deal::deal(self)
    }
}

#[cfg(test)]
mod tests;
