//! `serve`: until a signal says otherwise.

use anyhow::{Context, Result, bail};
use serde_json::json;
use sluicegate_quic::config::Config;
use sluicegate_quic::process::Process;
use sluicegate_quic::transport;
use std::io::{self, Write};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// How often the threads are looked at.
const LOOK: Duration = Duration::from_millis(500);

pub(super) fn run(config: Config, json: bool) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot make a runtime")?;
    let process = Process::start(config.clone())?;
    for line in lines(&config, &process, json) {
        // Nobody reading is no reason not to serve.
        let _ = writeln!(io::stdout(), "{line}");
    }
    let _ = io::stdout().flush();
    runtime.block_on(wait(&process))?;
    tracing::info!("stopping: what was admitted is delivered first");
    process.stop()
}

/// Waits for the signal to stop.
async fn wait(process: &Process) -> Result<()> {
    let heard = "cannot listen to signals";
    let mut interrupt = signal(SignalKind::interrupt()).context(heard)?;
    let mut terminate = signal(SignalKind::terminate()).context(heard)?;
    let mut hangup = signal(SignalKind::hangup()).context(heard)?;
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            biased;
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
            _ = hangup.recv() => match process.reload() {
                Ok(()) => tracing::info!("certificate and keys of tokens were read again"),
                Err(error) => {
                    tracing::error!("{error:#}: what was before stays in force");
                }
            },
            _ = look.tick() => if process.has_failed() {
                bail!("a shard has ended: see the lines above");
            },
        }
    }
}

fn lines(config: &Config, process: &Process, json: bool) -> Vec<String> {
    let Process { address, admin, fingerprint, .. } = process;
    let development = config.tls.is_none();
    let budget = config.limits.memory_budget;
    let windows = transport::windows(&config.limits);
    if json {
        let line = json!({
            "event": "listening",
            "address": address.to_string(),
            "port": address.port(),
            "admin": format!("http://{admin}"),
            "fingerprint": fingerprint,
            "development": development,
            "memory_budget": budget,
            "windows_per_connection": windows,
        });
        return vec![line.to_string()];
    }
    let made = if development { " (for development)" } else { "" };
    // What a client on this machine does not know by itself.
    let usual = Config::default();
    let mut reach = String::new();
    if address.port() != usual.port {
        reach += &format!(" --connect quic://127.0.0.1:{}", address.port());
    }
    if development && config.state_dir != usual.state_dir {
        reach += &format!(" --fingerprint {fingerprint}");
    }
    vec![
        format!("Sluicegate serves QUIC clients on {address}"),
        format!("Identity sha256 {fingerprint}{made}"),
        format!("Try      sluicegate-quic sub orders{reach}"),
        format!("and      echo hello | sluicegate-quic pub orders{reach}"),
        format!(
            "Memory   {} MiB for the broker, and at most {} MiB of QUIC windows per connection",
            budget >> 20,
            windows >> 20
        ),
        format!("Look     http://{admin}/    Metrics  http://{admin}/metrics"),
        "Stop     Ctrl-C: what was admitted is delivered, and clients are told".to_owned(),
    ]
}
