//! Several shards: one order per topic everywhere, no loss under `block`, every loss told, and
//! books that close across shards whenever nothing is on its way.

use super::*;
use crate::Parcel;
use crate::model::{self, count};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use proptest::prelude::*;

mod parcels;

const SHARDS: usize = 3;
/// Records that no log loses here.
const KEPT: u64 = 1 << 20;
const TOPICS: [&str; 4] = ["a", "b", "c", "d"];

struct Peer {
    conn: ConnId,
    outlet: OutletId,
    sub: SubId,
    topic: usize,
    policy: Policy,
    reads: bool,
    /// From the joined notice.
    start: Option<u64>,
    /// Where the topic was when it began; from before that it gets what was kept.
    began: u64,
    received: Vec<u64>,
    lost: BTreeSet<u64>,
    /// How many records it was told of as lost.
    told: u64,
}

struct Shard {
    broker: Broker,
    tenant: TenantId,
    source: ConnId,
    peers: Vec<Peer>,
    /// Publishes without an answer: topic and number.
    asked: BTreeMap<crate::id::Ticket, u64>,
}

struct Cluster {
    shards: Vec<Shard>,
    /// By source and destination.
    wires: BTreeMap<(usize, usize), VecDeque<Parcel>>,
    wire: usize,
    published: u64,
    /// Sequence numbers by the number in the frame.
    order: BTreeMap<u64, u64>,
    refused: u64,
    /// What is kept of what is published next.
    keep: Keep,
    /// What is not kept: topics, and numbers in frames.
    unkept: BTreeSet<(usize, u64)>,
    /// Topics of which a publish asked that less is kept than the limits say.
    shortened: BTreeSet<usize>,
}

impl Cluster {
    fn new(limits: &Limits, wire: usize) -> Self {
        let limits = Limits { shards: SHARDS as u64, ..limits.clone() };
        let shards = (0..SHARDS).map(|at| {
            let mut broker = Broker::shard(limits.clone(), 7, u32::try_from(at).unwrap());
            broker.record_inputs(true);
            let tenant = broker.tenant(1).unwrap();
            let source = broker.open(tenant).unwrap();
            Shard { broker, tenant, source, peers: Vec::new(), asked: BTreeMap::new() }
        });
        let shards = shards.collect();
        let (wires, order) = (BTreeMap::new(), BTreeMap::new());
        let (keep, unkept, shortened) = (Keep::Default, BTreeSet::new(), BTreeSet::new());
        Self { shards, wires, wire, published: 0, order, refused: 0, keep, unkept, shortened }
    }

    fn topic(&mut self, shard: usize, topic: usize) -> TopicId {
        let Shard { broker, tenant, .. } = &mut self.shards[shard];
        broker.topic(*tenant, TOPICS[topic]).unwrap()
    }

    fn join(&mut self, shard: usize, topic: usize, policy: Policy) -> usize {
        self.join_from(shard, topic, policy, Start::Tail)
    }

    fn join_from(&mut self, shard: usize, topic: usize, policy: Policy, from: Start) -> usize {
        let id = self.topic(shard, topic);
        let Shard { broker, tenant, peers, .. } = &mut self.shards[shard];
        let conn = broker.open(*tenant).unwrap();
        let outlet = broker.outlet(conn, Pipe::Single).unwrap();
        let wish = Wish { start: from, ..Wish::policy(policy) };
        let sub = broker.subscribe(outlet, id, wish).unwrap();
        let start = broker.start_of(sub);
        let began = start.map_or(0, |start| began(broker, sub, start));
        let (received, lost, told, reads) = (Vec::new(), BTreeSet::new(), 0, true);
        peers.push(Peer {
            conn,
            outlet,
            sub,
            topic,
            policy,
            reads,
            start,
            began,
            received,
            lost,
            told,
        });
        self.settle(shard);
        peers_len(&self.shards[shard])
    }

    fn leave(&mut self, shard: usize, at: usize) {
        let Some(at) = at.checked_rem(self.shards[shard].peers.len()) else { return };
        let peer = self.shards[shard].peers.remove(at);
        self.shards[shard].broker.gone(peer.conn);
        self.settle(shard);
    }

    fn publish(
        &mut self,
        shard: usize,
        topic: usize,
        size: usize,
        except: Option<usize>,
    ) -> Verdict {
        let id = self.topic(shard, topic);
        self.published += 1;
        let mut frame = self.published.to_le_bytes().to_vec();
        frame.resize(size.max(8), b'.');
        let Shard { broker, source, peers, asked, .. } = &mut self.shards[shard];
        let except = except.map(|peer| (broker.number(), peers[peer].outlet));
        let message =
            Message { frame: frame.into(), records: 1, ack: Ack::Wait, except, keep: self.keep };
        if self.keep == Keep::No {
            self.unkept.insert((topic, self.published));
        }
        if self.keep != Keep::Default {
            self.shortened.insert(topic);
        }
        let verdict = broker.publish(*source, id, message);
        match verdict {
            Verdict::Queued(ticket) | Verdict::Parked(ticket) => {
                asked.insert(ticket, self.published);
            }
            Verdict::Refused(_) | Verdict::Shed(_) => self.refused += 1,
        }
        self.settle(shard);
        verdict
    }

    fn check(&self, shard: usize) {
        if let Err(broken) = self.shards[shard].broker.check() {
            panic!("shard {shard}: {broken}");
        }
    }

    /// A turn of one shard, parcels left where they are.
    fn settle(&mut self, shard: usize) {
        loop {
            let broker = &mut self.shards[shard].broker;
            broker.advance(broker.now());
            let progress = broker.step(5);
            self.check(shard);
            self.effects(shard);
            self.send(shard);
            let Shard { broker, .. } = &self.shards[shard];
            if progress == Progress::Idle && broker.next_deadline() != Some(broker.now()) {
                break;
            }
        }
    }

