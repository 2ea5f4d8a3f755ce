//! Every key does something: two values of it, and what a host sees of the difference.

use super::*;
use crate::client::inbox::{Answer as Kept, Event, Inbox};
use crate::client::queue::{Answer as Placed, Queue};
use crate::client::window::{Answer as Asked, Window};
use crate::limits::KEYS;
use std::boxed::Box;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// What a host sees under some limits, as a number.
type Seen = Box<dyn Fn(&Limits) -> u64>;

fn see(seen: impl Fn(&Limits) -> u64 + 'static) -> Seen {
    Box::new(seen)
}

/// Records that wait for one subscriber after it was sent 20 batches and took nothing.
fn waiting(pipe: Pipe, limits: &Limits) -> u64 {
    let (mut bench, source, _, sub) = one_subscriber(limits.clone(), pipe, Policy::DropNew);
    bench.flood(source, 200, 20, 0);
    bench.broker.sub_books(sub).unwrap().lag.records
}

/// How many of `times` publishes of a tenant of its own are admitted, each from a new connection or
/// all from one.
fn admitted(bench: &mut Bench, times: u32, bytes: usize, one: bool) -> u64 {
    let tenant = bench.broker.tenant(1).unwrap();
    let topic = bench.broker.topic(tenant, "t").unwrap();
    let mut conn = bench.broker.open(tenant).unwrap();
    for _ in 0..times {
        let _ = bench.publish_as(conn, topic, bytes, Ack::Now);
        if !one {
            conn = bench.broker.open(tenant).unwrap();
        }
    }
    bench.broker.tenant_books(tenant).unwrap().admitted.records
}

fn admitted_bytes(limits: &Limits, one: bool) -> u64 {
    let limits = Limits { pub_queue_total: 1_000, max_frame_bytes: 20 * KIB, ..limits.clone() };
    admitted(&mut Bench::new(limits), 10, 20_000, one)
}

fn deadline(bench: &Bench) -> u64 {
    bench.broker.next_deadline().map_or(0, Instant::as_nanos)
}

/// Records dropped as stale for a peer that reads a tenth.
fn stale(limits: &Limits) -> u64 {
    let (mut bench, (source, topic), outlet, _) =
        one_subscriber(limits.clone(), Pipe::Shared, Policy::DropOld);
    for ms in 1..=500 {
        bench.wait(1);
        let _ = bench.publish(source, topic, 100);
        bench.broker.writable(outlet);
        bench.run(|_| if ms % 10 == 0 { 100 } else { 0 });
    }
    bench.broker.ledger().dropped.get(Place::Backlog, Reason::Stale).records
}

/// Records that who comes late is handed, of ten, one every 100 ms.
fn replayed(limits: &Limits) -> u64 {
    let limits = Limits { retention_records: limits.retention_records.max(1), ..limits.clone() };
    let mut bench = Bench::new(limits);
    let (source, outlet) = bench.peer(Pipe::Shared);
    let topic = bench.topic("t");
    for _ in 0..10 {
        bench.flood((source, topic), 1_000, 1, ALL);
        bench.wait(100);
    }
    let wish = Wish { start: Start::Earliest, ..Wish::policy(Policy::DropNew) };
    let sub = bench.broker.subscribe(outlet, topic, wish).unwrap();
    bench.run(|_| ALL);
    bench.broker.sub_books(sub).unwrap().delivered.records
}

/// Into how many offers twenty batches of 200 bytes go.
fn offers(limits: &Limits) -> u64 {
    let (mut bench, (source, topic), _, _) =
        one_subscriber(limits.clone(), Pipe::Shared, Policy::DropOld);
    for _ in 0..20 {
        let _ = bench.publish(source, topic, 200);
    }
    let _ = bench.broker.step(100);
    let mut offers = 0;
    bench.write(|_| {
        offers += 1;
        ALL
    });
    offers
}

/// When a timer is due that a subscriber that takes nothing starts.
fn timer(pipe: Pipe, policy: Policy, limits: &Limits) -> u64 {
    let limits = Limits { subscription_batches: 2, high_water_bytes: KIB, ..limits.clone() };
    let (mut bench, source, _, _) = one_subscriber(limits, pipe, policy);
    bench.flood(source, 200, 10, 0);
    deadline(&bench)
}

