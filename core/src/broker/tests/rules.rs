//! Rules of single places that need a scene of their own.

use super::*;
use alloc::vec;

fn delivered(bench: &Bench, sub: SubId) -> u64 {
    bench.broker.sub_books(sub).unwrap().delivered.records
}

#[test]
fn an_answer_comes_when_it_is_sequenced() {
    let mut bench = Bench::new(Limits::default());
    let (source, _) = bench.peer(Pipe::Shared);
    let topic = bench.topic("t");
    let Verdict::Queued(ticket) = bench.publish_as(source, topic, 10, Ack::Now) else { panic!() };
    bench.write(|_| ALL);
    assert_eq!(bench.notices, [], "it is only queued");
    let _ = bench.broker.step(1);
    bench.write(|_| ALL);
    assert_eq!(bench.notices, [Notice::Committed { conn: source, ticket, first: 1 }]);
}

#[test]
fn an_answer_goes_out_before_what_was_published_goes_to_everybody() {
    let mut bench = Bench::new(Limits::default());
    let (source, own) = bench.peer(Pipe::Shared);
    let topic = bench.topic("t");
    let readers = [0; 3].map(|_| bench.peer(Pipe::Shared).1);
    for outlet in readers {
        bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap();
    }
    let _ = bench.publish_as(source, topic, 10, Ack::Now);
    let _ = bench.broker.step(10);
    let Some(Effect::Notice(Notice::Committed { .. })) = bench.broker.poll() else { panic!() };
    bench.broker.send(own, Bytes::from_static(b"ok"), Lane::InLine).unwrap();
    let mut order = vec![];
    bench.write(|outlet| {
        order.push(outlet);
        ALL
    });
    assert_eq!(order, [&[own][..], &readers].concat());
}

#[test]
fn a_paused_source_gets_its_records_and_its_answers() {
    let limits =
        Limits { lossless: 1, subscription_batches: 1, pub_queue_total: 2, ..Limits::default() };
    let (mut bench, (source, held), stuck, _) = one_subscriber(limits, Pipe::Single, Policy::Block);
    let news = bench.topic("news");
    let own = bench.broker.outlet(source, Pipe::Shared).unwrap();
    let sub = bench.broker.subscribe(own, news, Wish::policy(Policy::DropOld)).unwrap();
    bench.flood((source, news), 100, 3, 0);
    bench.flood((source, held), 100, 3, 0);
    assert!(matches!(bench.publish(source, held, 100), Verdict::Parked(_)));
    bench.broker.send(own, Bytes::from_static(b"pong"), Lane::First).unwrap();
    bench.broker.writable(own);
    assert_eq!(bench.run(|to| if to == stuck { 0 } else { ALL }), 304);
    assert_eq!(delivered(&bench, sub), 3);
    assert!(bench.broker.is_paused(source), "all the while");
    bench.broker.close(source, Close::AfterFlush, Bytes::from_static(b"bye")).unwrap();
    bench.run(|to| if to == stuck { 0 } else { ALL });
    assert!(bench.notices.contains(&Notice::Flushed { conn: source }));
}

#[test]
fn a_parked_publish_holds_memory_and_nothing_else() {
    let mut bench = Bench::new(Limits { pub_queue_total: 1, ..Limits::default() });
    let (source, _) = bench.peer(Pipe::Shared);
    let topic = bench.topic("t");
    let _ = bench.publish_as(source, topic, 100, Ack::Wait);
    let (held, inflight) = (bench.broker.held(), bench.broker.inflight());
    assert!(matches!(bench.publish_as(source, topic, 1_000, Ack::Wait), Verdict::Parked(_)));
    assert_eq!(bench.broker.held() - held, 1_000 + 256 + 16);
    assert_eq!((bench.broker.inflight(), bench.broker.jobs()), (inflight, (1, 1)));
    bench.wait(2_000);
    assert_eq!(bench.broker.held(), held);
}

