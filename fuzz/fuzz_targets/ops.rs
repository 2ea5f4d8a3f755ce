//! Any bytes are inputs of a shard: after each one its books close.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluicegate_core::{Broker, Input, Limits};

/// Small ones, so that a few inputs reach every bound.
fn tight() -> Limits {
    Limits {
        allow_block: 1,
        band_dwell_ms: 1,
        codel_target_ms: 5,
        egress_shed: 1,
        high_water_bytes: 4_000,
        max_frame_bytes: 1 << 16,
        max_topics: 4,
        memory_budget: 1 << 20,
        pub_conn_inflight_bytes: 200_000,
        pub_inflight_bytes: 250_000,
        pub_queue_total: 6,
        pub_tenant_inflight_bytes: 220_000,
        retention_records: 12,
        shards: 2,
        subscription_batches: 6,
        ..Limits::default()
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut broker = Broker::new(tight(), 1);
    for input in bytes.chunks(18).take(400) {
        let number = |at: usize| u64::from(input.get(1 + at).copied().unwrap_or(0));
        let mut numbers: [u64; 16] = core::array::from_fn(number);
        if input.len() == 18 {
            // The last byte makes one of the numbers large.
            let at = usize::from(input[17] % 16);
            numbers[at] <<= input[17] % 24;
        }
        if input[0] == 0 {
            numbers[0] = broker.now().as_nanos() + numbers[0] * 1_000_000;
        }
        broker.apply(&Input::from_random(input[0], numbers));
        if let Err(broken) = broker.check() {
            panic!("{broken}");
        }
    }
});
