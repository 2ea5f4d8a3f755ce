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

use crate::apps::App;
use crate::hooks::{MAX_BATCH, Webhook};
use crate::worker::Timing;
use anyhow::{Context, Result, bail, ensure};
use explain::{bad_limit, bad_toml, bad_value};
use serde::Deserialize;
use sluicegate_core::Limits;
use sluicegate_core::limits::KEYS;
use sluicegate_host::budget;
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

/// The most endpoints of one app.
const MAX_WEBHOOKS: usize = 10;

/// The command line.
#[derive(Debug, clap::Parser)]
#[command(name = "sluicegate-ws", version, about = "A drop-in Pusher Channels server")]
pub struct Flags {
    /// Address to listen on
    #[arg(long, value_name = "IP", default_value = "127.0.0.1", value_parser = ip)]
    pub bind: IpAddr,
    /// Port to listen on; 0 takes any free one and says which
    #[arg(long, value_name = "NUMBER", default_value_t = 6001)]
    pub port: u16,
    /// Event loops, 1 to 64: no more than there are processors to run them
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=MAX_WORKERS)
    )]
    pub workers: u64,
    /// Apps and limits, as TOML; without it there is one development app
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print start-up lines, log and errors as JSON, one object per line
    #[arg(long)]
    pub json: bool,
    /// Print the configuration in force, with secrets left out, and end
    #[arg(long)]
    pub print_config: bool,
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
    /// The protocol's deadlines.
    pub timing: Timing,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    app: Vec<App>,
    #[serde(default)]
    limits: BTreeMap<String, toml::Value>,
}

impl Config {
    /// Reads the flags and the file they name.
    pub fn load(flags: &Flags) -> Result<Self> {
        let address = SocketAddr::new(flags.bind, flags.port);
        let mut config = match &flags.config {
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| {
                    let path = path.display();
                    anyhow::anyhow!(
                        "--config {path}: cannot be read ({error}): name a file in TOML, such as \
                         --print-config writes"
                    )
                })?;
                Self::parse(address, &text, path)?
            }
            None => Self::development(address)?,
        };
        let Flags { workers, .. } = *flags;
        let shards = &mut config.limits.shards;
        ensure!(
            *shards == 1 || *shards == workers,
            "`shards` is {shards} in [limits], but --workers is {workers}: each event loop is one \
             shard, so take `shards` out, or pass --workers {shards}"
        );
        *shards = workers;
        Ok(config)
    }

    /// One app whose secret everyone knows: for this machine only.
    pub fn development(address: SocketAddr) -> Result<Self> {
        ensure!(
            address.ip().is_loopback(),
            "--bind {}: the development app's secret is public, so without --config this server \
             listens on loopback addresses only; write a file with an [[app]] of your own and pass \
             it with --config",
            address.ip()
        );
        let limits = defaults(&Limits::default(), &BTreeSet::new());
        limits.check().map_err(|error| anyhow::anyhow!("{error}"))?;
        let apps = vec![App::development()];
        Ok(Self { address, apps, is_development: true, limits, timing: Timing::default() })
    }

    fn parse(address: SocketAddr, text: &str, path: &Path) -> Result<Self> {
        let name = path.display();
        let file: File = toml::from_str(text).map_err(|error| bad_toml(path, text, &error))?;
        check_apps(&file.app).with_context(|| format!("{name}"))?;
        let known = App::development().secret;
        let public = file.app.iter().find(|app| app.secret == known);
        if let Some(App { id, .. }) = public.filter(|_| !address.ip().is_loopback()) {
            bail!(
                "{name}: [[app]] {id}: `secret` is the development app's, which is public: with \
                 --bind {} fill in a long random text of your own",
                address.ip()
            );
        }
        let mut limits = Limits::default();
        let mut given = BTreeSet::new();
        for (key, value) in &file.limits {
            let wrong = || format!("{name}: [limits]");
            let Some(value) = value.as_integer().and_then(|value| u64::try_from(value).ok()) else {
                bail!("{name}: [limits]: {}", bad_value(key, value));
            };
            limits.set(key, value).map_err(|error| bad_limit(&error)).with_context(wrong)?;
            given.insert(key.as_str());
        }
        let limits = defaults(&limits, &given);
        limits
            .check()
            .map_err(|error| bad_limit(&error))
            .with_context(|| format!("{name}: [limits]: the numbers do not fit together"))?;
        let timing = Timing::default();
        Ok(Self { address, apps: file.app, is_development: false, limits, timing })
    }

    /// The configuration as a file, with secrets left out.
    pub fn print(&self) -> String {
        let mut out = format!("# listens on {}\n", self.address);
        for App { id, key, name, client_events, subscription_counts, authorized_only, .. } in
            &self.apps
        {
            let quote = |text: &str| toml::Value::String(text.to_owned()).to_string();
            let (id, key, name) = (quote(id), quote(key), quote(name));
            let _ = writeln!(
                out,
                "\n[[app]]\nid = {id}\nkey = {key}\nsecret = \"\" # left out\nname = {name}\n\
                 # subscribers of private channels may send each other events\n\
                 client_events = {client_events}\n\
                 # subscribers are told how many subscriptions their channel has\n\
                 subscription_counts = {subscription_counts}\n\
                 # connections that neither sign in nor join a private channel are closed\n\
                 authorized_only = {authorized_only}"
            );
        }
        out += "\n[limits]\n";
        for key in KEYS {
            let value = self.limits.get(key.name).expect("the table lists what there is");
            let _ = writeln!(out, "# {} ({})\n{} = {value}", key.help, key.unit, key.name);
        }
        out
    }
}

