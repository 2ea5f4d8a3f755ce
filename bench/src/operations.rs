//! The operations whose cost is watched: in time by criterion, in instructions by
//! `cargo xtask instructions`.

use crate::beds::{Bed, Deserted, Source, WISH, frame, outlet, publish, roomy, sources, write};
use sluicegate_core::codel::{Codel, Settings};
use sluicegate_core::{Ack, Broker, Instant, Limits, Pipe, Rotation, Verdict};
use std::fmt;
use std::hint::black_box;
use std::time::Duration;

/// Repeats an operation in a state of its own.
pub type Repeat = Box<dyn FnMut()>;

/// An operation that can be repeated.
#[derive(Debug)]
pub struct Operation {
    /// Its name in tables.
    pub name: &'static str,
    /// What is counted in it.
    pub unit: &'static str,
    /// How many of those are in one repetition.
    pub parts: u64,
    /// How many repetitions are enough to count instructions, and are always possible.
    pub times: u64,
    /// Whether it uses up what its state holds: no more than `times` repetitions are possible.
    pub spends: bool,
    /// Makes the state.
    pub start: fn() -> Repeat,
}

/// One line of a list: name, unit, parts, times.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, unit, parts, times, .. } = self;
        write!(f, "{name} {unit} {parts} {times}")
    }
}

const fn operation(name: &'static str, unit: &'static str, start: fn() -> Repeat) -> Operation {
    Operation { name, unit, parts: 1, times: 1_000, spends: false, start }
}

const fn delivery(name: &'static str, parts: u64, times: u64, start: fn() -> Repeat) -> Operation {
    Operation { parts, times, ..operation(name, "delivery", start) }
}

const fn offer(name: &'static str, start: fn() -> Repeat) -> Operation {
    Operation { times: OFFERS, spends: true, ..operation(name, "offer", start) }
}

const fn picked(name: &'static str, start: fn() -> Repeat) -> Operation {
    Operation { times: PICKS, spends: true, ..operation(name, "pick", start) }
}

/// How many jobs are picked of a schedule: one of each tenant, where there are most.
const PICKS: u64 = 10_000;
/// How many offers an outlet is filled for.
const OFFERS: u64 = 300;
/// How many batches a coalesced offer holds: the default of `offer_batches`.
const COALESCED: u64 = 16;
/// The longest burst is the publish queue of a tenant, so a burst is below it.
const BURST: u64 = 50;

/// Every operation. Names are never given to another operation: figures are compared by name.
pub const OPERATIONS: &[Operation] = &[
    delivery("delivery_10", 10, 1_000, || deliveries(10, 1)),
    delivery("delivery_1000", 1_000, 20, || deliveries(1_000, 1)),
    delivery("delivery_10000", 10_000, 3, || deliveries(10_000, 1)),
    delivery("burst_1000", 1_000 * BURST, 3, || deliveries(1_000, BURST)),
    delivery("dead_1000", 1_000, 20, dead),
    operation("pick_1", "publish", || picks(1)),
    operation("pick_100", "publish", || picks(100)),
    operation("pick_10000", "publish", || picks(10_000)),
    picked("drr_1", || turns(1)),
    picked("drr_100", || turns(100)),
    picked("drr_10000", || turns(10_000)),
    operation("refuse", "publish", refuse),
    operation("admit_and_refuse", "pair", admit_and_refuse),
    operation("park_and_release", "publish", park_and_release),
    offer("offer_1", || offers(1)),
    offer("offer_16", || offers(COALESCED)),
    offer("offer_16_past_8_dead", offers_past_dead),
    operation("subscribe_and_unsubscribe", "pair", subscribe_and_unsubscribe),
    operation("open_and_gone", "pair", open_and_gone),
    operation("codel_observe", "sample", codel_observe),
];

/// A publish and its deliveries, to peers that read.
fn deliveries(audience: u32, burst: u64) -> Repeat {
    let mut bed = Bed::new(audience);
    Box::new(move || {
        bed.publish(burst);
        bed.run(u64::MAX);
    })
}

/// A publish and its drops, at peers that read nothing and whose queues are full.
fn dead() -> Repeat {
    let mut bed = Bed::dead(1_000);
    Box::new(move || {
        bed.publish(1);
        bed.run(0);
    })
}

/// Every tenant has one job; each repetition queues one and runs the one whose turn it is.
fn picks(tenants: u32) -> Repeat {
    let limits = Limits { pub_queue_total: 20_000, ..Limits::default() };
    let mut broker = Broker::new(limits, 1);
    let (sources, frame) = (sources(&mut broker, tenants), frame());
    for source in &sources {
        let _ = publish(&mut broker, *source, &frame, Ack::None);
    }
    let mut next = 0;
    Box::new(move || {
        let verdict = publish(&mut broker, sources[next], &frame, Ack::None);
        assert!(matches!(verdict, Verdict::Queued(_)), "{verdict:?}");
        next = if next + 1 == sources.len() { 0 } else { next + 1 };
        let _ = black_box(broker.step(1));
    })
}

