//! Rare states that a host can reach: each once broke the books or got stuck.

use super::*;
use crate::shed::Band;
use alloc::vec;

fn refuse_all(_: OutletId) -> u64 {
    0
}

#[test]
fn a_topic_with_records_on_their_way_is_not_unused() {
    let mut bench = Bench::new(small(|limits| limits.max_topics = 1));
    let (source, _) = bench.peer(Pipe::Shared);
    let (_, outlet) = bench.peer(Pipe::Shared);
    let topic = bench.topic("a");
    let sub = bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap();
    let _ = bench.publish(source, topic, 100);
    bench.run(|_| 10);
    bench.broker.unsubscribe(sub).unwrap();
    bench.check();
    let full = bench.broker.topic(bench.tenant, "b").unwrap_err();
    assert_eq!((full.place, full.reason), (Place::Table, Reason::Limit), "`a` is in mid-write");
    bench.broker.writable(outlet);
    bench.run(|_| ALL);
    bench.topic("b");
    bench.check();
}

#[test]
fn unused_topics_do_not_keep_a_shard_saturated() {
    let limits = Limits { memory_budget: 1 << 20, band_dwell_ms: 0, ..Limits::default() };
    let mut bench = Bench::new(limits);
    for n in 0..2_700 {
        bench.topic(&format!("topic {n}"));
    }
    bench.broker.advance(Instant::from_millis(0));
    assert_ne!(bench.broker.band(), Band::Normal);
    for _ in 0..2_700 {
        if bench.broker.next_deadline().is_none() {
            break;
        }
        bench.wait(0);
    }
    assert_eq!(bench.broker.band(), Band::Normal);
    assert!(bench.broker.held() > 700 << 10, "no more were removed than needed");
}

#[test]
fn an_empty_frame_is_refused() {
    let mut bench = Bench::new(Limits::default());
    let (source, outlet) = bench.peer(Pipe::Shared);
    let topic = bench.topic("a");
    let _ = bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap();
    let Verdict::Shed(why) = bench.publish(source, topic, 0) else { panic!("it was admitted") };
    assert_eq!((why.place, why.reason), (Place::Admission, Reason::NotAllowed));
    bench.run(|_| ALL);
}

#[test]
fn what_is_given_back_after_a_close_does_not_follow_the_last_frame() {
    let mut bench = Bench::new(Limits::default());
    let (source, _) = bench.peer(Pipe::Shared);
    let (conn, outlet) = bench.peer(Pipe::Shared);
    let topic = bench.topic("a");
    let _ = bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap();
    for _ in 0..3 {
        let _ = bench.publish(source, topic, 100);
    }
    while bench.broker.step(8) == Progress::More {}
    let offer = loop {
        match bench.broker.poll() {
            Some(Effect::Write(offer)) => break offer,
            effect => assert!(effect.is_some()),
        }
    };
    bench.broker.close(conn, Close::Now, Bytes::from_static(b"bye")).unwrap();
    bench.check();
    bench.broker.sent(offer, 150);
    bench.check();
    bench.broker.writable(outlet);
    assert_eq!(bench.run(|_| ALL), 50 + 3, "the rest of the frame in mid-write, and the last one");
    let lost = bench.broker.ledger().dropped.get(Place::Egress, Reason::Closed);
    assert_eq!(lost.records, 1);
    assert!(bench.notices.contains(&Notice::Flushed { conn }));
}

#[test]
fn data_waits_for_all_control_frames_that_go_first() {
    let mut bench = Bench::new(Limits::default());
    let (source, _) = bench.peer(Pipe::Shared);
    let (_, outlet) = bench.peer(Pipe::Shared);
    let topic = bench.topic("a");
    let _ = bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap();
    for _ in 0..70 {
        bench.broker.send(outlet, Bytes::from_static(b"c"), Lane::First).unwrap();
    }
    let _ = bench.publish(source, topic, 9);
    while bench.broker.step(8) == Progress::More {}
    let mut lengths = Vec::new();
    while let Some(effect) = bench.broker.poll() {
        if let Effect::Write(offer) = effect {
            lengths.extend(bench.broker.frames(offer).map(<[u8]>::len));
            bench.broker.sent(offer, offer.bytes);
        }
    }
    assert_eq!(lengths, [vec![1; 70], vec![9]].concat());
}

