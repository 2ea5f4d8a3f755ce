//! Looks into the books: all of them, one connection's, and who loses most. Each loop reads its
//! own; who asked puts them together.

use sluicegate_core::{
    Backlog, Books, Broker, Instant, OutletId, Place, Reason, SubBooks, Tally, TenantId,
};
use sluicegate_host::metrics::{MAX_TENANT_LABELS, OTHERS};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The books of one shard, or of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sheet {
    /// How many shards.
    pub shards: u32,
    /// Of all tenants.
    pub books: Books,
    /// Of tenants that have any, by the ids of their apps: a hundred, and the others together.
    pub tenants: BTreeMap<String, Books>,
}

impl Sheet {
    /// Reads one shard. Cost: O(tenants * cells of the books).
    pub fn read(broker: &Broker, tenants: &[(&str, TenantId)]) -> Self {
        let mut pages = BTreeMap::new();
        let empty = Books::default();
        for (place, (id, tenant)) in tenants.iter().enumerate() {
            let Some(books) = broker.tenant_books(*tenant).filter(|books| **books != empty) else {
                continue;
            };
            let name = if place < MAX_TENANT_LABELS { id } else { OTHERS };
            *pages.entry(name.to_owned()).or_default() += books;
        }
        Self { shards: 1, books: broker.ledger().clone(), tenants: pages }
    }

    /// Adds what another shard has read.
    pub fn add(&mut self, other: &Self) {
        self.shards += other.shards;
        self.books += &other.books;
        for (id, books) in &other.tenants {
            *self.tenants.entry(id.clone()).or_default() += books;
        }
    }
}

/// Why a connection does or does not get messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The id of its app.
    pub app: String,
    /// Its event loop.
    pub shard: u32,
    /// What waits for it, over all its channels.
    pub queue: Backlog,
    /// Each of its channels. A connection has 200 at most.
    pub channels: Vec<ChannelAccount>,
}

/// What became of the events of one channel for one connection, since it subscribed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelAccount {
    /// Its name.
    pub channel: Arc<str>,
    /// The totals.
    pub books: SubBooks,
}

impl Account {
    /// Reads the account of an outlet; none when it has gone. Cost: O(its channels).
    pub fn read(broker: &Broker, app: &str, outlet: OutletId) -> Option<Self> {
        let queue = broker.backlog(outlet)?;
        let channels = broker.subs_of(outlet).filter_map(|(sub, topic)| {
            let (channel, books) = (broker.topic_name(topic)?, broker.sub_books(sub)?);
            Some(ChannelAccount { channel, books })
        });
        let channels = channels.collect();
        Some(Self { app: app.to_owned(), shard: broker.number(), queue, channels })
    }

    /// Sums up its channels: expected, delivered, dropped, lag.
    pub fn totals(&self) -> [Tally; 4] {
        let of = |field: fn(&SubBooks) -> Tally| {
            self.channels.iter().map(|channel| field(&channel.books)).sum()
        };
        [of(|it| it.expected), of(|it| it.delivered), of(|it| it.dropped), of(|it| it.lag)]
    }

    /// The answer in sentences: what happens to its messages now, and what has happened.
    pub fn why(&self) -> Vec<String> {
        let [expected, delivered, dropped, lag] = self.totals().map(|tally| tally.records);
        let mut why = Vec::new();
        if self.channels.is_empty() {
            why.push("it is in no channel: it has to subscribe first".to_owned());
        } else if expected == 0 {
            why.push("nothing was published to its channels since it subscribed".to_owned());
        }
        if self.queue.refusing {
            why.push(format!(
                "its transport takes nothing now, and {lag} events wait: the client does not read, \
                 or its network is slow"
            ));
        } else if lag > 0 {
            why.push(format!("{lag} events wait to be written"));
        }
        for (place, reason, channel) in self.last_drops() {
            why.push(format!(
                "{channel}: events were dropped, the latest at {}: {}",
                place.name(),
                reason.name()
            ));
        }
        if expected > 0 && delivered == expected {
            why.push(format!(
                "all {delivered} events were handed to the kernel: look at the client, or on the \
                 way to it"
            ));
        } else if dropped > 0 {
            why.push(format!("{dropped} of {expected} events were dropped"));
        }
        why
    }

