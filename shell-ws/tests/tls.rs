//! HTTPS and `wss://` on one port, with real sockets and a real client.
#![expect(clippy::unwrap_used, reason = "a test ends where it fails")]

mod support;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use support::{PATIENCE, Server, event, masked, post, until};

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A server with a certificate of its own.
struct Secure {
    server: Server,
    folder: PathBuf,
    cert: String,
}

impl Secure {
    fn start(name: &str) -> Self {
        Self::with(name, 1)
    }

    fn with(name: &str, workers: u32) -> Self {
        let folder = std::env::temp_dir().join(format!("sluicegate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let cert = certify(&folder);
        let config = format!(
            "[[app]]\nid = \"1001\"\nkey = \"app-key\"\nsecret = \"app-secret\"\n\
             [limits]\nhigh_water_bytes = 16777216\n[tls]\ncert = {:?}\nkey = {:?}\n",
            folder.join("cert.pem"),
            folder.join("key.pem")
        );
        std::fs::write(folder.join("ws.toml"), config).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-ws"));
        let command = command.args(["--port", "0", "--workers", &workers.to_string(), "--config"]);
        let command = command.arg(folder.join("ws.toml"));
        Self { server: Server::with(command), folder, cert }
    }

    fn try_connect(&self) -> Result<Stream, std::io::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.cert.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let conn = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap());
        let socket = TcpStream::connect(self.server.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut stream = StreamOwned::new(conn.unwrap(), socket);
        stream.conn.complete_io(&mut stream.sock)?;
        Ok(stream)
    }

    fn connect(&self) -> Stream {
        self.try_connect().unwrap()
    }

    /// Publishes an event, and returns the status.
    fn connect_and_publish(&self) -> u16 {
        let answer = ask(&mut self.connect(), &post(&event("a", "once")));
        answer[9..12].parse().unwrap()
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Writes a new certificate for localhost and its key.
fn certify(folder: &std::path::Path) -> String {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    made.cert.pem()
}

/// Sends a request and returns the whole response.
fn ask(stream: &mut Stream, request: &[u8]) -> String {
    stream.write_all(request).unwrap();
    let mut text = String::new();
    let mut byte = [0];
    while !text.ends_with("\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        text.push(char::from(byte[0]));
    }
    let length = text.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).unwrap();
    text + &String::from_utf8(body).unwrap()
}

/// The text of the next frame.
fn frame(stream: &mut Stream) -> String {
    let mut head = [0; 2];
    stream.read_exact(&mut head).unwrap();
    let length = match head[1] {
        126 => {
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            u16::from_be_bytes(length).into()
        }
        length => usize::from(length),
    };
    let mut text = vec![0; length];
    stream.read_exact(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn subscriber(secure: &Secure) -> Stream {
    let mut stream = secure.connect();
    let request = "GET /app/app-key?protocol=7 HTTP/1.1\r\nHost: localhost\r\n\
                   Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    assert!(ask(&mut stream, request.as_bytes()).starts_with("HTTP/1.1 101 "));
    assert!(frame(&mut stream).contains("pusher:connection_established"));
    let wish = br#"{"event":"pusher:subscribe","data":{"channel":"a"}}"#;
    stream.write_all(&masked(0x81, wish)).unwrap();
    assert!(frame(&mut stream).contains("subscription_succeeded"));
    stream
}

#[test]
fn requests_of_any_size_and_websockets_are_served_on_one_port() {
    let secure = Secure::start("tls-sizes");
    let mut stream = secure.connect();
    for _ in 0..2 {
        let answer = ask(&mut stream, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("alive\n"), "{answer}");
    }
    let mut reader = subscriber(&secure);
    for size in [1, 4_000, 10_240] {
        let data = "x".repeat(size);
        let answer = ask(&mut stream, &post(&event("a", &data)));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{size}: {answer}");
        assert!(frame(&mut reader).contains(&data));
    }
    let long = post(&event("a", &"x".repeat(60_000)));
    assert!(ask(&mut stream, &long).starts_with("HTTP/1.1 413 "), "read whole, and refused");
    let mut plain = TcpStream::connect(secure.server.address).unwrap();
    plain.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "nothing is said in clear");
}

#[test]
fn what_waits_for_a_slow_reader_arrives_once_and_in_order() {
    let secure = Secure::start("tls-slow");
    let mut reader = subscriber(&secure);
    let mut publisher = secure.connect();
    let data = "x".repeat(9_000);
    // More than the kernel, rustls and the peer's window hold together, less than may wait.
    for n in 0..800 {
        let body = event("a", &format!("{n}:{data}"));
        assert!(ask(&mut publisher, &post(&body)).starts_with("HTTP/1.1 200 "));
    }
    for n in 0..800 {
        let text = frame(&mut reader);
        assert!(text.contains(&format!("\"{n}:x")), "{n}: {}", &text[..60]);
    }
}

#[test]
fn a_certificate_is_read_again_and_connections_live_on() {
    let mut secure = Secure::start("tls-reload");
    let mut old = secure.connect();
    secure.cert = certify(&secure.folder);
    assert!(secure.try_connect().is_err(), "not before it is told");
    secure.server.signal("HUP");
    until("the new certificate", || secure.try_connect().is_ok());
    let request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert!(ask(&mut old, request).starts_with("HTTP/1.1 200 "));
    std::fs::write(secure.folder.join("key.pem"), "rubbish").unwrap();
    secure.server.signal("HUP");
    assert!(ask(&mut old, request).starts_with("HTTP/1.1 200 "));
    assert!(secure.try_connect().is_ok(), "a wrong pair changes nothing");
    secure.server.signal("TERM");
    assert!(secure.server.wait().success());
}

#[test]
fn the_fallback_moves_a_connection_to_the_loop_of_its_session() {
    let secure = Secure::with("tls-fallback", 3);
    let mut stream = secure.connect();
    let mut request = |session: u32, verb: &str, body: &str| {
        let length = body.len();
        let request = format!(
            "POST /pusher/app/app-key/1/name{session:0>4}/{verb}?protocol=7 HTTP/1.1\r\n\
             Host: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        ask(&mut stream, request.as_bytes())
    };
    let wish = r#"["{\"event\":\"pusher:subscribe\",\"data\":{\"channel\":\"a\"}}"]"#;
    for session in 0..20 {
        assert!(request(session, "xhr", "").ends_with("\r\n\r\no\n"));
        assert!(request(session, "xhr_send", wish).starts_with("HTTP/1.1 204 "));
    }
    for session in 0..20 {
        let mut seen = String::new();
        while !seen.contains("subscription_succeeded") {
            seen += &request(session, "xhr", "");
        }
    }
    assert_eq!(secure.connect_and_publish(), 200);
    for session in 0..20 {
        assert!(request(session, "xhr", "").contains("once"), "on every loop");
    }
}
