//! What the program holds when every connection holds all that it may: no more than it says it
//! plans with when it starts, and not so little that the plan says nothing.

use crate::support::{Dial, Gate, Peer, SLOW, publish, send, until};
use rustls::pki_types::CertificateDer;
use serde_json::Value;
use sluicegate_quic::identity::CERTIFICATE;
use sluicegate_wire::quic::{Mode, Policy, Start};
use std::cell::Cell;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::time::Instant;

const CONNECTIONS: u32 = 200;
const BUDGET: u64 = 512 << 20;
/// What a connection may have in flight, and what its transport takes before it is read.
const INFLIGHT: u64 = 1 << 20;
/// What a server holds for a connection that acknowledges nothing.
const SENT: usize = 2 << 20;
static RECORD: [u8; 128 << 10] = [7; 128 << 10];
/// So long nothing more is taken from anybody.
const CALM: Duration = Duration::from_secs(1);
const ALL: Dial = Dial { streams: 16, window: 8 << 20 };

/// The program, and what it said when it began to serve.
struct Program {
    child: Child,
    said: Value,
    gate: Gate,
}

impl Program {
    fn start(keys: &[(&str, u64)]) -> Self {
        let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join("memory");
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-quic"));
        command.args(["serve", "--json", "--port", "0", "--set", "admin_port=0"]);
        command.arg("--set").arg(format!("state_dir={}", state.display()));
        for (key, value) in keys {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = lines
            .map_while(Result::ok)
            .filter_map(|line| serde_json::from_str::<Value>(&line).ok())
            .find(|line| line["event"] == "listening")
            .expect("it says that it serves");
        let address = said["address"].as_str().unwrap().parse().unwrap();
        let certificate = CertificateDer::from(std::fs::read(state.join(CERTIFICATE)).unwrap());
        Self { child, said, gate: Gate { address, certificate } }
    }

    fn number(&self, key: &str) -> u64 {
        self.said[key].as_u64().unwrap()
    }

    async fn join(&self, dial: Dial) -> Peer {
        self.gate.dial(dial).await.hello("default", "").await
    }

    /// Bytes of its memory that are resident.
    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    /// Waits until it holds so much.
    async fn grown(&self, bytes: u64) {
        until(&format!("{} MiB to be held", bytes >> 20), || self.resident() >= bytes).await;
    }

    /// Waits until it has taken all that it takes, and says how much that was at most.
    async fn calm(&self) -> u64 {
        let (most, since) = (Cell::new(0), Cell::new(Instant::now()));
        let is_calm = || {
            let now = self.resident();
            if now > most.get() {
                most.set(now);
                since.set(Instant::now());
            }
            since.get().elapsed() >= CALM
        };
        until("its memory to grow no more", is_calm).await;
        most.get()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Publishes to a topic that somebody holds up, on two streams, for as long as anything is taken.
async fn push(peer: &mut Peer) {
    let topic = peer.bind("held").await;
    let bytes = publish(topic, Mode::Unacked, &[&RECORD[..]]);
    for _ in 0..2 {
        let (mut stream, bytes) = (peer.publisher().await, bytes.clone());
        tokio::spawn(async move { while stream.write_all(&bytes).await.is_ok() {} });
    }
}

#[tokio::test]
async fn full_windows_take_what_the_plan_says() {
    let program = Program::start(&[
        ("lossless", 1),
        ("max_frame_bytes", 512 << 10),
        ("memory_budget", BUDGET),
        ("pub_conn_inflight_bytes", INFLIGHT),
        ("pub_inflight_bytes", 400 << 20),
        ("pub_tenant_inflight_bytes", 400 << 20),
        ("pub_queue_total", 1 << 16),
    ]);
    let idle = program.resident();
    let mut stuck = program.join(SLOW).await;
    let held = stuck.bind("held").await;
    let _held = stuck.subscribe_some(held, Policy::Block, 1, Start::Tail).await;
    let mut peers = Vec::new();
    for number in 1..CONNECTIONS {
        let mut peer = program.join(ALL).await;
        let topic = peer.bind(&format!("topic-{number}")).await;
        let sub = peer.subscribe(topic, Policy::DropNew, Start::Tail).await;
        push(&mut peer).await;
        peers.push((peer, sub));
    }
    // Most of what may be in flight, and as much again that is not read.
    program.grown(idle + u64::from(CONNECTIONS) * INFLIGHT * 3 / 2).await;
    let received = program.calm().await;
    // What is sent to them is not acknowledged from now on.
    peers.iter().for_each(|(peer, _)| peer.die());
    let mut writer = program.join(ALL).await;
    let mut stream = writer.publisher().await;
    for number in 1..CONNECTIONS {
        let topic = writer.bind(&format!("topic-{number}")).await;
        for request in 0..(SENT / RECORD.len()) as u64 {
            send(&mut stream, &publish(topic, Mode::Acked { request }, &[&RECORD[..]])).await;
            writer.acked(request).await;
        }
    }
    let windows = u64::from(CONNECTIONS) * program.number("windows_per_connection");
    let plan = program.number("memory_budget") + windows + idle;
    program.grown(plan / 2).await;
    let held = program.calm().await;
    let shown = [idle, received, held, plan].map(|bytes| bytes >> 20);
    println!(
        "MiB: {} idle, {} received, {} in all, {} planned",
        shown[0], shown[1], shown[2], shown[3]
    );
    assert!(held <= plan, "{held} bytes held, {plan} planned with");
}
