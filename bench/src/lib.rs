//! What the benches and the counted runs share: a broker with an audience, and a host that writes
//! at once.

use bytes::Bytes;
use sluicegate_core::{
    Ack, Broker, ConnId, Effect, Limits, Message, Pipe, Policy, TopicId, Verdict, Wish,
};
use std::hint::black_box;

/// One source, one topic and its audience, each subscriber on a connection of its own.
#[derive(Debug)]
pub struct Bed {
    broker: Broker,
    source: ConnId,
    topic: TopicId,
    frame: Bytes,
}

impl Bed {
    /// Everybody reads.
    pub fn new(audience: u32) -> Self {
        let mut broker = Broker::new(Limits::default(), 1);
        let tenant = broker.tenant(1).expect("a first tenant");
        let topic = broker.topic(tenant, "topic").expect("a first topic");
        let source = broker.open(tenant).expect("a first connection");
        for _ in 0..audience {
            let conn = broker.open(tenant).expect("within the limit");
            let outlet = broker.outlet(conn, Pipe::Shared).expect("an open connection");
            broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).expect("allowed");
        }
        Self { broker, source, topic, frame: Bytes::from(vec![b'x'; 128]) }
    }

    /// The same, and nobody reads: every queue is at its limit.
    pub fn dead(audience: u32) -> Self {
        let mut bed = Self::new(audience);
        for _ in 0..2_000 {
            bed.publish(1);
            bed.run(0);
        }
        bed
    }

    /// Publishes that many records of 128 bytes.
    pub fn publish(&mut self, times: u64) {
        for _ in 0..times {
            let frame = self.frame.clone();
            let message = Message { frame, records: 1, ack: Ack::None, except: None };
            let verdict = self.broker.publish(self.source, self.topic, message);
            assert!(matches!(verdict, Verdict::Queued(_)), "{verdict:?}");
        }
    }

    /// Steps and writes until nothing is left; every transport takes `room` bytes of an offer.
    pub fn run(&mut self, room: u64) {
        while self.broker.next_deadline() == Some(self.broker.now()) {
            let _ = self.broker.step(u32::MAX);
            while let Some(effect) = self.broker.poll() {
                if let Effect::Write(offer) = effect {
                    for frame in self.broker.frames(offer) {
                        black_box(frame);
                    }
                    self.broker.sent(offer, offer.bytes.min(room));
                }
            }
        }
    }
}
