//! The numbers and texts of `[server]`: one table for the file, the environment and the flags.

use super::Config;
use crate::jwt;
use anyhow::{Context, Result};
use sluicegate_host::keys::{Number, Table, Text, small};
use std::net::IpAddr;
use std::time::Duration;

/// All keys of `[server]`.
pub(super) const SERVER: Table<Config> = Table { texts: TEXTS, numbers: NUMBERS };

fn ip(text: &str) -> Result<IpAddr> {
    text.parse().context("write an IP address, such as 127.0.0.1 or 0.0.0.0")
}

/// What is between commas; nothing of nothing.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

fn list<T: ToString>(parts: &[T]) -> String {
    parts.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).expect("its key bounds it")
}

const TEXTS: &[Text<Config>] = &[
    Text {
        name: "bind",
        help: "address to listen on",
        get: |config| config.bind.to_string(),
        set: |config, text| ip(text).map(|bind| config.bind = bind),
    },
    Text {
        name: "admin_bind",
        help: "address of the admin pages: /, /metrics, /health, /ready, /ledger",
        get: |config| config.admin_bind.to_string(),
        set: |config, text| ip(text).map(|bind| config.admin_bind = bind),
    },
    Text {
        name: "state_dir",
        help: "folder for keys that a restart must find again, and the development certificate",
        get: |config| config.state_dir.to_string_lossy().into_owned(),
        set: |config, text| {
            config.state_dir = text.into();
            Ok(())
        },
    },
    Text {
        name: "jwt_keys",
        help: "public keys in PEM, Ed25519 or P-256, that sign tokens: FILE, or KID=FILE, KID=FILE",
        get: |config| list(&config.jwt.keys),
        set: |config, text| {
            config.jwt.keys = parts(text).map(str::parse).collect::<Result<_>>()?;
            jwt::check(&config.jwt.keys)
        },
    },
    Text {
        name: "jwt_audience",
        help: "one of these is in `aud` of signed tokens; empty: they have none",
        get: |config| list(&config.jwt.audience),
        set: |config, text| {
            config.jwt.audience = parts(text).map(str::to_owned).collect();
            Ok(())
        },
    },
    Text {
        name: "jwt_issuer",
        help: "one of these is `iss` of signed tokens; empty: it may be any",
        get: |config| list(&config.jwt.issuer),
        set: |config, text| {
            config.jwt.issuer = parts(text).map(str::to_owned).collect();
            Ok(())
        },
    },
    Text {
        name: "tape",
        help: "file to record every input of the core in, for `sluicegate-sim replay`; empty: none",
        get: |config| config.tape.clone(),
        set: |config, text| {
            text.clone_into(&mut config.tape);
            Ok(())
        },
    },
];

const NUMBERS: &[Number<Config>] = &[
    Number {
        name: "port",
        unit: "a UDP port",
        min: 0,
        max: 65_535,
        help: "port to listen on; 0 takes any free one",
        get: |config| config.port.into(),
        set: |config, value| config.port = small(value),
    },
    Number {
        name: "admin_port",
        unit: "a TCP port",
        min: 0,
        max: 65_535,
        help: "port of the admin pages; 0 takes any free one",
        get: |config| config.admin_port.into(),
        set: |config, value| config.admin_port = small(value),
    },
    Number {
        name: "driver_threads",
        unit: "threads",
        min: 0,
        max: 64,
        help: "threads for QUIC's drivers, at most one for each of `shards`; 0: on the shards' own",
        get: |config| config.driver_threads.into(),
        set: |config, value| config.driver_threads = small(value),
    },
    Number {
        name: "max_conn_subscriptions",
        unit: "subscriptions",
        min: 1,
        max: 65_536,
        help: "subscriptions of one connection",
        get: |config| config.settings.max_subscriptions,
        set: |config, value| config.settings.max_subscriptions = value,
    },
    Number {
        name: "max_conn_topics",
        unit: "topics",
        min: 1,
        max: 65_536,
        help: "topics that one connection may have bound",
        get: |config| config.settings.max_topics,
        set: |config, value| config.settings.max_topics = value,
    },
    Number {
        name: "max_publish_streams",
        unit: "streams",
        min: 1,
        max: 64,
        help: "streams on which one connection may publish",
        get: |config| config.settings.max_publish_streams,
        set: |config, value| config.settings.max_publish_streams = value,
    },
    Number {
        name: "max_handshakes",
        unit: "connections",
        min: 1,
        max: 65_536,
        help: "connections that have not said who they are",
        get: |config| config.settings.max_handshakes,
        set: |config, value| config.settings.max_handshakes = value,
    },
    Number {
        name: "max_handshakes_per_address",
        unit: "connections",
        min: 1,
        max: 65_536,
        help: "connections from one address that have not said who they are",
        get: |config| config.settings.max_strangers,
        set: |config, value| config.settings.max_strangers = value,
    },
    Number {
        name: "hello_timeout_ms",
        unit: "milliseconds",
        min: 100,
        max: 600_000,
        help: "for a handshake and the first frame",
        get: |config| millis(config.settings.hello_timeout),
        set: |config, value| config.settings.hello_timeout = Duration::from_millis(value),
    },
    Number {
        name: "jwt_leeway_ms",
        unit: "milliseconds",
        min: 0,
        max: 300_000,
        help: "how far clocks may be off at `exp` and `nbf` of signed tokens",
        get: |config| millis(config.jwt.leeway),
        set: |config, value| config.jwt.leeway = Duration::from_millis(value),
    },
    Number {
        name: "idle_timeout_ms",
        unit: "milliseconds",
        min: 1_000,
        max: 600_000,
        help: "silence after which a connection is over",
        get: |config| config.settings.idle_timeout_ms,
        set: |config, value| config.settings.idle_timeout_ms = value,
    },
    Number {
        name: "tape_max_mib",
        unit: "MiB",
        min: 1,
        max: 1_024,
        help: "the most that each shard records on its tape; then it stops recording",
        get: |config| config.tape_max_mib.into(),
        set: |config, value| config.tape_max_mib = small(value),
    },
];
