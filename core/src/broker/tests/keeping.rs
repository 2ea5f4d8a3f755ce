//! What a topic keeps is said by the message: holes in the past, what is owed from the beginning
//! on, and what the host can know of it.

use super::*;
use alloc::vec;

const NO: Keep = Keep::No;

struct Kept {
    bench: Bench,
    source: ConnId,
    topic: TopicId,
}

impl Kept {
    /// A topic of a server that keeps `records` by default, and what was published to it.
    fn new(records: u64, published: &[Keep]) -> Self {
        Self::with(|limits| limits.retention_records = records, published)
    }

    fn with(change: impl FnOnce(&mut Limits), published: &[Keep]) -> Self {
        let mut limits = Limits::default();
        change(&mut limits);
        let mut bench = Bench::new(limits);
        let (source, _) = bench.peer(Pipe::Shared);
        let topic = bench.topic("t");
        let mut kept = Self { bench, source, topic };
        published.iter().for_each(|keep| kept.publish(*keep));
        kept
    }

    /// Queued, sequenced and written.
    fn publish(&mut self, keep: Keep) {
        self.queue(keep);
        self.bench.run(|_| ALL);
    }

    fn queue(&mut self, keep: Keep) {
        let frame = Bytes::from_static(b"0123456789");
        let message = Message { frame, records: 1, ack: Ack::None, except: None, keep };
        let verdict = self.bench.broker.publish(self.source, self.topic, message);
        assert!(matches!(verdict, Verdict::Queued(_)));
        self.bench.check();
    }

    fn subscribe(&mut self, start: Start) -> (OutletId, SubId) {
        let (_, outlet) = self.bench.peer(Pipe::Shared);
        (outlet, self.subscribe_at(outlet, start))
    }

    fn subscribe_at(&mut self, outlet: OutletId, start: Start) -> SubId {
        let wish = Wish { start, ..Wish::policy(Policy::DropNew) };
        let sub = self.bench.broker.subscribe(outlet, self.topic, wish).unwrap();
        self.bench.check();
        sub
    }

    /// The sequence numbers that are kept.
    fn log(&self) -> Vec<u64> {
        let log = self.bench.broker.topics[self.topic.index].log.iter();
        log.map(|entry| self.bench.broker.memory.get(entry.message).first).collect()
    }

    /// Everybody reads: what a subscription expected, got, and was told as lost.
    fn ends(&mut self, sub: SubId) -> (u64, u64, Vec<(u64, u64, u64)>) {
        self.bench.run(|_| ALL);
        let books = self.bench.broker.sub_books(sub).unwrap();
        let gaps = self.bench.notices.iter().filter_map(|notice| match notice {
            Notice::Gap { sub: of, gap } if *of == sub => Some((gap.first, gap.last, gap.records)),
            _ => None,
        });
        (books.expected.records, books.delivered.records, gaps.collect())
    }
}

#[test]
fn what_a_topic_keeps_is_said_by_the_message() {
    for (records, published, log) in [
        (0, vec![Keep::Default, newest(2), NO, newest(2), Keep::Default], vec![2, 4]),
        (0, vec![newest(2), newest(2), newest(2), NO], vec![2, 3]),
        (3, vec![Keep::Default, NO, Keep::Default, Keep::Default, Keep::Default], vec![3, 4, 5]),
        (3, vec![Keep::Default, Keep::Default, NO, newest(1)], vec![4]),
        (3, vec![newest(9); 5], vec![1, 2, 3, 4, 5]),
        (3, vec![newest(9), newest(9), newest(9), newest(9), Keep::Default], vec![3, 4, 5]),
    ] {
        let mut kept = Kept::new(records, &published);
        assert_eq!(kept.log(), log, "{published:?} of {records} by default");
        kept.bench.wait(3_600_001);
        assert_eq!(kept.log(), [0; 0], "its age bounds it too");
    }
    let cost = 10 + 256 + 16;
    let bytes = |limits: &mut Limits| limits.retention_bytes = 4 * cost;
    assert_eq!(Kept::with(bytes, &[newest(100); 9]).log(), [6, 7, 8, 9]);
}

/// Two kept, and holes before, between and after them.
const HOLES: [Keep; 7] = [NO, Keep::Default, NO, NO, Keep::Default, NO, NO];

