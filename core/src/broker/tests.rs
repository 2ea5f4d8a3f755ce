use super::*;
use crate::id::{SubId, TopicId};
use crate::verdict::Verdict;
use alloc::format;
use alloc::string::String;
use core::iter::empty;

mod corners;
mod edges;
mod endings;
mod fairness;
mod held;
mod keeping;
mod keys;
mod lossless;
mod promises;
mod publishing;
mod random;
mod relief;
mod rules;
mod shards;
mod shares;
mod staleness;
mod stalls;
mod stopped;
mod storm;
mod tape;

/// The batch, and of what the topic kept before at most so much that this many records stay.
pub(super) fn newest(records: u32) -> Keep {
    Keep::Newest(records.try_into().unwrap())
}

/// A host for tests: every outlet writes to a buffer that takes `room` bytes.
pub(super) struct Bench {
    pub(super) broker: Broker,
    pub(super) tenant: TenantId,
    pub(super) notices: Vec<Notice>,
    millis: u64,
}

impl Bench {
    pub(super) fn new(limits: Limits) -> Self {
        let mut broker = Broker::new(limits, 7);
        let tenant = broker.tenant(1).unwrap();
        Self { broker, tenant, notices: Vec::new(), millis: 0 }
    }

    pub(super) fn peer(&mut self, pipe: Pipe) -> (ConnId, OutletId) {
        let conn = self.broker.open(self.tenant).unwrap();
        (conn, self.broker.outlet(conn, pipe).unwrap())
    }

    pub(super) fn topic(&mut self, name: &str) -> TopicId {
        self.broker.topic(self.tenant, name).unwrap()
    }

    pub(super) fn publish(&mut self, conn: ConnId, topic: TopicId, size: usize) -> Verdict {
        self.publish_as(conn, topic, size, Ack::None)
    }

    pub(super) fn publish_as(
        &mut self,
        conn: ConnId,
        topic: TopicId,
        size: usize,
        ack: Ack,
    ) -> Verdict {
        let frame = Bytes::from(alloc::vec![b'x'; size]);
        let verdict = self.broker.publish(
            conn,
            topic,
            Message { frame, records: 1, ack, except: None, keep: Keep::Default },
        );
        self.check();
        verdict
    }

    pub(super) fn check(&self) {
        if let Err(broken) = self.broker.check() {
            panic!("{broken}");
        }
    }

    /// Publishes `times` batches, one after the other, to peers of which each write takes `room`.
    pub(super) fn flood(&mut self, (conn, topic): Source, size: usize, times: u32, room: u64) {
        for _ in 0..times {
            let _ = self.publish(conn, topic, size);
            self.run(|_| room);
        }
    }

    /// Drains notices, and writes every offer: `room` says how many bytes an outlet takes.
    pub(super) fn write(&mut self, mut room: impl FnMut(OutletId) -> u64) -> u64 {
        let mut written = 0;
        while let Some(effect) = self.broker.poll() {
            let offer = match effect {
                Effect::Write(offer) => offer,
                Effect::Notice(notice) => {
                    self.notices.push(notice);
                    continue;
                }
            };
            let bytes: u64 = self.broker.frames(offer).map(|frame| frame.len() as u64).sum();
            assert_eq!(bytes, offer.bytes);
            self.check();
            let taken = room(offer.outlet).min(bytes);
            self.broker.sent(offer, taken);
            written += taken;
            self.check();
        }
        written
    }

    /// Steps and writes until nothing is left to do.
    pub(super) fn run(&mut self, mut room: impl FnMut(OutletId) -> u64) -> u64 {
        let mut written = 0;
        loop {
            let progress = self.broker.step(3);
            self.check();
            written += self.write(&mut room);
            if progress == Progress::Idle && self.broker.next_deadline() != Some(self.broker.now())
            {
                break;
            }
        }
        self.broker.check_quiescent().unwrap();
        written
    }

    pub(super) fn wait(&mut self, millis: u64) {
        self.millis += millis;
        self.broker.advance(Instant::from_millis(self.millis));
        self.check();
    }

    fn gaps(&self, sub: SubId) -> Vec<(u64, u64)> {
        let gaps = self.notices.iter().filter_map(|notice| match notice {
            Notice::Gap { sub: whose, gap } if *whose == sub => Some((gap.first, gap.last)),
            _ => None,
        });
        gaps.collect()
    }
}

