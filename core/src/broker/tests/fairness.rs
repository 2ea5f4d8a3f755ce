//! Faults of earlier schedulers, as tests.

use super::*;

fn tenants(bench: &mut Bench, n: usize) -> Vec<(TenantId, ConnId, TopicId)> {
    (0..n)
        .map(|_| {
            let tenant = bench.broker.tenant(1).unwrap();
            let conn = bench.broker.open(tenant).unwrap();
            (tenant, conn, bench.broker.topic(tenant, "t").unwrap())
        })
        .collect()
}

fn count(bench: &mut Bench, (_, conn, topic): (TenantId, ConnId, TopicId), times: usize) -> usize {
    let queued = |_: &usize| {
        let verdict = bench.publish_as(conn, topic, 100, Ack::Now);
        matches!(verdict, Verdict::Queued(_))
    };
    (0..times).filter(queued).count()
}

#[test]
fn a_tenant_below_its_guarantee_is_never_refused() {
    let mut bench = Bench::new(Limits::default());
    let who = tenants(&mut bench, 6);
    assert_eq!(count(&mut bench, who[0], 300), 256, "alone it may borrow everything");
    for (at, due) in [(1, 64), (2, 64), (3, 64), (4, 51), (5, 42)] {
        let got = count(&mut bench, who[at], 300);
        assert_eq!(got, due, "the guarantee of tenant {at}, the queue being full of others");
    }
    let queued = |at: usize| bench.broker.tenant_books(who[at].0).unwrap().queued.records;
    let now: Vec<u64> = (0..6).map(queued).collect();
    assert!(now.iter().all(|jobs| (42..=43).contains(jobs)), "{now:?}");
    let evicted = bench.broker.ledger().evicted.get(Place::Schedule, Reason::TenantShare);
    bench.write(|_| 0);
    let failed = |notice: &&Notice| matches!(notice, Notice::Failed { .. });
    assert_eq!(bench.notices.iter().filter(failed).count() as u64, evicted.records, "each is told");
}

#[test]
fn what_is_pushed_out_is_told_or_waits_first_in_line() {
    let limits = Limits { pub_queue_total: 2, pub_queue_depth: 1, ..Limits::default() };
    let mut bench = Bench::new(limits);
    let who = tenants(&mut bench, 3);
    let (_, conn, topic) = who[0];
    let Verdict::Queued(first) = bench.publish_as(conn, topic, 1, Ack::Wait) else { panic!() };
    let Verdict::Queued(second) = bench.publish_as(conn, topic, 2, Ack::Wait) else { panic!() };
    assert_eq!(count(&mut bench, who[1], 1), 1);
    assert!(bench.broker.is_paused(conn), "its newest job waits again");
    assert_eq!(bench.broker.jobs(), (2, 1));
    let mut commits = Vec::new();
    bench.run(|_| 0);
    for notice in &bench.notices {
        if let Notice::Committed { conn: of, ticket, .. } = notice
            && *of == conn
        {
            commits.push(*ticket);
        }
    }
    assert_eq!(commits, [first, second], "in order, under the tickets of their verdicts");
    let books = bench.broker.tenant_books(who[0].0).unwrap();
    assert_eq!((books.returned.records, books.evicted.total().records), (1, 0));

    let (_, conn, topic) = who[2];
    assert!(matches!(bench.publish_as(conn, topic, 1, Ack::None), Verdict::Queued(_)));
    assert!(matches!(bench.publish_as(conn, topic, 1, Ack::None), Verdict::Queued(_)));
    bench.notices.clear();
    assert_eq!(count(&mut bench, who[0], 1), 1);
    bench.write(|_| 0);
    let (place, reason) = (Place::Schedule, Reason::TenantShare);
    let told = Notice::Shed { conn, records: 1, place, reason };
    assert_eq!(bench.notices, [told], "the unacked one was evicted");
}

#[test]
fn a_tenant_below_its_floor_gets_bytes() {
    let mut bench = Bench::new(Limits::default());
    let hog = bench.broker.tenant(1).unwrap();
    let topic = bench.broker.topic(hog, "t").unwrap();
    for _ in 0..4 {
        let conn = bench.broker.open(hog).unwrap();
        let verdict = bench.publish_as(conn, topic, (16 << 20) - 4096, Ack::Now);
        assert!(matches!(verdict, Verdict::Queued(_)), "four connections hold all the bytes");
    }
    let quiet = tenants(&mut bench, 1)[0];
    let publish =
        |bench: &mut Bench, bytes: usize| bench.publish_as(quiet.1, quiet.2, bytes, Ack::Now);
    let floor = (64 << 20) / (4 * 2);
    let over = publish(&mut bench, floor);
    assert!(matches!(over, Verdict::Refused(why) if why.reason == Reason::BytesShard));
    assert!(matches!(publish(&mut bench, floor - 272), Verdict::Queued(_)));
    let evicted = &bench.broker.tenant_books(hog).unwrap().evicted;
    assert_eq!(evicted.get(Place::Schedule, Reason::TenantShare).records, 1);
}