#[test]
fn a_hole_is_no_loss_to_who_begins_after_it() {
    let at = |epoch, sequence| Start::At { epoch, sequence };
    let epoch = {
        let kept = Kept::new(9, &[]);
        kept.bench.broker.topic_epoch(kept.topic).unwrap()
    };
    for (start, first, has_past, ends) in [
        (Start::Earliest, 2, true, (3, 3, vec![])),
        (Start::Last(9), 2, true, (3, 3, vec![])),
        (Start::Last(2), 2, true, (3, 3, vec![])),
        (Start::Last(1), 5, true, (2, 2, vec![])),
        (Start::Last(0), 8, false, (1, 1, vec![])),
        (Start::Tail, 8, false, (1, 1, vec![])),
        // Whoever names a record is told of all that is not there: before it began without being
        // booked, as it was never meant for it, and then as a loss.
        (at(epoch, 1), 2, false, (7, 3, vec![(1, 1, 1), (3, 4, 2), (6, 7, 2)])),
        (at(epoch, 6), 8, false, (1, 1, vec![(6, 7, 2)])),
        (at(!epoch, 6), 2, false, (7, 3, vec![(1, 1, 1), (3, 4, 2), (6, 7, 2)])),
    ] {
        let mut kept = Kept::new(9, &HOLES);
        let (_, sub) = kept.subscribe(start);
        let broker = &kept.bench.broker;
        assert_eq!((broker.start_of(sub), broker.has_past(sub)), (Some(first), Some(has_past)));
        kept.publish(Keep::Default);
        assert_eq!(kept.ends(sub), ends, "{start:?}");
    }
}

/// A subscription whose peer takes nothing, with half of its room used; it starts in the past.
fn stalled(kept: &mut Kept, start: Start) -> (OutletId, SubId) {
    let (source, outlet) = kept.bench.peer(Pipe::Shared);
    let loud = kept.bench.topic("loud");
    kept.bench.broker.subscribe(outlet, loud, Wish::policy(Policy::DropNew)).unwrap();
    let half = usize::try_from(kept.bench.broker.limits().high_water_bytes / 2).unwrap();
    let _ = kept.bench.publish(source, loud, half);
    kept.bench.run(|_| 0);
    let sub = kept.subscribe_at(outlet, start);
    kept.bench.run(|_| 0);
    assert_eq!(kept.bench.broker.sub_books(sub).unwrap().expected, Tally::ZERO, "nothing yet");
    (outlet, sub)
}

#[test]
fn what_is_sequenced_after_a_subscription_began_is_owed_to_it() {
    // Kept are 2 and 5; it has got nothing of that when more is sequenced.
    for (more, ends) in [
        // All is still there, but for what is not kept.
        (vec![Keep::Default, NO, Keep::Default], (5, 4, vec![(9, 9, 1)])),
        // The second of the past is left.
        (vec![newest(2)], (3, 2, vec![(2, 4, 1)])),
        // Nothing of it is, and its gap does not count the holes.
        (vec![NO, newest(1), NO], (5, 1, vec![(2, 8, 3), (10, 10, 1)])),
        (vec![NO, NO, newest(2), newest(2)], (6, 2, vec![(2, 9, 4)])),
    ] {
        let mut kept = Kept::new(9, &HOLES);
        let (outlet, sub) = stalled(&mut kept, Start::Earliest);
        for keep in &more {
            kept.queue(*keep);
            kept.bench.run(|_| 0);
        }
        kept.bench.broker.writable(outlet);
        assert_eq!(kept.ends(sub), ends, "{more:?}");
        let lost = kept.bench.broker.sub_books(sub).unwrap().dropped.bytes;
        assert_eq!(lost, 10 * (ends.0 - ends.1), "bytes are counted as records are");
    }
}

#[test]
fn who_has_just_begun_gets_its_first_batch_before_anything_is_sequenced() {
    let mut kept = Kept::new(0, &[newest(1)]);
    let subs = [(); 5].map(|()| kept.subscribe(Start::Last(1)).1);
    for keep in [newest(1), NO, newest(1)] {
        kept.queue(keep);
    }
    for handed in 1..=5 {
        let _ = kept.bench.broker.step(1);
        let got = subs
            .iter()
            .filter(|sub| kept.bench.broker.sub_books(**sub).unwrap().expected.records == 1);
        assert_eq!((got.count(), kept.bench.broker.jobs().0), (handed, 3));
    }
    for sub in subs {
        assert_eq!(kept.ends(sub), (4, 4, vec![]));
    }
}

#[test]
fn who_begins_at_a_full_queue_that_takes_bytes_waits_for_the_host() {
    let mut kept = Kept::with(|limits| limits.high_water_bytes = 1_024, &[newest(1)]);
    let (source, outlet) = kept.bench.peer(Pipe::Shared);
    let loud = kept.bench.topic("loud");
    kept.bench.broker.subscribe(outlet, loud, Wish::policy(Policy::DropNew)).unwrap();
    let _ = kept.bench.publish(source, loud, 752);
    let _ = kept.bench.broker.step(9);
    let sub = kept.subscribe_at(outlet, Start::Last(1));
    kept.queue(newest(1));
    let expected = |kept: &Kept| kept.bench.broker.sub_books(sub).unwrap().expected.records;
    assert_eq!(kept.bench.broker.step(9), Progress::More);
    assert_eq!((expected(&kept), kept.bench.broker.jobs().0), (0, 1), "it is full");
    kept.bench.write(|_| ALL);
    assert_eq!(kept.ends(sub), (2, 2, vec![]));
}

