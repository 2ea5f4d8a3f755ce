//! Reads the kernel's memory pressure: of this process's own control group if it has one, else of
//! the machine. What the numbers mean is the core's business.

use crate::cgroup;
use sluicegate_core::Sample;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

/// More than the kernel ever writes.
const MOST: u64 = 4096;

/// Where memory pressure is read from.
#[derive(Debug)]
pub struct Pressure {
    /// Kept open: the file of a control group that was removed answers with an error.
    source: Option<(PathBuf, File)>,
}

impl Pressure {
    /// Looks for a source, the process's own group first. None is no error: there is no pressure
    /// then.
    pub fn find() -> Self {
        let cgroup = text("/proc/self/cgroup");
        let mountinfo = text("/proc/self/mountinfo");
        let source = candidates(&cgroup, &mountinfo).into_iter().find_map(|path| {
            let mut file = File::open(&path).ok()?;
            let sample = read(&mut file).ok()?;
            Sample::parse(&sample).map(|_| (path, file))
        });
        Self { source }
    }

    /// The file, if there is one.
    pub fn source(&self) -> Option<&Path> {
        self.source.as_ref().map(|(path, _)| path.as_path())
    }

    /// Reads it once. `None` when there is no source, or nothing readable in it.
    /// Cost: one `lseek` and one `read`.
    pub fn sample(&mut self) -> Option<Sample> {
        let (_, file) = self.source.as_mut()?;
        Sample::parse(&read(file).ok()?)
    }
}

/// Files to try, best first.
fn candidates(cgroup: &str, mountinfo: &str) -> Vec<PathBuf> {
    let own = cgroup::unified(cgroup, mountinfo).map(|group| group.folder.join("memory.pressure"));
    own.into_iter().chain([PathBuf::from("/proc/pressure/memory")]).collect()
}

fn text(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn read(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.take(MOST).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::tests::{HYBRID, NAMESPACE, V1, V2};

    fn of((cgroup, mountinfo): (&str, &str)) -> Vec<String> {
        let paths = candidates(cgroup, mountinfo);
        paths.iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn the_own_group_comes_before_the_machine() {
        const MACHINE: &str = "/proc/pressure/memory";
        let own = "/sys/fs/cgroup/system.slice/sluicegate.service/memory.pressure";
        assert_eq!(of(V2), [own, MACHINE]);
        assert_eq!(of(HYBRID), ["/sys/fs/cgroup/unified/jobs/7/memory.pressure", MACHINE]);
        assert_eq!(of(NAMESPACE), ["/sys/fs/cgroup/memory.pressure", MACHINE]);
        assert_eq!(of(V1), [MACHINE]);
        assert_eq!(of(("", "")), [MACHINE]);
    }

    #[test]
    fn a_source_that_is_found_can_be_read_again_and_again() {
        let mut pressure = Pressure::find();
        for _ in 0..3 {
            assert_eq!(pressure.sample().is_some(), pressure.source().is_some());
        }
    }

    #[test]
    fn without_a_source_there_is_no_sample() {
        assert_eq!(Pressure { source: None }.sample(), None);
    }
}
