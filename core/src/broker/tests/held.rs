//! What a topic that waits for one of its subscribers takes from others: its own publishers wait,
//! and nobody else.

use super::*;

/// A topic whose only subscriber, under `block`, reads nothing; a second topic; and sources.
struct Held {
    bench: Bench,
    stuck: TopicId,
    free: TopicId,
    outlet: OutletId,
}

impl Held {
    fn new(limits: Limits) -> Self {
        let limits = Limits { subscription_batches: 1, ..limits };
        let (mut bench, source, outlet, _) = one_subscriber(limits, Pipe::Single, Policy::Block);
        bench.flood(source, 10, 1, 0);
        let free = bench.topic("u");
        Self { bench, stuck: source.1, free, outlet }
    }

    fn source(&mut self) -> ConnId {
        self.bench.peer(Pipe::Shared).0
    }

    /// Publishes to the held topic until it has `jobs` queued jobs, each of a source of its own.
    fn fill(&mut self, jobs: u32, ack: Ack) -> Vec<ConnId> {
        let publish = |held: &mut Self, _| {
            let source = held.source();
            let said = held.bench.publish_as(source, held.stuck, 100, ack);
            assert!(matches!(said, Verdict::Queued(_)), "{said:?}");
            source
        };
        let sources = (0..jobs).map(|at| publish(self, at)).collect();
        self.bench.run(|_| 0);
        assert_eq!(self.bench.broker.jobs(), (jobs, 0));
        sources
    }

    /// The subscriber reads again.
    fn heal(&mut self) {
        self.bench.broker.writable(self.outlet);
        self.bench.run(|_| ALL);
        assert_eq!(self.bench.broker.jobs(), (0, 0));
        assert_eq!(self.bench.broker.inflight(), 0);
    }
}

#[test]
fn a_held_topic_keeps_no_slot_from_the_others() {
    let mut held = Held::new(Limits { lossless: 1, ..Limits::default() });
    held.fill(256, Ack::Wait);
    let source = held.source();
    for _ in 0..1_000 {
        let said = held.bench.publish_as(source, held.free, 100, Ack::Wait);
        assert!(matches!(said, Verdict::Queued(_)), "{said:?}");
        held.bench.run(|_| 0);
    }
    let books = held.bench.broker.ledger();
    assert_eq!(books.returned.records, 1, "one slot is enough for all of them");
    assert_eq!(held.bench.broker.jobs(), (255, 1));
    held.heal();
    let books = held.bench.broker.ledger();
    assert_eq!(books.delivered.records, 257, "and nothing is lost");
    assert!(books.refused.total().is_zero() && books.shed.total().is_zero());
}

#[test]
fn what_makes_way_for_a_topic_that_can_run_is_told() {
    let mut held = Held::new(Limits { allow_block: 1, ..Limits::default() });
    let sources = held.fill(256, Ack::None);
    let source = held.source();
    assert!(matches!(held.bench.publish(source, held.free, 100), Verdict::Queued(_)));
    held.bench.run(|_| 0);
    let (conn, place, reason) = (sources[255], Place::Schedule, Reason::TopicHeld);
    assert!(held.bench.notices.contains(&Notice::Shed { conn, records: 1, place, reason }));
    assert_eq!(held.bench.broker.ledger().evicted.get(place, reason).records, 1);
    let said = held.bench.publish(source, held.stuck, 100);
    assert!(matches!(said, Verdict::Queued(_)), "{said:?}");
    let full = held.bench.publish(source, held.stuck, 100);
    assert!(matches!(full, Verdict::Shed(why) if why.reason == Reason::QueueFull), "{full:?}");
}

#[test]
fn the_held_topic_with_the_most_slots_makes_way() {
    let mut held = Held::new(Limits { lossless: 1, ..Limits::default() });
    let (_, outlet) = held.bench.peer(Pipe::Single);
    let second = held.bench.topic("v");
    held.bench.broker.subscribe(outlet, second, Wish::policy(Policy::Block)).unwrap();
    let source = held.source();
    held.bench.flood((source, second), 10, 1, 0);
    for topic in [[second].repeat(56), [held.stuck].repeat(200)].concat() {
        let source = held.source();
        assert!(matches!(held.bench.publish(source, topic, 100), Verdict::Queued(_)));
    }
    let source = held.source();
    assert!(matches!(held.bench.publish(source, held.free, 100), Verdict::Queued(_)));
    held.bench.run(|_| 0);
    assert_eq!(held.bench.broker.jobs(), (255, 1));
    held.bench.broker.writable(outlet);
    held.bench.run(|at| if at == outlet { ALL } else { 0 });
    assert_eq!(held.bench.broker.jobs(), (199, 1), "none of the other topic had to wait");
}

