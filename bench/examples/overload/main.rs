//! The Pusher server under twice the load that it can carry, over real sockets.
//!
//! Finds its peak, offers a multiple of it whatever is answered, then half of it, and asks the
//! server to stop under load. Fails unless all that was asked for is met: see `verdict.rs`.

mod load;
mod peers;
#[path = "../../../shell-ws/tests/support/mod.rs"]
mod support;
mod tally;
mod verdict;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use load::{Load, Pace};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sluicegate_host::cpu;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use support::Server;
use tally::Tally;
use verdict::{Books, End, Run};

/// Publishers without a pause, by rounds in which the peak is looked for: the best one counts.
const FLAT: [usize; 3] = [16, 64, 256];
/// Seconds of half the peak after the overload.
const AFTER: Duration = Duration::from_secs(8);
/// How long a server may stay after its grace before we look no longer.
const LEEWAY: Duration = Duration::from_secs(5);

/// Overloads a Pusher server and looks whether it stays honest.
#[derive(Parser)]
#[command(name = "overload")]
struct Options {
    /// The server's program.
    #[arg(long, default_value = "target/release/sluicegate-ws")]
    server: PathBuf,
    /// How much is offered: this many times the peak.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..=10))]
    times: u64,
    /// For how many seconds.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Subscribers of the one channel.
    #[arg(long, default_value_t = 2_500, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    subscribers: u16,
    /// Connections that publish, one call at a time each.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u16).range(256..=4_096))]
    publishers: u16,
    /// Threads that do nothing on the server's processor, so that it gets its share beside them
    /// alone, and one other thread can offer more than it can do.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=63))]
    ballast: u8,
    /// Bytes of an event's data.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(20..=10_240))]
    bytes: u16,
    /// Prints the result for programs.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let run = measure(&options)?;
    if options.json {
        println!("{}", run.json());
    } else {
        print!("{}", run.drawing());
    }
    let is_met = run.criteria().iter().all(|criterion| criterion.is_met);
    Ok(if is_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure(options: &Options) -> Result<Run> {
    let program = || Command::new(&options.server);
    let printed = program().args(["config", "print"]).output();
    let printed = printed.with_context(|| {
        format!("--server {}: cannot be run: build it first", options.server.display())
    })?;
    let config = String::from_utf8(printed.stdout).context("a configuration is text")?;
    let key = |name: &str| key(&config, name);
    more_files();
    let (mut log, writer) = std::io::pipe().context("no pipe")?;
    let cpus = cpu::allowed().unwrap_or_default();
    pin(cpus.first());
    let mut command = program();
    command.args(["--port", "0", "--workers", "1"]);
    let mut server = Server::with_log(&mut command, writer.into());
    // The command holds a writing end of the pipe.
    drop(command);
    let ballast = Ballast::start(options.ballast);
    pin(cpus.last());

    let (subscribers, callers) = (usize::from(options.subscribers), options.publishers.into());
    let pad = usize::from(options.bytes) - peers::STAMP;
    let mut load = Load::new(&server, subscribers, callers, pad)?;
    let mut peak = 0;
    for flat in FLAT {
        load.run(Pace::Flat(flat), Duration::from_secs(2))?;
        let found = Tally::sum(&load.run(Pace::Flat(flat), Duration::from_secs(5))?);
        let (goodput, refused) = (found.goodput(subscribers), found.rate(found.refused));
        eprintln!(
            "{flat} publishers without a pause: {goodput} publishes per second, {refused} refused"
        );
        peak = goodput.max(peak);
    }
    ensure!(peak > 0, "nothing was delivered without a pause: is the server sound?");
    load.settle()?;
    let rate = peak * options.times;
    // What may wait in the server takes so long at its peak, and CoDel lets that much stand.
    let waiting = key("pub_queue_total")? + u64::from(options.publishers);
    let bound = Duration::from_millis(
        waiting * 1_000 / peak + key("codel_interval_ms")? + 2 * key("codel_target_ms")?,
    );
    load.late = bound;
    eprintln!("{rate} per second for {} s", options.seconds);
    let overload = load.run(Pace::Rate(rate), Duration::from_secs(options.seconds))?;
    let end_of_overload = load.now();
    let after = load.run(Pace::Rate(peak / 2), AFTER)?;
    load.settle()?;
    let since = |at: u64| Duration::from_nanos(at.saturating_sub(end_of_overload));
    let recovery = [since(load.totals.last_refused), since(load.totals.last_late)];
    let (books, totals) = (books(&server), load.totals);
    eprintln!("SIGTERM under load");
    load.run(Pace::Rate(rate), Duration::from_secs(2))?;
    let grace = Duration::from_secs(key("shutdown_grace_s")?);
    let end = end(&mut server, &mut load, grace)?;
    drop(ballast);
    let mut text = String::new();
    log.read_to_string(&mut text).context("the server's last words are no text")?;
    let end = End { books: last_books(&text), ..end };
    Ok(Run { subscribers, peak, rate, overload, after, recovery, bound, books, totals, end })
}

/// Asks the server to stop while the load goes on.
fn end(server: &mut Server, load: &mut Load, grace: Duration) -> Result<End> {
    let start = load.now();
    server.signal("TERM");
    let (tally, [stayed, untold]) = load.see_out(grace + LEEWAY)?;
    let code = server.wait().code();
    let took = Duration::from_nanos(load.now() - start);
    let (failed, totals) = (tally.failed + tally.unadvised, load.totals);
    Ok(End { took, grace, code, stayed, untold, books: Books::new(), totals, failed })
}

/// Lets this process, and those that it starts, have as many connections as it may.
fn more_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        eprintln!("no more than {:?} files: {error}", limit.current);
    }
}

