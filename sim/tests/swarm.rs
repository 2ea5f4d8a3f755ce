//! Random worlds: the same on every machine and in every build, and convicted of nothing.

use sluicegate_sim::swarm::{self, Bounds};

/// The hash stands in a snapshot, so that a build with optimisation, another machine and another
/// day are compared with this one. A change of the core's behaviour changes it.
#[test]
fn two_hundred_worlds_play_the_same_twice_and_as_they_always_did() {
    let run = |threads| swarm::run(&Bounds { seed: 1, runs: 200, threads }, |_| true);
    let (one, two) = (run(1), run(2));
    for campaign in [&one, &two] {
        if let Some(convicted) = &campaign.convicted {
            panic!("the world of seed {}: {}", convicted.seed, convicted.conviction);
        }
        assert_eq!(campaign.worlds, 200);
    }
    assert_eq!((one.hash, one.inputs), (two.hash, two.inputs));
    assert!(one.sharded >= 20, "{} worlds have several shards", one.sharded);
    insta::with_settings!({ omit_expression => true }, {
        insta::assert_snapshot!(format!("{:016x} of {} inputs", one.hash, one.inputs));
    });
}