#[test]
fn who_waits_for_a_held_topic_stops_nobody_else() {
    let mut held = Held::new(Limits { lossless: 1, pub_queue_total: 4, ..Limits::default() });
    held.fill(4, Ack::Wait);
    let late = held.source();
    assert!(matches!(held.bench.publish(late, held.stuck, 100), Verdict::Parked(_)));
    let source = held.source();
    for _ in 0..10 {
        assert!(matches!(held.bench.publish(source, held.free, 100), Verdict::Queued(_)));
        held.bench.run(|_| 0);
    }
    let other = held.source();
    let said = held.bench.publish_as(other, held.stuck, 100, Ack::Now);
    assert!(matches!(said, Verdict::Refused(_)), "a topic's publishes come in order: {said:?}");
    held.heal();
    assert_eq!(held.bench.broker.ledger().delivered.records, 6);
}

#[test]
fn who_waits_for_its_own_bytes_stops_nobody_else() {
    let limits = Limits {
        lossless: 1,
        max_frame_bytes: 60 << 10,
        pub_conn_inflight_bytes: 128 << 10,
        ..Limits::default()
    };
    let mut held = Held::new(limits);
    let greedy = held.source();
    for _ in 0..2 {
        assert!(matches!(held.bench.publish(greedy, held.stuck, 60 << 10), Verdict::Queued(_)));
    }
    assert!(matches!(held.bench.publish(greedy, held.free, 60 << 10), Verdict::Parked(_)));
    let other = held.source();
    for topic in [held.free, held.stuck] {
        let said = held.bench.publish_as(other, topic, 100, Ack::Now);
        assert!(matches!(said, Verdict::Queued(_)), "{said:?}");
    }
    held.bench.run(|_| 0);
    assert_eq!(held.bench.broker.jobs(), (3, 1));
    held.heal();
    assert_eq!(held.bench.broker.ledger().delivered.records, 4);
}

#[test]
fn a_held_topic_that_has_no_slot_left_goes_on_when_its_subscriber_reads() {
    let mut held = Held::new(Limits { lossless: 1, pub_queue_total: 1, ..Limits::default() });
    held.fill(1, Ack::Wait);
    let source = held.source();
    assert!(matches!(held.bench.publish(source, held.free, 100), Verdict::Queued(_)));
    held.bench.run(|_| 0);
    assert_eq!(held.bench.broker.jobs(), (0, 1));
    held.heal();
    assert_eq!(held.bench.broker.ledger().delivered.records, 2);
}

#[test]
fn a_call_is_not_cut_short_by_who_has_bytes_again() {
    let limits = Limits {
        allow_block: 1,
        max_frame_bytes: 60 << 10,
        pub_conn_inflight_bytes: 128 << 10,
        pub_queue_total: 4,
        ..Limits::default()
    };
    let mut held = Held::new(limits);
    let [other, greedy, caller] = [0; 3].map(|_| held.source());
    for (source, size) in [(other, 1), (other, 1), (greedy, 60 << 10), (greedy, 60 << 10)] {
        assert!(matches!(held.bench.publish(source, held.stuck, size), Verdict::Queued(_)));
    }
    let said = held.bench.publish_as(greedy, held.free, 60 << 10, Ack::Wait);
    assert!(matches!(said, Verdict::Parked(_)), "its connection has no bytes: {said:?}");
    let topics = [held.free; 2];
    held.bench.broker.room(caller, (2, 200), topics.into_iter()).unwrap();
    for topic in topics {
        let said = held.bench.publish_as(caller, topic, 100, Ack::Now);
        assert!(matches!(said, Verdict::Queued(_)), "{said:?}");
    }
    held.bench.run(|_| 0);
    assert_eq!(held.bench.broker.jobs(), (1, 0), "it got a slot of the held topic as well");
}