/// A slot is free when its job begins, and the deliveries can take many steps.
#[test]
fn a_fresh_publish_does_not_take_the_slot_that_a_parked_one_waits_for() {
    let mut bench = Bench::new(Limits { pub_queue_total: 1, ..Limits::default() });
    let topic = bench.topic("t");
    for _ in 0..5 {
        let (_, outlet) = bench.peer(Pipe::Single);
        let _ = bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropNew)).unwrap();
    }
    let [(first, _), (second, _), (third, _)] = [0; 3].map(|_| bench.peer(Pipe::Single));
    assert!(matches!(bench.publish_as(first, topic, 1, Ack::Wait), Verdict::Queued(_)));
    assert!(matches!(bench.publish_as(second, topic, 1, Ack::Wait), Verdict::Parked(_)));
    assert_eq!(bench.broker.step(1), Progress::More, "the first is on its way");
    assert_eq!((bench.broker.jobs(), bench.broker.is_paused(second)), ((1, 0), false));
    let other = bench.broker.tenant(1).unwrap();
    let (stranger, foreign) =
        (bench.broker.open(other).unwrap(), bench.broker.topic(other, "u").unwrap());
    assert!(matches!(bench.publish(stranger, foreign, 1), Verdict::Shed(_)), "it is too late");
    assert!(matches!(bench.publish_as(third, topic, 1, Ack::Wait), Verdict::Parked(_)));
    bench.run(|_| ALL);
}

#[test]
fn books_count_records_and_a_batch_is_lost_whole() {
    let limits = Limits { subscription_batches: 1, ..Limits::default() };
    let (mut bench, (source, topic), outlet, sub) =
        one_subscriber(limits, Pipe::Single, Policy::DropNew);
    for records in [2, 3, 4] {
        let frame = Bytes::from_static(b"records");
        let message = Message { frame, records, ack: Ack::None, except: None, keep: Keep::Default };
        let _ = bench.broker.publish(source, topic, message);
        bench.run(|_| 0);
    }
    bench.broker.writable(outlet);
    bench.run(|_| ALL);
    let books = bench.broker.sub_books(sub).unwrap();
    assert_eq!((books.expected, books.delivered), (tally(9, 21), tally(2, 7)));
    assert_eq!((books.dropped, bench.gaps(sub)), (tally(7, 14), vec![(3, 9)]));
}

const fn tally(records: u64, bytes: u64) -> Tally {
    Tally { records, bytes }
}

#[test]
fn whoever_has_room_is_served_before_a_full_one_is_waited_for() {
    let limits = Limits { lossless: 1, subscription_batches: 2, ..Limits::default() };
    let (mut bench, source, first, _) = one_subscriber(limits, Pipe::Single, Policy::Block);
    let [(second, _), (_, reads)] = [0; 2].map(|_| {
        let (_, outlet) = bench.peer(Pipe::Single);
        let block = Wish::policy(Policy::Block);
        (outlet, bench.broker.subscribe(outlet, source.1, block).unwrap())
    });
    let mut full = vec![first, second];
    for due in [2, 2, 5] {
        if due == 2 && full.len() == 2 {
            for _ in 0..5 {
                let _ = bench.publish(source.0, source.1, 100);
            }
        }
        bench.run(|to| if full.contains(&to) { 0 } else { ALL });
        assert_eq!(delivered(&bench, reads), due, "{} do not read", full.len());
        if let Some(outlet) = full.pop() {
            bench.broker.writable(outlet);
        }
    }
}

#[test]
fn a_wish_for_less_is_granted_and_one_for_more_is_not() {
    for (wished, granted) in [(2, 2), (5, 5), (9, 5), (0, 5)] {
        let mut bench = Bench::new(Limits { subscription_batches: 5, ..Limits::default() });
        let (source, outlet) = (bench.peer(Pipe::Shared).0, bench.peer(Pipe::Single).1);
        let topic = bench.topic("t");
        let wish = Wish { batches: wished, ..Wish::policy(Policy::DropNew) };
        let sub = bench.broker.subscribe(outlet, topic, wish).unwrap();
        bench.flood((source, topic), 100, 10, 0);
        let lag = bench.broker.sub_books(sub).unwrap().lag.records;
        assert_eq!(lag, granted, "{wished} were wished");
    }
}