/// Who publishes, and where.
type Source = (ConnId, TopicId);

/// A source, a topic, and one subscriber.
fn one_subscriber(limits: Limits, pipe: Pipe, policy: Policy) -> (Bench, Source, OutletId, SubId) {
    let mut bench = Bench::new(limits);
    let (source, _) = bench.peer(Pipe::Shared);
    let (_, outlet) = bench.peer(pipe);
    let topic = bench.topic("t");
    let sub = bench.broker.subscribe(outlet, topic, Wish::policy(policy)).unwrap();
    (bench, (source, topic), outlet, sub)
}

const ALL: u64 = u64::MAX;

fn small(limits: impl FnOnce(&mut Limits)) -> Limits {
    let mut small = Limits { high_water_bytes: 2_000, ..Limits::default() };
    limits(&mut small);
    small
}

#[test]
fn a_publish_reaches_every_subscriber_but_the_excluded_one() {
    let mut bench = Bench::new(Limits::default());
    let topic = bench.topic("t");
    let (source, own) = bench.peer(Pipe::Shared);
    let (_, other) = bench.peer(Pipe::Shared);
    for outlet in [own, other] {
        bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap();
    }
    let frame = Bytes::from_static(b"hello");
    let message =
        Message { frame, records: 1, ack: Ack::Now, except: Some((0, own)), keep: Keep::Default };
    let Verdict::Queued(ticket) = bench.broker.publish(source, topic, message) else { panic!() };
    assert_eq!(bench.run(|outlet| if outlet == other { ALL } else { 0 }), 5);
    assert_eq!(bench.notices, [Notice::Committed { conn: source, ticket, first: 1 }]);
    let books = bench.broker.ledger();
    assert_eq!((books.expected.records, books.delivered.records), (1, 1));
    assert_eq!(bench.broker.audience(topic), Some(2));
}

#[test]
fn nothing_is_dropped_for_a_peer_that_takes_bytes() {
    for work in [1, 7, 100_000] {
        let mut bench = Bench::new(small(|_| {}));
        let topic = bench.topic("t");
        let (source, _) = bench.peer(Pipe::Shared);
        for policy in [Policy::DropOld, Policy::DropNew] {
            let (_, outlet) = bench.peer(Pipe::Shared);
            bench.broker.subscribe(outlet, topic, Wish::policy(policy)).unwrap();
        }
        for _ in 0..50 {
            assert!(matches!(bench.publish(source, topic, 500), Verdict::Queued(_)));
        }
        while bench.broker.step(work) == Progress::More {
            bench.write(|_| ALL);
        }
        bench.write(|_| ALL);
        let books = bench.broker.ledger();
        assert_eq!((books.delivered.records, books.dropped.total().records), (100, 0), "{work}");
    }
}

#[test]
fn a_stalled_subscriber_loses_only_its_own_and_is_told() {
    let mut bench = Bench::new(small(|_| {}));
    let topic = bench.topic("t");
    let (source, _) = bench.peer(Pipe::Shared);
    let (_, good) = bench.peer(Pipe::Shared);
    let (_, stuck) = bench.peer(Pipe::Shared);
    let wish = Wish::policy(Policy::DropOld);
    let good_sub = bench.broker.subscribe(good, topic, wish).unwrap();
    let stuck_sub = bench.broker.subscribe(stuck, topic, wish).unwrap();
    for _ in 0..20 {
        let _ = bench.publish(source, topic, 500);
        bench.run(|outlet| if outlet == stuck { 100 } else { ALL });
    }
    let books = bench.broker.sub_books(stuck_sub).unwrap();
    assert_eq!(books.last_drop, Some((Place::Backlog, Reason::DropOld)));
    assert_eq!(bench.broker.sub_books(good_sub).unwrap().delivered.records, 20);
    assert!(bench.gaps(stuck_sub).is_empty(), "a peer that takes nothing is told nothing");
    bench.broker.writable(stuck);
    bench.run(|_| ALL);
    let after = bench.broker.sub_books(stuck_sub).unwrap();
    assert_eq!(after.delivered.records + after.dropped.records, 20);
    // The first was in mid-write; two fit behind it.
    assert_eq!(bench.gaps(stuck_sub), [(2, 18)]);
    assert_eq!(after.dropped.records, 17);
}

