//! Graduated shedding: who loses what, in which order, as memory gets tight.

use super::*;
use crate::shed::Band;
use alloc::vec;

const BUDGET: u64 = 1 << 20;

struct Tight {
    bench: Bench,
    source: ConnId,
    topic: TopicId,
    subs: Vec<(OutletId, SubId)>,
}

impl Tight {
    /// One topic and subscribers that read nothing, each with its own policy.
    fn new(limits: Limits, policies: &[Policy]) -> Self {
        let mut bench = Bench::new(Limits { memory_budget: BUDGET, band_dwell_ms: 0, ..limits });
        let (source, _) = bench.peer(Pipe::Shared);
        let topic = bench.topic("t");
        let subs = policies.iter().map(|policy| {
            let pipe = if *policy == Policy::Block { Pipe::Single } else { Pipe::Shared };
            let (_, outlet) = bench.peer(pipe);
            (outlet, bench.broker.subscribe(outlet, topic, Wish::policy(*policy)).unwrap())
        });
        let subs = subs.collect();
        Self { bench, source, topic, subs }
    }

    fn publish(&mut self, topic: TopicId, size: usize) -> Verdict {
        let verdict = self.bench.publish(self.source, topic, size);
        self.bench.run(|_| 0);
        verdict
    }

    fn lost(&self, reason: Reason) -> u64 {
        self.bench.broker.ledger().dropped.get(Place::Memory, reason).records
    }
}

#[test]
fn a_half_full_outlet_that_refuses_gets_nothing_new_from_the_first_band_on() {
    let limits = Limits { high_water_bytes: 1_500_000, ..Limits::default() };
    let mut tight = Tight::new(limits, &[Policy::DropOld]);
    while tight.bench.broker.band() == Band::Normal {
        let _ = tight.publish(tight.topic, 30_000);
    }
    let _ = tight.publish(tight.topic, 10_000);
    let lost = tight.bench.broker.ledger().dropped.total().records;
    assert!((1..=2).contains(&lost), "{lost}");
    assert_eq!(tight.lost(Reason::Pressure), lost);
    assert!(!tight.bench.gaps(tight.subs[0].1).contains(&(1, 1)), "the new ones");
}

#[test]
fn logs_go_before_any_subscriber_loses_anything() {
    let limits = Limits {
        retention_records: 1_000,
        retention_bytes: 1 << 30,
        high_water_bytes: 200_000,
        ..Limits::default()
    };
    let mut tight = Tight::new(limits, &[Policy::DropOld]);
    let [old, new] = ["old", "new"].map(|name| tight.bench.topic(name));
    for topic in [old, new].into_iter().cycle().take(20) {
        let _ = tight.publish(topic, 20_000);
    }
    for _ in 0..6 {
        let _ = tight.publish(tight.topic, 20_000);
    }
    let late = |tight: &mut Tight, topic| {
        let (_, outlet) = tight.bench.peer(Pipe::Single);
        let wish = Wish { start: Start::Earliest, ..Wish::policy(Policy::DropNew) };
        let sub = tight.bench.broker.subscribe(outlet, topic, wish).unwrap();
        tight.bench.run(|_| 0);
        let found = tight.bench.broker.sub_books(sub).unwrap().expected.records;
        tight.bench.broker.shut(outlet);
        found
    };
    assert_eq!([late(&mut tight, old), late(&mut tight, new)], [10, 10]);
    for _ in 0..17 {
        let _ = tight.publish(new, 20_000);
    }
    assert_eq!(tight.bench.broker.ledger().dropped.total(), Tally::ZERO, "only logs went");
    assert!(tight.bench.broker.held() < BUDGET * 8 / 10);
    assert!(late(&mut tight, old) < 10, "the topic that was silent longest went first");
    assert!(late(&mut tight, new) > 20);
}

