//! Tapes of production: every input of a shard, written to a file of bounded size by a thread of
//! its own, so that no event loop waits for a disk.
//!
//! A tape begins with the shard and is worth something from its first byte on, so what is full is
//! never overwritten: recording ends, and what there is can be played. The file of an earlier
//! recording is kept beside it, with `.old` behind its name.

use sluicegate_core::{Broker, Instant, Recorder};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What is written at once, unless a turn brings more.
const CHUNK: usize = 64 << 10;
/// What waits is written after so long all the same.
const PATIENCE: Duration = Duration::from_secs(1);
/// Chunks that wait for the disk at most.
const WAITING: usize = 64;

/// A recording.
#[derive(Debug)]
pub struct Recording {
    recorder: Recorder,
    path: PathBuf,
    /// Bytes that the file may still grow by.
    left: u64,
    /// When something was handed to the writer last.
    written: Instant,
    /// While it goes on.
    writer: Option<SyncSender<Vec<u8>>>,
    thread: JoinHandle<io::Result<()>>,
}

/// Begins to record a shard, of so many, as a server is told: in this file, or in none if it has no
/// name. With several shards each has its own, with its number behind the name. The shard has had
/// no input yet and was made with this seed.
///
/// Errors: what a person can do when the file cannot be written.
pub fn begin(
    file: &str,
    most_mib: u32,
    (number, of): (u32, u32),
    broker: &mut Broker,
    seed: u64,
) -> Result<Option<Recording>, String> {
    if file.is_empty() {
        return Ok(None);
    }
    let name = if of == 1 { file.to_owned() } else { format!("{file}.{number}") };
    let recording = Recording::start(name.clone().into(), u64::from(most_mib) << 20, broker, seed);
    recording.map(Some).map_err(|error| {
        format!("--tape {name}: cannot be written ({error}): name a file in a folder that is there")
    })
}

/// Why a recording ended before its shard. What was written until then can be played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The file could not be written.
    Failed,
    /// The file is as large as it may be.
    Full,
    /// The disk took less than the shard brought.
    Slow,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed => f.write_str("it cannot be written"),
            Self::Full => f.write_str("it is as large as it may be"),
            Self::Slow => f.write_str("the disk takes less than there is to record"),
        }
    }
}