/// Batches that wait for a shard that takes no parcels.
fn parcels(limits: &Limits) -> u64 {
    let limits = Limits { shards: 2, ..limits.clone() };
    let mut shards = [0, 1].map(|at| Broker::shard(limits.clone(), 7, at));
    let tenants = [0, 1].map(|at: usize| shards[at].tenant(1).unwrap());
    let owner = usize::try_from(crate::mesh::Named::of(0, "t").owner(2)).unwrap();
    let topics = [0, 1].map(|at: usize| shards[at].topic(tenants[at], "t").unwrap());
    let [here, there] = [owner, 1 - owner];
    let conn = shards[there].open(tenants[there]).unwrap();
    let outlet = shards[there].outlet(conn, Pipe::Shared).unwrap();
    let wish = Wish::policy(Policy::DropOld);
    shards[there].subscribe(outlet, topics[there], wish).unwrap();
    let [to, from] = [here, there].map(|at| u32::try_from(at).unwrap());
    let interest = shards[there].poll_parcel(to).expect("it tells what it wants");
    shards[here].receive(from, interest);
    let source = shards[here].open(tenants[here]).unwrap();
    for _ in 0..20 {
        let frame = Bytes::from_static(b"x");
        let message =
            Message { frame, records: 1, ack: Ack::None, except: None, keep: Keep::Default };
        let _ = shards[here].publish(source, topics[here], message);
        let _ = shards[here].step(10);
    }
    core::iter::from_fn(|| shards[here].poll_parcel(from)).count() as u64
}

/// The jobs of the first of two tenants that run while `work` is spent.
fn first_share(limits: &Limits) -> u64 {
    let mut bench = Bench::new(Limits { pub_queue_total: 1_000, ..limits.clone() });
    let first = TenantId { index: 1, generation: 0 };
    for _ in 0..2 {
        assert_eq!(admitted(&mut bench, 100, 200, true), 100);
    }
    let _ = bench.broker.step(50);
    bench.broker.tenant_books(first).unwrap().sequenced.records
}

/// Keys about publishing: name, two values, and what is seen of them.
fn of_publishing() -> Vec<(&'static str, [u64; 2], Seen)> {
    let total = |limits: &Limits| admitted(&mut Bench::new(limits.clone()), 10, 1, true);
    let depth = |limits: &Limits| {
        let mut bench = Bench::new(Limits { pub_queue_total: 8, ..limits.clone() });
        let _ = admitted(&mut bench, 8, 1, true);
        admitted(&mut bench, 8, 1, true)
    };
    let frame = |limits: &Limits| admitted(&mut Bench::new(limits.clone()), 1, 1_500, true);
    let parked = |limits: &Limits| {
        let mut bench = Bench::new(Limits { pub_queue_total: 1, ..limits.clone() });
        let (source, _) = bench.peer(Pipe::Shared);
        let topic = bench.topic("t");
        let _ = bench.publish(source, topic, 1);
        let _ = bench.publish(source, topic, 1);
        u64::from(bench.broker.jobs().1)
    };
    let waits = |limits: &Limits| {
        let mut bench = Bench::new(Limits { pub_queue_total: 1, ..limits.clone() });
        let (source, _) = bench.peer(Pipe::Shared);
        let topic = bench.topic("t");
        for _ in 0..2 {
            let _ = bench.publish_as(source, topic, 1, Ack::Wait);
        }
        bench.wait(5);
        u64::from(bench.broker.jobs().1)
    };
    let per_conn = 90_000;
    alloc::vec![
        ("max_frame_bytes", [KIB, 2 * KIB], see(frame)),
        ("pub_conn_inflight_bytes", [per_conn, MIB], see(|l| admitted_bytes(l, true))),
        ("pub_ingress_wait", [0, 1], see(parked)),
        ("pub_inflight_bytes", [per_conn, MIB], see(|l| admitted_bytes(l, false))),
        ("pub_queue_depth", [1, 4], see(depth)),
        ("pub_queue_total", [1, 5], see(total)),
        ("pub_tenant_inflight_bytes", [per_conn, MIB], see(|l| admitted_bytes(l, false))),
        ("publish_queue_wait_ms", [4, 6], see(waits)),
        ("quantum_bytes", [KIB, 64 * KIB], see(first_share)),
    ]
}

