//! Configurations of other servers, as ours: environment variables of soketi and Pylon, and their
//! files of apps in JSON. What has no counterpart is said, each with the reason.

use crate::apps::{App, Secret};
use crate::hooks::{Kind, Webhook, shown};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What became of another server's configuration.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Translation {
    /// Keys of `[server]`, `[tls]` and `[limits]`, by section, as TOML values.
    sections: BTreeMap<&'static str, BTreeMap<&'static str, String>>,
    apps: Vec<App>,
    /// What was not translated, and why.
    pub left: Vec<(String, String)>,
}

/// What becomes of a variable.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// A key of a section that takes a text.
    Text(&'static str, &'static str),
    /// A key of a section that takes a whole number, which is multiplied by this.
    Number(&'static str, &'static str, u64),
    /// A key of a section that takes a number of seconds, given in milliseconds.
    Seconds(&'static str, &'static str),
    /// A field of the one app.
    App(&'static str),
    /// It has no counterpart.
    Left(&'static str),
}

use Fate::{Left, Number, Seconds, Text};

const FIXED: &str = "fixed by the protocol here";
const ONE_NODE: &str = "this server is one node: clients and publishers use the same one";
const NO_DATABASE: &str = "apps come from the file: write an [[app]] for each";
const METRICS: &str = "metrics are always on, at /metrics of the same port";

/// Variables of soketi, without `SOKETI_`.
const SOKETI: &[(&str, Fate)] = &[
    ("HOST", Text("server", "bind")),
    ("PORT", Number("server", "port", 1)),
    ("PATH_PREFIX", Text("server", "path_prefix")),
    ("SHUTDOWN_GRACE_PERIOD", Seconds("server", "shutdown_grace_s")),
    ("EVENT_MAX_SIZE_IN_KB", Number("server", "max_event_bytes", 1024)),
    ("CHANNEL_LIMITS_MAX_NAME_LENGTH", Number("server", "max_channel_name", 1)),
    ("SSL_CERT", Text("tls", "cert")),
    ("SSL_KEY", Text("tls", "key")),
    ("SSL_PASS", Left("a key with a passphrase is not read: decrypt it (openssl pkey)")),
    ("DEFAULT_APP_ID", Fate::App("id")),
    ("DEFAULT_APP_KEY", Fate::App("key")),
    ("DEFAULT_APP_SECRET", Fate::App("secret")),
    ("DEFAULT_APP_MAX_CONNS", Fate::App("maxConnections")),
    ("DEFAULT_APP_ENABLE_CLIENT_MESSAGES", Fate::App("enableClientMessages")),
    ("DEFAULT_APP_ENABLED", Fate::App("enabled")),
    ("DEFAULT_APP_WEBHOOKS", Fate::App("webhooks")),
    ("DEFAULT_APP_USER_AUTHENTICATION", Fate::App("enableUserAuthentication")),
    ("DEFAULT_APP_MAX_CLIENT_EVENTS_PER_SEC", Left(FIXED)),
    ("DEFAULT_APP_MAX_BACKEND_EVENTS_PER_SEC", Left("publishers are bounded by [limits] instead")),
    ("DEFAULT_APP_MAX_READ_REQ_PER_SEC", Left("reads are not limited")),
    ("PRESENCE_MAX_MEMBERS", Left(FIXED)),
    ("PRESENCE_MAX_MEMBER_SIZE", Left(FIXED)),
    ("EVENT_MAX_CHANNELS_AT_ONCE", Left(FIXED)),
    ("EVENT_MAX_NAME_LENGTH", Left(FIXED)),
    ("EVENT_MAX_BATCH_SIZE", Number("server", "max_batch_events", 1)),
    ("DEBUG", Left("the log is written to the error stream")),
    ("MODE", Left(ONE_NODE)),
];

/// Beginnings of soketi's variables that have no counterpart.
const SOKETI_LEFT: &[(&str, &str)] = &[
    ("ADAPTER_", ONE_NODE),
    ("APP_MANAGER_", NO_DATABASE),
    ("CACHE_", "cached events live in this server's memory"),
    ("DB_", NO_DATABASE),
    ("METRICS_", METRICS),
    ("QUEUE_", "webhooks are queued in this server's memory"),
    ("RATE_LIMITER_", "rates are counted in this server's memory"),
    ("CORS_", "the HTTP API is for servers"),
    ("HTTP_", "requests are bounded by [server] and [limits]"),
];

/// Variables of Pylon, without `PYLON_`.
const PYLON: &[(&str, Fate)] = &[
    ("BIND", Text("server", "bind")),
    ("PORT", Number("server", "port", 1)),
    ("WORKERS", Number("server", "workers", 1)),
    ("ACTIVITY_TIMEOUT", Number("server", "activity_timeout_s", 1)),
    ("PONG_TIMEOUT", Number("server", "pong_timeout_s", 1)),
    ("SHUTDOWN_GRACE_MS", Seconds("server", "shutdown_grace_s")),
    ("MAX_EVENT_PAYLOAD_BYTES", Number("server", "max_event_bytes", 1)),
    ("MAX_CHANNEL_NAME_LENGTH", Number("server", "max_channel_name", 1)),
    ("MAX_BATCH_EVENTS", Number("server", "max_batch_events", 1)),
    ("MEMORY_BUDGET_BYTES", Number("limits", "memory_budget", 1)),
    ("TLS_CERT", Text("tls", "cert")),
    ("TLS_KEY", Text("tls", "key")),
    ("APPS_PATH", Left("pass the file with --config, or copy its apps as [[app]]")),
];

/// Reads what it knows of an environment. Variables of nobody are not looked at.
pub fn environment(variables: impl Iterator<Item = (String, String)>) -> Result<Translation> {
    let mut translation = Translation::default();
    let mut app = serde_json::Map::new();
    for (name, value) in variables {
        let known = [("SOKETI_", SOKETI, SOKETI_LEFT), ("PYLON_", PYLON, &[])];
        let found = known
            .iter()
            .find_map(|(prefix, table, left)| Some((name.strip_prefix(prefix)?, *table, *left)));
        let Some((short, table, left)) = found else { continue };
        let fate = table.iter().find(|(known, _)| *known == short).map(|(_, fate)| *fate);
        let by_beginning = || left.iter().find(|(start, _)| short.starts_with(start));
        match fate {
            Some(Fate::App(field)) => {
                let parsed = serde_json::from_str(&value).ok();
                // Ids and keys that look like numbers are texts all the same.
                let is_text = matches!(field, "id" | "key" | "secret");
                let field_value = parsed.filter(|_| !is_text).unwrap_or(Value::String(value));
                app.insert(field.to_owned(), field_value);
            }
            Some(Left(why)) => translation.left.push((name, why.to_owned())),
            Some(fate) => translation.put(&name, &value, fate)?,
            None => {
                let why = by_beginning().map_or("it is not known here", |(_, why)| why);
                translation.left.push((name, why.to_owned()));
            }
        }
    }
    if !app.is_empty() {
        // What soketi assumes of an app that is only begun.
        for (field, usual) in [("id", "app-id"), ("key", "app-key"), ("secret", "app-secret")] {
            app.entry(field).or_insert_with(|| usual.into());
        }
        translation.app(&Value::Object(app)).context("the default app")?;
    }
    Ok(translation)
}

/// The variables of a file with a `KEY=VALUE` on each line, as shells and containers read them.
pub fn lines(text: &str) -> impl Iterator<Item = (String, String)> {
    text.lines().filter_map(|line| {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=').filter(|_| !line.starts_with('#'))?;
        let value = value.trim();
        let bare = ['"', '\'']
            .into_iter()
            .find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote))
            .unwrap_or(value);
        Some((name.trim().to_owned(), bare.to_owned()))
    })
}

