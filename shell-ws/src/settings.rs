//! The numbers and texts of `[server]`: one table for the file, the environment and the flags.

use anyhow::{anyhow, ensure};
use sluicegate_host::keys::{Number, Table, Text, small};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// What the server is told about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Address to listen on.
    pub bind: IpAddr,
    /// Port to listen on; 0 takes any free one.
    pub port: u16,
    /// Event loops.
    pub workers: u32,
    /// What clients and publishers put before every path; empty, or `/` and more.
    pub path_prefix: String,
    /// The file that every input of the core is recorded in; empty: nothing is recorded.
    pub tape: String,
    /// The most that one loop records, in MiB.
    pub tape_max_mib: u32,
    /// Silence after which a client is asked for a sign of life.
    pub activity_timeout: Duration,
    /// From being asked to a sign of life.
    pub pong_timeout: Duration,
    /// Time in which strangers must say who they are, where the app wants to know.
    pub identity_timeout: Duration,
    /// All of the shutdown.
    pub shutdown_grace: Duration,
    /// The most bytes of an event's data over the HTTP API.
    pub max_event_bytes: usize,
    /// The most characters of a channel's name.
    pub max_channel_name: usize,
    /// The most events of one batch over the HTTP API.
    pub max_batch_events: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 6001,
            workers: 1,
            path_prefix: String::new(),
            tape: String::new(),
            tape_max_mib: 256,
            activity_timeout: Duration::from_secs(120),
            pong_timeout: Duration::from_secs(30),
            identity_timeout: Duration::from_secs(10),
            shutdown_grace: Duration::from_secs(10),
            max_event_bytes: 10 << 10,
            max_channel_name: 164,
            max_batch_events: 10,
        }
    }
}

/// All keys of `[server]`.
pub const SERVER: Table<Settings> = Table { texts: TEXTS, numbers: NUMBERS };

const NUMBERS: &[Number<Settings>] = &[
    Number {
        name: "port",
        unit: "as a TCP port",
        min: 0,
        max: 65_535,
        help: "port to listen on; 0 takes any free one",
        get: |settings| settings.port.into(),
        set: |settings, value| settings.port = small(value),
    },
    Number {
        name: "workers",
        unit: "event loops",
        min: 1,
        max: sluicegate_host::node::MAX_SHARDS as u64,
        help: "event loops: no more than there are processors to run them",
        get: |settings| settings.workers.into(),
        set: |settings, value| settings.workers = small(value),
    },
    Number {
        name: "activity_timeout_s",
        unit: "seconds",
        min: 1,
        max: 86_400,
        help: "silence after which a client is asked for a sign of life; clients are told",
        get: |settings| settings.activity_timeout.as_secs(),
        set: |settings, value| settings.activity_timeout = Duration::from_secs(value),
    },
    Number {
        name: "pong_timeout_s",
        unit: "seconds",
        min: 1,
        max: 3_600,
        help: "time from being asked to a sign of life; then the connection is closed with 4201",
        get: |settings| settings.pong_timeout.as_secs(),
        set: |settings, value| settings.pong_timeout = Duration::from_secs(value),
    },
    Number {
        name: "identity_timeout_s",
        unit: "seconds",
        min: 1,
        max: 3_600,
        help: "time to sign in or join a private channel, for apps with authorized_only",
        get: |settings| settings.identity_timeout.as_secs(),
        set: |settings, value| settings.identity_timeout = Duration::from_secs(value),
    },
    Number {
        name: "shutdown_grace_s",
        unit: "seconds",
        min: 0,
        max: 3_600,
        help: "time in which a server that is stopped sends what waits",
        get: |settings| settings.shutdown_grace.as_secs(),
        set: |settings, value| settings.shutdown_grace = Duration::from_secs(value),
    },
    Number {
        name: "max_event_bytes",
        unit: "bytes",
        min: 1,
        max: 1 << 20,
        help: "the most data of an event over the HTTP API; more is answered 413",
        get: |settings| settings.max_event_bytes as u64,
        set: |settings, value| settings.max_event_bytes = small(value),
    },
    Number {
        name: "max_channel_name",
        unit: "characters",
        min: 1,
        max: 200,
        help: "the longest name of a channel; hosted Pusher takes 164, its libraries 200",
        get: |settings| settings.max_channel_name as u64,
        set: |settings, value| settings.max_channel_name = small(value),
    },
    Number {
        name: "max_batch_events",
        unit: "events",
        min: 1,
        max: 100,
        help: "the most events of one batch over the HTTP API",
        get: |settings| settings.max_batch_events as u64,
        set: |settings, value| settings.max_batch_events = small(value),
    },
    Number {
        name: "tape_max_mib",
        unit: "MiB",
        min: 1,
        max: 1_024,
        help: "the most that each event loop records on its tape; then it stops recording",
        get: |settings| settings.tape_max_mib.into(),
        set: |settings, value| settings.tape_max_mib = small(value),
    },
];

