//! Other apps while the server runs, over real sockets: all loops at once, nobody else disturbed,
//! and a file with a mistake changes nothing.

#![expect(clippy::unwrap_used, reason = "a test ends where it fails")]

mod support;

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use support::{Client, Frame, PING, PONG, Server, event, post_as, until};

const LOOPS: usize = 3;

/// A server, the file of its apps and its log.
struct Reloaded {
    server: Server,
    apps: PathBuf,
    log: PathBuf,
}

impl Reloaded {
    fn start(name: &str, apps: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let (file, log) = (folder.join(format!("{name}.toml")), folder.join(format!("{name}.log")));
        fs::write(&file, apps).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-ws"));
        command.args(["--port", "0", "--workers", &LOOPS.to_string(), "--config"]).arg(&file);
        let server = Server::with_log(&mut command, File::create(&log).unwrap().into());
        Self { server, apps: file, log }
    }

    /// Other apps; `told` is what the log says then.
    fn reload(&self, apps: &str, told: &str) {
        fs::write(&self.apps, apps).unwrap();
        self.server.signal("HUP");
        until(told, || fs::read_to_string(&self.log).unwrap().contains(told));
    }

    /// Clients of an app on every loop.
    fn clients(&self, key: &str) -> Vec<Client> {
        let mut clients = Vec::new();
        let mut on = [false; LOOPS];
        until("clients on every loop", || {
            let (client, id) = self.server.client_of(key);
            let first: usize = id.split_once('.').unwrap().0.parse().unwrap();
            on[first % 64] = true;
            clients.push(client);
            on.iter().all(|on| *on)
        });
        clients
    }

    fn publish(&self, app: [&str; 3], channel: &str) -> u16 {
        self.server.connect().send(&post_as(app, "events", &event(channel, "x"))).response().status
    }

    /// With which code a client of this app is closed at once.
    fn refusal(&self, key: &str) -> Option<u16> {
        let mut client = self.server.connect();
        client.upgrade(&format!("/app/{key}?protocol=7"));
        if !client.text().contains("pusher:error") {
            return None;
        }
        let Frame::Close(code) = client.frame() else { panic!("a close frame follows") };
        Some(code)
    }
}

fn app([id, key, secret]: [&str; 3], more: &str) -> String {
    format!("[[app]]\nid = \"{id}\"\nkey = \"{key}\"\nsecret = \"{secret}\"\n{more}\n")
}

const STAYS: [&str; 3] = ["1", "stays", "s1"];
const GOES: [&str; 3] = ["2", "goes", "s2"];
const REST: [&str; 3] = ["3", "rests", "s3"];
const COMES: [&str; 3] = ["4", "comes", "s4"];

#[test]
fn other_apps_are_served_by_all_loops_and_nobody_else_notices() {
    let before = [app(STAYS, ""), app(GOES, ""), app(REST, "")].concat();
    let it = Reloaded::start("other-apps", &before);
    let [mut stay, mut go, mut rest] = ["stays", "goes", "rests"].map(|key| it.clients(key));
    for client in stay.iter_mut().chain(&mut go) {
        client.subscribe("cache-news");
        assert!(client.text().contains("cache_miss"));
    }
    for (app, clients) in [(GOES, &mut go), (STAYS, &mut stay)] {
        assert_eq!(it.publish(app, "cache-news"), 200);
        for client in clients {
            assert!(client.text().contains(r#""data":"x""#));
        }
    }
    assert_eq!((it.publish(COMES, "news"), it.refusal("comes")), (404, Some(4001)));
    let other_secret = ["1", "stays", "other"];
    let after = [
        app(other_secret, "max_connections = 1"),
        app(REST, "enabled = false"),
        app(COMES, "weight = 3"),
    ];
    it.reload(&after.concat(), "new=1 changed=2 removed=1");
    for (clients, code) in [(&mut go, 4001), (&mut rest, 4003)] {
        for client in clients {
            assert!(client.text().contains(&format!(r#""code":{code}"#)));
            assert_eq!(client.frame(), Frame::Close(code));
        }
    }
    until("the change on all loops", || it.refusal("goes") == Some(4001));
    assert_eq!(it.refusal("rests"), Some(4003));
    assert_eq!(it.refusal("stays"), Some(4004), "there are more than it may have now");
    let statuses = [(GOES, 404), (STAYS, 401), (other_secret, 200), (REST, 403), (COMES, 200)];
    for _ in 0..4 * LOOPS {
        for (app, status) in statuses {
            assert_eq!(it.publish(app, "news"), status, "{app:?}");
        }
    }
    for mut client in it.clients("comes") {
        client.subscribe("cache-news");
        assert!(client.text().contains("cache_miss"));
    }
    for client in &mut stay {
        assert_eq!(client.ask(PING), PONG);
    }
}

#[test]
fn a_file_with_a_mistake_changes_nothing() {
    let it = Reloaded::start("mistake", &app(STAYS, ""));
    let (mut client, _) = it.server.client_of("stays");
    it.reload(&[app(GOES, ""), app(REST, "weight = 0")].concat(), "`weight` is 0");
    it.reload("[[app]", "mistake.toml:1");
    let log = fs::read_to_string(&it.log).unwrap();
    assert_eq!(log.matches("the apps of before stay in force").count(), 2, "{log}");
    assert!(log.contains("between 1 and 1000"), "{log}");
    assert_eq!((it.publish(STAYS, "news"), it.publish(GOES, "news")), (200, 404));
    assert_eq!(client.ask(PING), PONG);
}