#[test]
fn nobody_is_pushed_out_of_its_only_slot() {
    let limits = Limits { pub_queue_total: 2, pub_queue_depth: 1, ..Limits::default() };
    let mut bench = Bench::new(limits);
    let who = tenants(&mut bench, 3);
    for (at, due) in [(0, 1), (1, 1), (2, 0)] {
        assert_eq!(count(&mut bench, who[at], 1), due, "tenant {at}");
    }
}

#[test]
fn what_is_pushed_out_and_waits_has_its_deadline() {
    let limits = Limits { pub_queue_total: 2, pub_queue_depth: 1, ..Limits::default() };
    for (ack, waits, failed) in [(Ack::Wait, 0, 1), (Ack::None, 1, 0)] {
        let mut bench = Bench::new(Limits { pub_ingress_wait: 1, ..limits.clone() });
        let who = tenants(&mut bench, 2);
        for _ in 0..2 {
            let verdict = bench.publish_as(who[0].1, who[0].2, 100, ack);
            assert!(matches!(verdict, Verdict::Queued(_)));
        }
        assert_eq!(count(&mut bench, who[1], 1), 1);
        assert_eq!(bench.broker.jobs(), (2, 1));
        bench.wait(limits.publish_queue_wait_ms);
        bench.write(|_| 0);
        let deadline = |notice: &&Notice| match notice {
            Notice::Failed { why, .. } => why.reason == Reason::Deadline,
            _ => false,
        };
        assert_eq!(bench.notices.iter().filter(deadline).count(), failed);
        assert_eq!(bench.broker.jobs(), (2, waits));
    }
}

#[test]
fn who_waits_for_much_does_not_hold_up_another_tenant_that_waits_for_little() {
    let limits = Limits {
        pub_inflight_bytes: 20 << 20,
        pub_tenant_inflight_bytes: 20 << 20,
        ..Limits::default()
    };
    let mut bench = Bench::new(limits);
    let who = tenants(&mut bench, 3);
    let publish = |bench: &mut Bench, at: usize, bytes: usize| {
        bench.publish_as(who[at].1, who[at].2, bytes, Ack::Wait)
    };
    let other = bench.broker.open(who[0].0).unwrap();
    for (conn, bytes) in [(other, 4 << 20), (who[0].1, 15 << 20)] {
        let verdict = bench.publish_as(conn, who[0].2, bytes, Ack::Wait);
        assert!(matches!(verdict, Verdict::Queued(_)));
    }
    for (at, bytes) in [(1, 16 << 20), (2, 4 << 20)] {
        assert!(matches!(publish(&mut bench, at, bytes), Verdict::Parked(_)));
    }
    let _ = bench.broker.step(1);
    bench.check();
    assert_eq!(bench.broker.jobs(), (2, 1), "four came free, for the one of four");
}

#[test]
fn waiters_are_served_in_order_and_a_fresh_publish_overtakes_none() {
    let limits = Limits { pub_queue_total: 1, pub_queue_depth: 1, ..Limits::default() };
    let mut bench = Bench::new(limits);
    let topic = bench.topic("t");
    let conns: Vec<ConnId> = (0..6).map(|_| bench.peer(Pipe::Shared).0).collect();
    for conn in &conns {
        let _ = bench.publish_as(*conn, topic, 1, Ack::Wait);
    }
    let (late, _) = bench.peer(Pipe::Shared);
    let verdict = bench.publish_as(late, topic, 1, Ack::Now);
    assert!(matches!(verdict, Verdict::Refused(why) if why.reason == Reason::QueueFull));
    bench.run(|_| 0);
    let order: Vec<ConnId> = bench
        .notices
        .iter()
        .filter_map(|notice| match notice {
            Notice::Committed { conn, .. } => Some(*conn),
            _ => None,
        })
        .collect();
    assert_eq!(order, conns);
}

#[test]
fn a_late_quiet_tenant_is_served_within_one_rotation() {
    let mut bench = Bench::new(Limits { pub_queue_total: 4096, ..Limits::default() });
    let who = tenants(&mut bench, 9);
    for busy in &who[..8] {
        assert_eq!(count(&mut bench, *busy, 400), 400);
    }
    let _ = bench.broker.step(500);
    assert_eq!(count(&mut bench, who[8], 1), 1);
    // One quantum of 64 KiB is 184 jobs of 100 bytes for each of the eight.
    let mut steps = 0;
    while bench.broker.topic_books(who[8].2).unwrap().sequenced.records == 0 {
        let _ = bench.broker.step(1);
        steps += 1;
    }
    assert!(steps <= 8 * 185, "{steps}");
}

