//! More rare states that a host can reach: endings, shutdown, catching up and relief.

use super::*;
use crate::notice::Notice;
use crate::shed::Band;
use alloc::vec;

fn control(bytes: usize) -> Bytes {
    Bytes::from(vec![b'c'; bytes])
}

fn conn_of(bench: &Bench, outlet: OutletId) -> ConnId {
    bench.broker.peers.conn_id(bench.broker.peers.outlet(outlet).unwrap().conn)
}

fn flushed(bench: &Bench) -> usize {
    bench.notices.iter().filter(|notice| matches!(notice, Notice::Flushed { .. })).count()
}

/// Records told as lost.
fn told(bench: &Bench) -> u64 {
    let gaps = bench.notices.iter().filter_map(|notice| match notice {
        Notice::Gap { gap, .. } => Some(gap.records),
        _ => None,
    });
    gaps.sum()
}

#[test]
fn an_ended_subscription_keeps_the_control_frames_of_its_outlet() {
    let limits =
        Limits { slow_consumer_after_ms: 1_000, subscription_batches: 2, ..Limits::default() };
    let (mut bench, (source, topic), outlet, _) =
        one_subscriber(limits, Pipe::Single, Policy::DropNew);
    bench.flood((source, topic), 100, 4, 0);
    bench.broker.send(outlet, control(40_000), Lane::InLine).unwrap();
    bench.run(|_| 0);
    bench.wait(1_000);
    bench.run(|_| 0);
    bench.broker.writable(outlet);
    assert_eq!(bench.run(|_| ALL), 40_000, "control frames are never dropped");
}

#[test]
fn nobody_stays_paused_for_control_frames_that_are_gone() {
    let limits = Limits { shutdown_grace_ms: 1_000, ..Limits::default() };
    let (mut bench, (source, topic), outlet, _) =
        one_subscriber(limits, Pipe::Shared, Policy::DropOld);
    let _ = bench.publish(source, topic, 100);
    bench.run(|_| 0);
    bench.broker.send(outlet, control(40_000), Lane::InLine).unwrap();
    bench.run(|_| 0);
    bench.broker.shutdown();
    bench.wait(1_000);
    bench.run(|_| 0);
    bench.broker.writable(outlet);
    assert_eq!(bench.run(|_| ALL), 40_000, "control frames are never dropped");
    let paused = bench.notices.iter().filter(|n| matches!(n, Notice::Pause { .. })).count();
    let resumed = bench.notices.iter().filter(|n| matches!(n, Notice::Resume { .. })).count();
    assert_eq!((paused, resumed), (1, 1));
}

#[test]
fn a_consumer_whose_queue_was_emptied_is_not_at_its_limit() {
    let limits = small(|limits| limits.slow_consumer_after_ms = 1_000);
    let mut bench = Bench::new(limits);
    let (source, _) = bench.peer(Pipe::Shared);
    let (_, outlet) = bench.peer(Pipe::Shared);
    let [loud, calm] = ["loud", "calm"].map(|name| bench.topic(name));
    let wish = Wish::policy(Policy::DropOld);
    let much = bench.broker.subscribe(outlet, loud, wish).unwrap();
    let _ = bench.broker.subscribe(outlet, calm, wish).unwrap();
    bench.flood((source, loud), 100, 20, 0);
    bench.broker.unsubscribe(much).unwrap();
    bench.wait(1_000);
    bench.run(|_| 0);
    let closed = bench.notices.iter().any(|notice| matches!(notice, Notice::Close { .. }));
    assert!(!closed, "nothing waits for it");
}

#[test]
fn what_a_closing_connection_loses_before_its_last_frame_is_told() {
    let (mut bench, (source, topic), outlet, _) =
        one_subscriber(small(|_| {}), Pipe::Shared, Policy::DropNew);
    bench.flood((source, topic), 500, 20, 0);
    let lost = bench.broker.ledger().dropped.total().records;
    let conn = conn_of(&bench, outlet);
    bench.broker.close(conn, Close::AfterFlush, control(3)).unwrap();
    bench.broker.writable(outlet);
    bench.run(|_| ALL);
    assert_eq!(flushed(&bench), 1);
    assert_eq!(told(&bench), lost);
}

