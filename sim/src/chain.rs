//! The chain of checkpoints as people see it: what each place decides, what bounds it, and what a
//! run shows of it. The report draws it, `explain` prints it.

use crate::fact::name_cell;
use crate::report::Report;
use crate::scenario::{Client, Story};
use serde_json::{Value, json};
use sluicegate_core::{Books, Pipe, Place, Reason, Tally};

/// One place where records can wait or end.
#[derive(Clone, Copy, Debug)]
pub struct Checkpoint {
    /// Its sign in pictures and tables.
    pub mark: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Where it is: with the publisher, in the broker, with the subscriber, or over all.
    pub side: &'static str,
    /// What is held there.
    pub holds: &'static str,
    /// What happens when it is full.
    pub when_full: &'static str,
    /// The keys of `[limits]` that bound it.
    pub keys: &'static [&'static str],
    /// The ledger's place, if it has one of its own.
    pub place: Option<Place>,
}

/// Every checkpoint, in the order in which a record meets them; then what watches over all.
pub const CHECKPOINTS: &[Checkpoint] = &[
    Checkpoint {
        mark: "1",
        name: "window",
        side: "publisher",
        holds: "publish bytes in flight of one client",
        when_full: "the client waits, first come first served",
        keys: &["publish_inflight_bytes", "publish_waiters"],
        place: Some(Place::Window),
    },
    Checkpoint {
        mark: "2",
        name: "queue",
        side: "publisher",
        holds: "publishes queued for one worker of a client",
        when_full: "the client waits",
        keys: &["publish_queue_depth"],
        place: Some(Place::Queue),
    },
    Checkpoint {
        mark: "3",
        name: "admission",
        side: "broker",
        holds: "publish bytes in flight: shard, tenant, connection",
        when_full: "unacked: shed, or the source waits; acked: refused, or waits with a deadline",
        keys: &[
            "max_frame_bytes",
            "pub_conn_inflight_bytes",
            "pub_inflight_bytes",
            "pub_tenant_inflight_bytes",
        ],
        place: Some(Place::Admission),
    },
    Checkpoint {
        mark: "4",
        name: "schedule",
        side: "broker",
        holds: "publish jobs, taken fairly from each tenant",
        when_full: "as 3; a tenant below its guarantee pushes out the newest of the one above",
        keys: &[
            "lossless",
            "pub_ingress_wait",
            "pub_queue_depth",
            "pub_queue_total",
            "publish_queue_wait_ms",
            "quantum_bytes",
        ],
        place: Some(Place::Schedule),
    },
    Checkpoint {
        mark: "M",
        name: "mesh",
        side: "broker",
        holds: "batches on their way to another shard",
        when_full: "the lane waits for credit; past the ring's depth a batch is dropped",
        keys: &["mesh_depth", "shards"],
        place: Some(Place::Mesh),
    },
    Checkpoint {
        mark: "5",
        name: "backlog",
        side: "broker",
        holds: "what waits for one subscription (shared pipes: for one connection)",
        when_full: "the subscription's policy, once its peer takes less than it is offered",
        keys: &[
            "allow_block",
            "block_deadline_ms",
            "high_water_bytes",
            "retention_bytes",
            "retention_ms",
            "retention_records",
            "slow_consumer_after_ms",
            "subscription_batches",
            "subscription_bytes",
        ],
        place: Some(Place::Backlog),
    },
    Checkpoint {
        mark: "6",
        name: "egress",
        side: "broker",
        holds: "what is being written to one peer",
        when_full: "waits, so that 5 decides; with `egress_shed` it drops by the policy of 5",
        keys: &[
            "control_reserve_bytes",
            "egress_batches",
            "egress_bytes",
            "egress_shed",
            "offer_batches",
            "offer_bytes",
        ],
        place: Some(Place::Egress),
    },
    Checkpoint {
        mark: "7",
        name: "inbox",
        side: "subscriber",
        holds: "events that a client's application has not taken",
        when_full: "the subscription's policy",
        keys: &["subscription_queue"],
        place: Some(Place::Inbox),
    },
    Checkpoint {
        mark: "B",
        name: "memory",
        side: "over all",
        holds: "bytes really held by the shards",
        when_full: "bands: refusing peers may hold half, a sixteenth, then nothing is admitted",
        keys: &["band_dwell_ms", "memory_budget", "pressure_threshold_percent"],
        place: Some(Place::Memory),
    },
    Checkpoint {
        mark: "S",
        name: "staleness",
        side: "over all",
        holds: "nothing: it looks at how long records wait for one peer",
        when_full: "what waited more than twice the target in a standing queue is dropped",
        keys: &["codel_interval_ms", "codel_target_ms"],
        place: None,
    },
    Checkpoint {
        mark: "T",
        name: "table",
        side: "over all",
        holds: "connections, subscriptions, topics, and the time to shut down",
        when_full: "refused; what is left at the end of the grace is dropped",
        keys: &["max_connections", "max_subscriptions", "max_topics", "shutdown_grace_ms"],
        place: Some(Place::Table),
    },
];

/// The most that a place held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// What.
    pub what: &'static str,
    /// How much of it.
    pub value: u64,
    /// `bytes`, `connections`, `events`, `jobs`, `parcels` or `publishes`.
    pub unit: &'static str,
    /// What was allowed, if there is one number for it.
    pub limit: Option<u64>,
}

/// Records that ended at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// `dropped`, `evicted`, `refused` or `shed`.
    pub kind: &'static str,
    /// The cell of the ledger.
    pub cell: (Place, Reason),
    /// How many.
    pub tally: Tally,
}

impl Checkpoint {
    /// Whether a cell of the ledger belongs here.
    pub fn owns(&self, (place, reason): (Place, Reason)) -> bool {
        match self.place {
            None => reason == Reason::Stale,
            Some(own) => own == place && reason != Reason::Stale,
        }
    }

