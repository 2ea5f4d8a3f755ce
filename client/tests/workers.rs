//! A client that publishes on several streams.
#![cfg(not(madsim))]

mod support;

use bytes::Bytes;
use sluicegate_client::{
    Client, ConnectError, Limits, Options, Place, PublishError, Publisher, Reason,
};
use sluicegate_wire::quic::{Frame, Mode};
use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};
use support::{Frames, Peer, Server, soon, until};

fn with(server: &Server, publish_workers: u32) -> Options {
    // The largest windows: the queues are what is looked at here.
    let limits = Limits { publish_inflight_bytes: 64 << 20, ..Limits::default() };
    Options { publish_workers, limits, ..server.options() }
}

/// Publishers of topics with the numbers from 0 on.
async fn publishers(client: &Client, peer: &mut Peer, count: u32) -> Vec<Publisher> {
    let mut all = Vec::new();
    for number in 0..count {
        let name = format!("topic {number}");
        let (publisher, ()) =
            tokio::join!(client.publisher(&name), peer.bind((true, false), number));
        all.push(publisher.expect("it was bound"));
    }
    all
}

/// The next publish of a stream: its topic and its first record.
async fn next(stream: &mut Frames) -> (u32, Vec<u8>) {
    stream
        .expect(|frame| match frame {
            Frame::Publish { topic, records, .. } => {
                (topic, records.into_iter().next().expect("there is one").to_vec())
            }
            other => panic!("{other:?}"),
        })
        .await
}

