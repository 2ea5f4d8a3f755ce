//! What the benches and the counted runs share: brokers in a known state, and the table of
//! operations that are repeated on them.

pub mod beds;
pub mod operations;
