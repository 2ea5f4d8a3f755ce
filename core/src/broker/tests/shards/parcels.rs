//! What shards tell each other: each thing once, and nothing that nobody needs.

use super::*;

/// Takes everything that one shard has for another.
fn drain(cluster: &mut Cluster, from: usize, to: usize) -> Vec<Parcel> {
    let to = u32::try_from(to).unwrap();
    core::iter::from_fn(|| cluster.shards[from].broker.poll_parcel(to)).collect()
}

/// Hands parcels in, and leaves what is said to them where it is.
fn hand(cluster: &mut Cluster, from: usize, to: usize, parcels: Vec<Parcel>) {
    let from = u32::try_from(from).unwrap();
    for parcel in parcels {
        cluster.shards[to].broker.receive(from, parcel);
        cluster.settle(to);
    }
}

/// A cluster in which `other` follows the first topic, and parcels stay where they are.
fn followed(limits: &Limits) -> (Cluster, usize, usize) {
    let mut cluster = Cluster::new(limits, 100);
    let (owner, other) = owner_and_other(0);
    cluster.join(other, 0, Policy::DropNew);
    cluster.barrier();
    cluster.wire = 0;
    (cluster, owner, other)
}

#[test]
fn an_outlet_of_the_same_number_on_another_shard_is_not_left_out() {
    let mut cluster = Cluster::new(&lossless(), 100);
    let (owner, other) = owner_and_other(0);
    let [_, own] = [owner, other].map(|shard| cluster.join(shard, 0, Policy::DropNew));
    cluster.barrier();
    let same = [owner, other].map(|shard| cluster.shards[shard].peers[0].outlet);
    assert_eq!(same[0], same[1], "else this shows nothing");
    let _ = cluster.publish(other, 0, 100, Some(own));
    cluster.barrier();
    let received = |shard: usize| cluster.shards[shard].peers[0].received.len();
    assert_eq!((received(owner), received(other)), (1, 0));
}

#[test]
fn a_publisher_is_left_out_after_a_loss_as_well() {
    let limits = Limits { mesh_depth: 2, ..lossless() };
    let (mut cluster, owner, other) = followed(&limits);
    for _ in 0..3 {
        let _ = cluster.publish(owner, 0, 100, None);
    }
    let before = drain(&mut cluster, owner, other).into_iter().take(2).collect();
    let _ = cluster.publish(other, 0, 100, Some(0));
    let forward = drain(&mut cluster, other, owner);
    hand(&mut cluster, other, owner, forward);
    let after = drain(&mut cluster, owner, other);
    hand(&mut cluster, owner, other, before);
    hand(&mut cluster, owner, other, after);
    let peer = &cluster.shards[other].peers[0];
    assert_eq!(peer.received.len(), 2, "its own is not among them");
    assert_eq!(peer.lost.iter().copied().collect::<Vec<u64>>(), [3]);
}

#[test]
fn a_shard_wants_no_parcels_while_it_has_as_many_batches_as_a_queue_holds() {
    let limits = Limits { mesh_depth: 3, ..lossless() };
    let (mut cluster, owner, other) = followed(&limits);
    for _ in 0..3 {
        let _ = cluster.publish(owner, 0, 100, None);
    }
    let from = u32::try_from(owner).unwrap();
    let parcels = drain(&mut cluster, owner, other);
    let broker = &mut cluster.shards[other].broker;
    let wants = parcels.into_iter().map(|parcel| {
        broker.receive(from, parcel);
        broker.wants_parcels()
    });
    assert_eq!(wants.collect::<Vec<_>>(), [true, true, false]);
    cluster.settle(other);
    assert!(cluster.shards[other].broker.wants_parcels());
}

#[test]
fn nobody_is_answered_who_did_not_ask_or_is_gone() {
    let mut cluster = Cluster::new(&lossless(), 100);
    let (_, other) = owner_and_other(0);
    let topic = cluster.topic(other, 0);
    let Shard { broker, tenant, source, .. } = &mut cluster.shards[other];
    let gone = broker.open(*tenant).unwrap();
    for (conn, ack) in [(*source, Ack::None), (gone, Ack::Wait)] {
        let frame = Bytes::from_static(b"........");
        let message = Message { frame, records: 1, ack, except: None, keep: Keep::Default };
        assert!(matches!(broker.publish(conn, topic, message), Verdict::Queued(_)));
    }
    cluster.settle(other);
    cluster.shards[other].broker.gone(gone);
    // A notice for either would be an answer that nobody waits for, which the cluster refuses.
    cluster.barrier();
    assert_eq!(cluster.sum(|books| books.sequenced).records, 2);
}

