//! Promises of single calls: what a step may do, who is in an audience, how old something is.

use super::*;

#[test]
fn a_step_prepares_no_more_deliveries_than_its_work() {
    let mut bench = Bench::new(Limits::default());
    let (source, _) = bench.peer(Pipe::Shared);
    let topic = bench.topic("t");
    for _ in 0..100 {
        let (_, outlet) = bench.peer(Pipe::Shared);
        bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap();
    }
    let _ = bench.publish(source, topic, 100);
    for step in 1..=10 {
        let progress = bench.broker.step(10);
        assert_eq!(bench.broker.ledger().lag.records, 10 * step);
        assert_eq!(progress == Progress::More, step < 10, "step {step}");
        bench.check();
    }
}

#[test]
fn who_joins_in_the_middle_of_a_fan_out_gets_the_next_batch() {
    let mut bench = Bench::new(Limits::default());
    let (source, _) = bench.peer(Pipe::Shared);
    let topic = bench.topic("t");
    let join = |bench: &mut Bench| {
        let (_, outlet) = bench.peer(Pipe::Shared);
        bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap()
    };
    let early = [0; 10].map(|_| join(&mut bench));
    let _ = bench.publish(source, topic, 100);
    let _ = bench.broker.step(3);
    let late = join(&mut bench);
    bench.run(|_| ALL);
    let expected = |bench: &Bench, sub| bench.broker.sub_books(sub).unwrap().expected.records;
    assert!(early.iter().all(|sub| expected(&bench, *sub) == 1));
    assert_eq!((expected(&bench, late), bench.broker.start_of(late)), (0, Some(2)));
    let _ = bench.publish(source, topic, 100);
    bench.run(|_| ALL);
    assert_eq!(expected(&bench, late), 1);
}

#[test]
fn a_publish_that_was_parked_is_as_old_as_its_admission() {
    let mut bench = Bench::new(Limits { pub_queue_total: 1, ..Limits::default() });
    let topic = bench.topic("t");
    let [(one, _), (two, _)] = [0; 2].map(|_| bench.peer(Pipe::Shared));
    let _ = bench.publish(one, topic, 100);
    assert!(matches!(bench.publish_as(two, topic, 200, Ack::Wait), Verdict::Parked(_)));
    bench.wait(1_000);
    let _ = bench.broker.step(1);
    assert_eq!(bench.broker.jobs(), (1, 0), "it was admitted now");
    let parked = bench.broker.memory.iter().find(|(_, held, _)| held.frame.len() == 200);
    assert_eq!(parked.unwrap().1.at, Instant::from_millis(1_000));
}

/// How many records a subscription gets that starts with the oldest one.
fn replayed(bench: &mut Bench, topic: TopicId) -> u64 {
    let (_, outlet) = bench.peer(Pipe::Single);
    let wish = Wish { start: Start::Earliest, ..Wish::policy(Policy::DropNew) };
    let sub = bench.broker.subscribe(outlet, topic, wish).unwrap();
    bench.run(|_| ALL);
    bench.broker.sub_books(sub).unwrap().delivered.records
}

#[test]
fn records_beyond_their_age_are_not_replayed() {
    let limits = Limits { retention_records: 10, retention_ms: 1_000, ..Limits::default() };
    let mut bench = Bench::new(limits);
    let (source, _) = bench.peer(Pipe::Shared);
    let topic = bench.topic("t");
    for _ in 0..3 {
        let _ = bench.publish(source, topic, 100);
        bench.run(|_| ALL);
        bench.wait(400);
    }
    assert_eq!(replayed(&mut bench, topic), 2, "1200 ms after the first one");
    bench.wait(1_000);
    assert_eq!(replayed(&mut bench, topic), 0);
}

#[test]
fn a_connection_that_unsubscribes_leaves_its_share_to_the_others() {
    let price = 100 + 256 + 16;
    let limits = Limits { egress_shed: 1, egress_bytes: 4 * price, ..Limits::default() };
    let mut bench = Bench::new(limits);
    let (source, _) = bench.peer(Pipe::Shared);
    let conn = bench.broker.open(bench.tenant).unwrap();
    let topic = bench.topic("t");
    let subs = [0; 2].map(|_| {
        let outlet = bench.broker.outlet(conn, Pipe::Single).unwrap();
        bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropNew)).unwrap()
    });
    bench.broker.unsubscribe(subs[0]).unwrap();
    for _ in 0..10 {
        let _ = bench.publish(source, topic, 100);
        bench.run(|_| 0);
    }
    assert_eq!(bench.broker.sub_books(subs[1]).unwrap().lag.records, 4, "all of it");
}

#[test]
fn publishes_go_on_while_somebody_catches_up() {
    let mut bench = Bench::new(Limits { retention_records: 1_000, ..Limits::default() });
    let (source, _) = bench.peer(Pipe::Shared);
    let [old, new] = ["old", "new"].map(|name| bench.topic(name));
    for _ in 0..200 {
        let _ = bench.publish(source, old, 10);
        bench.run(|_| ALL);
    }
    let (_, outlet) = bench.peer(Pipe::Single);
    let wish = Wish { start: Start::Earliest, ..Wish::policy(Policy::DropNew) };
    bench.broker.subscribe(outlet, old, wish).unwrap();
    for _ in 0..4 {
        let _ = bench.publish(source, new, 10);
    }
    for left in (2..4).rev() {
        let _ = bench.broker.step(2);
        assert_eq!(bench.broker.jobs().0, left, "half of the work is for publishes");
    }
    for left in [2, 1, 1, 0] {
        let _ = bench.broker.step(1);
        assert_eq!(bench.broker.jobs().0, left, "and every other one of the smallest steps");
    }
    bench.broker.shutdown();
    assert!(!bench.broker.is_flushed(), "somebody is still catching up");
}
