//! The HTTP fallback over raw sockets: what pusher-js posts, and what it is answered.

mod support;

use serde_json::{Value, json};
use sluicegate_ws::config::Config;
use sluicegate_ws::server::{Server as Library, Stopper};
use sluicegate_ws::worker::Timing;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;
use support::{Answer, Client, Server, event, post, until};

const LOOPS: usize = 3;

fn server() -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-ws"));
    Server::with(command.args(["--port", "0", "--workers", &LOOPS.to_string()]))
}

fn path(session: &str, verb: &str) -> String {
    format!("/pusher/app/app-key/7/{session}/{verb}?protocol=7&client=js")
}

fn ask(client: &mut Client, session: &str, verb: &str, body: &str) -> Answer {
    client.request(&format!("POST {}", path(session, verb)), body)
}

/// Posts messages to a session.
fn say(client: &mut Client, session: &str, messages: &[Value]) {
    let texts: Vec<String> = messages.iter().map(Value::to_string).collect();
    let answer = ask(client, session, "xhr_send", &json!(texts).to_string());
    assert_eq!((answer.status, answer.body.as_str()), (204, ""));
    assert!(!answer.head.contains("Content-Length"), "there is none with this status");
}

fn subscribe(channel: &str) -> Value {
    json!({ "event": "pusher:subscribe", "data": { "channel": channel, "auth": "" } })
}

/// A response that goes on.
struct Stream {
    client: Client,
    /// Decoded, and not read.
    body: Vec<u8>,
    chunked: bool,
    is_over: bool,
}

impl Stream {
    fn open(mut client: Client, session: &str) -> Self {
        let target = path(session, "xhr_streaming");
        let request = format!("POST {target} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
        let head = client.send(request.as_bytes()).head();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"), "{head}");
        assert!(head.contains("Access-Control-Allow-Origin: *\r\n"), "{head}");
        assert!(!head.contains("Content-Length"), "{head}");
        Self { client, body: Vec::new(), chunked: true, is_over: false }
    }

    /// One that is new, after its first message.
    fn start(client: Client, session: &str) -> Self {
        let mut stream = Self::open(client, session);
        assert_eq!(stream.line().as_deref(), Some("o"));
        assert_eq!(stream.messages()[0]["event"], "pusher:connection_established");
        stream
    }

    fn chunk(&mut self) {
        let mut size = String::new();
        while !size.ends_with("\r\n") {
            size.push(char::from(self.client.take(1)[0]));
        }
        let size = usize::from_str_radix(size.trim_end(), 16).expect("a size");
        self.body.extend(self.client.take(size));
        assert_eq!(self.client.take(2), b"\r\n");
        self.is_over = size == 0;
    }

    /// The next line; none at the end of the response.
    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.body.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.body.drain(..=at).collect();
                return Some(String::from_utf8(line[..at].to_vec()).expect("lines are text"));
            }
            if self.is_over {
                assert!(self.body.is_empty(), "it ends with a line");
                return None;
            }
            match self.chunked {
                true => self.chunk(),
                false => self.body.extend(self.client.take(1)),
            }
        }
    }

    fn messages(&mut self) -> Vec<Value> {
        messages(&self.line().expect("a line comes"))
    }
}

/// The messages of a line.
fn messages(line: &str) -> Vec<Value> {
    let list = line.trim_end().strip_prefix('a').unwrap_or_else(|| panic!("messages, not {line}"));
    let list: Vec<String> = serde_json::from_str(list).expect("it is an array of texts");
    list.iter().map(|text| serde_json::from_str(text).expect("they are JSON")).collect()
}

fn numbers(messages: &[Value]) -> Vec<u64> {
    let data = |message: &Value| message["data"].as_str()?.split(' ').next()?.parse().ok();
    messages.iter().filter(|message| message["event"] == "e").filter_map(data).collect()
}

#[test]
fn a_stream_brings_what_is_said_and_a_body_says_it() {
    let server = server();
    let mut stream = Stream::start(server.connect(), "abcdefgh");
    let mut other = server.connect();
    say(&mut other, "abcdefgh", &[subscribe("a"), json!({ "event": "pusher:ping", "data": {} })]);
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(stream.messages());
    }
    assert_eq!(seen[0]["event"], "pusher:pong");
    assert_eq!(seen[1]["event"], "pusher_internal:subscription_succeeded");
    assert_eq!(server.publish(&event("a", "1")), 200);
    assert_eq!(numbers(&stream.messages()), [1]);
    assert_eq!(ask(&mut other, "abcdefgh", "xhr_send", "[]").status, 204);
    assert_eq!(stream.line().as_deref(), Some("a[]"), "a ping is answered, and the answer is not");
    assert_eq!(server.page("/ledger")["books"]["delivered"]["records"], 1);
}

