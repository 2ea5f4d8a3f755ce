//! Threads on processors.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// Processors that this thread may run on, lowest number first.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Keeps this thread on one processor.
pub fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_pinned_thread_may_run_on_its_processor_only() {
        let before = allowed().unwrap();
        let last = *before.last().expect("this thread runs");
        let pinned = thread::spawn(move || pin(last).and_then(|()| allowed()));
        assert_eq!(pinned.join().unwrap().unwrap(), [last]);
        assert_eq!(allowed().unwrap(), before, "others may run where they could");
    }
}
