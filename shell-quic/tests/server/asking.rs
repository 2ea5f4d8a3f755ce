//! Binds, pings and what a control stream is answered.

use crate::hello::{SECRET, tenant};
use crate::support::{Dial, Stage, never};
use sluicegate_core::{Limits, Place, Reason};
use sluicegate_quic::settings::Settings;
use sluicegate_wire::quic::{Frame, Mode, Policy, Start, decode, varint};

fn guarded() -> Stage {
    let tenants = vec![tenant("shop", SECRET, &["orders.*"], &["orders.eu", "news"])];
    Stage::new(Limits::default(), Settings { tenants, ..Settings::default() })
}

#[tokio::test]
async fn a_bind_needs_the_rights_it_asks_for() {
    let stage = guarded();
    let mut peer = stage.gate.dial(Dial::default()).await.hello("shop", "secret").await;
    let no = never(Place::Table, Reason::NotAllowed);
    for (topic, publish, subscribe, may) in [
        ("orders.eu", true, true, true),
        ("orders.us", true, false, true),
        ("orders.us", true, true, false),
        ("orders.us", false, true, false),
        ("news", false, true, true),
        ("news", true, false, false),
        ("other", true, false, false),
        ("", false, false, false),
    ] {
        let bound = peer.try_bind(topic, publish, subscribe).await;
        assert_eq!(bound.is_ok(), may, "{topic} {publish} {subscribe}");
        if let Err(why) = bound {
            assert_eq!(why, no);
        }
    }
    stage.settle().await;
}

#[tokio::test]
async fn a_topic_has_one_number_and_its_rights_add_up() {
    let stage = Stage::usual();
    let mut peer = stage.join().await;
    let first = peer.try_bind("a", true, false).await.unwrap();
    let second = peer.try_bind("b", true, true).await.unwrap();
    assert_eq!((first, second), (0, 1));
    // It may not be subscribed to until that was asked for.
    let request = peer.ask(first, Policy::Default, 0, Start::Tail).await;
    assert_eq!(peer.refused(request).await, never(Place::Table, Reason::NotAllowed));
    assert_eq!(peer.try_bind("a", false, true).await.unwrap(), first);
    let request = peer.ask(first, Policy::Default, 0, Start::Tail).await;
    let mut stream = peer.publisher().await;
    let bytes = crate::support::publish(first, Mode::Acked { request: 77 }, &["x"]);
    crate::support::send(&mut stream, &bytes).await;
    assert_eq!(peer.acked(77).await, 1);
    let _ = request;
    stage.settle().await;
}

#[tokio::test]
async fn topics_of_a_connection_are_limited() {
    let settings = Settings { max_topics: 3, ..Settings::default() };
    let stage = Stage::new(Limits::default(), settings);
    let mut peer = stage.join().await;
    for name in ["a", "b", "c"] {
        peer.bind(name).await;
    }
    let no = peer.try_bind("d", true, true).await.unwrap_err();
    assert_eq!(no, never(Place::Table, Reason::Limit));
    assert_eq!(peer.bind("b").await, 1);
    // Another connection has its own.
    assert_eq!(stage.join().await.bind("d").await, 0);
}

#[tokio::test]
async fn what_is_not_there_is_gone() {
    let stage = Stage::usual();
    let mut peer = stage.join().await;
    let request = peer.ask(5, Policy::Default, 0, Start::Tail).await;
    assert_eq!(peer.refused(request).await, never(Place::Table, Reason::Gone));
    // Of a subscription that has ended the client may not know yet: nothing is wrong.
    peer.say(&Frame::Unsubscribe { subscription: 9 }).await;
    peer.is_heard(1).await;
}

#[tokio::test]
async fn frames_and_fields_of_later_versions_are_passed_over() {
    let stage = Stage::usual();
    let mut peer = stage.join().await;
    // A type from 0x80 on, with any body.
    peer.write(&[3, 0x80, 1, 2]).await;
    peer.write(&[1, 0xff]).await;
    // A ping with a field that may be passed over: tag 7, three bytes.
    let mut body = vec![0x0f];
    body.extend(42_u64.to_be_bytes());
    body.extend([7, 3, 1, 2, 3]);
    let mut frame = Vec::new();
    varint::put(&mut frame, body.len() as u64);
    frame.extend(body);
    peer.write(&frame).await;
    let pong = peer.control.next().await.unwrap();
    assert_eq!(decode(&pong), Ok(Some(Frame::Pong { token: 42 })));
    // On a publish stream too.
    let topic = peer.bind("a").await;
    let mut stream = peer.publisher().await;
    crate::support::send(&mut stream, &[2, 0x99, 0]).await;
    let bytes = crate::support::publish(topic, Mode::Acked { request: 3 }, &["x"]);
    crate::support::send(&mut stream, &bytes).await;
    assert_eq!(peer.acked(3).await, 1);
}

#[tokio::test]
async fn who_asks_faster_than_it_reads_is_not_heard_until_it_reads() {
    let stage = Stage::usual();
    let mut peer = stage.join_by(crate::support::SLOW).await;
    // Far more answers than the reserve and the windows hold.
    let asked = 30_000_u64;
    let mut send = std::mem::replace(&mut peer.send, peer.link.open_uni().await.unwrap());
    let asking = tokio::spawn(async move {
        let mut bytes = Vec::new();
        for token in 0..asked {
            Frame::Ping { token }.put(&mut bytes);
        }
        send.write_all(&bytes).await.unwrap();
        send
    });
    let mut other = stage.join().await;
    other.is_heard(1).await;
    for token in 0..asked {
        let pong = peer.control.next().await.unwrap();
        assert_eq!(decode(&pong), Ok(Some(Frame::Pong { token })));
    }
    crate::support::within(asking).await.unwrap();
    stage.settle().await;
}