/// A source whose admitted publishes fill the queue of a held topic does not stop its tenant with
/// one more that waits for a slot: its own make way, and go first.
#[test]
fn a_source_that_waits_for_its_own_publishes_stops_nobody_else() {
    let mut held = Held::new(Limits { lossless: 1, pub_queue_total: 4, ..Limits::default() });
    let greedy = held.source();
    for _ in 0..4 {
        assert!(matches!(held.bench.publish(greedy, held.stuck, 100), Verdict::Queued(_)));
    }
    assert!(matches!(held.bench.publish(greedy, held.free, 100), Verdict::Parked(_)));
    held.bench.run(|_| 0);
    assert_eq!(held.bench.broker.jobs(), (3, 2));
    let other = held.source();
    assert!(matches!(held.bench.publish(other, held.free, 100), Verdict::Queued(_)));
    held.heal();
    assert_eq!(held.bench.broker.ledger().sequenced.records, 7);
}

#[test]
fn a_held_topic_stops_one_source_of_a_connection_and_not_the_others() {
    let mut held = Held::new(Limits { lossless: 1, pub_queue_total: 4, ..Limits::default() });
    let conn = held.source();
    let [one, two] = [0; 2].map(|_| held.bench.broker.source(conn).unwrap());
    for _ in 0..4 {
        assert!(matches!(held.bench.publish(one, held.stuck, 100), Verdict::Queued(_)));
    }
    let said = held.bench.publish_as(one, held.stuck, 100, Ack::Wait);
    let Verdict::Parked(ticket) = said else { panic!("{said:?}") };
    held.bench.run(|_| 0);
    assert!(held.bench.notices.contains(&Notice::Pause { conn: one }));
    let paused = [one, two, conn].map(|source| held.bench.broker.is_paused(source));
    assert_eq!(paused, [true, false, false]);
    for source in [two, conn] {
        assert!(matches!(held.bench.publish(source, held.free, 100), Verdict::Queued(_)));
        held.bench.run(|_| 0);
    }
    assert_eq!(held.bench.broker.ledger().sequenced.records, 3);
    held.heal();
    let committed = |notice: &Notice| {
        let Notice::Committed { conn: of, ticket: own, .. } = notice else { return false };
        (*of, *own) == (conn, ticket)
    };
    assert!(held.bench.notices.iter().any(committed), "the connection is answered");
    assert!(held.bench.notices.contains(&Notice::Resume { conn: one }));
}

/// A connection with 128 KiB, of which a publish of its first source to the held topic takes most;
/// two more sources, of which the first waits for bytes.
fn short() -> (Held, ConnId, [ConnId; 2]) {
    let limits = Limits {
        lossless: 1,
        max_frame_bytes: 60 << 10,
        pub_conn_inflight_bytes: 128 << 10,
        ..Limits::default()
    };
    let mut held = Held::new(limits);
    let conn = held.source();
    let sources = [0; 2].map(|_| held.bench.broker.source(conn).unwrap());
    for _ in 0..2 {
        assert!(matches!(held.bench.publish(conn, held.stuck, 60 << 10), Verdict::Queued(_)));
    }
    let said = held.bench.publish_as(sources[0], held.free, 20 << 10, Ack::Wait);
    assert!(matches!(said, Verdict::Parked(_)), "{said:?}");
    (held, conn, sources)
}

#[test]
fn sources_share_their_connections_bytes_in_the_order_in_which_they_came() {
    let (mut held, _, [_, late]) = short();
    let said = held.bench.publish_as(late, held.free, 100, Ack::Wait);
    assert!(matches!(said, Verdict::Parked(_)), "there is room, and somebody before it: {said:?}");
    held.bench.run(|_| 0);
    assert_eq!(held.bench.broker.jobs(), (2, 2));
    let other = held.source();
    assert!(matches!(held.bench.publish(other, held.free, 100), Verdict::Queued(_)));
    held.heal();
    assert_eq!(held.bench.broker.ledger().sequenced.records, 6);
}

