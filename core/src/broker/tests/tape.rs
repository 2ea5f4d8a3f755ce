//! The tape: what any host did, done again, gives the same answers; and any numbers are inputs.

use super::*;
use crate::model::{self, count};
use crate::{Input, Outcome};
use proptest::prelude::*;

fn tight() -> Limits {
    Limits {
        allow_block: 1,
        band_dwell_ms: 1,
        block_deadline_ms: 300,
        codel_target_ms: 5,
        egress_shed: 1,
        egress_batches: 8,
        high_water_bytes: 4_000,
        max_connections: 9,
        max_frame_bytes: 1 << 16,
        max_subscriptions: 30,
        max_topics: 4,
        memory_budget: 1 << 20,
        mesh_depth: 2,
        pub_conn_inflight_bytes: 200_000,
        pub_inflight_bytes: 250_000,
        pub_queue_depth: 2,
        pub_queue_total: 6,
        pub_tenant_inflight_bytes: 220_000,
        publish_queue_wait_ms: 200,
        retention_records: 12,
        shards: 3,
        slow_consumer_after_ms: 500,
        subscription_batches: 6,
        ..Limits::default()
    }
}

/// A shard with two tenants, each with connections, outlets, a topic of its own and one of another
/// shard, so that small ids are good.
fn furnished() -> Vec<Input> {
    let mut broker = Broker::shard(tight(), 5, 1);
    broker.record_inputs(true);
    for weight in [1, 2] {
        let tenant = broker.tenant(weight).unwrap();
        for own in [true, false] {
            let owner = |name: &str| crate::mesh::Named::of(tenant.index, name).owner(3);
            let mut names = ["a", "b", "c", "d", "e", "f", "g", "h"].into_iter();
            let name = names.find(|name| (owner(name) == 1) == own).expect("both kinds are there");
            broker.topic(tenant, name).unwrap();
        }
        for pipe in [Pipe::Shared, Pipe::Single] {
            let conn = broker.open(tenant).unwrap();
            for _ in 0..2 {
                broker.outlet(conn, pipe).unwrap();
            }
        }
    }
    broker.take_inputs()
}

fn numbers() -> impl Strategy<Value = [u64; 16]> {
    let small = 0..6_u64;
    let some = prop_oneof![6 => small, 3 => 1..3_000_u64, 1 => 0..90_000_u64];
    proptest::collection::vec(some, 16).prop_map(|numbers| numbers.try_into().unwrap())
}

const ADVANCE: u8 = 0;
const CLOSE: u8 = 1;
const GONE: u8 = 2;
const POLL: u8 = 6;
const PUBLISH: u8 = 9;
const SENT: u8 = 15;
const SHUT: u8 = 16;
const SHUTDOWN: u8 = 17;
const STEP: u8 = 18;
const SUBSCRIBE: u8 = 19;
const WRITABLE: u8 = 23;

/// Kinds in the order of the tape: the frequent ones of a turn, and any.
fn kind() -> impl Strategy<Value = u8> {
    prop_oneof![
        8 => Just(PUBLISH),
        5 => Just(STEP),
        8 => Just(POLL),
        5 => Just(SENT),
        4 => Just(WRITABLE),
        4 => Just(SUBSCRIBE),
        6 => any::<u8>(),
    ]
}

/// One input made from numbers; time goes on in small steps, and work is small.
fn input((kind, mut numbers): (u8, [u64; 16]), now: Instant) -> Input {
    let ends = matches!(kind % 25, CLOSE | GONE | SHUT | SHUTDOWN);
    let kind = if ends && numbers[15] != 5 { POLL } else { kind };
    match kind % 25 {
        ADVANCE => numbers[0] = now.as_nanos() + numbers[0] * 1_000_000,
        PUBLISH => {
            numbers[0] %= 4;
            numbers[1] = numbers[0] / 2 * 2 + numbers[1] % 2;
            numbers[2] = numbers[2] * 150 + numbers[6] % 2;
            numbers[3] = numbers[3].saturating_sub(3).max(1);
        }
        SENT => (numbers[0], numbers[1]) = (numbers[0] % 8, numbers[1] * 200),
        WRITABLE => numbers[0] %= 8,
        SUBSCRIBE => {
            numbers[0] %= 8;
            numbers[1] = numbers[0] / 4 * 2 + numbers[1] % 2;
            (numbers[3], numbers[4]) = (0, 0);
            numbers[5] *= numbers[7] % 2;
        }
        _ => {}
    }
    Input::from_random(kind, numbers)
}

