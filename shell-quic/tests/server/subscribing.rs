//! Subscriptions: where they begin, how they end, and how many there may be.

use crate::support::{Dial, Item, Peer, Reader, Stage, Sub, is, never, publish, send, within};
use quinn::SendStream;
use sluicegate_core::{Place, Reason};
use sluicegate_wire::quic::{Frame, Mode, Policy, Start};

/// A writer, its stream and its number for a topic.
async fn writer(stage: &Stage, name: &str) -> (Peer, SendStream, u32) {
    let mut peer = stage.join().await;
    let topic = peer.bind(name).await;
    let stream = peer.publisher().await;
    (peer, stream, topic)
}

/// Publishes records `from..=to` of a topic, each in a batch of its own, and waits until they have
/// their numbers.
async fn write((peer, stream, topic): &mut (Peer, SendStream, u32), from: u64, to: u64) {
    for request in from..=to {
        let record = request.to_string();
        send(stream, &publish(*topic, Mode::Acked { request }, &[record])).await;
        assert_eq!(peer.acked(request).await, request);
    }
}

fn record(number: u64) -> Item {
    Item::Records(number, vec![number.to_string().into_bytes()])
}

#[tokio::test]
async fn a_subscription_begins_where_it_asked() {
    let stage = Stage::with(&[("retention_records", 6)]);
    let mut writer = writer(&stage, "t").await;
    write(&mut writer, 1, 10).await;
    let mut reader = stage.join().await;
    let topic = reader.bind("t").await;
    let tail = reader.subscribe(topic, Policy::Default, Start::Tail).await;
    let epoch = tail.epoch;
    assert_ne!(epoch, 0);
    let mut subs = vec![(Start::Tail, 11, tail)];
    for (start, first) in [
        (Start::Earliest, 5),
        (Start::Last(2), 9),
        (Start::Last(100), 5),
        (Start::At { epoch, sequence: 8 }, 8),
        (Start::At { epoch, sequence: 11 }, 11),
    ] {
        let sub = reader.subscribe(topic, Policy::Default, start).await;
        assert_eq!((sub.epoch, sub.start), (epoch, first), "{start:?}");
        subs.push((start, first, sub));
    }
    write(&mut writer, 11, 12).await;
    for (start, first, Sub { mut events, .. }) in subs {
        for number in first..=12 {
            assert_eq!(events.item().await, record(number), "{start:?}");
        }
    }
    stage.settle().await;
}

#[tokio::test]
async fn what_the_log_lost_is_a_gap_before_the_first_record() {
    let stage = Stage::with(&[("retention_records", 4)]);
    let mut writer = writer(&stage, "t").await;
    write(&mut writer, 1, 10).await;
    let mut reader = stage.join().await;
    let topic = reader.bind("t").await;
    let epoch = reader.subscribe(topic, Policy::Default, Start::Tail).await.epoch;
    let start = Start::At { epoch, sequence: 3 };
    let mut sub = reader.subscribe(topic, Policy::Default, start).await;
    let Item::Gap { first, last, records, why } = sub.events.item().await else { panic!() };
    assert_eq!((first, last, records), (3, 6, 4));
    assert!(is(why, Place::Backlog, Reason::Retention), "{why:?}");
    for number in 7..=10 {
        assert_eq!(sub.events.item().await, record(number));
    }
    stage.settle().await;
}

#[tokio::test]
async fn of_another_epoch_all_that_is_held_comes_after_a_gap() {
    let stage = Stage::with(&[("retention_records", 6)]);
    let mut writer = writer(&stage, "t").await;
    write(&mut writer, 1, 10).await;
    let mut reader = stage.join().await;
    let topic = reader.bind("t").await;
    let epoch = reader.subscribe(topic, Policy::Default, Start::Tail).await.epoch;
    let start = Start::At { epoch: epoch ^ 1, sequence: 8 };
    let mut sub = reader.subscribe(topic, Policy::Default, start).await;
    assert_eq!(sub.epoch, epoch);
    let Item::Gap { first, last, records, why } = sub.events.item().await else { panic!() };
    assert_eq!((first, last, records), (1, 4, 4));
    assert!(is(why, Place::Backlog, Reason::Retention), "{why:?}");
    for number in 5..=10 {
        assert_eq!(sub.events.item().await, record(number));
    }
    stage.settle().await;
}

#[tokio::test]
async fn a_policy_that_is_not_allowed_is_refused_and_the_others_are_not() {
    let stage = Stage::usual();
    let mut writer = writer(&stage, "t").await;
    let mut reader = stage.join().await;
    let topic = reader.bind("t").await;
    let request = reader.ask(topic, Policy::Block, 0, Start::Tail).await;
    assert_eq!(reader.refused(request).await, never(Place::Backlog, Reason::NotAllowed));
    let mut subs = Vec::new();
    for policy in [Policy::Default, Policy::DropNew, Policy::DropOld, Policy::Latest] {
        subs.push(reader.subscribe(topic, policy, Start::Tail).await);
    }
    write(&mut writer, 1, 3).await;
    for sub in &mut subs {
        for number in 1..=3 {
            assert_eq!(sub.events.item().await, record(number));
        }
    }
    stage.settle().await;
}

#[tokio::test]
async fn nothing_is_opened_for_a_subscribe_that_is_refused() {
    let stage = Stage::usual();
    let mut reader = stage.join().await;
    let topic = reader.bind("t").await;
    for _ in 0..3 {
        let request = reader.ask(topic, Policy::Block, 0, Start::Tail).await;
        reader.refused(request).await;
    }
    // The first stream that comes is the one of the first subscription that is granted.
    let sub = reader.subscribe(topic, Policy::Default, Start::Tail).await;
    assert_eq!(sub.start, 1);
    stage.settle().await;
}

