//! The commands about tapes, one file each.

pub(crate) mod replay;
pub(crate) mod shrink;
pub(crate) mod swarm;
pub(crate) mod tapes;
