//! The proof that `sluicegate-core` links no std.
//!
//! A program has one panic handler. This crate defines it; std defines another. If the core, or
//! anything it depends on, links std, the compiler sees two and refuses this crate with "found
//! duplicate lang item `panic_impl`".
#![no_std]

use core::panic::PanicInfo;
use sluicegate_core::{Broker, Limits};

#[panic_handler]
fn halt(_: &PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// Makes a shard, so that the core is linked and not merely named.
#[must_use]
pub fn shard(seed: u64) -> Broker {
    Broker::new(Limits::default(), seed)
}
