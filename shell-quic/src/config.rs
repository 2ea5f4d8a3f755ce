//! What the server is told: flags, the environment, and a file in TOML.
//!
//! ```toml
//! [server]
//! bind = "0.0.0.0"
//! jwt_keys = "2030=signer.pem" # KID=FILE of a public key; several with commas between
//!
//! [tls]
//! cert = "fullchain.pem"
//! key = "key.pem"
//!
//! [[tenant]]
//! name = "shop"
//! [[tenant.token]]
//! sha256 = "…"                 # printf %s TOKEN | sha256sum
//! publish = ["orders.*"]
//! subscribe = ["*"]
//!
//! [limits]                     # any key of the core's table
//! lossless = 1
//! ```

mod keys;

use crate::access::Tenant;
use crate::identity::Files;
use crate::jwt::Rules;
use crate::settings::Settings;
use anyhow::{Context, Result, bail, ensure};
use keys::SERVER;
use serde::Deserialize;
use sluicegate_core::limits::KEYS;
use sluicegate_core::{LimitError, Limits};
use sluicegate_host::budget;
use sluicegate_host::keys::print_limits;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

/// Variables of the environment begin with it.
pub const PREFIX: &str = "SLUICEGATE_QUIC_";

/// The most tenants of one server.
const MAX_TENANTS: usize = 9_000;

/// Everything the server needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address to listen on.
    pub bind: IpAddr,
    /// UDP port; 0 takes any free one.
    pub port: u16,
    /// Address of the admin pages.
    pub admin_bind: IpAddr,
    /// TCP port of the admin pages; 0 takes any free one.
    pub admin_port: u16,
    /// Where keys and the development certificate are kept.
    pub state_dir: PathBuf,
    /// The certificate; without one, one for development is made.
    pub tls: Option<Files>,
    /// Which signed tokens are good.
    pub jwt: Rules,
    /// The file in which the inputs of the core are recorded; empty for none.
    pub tape: String,
    /// The most that each shard records, in MiB.
    pub tape_max_mib: u32,
    /// Threads for QUIC's drivers, at most one for each shard; with 0 each shard's own drives.
    pub driver_threads: u32,
    /// Bounds and times of the protocol.
    pub settings: Settings,
    /// The core's numbers; they have passed their check.
    pub limits: Limits,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            bind: Ipv4Addr::LOCALHOST.into(),
            port: 4433,
            admin_bind: Ipv4Addr::LOCALHOST.into(),
            admin_port: 9433,
            state_dir: state_dir(),
            tls: None,
            jwt: Rules::default(),
            tape: String::new(),
            tape_max_mib: 256,
            driver_threads: 0,
            settings: Settings::default(),
            limits: Limits {
                retention_records: 1024,
                retention_bytes: 1 << 20,
                retention_ms: 3_600_000,
                ..Limits::default()
            },
        }
    }
}

/// Where programs of a user keep what must survive (XDG base directories).
fn state_dir() -> PathBuf {
    let home = || std::env::home_dir().map(|home| home.join(".local/state"));
    let base = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or_else(home);
    base.unwrap_or_else(|| PathBuf::from(".")).join("sluicegate-quic")
}

/// What flags say, besides the file.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    /// Address to listen on [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    pub bind: Option<IpAddr>,
    /// UDP port to listen on; 0 takes any free one and says which [default: 4433]
    #[arg(long, value_name = "NUMBER")]
    pub port: Option<u16>,
    /// Server, tenants, certificate and limits as TOML; without it there is one open tenant
    /// `default`, on loopback only
    #[arg(long, value_name = "FILE", env = "SLUICEGATE_QUIC_CONFIG")]
    pub config: Option<PathBuf>,
    /// Record every input of the core in this file, for `sluicegate-sim replay`: lengths and hashed
    /// names, no payloads; with several shards one file each, FILE.0 and so on
    #[arg(long, value_name = "FILE")]
    pub tape: Option<PathBuf>,
    /// Any key below server or limits, as `config` lists them; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    tenant: Vec<Tenant>,
    tls: Option<Files>,
    #[serde(default)]
    server: BTreeMap<String, toml::Value>,
    #[serde(default)]
    limits: BTreeMap<String, toml::Value>,
}

