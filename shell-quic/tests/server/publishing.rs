//! Publishes and their answers.

use crate::hello::{SECRET, tenant};
use crate::support::{Dial, Item, Stage, is, never, publish, send, within};
use sluicegate_core::{Broker, Limits, Place, Reason};
use sluicegate_quic::settings::Settings;
use sluicegate_wire::quic::{Frame, Mode, PUBLISH_HEAD, Policy, Retry, Start, decode};
use std::collections::BTreeMap;

#[tokio::test]
async fn a_record_goes_from_one_peer_to_another() {
    let stage = Stage::usual();
    let (mut reader, mut writer) = (stage.join().await, stage.join().await);
    let topic = reader.bind("orders").await;
    let mut sub = reader.subscribe(topic, Policy::Default, Start::Tail).await;
    assert_eq!(sub.start, 1);
    let topic = writer.bind("orders").await;
    let mut stream = writer.publisher().await;
    send(&mut stream, &publish(topic, Mode::Acked { request: 9 }, &["one", "two"])).await;
    assert_eq!(writer.acked(9).await, 1);
    let records = vec![b"one".to_vec(), b"two".to_vec()];
    assert_eq!(sub.events.item().await, Item::Records(1, records));
    stage.settle().await;
}

#[tokio::test]
async fn the_longest_frame_is_held_until_a_slow_reader_has_taken_it() {
    const LEN: usize = (16 << 20) - PUBLISH_HEAD - 4;
    let stage = Stage::usual();
    let mut writer = stage.join().await;
    let topic = writer.bind("long").await;
    let mut reader = stage.join_by(Dial { streams: 16, window: 64 << 10 }).await;
    let number = reader.bind("long").await;
    let mut sub = reader.subscribe(number, Policy::Default, Start::Tail).await;
    stage.settle().await;
    let held = stage.shard.look(Broker::held);
    let record: Vec<u8> = (0..LEN).map(|at| u8::try_from(at * 31 / 7 % 251).unwrap()).collect();
    let mut stream = writer.publisher().await;
    send(&mut stream, &publish(topic, Mode::Acked { request: 1 }, &[&record])).await;
    assert_eq!(writer.acked(1).await, 1);
    // Its first chunk has arrived, and the stream has no room for the others.
    let first = within(sub.events.stream.read_chunk(1, true)).await.unwrap().unwrap();
    sub.events.put_back(first.bytes);
    let books = stage.books();
    assert_eq!((books.delivered.records, books.lag.records), (0, 1));
    assert!(stage.shard.look(Broker::held) >= held + LEN as u64, "it is not all written");
    let item = sub.events.item().await;
    assert!(item == Item::Records(1, vec![record]), "it came otherwise than it went");
    stage.until("it to be settled", |broker| broker.ledger().delivered.records == 1).await;
    stage.settle().await;
    let books = stage.books();
    assert_eq!(books.delivered.bytes, books.expected.bytes);
    assert!(books.delivered.bytes >= LEN as u64 && books.lag.is_zero(), "{:?}", books.columns());
    stream.finish().unwrap();
    stage.until("its memory to be free", |broker| broker.held() == held).await;
}

#[tokio::test]
async fn every_request_is_answered_once_with_the_number_of_its_first_record() {
    let stage = Stage::usual();
    let mut writer = stage.join().await;
    let topic = writer.bind("orders").await;
    // Several streams at once, and all modes; answers may come in any order.
    let mut streams = Vec::new();
    for _ in 0..4 {
        streams.push(writer.publisher().await);
    }
    let mut sizes = BTreeMap::new();
    for round in 0..16_u64 {
        for (at, stream) in streams.iter_mut().enumerate() {
            let request = 4 * round + at as u64;
            let records = vec!["r"; 1 + at];
            let mode = match at {
                0 => Mode::Unacked,
                1 => Mode::Acked { request },
                _ => Mode::Waiting { request },
            };
            if at > 0 {
                sizes.insert(request, records.len() as u64);
            }
            send(stream, &publish(topic, mode, &records)).await;
        }
    }
    let mut spans = Vec::new();
    while spans.len() < 48 {
        let frame = writer.control.next().await.unwrap();
        let Ok(Some(Frame::Ack { request, first })) = decode(&frame) else { panic!("{frame:x?}") };
        let size = sizes.remove(&request).expect("answered once");
        spans.push((first, first + size));
    }
    spans.sort_unstable();
    assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{spans:?}");
    let all = 16 * (1 + 2 + 3 + 4);
    stage.until("all to be sequenced", |broker| broker.ledger().sequenced.records == all).await;
    writer.is_heard(1).await;
    stage.settle().await;
}