#[tokio::test]
async fn an_unsubscribe_ends_the_stream_after_what_was_on_its_way() {
    let stage = Stage::usual();
    let mut writer = writer(&stage, "t").await;
    let mut reader = stage.join().await;
    let topic = reader.bind("t").await;
    let mut sub = reader.subscribe(topic, Policy::Default, Start::Tail).await;
    let mut other = reader.subscribe(topic, Policy::Default, Start::Tail).await;
    write(&mut writer, 1, 2).await;
    assert_eq!(sub.events.item().await, record(1));
    reader.say(&Frame::Unsubscribe { subscription: sub.number }).await;
    reader.is_heard(1).await;
    write(&mut writer, 3, 4).await;
    assert_eq!(sub.events.item().await, record(2));
    let ended = Item::Ended(never(Place::Table, Reason::Closed));
    assert_eq!(sub.events.item().await, ended);
    assert_eq!(sub.events.item().await, Item::End);
    for number in 1..=4 {
        assert_eq!(other.events.item().await, record(number));
    }
    stage.until("its slot to be free", |broker| broker.counts().1 == 1).await;
    stage.settle().await;
}

#[tokio::test]
async fn what_waits_for_a_subscription_that_its_client_ends_has_left() {
    let stage = Stage::usual();
    let mut writer = writer(&stage, "t").await;
    let mut reader = stage.join_by(crate::support::SLOW).await;
    let topic = reader.bind("t").await;
    let mut sub = reader.subscribe(topic, Policy::Default, Start::Tail).await;
    let record = vec![7; 1 << 10];
    for request in 1..=100 {
        let bytes = publish(writer.2, Mode::Acked { request }, &[&record]);
        send(&mut writer.1, &bytes).await;
        writer.0.acked(request).await;
    }
    reader.say(&Frame::Unsubscribe { subscription: sub.number }).await;
    reader.is_heard(1).await;
    let mut came = 0;
    let ended = loop {
        match sub.events.item().await {
            Item::Records(..) => came += 1,
            other => break other,
        }
    };
    assert_eq!(ended, Item::Ended(never(Place::Table, Reason::Closed)));
    assert_eq!(sub.events.item().await, Item::End);
    let books = stage.books();
    assert!(books.left.records > 50, "{books:?}");
    assert_eq!((books.expected.records, books.delivered.records), (100, came));
    assert_eq!(books.left.records, 100 - came);
    stage.settle().await;
}

#[tokio::test]
async fn a_stream_that_is_stopped_frees_its_place_even_when_nothing_is_published() {
    let stage = Stage::usual();
    let mut reader = stage.join().await;
    let topic = reader.bind("t").await;
    let held = stage.shard.look(|broker| broker.held());
    for _ in 0..3 {
        let mut sub = reader.subscribe(topic, Policy::Default, Start::Tail).await;
        assert_eq!(stage.shard.look(|broker| broker.counts()), (1, 1));
        sub.events.stream.stop(crate::support::code(1)).unwrap();
        stage.until("its slot to be free", |broker| broker.counts() == (1, 0)).await;
    }
    stage.settle().await;
    assert_eq!(stage.shard.look(|broker| broker.held()), held);
    reader.is_heard(1).await;
}

#[tokio::test]
async fn who_grants_no_stream_is_refused_at_once() {
    let stage = Stage::usual();
    let mut reader = stage.join_by(Dial { streams: 2, ..Dial::default() }).await;
    let topic = reader.bind("t").await;
    let mut subs = Vec::new();
    for _ in 0..2 {
        subs.push(reader.subscribe(topic, Policy::Default, Start::Tail).await);
    }
    let request = reader.ask(topic, Policy::Default, 0, Start::Tail).await;
    let why = reader.refused(request).await;
    assert!(is(why, Place::Table, Reason::Limit), "{why:?}");
    assert_eq!(stage.shard.look(|broker| broker.counts()), (1, 2));
    // A stream that ends makes room for another.
    let Sub { mut events, number, .. } = subs.remove(0);
    reader.say(&Frame::Unsubscribe { subscription: number }).await;
    assert_eq!(events.item().await, Item::Ended(never(Place::Table, Reason::Closed)));
    assert_eq!(events.item().await, Item::End);
    drop(events);
    within(async {
        loop {
            let request = reader.ask(topic, Policy::Default, 0, Start::Tail).await;
            let link = reader.link.clone();
            tokio::select! {
                biased;
                stream = link.accept_uni() => {
                    let mut sub = Reader::new(stream.unwrap());
                    assert!(matches!(sub.item().await, Item::Subscribed { .. }));
                    return;
                }
                why = reader.control.next() => assert!(why.is_some(), "{request}"),
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_connection_has_4096_subscriptions_and_not_one_more() {
    let stage = Stage::usual();
    let mut writer = writer(&stage, "t").await;
    let mut reader = stage.join().await;
    let topic = reader.bind("t").await;
    let mut subs = Vec::new();
    for _ in 0..4096 {
        subs.push(reader.subscribe(topic, Policy::Default, Start::Tail).await);
    }
    let request = reader.ask(topic, Policy::Default, 0, Start::Tail).await;
    assert_eq!(reader.refused(request).await, never(Place::Table, Reason::Limit));
    write(&mut writer, 1, 1).await;
    for sub in &mut subs {
        assert_eq!(sub.events.item().await, record(1));
    }
    // One that ends makes room.
    let last = subs.pop().unwrap();
    reader.say(&Frame::Unsubscribe { subscription: last.number }).await;
    stage.until("room", |broker| broker.counts().1 == 4095).await;
    drop(last);
    reader.subscribe(topic, Policy::Default, Start::Tail).await;
    stage.settle().await;
}
