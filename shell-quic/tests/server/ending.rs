//! Ends: a client that is gone without a word, and a server that stops.

use crate::support::{Item, Peer, SLOW, Stage, Sub, is, never, publish, send, set, until, within};
use quinn::{ConnectionError, SendStream};
use sluicegate_core::{Limits, Place, Reason};
use sluicegate_host::metrics::Unconfirmed;
use sluicegate_quic::settings::Settings;
use sluicegate_quic::transport::SEND_WINDOW;
use sluicegate_wire::quic::{Frame, Mode, Policy, Start, decode};
use std::time::Duration;

const RECORD: [u8; 1 << 10] = [7; 1 << 10];

fn short(limits: Limits) -> Stage {
    let farewell = Duration::from_millis(300);
    Stage::new(limits, Settings { idle_timeout_ms: 600, farewell, ..Settings::default() })
}

async fn writer(stage: &Stage) -> (Peer, SendStream, u32) {
    let mut peer = stage.join().await;
    let topic = peer.bind("t").await;
    let stream = peer.publisher().await;
    (peer, stream, topic)
}

async fn slow(stage: &Stage, policy: Policy) -> (Peer, Sub) {
    let mut peer = stage.join_by(SLOW).await;
    let topic = peer.bind("t").await;
    let sub = peer.subscribe(topic, policy, Start::Tail).await;
    (peer, sub)
}

async fn write((peer, stream, topic): &mut (Peer, SendStream, u32), batches: u64) {
    for request in 0..batches {
        send(stream, &publish(*topic, Mode::Acked { request }, &[RECORD])).await;
        peer.acked(request).await;
    }
}

#[tokio::test]
async fn a_client_that_dies_with_full_queues_leaves_nothing_behind() {
    let stage = short(set(&[("lossless", 1), ("subscription_batches", 16)]));
    // Somebody stays, so that the topic does.
    let (mut bystander, ..) = writer(&stage).await;
    let held = stage.shard.look(|broker| broker.held());
    let (reader, _sub) = slow(&stage, Policy::Block).await;
    let (dying, mut stream, topic) = writer(&stage).await;
    let pouring = tokio::spawn(async move {
        let bytes = publish(topic, Mode::Waiting { request: 1 }, &[RECORD]);
        while stream.write_all(&bytes).await.is_ok() {}
    });
    stage.until("the publisher to be paused", |broker| broker.jobs().1 > 0).await;
    // The publisher first: what it had parked is refused, what was admitted still runs.
    dying.die();
    stage.until("the publisher to be missed", |broker| broker.counts().0 == 2).await;
    stage.until("nothing to be parked", |broker| broker.jobs().1 == 0).await;
    stage.settle().await;
    reader.die();
    stage.until("the reader to be missed", |broker| broker.counts() == (1, 0)).await;
    stage
        .until("permits to be back", |broker| {
            (broker.inflight(), broker.jobs()) == (0, (0, 0)) && broker.held() == held
        })
        .await;
    stage.settle().await;
    let books = stage.books();
    assert!(books.lag.is_zero() && books.left.records >= 16, "{:?}", books.columns());
    assert_eq!(books.expected.records, books.delivered.records + books.left.records);
    // Of what was delivered the transport has no word that it arrived.
    let Unconfirmed { connections, bytes } = stage.shard.unconfirmed();
    assert_eq!(connections, 1, "only one of them was a subscriber");
    assert!(bytes >= books.delivered.bytes && bytes <= SEND_WINDOW, "{bytes}");
    bystander.is_heard(1).await;
    drop(pouring);
}