/// Reads a file of apps in JSON: soketi's, with `appManager.array.apps` or `apps`, or Pylon's, a
/// list.
pub fn json_apps(text: &str) -> Result<Vec<App>> {
    let value: Value = serde_json::from_str(text).context("it is not JSON")?;
    let list = match &value {
        Value::Array(list) => Some(list),
        Value::Object(_) => ["appManager.array.apps", "apps"]
            .iter()
            .find_map(|key| value.get(key))
            .or_else(|| value.pointer("/appManager/array/apps"))
            .and_then(Value::as_array),
        _ => None,
    };
    let Some(list) = list else {
        bail!("there is no list of apps in it: write them as \"apps\": [{{ \"id\": … }}]")
    };
    let mut translation = Translation::default();
    for (index, app) in list.iter().enumerate() {
        translation.app(app).with_context(|| format!("apps[{index}]"))?;
    }
    Ok(translation.apps)
}

impl Translation {
    fn put(&mut self, name: &str, value: &str, fate: Fate) -> Result<()> {
        let number = || -> Result<u64> {
            let parsed = value.trim().parse();
            parsed.map_err(|_| anyhow::anyhow!("{name}: {value:?} is no whole number"))
        };
        let (section, key, value) = match fate {
            Text(section, key) => (section, key, quoted(value)),
            Number(section, key, times) => {
                (section, key, number()?.saturating_mul(times).to_string())
            }
            Seconds(section, key) => (section, key, number()?.div_ceil(1000).to_string()),
            Fate::App(_) | Left(_) => return Ok(()),
        };
        self.sections.entry(section).or_default().insert(key, value);
        Ok(())
    }

