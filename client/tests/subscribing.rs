//! What a client receives from a server that does what the test says.
#![cfg(not(madsim))]

mod support;

use quinn::SendStream;
use sluicegate_client::{
    Client, Code, Disconnected, Event, Gap, Limits, Options, Place, Queue, Reason, Refusal, Start,
    SubscribeOptions, Subscription, TopicError,
};
use sluicegate_wire::quic::{self, Frame, Retry};
use std::pin::pin;
use std::task::{Context, Waker};
use support::{Peer, Server, events, no, soon, until};

const SUBSCRIBE: (bool, bool) = (false, true);

async fn subscribe(
    client: &Client,
    peer: &mut Peer,
    options: SubscribeOptions,
) -> (Subscription, SendStream) {
    let (subscription, stream) =
        tokio::join!(async { soon(client.subscribe("news", options)).await }, async {
            peer.bind(SUBSCRIBE, 5).await;
            let (request, _) = peer.asked_subscribe().await;
            peer.subscribed(request, 1).await
        });
    (subscription.expect("it was confirmed"), stream)
}

fn record(sequence: u64, payload: &'static str) -> Option<Result<Event, TopicError>> {
    Some(Ok(Event::Record { sequence, payload: payload.into() }))
}

fn queue_of(server: &Server, subscription_queue: u64) -> Options {
    let limits = Limits { subscription_queue, ..Limits::default() };
    Options { limits, ..server.options() }
}

fn queue(queue: Queue) -> SubscribeOptions {
    SubscribeOptions { queue, ..SubscribeOptions::default() }
}

#[tokio::test]
async fn records_gaps_and_the_end_come_in_order() {
    let server = Server::start();
    let (client, mut peer) = server.pair(server.options()).await;
    let (mut sub, mut stream) = subscribe(&client, &mut peer, SubscribeOptions::default()).await;
    let why = no(Place::Backlog.code(), Reason::DropNew.code(), Retry::Never);
    let mut bytes = events(1, &["a", "b"]);
    bytes.extend([2, 0x90, 7]);
    bytes.extend(Frame::Gap { first: 3, last: 9, records: 7, why }.bytes());
    bytes.extend(events(10, &["c"]));
    let why = no(Place::Egress.code(), Reason::SlowConsumer.code(), Retry::Never);
    bytes.extend(Frame::Ended { why }.bytes());
    // In pieces that cut every frame.
    for piece in bytes.chunks(3) {
        stream.write_all(piece).await.unwrap();
    }
    assert_eq!(soon(sub.next()).await, record(1, "a"));
    assert_eq!(soon(sub.next()).await, record(2, "b"));
    let (place, reason) = (Place::Backlog, Reason::DropNew);
    let gap = Gap { first: 3, last: 9, records: 7, place, reason };
    assert_eq!(soon(sub.next()).await, Some(Ok(Event::Gap(gap))));
    assert_eq!(soon(sub.next()).await, record(10, "c"));
    let Some(Err(TopicError::Ended(why))) = soon(sub.next()).await else { panic!() };
    assert_eq!((why.place, why.reason), (Some(Place::Egress), Some(Reason::SlowConsumer)));
    assert_eq!(soon(sub.next()).await, None);
}

#[tokio::test]
async fn a_refused_subscribe_says_why() {
    let server = Server::start();
    let (client, mut peer) = server.pair(server.options()).await;
    let (refused, ()) =
        tokio::join!(client.subscribe("news", SubscribeOptions::lossless()), async {
            peer.bind(SUBSCRIBE, 5).await;
            let (request, _) = peer.asked_subscribe().await;
            let why = no(Place::Backlog.code(), Reason::NotAllowed.code(), Retry::Never);
            peer.tell(&Frame::Refused { request, why }).await;
        });
    let Err(TopicError::Refused(why)) = refused else { panic!("{refused:?}") };
    assert_eq!((why.place, why.reason), (Some(Place::Backlog), Some(Reason::NotAllowed)));
}

#[tokio::test]
async fn a_dropped_subscription_ends_at_once_though_nothing_comes() {
    let server = Server::start();
    let (client, mut peer) = server.pair(server.options()).await;
    let (sub, mut stream) = subscribe(&client, &mut peer, SubscribeOptions::default()).await;
    drop(sub);
    peer.expect(|frame| assert_eq!(frame, Frame::Unsubscribe { subscription: 3 })).await;
    assert!(matches!(soon(stream.stopped()).await, Ok(Some(_))));
    drop(stream.finish());
    // The client lives.
    drop(client);
}

