//! The project habits as code.
fn main() {}