#[test]
fn drop_new_keeps_what_it_has() {
    let mut bench = Bench::new(small(|_| {}));
    let topic = bench.topic("t");
    let (source, outlet) = bench.peer(Pipe::Shared);
    let sub = bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropNew)).unwrap();
    for _ in 0..5 {
        let _ = bench.publish(source, topic, 500);
        bench.run(|_| 1);
    }
    bench.broker.writable(outlet);
    bench.run(|_| ALL);
    // The first is taken and counts: two more fit.
    assert_eq!(bench.gaps(sub), [(3, 5)]);
    let books = bench.broker.sub_books(sub).unwrap();
    assert_eq!(books.last_drop, Some((Place::Backlog, Reason::DropNew)));
}

#[test]
fn latest_keeps_one_and_the_newest_arrives() {
    let mut bench = Bench::new(Limits::default());
    let topic = bench.topic("t");
    let (source, outlet) = bench.peer(Pipe::Single);
    let sub = bench.broker.subscribe(outlet, topic, Wish::policy(Policy::Latest)).unwrap();
    for _ in 0..5 {
        let _ = bench.publish(source, topic, 10);
        bench.run(|_| 0);
    }
    bench.broker.writable(outlet);
    assert_eq!(bench.run(|_| ALL), 10);
    assert_eq!(bench.gaps(sub), [(1, 4)]);
}

#[test]
fn a_full_block_subscription_holds_its_topic_and_no_other() {
    let mut bench =
        Bench::new(Limits { lossless: 1, subscription_batches: 2, ..Limits::default() });
    let (held, free) = (bench.topic("held"), bench.topic("free"));
    let (source, _) = bench.peer(Pipe::Shared);
    let (_, outlet) = bench.peer(Pipe::Single);
    let (_, other) = bench.peer(Pipe::Single);
    let block = Wish::policy(Policy::Block);
    let sub = bench.broker.subscribe(outlet, held, block).unwrap();
    bench.broker.subscribe(other, held, Wish::policy(Policy::DropNew)).unwrap();
    for _ in 0..5 {
        let _ = bench.publish(source, held, 10);
        let _ = bench.publish(source, free, 10);
    }
    bench.run(|to| if to == outlet { 0 } else { ALL });
    let sequenced =
        |bench: &Bench, topic| bench.broker.topic_books(topic).unwrap().sequenced.records;
    assert_eq!((sequenced(&bench, held), sequenced(&bench, free)), (2, 5));
    bench.broker.writable(outlet);
    bench.run(|_| ALL);
    assert_eq!(sequenced(&bench, held), 5);
    assert_eq!(bench.broker.ledger().dropped.total(), Tally::ZERO);
    bench.broker.unsubscribe(sub).unwrap();
    assert_eq!(bench.broker.unsubscribe(sub), Err(Refusal::GONE));
    bench.check();
}

#[test]
fn a_holder_that_leaves_lets_its_topic_go() {
    let mut bench =
        Bench::new(Limits { lossless: 1, subscription_batches: 1, ..Limits::default() });
    let topic = bench.topic("t");
    let (source, _) = bench.peer(Pipe::Shared);
    for leave in [0, 1] {
        let (conn, outlet) = bench.peer(Pipe::Single);
        let sub = bench.broker.subscribe(outlet, topic, Wish::policy(Policy::Block)).unwrap();
        let _ = bench.publish(source, topic, 10);
        let _ = bench.publish(source, topic, 10);
        bench.run(|_| 0);
        assert_eq!(bench.broker.jobs(), (1, 0));
        if leave == 0 {
            bench.broker.unsubscribe(sub).unwrap();
        }
        bench.broker.gone(conn);
        bench.run(|_| 0);
        assert_eq!(bench.broker.jobs(), (0, 0));
    }
}

