//! What the server is told: flags, and a file in TOML.
//!
//! ```toml
//! [[app]]
//! id = "1001"
//! key = "app-key"
//! secret = "app-secret"
//! name = "shop"
//!
//! [limits]                     # any key of the core's table
//! memory_budget = 1_073_741_824
//! ```

mod explain;
pub mod translate;

use crate::apps::App;
use crate::hooks::{self, MAX_BATCH, Webhook};
use crate::settings::{SERVER, Settings};
use crate::tls;
use crate::worker::Timing;
use anyhow::{Context, Result, bail, ensure};
use explain::{bad_limit, bad_toml, bad_value};
use serde::Deserialize;
use sluicegate_core::Limits;
use sluicegate_core::limits::KEYS;
use sluicegate_host::{budget, cpu, keys};
use sluicegate_wire::pusher::MAX_REWIND;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Connections among which the memory budget is divided to find what may wait for one of them.
const EXPECTED_CONNECTIONS: u64 = 50_000;

/// The most apps of one server.
const MAX_APPS: usize = 9_000;

/// The most event loops: a shard of the core each.
const MAX_WORKERS: u64 = sluicegate_host::node::MAX_SHARDS as u64;

/// The most that one app may weigh against another.
const MAX_WEIGHT: u32 = 1_000;

/// The most endpoints of one app.
const MAX_WEBHOOKS: usize = 10;

/// The command line. What it does not say, the environment may, as `SLUICEGATE_WS_` and the
/// key in capitals; what that does not say, the file.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "sluicegate-ws", version, about = "A drop-in Pusher Channels server")]
pub struct Flags {
    /// Address to listen on [default: 127.0.0.1]
    #[arg(long, value_name = "IP", value_parser = ip)]
    pub bind: Option<IpAddr>,
    /// Port to listen on; 0 takes any free one and says which [default: 6001]
    #[arg(long, value_name = "NUMBER")]
    pub port: Option<u16>,
    /// Event loops, 1 to 64: no more than there are processors to run them [default: as many]
    #[arg(
        long,
        value_name = "NUMBER",
        value_parser = clap::value_parser!(u64).range(1..=MAX_WORKERS)
    )]
    pub workers: Option<u64>,
    /// Apps, server and limits as TOML, or apps alone as JSON; without it there is one development
    /// app
    #[arg(long, value_name = "FILE", env = "SLUICEGATE_WS_CONFIG")]
    pub config: Option<PathBuf>,
    /// Record every input of the core in this file, for `sluicegate-sim replay`: lengths and hashed
    /// names, no payloads; with several event loops one file each, FILE.0 and so on
    #[arg(long, value_name = "FILE")]
    pub tape: Option<PathBuf>,
    /// Any key below server or limits, as `config print` lists them; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Print start-up lines, log and errors as JSON, one object per line
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do instead of serving
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What the program does besides serving.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    /// Shows or translates configurations
    Config {
        /// Which
        #[command(subcommand)]
        what: ConfigCommand,
    },
}

/// What is done with configurations.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum ConfigCommand {
    /// Prints the configuration in force as a file, with secrets left out
    Print,
    /// Translates the environment of soketi (SOKETI_*) or Pylon (PYLON_*) into a file
    FromSoketi {
        /// Read the variables from this file (KEY=VALUE lines) and not from the environment
        #[arg(long, value_name = "FILE")]
        env_file: Option<PathBuf>,
    },
}

fn ip(text: &str) -> Result<IpAddr, &'static str> {
    text.parse().map_err(|_| "write an IP address, such as 127.0.0.1 or 0.0.0.0")
}

/// Everything the server needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen.
    pub address: SocketAddr,
    /// Who may connect and publish.
    pub apps: Vec<App>,
    /// Whether the apps are the built-in one, whose secret everyone knows.
    pub is_development: bool,
    /// The core's numbers; they have passed their check.
    pub limits: Limits,
    /// What the server is told about itself.
    pub settings: Settings,
    /// The protocol's deadlines.
    pub timing: Timing,
    /// The certificate, where connections are made under TLS.
    pub tls: Option<tls::Files>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    app: Vec<App>,
    tls: Option<tls::Files>,
    #[serde(default)]
    server: BTreeMap<String, toml::Value>,
    #[serde(default)]
    limits: BTreeMap<String, toml::Value>,
}