#[test]
fn a_source_that_ends_tells_its_connection_and_stops_nobody() {
    let (mut held, conn, [first, late]) = short();
    let said = held.bench.publish(late, held.free, 100);
    assert!(matches!(said, Verdict::Parked(_)), "{said:?}");
    let offered = held.bench.broker.ledger().offered.records;
    held.bench.broker.gone(first);
    assert_eq!(held.bench.broker.jobs(), (3, 0), "the other one has room now");
    held.bench.run(|_| 0);
    let closed = |notice: &Notice| {
        let Notice::Failed { conn: of, why, .. } = notice else { return false };
        (*of, why.place, why.reason) == (conn, Place::Schedule, Reason::Closed)
    };
    assert!(held.bench.notices.iter().any(closed));
    let said = held.bench.publish(first, held.free, 100);
    assert_eq!(said, Verdict::Refused(Refusal::GONE));
    held.bench.broker.gone(conn);
    let said = held.bench.publish(late, held.free, 100);
    assert_eq!(said, Verdict::Refused(Refusal::GONE), "it ends with its connection");
    held.heal();
    let books = held.bench.broker.ledger();
    assert_eq!((books.offered.records, books.refused.total().records), (offered, 1));
}

/// A publish whose source has ended is pushed out: it waits again, as its connection's.
#[test]
fn what_a_source_left_behind_is_its_connections() {
    let mut held = Held::new(Limits { lossless: 1, pub_queue_total: 1, ..Limits::default() });
    let conn = held.source();
    let source = held.bench.broker.source(conn).unwrap();
    assert!(matches!(held.bench.publish(source, held.stuck, 100), Verdict::Queued(_)));
    held.bench.broker.gone(source);
    let other = held.source();
    assert!(matches!(held.bench.publish(other, held.free, 100), Verdict::Queued(_)));
    assert!(held.bench.broker.is_paused(conn));
    held.heal();
    assert_eq!(held.bench.broker.ledger().sequenced.records, 3);
    assert!(!held.bench.broker.is_paused(conn));
}

#[test]
fn a_source_is_a_source_and_nothing_else() {
    let mut held = Held::new(Limits { allow_block: 1, ..Limits::default() });
    let conn = held.source();
    let conns = held.bench.broker.counts().0;
    let source = held.bench.broker.source(conn).unwrap();
    assert_eq!(held.bench.broker.counts().0, conns, "it is no connection");
    let broker = &mut held.bench.broker;
    let no = Refusal::never(Place::Table, Reason::NotAllowed);
    assert_eq!(broker.source(source), Err(no));
    assert_eq!(broker.outlet(source, Pipe::Shared), Err(no));
    assert_eq!(broker.close(source, Close::Now, Bytes::new()), Err(no));
    assert_eq!(broker.reassembly(source, 1), Err(no));
    broker.close(conn, Close::AfterFlush, Bytes::new()).unwrap();
    assert_eq!(broker.source(conn), Err(Refusal::never(Place::Table, Reason::Closed)));
    let said = held.bench.publish_as(source, held.free, 100, Ack::Now);
    assert_eq!(said, Verdict::Refused(Refusal::never(Place::Admission, Reason::Closed)));
    held.bench.broker.gone(conn);
    assert_eq!(held.bench.broker.source(conn), Err(Refusal::GONE));
    let conn = held.source();
    for _ in 0..4096 {
        held.bench.broker.source(conn).unwrap();
    }
    let full = Refusal::never(Place::Table, Reason::Limit);
    assert_eq!(held.bench.broker.source(conn), Err(full));
    held.bench.broker.shutdown();
    let why = Refusal::never(Place::Admission, Reason::Shutdown);
    assert_eq!(held.bench.broker.source(conn), Err(why));
}

/// Many sources, each with one publish parked: together they never have much more parked than the
/// connection may have in flight.
#[test]
fn what_sources_have_parked_is_bounded_by_their_connections_bytes() {
    let (mut held, conn, sources) = short();
    let more = [0; 8].map(|_| held.bench.broker.source(conn).unwrap());
    for source in sources.into_iter().skip(1).chain(more) {
        if held.bench.broker.is_paused(source) {
            break;
        }
        let said = held.bench.publish(source, held.free, 60 << 10);
        assert!(matches!(said, Verdict::Parked(_)), "{said:?}");
    }
    held.bench.run(|_| 0);
    assert_eq!(held.bench.broker.jobs(), (2, 3), "20, 60 and 60 KiB");
    assert!(held.bench.notices.contains(&Notice::Pause { conn }));
    let why = Refusal::after(Place::Schedule, Reason::Busy, 1_000);
    let said = held.bench.publish_as(more[7], held.free, 100, Ack::Wait);
    assert_eq!(said, Verdict::Refused(why));
    held.heal();
    assert!(held.bench.notices.contains(&Notice::Resume { conn }));
    assert!(matches!(held.bench.publish(more[7], held.free, 100), Verdict::Queued(_)));
}

