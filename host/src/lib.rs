//! What every production shell needs from the operating system: time, memory pressure, a memory
//! budget, ways between its threads, tapes, the keys of a configuration, and the books as text for
//! a metrics collector.

pub mod budget;
pub mod clock;
pub mod cpu;
pub mod keys;
pub mod mesh;
pub mod metrics;
pub mod node;
pub mod pool;
pub mod psi;
pub mod strangers;
pub mod tape;
pub mod words;

mod cgroup;
