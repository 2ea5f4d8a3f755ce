//! A publisher that waits for its slow consumer, and loses nothing:
//! `lossless_pipeline quic://127.0.0.1:4433 FINGERPRINT`. The server needs `lossless = 1`.

use sluicegate_client::{Client, Event, Options, SubscribeOptions, Trust};
use std::error::Error;
use std::time::Duration;

const RECORDS: u64 = 2_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("the first argument is the address")?;
    let hash = arguments.next().ok_or("the second argument is the certificate's SHA-256")?;
    let mut fingerprint = [0; 32];
    hex::decode_to_slice(hash.replace(':', ""), &mut fingerprint)?;

    let client = Client::connect(&url, Options::new(Trust::Fingerprint(fingerprint))).await?;
    let mut steps = client.subscribe("steps", SubscribeOptions::lossless()).await?;
    let publisher = client.publisher("steps").await?;
    let publishing = tokio::spawn(async move {
        for step in 0..RECORDS {
            // Waits while the window or the queue is full: that is how the consumer is heard.
            publisher.publish(step.to_string()).await?;
        }
        Ok::<_, sluicegate_client::PublishError>(())
    });
    let mut next = 0;
    while next < RECORDS {
        match steps.next().await.transpose()? {
            Some(Event::Record { payload, .. }) => {
                let step: u64 = std::str::from_utf8(&payload)?.parse()?;
                if step != next {
                    return Err(format!("step {step} came where {next} was due").into());
                }
                next += 1;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            other => return Err(format!("lost at step {next}: {other:?}").into()),
        }
    }
    publishing.await??;
    println!("{next} steps, in order, none lost");
    client.close().await;
    Ok(())
}