    fn effects(&mut self, shard: usize) {
        while let Some(effect) = self.shards[shard].broker.poll() {
            let Shard { broker, peers, asked, .. } = &mut self.shards[shard];
            match effect {
                Effect::Write(offer) => {
                    let peer = peers.iter_mut().find(|peer| peer.outlet == offer.outlet).unwrap();
                    if !peer.reads {
                        broker.sent(offer, 0);
                        continue;
                    }
                    let number = |frame: &[u8]| u64::from_le_bytes(frame[..8].try_into().unwrap());
                    peer.received.extend(broker.frames(offer).map(number));
                    broker.sent(offer, offer.bytes);
                }
                Effect::Notice(Notice::Gap { sub, gap }) => {
                    if let Some(peer) = peers.iter_mut().find(|peer| peer.sub == sub) {
                        peer.told += gap.records;
                        peer.lost.extend(gap.first..=gap.last);
                    }
                }
                Effect::Notice(Notice::Joined { sub, start }) => {
                    let peer = peers.iter_mut().find(|peer| peer.sub == sub).unwrap();
                    assert_eq!(peer.start.replace(start), None, "joined once");
                    assert!(peer.received.is_empty(), "the host hears of it before any record");
                    peer.began = began(broker, sub, start);
                    count("joined by the owner's answer");
                }
                Effect::Notice(Notice::Committed { ticket, first, .. }) => {
                    let number = asked.remove(&ticket).expect("answered once");
                    self.order.insert(number, first);
                }
                Effect::Notice(Notice::Failed { ticket, .. }) => {
                    asked.remove(&ticket).expect("answered once");
                    self.refused += 1;
                }
                Effect::Notice(_) => {}
            }
            self.check(shard);
        }
    }

    /// Parcels go onto the wires, as far as these have room.
    fn send(&mut self, shard: usize) {
        for to in (0..SHARDS).filter(|to| *to != shard) {
            let wire = self.wires.entry((shard, to)).or_default();
            while wire.len() < self.wire {
                let to = u32::try_from(to).unwrap();
                let Some(parcel) = self.shards[shard].broker.poll_parcel(to) else { break };
                wire.push_back(parcel);
            }
        }
        self.check(shard);
    }

    /// One parcel arrives.
    fn carry(&mut self, from: usize, to: usize) -> bool {
        let Some(wire) = self.wires.get_mut(&(from, to)) else { return false };
        if !self.shards[to].broker.wants_parcels() {
            return false;
        }
        let Some(parcel) = wire.pop_front() else { return false };
        self.shards[to].broker.receive(u32::try_from(from).unwrap(), parcel);
        self.check(to);
        self.settle(to);
        self.send(from);
        true
    }

    /// Everything on its way arrives.
    fn barrier(&mut self) {
        let pairs = (0..SHARDS).flat_map(|from| (0..SHARDS).map(move |to| (from, to)));
        let pairs: Vec<_> = pairs.filter(|(from, to)| from != to).collect();
        while pairs.iter().filter(|(from, to)| self.carry(*from, *to)).count() > 0 {}
    }

    fn read(&mut self, shard: usize, at: usize, reads: bool) {
        let Some(at) = at.checked_rem(self.shards[shard].peers.len()) else { return };
        let Shard { broker, peers, .. } = &mut self.shards[shard];
        peers[at].reads = reads;
        if reads {
            broker.writable(peers[at].outlet);
        }
        self.settle(shard);
    }

    fn sum(&self, column: impl Fn(&Books) -> Tally) -> Tally {
        self.shards.iter().map(|shard| column(shard.broker.ledger())).sum()
    }

    /// Everybody reads, everything arrives; then nothing may be missing.
    fn heal(&mut self) {
        for shard in 0..SHARDS {
            for peer in 0..self.shards[shard].peers.len() {
                self.read(shard, peer, true);
            }
        }
        self.barrier();
        for shard in 0..SHARDS {
            self.shards[shard].broker.check_quiescent().unwrap();
            let Shard { broker, asked, .. } = &self.shards[shard];
            assert!(asked.is_empty(), "every acked publish has one answer");
            assert_eq!((broker.jobs(), broker.inflight()), ((0, 0), 0));
            assert!(broker.is_flushed());
        }
        assert_eq!(self.sum(|books| books.forwarded), self.sum(|books| books.received));
        assert_eq!(self.sum(|books| books.lag), Tally::ZERO);
        assert_eq!(self.sum(|books| books.admitted).records, self.published - self.refused);
        assert_eq!(self.sum(|books| books.sequenced).records, self.order.len() as u64);
        self.judge();
    }

    /// Each shard's inputs alone give its books again.
    fn play_again(&mut self) {
        for (at, shard) in (0..).zip(&mut self.shards) {
            let inputs = shard.broker.take_inputs();
            let mut again = Broker::shard(shard.broker.limits().clone(), 7, at);
            for input in &inputs {
                again.apply(input);
            }
            assert_eq!(again.ledger(), shard.broker.ledger(), "shard {at}");
            assert_eq!(again.held(), shard.broker.held());
        }
    }