/// The decision alone: each repetition is the turn of another tenant, whose next job it takes.
fn turns(tenants: u32) -> Repeat {
    let jobs = u32::try_from(PICKS).expect("a small number").div_ceil(tenants) + 1;
    let limits = Limits { pub_queue_total: 20_000, ..Limits::default() };
    let mut rotation = Rotation::new(&limits, tenants, jobs);
    Box::new(move || {
        let topic = rotation.pick();
        assert!(black_box(topic).is_some(), "somebody wants to run");
    })
}

/// A shard whose publish queue takes one job.
fn narrow() -> (Broker, Source) {
    let mut broker = Broker::new(Limits { pub_queue_total: 1, ..Limits::default() }, 1);
    let source = sources(&mut broker, 1)[0];
    (broker, source)
}

fn refuse() -> Repeat {
    let ((mut broker, source), frame) = (narrow(), frame());
    let _ = publish(&mut broker, source, &frame, Ack::None);
    Box::new(move || {
        let verdict = publish(&mut broker, source, &frame, Ack::Now);
        assert!(matches!(verdict, Verdict::Refused(_)), "{verdict:?}");
    })
}

fn admit_and_refuse() -> Repeat {
    let ((mut broker, source), frame) = (narrow(), frame());
    Box::new(move || {
        let verdict = publish(&mut broker, source, &frame, Ack::None);
        assert!(matches!(verdict, Verdict::Queued(_)), "{verdict:?}");
        let verdict = publish(&mut broker, source, &frame, Ack::Now);
        assert!(matches!(verdict, Verdict::Refused(_)), "{verdict:?}");
        let _ = black_box(broker.step(1));
    })
}

fn park_and_release() -> Repeat {
    let ((mut broker, source), frame) = (narrow(), frame());
    let _ = publish(&mut broker, source, &frame, Ack::None);
    Box::new(move || {
        let verdict = publish(&mut broker, source, &frame, Ack::Wait);
        assert!(matches!(verdict, Verdict::Parked(_)), "{verdict:?}");
        let _ = black_box(broker.step(1));
        write(&mut broker, u64::MAX);
    })
}

/// Offer, frames and settling of one outlet that has enough queued.
fn offers(batches: u64) -> Repeat {
    let mut bed = Bed::with(1, roomy(batches));
    bed.fill(OFFERS * batches);
    Box::new(move || bed.offer())
}

fn offers_past_dead() -> Repeat {
    let mut deserted = Deserted::new(OFFERS, COALESCED);
    Box::new(move || deserted.offer())
}

/// The topic has nobody else: its interest goes from none to one and back.
fn subscribe_and_unsubscribe() -> Repeat {
    let mut broker = Broker::new(Limits::default(), 1);
    let tenant = broker.tenant(1).expect("a first tenant");
    let topic = broker.topic(tenant, "topic").expect("a first topic");
    let outlet = outlet(&mut broker, tenant);
    Box::new(move || {
        let sub = broker.subscribe(outlet, topic, WISH).expect("within the limit");
        broker.unsubscribe(black_box(sub)).expect("it is there");
    })
}

/// A connection with one subscription comes and goes.
fn open_and_gone() -> Repeat {
    let mut broker = Broker::new(Limits::default(), 1);
    let tenant = broker.tenant(1).expect("a first tenant");
    let topic = broker.topic(tenant, "topic").expect("a first topic");
    Box::new(move || {
        let conn = broker.open(tenant).expect("within the limit");
        let outlet = broker.outlet(conn, Pipe::Shared).expect("an open connection");
        broker.subscribe(outlet, topic, WISH).expect("within the limit");
        broker.gone(conn);
    })
}

/// A standing queue: ten samples to an interval, all of them too old.
fn codel_observe() -> Repeat {
    let mut codel = Codel::new();
    let mut now = Instant::ZERO;
    let sojourn = Duration::from_millis(50);
    Box::new(move || {
        now = now + Duration::from_millis(10);
        black_box(codel.observe(black_box(&Settings::LOOPBACK), now, black_box(sojourn)));
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_operation_can_be_repeated_as_often_as_it_says() {
        let names: BTreeSet<_> = OPERATIONS.iter().map(|operation| operation.name).collect();
        assert_eq!(names.len(), OPERATIONS.len(), "a name is given once");
        for operation in OPERATIONS {
            let mut repeat = (operation.start)();
            (0..operation.times).for_each(|_| repeat());
        }
    }
}
