//! What an app's server is told, over real sockets: signed, in order, again when it failed, and
//! whatever another endpoint does.

#![expect(clippy::unwrap_used, reason = "a test ends where it fails")]

mod support;

use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use support::{Server, masked, sign, until};

/// A server of an app that notes what it is told.
struct Endpoint {
    address: SocketAddr,
    told: Arc<Mutex<Vec<Told>>>,
}

#[derive(Clone)]
struct Told {
    head: String,
    body: String,
}

impl Endpoint {
    /// Answers each request with the next of `statuses`, and 200 after them; 0 never answers.
    fn start(statuses: &'static [u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&told);
        thread::spawn(move || {
            let mut kept = Vec::new();
            for (index, stream) in listener.incoming().enumerate() {
                let stream = stream.unwrap();
                noted.lock().unwrap().push(read(&stream));
                match statuses.get(index).copied().unwrap_or(200) {
                    0 => kept.push(stream),
                    status => answer(stream, status),
                }
            }
        });
        Self { address, told }
    }

    fn told(&self) -> Vec<Told> {
        self.told.lock().unwrap().clone()
    }

    /// The events of all requests, in order.
    fn events(&self) -> Vec<Value> {
        let body = |told: &Told| serde_json::from_str::<Value>(&told.body).unwrap();
        let events = |told: &Told| body(told)["events"].as_array().unwrap().clone();
        self.told().iter().flat_map(events).collect()
    }
}

fn read(stream: &TcpStream) -> Told {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    let length = header(&head, "content-length").parse().unwrap();
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    Told { head, body: String::from_utf8(body).unwrap() }
}

fn answer(mut stream: TcpStream, status: u16) {
    let text = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).unwrap();
}

fn header<'a>(head: &'a str, name: &str) -> &'a str {
    head.lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .unwrap_or_else(|| panic!("no {name} in {head}"))
        .1
}

/// A server whose app tells these endpoints.
fn start(endpoints: &[&Endpoint]) -> Server {
    let mut config = String::from(
        "[[app]]\nid = \"1001\"\nkey = \"app-key\"\nsecret = \"app-secret\"\n\
         client_events = true\n",
    );
    for Endpoint { address, .. } in endpoints {
        let _ = writeln!(config, "[[app.webhook]]\nurl = \"http://{address}/hook\"");
    }
    let file = std::env::temp_dir().join(format!("hooks-{}.toml", endpoints[0].address.port()));
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-ws"));
    let server = Server::with(command.args(["--port", "0", "--config"]).arg(&file));
    std::fs::remove_file(file).unwrap();
    server
}

#[test]
fn an_app_is_told_what_happens_signed_in_order_and_to_the_last() {
    let endpoint = Endpoint::start(&[500]);
    let silent = Endpoint::start(&[0]);
    let mut server = start(&[&silent, &endpoint]);
    let (mut client, id) = server.client();
    let data = r#"{"user_id":"u"}"#;
    let auth = format!("app-key:{}", sign("app-secret", &format!("{id}:presence-a:{data}")));
    let wish = json!({ "channel": "presence-a", "auth": auth, "channel_data": data });
    let wish = json!({ "event": "pusher:subscribe", "data": wish }).to_string();
    assert!(client.ask(&wish).contains("subscription_succeeded"));
    let event = br#"{"event":"client-e","channel":"presence-a","data":{"n":1}}"#;
    client.send(&masked(0x81, event));
    until("three events after one failed request", || endpoint.told().len() == 4);
    server.signal("TERM");
    assert!(server.wait().success());
    let expected = json!([
        { "name": "channel_occupied", "channel": "presence-a" },
        { "name": "channel_occupied", "channel": "presence-a" },
        { "name": "member_added", "channel": "presence-a", "user_id": "u" },
        {
            "name": "client_event", "channel": "presence-a", "event": "client-e",
            "data": { "n": 1 }, "socket_id": id, "user_id": "u",
        },
        { "name": "member_removed", "channel": "presence-a", "user_id": "u" },
        { "name": "channel_vacated", "channel": "presence-a" },
    ]);
    let events = json!(endpoint.events());
    assert_eq!(events, expected, "the first one twice: the first answer was 500");
    for Told { head, body } in endpoint.told() {
        assert!(head.starts_with("POST /hook HTTP/1.1\r\n"), "{head}");
        assert_eq!(header(&head, "content-type"), "application/json");
        assert_eq!(header(&head, "x-pusher-key"), "app-key");
        assert_eq!(header(&head, "x-pusher-signature"), sign("app-secret", &body));
        assert!(serde_json::from_str::<Value>(&body).unwrap()["time_ms"].as_u64().unwrap() > 0);
    }
    let time = |told: &Told| {
        serde_json::from_str::<Value>(&told.body).unwrap()["time_ms"].as_u64().unwrap()
    };
    // It was tried again half a second later, or more.
    let [first, again] = [0, 1].map(|index| time(&endpoint.told()[index]));
    assert!(again.abs_diff(first) < 400, "of the time when it was made: {first} {again}");
    assert_eq!(silent.told().len(), 1, "who does not answer is asked one thing at a time");
}
