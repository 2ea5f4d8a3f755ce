//! Peers that break the protocol: each ends its own connection, with a code, and nothing else.

use crate::support::{Peer, Stage, publish, send};
use sluicegate_wire::quic::{Code, Frame, Mode, Policy, Start, varint};

/// A frame with this body.
fn frame(body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    varint::put(&mut bytes, body.len() as u64);
    bytes.extend_from_slice(body);
    bytes
}

async fn ends(stage: &Stage, peer: Peer, code: Code, what: &str) {
    assert_eq!(Code::from_number(peer.closed().await), Some(code), "{what}");
    stage.until("the peer to be gone", |broker| broker.counts().0 == 1).await;
}

#[tokio::test]
async fn a_fault_on_the_control_stream_ends_that_connection_only() {
    let stage = Stage::usual();
    let mut bystander = stage.join().await;
    let (bound, welcome) = (
        Frame::Bound { request: 1, topic: 1, epoch: 1 }.bytes(),
        Frame::Hello { oldest: 1, newest: 1, features: 0, tenant: "default", token: "" }.bytes(),
    );
    for (bytes, code, what) in [
        (vec![0], Code::Malformed, "an empty frame"),
        (frame(&[0x7f]), Code::Malformed, "an unknown required type"),
        (frame(&[0x0f, 1]), Code::Malformed, "a ping that is cut short"),
        (frame(&[3, 1, 9, 1, b'a']), Code::Malformed, "rights that do not exist"),
        (frame(&[3, 1, 3, 1, 0xff]), Code::Malformed, "a name that is not UTF-8"),
        (frame(&[0x0f, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0]), Code::Malformed, "a required field"),
        (publish(0, Mode::Unacked, &["x"]), Code::Unexpected, "a publish"),
        (bound, Code::Unexpected, "an answer"),
        (welcome, Code::Unexpected, "a second hello"),
    ] {
        let mut peer = stage.join().await;
        peer.write(&bytes).await;
        ends(&stage, peer, code, what).await;
        bystander.is_heard(1).await;
    }
    stage.settle().await;
}

#[tokio::test]
async fn a_fault_on_a_publish_stream_ends_that_connection_only() {
    let stage = Stage::usual();
    let mut bystander = stage.join().await;
    let topic = bystander.bind("t").await;
    let mut sub = bystander.subscribe(topic, Policy::Default, Start::Tail).await;
    let mut too_large = Vec::new();
    varint::put(&mut too_large, (16 << 20) + 1);
    let count = |count: u8| frame(&[5, 0, 0, count, 1, b'x']);
    for (bytes, code, what) in [
        (too_large, Code::Malformed, "a frame above the limit"),
        (count(0), Code::Malformed, "no records"),
        (count(2), Code::Malformed, "fewer records than it says"),
        (frame(&[5, 0, 0, 0x7f, 0xff, 1, b'x']), Code::Malformed, "a count beyond the limit"),
        (frame(&[5, 0, 0, 1, 1, b'x', b'y']), Code::Malformed, "bytes after the last record"),
        (frame(&[5, 0, 7, 1, 1, b'x']), Code::Malformed, "a mode that does not exist"),
        (publish(9, Mode::Unacked, &["x"]), Code::Unexpected, "a topic that is not bound"),
        (Frame::Ping { token: 1 }.bytes(), Code::Unexpected, "a ping"),
    ] {
        let mut peer = stage.join().await;
        peer.bind("t").await;
        let mut stream = peer.publisher().await;
        send(&mut stream, &bytes).await;
        ends(&stage, peer, code, what).await;
        bystander.is_heard(1).await;
    }
    // Nothing of all that was published.
    let mut stream = bystander.publisher().await;
    send(&mut stream, &publish(topic, Mode::Acked { request: 1 }, &["x"])).await;
    assert_eq!(bystander.acked(1).await, 1);
    let records = vec![b"x".to_vec()];
    assert_eq!(sub.events.item().await, crate::support::Item::Records(1, records));
    stage.settle().await;
}

#[tokio::test]
async fn a_publish_stream_that_is_reset_or_cut_short_is_no_fault() {
    let stage = Stage::usual();
    let mut peer = stage.join().await;
    let topic = peer.bind("t").await;
    let held = stage.shard.look(|broker| broker.held());
    let record = vec![1; 200 << 10];
    let whole = publish(topic, Mode::Unacked, &["x"]);
    for is_reset in [false, true] {
        let mut stream = peer.publisher().await;
        send(&mut stream, &whole).await;
        send(&mut stream, &publish(topic, Mode::Unacked, &[&record])[..100 << 10]).await;
        stage.until("half a frame to be held", |broker| broker.held() > held + (64 << 10)).await;
        if is_reset {
            stream.reset(crate::support::code(1)).unwrap();
        } else {
            stream.finish().unwrap();
        }
        stage.until("what was held to be given back", |broker| broker.held() <= held).await;
    }
    peer.is_heard(1).await;
    stage.until("what was whole to be taken", |b| b.ledger().sequenced.records == 2).await;
    stage.settle().await;
}

#[tokio::test]
async fn unfinished_frames_of_a_connection_are_bounded_together() {
    let limits =
        [("max_frame_bytes", 1 << 20), ("pub_conn_inflight_bytes", (1 << 20) + (64 << 10))];
    let stage = Stage::with(&limits);
    let mut bystander = stage.join().await;
    let mut peer = stage.join().await;
    let topic = peer.bind("t").await;
    let record = vec![1; (1 << 20) - 100];
    let bytes = publish(topic, Mode::Unacked, &[&record]);
    let mut streams = Vec::new();
    for _ in 0..4 {
        let mut stream = peer.publisher().await;
        // It may be over before all is written.
        if stream.write_all(&bytes[..400 << 10]).await.is_err() {
            break;
        }
        streams.push(stream);
    }
    ends(&stage, peer, Code::Unexpected, "too much held").await;
    bystander.is_heard(1).await;
    stage.settle().await;
}