/// What is known so far, from the file to the flags.
#[derive(Debug, Default)]
struct Draft {
    config: Config,
    /// Keys that somebody has said.
    given: BTreeSet<String>,
}

impl Config {
    /// Reads the flags, the environment, and the file that one of them names.
    ///
    /// # Errors
    /// Name the place, the key, the value and what to do.
    pub fn load(
        flags: &Flags,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self> {
        let mut draft = Draft::default();
        if let Some(path) = &flags.config {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("--config {}: cannot be read", path.display()))?;
            draft.read(path, &text)?;
        }
        draft.hear(environment)?;
        draft.obey(flags)?;
        draft.finish()
    }

    /// The configuration as a file; the hashes of tokens are left out.
    pub fn print(&self) -> String {
        let mut out = String::from("[server]\n");
        out += &SERVER.print(self, |text| toml::Value::String(text.to_owned()).to_string());
        if let Some(Files { cert, key }) = &self.tls {
            let quoted = |path: &Path| toml::Value::String(path.to_string_lossy().into_owned());
            let _ = writeln!(out, "\n[tls]\ncert = {}\nkey = {}", quoted(cert), quoted(key));
        }
        for Tenant { name, weight, token } in &self.settings.tenants {
            let name = toml::Value::String(name.clone());
            let _ = writeln!(out, "\n[[tenant]]\nname = {name}\nweight = {weight}");
            let _ = writeln!(out, "# {} tokens are left out", token.len());
        }
        out += "\n[limits]\n";
        out + &print_limits(&self.limits, &[])
    }

    /// Puts the value of any key in force; whether all of them fit together is still to be checked.
    ///
    /// # Errors
    /// Name the key, the value and what to do.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        if let Some(text) = SERVER.text(key) {
            return (text.set)(self, value).with_context(|| format!("`{key}` is `{value}`"));
        }
        let Some((unit, min, max)) = SERVER.range(key) else {
            bail!("`{key}` is not known; did you mean `{}`?", SERVER.nearest(key));
        };
        let parsed = value.trim().replace('_', "").parse().ok();
        let Some(parsed) = parsed.filter(|value| (min..=max).contains(value)) else {
            bail!(
                "`{key}` is {value}, but must be a whole number between {min} and {max} ({unit})"
            );
        };
        match SERVER.number(key) {
            Some(number) => (number.set)(self, parsed),
            None => self.limits.set(key, parsed).map_err(bad_limit)?,
        }
        Ok(())
    }

    /// Whether all keys fit together.
    ///
    /// # Errors
    /// Name the keys, the values and what to do.
    pub fn check(&self) -> Result<()> {
        self.limits.check().map_err(bad_limit).context("[limits]: do not fit together")?;
        check_tenants(&self.settings.tenants)?;
        let (drivers, shards) = (self.driver_threads, self.limits.shards);
        ensure!(
            u64::from(drivers) <= shards,
            "`driver_threads` is {drivers}, but must be at most `shards`, which is {shards}: all \
             that one shard's endpoint drives runs on one thread"
        );
        let is_local = self.bind.is_loopback();
        let bind = self.bind;
        ensure!(
            is_local || self.tls.is_some(),
            "bind = {bind}: only loopback is served with the development certificate; name one \
             below [tls] with `cert` and `key`"
        );
        let Rules { keys, audience, issuer, .. } = &self.jwt;
        let says = [("jwt_audience", audience), ("jwt_issuer", issuer)];
        if let Some((name, _)) = says.iter().find(|(_, said)| !said.is_empty() && keys.is_empty()) {
            bail!("`{name}` is set, but no token is looked at without `jwt_keys`");
        }
        let open = self.settings.tenants.iter().find(|tenant| tenant.token.is_empty());
        if let Some(Tenant { name, .. }) = open.filter(|_| !is_local && keys.is_empty()) {
            bail!(
                "bind = {bind}: the tenant `{name}` is open to everybody, which is allowed on \
                 loopback only; give it a [[tenant.token]] with `sha256`, `publish`, `subscribe`, \
                 or name keys of signed tokens with `jwt_keys`"
            );
        }
        Ok(())
    }
}

