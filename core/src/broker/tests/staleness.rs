//! Staleness at an outlet: what is too old is dropped for a peer that does not keep up, and for
//! nobody else.

use super::*;

const STALE: (Place, Reason) = (Place::Backlog, Reason::Stale);

struct Slow {
    bench: Bench,
    source: ConnId,
    topic: TopicId,
    outlet: OutletId,
    sub: SubId,
}

impl Slow {
    fn new(pipe: Pipe, policy: Policy) -> Self {
        let limits = Limits {
            lossless: u64::from(policy == Policy::Block),
            codel_target_ms: 5,
            codel_interval_ms: 100,
            ..Limits::default()
        };
        let (bench, (source, topic), outlet, sub) = one_subscriber(limits, pipe, policy);
        Self { bench, source, topic, outlet, sub }
    }

    fn stale(&self) -> u64 {
        self.bench.broker.ledger().dropped.get(STALE.0, STALE.1).records
    }

    /// A record every millisecond; the peer takes one every `pace` milliseconds.
    fn run(&mut self, millis: u64, pace: u64) {
        for ms in 1..=millis {
            self.bench.wait(1);
            let _ = self.bench.publish(self.source, self.topic, 100);
            let mut room = 0;
            if ms % pace == 0 {
                room = 100;
                self.bench.broker.writable(self.outlet);
            }
            self.bench.run(|_| core::mem::take(&mut room));
        }
    }
}

#[test]
fn a_peer_that_keeps_up_loses_nothing() {
    let mut slow = Slow::new(Pipe::Shared, Policy::DropOld);
    slow.run(1_000, 1);
    assert_eq!(slow.stale(), 0);
    assert!(slow.bench.broker.ledger().dropped.total().is_zero());
}

#[test]
fn a_peer_behind_its_topic_gets_the_fresh_ones() {
    let mut slow = Slow::new(Pipe::Shared, Policy::DropOld);
    slow.run(100, 10);
    assert_eq!(slow.stale(), 0, "a queue must stand for a whole interval first");
    slow.run(900, 10);
    let stale = slow.stale();
    assert!((700..=900).contains(&stale), "{stale}");
    let gaps: u64 = slow.bench.gaps(slow.sub).iter().map(|(first, last)| last - first + 1).sum();
    let lag = slow.bench.broker.sub_books(slow.sub).unwrap().lag.records;
    assert!(lag <= 25, "{lag} wait: not much more than twice the target");
    slow.bench.broker.writable(slow.outlet);
    slow.bench.run(|_| ALL);
    let books = slow.bench.broker.sub_books(slow.sub).unwrap();
    assert_eq!(books.delivered.records + books.dropped.records, 1_000);
    assert!(gaps <= books.dropped.records && !books.dropped.is_zero());
    let told: u64 = slow.bench.gaps(slow.sub).iter().map(|(first, last)| last - first + 1).sum();
    assert_eq!(told, books.dropped.records, "each loss is told");
}

#[test]
fn a_slow_shard_is_not_blamed_on_peers_that_read() {
    let mut slow = Slow::new(Pipe::Shared, Policy::DropOld);
    for _ in 0..100 {
        for _ in 0..3 {
            let _ = slow.bench.publish(slow.source, slow.topic, 100);
        }
        slow.bench.wait(50);
        slow.bench.run(|_| ALL);
    }
    assert_eq!(slow.stale(), 0, "all of them waited 50 ms, in the queue of publishes");
}

#[test]
fn the_last_batch_of_a_subscription_stays_and_block_loses_nothing() {
    for (policy, stale) in [(Policy::Latest, 0), (Policy::Block, 0)] {
        let mut slow = Slow::new(Pipe::Single, policy);
        slow.run(1_000, 50);
        assert_eq!(slow.stale(), stale, "{policy:?}");
    }
}

#[test]
fn a_batch_is_sampled_once_however_often_it_is_offered() {
    let mut slow = Slow::new(Pipe::Shared, Policy::DropOld);
    for _ in 0..3 {
        let _ = slow.bench.publish(slow.source, slow.topic, 100);
    }
    slow.bench.run(|_| 10);
    let codel = |slow: &Slow| slow.bench.broker.peers.outlets[slow.outlet.index].codel;
    let first = codel(&slow);
    for attempt in 0..40 {
        slow.bench.wait(10);
        let before = codel(&slow);
        slow.bench.broker.writable(slow.outlet);
        slow.bench.run(|_| 1);
        assert!(attempt == 0 || codel(&slow) == before, "attempt {attempt}");
    }
    assert_ne!(codel(&slow), first, "the batch behind the one in mid-write was sampled");
}

#[test]
fn a_host_that_waits_presses_an_outlet_too() {
    let mut slow = Slow::new(Pipe::Shared, Policy::DropOld);
    let _ = slow.bench.publish(slow.source, slow.topic, 100);
    let _ = slow.bench.broker.step(1);
    let Some(Effect::Write(offer)) = slow.bench.broker.poll() else { panic!("it is ready") };
    let pressed = |slow: &Slow| slow.bench.broker.peers.outlets[slow.outlet.index].pressed;
    assert!(!pressed(&slow));
    slow.bench.broker.refused(slow.outlet);
    assert!(pressed(&slow));
    slow.bench.broker.writable(slow.outlet);
    slow.bench.broker.sent(offer, offer.bytes);
    assert!(!pressed(&slow), "its queue is empty");
}

#[test]
fn a_peer_that_caught_up_is_not_blamed_for_a_slow_shard() {
    let mut slow = Slow::new(Pipe::Shared, Policy::DropOld);
    slow.run(50, 10);
    slow.bench.broker.writable(slow.outlet);
    slow.bench.run(|_| ALL);
    // From here on it takes all that it is offered, which is less than what is published.
    for _ in 0..60 {
        slow.bench.wait(10);
        for _ in 0..20 {
            let _ = slow.bench.publish(slow.source, slow.topic, 100);
        }
        while slow.bench.broker.step(1_000) == Progress::More {}
        let Some(Effect::Write(offer)) = slow.bench.broker.poll() else { panic!("all is queued") };
        slow.bench.broker.sent(offer, offer.bytes);
    }
    assert!(slow.bench.broker.backlog(slow.outlet).unwrap().batches > 200);
    assert_eq!(slow.stale(), 0);
}