/// What is known so far, from the file to the flags.
#[derive(Debug, Default)]
struct Draft {
    apps: Vec<App>,
    settings: Settings,
    tls: Option<tls::Files>,
    limits: Limits,
    /// Keys that somebody has said.
    given: BTreeSet<String>,
}

impl Draft {
    fn read(&mut self, path: &Path, text: &str) -> Result<()> {
        let name = path.display();
        if path.extension().is_some_and(|extension| extension == "json") {
            self.apps = translate::json_apps(text).with_context(|| format!("{name}"))?;
            return Ok(());
        }
        let file: File = toml::from_str(text).map_err(|error| bad_toml(path, text, &error))?;
        (self.apps, self.tls) = (file.app, file.tls);
        for (section, keys) in [("server", file.server), ("limits", file.limits)] {
            let wrong = || format!("{name}: [{section}]");
            for (key, value) in keys {
                self.put_toml(section, &key, &value).with_context(wrong)?;
            }
        }
        Ok(())
    }

    fn put_toml(&mut self, section: &str, key: &str, value: &toml::Value) -> Result<()> {
        let text = SERVER.text(key);
        let is_server = SERVER.has(key);
        ensure!(
            is_server == (section == "server") || !SERVER.knows(key),
            "`{key}` belongs below [{}]",
            if is_server { "server" } else { "limits" }
        );
        if section == "server" && !is_server {
            bail!("`{key}` is not known; did you mean `{}`?", SERVER.nearest(key));
        }
        match (text, value.as_str(), value.as_integer()) {
            (Some(text), Some(value), _) => (text.set)(&mut self.settings, value)?,
            (None, _, Some(number)) => match u64::try_from(number) {
                Ok(number) => self.put_number(key, number)?,
                Err(_) => bail!("{}", bad_value(key, value)),
            },
            (Some(_), ..) => bail!("`{key}` is {value}, but must be text in double quotes"),
            (None, ..) => bail!("{}", bad_value(key, value)),
        }
        self.given.insert(key.to_owned());
        Ok(())
    }

    fn put_number(&mut self, key: &str, value: u64) -> Result<()> {
        match SERVER.number(key) {
            Some(number) => number.put(&mut self.settings, value),
            None => self.limits.set(key, value).map_err(|error| bad_limit(&error)),
        }
    }

    /// What the environment or a flag says.
    fn put_text(&mut self, key: &str, value: &str) -> Result<()> {
        if let Some(text) = SERVER.text(key) {
            (text.set)(&mut self.settings, value)?;
        } else if !SERVER.knows(key) {
            bail!("`{key}` is not known; did you mean `{}`?", SERVER.nearest(key));
        } else {
            let number = value.trim().replace('_', "").parse();
            let number = number.map_err(|_| {
                anyhow::anyhow!("{}", bad_value(key, &toml::Value::String(value.to_owned())))
            })?;
            self.put_number(key, number)?;
        }
        self.given.insert(key.to_owned());
        Ok(())
    }

    /// The environment: every variable of ours must be a key.
    fn hear(&mut self, environment: impl Iterator<Item = (String, String)>) -> Result<()> {
        for (name, value) in environment {
            let Some(key) = name.strip_prefix("SLUICEGATE_WS_").filter(|key| *key != "CONFIG")
            else {
                continue;
            };
            self.put_text(&key.to_lowercase(), &value).with_context(|| name.clone())?;
        }
        Ok(())
    }

    fn obey(&mut self, flags: &Flags) -> Result<()> {
        for pair in &flags.set {
            let Some((key, value)) = pair.split_once('=') else {
                bail!("--set {pair}: write KEY=VALUE, such as --set max_topics=1000");
            };
            self.put_text(key.trim(), value.trim()).with_context(|| format!("--set {pair}"))?;
        }
        if let Some(bind) = flags.bind {
            self.settings.bind = bind;
        }
        if let Some(port) = flags.port {
            self.settings.port = port;
        }
        if let Some(workers) = flags.workers {
            self.put_number("workers", workers)?;
            self.given.insert("workers".to_owned());
        }
        if let Some(tape) = &flags.tape {
            self.put_text("tape", &tape.to_string_lossy())?;
        }
        Ok(())
    }