#[test]
fn each_loss_is_told_once_on_every_shard() {
    let limits = Limits { mesh_depth: 2, ..lossless() };
    let mut cluster = Cluster::new(&limits, 100);
    let (owner, first) = owner_and_other(0);
    let others = [first, (owner + 2) % SHARDS];
    // Alone in the first three rounds, and one of two in the next.
    for (round, others) in (1..).zip([&others[..1]; 3].into_iter().chain([&others[..]; 3])) {
        cluster.wire = 100;
        for &other in others {
            if cluster.shards[other].peers.is_empty() {
                cluster.join(other, 0, Policy::DropNew);
            }
        }
        cluster.barrier();
        cluster.wire = 0;
        for _ in 0..10 {
            let _ = cluster.publish(owner, 0, 100, None);
        }
        for &other in others {
            let parcels = drain(&mut cluster, owner, other);
            assert_eq!(parcels.len(), 3, "two batches, and where the topic is: {round}");
            hand(&mut cluster, owner, other, parcels);
            let peer = &cluster.shards[other].peers[0];
            assert_eq!(peer.lost.len(), 4 * peer.received.len(), "{round}");
        }
    }
    cluster.wire = 100;
    cluster.heal();
}

#[test]
fn where_a_topic_is_is_no_news_after_a_batch_that_showed_it() {
    let limits = Limits { mesh_depth: 2, ..lossless() };
    let (mut cluster, owner, other) = followed(&limits);
    for _ in 0..3 {
        let _ = cluster.publish(owner, 0, 100, None);
    }
    let to = u32::try_from(other).unwrap();
    let mut parcels = Vec::from_iter(cluster.shards[owner].broker.poll_parcel(to));
    let _ = cluster.publish(owner, 0, 100, None);
    parcels.extend(drain(&mut cluster, owner, other));
    assert_eq!(parcels.len(), 4, "three batches, and where the topic is");
    hand(&mut cluster, owner, other, parcels);
    let peer = &cluster.shards[other].peers[0];
    assert_eq!((peer.received.len(), peer.lost.len()), (3, 1));
}

#[test]
fn a_shard_that_comes_back_is_told_of_its_next_loss() {
    let limits = Limits { mesh_depth: 2, ..lossless() };
    let (mut cluster, owner, other) = followed(&limits);
    for _ in 0..2 {
        for _ in 0..5 {
            let _ = cluster.publish(owner, 0, 100, None);
        }
        // It leaves before it is told, and joins again.
        cluster.leave(other, 0);
        let off = drain(&mut cluster, other, owner);
        hand(&mut cluster, other, owner, off);
        let _ = drain(&mut cluster, owner, other);
        cluster.join(other, 0, Policy::DropNew);
        let on = drain(&mut cluster, other, owner);
        hand(&mut cluster, other, owner, on);
        let joined = drain(&mut cluster, owner, other);
        assert_eq!(joined.len(), 1);
        hand(&mut cluster, owner, other, joined);
    }
    for _ in 0..5 {
        let _ = cluster.publish(owner, 0, 100, None);
    }
    let parcels = drain(&mut cluster, owner, other);
    assert_eq!(parcels.len(), 3, "two batches, and where the topic is");
    hand(&mut cluster, owner, other, parcels);
    assert_eq!(cluster.shards[other].peers[0].lost.len(), 3);
}

#[test]
fn nothing_is_told_that_the_other_side_knows() {
    let (mut cluster, owner, other) = followed(&lossless());
    cluster.join(other, 0, Policy::DropNew);
    assert_eq!(drain(&mut cluster, other, owner).len(), 0, "the topic is wanted already");
    let _ = cluster.publish(owner, 0, 100, None);
    let batch = drain(&mut cluster, owner, other);
    hand(&mut cluster, owner, other, batch);
    assert_eq!(drain(&mut cluster, other, owner).len(), 0, "no credit is owed without `block`");
    let block = cluster.join(other, 0, Policy::Block);
    let asks = drain(&mut cluster, other, owner);
    hand(&mut cluster, other, owner, asks);
    let joined = drain(&mut cluster, owner, other);
    assert_eq!(joined.len(), 1);
    hand(&mut cluster, owner, other, joined);
    cluster.leave(other, block);
    let tells = drain(&mut cluster, other, owner);
    assert_eq!(tells.len(), 1);
    hand(&mut cluster, other, owner, tells);
    assert_eq!(drain(&mut cluster, owner, other).len(), 0, "it asked for nothing");
}

