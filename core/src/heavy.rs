//! Refusing outlets by how much waits in them, in power-of-two buckets: the fattest is found
//! without a walk.

use crate::list::List;
use crate::peers::{Heavy, NO_BUCKET, Outlet};
use crate::slab::Slab;

const TOP: u8 = 47;
const BUCKETS: usize = TOP as usize + 1;

#[derive(Debug)]
pub(crate) struct Heaviest {
    buckets: [List<Heavy>; BUCKETS],
    /// Bit `n` is set exactly while bucket `n` has outlets.
    used: u64,
}

impl Default for Heaviest {
    fn default() -> Self {
        Self { buckets: core::array::from_fn(|_| List::default()), used: 0 }
    }
}

/// Where an outlet belongs.
fn bucket(outlet: &Outlet) -> u8 {
    if !outlet.write.refusing || outlet.waiting.bytes == 0 {
        return NO_BUCKET;
    }
    u8::try_from(outlet.waiting.bytes.ilog2()).map_or(NO_BUCKET, |n| n.min(TOP))
}

impl Heaviest {
    /// Whether no refusing outlet has anything waiting.
    pub(crate) const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// An outlet began or ceased to refuse, or more or less waits in it. Cost: O(1).
    pub(crate) fn note(&mut self, outlets: &mut Slab<Outlet>, index: u32) {
        let (now, was) = (bucket(&outlets[index]), outlets[index].bucket);
        if now != was {
            self.leave(outlets, index);
            self.enter(outlets, index, now);
        }
    }

    /// The outlet with the most waiting, as far as its bucket tells. Cost: O(1).
    pub(crate) fn fattest(&self) -> Option<u32> {
        let top = self.used.checked_ilog2()?;
        self.buckets[top as usize].front()
    }

    /// An outlet made its contribution: another one of its bucket is next.
    pub(crate) fn rotate(&mut self, outlets: &mut Slab<Outlet>, index: u32) {
        let bucket = outlets[index].bucket;
        if bucket != NO_BUCKET {
            let list = &mut self.buckets[usize::from(bucket)];
            list.unlink(outlets, index);
            list.push_back(outlets, index);
        }
    }

    /// An outlet goes away, or has nothing that could be dropped.
    pub(crate) fn leave(&mut self, outlets: &mut Slab<Outlet>, index: u32) {
        let was = core::mem::replace(&mut outlets[index].bucket, NO_BUCKET);
        if was != NO_BUCKET {
            let list = &mut self.buckets[usize::from(was)];
            list.unlink(outlets, index);
            if list.is_empty() {
                self.used &= !(1 << was);
            }
        }
    }

    fn enter(&mut self, outlets: &mut Slab<Outlet>, index: u32, bucket: u8) {
        outlets[index].bucket = bucket;
        if bucket != NO_BUCKET {
            self.buckets[usize::from(bucket)].push_back(outlets, index);
            self.used |= 1 << bucket;
        }
    }

    /// Whether every outlet that could lose something is in its bucket, and no other.
    #[cfg(any(test, feature = "check"))]
    pub(crate) fn check(&self, outlets: &Slab<Outlet>) -> Result<(), crate::ledger::Broken> {
        use crate::ledger::same;
        let mut linked = 0;
        for (_, outlet) in outlets.iter() {
            let due = bucket(outlet);
            linked += u64::from(outlet.bucket != NO_BUCKET);
            let kept = if outlet.bucket == NO_BUCKET { due } else { outlet.bucket };
            same("heavy: an outlet is in its bucket", kept.into(), due.into())?;
        }
        let listed: u32 = self.buckets.iter().map(List::len).sum();
        same("heavy: buckets", listed.into(), linked)?;
        let used = self.buckets.iter().enumerate().filter(|(_, list)| !list.is_empty());
        same("heavy: used buckets", self.used, used.map(|(n, _)| 1 << n).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Pipe;

    #[test]
    fn the_fattest_refusing_outlet_is_found_as_queues_change() {
        let mut outlets = Slab::default();
        let mut heaviest = Heaviest::default();
        let at: [u32; 3] = core::array::from_fn(|_| {
            let index = outlets.insert(Outlet::new(0, 0, Pipe::Shared)).0;
            outlets[index].write.refusing = true;
            index
        });
        let mut set = |outlets: &mut Slab<Outlet>, index: u32, bytes| {
            outlets[index].waiting.bytes = bytes;
            heaviest.note(outlets, index);
            heaviest.check(outlets).unwrap();
            heaviest.fattest()
        };
        assert_eq!(set(&mut outlets, at[0], 100), Some(at[0]));
        assert_eq!(set(&mut outlets, at[1], 1_000), Some(at[1]));
        assert_eq!(set(&mut outlets, at[2], 999), Some(at[1]), "the same bucket, later");
        assert_eq!(set(&mut outlets, at[0], 1 << 60), Some(at[0]));
        outlets[at[0]].write.refusing = false;
        assert_eq!(set(&mut outlets, at[0], 1 << 60), Some(at[1]));
        assert_eq!(set(&mut outlets, at[1], 0), Some(at[2]));
        assert_eq!(set(&mut outlets, at[2], 0), None);
    }
}
