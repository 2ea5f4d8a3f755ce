//! What a client publishes, as a server sees it that does what the test says.
#![cfg(not(madsim))]

mod support;

use sluicegate_client::{
    Client, Code, ConnectError, Limits, Options, Place, PublishError, Reason, Retry,
    SubscribeOptions, TopicError,
};
use sluicegate_wire::quic::{Frame, Mode, decode};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use support::{Peer, Server, no, soon, until};

const PUBLISH: (bool, bool) = (true, false);
const SUBSCRIBE: (bool, bool) = (false, true);

async fn publisher(client: &Client, peer: &mut Peer) -> sluicegate_client::Publisher {
    let (publisher, ()) = tokio::join!(client.publisher("news"), peer.bind(PUBLISH, 5));
    publisher.expect("it was bound")
}

fn copied(frame: Frame<'_>) -> (u32, Mode, Vec<Vec<u8>>) {
    match frame {
        Frame::Publish { topic, mode, records } => {
            (topic, mode, records.into_iter().map(<[u8]>::to_vec).collect())
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn hello_says_who_it_is_once() {
    let server = Server::start();
    let mut options = server.options();
    options.tenant = "acme".to_owned();
    options.token = "secret".to_owned();
    let url = server.url();
    let connecting = tokio::spawn(async move { Client::connect(&url, options).await });
    let mut peer = server.meet().await;
    peer.expect(|frame| match frame {
        Frame::Hello { oldest: 1, newest: 1, tenant, token, .. } => {
            assert_eq!((tenant, token), ("acme", "secret"));
        }
        other => panic!("{other:?}"),
    })
    .await;
    let code = u32::from(Code::Unauthenticated.number());
    peer.connection.close(code.into(), b"the token is not known");
    let error = soon(connecting).await.unwrap().unwrap_err();
    let text = "the token is not known".to_owned();
    assert_eq!(error, ConnectError::Refused { code: Some(Code::Unauthenticated), text });
}

#[tokio::test]
async fn every_mode_of_publishing_is_on_the_wire_and_answered() {
    let server = Server::start();
    let (client, mut peer) = server.pair(server.options()).await;
    let publisher = publisher(&client, &mut peer).await;
    publisher.publish("a").await.unwrap();
    let mut stream = peer.publishes().await;
    assert_eq!(stream.expect(copied).await, (5, Mode::Unacked, vec![b"a".to_vec()]));

    let other = publisher.clone();
    let acked = tokio::spawn(async move { other.publish_acked("b").await });
    let (_, mode, _) = stream.expect(copied).await;
    let Mode::Acked { request } = mode else { panic!("{mode:?}") };
    peer.tell(&Frame::Ack { request, first: 41 }).await;
    assert_eq!(soon(acked).await.unwrap(), Ok(41));

    let other = publisher.clone();
    let batch = vec!["c".into(), "d".into()];
    let waits = tokio::spawn(async move { other.publish_batch_acked(batch, true).await });
    let (_, mode, records) = stream.expect(copied).await;
    let Mode::Waiting { request } = mode else { panic!("{mode:?}") };
    assert_eq!(records.len(), 2);
    let why = no(Place::Schedule.code(), Reason::Deadline.code(), Retry::After(20));
    peer.tell(&Frame::Refused { request, why }).await;
    let Err(PublishError::Refused(why)) = soon(waits).await.unwrap() else { panic!() };
    assert_eq!((why.place, why.reason), (Some(Place::Schedule), Some(Reason::Deadline)));
    assert_eq!(why.retry, Retry::After(20));

    publisher.try_publish("e").unwrap();
    assert_eq!(stream.expect(copied).await.2, [b"e"]);
    let why = no(Place::Schedule.code(), Reason::QueueFull.code(), Retry::Never);
    peer.tell(&Frame::Shed { records: 2, why }).await;
    until(|| client.stats().shed == 2).await;
    let stats = client.stats();
    assert_eq!((stats.sent, stats.acked, stats.refused), (2, 1, 2));
}

#[tokio::test]
async fn answers_come_in_any_order() {
    let server = Server::start();
    let (client, mut peer) = server.pair(server.options()).await;
    let publisher = publisher(&client, &mut peer).await;
    let ask = |text: &'static str| {
        let publisher = publisher.clone();
        tokio::spawn(async move { publisher.publish_acked(text).await })
    };
    let (a, b) = (ask("a"), ask("b"));
    let mut stream = peer.publishes().await;
    let mut requests = Vec::new();
    for _ in 0..2 {
        let (_, mode, records) = stream.expect(copied).await;
        let Mode::Acked { request } = mode else { panic!("{mode:?}") };
        requests.push((request, u64::from(records[0][0])));
    }
    for (request, first) in requests.into_iter().rev() {
        peer.tell(&Frame::Ack { request, first }).await;
    }
    assert_eq!(soon(a).await.unwrap(), Ok(u64::from(b'a')));
    assert_eq!(soon(b).await.unwrap(), Ok(u64::from(b'b')));
}

#[tokio::test]
async fn a_refused_publish_leaves_the_others_alone() {
    let server = Server::start();
    let (client, mut peer) = server.pair(server.options()).await;
    let publisher = publisher(&client, &mut peer).await;
    let mut stream = None;
    for round in 0..3_u64 {
        let other = publisher.clone();
        let asked = tokio::spawn(async move { other.publish_acked("x").await });
        if stream.is_none() {
            stream = Some(peer.publishes().await);
        }
        let (_, mode, _) = stream.as_mut().unwrap().expect(copied).await;
        let Mode::Acked { request } = mode else { panic!("{mode:?}") };
        if round == 1 {
            let why = no(Place::Admission.code(), Reason::BytesConn.code(), Retry::After(5));
            peer.tell(&Frame::Refused { request, why }).await;
            assert!(matches!(soon(asked).await.unwrap(), Err(PublishError::Refused(_))));
        } else {
            peer.tell(&Frame::Ack { request, first: round }).await;
            assert_eq!(soon(asked).await.unwrap(), Ok(round));
        }
    }
}

#[tokio::test]
async fn a_publish_without_an_answer_has_an_unknown_outcome() {
    let server = Server::start();
    let (client, mut peer) = server.pair(server.options()).await;
    let publisher = publisher(&client, &mut peer).await;
    let other = publisher.clone();
    let asked = tokio::spawn(async move { other.publish_acked("x").await });
    let mut stream = peer.publishes().await;
    stream.expect(copied).await;
    peer.connection.close(0_u32.into(), b"");
    assert_eq!(soon(asked).await.unwrap(), Err(PublishError::Unknown));
    assert_eq!(client.stats().unknown, 1);

    let mut peer = server.greet().await;
    publisher.publish("y").await.unwrap();
    peer.bind(PUBLISH, 9).await;
    let mut stream = peer.publishes().await;
    assert_eq!(stream.expect(copied).await, (9, Mode::Unacked, vec![b"y".to_vec()]));
}

/// A right that was refused is not asked for together with another one that may be granted.
#[tokio::test]
async fn a_refused_right_does_not_stay_with_the_topic() {
    let server = Server::start();
    let (client, mut peer) = server.pair(server.options()).await;
    let refuse = async |peer: &mut Peer, rights| {
        let request = peer.asked_bind(rights).await;
        let why = no(Place::Table.code(), Reason::NotAllowed.code(), Retry::Never);
        peer.tell(&Frame::Refused { request, why }).await;
    };
    let (refused, ()) = tokio::join!(client.publisher("news"), refuse(&mut peer, PUBLISH));
    assert!(matches!(refused, Err(TopicError::Refused(_))), "{refused:?}");
    let options = SubscribeOptions::default();
    let (_subscription, _stream) =
        tokio::join!(async { soon(client.subscribe("news", options)).await.unwrap() }, async {
            peer.bind(SUBSCRIBE, 5).await;
            let (request, _) = peer.asked_subscribe().await;
            peer.subscribed(request, 1).await
        });
    // Refused once more while the topic is bound: the subscription does not suffer after a loss.
    let (refused, ()) = tokio::join!(client.publisher("news"), refuse(&mut peer, PUBLISH));
    assert!(matches!(refused, Err(TopicError::Refused(_))), "{refused:?}");
    peer.connection.close(0_u32.into(), b"");
    let mut peer = server.greet().await;
    peer.bind(SUBSCRIBE, 6).await;
    peer.asked_subscribe().await;
}

/// The server would end the connection, and with it what others have published.
#[tokio::test]
async fn a_frame_that_the_server_does_not_take_is_refused_here() {
    let mut server = Server::start();
    server.max_frame_bytes = 1024;
    let (client, mut peer) = server.pair(server.options()).await;
    let publisher = publisher(&client, &mut peer).await;
    let error = soon(publisher.publish_acked(vec![0; 1024])).await.unwrap_err();
    let PublishError::Refused(why) = error else { panic!("{error:?}") };
    assert_eq!((why.place, why.reason), (Some(Place::Window), Some(Reason::Oversize)));
    assert_eq!(why.retry, Retry::Never);
    publisher.publish("fits").await.unwrap();
    let mut stream = peer.publishes().await;
    assert_eq!(stream.expect(copied).await.2, [b"fits"]);
}

fn small() -> Limits {
    Limits {
        publish_inflight_bytes: 1024,
        publish_queue_depth: 1,
        publish_waiters: 2,
        ..Limits::default()
    }
}

fn limited(server: &Server) -> Options {
    Options { limits: small(), ..server.options() }
}

/// Polls a future once and drops it, for every state that a publish can wait in.
#[tokio::test]
async fn futures_that_are_dropped_hold_nothing() {
    let server = Server::start();
    let (client, mut peer) = server.pair(limited(&server)).await;
    let publisher = publisher(&client, &mut peer).await;
    let other = publisher.clone();
    // It holds all of the window until it is answered.
    let first = tokio::spawn(async move { other.publish_acked(vec![0; 700]).await });
    let mut stream = peer.publishes().await;
    let (_, mode, _) = stream.expect(copied).await;
    let Mode::Acked { request } = mode else { panic!("{mode:?}") };
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..100 {
        let mut one = pin!(publisher.publish_acked(vec![0; 700]));
        let mut two = pin!(publisher.publish(vec![0; 700]));
        assert!(one.as_mut().poll(&mut context).is_pending());
        assert!(two.as_mut().poll(&mut context).is_pending());
        let mut three = pin!(publisher.publish("x"));
        let Poll::Ready(Err(PublishError::Refused(why))) = three.as_mut().poll(&mut context) else {
            panic!("the line takes two")
        };
        assert_eq!((why.place, why.reason), (Some(Place::Window), Some(Reason::Limit)));
    }
    assert_eq!(publisher.try_publish(vec![0; 700]), Err(PublishError::Full));
    // One that was granted its bytes, and is dropped before it looks.
    {
        let mut granted = pin!(publisher.publish(vec![0; 700]));
        assert!(granted.as_mut().poll(&mut context).is_pending());
        peer.tell(&Frame::Ack { request, first: 1 }).await;
        assert_eq!(soon(first).await.unwrap(), Ok(1));
    }
    // The whole window is there again, again and again.
    for _ in 0..10 {
        soon(publisher.publish(vec![1; 700])).await.unwrap();
        assert_eq!(stream.expect(copied).await.2, [vec![1; 700]]);
    }
}

/// The server reads nothing: window and queue fill, and what waits is refused at the end.
#[tokio::test]
async fn a_client_that_closes_answers_everybody() {
    let server = Server::start();
    let (client, mut peer) = server.pair(limited(&server)).await;
    let publisher = publisher(&client, &mut peer).await;
    let other = publisher.clone();
    let first = tokio::spawn(async move { other.publish_acked(vec![0; 700]).await });
    let mut stream = peer.publishes().await;
    stream.expect(copied).await;
    let mut second = pin!(publisher.publish_acked(vec![0; 700]));
    let mut context = Context::from_waker(Waker::noop());
    assert!(second.as_mut().poll(&mut context).is_pending());
    let mut closing = pin!(client.close());
    assert!(closing.as_mut().poll(&mut context).is_pending());
    assert_eq!(soon(second).await, Err(PublishError::Closed));
    peer.connection.close(0_u32.into(), b"");
    assert_eq!(soon(first).await.unwrap(), Err(PublishError::Unknown));
    soon(closing).await;
    assert_eq!(publisher.publish("late").await, Err(PublishError::Closed));
}

/// What a later version adds does no harm; what breaks the protocol ends the connection, and
/// another one is made.
#[tokio::test]
async fn unknown_frames_are_passed_over_and_broken_ones_end_the_connection() {
    let server = Server::start();
    let (client, mut peer) = server.pair(server.options()).await;
    peer.send.write_all(&[3, 0x80, 1, 2]).await.unwrap();
    let publisher = publisher(&client, &mut peer).await;
    for broken in [&[1, 0x7f][..], &[0], &Frame::Ack { request: 1 << 40, first: 1 }.bytes()] {
        peer.send.write_all(broken).await.unwrap();
        soon(peer.connection.closed()).await;
        peer = server.greet().await;
        peer.bind(PUBLISH, 5).await;
    }
    publisher.publish("still here").await.unwrap();
    let mut stream = peer.publishes().await;
    assert_eq!(stream.expect(copied).await.2, [b"still here"]);
    assert_eq!(client.stats().reconnects, 3);
}

/// What is under way is finished; what is new waits for the next connection.
#[tokio::test]
async fn a_server_that_goes_away_is_asked_nothing_new() {
    let server = Server::start();
    let (client, mut peer) = server.pair(server.options()).await;
    let publisher = publisher(&client, &mut peer).await;
    let asked = tokio::spawn({
        let publisher = publisher.clone();
        async move { publisher.publish_acked("under way").await }
    });
    let mut stream = peer.publishes().await;
    let request = stream.expect(copied).await.1;
    let Mode::Acked { request } = request else { panic!("{request:?}") };
    peer.tell(&Frame::GoAway { grace_ms: 600_000 }).await;
    // The end of the stream says that it was heard.
    assert_eq!(soon(stream.next()).await, None);
    publisher.publish("new").await.unwrap();
    let other = tokio::spawn({
        let client = client.clone();
        async move { client.publisher("other").await.map(drop) }
    });
    let third = client.subscribe("third", SubscribeOptions::default());
    let mut third = pin!(third);
    assert!(third.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    peer.tell(&Frame::Ping { token: 9 }).await;
    peer.expect(|frame| assert_eq!(frame, Frame::Pong { token: 9 })).await;
    peer.tell(&Frame::Ack { request, first: 4 }).await;
    assert_eq!(soon(asked).await.unwrap(), Ok(4));
    // Nothing is under way: there is nothing to wait for.
    soon(peer.connection.closed()).await;
    assert_eq!(soon(peer.control.next()).await, None, "it was asked for something");

    let mut peer = server.greet().await;
    peer.bind(PUBLISH, 6).await;
    let mut stream = peer.publishes().await;
    assert_eq!(stream.expect(copied).await, (6, Mode::Unacked, vec![b"new".to_vec()]));
    let rights = soon(peer.control.next()).await.unwrap();
    assert!(matches!(decode(&rights), Ok(Some(Frame::Bind { .. }))), "{rights:?}");
    assert_eq!((client.stats().unknown, client.stats().reconnects), (0, 1));
    other.abort();
}

#[tokio::test]
async fn a_server_that_goes_away_is_left_when_its_grace_is_over() {
    let server = Server::start();
    let (client, mut peer) = server.pair(server.options()).await;
    let publisher = publisher(&client, &mut peer).await;
    let asked = tokio::spawn(async move { publisher.publish_acked("never answered").await });
    peer.publishes().await.expect(copied).await;
    peer.tell(&Frame::GoAway { grace_ms: 1 }).await;
    assert_eq!(soon(asked).await.unwrap(), Err(PublishError::Unknown));
    soon(peer.connection.closed()).await;
    server.greet().await.bind(PUBLISH, 5).await;
    assert_eq!((client.stats().unknown, client.stats().reconnects), (1, 1));
}

/// What was asked before the client knew is asked again, and what was refused may be.
#[tokio::test]
async fn what_a_stopping_server_refuses_is_for_the_next_one() {
    let server = Server::start();
    let (client, mut peer) = server.pair(server.options()).await;
    let publisher = publisher(&client, &mut peer).await;
    let asked = tokio::spawn(async move { publisher.publish_acked("late").await });
    let mode = peer.publishes().await.expect(copied).await.1;
    let Mode::Acked { request } = mode else { panic!("{mode:?}") };
    let why = no(Place::Admission.code(), Reason::Shutdown.code(), Retry::Never);
    peer.tell(&Frame::Refused { request, why }).await;
    let Err(PublishError::Refused(told)) = soon(asked).await.unwrap() else { panic!() };
    assert_eq!((told.reason, told.retry), (Some(Reason::Shutdown), Retry::After(100)));
    let (other, _peer) = tokio::join!(soon(client.publisher("other")), async {
        let request = peer.asked_bind(PUBLISH).await;
        peer.tell(&Frame::Refused { request, why }).await;
        peer.connection.close(0_u32.into(), b"shutdown");
        let mut peer = server.greet().await;
        peer.bind(PUBLISH, 1).await;
        peer.bind(PUBLISH, 2).await;
        peer
    });
    assert!(other.is_ok(), "{other:?}");
}