    /// As many event loops as somebody said, else as there are processors to run them.
    fn workers(&mut self) -> Result<u64> {
        if !self.given.contains("workers") {
            let shards = Some(self.limits.shards).filter(|shards| *shards > 1);
            self.put_number("workers", shards.unwrap_or_else(processors))?;
        }
        Ok(self.settings.workers.into())
    }

    fn finish(mut self) -> Result<Config> {
        let workers = self.workers()?;
        let shards = self.limits.shards;
        ensure!(
            shards == 1 || shards == workers,
            "`shards` is {shards} in [limits], but --workers is {workers}: each event loop is one \
             shard, so take `shards` out, or pass --workers {shards}"
        );
        self.limits.shards = workers;
        let limits = defaults(&self.limits, &self.given, self.settings.bind);
        limits
            .check()
            .map_err(|error| bad_limit(&error))
            .context("[limits]: the numbers do not fit together")?;
        let settings = self.settings;
        let timing = Timing {
            activity: settings.activity_timeout,
            pong: settings.pong_timeout,
            identity: settings.identity_timeout,
            grace: settings.shutdown_grace,
            ..Timing::default()
        };
        let address = SocketAddr::new(settings.bind, settings.port);
        let (apps, is_development) = (self.apps, false);
        Ok(Config { address, apps, is_development, limits, settings, timing, tls: self.tls })
    }
}

/// Processors that this process may use, as far as event loops can be given to them.
fn processors() -> u64 {
    let allowed = cpu::allowed().map_or(1, |cpus| cpus.len() as u64);
    allowed.clamp(1, MAX_WORKERS)
}

