//! Arrows between the project's crates: who may depend on whom.

use super::Finding;
use cargo_metadata::{DependencyKind, Metadata};
use std::collections::BTreeSet;

const CORE: &str = "sluicegate-core";
const WIRE: &str = "sluicegate-wire";
const HOST: &str = "sluicegate-host";

/// What each crate may import of the project. Dependencies of tests and builds count too.
const ARROWS: &[(&str, &[&str])] = &[
    (CORE, &[]),
    (WIRE, &[]),
    (HOST, &[CORE]),
    ("sluicegate-client", &[CORE, WIRE]),
    ("sluicegate-sim", &[CORE, WIRE]),
    ("sluicegate-ws", &[HOST, CORE, WIRE]),
    ("sluicegate-quic", &[HOST, CORE, WIRE, "sluicegate-client"]),
    (
        "sluicegate-bench",
        &[
            CORE,
            WIRE,
            HOST,
            "sluicegate-client",
            "sluicegate-sim",
            "sluicegate-ws",
            "sluicegate-quic",
        ],
    ),
    ("xtask", &[]),
];

/// What core may link of the world.
const CORE_LINKS: &[&str] = &["bytes", "slab"];

/// A crate of the project.
pub(super) struct Manifest {
    name: String,
    file: String,
    dependencies: Vec<Dependency>,
}

struct Dependency {
    name: String,
    /// Part of the project.
    ours: bool,
    /// Linked, and not only by tests.
    linked: bool,
}

/// The project's crates as cargo sees them.
pub(super) fn manifests(metadata: &Metadata) -> Vec<Manifest> {
    let names: BTreeSet<&str> = metadata.packages.iter().map(|package| &**package.name).collect();
    let manifest = |package: &cargo_metadata::Package| Manifest {
        name: package.name.to_string(),
        file: package
            .manifest_path
            .strip_prefix(&metadata.workspace_root)
            .unwrap_or(&package.manifest_path)
            .to_string(),
        dependencies: package
            .dependencies
            .iter()
            .map(|dependency| Dependency {
                name: dependency.name.clone(),
                ours: names.contains(dependency.name.as_str()),
                linked: dependency.kind == DependencyKind::Normal,
            })
            .collect(),
    };
    metadata.packages.iter().map(manifest).collect()
}

pub(super) fn check(manifests: &[Manifest]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in manifests {
        let mut find = |advice: String| {
            findings.push(Finding::new(&manifest.file, 1, "crate arrow", advice));
        };
        let name = &manifest.name;
        let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| from == name) else {
            find(format!("`{name}` has no place: add it to the table in xtask/src/tidy/crates.rs"));
            continue;
        };
        for dependency in &manifest.dependencies {
            let other = &dependency.name;
            if dependency.ours && !allowed.contains(&other.as_str()) {
                let may = allowed.join(", ");
                find(format!("`{name}` may not import `{other}`; it may import: [{may}]"));
            }
            let links = dependency.linked && !CORE_LINKS.contains(&other.as_str());
            if name == CORE && links && !dependency.ours {
                let may = CORE_LINKS.join(", ");
                find(format!("core may not link `{other}`; it may link: [{may}]"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(name: &str, dependency: &str, ours: bool, linked: bool) -> Vec<String> {
        let dependency = Dependency { name: dependency.to_owned(), ours, linked };
        let manifest = Manifest {
            name: name.to_owned(),
            file: format!("{name}/Cargo.toml"),
            dependencies: vec![dependency],
        };
        check(&[manifest]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_arrow_outside_the_table_is_found() {
        assert_eq!(findings("sluicegate-sim", CORE, true, true), [""; 0]);
        for (from, to) in [
            (CORE, WIRE),
            (WIRE, CORE),
            (HOST, WIRE),
            ("sluicegate-sim", HOST),
            ("sluicegate-sim", "sluicegate-ws"),
            ("sluicegate-ws", "sluicegate-quic"),
            ("sluicegate-client", HOST),
            ("xtask", CORE),
        ] {
            for linked in [true, false] {
                let found = findings(from, to, true, linked);
                let expected =
                    format!("{from}/Cargo.toml:1: crate arrow: `{from}` may not import `{to}`");
                assert!(found.len() == 1 && found[0].starts_with(&expected), "{found:?}");
            }
        }
    }

    #[test]
    fn core_links_little() {
        assert_eq!(findings(CORE, "bytes", false, true), [""; 0]);
        assert_eq!(findings(CORE, "proptest", false, false), [""; 0]);
        let found = findings(CORE, "tokio", false, true);
        assert!(found[0].contains("core may not link `tokio`"), "{found:?}");
    }

    #[test]
    fn a_crate_without_a_place_is_found() {
        let found = findings("sluicegate-new", "bytes", false, true);
        assert!(found[0].contains("`sluicegate-new` has no place"), "{found:?}");
    }
}