    fn last_drops(&self) -> impl Iterator<Item = (Place, Reason, &str)> {
        self.channels.iter().filter_map(|ChannelAccount { channel, books }| {
            books.last_drop.map(|(place, reason)| (place, reason, &**channel))
        })
    }
}

/// The most connections of an app that are named as those that lose most.
pub const MOST_LOSING: usize = 20;

/// How long an answer about all connections is good for: a walk over all of them is not made more
/// often, whoever asks.
const GOOD_FOR: Duration = Duration::from_secs(5);

/// A connection that lost something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Losing {
    /// Its socket id.
    pub socket_id: String,
    /// What was dropped for it, in the channels that it is in.
    pub dropped: Tally,
}

/// Who loses most, of each app. Memory: [`MOST_LOSING`] for each app.
#[derive(Debug, Default)]
pub struct Losses {
    read_at: Option<Instant>,
    most: BTreeMap<u64, Vec<(OutletId, Tally)>>,
}

impl Losses {
    /// Those of a tenant that lose most in this shard, as they were not more than five seconds ago.
    /// Cost: O(subscriptions of the shard), once in five seconds.
    pub fn of(&mut self, broker: &Broker, tenant: TenantId) -> &[(OutletId, Tally)] {
        let now = broker.now();
        if self.read_at.is_none_or(|at| now.since(at) >= GOOD_FOR) {
            self.read_at = Some(now);
            self.read(broker);
        }
        self.most.get(&tenant.to_bits()).map_or(&[], Vec::as_slice)
    }

    fn read(&mut self, broker: &Broker) {
        // All connections: an answer for people, asked for with an app's secret.
        let mut all: BTreeMap<(u64, OutletId), Tally> = BTreeMap::new();
        for (outlet, tenant, dropped) in broker.losses() {
            *all.entry((tenant.to_bits(), outlet)).or_default() += dropped;
        }
        self.most.clear();
        for ((tenant, outlet), dropped) in all {
            self.most.entry(tenant).or_default().push((outlet, dropped));
        }
        for most in self.most.values_mut() {
            most.sort_by_key(|(_, dropped)| std::cmp::Reverse(dropped.records));
            most.truncate(MOST_LOSING);
            most.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(refusing: bool, books: Option<[u64; 4]>) -> Account {
        let books = books.map(|[expected, delivered, dropped, lag]| {
            let tally = |records| Tally { records, bytes: records };
            SubBooks {
                expected: tally(expected),
                delivered: tally(delivered),
                dropped: tally(dropped),
                last_drop: (dropped > 0).then_some((Place::Backlog, Reason::DropOld)),
                lag: tally(lag),
            }
        });
        let channels = books.map(|books| ChannelAccount { channel: "news".into(), books });
        Account {
            app: "1".to_owned(),
            shard: 0,
            queue: Backlog { refusing, ..Backlog::default() },
            channels: channels.into_iter().collect(),
        }
    }

    #[test]
    fn the_answer_says_what_happens_and_what_has_happened() {
        for (refusing, books, parts) in [
            (false, None, vec!["in no channel"]),
            (false, Some([0; 4]), vec!["nothing was published"]),
            (false, Some([7, 7, 0, 0]), vec!["all 7 events were handed to the kernel"]),
            (false, Some([7, 5, 0, 2]), vec!["2 events wait to be written"]),
            (
                true,
                Some([9, 2, 4, 3]),
                vec![
                    "its transport takes nothing now, and 3 events wait",
                    "news: events were dropped, the latest at backlog: drop_old",
                    "4 of 9 events were dropped",
                ],
            ),
        ] {
            let why = account(refusing, books).why();
            assert_eq!(why.len(), parts.len(), "{why:?}");
            for (why, part) in why.iter().zip(parts) {
                assert!(why.contains(part), "{why} without {part}");
            }
        }
    }
}
