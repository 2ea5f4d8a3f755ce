//! The real server and client on hosts of a simulated network: loss, delay, partitions, crashes,
//! in virtual time. A seed is a run: the same seed sends the same datagrams at the same times.
#![cfg(not(madsim))]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[path = "support/sim.rs"]
mod sim;

use quinn::{Endpoint, TokioRuntime};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest, Sha256};
use sim::{SimSocket, Trace};
use sluicegate_client::{
    Client, Event, Options, Queue, SubscribeOptions, Subscription, Trust, endpoint_config,
};
use sluicegate_core::{Broker, Limits};
use sluicegate_quic::server;
use sluicegate_quic::settings::Settings;
use sluicegate_quic::shard::Shard;
use sluicegate_quic::transport::{self, Keys};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::sleep;
use turmoil::{Builder, Sim};

const PORT: u16 = 4433;

/// What is the same for all hosts.
#[derive(Clone)]
struct World {
    seed: u64,
    limits: Limits,
    chain: Vec<CertificateDer<'static>>,
    key: Rc<PrivateKeyDer<'static>>,
    trace: Trace,
    /// Of a thousand datagrams so many are lost.
    loss: u64,
    /// The server's shard, of its latest life: its host owns it.
    shard: Rc<RefCell<Weak<Shard>>>,
    lives: Rc<Cell<u64>>,
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

impl World {
    fn new(seed: u64, limits: Limits) -> Self {
        // Signatures of this algorithm have one length.
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let made = rcgen::CertificateParams::new(["server".to_owned()]).unwrap();
        let made = made.self_signed(&key).unwrap();
        let secret = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        Self {
            seed,
            limits,
            chain: vec![made.der().clone()],
            key: Rc::new(secret),
            trace: Trace::default(),
            loss: 50,
            shard: Rc::default(),
            lives: Rc::default(),
        }
    }

    fn sim(&self) -> Sim<'static> {
        let mut builder = Builder::new();
        builder
            .rng_seed(self.seed)
            .epoch(std::time::UNIX_EPOCH)
            .simulation_duration(Duration::from_secs(600))
            .min_message_latency(Duration::from_millis(40))
            .max_message_latency(Duration::from_millis(60))
            .udp_capacity(4096);
        let mut sim = builder.build();
        let world = self.clone();
        sim.host("server", move || world.clone().serve());
        sim
    }

    async fn serve(self) -> Outcome {
        self.lives.set(self.lives.get() + 1);
        let (settings, limits) = (Settings::default(), self.limits.clone());
        let quic = transport::transport(&settings, &limits, false);
        let server = transport::server(self.chain.clone(), self.key.clone_key(), quic)?;
        let mut config = transport::endpoint(&Keys { reset: [3; 32], ids: 3 });
        config.rng_seed(Some([1; 32]));
        let socket = SimSocket::bind(PORT, (self.seed, self.loss), &self.trace).await?;
        let runtime = Arc::new(TokioRuntime);
        let endpoint = Endpoint::new_with_abstract_socket(config, Some(server), socket, runtime)?;
        // Another life has other epochs.
        let broker = Broker::new(limits, self.seed + self.lives.get());
        let shard = Shard::new(broker, Arc::new(settings), None);
        *self.shard.borrow_mut() = Arc::downgrade(&shard);
        let _serving = server::serve(&shard, endpoint);
        std::future::pending().await
    }

    async fn client(&self, number: u8) -> Client {
        let mut config = endpoint_config();
        config.rng_seed(Some([1 + number; 32]));
        let seed = self.seed + u64::from(number);
        let socket = SimSocket::bind(PORT, (seed, self.loss), &self.trace).await.unwrap();
        let runtime = Arc::new(TokioRuntime);
        let endpoint = Endpoint::new_with_abstract_socket(config, None, socket, runtime).unwrap();
        let options = Options {
            limits: self.limits.clone(),
            endpoint: Some(endpoint),
            seed: Some(seed),
            ..Options::new(Trust::Fingerprint(Sha256::digest(&self.chain[0]).into()))
        };
        let url = format!("quic://{}:{PORT}", turmoil::lookup("server"));
        Client::connect(&url, options).await.unwrap()
    }