#[test]
fn a_closing_connection_that_loses_its_queue_to_relief_is_flushed() {
    let limits = Limits { memory_budget: 1 << 20, band_dwell_ms: 0, ..Limits::default() };
    let (mut bench, (source, topic), outlet, _) =
        one_subscriber(limits, Pipe::Shared, Policy::DropOld);
    let (_, other) = bench.peer(Pipe::Shared);
    let _ = bench.broker.subscribe(other, topic, Wish::policy(Policy::DropOld)).unwrap();
    let _ = bench.publish(source, topic, 500);
    bench.run(|to| if to == other { ALL } else { 0 });
    let conn = conn_of(&bench, outlet);
    bench.broker.close(conn, Close::AfterFlush, Bytes::new()).unwrap();
    bench.broker.reassembly(source, 1 << 20).unwrap();
    bench.run(|_| 0);
    assert_eq!(bench.broker.band(), Band::Saturated);
    bench.broker.reassembly(source, 0).unwrap();
    bench.run(|_| 0);
    bench.broker.writable(outlet);
    bench.run(|_| ALL);
    assert_eq!(flushed(&bench), 1);
    assert_eq!(bench.broker.counts().1, 1, "nothing names its subscription any more");
}

#[test]
fn a_closing_connection_is_flushed_at_the_end_of_the_grace() {
    let limits = Limits { shutdown_grace_ms: 1_000, ..Limits::default() };
    let (mut bench, (source, topic), outlet, _) =
        one_subscriber(limits, Pipe::Shared, Policy::DropOld);
    let _ = bench.publish(source, topic, 500);
    bench.run(|_| 0);
    let conn = conn_of(&bench, outlet);
    bench.broker.shutdown();
    bench.broker.close(conn, Close::AfterFlush, control(3)).unwrap();
    bench.wait(1_000);
    bench.run(|_| 0);
    bench.broker.writable(outlet);
    assert_eq!(bench.run(|_| ALL), 3, "the close code is sent");
    assert_eq!(flushed(&bench), 1);
    assert_eq!(told(&bench), 1);
}

#[test]
fn a_share_of_less_than_a_byte_still_lets_a_batch_through() {
    let mut bench = Bench::new(Limits { egress_bytes: 1_024, ..Limits::default() });
    let (source, _) = bench.peer(Pipe::Shared);
    let conn = bench.broker.open(bench.tenant).unwrap();
    let topic = bench.topic("t");
    for _ in 0..1_025 {
        let outlet = bench.broker.outlet(conn, Pipe::Single).unwrap();
        bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropNew)).unwrap();
    }
    let _ = bench.publish(source, topic, 10);
    while bench.broker.step(2_000) == Progress::More {}
    let mut sent = 0;
    while let Some(Effect::Write(offer)) = bench.broker.poll() {
        bench.broker.sent(offer, offer.bytes);
        sent += 1;
    }
    assert_eq!(sent, 1_025);
}

/// A tenant with two parked publishes: the first one finds no room, the second one would.
fn parked_behind_a_dear_one() -> (Bench, TopicId, [ConnId; 3]) {
    let limits = Limits {
        lossless: 1,
        subscription_batches: 1,
        max_frame_bytes: 60 << 10,
        pub_inflight_bytes: 128 << 10,
        pub_conn_inflight_bytes: 124 << 10,
        pub_tenant_inflight_bytes: 124 << 10,
        ..Limits::default()
    };
    let (mut bench, (source, topic), _, _) = one_subscriber(limits, Pipe::Single, Policy::Block);
    let _ = bench.publish(source, topic, 10);
    bench.run(|_| 0);
    let [a, b] = [0; 2].map(|_| bench.peer(Pipe::Shared).0);
    assert!(matches!(bench.publish(source, topic, 60 << 10), Verdict::Queued(_)));
    assert!(matches!(bench.publish(source, topic, 10 << 10), Verdict::Queued(_)));
    let other = bench.topic("u");
    assert!(matches!(bench.publish(a, other, 60 << 10), Verdict::Parked(_)));
    assert!(matches!(bench.publish(b, other, 10 << 10), Verdict::Parked(_)));
    bench.run(|_| 0);
    (bench, other, [source, a, b])
}

#[test]
fn a_shutdown_admits_nothing() {
    let (mut bench, _, _) = parked_behind_a_dear_one();
    let before = bench.broker.ledger().admitted;
    bench.broker.shutdown();
    bench.check();
    assert_eq!(bench.broker.ledger().admitted, before);
    assert_eq!(bench.broker.jobs(), (2, 0));
}

