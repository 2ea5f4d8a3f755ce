use super::*;
use crate::admission::Admission;
use crate::id::ConnId;
use crate::ledger::Tally;
use crate::verdict::Ack;
use alloc::vec::Vec;

struct Bed {
    schedule: Schedule,
    admission: Admission,
    conn_used: u64,
}

impl Bed {
    fn new(weights: &[u32]) -> Self {
        let limits = Limits { pub_queue_total: 100_000, ..Limits::default() };
        let mut admission = Admission::new(&limits);
        let mut schedule = Schedule::new(&limits);
        for weight in weights {
            schedule.add_tenant(*weight);
            admission.add_tenant();
        }
        Self { schedule, admission, conn_used: 0 }
    }

    fn job(topic: u32, bytes: u64) -> Job {
        let tally = Tally { records: 1, bytes };
        Job::new(ConnId::from_bits(0), topic, 0, tally, Ack::Now)
    }

    fn push(&mut self, topic: u32, bytes: u64) {
        let mut job = Self::job(topic, bytes);
        job.permit = Some(self.admission.take(0, &mut self.conn_used, 0));
        self.schedule.push(job);
    }

    /// Parks the first job of a source.
    fn park(&mut self, topic: u32, bytes: u64, source: &mut List<OfSource>) -> u32 {
        let job = self.schedule.park(Self::job(topic, bytes), source, Instant::ZERO);
        self.schedule.stand(job);
        job
    }

    fn room(&self, tenant: u32) -> Result<(), crate::verdict::Refusal> {
        self.schedule.room(tenant, Standing::default(), 1, |_| false)
    }

    fn pick(&mut self) -> Option<(u32, u64)> {
        let picked = self.schedule.pick(|_| 0)?;
        let job = self.schedule.take(picked);
        Some((job.topic, job.tally.bytes))
    }
}

/// Runs two tenants that never run dry and returns the cost each was served.
fn shares(bed: &mut Bed, topics: [&[u32]; 2], bytes: [u64; 2]) -> [u64; 2] {
    let mut served = [0, 0];
    let mut next = [0, 0];
    let mut refill = |bed: &mut Bed, who: usize| {
        let topic = topics[who][next[who] % topics[who].len()];
        next[who] += 1;
        bed.push(topic, bytes[who]);
    };
    for who in [0, 1] {
        (0..128).for_each(|_| refill(bed, who));
    }
    while served.iter().sum::<u64>() < 64 << 20 {
        let (topic, bytes) = bed.pick().unwrap();
        let who = usize::from(topics[1].contains(&topic));
        served[who] += bytes + BASE;
        for tenant in [0, 1] {
            let weight = bed.schedule.lines[tenant].weight;
            let bound = bed.schedule.quantum * weight + (64 << 10) + BASE;
            assert!(bed.schedule.deficit(tenant) < bound, "credit is bounded");
        }
        refill(bed, who);
    }
    bed.schedule.check().unwrap();
    served
}

#[test]
fn equal_shares_of_cost_whatever_the_shape() {
    let shapes: [(&[u32], u32, [u64; 2]); 3] =
        [(&[1, 1], 1, [1024, 1024]), (&[1, 1], 64, [1024, 1024]), (&[1, 3], 1, [1024, 65_536])];
    for (weights, topics, bytes) in shapes {
        let mut bed = Bed::new(weights);
        let one = bed.schedule.add_lane(0);
        let many: Vec<u32> = (0..topics).map(|_| bed.schedule.add_lane(1)).collect();
        let served = shares(&mut bed, [&[one], &many], bytes);
        let parts = [served[0] / u64::from(weights[0]), served[1] / u64::from(weights[1])];
        let off = parts[0].abs_diff(parts[1]) * 100 / parts[0];
        assert!(off <= 5, "{weights:?} {topics} {bytes:?}: {served:?}");
    }
}

#[test]
fn a_dear_job_is_granted_without_spinning() {
    let mut bed = Bed::new(&[1, 1]);
    let (a, b) = (bed.schedule.add_lane(0), bed.schedule.add_lane(1));
    bed.push(a, 16 << 20);
    bed.push(b, 15 << 20);
    assert_eq!(bed.pick(), Some((b, 15 << 20)), "the cheaper one is affordable first");
    assert_eq!(bed.pick(), Some((a, 16 << 20)));
    assert_eq!(bed.pick(), None);
    assert_eq!((bed.schedule.deficit(0), bed.schedule.deficit(1)), (0, 0));
}