#[tokio::test]
async fn a_subscribe_that_is_dropped_before_its_answer_ends_when_it_comes() {
    let server = Server::start();
    let (client, mut peer) = server.pair(server.options()).await;
    let request = {
        let mut asking = pin!(client.subscribe("news", SubscribeOptions::default()));
        tokio::select! {
            biased;
            _ = &mut asking => panic!("nobody has answered"),
            (request, _) = async {
                peer.bind(SUBSCRIBE, 5).await;
                peer.asked_subscribe().await
            } => request,
        }
    };
    let stream = peer.subscribed(request, 1).await;
    peer.expect(|frame| assert_eq!(frame, Frame::Unsubscribe { subscription: 3 })).await;
    assert!(matches!(soon(stream.stopped()).await, Ok(Some(_))));
}

#[tokio::test]
async fn a_subscription_goes_on_with_the_record_after_its_last_one() {
    let server = Server::start();
    let (client, mut peer) = server.pair(server.options()).await;
    let (mut sub, mut stream) = subscribe(&client, &mut peer, SubscribeOptions::default()).await;
    stream.write_all(&events(1, &["a", "b"])).await.unwrap();
    assert_eq!(soon(sub.next()).await, record(1, "a"));
    assert_eq!(soon(sub.next()).await, record(2, "b"));
    peer.connection.close(0_u32.into(), b"");

    let mut peer = server.greet().await;
    peer.bind(SUBSCRIBE, 8).await;
    let (request, start) = peer.asked_subscribe().await;
    assert_eq!(start, Start::At { epoch: 7, sequence: 3 });
    let mut stream = peer.subscribed(request, 3).await;
    let why = no(Place::Table.code(), Reason::Retention.code(), Retry::Never);
    let gap = Frame::Gap { first: 3, last: 4, records: 2, why };
    stream.write_all(&gap.bytes()).await.unwrap();
    stream.write_all(&events(5, &["e"])).await.unwrap();
    let lost =
        Gap { first: 3, last: 4, records: 2, place: Place::Table, reason: Reason::Retention };
    assert_eq!(soon(sub.next()).await, Some(Ok(Event::Gap(lost))));
    assert_eq!(soon(sub.next()).await, record(5, "e"));
    assert_eq!(client.stats().reconnects, 1);
}

/// That the topic began anew is no record, and not dropped as one.
#[tokio::test]
async fn a_full_inbox_still_tells_that_the_topic_began_anew() {
    for (policy, got) in [
        (Queue::DropNew, "1 2 -1 anew -3"),
        (Queue::DropOld, "-3 anew -1 12 13"),
        (Queue::Latest, "-3 anew -2 13"),
    ] {
        let server = Server::start();
        let (client, mut peer) = server.pair(queue_of(&server, 2)).await;
        let (mut sub, mut stream) = subscribe(&client, &mut peer, queue(policy)).await;
        for sequence in 1..=3 {
            stream.write_all(&events(sequence, &["x"])).await.unwrap();
        }
        until(|| sub.books().expected.records == 3).await;
        peer.connection.close(0_u32.into(), b"");
        let mut peer = server.greet().await;
        peer.bind(SUBSCRIBE, 8).await;
        let (request, _) = peer.asked_subscribe().await;
        let mut stream = peer.connection.open_uni().await.unwrap();
        let first = Frame::Subscribed { request, subscription: 3, epoch: 8, start: 11 };
        stream.write_all(&first.bytes()).await.unwrap();
        for sequence in 11..=13 {
            stream.write_all(&events(sequence, &["x"])).await.unwrap();
        }
        until(|| sub.books().expected.records == 6).await;
        let (mut seen, mut left) = (Vec::new(), 6);
        while left > 0 {
            match soon(sub.next()).await.unwrap().unwrap() {
                Event::Record { sequence, .. } => {
                    left -= 1;
                    seen.push(sequence.to_string());
                }
                Event::Gap(gap) => {
                    left -= gap.records;
                    seen.push(format!("-{}", gap.records));
                }
                Event::Restarted { epoch, start } => {
                    assert_eq!((epoch, start), (8, 11));
                    seen.push("anew".to_owned());
                }
            }
        }
        assert_eq!(seen.join(" "), got, "{policy:?}");
    }
}

