//! A server under test and clients on raw sockets. Every wait has a deadline.
#![expect(dead_code, reason = "each test program uses a part of it")]

use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use serde_json::Value;
use sha2::Sha256;
use socket2::{Domain, Socket, Type};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// No answer within this time is a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The built program on a port of its own choice.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// The lines it printed at its start.
    pub(crate) lines: Vec<String>,
}

impl Server {
    pub(crate) fn start() -> Self {
        // Tests of another package use the clients, and start no program.
        let program = option_env!("CARGO_BIN_EXE_sluicegate-ws").unwrap_or("sluicegate-ws");
        Self::with(Command::new(program).args(["--port", "0"]))
    }

    /// Starts a command line that runs the program without `--json`.
    pub(crate) fn with(command: &mut Command) -> Self {
        Self::with_log(command, Stdio::null())
    }

    /// The same, with a place for what it says later.
    pub(crate) fn with_log(command: &mut Command, log: Stdio) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().expect("the program was built");
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        let lines: Vec<String> = out.lines().take(5).map_while(Result::ok).collect();
        let first = lines.first().expect("it says where it listens");
        let address = first.rsplit(' ').next().expect("the address is last");
        let address = address.parse().expect("an address and a port");
        Self { child, address, lines }
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(status.expect("there is a kill program").success());
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        until("the program to end", || {
            status = self.child.try_wait().expect("it is our child");
            status.is_some()
        });
        status.expect("just seen")
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// A WebSocket client of the development app, and its socket id.
    pub(crate) fn client(&self) -> (Client, String) {
        self.client_of("app-key")
    }

    /// The same of the app with this key.
    pub(crate) fn client_of(&self, key: &str) -> (Client, String) {
        Self::welcomed(self.connect(), key)
    }

    /// The same of the development app, whose socket takes few bytes that nobody reads.
    pub(crate) fn client_of_few_bytes(&self) -> (Client, String) {
        Self::welcomed(self.socket_of_few_bytes(), "app-key")
    }

    /// A socket that takes few bytes that nobody reads.
    pub(crate) fn socket_of_few_bytes(&self) -> Client {
        let socket = Socket::new(Domain::for_address(self.address), Type::STREAM, None);
        let socket = socket.expect("there are sockets");
        // The window is agreed when the connection is made: later would be too late.
        socket.set_recv_buffer_size(4 << 10).expect("a socket takes a size");
        socket.connect(&self.address.into()).expect("the server listens");
        Client::over(socket.into())
    }

    fn welcomed(mut client: Client, key: &str) -> (Client, String) {
        client.upgrade(&format!("/app/{key}?protocol=7"));
        let established = client.text();
        let start = established.find(r#"socket_id\":\""#).expect("it has a socket id") + 14;
        let id = established[start..].split('\\').next().expect("it ends").to_owned();
        (client, id)
    }

    /// The sum of a family's samples whose labels contain `labels`.
    pub(crate) fn metric(&self, family: &str, labels: &str) -> u64 {
        let answer = self.connect().request("GET /metrics", "");
        assert_eq!(answer.status, 200);
        assert!(answer.body.ends_with("# EOF\n"));
        let lines = answer.body.lines().filter(|line| {
            let name = line.split(['{', ' ']).next();
            name == Some(family) && line.contains(labels)
        });
        let value = |line: &str| line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok());
        lines.map(|line| value(line).expect("samples end with a number")).sum()
    }

    pub(crate) fn column(&self, column: &str) -> u64 {
        self.metric("sluicegate_records_total", &format!("column=\"{column}\""))
    }