impl Recording {
    /// Begins to record a shard that has had no input yet and was made with this seed, in a file of
    /// at most `most` bytes.
    ///
    /// Errors: the file, or its writer's thread, cannot be made.
    pub fn start(path: PathBuf, most: u64, broker: &mut Broker, seed: u64) -> io::Result<Self> {
        let file = create(&path)?;
        let (writer, chunks) = sync_channel(WAITING);
        let thread = thread::Builder::new().name("tape".to_owned());
        let thread = thread.spawn(move || write(file, &chunks))?;
        let recorder = Recorder::new(broker.limits(), seed);
        broker.record_inputs(true);
        let (written, writer) = (broker.now(), Some(writer));
        Ok(Self { recorder, path, left: most, written, writer, thread })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A turn of the shard is over. Says once why nothing more is recorded. Never waits.
    ///
    /// Cost: O(inputs of the turn).
    pub fn turned(&mut self, broker: &mut Broker) -> Option<Ended> {
        let writer = self.writer.as_ref()?;
        let whole = self.recorder.pending();
        self.recorder.append(broker);
        let (pending, now) = (self.recorder.pending(), broker.now());
        let fits = pending as u64 <= self.left;
        if fits && (pending < CHUNK && now < self.written + PATIENCE || pending == 0) {
            return None;
        }
        let mut chunk = self.recorder.take();
        chunk.truncate(if fits { pending } else { whole });
        self.written = now;
        self.left -= chunk.len() as u64;
        let ended = match writer.try_send(chunk) {
            Ok(()) if fits => return None,
            Ok(()) => Ended::Full,
            Err(TrySendError::Full(_)) => Ended::Slow,
            Err(TrySendError::Disconnected(_)) => Ended::Failed,
        };
        broker.record_inputs(false);
        self.writer = None;
        Some(ended)
    }

    /// The shard is over: the rest is written, with its fingerprint. Waits for the disk. Returns
    /// whether all of it is on the tape; not where that was full before.
    ///
    /// Errors: the file could not be written as far as it was recorded.
    pub fn finish(mut self, broker: &mut Broker) -> io::Result<bool> {
        let mut is_whole = false;
        if let Some(writer) = self.writer.take() {
            let whole = self.recorder.pending();
            self.recorder.append(broker);
            self.recorder.mark(broker);
            let mut last = self.recorder.take();
            is_whole = last.len() as u64 <= self.left;
            if !is_whole {
                last.truncate(whole);
            }
            // When the writer is gone it says why.
            let _ = writer.send(last);
        }
        let written = self.thread.join();
        written.unwrap_or_else(|_| Err(io::Error::other("its writer panicked")))?;
        Ok(is_whole)
    }
}

/// An empty file. One that is there is kept beside it.
fn create(path: &Path) -> io::Result<File> {
    if path.is_file() {
        let mut old = OsString::from(path);
        old.push(".old");
        fs::rename(path, old)?;
    }
    File::create(path)
}

fn write(mut file: File, chunks: &Receiver<Vec<u8>>) -> io::Result<()> {
    chunks.iter().try_for_each(|chunk| file.write_all(&chunk))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_core::{Item, Limits, Tape};

    const SEED: u64 = 7;

    fn file(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("tapes-of-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder.join(name)
    }

    fn broker() -> Broker {
        Broker::shard(Limits::default(), SEED, 0)
    }

    /// A turn of one connection that comes and goes.
    fn turn(broker: &mut Broker, second: u64) {
        broker.advance(Instant::from_millis(1_000 * second));
        let tenant = broker.tenant(1).unwrap();
        let conn = broker.open(tenant).unwrap();
        broker.gone(conn);
    }

    /// Plays a file; the shard's fingerprint at its end, and marks on it, which must fit.
    fn play(path: &Path) -> (u64, u32) {
        let bytes = fs::read(path).unwrap();
        let tape = Tape::read(&bytes).unwrap();
        let mut broker = Broker::shard(tape.limits.clone(), tape.seed, 0);
        let mut marks = 0;
        for item in tape.items() {
            match item.expect("it ends between two items") {
                Item::Input { input, .. } => drop(broker.apply(&input)),
                Item::Mark { fingerprint, .. } => {
                    assert_eq!(broker.fingerprint(), fingerprint);
                    marks += 1;
                }
            }
        }
        (broker.fingerprint(), marks)
    }

    #[test]
    fn what_was_recorded_plays_to_the_same_state() {
        let (path, mut broker) = (file("whole"), broker());
        let mut recording = Recording::start(path.clone(), 1 << 20, &mut broker, SEED).unwrap();
        for second in 1..50 {
            turn(&mut broker, second);
            assert_eq!(recording.turned(&mut broker), None);
        }
        assert!(recording.finish(&mut broker).unwrap(), "it is whole");
        assert_eq!(play(&path), (broker.fingerprint(), 1));
    }

    #[test]
    fn a_full_tape_ends_between_two_turns_within_its_bound() {
        for most in [400, 401, 402, 403, 404, 405, 406, 407] {
            let (path, mut broker) = (file("full"), broker());
            let mut recording = Recording::start(path.clone(), most, &mut broker, SEED).unwrap();
            let mut states = vec![];
            let ended = loop {
                states.push(broker.fingerprint());
                turn(&mut broker, states.len() as u64);
                if let Some(ended) = recording.turned(&mut broker) {
                    break ended;
                }
            };
            assert_eq!(ended, Ended::Full);
            turn(&mut broker, 1_000_000);
            assert!(broker.take_inputs().is_empty(), "it records no more");
            assert_eq!(recording.turned(&mut broker), None, "it is told once");
            assert!(!recording.finish(&mut broker).unwrap(), "it is not whole");
            let length = fs::metadata(&path).unwrap().len();
            assert!(length <= most && length + 40 > most, "{length} of {most}");
            assert_eq!(play(&path).0, *states.last().unwrap());
        }
    }

    #[test]
    fn an_earlier_tape_is_kept_beside_the_new_one() {
        let path = file("again");
        for number in 1..=2 {
            let mut broker = broker();
            let recording = Recording::start(path.clone(), 1 << 20, &mut broker, SEED).unwrap();
            (0..number).for_each(|second| turn(&mut broker, second));
            assert!(recording.finish(&mut broker).unwrap());
        }
        let old = fs::metadata(file("again.old")).unwrap().len();
        assert!(old < fs::metadata(&path).unwrap().len());
    }

    #[test]
    fn a_file_that_cannot_be_written_is_told() {
        let folder = file("no-such-folder").join("tape");
        Recording::start(folder, 1 << 20, &mut broker(), SEED).unwrap_err();
        let (full, mut broker) = (PathBuf::from("/dev/full"), broker());
        let mut recording = Recording::start(full, 1 << 20, &mut broker, SEED).unwrap();
        // Each second something is written; the writer fails at the first of it.
        let mut seconds = 1..;
        while recording.turned(&mut broker).is_none() {
            turn(&mut broker, seconds.next().expect("it has no end"));
        }
        recording.finish(&mut broker).unwrap_err();
    }
}