#[test]
fn an_unacked_publish_that_is_parked_at_a_shutdown_is_shed_and_told_so() {
    let (mut bench, _, [_, a, b]) = parked_behind_a_dear_one();
    bench.broker.shutdown();
    bench.run(|_| 0);
    let failed = bench.notices.iter().any(|notice| matches!(notice, Notice::Failed { .. }));
    assert!(!failed, "nobody waits for an answer");
    for conn in [a, b] {
        let (place, reason) = (Place::Admission, Reason::Shutdown);
        assert!(bench.notices.contains(&Notice::Shed { conn, records: 1, place, reason }));
    }
    let shed = bench.broker.ledger().shed.get(Place::Admission, Reason::Shutdown);
    assert_eq!(shed.records, 2);
}

#[test]
fn a_source_that_closes_gets_nothing_admitted() {
    for close in [true, false] {
        let (mut bench, topic, [_, a, b]) = parked_behind_a_dear_one();
        let before = bench.broker.ledger().admitted;
        // A third publish of its tenant waits behind the two; its room is there when both end.
        let last = bench.peer(Pipe::Shared).0;
        assert!(matches!(bench.publish(last, topic, 1), Verdict::Parked(_)));
        for source in [b, a] {
            if close {
                bench.broker.close(source, Close::Now, Bytes::new()).unwrap();
            } else {
                bench.broker.gone(source);
            }
            bench.check();
        }
        bench.run(|_| 0);
        assert_eq!(bench.broker.ledger().admitted.records, before.records + 1);
    }
}

#[test]
fn a_fan_out_that_the_end_of_the_grace_cuts_short_is_booked() {
    let mut bench = Bench::new(Limits { shutdown_grace_ms: 10, ..Limits::default() });
    let (source, _) = bench.peer(Pipe::Shared);
    let topic = bench.topic("t");
    for _ in 0..3 {
        let (_, outlet) = bench.peer(Pipe::Shared);
        bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap();
    }
    let _ = bench.publish(source, topic, 10);
    let _ = bench.broker.step(1);
    bench.broker.shutdown();
    bench.wait(10);
    bench.run(|_| ALL);
    let books = bench.broker.ledger();
    assert_eq!(books.expected.records, 3, "each of the audience");
    assert_eq!(books.dropped.total().records + books.delivered.records, 3);
}

#[test]
fn who_is_catching_up_loses_the_rest_at_the_end_of_the_grace() {
    let limits = Limits {
        shutdown_grace_ms: 10,
        retention_records: 100,
        subscription_batches: 4,
        ..Limits::default()
    };
    let mut bench = Bench::new(limits);
    let (source, _) = bench.peer(Pipe::Shared);
    let topic = bench.topic("t");
    for _ in 0..20 {
        let _ = bench.publish(source, topic, 10);
    }
    bench.run(|_| ALL);
    let (_, outlet) = bench.peer(Pipe::Single);
    let wish = Wish { start: Start::Earliest, ..Wish::policy(Policy::DropNew) };
    let sub = bench.broker.subscribe(outlet, topic, wish).unwrap();
    bench.run(|_| 0);
    bench.broker.shutdown();
    bench.wait(10);
    bench.run(|_| 0);
    assert!(bench.broker.is_flushed());
    bench.broker.writable(outlet);
    assert_eq!(bench.run(|_| ALL), 0, "nothing is delivered after the end");
    let books = bench.broker.sub_books(sub).unwrap();
    assert_eq!((books.expected.records, books.dropped.records), (20, 20));
    assert_eq!(told(&bench), 20);
}

#[test]
fn a_publish_that_is_pushed_out_leaves_room_for_others() {
    let limits = Limits {
        lossless: 1,
        subscription_batches: 1,
        max_frame_bytes: 60 << 10,
        pub_inflight_bytes: 128 << 10,
        pub_conn_inflight_bytes: 124 << 10,
        pub_tenant_inflight_bytes: 128 << 10,
        ..Limits::default()
    };
    let (mut bench, (source, topic), _, _) = one_subscriber(limits, Pipe::Single, Policy::Block);
    let _ = bench.publish(source, topic, 10);
    bench.run(|_| 0);
    for _ in 0..2 {
        assert!(matches!(bench.publish(source, topic, 60 << 10), Verdict::Queued(_)));
    }
    // A second tenant is over its floor and parks; a third one is below and pushes out 60 KiB.
    let others = [0; 2].map(|_| {
        let tenant = bench.broker.tenant(1).unwrap();
        let conn = bench.broker.open(tenant).unwrap();
        let topic = bench.broker.topic(tenant, "held").unwrap();
        let held = bench.broker.open(tenant).unwrap();
        let outlet = bench.broker.outlet(held, Pipe::Single).unwrap();
        bench.broker.subscribe(outlet, topic, Wish::policy(Policy::Block)).unwrap();
        let _ = bench.publish(conn, topic, 10);
        bench.run(|_| 0);
        (conn, topic)
    });
    let [(second, theirs), (third, its)] = others;
    assert!(matches!(bench.publish(second, theirs, 30 << 10), Verdict::Parked(_)));
    bench.run(|_| 0);
    assert!(matches!(bench.publish(third, its, 8 << 10), Verdict::Queued(_)));
    bench.run(|_| 0);
}