/// While parked publishes are served, one that is pushed out gives way to a source of its own
/// connection: that one has room, and is served as well.
#[test]
fn who_has_room_because_of_who_was_served_is_served_too() {
    let limits = Limits {
        lossless: 1,
        max_frame_bytes: 60 << 10,
        pub_conn_inflight_bytes: 128 << 10,
        pub_queue_total: 4,
        ..Limits::default()
    };
    let mut held = Held::new(limits);
    let conn = held.source();
    let [one, two] = [0; 2].map(|_| held.bench.broker.source(conn).unwrap());
    for _ in 0..4 {
        assert!(matches!(held.bench.publish(one, held.stuck, 3_000), Verdict::Queued(_)));
    }
    for source in [one, two] {
        let said = held.bench.publish(source, held.free, 60 << 10);
        assert!(matches!(said, Verdict::Parked(_)), "{said:?}");
    }
    held.bench.run(|_| 0);
    let sequenced = held.bench.broker.ledger().sequenced.records;
    assert_eq!((sequenced, held.bench.broker.jobs()), (2, (3, 2)));
    held.heal();
    assert_eq!(held.bench.broker.ledger().sequenced.records, 7);
}

/// A connection waits for a publish of its own; that its sources no longer wait for it is told.
#[test]
fn sources_are_resumed_while_their_connection_still_waits() {
    let (mut held, conn, [first, late]) = short();
    let other = held.bench.broker.source(conn).unwrap();
    for source in [conn, late] {
        let said = held.bench.publish(source, held.free, 60 << 10);
        assert!(matches!(said, Verdict::Parked(_)), "{said:?}");
    }
    held.bench.run(|_| 0);
    assert!(held.bench.broker.is_paused(other), "20, 60 and 60 KiB are all that may be parked");
    let pauses = held.bench.notices.iter().filter(|notice| **notice == Notice::Pause { conn });
    assert_eq!(pauses.count(), 2, "for its own publish, and for all of its sources");
    held.bench.broker.gone(first);
    held.bench.run(|_| 0);
    assert!(held.bench.notices.contains(&Notice::Resume { conn }));
    let paused = [conn, late, other].map(|source| held.bench.broker.is_paused(source));
    assert_eq!(paused, [true, true, false]);
    held.heal();
}

/// A tenant waits for bytes of its own connection, while another one takes all slots for a topic
/// that is held: when it has the bytes, its guarantee gives it a slot.
#[test]
fn a_guarantee_holds_for_what_is_parked() {
    let limits = Limits {
        lossless: 1,
        max_frame_bytes: 400 << 10,
        pub_conn_inflight_bytes: 468 << 10,
        pub_queue_total: 4,
        ..Limits::default()
    };
    let mut held = Held::new(limits);
    let tenant = held.bench.broker.tenant(1).unwrap();
    let topic = held.bench.broker.topic(tenant, "w").unwrap();
    for _ in 0..3 {
        let reader = held.bench.broker.open(tenant).unwrap();
        let outlet = held.bench.broker.outlet(reader, Pipe::Single).unwrap();
        held.bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap();
    }
    held.fill(3, Ack::Wait);
    let quiet = held.bench.broker.open(tenant).unwrap();
    assert!(matches!(held.bench.publish(quiet, topic, 400 << 10), Verdict::Queued(_)));
    assert!(matches!(held.bench.publish(quiet, topic, 100 << 10), Verdict::Parked(_)));
    assert_eq!(held.bench.broker.step(1), Progress::More);
    let greedy = held.source();
    assert!(matches!(held.bench.publish(greedy, held.stuck, 100), Verdict::Queued(_)));
    held.bench.run(|_| 0);
    assert_eq!(held.bench.broker.tenant_books(tenant).unwrap().sequenced.records, 2);
    held.heal();
}