    fn judge(&self) {
        for (shard, peer) in
            self.shards.iter().flat_map(|shard| shard.peers.iter().map(move |peer| (shard, peer)))
        {
            let seqs: Vec<u64> = peer.received.iter().map(|number| self.order[number]).collect();
            assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "one order: {seqs:?}");
            let start = peer.start.expect("everybody joined");
            let next = self.head(peer.topic);
            let mut seen: BTreeSet<u64> = seqs.iter().copied().collect();
            let unkept = self.unkept.iter().filter(|(topic, _)| *topic == peer.topic);
            let unkept = unkept.filter_map(|(_, number)| self.order.get(number));
            let unkept: BTreeSet<u64> = unkept.copied().filter(|seq| *seq < peer.began).collect();
            let due: BTreeSet<u64> = (start..next).filter(|seq| !unkept.contains(seq)).collect();
            if due.len() as u64 != next - start {
                count("a past with holes");
            }
            // A gap may span what was not kept, but counts only what was.
            let lost: BTreeSet<u64> = peer.lost.intersection(&due).copied().collect();
            assert!(seen.is_disjoint(&lost), "what was lost does not come");
            seen.extend(&lost);
            let books = shard.broker.sub_books(peer.sub).unwrap();
            assert_eq!(books.delivered.records, seqs.len() as u64);
            assert_eq!((books.dropped.records, peer.told), (lost.len() as u64, lost.len() as u64));
            let all_kept = shard.broker.limits().retention_records == KEPT
                && !self.shortened.contains(&peer.topic);
            if all_kept && peer.policy == Policy::Block {
                count("a topic that keeps all, under block");
                assert!(peer.lost.is_empty(), "nothing is lost under block: {:?}", peer.lost);
            }
            assert_eq!(seen, due, "from its start on each record came or was told as lost");
        }
    }

    fn head(&self, topic: usize) -> u64 {
        let shard = self.shards.iter().find_map(|shard| {
            let id = shard.broker.find_topic(shard.tenant, TOPICS[topic])?;
            let sequenced = shard.broker.topic_books(id)?.sequenced.records;
            (sequenced > 0).then_some(sequenced + 1)
        });
        shard.unwrap_or(1)
    }
}

/// Where a subscription that has just been confirmed began.
fn began(broker: &Broker, sub: SubId, start: u64) -> u64 {
    broker.peers.past_of(sub.index).map_or(start, |past| past.next)
}

fn peers_len(shard: &Shard) -> usize {
    shard.peers.len() - 1
}

/// The shard that owns a topic, and one that does not.
fn owner_and_other(topic: usize) -> (usize, usize) {
    let owner = crate::mesh::Named::of(0, TOPICS[topic]).owner(3) as usize;
    (owner, (owner + 1) % SHARDS)
}

fn lossless() -> Limits {
    Limits { lossless: 1, subscription_batches: 4, retention_records: KEPT, ..Limits::default() }
}

#[test]
fn a_publish_reaches_subscribers_on_every_shard_in_one_order() {
    let mut cluster = Cluster::new(&lossless(), 100);
    for shard in 0..SHARDS {
        cluster.join(shard, 0, Policy::DropNew);
    }
    cluster.barrier();
    for round in 0..6 {
        let _ = cluster.publish(round % SHARDS, 0, 100, None);
    }
    cluster.heal();
    for shard in &cluster.shards {
        assert_eq!(shard.peers[0].received.len(), 6);
    }
}

#[test]
fn the_publishers_own_outlet_is_left_out_on_its_shard() {
    let mut cluster = Cluster::new(&lossless(), 100);
    let (_, other) = owner_and_other(0);
    let own = cluster.join(other, 0, Policy::DropNew);
    cluster.join(other, 0, Policy::DropNew);
    cluster.barrier();
    let _ = cluster.publish(other, 0, 100, Some(own));
    cluster.barrier();
    let peers = &cluster.shards[other].peers;
    assert_eq!((peers[0].received.len(), peers[1].received.len()), (0, 1));
}

#[test]
fn an_outlet_of_another_shard_is_left_out_wherever_the_publish_enters() {
    for entry in 0..SHARDS {
        let mut cluster = Cluster::new(&lossless(), 100);
        let own = (entry + 1) % SHARDS;
        for shard in 0..SHARDS {
            cluster.join(shard, 0, Policy::DropNew);
        }
        cluster.barrier();
        let left_out = cluster.shards[own].peers[0].outlet;
        let id = cluster.topic(entry, 0);
        let Shard { broker, source, .. } = &mut cluster.shards[entry];
        let except = Some((u32::try_from(own).unwrap(), left_out));
        let frame = Bytes::from_static(b"12345678");
        let keep = Keep::Default;
        let message = Message { frame, records: 1, ack: Ack::None, except, keep };
        assert!(matches!(broker.publish(*source, id, message), Verdict::Queued(_)));
        cluster.settle(entry);
        cluster.barrier();
        for shard in 0..SHARDS {
            let received = cluster.shards[shard].peers[0].received.len();
            assert_eq!(received, usize::from(shard != own), "{entry} {shard}");
        }
    }
}

#[test]
fn while_a_shard_of_the_process_is_saturated_none_takes_anything_new() {
    let mut cluster = Cluster::new(&lossless(), 100);
    let peer = cluster.join(0, 0, Policy::DropNew);
    cluster.barrier();
    let topic = cluster.topic(0, 0);
    let Shard { broker, source, .. } = &mut cluster.shards[0];
    let outlet = broker.outlet(*source, Pipe::Single).unwrap();
    let no = Refusal::after(Place::Mesh, Reason::Saturated, 1_000);
    let frame = Bytes::from_static(b"12345678");
    let message = Message { frame, records: 1, ack: Ack::Now, except: None, keep: Keep::Default };
    broker.node(true);
    assert_eq!(broker.welcome(), Err(no));
    assert_eq!(broker.room(*source, (1, 8), empty()), Err(no));
    assert_eq!(broker.publish(*source, topic, message), Verdict::Refused(no));
    assert_eq!(broker.subscribe(outlet, topic, Wish::policy(Policy::DropNew)), Err(no));
    assert!(!broker.is_saturated(), "another one is");
    assert!(matches!(cluster.publish(0, 0, 100, None), Verdict::Parked(_)));
    cluster.barrier();
    let Shard { broker, source, .. } = &mut cluster.shards[0];
    assert_eq!(broker.jobs(), (0, 1));
    broker.node(false);
    assert_eq!(broker.jobs(), (1, 0), "who waited goes on");
    assert_eq!((broker.welcome(), broker.room(*source, (1, 8), empty())), (Ok(()), Ok(())));
    cluster.settle(0);
    cluster.barrier();
    assert_eq!(cluster.shards[0].peers[peer].received.len(), 1);
}