const TEXTS: &[Text<Settings>] = &[
    Text {
        name: "bind",
        help: "IP address to listen on; 0.0.0.0 lets other machines in",
        get: |settings| settings.bind.to_string(),
        set: |settings, text| {
            settings.bind = text.parse().map_err(|_| {
                anyhow!(
                    "`bind` is {text:?}, but must be an IP address, such as 127.0.0.1 or 0.0.0.0"
                )
            })?;
            Ok(())
        },
    },
    Text {
        name: "tape",
        help: "file to record every input of the core in, for `sluicegate-sim replay`; empty: none",
        get: |settings| settings.tape.clone(),
        set: |settings, text| {
            text.clone_into(&mut settings.tape);
            Ok(())
        },
    },
    Text {
        name: "path_prefix",
        help: "what clients and publishers put before every path, such as /realtime",
        get: |settings| settings.path_prefix.clone(),
        set: |settings, text| {
            let is_path = text.starts_with('/') && !text.ends_with('/');
            ensure!(
                text.is_empty() || is_path && text.bytes().all(is_plain),
                "`path_prefix` is {text:?}, but must begin with a slash and not end with one, such \
                 as /realtime"
            );
            text.clone_into(&mut settings.path_prefix);
            Ok(())
        },
    },
];

impl Settings {
    /// A path without the prefix, if it has it.
    pub fn strip<'a>(&self, path: &'a str) -> &'a str {
        path.strip_prefix(&*self.path_prefix).filter(|rest| rest.starts_with('/')).unwrap_or(path)
    }

    /// The silence that clients are told.
    pub fn activity_timeout_s(&self) -> u32 {
        u32::try_from(self.activity_timeout.as_secs().max(1)).unwrap_or(u32::MAX)
    }

    /// The largest body of a request: a whole batch, half of its characters escaped, and names.
    pub const fn max_body(&self) -> usize {
        (128 << 10) + 2 * self.max_batch_events * self.max_event_bytes
    }
}

const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'.' | b'~')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_does_something_and_has_its_range() {
        for number in NUMBERS {
            let mut settings = Settings::default();
            for value in [number.min, number.max] {
                number.put(&mut settings, value).unwrap();
                assert_eq!((number.get)(&settings), value, "{}", number.name);
            }
        }
    }

    #[test]
    fn the_defaults_are_those_of_hosted_pusher() {
        let settings = Settings::default();
        let seconds = [settings.activity_timeout, settings.pong_timeout].map(|it| it.as_secs());
        assert_eq!(seconds, [120, 30]);
        let Settings { max_event_bytes, max_channel_name, max_batch_events, .. } = settings;
        assert_eq!((max_event_bytes, max_channel_name, max_batch_events), (10_240, 164, 10));
    }

    #[test]
    fn a_prefix_is_taken_off_whole() {
        let mut settings = Settings::default();
        assert_eq!(settings.strip("/app/k"), "/app/k");
        let put = SERVER.text("path_prefix").unwrap().set;
        put(&mut settings, "/rt").unwrap();
        assert_eq!(settings.strip("/rt/app/k"), "/app/k");
        assert_eq!(settings.strip("/app/k"), "/app/k");
        assert_eq!(settings.strip("/rtx/app/k"), "/rtx/app/k");
        for wrong in ["rt", "/rt/", "/r t", "/"] {
            assert!(put(&mut settings, wrong).is_err(), "{wrong}");
        }
    }
}