#[test]
fn a_shared_outlet_has_one_limit_over_its_topics() {
    let (mut bench, (source, one), outlet, _) =
        one_subscriber(small(|_| {}), Pipe::Shared, Policy::DropNew);
    let other = bench.topic("other");
    let sub = bench.broker.subscribe(outlet, other, Wish::policy(Policy::DropNew)).unwrap();
    bench.flood((source, one), 400, 2, 0);
    bench.flood((source, other), 400, 1, 0);
    let books = bench.broker.sub_books(sub).unwrap();
    assert_eq!((books.dropped.records, books.lag.records), (1, 0), "3 of 672 bytes are over 2,000");
    bench.flood((source, other), 300, 1, 0);
    assert_eq!(bench.broker.sub_books(sub).unwrap().lag.records, 1);
}

/// A subscription to a topic that keeps ten records, from the start its wish names.
fn late(start: impl FnOnce(&Bench, TopicId) -> Start) -> (Bench, (ConnId, TopicId), SubId) {
    let limits = Limits { retention_records: 10, subscription_batches: 4, ..Limits::default() };
    let mut bench = Bench::new(limits);
    let (source, _) = bench.peer(Pipe::Shared);
    let topic = bench.topic("t");
    bench.flood((source, topic), 100, 15, ALL);
    let (_, outlet) = bench.peer(Pipe::Single);
    let wish = Wish { start: start(&bench, topic), ..Wish::policy(Policy::DropNew) };
    let sub = bench.broker.subscribe(outlet, topic, wish).unwrap();
    (bench, (source, topic), sub)
}

#[test]
fn what_the_log_loses_before_it_was_handed_over_is_told() {
    let (mut bench, source, sub) = late(|_, _| Start::Earliest);
    bench.flood(source, 100, 10, 0);
    assert_eq!(bench.broker.sub_books(sub).unwrap().expected.records, 3, "to half of its limit");
    let outlet = bench.broker.peers.outlet_id(bench.broker.peers.sub(sub).unwrap().outlet);
    bench.broker.writable(outlet);
    bench.run(|_| ALL);
    assert_eq!(bench.gaps(sub), [(9, 15)], "6 to 8 were handed over; 16 is the oldest now");
    let books = bench.broker.sub_books(sub).unwrap();
    assert_eq!((books.expected.records, books.dropped.records), (20, 7));
    assert_eq!(books.last_drop, Some((Place::Backlog, Reason::Retention)));
}

#[test]
fn another_epoch_is_told_what_is_missing() {
    for (is_same, gaps) in [(true, vec![(3, 5)]), (false, vec![(1, 5)])] {
        let (mut bench, _, sub) = late(|bench, topic| {
            let epoch = bench.broker.topic_epoch(topic).unwrap();
            Start::At { epoch: if is_same { epoch } else { !epoch }, sequence: 3 }
        });
        bench.run(|_| ALL);
        assert_eq!((bench.gaps(sub), delivered(&bench, sub)), (gaps, 10));
        let books = bench.broker.sub_books(sub).unwrap();
        assert_eq!(books.dropped.records, 0, "it was never meant for this subscription");
    }
}

