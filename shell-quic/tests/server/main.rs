//! The server as `wire/PROTOCOL.md` promises it, spoken to by peers that know only frames.

mod asking;
mod ending;
mod hello;
mod hostile;
mod overload;
mod publishing;
mod shards;
mod subscribing;
mod support;
