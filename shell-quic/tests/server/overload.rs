//! Too much for somebody: who waits, who loses what, and who is told.

use crate::support::{Dial, Item, Peer, SLOW, Stage, Sub, is, never, publish, send, set, within};
use quinn::SendStream;
use sluicegate_core::{Place, Reason};
use sluicegate_quic::access::Tenant;
use sluicegate_quic::settings::Settings;
use sluicegate_wire::quic::{Mode, Policy, Start, reset_code};

const RECORD: [u8; 1 << 10] = [7; 1 << 10];

/// A peer that publishes to a topic.
struct Writer {
    peer: Peer,
    stream: SendStream,
    topic: u32,
}

impl Writer {
    async fn new(stage: &Stage, name: &str) -> Self {
        Self::of(stage.join().await, name).await
    }

    async fn of(mut peer: Peer, name: &str) -> Self {
        let topic = peer.bind(name).await;
        let stream = peer.publisher().await;
        Self { peer, stream, topic }
    }

    /// Publishes so many batches of one record, each after the last one has its number.
    async fn write(&mut self, batches: u64) {
        for request in 0..batches {
            let bytes = publish(self.topic, Mode::Acked { request }, &[RECORD]);
            send(&mut self.stream, &bytes).await;
            self.peer.acked(request).await;
        }
    }

    /// Publishes so many batches of one record as fast as they are taken.
    fn pour(mut self, batches: u64) -> tokio::task::JoinHandle<Self> {
        tokio::spawn(async move {
            let bytes = publish(self.topic, Mode::Unacked, &[RECORD]);
            for _ in 0..batches {
                self.stream.write_all(&bytes).await.unwrap();
            }
            self
        })
    }
}

/// A peer that does not read yet, with a subscription of few batches.
async fn slow(stage: &Stage, policy: Policy, batches: u32) -> (Peer, Sub) {
    let mut peer = stage.join_by(SLOW).await;
    let topic = peer.bind("t").await;
    let sub = peer.subscribe_some(topic, policy, batches, Start::Tail).await;
    (peer, sub)
}

#[tokio::test]
async fn drop_new_loses_what_finds_no_room_and_says_so() {
    let stage = Stage::usual();
    let mut reader = stage.join().await;
    let topic = reader.bind("t").await;
    let mut fast = reader.subscribe(topic, Policy::DropNew, Start::Tail).await;
    let (_peer, mut sub) = slow(&stage, Policy::DropNew, 4).await;
    let mut writer = Writer::new(&stage, "t").await;
    let reading = tokio::spawn(async move { fast.events.read_until(1, 200).await });
    writer.write(200).await;
    let untouched = within(reading).await.unwrap();
    assert_eq!((untouched.came.len(), untouched.lost), (200, 0), "another reader lost something");
    let lost = stage.books().dropped.get(Place::Backlog, Reason::DropNew).records;
    assert!(lost > 150, "{lost}");
    // It is told when it reads again, and before the records of later.
    let read = sub.events.read_until(1, 200).await;
    assert_eq!((read.came.len() as u64, read.lost), (200 - lost, lost));
    assert!(is(read.why.unwrap(), Place::Backlog, Reason::DropNew), "{read:?}");
    writer.write(1).await;
    assert_eq!(sub.events.item().await, Item::Records(201, vec![RECORD.to_vec()]));
    let books = stage.books();
    assert_eq!(books.expected.records, books.delivered.records + lost);
    assert_eq!(books.dropped.total().records, lost);
    stage.settle().await;
}

