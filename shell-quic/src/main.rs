//! The QUIC broker as a program.

fn main() {}