fn pin(cpu: Option<&usize>) {
    if let Some(cpu) = cpu
        && let Err(error) = cpu::pin(*cpu)
    {
        eprintln!("not pinned to processor {cpu}: {error}");
    }
}

/// Threads that keep a processor busy until this is dropped.
struct Ballast(Arc<AtomicBool>);

impl Ballast {
    /// They run where the thread that starts them may run.
    fn start(threads: u8) -> Self {
        let ballast = Self(Arc::default());
        for _ in 0..threads {
            let is_over = Arc::clone(&ballast.0);
            thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        ballast
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A number of a printed configuration.
fn key(config: &str, name: &str) -> Result<u64> {
    let line = |line: &str| line.strip_prefix(name)?.strip_prefix(" = ")?.parse().ok();
    config.lines().find_map(line).with_context(|| format!("the server knows no key `{name}`"))
}

/// The books of a server with nothing under way.
fn books(server: &Server) -> Books {
    let page = server.books();
    let column = |(name, tally): (&String, &serde_json::Value)| {
        Some((name.clone(), tally["records"].as_u64()?))
    };
    let mut books: Books = page.as_object().into_iter().flatten().filter_map(column).collect();
    // Calls that were refused before they were read are not among the records.
    *books.entry("refused".to_owned()).or_default() +=
        server.metric("sluicegate_refused_calls_total", "");
    books
}

/// The books in the last words of the server's loops.
fn last_books(log: &str) -> Books {
    let mut books = Books::new();
    for line in log.lines().filter(|line| line.contains(" stopped ")) {
        let pairs = line.split_whitespace().filter_map(|word| word.split_once('='));
        for (name, count) in pairs.filter(|(name, _)| *name != "event_loop") {
            *books.entry(name.to_owned()).or_default() += count.parse::<u64>().unwrap_or(0);
        }
    }
    books
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_last_words_are_found() {
        let config = "# help (bytes)\npub_queue_total = 256\npub_queue = \"x\"\n";
        assert_eq!(key(config, "pub_queue_total").unwrap(), 256);
        let error = key(config, "pub_queue").unwrap_err().to_string();
        assert!(error.contains("`pub_queue`"), "{error}");
        let log = "t INFO stopping event_loop=0 sockets=5\n\
                   t INFO stopped event_loop=0 admitted=7 lag=1\n\
                   t WARN stopped event_loop=1 admitted=5 lag=2\n";
        let expected = [("admitted".to_owned(), 12), ("lag".to_owned(), 3)];
        assert_eq!(last_books(log), Books::from(expected));
    }
}
