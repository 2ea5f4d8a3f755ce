//! QUIC's drivers on threads of their own: the same server, and it ends as cleanly.

use crate::shards::page;
use crate::support::{Dial, Gate, Item, Peer, SLOW, Sub, never, publish, send, until, within};
use quinn::Endpoint;
use rustls::pki_types::CertificateDer;
use sluicegate_core::{Broker, Place, Reason};
use sluicegate_quic::config::Config;
use sluicegate_quic::identity::Files;
use sluicegate_quic::process::Process;
use sluicegate_wire::quic::{Frame, Mode, Policy, Start, decode};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

const RECORD: [u8; 1 << 10] = [7; 1 << 10];

/// A process of two shards whose drivers are on two threads, with its folder.
struct House {
    process: Process,
    gate: Gate,
    folder: PathBuf,
}

/// Writes a new certificate and its key.
fn certify(folder: &Path) -> CertificateDer<'static> {
    std::fs::create_dir_all(folder).unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    made.cert.into()
}

impl House {
    fn start(name: &str, keys: &[(&str, &str)]) -> Self {
        let name = format!("sluicegate-drivers-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let certificate = certify(&folder);
        let mut config = Config { port: 0, admin_port: 0, ..Config::default() };
        config.state_dir.clone_from(&folder);
        config.tls = Some(Files { cert: folder.join("cert.pem"), key: folder.join("key.pem") });
        for (key, value) in [("shards", "2"), ("driver_threads", "2")].iter().chain(keys) {
            config.set(key, value).unwrap();
        }
        config.check().unwrap();
        // Longer than any test waits: an end that is not clean would take so long.
        config.settings.farewell = Duration::from_secs(600);
        let process = Process::start(config).unwrap();
        let gate = Gate { address: process.address, certificate };
        Self { process, gate, folder }
    }

    async fn join(&self, dial: Dial) -> Peer {
        self.gate.dial(dial).await.hello("default", "").await
    }

    /// A subscriber who takes little at a time, and makes publishers wait.
    async fn slow(&self) -> (Peer, Sub) {
        let mut peer = self.join(SLOW).await;
        let topic = peer.bind("t").await;
        let sub = peer.subscribe_some(topic, Policy::Block, 4, Start::Tail).await;
        (peer, sub)
    }

    /// Stops it; clients go on meanwhile on the thread of the test.
    fn stop(self) -> tokio::task::JoinHandle<Vec<std::sync::Arc<sluicegate_quic::shard::Shard>>> {
        tokio::task::spawn_blocking(|| {
            let Self { process, folder, .. } = self;
            let shards = process.shards().to_vec();
            let address = process.address;
            process.stop().unwrap();
            // The last of its sockets was closed with its driver.
            std::net::UdpSocket::bind(address).unwrap();
            std::fs::remove_dir_all(folder).unwrap();
            shards
        })
    }
}

#[tokio::test]
async fn lossless_with_drivers_on_threads_of_their_own_everything_arrives_within_the_grace() {
    const LAST: u64 = 2_000;
    // No more than wait for a reader who pauses.
    const REST: u64 = 4;
    let house = House::start("lossless", &[("lossless", "1"), ("shutdown_grace_ms", "600000")]);
    // Wherever the kernel puts them, some are where the topic is and some are not.
    let mut slow = Vec::new();
    for _ in 0..4 {
        slow.push(house.slow().await);
    }
    let mut writer = house.join(Dial::default()).await;
    let topic = writer.bind("t").await;
    let mut stream = writer.publisher().await;
    let shards = house.process.shards().to_vec();
    let held = || shards.iter().map(|shard| shard.look(Broker::holds)).sum::<u64>();
    let pouring = tokio::spawn(async move {
        for _ in 0..LAST {
            send(&mut stream, &publish(topic, Mode::Unacked, &[RECORD])).await;
        }
        stream
    });
    until("the topic to be held by who is slow", || held() > 0).await;
    let mut readers = Vec::new();
    for (peer, mut sub) in slow {
        readers.push(tokio::spawn(async move {
            let read = sub.events.read_until(1, LAST - REST).await;
            assert_eq!((read.came.len() as u64, read.lost), (LAST - REST, 0));
            (peer, sub)
        }));
    }
    let mut back = Vec::new();
    for reader in readers {
        back.push(reader.await.unwrap());
    }
    let _stream = pouring.await.unwrap();
    let admitted = |broker: &Broker| broker.ledger().admitted.records;
    let admitted = || shards.iter().map(|shard| shard.look(admitted)).sum::<u64>();
    until("everything to be admitted", || admitted() == LAST).await;
    // The rest is read after the stop has begun.
    let stopping = house.stop();
    let frame = writer.control.next().await.unwrap();
    assert_eq!(decode(&frame), Ok(Some(Frame::GoAway { grace_ms: 600_000 })));
    for (_, sub) in &mut back {
        let read = sub.events.read_until(LAST - REST + 1, LAST).await;
        assert_eq!((read.came.len() as u64, read.lost), (REST, 0));
    }
    // Nobody is told the end before everybody has all.
    for (peer, mut sub) in back {
        assert_eq!(sub.events.item().await, Item::Ended(never(Place::Egress, Reason::Shutdown)));
        assert_eq!(sub.events.item().await, Item::End);
        assert_eq!(peer.closed().await, 0);
    }
    assert_eq!(writer.closed().await, 0);
    for shard in within(stopping).await.unwrap() {
        shard.look(Broker::check).unwrap();
        assert_eq!(shard.look(|broker| broker.counts()), (0, 0));
        assert_eq!(shard.parting(), 0);
    }
}

#[tokio::test]
async fn a_new_certificate_is_for_who_comes_after_it() {
    let house = House::start("reload", &[]);
    let mut before = house.join(Dial::default()).await;
    let certificate = certify(&house.folder);
    house.process.reload().unwrap();
    let old = house.gate.config(Dial::default());
    let endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = house.gate.address;
    // On both shards: many come, and each of them is shown the new one.
    for _ in 0..8 {
        let link = endpoint.connect_with(old.clone(), address, "localhost").unwrap();
        assert!(within(link).await.is_err(), "the old certificate was shown");
    }
    let gate = Gate { address, certificate };
    let mut after = gate.dial(Dial::default()).await.hello("default", "").await;
    for peer in [&mut before, &mut after] {
        peer.is_heard(1).await;
    }
    // Of two endpoints, and of the connections to them.
    assert!(house.process.driving() >= 4, "{} drivers", house.process.driving());
    assert!(page(house.process.admin, "/ready").ends_with("ready\n"));
    within(house.stop()).await.unwrap();
    assert_eq!((before.closed().await, after.closed().await), (0, 0));
}