#[tokio::test]
async fn a_publish_larger_than_a_window_arrives_whole() {
    let stage = Stage::usual();
    let (mut reader, mut writer) = (stage.join().await, stage.join().await);
    let topic = reader.bind("large").await;
    let mut sub = reader.subscribe(topic, Policy::Default, Start::Tail).await;
    let topic = writer.bind("large").await;
    let record: Vec<u8> = (0..5_u32 << 20).map(|at| (at % 251) as u8).collect();
    let mut stream = writer.publisher().await;
    send(&mut stream, &publish(topic, Mode::Acked { request: 1 }, &[&record, &vec![]])).await;
    assert_eq!(writer.acked(1).await, 1);
    assert_eq!(sub.events.item().await, Item::Records(1, vec![record, vec![]]));
    // What the unfinished frame held was given back.
    let held = stage.shard.look(|broker| broker.held());
    assert!(held < 1 << 20, "{held}");
    stage.settle().await;
}

#[tokio::test]
async fn without_the_right_a_publish_is_refused_or_told_as_shed() {
    let tenants = vec![tenant("shop", SECRET, &[], &["news"])];
    let stage = Stage::new(Limits::default(), Settings { tenants, ..Settings::default() });
    let mut peer = stage.gate.dial(Dial::default()).await.hello("shop", "secret").await;
    let topic = peer.try_bind("news", false, true).await.unwrap();
    let mut stream = peer.publisher().await;
    let no = never(Place::Table, Reason::NotAllowed);
    send(&mut stream, &publish(topic, Mode::Acked { request: 5 }, &["x"])).await;
    assert_eq!(peer.refused(5).await, no);
    send(&mut stream, &publish(topic, Mode::Unacked, &["x", "y"])).await;
    assert_eq!(peer.shed().await, (2, no));
    let books = stage.books();
    // What was told is what is in the books.
    let [refused, shed] = [&books.refused, &books.shed]
        .map(|table| table.get(Place::Table, Reason::NotAllowed).records);
    assert_eq!((books.offered.records, refused, shed), (3, 1, 2));
    assert_eq!((books.refused.total().records, books.shed.total().records), (1, 2));
    stage.settle().await;
}

/// A topic that a subscription holds, so that its publishes queue up.
struct Held {
    stage: Stage,
    _reader: crate::support::Peer,
    _sub: crate::support::Sub,
}

impl Held {
    async fn new(limits: &[(&str, u64)]) -> Self {
        let mut keys = vec![("allow_block", 1), ("block_deadline_ms", 0)];
        keys.extend(limits);
        let stage = Stage::with(&keys);
        let mut reader = stage.join_by(crate::support::SLOW).await;
        let topic = reader.bind("held").await;
        let sub = reader.subscribe_some(topic, Policy::Block, 1, Start::Tail).await;
        let mut writer = stage.join().await;
        let topic = writer.bind("held").await;
        let mut stream = writer.publisher().await;
        let record = vec![0; 64 << 10];
        for request in 0..2 {
            // The first is more than the reader's window, the second holds the topic.
            send(&mut stream, &publish(topic, Mode::Acked { request }, &[&record])).await;
        }
        writer.acked(0).await;
        let id = stage.topic("held");
        stage.until("the topic to be held", |broker| broker.blocked_by(id).is_some()).await;
        Self { stage, _reader: reader, _sub: sub }
    }
}

#[tokio::test]
async fn an_acked_publish_without_room_is_refused_with_place_reason_and_advice() {
    let held = Held::new(&[("pub_queue_total", 4), ("pub_queue_depth", 4)]).await;
    let mut writer = held.stage.join().await;
    let topic = writer.bind("held").await;
    let mut stream = writer.publisher().await;
    for request in 0..10 {
        send(&mut stream, &publish(topic, Mode::Acked { request }, &["x"])).await;
    }
    // Those that have no room are answered at once, in their order; the others wait in the queue.
    let frame = writer.control.next().await.unwrap();
    let Ok(Some(Frame::Refused { request: first, why })) = decode(&frame) else {
        panic!("{frame:x?}")
    };
    assert!((1..10).contains(&first), "{first}");
    assert!(is(why, Place::Schedule, Reason::QueueFull), "{why:?}");
    assert!(matches!(why.retry, Retry::After(millis) if millis > 0), "{why:?}");
    for request in first + 1..10 {
        let why = writer.refused(request).await;
        assert!(is(why, Place::Schedule, Reason::QueueFull), "{why:?}");
    }
    writer.is_heard(1).await;
    held.stage.settle().await;
}

