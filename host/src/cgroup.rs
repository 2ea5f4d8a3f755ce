//! Where this process's control groups are mounted, read from `/proc`.
//!
//! Formats: proc_pid_cgroup(5) and proc_pid_mountinfo(5). Pure functions over their text, so that
//! every kind of machine is a fixture.

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A group's folder, and the folder of the outermost group that can be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) folder: PathBuf,
    pub(crate) top: PathBuf,
}

/// This process's group in the unified hierarchy (version 2).
pub(crate) fn unified(cgroup: &str, mountinfo: &str) -> Option<Group> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    locate(path, mountinfo, |mount| mount.kind == "cgroup2")
}

/// This process's group in the memory hierarchy of version 1.
pub(crate) fn memory_v1(cgroup: &str, mountinfo: &str) -> Option<Group> {
    let path = cgroup.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == "memory").then_some(path)
    })?;
    locate(path, mountinfo, |mount| {
        mount.kind == "cgroup" && mount.options.split(',').any(|name| name == "memory")
    })
}

struct Mount<'a> {
    /// The folder of the mounted file system that is seen at `point`.
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    /// `31 24 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate`
    fn parse(line: &'a str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let mut right = right.split(' ');
        let (root, point) = (left.next()?, left.next()?);
        let kind = right.next()?;
        Some(Self { root, point, kind, options: right.nth(1).unwrap_or("") })
    }
}

fn locate(path: &str, mountinfo: &str, wanted: impl Fn(&Mount<'_>) -> bool) -> Option<Group> {
    let mounts = mountinfo.lines().filter_map(Mount::parse);
    mounts.filter(wanted).find_map(|mount| {
        let below = if mount.root == "/" {
            path
        } else {
            let rest = path.strip_prefix(mount.root)?;
            if !rest.is_empty() && !rest.starts_with('/') {
                return None;
            }
            rest
        };
        // A path that climbs leads to a group outside of what is mounted here.
        if Path::new(below).components().any(|part| part == std::path::Component::ParentDir) {
            return None;
        }
        let top = unescape(mount.point);
        let below = below.trim_start_matches('/');
        let folder = if below.is_empty() { top.clone() } else { top.join(below) };
        Some(Group { folder, top })
    })
}

/// Blanks, tabs, line ends and backslashes in mount points are written as `\` and three octal
/// digits.
fn unescape(text: &str) -> PathBuf {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'\\', &[a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ref after @ ..]) => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => out.push(byte),
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(out))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const V2: (&str, &str) = (
        "0::/system.slice/sluicegate.service\n",
        "24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
         31 24 0:27 / /sys/fs/cgroup rw,nosuid,nodev shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
    );
    pub(crate) const HYBRID: (&str, &str) = (
        "9:memory:/jobs/7\n8:cpu,cpuacct:/jobs/7\n1:name=systemd:/jobs/7\n0::/jobs/7\n",
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
         35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
         41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
    );
    pub(crate) const V1: (&str, &str) = (
        "4:memory:/docker/0f3a\n3:cpuset:/docker/0f3a\n",
        "35 31 0:32 /docker/0f3a /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
    );
    /// A container: its own group is the root of what it sees.
    pub(crate) const NAMESPACE: (&str, &str) =
        ("0::/\n", "1602 1601 0:27 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n");

    fn folders(group: Option<Group>) -> Option<(String, String)> {
        group.map(|group| (group.folder.display().to_string(), group.top.display().to_string()))
    }

    fn pair(folder: &str, top: &str) -> Option<(String, String)> {
        Some((folder.to_owned(), top.to_owned()))
    }

    #[test]
    fn the_unified_group_is_found_on_every_kind_of_machine() {
        let of = |(cgroup, mountinfo)| folders(unified(cgroup, mountinfo));
        let v2 = "/sys/fs/cgroup/system.slice/sluicegate.service";
        assert_eq!(of(V2), pair(v2, "/sys/fs/cgroup"));
        assert_eq!(of(HYBRID), pair("/sys/fs/cgroup/unified/jobs/7", "/sys/fs/cgroup/unified"));
        assert_eq!(of(V1), None);
        assert_eq!(of(NAMESPACE), pair("/sys/fs/cgroup", "/sys/fs/cgroup"));
    }

    #[test]
    fn the_memory_group_of_version_1_is_found() {
        let of = |(cgroup, mountinfo)| folders(memory_v1(cgroup, mountinfo));
        assert_eq!(of(V1), pair("/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory"));
        assert_eq!(of(HYBRID), pair("/sys/fs/cgroup/memory/jobs/7", "/sys/fs/cgroup/memory"));
        assert_eq!(of(V2), None);
    }

    #[test]
    fn a_group_outside_of_the_mount_is_not_found() {
        let mount = "35 31 0:32 /a /cg rw - cgroup2 cgroup2 rw\n";
        assert_eq!(folders(unified("0::/a/b\n", mount)), pair("/cg/b", "/cg"));
        assert_eq!(folders(unified("0::/ab\n", mount)), None);
        assert_eq!(folders(unified("0::/../b\n", NAMESPACE.1)), None);
    }

    #[test]
    fn mount_points_are_unescaped() {
        let mount = "35 31 0:32 / /my\\040group rw - cgroup2 cgroup2 rw\n";
        assert_eq!(folders(unified("0::/\n", mount)), pair("/my group", "/my group"));
    }

    #[test]
    fn garbage_is_not_found() {
        for text in ["", "\n", "0:", "0::", "x - y", "a b c d e - cgroup2"] {
            assert_eq!(unified(text, text), None, "{text}");
            assert_eq!(memory_v1(text, text), None, "{text}");
        }
    }
}
