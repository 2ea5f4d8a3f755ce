//! What we end: slow consumers, subscriptions that hold their topic too long, a whole shard.

use super::*;
use crate::notice::Notice;
use alloc::vec;

fn count_of(table: &crate::ledger::Table, place: Place, reason: Reason) -> u64 {
    table.get(place, reason).records
}

fn ended(bench: &Bench, why: Reason) -> Vec<SubId> {
    let subs = bench.notices.iter().filter_map(|notice| match notice {
        Notice::Ended { sub, why: refusal } if refusal.reason == why => Some(*sub),
        _ => None,
    });
    subs.collect()
}

#[test]
fn a_consumer_that_takes_no_byte_at_its_limit_is_closed() {
    let limits = small(|limits| limits.slow_consumer_after_ms = 1_000);
    let (mut bench, (source, topic), outlet, _) =
        one_subscriber(limits, Pipe::Shared, Policy::DropOld);
    let flood = |bench: &mut Bench, taken: u64| {
        bench.flood((source, topic), 100, 20, taken);
    };
    let closes = |bench: &Bench| {
        let closes = bench.notices.iter().filter_map(|notice| match notice {
            Notice::Close { why, .. } => Some(why.reason),
            _ => None,
        });
        closes.filter(|reason| *reason == Reason::SlowConsumer).count()
    };
    flood(&mut bench, 0);
    assert_eq!(bench.broker.next_deadline(), Some(Instant::from_millis(1_000)));
    bench.wait(999);
    bench.broker.writable(outlet);
    bench.run(|_| 10);
    flood(&mut bench, 0);
    bench.wait(999);
    bench.run(|_| 0);
    assert_eq!(closes(&bench), 0, "it took ten bytes within the time");
    bench.wait(1);
    bench.run(|_| 0);
    assert_eq!(closes(&bench), 1);
    bench.wait(5_000);
    bench.run(|_| 0);
    assert_eq!(closes(&bench), 1, "said once");
}

#[test]
fn a_single_outlet_loses_only_its_subscription_when_it_is_slow() {
    let limits =
        Limits { slow_consumer_after_ms: 1_000, subscription_batches: 4, ..Limits::default() };
    let (mut bench, (source, topic), outlet, sub) =
        one_subscriber(limits, Pipe::Single, Policy::DropNew);
    bench.flood((source, topic), 100, 10, 0);
    bench.wait(1_000);
    bench.run(|_| 0);
    assert_eq!(ended(&bench, Reason::SlowConsumer), [sub]);
    let dropped = &bench.broker.ledger().dropped;
    assert_eq!(count_of(dropped, Place::Backlog, Reason::DropNew), 6);
    assert_eq!(count_of(dropped, Place::Backlog, Reason::SlowConsumer), 4);
    assert!(bench.broker.sub_books(sub).is_none());
    bench.broker.shut(outlet);
    bench.check();
    assert!(bench.broker.ledger().lag.is_zero());
}

#[test]
fn a_block_subscription_holds_its_topic_until_its_deadline() {
    let limits = Limits {
        allow_block: 1,
        block_deadline_ms: 1_000,
        slow_consumer_after_ms: 10,
        subscription_batches: 2,
        ..Limits::default()
    };
    let (mut bench, (source, topic), _, sub) = one_subscriber(limits, Pipe::Single, Policy::Block);
    bench.flood((source, topic), 100, 5, 0);
    assert_eq!(bench.broker.jobs().0, 3, "the topic is held");
    assert_eq!(bench.broker.blocked_by(topic), Some(sub));
    bench.wait(999);
    bench.run(|_| 0);
    assert_eq!(ended(&bench, Reason::Deadline), []);
    bench.wait(1);
    bench.run(|_| 0);
    assert_eq!(ended(&bench, Reason::Deadline), [sub]);
    assert_eq!(bench.broker.jobs().0, 0, "the others are served again");
    assert_eq!(bench.broker.blocked_by(topic), None);
    let dropped = &bench.broker.ledger().dropped;
    assert_eq!(count_of(dropped, Place::Backlog, Reason::Deadline), 2);
}

#[test]
fn lossless_mode_has_no_deadline() {
    let limits = Limits { lossless: 1, subscription_batches: 2, ..Limits::default() };
    let (mut bench, (source, topic), _, _) = one_subscriber(limits, Pipe::Single, Policy::Block);
    bench.flood((source, topic), 100, 5, 0);
    assert_eq!(bench.broker.next_deadline(), None);
}