#[test]
fn missing_rotations_are_granted_at_once_and_to_the_byte() {
    let mut bed = Bed::new(&[3, 1]);
    let (a, b) = (bed.schedule.add_lane(0), bed.schedule.add_lane(1));
    for (topic, bytes) in [(a, 1 << 20), (a, 1), (b, 1 << 20)] {
        bed.push(topic, bytes);
    }
    let looks = core::cell::Cell::new(0);
    let pick = |bed: &mut Bed| {
        looks.set(0);
        let picked = bed.schedule.pick(|_| {
            looks.set(looks.get() + 1);
            0
        });
        (picked.map(|picked| bed.schedule.take(picked).topic), looks.get())
    };
    // A visit to each, a walk over both, and the visit that runs.
    assert_eq!(pick(&mut bed), (Some(a), 5));
    let quantum = bed.schedule.quantum;
    let credit = 6 * 3 * quantum - (1 << 20) - BASE;
    assert_eq!([bed.schedule.deficit(0), bed.schedule.deficit(1)], [credit, 5 * quantum]);
    assert_eq!(pick(&mut bed), (Some(a), 1), "its turn goes on while it has credit");
    assert_eq!(pick(&mut bed), (Some(b), 3), "alone it walks over itself");
}

#[test]
fn an_audience_is_a_part_of_the_cost() {
    let mut bed = Bed::new(&[1, 1]);
    let (a, b) = (bed.schedule.add_lane(0), bed.schedule.add_lane(1));
    (0..2).for_each(|_| bed.push(a, 100));
    bed.push(b, 100);
    let audience = |topic: u32| if topic == a { 500 } else { 1 };
    let picked = bed.schedule.pick(audience);
    assert_eq!(picked.map(|picked| bed.schedule.take(picked).topic), Some(a));
    assert_eq!(bed.schedule.deficit(0), bed.schedule.quantum - 100 - BASE - 500 * DELIVERY);
    bed.schedule.check().unwrap();
}

#[test]
fn publishes_and_batches_of_a_topic_take_turns() {
    let mut bed = Bed::new(&[1]);
    let a = bed.schedule.add_lane(0);
    for bytes in [1, 2, 3] {
        bed.push(a, bytes);
        let mut job = Bed::job(a, 10 + bytes);
        job.origin = Origin::Batch { plain: true };
        bed.schedule.push_remote(job);
    }
    let order: Vec<u64> = core::iter::from_fn(|| bed.pick()).map(|(_, bytes)| bytes).collect();
    assert_eq!(order, [11, 1, 12, 2, 13, 3]);
}

#[test]
fn jobs_of_other_shards_are_counted_until_they_run_or_are_taken() {
    let mut bed = Bed::new(&[1]);
    let (a, b) = (bed.schedule.add_lane(0), bed.schedule.add_lane(0));
    let push = |bed: &mut Bed, topic, bytes, plain| {
        let mut job = Bed::job(topic, bytes);
        job.origin = Origin::Batch { plain };
        bed.schedule.push_remote(job);
        bed.schedule.check().unwrap();
    };
    for (topic, bytes, plain) in [(a, 1, true), (a, 2, false), (b, 3, true), (b, 4, true)] {
        push(&mut bed, topic, bytes, plain);
    }
    bed.push(a, 9);
    assert_eq!((bed.schedule.remote(), bed.schedule.plain_batches()), (4, 3));
    assert_eq!(bed.pick(), Some((a, 1)));
    assert_eq!((bed.schedule.remote(), bed.schedule.plain_batches()), (3, 2));
    assert!(!bed.schedule.is_idle(b));
    let taken: Vec<u64> = bed.schedule.take_remote().iter().map(|job| job.tally.bytes).collect();
    assert_eq!(taken, [2, 3, 4], "by topic, in order");
    assert_eq!((bed.schedule.remote(), bed.schedule.plain_batches()), (0, 0));
    assert!(bed.schedule.is_idle(b));
    bed.schedule.check().unwrap();
    assert_eq!([bed.pick(), bed.pick()], [Some((a, 9)), None], "what is of here stays");
}

