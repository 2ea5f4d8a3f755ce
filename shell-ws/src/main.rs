//! The Pusher Channels server as a program.

use anyhow::{Context, Result};
use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use sluicegate_ws::config::{Config, Flags};
use sluicegate_ws::hooks::sender::Hooks;
use sluicegate_ws::server::Server;
use sluicegate_ws::start;
use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let flags = Flags::parse();
    let json = flags.json;
    match run(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = start::error(&error, json);
            eprintln!("{}{text}", if json { "" } else { "sluicegate-ws: " });
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &Flags) -> Result<()> {
    let config = Config::load(flags)?;
    let mut out = io::stdout();
    if flags.print_config {
        return out.write_all(config.print().as_bytes()).context("cannot print");
    }
    log(flags.json);
    let mut server = Server::bind(config.clone())?;
    let hooks = Hooks::start(&config.apps)?;
    if let Some(hooks) = &hooks {
        server.tell(&hooks.sender());
    }
    for signal in [SIGINT, SIGTERM] {
        let sender = server.stopper()?.into_inner();
        signal_hook::low_level::pipe::register(signal, sender)
            .context("cannot listen to signals")?;
    }
    for line in start::lines(&config, server.address(), flags.json) {
        // Nobody reading is no reason not to serve.
        let _ = writeln!(out, "{line}");
    }
    let _ = out.flush();
    let outcome = server.run();
    if let Some(hooks) = hooks {
        hooks.finish();
    }
    outcome
}

/// What happens later is told on the error stream.
fn log(json: bool) {
    let log = tracing_subscriber::fmt().with_writer(io::stderr).with_target(false);
    if json {
        log.json().init();
    } else {
        log.with_ansi(false).init();
    }
}