impl Config {
    /// Reads the flags, the environment, and the file that one of them names.
    pub fn load(
        flags: &Flags,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self> {
        let file = flags.config.as_deref().map(|path| {
            let text = std::fs::read_to_string(path).map_err(|error| {
                let path = path.display();
                anyhow::anyhow!(
                    "--config {path}: cannot be read ({error}): name a file in TOML, such as \
                     `sluicegate-ws config print` writes"
                )
            })?;
            Ok::<_, anyhow::Error>((path, text))
        });
        Self::compose(flags, environment, file.transpose()?)
    }

    fn compose(
        flags: &Flags,
        environment: impl Iterator<Item = (String, String)>,
        file: Option<(&Path, String)>,
    ) -> Result<Self> {
        let mut draft = Draft::default();
        if let Some((path, text)) = &file {
            draft.read(path, text)?;
        }
        draft.hear(environment)?;
        draft.obey(flags)?;
        let name = file.as_ref().map(|(path, _)| path.display().to_string());
        let finished = draft.finish();
        let Some(name) = name else {
            return finished?.for_development();
        };
        let config = finished.with_context(|| name.clone())?;
        config.check(&name)?;
        Ok(config)
    }

    fn check(&self, name: &str) -> Result<()> {
        check_apps(&self.apps).with_context(|| name.to_owned())?;
        let known = App::development().secret;
        let public = self.apps.iter().find(|app| app.secret == known);
        if let Some(App { id, .. }) = public.filter(|_| !self.address.ip().is_loopback()) {
            bail!(
                "{name}: [[app]] {id}: `secret` is the development app's, which is public: with \
                 --bind {} fill in a long random text of your own",
                self.address.ip()
            );
        }
        Ok(())
    }

    fn for_development(self) -> Result<Self> {
        ensure!(
            self.address.ip().is_loopback(),
            "--bind {}: the development app's secret is public, so without --config this server \
             listens on loopback addresses only; write a file with an [[app]] of your own and pass \
             it with --config",
            self.address.ip()
        );
        Ok(Self { apps: vec![App::development()], is_development: true, ..self })
    }

    /// One app whose secret everyone knows: for this machine only.
    pub fn development(address: SocketAddr) -> Result<Self> {
        let mut draft = Draft::default();
        (draft.settings.bind, draft.settings.port) = (address.ip(), address.port());
        draft.finish()?.for_development()
    }

    /// The configuration as a file, with secrets left out.
    pub fn print(&self) -> String {
        let mut out = String::from("[server]\n");
        out += &SERVER.print(&self.settings, translate::quoted);
        for app in &self.apps {
            let _ = write!(out, "\n{}", translate::print_app(app, "\"\" # left out"));
        }
        if let Some(tls::Files { cert, key }) = &self.tls {
            let quoted = |path: &Path| translate::quoted(&path.to_string_lossy());
            let _ = writeln!(out, "\n[tls]\ncert = {}\nkey = {}", quoted(cert), quoted(key));
        }
        out += "\n[limits]\n";
        // `workers` says it.
        out + &keys::print_limits(&self.limits, &["shards"])
    }
}

/// For how long a cache channel keeps its last event.
const CACHE_MS: u64 = 30 * 60 * 1000;

/// Records that one write takes: as many as the kernel is handed in one call.
const OFFER: u64 = 64;

/// The target and the interval of staleness for peers on this machine, in milliseconds.
const STALE_HERE: (u64, u64) = (5, 100);

/// The same for peers behind a network, who may well drain once per round trip.
const STALE_REMOTE: (u64, u64) = (75, 500);

/// Fills in what depends on the machine or is the protocol's, and was not given.
fn defaults(limits: &Limits, given: &BTreeSet<String>, bind: IpAddr) -> Limits {
    let mut limits = limits.clone();
    let set = |limits: &mut Limits, name: &str, value: u64| {
        if given.contains(name) {
            return;
        }
        let key = KEYS.iter().find(|key| key.name == name).expect("named as in the table");
        limits.set(name, value.clamp(key.min, key.max)).expect("clamped into its range");
    };
    if let Some(budget) = budget::memory_budget() {
        set(&mut limits, "memory_budget", budget);
    }
    let (target, interval) = if bind.is_loopback() { STALE_HERE } else { STALE_REMOTE };
    if limits.lossless == 0 {
        set(&mut limits, "codel_target_ms", target);
    }
    // An interval is longer than its target, which may be given alone.
    let interval = interval.max(limits.codel_target_ms + 1);
    set(&mut limits, "codel_interval_ms", interval);
    let high_water = budget::high_water(limits.memory_budget, EXPECTED_CONNECTIONS);
    if !given.contains("high_water_bytes") {
        limits.high_water_bytes = high_water;
    }
    if !given.contains("retention_ms") {
        limits.retention_ms = CACHE_MS;
    }
    if !given.contains("offer_batches") {
        limits.offer_batches = OFFER;
    }
    limits
}

fn check_apps(apps: &[App]) -> Result<()> {
    ensure!(!apps.is_empty(), "there is no app: add an [[app]] with id, key and secret");
    ensure!(apps.len() <= MAX_APPS, "{} apps, but at most {MAX_APPS} are served", apps.len());
    let (mut ids, mut keys) = (BTreeSet::new(), BTreeSet::new());
    for App { id, key, secret, name, webhooks, weight, rewind, allowed_origins, .. } in apps {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        ensure!(
            !id.is_empty() && id.chars().all(word),
            "[[app]]: `id` is {id:?}, but must be made of A-Z a-z 0-9 _ -, such as \"1001\""
        );
        ensure!(
            (1..=MAX_WEIGHT).contains(weight),
            "[[app]] {id}: `weight` is {weight}, but must be between 1 and {MAX_WEIGHT}"
        );
        ensure!(
            *rewind <= MAX_REWIND,
            "[[app]] {id}: `rewind` is {rewind}, but must be between 0 and {MAX_REWIND}"
        );
        ensure!(
            !key.is_empty() && key.chars().all(word),
            "[[app]] {id}: `key` is {key:?}, but must be made of A-Z a-z 0-9 _ -"
        );
        ensure!(
            !secret.reveal().is_empty(),
            "[[app]] {id}: `secret` is empty: anyone could publish; fill in a long random text"
        );
        ensure!(
            !name.chars().any(char::is_control),
            "[[app]] {id}: `name` is {name:?}, which holds a control character: take it out"
        );
        check_origins(allowed_origins).with_context(|| format!("[[app]] {id}"))?;
        check_webhooks(webhooks).with_context(|| format!("[[app]] {id}"))?;
        ensure!(ids.insert(id), "[[app]]: two apps have the `id` {id:?}: give each its own");
        ensure!(keys.insert(key), "[[app]]: two apps have the `key` {key:?}: give each its own");
    }
    Ok(())
}

fn check_origins(origins: &[String]) -> Result<()> {
    for origin in origins {
        let parsed = reqwest::Url::parse(origin).ok();
        // As browsers say it: what they compare is written in one way only.
        let is_origin = parsed.is_some_and(|url| {
            url.origin().ascii_serialization().eq_ignore_ascii_case(origin) && url.has_host()
        });
        ensure!(
            is_origin,
            "`allowed_origins` holds {origin:?}, but must hold schemes with hosts, without a path, \
             such as \"https://example.org\""
        );
    }
    Ok(())
}

fn check_webhooks(webhooks: &[Webhook]) -> Result<()> {
    ensure!(
        webhooks.len() <= MAX_WEBHOOKS,
        "{} [[app.webhook]], but at most {MAX_WEBHOOKS} of one app are served",
        webhooks.len()
    );
    for Webhook { url, batch, .. } in webhooks {
        let parsed = reqwest::Url::parse(url);
        let good = parsed.is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
        ensure!(
            good,
            "[[app.webhook]]: `url` is {:?}, but must begin with http:// or https:// and name a \
             host",
            hooks::shown(url)
        );
        ensure!(
            (1..=MAX_BATCH).contains(batch),
            "[[app.webhook]]: `batch` is {batch}, but must be 1 to {MAX_BATCH} events"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    const APP: &str = "[[app]]\nid = \"7\"\nkey = \"k\"\nsecret = \"s\"\n";

    fn flags(arguments: &[&str]) -> Flags {
        Flags::parse_from([&["sluicegate-ws"], arguments].concat())
    }

    fn parse(text: &str) -> Result<Config> {
        load(&["--bind", "0.0.0.0"], &[], text)
    }

    fn load(arguments: &[&str], environment: &[(&str, &str)], text: &str) -> Result<Config> {
        let variables = environment.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let file = (Path::new("ws.toml"), text.to_owned());
        Config::compose(&flags(arguments), variables, Some(file))
    }

    fn error(text: &str) -> String {
        format!("{:#}", parse(text).expect_err("it is wrong"))
    }

    #[test]
    fn a_file_is_read() {
        let config = parse(&format!("{APP}[limits]\nmax_topics = 5\n")).unwrap();
        assert_eq!(config.apps[0].id, "7");
        assert_eq!(config.limits.max_topics, 5);
        assert_eq!(config.limits.retention_ms, 1_800_000, "half an hour");
        assert!(!config.is_development);
    }

    #[test]
    fn errors_name_the_file_the_key_and_the_way_out() {
        for (text, parts) in [
            ("[limits]", ["ws.toml", "add an [[app]]"]),
            (&format!("{APP}[limits]\nmax_topic = 5"), ["ws.toml", "did you mean `max_topics`?"]),
            (&format!("{APP}[limits]\nlossless = 2"), ["`lossless` is 2", "between 0 and 1"]),
            (&format!("{APP}[limits]\nlossless = -1"), ["`lossless` is -1", "between 0 and 1"]),
            (&format!("{APP}[limits]\nlossless = true"), ["`lossless` is true", "whole number"]),
            (
                &format!("{APP}[limits]\nmemory_budget = \"1GiB\""),
                ["`memory_budget` is \"1GiB\"", "a whole number, without quotes, between"],
            ),
            (
                &format!("{APP}[limits]\nmemory_buget = \"1GiB\""),
                ["`memory_buget`", "did you mean"],
            ),
            (
                &format!("{APP}[limits]\npub_conn_inflight_bytes = 2048"),
                ["do not fit together", "`max_frame_bytes` needs it"],
            ),
            (&format!("{APP}{APP}"), ["two apps have the `id`", "give each its own"]),
            (&APP.replace("\"7\"", "\"a/b\""), ["`id` is \"a/b\"", "A-Z a-z"]),
            (&format!("{APP}rewind = 1001"), ["`rewind` is 1001", "between 0 and 1000"]),
            (
                &format!("{APP}allowed_origins = [\"https://h/\"]"),
                ["`allowed_origins` holds \"https://h/\"", "https://example.org"],
            ),
            (
                &format!("{APP}allowed_origins = [\"example.org\"]"),
                ["`allowed_origins` holds \"example.org\"", "without a path"],
            ),
            (&format!("{APP}weight = 0"), ["`weight` is 0", "between 1 and 1000"]),
            (&format!("{APP}[server]\nport = 70000"), ["`port` is 70000", "between 0 and 65535"]),
            (&format!("{APP}[server]\nport = \"80\""), ["`port` is \"80\"", "whole number"]),
            (&format!("{APP}[server]\nbind = \"here\""), ["`bind` is \"here\"", "an IP address"]),
            (&format!("{APP}[server]\nbind = 1"), ["`bind` is 1", "double quotes"]),
            (&format!("{APP}[server]\nprot = 1"), ["`prot` is not known", "did you mean `port`?"]),
            (&format!("{APP}[server]\nmax_topics = 1"), ["[server]", "belongs below [limits]"]),
            (&format!("{APP}[limits]\nport = 1"), ["[limits]", "belongs below [server]"]),
            (&APP.replace("\"k\"", "\"a/b\""), ["`key` is \"a/b\"", "A-Z a-z"]),
            (&APP.replace("\"s\"", "\"\""), ["`secret` is empty", "fill in"]),
            (
                &APP.replace("\"s\"", "\"app-secret\""),
                ["is the development app's", "--bind 0.0.0.0"],
            ),
            (&format!("{APP}name = \"a\\u001b\""), ["`name` is \"a\\u{1b}\"", "take it out"]),
            (
                &APP.replace("secret", "secrte"),
                ["ws.toml:4: unknown key `secrte`", "id, key, secret"],
            ),
            (&APP.replace("secret = \"s\"", ""), ["ws.toml:1: missing key `secret`", "[[app]]"]),
            (&APP.replace("\"7\"", "7"), ["ws.toml:2", "found the integer `7`"]),
            (
                &format!("{APP}[limit]"),
                ["ws.toml:5: unknown key `limit`", "app, tls, server, limits"],
            ),
            (&format!("port = 80\n{APP}"), ["ws.toml:1: unknown key `port`", "below [server]"]),
            ("[app]\nid = \"7\"", ["ws.toml:1", "[[app]], with two brackets"]),
            ("[[app]", ["ws.toml:1", "[[app]]"]),
            ("app: 1", ["ws.toml:1", "`=`"]),
            ("", ["ws.toml", "add an [[app]] with id, key and secret"]),
        ] {
            let error = error(text);
            for part in parts {
                assert!(error.contains(part), "{part:?} is missing in {error:?}");
            }
        }
    }

    #[test]
    fn flags_go_before_the_environment_and_that_before_the_file() {
        let file = format!("{APP}[server]\nport = 1\nmax_event_bytes = 1\npong_timeout_s = 1\n");
        let environment = [("SLUICEGATE_WS_PORT", "2"), ("SLUICEGATE_WS_MAX_EVENT_BYTES", "2")];
        let arguments = ["--port", "3", "--set", "max_topics=1_000", "--workers", "2"];
        let config = load(&arguments, &environment, &file).unwrap();
        assert_eq!(config.address.port(), 3);
        assert_eq!(config.settings.max_event_bytes, 2);
        assert_eq!(config.timing.pong.as_secs(), 1);
        assert_eq!((config.limits.max_topics, config.limits.shards), (1_000, 2));
        for (arguments, environment, part) in [
            (&["--set", "max_topic=1"], ("", ""), "did you mean `max_topics`?"),
            (&["--set", "max_topics"], ("", ""), "write KEY=VALUE"),
            (&["--port", "1"], ("SLUICEGATE_WS_PRT", "1"), "SLUICEGATE_WS_PRT: `prt` is not known"),
            (&["--port", "1"], ("SLUICEGATE_WS_PORT", "x"), "SLUICEGATE_WS_PORT: `port` is \"x\""),
        ] {
            let error = load(arguments, &[environment], APP).unwrap_err();
            assert!(format!("{error:#}").contains(part), "{error:#}");
        }
    }

    #[test]
    fn apps_of_other_servers_are_read_from_json() {
        let text = r#"{"apps":[{"id":"app-id","key":"k","secret":"s"}]}"#.to_owned();
        let file = (Path::new("apps.json"), text);
        let config = Config::compose(&flags(&[]), std::iter::empty(), Some(file)).unwrap();
        assert_eq!(config.apps[0].id, "app-id");
    }

    #[test]
    fn a_file_that_cannot_be_read_shows_no_secret() {
        for line in ["secret = 12345", "secret = \"12345", "secret = [\"12345\"]", "secret=12345x"]
        {
            for text in [
                format!("[[app]]\nid = \"7\"\nkey = \"k\"\n{line}\n"),
                format!("app = [{{ id = \"7\", key = \"k\", {line} }}]"),
            ] {
                let error = error(&text);
                assert!(!error.contains("12345"), "{error}");
                assert!(error.contains("ws.toml:") && error.contains("double quotes"), "{error}");
            }
        }
    }

    #[test]
    fn without_a_file_only_loopback_is_served() {
        let config = Config::development(([127, 0, 0, 1], 0).into()).unwrap();
        assert!(config.is_development);
        let error = Config::development(([0, 0, 0, 0], 0).into()).unwrap_err().to_string();
        assert!(error.contains("--bind 0.0.0.0") && error.contains("--config"), "{error}");
    }

    #[test]
    fn what_is_printed_can_be_read_again_once_secrets_are_filled_in() {
        let origins = "allowed_origins = [\"https://a.example\", \"http://h:8080\"]";
        let config = parse(&format!("{APP}{origins}\n[limits]\nmax_topics = 5\n")).unwrap();
        assert_eq!(config.apps[0].allowed_origins.len(), 2);
        let text = config.print();
        assert!(!text.contains("secret = \"s\""), "{text}");
        assert!(text.contains("any free one (as a TCP port)\n") && !text.contains("(("), "{text}");
        let again = parse(&text.replace("secret = \"\"", "secret = \"s\"")).unwrap();
        assert_eq!((again.apps, again.limits), (config.apps, config.limits));
    }

    #[test]
    fn what_waits_too_long_is_stale_sooner_on_this_machine() {
        let ask = |arguments: &[&str], text: &str| {
            let limits = load(arguments, &[], &format!("{APP}{text}")).unwrap().limits;
            (limits.codel_target_ms, limits.codel_interval_ms)
        };
        for (bind, expected) in [
            ("127.0.0.1", (5, 100)),
            ("::1", (5, 100)),
            ("0.0.0.0", (75, 500)),
            ("192.0.2.7", (75, 500)),
        ] {
            assert_eq!(ask(&["--bind", bind], ""), expected, "{bind}");
        }
        for (text, expected) in [
            ("codel_target_ms = 0", (0, 100)),
            ("codel_target_ms = 100", (100, 101)),
            ("codel_interval_ms = 50", (5, 50)),
            ("lossless = 1", (0, 100)),
            ("lossless = 1\ncodel_target_ms = 7", (7, 100)),
        ] {
            assert_eq!(ask(&[], &format!("[limits]\n{text}")), expected, "{text}");
        }
        let error = error(&format!("{APP}[limits]\ncodel_interval_ms = 75"));
        assert!(
            error.contains("`codel_interval_ms` is 75") && error.contains("least 76"),
            "{error}"
        );
    }

    #[test]
    fn there_are_as_many_loops_as_processors_unless_somebody_says_how_many() {
        let shards = |arguments: &[&str], environment: &[(&str, &str)], text: &str| {
            let config = load(arguments, environment, &format!("{APP}{text}")).unwrap();
            assert_eq!(config.limits.shards, u64::from(config.settings.workers));
            config.limits.shards
        };
        let allowed = cpu::allowed().unwrap().len() as u64;
        assert_eq!(shards(&[], &[], ""), allowed.min(64));
        assert_eq!(shards(&["--workers", "1"], &[], ""), 1);
        assert_eq!(shards(&["--workers", "63"], &[], ""), 63);
        assert_eq!(shards(&[], &[("SLUICEGATE_WS_WORKERS", "1")], ""), 1);
        assert_eq!(shards(&[], &[], "[server]\nworkers = 1\n"), 1);
        assert_eq!(shards(&[], &[], "[limits]\nshards = 33\n"), 33);
    }

    #[test]
    fn what_is_given_is_not_replaced_by_what_the_machine_has() {
        let given =
            parse(&format!("{APP}[limits]\nmemory_budget = 2097152\nhigh_water_bytes = 4096\n"));
        let limits = given.unwrap().limits;
        assert_eq!((limits.memory_budget, limits.high_water_bytes), (2 << 20, 4096));
        let limits = parse(APP).unwrap().limits;
        assert!((256 << 10..=8 << 20).contains(&limits.high_water_bytes));
    }
}