#[test]
fn a_held_topic_stops_only_its_lane() {
    let mut bed = Bed::new(&[1]);
    let (a, b) = (bed.schedule.add_lane(0), bed.schedule.add_lane(0));
    bed.push(a, 1);
    bed.push(a, 2);
    bed.push(b, 3);
    bed.schedule.hold(a, Hold::Block, true);
    assert_eq!([bed.pick(), bed.pick()], [Some((b, 3)), None]);
    assert!(!bed.schedule.is_runnable());
    bed.schedule.hold(a, Hold::Block, false);
    assert_eq!([bed.pick(), bed.pick()], [Some((a, 1)), Some((a, 2))]);
    bed.schedule.check().unwrap();
    assert!(bed.schedule.is_idle(a));
    bed.schedule.remove_lane(a);
}

#[test]
fn lanes_of_a_tenant_take_turns() {
    let mut bed = Bed::new(&[1]);
    let (a, b) = (bed.schedule.add_lane(0), bed.schedule.add_lane(0));
    for (topic, bytes) in [(a, 1), (a, 2), (b, 3), (b, 4)] {
        bed.push(topic, bytes);
    }
    let order: Vec<u64> = core::iter::from_fn(|| bed.pick()).map(|(_, bytes)| bytes).collect();
    assert_eq!(order, [1, 3, 2, 4]);
}

#[test]
fn a_parked_job_is_not_overtaken() {
    let mut bed = Bed::new(&[1, 1]);
    let (a, b) = (bed.schedule.add_lane(0), bed.schedule.add_lane(1));
    let mut source = List::default();
    let mut other_source = List::default();
    let first = bed.park(a, 1, &mut source);
    let second = bed.schedule.park(Bed::job(a, 2), &mut source, Instant::ZERO);
    let other = bed.park(b, 3, &mut other_source);
    assert!(bed.room(0).is_err(), "a fresh job waits behind its tenant's parked ones");
    assert_eq!(bed.schedule.next_parked(0), Some((0, first)));
    assert_eq!(bed.schedule.next_parked(0), Some((1, other)));
    let permit = bed.admission.take(0, &mut bed.conn_used, 0);
    bed.schedule.unpark(first, &mut source, permit);
    assert_eq!(bed.schedule.parked_tenants(), 1, "one of a source stands");
    bed.schedule.stand(second);
    assert_eq!(bed.schedule.next_parked(0), Some((1, other)), "it has nothing queued");
    assert_eq!(bed.schedule.next_parked(0), Some((1, other)), "again, until it has");
    assert_eq!(bed.schedule.next_parked(1), Some((0, second)), "or has no room");
    assert_eq!(bed.schedule.cancel(second, &mut source).tally.bytes, 2);
    assert_eq!(bed.schedule.counts(), (1, 1));
    bed.schedule.check().unwrap();
    assert!(bed.room(0).is_ok());
}

#[test]
fn who_waits_for_a_held_topic_gains_nothing() {
    let mut bed = Bed::new(&[1, 1]);
    let (a, b) = (bed.schedule.add_lane(0), bed.schedule.add_lane(1));
    bed.push(a, 1);
    bed.push(a, 2);
    (0..100).for_each(|_| bed.push(b, 3));
    assert_eq!(bed.pick(), Some((a, 1)));
    let credit = bed.schedule.deficit(0);
    bed.schedule.hold(a, Hold::Block, true);
    for _ in 0..99 {
        assert_eq!(bed.pick(), Some((b, 3)), "it is passed over");
    }
    assert_eq!(bed.schedule.deficit(0), credit, "it keeps what it had");
    bed.schedule.hold(a, Hold::Block, false);
    assert_eq!([bed.pick(), bed.pick()], [Some((a, 2)), Some((b, 3))], "and its place");
}