#[test]
fn a_queue_used_again_after_its_subscription_was_ended_keeps_its_limit() {
    let limits =
        Limits { slow_consumer_after_ms: 1_000, subscription_batches: 20, ..Limits::default() };
    let (mut bench, (source, topic), outlet, _) =
        one_subscriber(limits, Pipe::Single, Policy::DropOld);
    bench.flood((source, topic), 100, 35, 1);
    bench.wait(1_000);
    bench.run(|_| 0);
    bench.broker.writable(outlet);
    bench.run(|_| ALL);
    let _ = bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap();
    for _ in 0..60 {
        let _ = bench.publish(source, topic, 100);
        bench.run(|_| 0);
        assert!(bench.broker.backlog(outlet).unwrap().batches <= 20);
    }
}

#[test]
fn a_band_drops_at_refusing_outlets_also_where_batches_are_retained() {
    for retained in [0, 10] {
        let limits = Limits {
            memory_budget: 1 << 20,
            band_dwell_ms: 0,
            high_water_bytes: 1_500_000,
            retention_records: retained,
            ..Limits::default()
        };
        let (mut bench, (source, topic), _, _) =
            one_subscriber(limits, Pipe::Shared, Policy::DropOld);
        while bench.broker.band() == Band::Normal {
            let _ = bench.publish(source, topic, 30_000);
            bench.run(|_| 0);
        }
        bench.flood((source, topic), 10_000, 3, 0);
        let dropped = &bench.broker.ledger().dropped;
        let lost = dropped.get(Place::Memory, Reason::Pressure).records;
        assert!(lost >= 3, "{retained} retained: {lost}, {dropped:?}");
    }
}

#[test]
fn a_fan_out_that_is_cut_short_passes_over_who_is_not_in_its_audience() {
    let mut bench = Bench::new(Limits { shutdown_grace_ms: 0, ..Limits::default() });
    let (source, own) = bench.peer(Pipe::Shared);
    let topic = bench.topic("t");
    let join = |bench: &mut Bench, outlet| {
        bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap()
    };
    let [first, second] = [0; 2].map(|_| bench.peer(Pipe::Shared).1);
    let [first, own, second] =
        [first, own, second].map(|outlet| (outlet, join(&mut bench, outlet)));
    let frame = Bytes::from_static(b"x");
    let message = Message {
        frame,
        records: 1,
        ack: Ack::None,
        except: Some((0, own.0)),
        keep: Keep::Default,
    };
    let _ = bench.broker.publish(source, topic, message);
    assert_eq!(bench.broker.step(1), Progress::More, "the first one is reached");
    let late = bench.peer(Pipe::Shared).1;
    let late = (late, join(&mut bench, late));
    bench.broker.shutdown();
    bench.wait(0);
    let expected = [first, own, second, late]
        .map(|(_, sub)| bench.broker.sub_books(sub).unwrap().expected.records);
    assert_eq!(expected, [1, 0, 1, 0], "but for the sender and who joined later");
}

#[test]
fn a_publisher_is_told_where_and_why_its_records_were_shed() {
    let limits = Limits { pub_queue_total: 2, pub_queue_depth: 1, ..Limits::default() };
    let mut bench = Bench::new(limits);
    let (conn, _) = bench.peer(Pipe::Shared);
    let topic = bench.topic("t");
    for size in [10, 10, 10, 100 << 20, 10, 10] {
        let _ = bench.publish(conn, topic, size);
    }
    bench.write(|_| ALL);
    let shed = |records, place, reason| Notice::Shed { conn, records, place, reason };
    let full = (Place::Schedule, Reason::QueueFull);
    let large = (Place::Admission, Reason::Oversize);
    let expected = [shed(1, full.0, full.1), shed(1, large.0, large.1), shed(2, full.0, full.1)];
    assert_eq!(bench.notices, expected, "in the order in which it happened");
}