#[test]
fn what_is_said_between_two_polls_waits_in_the_core() {
    let server = server();
    let mut client = server.connect();
    assert_eq!(ask(&mut client, "abcdefgh", "xhr", "").body, "o\n");
    let first = ask(&mut client, "abcdefgh", "xhr", "");
    assert_eq!(messages(&first.body)[0]["event"], "pusher:connection_established");
    assert!(first.head.contains("Access-Control-Allow-Origin: *\r\n"), "{}", first.head);
    say(&mut client, "abcdefgh", &[subscribe("a")]);
    assert_eq!(messages(&ask(&mut client, "abcdefgh", "xhr", "").body).len(), 1);
    for number in 0..20 {
        assert_eq!(server.publish(&event("a", &number.to_string())), 200);
    }
    until("them to wait", || server.page("/ledger")["books"]["lag"]["records"] == 20);
    let all = ask(&mut client, "abcdefgh", "xhr", "").body;
    assert_eq!(numbers(&messages(&all)), (0..20).collect::<Vec<_>>());
    assert_eq!(server.page("/ledger")["books"]["delivered"]["records"], 20);
}

#[test]
fn a_stream_ends_when_its_client_has_had_enough_and_the_next_one_goes_on() {
    const ALL: u64 = 60;
    let server = server();
    let mut stream = Stream::start(server.connect(), "abcdefgh");
    say(&mut server.connect(), "abcdefgh", &[subscribe("a")]);
    stream.messages();
    let publisher = std::thread::spawn({
        let mut publisher = server.connect();
        move || {
            for number in 0..ALL {
                let data = format!("{number} {}", "é😀".repeat(1_700));
                assert_eq!(publisher.send(&post(&event("a", &data))).response().status, 200);
            }
        }
    });
    let (mut seen, mut responses, mut chars) = (Vec::new(), 1, 0);
    while seen.len() < usize::try_from(ALL).expect("few") {
        match stream.line() {
            Some(line) => {
                // As a page counts it.
                chars += line.encode_utf16().count() + 1;
                seen.extend(numbers(&messages(&line)));
            }
            None => {
                // A client that has less takes the end for a failure.
                assert!(chars > 256 << 10, "it ended after {chars} characters");
                (responses, chars) = (responses + 1, 0);
                // The socket is free for the next request.
                stream = Stream::open(stream.client, "abcdefgh");
            }
        }
    }
    assert_eq!(seen, (0..ALL).collect::<Vec<_>>());
    assert!(responses > 1, "it was more than one response holds");
    publisher.join().expect("it publishes all");
}

