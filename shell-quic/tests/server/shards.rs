//! Several shards behind one port.

use crate::support::{Dial, Gate, Item, Peer, Sub, publish, send, until};
use sluicegate_core::Broker;
use sluicegate_quic::config::Config;
use sluicegate_quic::identity::CERTIFICATE;
use sluicegate_quic::process::Process;
use sluicegate_wire::quic::{Mode, Policy, Start};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

/// A process of two shards with its own state folder.
struct Pair {
    process: Process,
    gate: Gate,
    folder: PathBuf,
}

impl Pair {
    fn start() -> Self {
        let name = format!("sluicegate-shards-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let limits = crate::support::set(&[("shards", 2)]);
        let state_dir = folder.clone();
        let config = Config { port: 0, admin_port: 0, state_dir, limits, ..Config::default() };
        let process = Process::start(config).unwrap();
        let certificate = std::fs::read(folder.join(CERTIFICATE)).unwrap().into();
        let gate = Gate { address: process.address, certificate };
        Self { process, gate, folder }
    }

    fn connections(&self) -> Vec<u32> {
        let shards = self.process.shards().iter();
        shards.map(|shard| shard.look(|broker| broker.counts().0)).collect()
    }

    /// A connection to each shard: the kernel chooses, by addresses.
    async fn peers(&self) -> [Peer; 2] {
        let mut peers = [None, None];
        while peers.iter().any(Option::is_none) {
            let before = self.connections();
            let peer = self.gate.dial(Dial::default()).await.hello("default", "").await;
            let after = self.connections();
            let at = (0..2).find(|at| after[*at] > before[*at]).expect("one has it");
            peers[at] = Some(peer);
            // One that came to a shard before makes way.
            until("one each at most", || self.connections().iter().all(|count| *count < 2)).await;
        }
        peers.map(|peer| peer.expect("both came"))
    }
}

#[tokio::test]
async fn shards_deliver_each_others_records_in_one_order() {
    let pair = Pair::start();
    let mut peers = pair.peers().await;
    for name in ["a", "b", "c", "d"] {
        let mut topics = Vec::new();
        let mut subs: Vec<Sub> = Vec::new();
        for peer in &mut peers {
            let topic = peer.bind(name).await;
            topics.push(topic);
            subs.push(peer.subscribe(topic, Policy::DropNew, Start::Tail).await);
        }
        let mut streams = [peers[0].publisher().await, peers[1].publisher().await];
        let mut firsts = Vec::new();
        for round in 0..20_u64 {
            for at in 0..2 {
                let mode = Mode::Acked { request: round };
                let record = format!("{at}-{round}");
                send(&mut streams[at], &publish(topics[at], mode, &[record])).await;
            }
            for peer in &mut peers {
                firsts.push(peer.acked(round).await);
            }
        }
        firsts.sort_unstable();
        assert_eq!(firsts, (1..=40).collect::<Vec<_>>(), "numbers without holes, once each");
        let [mut one, mut other] = subs.try_into().map_err(|_| ()).unwrap();
        for number in 1..=40 {
            let item = one.events.item().await;
            assert!(matches!(&item, Item::Records(first, _) if *first == number), "{item:?}");
            assert_eq!(other.events.item().await, item);
        }
        assert_eq!(one.epoch, other.epoch);
    }
    for shard in pair.process.shards() {
        shard.look(Broker::check).unwrap();
    }
    let page = page(pair.process.admin, "/metrics");
    assert!(page.contains("sluicegate_records_total{column=\"delivered\"} 320"), "{page}");
    assert!(self::page(pair.process.admin, "/ready").ends_with("ready\n"));
    let Pair { process, folder, .. } = pair;
    let shards = process.shards().to_vec();
    // Its threads are joined: not on the thread on which the clients run.
    tokio::task::spawn_blocking(|| process.stop()).await.unwrap().unwrap();
    for peer in &peers {
        assert_eq!(peer.closed().await, 0);
    }
    for shard in shards {
        let books = shard.look(|broker| broker.ledger().clone());
        assert!(books.lag.is_zero() && books.queued.is_zero(), "{:?}", books.columns());
        shard.look(Broker::check).unwrap();
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// An admin page, with its head.
pub(crate) fn page(admin: SocketAddr, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(admin).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}