#[tokio::test]
async fn what_a_peer_has_acknowledged_or_did_not_want_is_confirmed() {
    let stage = short(Limits::default());
    let mut writer = writer(&stage).await;
    // One who takes its leave, one whose subscription had ended long before it died, and one who
    // dies with what it had been sent.
    let mut peers = Vec::new();
    for _ in 0..3 {
        let mut peer = stage.join().await;
        let topic = peer.bind("t").await;
        let sub = peer.subscribe(topic, Policy::DropNew, Start::Tail).await;
        peers.push((peer, sub));
    }
    write(&mut writer, 10).await;
    for (_, sub) in &mut peers {
        assert_eq!(sub.events.read_until(1, 10).await.came.len(), 10);
    }
    let [(leaving, _first), (mut ended, mut sub), (dying, _last)] =
        peers.try_into().map_err(|_| ()).unwrap();
    leaving.link.close(crate::support::code(0), b"");
    ended.say(&Frame::Unsubscribe { subscription: sub.number }).await;
    assert_eq!(sub.events.item().await, Item::Ended(never(Place::Table, Reason::Closed)));
    assert_eq!(sub.events.item().await, Item::End);
    // Acknowledgements take their time.
    until("its acknowledgement", || stage.shard.parting() == 0).await;
    ended.is_heard(1).await;
    stage.until("one to be gone", |broker| broker.counts() == (3, 1)).await;
    ended.die();
    dying.die();
    stage.until("the others to be missed", |broker| broker.counts().0 == 1).await;
    let Unconfirmed { connections, bytes } = stage.shard.unconfirmed();
    assert_eq!(connections, 1);
    assert!((10 << 10..12 << 10).contains(&bytes), "{bytes}");
    stage.settle().await;
}

#[tokio::test]
async fn at_the_end_everything_that_was_admitted_is_delivered() {
    // It ends when all is delivered, and not with the grace.
    let stage = short(set(&[("shutdown_grace_ms", 600_000)]));
    let (mut reader, mut sub) = slow(&stage, Policy::DropNew).await;
    let mut writer = writer(&stage).await;
    write(&mut writer, 100).await;
    let shard = std::sync::Arc::clone(&stage.shard);
    let endpoint = stage.endpoint();
    let stopping = stage.stop();
    let go_away = reader.control.next().await.unwrap();
    assert_eq!(decode(&go_away), Ok(Some(Frame::GoAway { grace_ms: 600_000 })));
    // What comes now is refused.
    let (peer, stream, topic) = &mut writer;
    let frame = peer.control.next().await.unwrap();
    assert_eq!(decode(&frame), Ok(Some(Frame::GoAway { grace_ms: 600_000 })));
    send(stream, &publish(*topic, Mode::Acked { request: 500 }, &["late"])).await;
    let why = peer.refused(500).await;
    assert!(is(why, Place::Admission, Reason::Shutdown), "{why:?}");
    // The reader begins to read only now.
    let read = sub.events.read_until(1, 100).await;
    assert_eq!((read.came.len(), read.lost), (100, 0));
    assert_eq!(sub.events.item().await, Item::Ended(never(Place::Egress, Reason::Shutdown)));
    assert_eq!(sub.events.item().await, Item::End);
    assert_eq!((reader.closed().await, peer.closed().await), (0, 0));
    within(stopping).await.unwrap();
    let books = shard.look(|broker| broker.ledger().clone());
    assert_eq!((books.expected.records, books.delivered.records), (100, 100));
    assert_eq!(shard.look(|broker| broker.counts()), (0, 0));
    assert_eq!(endpoint.open_connections(), 0);
    assert_eq!(shard.unconfirmed(), Unconfirmed::default(), "it was all acknowledged");
}

#[tokio::test]
async fn who_never_reads_does_not_hold_up_the_end() {
    let stage = short(set(&[("shutdown_grace_ms", 200)]));
    let (reader, sub) = slow(&stage, Policy::DropNew).await;
    let mut writer = writer(&stage).await;
    write(&mut writer, 100).await;
    let shard = std::sync::Arc::clone(&stage.shard);
    within(stage.stop()).await.unwrap();
    assert!(matches!(reader.link.closed().await, ConnectionError::ApplicationClosed(close)
        if close.error_code.into_inner() == 0));
    until("books without lag", || {
        shard.look(|broker| broker.counts() == (0, 0) && broker.ledger().lag.is_zero())
    })
    .await;
    let books = shard.look(|broker| broker.ledger().clone());
    let dropped = books.dropped.get(Place::Egress, Reason::Shutdown).records;
    assert!(dropped > 50, "{:?}", books.columns());
    let parts = books.delivered.records + books.left.records + dropped;
    assert_eq!((books.expected.records, parts), (100, 100));
    drop(sub);
}