/// Keys about what waits for subscribers.
fn of_queues() -> Vec<(&'static str, [u64; 2], Seen)> {
    let shed = |limits: &Limits| {
        waiting(Pipe::Single, &Limits { egress_shed: 1, egress_batches: 9, ..limits.clone() })
    };
    let batches =
        |limits: &Limits| waiting(Pipe::Single, &Limits { egress_shed: 1, ..limits.clone() });
    let sheds =
        |limits: &Limits| waiting(Pipe::Single, &Limits { egress_batches: 5, ..limits.clone() });
    let target = |limits: &Limits| stale(&Limits { codel_interval_ms: 100, ..limits.clone() });
    let interval = |limits: &Limits| stale(&Limits { codel_target_ms: 5, ..limits.clone() });
    let allowed = |limits: &Limits| {
        let mut bench = Bench::new(limits.clone());
        let (_, outlet) = bench.peer(Pipe::Single);
        let topic = bench.topic("t");
        bench.broker.subscribe(outlet, topic, Wish::policy(Policy::Block)).is_ok().into()
    };
    let block = |limits: &Limits| {
        timer(Pipe::Single, Policy::Block, &Limits { allow_block: 1, ..limits.clone() })
    };
    let age = |limits: &Limits| replayed(&Limits { retention_records: 10, ..limits.clone() });
    alloc::vec![
        ("allow_block", [0, 1], see(allowed)),
        ("block_deadline_ms", [7, 8], see(block)),
        ("codel_interval_ms", [50, 400], see(interval)),
        ("codel_target_ms", [0, 5], see(target)),
        ("egress_batches", [3, 5], see(batches)),
        ("egress_bytes", [KIB, 2 * KIB], see(shed)),
        ("egress_shed", [0, 1], see(sheds)),
        ("high_water_bytes", [KIB, 2 * KIB], see(|l| waiting(Pipe::Shared, l))),
        ("lossless", [0, 1], see(allowed)),
        ("mesh_depth", [3, 5], see(parcels)),
        ("offer_batches", [2, 5], see(offers)),
        ("offer_bytes", [KIB, 2 * KIB], see(offers)),
        ("retention_bytes", [3 * KIB, 6 * KIB], see(age)),
        ("retention_ms", [250, 450], see(age)),
        ("retention_records", [3, 5], see(replayed)),
        ("slow_consumer_after_ms", [7, 8], see(|l| timer(Pipe::Shared, Policy::DropOld, l))),
        ("subscription_batches", [3, 5], see(|l| waiting(Pipe::Single, l))),
        ("subscription_bytes", [KIB, 2 * KIB], see(|l| waiting(Pipe::Single, l))),
    ]
}

/// Keys about the shard as a whole.
fn of_the_shard() -> Vec<(&'static str, [u64; 2], Seen)> {
    let dwell = |limits: &Limits| {
        let mut bench = Bench::new(Limits { memory_budget: MIB, ..limits.clone() });
        let (conn, _) = bench.peer(Pipe::Shared);
        bench.broker.reassembly(conn, MIB).unwrap();
        bench.broker.reassembly(conn, 0).unwrap();
        bench.wait(5);
        bench.broker.band() as u64
    };
    let reserve = |limits: &Limits| {
        let mut bench = Bench::new(limits.clone());
        let (_, outlet) = bench.peer(Pipe::Shared);
        let frame = || Bytes::from_static(b"control");
        (0..200).filter(|_| bench.broker.send(outlet, frame(), Lane::First).is_ok()).count() as u64
    };
    let connections = |limits: &Limits| {
        let mut bench = Bench::new(limits.clone());
        (0..5).filter(|_| bench.broker.open(bench.tenant).is_ok()).count() as u64
    };
    let subscriptions = |limits: &Limits| {
        let mut bench = Bench::new(limits.clone());
        let (_, outlet) = bench.peer(Pipe::Shared);
        let topic = bench.topic("t");
        let wish = Wish::policy(Policy::DropOld);
        (0..5).filter(|_| bench.broker.subscribe(outlet, topic, wish).is_ok()).count() as u64
    };
    let topics = |limits: &Limits| {
        let mut bench = Bench::new(limits.clone());
        let names = ["a", "b", "c", "d"];
        for name in names {
            bench.topic(name);
        }
        let found = |name: &&&str| bench.broker.find_topic(bench.tenant, name).is_some();
        names.iter().filter(found).count() as u64
    };
    let budget = |limits: &Limits| {
        let mut bench = Bench::new(limits.clone());
        let (conn, _) = bench.peer(Pipe::Shared);
        bench.broker.reassembly(conn, MIB).unwrap();
        bench.broker.band() as u64
    };
    let threshold = |limits: &Limits| {
        let mut bench = Bench::new(limits.clone());
        bench.broker.pressure(Some(Sample { avg10: 2_000, total: 0 }));
        bench.broker.factor().thousandths().into()
    };
    let floor = |limits: &Limits| {
        let mut bench = Bench::new(Limits { memory_budget: 16 * MIB, ..limits.clone() });
        let (conn, _) = bench.peer(Pipe::Shared);
        bench.broker.reassembly(conn, 5 * MIB).unwrap();
        u64::from(bench.broker.lease_wish() == LeaseWish::Keep)
    };
    let grace = |limits: &Limits| {
        let mut bench = Bench::new(limits.clone());
        bench.broker.shutdown();
        deadline(&bench)
    };
    alloc::vec![
        ("band_dwell_ms", [4, 6], see(dwell)),
        ("control_reserve_bytes", [KIB, 2 * KIB], see(reserve)),
        ("max_connections", [2, 3], see(connections)),
        ("max_subscriptions", [2, 3], see(subscriptions)),
        ("max_topics", [2, 3], see(topics)),
        ("memory_budget", [MIB, 2 * MIB], see(budget)),
        ("pressure_threshold_percent", [15, 50], see(threshold)),
        ("shards", [1, 4], see(floor)),
        ("shutdown_grace_ms", [7, 8], see(grace)),
    ]
}