    /// What ended here.
    pub fn losses(&self, books: &Books) -> Vec<Loss> {
        let tables = [
            ("dropped", &books.dropped),
            ("evicted", &books.evicted),
            ("refused", &books.refused),
            ("shed", &books.shed),
        ];
        let all = tables.into_iter().flat_map(|(kind, table)| {
            table.iter().map(move |(p, r, tally)| Loss { kind, cell: (p, r), tally })
        });
        all.filter(|loss| self.owns(loss.cell)).collect()
    }

    /// The most that was held here.
    pub fn held(&self, story: &Story, report: &Report) -> Vec<Held> {
        let limits = &story.limits;
        let tops = report.watched.as_ref().map(|watched| watched.tops);
        let held = |what, value, unit, limit| vec![Held { what, value, unit, limit }];
        let peaks = &report.peaks;
        match (self.mark, tops) {
            ("1", Some(tops)) => held("by one publisher", tops.window, "bytes", window(story)),
            ("2", Some(tops)) if with_client(story) => {
                held("for one worker", tops.queue, "publishes", Some(limits.publish_queue_depth))
            }
            ("3", Some(tops)) => {
                held("in flight", tops.inflight, "bytes", Some(limits.pub_inflight_bytes))
            }
            ("4", _) => {
                let most = Some(limits.pub_queue_total);
                let mut rows = held("queued", peaks.queued, "jobs", most);
                rows.extend(held("parked", peaks.parked, "publishes", None));
                rows
            }
            ("M", Some(tops)) if limits.shards > 1 => {
                held("on one way", tops.mesh, "parcels", Some(story.mesh.ring.into()))
            }
            ("5", _) => held("for one peer", peaks.backlog, "bytes", backlog_limit(story)),
            ("6", Some(tops)) => held("in one transport", tops.transport, "bytes", None),
            ("7", Some(tops)) if story.subscribers.iter().any(|group| group.takes.is_some()) => {
                held("in one inbox", tops.inbox, "events", Some(limits.subscription_queue))
            }
            ("B", _) => held("held", peaks.held, "bytes", Some(limits.memory_budget)),
            ("T", _) => {
                let publishers = story.publishers.iter().map(|group| u64::from(group.count));
                let subscribers = story.subscribers.iter().map(|group| u64::from(group.count));
                let peers = publishers.chain(subscribers).sum();
                held("open", peers, "connections", Some(limits.max_connections))
            }
            _ => Vec::new(),
        }
    }

    /// What is said of it when nothing is held there.
    fn note(&self, story: &Story) -> String {
        match self.mark {
            "M" if story.limits.shards == 1 => "one shard".to_owned(),
            "2" if !with_client(story) => "no client".to_owned(),
            "7" => "read at once".to_owned(),
            "S" if story.limits.codel_target_ms == 0 => "off".to_owned(),
            "S" => format!("target {} ms", story.limits.codel_target_ms),
            _ => "nothing held".to_owned(),
        }
    }

    /// The place with what a run shows of it, for the page.
    pub fn json(&self, story: &Story, report: &Report) -> Value {
        let held = self.held(story, report).into_iter().map(|held| {
            let Held { what, value, unit, limit } = held;
            json!({ "what": what, "value": value, "unit": unit, "limit": limit })
        });
        let losses = self.losses(&report.books).into_iter().map(|loss| {
            json!({
                "kind": loss.kind,
                "cell": name_cell(loss.cell.0, loss.cell.1),
                "reason": loss.cell.1.name(),
                "records": loss.tally.records,
                "bytes": loss.tally.bytes,
            })
        });
        json!({
            "mark": self.mark,
            "name": self.name,
            "side": self.side,
            "holds": self.holds,
            "when_full": self.when_full,
            "held": held.collect::<Vec<_>>(),
            "note": self.note(story),
            "losses": losses.collect::<Vec<_>>(),
        })
    }
}

/// Whether a publisher goes through the client, with its window and queues.
fn with_client(story: &Story) -> bool {
    story.publishers.iter().any(|group| group.client != Client::Raw)
}

/// The widest window: a client's, or what a transport takes.
fn window(story: &Story) -> Option<u64> {
    let windows = story.publishers.iter().map(|group| match group.client {
        Client::Raw => group.line.buffer,
        Client::Each | Client::One => story.limits.publish_inflight_bytes,
    });
    windows.max()
}

/// The widest limit on what may wait for one peer.
fn backlog_limit(story: &Story) -> Option<u64> {
    let limits = &story.limits;
    let groups = story.subscribers.iter().map(|group| match group.pipe {
        Pipe::Shared => limits.high_water_bytes,
        Pipe::Single if group.wish.bytes == 0 => limits.subscription_bytes,
        Pipe::Single => group.wish.bytes.min(limits.subscription_bytes),
    });
    groups.max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_core::limits::KEYS;

    #[test]
    fn every_key_bounds_one_place_and_every_key_named_is_there() {
        let mut named: Vec<&str> = CHECKPOINTS.iter().flat_map(|c| c.keys).copied().collect();
        named.sort_unstable();
        let known: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
        assert_eq!(named, known);
    }

    #[test]
    fn every_cell_of_the_ledger_belongs_to_one_place() {
        for place in Place::ALL {
            for reason in Reason::ALL {
                let owners: Vec<&str> = CHECKPOINTS
                    .iter()
                    .filter(|checkpoint| checkpoint.owns((place, reason)))
                    .map(|checkpoint| checkpoint.mark)
                    .collect();
                assert_eq!(owners.len(), 1, "{}: {owners:?}", name_cell(place, reason));
            }
        }
    }
}