    /// An app in soketi's words, or in Pylon's.
    fn app(&mut self, value: &Value) -> Result<()> {
        let get = |names: &[&str]| names.iter().find_map(|name| value.get(name));
        let text = |names: &[&str]| -> Result<String> {
            match get(names) {
                Some(Value::String(text)) => Ok(text.clone()),
                Some(Value::Number(number)) => Ok(number.to_string()),
                _ => bail!("`{}` is missing: fill in a text", names[0]),
            }
        };
        let flag = |names: &[&str]| match get(names) {
            Some(Value::Bool(on)) => *on,
            Some(Value::Number(number)) => number.as_u64() == Some(1),
            Some(Value::String(text)) => matches!(&**text, "1" | "true"),
            _ => false,
        };
        let most = get(&["maxConnections", "max_connections", "capacity"]);
        let most = most.and_then(|most| match most {
            Value::String(text) => text.trim().parse().ok(),
            // soketi writes -1 for any number.
            most => most.as_u64(),
        });
        let id = text(&["id"])?;
        let off = get(&["enabled"]).is_some() && !flag(&["enabled"]);
        let webhooks = match get(&["webhooks"]) {
            Some(Value::Array(list)) => list.iter().map(webhook).collect::<Result<_>>()?,
            _ => Vec::new(),
        };
        self.apps.push(App {
            key: text(&["key"])?,
            secret: Secret::new(text(&["secret"])?),
            name: text(&["name"]).unwrap_or_default(),
            client_events: flag(&[
                "enableClientMessages",
                "enable_client_messages",
                "client_messages_enabled",
            ]),
            subscription_counts: flag(&["subscription_count_enabled"]),
            authorized_only: flag(&["enableUserAuthentication", "enable_user_authentication"]),
            enabled: !off,
            max_connections: most.unwrap_or(0),
            webhooks,
            id,
            ..App::development()
        });
        Ok(())
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The apps.
    pub fn apps(&self) -> &[App] {
        &self.apps
    }

    /// Our file, secrets included.
    pub fn print(&self) -> String {
        let mut out = String::new();
        for (section, keys) in &self.sections {
            let _ = writeln!(out, "[{section}]");
            for (key, value) in keys {
                let _ = writeln!(out, "{key} = {value}");
            }
            out.push('\n');
        }
        for app in &self.apps {
            out += &print_app(app, &quoted(app.secret.reveal()));
            out.push('\n');
        }
        if !self.left.is_empty() {
            out += "# Not translated:\n";
            for (name, why) in &self.left {
                let _ = writeln!(out, "#   {name}: {why}");
            }
        }
        out
    }
}

fn webhook(value: &Value) -> Result<Webhook> {
    let Some(url) = value.get("url").and_then(Value::as_str) else {
        bail!("webhooks: `url` is missing: Lambda functions and the like are not called")
    };
    let kinds = value.get("event_types").and_then(Value::as_array).into_iter().flatten();
    let kind = |kind: &Value| {
        let known = serde_json::from_value::<Kind>(kind.clone());
        known.with_context(|| format!("webhooks: {kind} is no kind of event"))
    };
    let prefix = value.pointer("/filter/channel_name_starts_with").and_then(Value::as_str);
    Ok(Webhook {
        url: url.to_owned(),
        events: kinds.map(kind).collect::<Result<_>>()?,
        channel_prefix: prefix.unwrap_or_default().to_owned(),
        batch: 1,
    })
}

/// A text as TOML.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// An app as TOML, with its secret or with what stands for it.
pub(super) fn print_app(app: &App, secret: &str) -> String {
    // Whoever sees the secret may see what URLs hold.
    let is_open = secret.starts_with('"') && !secret.starts_with("\"\"");
    let App { id, key, name, webhooks, .. } = app;
    let (id, key, name) = (quoted(id), quoted(key), quoted(name));
    let origins: Vec<_> = app.allowed_origins.iter().map(|origin| quoted(origin)).collect();
    let mut out = format!(
        "[[app]]\nid = {id}\nkey = {key}\nsecret = {secret}\nname = {name}\n\
         # whether it is served at all\nenabled = {}\n\
         # its share when the server is overloaded, against the other apps'\nweight = {}\n\
         # the most connections at a time, 0 for any number\nmax_connections = {}\n\
         # subscribers of private channels may send each other events\nclient_events = {}\n\
         # subscribers are told how many subscriptions their channel has\n\
         subscription_counts = {}\n\
         # events that cache channels keep for clients that ask for more than the last\n\
         rewind = {}\n\
         # connections that neither sign in nor join a private channel are closed\n\
         authorized_only = {}\n\
         # pages whose scripts may connect, such as https://example.org; none means all\n\
         allowed_origins = [{}]\n",
        app.enabled,
        app.weight,
        app.max_connections,
        app.client_events,
        app.subscription_counts,
        app.rewind,
        app.authorized_only,
        origins.join(", "),
    );
    for Webhook { url, events, channel_prefix, batch } in webhooks {
        let kinds: Vec<_> = events.iter().map(|kind| quoted(kind.name())).collect();
        let _ = writeln!(
            out,
            "[[app.webhook]]\nurl = {}\nevents = [{}] # none means all\nchannel_prefix = {}\n\
             batch = {batch}",
            quoted(&if is_open { url.clone() } else { shown(url) }),
            kinds.join(", "),
            quoted(channel_prefix),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translate(variables: &[(&str, &str)]) -> Translation {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        environment(variables).unwrap()
    }

    #[test]
    fn soketi_is_translated_and_what_is_left_is_said() {
        let found = translate(&[
            ("SOKETI_PORT", "6002"),
            ("SOKETI_HOST", "0.0.0.0"),
            ("SOKETI_EVENT_MAX_SIZE_IN_KB", "100"),
            ("SOKETI_SHUTDOWN_GRACE_PERIOD", "3000"),
            ("SOKETI_DEFAULT_APP_ID", "7"),
            ("SOKETI_DEFAULT_APP_ENABLE_CLIENT_MESSAGES", "true"),
            ("SOKETI_DEFAULT_APP_MAX_CONNS", "-1"),
            (
                "SOKETI_DEFAULT_APP_WEBHOOKS",
                r#"[{"url":"https://h/","event_types":["channel_occupied"],
                    "filter":{"channel_name_starts_with":"chat-"}}]"#,
            ),
            ("SOKETI_ADAPTER_DRIVER", "redis"),
            ("SOKETI_NEW", "1"),
            ("PATH", "/bin"),
        ]);
        let text = found.print();
        for line in [
            "port = 6002",
            "bind = \"0.0.0.0\"",
            "max_event_bytes = 102400",
            "shutdown_grace_s = 3",
            "id = \"7\"",
            "key = \"app-key\"",
            "secret = \"app-secret\"",
            "client_events = true",
            "max_connections = 0",
            "url = \"https://h/\"",
            "events = [\"channel_occupied\"] # none means all",
            "channel_prefix = \"chat-\"",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        assert_eq!(found.left.len(), 2);
        assert!(text.contains("#   SOKETI_ADAPTER_DRIVER: this server is one node"));
        assert!(text.contains("#   SOKETI_NEW: it is not known here"));
        assert!(!text.contains("PATH"), "nobody's variables are nobody's business");
    }

    #[test]
    fn a_file_of_variables_is_read() {
        let text = "# soketi\nexport SOKETI_PORT=1\n A = \"b c\" \nC='d'\nnothing\n";
        let found: Vec<_> = lines(text).collect();
        let expected = [("SOKETI_PORT", "1"), ("A", "b c"), ("C", "d")];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn pylon_is_translated() {
        let found = translate(&[
            ("PYLON_PORT", "7000"),
            ("PYLON_MEMORY_BUDGET_BYTES", "1073741824"),
            ("PYLON_TLS_CERT", "/c.pem"),
            ("PYLON_REDIS_URL", "redis://"),
        ]);
        let text = found.print();
        for line in ["port = 7000", "memory_budget = 1073741824", "cert = \"/c.pem\""] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        assert!(found.apps().is_empty());
        let wrong = environment([("PYLON_PORT".to_owned(), "x".to_owned())].into_iter());
        assert!(wrong.unwrap_err().to_string().contains("PYLON_PORT: \"x\""));
    }

    #[test]
    fn files_of_apps_are_read_in_either_form() {
        let soketi = r#"{ "port": 1, "appManager.array.apps": [
            { "id": 1, "key": "k", "secret": "s", "enableClientMessages": true,
              "maxConnections": "200" },
            { "id": "2", "key": "l", "secret": "t", "maxConnections": 5, "enabled": false }
        ]}"#;
        let apps = json_apps(soketi).unwrap();
        assert_eq!((&*apps[0].id, apps[0].client_events, apps[0].enabled), ("1", true, true));
        assert_eq!((apps[1].max_connections, apps[1].enabled), (5, false));
        let pylon = r#"[{ "name": "n", "id": "3", "key": "k", "secret": "s", "capacity": 9,
            "client_messages_enabled": true, "subscription_count_enabled": true }]"#;
        let apps = json_apps(pylon).unwrap();
        assert_eq!((apps[0].max_connections, apps[0].subscription_counts), (9, true));
        for (text, what) in
            [("{", "not JSON"), ("{}", "no list of apps"), (r#"[{"id":"1","key":"k"}]"#, "apps[0]")]
        {
            let error = format!("{:#}", json_apps(text).unwrap_err());
            assert!(error.contains(what), "{error}");
        }
    }
}