#[test]
fn a_held_topic_stops_its_publishers_on_every_shard() {
    let mut cluster = Cluster::new(&lossless(), 10_000);
    let (owner, other) = owner_and_other(0);
    let far = (owner + 2) % SHARDS;
    let slow = cluster.join(far, 0, Policy::Block);
    cluster.barrier();
    cluster.read(far, slow, false);
    let mut parked = 0;
    for _ in 0..600 {
        if cluster.shards[other].broker.is_paused(cluster.shards[other].source) {
            break;
        }
        parked += u32::from(matches!(cluster.publish(other, 0, 100, None), Verdict::Parked(_)));
        cluster.barrier();
    }
    assert_eq!(parked, 1, "the block went back to the source");
    let sent = cluster.published;
    assert_eq!(sent, 4 + 64 + 64 + 256 + 1, "queue, two credits, the publish queue, parked");
    assert_eq!(cluster.shards[far].broker.ledger().dropped.total(), Tally::ZERO);
    cluster.heal();
    assert_eq!(cluster.shards[far].peers[0].received.len() as u64, sent);
}

#[test]
fn batches_of_a_topic_pass_publishes_to_it_that_wait_for_credit() {
    let limits = Limits { mesh_depth: 3, ..lossless() };
    let mut cluster = Cluster::new(&limits, 1_000);
    let (owner, other) = owner_and_other(0);
    cluster.join(other, 0, Policy::DropNew);
    cluster.barrier();
    for _ in 0..3 {
        let _ = cluster.publish(owner, 0, 100, None);
    }
    for _ in 0..70 {
        let _ = cluster.publish(other, 0, 100, None);
    }
    assert_eq!(cluster.shards[other].broker.jobs().0, 6, "the credit is spent");
    cluster.heal();
}

#[test]
fn the_slot_of_a_publish_that_went_to_its_owner_goes_to_a_parked_one() {
    let limits = Limits { pub_queue_total: 2, ..lossless() };
    let mut cluster = Cluster::new(&limits, 1_000);
    let (_, other) = owner_and_other(0);
    let topic = cluster.topic(other, 0);
    let Shard { broker, source, .. } = &mut cluster.shards[other];
    for expected in [(1, 0), (2, 0), (2, 1)] {
        let frame = Bytes::from_static(b"........");
        let message =
            Message { frame, records: 1, ack: Ack::None, except: None, keep: Keep::Default };
        let _ = broker.publish(*source, topic, message);
        assert_eq!(broker.jobs(), expected);
    }
    let _ = broker.step(100);
    assert_eq!(broker.jobs(), (0, 0), "nothing is held by anybody");
    assert_eq!(broker.ledger().forwarded.records, 3);
}

#[test]
fn publishes_without_credit_do_not_hold_up_what_comes_back() {
    let mut cluster = Cluster::new(&lossless(), 10_000);
    let (_, other) = owner_and_other(0);
    cluster.join(other, 0, Policy::Block);
    cluster.barrier();
    for _ in 0..200 {
        let _ = cluster.publish(other, 0, 100, None);
    }
    cluster.heal();
    assert_eq!(cluster.shards[other].peers[0].received.len(), 200);
}

#[test]
fn a_forwarded_publish_makes_room_for_a_parked_one() {
    let limits = Limits { pub_queue_total: 1, pub_queue_depth: 1, ..lossless() };
    let mut cluster = Cluster::new(&limits, 10_000);
    let (owner, other) = owner_and_other(0);
    for _ in 0..64 + 2 {
        let _ = cluster.publish(other, 0, 100, None);
    }
    assert_eq!(cluster.shards[other].broker.jobs(), (1, 1), "64 are on their way");
    cluster.carry(other, owner);
    cluster.carry(owner, other);
    let broker = &cluster.shards[other].broker;
    assert_eq!(broker.jobs(), (0, 1), "an answer let the queued one go, and no credit is left");
    broker.check_quiescent().unwrap();
    cluster.heal();
    assert_eq!(cluster.shards[other].broker.ledger().forwarded.records, 66);
}

#[test]
fn a_full_queue_loses_the_batch_and_says_where_the_topic_is() {
    let limits = Limits { mesh_depth: 2, ..lossless() };
    let mut cluster = Cluster::new(&limits, 1);
    let (owner, other) = owner_and_other(0);
    cluster.join(other, 0, Policy::DropNew);
    cluster.barrier();
    for _ in 0..10 {
        let _ = cluster.publish(owner, 0, 100, None);
    }
    cluster.heal();
    let peer = &cluster.shards[other].peers[0];
    assert_eq!((peer.received.len(), peer.lost.len()), (3, 7), "one on the wire, two in the queue");
    let dropped = &cluster.shards[other].broker.ledger().dropped;
    assert_eq!(dropped.get(Place::Mesh, Reason::MeshFull), Tally { records: 7, bytes: 700 });
}

#[test]
fn who_joins_under_block_after_a_loss_that_nobody_has_noticed_yet_loses_nothing() {
    let limits = Limits { mesh_depth: 2, ..lossless() };
    let mut cluster = Cluster::new(&limits, 1);
    let (owner, other) = owner_and_other(0);
    cluster.join(other, 0, Policy::DropNew);
    cluster.barrier();
    for _ in 0..10 {
        let _ = cluster.publish(owner, 0, 100, None);
    }
    cluster.join(other, 0, Policy::Block);
    cluster.carry(other, owner);
    for _ in 0..4 {
        assert!(cluster.carry(owner, other), "three batches, and the answer");
    }
    let late = cluster.join(other, 0, Policy::Block);
    let _ = cluster.publish(owner, 0, 100, None);
    cluster.heal();
    let peers = &cluster.shards[other].peers;
    assert_eq!(peers[0].lost.len(), 7);
    assert_eq!((peers[late].start, peers[late].received.len()), (Some(11), 1));
}

