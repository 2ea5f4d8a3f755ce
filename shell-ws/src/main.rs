//! The Pusher Channels server as a program.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use sluicegate_ws::config::{Command, Config, ConfigCommand, Flags, translate};
use sluicegate_ws::hooks::sender::Hooks;
use sluicegate_ws::reload::{Carrying, Reload};
use sluicegate_ws::server::Server;
use sluicegate_ws::start;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::thread;

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
    let mut out = io::stdout();
    if let Some(Command::Config { what: ConfigCommand::FromSoketi { env_file } }) = &flags.command {
        let text = from_soketi(env_file.as_deref())?;
        return out.write_all(text.as_bytes()).context("cannot print");
    }
    let config = Config::load(flags, variables())?;
    if let Some(Command::Config { what: ConfigCommand::Print }) = &flags.command {
        return out.write_all(config.print().as_bytes()).context("cannot print");
    }
    log(flags.json);
    let mut server = Server::bind(config.clone())?;
    let hooks = Hooks::start(&config.apps.iter().cloned().map(Some).collect())?;
    if let Some(hooks) = &hooks {
        server.tell(&hooks.sender());
    }
    let carrying = Carrying::new(hooks);
    for signal in [SIGINT, SIGTERM] {
        let sender = server.stopper()?.into_inner();
        signal_hook::low_level::pipe::register(signal, sender)
            .context("cannot listen to signals")?;
    }
    let reload = Reload::new(flags.clone(), &config.apps, server.board(), carrying.clone());
    on_hangup(reload.with(server.identity()))?;
    for line in start::lines(&config, server.address(), flags.json) {
        // Nobody reading is no reason not to serve.
        let _ = writeln!(out, "{line}");
    }
    let _ = out.flush();
    let outcome = server.run();
    carrying.finish();
    outcome
}

/// Reads again what can be, whenever the process gets a SIGHUP.
fn on_hangup(mut reload: Reload) -> Result<()> {
    let mut signals = Signals::new([SIGHUP]).context("cannot listen to signals")?;
    let body = move || signals.forever().for_each(|_| reload.again(variables()));
    thread::Builder::new().name("reload".to_owned()).spawn(body).context("no thread")?;
    Ok(())
}

/// The environment, as far as it is text.
fn variables() -> impl Iterator<Item = (String, String)> {
    let text = |(name, value): (OsString, OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text)
}

/// Another server's variables as our file.
fn from_soketi(file: Option<&Path>) -> Result<String> {
    let translation = match file {
        None => translate::environment(variables())?,
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("--env-file {}: cannot be read", path.display()))?;
            translate::environment(translate::lines(&text))?
        }
    };
    ensure!(
        !translation.is_empty(),
        "there is no variable that begins with SOKETI_ or PYLON_: set them, or pass --env-file"
    );
    Ok(translation.print())
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
