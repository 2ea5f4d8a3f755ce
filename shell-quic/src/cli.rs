//! The command line.

mod bench;
mod connect;
mod publish;
mod serve;
mod subscribe;

use anyhow::Result;
use clap::{Parser, Subcommand};
use serde_json::json;
use sluicegate_quic::config::{Config, Flags};
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

/// What is asked for.
#[derive(Debug, Parser)]
#[command(
    name = "sluicegate-quic",
    version,
    about = "A QUIC publish/subscribe broker that stays honest under overload"
)]
struct Cli {
    /// Print lines, log and errors as JSON, one object per line
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves until it is stopped (Ctrl-C or SIGTERM); SIGHUP reads the certificate and
    /// the keys of signed tokens again
    Serve(Flags),
    /// Publishes: each line that comes in, or a file
    Pub(Box<publish::Publish>),
    /// Prints a topic's records, and what was lost
    Sub(Box<subscribe::Subscribe>),
    /// Measures a broker in this process: rate, latency, and that every record is accounted for
    Bench(Box<bench::Bench>),
    /// Prints the configuration in force as a file
    Config(Flags),
}

pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse();
    let json = cli.json;
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = format!("{error:#}");
            if json {
                eprintln!("{}", json!({ "event": "error", "message": text }));
            } else {
                eprintln!("sluicegate-quic: {text}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<()> {
    log(cli.json);
    match cli.command {
        Command::Serve(flags) => serve::run(Config::load(&flags, variables())?, cli.json),
        Command::Pub(publish) => publish::run(&publish, cli.json),
        Command::Sub(subscribe) => subscribe::run(&subscribe, cli.json),
        Command::Bench(plan) => bench::run(*plan, cli.json),
        Command::Config(flags) => {
            let config = Config::load(&flags, variables())?;
            Ok(io::stdout().write_all(config.print().as_bytes())?)
        }
    }
}

/// The environment, as far as it is text.
fn variables() -> impl Iterator<Item = (String, String)> {
    let text = |(name, value): (OsString, OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text)
}

/// What happens later is told on the error stream.
fn log(json: bool) {
    let log = tracing_subscriber::fmt().with_writer(io::stderr).with_target(false);
    let log = log.with_max_level(tracing::Level::INFO);
    if json {
        log.json().init();
    } else {
        log.with_ansi(false).init();
    }
}