#[test]
fn a_saturated_shard_returns_no_credit() {
    let limits = Limits { memory_budget: 3 << 20, band_dwell_ms: 0, ..lossless() };
    let mut cluster = Cluster::new(&limits, 100);
    let (owner, other) = owner_and_other(0);
    cluster.join(other, 0, Policy::Block);
    cluster.barrier();
    let credit = |cluster: &Cluster| {
        let Shard { broker, tenant, .. } = &cluster.shards[owner];
        let topic = broker.find_topic(*tenant, TOPICS[0]).unwrap();
        let credit = &broker.topics[topic.index].credits[0];
        (credit.batches, credit.bytes)
    };
    let whole = credit(&cluster);
    let less = (whole.0 - 1, whole.1 - crate::memory::cost(100, 1));
    for (unfinished, due) in [(0, whole), (3 << 20, less), (0, whole)] {
        let Shard { broker, source, .. } = &mut cluster.shards[other];
        broker.reassembly(*source, unfinished).unwrap();
        if unfinished > 0 || due == credit(&cluster) {
            let _ = cluster.publish(owner, 0, 100, None);
        }
        cluster.settle(other);
        cluster.barrier();
        assert_eq!(credit(&cluster), due, "{unfinished} bytes unfinished");
    }
    cluster.heal();
}

#[test]
fn a_shard_without_credit_that_wants_no_more_lets_the_topic_go() {
    let mut cluster = Cluster::new(&lossless(), 10_000);
    let (owner, other) = owner_and_other(0);
    let slow = cluster.join(other, 0, Policy::Block);
    cluster.barrier();
    cluster.read(other, slow, false);
    for _ in 0..80 {
        let _ = cluster.publish(owner, 0, 100, None);
        cluster.barrier();
    }
    assert_eq!(cluster.shards[owner].broker.jobs().0, 80 - 4 - 64, "its queue, and the credit");
    cluster.leave(other, slow);
    cluster.barrier();
    assert_eq!(cluster.shards[owner].broker.jobs().0, 0);
    cluster.heal();
}

#[test]
fn a_loss_of_what_nobody_wants_any_more_is_not_told() {
    let limits = Limits { max_topics: 1, mesh_depth: 2, ..Limits::default() };
    let mut cluster = Cluster::new(&limits, 1);
    let (owner, other) = owner_and_other(0);
    let at = cluster.join(other, 0, Policy::DropNew);
    cluster.barrier();
    for _ in 0..5 {
        let _ = cluster.publish(owner, 0, 100, None);
    }
    cluster.leave(other, at);
    cluster.carry(other, owner);
    let Shard { broker, tenant, .. } = &mut cluster.shards[owner];
    broker.topic(*tenant, "in the place of the old one").unwrap();
    let to = u32::try_from(other).unwrap();
    let rest = core::iter::from_fn(|| broker.poll_parcel(to)).count();
    assert_eq!(rest, 2, "the batches that were queued, and no more");
}

#[test]
fn topics_that_nobody_wants_are_given_up_on_both_sides() {
    let limits = Limits { max_topics: 1, ..Limits::default() };
    let mut cluster = Cluster::new(&limits, 100);
    let (owner, other) = owner_and_other(0);
    let at = cluster.join(other, 0, Policy::DropNew);
    cluster.barrier();
    let tenant = cluster.shards[owner].tenant;
    let full = cluster.shards[owner].broker.topic(tenant, "x").unwrap_err();
    assert_eq!(full.reason, Reason::Limit, "another shard wants it");
    cluster.leave(other, at);
    cluster.barrier();
    for shard in [owner, other] {
        cluster.shards[shard].broker.topic(tenant, "x").unwrap();
    }
}

#[test]
fn an_owner_without_room_for_the_topic_refuses() {
    let limits = Limits { max_topics: 1, ..Limits::default() };
    let mut cluster = Cluster::new(&limits, 100);
    let (owner, other) = owner_and_other(0);
    let third = (0..TOPICS.len()).find(|topic| owner_and_other(*topic).0 == owner && *topic != 0);
    let taken = third.expect("some other topic has the same owner");
    cluster.join(owner, taken, Policy::DropNew);
    let _ = cluster.join(other, 0, Policy::DropNew);
    let _ = cluster.publish(other, 0, 100, None);
    cluster.barrier();
    let Shard { broker, asked, .. } = &cluster.shards[other];
    assert!(asked.is_empty(), "the publish was answered");
    assert_eq!(broker.sub_books(cluster.shards[other].peers[0].sub), None, "and the subscription");
    assert_eq!(broker.inflight(), 0);
    let evicted = &cluster.shards[owner].broker.ledger().evicted;
    assert_eq!(evicted.get(Place::Table, Reason::Limit).records, 1);
}

#[derive(Clone, Debug)]
enum Op {
    Join(usize, usize, bool, Start),
    Leave(usize, usize),
    Publish(usize, usize, u16, Keep),
    Read(usize, usize, bool),
    Carry(usize, usize, u8),
}