#[tokio::test]
async fn drop_old_always_brings_the_newest() {
    let stage = Stage::usual();
    let (_peer, mut sub) = slow(&stage, Policy::DropOld, 4).await;
    let (_other, mut latest) = slow(&stage, Policy::Latest, 0).await;
    let mut writer = Writer::new(&stage, "t").await;
    writer.write(200).await;
    for (events, most) in [(&mut sub.events, 4), (&mut latest.events, 1)] {
        let read = events.read_until(1, 200).await;
        assert_eq!(read.came.len() as u64 + read.lost, 200);
        let newest: Vec<u64> = (201 - most..=200).collect();
        assert!(read.came.ends_with(&newest), "{read:?}");
        assert!(is(read.why.unwrap(), Place::Backlog, Reason::DropOld), "{read:?}");
    }
    stage.settle().await;
    let books = stage.books();
    assert_eq!(books.expected.records, books.delivered.records + books.dropped.total().records);
}

#[tokio::test]
async fn lossless_the_publisher_is_paused_by_the_windows_and_nothing_is_lost() {
    let tenants = vec![Tenant::open("default"), Tenant::open("other")];
    let settings = Settings { tenants, ..Settings::default() };
    let stage = Stage::new(set(&[("lossless", 1), ("subscription_batches", 16)]), settings);
    let (_peer, mut sub) = slow(&stage, Policy::Default, 0).await;
    let peer = stage.gate.dial(Dial::default()).await.hello("other", "").await;
    let mut other = Writer::of(peer, "t").await;
    let writer = Writer::new(&stage, "t").await;
    // More than all windows and queues on the way hold together.
    let batches = 4_000;
    let writing = writer.pour(batches);
    stage.until("the publisher to be paused", |broker| broker.jobs().1 > 0).await;
    let (id, sub_of) = (stage.topic("t"), |broker: &sluicegate_core::Broker, id| {
        broker.blocked_by(id).and_then(|sub| broker.sub_books(sub))
    });
    let holder = stage.shard.look(|broker| sub_of(broker, id)).expect("who holds it is named");
    assert!(holder.lag.records >= 16, "{holder:?}");
    let named = stage.shard.blocked();
    assert!(matches!(&named[..], [one] if one.topic == "t" && one.subscription == 0), "{named:?}");
    // Another tenant is not held.
    other.write(20).await;
    assert!(!writing.is_finished(), "the windows did not stop the publisher");
    let read = sub.events.read_until(1, batches).await;
    assert_eq!((read.came.len() as u64, read.lost), (batches, 0));
    within(writing).await.unwrap();
    stage.settle().await;
    let books = stage.books();
    assert_eq!(books.delivered.records, batches, "{:?}", books.columns());
    let lost = [books.shed.total(), books.refused.total(), books.dropped.total()];
    assert!(lost.iter().all(|tally| tally.is_zero()), "{:?}", books.columns());
}

#[tokio::test]
async fn a_block_subscription_that_never_reads_is_named_and_ended_at_its_deadline() {
    let stage = Stage::with(&[("allow_block", 1), ("block_deadline_ms", 400)]);
    let (peer, mut sub) = slow(&stage, Policy::Block, 4).await;
    let writer = Writer::new(&stage, "t").await;
    let writing = writer.pour(40);
    let id = stage.topic("t");
    stage.until("the holder to be named", |broker| broker.blocked_by(id).is_some()).await;
    // It is told why past what it does not read; its connection stays.
    let code = within(sub.events.stream.received_reset()).await.unwrap().unwrap();
    let due = reset_code(Place::Backlog.code(), Reason::Deadline.code());
    assert_eq!(code.into_inner(), u64::from(due));
    within(writing).await.unwrap();
    stage.until("nobody to be held", |broker| broker.counts().1 == 0).await;
    stage.until("all to be sequenced", |broker| broker.ledger().sequenced.records == 40).await;
    assert!(peer.link.close_reason().is_none());
    // What it was offered has left, and is in no other column.
    let books = stage.books();
    let parts = books.delivered.records + books.dropped.total().records + books.left.records;
    assert_eq!(parts, books.expected.records, "{:?}", books.columns());
    assert!(parts >= 4);
    stage.settle().await;
}