#[test]
fn the_newest_that_is_kept_can_be_looked_at() {
    let mut kept = Kept::new(0, &[NO]);
    let newest_at = |kept: &Kept| {
        let found = kept.bench.broker.newest_kept(kept.topic);
        found.map(|(frame, at)| (frame.len(), at.as_nanos() / 1_000_000))
    };
    assert_eq!(newest_at(&kept), None);
    kept.bench.wait(40);
    kept.publish(newest(1));
    kept.bench.wait(40);
    kept.publish(NO);
    assert_eq!(newest_at(&kept), Some((10, 40)));
    kept.publish(newest(1));
    assert_eq!(newest_at(&kept), Some((10, 80)));
    kept.bench.wait(3_600_000 - 1);
    assert_eq!(newest_at(&kept), Some((10, 80)));
    kept.bench.wait(1);
    assert_eq!(newest_at(&kept), None);
}

#[test]
fn what_is_confirmed_in_line_comes_before_the_past() {
    let mut kept = Kept::new(0, &[newest(1)]);
    let (outlet, sub) = kept.subscribe(Start::Last(1));
    assert_eq!(kept.bench.broker.has_past(sub), Some(true));
    kept.bench.broker.send(outlet, Bytes::from_static(b"confirmed"), Lane::InLine).unwrap();
    kept.queue(NO);
    let _ = kept.bench.broker.step(100);
    let Some(Effect::Write(offer)) = kept.bench.broker.poll() else { panic!("nothing to write") };
    let sizes: Vec<usize> = kept.bench.broker.frames(offer).map(<[u8]>::len).collect();
    assert_eq!(sizes, [9, 10, 10]);
    kept.bench.broker.sent(offer, offer.bytes);
    assert_eq!(kept.ends(sub), (2, 2, vec![]));
}

#[test]
fn at_the_limit_the_topic_that_was_kept_longest_makes_way_and_an_unused_one_before_it() {
    let mut kept = Kept::with(|limits| limits.max_topics = 3, &[newest(1)]);
    let tenant = kept.bench.tenant;
    let publish = |kept: &mut Kept, name: &str, keep| {
        kept.topic = kept.bench.topic(name);
        kept.publish(keep);
    };
    publish(&mut kept, "second", newest(1));
    publish(&mut kept, "unused", NO);
    publish(&mut kept, "third", newest(1));
    let lives = |kept: &Kept, name| kept.bench.broker.find_topic(tenant, name).is_some();
    assert!(lives(&kept, "t") && lives(&kept, "second") && !lives(&kept, "unused"));
    let (_, outlet) = kept.bench.peer(Pipe::Shared);
    kept.topic = kept.bench.topic("t");
    let sub = kept.subscribe_at(outlet, Start::Last(1));
    publish(&mut kept, "fourth", newest(1));
    assert!(lives(&kept, "t"), "somebody is in it");
    assert!(!lives(&kept, "second") && lives(&kept, "third"), "of the others the oldest");
    assert_eq!(kept.ends(sub), (1, 1, vec![]), "what was kept for those who come is there");
    for name in ["third", "fourth"] {
        kept.topic = kept.bench.topic(name);
        kept.subscribe_at(outlet, Start::Tail);
    }
    let full = Refusal::after(Place::Table, Reason::Limit, 1_000);
    assert_eq!(kept.bench.broker.topic(tenant, "fifth"), Err(full), "all are in use");
    kept.bench.check();
}

#[test]
fn a_tenant_that_is_not_served_any_more_keeps_nothing() {
    let mut kept = Kept::new(0, &[newest(1)]);
    let tenant = kept.bench.tenant;
    let held = kept.bench.broker.held();
    let (conn, outlet) = kept.bench.peer(Pipe::Shared);
    kept.subscribe_at(outlet, Start::Tail);
    for n in 0..100 {
        kept.topic = kept.bench.topic(&format!("topic {n}"));
        kept.publish(if n % 2 == 0 { newest(1) } else { NO });
    }
    let left = |kept: &mut Kept| {
        kept.bench.check();
        kept.bench.broker.forget(tenant).unwrap()
    };
    assert_eq!(left(&mut kept), 101 - 64, "not more at once");
    assert_eq!(left(&mut kept), 1, "the one that somebody is in stays");
    assert!(kept.bench.broker.find_topic(tenant, "t").is_some());
    kept.bench.broker.gone(conn);
    assert_eq!(left(&mut kept), 0);
    assert!(kept.bench.broker.held() < held);
    kept.bench.check();
}