#[test]
fn where_block_and_latest_are_not_allowed() {
    let mut bench = Bench::new(Limits::default());
    let topic = bench.topic("t");
    let (_, shared) = bench.peer(Pipe::Shared);
    let (_, single) = bench.peer(Pipe::Single);
    let no = Err(Refusal::never(Place::Backlog, Reason::NotAllowed));
    for (outlet, policy) in
        [(shared, Policy::Block), (shared, Policy::Latest), (single, Policy::Block)]
    {
        assert_eq!(bench.broker.subscribe(outlet, topic, Wish::policy(policy)), no);
    }
    let new = Wish::policy(Policy::DropNew);
    assert!(bench.broker.subscribe(single, topic, new).is_ok());
    assert_eq!(bench.broker.subscribe(single, topic, new), no, "one subscription per single pipe");
}

#[test]
fn without_room_a_publish_is_shed_refused_or_parked_by_its_mode() {
    let mut bench = Bench::new(Limits { pub_queue_total: 1, ..Limits::default() });
    let topic = bench.topic("t");
    let [a, b, c, d] = [0; 4].map(|_| bench.peer(Pipe::Shared).0);
    assert!(matches!(bench.publish(a, topic, 1), Verdict::Queued(_)));
    let full = Refusal::after(Place::Schedule, Reason::QueueFull, 50);
    assert_eq!(bench.publish(b, topic, 1), Verdict::Shed(full));
    assert_eq!(bench.publish_as(c, topic, 1, Ack::Now), Verdict::Refused(full));
    let Verdict::Parked(ticket) = bench.publish_as(d, topic, 1, Ack::Wait) else { panic!() };
    assert!(bench.broker.is_paused(d));
    assert_eq!(bench.broker.next_deadline(), Some(Instant::ZERO), "a job can run now");
    let busy = bench.publish_as(d, topic, 1, Ack::Wait);
    assert!(matches!(busy, Verdict::Refused(Refusal { reason: Reason::Busy, .. })));
    bench.run(|_| ALL);
    assert_eq!(
        bench.notices,
        [
            Notice::Pause { conn: d },
            Notice::Resume { conn: d },
            Notice::Committed { conn: d, ticket, first: 2 },
            Notice::Shed { conn: b, records: 1, place: full.place, reason: full.reason },
        ]
    );
}

#[test]
fn a_wait_ends_at_its_deadline_and_with_its_source() {
    let limits =
        Limits { pub_queue_total: 1, lossless: 1, subscription_batches: 1, ..Limits::default() };
    let mut bench = Bench::new(limits);
    let topic = bench.topic("t");
    let (_, outlet) = bench.peer(Pipe::Single);
    bench.broker.subscribe(outlet, topic, Wish::policy(Policy::Block)).unwrap();
    let [a, b, c] = [0; 3].map(|_| bench.peer(Pipe::Shared).0);
    let _ = bench.publish(a, topic, 1);
    bench.run(|_| 0);
    let _ = bench.publish(a, topic, 1);
    let Verdict::Parked(ticket) = bench.publish_as(b, topic, 1, Ack::Wait) else { panic!() };
    assert!(matches!(bench.publish(c, topic, 1), Verdict::Parked(_)));
    assert_eq!(bench.broker.next_deadline(), Some(Instant::from_millis(2_000)));
    bench.wait(1_999);
    assert_eq!(bench.broker.jobs(), (1, 2));
    bench.wait(1);
    bench.broker.gone(c);
    bench.run(|_| 0);
    let why = Refusal::after(Place::Schedule, Reason::Deadline, 1_000);
    assert!(bench.notices.contains(&Notice::Failed { conn: b, ticket, why }));
    assert!(bench.notices.contains(&Notice::Resume { conn: b }));
    let refused = &bench.broker.ledger().refused;
    assert_eq!(refused.get(Place::Schedule, Reason::Closed).records, 1);
    assert_eq!(refused.get(Place::Schedule, Reason::Deadline).records, 1);
}

