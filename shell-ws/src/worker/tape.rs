//! The tape that a loop records, where it does.

use super::Worker;
use sluicegate_host::tape::Recording;

impl Worker {
    /// Records the shard's inputs from now on; its broker was given to the recording before its
    /// first input.
    pub fn record(&mut self, recording: Recording) {
        self.tape = Some(recording);
    }

    /// A turn is over.
    pub(super) fn note_inputs(&mut self) {
        let Some(tape) = &mut self.tape else { return };
        if let Some(why) = tape.turned(&mut self.shard.broker) {
            let (tape, number) = (tape.path().display(), self.port.number());
            tracing::warn!(event_loop = number, %tape, "the tape ends here: {why}");
        }
    }

    /// The loop is over.
    pub(super) fn finish_tape(&mut self) {
        let Some(tape) = self.tape.take() else { return };
        let path = tape.path().to_owned();
        match tape.finish(&mut self.shard.broker) {
            Ok(true) => tracing::info!(tape = %path.display(), "the tape is complete"),
            Ok(false) => {
                tracing::warn!(tape = %path.display(), "the tape was full before the end");
            }
            Err(error) => tracing::error!(tape = %path.display(), "the tape is damaged: {error}"),
        }
    }
}
