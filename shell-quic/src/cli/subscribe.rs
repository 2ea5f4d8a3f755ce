//! `sub`: prints a topic's records.

use super::connect::{Connect, runtime, stopped};
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use serde_json::json;
use sluicegate_client::{Event, Place, Policy, Queue, Reason, Start, SubscribeOptions, TopicError};
use std::io::{self, BufWriter, Write};
use std::pin::pin;

/// What is printed.
#[derive(Clone, Debug, Args)]
pub(super) struct Subscribe {
    /// The topic
    topic: String,
    /// Where it begins: `tail` (the next record), `earliest`, or a number for the newest so many
    #[arg(long, value_name = "START", default_value = "tail", value_parser = start)]
    from: Start,
    /// What the broker does when this subscription is full
    #[arg(long, value_enum, default_value_t = Full::Default)]
    policy: Full,
    /// End after this many records
    #[arg(long, value_name = "NUMBER")]
    count: Option<u64>,
    #[command(flatten)]
    connect: Connect,
}

/// What the broker does when a subscription is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Full {
    /// Who publishes waits; needs a broker with `lossless = 1`
    Block,
    /// As the broker is configured
    Default,
    /// The new batch is dropped
    DropNew,
    /// The oldest batch is dropped
    DropOld,
    /// Only the newest batch is kept
    Latest,
}

fn start(text: &str) -> Result<Start, String> {
    match text {
        "tail" => Ok(Start::Tail),
        "earliest" => Ok(Start::Earliest),
        number => number
            .parse()
            .map(Start::Last)
            .map_err(|_| "write `tail`, `earliest`, or a number of records".to_owned()),
    }
}

pub(super) fn run(subscribe: &Subscribe, json: bool) -> Result<()> {
    runtime()?.block_on(print(subscribe, json))
}

async fn print(subscribe: &Subscribe, json: bool) -> Result<()> {
    let client = subscribe.connect.client().await?;
    let policy = match subscribe.policy {
        Full::Block => Policy::Block,
        Full::Default => Policy::Default,
        Full::DropNew => Policy::DropNew,
        Full::DropOld => Policy::DropOld,
        Full::Latest => Policy::Latest,
    };
    // What this terminal does not take stays at the broker, whose policy decides.
    let options = SubscribeOptions {
        start: subscribe.from,
        policy,
        queue: Queue::Block,
        ..SubscribeOptions::default()
    };
    let mut subscription = client
        .subscribe(&subscribe.topic, options)
        .await
        .map_err(|error| told(error, &subscribe.topic))?;
    let mut out = BufWriter::new(io::stdout());
    let mut left = subscribe.count.unwrap_or(u64::MAX);
    let mut stop = pin!(stopped());
    let mut watch = pin!(subscribe.connect.watch(&client));
    while left > 0 {
        let next = tokio::select! {
            biased;
            next = subscription.next() => next,
            stop = &mut stop => {
                stop?;
                break;
            }
            () = &mut watch => continue,
        };
        match next {
            None => break,
            Some(Err(why)) => bail!("{why}"),
            Some(Ok(event)) => {
                left -= u64::from(matches!(event, Event::Record { .. }));
                if show(&mut out, &event, json).is_err() {
                    // Nobody reads any more.
                    break;
                }
            }
        }
    }
    let _ = out.flush();
    drop(subscription);
    client.close().await;
    Ok(())
}

/// Why a topic cannot be subscribed to, and what would help.
fn told(error: TopicError, topic: &str) -> anyhow::Error {
    let hint = match &error {
        TopicError::Refused(why) if why.reason == Some(Reason::NotAllowed) => match why.place {
            Some(Place::Backlog) => {
                ", --policy block: the server takes it with lossless or allow_block"
            }
            _ => ": the tenant and its token must have a right to it",
        },
        _ => "",
    };
    let context = format!("the topic `{topic}`{hint}");
    anyhow::Error::new(error).context(context)
}

fn show(out: &mut impl Write, event: &Event, json: bool) -> io::Result<()> {
    match event {
        Event::Record { sequence, payload } if json => {
            let text = String::from_utf8_lossy(payload);
            let line = json!({ "event": "record", "sequence": sequence, "payload": text });
            writeln!(out, "{line}")?;
        }
        Event::Record { payload, .. } => {
            out.write_all(payload)?;
            out.write_all(b"\n")?;
        }
        Event::Gap(gap) if json => {
            let line = json!({
                "event": "gap", "first": gap.first, "last": gap.last, "records": gap.records,
                "place": gap.place.name(), "reason": gap.reason.name(),
            });
            writeln!(out, "{line}")?;
        }
        Event::Gap(gap) => {
            let (place, reason) = (gap.place.name(), gap.reason.name());
            eprintln!(
                "lost {} records ({} to {}): {reason} at {place}",
                gap.records, gap.first, gap.last
            );
        }
        Event::Restarted { epoch, start } if json => {
            writeln!(out, "{}", json!({ "event": "restarted", "epoch": epoch, "start": start }))?;
        }
        Event::Restarted { start, .. } => {
            eprintln!("the topic began anew: the next record is number {start} or later");
        }
    }
    out.flush()
}