/// For how long a cache channel keeps its last event.
const CACHE_MS: u64 = 30 * 60 * 1000;

/// Fills in what depends on the machine or is the protocol's, and was not given.
fn defaults(limits: &Limits, given: &BTreeSet<&str>) -> Limits {
    let mut limits = limits.clone();
    let mut set = |name: &str, value: u64| {
        if given.contains(name) {
            return;
        }
        let key = KEYS.iter().find(|key| key.name == name).expect("named as in the table");
        limits.set(name, value.clamp(key.min, key.max)).expect("clamped into its range");
    };
    if let Some(budget) = budget::memory_budget() {
        set("memory_budget", budget);
    }
    let high_water = budget::high_water(limits.memory_budget, EXPECTED_CONNECTIONS);
    if !given.contains("high_water_bytes") {
        limits.high_water_bytes = high_water;
    }
    if !given.contains("retention_ms") {
        limits.retention_ms = CACHE_MS;
    }
    limits
}

fn check_apps(apps: &[App]) -> Result<()> {
    ensure!(!apps.is_empty(), "there is no app: add an [[app]] with id, key and secret");
    ensure!(apps.len() <= MAX_APPS, "{} apps, but at most {MAX_APPS} are served", apps.len());
    let (mut ids, mut keys) = (BTreeSet::new(), BTreeSet::new());
    for App { id, key, secret, name, webhooks, .. } in apps {
        let digits = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
        ensure!(digits, "[[app]]: `id` is {id:?}, but must be decimal digits, such as \"1001\"");
        let word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
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
        check_webhooks(webhooks).with_context(|| format!("[[app]] {id}"))?;
        ensure!(ids.insert(id), "[[app]]: two apps have the `id` {id:?}: give each its own");
        ensure!(keys.insert(key), "[[app]]: two apps have the `key` {key:?}: give each its own");
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
            "[[app.webhook]]: `url` is {url:?}, but must begin with http:// or https:// and name \
             a host"
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

    const APP: &str = "[[app]]\nid = \"7\"\nkey = \"k\"\nsecret = \"s\"\n";

    fn parse(text: &str) -> Result<Config> {
        Config::parse(([0, 0, 0, 0], 80).into(), text, Path::new("ws.toml"))
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
                ["`memory_budget` is \"1GiB\"", "a whole number of bytes, without quotes"],
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
            (&APP.replace("\"7\"", "\"a\""), ["`id` is \"a\"", "decimal digits"]),
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
            (&format!("{APP}[limit]"), ["ws.toml:5: unknown key `limit`", "app, limits"]),
            (&format!("port = 80\n{APP}"), ["ws.toml:1: unknown key `port`", "flag: --port"]),
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
        let config = parse(&format!("{APP}[limits]\nmax_topics = 5\n")).unwrap();
        let text = config.print();
        assert!(!text.contains("secret = \"s\""), "{text}");
        let again = parse(&text.replace("secret = \"\"", "secret = \"s\"")).unwrap();
        assert_eq!((again.apps, again.limits), (config.apps, config.limits));
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