/// Who reads learns why there will be nothing more to read, and so does who asks later.
#[tokio::test]
async fn a_token_that_is_no_longer_taken_reaches_everybody_who_waits() {
    let server = Server::start();
    let (client, mut peer) = server.pair(server.options()).await;
    let (mut sub, mut stream) = subscribe(&client, &mut peer, SubscribeOptions::default()).await;
    stream.write_all(&events(1, &["a"])).await.unwrap();
    assert_eq!(soon(sub.next()).await, record(1, "a"));
    let publishing = tokio::spawn({
        let client = client.clone();
        async move { client.publisher("orders").await.map(drop) }
    });
    peer.asked_bind((true, false)).await;
    peer.connection.close(0_u32.into(), b"");
    let peer = server.meet().await;
    let code = u32::from(Code::Unauthenticated.number());
    peer.connection.close(code.into(), b"the token is not known");
    let (place, reason) = (Some(Place::Table), Some(Reason::NotAllowed));
    let why = Refusal { place, reason, retry: Retry::Never };
    let end = TopicError::Disconnected(Disconnected { code: Some(Code::Unauthenticated), why });
    assert_eq!(soon(sub.next()).await, Some(Err(end)));
    assert_eq!(soon(sub.next()).await, None);
    assert_eq!(soon(publishing).await.unwrap(), Err(end));
    assert_eq!(client.publisher("other").await.map(drop), Err(end));
    assert_eq!(
        end.to_string(),
        "the connection was given up, token and tenant do not go together: not_allowed at table, \
         the same will be refused again"
    );
}

#[tokio::test]
async fn attempts_in_vain_are_told_with_the_advice_to_try_later() {
    let server = Server::start();
    let mut options = server.options();
    options.reconnect.attempts = Some(2);
    let (client, mut peer) = server.pair(options).await;
    let (mut sub, _stream) = subscribe(&client, &mut peer, SubscribeOptions::default()).await;
    peer.connection.close(0_u32.into(), b"");
    for _ in 0..2 {
        let code = u32::from(Code::Busy.number());
        server.meet().await.connection.close(code.into(), b"no room");
    }
    let (place, reason) = (Some(Place::Table), Some(Reason::Limit));
    let why = Refusal { place, reason, retry: Retry::After(1) };
    let end = TopicError::Disconnected(Disconnected { code: Some(Code::Busy), why });
    assert_eq!(soon(sub.next()).await, Some(Err(end)));
}

/// A right that was there on one connection and is not on the next.
#[tokio::test]
async fn a_right_that_is_taken_away_ends_the_subscription_with_its_reason() {
    for at_the_bind in [true, false] {
        let server = Server::start();
        let (client, mut peer) = server.pair(server.options()).await;
        let (mut sub, _stream) = subscribe(&client, &mut peer, SubscribeOptions::default()).await;
        peer.connection.close(0_u32.into(), b"");
        let mut peer = server.greet().await;
        let request = if at_the_bind {
            peer.asked_bind(SUBSCRIBE).await
        } else {
            peer.bind(SUBSCRIBE, 8).await;
            peer.asked_subscribe().await.0
        };
        let why = no(Place::Table.code(), Reason::NotAllowed.code(), Retry::Never);
        peer.tell(&Frame::Refused { request, why }).await;
        assert_eq!(soon(sub.next()).await, Some(Err(TopicError::Refused(why.into()))));
    }
}

/// The application reads late: what a stopping server has sent is not thrown away with its
/// connection, since the next one may not have it.
#[tokio::test]
async fn a_server_that_goes_away_is_heard_out_and_the_next_one_goes_on() {
    let server = Server::start();
    let (client, mut peer) = server.pair(queue_of(&server, 1)).await;
    let (mut sub, mut stream) = subscribe(&client, &mut peer, queue(Queue::Block)).await;
    peer.tell(&Frame::GoAway { grace_ms: 600_000 }).await;
    for sequence in 1..=5 {
        stream.write_all(&events(sequence, &["x"])).await.unwrap();
    }
    let why = no(Place::Egress.code(), Reason::Shutdown.code(), Retry::Never);
    stream.write_all(&Frame::Ended { why }.bytes()).await.unwrap();
    stream.finish().unwrap();
    assert_eq!(soon(stream.stopped()).await, Ok(None), "all of it is acknowledged");
    peer.connection.close(0_u32.into(), b"shutdown");
    until(|| sub.books().expected.records == 1).await;
    for sequence in 1..=5 {
        assert_eq!(soon(sub.next()).await, record(sequence, "x"));
    }
    let mut peer = server.greet().await;
    peer.bind(SUBSCRIBE, 8).await;
    let (request, start) = peer.asked_subscribe().await;
    assert_eq!(start, Start::At { epoch: 7, sequence: 6 });
    let mut stream = peer.subscribed(request, 6).await;
    stream.write_all(&events(6, &["y"])).await.unwrap();
    assert_eq!(soon(sub.next()).await, record(6, "y"));
}

