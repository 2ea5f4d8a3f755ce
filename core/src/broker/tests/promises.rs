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
    bench.flood((source, topic), 100, 10, 0);
    assert_eq!(bench.broker.sub_books(subs[1]).unwrap().lag.records, 4, "all of it");
}

#[test]
fn publishes_go_on_while_somebody_catches_up() {
    let mut bench = Bench::new(Limits { retention_records: 1_000, ..Limits::default() });
    let (source, _) = bench.peer(Pipe::Shared);
    let [old, new] = ["old", "new"].map(|name| bench.topic(name));
    bench.flood((source, old), 10, 200, ALL);
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

#[test]
fn who_leaves_in_the_middle_of_a_fan_out_takes_nobody_along() {
    for leaver in 0..10 {
        let mut bench = Bench::new(Limits::default());
        let (source, _) = bench.peer(Pipe::Shared);
        let topic = bench.topic("t");
        let subs = [0; 10].map(|_| {
            let (_, outlet) = bench.peer(Pipe::Shared);
            bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap()
        });
        let _ = bench.publish(source, topic, 100);
        assert_eq!(bench.broker.step(5), Progress::More);
        bench.broker.unsubscribe(subs[leaver]).unwrap();
        bench.run(|_| ALL);
        let others = subs.iter().filter(|sub| **sub != subs[leaver]);
        for sub in others {
            let books = bench.broker.sub_books(*sub).unwrap();
            assert_eq!(books.delivered.records, 1, "number {leaver} left");
        }
    }
}

/// A topic with so many retained batches of 100 bytes.
fn past(bench: &mut Bench, batches: u32) -> TopicId {
    let (source, _) = bench.peer(Pipe::Shared);
    let topic = bench.topic("past");
    bench.flood((source, topic), 100, batches, ALL);
    topic
}

#[test]
fn those_who_catch_up_take_turns() {
    let mut bench = Bench::new(Limits { retention_records: 100, ..Limits::default() });
    let topic = past(&mut bench, 100);
    let wish = Wish { start: Start::Earliest, ..Wish::policy(Policy::DropNew) };
    let subs = [0; 3].map(|_| {
        let (_, outlet) = bench.peer(Pipe::Single);
        bench.broker.subscribe(outlet, topic, wish).unwrap()
    });
    let lag = |bench: &Bench, sub| bench.broker.sub_books(sub).unwrap().lag.records;
    for step in 1..=10 {
        let _ = bench.broker.step(9);
        assert_eq!(subs.map(|sub| lag(&bench, sub)), [3 * step; 3]);
    }
}

#[test]
fn room_of_who_left_is_for_who_catches_up() {
    let mut bench = Bench::new(small(|limits| limits.retention_records = 100));
    let topic = past(&mut bench, 20);
    let (source, outlet) = bench.peer(Pipe::Shared);
    let loud = bench.topic("loud");
    let much = bench.broker.subscribe(outlet, loud, Wish::policy(Policy::DropOld)).unwrap();
    bench.flood((source, loud), 800, 5, 0);
    let wish = Wish { start: Start::Earliest, ..Wish::policy(Policy::DropOld) };
    let late = bench.broker.subscribe(outlet, topic, wish).unwrap();
    let handed = |bench: &Bench| bench.broker.sub_books(late).unwrap().expected.records;
    bench.run(|_| 0);
    assert_eq!(handed(&bench), 0, "more than half of the room is used");
    bench.broker.unsubscribe(much).unwrap();
    bench.run(|_| 0);
    assert_eq!(handed(&bench), 3, "3 of 372 bytes are more than half of 2,000");
}