#[test]
fn an_idle_tenant_gains_nothing() {
    let mut bench = Bench::new(Limits { pub_queue_total: 4096, ..Limits::default() });
    let who = tenants(&mut bench, 2);
    assert_eq!(count(&mut bench, who[0], 2_000), 2_000);
    let _ = bench.broker.step(1_000);
    assert_eq!(count(&mut bench, who[1], 1_000), 1_000);
    let served =
        |bench: &Bench, at: usize| bench.broker.topic_books(who[at].2).unwrap().sequenced.records;
    let before = served(&bench, 0);
    let _ = bench.broker.step(800);
    let (busy, idle) = (served(&bench, 0) - before, served(&bench, 1));
    assert!(busy.abs_diff(idle) <= 2 * 185, "{busy} and {idle}: at most two quanta apart");
}

#[test]
fn outlets_with_much_to_write_take_turns() {
    let limits = Limits { high_water_bytes: 8 << 20, ..Limits::default() };
    let mut bench = Bench::new(limits);
    let (source, _) = bench.peer(Pipe::Shared);
    let topic = bench.topic("t");
    let outlets = [0; 3].map(|_| {
        let (_, outlet) = bench.peer(Pipe::Shared);
        bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap();
        outlet
    });
    for _ in 0..30 {
        let _ = bench.publish(source, topic, 40_000);
    }
    while bench.broker.step(1_000) == Progress::More {}
    let mut written = [0_u64; 3];
    let mut order = Vec::new();
    for _ in 0..75 {
        let Some(Effect::Write(offer)) = bench.broker.poll() else { panic!("all have more") };
        let at = outlets.iter().position(|outlet| *outlet == offer.outlet).unwrap();
        written[at] += offer.bytes;
        order.push(at);
        bench.broker.sent(offer, offer.bytes);
        let (least, most) = (written.iter().min().unwrap(), written.iter().max().unwrap());
        assert!(most - least <= 2 * (64 << 10), "{written:?}: a quantum, and what passes it");
    }
    assert_eq!(order[..6], [0, 1, 2, 2, 1, 0], "the newest first, and who has credit goes on");
}

#[test]
fn a_depth_above_the_total_is_an_equal_share_of_it() {
    let limits = Limits { pub_queue_total: 6, pub_queue_depth: 1_000, ..Limits::default() };
    limits.check().unwrap();
    let mut bench = Bench::new(limits);
    let who = tenants(&mut bench, 3);
    for (at, due) in [6, 3, 2].into_iter().enumerate() {
        assert_eq!(count(&mut bench, who[at], 10), due, "tenant {at}");
    }
}

#[test]
fn a_tenant_that_asks_for_ten_times_its_share_gets_its_share() {
    let mut bench = Bench::new(Limits { quantum_bytes: 1 << 10, ..Limits::default() });
    let who = tenants(&mut bench, 2);
    for _ in 0..200 {
        bench.wait(1);
        let _ = count(&mut bench, who[0], 40);
        assert_eq!(count(&mut bench, who[1], 4), 4, "nothing of its share is refused");
        let _ = bench.broker.step(8);
    }
    let served = [0, 1].map(|at| bench.broker.topic_books(who[at].2).unwrap().sequenced.records);
    assert!(served[1] >= 4 * 200 - 8, "{served:?}");
    assert_eq!(served[0] + served[1], 8 * 200, "what it does not use goes to the other");
}

/// The queue is full all the time, and everything that is admitted was parked before: a slot that
/// comes free is nobody's by turn while somebody has nothing to run.
#[test]
fn shares_are_by_cost_also_while_everybody_waits_for_slots() {
    let limits = Limits {
        pub_queue_total: 8,
        pub_queue_depth: 1,
        quantum_bytes: 8 << 10,
        ..Limits::default()
    };
    let mut bench = Bench::new(limits);
    let who = tenants(&mut bench, 2);
    let sources: Vec<(ConnId, TopicId, usize)> = (0..16)
        .map(|at| {
            let (tenant, _, topic) = who[at % 2];
            (bench.broker.open(tenant).unwrap(), topic, [4_000, 100][at % 2])
        })
        .collect();
    for _ in 0..4_000 {
        for (conn, topic, bytes) in &sources {
            while !bench.broker.is_paused(*conn) {
                let _ = bench.publish_as(*conn, *topic, *bytes, Ack::Wait);
            }
        }
        let _ = bench.broker.step(1);
        bench.write(|_| 0);
        assert_eq!(bench.broker.jobs().0, 8, "the queue is full");
    }
    let cost = |at: usize| {
        let done = bench.broker.tenant_books(who[at].0).unwrap().sequenced;
        done.bytes + 256 * done.records
    };
    let (large, small) = (cost(0), cost(1));
    assert!(large.abs_diff(small) * 20 <= large.max(small), "{large} B and {small} B of work");
}