/// What was dropped here does not come again: it was told.
#[tokio::test]
async fn each_policy_of_the_inbox_at_its_limit() {
    for (policy, got) in [
        (Queue::DropNew, "1 2 -3 6"),
        (Queue::DropOld, "-3 4 5 6"),
        (Queue::Latest, "-4 5 6"),
        (Queue::Block, "1 2 3 4 5 6"),
    ] {
        let server = Server::start();
        let (client, mut peer) = server.pair(queue_of(&server, 2)).await;
        let (mut sub, mut stream) = subscribe(&client, &mut peer, queue(policy)).await;
        for sequence in 1..=5 {
            stream.write_all(&events(sequence, &["x"])).await.unwrap();
        }
        let arrived = if policy == Queue::Block { 2 } else { 5 };
        until(|| sub.books().expected.records == arrived).await;
        let mut seen = Vec::new();
        let mut is_sent = false;
        while seen.last().is_none_or(|last| last != "6") {
            match soon(sub.next()).await.unwrap().unwrap() {
                Event::Record { sequence, .. } => seen.push(sequence.to_string()),
                Event::Gap(gap) => seen.push(format!("-{}", gap.records)),
                other => panic!("{other:?}"),
            }
            let books = sub.books();
            if !is_sent && books.expected.records == 5 && books.lag.records == 0 {
                is_sent = true;
                stream.write_all(&events(6, &["x"])).await.unwrap();
            }
        }
        let books = sub.books();
        assert_eq!(books.expected.records, books.delivered.records + books.dropped.records);
        assert_eq!(seen.join(" "), got, "{policy:?}");
    }
}

/// Waiting for an event and giving up loses none.
#[tokio::test]
async fn next_may_be_dropped_at_any_time() {
    let server = Server::start();
    let (client, mut peer) = server.pair(server.options()).await;
    let (mut sub, mut stream) = subscribe(&client, &mut peer, SubscribeOptions::default()).await;
    let mut context = Context::from_waker(Waker::noop());
    for sequence in 1..=20 {
        assert!(pin!(sub.next()).poll(&mut context).is_pending());
        stream.write_all(&events(sequence, &["x"])).await.unwrap();
        until(|| sub.books().expected.records == sequence).await;
        assert_eq!(soon(sub.next()).await, record(sequence, "x"));
    }
}

/// A subscription never just falls silent: what breaks the protocol is its end, and so is a stream
/// that stops without a last word.
#[tokio::test]
async fn what_breaks_the_protocol_ends_the_subscription() {
    let hello = Frame::Ping { token: 1 }.bytes();
    let mut huge = Vec::new();
    quic::varint::put(&mut huge, 1 << 40);
    for broken in [&[1, 0x7f][..], &[0], &hello, &huge, &[]] {
        let server = Server::start();
        let (client, mut peer) = server.pair(server.options()).await;
        let options = SubscribeOptions::default();
        let (mut sub, mut stream) = subscribe(&client, &mut peer, options).await;
        stream.write_all(&events(1, &["a"])).await.unwrap();
        stream.write_all(broken).await.unwrap();
        if broken.is_empty() {
            stream.finish().unwrap();
        }
        assert_eq!(soon(sub.next()).await, record(1, "a"));
        let end = soon(sub.next()).await;
        assert!(matches!(end, Some(Err(TopicError::Ended(_)))), "{broken:?}: {end:?}");
        assert_eq!(soon(sub.next()).await, None);
    }
}

/// A stream that does not begin with its subscription is a fault of the connection.
#[tokio::test]
async fn a_stream_of_nobody_ends_the_connection() {
    let server = Server::start();
    let (client, peer) = server.pair(server.options()).await;
    let mut stream = peer.connection.open_uni().await.unwrap();
    stream.write_all(&events(1, &["a"])).await.unwrap();
    soon(peer.connection.closed()).await;
    let _peer = server.greet().await;
    until(|| client.stats().reconnects == 1).await;
}
