//! The protocol as `wire/PROTOCOL.md` promises it, spoken by a peer that knows only frames.

mod support;

use sluicegate_core::Limits;
use sluicegate_quic::settings::Settings;
use sluicegate_wire::quic::{Frame, Mode, Policy, Start, decode, put_publish};
use support::{Peer, Stage};

fn stage() -> Stage {
    Stage::new(Limits::default(), Settings::default())
}

fn publish(topic: u32, mode: Mode, records: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_publish(&mut bytes, topic, mode, records);
    bytes
}

async fn subscribe(peer: &mut Peer, topic: u32, policy: Policy, start: Start) -> u64 {
    let request = peer.request();
    peer.say(&Frame::Subscribe { request, topic, policy, batches: 0, bytes: 0, start }).await;
    request
}

#[tokio::test]
async fn a_record_goes_from_one_peer_to_another() {
    let stage = stage();
    let (mut reader, mut writer) = (stage.join().await, stage.join().await);
    let topic = reader.bind("orders").await;
    let request = subscribe(&mut reader, topic, Policy::Default, Start::Tail).await;
    let mut events = reader.accept().await;
    let frame = events.next().await.unwrap();
    let Ok(Some(Frame::Subscribed { request: of, start, .. })) = decode(&frame) else {
        panic!("{frame:x?}")
    };
    assert_eq!((of, start), (request, 1));

    let topic = writer.bind("orders").await;
    let mut stream = writer.publisher().await;
    stream.write_all(&publish(topic, Mode::Acked { request: 9 }, &["one", "two"])).await.unwrap();
    let ack = writer.control.next().await.unwrap();
    assert_eq!(decode(&ack), Ok(Some(Frame::Ack { request: 9, first: 1 })));
    let frame = events.next().await.unwrap();
    let Ok(Some(Frame::Events { first, records })) = decode(&frame) else { panic!("{frame:x?}") };
    assert_eq!(first, 1);
    assert_eq!(records.into_iter().collect::<Vec<_>>(), [b"one", b"two"]);
}