#[test]
fn what_counts_as_delivered_has_left_the_server() {
    const ALL: u64 = 60;
    let mut server = Server::start();
    let mut stream = Stream::start(server.socket_of_few_bytes(), "abcdefgh");
    say(&mut server.connect(), "abcdefgh", &[subscribe("a")]);
    stream.messages();
    let mut publisher = server.connect();
    for number in 0..ALL {
        let data = format!("{number} {}", "x".repeat(5_000));
        assert_eq!(publisher.send(&post(&event("a", &data))).response().status, 200);
    }
    let mut books = server.books();
    let count = |books: &Value, column: &str| books[column]["records"].as_u64().expect("a number");
    // Publishes are answered where their channel is, and some are on their way to its subscriber.
    until("all to be there", || {
        books = server.books();
        count(&books, "expected") == ALL
    });
    assert!(count(&books, "lag") > 0, "nobody reads: {books}");
    let delivered = count(&books, "delivered");
    // What the kernel has, comes all the same.
    server.signal("KILL");
    server.wait();
    let rest = String::from_utf8(stream.client.rest()).expect("lines are text");
    // How each of them ends.
    let whole = rest.matches(r#"x\"}""#).count() as u64;
    assert!(delivered <= whole, "{delivered} are delivered, and {whole} came");
}

#[test]
fn a_second_response_ends_the_first() {
    let server = server();
    let mut first = Stream::start(server.connect(), "abcdefgh");
    let mut second = Stream::open(server.connect(), "abcdefgh");
    assert_eq!(first.line(), None);
    say(&mut server.connect(), "abcdefgh", &[subscribe("a")]);
    assert_eq!(second.messages()[0]["event"], "pusher_internal:subscription_succeeded");
    drop(first);
    assert_eq!(server.publish(&event("a", "1")), 200);
    assert_eq!(numbers(&second.messages()), [1], "the first one is of no account any more");
}

#[test]
fn a_response_that_breaks_is_the_end_of_its_session() {
    // Nobody waits for the client to come back.
    let timing = Timing { detached: Duration::from_secs(600), ..Timing::default() };
    let server = Running::start(timing);
    for reset in [false, true] {
        let mut stream = Stream::start(server.connect(), "abcdefgh");
        say(&mut server.connect(), "abcdefgh", &[subscribe("a")]);
        stream.messages();
        assert_eq!(server.subscriptions(), 1);
        match reset {
            false => drop(stream),
            true => stream.client.reset(),
        }
        until("nobody in the channel", || server.subscriptions() == 0);
    }
    let mut waiting = server.connect();
    assert_eq!(ask(&mut waiting, "polls567", "xhr", "").body, "o\n");
    assert_eq!(messages(&ask(&mut waiting, "polls567", "xhr", "").body).len(), 1);
    say(&mut waiting, "polls567", &[subscribe("a")]);
    assert_eq!(messages(&ask(&mut waiting, "polls567", "xhr", "").body).len(), 1);
    let target = path("polls567", "xhr");
    let request = format!("POST {target} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
    waiting.send(request.as_bytes());
    drop(waiting);
    until("nobody in the channel", || server.subscriptions() == 0);
    server.stop();
}

#[test]
fn a_last_part_of_which_not_all_has_left_is_the_end_of_its_session() {
    const LONG: usize = 8 << 20;
    let server = Running::with(|config| {
        config.timing.detached = Duration::from_secs(600);
        config.settings.max_event_bytes = LONG;
    });
    let mut client = server.connect();
    assert_eq!(ask(&mut client, "abcdefgh", "xhr", "").body, "o\n");
    assert_eq!(messages(&ask(&mut client, "abcdefgh", "xhr", "").body).len(), 1);
    say(&mut client, "abcdefgh", &[subscribe("a")]);
    assert_eq!(messages(&ask(&mut client, "abcdefgh", "xhr", "").body).len(), 1);
    // More than the kernel holds.
    let long = event("a", &"x".repeat(LONG));
    assert_eq!(client.send(&post(&long)).response().status, 200);
    let target = path("abcdefgh", "xhr");
    let request = format!("POST {target} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
    let head = client.send(request.as_bytes()).head();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert_eq!(server.subscriptions(), 1);
    client.reset();
    until("nobody in the channel", || server.subscriptions() == 0);
    server.stop();
}

/// The event loop of a session: its socket id tells.
fn loop_of(established: &Value) -> usize {
    let data = established["data"].as_str().expect("it is text");
    let data: Value = serde_json::from_str(data).expect("it is JSON");
    let id = data["socket_id"].as_str().and_then(|id| id.split_once('.'));
    id.and_then(|(first, _)| first.parse::<usize>().ok()).expect("two numbers") % 64
}

#[test]
fn one_socket_serves_sessions_of_every_loop() {
    let server = server();
    let mut client = server.connect();
    let sessions: Vec<String> = (0..40).map(|number| format!("name{number:0>4}")).collect();
    for session in &sessions {
        assert_eq!(ask(&mut client, session, "xhr", "").body, "o\n");
        say(&mut client, session, &[subscribe("a")]);
    }
    let mut loops = std::collections::BTreeSet::new();
    for session in &sessions {
        let mut seen = Vec::new();
        while seen.len() < 2 {
            seen.extend(messages(&ask(&mut client, session, "xhr", "").body));
        }
        loops.insert(loop_of(&seen[0]));
    }
    assert_eq!(loops.len(), LOOPS, "sessions are spread");
    assert_eq!(server.publish(&event("a", "1")), 200);
    for session in &sessions {
        assert_eq!(numbers(&messages(&ask(&mut client, session, "xhr", "").body)), [1]);
    }
    server.books();
}

#[test]
fn bad_requests_are_told_why() {
    let server = server();
    let mut client = server.connect();
    let no_session = ask(&mut client, "abcdefgh", "xhr_send", "[]");
    assert_eq!(no_session.status, 404);
    assert_eq!(ask(&mut client, "abcdefgh", "xhr", "").body, "o\n");
    let long = format!("[\"{}\"]", "x".repeat((64 << 10) + 1));
    let longer = format!("[\"{}\"]", "x".repeat(128 << 10));
    for (body, status) in [("", 400), ("[1]", 400), (&long, 400), (&longer, 413)] {
        let answer = ask(&mut client, "abcdefgh", "xhr_send", body);
        assert_eq!(answer.status, status, "{}", answer.body);
        assert!(answer.head.contains("Access-Control-Allow-Origin: *\r\n"), "{}", answer.head);
    }
    let just = json!([json!({ "event": "x", "data": "x".repeat((64 << 10) - 30) }).to_string()]);
    assert_eq!(ask(&mut client, "abcdefgh", "xhr_send", &just.to_string()).status, 204);
    let preflight = client.request(&format!("OPTIONS {}", path("abcdefgh", "xhr_send")), "");
    assert_eq!(preflight.status, 204);
    for field in ["Origin: *", "Methods: POST, OPTIONS", "Headers: Content-Type"] {
        let field = format!("Access-Control-Allow-{field}\r\n");
        assert!(preflight.head.contains(&field), "{}", preflight.head);
    }
    let get = client.request(&format!("GET {}", path("abcdefgh", "xhr")), "");
    assert_eq!(get.status, 405);
    for (target, code) in [
        ("/app/nobody/1/abcdefgh/xhr?protocol=7", 4001),
        ("/pusher/app/app-key/1/zzzzzzzz/xhr_streaming?protocol=3", 4007),
        ("/app/app-key/1/zzzzzzzz/xhr", 4008),
    ] {
        let body = client.request(&format!("POST {target}"), "").body;
        let lines: Vec<&str> = body.lines().collect();
        let [open, error, close] = lines[..] else { panic!("three lines, not {body}") };
        assert_eq!(open, "o");
        assert_eq!(messages(error)[0]["data"]["code"], code);
        assert!(close.starts_with(&format!("c[{code},\"")), "{close}");
    }
    assert_eq!(ask(&mut client, "zzzzzzzz", "xhr_send", "[]").status, 404, "none of them stays");
}

#[test]
fn a_request_behind_a_poll_waits_for_it() {
    let server = server();
    let mut client = server.connect();
    assert_eq!(ask(&mut client, "abcdefgh", "xhr", "").body, "o\n");
    assert_eq!(messages(&ask(&mut client, "abcdefgh", "xhr", "").body).len(), 1);
    let poll = format!("POST {} HTTP/1.1\r\nHost: h\r\n\r\n", path("abcdefgh", "xhr"));
    client.send(format!("{poll}GET /health HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
    say(&mut server.connect(), "abcdefgh", &[subscribe("a")]);
    assert_eq!(messages(&client.response().body).len(), 1);
    assert_eq!(client.response().body, "alive\n");
}

#[test]
fn a_client_of_old_http_gets_no_chunks() {
    let server = server();
    let mut client = server.connect();
    let target = path("abcdefgh", "xhr_streaming");
    let request = format!("POST {target} HTTP/1.0\r\nContent-Length: 0\r\n\r\n");
    let head = client.send(request.as_bytes()).head();
    assert!(!head.contains("chunked") && head.contains("Connection: close\r\n"), "{head}");
    let mut stream = Stream { client, body: Vec::new(), chunked: false, is_over: false };
    assert_eq!(stream.line().as_deref(), Some("o"));
    assert_eq!(stream.messages()[0]["event"], "pusher:connection_established");
}

#[test]
fn a_server_that_is_stopped_says_so() {
    let mut server = server();
    let mut stream = Stream::start(server.connect(), "abcdefgh");
    let mut poll = server.connect();
    assert_eq!(ask(&mut poll, "polls567", "xhr", "").body, "o\n");
    assert_eq!(messages(&ask(&mut poll, "polls567", "xhr", "").body).len(), 1);
    let target = path("polls567", "xhr");
    let request = format!("POST {target} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
    poll.send(request.as_bytes());
    // The server has read it when it answers what was sent after it.
    assert_eq!(ask(&mut server.connect(), "polls567", "xhr_send", "[]").status, 204);
    assert_eq!(poll.response().body, "a[]\n");
    poll.send(request.as_bytes());
    server.signal("TERM");
    assert_eq!(stream.messages()[0]["data"]["code"], 4200);
    assert_eq!(stream.line().as_deref(), Some("c[4200,\"the server is being stopped\"]"));
    assert_eq!(stream.line(), None);
    let told = poll.response().body;
    assert!(told.contains("\nc[4200,"), "{told}");
    assert!(server.wait().success());
}

struct Running {
    address: std::net::SocketAddr,
    stopper: Stopper,
    thread: JoinHandle<()>,
}

impl Running {
    fn start(timing: Timing) -> Self {
        Self::with(|config| config.timing = timing)
    }

    fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::development(([127, 0, 0, 1], 0).into()).expect("it is loopback");
        change(&mut config);
        let server = Library::bind(config).expect("some port is free");
        let (address, stopper) = (server.address(), server.stopper().expect("a descriptor"));
        let thread = std::thread::spawn(move || server.run().expect("it ends well"));
        Self { address, stopper, thread }
    }

    fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    fn subscriptions(&self) -> u64 {
        let page = self.connect().request("GET /metrics", "").body;
        let mut found =
            page.lines().filter_map(|line| line.strip_prefix("sluicegate_subscriptions "));
        found.next().and_then(|count| count.parse().ok()).expect("the page has it")
    }

    fn stop(mut self) {
        self.stopper.stop().expect("it runs");
        self.thread.join().expect("it does not panic");
    }
}

const SHORT: Duration = Duration::from_millis(50);

#[test]
fn a_session_whose_client_does_not_come_back_is_given_up() {
    let server = Running::start(Timing { detached: SHORT, ..Timing::default() });
    let mut client = server.connect();
    assert_eq!(ask(&mut client, "abcdefgh", "xhr", "").body, "o\n");
    until("it to be gone", || ask(&mut client, "abcdefgh", "xhr_send", "[]").status == 404);
    assert_eq!(ask(&mut client, "abcdefgh", "xhr", "").body, "o\n", "and it is a new one then");
    server.stop();
}

#[test]
fn a_stranger_who_keeps_coming_back_is_closed_like_any_other() {
    let server = Running::with(|config| {
        config.timing.identity = SHORT * 4;
        config.apps[0].authorized_only = true;
    });
    let mut client = server.connect();
    assert_eq!(ask(&mut client, "abcdefgh", "xhr", "").body, "o\n");
    until("it to be closed", || {
        let is_gone = ask(&mut client, "abcdefgh", "xhr_send", "[]").status == 404;
        let told = ask(&mut client, "abcdefgh", "xhr", "").body;
        is_gone || told == "o\n" || told.contains("\nc[4009,")
    });
    server.stop();
}

#[test]
fn half_of_the_connections_at_most_are_sessions_of_the_fallback() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-ws"));
    let settings = ["--port", "0", "--workers", "1", "--set", "max_connections=20"];
    let server = Server::with(command.args(settings));
    let mut client = server.connect();
    for number in 0..10 {
        assert_eq!(ask(&mut client, &format!("name{number:0>4}"), "xhr", "").body, "o\n");
    }
    let full = ask(&mut client, "onemore1", "xhr", "").body;
    assert!(full.contains("\nc[4100,"), "{full}");
    assert_eq!(ask(&mut client, "onemore1", "xhr_send", "[]").status, 404);
    assert_eq!(client.request("GET /health", "").status, 200);
}

#[test]
fn a_silent_client_is_asked_and_then_closed() {
    let server = Running::start(Timing { activity: SHORT, pong: SHORT, ..Timing::default() });
    let mut stream = Stream::start(server.connect(), "abcdefgh");
    assert_eq!(stream.line().as_deref(), Some("h"));
    assert_eq!(stream.messages()[0]["data"]["code"], 4201);
    assert!(stream.line().expect("its end").starts_with("c[4201,"));
    assert_eq!(stream.line(), None);
    server.stop();
    let server = Running::start(Timing { activity: SHORT, ..Timing::default() });
    let mut poll = server.connect();
    assert_eq!(ask(&mut poll, "polls567", "xhr", "").body, "o\n");
    assert_eq!(messages(&ask(&mut poll, "polls567", "xhr", "").body).len(), 1);
    for _ in 0..3 {
        assert_eq!(ask(&mut poll, "polls567", "xhr", "").body, "h\n", "asking again is a sign");
    }
    server.stop();
}