fn op() -> impl Strategy<Value = Op> {
    let shard = || 0..SHARDS;
    let topic = || 0..TOPICS.len();
    let size = prop_oneof![8..40_u16, 20_000..60_000_u16];
    prop_oneof![
        2 => (shard(), topic(), any::<bool>(), start())
            .prop_map(|(s, t, block, start)| Op::Join(s, t, block, start)),
        1 => (shard(), any::<usize>()).prop_map(|(s, at)| Op::Leave(s, at)),
        12 => (shard(), topic(), size, keep())
            .prop_map(|(s, t, size, keep)| Op::Publish(s, t, size, keep)),
        3 => (shard(), any::<usize>(), any::<bool>()).prop_map(|(s, at, on)| Op::Read(s, at, on)),
        8 => (shard(), shard(), 1..20_u8).prop_map(|(from, to, n)| Op::Carry(from, to, n)),
    ]
}

/// What is kept of a publish.
fn keep() -> impl Strategy<Value = Keep> {
    prop_oneof![6 => Just(Keep::Default), 1 => Just(Keep::No), 1 => (1..4_u32).prop_map(newest)]
}

fn start() -> impl Strategy<Value = Start> {
    prop_oneof![
        2 => Just(Start::Tail),
        1 => Just(Start::Earliest),
        1 => (0..20_u64).prop_map(Start::Last),
    ]
}

/// Where `whole`, every record is kept as long as the limits say.
fn run(limits: &Limits, wire: usize, whole: bool, operations: &[Op]) {
    let mut cluster = Cluster::new(limits, wire);
    for op in operations {
        match *op {
            Op::Join(shard, topic, block, start) => {
                let policy = if block { Policy::Block } else { Policy::DropNew };
                cluster.join_from(shard, topic, policy, start);
            }
            Op::Leave(shard, at) => cluster.leave(shard, at),
            Op::Publish(shard, topic, size, keep) => {
                let paused = cluster.shards[shard].broker.is_paused(cluster.shards[shard].source);
                if paused {
                    count("a source is paused");
                } else {
                    cluster.keep = if whole { Keep::Default } else { keep };
                    let _ = cluster.publish(shard, topic, size.into(), None);
                }
            }
            Op::Read(shard, at, reads) => cluster.read(shard, at, reads),
            Op::Carry(from, to, n) if from != to => {
                for _ in 0..n {
                    cluster.carry(from, to);
                }
            }
            Op::Carry(..) => {}
        }
    }
    cluster.heal();
    cluster.play_again();
    if !cluster.sum(|books| books.forwarded).is_zero() {
        count("published on another shard");
    }
    if !cluster.sum(|books| books.dropped.get(Place::Mesh, Reason::MeshFull)).is_zero() {
        count("lost in the mesh");
    }
    if !cluster.sum(|books| books.dropped.get(Place::Backlog, Reason::Retention)).is_zero() {
        count("lost by retention");
    }
    if !cluster.sum(|books| books.dropped.get(Place::Backlog, Reason::DropNew)).is_zero() {
        count("dropped at a full queue");
    }
}

#[test]
fn books_close_across_shards() {
    let operations = proptest::collection::vec(op(), 1..250);
    let kept = prop_oneof![
        2 => (1..6_u64, any::<bool>()),
        3 => (Just(KEPT), Just(true)),
        1 => (Just(KEPT), Just(false)),
    ];
    let depth = prop_oneof![1..4_u64, 1..40_u64];
    let setting = (operations, depth, 1..20_usize, kept);
    model::run(model::cases(file!(), 300), &setting, REACHED, |(operations, depth, wire, kept)| {
        let (retention_records, whole) = kept;
        let limits = Limits {
            mesh_depth: depth,
            retention_records,
            max_frame_bytes: 64 << 10,
            pub_conn_inflight_bytes: 256 << 10,
            ..lossless()
        };
        run(&limits, wire, whole, &operations);
    });
}

/// What a run must come by.
const REACHED: &[&str] = &[
    "a past with holes",
    "a source is paused",
    "a topic that keeps all, under block",
    "dropped at a full queue",
    "joined by the owner's answer",
    "lost by retention",
    "lost in the mesh",
    "published on another shard",
];

#[test]
fn what_a_shard_wants_is_told_once_while_nobody_answers() {
    let mut cluster = Cluster::new(&lossless(), 100);
    let (_, other) = owner_and_other(0);
    cluster.join(other, 0, Policy::DropNew);
    cluster.barrier();
    for _ in 0..50 {
        let at = cluster.join(other, 0, Policy::Block);
        cluster.leave(other, at);
    }
    let waiting: usize = cluster.wires.values().map(VecDeque::len).sum();
    assert_eq!(waiting, 1, "one question is on its way");
    cluster.join(other, 0, Policy::Block);
    cluster.heal();
}

#[test]
fn the_end_of_the_grace_books_what_was_lost_between_shards() {
    let limits = Limits { mesh_depth: 1, shutdown_grace_ms: 0, ..lossless() };
    let mut cluster = Cluster::new(&limits, 100);
    let (owner, other) = owner_and_other(0);
    let [_, second] = [0; 2].map(|_| cluster.join(other, 0, Policy::DropNew));
    cluster.barrier();
    cluster.wire = 0;
    let [from, to] = [owner, other].map(|shard| u32::try_from(shard).unwrap());
    for batches in [3, 1] {
        for _ in 0..batches {
            let _ = cluster.publish(owner, 0, 100, None);
        }
        let parcel = cluster.shards[owner].broker.poll_parcel(to).expect("one found room");
        cluster.shards[other].broker.receive(from, parcel);
    }
    let broker = &mut cluster.shards[other].broker;
    for expected in [1, 2, 2 + 2 + 1] {
        let _ = broker.step(1);
        assert_eq!(broker.ledger().expected.records, expected, "in the middle of the second one");
    }
    broker.shutdown();
    broker.advance(Instant::from_millis(1));
    cluster.check(other);
    let Shard { broker, peers, .. } = &cluster.shards[other];
    let books = broker.sub_books(peers[second].sub).unwrap();
    assert_eq!(books.expected.records, 4, "two that came, and two that were lost");
}

