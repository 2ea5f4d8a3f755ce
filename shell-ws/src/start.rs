//! The lines that a user sees first, for people or as JSON.

use crate::config::Config;
use serde_json::json;
use std::net::SocketAddr;

/// The start-up lines of a server that listens on `address`. Only the development app's secret is
/// shown: everyone knows it.
pub fn lines(config: &Config, address: SocketAddr, json: bool) -> Vec<String> {
    if json { machine(config, address) } else { people(config, address) }
}

fn people(config: &Config, address: SocketAddr) -> Vec<String> {
    let app = config.apps.first().expect("a configuration has an app");
    let (host, port) = (host(address), address.port());
    let (id, key) = (&app.id, &app.key);
    let apps = if config.is_development {
        format!("App      id {id}, key {key}, secret {} (for development)", app.secret.reveal())
    } else if config.apps.len() == 1 {
        format!("App      id {id}, key {key}")
    } else {
        format!("Apps     {}, the first with id {id}, key {key}", config.apps.len())
    };
    vec![
        format!("Sluicegate serves Pusher clients on {address}"),
        apps,
        format!(
            "Client   new Pusher(\"{key}\", {{ cluster: \"none\", wsHost: \"{host}\", \
             wsPort: {port}, forceTLS: false, enabledTransports: [\"ws\"] }})"
        ),
        format!("Check    curl http://{address}/health    Metrics  http://{address}/metrics"),
        "Stop     Ctrl-C: clients get what waits for them and are told to reconnect".to_owned(),
    ]
}

fn machine(config: &Config, address: SocketAddr) -> Vec<String> {
    let apps: Vec<_> = config
        .apps
        .iter()
        .map(|app| json!({ "id": app.id, "key": app.key, "name": app.name }))
        .collect();
    let line = json!({
        "event": "listening",
        "address": address.to_string(),
        "host": address.ip().to_string(),
        "port": address.port(),
        "development": config.is_development,
        "apps": apps,
        "health": format!("http://{address}/health"),
        "metrics": format!("http://{address}/metrics"),
    });
    vec![line.to_string()]
}

/// What a client on this machine connects to.
fn host(address: SocketAddr) -> String {
    if address.ip().is_unspecified() { "127.0.0.1".to_owned() } else { address.ip().to_string() }
}

/// An error that ends the program, with its causes.
pub fn error(error: &anyhow::Error, json: bool) -> String {
    let text = format!("{error:#}");
    if json { json!({ "event": "error", "message": text }).to_string() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::development(([127, 0, 0, 1], 6001).into()).unwrap()
    }

    #[test]
    fn five_lines_say_what_to_do_next() {
        let lines = lines(&config(), ([127, 0, 0, 1], 6001).into(), false);
        assert_eq!(lines.len(), 5);
        let text = lines.join("\n");
        for part in ["127.0.0.1:6001", "id 1001", "key app-key", "secret app-secret", "/metrics"] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn only_the_development_secret_is_shown() {
        let config = Config { is_development: false, ..config() };
        for json in [false, true] {
            let text = lines(&config, config.address, json).join("\n");
            assert!(!text.contains("app-secret") && text.contains("app-key"), "{text}");
        }
    }

    #[test]
    fn json_lines_are_json() {
        let lines = lines(&config(), ([127, 0, 0, 1], 6001).into(), true);
        let value: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(value["port"], 6001);
        let fault = anyhow::anyhow!("inner \"quoted\"").context("outer");
        let value: serde_json::Value = serde_json::from_str(&error(&fault, true)).unwrap();
        assert_eq!(value["message"], "outer: inner \"quoted\"");
    }
}