#[tokio::test]
async fn a_subscriber_that_takes_no_byte_is_ended_as_a_slow_consumer() {
    let stage = Stage::with(&[("slow_consumer_after_ms", 300)]);
    let (_peer, mut sub) = slow(&stage, Policy::DropOld, 4).await;
    let mut writer = Writer::new(&stage, "t").await;
    writer.write(40).await;
    let code = within(sub.events.stream.received_reset()).await.unwrap().unwrap();
    let due = reset_code(Place::Backlog.code(), Reason::SlowConsumer.code());
    assert_eq!(code.into_inner(), u64::from(due));
    stage.until("its place to be free", |broker| broker.counts().1 == 0).await;
    stage.settle().await;
}

/// A burst of 400 unacked messages for a topic that a stalled subscriber holds.
async fn burst(stage: &Stage) -> (Writer, Peer, Sub) {
    let (peer, sub) = slow(stage, Policy::Block, 16).await;
    let writer = Writer::new(stage, "t").await;
    let writing = writer.pour(400);
    stage
        .until("the topic to be held", |broker| {
            broker
                .find_topic(sluicegate_core::TenantId::from_bits(0), "t")
                .is_some_and(|topic| broker.blocked_by(topic).is_some())
        })
        .await;
    (within(writing).await.unwrap(), peer, sub)
}

#[tokio::test]
async fn a_burst_into_a_held_topic_is_shed_and_its_publisher_knows_how_much() {
    let stage = Stage::with(&[("allow_block", 1), ("block_deadline_ms", 0)]);
    let (mut writer, _peer, mut sub) = burst(&stage).await;
    stage.until("all to come", |broker| broker.ledger().offered.records == 400).await;
    let shed = stage.books().shed.get(Place::Schedule, Reason::QueueFull).records;
    assert!(shed > 100, "{shed}");
    let mut told = 0;
    while told < shed {
        let (records, why) = writer.peer.shed().await;
        assert_eq!(why, never(Place::Schedule, Reason::QueueFull));
        told += records;
    }
    // What was not shed comes, and nothing else is missing.
    let read = sub.events.read_until(1, 400 - shed).await;
    assert_eq!((told, read.came.len() as u64, read.lost), (shed, 400 - shed, 0));
    writer.write(1).await;
    let next = Item::Records(400 - shed + 1, vec![RECORD.to_vec()]);
    assert_eq!(sub.events.item().await, next);
    stage.settle().await;
}

#[tokio::test]
async fn a_burst_that_waits_at_the_door_loses_nothing() {
    let limits = [("allow_block", 1), ("block_deadline_ms", 0), ("pub_ingress_wait", 1)];
    let stage = Stage::with(&limits);
    let (_writer, _peer, mut sub) = burst(&stage).await;
    stage.until("the publisher to be paused", |broker| broker.jobs().1 > 0).await;
    let read = sub.events.read_until(1, 400).await;
    assert_eq!((read.came.len(), read.lost), (400, 0));
    stage.settle().await;
    let books = stage.books();
    assert!(
        books.shed.total().is_zero() && books.refused.total().is_zero(),
        "{:?}",
        books.columns()
    );
    assert_eq!((books.offered.records, books.delivered.records), (400, 400));
}

#[tokio::test]
async fn a_stalled_subscription_delays_no_other_of_its_connection() {
    let stage = Stage::usual();
    let mut peer = stage.join_by(SLOW).await;
    let (full, free) = (peer.bind("t").await, peer.bind("free").await);
    let stalled = peer.subscribe(full, Policy::DropOld, Start::Tail).await;
    let mut sub = peer.subscribe(free, Policy::DropNew, Start::Tail).await;
    Writer::new(&stage, "t").await.write(100).await;
    let mut writer = Writer::new(&stage, "free").await;
    for number in 1..=50 {
        writer.write(1).await;
        assert_eq!(sub.events.item().await, Item::Records(number, vec![RECORD.to_vec()]));
    }
    peer.is_heard(1).await;
    assert!(stage.books().lag.records > 50, "it was not stalled");
    drop(stalled);
    stage.settle().await;
}
