//! The tape of a run: each shard's inputs of a turn, one after the other. What shards tell each
//! other leaves and arrives in turns, so the tape has it in the order in which it happened.

use super::{World, at};
use crate::scenario::Story;
use sluicegate_core::{Rand, Recorder};

/// A recorder of a story's shards.
pub(super) fn recorder(story: &Story, rand: &Rand) -> Recorder {
    Recorder::new(&story.limits, rand.fork("broker").bits())
}

impl World<'_> {
    /// A turn ended, or a shard was told something between two turns.
    pub(super) fn note_inputs(&mut self, shard: u32) {
        if let Some(recorder) = &mut self.recorder {
            recorder.append(&mut self.shards[at(shard)].broker);
        }
    }

    /// The whole tape, with a mark of every shard at its end.
    pub(super) fn take_tape(&mut self) -> Vec<u8> {
        let Some(mut recorder) = self.recorder.take() else { return Vec::new() };
        for shard in &mut self.shards {
            recorder.append(&mut shard.broker);
            recorder.mark(&shard.broker);
        }
        recorder.take()
    }
}
