//! The checkpoints of a client: what it may have in flight, and what it keeps for its application.
//!
//! ```text
//! publish -> window (1) -> queue of a worker (2) -> broker ... -> inbox (7) -> application
//! ```
//!
//! A publish asks the window for its bytes, then enters a worker's queue with the permit; the
//! permit comes back when the publish is answered, or when it is given up anywhere on the way. All
//! three are values without a clock: who waits gets a ticket, and whoever makes room learns whose
//! turn it is.

pub mod inbox;
mod line;
pub mod queue;
pub mod window;
