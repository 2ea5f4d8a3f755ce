//! What every production shell needs from the operating system: time, memory pressure, a memory
//! budget, and the books as text for a metrics collector.

pub mod budget;
pub mod clock;
pub mod metrics;
pub mod psi;

mod cgroup;