#[test]
fn an_oversize_publish_is_refused_at_once_and_takes_nothing() {
    let limits = Limits { max_frame_bytes: 1 << 20, ..Limits::default() };
    let mut bench = Bench::new(limits);
    let topic = bench.topic("t");
    let (source, _) = bench.peer(Pipe::Shared);
    assert!(matches!(bench.publish(source, topic, 1 << 20), Verdict::Queued(_)));
    let never = Refusal::never(Place::Admission, Reason::Oversize);
    assert_eq!(bench.publish(source, topic, (1 << 20) + 1), Verdict::Shed(never));
    for records in [0, 4097] {
        let message = Message {
            frame: Bytes::from_static(b"x"),
            records,
            ack: Ack::Wait,
            except: None,
            keep: Keep::Default,
        };
        assert_eq!(bench.broker.publish(source, topic, message), Verdict::Refused(never));
    }
    assert!(bench.broker.room(source, (1, 17 << 20), empty()).is_err());
    assert!(bench.broker.room(source, (256, 1 << 20), empty()).is_err(), "one slot is used");
    assert!(bench.broker.room(source, (255, 1 << 20), empty()).is_ok());
    let why = bench.broker.room(source, (256, 1 << 20), empty()).unwrap_err();
    bench.broker.refuse(source, Tally { records: 256, bytes: 1 << 20 }, why);
    assert_eq!(bench.broker.ledger().refused.get(why.place, why.reason).records, 256);
    bench.check();
}

#[test]
fn inflight_bytes_come_back_when_the_job_is_done_even_if_its_source_is_gone() {
    let mut bench = Bench::new(Limits::default());
    let topic = bench.topic("t");
    let (source, _) = bench.peer(Pipe::Shared);
    let _ = bench.publish(source, topic, 1000);
    assert_eq!(bench.broker.inflight(), 1000 + 256 + 16);
    bench.broker.gone(source);
    bench.check();
    bench.run(|_| ALL);
    assert_eq!(bench.broker.inflight(), 0);
    assert_eq!(bench.broker.ledger().sequenced.records, 1);
}

#[test]
fn any_split_of_the_writes_gives_the_same_bytes() {
    let receive = |room: u64| {
        let mut bench = Bench::new(Limits::default());
        let topic = bench.topic("t");
        let (source, outlet) = bench.peer(Pipe::Shared);
        bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropNew)).unwrap();
        let mut got = String::new();
        for n in 0..20 {
            let frame = Bytes::from(format!("<{n}{}>", "x".repeat(n)));
            let message =
                Message { frame, records: 1, ack: Ack::None, except: None, keep: Keep::Default };
            let _ = bench.broker.publish(source, topic, message);
            let _ = bench.broker.step(100);
            if n % 5 == 0 {
                bench.broker.send(outlet, Bytes::from(format!("[{n}]")), Lane::InLine).unwrap();
            }
        }
        while let Some(effect) = bench.broker.poll() {
            let Effect::Write(offer) = effect else { continue };
            let text: Vec<u8> = bench.broker.frames(offer).flatten().copied().collect();
            let taken = room.min(offer.bytes);
            got.push_str(std::str::from_utf8(&text[..usize::try_from(taken).unwrap()]).unwrap());
            bench.broker.sent(offer, taken);
            bench.check();
            bench.broker.writable(outlet);
        }
        got
    };
    let whole = receive(ALL);
    assert!(whole.starts_with("<0>[0]<1x>") && whole.len() > 200);
    for room in [1, 2, 3, 5, 7, 64] {
        assert_eq!(receive(room), whole, "{room} bytes at a time");
    }
}

#[test]
fn a_short_write_pins_what_was_begun() {
    let mut bench = Bench::new(small(|_| {}));
    let topic = bench.topic("t");
    let (source, outlet) = bench.peer(Pipe::Shared);
    bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap();
    for _ in 0..2 {
        let _ = bench.publish(source, topic, 500);
    }
    bench.run(|_| 499);
    for _ in 0..9 {
        let _ = bench.publish(source, topic, 500);
    }
    bench.run(|_| 0);
    bench.broker.send(outlet, Bytes::from_static(b"pong"), Lane::First).unwrap();
    bench.broker.writable(outlet);
    let Some(Effect::Write(offer)) = bench.broker.poll() else { panic!("nothing to write") };
    let lengths: Vec<usize> = bench.broker.frames(offer).map(<[u8]>::len).collect();
    assert_eq!(lengths, [1, 4], "the rest of the begun frame, then control, then the gap");
    bench.broker.sent(offer, offer.bytes);
    bench.run(|_| ALL);
}

