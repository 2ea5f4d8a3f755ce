//! Who holds a topic that waits for a full subscription, for operators.

use super::{Shard, State};
use sluicegate_core::{ConnId, TopicId};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// The most topics that are named.
const MOST: usize = 20;

/// A topic that accepts no further batch, and the subscription that it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The topic's name.
    pub topic: String,
    /// The connection's number, as its client was told in the welcome.
    pub session: u64,
    /// Where its peer is.
    pub address: SocketAddr,
    /// The subscription's number on the connection.
    pub subscription: u32,
}

impl Shard {
    /// Topics of this shard that wait for one of its subscriptions: at most 20.
    /// Cost: O(topics that its connections have bound, and their audiences).
    pub fn blocked(&self) -> Vec<Blocked> {
        self.lock().blocked()
    }
}

impl State {
    fn blocked(&mut self) -> Vec<Blocked> {
        let (mut seen, mut all) = (BTreeSet::new(), Vec::new());
        // A walk over all connections: only when an operator asks.
        for id in self.peers.ids() {
            let Some(peer) = self.peer(ConnId::from_bits(id)) else { continue };
            let topics: Vec<_> =
                peer.topics.iter().map(|bound| (bound.id, bound.name.clone())).collect();
            for (topic, name) in topics {
                if seen.insert(topic)
                    && let Some(blocked) = self.blocker(topic, &name)
                {
                    all.push(blocked);
                }
                if all.len() == MOST {
                    return all;
                }
            }
        }
        all
    }

    fn blocker(&mut self, topic: TopicId, name: &str) -> Option<Blocked> {
        let sub = self.broker.blocked_by(topic)?;
        let pipe = self.pipe_of(sub)?;
        let (conn, subscription) = (pipe.conn, pipe.sub?.number);
        let peer = self.peer(conn)?;
        let (session, address) = (peer.session, peer.link.remote_address());
        Some(Blocked { topic: name.to_owned(), session, address, subscription })
    }
}
