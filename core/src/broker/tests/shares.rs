//! Ten virtual seconds of two tenants that always have work: their shares of cost.

use super::*;

/// What a tenant publishes.
#[derive(Clone, Copy)]
struct Load {
    weight: u32,
    topics: u32,
    bytes: usize,
    /// Subscribers of each of its topics.
    audience: u32,
    /// Virtual millisecond in which it begins.
    from: u64,
}

const PLAIN: Load = Load { weight: 1, topics: 1, bytes: 1_024, audience: 0, from: 0 };

struct Runner {
    tenant: TenantId,
    source: ConnId,
    topics: Vec<TopicId>,
    load: Load,
    next: usize,
    sequenced: u64,
}

impl Runner {
    fn new(bench: &mut Bench, load: Load) -> Self {
        let tenant = bench.broker.tenant(load.weight).unwrap();
        let source = bench.broker.open(tenant).unwrap();
        let topics = (0..load.topics).map(|n| {
            let topic = bench.broker.topic(tenant, &format!("topic {n}")).unwrap();
            for _ in 0..load.audience {
                let conn = bench.broker.open(tenant).unwrap();
                let outlet = bench.broker.outlet(conn, Pipe::Shared).unwrap();
                bench.broker.subscribe(outlet, topic, Wish::policy(Policy::DropOld)).unwrap();
            }
            topic
        });
        let topics = topics.collect();
        Self { tenant, source, topics, load, next: 0, sequenced: 0 }
    }

    /// Keeps work queued, as much as it is given.
    fn refill(&mut self, bench: &mut Bench) {
        loop {
            let frame = Bytes::from(alloc::vec![b'x'; self.load.bytes]);
            let topic = self.topics[self.next % self.topics.len()];
            let message =
                Message { frame, records: 1, ack: Ack::Now, except: None, keep: Keep::Default };
            if !matches!(bench.broker.publish(self.source, topic, message), Verdict::Queued(_)) {
                return;
            }
            self.next += 1;
        }
    }

    fn cost(&mut self, bench: &Bench) -> u64 {
        let sequenced = bench.broker.tenant_books(self.tenant).unwrap().sequenced.records;
        let jobs = sequenced - core::mem::replace(&mut self.sequenced, sequenced);
        jobs * (self.load.bytes as u64 + 256 + 64 * u64::from(self.load.audience))
    }
}

/// Costs that ran in ten virtual seconds, and that of the first while the second one was idle.
fn run(loads: [Load; 2]) -> ([u64; 2], u64) {
    let mut bench = Bench::new(Limits::default());
    let mut runners = loads.map(|load| Runner::new(&mut bench, load));
    let (mut shares, mut alone) = ([0, 0], 0);
    for ms in 1..=10_000 {
        bench.millis += 1;
        bench.broker.advance(Instant::from_millis(bench.millis));
        let both = ms > loads[0].from.max(loads[1].from);
        for runner in &mut runners {
            if ms > runner.load.from {
                runner.refill(&mut bench);
            }
        }
        let _ = bench.broker.step(8);
        while let Some(effect) = bench.broker.poll() {
            if let Effect::Write(offer) = effect {
                bench.broker.sent(offer, offer.bytes);
            }
        }
        let costs = [0, 1].map(|at| runners[at].cost(&bench));
        if both {
            shares = [shares[0] + costs[0], shares[1] + costs[1]];
        } else {
            alone += costs[0];
        }
    }
    bench.check();
    (shares, alone)
}

#[test]
fn two_tenants_share_ten_seconds_by_weight_whatever_their_shape() {
    let shapes: [(&str, [Load; 2], [u64; 2]); 7] = [
        ("alike", [PLAIN, PLAIN], [1, 1]),
        ("1 topic and 64 topics", [PLAIN, Load { topics: 64, ..PLAIN }], [1, 1]),
        ("1 KiB and 64 KiB", [PLAIN, Load { bytes: 64 << 10, ..PLAIN }], [1, 1]),
        ("both", [PLAIN, Load { topics: 64, bytes: 64 << 10, ..PLAIN }], [1, 1]),
        ("weights", [PLAIN, Load { weight: 3, ..PLAIN }], [1, 3]),
        ("no audience and 5", [PLAIN, Load { audience: 5, ..PLAIN }], [1, 1]),
        ("a late one", [PLAIN, Load { from: 5_000, ..PLAIN }], [1, 1]),
    ];
    for (name, loads, weights) in shapes {
        let (shares, alone) = run(loads);
        let parts = [shares[0] * weights[1], shares[1] * weights[0]];
        let (least, most) = (parts[0].min(parts[1]), parts[0].max(parts[1]));
        assert!(least * 100 >= most * 95, "{name}: {shares:?} for weights {weights:?}");
        let idle = loads[1].from > 0;
        assert_eq!(idle, alone > 0, "{name}: what nobody else wants is not wasted");
    }
}
