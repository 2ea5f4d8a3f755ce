//! Peers that stopped reading with a full queue: each batch costs them another one, by the rules
//! of checkpoint 5 and no quicker, whichever loop it goes through.

use super::*;

/// Nobody is timed, so that a stopped peer stays one.
fn patient(limits: Limits) -> Limits {
    Limits { slow_consumer_after_ms: 0, ..limits }
}

/// A batch of this many bytes costs so much.
fn price(size: u64) -> u64 {
    crate::memory::cost(size, 1)
}

fn dropped(bench: &Bench, place: Place) -> u64 {
    bench.broker.ledger().dropped.get(place, Reason::DropOld).records
}

/// The next offer, unanswered.
fn offer(bench: &mut Bench) -> Offer {
    loop {
        match bench.broker.poll().expect("something is queued") {
            Effect::Write(offer) => return offer,
            Effect::Notice(_) => {}
        }
    }
}

#[test]
fn a_stopped_peer_with_room_loses_nothing() {
    let limits = patient(Limits { subscription_batches: 4, ..Limits::default() });
    let (mut bench, source, outlet, _) = one_subscriber(limits, Pipe::Single, Policy::DropOld);
    for (batches, lost) in [(1, 0), (2, 0), (3, 0), (4, 0), (4, 1), (4, 2)] {
        bench.flood(source, 100, 1, 0);
        assert_eq!(bench.broker.backlog(outlet).unwrap().batches, batches);
        assert_eq!(dropped(&bench, Place::Backlog), lost);
    }
}

#[test]
fn a_peer_that_takes_bytes_is_not_filled_beyond_its_limit() {
    let limits = patient(Limits { subscription_batches: 2, ..Limits::default() });
    let (mut bench, (conn, topic), outlet, _) =
        one_subscriber(limits, Pipe::Single, Policy::DropNew);
    for _ in 0..5 {
        let _ = bench.publish(conn, topic, 100);
    }
    assert_eq!(bench.broker.step(100), Progress::More);
    bench.check();
    assert_eq!(bench.broker.backlog(outlet).unwrap().batches, 2, "the host has to write first");
    bench.run(|_| ALL);
    assert_eq!(bench.broker.ledger().delivered.records, 5);
}

#[test]
fn what_came_back_from_an_offer_is_brought_within_the_limit() {
    let byte_limit = Limits { subscription_bytes: 4 * price(100), ..Limits::default() };
    let batch_limit = Limits { subscription_batches: 4, ..Limits::default() };
    for limits in [byte_limit, batch_limit].map(patient) {
        let (mut bench, (conn, topic), outlet, _) =
            one_subscriber(limits, Pipe::Single, Policy::DropOld);
        let publish = |bench: &mut Bench, times| {
            for _ in 0..times {
                let _ = bench.publish(conn, topic, 100);
            }
            let _ = bench.broker.step(100);
            bench.check();
        };
        publish(&mut bench, 4);
        let open = offer(&mut bench);
        publish(&mut bench, 4);
        bench.broker.sent(open, 0);
        assert_eq!(bench.broker.backlog(outlet).unwrap().batches, 8, "none was begun");
        publish(&mut bench, 1);
        assert_eq!(bench.broker.backlog(outlet).unwrap().batches, 4);
        assert_eq!(dropped(&bench, Place::Backlog), 5);
    }
}

#[test]
fn a_share_of_the_connection_that_shrank_is_the_limit_from_then_on() {
    let limits = Limits {
        subscription_bytes: 4 * price(1_000),
        egress_shed: 1,
        egress_batches: Limits::default().subscription_batches,
        egress_bytes: 4 * price(1_000),
        ..Limits::default()
    };
    let mut bench = Bench::new(patient(limits));
    let (source, _) = bench.peer(Pipe::Shared);
    let topic = bench.topic("t");
    let other = bench.topic("other");
    let (conn, outlet) = bench.peer(Pipe::Single);
    bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap();
    bench.flood((source, topic), 1_000, 5, 0);
    assert_eq!((dropped(&bench, Place::Backlog), dropped(&bench, Place::Egress)), (1, 0));
    let second = bench.broker.outlet(conn, Pipe::Single).unwrap();
    bench.broker.subscribe(second, other, Wish::policy(Policy::DropOld)).unwrap();
    bench.flood((source, topic), 1_000, 1, 0);
    assert_eq!(bench.broker.backlog(outlet).unwrap().batches, 2);
    assert_eq!((dropped(&bench, Place::Backlog), dropped(&bench, Place::Egress)), (1, 3));
}

#[test]
fn egress_has_no_limit_of_batches_unless_it_sheds() {
    let limits = patient(Limits { egress_batches: 2, ..Limits::default() });
    let (mut bench, source, outlet, _) = one_subscriber(limits, Pipe::Single, Policy::DropNew);
    bench.flood(source, 100, 5, 0);
    assert_eq!(bench.broker.backlog(outlet).unwrap().batches, 5);
}

#[test]
fn only_who_gives_up_the_oldest_loses_it() {
    let limits = patient(Limits { high_water_bytes: 4 * price(100), ..Limits::default() });
    let (mut bench, old, outlet, _) = one_subscriber(limits, Pipe::Shared, Policy::DropOld);
    let topic = bench.topic("kept");
    let kept = bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropNew)).unwrap();
    bench.flood((old.0, topic), 100, 2, 0);
    bench.flood(old, 100, 5, 0);
    let books = bench.broker.sub_books(kept).unwrap();
    assert_eq!((books.dropped.records, books.lag.records), (0, 2));
    assert_eq!(dropped(&bench, Place::Backlog), 3);
    assert_eq!(bench.broker.backlog(outlet).unwrap().batches, 4);
}

#[test]
fn batches_of_any_size_are_replaced_within_the_limit() {
    let limits = patient(Limits { high_water_bytes: 4 * price(500), ..Limits::default() });
    let (mut bench, source, outlet, _) = one_subscriber(limits, Pipe::Shared, Policy::DropOld);
    bench.flood(source, 500, 4, 0);
    for size in [100, 1_500, 500, 20, 1_000, 1_000] {
        bench.flood(source, size, 1, 0);
        let waiting = bench.broker.backlog(outlet).unwrap().bytes;
        assert!(waiting <= 4 * price(500), "{waiting} after {size}");
        assert!(waiting + price(1_500) > 4 * price(500), "no more is dropped than must be");
    }
}

/// What is queued is replaced for ever; what holds it must not grow.
#[test]
fn a_queue_that_is_replaced_for_ever_stays_as_it_is() {
    for (begun, sizes) in [(0, [100, 100]), (0, [100, 130]), (10, [100, 100]), (10, [100, 130])] {
        let limits = patient(Limits { high_water_bytes: 20 * price(130), ..Limits::default() });
        let (mut bench, source, _, _) = one_subscriber(limits, Pipe::Shared, Policy::DropOld);
        bench.flood(source, 100, 1, begun);
        let most = |bench: &mut Bench| {
            let held = (0..200).map(|at| {
                bench.flood(source, sizes[at % 2], 1, 0);
                bench.broker.held()
            });
            held.max().unwrap()
        };
        most(&mut bench);
        let (early, late) = (most(&mut bench), most(&mut bench));
        assert!(late <= early, "{begun} {sizes:?}: {early} and then {late}");
    }
}