#[test]
fn control_overflow_closes() {
    let mut bench = Bench::new(Limits { control_reserve_bytes: 2_048, ..Limits::default() });
    let (conn, outlet) = bench.peer(Pipe::Shared);
    let frame = || Bytes::from(alloc::vec![b'x'; 500]);
    bench.broker.send(outlet, frame(), Lane::First).unwrap();
    assert!(!bench.broker.is_paused(conn));
    bench.broker.send(outlet, frame(), Lane::InLine).unwrap();
    assert!(bench.broker.is_paused(conn), "half of the reserve is used");
    let full = Refusal::never(Place::Egress, Reason::Limit);
    for _ in 0..20 {
        bench.broker.send(outlet, frame(), Lane::First).expect("nobody came to write yet");
    }
    bench.run(|_| 0);
    assert_eq!(bench.broker.send(outlet, frame(), Lane::First), Err(full));
    bench.broker.writable(outlet);
    bench.run(|_| ALL);
    let paused = Notice::Pause { conn };
    assert_eq!(bench.notices, [paused, Notice::Close { conn, why: full }, Notice::Resume { conn }]);
    let (_, alone) = bench.peer(Pipe::Shared);
    let big = Bytes::from(alloc::vec![b'x'; 5_000]);
    bench.broker.send(alone, big, Lane::First).unwrap();
    assert_eq!(bench.run(|_| ALL), 5_000);
    let (_, unwritten) = bench.peer(Pipe::Shared);
    let sends = (0..1_000).map(|_| bench.broker.send(unwritten, frame(), Lane::First));
    let taken = sends.take_while(Result::is_ok).count() as u64;
    assert_eq!(taken, 16 * 2_048 / 756, "a host that never writes is bounded too");
}

#[test]
fn closing_flushes_or_drops_and_says_when_it_is_done() {
    for how in [Close::AfterFlush, Close::Now] {
        let mut bench = Bench::new(Limits::default());
        let topic = bench.topic("t");
        let (source, outlet) = bench.peer(Pipe::Shared);
        bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap();
        for _ in 0..3 {
            let _ = bench.publish(source, topic, 100);
        }
        bench.run(|_| 50);
        bench.broker.close(source, how, Bytes::from_static(b"bye")).unwrap();
        bench.check();
        let _ = bench.publish(source, topic, 1);
        assert!(bench.broker.send(outlet, Bytes::from_static(b"x"), Lane::First).is_err());
        assert!(bench.broker.outlet(source, Pipe::Shared).is_err());
        bench.broker.writable(outlet);
        let dropped = if how == Close::Now { 2 } else { 0 };
        assert_eq!(bench.run(|_| ALL), 50 + (2 - dropped) * 100 + 3);
        assert_eq!(bench.notices.last(), Some(&Notice::Flushed { conn: source }));
        let books = bench.broker.ledger();
        assert_eq!(books.dropped.get(Place::Egress, Reason::Closed).records, dropped);
        assert_eq!(books.shed.get(Place::Admission, Reason::Closed).records, 1);
        bench.broker.gone(source);
        bench.broker.gone(source);
        bench.check();
        assert_eq!(bench.broker.counts(), (0, 0));
    }
}

#[test]
fn what_waits_for_a_peer_that_goes_has_left() {
    let mut bench = Bench::new(Limits::default());
    let topic = bench.topic("t");
    let (source, _) = bench.peer(Pipe::Shared);
    let (peer, outlet) = bench.peer(Pipe::Shared);
    let sub = bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap();
    for _ in 0..30 {
        let _ = bench.publish(source, topic, 100);
    }
    bench.run(|_| 150);
    bench.broker.unsubscribe(sub).unwrap();
    bench.check();
    assert_eq!(bench.broker.ledger().left.records, 28, "one was delivered, one is in mid-write");
    bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap();
    let _ = bench.publish(source, topic, 100);
    bench.run(|_| 0);
    bench.broker.gone(peer);
    bench.check();
    assert_eq!(bench.broker.ledger().left.records, 30);
}

