//! The tasks of the shell and of the client over a network in memory, with loss, delay and cuts, in
//! virtual time. `cargo xtask madsim` runs the same under a scheduler that picks the next task at
//! random, hundreds of times.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[path = "support/memory.rs"]
mod memory;

use memory::{Network, TestRuntime};
use quinn::Endpoint;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sluicegate_client::{
    Client, Event, Options, PublishError, Publisher, Queue, Reason, Retry, Start, SubscribeOptions,
    Subscription, Trust, endpoint_config,
};
use sluicegate_core::{Broker, Limits};
use sluicegate_quic::server::{self, Serving};
use sluicegate_quic::settings::Settings;
use sluicegate_quic::shard::Shard;
use sluicegate_quic::transport::{self, Keys};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Virtual: nothing that works takes this long.
const PATIENCE: Duration = Duration::from_secs(600);

const SERVER: &str = "quic://10.0.0.1:4433";

fn address(last: u8) -> SocketAddr {
    ([10, 0, 0, last], 4433).into()
}

/// A world with one server and any number of clients.
struct World {
    network: Network,
    limits: Limits,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    clients: u8,
    servers: u64,
}

impl World {
    fn new(limits: Limits) -> Self {
        let made = rcgen::generate_simple_self_signed(["10.0.0.1".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into();
        let chain = vec![made.cert.der().clone()];
        // Where the scheduler is random, what the kernel calls random comes from its seed.
        let seed = if cfg!(madsim) { getrandom::u64().unwrap() } else { 7 };
        let network = Network::new(seed, 50, Duration::from_millis(50));
        Self { network, limits, chain, key, clients: 0, servers: 0 }
    }

    fn serve(&mut self) -> Serving {
        self.servers += 1;
        let (settings, limits) = (Settings::default(), self.limits.clone());
        let quic = transport::transport(&settings, &limits, false);
        let server = transport::server(self.chain.clone(), self.key.clone_key(), quic).unwrap();
        let mut config = transport::endpoint(&Keys { reset: [3; 32], ids: 3 });
        config.rng_seed(Some([1; 32]));
        let endpoint = Endpoint::new_with_abstract_socket(
            config,
            Some(server),
            self.network.socket(address(1)),
            Arc::new(TestRuntime),
        );
        let shard = Shard::new(Broker::new(limits, self.servers), Arc::new(settings), None);
        server::serve(&shard, endpoint.unwrap())
    }

    fn options(&mut self) -> Options {
        self.clients += 1;
        let mut config = endpoint_config();
        config.rng_seed(Some([1 + self.clients; 32]));
        let endpoint = Endpoint::new_with_abstract_socket(
            config,
            None,
            self.network.socket(address(1 + self.clients)),
            Arc::new(TestRuntime),
        );
        Options {
            limits: self.limits.clone(),
            endpoint: Some(endpoint.unwrap()),
            seed: Some(self.clients.into()),
            publish_workers: [1, 2, 8][usize::from(self.clients % 3)],
            ..Options::new(Trust::Certificates(self.chain.clone()))
        }
    }

    async fn client(&mut self) -> Client {
        let options = self.options();
        within(Client::connect(SERVER, options)).await.unwrap()
    }
}

async fn within<F: Future>(future: F) -> F::Output {
    timeout(PATIENCE, future).await.expect("it did not come in time")
}

async fn next(subscription: &mut Subscription) -> Event {
    within(subscription.next()).await.expect("it goes on").expect("it was not ended")
}

/// The numbers of the next records, and how many were told as lost between them.
async fn take(subscription: &mut Subscription, records: u64) -> (Vec<u64>, u64) {
    let (mut numbers, mut lost) = (Vec::new(), 0);
    while numbers.len() as u64 + lost < records {
        match next(subscription).await {
            Event::Record { sequence, .. } => numbers.push(sequence),
            Event::Gap(gap) => lost += gap.records,
            Event::Restarted { .. } => panic!("the topic lives on"),
        }
    }
    (numbers, lost)
}

async fn publish(publisher: &Publisher, from: u32, to: u32) {
    for number in from..to {
        within(publisher.publish(number.to_be_bytes().to_vec())).await.unwrap();
    }
}

/// Waits until the core of a server looks like this.
async fn until(serving: &Serving, look: impl Fn(&Broker) -> bool) {
    within(async {
        while !serving.shard().look(&look) {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

fn lossless() -> Limits {
    Limits { lossless: 1, ..Limits::default() }
}

/// All identities hold.
fn check(serving: &Serving) {
    serving.shard().look(|broker| {
        if let Err(broken) = broker.check() {
            panic!("{broken}");
        }
    });
}

#[cfg_attr(not(madsim), tokio::test(start_paused = true))]
#[cfg_attr(madsim, tokio::test)]
async fn over_a_bad_network_nothing_is_lost_and_everything_is_in_order() {
    let mut world = World::new(lossless());
    let serving = world.serve();
    let (reader, writer) = (world.client().await, world.client().await);
    let mut subscription =
        within(reader.subscribe("orders", SubscribeOptions::lossless())).await.unwrap();
    let publisher = within(writer.publisher("orders")).await.unwrap();
    publish(&publisher, 0, 200).await;
    assert_eq!(within(publisher.publish_acked("last")).await, Ok(201));
    let (numbers, lost) = take(&mut subscription, 201).await;
    assert_eq!((numbers, lost), ((1..=201).collect(), 0));
    check(&serving);
    within(writer.close()).await;
    let stats = writer.stats();
    assert_eq!((stats.sent, stats.acked, stats.unconfirmed), (200, 1, 0));
    within(serving.stop()).await;
}

#[cfg_attr(not(madsim), tokio::test(start_paused = true))]
#[cfg_attr(madsim, tokio::test)]
async fn a_cut_that_is_mended_is_only_a_delay() {
    let mut world = World::new(lossless());
    let serving = world.serve();
    let (reader, writer) = (world.client().await, world.client().await);
    let mut subscription =
        within(reader.subscribe("orders", SubscribeOptions::lossless())).await.unwrap();
    let publisher = within(writer.publisher("orders")).await.unwrap();
    publish(&publisher, 0, 50).await;
    world.network.cut(true);
    publish(&publisher, 50, 100).await;
    sleep(Duration::from_millis(1500)).await;
    world.network.cut(false);
    let (numbers, lost) = take(&mut subscription, 100).await;
    assert_eq!((numbers, lost), ((1..=100).collect(), 0));
    assert_eq!((reader.stats().reconnects, writer.stats().reconnects), (0, 0));
    check(&serving);
}

#[cfg_attr(not(madsim), tokio::test(start_paused = true))]
#[cfg_attr(madsim, tokio::test)]
async fn who_was_away_goes_on_with_the_record_after_its_last() {
    let mut world = World::new(Limits::default());
    let serving = world.serve();
    let (reader, writer) = (world.client().await, world.client().await);
    let options = SubscribeOptions { queue: Queue::Block, ..SubscribeOptions::default() };
    let mut subscription = within(reader.subscribe("orders", options)).await.unwrap();
    let publisher = within(writer.publisher("orders")).await.unwrap();
    assert_eq!(within(publisher.publish_acked("1")).await, Ok(1));
    assert_eq!(take(&mut subscription, 1).await, (vec![1], 0));
    // Both connections die of silence, and are made again.
    world.network.cut(true);
    until(&serving, |broker| broker.counts().0 == 0).await;
    world.network.cut(false);
    until(&serving, |broker| broker.counts() == (2, 1)).await;
    for number in 2..=20 {
        // The publisher may have been without a connection when the broker had both.
        assert_eq!(within(publisher.publish_acked("x")).await, Ok(number));
    }
    assert_eq!(take(&mut subscription, 19).await, ((2..=20).collect(), 0));
    check(&serving);
}

#[cfg_attr(not(madsim), tokio::test(start_paused = true))]
#[cfg_attr(madsim, tokio::test)]
async fn what_was_published_while_it_was_away_arrives_or_is_told_as_lost() {
    let mut world = World::new(Limits { retention_records: 8, ..Limits::default() });
    let serving = world.serve();
    let reader = world.client().await;
    let mut subscription =
        within(reader.subscribe("orders", SubscribeOptions::default())).await.unwrap();
    world.network.cut(true);
    until(&serving, |broker| broker.counts().0 == 0).await;
    world.network.cut(false);
    // Another one publishes while the first waits for its next try, or after it.
    let writer = world.client().await;
    let publisher = within(writer.publisher("orders")).await.unwrap();
    for number in 1..=30 {
        assert_eq!(within(publisher.publish_acked("x")).await, Ok(number));
    }
    let (numbers, lost) = take(&mut subscription, 30).await;
    assert_eq!(numbers.len() as u64 + lost, 30);
    assert!(numbers.is_sorted() && numbers.last() == Some(&30), "{numbers:?}");
    check(&serving);
}

#[cfg_attr(not(madsim), tokio::test(start_paused = true))]
#[cfg_attr(madsim, tokio::test)]
async fn after_a_restart_the_numbers_begin_anew_and_the_application_is_told() {
    let mut world = World::new(Limits::default());
    let serving = world.serve();
    let client = world.client().await;
    let mut subscription =
        within(client.subscribe("orders", SubscribeOptions::default())).await.unwrap();
    let publisher = within(client.publisher("orders")).await.unwrap();
    assert_eq!(within(publisher.publish_acked("1")).await, Ok(1));
    assert_eq!(take(&mut subscription, 1).await, (vec![1], 0));
    // It dies: nobody is told.
    drop(serving);
    let second = world.serve();
    until(&second, |broker| broker.counts() == (1, 1)).await;
    // What is asked while there is no connection may meet the old one.
    let mut first = within(publisher.publish_acked("2")).await;
    if first == Err(PublishError::Unknown) {
        first = within(publisher.publish_acked("2")).await;
    }
    assert_eq!(first, Ok(1));
    let mut restarted = false;
    loop {
        match next(&mut subscription).await {
            Event::Restarted { .. } => restarted = true,
            Event::Record { sequence, .. } => {
                assert_eq!(sequence, 1);
                break;
            }
            Event::Gap(_) => {}
        }
    }
    assert!(restarted, "it was not told");
    check(&second);
}

/// Publishes this until it is sequenced: what a stopping server refuses, the next one takes. One
/// that reached it after its last word was not answered, and is published again. Answers how many
/// of those there were.
async fn insist(publisher: &Publisher, number: u32) -> u64 {
    let mut unknown = 0;
    loop {
        match within(publisher.publish_acked(number.to_be_bytes().to_vec())).await {
            Ok(_) => return unknown,
            Err(PublishError::Refused(why)) => {
                let (reason, retry) = (why.reason, why.retry);
                assert_eq!((reason, retry), (Some(Reason::Shutdown), Retry::After(100)));
                sleep(Duration::from_millis(100)).await;
            }
            Err(PublishError::Unknown) => unknown += 1,
            Err(other) => panic!("a stopping server answers: {other}"),
        }
    }
}

#[cfg_attr(not(madsim), tokio::test(start_paused = true))]
#[cfg_attr(madsim, tokio::test)]
async fn when_a_server_stops_and_another_takes_over_nothing_acked_is_lost() {
    const EACH: u32 = 40;
    let mut world = World::new(lossless());
    let serving = world.serve();
    let client = world.client().await;
    let mut subscription =
        within(client.subscribe("orders", SubscribeOptions::lossless())).await.unwrap();
    let publisher = within(client.publisher("orders")).await.unwrap();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let publisher = publisher.clone();
            tokio::spawn(async move {
                let mut unknown = 0;
                for number in 0..EACH {
                    unknown += insist(&publisher, writer * EACH + number).await;
                }
                unknown
            })
        })
        .collect();
    // All along: a lossless subscription that nobody reads stops its publishers.
    let reader = tokio::spawn(async move {
        let mut seen = std::collections::BTreeSet::new();
        let (mut due, mut lives, mut again) = (1, vec![0], 0);
        while seen.len() < 4 * EACH as usize {
            match next(&mut subscription).await {
                Event::Record { sequence, payload } => {
                    assert_eq!(sequence, due);
                    due += 1;
                    *lives.last_mut().unwrap() += 1;
                    again += u64::from(!seen.insert(payload));
                }
                Event::Restarted { start, .. } => {
                    due = start;
                    lives.push(0);
                }
                Event::Gap(gap) => panic!("{gap:?}"),
            }
        }
        (lives, again)
    });
    until(&serving, |broker| broker.ledger().admitted.records >= 60).await;
    let shard = Arc::clone(serving.shard());
    within(serving.stop()).await;
    let admitted = shard.look(|broker| broker.ledger().admitted.records);
    assert!(admitted < (4 * EACH).into(), "it stopped too late");
    let second = world.serve();
    let mut unknown = 0;
    for writer in writers {
        unknown += within(writer).await.unwrap();
    }
    let (lives, again) = within(reader).await.unwrap();
    assert!(again <= unknown, "{again} came twice, {unknown} may have");
    assert_eq!(lives, [admitted, u64::from(4 * EACH) + again - admitted]);
    let stats = client.stats();
    assert_eq!((stats.unknown, stats.reconnects), (unknown, 1));
    check(&second);
}

#[cfg_attr(not(madsim), tokio::test(start_paused = true))]
#[cfg_attr(madsim, tokio::test)]
async fn a_slow_reader_slows_its_publisher_and_everything_drains() {
    let mut limits = lossless();
    limits.subscription_queue = 4;
    limits.publish_queue_depth = 4;
    limits.publish_inflight_bytes = 256 << 10;
    limits.subscription_batches = 8;
    limits.pub_queue_total = 8;
    limits.pub_queue_depth = 8;
    let mut world = World::new(limits);
    let serving = world.serve();
    let (reader, writer) = (world.client().await, world.client().await);
    let mut subscription =
        within(reader.subscribe("orders", SubscribeOptions::lossless())).await.unwrap();
    let publisher = within(writer.publisher("orders")).await.unwrap();
    let all = 400;
    let sending = tokio::spawn({
        let publisher = publisher.clone();
        async move {
            for _ in 0..all {
                publisher.publish_batch(vec![vec![7; 16 << 10].into()]).await.unwrap();
            }
        }
    });
    until(&serving, |broker| {
        let topic = broker.find_topic(tenant(broker), "orders").unwrap();
        broker.blocked_by(topic).is_some()
    })
    .await;
    sleep(Duration::from_secs(5)).await;
    assert!(!sending.is_finished(), "nothing holds the publisher");
    let (numbers, lost) = take(&mut subscription, all).await;
    assert_eq!((numbers, lost), ((1..=all).collect(), 0));
    within(sending).await.unwrap();
    check(&serving);
    assert_eq!(serving.shard().look(|broker| broker.ledger().dropped.total().records), 0);
}

/// The first and only one of these tests.
fn tenant(_: &Broker) -> sluicegate_core::TenantId {
    sluicegate_core::TenantId::from_bits(0)
}

#[cfg_attr(not(madsim), tokio::test(start_paused = true))]
#[cfg_attr(madsim, tokio::test)]
async fn a_client_that_dies_in_the_middle_leaves_nothing_behind() {
    let mut world = World::new(lossless());
    let serving = world.serve();
    let empty = serving.shard().look(|broker| broker.counts());
    let writer = world.client().await;
    let mut own = within(writer.subscribe("orders", SubscribeOptions::lossless())).await.unwrap();
    let publisher = within(writer.publisher("orders")).await.unwrap();
    for _ in 0..20 {
        within(publisher.publish(vec![7; 60_000])).await.unwrap();
    }
    assert!(matches!(next(&mut own).await, Event::Record { sequence: 1, .. }));
    // The machine is gone: it says nothing more.
    world.network.cut(true);
    until(&serving, |broker| broker.counts() == empty).await;
    check(&serving);
    serving.shard().look(|broker| {
        let books = broker.ledger();
        assert_eq!(books.expected.records, books.delivered.records + books.left.records);
        assert_eq!(books.waiting.records, 0);
    });
}

#[cfg_attr(not(madsim), tokio::test(start_paused = true))]
#[cfg_attr(madsim, tokio::test)]
async fn futures_that_are_dropped_at_any_poll_leave_the_window_whole() {
    let limits =
        Limits { publish_inflight_bytes: 64 << 10, publish_queue_depth: 2, ..Limits::default() };
    let mut world = World::new(limits);
    let serving = world.serve();
    let client = world.client().await;
    let publisher = within(client.publisher("orders")).await.unwrap();
    for round in 0..200_u32 {
        // Polled so many times and dropped.
        let polls = round % 4;
        let record = vec![7; 9_000];
        let mut future = pin!(async {
            if round % 2 == 0 {
                publisher.publish(record).await
            } else {
                publisher.publish_acked(record).await.map(|_| ())
            }
        });
        let mut left = polls;
        std::future::poll_fn(|context| {
            while left > 0 {
                left -= 1;
                if future.as_mut().poll(context).is_ready() {
                    break;
                }
            }
            Poll::Ready(())
        })
        .await;
        if round % 8 == 0 {
            sleep(Duration::from_millis(3)).await;
        }
    }
    // All of the window is there again: a batch of its size goes through, with an answer.
    let batch = vec![vec![7; 60_000].into()];
    assert!(within(publisher.publish_batch_acked(batch, true)).await.is_ok());
    within(client.close()).await;
    check(&serving);
}

#[cfg_attr(not(madsim), tokio::test(start_paused = true))]
#[cfg_attr(madsim, tokio::test)]
async fn a_subscription_that_is_dropped_ends_at_the_broker() {
    let mut world = World::new(Limits::default());
    let serving = world.serve();
    let client = world.client().await;
    let options = SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() };
    let subscription = within(client.subscribe("quiet", options)).await.unwrap();
    assert_eq!(serving.shard().look(Broker::counts), (1, 1));
    drop(subscription);
    until(&serving, |broker| broker.counts() == (1, 0)).await;
    // The last handle is gone: so is the connection.
    drop(client);
    until(&serving, |broker| broker.counts() == (0, 0)).await;
}

#[cfg_attr(not(madsim), tokio::test(start_paused = true))]
#[cfg_attr(madsim, tokio::test)]
async fn a_client_without_a_server_can_be_closed_at_once() {
    let mut world = World::new(Limits::default());
    let serving = world.serve();
    let client = world.client().await;
    let publisher = within(client.publisher("orders")).await.unwrap();
    world.network.cut(true);
    // The client has noticed when it gives up an answer.
    assert_eq!(within(publisher.publish_acked("x")).await, Err(PublishError::Unknown));
    sleep(Duration::from_secs(3)).await;
    // Less than a try to connect may take.
    timeout(Duration::from_secs(1), client.close()).await.expect("it waits for a server");
    assert_eq!(within(publisher.publish_acked("x")).await, Err(PublishError::Closed));
    drop(serving);
}
