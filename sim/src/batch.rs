//! Many runs at once: on every core, answered in the order in which they were asked for.

use crate::scenario::Story;
use crate::{Outcome, Watch, watch};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// How often one who waits is told how far the runs are.
const PULSE: Duration = Duration::from_millis(100);

/// A story to run, and the file it came from.
#[derive(Clone, Debug)]
pub struct Job {
    /// The story.
    pub story: Story,
    /// The text of its file, for the report.
    pub text: Arc<str>,
}

/// How a run ended.
#[derive(Debug)]
pub enum Ended {
    /// The program failed in it; what it said.
    Crashed(String),
    /// It was carried to its end, or to a conviction.
    Ran(Box<Outcome>),
    /// The broker refused to build the world; why.
    Refused(String),
}

/// A run, ended.
#[derive(Debug)]
pub struct Run {
    /// What was run.
    pub job: Job,
    /// How it ended.
    pub ended: Ended,
    /// How long it took, in nanoseconds. Not part of the world.
    pub wall: u64,
    /// How much of that its thread was on a CPU, where the system says so.
    pub cpu: Option<u64>,
}

impl Run {
    /// The exit code: [`Outcome::code`], 2 for what the broker refused, 5 for a crash.
    pub fn code(&self) -> u8 {
        match &self.ended {
            Ended::Crashed(_) => 5,
            Ended::Ran(outcome) => outcome.code(),
            Ended::Refused(_) => 2,
        }
    }
}

/// How far a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Runs ended.
    pub done: usize,
    /// Runs asked for.
    pub all: usize,
    /// All of the work that is done, in thousandths, by virtual time.
    pub thousandths: u64,
}

/// One who waits for the runs of a batch.
pub trait Listener {
    /// A run ended, and so did all that were asked for before it.
    fn ended(&mut self, run: Run);
    /// Told about ten times per second.
    fn pulse(&mut self, progress: Progress);
}

/// Runs every job on `threads` threads, and tells `listener` in the order of the jobs.
///
/// `series` watches every run. A job that crashes ends alone.
pub fn run(jobs: Vec<Job>, threads: usize, series: bool, listener: &mut impl Listener) {
    let clocks: Vec<Arc<AtomicU64>> = jobs.iter().map(|_| Arc::default()).collect();
    let next = AtomicUsize::new(0);
    let threads = threads.clamp(1, jobs.len().max(1));
    let (tell, hear) = sync_channel(threads);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let worker = Worker { jobs: &jobs, clocks: &clocks, next: &next, series };
            let tell = tell.clone();
            scope.spawn(move || worker.work(&tell));
        }
        drop(tell);
        // Gone when the listener fails: then nobody waits to tell it anything.
        let hear = hear;
        let mut ready: Vec<Option<Run>> = jobs.iter().map(|_| None).collect();
        let (mut told, mut done) = (0, 0);
        while told < jobs.len() {
            match hear.recv_timeout(PULSE) {
                Ok((at, run)) => {
                    ready[at] = Some(run);
                    done += 1;
                    while let Some(run) = ready.get_mut(told).and_then(Option::take) {
                        listener.ended(run);
                        told += 1;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    let thousandths = thousandths(&jobs, &clocks);
                    listener.pulse(Progress { done, all: jobs.len(), thousandths });
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
}

struct Worker<'a> {
    jobs: &'a [Job],
    clocks: &'a [Arc<AtomicU64>],
    next: &'a AtomicUsize,
    series: bool,
}

impl Worker<'_> {
    /// Takes jobs until none is left, or nobody listens.
    fn work(&self, tell: &SyncSender<(usize, Run)>) {
        loop {
            let at = self.next.fetch_add(1, Relaxed);
            let Some(job) = self.jobs.get(at) else { return };
            let clock = Some(Arc::clone(&self.clocks[at]));
            let options = Watch { series: self.series, clock, tape: false };
            let run = one(job.clone(), |story| watch(story, options));
            self.clocks[at].store(u64::MAX, Relaxed);
            if tell.send((at, run)).is_err() {
                return;
            }
        }
    }
}

/// Runs one job; what fails in it does not fail us.
fn one(job: Job, run: impl FnOnce(&Story) -> Result<Outcome, String>) -> Run {
    let (start, before) = (now(), on_cpu());
    let outcome = catch_unwind(AssertUnwindSafe(|| run(&job.story)));
    let wall = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let cpu = on_cpu().zip(before).map(|(after, before)| after - before);
    let ended = match outcome {
        Ok(Ok(outcome)) => Ended::Ran(Box::new(outcome)),
        Ok(Err(message)) => Ended::Refused(message),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
            Ended::Crashed(text.unwrap_or("it said nothing").to_owned())
        }
    };
    Run { job, ended, wall, cpu }
}