#[test]
fn a_closing_connection_is_not_paused_again() {
    let mut bench = Bench::new(Limits::default());
    let conn = bench.broker.open(bench.tenant).unwrap();
    let outlets = [Pipe::Single, Pipe::Single].map(|pipe| bench.broker.outlet(conn, pipe).unwrap());
    let frame = || Bytes::from(alloc::vec![b'c'; 40_000]);
    for outlet in outlets {
        bench.broker.send(outlet, frame(), Lane::First).unwrap();
    }
    bench.run(refuse_all);
    assert!(bench.broker.is_paused(conn));
    bench.broker.close(conn, Close::AfterFlush, Bytes::new()).unwrap();
    assert!(!bench.broker.is_paused(conn));
    bench.broker.writable(outlets[0]);
    bench.run(|_| 40_000);
    assert!(!bench.broker.is_paused(conn), "it is read until its peer closes");
}

#[test]
fn more_lost_records_than_32_bits_are_counted() {
    let mut gaps = crate::lag::Gaps::default();
    for run in 0..2_u64 {
        let first = 1 + run * (u64::from(u32::MAX) + 1);
        let last = first + u64::from(u32::MAX) - 1;
        let (place, reason) = (Place::Backlog, Reason::DropOld);
        gaps.add(crate::notice::Gap { first, last, records: u32::MAX.into(), place, reason });
    }
    for n in 0..40 {
        let first = (1 << 40) + 2 * n;
        let (place, reason) = (Place::Backlog, Reason::DropOld);
        gaps.add(crate::notice::Gap { first, last: first, records: 1, place, reason });
    }
    let told: u64 = core::iter::from_fn(|| gaps.take_before(u64::MAX)).map(|g| g.records).sum();
    assert_eq!(told, 2 * u64::from(u32::MAX) + 40);
}

#[test]
fn a_subscription_catches_up_beside_a_busy_one_on_the_same_outlet() {
    let mut bench = Bench::new(small(|limits| limits.retention_records = 100));
    let (source, _) = bench.peer(Pipe::Shared);
    let (_, outlet) = bench.peer(Pipe::Shared);
    let [busy, past] = ["busy", "past"].map(|name| bench.topic(name));
    for _ in 0..20 {
        let _ = bench.publish(source, past, 100);
    }
    bench.run(refuse_all);
    let _ = bench.broker.subscribe(outlet, busy, Wish::policy(Policy::DropOld)).unwrap();
    let wish = Wish { start: Start::Last(15), ..Wish::policy(Policy::DropOld) };
    let late = bench.broker.subscribe(outlet, past, wish).unwrap();
    for n in 0..40 {
        let _ = bench.publish(source, busy, if n % 3 == 0 { 900 } else { 100 });
        bench.run(refuse_all);
    }
    bench.broker.writable(outlet);
    bench.run(|_| ALL);
    let _ = bench.publish(source, past, 100);
    bench.run(|_| ALL);
    let books = bench.broker.sub_books(late).unwrap();
    assert_eq!(books.expected.records, 16, "fifteen old ones, and the new one");
    assert_eq!(books.delivered.records + books.dropped.records, 16);
    assert!(books.delivered.records >= 10, "{books:?}");
}

#[test]
fn room_for_a_whole_call_counts_the_memory_that_the_call_takes() {
    let limits = Limits { memory_budget: 1 << 20, ..Limits::default() };
    let mut bench = Bench::new(limits);
    let (source, _) = bench.peer(Pipe::Shared);
    let topic = bench.topic("t");
    for (jobs, fits) in [(100, false), (90, true)] {
        assert_eq!(
            bench.broker.room(source, (jobs, u64::from(jobs) * 10_240), empty()).is_ok(),
            fits
        );
    }
    for _ in 0..90 {
        assert!(matches!(bench.publish(source, topic, 10_240), Verdict::Queued(_)));
    }
}

#[test]
fn whoever_loses_its_last_batch_to_another_is_told() {
    let mut bench = Bench::new(small(|_| {}));
    let (source, _) = bench.peer(Pipe::Shared);
    let (_, outlet) = bench.peer(Pipe::Shared);
    let [quiet, busy] = ["quiet", "busy"].map(|name| bench.topic(name));
    let sub = bench.broker.subscribe(outlet, quiet, Wish::policy(Policy::DropOld)).unwrap();
    let _ = bench.broker.subscribe(outlet, busy, Wish::policy(Policy::DropOld)).unwrap();
    for topic in [busy, quiet, busy, busy, busy] {
        let _ = bench.publish(source, topic, 100);
        bench.run(refuse_all);
    }
    for lost in [0, 1] {
        let _ = bench.publish(source, busy, 100);
        bench.run(refuse_all);
        assert_eq!(bench.broker.sub_books(sub).unwrap().dropped.records, lost);
    }
    bench.broker.writable(outlet);
    bench.run(|_| ALL);
    assert_eq!(bench.gaps(sub), [(1, 1)]);
}
