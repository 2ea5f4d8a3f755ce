//! `pub`: publishes lines, or a file, or what comes in.

use super::connect::{Connect, runtime, stopped};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::Args;
use serde_json::json;
use sluicegate_client::Publisher;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc;

/// Lines that are read ahead.
const AHEAD: usize = 1024;

/// How often the progress is shown.
const PROGRESS: Duration = Duration::from_secs(1);

/// What is published.
#[derive(Clone, Debug, Args)]
pub(super) struct Publish {
    /// The topic
    topic: String,
    /// One record: the contents of this file; without it each line that comes in is a record
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Wait for each record until it is sequenced, and print its number
    #[arg(long)]
    acked: bool,
    #[command(flatten)]
    connect: Connect,
}

pub(super) fn run(publish: &Publish, json: bool) -> Result<()> {
    let records = records(publish)?;
    runtime()?.block_on(send(publish, records, json))
}

/// What is published, read on a thread of its own.
fn records(publish: &Publish) -> Result<mpsc::Receiver<io::Result<Bytes>>> {
    let (send, records) = mpsc::channel(AHEAD);
    if let Some(path) = &publish.file {
        let mut bytes = Vec::new();
        std::fs::File::open(path)
            .and_then(|mut file| file.read_to_end(&mut bytes))
            .with_context(|| format!("--file {}: cannot be read", path.display()))?;
        send.try_send(Ok(bytes.into())).ok().context("no room for a file")?;
        return Ok(records);
    }
    std::thread::Builder::new().name("lines".to_owned()).spawn(move || {
        for line in BufReader::new(io::stdin()).split(b'\n') {
            if send.blocking_send(line.map(Bytes::from)).is_err() {
                return;
            }
        }
    })?;
    Ok(records)
}

/// Publishes all that comes, and counts it.
async fn pump(
    publish: &Publish,
    publisher: &Publisher,
    mut records: mpsc::Receiver<io::Result<Bytes>>,
    (count, json): (&mut u64, bool),
) -> Result<()> {
    let is_watched = is_watched(publish, json);
    let mut progress = tokio::time::interval(PROGRESS);
    loop {
        let record = tokio::select! {
            biased;
            record = records.recv() => record,
            _ = progress.tick(), if is_watched => {
                eprint!("\r{count} records");
                continue;
            }
        };
        let Some(record) = record else { return Ok(()) };
        let record = record.context("the input cannot be read")?;
        if !publish.acked {
            publisher.publish(record).await?;
            *count += 1;
            continue;
        }
        let sequence = publisher.publish_acked(record).await?;
        *count += 1;
        let mut out = io::stdout();
        if json {
            writeln!(out, "{}", json!({ "event": "acked", "sequence": sequence }))?;
        } else {
            writeln!(out, "{sequence}")?;
        }
    }
}

fn is_watched(publish: &Publish, json: bool) -> bool {
    io::stderr().is_terminal() && !json && !publish.acked
}

async fn send(
    publish: &Publish,
    records: mpsc::Receiver<io::Result<Bytes>>,
    json: bool,
) -> Result<()> {
    let client = publish.connect.client().await?;
    let publisher = client.publisher(&publish.topic).await.context("the topic")?;
    let is_watched = is_watched(publish, json);
    let mut count: u64 = 0;
    tokio::select! {
        biased;
        pumped = pump(publish, &publisher, records, (&mut count, json)) => pumped?,
        // What was handed to the client until then is brought to its end.
        stop = stopped() => stop?,
        () = publish.connect.watch(&client) => {}
    }
    client.close().await;
    let stats = client.stats();
    if is_watched {
        eprintln!("\r{count} records");
    }
    if json {
        let line = json!({
            "event": "done", "published": count, "sent": stats.sent, "acked": stats.acked,
            "shed": stats.shed, "unconfirmed": stats.unconfirmed, "refused": stats.refused,
        });
        println!("{line}");
    }
    let lost = stats.shed + stats.unconfirmed + stats.refused;
    ensure!(
        lost == 0,
        "of {count} records the broker shed {}, {} may not have arrived, and {} were refused: \
         publish with --acked to know which",
        stats.shed,
        stats.unconfirmed,
        stats.refused
    );
    Ok(())
}