/// How long this thread has been on a CPU, in nanoseconds, as Linux counts it.
fn on_cpu() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// The virtual time that has passed, of all that will pass until the publishers stop.
fn thousandths(jobs: &[Job], clocks: &[Arc<AtomicU64>]) -> u64 {
    let parts = jobs.iter().zip(clocks).map(|(job, clock)| {
        let whole = job.story.duration.max(1);
        clock.load(Relaxed).min(whole).saturating_mul(1000) / whole
    });
    parts.sum::<u64>() / (jobs.len() as u64).max(1)
}

#[expect(clippy::disallowed_methods, reason = "how long a run took is not part of the world")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario;

    fn job(title: &str, more: &str) -> Job {
        let text = format!("title = '{title}'\nabout = 'a'\nduration = '1s'\n{more}");
        let story = scenario::read("empty.toml", &text).unwrap().remove(0);
        Job { story, text: text.into() }
    }

    #[derive(Default)]
    struct Titles(Vec<(String, u8)>);

    impl Listener for Titles {
        fn ended(&mut self, run: Run) {
            let code = run.code();
            self.0.push((run.job.story.title, code));
        }

        fn pulse(&mut self, progress: Progress) {
            assert!(progress.done <= progress.all && progress.thousandths <= 1000);
        }
    }

    #[test]
    fn answers_come_in_the_order_of_the_questions() {
        let busy = "[[topic]]\nname = 'n'\n[[publisher]]\nname = 'p'\ntopic = 'n'\nrate = 20000";
        let jobs: Vec<Job> = (0..12)
            .map(|number| job(&number.to_string(), if number % 3 == 0 { busy } else { "" }))
            .collect();
        let due: Vec<(String, u8)> = (0..12).map(|number| (number.to_string(), 0)).collect();
        for threads in [0, 1, 5, 100] {
            let mut titles = Titles::default();
            run(jobs.clone(), threads, false, &mut titles);
            assert_eq!(titles.0, due, "{threads} threads");
        }
        run(Vec::new(), 3, false, &mut Titles::default());
    }

    #[test]
    fn a_crash_is_an_exit_code_and_keeps_what_was_said() {
        let crashed = one(job("t", ""), |_| panic!("on {}", "purpose"));
        assert_eq!(crashed.code(), 5);
        assert!(matches!(crashed.ended, Ended::Crashed(text) if text == "on purpose"));
        assert_eq!(one(job("t", ""), |_| Err("no room".to_owned())).code(), 2);
        assert_eq!(one(job("t", ""), crate::run).code(), 0);
    }

    #[test]
    fn a_listener_that_fails_ends_the_batch_and_leaves_nobody_waiting() {
        struct Fails;
        impl Listener for Fails {
            fn ended(&mut self, _: Run) {
                panic!("on purpose");
            }
            fn pulse(&mut self, _: Progress) {}
        }
        let jobs: Vec<Job> = (0..8).map(|number| job(&number.to_string(), "")).collect();
        catch_unwind(|| run(jobs, 2, false, &mut Fails)).unwrap_err();
    }

    #[test]
    fn progress_is_counted_in_virtual_time() {
        let jobs = [job("a", ""), job("b", "")];
        let clocks = [500_000_000, u64::MAX].map(|at| Arc::new(AtomicU64::new(at)));
        assert_eq!(thousandths(&jobs, &clocks), 750);
        assert_eq!(thousandths(&[], &[]), 0);
    }
}
