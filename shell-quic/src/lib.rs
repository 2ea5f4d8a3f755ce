//! A QUIC publish/subscribe broker: `sluicegate-core` over quinn.
//!
//! The core decides; this crate carries: [`transport`] makes endpoints, [`server`] accepts
//! connections and runs shards, `connection` speaks `wire/PROTOCOL.md`, [`shard`] takes the turns.

pub mod access;
#[cfg(not(madsim))]
mod admin;
mod clock;
pub mod config;
mod connection;
#[cfg(not(madsim))]
mod drivers;
mod fault;
pub mod identity;
pub mod jwt;
#[cfg(not(madsim))]
pub mod process;
mod refusal;
pub mod server;
pub mod settings;
pub mod shard;
pub mod transport;