impl Draft {
    fn read(&mut self, path: &Path, text: &str) -> Result<()> {
        let name = path.display();
        let file: File = toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            let line = 1 + text.get(..start).unwrap_or(text).matches('\n').count();
            anyhow::anyhow!("{name}:{line}: {}", error.message().trim_end())
        })?;
        self.config.tls = file.tls;
        if !file.tenant.is_empty() {
            self.config.settings.tenants = file.tenant;
        }
        for (section, keys) in [("server", file.server), ("limits", file.limits)] {
            for (key, value) in keys {
                let value = match &value {
                    toml::Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                let belongs = if SERVER.has(&key) { "server" } else { "limits" };
                ensure!(
                    belongs == section || !SERVER.knows(&key),
                    "{name}: [{section}]: `{key}` belongs below [{belongs}]"
                );
                self.put(&key, &value).with_context(|| format!("{name}: [{section}]"))?;
            }
        }
        Ok(())
    }

    /// Every variable of ours must be a key.
    fn hear(&mut self, environment: impl Iterator<Item = (String, String)>) -> Result<()> {
        for (name, value) in environment {
            let key = name.strip_prefix(PREFIX).filter(|key| *key != "CONFIG");
            let Some(key) = key else { continue };
            self.put(&key.to_lowercase(), &value).with_context(|| name.clone())?;
        }
        Ok(())
    }

    fn obey(&mut self, flags: &Flags) -> Result<()> {
        for pair in &flags.set {
            let Some((key, value)) = pair.split_once('=') else {
                bail!("--set {pair}: write KEY=VALUE, such as --set lossless=1");
            };
            self.put(key.trim(), value.trim()).with_context(|| format!("--set {pair}"))?;
        }
        self.config.bind = flags.bind.unwrap_or(self.config.bind);
        self.config.port = flags.port.unwrap_or(self.config.port);
        if let Some(tape) = &flags.tape {
            self.put("tape", &tape.to_string_lossy())?;
        }
        Ok(())
    }

    fn put(&mut self, key: &str, value: &str) -> Result<()> {
        self.given.insert(key.to_owned());
        self.config.set(key, value)
    }

    fn finish(mut self) -> Result<Config> {
        let given = |key: &str| self.given.contains(key);
        if !given("memory_budget")
            && let Some(budget) = budget::memory_budget()
        {
            let key = KEYS.iter().find(|key| key.name == "memory_budget").expect("it is there");
            self.config.limits.memory_budget = budget.clamp(key.min, key.max);
        }
        self.config.check()?;
        Ok(self.config)
    }
}

fn bad_limit(error: LimitError<'_>) -> anyhow::Error {
    anyhow::anyhow!("{error}")
}

