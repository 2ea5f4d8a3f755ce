//! The tape that a shard records, where it does.

use super::{Shard, State};
use sluicegate_host::tape::Recording;

impl Shard {
    /// Records the inputs from now on; the broker was given to the recording before its first.
    pub fn record(&self, recording: Recording) {
        self.lock().tape = Some(recording);
    }

    /// The shard is over. Waits for the disk.
    #[cfg(not(madsim))]
    pub(crate) fn finish_tape(&self) {
        let mut state = self.lock();
        let Some(tape) = state.tape.take() else { return };
        let path = tape.path().to_owned();
        match tape.finish(&mut state.broker) {
            Ok(true) => tracing::info!(tape = %path.display(), "the tape is complete"),
            Ok(false) => {
                tracing::warn!(tape = %path.display(), "the tape was full before the end");
            }
            Err(error) => tracing::error!(tape = %path.display(), "the tape is damaged: {error}"),
        }
        state.broker.record_inputs(false);
    }
}

impl State {
    /// A turn is over.
    pub(super) fn note_inputs(&mut self) {
        let Some(tape) = &mut self.tape else { return };
        if let Some(why) = tape.turned(&mut self.broker) {
            let (tape, shard) = (tape.path().display(), self.broker.number());
            tracing::warn!(shard, %tape, "the tape ends here: {why}");
        }
    }
}
