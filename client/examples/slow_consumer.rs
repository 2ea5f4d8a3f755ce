//! A consumer that is too slow for its topic, and knows exactly what it lost:
//! `slow_consumer quic://127.0.0.1:4433 FINGERPRINT`.

use sluicegate_client::{Client, Event, Limits, Options, Queue, SubscribeOptions, Trust};
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

    let mut options = Options::new(Trust::Fingerprint(fingerprint));
    options.limits = Limits { subscription_queue: 16, ..options.limits };
    let client = Client::connect(&url, options).await?;
    // The newest records are worth more than the oldest.
    let want = SubscribeOptions { queue: Queue::DropOld, ..SubscribeOptions::default() };
    let mut slow = client.subscribe("ticks", want).await?;
    let publisher = client.publisher("ticks").await?;
    let mut last = 0;
    for tick in 0..RECORDS {
        last = publisher.publish_acked(tick.to_string()).await?;
    }
    let (mut got, mut lost) = (0, 0);
    while let Some(event) = slow.next().await.transpose()? {
        match event {
            Event::Record { sequence, .. } => {
                got += 1;
                if sequence >= last {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Event::Gap(gap) => {
                lost += gap.records;
                let (place, reason) = (gap.place.name(), gap.reason.name());
                println!("lost {} to {}: {reason} at {place}", gap.first, gap.last);
            }
            Event::Restarted { .. } => println!("the topic began anew"),
        }
    }
    println!("published {RECORDS}, got {got}, told of {lost} that were lost");
    client.close().await;
    Ok(())
}