fn check_tenants(tenants: &[Tenant]) -> Result<()> {
    let all = tenants.len();
    ensure!(all <= MAX_TENANTS, "{all} tenants, but at most {MAX_TENANTS} are served");
    let mut names = BTreeSet::new();
    for Tenant { name, weight, .. } in tenants {
        ensure!((1..=200).contains(&name.len()), "[[tenant]] `{name}`: a name has 1 to 200 bytes");
        ensure!(names.insert(name), "[[tenant]] `{name}`: is there twice");
        ensure!(
            (1..=1000).contains(weight),
            "[[tenant]] `{name}`: `weight` is {weight}, but must be between 1 and 1000"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config> {
        let mut draft = Draft::default();
        draft.read(Path::new("quic.toml"), text)?;
        draft.finish()
    }

    fn said(pairs: &[(&str, &str)]) -> Result<Config> {
        let owned = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Config::load(&Flags::default(), owned)
    }

    #[test]
    fn without_a_word_it_serves_an_open_tenant_on_loopback() {
        let config = said(&[]).unwrap();
        assert_eq!((config.bind, config.port), (Ipv4Addr::LOCALHOST.into(), 4433));
        assert_eq!(config.settings.tenants, [Tenant::open("default")]);
    }

    #[test]
    fn the_environment_and_the_file_share_the_keys() {
        let config = said(&[("SLUICEGATE_QUIC_LOSSLESS", "1"), ("OTHER", "x")]).unwrap();
        assert_eq!(config.limits.lossless, 1);
        let config = read("[limits]\nlossless = 1\n[server]\nmax_conn_topics = 7\nbind = \"::1\"");
        let config = config.unwrap();
        assert_eq!((config.limits.lossless, config.settings.max_topics), (1, 7));
        assert_eq!(config.bind, "::1".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn what_is_wrong_names_the_place_the_value_and_the_way_out() {
        let error = |text| format!("{:#}", read(text).unwrap_err());
        for (text, expected) in [
            ("[limits]\nlossles = 1", "`lossles` is not known; did you mean `lossless`?"),
            ("[server]\nlossless = 1", "`lossless` belongs below [limits]"),
            ("[limits]\nlossless = 2", "`lossless` is 2, but must be a whole number between 0"),
            ("[server]\nport = \"x\"", "`port` is x, but must be a whole number between 0 and"),
            ("[server]\nbind = \"0.0.0.0\"", "name one below [tls]"),
            ("[[tenant]]\nname = \"\"", "a name has 1 to 200 bytes"),
            (
                "[[tenant]]\nname = \"a\"\n[[tenant.token]]\nsha256 = \"00\"",
                "quic.toml:4: a SHA-256",
            ),
            ("[server]\nbind = \"here\"", "write an IP address"),
            ("[server]\njwt_keys = \"a.pem,b.pem\"", "`jwt_keys` is `a.pem,b.pem`: a.pem: has no"),
            ("[server]\njwt_issuer = \"me\"", "`jwt_issuer` is set, but no token is looked at"),
            (
                "[server]\ndriver_threads = 3\n[limits]\nshards = 2",
                "`driver_threads` is 3, but must be at most `shards`, which is 2",
            ),
            ("[server]\njwt_leeway_ms = 300001", "`jwt_leeway_ms` is 300001, but must be"),
        ] {
            let error = error(text);
            assert!(error.contains(expected), "{error}");
        }
        let tls = "[server]\nbind = \"0.0.0.0\"\n[tls]\ncert = \"a\"\nkey = \"b\"";
        assert!(error(tls).contains("give it a [[tenant.token]]"));
        let signed = tls.replacen('\n', "\njwt_keys = \"a.pem\"\n", 1);
        assert!(read(&signed).is_ok(), "nobody gets in without a token");
    }

    #[test]
    fn what_is_printed_can_be_read() {
        let config = said(&[("SLUICEGATE_QUIC_MAX_CONN_TOPICS", "9")]).unwrap();
        let again = read(&config.print()).unwrap();
        assert_eq!((again.settings, again.limits), (config.settings, config.limits));
        let pairs =
            [("JWT_KEYS", "a=a.pem,b=b.pem"), ("JWT_AUDIENCE", "x, y"), ("JWT_ISSUER", "z")];
        let pairs = pairs.map(|(key, value)| (format!("{PREFIX}{key}"), value.to_owned()));
        let config = Config::load(&Flags::default(), pairs.into_iter()).unwrap();
        assert_eq!((config.jwt.keys.len(), config.jwt.audience.len()), (2, 2));
        assert_eq!(read(&config.print()).unwrap().jwt, config.jwt);
    }
}
