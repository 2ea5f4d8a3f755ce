//! What the shards of a process tell all others at once: that one is saturated, that the
//! process stops. Each bit is written only by its shard; nothing decides here.

use crate::mesh::Bells;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The most shards of a process: one bit each.
pub const MAX_SHARDS: u32 = 64;

/// The process as its shards see it.
#[derive(Debug)]
pub struct Node {
    bells: Bells,
    shards: u32,
    saturated: Bits,
    /// Those that accept no connection any more.
    closed: Bits,
    /// Those that nobody is connected to any more.
    finished: Bits,
    failed: Bits,
    /// How often somebody wished that the process stops.
    stops: AtomicU32,
}

#[derive(Debug, Default)]
struct Bits(AtomicU64);

impl Bits {
    /// Sets or clears the bit of a shard. Whether that changed it.
    fn set(&self, shard: u32, on: bool) -> bool {
        let bit = 1 << shard;
        let before = match on {
            true => self.0.fetch_or(bit, Ordering::AcqRel),
            false => self.0.fetch_and(!bit, Ordering::AcqRel),
        };
        (before & bit != 0) != on
    }

    fn any(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    fn all(&self, shards: u32) -> bool {
        self.0.load(Ordering::Acquire).count_ones() == shards
    }
}

impl Node {
    /// A process of `shards` shards, none of which has said anything.
    ///
    /// # Panics
    /// When there are more than [`MAX_SHARDS`].
    pub fn new(shards: u32, bells: Bells) -> Self {
        assert!(shards <= MAX_SHARDS, "a bit for each shard");
        Self {
            bells,
            shards,
            saturated: Bits::default(),
            closed: Bits::default(),
            finished: Bits::default(),
            failed: Bits::default(),
            stops: AtomicU32::new(0),
        }
    }

    /// A shard says whether it is saturated. All are woken when that is news.
    pub fn set_saturated(&self, shard: u32, on: bool) {
        // Read first: usually nothing changes, and then nothing is written that others read.
        let is = self.saturated.0.load(Ordering::Relaxed) & 1 << shard != 0;
        if is != on && self.saturated.set(shard, on) {
            self.bells.ring_all();
        }
    }

    /// Whether any shard is saturated. Cost: one load.
    pub fn is_saturated(&self) -> bool {
        self.saturated.any()
    }

    /// The process shall stop; said twice, at once.
    pub fn stop(&self) {
        // Saying it for ever does not begin again.
        let _ = self.stops.fetch_update(Ordering::AcqRel, Ordering::Acquire, |stops| {
            Some(stops.saturating_add(1))
        });
        self.bells.ring_all();
    }

    /// How often [`stop`](Self::stop) was called.
    pub fn stops(&self) -> u32 {
        self.stops.load(Ordering::Acquire)
    }

    /// A shard accepts no connection any more. With the last one all are woken.
    pub fn close(&self, shard: u32) {
        if self.closed.set(shard, true) && self.is_closed() {
            self.bells.ring_all();
        }
    }

    /// Whether no shard accepts connections.
    pub fn is_closed(&self) -> bool {
        self.closed.all(self.shards)
    }

    /// Nobody is connected to a shard any more, and nobody will be. With the last one all are
    /// woken.
    pub fn finish(&self, shard: u32) {
        if self.finished.set(shard, true) && self.is_finished() {
            self.bells.ring_all();
        }
    }

    /// Whether nobody is connected to any shard.
    pub fn is_finished(&self) -> bool {
        self.finished.all(self.shards)
    }

    /// A shard has failed: nobody waits for it, and the others stop.
    pub fn fail(&self, shard: u32) {
        self.failed.set(shard, true);
        self.saturated.set(shard, false);
        self.closed.set(shard, true);
        self.finished.set(shard, true);
        // The first wish, if there was none: what the others have still to send, they send.
        let _ = self.stops.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire);
        self.bells.ring_all();
    }

    /// Whether all shards are sound.
    pub fn is_sound(&self) -> bool {
        !self.failed.any()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::{Wake, ports};
    use std::sync::Arc;

    /// A node, and how often its first thread was woken.
    fn node(shards: u32) -> (Node, Arc<AtomicU32>) {
        let woken = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&woken);
        let mut wakes: Vec<Wake> = vec![Box::new(move || _ = count.fetch_add(1, Ordering::SeqCst))];
        wakes.extend((1..shards).map(|_| -> Wake { Box::new(|| {}) }));
        let ports = ports::<u32>(wakes, 1);
        (Node::new(shards, ports[0].bells().clone()), woken)
    }

    #[test]
    fn the_node_is_saturated_while_any_shard_is_and_news_wake_everybody() {
        let (node, woken) = node(64);
        for (shard, on, is) in [
            (63, true, true),
            (63, true, true),
            (0, true, true),
            (63, false, true),
            (0, false, false),
            (0, false, false),
        ] {
            node.set_saturated(shard, on);
            assert_eq!(node.is_saturated(), is, "{shard} {on}");
        }
        assert_eq!(woken.load(Ordering::SeqCst), 4, "what is no news wakes nobody");
    }

    #[test]
    fn the_process_is_over_when_every_shard_is() {
        let (node, woken) = node(3);
        for shard in 0..3 {
            assert!(!node.is_closed() && !node.is_finished());
            node.close(shard);
            node.finish(shard);
        }
        assert!(node.is_closed() && node.is_finished() && node.is_sound());
        assert_eq!(woken.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn who_fails_stops_the_others_and_keeps_nobody_waiting() {
        let (node, _) = node(2);
        node.set_saturated(1, true);
        node.fail(1);
        assert!(!node.is_sound() && !node.is_saturated());
        assert_eq!(node.stops(), 1);
        node.close(0);
        node.finish(0);
        assert!(node.is_closed() && node.is_finished());
        node.fail(0);
        assert_eq!(node.stops(), 1, "said once is enough");
    }
}