    fn look<T>(&self, look: impl FnOnce(&Broker) -> T) -> T {
        self.shard.borrow().upgrade().expect("it serves").look(look)
    }
}

/// Takes records until one says that it is the last. Answers their numbers and what was lost.
async fn drain(subscription: &mut Subscription) -> (Vec<u64>, u64) {
    let (mut numbers, mut lost) = (Vec::new(), 0);
    loop {
        match subscription.next().await.expect("it goes on").expect("it was not ended") {
            Event::Record { sequence, payload } => {
                numbers.push(sequence);
                if &payload[..] == b"last" {
                    return (numbers, lost);
                }
            }
            Event::Gap(gap) => lost += gap.records,
            Event::Restarted { .. } => numbers.clear(),
        }
    }
}

/// A lossless publisher and subscriber; the network is parted for 1.5 s in between. Answers the
/// hash of all datagrams, and the numbers that arrived.
fn parted(seed: u64) -> (u64, Vec<u64>) {
    let world = World::new(seed, Limits { lossless: 1, ..Limits::default() });
    let mut sim = world.sim();
    let got = Rc::new(RefCell::new(Vec::new()));
    sim.client("reader", {
        let (world, got) = (world.clone(), Rc::clone(&got));
        async move {
            let client = world.client(1).await;
            let mut orders = client.subscribe("orders", SubscribeOptions::lossless()).await?;
            let (numbers, lost) = drain(&mut orders).await;
            assert_eq!(lost, 0, "lossless loses nothing");
            *got.borrow_mut() = numbers;
            Ok(())
        }
    });
    sim.client("writer", {
        let world = world.clone();
        async move {
            let client = world.client(2).await;
            let publisher = client.publisher("orders").await?;
            while world.look(|broker| broker.counts().1) == 0 {
                sleep(Duration::from_millis(50)).await;
            }
            for number in 0..400_u32 {
                publisher.publish(number.to_be_bytes().to_vec()).await?;
                sleep(Duration::from_millis(5)).await;
                if number == 200 {
                    turmoil::partition("server", "writer");
                    turmoil::partition("server", "reader");
                    sleep(Duration::from_millis(1500)).await;
                    turmoil::repair("server", "writer");
                    turmoil::repair("server", "reader");
                }
            }
            publisher.publish("last").await?;
            client.close().await;
            assert_eq!((client.stats().sent, client.stats().shed), (401, 0));
            Ok(())
        }
    });
    sim.run().unwrap();
    world.look(|broker| {
        broker.check().unwrap_or_else(|broken| panic!("{broken}"));
        let books = broker.ledger();
        assert_eq!((books.admitted.records, books.dropped.total().records), (401, 0));
        assert_eq!(books.shed.total().records + books.refused.total().records, 0);
    });
    let got = got.borrow().clone();
    (world.trace.hash(), got)
}

#[test]
fn through_loss_and_a_partition_nothing_is_lost_and_the_books_close() {
    assert_eq!(parted(7).1, (1..=401).collect::<Vec<_>>());
}

#[test]
fn a_seed_is_a_run() {
    let runs: Vec<_> = [11, 11, 12].map(|seed| parted(seed).0).into();
    assert_eq!(runs[0], runs[1], "the same seed sent other datagrams");
    assert_ne!(runs[0], runs[2]);
}

