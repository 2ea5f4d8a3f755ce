//! What becomes of a client whose token is not taken any more, and where the next one comes from.
#![cfg(not(madsim))]

mod support;

use sluicegate_client::{
    Client, Code, ConnectError, Disconnected, Options, Place, Reason, Refusal, Retry,
    SubscribeOptions, TokenSource, TopicError,
};
use sluicegate_wire::quic::Frame;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use support::{Peer, Server, events, soon};

/// Options whose tokens are numbers: each connection shows another. Those that are listed are not
/// to be had.
fn numbered(server: &Server, missing: &'static [u64]) -> Options {
    let next = Arc::new(AtomicU64::new(1));
    let fetch = move || {
        let number = next.fetch_add(1, Ordering::Relaxed);
        async move {
            // Not there at once, as anything that is fetched.
            tokio::task::yield_now().await;
            let is_missing = missing.contains(&number);
            if is_missing {
                Err(format!("number {number} is missing"))
            } else {
                Ok(number.to_string())
            }
        }
    };
    Options { token_source: Some(TokenSource::new(fetch)), ..server.options() }
}

/// The next connection, with the token that it shows.
async fn shown(server: &Server) -> (Peer, String) {
    let mut peer = server.meet().await;
    let token = peer
        .expect(|frame| match frame {
            Frame::Hello { token, .. } => token.to_owned(),
            other => panic!("{other:?}"),
        })
        .await;
    (peer, token)
}

fn close(peer: &Peer, code: Code) {
    peer.connection.close(u32::from(code.number()).into(), b"told");
}

#[tokio::test]
async fn what_would_be_said_again_is_the_end_and_nobody_asks_again() {
    let endings = [
        (Code::Expired, "the token has come to its end"),
        (Code::Unauthenticated, "token and tenant do not go together"),
        (Code::Unexpected, "the server does not understand this client"),
    ];
    for (code, said) in endings {
        let server = Server::start();
        let (client, mut peer) = server.pair(server.options()).await;
        let subscribing = tokio::spawn({
            let client = client.clone();
            async move { client.subscribe("orders", SubscribeOptions::default()).await }
        });
        peer.bind((false, true), 8).await;
        let (request, _) = peer.asked_subscribe().await;
        let _stream = peer.subscribed(request, 1).await;
        let mut sub = soon(subscribing).await.unwrap().unwrap();
        close(&peer, code);
        let (place, reason) = (Some(Place::Table), Some(Reason::NotAllowed));
        let why = Refusal { place, reason, retry: Retry::Never };
        let end = TopicError::Disconnected(Disconnected { code: Some(code), why });
        // Nobody takes another connection: it ends without one.
        assert_eq!(soon(sub.next()).await, Some(Err(end)));
        assert_eq!(client.publisher("other").await.map(drop), Err(end));
        assert!(end.to_string().contains(said), "{end}");
    }
}

#[tokio::test]
async fn with_a_source_of_tokens_each_connection_shows_the_next_one() {
    let server = Server::start();
    let options = numbered(&server, &[3]);
    let url = server.url();
    let connecting = tokio::spawn(async move { Client::connect(&url, options).await });
    let (mut peer, token) = shown(&server).await;
    assert_eq!(token, "1");
    server.welcome(&mut peer).await;
    let client = soon(connecting).await.unwrap().unwrap();
    let subscribing = tokio::spawn({
        let client = client.clone();
        async move { client.subscribe("orders", SubscribeOptions::default()).await }
    });
    peer.bind((false, true), 8).await;
    let (request, _) = peer.asked_subscribe().await;
    let _stream = peer.subscribed(request, 1).await;
    let mut sub = soon(subscribing).await.unwrap().unwrap();
    close(&peer, Code::Expired);
    // A key that the server does not know yet, and then a source that has none for once.
    let (peer, token) = shown(&server).await;
    assert_eq!(token, "2");
    close(&peer, Code::Unauthenticated);
    let (mut peer, token) = shown(&server).await;
    assert_eq!(token, "4");
    server.welcome(&mut peer).await;
    peer.bind((false, true), 8).await;
    let (request, _) = peer.asked_subscribe().await;
    let mut stream = peer.subscribed(request, 1).await;
    stream.write_all(&events(1, &["on"])).await.unwrap();
    assert!(soon(sub.next()).await.unwrap().is_ok());
    assert_eq!(client.stats().reconnects, 1);
}

#[tokio::test]
async fn a_source_without_a_token_is_told_at_the_first_connection() {
    let server = Server::start();
    let told = soon(Client::connect(&server.url(), numbered(&server, &[1]))).await.map(drop);
    assert_eq!(told, Err(ConnectError::Token("number 1 is missing".to_owned())));
    assert_eq!(
        told.unwrap_err().to_string(),
        "there is no token to show (token_source): number 1 is missing"
    );
}
