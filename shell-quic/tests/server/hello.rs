//! Who is let in, and who is told why not.

use crate::support::{Dial, Gate, Peer, Stage, set, until};
use sluicegate_core::Limits;
use sluicegate_host::strangers::Unwelcome;
use sluicegate_quic::access::{Pattern, Tenant, Token};
use sluicegate_quic::settings::Settings;
use sluicegate_wire::quic::{Code, Frame, decode, varint};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::UdpSocket;

/// A tenant that a token opens, for these patterns of topics.
pub(crate) fn tenant(name: &str, sha256: [u8; 32], publish: &[&str], subscribe: &[&str]) -> Tenant {
    let patterns = |texts: &[&str]| -> Vec<Pattern> {
        serde_json::from_value(serde_json::json!(texts)).unwrap()
    };
    let token = Token { sha256, publish: patterns(publish), subscribe: patterns(subscribe) };
    Tenant { token: vec![token], ..Tenant::open(name) }
}

/// The SHA-256 of `secret`.
pub(crate) const SECRET: [u8; 32] = [
    0x2b, 0xb8, 0x0d, 0x53, 0x7b, 0x1d, 0xa3, 0xe3, 0x8b, 0xd3, 0x03, 0x61, 0xaa, 0x85, 0x56, 0x86,
    0xbd, 0xe0, 0xea, 0xcd, 0x71, 0x62, 0xfe, 0xf6, 0xa2, 0x5f, 0xe9, 0x7b, 0xf5, 0x27, 0xa2, 0x5b,
];

async fn stranger(stage: &Stage) -> Peer {
    stage.gate.dial(Dial::default()).await
}

async fn refused(stage: &Stage, hello: &Frame<'_>) -> u64 {
    let mut peer = stranger(stage).await;
    peer.say(hello).await;
    peer.closed().await
}

/// Who was not let in, for reasons that are not zero.
fn counted(stage: &Stage) -> Vec<(&'static str, u64)> {
    let strangers = stage.shard.strangers();
    let all = Unwelcome::ALL.into_iter().map(|why| (why.name(), strangers.refused(why)));
    all.filter(|(_, count)| *count > 0).collect()
}

/// Waits until that is so.
async fn count(stage: &Stage, expected: &[(&str, u64)]) {
    until(&format!("{expected:?}"), || counted(stage) == expected).await;
}

const HELLO: Frame<'_> =
    Frame::Hello { oldest: 1, newest: 1, features: 0, tenant: "default", token: "" };

#[tokio::test]
async fn the_welcome_tells_the_limits() {
    let settings = Settings { max_topics: 7, max_publish_streams: 5, ..Settings::default() };
    let stage = Stage::new(set(&[("max_frame_bytes", 1 << 20)]), settings);
    let mut peer = stranger(&stage).await;
    let (oldest, features) = (0, u64::MAX >> 2);
    peer.say(&Frame::Hello { oldest, newest: 9, features, tenant: "default", token: "" }).await;
    let frame = peer.control.next().await.unwrap();
    let Ok(Some(Frame::Welcome(welcome))) = decode(&frame) else { panic!("{frame:x?}") };
    assert_eq!((welcome.version, welcome.features), (1, 0));
    assert_eq!((welcome.max_frame_bytes, welcome.max_subscriptions), (1 << 20, 4096));
    assert_eq!((welcome.max_topics, welcome.max_publish_streams), (7, 5));
    assert_eq!(welcome.idle_ms, 30_000);
    drop(peer);
    stage.empty().await;
}

#[tokio::test]
async fn who_is_not_known_is_told_why() {
    let tenants = vec![Tenant::open("default"), tenant("shop", SECRET, &["*"], &["*"])];
    let stage = Stage::new(Limits::default(), Settings { tenants, ..Settings::default() });
    for (tenant, token) in [("nobody", ""), ("shop", "Secret"), ("shop", ""), ("", "secret")] {
        let hello = Frame::Hello { oldest: 1, newest: 1, features: 0, tenant, token };
        let code = refused(&stage, &hello).await;
        assert_eq!(Code::from_number(code), Some(Code::Unauthenticated), "{tenant} {token}");
    }
    count(&stage, &[("unauthenticated", 4)]).await;
    stranger(&stage).await.hello("shop", "secret").await;
    stage.empty().await;
}

