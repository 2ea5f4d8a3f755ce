//! A server that records itself: what `sluicegate-sim replay` makes of its tape is what it did.

#[path = "../../shell-ws/tests/support/mod.rs"]
mod support;

use sluicegate_core::Tape;
use sluicegate_sim::replay::{Replayed, replay};
use sluicegate_ws::config::{Config, Flags};
use sluicegate_ws::server::Server;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use support::{Client, event, post, until};

/// Connections that subscribe, to a part and a cache channel each.
const CLIENTS: usize = 8;
/// Columns of the books that only grow, on the metrics page and on tapes.
const COLUMNS: [&str; 6] = ["offered", "admitted", "sequenced", "expected", "delivered", "left"];

/// A client that has joined its channels.
fn client(address: SocketAddr, number: usize) -> Client {
    let mut client = Client::connect(address);
    client.upgrade("/app/app-key?protocol=7").text();
    client.subscribe("all").subscribe(&format!("part-{}", number % 3));
    client.subscribe(&format!("cache-{}", number % 2));
    client
}

/// Publishes; how many deliveries that makes.
fn publish(api: &mut Client) -> u64 {
    let mut deliveries = 0;
    for number in 0..60 {
        let channels = [("all", 8), ("part-0", 3), ("part-1", 3), ("part-2", 2), ("cache-0", 4)];
        let (channel, audience) = channels[number % channels.len()];
        let body = event(channel, &"x".repeat(100 * number));
        assert_eq!(api.send(&post(&body)).response().status, 200);
        deliveries += audience;
        if number % 7 == 0 {
            let several = r#"{"name":"e","channels":["all","part-1","cache-1"],"data":"d"}"#;
            assert_eq!(api.send(&post(several)).response().status, 200);
            deliveries += 8 + 3 + 4;
        }
    }
    deliveries
}

/// A column of the server's books, in records.
fn column(api: &mut Client, name: &str) -> u64 {
    let page = api.request("GET /metrics", "").body;
    let head = format!("sluicegate_records_total{{column=\"{name}\"");
    let lines = page.lines().filter(|line| line.starts_with(&head));
    lines.map(number).sum()
}

/// The number at the end of a line.
fn number(line: &str) -> u64 {
    let number = line.rsplit(' ').next().and_then(|number| number.parse().ok());
    number.expect("samples end with a number")
}

/// Records a server of some event loops while clients use it. Its tapes, and its books as its
/// metrics page had them at the end.
fn record(name: &str, loops: u32) -> (Vec<PathBuf>, [u64; COLUMNS.len()]) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("cargo made the folder above");
    let tape = folder.join("server.tape");
    let (workers, flag) = (format!("--workers={loops}"), format!("--tape={}", tape.display()));
    let flags = ["sluicegate-ws", "--port=0", &workers, &flag];
    let flags = <Flags as clap::Parser>::parse_from(flags);
    let config = Config::load(&flags, std::iter::empty()).expect("these flags are good");
    let server = Server::bind(config).expect("there is a free port");
    let (address, mut stopper) = (server.address(), server.stopper().expect("a second handle"));
    let running = thread::spawn(move || server.run());
    let clients: Vec<Client> = (0..CLIENTS).map(|number| client(address, number)).collect();
    let mut api = Client::connect(address);
    let deliveries = publish(&mut api);
    // Two who come late, and get what their cache channels hold.
    let late = [client(address, 0), client(address, 1)];
    until("every delivery", || column(&mut api, "delivered") == deliveries + 2);
    let books = COLUMNS.map(|name| column(&mut api, name));
    drop((clients, late, api));
    stopper.stop().expect("it runs");
    running.join().expect("it does not panic").expect("it ends well");
    let numbered = |number| PathBuf::from(format!("{}.{number}", tape.display()));
    let tapes = if loops == 1 { vec![tape] } else { (0..loops).map(numbered).collect() };
    (tapes, books)
}

/// Plays a tape before all judges.
fn play(path: &Path) -> Replayed {
    let bytes = fs::read(path).expect("the server wrote it");
    let replayed = replay(&Tape::read(&bytes).expect("it is a tape")).expect("it is whole");
    assert!(replayed.conviction.is_none(), "{:?}", replayed.conviction);
    assert!(replayed.differs.is_none() && !replayed.is_cut && replayed.marks > 0, "{replayed:?}");
    replayed
}

#[test]
fn a_servers_tapes_replay_to_its_own_decisions_and_books() {
    for (name, loops) in [("one-loop", 1), ("two-loops", 2)] {
        let (tapes, books) = record(name, loops);
        let played: Vec<Replayed> = tapes.iter().map(|tape| play(tape)).collect();
        let sum = |name: &str| played.iter().map(|one| one.sums.get(name).records).sum::<u64>();
        assert_eq!(COLUMNS.map(sum), books, "{name}: {COLUMNS:?}");
    }
}