fn play(inputs: &[Input]) -> (Broker, Vec<Outcome>) {
    let mut broker = Broker::shard(tight(), 5, 1);
    let outcomes = inputs.iter().map(|input| broker.apply(input)).collect();
    (broker, outcomes)
}

fn note(outcome: &Outcome) {
    let name = match outcome {
        Outcome::Refused(why) => format!("refused {}/{}", why.place.name(), why.reason.name()),
        Outcome::Verdict(verdict) => {
            format!("{verdict:?}").split('(').next().unwrap_or_default().into()
        }
        Outcome::Effect(Some(Effect::Notice(notice))) => {
            format!("{notice:?}").split(' ').next().unwrap_or_default().into()
        }
        other => format!("{other:?}").split('(').next().unwrap_or_default().into(),
    };
    count(&name);
}

#[test]
fn any_numbers_are_inputs_and_a_tape_plays_the_same() {
    let furnished = furnished();
    let inputs = proptest::collection::vec((kind(), numbers()), 1..400);
    let due = ["Queued", "Parked", "Shed", "Refused", "Gap", "Pause", "Resume", "Committed"];
    model::run(model::cases(file!(), 150), &inputs, &due, |inputs| {
        let (mut broker, _) = play(&furnished);
        broker.record_inputs(true);
        let mut outcomes = Vec::new();
        for made in inputs {
            let input = input(made, broker.now());
            let outcome = broker.apply(&input);
            note(&outcome);
            if outcome != Outcome::Ignored {
                outcomes.push(outcome);
            }
            if let Err(broken) = broker.check() {
                panic!("{input:?}: {broken}");
            }
        }
        let mut tape = Vec::new();
        broker.take_inputs().iter().for_each(|input| input.encode(&mut tape));
        let mut rest = &tape[..];
        let read: Vec<Input> = core::iter::from_fn(|| Input::decode(&mut rest)).collect();
        assert!(rest.is_empty(), "the whole tape is read");
        let (again, played) = play(&[furnished.clone(), read].concat());
        assert_eq!(&played[furnished.len()..], &outcomes[..]);
        assert_eq!(again.ledger(), broker.ledger());
        assert_eq!(again.held(), broker.held());
        assert_eq!(again.next_deadline(), broker.next_deadline());
    });
}

#[test]
fn a_damaged_tape_ends_where_it_is_damaged() {
    let mut tape = Vec::new();
    let inputs = furnished();
    inputs.iter().for_each(|input| input.encode(&mut tape));
    for cut in 0..tape.len() {
        let mut rest = &tape[..cut];
        let read = core::iter::from_fn(|| Input::decode(&mut rest)).collect::<Vec<_>>();
        assert_eq!(read, inputs[..read.len()], "cut at {cut}");
    }
    assert_eq!(Input::decode(&mut &[255_u8, 1, 1][..]), None, "no such kind");
    let endless = [0_u8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255];
    assert_eq!(Input::decode(&mut &endless[..]), None, "no such number");
}

#[test]
fn a_tape_holds_lengths_and_no_payload() {
    let mut bench = Bench::new(Limits::default());
    let (source, outlet) = bench.peer(Pipe::Shared);
    let topic = bench.topic("a secret name");
    bench.broker.record_inputs(true);
    let frame = Bytes::from_static(b"a secret payload");
    let message = Message { frame, records: 1, ack: Ack::None, except: None, keep: Keep::Default };
    let _ = bench.broker.publish(source, topic, message);
    let _ = bench.broker.send(outlet, Bytes::from_static(b"a secret answer"), Lane::First);
    bench.topic("a secret name");
    let mut tape = Vec::new();
    bench.broker.take_inputs().iter().for_each(|input| input.encode(&mut tape));
    assert!(tape.len() < 50);
    assert!(!tape.windows(6).any(|window| window == b"secret"));
}