    /// A page of JSON.
    pub(crate) fn page(&self, path: &str) -> Value {
        let answer = self.connect().request(&format!("GET {path}"), "");
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).expect("it is JSON")
    }

    /// The books of all loops. Every message is in exactly one column, of each app as well.
    pub(crate) fn books(&self) -> Value {
        let mut page = self.page("/ledger");
        check_books(&page["books"]);
        page["apps"].as_object().expect("apps by their ids").values().for_each(check_books);
        page["books"].take()
    }

    /// Publishes and returns the status.
    pub(crate) fn publish(&self, body: &str) -> u16 {
        self.connect().send(&post(body)).response().status
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// One frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Text(String),
    Pong(Vec<u8>),
    Close(u16),
    Other(u8),
}

/// A raw socket and what was read from it too much.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    ahead: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("the server listens"))
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
        Self { stream, ahead: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> &mut Self {
        self.stream.write_all(bytes).expect("the server reads");
        self
    }

    pub(crate) fn finish(&mut self) -> &mut Self {
        self.stream.shutdown(Shutdown::Write).expect("the socket is open");
        self
    }

    fn more(&mut self) -> bool {
        let mut chunk = [0; 16 << 10];
        match self.stream.read(&mut chunk) {
            Ok(n) => {
                self.ahead.extend(&chunk[..n]);
                n > 0
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("nothing came: {error}"),
        }
    }

    pub(crate) fn take(&mut self, len: usize) -> Vec<u8> {
        while self.ahead.len() < len {
            assert!(self.more(), "the connection ended early: {:?}", self.ahead);
        }
        self.ahead.drain(..len).collect()
    }

    /// All that comes until the server ends the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.more() {}
        std::mem::take(&mut self.ahead)
    }

    /// Whether the server ends the connection with a FIN and without another byte.
    pub(crate) fn is_over(&mut self) -> bool {
        self.ahead.is_empty() && !self.more()
    }

    /// The head of a response, and no more.
    pub(crate) fn head(&mut self) -> String {
        let end = loop {
            if let Some(at) = self.ahead.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(self.more(), "the connection ended in a head: {:?}", self.ahead);
        };
        String::from_utf8(self.take(end)).expect("a head is text")
    }

    pub(crate) fn response(&mut self) -> Answer {
        let head = self.head();
        let status = head[9..12].parse().expect("a status");
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let length = length.map_or(0, |length| length.parse().expect("a length"));
        let body = String::from_utf8(self.take(length)).expect("bodies are text");
        Answer { status, head, body }
    }

    /// Sends a request. None when the server ends the connection without a word.
    pub(crate) fn call(&mut self, request: &[u8]) -> Option<Answer> {
        // Whoever cannot write any more may have been answered before.
        if let Err(error) = self.stream.write_all(request) {
            let gone = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
            assert!(gone.contains(&error.kind()), "the server does not read: {error}");
        }
        (!self.is_over()).then(|| self.response())
    }

    /// `line` is a method and a path.
    pub(crate) fn request(&mut self, line: &str, body: &str) -> Answer {
        let length = body.len();
        let request =
            format!("{line} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{body}");
        self.send(request.as_bytes()).response()
    }

    pub(crate) fn upgrade(&mut self, target: &str) -> &mut Self {
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        let answer = self.send(request.as_bytes()).response();
        assert_eq!(answer.status, 101);
        assert!(answer.head.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"));
        self
    }

    fn number(&mut self, len: usize) -> usize {
        self.take(len).into_iter().fold(0, |number, byte| number << 8 | usize::from(byte))
    }

    pub(crate) fn frame(&mut self) -> Frame {
        let head = self.take(2);
        let len = match head[1] {
            126 => self.number(2),
            127 => self.number(8),
            len => usize::from(len),
        };
        assert!(head[0] & 0x80 != 0 && head[1] & 0x80 == 0, "final and unmasked");
        let payload = self.take(len);
        match head[0] & 0x0f {
            1 => Frame::Text(String::from_utf8(payload).expect("text is UTF-8")),
            8 if len >= 2 => Frame::Close(u16::from_be_bytes([payload[0], payload[1]])),
            10 => Frame::Pong(payload),
            opcode => Frame::Other(opcode),
        }
    }

    pub(crate) fn text(&mut self) -> String {
        match self.frame() {
            Frame::Text(text) => text,
            other => panic!("expected a text, got {other:?}"),
        }
    }

    /// Sends a text message and reads one.
    pub(crate) fn ask(&mut self, text: &str) -> String {
        self.send(&masked(0x81, text.as_bytes())).text()
    }

    pub(crate) fn subscribe(&mut self, channel: &str) -> &mut Self {
        let text = format!(r#"{{"event":"pusher:subscribe","data":{{"channel":"{channel}"}}}}"#);
        let answer = self.ask(&text);
        assert!(answer.contains("pusher_internal:subscription_succeeded"), "{answer}");
        self
    }

    /// Closes the connection with a reset instead of a FIN.
    pub(crate) fn reset(self) {
        let socket = Socket::from(self.stream);
        socket.set_linger(Some(Duration::ZERO)).expect("a socket takes this option");
    }
}

pub(crate) const PING: &str = r#"{"event":"pusher:ping","data":{}}"#;
pub(crate) const PONG: &str = r#"{"event":"pusher:pong","data":"{}"}"#;

/// A client's frame.
pub(crate) fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    let mut frame = vec![first];
    let len = u16::try_from(payload.len()).expect("no test needs longer frames");
    match len.to_be_bytes() {
        [0, len @ 0..=125] => frame.push(0x80 | len),
        len => {
            frame.push(0x80 | 126);
            frame.extend(len);
        }
    }
    frame.extend(mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// HMAC-SHA256 in hex.
pub(crate) fn sign(secret: &str, text: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("any key");
    mac.update(text.as_bytes());
    hex::encode(mac.finalize().into_bytes())
}

/// A signed call that publishes.
pub(crate) fn post(body: &str) -> Vec<u8> {
    post_to("events", body)
}

/// A signed call of a page of the development app.
pub(crate) fn post_to(page: &str, body: &str) -> Vec<u8> {
    post_as(["1001", "app-key", "app-secret"], page, body)
}

/// A signed call of a page of an app: id, key and secret.
pub(crate) fn post_as([id, key, secret]: [&str; 3], page: &str, body: &str) -> Vec<u8> {
    let seconds = sluicegate_host::clock::Clock::start().unix_seconds();
    let digest = hex::encode(Md5::digest(body.as_bytes()));
    let query =
        format!("auth_key={key}&auth_timestamp={seconds}&auth_version=1.0&body_md5={digest}");
    let signature = sign(secret, &format!("POST\n/apps/{id}/{page}\n{query}"));
    let length = body.len();
    format!(
        "POST /apps/{id}/{page}?{query}&auth_signature={signature} HTTP/1.1\r\nHost: h\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

pub(crate) fn event(channel: &str, data: &str) -> String {
    serde_json::json!({ "name": "e", "channel": channel, "data": data }).to_string()
}

/// Fails unless the identities of the books hold, in records and in bytes.
fn check_books(books: &Value) {
    for unit in ["records", "bytes"] {
        let sum = |columns: &[&str]| -> u64 {
            columns.iter().map(|column| books[column][unit].as_u64().expect("a column")).sum()
        };
        for (came, ended) in [
            (&["offered", "returned"][..], &["admitted", "refused", "shed", "waiting"][..]),
            (
                &["admitted", "received"],
                &["sequenced", "evicted", "returned", "queued", "forwarded"],
            ),
            (&["expected"], &["delivered", "dropped", "left", "lag"]),
        ] {
            assert_eq!(sum(came), sum(ended), "{unit}: {came:?} = {ended:?} in {books}");
        }
    }
}

/// Looks again and again until it is so.
pub(crate) fn until(what: &str, mut look: impl FnMut() -> bool) {
    let clock = sluicegate_host::clock::Clock::start();
    while !look() {
        let waited = clock.now().since(sluicegate_core::Instant::ZERO);
        assert!(waited < PATIENCE, "waited in vain for {what}");
        std::thread::yield_now();
    }
}