#[tokio::test]
async fn each_topic_stays_on_one_stream_and_one_that_stands_still_holds_up_no_other() {
    let server = Server::start();
    let (client, mut peer) = server.pair(with(&server, 3)).await;
    let publishers = publishers(&client, &mut peer, 6).await;
    let mut streams = BTreeMap::new();
    for publisher in &publishers[..3] {
        publisher.publish("first").await.unwrap();
        let mut stream = peer.publishes().await;
        let (topic, _) = next(&mut stream).await;
        streams.insert(topic, stream);
    }
    assert_eq!(streams.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
    // Nobody reads the stream of topic 0: its window is full, and then its queue.
    let large = Bytes::from(vec![7; 16 << 10]);
    while publishers[0].try_publish(large.clone()).is_ok() {
        tokio::task::yield_now().await;
    }
    assert_eq!(publishers[3].try_publish("of the same lane"), Err(PublishError::Full));
    for round in 0..100_u8 {
        for at in [1, 4, 2, 5] {
            soon(publishers[at].publish(vec![round])).await.unwrap();
        }
    }
    for of in [1_u32, 2] {
        let stream = streams.get_mut(&of).expect("it has one");
        let mut seen = BTreeMap::new();
        while seen.values().map(Vec::len).sum::<usize>() < 200 {
            let frame = soon(stream.next()).await.expect("it goes on");
            let decoded = sluicegate_wire::quic::decode(&frame).unwrap();
            let Some(Frame::Publish { topic, mode, records }) = decoded else {
                panic!("{frame:x?}")
            };
            assert_eq!((topic % 3, mode), (of, Mode::Unacked));
            let seen: &mut Vec<u8> = seen.entry(topic).or_default();
            seen.extend(records.into_iter().map(|record| record[0]));
        }
        let order: Vec<u8> = (0..100).collect();
        assert_eq!(seen, BTreeMap::from([(of, order.clone()), (of + 3, order)]));
    }
    // Now somebody reads it.
    let stream = streams.get_mut(&0).expect("it has one");
    assert_eq!(next(stream).await, (0, large.to_vec()));
}

#[tokio::test]
async fn there_are_no_more_streams_than_the_server_allows() {
    let mut server = Server::start();
    server.max_publish_streams = 2;
    server.max_frame_bytes = 64 << 10;
    let (client, mut peer) = server.pair(with(&server, 8)).await;
    let publishers = publishers(&client, &mut peer, 8).await;
    for publisher in &publishers {
        publisher.publish("x").await.unwrap();
    }
    let mut found = Vec::new();
    for _ in 0..2 {
        let mut stream = peer.publishes().await;
        for _ in 0..4 {
            found.push(next(&mut stream).await.0);
        }
    }
    found.sort_unstable();
    assert_eq!(found, (0..8).collect::<Vec<_>>());
    // What all streams may be in the middle of is no more than one frame may be long.
    let half = vec![0; (32 << 10) - 64];
    soon(publishers[0].publish(half)).await.unwrap();
    let refused = soon(publishers[1].publish_acked(vec![0; 32 << 10])).await;
    let Err(PublishError::Refused(why)) = refused else { panic!("{refused:?}") };
    assert_eq!((why.place, why.reason), (Some(Place::Window), Some(Reason::Oversize)));
}

#[tokio::test]
async fn what_every_stream_was_sent_arrives_before_the_end() {
    let server = Server::start();
    let (client, mut peer) = server.pair(with(&server, 4)).await;
    let publishers = publishers(&client, &mut peer, 4).await;
    let large = Bytes::from(vec![7; 40 << 10]);
    for _ in 0..10 {
        for publisher in &publishers {
            publisher.publish(large.clone()).await.unwrap();
        }
    }
    let closing = tokio::spawn({
        let client = client.clone();
        async move { client.close().await }
    });
    let mut streams = Vec::new();
    for _ in 0..4 {
        streams.push(peer.publishes().await);
    }
    for stream in &mut streams {
        for _ in 0..10 {
            next(stream).await;
        }
        assert!(soon(stream.next()).await.is_none(), "it is finished");
    }
    soon(closing).await.unwrap();
    let stats = client.stats();
    assert_eq!((stats.sent, stats.unconfirmed), (40, 0));
}

#[tokio::test]
async fn what_was_on_its_way_on_any_stream_when_the_connection_ended_is_told() {
    let server = Server::start();
    let mut options = with(&server, 4);
    options.reconnect.attempts = Some(0);
    let (client, mut peer) = server.pair(options).await;
    let publishers = publishers(&client, &mut peer, 4).await;
    for publisher in &publishers {
        publisher.publish("x").await.unwrap();
    }
    until(|| client.stats().sent == 4).await;
    peer.connection.close(0_u32.into(), b"");
    until(|| client.stats().unconfirmed == 4).await;
}

#[tokio::test]
async fn there_are_one_to_eight() {
    let server = Server::start();
    for workers in [0, 9] {
        let options = with(&server, workers);
        let told = Client::connect(&server.url(), options).await.map(drop);
        let text = format!("`publish_workers` is {workers}, but must be between 1 and 8");
        assert_eq!(told, Err(ConnectError::Options(text)));
    }
    for workers in [1, 8] {
        drop(server.pair(with(&server, workers)).await);
    }
}

#[tokio::test]
async fn nobody_waits_before_a_queue_when_the_client_is_closed() {
    let server = Server::start();
    let mut options = with(&server, 2);
    options.limits.publish_queue_depth = 1;
    let (client, mut peer) = server.pair(options).await;
    let publishers = publishers(&client, &mut peer, 2).await;
    let large = Bytes::from(vec![7; 64 << 10]);
    // Nobody reads either stream.
    for publisher in &publishers {
        while publisher.try_publish(large.clone()).is_ok() {
            tokio::task::yield_now().await;
        }
    }
    let waiting = publishers.into_iter().map(|publisher| {
        let mut waiting = Box::pin(async move { publisher.publish("too many").await });
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(waiting.as_mut().poll(&mut context), Poll::Pending);
        waiting
    });
    let waiting: Vec<_> = waiting.collect();
    let closing = tokio::spawn(async move { client.close().await });
    for publish in waiting {
        assert_eq!(soon(publish).await, Err(PublishError::Closed));
    }
    closing.abort();
}