#[tokio::test]
async fn without_a_version_in_common_there_is_no_connection() {
    let stage = Stage::usual();
    for (oldest, newest) in [(2, 9), (0, 0), (1, 0)] {
        let hello = Frame::Hello { oldest, newest, features: 0, tenant: "default", token: "" };
        assert_eq!(Code::from_number(refused(&stage, &hello).await), Some(Code::Version));
    }
    count(&stage, &[("version", 3)]).await;
}

#[tokio::test]
async fn who_says_nothing_is_not_waited_for() {
    let hello_timeout = Duration::from_millis(150);
    let stage = Stage::new(Limits::default(), Settings { hello_timeout, ..Settings::default() });
    let mut half = stranger(&stage).await;
    half.write(&HELLO.bytes()[..5]).await;
    let silent = stranger(&stage).await;
    assert_eq!(Code::from_number(half.closed().await), Some(Code::TimedOut));
    assert_eq!(Code::from_number(silent.closed().await), Some(Code::TimedOut));
    count(&stage, &[("timed_out", 2)]).await;
}

#[tokio::test]
async fn before_its_hello_a_peer_may_send_little() {
    let stage = Stage::usual();
    let mut peer = stranger(&stage).await;
    let mut long = Vec::new();
    varint::put(&mut long, (64 << 10) + 1);
    peer.write(&long).await;
    assert_eq!(Code::from_number(peer.closed().await), Some(Code::Malformed));
    // Another frame first, or none at all.
    assert_eq!(
        Code::from_number(refused(&stage, &Frame::Ping { token: 1 }).await),
        Some(Code::Unexpected)
    );
    let mut peer = stranger(&stage).await;
    peer.write(&[0]).await;
    assert_eq!(Code::from_number(peer.closed().await), Some(Code::Malformed));
    count(&stage, &[("malformed", 2), ("unexpected", 1)]).await;
}

#[tokio::test]
async fn streams_are_granted_before_the_hello_and_more_after_it() {
    let stage = Stage::usual();
    let peer = stranger(&stage).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(peer.publisher().await);
    }
    let link = peer.link.clone();
    let more = tokio::spawn(async move {
        let mut streams = Vec::new();
        while streams.len() < 5 {
            streams.push(link.open_uni().await.unwrap());
        }
        streams
    });
    // A second control stream is never granted.
    let second = {
        let link = peer.link.clone();
        tokio::spawn(async move { link.open_bi().await.map(|_| ()) })
    };
    let mut other = stage.join().await;
    other.is_heard(1).await;
    assert!(!more.is_finished(), "a fourth stream was granted to a stranger");
    let mut peer = peer.hello("default", "").await;
    streams.extend(crate::support::within(more).await.unwrap());
    peer.is_heard(2).await;
    assert!(!second.is_finished());
    second.abort();
}

#[tokio::test]
async fn strangers_of_one_address_are_few_and_leave() {
    let settings = Settings { max_strangers: 2, ..Settings::default() };
    let stage = Stage::new(Limits::default(), settings);
    let strangers = [stranger(&stage).await, stranger(&stage).await];
    let config = stage.gate.config(Dial::default());
    let endpoint = strangers[0].endpoint.clone();
    let third = endpoint.connect_with(config, stage.gate.address, "localhost").unwrap();
    assert!(crate::support::within(third).await.is_err(), "a third stranger was let in");
    count(&stage, &[("crowded", 1)]).await;
    // Who says who it is makes room, and who goes away does.
    let [first, second] = strangers;
    let known = first.hello("default", "").await;
    drop(second);
    // The server learns of it in its own time.
    let mut joined = Vec::new();
    for _ in 0..3 {
        joined.push(patient_join(&stage).await);
    }
    drop((known, joined));
    stage.empty().await;
}

