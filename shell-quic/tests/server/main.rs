//! The server as `wire/PROTOCOL.md` promises it, spoken to by peers that know only frames.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod admin;
mod asking;
mod command;
mod drivers;
mod ending;
mod hello;
mod hostile;
mod jwt;
mod memory;
mod overload;
mod publishing;
mod shards;
mod subscribing;
mod support;