/// A tenant with one slot, which gets the next publish in when the last one went out, is not
/// served one publish per turn of those who have many slots.
#[test]
fn a_turn_goes_on_while_a_publish_of_the_tenant_is_parked() {
    let mut bed = Bed::new(&[1, 1]);
    let (a, b) = (bed.schedule.add_lane(0), bed.schedule.add_lane(1));
    let mut source = List::default();
    bed.push(a, 1);
    (0..100).for_each(|_| bed.push(b, 2));
    let mut other_source = List::default();
    let parked = [bed.park(a, 3, &mut source), bed.park(a, 4, &mut other_source)];
    assert_eq!(bed.pick(), Some((a, 1)));
    let credit = bed.schedule.deficit(0);
    assert_eq!(bed.pick(), Some((b, 2)), "it has nothing that can run");
    for (job, (source, bytes)) in parked.into_iter().zip([(source, 3), (other_source, 4)]) {
        let permit = bed.admission.take(0, &mut bed.conn_used, 0);
        bed.schedule.unpark(job, &mut { source }, permit);
        let left = bed.schedule.deficit(0);
        assert!(left <= credit && left > 0, "what is left of its turn, and no more");
        assert_eq!(bed.pick(), Some((a, bytes)));
        bed.schedule.check().unwrap();
    }
    assert_eq!(bed.schedule.deficit(0), 0, "nothing is left to run");
    bed.push(a, 5);
    assert_eq!(bed.pick(), Some((b, 2)), "who comes back is last");
}

#[test]
fn a_turn_ends_with_the_last_parked_publish() {
    let mut bed = Bed::new(&[1, 1]);
    let (a, b) = (bed.schedule.add_lane(0), bed.schedule.add_lane(1));
    let mut source = List::default();
    bed.push(a, 1);
    let parked = bed.park(a, 3, &mut source);
    bed.push(b, 2);
    assert_eq!(bed.pick(), Some((a, 1)));
    assert!(bed.schedule.deficit(0) > 0);
    let _ = bed.schedule.cancel(parked, &mut source);
    assert_eq!(bed.schedule.deficit(0), 0);
    bed.push(a, 5);
    assert_eq!(bed.pick(), Some((b, 2)), "its place went with it");
}

#[test]
fn what_ends_before_it_runs_costs_nothing() {
    let mut bed = Bed::new(&[1]);
    let a = bed.schedule.add_lane(0);
    bed.push(a, 1_000);
    bed.push(a, 1_000);
    let _ = bed.pick();
    let credit = bed.schedule.deficit(0);
    bed.push(a, 60_000);
    let newest = bed.schedule.newest(0).unwrap();
    assert_eq!(bed.schedule.evict(newest).tally.bytes, 60_000);
    assert_eq!(bed.schedule.deficit(0), credit);
    bed.schedule.check().unwrap();
}

#[test]
fn the_newest_job_of_whoever_has_most_makes_room() {
    let mut bed = Bed::new(&[1, 1, 1, 1, 1]);
    let lanes = [0, 1, 2, 3].map(|tenant| bed.schedule.add_lane(tenant));
    // The guarantee is 64 jobs.
    for (lane, jobs) in lanes.into_iter().zip([65, 67, 66, 67]) {
        (0..jobs).for_each(|number| bed.push(lane, number));
    }
    let job = |bed: &Bed, index: Option<u32>| {
        let job = bed.schedule.job(index.unwrap());
        (job.topic, job.tally.bytes)
    };
    assert_eq!(job(&bed, bed.schedule.victim_by_jobs(4)), (lanes[1], 66), "the first of equals");
    let used = [5, 20, 30, 30, 0];
    let by_bytes =
        |bed: &Bed, floor| bed.schedule.victim_by_bytes(floor, |tenant| used[tenant as usize]);
    assert_eq!(job(&bed, by_bytes(&bed, 10)), (lanes[2], 65));
    assert_eq!(by_bytes(&bed, 30), None, "nobody is above it");
}

#[test]
fn another_weight_holds_from_the_next_turn_on() {
    for (before, after) in [(1, 3), (1_000, 1), (3, 3)] {
        let mut bed = Bed::new(&[1, before]);
        let one = bed.schedule.add_lane(0);
        let other = bed.schedule.add_lane(1);
        shares(&mut bed, [&[one], &[other]], [1_024, 1_024]);
        while bed.pick().is_some() {}
        bed.schedule.reweigh(1, after);
        let served = shares(&mut bed, [&[one], &[other]], [1_024, 1_024]);
        let parts = [served[0], served[1] / u64::from(after)];
        let off = parts[0].abs_diff(parts[1]) * 100 / parts[0];
        assert!(off <= 5, "{before} {after}: {served:?}");
    }
}