#[test]
fn the_fattest_refusing_outlets_lose_their_oldest() {
    let limits = Limits { high_water_bytes: 1 << 20, ..Limits::default() };
    let mut tight = Tight::new(limits, &[Policy::DropOld, Policy::DropNew]);
    let slim = tight.bench.topic("slim");
    let (_, outlet) = tight.bench.peer(Pipe::Shared);
    let thin = tight.bench.broker.subscribe(outlet, slim, Wish::policy(Policy::DropOld)).unwrap();
    let _ = tight.publish(slim, 1_000);
    let _ = tight.publish(slim, 1_000);
    while tight.bench.broker.band() == Band::Normal {
        let _ = tight.publish(tight.topic, 10_000);
    }
    // Everything that is admitted from here on is for nobody but memory.
    let (hoard, _) = tight.bench.peer(Pipe::Shared);
    let outlet = tight.bench.broker.outlet(hoard, Pipe::Shared).unwrap();
    let _ = tight.bench.broker.send(outlet, Bytes::from(vec![b'c'; 300_000]), Lane::First);
    tight.bench.wait(1);
    tight.bench.run(|_| 0);
    assert!(tight.lost(Reason::Severe) + tight.lost(Reason::Saturated) > 0);
    assert!(tight.bench.broker.held() * 100 < BUDGET * 95, "trimmed until it is relieved");
    assert_eq!(tight.bench.broker.sub_books(thin).unwrap().dropped, Tally::ZERO);
    for (_, sub) in &tight.subs {
        let books = tight.bench.broker.sub_books(*sub).unwrap();
        assert!(books.dropped.records > 0, "both, whatever their policy");
        let first = tight.bench.gaps(*sub).first().map(|gap| gap.0);
        assert!(first.is_none_or(|first| first == 1), "the oldest ones");
    }
}

#[test]
fn block_subscriptions_lose_nothing_to_memory() {
    let limits = Limits { lossless: 1, subscription_batches: 40, ..Limits::default() };
    let mut tight = Tight::new(limits, &[Policy::Block]);
    for _ in 0..39 {
        let _ = tight.publish(tight.topic, 25_900);
    }
    assert!(tight.bench.broker.band() >= Band::Severe);
    assert!(tight.bench.broker.ledger().dropped.total().is_zero());
}

#[test]
fn trimming_is_bounded_by_the_work_of_a_step() {
    let limits = Limits { high_water_bytes: 1 << 20, ..Limits::default() };
    let mut tight = Tight::new(limits, &[Policy::DropOld]);
    while tight.bench.broker.held() * 100 < BUDGET * 78 {
        let _ = tight.publish(tight.topic, 100);
    }
    let (hoard, _) = tight.bench.peer(Pipe::Shared);
    let outlet = tight.bench.broker.outlet(hoard, Pipe::Shared).unwrap();
    let _ = tight.bench.broker.send(outlet, Bytes::from(vec![b'c'; 400_000]), Lane::First);
    tight.bench.wait(1);
    let mut steps = 0;
    while tight.bench.broker.next_deadline() == Some(tight.bench.broker.now()) {
        let before = tight.lost(Reason::Severe) + tight.lost(Reason::Saturated);
        let _ = tight.bench.broker.step(10);
        tight.bench.check();
        let after = tight.lost(Reason::Severe) + tight.lost(Reason::Saturated);
        assert!(after - before <= 10);
        tight.bench.write(|_| 0);
        steps += 1;
    }
    assert!(steps > 10, "{steps}");
}