#[test]
fn memory_bands_bar_publishers_and_let_them_in_again() {
    let limits = Limits { memory_budget: 1 << 20, ..Limits::default() };
    let mut bench = Bench::new(limits);
    let topic = bench.topic("t");
    let (source, _) = bench.peer(Pipe::Shared);
    let big = bench.publish_as(source, topic, 900 << 10, Ack::Now);
    assert!(matches!(big, Verdict::Queued(_)));
    let _ = bench.publish_as(source, topic, 200 << 10, Ack::Now);
    let why = Refusal::after(Place::Memory, Reason::Saturated, 1_000);
    assert_eq!(bench.publish_as(source, topic, 1, Ack::Now), Verdict::Refused(why));
    let (waiting, _) = bench.peer(Pipe::Shared);
    assert!(matches!(bench.publish_as(waiting, topic, 1, Ack::Wait), Verdict::Parked(_)));
    bench.run(|_| ALL);
    assert_eq!(bench.broker.band(), Band::Saturated, "the dwell is not over");
    assert_eq!(bench.broker.next_deadline(), Some(Instant::from_millis(100)));
    bench.wait(100);
    assert_eq!(bench.broker.band(), Band::Normal);
    bench.run(|_| ALL);
    assert_eq!(bench.broker.jobs(), (0, 0));
}

#[test]
fn pressure_scales_the_budget() {
    let mut bench = Bench::new(Limits::default());
    bench.broker.pressure(Some(Sample { avg10: 9_000, total: 0 }));
    assert_eq!(bench.broker.factor().thousandths(), 900);
    assert_eq!(bench.broker.budget(), bench.broker.limits().memory_budget * 900 / 1000);
}

#[test]
fn memory_is_watched_where_pressure_or_others_could_change_something() {
    let mut bench = Bench::new(Limits { memory_budget: 4 << 20, ..Limits::default() });
    assert!(!bench.broker.watches_memory(), "next to nothing is held");
    let stalled = Some(Sample { avg10: 9_000, total: 0 });
    bench.broker.pressure(stalled);
    assert!(bench.broker.watches_memory(), "less than the budget is in force");
    bench.broker.pressure(Some(Sample { avg10: 0, total: 0 }));
    assert!(!bench.broker.watches_memory());
    let outlets = [(); 2].map(|()| bench.peer(Pipe::Shared).1);
    // The floor is half of the budget; the least factor leaves 80 % of it, of which 80 % are calm.
    let calm = (2 << 20) * 64 / 100;
    let room = usize::try_from(calm - bench.broker.held()).unwrap();
    let bytes = |count: usize| Bytes::from(alloc::vec![0; count]);
    bench.broker.send(outlets[0], bytes(room * 9 / 10), Lane::InLine).unwrap();
    assert!(!bench.broker.watches_memory());
    bench.broker.send(outlets[1], bytes(room / 10 + 1), Lane::InLine).unwrap();
    assert_eq!(bench.broker.band(), Band::Normal);
    assert!(bench.broker.watches_memory(), "others could leave it no more than its floor");
    bench.run(|_| ALL);
    assert!(!bench.broker.watches_memory(), "and it is gone");
}

#[test]
fn tables_have_limits_and_unused_topics_make_way() {
    let limits =
        Limits { max_topics: 2, max_connections: 2, max_subscriptions: 1, ..Limits::default() };
    let mut bench = Bench::new(limits);
    let (conn, outlet) = bench.peer(Pipe::Shared);
    let _ = bench.peer(Pipe::Shared);
    let full = Refusal::after(Place::Table, Reason::Limit, 1_000);
    assert_eq!(bench.broker.open(bench.tenant), Err(full));
    let (a, b) = (bench.topic("a"), bench.topic("b"));
    let wish = Wish::policy(Policy::DropOld);
    bench.broker.subscribe(outlet, a, wish).unwrap();
    assert_eq!(bench.broker.subscribe(outlet, b, wish), Err(full));
    let c = bench.topic("c");
    assert_eq!(bench.broker.find_topic(bench.tenant, "b"), None);
    assert_ne!(bench.broker.topic_epoch(c), None);
    assert_eq!(bench.broker.topic_epoch(b), None);
    let gone = bench.publish_as(conn, b, 1, Ack::Now);
    assert_eq!(gone, Verdict::Refused(Refusal::GONE), "a stale topic is booked and answered");
    let _ = bench.publish(conn, c, 1);
    assert_eq!(bench.broker.topic(bench.tenant, "d"), Err(full), "c has a job");
    bench.run(|_| ALL);
    assert!(bench.broker.topic(bench.tenant, "d").is_ok());
    bench.check();
}

