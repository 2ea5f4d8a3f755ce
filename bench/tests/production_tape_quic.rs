//! A QUIC server that records itself: what `sluicegate-sim replay` makes of its tape is what it
//! did.

use sluicegate_client::{
    Client, Event, Options, Policy, PublishError, Start, SubscribeOptions, Subscription, Trust,
};
use sluicegate_core::{Books, Item, Tape};
use sluicegate_quic::config::{Config, Flags};
use sluicegate_quic::process::Process;
use sluicegate_sim::replay::{Replayed, replay};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Batches, of two records each.
const BATCHES: u32 = 150;
/// Nothing on loopback takes this long.
const PATIENCE: Duration = Duration::from_secs(60);
const COLUMNS: [&str; 6] = ["offered", "admitted", "sequenced", "expected", "delivered", "left"];

async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("it has to come")
}

async fn client(process: &Process) -> Client {
    let mut fingerprint = [0; 32];
    hex::decode_to_slice(&process.fingerprint, &mut fingerprint).expect("a hash in hexadecimal");
    let url = format!("quic://{}", process.address);
    let connected = Client::connect(&url, Options::new(Trust::Fingerprint(fingerprint)));
    within(connected).await.expect("it listens")
}

/// Reads until a number was seen, or lost.
async fn read_to(subscription: &mut Subscription, last: u64) {
    loop {
        let event = within(subscription.next()).await.expect("it goes on").expect("nobody ends it");
        match event {
            Event::Record { sequence, .. } if sequence >= last => return,
            Event::Gap(gap) if gap.last >= last => return,
            _ => {}
        }
    }
}

/// Clients that publish with and without an answer, read all, from the start, or the newest only.
async fn use_it(process: &Process) {
    let (writer, reader, other) =
        (client(process).await, client(process).await, client(process).await);
    for topic in ["a", "b", "c"] {
        let publisher = within(writer.publisher(topic)).await.expect("it is open to all");
        let latest = SubscribeOptions { policy: Policy::Latest, ..SubscribeOptions::default() };
        let from_the_start = SubscribeOptions { start: Start::Earliest, ..latest };
        let mut all = within(reader.subscribe(topic, SubscribeOptions::default()))
            .await
            .expect("it is open to all");
        let mut newest = within(other.subscribe(topic, latest)).await.expect("it is open to all");
        for number in 0..BATCHES {
            let record = vec![7_u8; 40 * number as usize];
            let batch = vec![record.clone().into(), record.into()];
            match number % 3 {
                0 => publisher.publish_batch(batch).await.expect("the client is open"),
                waits => match within(publisher.publish_batch_acked(batch, waits == 1)).await {
                    Ok(_) | Err(PublishError::Refused(_)) => {}
                    Err(other) => panic!("{other}"),
                },
            }
        }
        let last = within(publisher.publish_acked("last")).await.expect("there is room");
        read_to(&mut all, last).await;
        read_to(&mut newest, last).await;
        let mut late =
            within(reader.subscribe(topic, from_the_start)).await.expect("it is open to all");
        read_to(&mut late, last).await;
    }
    within(writer.close()).await;
    // One that takes no leave.
    drop(other);
    within(reader.close()).await;
}

/// Waits until something is on the disk: a server does not keep its tape until its end.
async fn written(tapes: &[PathBuf]) {
    let has_bytes = |tape: &PathBuf| fs::metadata(tape).is_ok_and(|file| file.len() > 0);
    while !tapes.iter().any(has_bytes) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Records a server of some shards while clients use it. Its tapes, and its books at the end.
fn record(name: &str, shards: u32) -> (Vec<PathBuf>, [u64; COLUMNS.len()]) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("cargo made the folder above");
    let tape = folder.join("server.tape");
    let set = vec![
        format!("shards={shards}"),
        "admin_port=0".to_owned(),
        format!("state_dir={}", folder.display()),
    ];
    let flags = Flags { port: Some(0), tape: Some(tape.clone()), set, ..Flags::default() };
    let config = Config::load(&flags, std::iter::empty()).expect("these flags are good");
    let process = Process::start(config).expect("there is a free port");
    let brokers = process.shards().to_vec();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let numbered = |number| PathBuf::from(format!("{}.{number}", tape.display()));
    let tapes = if shards == 1 { vec![tape.clone()] } else { (0..shards).map(numbered).collect() };
    runtime.expect("a runtime").block_on(async {
        use_it(&process).await;
        within(written(&tapes)).await;
    });
    process.stop().expect("it ends well");
    let column = |name: &str| -> u64 {
        let of = |books: &Books| {
            let columns = books.columns();
            let found = columns.iter().find(|(own, _)| *own == name);
            found.expect("there is such a column").1.records
        };
        brokers.iter().map(|shard| shard.look(|broker| of(broker.ledger()))).sum()
    };
    (tapes, COLUMNS.map(column))
}

/// Plays a tape before all judges.
fn play(path: &Path) -> Replayed {
    let bytes = fs::read(path).expect("the server wrote it");
    let tape = Tape::read(&bytes).expect("it is a tape");
    let last = tape.items().last();
    assert!(matches!(last, Some(Ok(Item::Mark { .. }))), "its end is missing: {last:?}");
    let replayed = replay(&tape).expect("it is whole");
    assert!(replayed.conviction.is_none(), "{:?}", replayed.conviction);
    assert!(replayed.differs.is_none() && !replayed.is_cut && replayed.marks > 0, "{replayed:?}");
    replayed
}

#[test]
fn a_quic_servers_tapes_replay_to_its_own_decisions_and_books() {
    for (name, shards) in [("quic-one-shard", 1), ("quic-two-shards", 2)] {
        let (tapes, books) = record(name, shards);
        let played: Vec<Replayed> = tapes.iter().map(|tape| play(tape)).collect();
        let sum = |name: &str| played.iter().map(|one| one.sums.get(name).records).sum::<u64>();
        assert_eq!(COLUMNS.map(sum), books, "{name}: {COLUMNS:?}");
        assert!(books.iter().take(5).all(|records| *records > 0), "{name}: {books:?}");
    }
}