#[test]
fn egress_sheds_at_its_own_limit_where_the_operator_says_so() {
    for (batches, bytes, kept) in [(3, 1 << 30, 3), (100, 4 * (100 + 256 + 16), 2)] {
        let limits = Limits {
            egress_shed: 1,
            egress_batches: batches,
            egress_bytes: bytes,
            ..Limits::default()
        };
        let mut bench = Bench::new(limits);
        let (source, _) = bench.peer(Pipe::Shared);
        let conn = bench.broker.open(bench.tenant).unwrap();
        let topic = bench.topic("t");
        let policies = [Policy::DropNew, Policy::DropOld];
        let subs = policies.map(|policy| {
            let outlet = bench.broker.outlet(conn, Pipe::Single).unwrap();
            bench.broker.subscribe(outlet, topic, Wish::policy(policy)).unwrap()
        });
        bench.flood((source, topic), 100, 10, 0);
        for sub in subs {
            let books = bench.broker.sub_books(sub).unwrap();
            assert_eq!(books.lag.records, kept, "share of {bytes} between two");
            assert_eq!(books.last_drop.unwrap().0, Place::Egress, "the peer is not reading");
        }
    }
}

#[test]
fn an_offer_stays_within_its_share() {
    let limits = Limits { egress_bytes: 1 << 10, ..Limits::default() };
    let (mut bench, (source, topic), _, _) = one_subscriber(limits, Pipe::Single, Policy::DropNew);
    for _ in 0..10 {
        let _ = bench.publish(source, topic, 500);
    }
    while bench.broker.step(100) == Progress::More {}
    let mut offers = vec![];
    while let Some(effect) = bench.broker.poll() {
        if let Effect::Write(offer) = effect {
            offers.push(offer.bytes);
            bench.broker.sent(offer, offer.bytes);
        }
    }
    assert_eq!(offers, [1_000; 5]);
}

#[test]
fn shutdown_admits_nothing_and_drops_what_is_left_at_the_end() {
    let limits = Limits { pub_queue_total: 1, shutdown_grace_ms: 500, ..Limits::default() };
    let (mut bench, (source, topic), _, sub) =
        one_subscriber(limits, Pipe::Shared, Policy::DropOld);
    let (other, _) = bench.peer(Pipe::Shared);
    let _ = bench.publish(source, topic, 100);
    bench.run(|_| 10);
    let _ = bench.publish(source, topic, 100);
    let Verdict::Parked(ticket) = bench.publish_as(other, topic, 100, Ack::Wait) else {
        panic!("no slot is free")
    };
    bench.broker.shutdown();
    bench.check();
    let why = Refusal::never(Place::Admission, Reason::Shutdown);
    assert_eq!(bench.publish_as(source, topic, 1, Ack::Now), Verdict::Refused(why));
    assert_eq!(bench.broker.open(bench.tenant).unwrap_err(), why);
    bench.run(|_| 0);
    assert!(bench.notices.contains(&Notice::Failed { conn: other, ticket, why }));
    assert!(!bench.broker.is_flushed());
    bench.wait(499);
    assert_eq!(bench.broker.sub_books(sub).unwrap().lag.records, 2, "in mid-write, and waiting");
    bench.wait(1);
    bench.run(|_| 0);
    let dropped = &bench.broker.ledger().dropped;
    assert_eq!(count_of(dropped, Place::Egress, Reason::Shutdown), 1);
    assert_eq!(bench.broker.sub_books(sub).unwrap().lag.records, 1, "what is begun is finished");
    assert_eq!(bench.broker.next_deadline(), None);
}

#[test]
fn shutdown_ends_queued_publishes_of_a_held_topic() {
    let limits =
        Limits { lossless: 1, subscription_batches: 1, shutdown_grace_ms: 0, ..Limits::default() };
    let (mut bench, (source, topic), _, _) = one_subscriber(limits, Pipe::Single, Policy::Block);
    for _ in 0..3 {
        let _ = bench.publish(source, topic, 100);
    }
    bench.run(|_| 0);
    bench.broker.shutdown();
    bench.wait(0);
    bench.run(|_| 0);
    let books = bench.broker.ledger();
    assert_eq!(count_of(&books.evicted, Place::Schedule, Reason::Shutdown), 2);
    assert_eq!(count_of(&books.dropped, Place::Egress, Reason::Shutdown), 1);
    assert!(bench.broker.is_flushed());
}

#[test]
fn a_connection_is_given_up_once() {
    let limits = small(|limits| limits.slow_consumer_after_ms = 1_000);
    let (mut bench, source, _, _) = one_subscriber(limits, Pipe::Shared, Policy::DropOld);
    for _ in 0..3 {
        bench.flood(source, 100, 20, 0);
        bench.wait(1_000);
        bench.run(|_| 0);
    }
    let close = |notice: &&Notice| matches!(notice, Notice::Close { .. });
    assert_eq!(bench.notices.iter().filter(close).count(), 1);
}