#[test]
fn the_end_of_the_grace_ends_what_came_from_other_shards() {
    let limits = Limits { shutdown_grace_ms: 0, ..lossless() };
    let mut cluster = Cluster::new(&limits, 100);
    let (owner, other) = owner_and_other(0);
    let far = cluster.join(other, 0, Policy::Block);
    cluster.barrier();
    cluster.read(other, far, false);
    cluster.wire = 0;
    for _ in 0..6 {
        let _ = cluster.publish(owner, 0, 100, None);
        let _ = cluster.publish(other, 0, 100, None);
    }
    let [from, to] = [owner, other].map(|shard| u32::try_from(shard).unwrap());
    while let Some(parcel) = cluster.shards[owner].broker.poll_parcel(to) {
        cluster.shards[other].broker.receive(from, parcel);
    }
    while let Some(parcel) = cluster.shards[other].broker.poll_parcel(from) {
        cluster.shards[owner].broker.receive(to, parcel);
    }
    for shard in [owner, other] {
        cluster.shards[shard].broker.shutdown();
        cluster.shards[shard].broker.advance(Instant::from_millis(1));
        cluster.check(shard);
    }
    let books = cluster.shards[owner].broker.ledger();
    assert_eq!(books.evicted.get(Place::Schedule, Reason::Shutdown).records, 6, "answered no");
    let books = cluster.shards[other].broker.ledger();
    assert_eq!(books.dropped.get(Place::Egress, Reason::Shutdown).records, 6);
    cluster.wire = 100;
    cluster.send(owner);
    cluster.barrier();
    for shard in [owner, other] {
        assert!(cluster.shards[shard].broker.is_flushed(), "shard {shard}");
    }
}

#[test]
fn a_full_queue_between_shards_saturates_until_it_was_calm_for_a_while() {
    let limits = Limits { mesh_depth: 4, ..lossless() };
    let mut cluster = Cluster::new(&limits, 100);
    let (owner, other) = owner_and_other(0);
    cluster.join(other, 0, Policy::DropNew);
    cluster.barrier();
    cluster.wire = 0;
    let to = u32::try_from(other).unwrap();
    let at = |cluster: &mut Cluster, ms| {
        let broker = &mut cluster.shards[owner].broker;
        broker.advance(Instant::from_millis(ms));
        broker.is_saturated()
    };
    for full in [false, false, false, false, true] {
        let _ = cluster.publish(owner, 0, 100, None);
        assert_eq!(at(&mut cluster, 10), full);
    }
    let _ = [(); 2].map(|()| cluster.shards[owner].broker.poll_parcel(to).unwrap());
    assert!(at(&mut cluster, 200), "half full");
    let _ = cluster.shards[owner].broker.poll_parcel(to).unwrap();
    let deadline = cluster.shards[owner].broker.next_deadline();
    assert_eq!(deadline, Some(Instant::from_millis(300)));
    assert!(at(&mut cluster, 299));
    let _ = cluster.publish(owner, 0, 100, None);
    assert!(at(&mut cluster, 300), "half full again");
    let _ = cluster.shards[owner].broker.poll_parcel(to).unwrap();
    assert!(at(&mut cluster, 399));
    assert!(!at(&mut cluster, 400));
}

/// A shard that has nobody there, one that has, and the owner itself.
#[test]
fn a_start_in_the_past_is_the_same_on_every_shard() {
    let mut cluster = Cluster::new(&Limits { retention_records: 12, ..lossless() }, 100);
    let (owner, other) = owner_and_other(0);
    let far = (owner + 2) % SHARDS;
    cluster.join(other, 0, Policy::DropNew);
    cluster.barrier();
    for _ in 0..20 {
        let _ = cluster.publish(other, 0, 100, None);
        cluster.barrier();
    }
    let epoch = {
        let id = cluster.topic(owner, 0);
        cluster.shards[owner].broker.epoch(id).unwrap()
    };
    let starts = [
        (Start::Earliest, 9),
        (Start::Last(3), 18),
        (Start::At { epoch, sequence: 15 }, 15),
        (Start::At { epoch, sequence: 4 }, 9),
        (Start::At { epoch: !epoch, sequence: 15 }, 9),
        (Start::At { epoch, sequence: 100 }, 21),
    ];
    for (from, first) in starts {
        for shard in [owner, other, far] {
            let at = cluster.join_from(shard, 0, Policy::DropNew, from);
            cluster.barrier();
            let peer = &cluster.shards[shard].peers[at];
            assert_eq!(peer.start, Some(first), "{from:?} on shard {shard}");
            let seqs: Vec<u64> = peer.received.iter().map(|n| cluster.order[n]).collect();
            assert_eq!(seqs, (first..21).collect::<Vec<u64>>(), "{from:?} on shard {shard}");
            let gone: Vec<u64> = peer.lost.iter().copied().collect();
            let wanted = match from {
                Start::At { epoch: of, .. } if of != epoch => 1,
                Start::At { sequence, .. } => sequence.min(first),
                _ => first,
            };
            assert_eq!(gone, (wanted..first).collect::<Vec<u64>>(), "{from:?} on shard {shard}");
            cluster.leave(shard, at);
            cluster.barrier();
        }
    }
}