/// Keys about a client.
fn of_clients() -> Vec<(&'static str, [u64; 2], Seen)> {
    let granted = |limits: &Limits| {
        let mut window = Window::new(limits);
        (0..9).filter(|_| matches!(window.ask(500), Asked::Granted(_))).count() as u64
    };
    let placed = |limits: &Limits| {
        let mut queue = Queue::new(limits);
        (0..9).filter(|_| matches!(queue.push(()), Placed::Queued)).count() as u64
    };
    let waits = |limits: &Limits| {
        let mut queue = Queue::new(&Limits { publish_queue_depth: 1, ..limits.clone() });
        (0..9).filter(|_| matches!(queue.push(()), Placed::Waits(_))).count() as u64
    };
    let kept = |limits: &Limits| {
        let mut inbox = Inbox::new(limits, Policy::DropNew);
        let event = |first| Event { first, records: 1, bytes: 1, value: () };
        (1..9).filter(|first| matches!(inbox.push(event(*first)), Kept::Queued)).count() as u64
    };
    alloc::vec![
        ("publish_inflight_bytes", [KIB, 2 * KIB], see(granted)),
        ("publish_queue_depth", [3, 5], see(placed)),
        ("publish_waiters", [3, 5], see(waits)),
        ("subscription_queue", [3, 5], see(kept)),
    ]
}

#[test]
fn every_key_does_something() {
    let parts = [of_publishing(), of_queues(), of_the_shard(), of_clients()];
    let rows: Vec<_> = parts.into_iter().flatten().collect();
    for (name, values, seen) in &rows {
        let under = |value| {
            let mut limits = Limits::default();
            limits.set(name, value).unwrap();
            seen(&limits)
        };
        let [one, other] = values.map(under);
        assert_ne!(one, other, "`{name}` {values:?}");
    }
    for key in KEYS {
        let named = rows.iter().filter(|(name, ..)| *name == key.name).count();
        assert_eq!(named, 1, "`{}` has one row", key.name);
    }
}

#[test]
fn the_defaults_are_those_of_the_contract() {
    let limits = Limits::default();
    let seconds = |seconds: u64| seconds * 1_000;
    for (name, value) in [
        ("band_dwell_ms", 100),
        ("block_deadline_ms", seconds(30)),
        ("codel_target_ms", 0),
        ("control_reserve_bytes", 64 * KIB),
        ("egress_batches", 64),
        ("egress_bytes", 256 * MIB),
        ("egress_shed", 0),
        ("lossless", 0),
        ("max_frame_bytes", 16 * MIB),
        ("mesh_depth", 1_024),
        ("offer_batches", 16),
        ("offer_bytes", 64 * KIB),
        ("pressure_threshold_percent", 15),
        ("pub_conn_inflight_bytes", 17 * MIB),
        ("pub_inflight_bytes", 64 * MIB),
        ("pub_ingress_wait", 0),
        ("pub_queue_depth", 64),
        ("pub_queue_total", 256),
        ("publish_inflight_bytes", 4 * MIB),
        ("publish_queue_depth", 64),
        ("publish_queue_wait_ms", seconds(2)),
        ("quantum_bytes", 64 * KIB),
        ("shutdown_grace_ms", seconds(10)),
        ("slow_consumer_after_ms", seconds(30)),
        ("subscription_batches", 512),
        ("subscription_bytes", 256 * MIB),
        ("subscription_queue", 256),
    ] {
        assert_eq!(limits.get(name), Some(value), "{name}");
    }
}