#[test]
fn a_lease_that_shrinks_brings_the_bands_on() {
    let limits =
        Limits { memory_budget: 16 << 20, shards: 2, band_dwell_ms: 0, ..Limits::default() };
    let mut bench = Bench::new(limits);
    let (source, _) = bench.peer(Pipe::Shared);
    bench.broker.reassembly(source, 3 << 20).unwrap();
    assert_eq!(bench.broker.lease_wish(), LeaseWish::Borrow(1 << 20));
    assert_eq!(bench.broker.band(), Band::Normal, "the pool would lend eight more");
    bench.broker.lease(0, 0);
    bench.check();
    assert_eq!(bench.broker.band(), Band::Normal, "3 of 4 MiB");
    bench.broker.reassembly(source, 4 << 20).unwrap();
    assert_eq!(bench.broker.band(), Band::Saturated);
    let too_much = bench.broker.reassembly(source, 17 << 20 | 1).unwrap_err();
    assert_eq!(too_much.reason, Reason::Oversize);
    bench.broker.lease(4 << 20, 0);
    assert_eq!(bench.broker.band(), Band::Normal);
    assert_eq!(bench.broker.lease_wish(), LeaseWish::Return(1 << 20));
    bench.broker.gone(source);
    bench.check();
    assert_eq!(bench.broker.lease_wish(), LeaseWish::Return(3 << 20));
}

#[test]
fn a_shard_whose_peers_never_read_again_does_not_stay_saturated() {
    let limits = Limits { high_water_bytes: 1 << 20, ..Limits::default() };
    let mut tight = Tight::new(limits, &[Policy::DropOld, Policy::DropNew]);
    while tight.bench.broker.held() * 100 < BUDGET * 78 {
        let _ = tight.publish(tight.topic, 10_000);
    }
    let (hoard, _) = tight.bench.peer(Pipe::Shared);
    tight.bench.broker.reassembly(hoard, 300_000).unwrap();
    assert_eq!(tight.bench.broker.band(), Band::Saturated);
    tight.bench.wait(1);
    tight.bench.run(|_| 0);
    assert!(tight.bench.broker.band() < Band::Saturated);
    assert!(matches!(tight.bench.publish(tight.source, tight.topic, 100), Verdict::Queued(_)));
}

#[test]
fn the_newest_batch_of_an_outlet_stays() {
    let mut tight = Tight::new(Limits::default(), &[Policy::DropOld]);
    let _ = tight.publish(tight.topic, 10_000);
    let (hoard, _) = tight.bench.peer(Pipe::Shared);
    tight.bench.broker.reassembly(hoard, 2 << 20).unwrap();
    tight.bench.wait(1);
    tight.bench.run(|_| 0);
    assert_eq!(tight.bench.broker.sub_books(tight.subs[0].1).unwrap().lag.records, 1);
}

#[test]
fn relief_takes_no_more_than_it_must() {
    let limits = Limits { high_water_bytes: 1 << 20, ..Limits::default() };
    let mut tight = Tight::new(limits, &[Policy::DropOld, Policy::DropNew]);
    while tight.bench.broker.held() * 100 < BUDGET * 78 {
        let _ = tight.publish(tight.topic, 1_000);
    }
    let (hoard, _) = tight.bench.peer(Pipe::Shared);
    tight.bench.broker.reassembly(hoard, BUDGET / 5).unwrap();
    assert_eq!(tight.bench.broker.band(), Band::Severe);
    tight.bench.run(|_| 0);
    let held = tight.bench.broker.held();
    // Both queues name each batch, so that it is freed with the second of them.
    assert!((BUDGET * 93..BUDGET * 95).contains(&(held * 100)), "{held} of {BUDGET}");
}

#[test]
fn a_step_that_gives_memory_back_has_less_left_for_publishes() {
    let limits = Limits { high_water_bytes: 2 << 20, ..Limits::default() };
    let mut tight = Tight::new(limits, &[Policy::DropOld]);
    // Half of its limit is more than the shard has: the first band takes nothing from it.
    while tight.bench.broker.band() < Band::Pressure {
        let _ = tight.publish(tight.topic, 10_000);
    }
    while !tight.bench.broker.wants_relief() {
        let verdict = tight.bench.publish(tight.source, tight.topic, 10_000);
        assert!(matches!(verdict, Verdict::Queued(_)), "{verdict:?}");
    }
    let before = tight.bench.broker.ledger().sequenced;
    assert_eq!(tight.bench.broker.step(1), Progress::More);
    assert_eq!(tight.lost(Reason::Severe), 1);
    assert_eq!(tight.bench.broker.ledger().sequenced, before, "that was all of the step");
}