#[test]
fn whoever_joins_in_the_middle_of_a_loss_learns_of_the_rest() {
    let mut cluster = Cluster::new(&Limits { mesh_depth: 1, ..lossless() }, 100);
    let (owner, other) = owner_and_other(0);
    cluster.join(other, 0, Policy::DropNew);
    cluster.barrier();
    cluster.wire = 0;
    let [from, to] = [owner, other].map(|shard| u32::try_from(shard).unwrap());
    for _ in 0..4 {
        let _ = cluster.publish(owner, 0, 100, None);
    }
    let late = cluster.join_from(other, 0, Policy::DropNew, Start::Last(1));
    let fetch = cluster.shards[other].broker.poll_parcel(from).expect("it asks");
    cluster.shards[owner].broker.receive(to, fetch);
    for _ in 0..4 {
        let _ = cluster.publish(owner, 0, 100, None);
    }
    cluster.wire = 100;
    cluster.send(owner);
    cluster.heal();
    let peer = &cluster.shards[other].peers[late];
    let lost: Vec<u64> = peer.lost.iter().copied().collect();
    assert_eq!((peer.start, peer.received.len(), lost), (Some(4), 1, [5, 6, 7, 8].to_vec()));
    let books = cluster.shards[other].broker.sub_books(peer.sub).unwrap();
    assert_eq!(books.dropped, Tally { records: 4, bytes: 400 });
}

#[test]
fn a_start_in_the_past_that_a_shutdown_cuts_short_is_told_where_it_is() {
    let mut cluster = Cluster::new(&Limits { shutdown_grace_ms: 0, ..lossless() }, 100);
    let (owner, other) = owner_and_other(0);
    cluster.join(other, 0, Policy::DropNew);
    cluster.barrier();
    let _ = cluster.publish(owner, 0, 100, None);
    cluster.barrier();
    let late = cluster.join_from(other, 0, Policy::DropNew, Start::Earliest);
    assert_eq!(cluster.shards[other].peers[late].start, None, "the owner has not answered");
    let broker = &mut cluster.shards[other].broker;
    broker.shutdown();
    broker.advance(Instant::from_millis(1));
    cluster.settle(other);
    assert_eq!(cluster.shards[other].peers[late].start, Some(2));
}

/// Six batches, of which the second and the fourth are kept, also when another shard forwards them.
fn with_holes(by: usize) -> Cluster {
    let mut cluster = Cluster::new(&Limits { retention_records: 0, ..lossless() }, 100);
    for keep in [Keep::No, newest(9), Keep::Default, newest(9), Keep::No, Keep::No] {
        cluster.keep = keep;
        let _ = cluster.publish(by, 0, 100, None);
        cluster.barrier();
    }
    cluster
}

#[test]
fn what_was_not_kept_is_missing_from_the_past_of_every_shard() {
    let (owner, other) = owner_and_other(0);
    for shard in [owner, other] {
        for (from, start, due, lost) in [
            (Start::Earliest, 2, vec![2, 4, 7], vec![]),
            (Start::Last(2), 2, vec![2, 4, 7], vec![]),
            (Start::Last(1), 4, vec![4, 7], vec![]),
            (Start::Tail, 7, vec![7], vec![]),
            (Start::At { epoch: 0, sequence: 1 }, 2, vec![2, 4, 7], vec![1, 3, 5, 6]),
        ] {
            let mut cluster = with_holes(other);
            let at = cluster.join_from(shard, 0, Policy::DropNew, from);
            cluster.barrier();
            cluster.keep = Keep::No;
            let _ = cluster.publish(owner, 0, 100, None);
            cluster.barrier();
            let peer = &cluster.shards[shard].peers[at];
            let seqs: Vec<u64> = peer.received.iter().map(|n| cluster.order[n]).collect();
            let gone: Vec<u64> = peer.lost.iter().copied().collect();
            let seen = (peer.start, seqs, gone);
            assert_eq!(seen, (Some(start), due, lost), "{from:?} on shard {shard}");
            assert!(
                cluster.shards[shard].broker.memory.iter().count() <= 2,
                "only the log is left"
            );
        }
    }
}

#[test]
fn the_host_hears_that_a_subscription_is_in_force_before_any_record_is_queued() {
    let (owner, other) = owner_and_other(0);
    let [from, to] = [owner, other].map(|shard| u32::try_from(shard).unwrap());
    for (start, has_past, records) in
        [(Start::Tail, false, 1), (Start::Last(1), true, 2), (Start::Earliest, true, 3)]
    {
        let mut cluster = with_holes(owner);
        cluster.wire = 0;
        cluster.join_from(other, 0, Policy::DropNew, start);
        // Until the owner has given all that it has to say, and a batch after that.
        for _ in 0..2 {
            while let Some(question) = cluster.shards[other].broker.poll_parcel(from) {
                cluster.shards[owner].broker.receive(to, question);
            }
            let topic = cluster.topic(other, 0);
            let is_member = cluster.shards[other].broker.epoch(topic).is_some();
            if start == Start::Tail || is_member {
                let _ = cluster.publish(owner, 0, 100, None);
            }
            while let Some(answer) = cluster.shards[owner].broker.poll_parcel(to) {
                cluster.shards[other].broker.receive(from, answer);
            }
            cluster.check(other);
            let Shard { broker, peers, .. } = &mut cluster.shards[other];
            if broker.start_of(peers[0].sub).is_some() {
                break;
            }
            assert_eq!(broker.has_past(peers[0].sub), None, "nobody has answered");
            let _ = broker.step(100);
        }
        let Shard { broker, peers, .. } = &mut cluster.shards[other];
        let Peer { sub, outlet, .. } = peers[0];
        assert_eq!(broker.step(100), Progress::More, "the host has to hear of it first");
        let joined = broker.poll();
        assert!(matches!(joined, Some(Effect::Notice(Notice::Joined { .. }))), "{joined:?}");
        assert_eq!(broker.has_past(sub), Some(has_past), "{start:?}");
        broker.send(outlet, Bytes::from_static(b"confirmed"), Lane::InLine).unwrap();
        let _ = broker.step(100);
        let Some(Effect::Write(offer)) = broker.poll() else { panic!("nothing to write") };
        let sizes: Vec<usize> = broker.frames(offer).map(<[u8]>::len).collect();
        assert_eq!(sizes, [&[9][..], &[100; 3][..records]].concat(), "{start:?}");
    }
}
