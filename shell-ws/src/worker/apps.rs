//! Other apps, while the loop runs: see [`crate::directory`].

use super::Worker;
use super::socket::Key;
use crate::apps::Places;
use crate::directory::News;
use anyhow::{Result, anyhow};
use std::collections::VecDeque;
use std::sync::Arc;

/// Connections that are looked at in one turn, so that a change of the apps holds nobody up.
const LOOKED_AT: usize = 256;

/// What the loop knows of other apps.
#[derive(Debug, Default)]
pub(super) struct Changing {
    /// The version that it has seen.
    seen: u64,
    /// Prepared for, and not in force.
    next: Option<(u64, Arc<Places>)>,
    /// Connections that may be of an app that is not served any more.
    left: VecDeque<Key>,
}

impl Changing {
    /// Whether the next turn has something to do for it.
    pub(super) fn is_busy(&self) -> bool {
        !self.left.is_empty()
    }
}

impl Worker {
    /// Makes what is new of other apps, and serves them once all loops have.
    pub(super) fn hear_board(&mut self) -> Result<()> {
        if let Some(News { version, places, hooks }) = self.board.news(self.changing.seen) {
            self.shard.prepare(&places).map_err(|why| {
                anyhow!("apps that were read again: the core answers {why:?}, though it had room")
            })?;
            self.hooks = hooks.or_else(|| self.hooks.take());
            self.changing.seen = version;
            self.changing.next = Some((version, places));
            self.board.prepared(self.port.number(), version);
        }
        let board = &self.board;
        let next = self.changing.next.take_if(|(version, _)| board.is_prepared(*version));
        if let Some((_, places)) = next
            && self.shard.serve(&places)
        {
            // Once per change of the apps, so a walk over all connections does no harm.
            let key = |index| Key { index, generation: self.sockets.generation(index) };
            self.changing.left = self.sockets.iter().map(|(index, _)| key(index)).collect();
        }
        Ok(())
    }

    /// Ends some of the connections whose app is not served any more.
    pub(super) fn end_unserved(&mut self) {
        for _ in 0..LOOKED_AT {
            let Some(key) = self.changing.left.pop_front() else { break };
            if key.is_live(&self.sockets) {
                self.sockets[key.index].session.apps_changed(&mut self.shard);
                self.deadlines.update(&mut self.sockets, key.index, self.now);
            }
        }
        self.shard.retire_some();
    }
}