/// Joins as soon as there is room.
async fn patient_join(stage: &Stage) -> Peer {
    crate::support::within(async {
        loop {
            let config = stage.gate.config(Dial::default());
            let at = (Ipv4Addr::LOCALHOST, 0).into();
            let endpoint = quinn::Endpoint::client(at).unwrap();
            let dialled = endpoint.connect_with(config, stage.gate.address, "localhost").unwrap();
            if dialled.await.is_ok() {
                return stage.join().await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_handshake_that_fails_disturbs_nobody() {
    let stage = Stage::usual();
    let mut peer = stage.join().await;
    // Somebody who trusts another certificate, and one who speaks another protocol.
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut gate = stage.gate.clone();
    gate.certificate = other.cert.into();
    let at = (Ipv4Addr::LOCALHOST, 0).into();
    let endpoint = quinn::Endpoint::client(at).unwrap();
    let dialled =
        endpoint.connect_with(gate.config(Dial::default()), gate.address, "localhost").unwrap();
    assert!(crate::support::within(dialled).await.is_err());
    count(&stage, &[("handshake", 1)]).await;
    // Bytes that are no handshake at all, and a handshake that stops in the middle.
    let noise = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for byte in [0, 0xc0, 0xff] {
        noise.send_to(&[byte; 1200], stage.gate.address).unwrap();
    }
    let silent = quinn::Endpoint::client(at).unwrap();
    let config = stage.gate.config(Dial::default());
    let dialled = silent.connect_with(config, stage.gate.address, "localhost").unwrap();
    let away = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    silent.rebind(away).unwrap();
    peer.is_heard(7).await;
    let mut next = stage.join().await;
    next.is_heard(8).await;
    drop(dialled);
}

#[tokio::test]
async fn a_core_without_room_says_busy() {
    let stage = Stage::with(&[("max_connections", 1)]);
    let first = stage.join().await;
    assert_eq!(Code::from_number(refused(&stage, &HELLO).await), Some(Code::Busy));
    count(&stage, &[("busy", 1)]).await;
    drop(first);
    stage.until("the first to be gone", |broker| broker.counts().0 == 0).await;
    stage.join().await.is_heard(1).await;
}

#[tokio::test]
async fn who_goes_before_its_hello_leaves_nothing() {
    let stage = Stage::usual();
    let peer = stranger(&stage).await;
    peer.link.close(0_u32.into(), b"");
    drop(peer);
    let endpoint = stage.endpoint();
    until("no connection to be open", || endpoint.open_connections() == 0).await;
    count(&stage, &[("left", 1)]).await;
    assert_eq!(stage.shard.look(|broker| broker.counts()), (0, 0));
}

/// A way to a server that looks at what it answers: whether it has asked for a proof of the
/// address.
async fn relay(gate: &Gate) -> (Gate, Arc<AtomicBool>) {
    let any = (Ipv4Addr::LOCALHOST, 0);
    let (front, back) = (UdpSocket::bind(any).await.unwrap(), UdpSocket::bind(any).await.unwrap());
    back.connect(gate.address).await.unwrap();
    let (address, asked) = (front.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
    let seen = Arc::clone(&asked);
    tokio::spawn(async move {
        let (mut one, mut other) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        let mut client = None;
        loop {
            tokio::select! {
                got = front.recv_from(&mut one) => {
                    let Ok((len, from)) = got else { return };
                    client = Some(from);
                    back.send(&one[..len]).await.unwrap();
                }
                got = back.recv(&mut other) => {
                    let (Ok(len), Some(client)) = (got, client) else { return };
                    // A long header of the type Retry (RFC 9000, 17.2.5).
                    seen.fetch_or(other[0] & 0xf0 == 0xf0, Ordering::Relaxed);
                    front.send_to(&other[..len], client).await.unwrap();
                }
            }
        }
    });
    (Gate { address, ..gate.clone() }, asked)
}

#[tokio::test]
async fn when_many_are_about_to_say_who_they_are_a_newcomer_proves_its_address() {
    let settings = Settings { max_handshakes: 4, ..Settings::default() };
    let stage = Stage::new(Limits::default(), settings);
    let mut strangers = Vec::new();
    for must_prove in [false, false, true, true] {
        let (gate, asked) = relay(&stage.gate).await;
        strangers.push(gate.dial(Dial::default()).await);
        assert_eq!(asked.load(Ordering::Relaxed), must_prove, "after {}", strangers.len());
    }
    assert_eq!(stage.shard.strangers().retried, 2);
    // No proof opens a full house.
    let endpoint = quinn::Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let config = stage.gate.config(Dial::default());
    let fifth = endpoint.connect_with(config, stage.gate.address, "localhost").unwrap();
    assert!(crate::support::within(fifth).await.is_err(), "a fifth stranger was let in");
    count(&stage, &[("crowded", 1)]).await;
    // Who says who it is makes room for one.
    let known = strangers.remove(0).hello("default", "").await;
    let (gate, asked) = relay(&stage.gate).await;
    strangers.push(gate.dial(Dial::default()).await);
    assert!(asked.load(Ordering::Relaxed));
    assert_eq!((stage.shard.strangers().retried, counted(&stage)), (3, vec![("crowded", 1)]));
    drop((known, strangers));
    stage.empty().await;
}
