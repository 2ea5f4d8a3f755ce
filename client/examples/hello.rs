//! Publishes a record and gets it back: `hello quic://127.0.0.1:4433 FINGERPRINT`, as
//! `sluicegate-quic serve` prints it.

use sluicegate_client::{Client, Event, Options, SubscribeOptions, Trust};
use std::error::Error;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("the first argument is the address")?;
    let hash = arguments.next().ok_or("the second argument is the certificate's SHA-256")?;
    let mut fingerprint = [0; 32];
    hex::decode_to_slice(hash.replace(':', ""), &mut fingerprint)?;

    let client = Client::connect(&url, Options::new(Trust::Fingerprint(fingerprint))).await?;
    let mut hello = client.subscribe("hello", SubscribeOptions::default()).await?;
    let sequence = client.publisher("hello").await?.publish_acked("hello, world").await?;
    println!("published as record {sequence}");
    if let Some(Event::Record { sequence, payload }) = hello.next().await.transpose()? {
        println!("record {sequence}: {}", String::from_utf8_lossy(&payload));
    }
    client.close().await;
    Ok(())
}