/// The story of `scenarios/slow-subscriber.toml` over the network: its verdicts.
#[test]
fn one_that_does_not_read_loses_its_own_records_and_nobody_elses() {
    let limits = Limits {
        subscription_batches: 16,
        subscription_queue: 4,
        slow_consumer_after_ms: 0,
        ..Limits::default()
    };
    let world = World { loss: 1, ..World::new(3, limits) };
    let read = Rc::new(Cell::new(false));
    let mut sim = world.sim();
    sim.client("stalled", {
        let (world, read) = (world.clone(), Rc::clone(&read));
        async move {
            let client = world.client(1).await;
            // What is not taken here stays at the broker, whose policy drops.
            let options = SubscribeOptions { queue: Queue::Block, ..SubscribeOptions::default() };
            let mut orders = client.subscribe("orders", options).await?;
            while !read.get() {
                sleep(Duration::from_millis(100)).await;
            }
            let (numbers, lost) = drain(&mut orders).await;
            assert!(lost > 0, "it was fast enough");
            assert_eq!(numbers.len() as u64 + lost, 101);
            Ok(())
        }
    });
    sim.client("reader", {
        let (world, read) = (world.clone(), Rc::clone(&read));
        async move {
            let client = world.client(2).await;
            let options = SubscribeOptions { queue: Queue::Block, ..SubscribeOptions::default() };
            let mut orders = client.subscribe("orders", options).await?;
            for number in 1..=100 {
                let next = orders.next().await.expect("it goes on")?;
                assert!(matches!(next, Event::Record { sequence, .. } if sequence == number));
            }
            read.set(true);
            assert_eq!(drain(&mut orders).await, (vec![101], 0));
            Ok(())
        }
    });
    sim.client("writer", {
        let (world, read) = (world.clone(), Rc::clone(&read));
        async move {
            let client = world.client(3).await;
            let publisher = client.publisher("orders").await?;
            while world.look(|broker| broker.counts().1) < 2 {
                sleep(Duration::from_millis(50)).await;
            }
            for _ in 0..100 {
                publisher.publish(vec![7; 64 << 10]).await?;
            }
            // What comes last is not dropped: by then the stalled one reads.
            while !read.get() {
                sleep(Duration::from_millis(100)).await;
            }
            sleep(Duration::from_secs(5)).await;
            publisher.publish_acked("last").await?;
            Ok(())
        }
    });
    sim.run().unwrap();
    world.look(|broker| {
        broker.check().unwrap_or_else(|broken| panic!("{broken}"));
        let books = broker.ledger();
        assert_eq!(books.admitted.records, 101);
        assert!(books.dropped.total().records > 0);
    });
}

#[test]
fn after_a_crash_clients_learn_of_it_at_once_and_go_on() {
    let world = World::new(5, Limits::default());
    let mut sim = world.sim();
    let reconnected = Rc::new(Cell::new(Duration::ZERO));
    sim.client("client", {
        let (world, reconnected) = (world.clone(), Rc::clone(&reconnected));
        async move {
            let client = world.client(1).await;
            let mut orders = client.subscribe("orders", SubscribeOptions::default()).await?;
            let publisher = client.publisher("orders").await?;
            assert_eq!(publisher.publish_acked("one").await?, 1);
            while world.lives.get() < 2 {
                sleep(Duration::from_millis(100)).await;
            }
            let back = turmoil::elapsed();
            while client.stats().reconnects == 0 {
                sleep(Duration::from_millis(100)).await;
            }
            reconnected.set(turmoil::elapsed() - back);
            // What is asked while there is no connection may end with it.
            while publisher.publish_acked("last").await.is_err() {}
            let (numbers, _) = drain(&mut orders).await;
            assert_eq!(numbers.first(), Some(&1), "numbers begin anew");
            Ok(())
        }
    });
    let (mut crashed, mut bounced) = (false, false);
    while !sim.step().unwrap() {
        let at = sim.elapsed();
        if !crashed && at > Duration::from_secs(3) {
            sim.crash("server");
            crashed = true;
        }
        if !bounced && at > Duration::from_secs(4) {
            sim.bounce("server");
            bounced = true;
        }
    }
    // With keys of its own it would have waited for its timeout, 30 seconds.
    assert!(reconnected.get() < Duration::from_secs(10), "{:?}", reconnected.get());
}
