//! How much memory the broker may hold when nobody says: half of what this process can have.

use crate::cgroup::{self, Group};
use std::fs;

/// Limits above this mean "no limit": version 1 writes the largest multiple of a page.
const UNLIMITED: u64 = 1 << 62;

/// Half of the least of: the machine's memory, and the memory limits of this process's control
/// groups. `None` when nothing is readable.
pub fn memory_budget() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (cgroup, mountinfo) = (read("/proc/self/cgroup"), read("/proc/self/mountinfo"));
    let unified = cgroup::unified(&cgroup, &mountinfo);
    let v1 = cgroup::memory_v1(&cgroup, &mountinfo);
    let limits = [(unified, "memory.max"), (v1, "memory.limit_in_bytes")]
        .into_iter()
        .flat_map(|(group, file)| group.into_iter().flat_map(move |group| limits(&group, file)));
    half_of_least(mem_total(&read("/proc/meminfo")), limits)
}

/// What may wait for one of `connections` peers when they share `budget`: never so little that an
/// ordinary pause of a peer loses data, never so much that a few dead peers hold everything.
pub fn high_water(budget: u64, connections: u64) -> u64 {
    (budget / connections.max(1)).clamp(256 << 10, 8 << 20)
}

/// The limits of a group and of all groups around it.
fn limits(group: &Group, file: &str) -> Vec<u64> {
    let folders = group.folder.ancestors().take_while(|folder| folder.starts_with(&group.top));
    folders
        .filter_map(|folder| fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok())
        .collect()
}

fn half_of_least(total: Option<u64>, limits: impl Iterator<Item = u64>) -> Option<u64> {
    let limits = limits.filter(|limit| *limit < UNLIMITED);
    total.into_iter().chain(limits).min().map(|least| least / 2)
}

/// `MemTotal:       24684092 kB`
fn mem_total(meminfo: &str) -> Option<u64> {
    let rest = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_least_is_taken() {
        let half = |total, limits: &[u64]| half_of_least(total, limits.iter().copied());
        assert_eq!(half(Some(1000), &[]), Some(500));
        assert_eq!(half(Some(1000), &[600, 800]), Some(300));
        assert_eq!(half(Some(1000), &[UNLIMITED, u64::MAX]), Some(500));
        assert_eq!(half(None, &[600]), Some(300));
        assert_eq!(half(None, &[]), None);
    }

    #[test]
    fn the_machines_memory_is_read() {
        assert_eq!(mem_total("MemTotal:       2 kB\nMemFree: 1 kB\n"), Some(2048));
        for text in ["", "MemTotal: 2", "MemTotal: x kB", "MemTotal: 99999999999999999999 kB"] {
            assert_eq!(mem_total(text), None, "{text}");
        }
    }

    #[test]
    fn the_limits_of_outer_groups_count() {
        let top = std::env::temp_dir().join(format!("sluicegate-budget-{}", std::process::id()));
        let folder = top.join("outer/inner");
        fs::create_dir_all(&folder).unwrap();
        fs::write(top.join("outer/memory.max"), "4096\n").unwrap();
        fs::write(folder.join("memory.max"), "max\n").unwrap();
        let found = limits(&Group { folder, top: top.clone() }, "memory.max");
        fs::remove_dir_all(&top).unwrap();
        assert_eq!(found, [4096]);
    }

    #[test]
    fn this_machine_has_a_budget() {
        assert!(memory_budget().is_some_and(|budget| budget > 1 << 20));
    }

    #[test]
    fn high_water_stays_within_its_bounds() {
        assert_eq!(high_water(50_000 << 20, 50_000), 1 << 20);
        assert_eq!(high_water(1 << 20, 50_000), 256 << 10);
        assert_eq!(high_water(u64::MAX, 0), 8 << 20);
    }
}
