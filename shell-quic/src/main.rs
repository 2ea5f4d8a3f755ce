//! The QUIC broker as a program: serves, publishes, subscribes, measures.

#[cfg(not(madsim))]
mod cli;

#[cfg(not(madsim))]
fn main() -> std::process::ExitCode {
    cli::main()
}

/// Under the task scheduler of the tests there is no program.
#[cfg(madsim)]
fn main() {}