#[test]
fn a_topic_that_was_refused_asks_for_nothing_and_can_be_joined_later() {
    let limits = Limits { max_topics: 1, ..Limits::default() };
    let mut cluster = Cluster::new(&limits, 100);
    let (owner, other) = owner_and_other(0);
    let taken = (1..TOPICS.len()).find(|topic| owner_and_other(*topic).0 == owner).unwrap();
    let there = cluster.join(owner, taken, Policy::DropNew);
    cluster.join(other, 0, Policy::DropNew);
    cluster.barrier();
    cluster.shards[other].peers.clear();
    assert!(cluster.wires.values().all(VecDeque::is_empty));
    cluster.leave(owner, there);
    cluster.join(other, 0, Policy::DropNew);
    cluster.barrier();
    assert_eq!(cluster.shards[other].peers[0].start, Some(1));
}

#[test]
fn a_block_subscription_waits_until_the_owner_sends_by_credit() {
    let mut cluster = Cluster::new(&lossless(), 0);
    let (owner, other) = owner_and_other(0);
    for policy in [Policy::DropNew, Policy::Block] {
        cluster.join(other, 0, policy);
    }
    let starts = |cluster: &Cluster| {
        let peers = &cluster.shards[other].peers;
        [peers[0].start, peers[1].start]
    };
    for after in [[Some(1), None], [Some(1), Some(1)]] {
        let asks = drain(&mut cluster, other, owner);
        assert_eq!(asks.len(), 1);
        hand(&mut cluster, other, owner, asks);
        let answers = drain(&mut cluster, owner, other);
        hand(&mut cluster, owner, other, answers);
        assert_eq!(starts(&cluster), after);
    }
}

#[test]
fn credit_that_is_owed_to_a_topic_nobody_wants_is_forgotten_and_no_other() {
    let limits = Limits { memory_budget: 3 << 20, band_dwell_ms: 0, ..lossless() };
    let mut cluster = Cluster::new(&limits, 100);
    let (owner, other) = owner_and_other(0);
    let second = (1..TOPICS.len()).find(|topic| owner_and_other(*topic).0 == owner).unwrap();
    let leaves = [0, second].map(|topic| cluster.join(other, topic, Policy::Block))[0];
    cluster.barrier();
    let unfinished = |cluster: &mut Cluster, bytes| {
        let Shard { broker, source, .. } = &mut cluster.shards[other];
        broker.reassembly(*source, bytes).unwrap();
        cluster.settle(other);
    };
    unfinished(&mut cluster, 3 << 20);
    for topic in [0, second] {
        let _ = cluster.publish(owner, topic, 100, None);
    }
    cluster.barrier();
    cluster.wire = 0;
    cluster.leave(other, leaves);
    assert_eq!(drain(&mut cluster, other, owner).len(), 1, "that it wants the one no more");
    unfinished(&mut cluster, 0);
    let paid = drain(&mut cluster, other, owner);
    let topics: Vec<&str> = paid.iter().map(|parcel| &*parcel.topic).collect();
    assert_eq!(topics, [TOPICS[second]]);
}

#[test]
fn credit_comes_back_as_it_was_spent() {
    let mut cluster = Cluster::new(&lossless(), 100);
    let (owner, other) = owner_and_other(0);
    cluster.join(other, 0, Policy::Block);
    cluster.barrier();
    cluster.wire = 0;
    for _ in 0..66 {
        let _ = cluster.publish(owner, 0, 100, None);
    }
    let mut sent = drain(&mut cluster, owner, other);
    assert_eq!(sent.len(), 64);
    sent.truncate(1);
    hand(&mut cluster, owner, other, sent);
    let paid = drain(&mut cluster, other, owner);
    assert_eq!(paid.len(), 1);
    hand(&mut cluster, other, owner, paid);
    assert_eq!(drain(&mut cluster, owner, other).len(), 1, "there is credit for one");
    let Shard { broker, tenant, .. } = &cluster.shards[owner];
    let topic = broker.find_topic(*tenant, TOPICS[0]).unwrap();
    let credit = &broker.topics[topic.index].credits[0];
    let spent = 64 * crate::memory::cost(100, 1);
    assert_eq!((credit.batches, credit.bytes), (0, crate::mesh::CREDIT_BYTES - spent));
}

#[test]
fn a_topic_is_wanted_while_somebody_catches_up_with_it() {
    let (mut cluster, owner, other) = followed(&Limits { retention_records: 9, ..lossless() });
    let _ = cluster.publish(owner, 0, 100, None);
    cluster.join_from(other, 0, Policy::DropNew, Start::Earliest);
    cluster.leave(other, 0);
    let asks = drain(&mut cluster, other, owner);
    assert_eq!(asks.len(), 1, "what it needs of the past, and not that it wants no more");
    hand(&mut cluster, other, owner, asks);
    cluster.wire = 100;
    cluster.send(owner);
    cluster.heal();
    assert_eq!(cluster.shards[other].peers[0].received.len(), 1);
}