/// What one subscriber that reads got after each of many publishes, beside some that read nothing:
/// of its own connection, or of others.
fn trace(stalled: u32, policy: Policy, same_conn: bool) -> (Vec<Tally>, u64) {
    let limits = Limits { subscription_batches: 4, ..small(|_| {}) };
    let mut bench = Bench::new(limits);
    let (source, _) = bench.peer(Pipe::Shared);
    let topic = bench.topic("t");
    let conn = bench.broker.open(bench.tenant).unwrap();
    let wish = Wish::policy(policy);
    for _ in 0..stalled {
        let conn = if same_conn { conn } else { bench.broker.open(bench.tenant).unwrap() };
        let outlet = bench.broker.outlet(conn, Pipe::Single).unwrap();
        bench.broker.subscribe(outlet, topic, wish).unwrap();
    }
    let reads = bench.broker.outlet(conn, Pipe::Single).unwrap();
    let sub = bench.broker.subscribe(reads, topic, wish).unwrap();
    let mut trace = Vec::new();
    for n in 0..100_usize {
        bench.wait(1);
        for _ in 0..n % 4 {
            let _ = bench.publish(source, topic, 50 + n * 7);
        }
        bench.run(|to| if to == reads { ALL } else { 0 });
        trace.push(bench.broker.sub_books(sub).unwrap().delivered);
    }
    (trace, bench.broker.ledger().dropped.total().records)
}

#[test]
fn a_stalled_peer_changes_nobody_elses_trace() {
    for policy in [Policy::DropNew, Policy::DropOld, Policy::Latest] {
        let (alone, lost) = trace(0, policy, false);
        assert_eq!(lost, 0);
        for (stalled, same_conn) in [(1, false), (5, false), (1, true), (5, true)] {
            let (beside, lost) = trace(stalled, policy, same_conn);
            assert!(lost > 0, "the others lose");
            assert_eq!(beside, alone, "{policy:?}, {stalled} stalled");
        }
    }
}

#[test]
fn what_goes_back_to_the_queue_of_who_left_has_left() {
    let (mut bench, (source, topic), outlet, sub) =
        one_subscriber(Limits::default(), Pipe::Shared, Policy::DropOld);
    for _ in 0..3 {
        let _ = bench.publish(source, topic, 100);
    }
    let _ = bench.broker.step(10);
    let Some(Effect::Write(offer)) = bench.broker.poll() else { panic!("three are queued") };
    bench.broker.unsubscribe(sub).unwrap();
    bench.check();
    assert_eq!(bench.broker.ledger().left.records, 0, "what is on offer is still delivered");
    bench.broker.sent(offer, 150);
    bench.check();
    let books = bench.broker.ledger();
    let ends = [books.delivered, books.left, books.lag].map(|tally| tally.records);
    assert_eq!(ends, [1, 1, 1], "whole, not begun, and in mid-write");
    bench.broker.writable(outlet);
    assert_eq!(bench.run(|_| ALL), 50);
    assert_eq!((bench.broker.ledger().lag, bench.broker.counts().1), (Tally::ZERO, 0));
}

#[test]
fn a_topic_of_another_tenant_is_not_for_publishing() {
    let mut bench = Bench::new(Limits::default());
    let (source, outlet) = bench.peer(Pipe::Shared);
    let other = bench.broker.tenant(1).unwrap();
    let theirs = bench.broker.topic(other, "t").unwrap();
    let not_allowed = |place| Refusal::never(place, Reason::NotAllowed);
    let refused = Verdict::Refused(not_allowed(Place::Table));
    assert_eq!(bench.publish_as(source, theirs, 1, Ack::Now), refused);
    let wish = Wish::policy(Policy::DropOld);
    let joined = bench.broker.subscribe(outlet, theirs, wish);
    assert_eq!(joined, Err(not_allowed(Place::Backlog)));
}

#[test]
fn tenants_have_a_limit() {
    let mut bench = Bench::new(Limits::default());
    for _ in 1..MAX_TENANTS {
        bench.broker.tenant(1).unwrap();
    }
    assert_eq!(bench.broker.tenant(1), Err(Refusal::never(Place::Table, Reason::Limit)));
}

#[test]
fn a_connection_closes_once() {
    let mut bench = Bench::new(Limits::default());
    let (conn, _) = bench.peer(Pipe::Shared);
    bench.broker.close(conn, Close::AfterFlush, Bytes::new()).unwrap();
    let again = bench.broker.close(conn, Close::Now, Bytes::new());
    assert_eq!(again, Err(Refusal::never(Place::Table, Reason::Closed)));
    bench.write(|_| ALL);
    assert_eq!(bench.notices, [Notice::Flushed { conn }]);
}