#[test]
fn stale_ids_are_answered_and_change_nothing() {
    let mut bench = Bench::new(Limits::default());
    let topic = bench.topic("t");
    let (conn, outlet) = bench.peer(Pipe::Shared);
    let sub = bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap();
    bench.broker.gone(conn);
    let _ = bench.peer(Pipe::Shared);
    let before = format!("{:?}", bench.broker);
    assert_eq!(bench.publish(conn, topic, 1), Verdict::Refused(Refusal::GONE));
    assert_eq!(bench.broker.send(outlet, Bytes::new(), Lane::First), Err(Refusal::GONE));
    assert_eq!(bench.broker.unsubscribe(sub), Err(Refusal::GONE));
    assert_eq!(bench.broker.close(conn, Close::Now, Bytes::new()), Err(Refusal::GONE));
    assert!(bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).is_err());
    assert!(bench.broker.room(conn, (1, 1), empty()).is_err());
    bench.broker.writable(outlet);
    bench.broker.refused(outlet);
    bench.broker.sent(Offer { outlet, bytes: 9 }, 9);
    assert_eq!(bench.broker.backlog(outlet), None);
    assert_eq!(bench.broker.sub_books(sub), None);
    assert!(bench.broker.open(TenantId { index: 9, generation: 0 }).is_err());
    assert_eq!(format!("{:?}", bench.broker), before);
}

#[test]
fn an_offer_is_bounded_in_batches_and_bytes() {
    let offers = |limits: Limits| {
        let mut bench = Bench::new(limits);
        let topic = bench.topic("t");
        let (source, outlet) = bench.peer(Pipe::Shared);
        bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap();
        for _ in 0..10 {
            let _ = bench.publish(source, topic, 1_000);
        }
        let _ = bench.broker.step(100);
        let mut sizes = Vec::new();
        bench.write(|_| {
            sizes.push(());
            ALL
        });
        sizes.len()
    };
    assert_eq!(offers(Limits::default()), 1);
    assert_eq!(offers(Limits { offer_batches: 4, ..Limits::default() }), 3, "4, 4 and 2");
    assert_eq!(offers(Limits { offer_bytes: 3_000, ..Limits::default() }), 4, "3, 3, 3 and 1");
    assert_eq!(offers(Limits { offer_bytes: 3_999, ..Limits::default() }), 4, "3, 3, 3 and 1");
    assert_eq!(offers(Limits { offer_bytes: 1_024, ..Limits::default() }), 10, "one at a time");
}

#[test]
fn unacked_publishes_wait_where_the_operator_says_so() {
    for (limits, waits) in [
        (Limits::default(), false),
        (Limits { pub_ingress_wait: 1, ..Limits::default() }, true),
        (Limits { lossless: 1, ..Limits::default() }, true),
    ] {
        let mut bench = Bench::new(Limits { pub_queue_total: 1, ..limits });
        let topic = bench.topic("t");
        let (source, _) = bench.peer(Pipe::Shared);
        assert!(matches!(bench.publish(source, topic, 1), Verdict::Queued(_)));
        let second = bench.publish(source, topic, 1);
        assert_eq!(matches!(second, Verdict::Parked(_)), waits, "{second:?}");
        bench.wait(600_000);
        assert_eq!(bench.broker.jobs().1, u32::from(waits), "it has no deadline");
        bench.run(|_| ALL);
        assert_eq!(bench.broker.ledger().sequenced.records, 1 + u64::from(waits));
    }
}

#[test]
fn the_wait_for_room_is_as_long_as_configured() {
    let limits = Limits { pub_queue_total: 1, publish_queue_wait_ms: 7, ..Limits::default() };
    let mut bench = Bench::new(limits);
    let topic = bench.topic("t");
    let (source, _) = bench.peer(Pipe::Shared);
    let _ = bench.publish(source, topic, 1);
    let _ = bench.publish_as(source, topic, 1, Ack::Wait);
    bench.wait(6);
    assert_eq!(bench.broker.jobs(), (1, 1));
    bench.wait(1);
    assert_eq!(bench.broker.jobs(), (1, 0));
}