#[tokio::test]
async fn a_publish_that_may_wait_waits_its_deadline_and_is_refused_then() {
    let limits = [("pub_queue_total", 4), ("pub_queue_depth", 4), ("publish_queue_wait_ms", 100)];
    let held = Held::new(&limits).await;
    let mut writer = held.stage.join().await;
    let topic = writer.bind("held").await;
    let mut stream = writer.publisher().await;
    for request in 0..5 {
        send(&mut stream, &publish(topic, Mode::Waiting { request }, &["x"])).await;
    }
    // While it waits the connection is heard, and only its publish streams are not read.
    writer.say(&Frame::Ping { token: 4 }).await;
    let mut refused = 0;
    let mut is_heard = false;
    while !is_heard || refused == 0 {
        let frame = writer.control.next().await.unwrap();
        match decode(&frame) {
            Ok(Some(Frame::Pong { token: 4 })) => is_heard = true,
            Ok(Some(Frame::Refused { why, .. })) => {
                assert!(is(why, Place::Schedule, Reason::Deadline), "{why:?}");
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    let offered = held.stage.books().offered.records;
    held.stage.until("all to be refused", |broker| broker.jobs().1 == 0).await;
    assert!(offered <= 7, "a paused publisher was read: {offered}");
    held.stage.settle().await;
}

#[tokio::test]
async fn what_is_shed_is_told_in_sums_and_not_too_often() {
    let held = Held::new(&[("pub_queue_total", 4), ("pub_queue_depth", 4)]).await;
    let mut writer = held.stage.join().await;
    let topic = writer.bind("held").await;
    let start = tokio::time::Instant::now();
    let mut stream = writer.publisher().await;
    for _ in 0..500 {
        send(&mut stream, &publish(topic, Mode::Unacked, &["x", "y"])).await;
    }
    let (mut told, mut frames) = (0, 0);
    let shed = |books: &sluicegate_core::Books| {
        books.shed.get(Place::Schedule, Reason::QueueFull).records + books.evicted.total().records
    };
    held.stage.until("all to come", |broker| broker.ledger().offered.records >= 1000).await;
    while told < shed(&held.stage.books()) {
        let (records, why) = writer.shed().await;
        assert!(is(why, Place::Schedule, Reason::QueueFull), "{why:?}");
        (told, frames) = (told + records, frames + 1);
    }
    assert_eq!(told, shed(&held.stage.books()));
    assert!(told >= 2 * 490, "{told}");
    let paces = start.elapsed().as_millis() / 100;
    assert!(frames <= 1 + paces, "{frames} notices in {paces} times 100 ms");
    held.stage.settle().await;
}

#[tokio::test]
async fn what_merely_came_at_once_is_not_shed() {
    let stage = Stage::usual();
    let mut writer = stage.join().await;
    let topic = writer.bind("t").await;
    let mut stream = writer.publisher().await;
    // Far more publishes than the queue has slots, in one piece.
    let batches = 4_000;
    let mut bytes = publish(topic, Mode::Unacked, &["x"]).repeat(batches);
    bytes.extend(publish(topic, Mode::Acked { request: 1 }, &["last"]));
    send(&mut stream, &bytes).await;
    assert_eq!(writer.acked(1).await, batches as u64 + 1);
    assert!(stage.books().shed.total().is_zero());
    stage.settle().await;
}

/// One stream of a connection waits for a topic that is held; the others go on.
#[tokio::test]
async fn a_stream_that_waits_stops_no_other_stream_of_its_connection() {
    let limits =
        [("pub_queue_total", 4), ("pub_queue_depth", 4), ("publish_queue_wait_ms", 60_000)];
    let held = Held::new(&limits).await;
    let mut writer = held.stage.join().await;
    let (stuck, free) = (writer.bind("held").await, writer.bind("free").await);
    let [mut one, mut two, mut ended] =
        [writer.publisher().await, writer.publisher().await, writer.publisher().await];
    for request in 0..8 {
        send(&mut one, &publish(stuck, Mode::Waiting { request }, &["x"])).await;
    }
    held.stage.until("one to wait", |broker| broker.jobs().1 > 0).await;
    for request in 100..120 {
        send(&mut two, &publish(free, Mode::Waiting { request }, &["y"])).await;
        assert_eq!(writer.acked(request).await, request - 99);
    }
    let waiting = held.stage.shard.look(|broker| broker.jobs().1);
    send(&mut ended, &publish(stuck, Mode::Waiting { request: 200 }, &["z"])).await;
    let more = |broker: &Broker| broker.jobs().1 > waiting;
    held.stage.until("another one to wait", more).await;
    // A stream that was finished is whole: what it brought waits on.
    ended.finish().unwrap();
    send(&mut two, &publish(free, Mode::Waiting { request: 120 }, &["y"])).await;
    assert_eq!(writer.acked(120).await, 21);
    assert!(held.stage.shard.look(more), "a publish of a finished stream waits on");
    // One that is reset has given up.
    one.reset(quinn::VarInt::from_u32(0)).unwrap();
    let frame = writer.control.next().await.unwrap();
    let Ok(Some(Frame::Refused { request, why })) = decode(&frame) else { panic!("{frame:x?}") };
    assert!(request < 8 && is(why, Place::Schedule, Reason::Closed), "{request} {why:?}");
    held.stage.settle().await;
}

/// A topic that is held, and a connection whose streams have as much waiting for it as may be.
struct Crowded {
    held: Held,
    writer: crate::support::Peer,
    streams: Vec<quinn::SendStream>,
    queued: u32,
}

impl Crowded {
    async fn new() -> Self {
        let limits = [("max_frame_bytes", 80 << 10), ("pub_conn_inflight_bytes", 148 << 10)];
        let held = Held::new(&limits).await;
        let mut writer = held.stage.join().await;
        let topic = writer.bind("held").await;
        let record = [b'x'; 70 << 10];
        let before = held.stage.shard.look(Broker::jobs).0;
        let mut streams = Vec::new();
        for request in 0..5 {
            let mut stream = writer.publisher().await;
            send(&mut stream, &publish(topic, Mode::Waiting { request }, &[&record])).await;
            streams.push(stream);
            let all = before + u32::try_from(streams.len()).unwrap();
            let come = |broker: &Broker| broker.jobs().0 + broker.jobs().1 == all;
            held.stage.until("it to come", come).await;
        }
        assert_eq!(held.stage.shard.look(Broker::jobs), (before + 2, 3));
        Self { held, writer, streams, queued: before + 2 }
    }
}

/// Streams that are over and have nothing waiting are not kept.
#[tokio::test]
async fn streams_that_are_over_do_not_pile_up_while_all_of_a_connection_wait() {
    let Crowded { held, writer, streams, queued } = Crowded::new().await;
    let before = held.stage.shard.look(Broker::held);
    // More than may be open at once: to most of them others have made way.
    for _ in 0..200 {
        writer.publisher().await.finish().unwrap();
    }
    held.stage.until("them to be over", |broker| broker.held() == before).await;
    assert_eq!(held.stage.shard.look(Broker::jobs), (queued, 3));
    drop(streams);
}

/// Streams of which all has come count until all was taken: a connection that waits has no more
/// of them open than it may.
#[tokio::test]
async fn streams_that_wait_are_no_more_than_a_connection_may_have() {
    let Crowded { held, mut writer, mut streams, .. } = Crowded::new().await;
    let free = writer.bind("free").await;
    let before = held.stage.shard.look(Broker::held);
    let link = writer.link.clone();
    let more = tokio::spawn(async move {
        for _ in 0..200 {
            let mut stream = link.open_uni().await.unwrap();
            send(&mut stream, &publish(free, Mode::Unacked, &["y"])).await;
            stream.finish().unwrap();
        }
    });
    for token in 0..100 {
        writer.is_heard(token).await;
    }
    let most = Settings::default().max_publish_streams * 128;
    let now = held.stage.shard.look(Broker::held);
    assert!(now <= before + most, "{now} bytes are held, and {before} were");
    assert!(!more.is_finished(), "none of them was taken");
    // One that gives up makes way: they are heard, though there are no bytes for them.
    streams[4].reset(0_u32.into()).unwrap();
    within(more).await.unwrap();
    let shed = |broker: &Broker| broker.ledger().shed.total().records == 200;
    held.stage.until("them to come", shed).await;
}

/// A client that ends its control stream has left, whatever else it keeps open.
#[tokio::test]
async fn whoever_ends_its_control_stream_has_left() {
    let stage = Stage::usual();
    for resets in [false, true] {
        let mut writer = stage.join().await;
        let topic = writer.bind("t").await;
        let mut stream = writer.publisher().await;
        send(&mut stream, &publish(topic, Mode::Acked { request: 1 }, &["x"])).await;
        writer.acked(1).await;
        if resets {
            writer.send.reset(0_u32.into()).unwrap();
        } else {
            writer.send.finish().unwrap();
        }
        let ended = within(writer.link.closed()).await;
        let quinn::ConnectionError::ApplicationClosed(close) = ended else { panic!("{ended}") };
        assert_eq!(close.error_code, 0_u32.into());
    }
    stage.empty().await;
}
