//! Bytes that a million of each hold, counted by the allocator: not estimated from sizes.

use allocation_counter::measure;
use sluicegate_bench::beds::{WISH, frame, outlet, publish, write};
use sluicegate_core::{Ack, Broker, Limits, OutletId, TenantId, TopicId, Verdict};

const MILLION: u32 = 1_000_000;
const THOUSAND: u32 = 1_000;

fn main() {
    println!("{:<42} {:>10} {:>8} {:>12}", "a million of", "bytes each", "charged", "allocations");
    idle_connections();
    subscriptions();
    topics();
    deliveries();
}

/// A shard without narrow limits.
struct Plain {
    broker: Broker,
    tenant: TenantId,
}

impl Plain {
    fn new() -> Self {
        let limits = Limits {
            max_connections: 4_000_000,
            max_subscriptions: 16_000_000,
            max_topics: 4_000_000,
            memory_budget: 1 << 40,
            high_water_bytes: 1 << 30,
            ..Limits::default()
        };
        let mut broker = Broker::new(limits, 1);
        let tenant = broker.tenant(1).expect("a first tenant");
        Self { broker, tenant }
    }

    fn outlets(&mut self, count: u32) -> Vec<OutletId> {
        (0..count).map(|_| outlet(&mut self.broker, self.tenant)).collect()
    }

    fn topics(&mut self, count: u32) -> Vec<TopicId> {
        let name = |at| format!("topic-{at:06}");
        let topic = |at| self.broker.topic(self.tenant, &name(at)).expect("within the limit");
        (0..count).map(topic).collect()
    }

    fn subscribe(&mut self, outlet: OutletId, topic: TopicId) {
        self.broker.subscribe(outlet, topic, WISH).expect("within the limit");
    }

    /// Counts what `fill` keeps, and compares it with what the broker charges to its budget.
    fn report(mut self, what: &str, fill: impl FnOnce(&mut Self)) {
        let before = self.broker.held();
        let counted = measure(|| fill(&mut self));
        let charged = self.broker.held() - before;
        let each = |bytes: u64| format!("{}.{}", bytes / 1_000_000, bytes / 100_000 % 10);
        let kept = u64::try_from(counted.bytes_current).expect("it holds more than before");
        let (kept, charged, times) = (each(kept), each(charged), counted.count_current);
        println!("{what:<42} {kept:>10} {charged:>8} {times:>12}");
    }
}

fn idle_connections() {
    Plain::new().report("idle connections", |plain| {
        for _ in 0..MILLION {
            outlet(&mut plain.broker, plain.tenant);
        }
    });
}

fn subscriptions() {
    let mut plain = Plain::new();
    let (outlets, topics) = (plain.outlets(THOUSAND), plain.topics(THOUSAND));
    plain.report("subscriptions, 1,000 to a topic", |plain| {
        for topic in &topics {
            outlets.iter().for_each(|outlet| plain.subscribe(*outlet, *topic));
        }
    });
}

fn topics() {
    let mut plain = Plain::new();
    let outlet = plain.outlets(1)[0];
    plain.report("topics with one subscription each", |plain| {
        for at in 0..MILLION {
            let topic = plain.broker.topic(plain.tenant, &format!("topic-{at:06}"));
            plain.subscribe(outlet, topic.expect("within the limit"));
        }
    });
}

fn deliveries() {
    let mut plain = Plain::new();
    let (source, topic) = (plain.broker.open(plain.tenant), plain.topics(1)[0]);
    let source = (source.expect("within the limit"), topic);
    for outlet in plain.outlets(10 * THOUSAND) {
        plain.subscribe(outlet, topic);
    }
    write(&mut plain.broker, u64::MAX);
    let frame = frame();
    plain.report("queued deliveries, 100 in each queue", |plain| {
        for _ in 0..100 {
            let verdict = publish(&mut plain.broker, source, &frame, Ack::None);
            assert!(matches!(verdict, Verdict::Queued(_)), "{verdict:?}");
            let _ = plain.broker.step(u32::MAX);
        }
        assert_eq!(plain.broker.ledger().lag.records, u64::from(MILLION));
    });
}
