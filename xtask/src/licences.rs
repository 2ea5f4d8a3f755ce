//! What we depend on: may we, from where, and how exactly. The list of licences is `deny.toml`'s.

use crate::spdx;
use crate::vendored;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use cargo_metadata::{MetadataCommand, Package};
use std::collections::{BTreeMap, BTreeSet};

/// How cargo writes the one registry that is allowed.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let allowed = allowed(&workspace.read("deny.toml")?)?;
    let metadata = MetadataCommand::new()
        .current_dir(&workspace.root)
        .other_options(vec!["--locked".to_owned()])
        .exec()
        .context("`cargo metadata --locked` failed: is Cargo.lock up to date?")?;
    let packages: Vec<Dependency> = metadata.packages.iter().map(Dependency::from).collect();
    for line in duplicates(&packages) {
        println!("warning: {line}");
    }
    let mut faults: Vec<String> =
        packages.iter().flat_map(|package| package.faults(&allowed)).collect();
    faults.extend(unused(&packages, &allowed));
    let (vendored, files) = vendored::check(workspace, &allowed)?;
    faults.extend(vendored);
    for fault in &faults {
        println!("{fault}");
    }
    if !faults.is_empty() {
        bail!("{} faults in what we depend on", faults.len());
    }
    println!(
        "{} packages, {files} files of others: licences and sources are in order",
        packages.len()
    );
    Ok(())
}

/// The licences that `deny.toml` allows.
fn allowed(text: &str) -> Result<Vec<String>> {
    let table: toml::Table = text.parse().context("deny.toml is not TOML")?;
    let list = table
        .get("licenses")
        .and_then(|licences| licences.get("allow"))
        .and_then(toml::Value::as_array)
        .context("deny.toml has no `licenses.allow` list")?;
    let names = list.iter().map(|name| name.as_str().map(str::to_owned));
    names.collect::<Option<_>>().context("deny.toml: `licenses.allow` holds more than strings")
}

/// What matters of a package.
struct Dependency {
    name: String,
    version: String,
    /// None for what is part of the project.
    source: Option<String>,
    licence: Option<String>,
    /// Dependencies that take any version.
    wildcards: Vec<String>,
}

impl From<&Package> for Dependency {
    fn from(package: &Package) -> Self {
        let loose = package
            .dependencies
            .iter()
            .filter(|dependency| dependency.path.is_none() && dependency.req.to_string() == "*");
        Self {
            name: package.name.to_string(),
            version: package.version.to_string(),
            source: package.source.as_ref().map(|source| source.repr.clone()),
            licence: package.license.clone(),
            wildcards: loose.map(|dependency| dependency.name.clone()).collect(),
        }
    }
}

impl Dependency {
    fn faults(&self, allowed: &[String]) -> Vec<String> {
        let who = format!("{} {}", self.name, self.version);
        let mut faults = Vec::new();
        match self.licence.as_deref().map(|licence| (licence, spdx::satisfied(licence, allowed))) {
            Some((_, Some(true))) => {}
            Some((licence, Some(false))) => faults.push(format!(
                "{who}: licence: `{licence}` needs what deny.toml does not allow: drop the \
                 package, or discuss the licence and add it there"
            )),
            Some((licence, None)) => {
                faults.push(format!("{who}: licence: `{licence}` is not a licence expression"));
            }
            None => faults.push(format!("{who}: licence: none is declared: drop the package")),
        }
        if let Some(source) = self.source.as_deref().filter(|source| *source != CRATES_IO) {
            faults.push(format!("{who}: source: `{source}` is not crates.io"));
        }
        // A published package cannot have wildcards, so these are our own manifests.
        faults.extend(self.wildcards.iter().map(|name| {
            format!("{who}: version: `{name} = \"*\"` takes anything: name a version")
        }));
        faults
    }
}

/// Packages that are built in more than one version: worth a look, not an error.
fn duplicates(packages: &[Dependency]) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    let several = versions.into_iter().filter(|(_, found)| found.len() > 1);
    several
        .map(|(name, found)| {
            format!("{name} is here {} times: {}", found.len(), Vec::from_iter(found).join(", "))
        })
        .collect()
}

/// Licences that are allowed and nobody needs: the list says what is, not what could be.
fn unused(packages: &[Dependency], allowed: &[String]) -> Vec<String> {
    let needed = |licence: &String| {
        let others: Vec<String> =
            allowed.iter().filter(|other| *other != licence).cloned().collect();
        packages
            .iter()
            .filter_map(|package| package.licence.as_deref())
            .any(|expression| spdx::satisfied(expression, &others) == Some(false))
    };
    let idle = allowed.iter().filter(|licence| !needed(licence) && *licence != "Apache-2.0");
    idle.map(|licence| format!("deny.toml: licence: `{licence}` is needed by nobody: remove it"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(licence: Option<&str>, source: Option<&str>) -> Dependency {
        Dependency {
            name: "thing".to_owned(),
            version: "1.0.0".to_owned(),
            source: source.map(str::to_owned),
            licence: licence.map(str::to_owned),
            wildcards: Vec::new(),
        }
    }

    fn mit() -> Vec<String> {
        vec!["MIT".to_owned()]
    }

    #[test]
    fn the_list_comes_from_deny_toml() {
        assert_eq!(allowed("[licenses]\nallow = [\"MIT\"]").unwrap(), mit());
        assert!(allowed("[licenses]").unwrap_err().to_string().contains("licenses.allow"));
    }

    #[test]
    fn a_licence_outside_the_list_is_a_fault() {
        assert!(package(Some("MIT OR ISC"), Some(CRATES_IO)).faults(&mit()).is_empty());
        let faults = package(Some("GPL-3.0"), Some(CRATES_IO)).faults(&mit());
        assert!(faults[0].contains("thing 1.0.0: licence: `GPL-3.0`"), "{faults:?}");
        assert!(package(None, None).faults(&mit())[0].contains("none is declared"));
        assert!(package(Some("MIT or so"), None).faults(&mit())[0].contains("not a licence"));
    }

    #[test]
    fn a_source_other_than_crates_io_is_a_fault() {
        for source in ["git+https://somewhere/thing", "registry+https://elsewhere/index"] {
            let faults = package(Some("MIT"), Some(source)).faults(&mit());
            assert!(faults[0].contains("is not crates.io"), "{faults:?}");
        }
    }

    #[test]
    fn a_wildcard_version_is_a_fault() {
        let mut loose = package(Some("MIT"), None);
        loose.wildcards.push("other".to_owned());
        assert!(loose.faults(&mit())[0].contains("`other = \"*\"`"));
    }

    #[test]
    fn two_versions_of_one_package_are_listed() {
        let mut newer = package(Some("MIT"), None);
        newer.version = "2.0.0".to_owned();
        let lines = duplicates(&[package(Some("MIT"), None), newer]);
        assert_eq!(lines, ["thing is here 2 times: 1.0.0, 2.0.0"]);
        assert!(duplicates(&[package(Some("MIT"), None)]).is_empty());
    }

    #[test]
    fn an_allowed_licence_nobody_needs_is_a_fault() {
        let allowed = ["MIT", "ISC"].map(String::from);
        let faults = unused(&[package(Some("MIT"), None)], &allowed);
        assert_eq!(faults.len(), 1);
        assert!(faults[0].contains("`ISC` is needed by nobody"), "{faults:?}");
    }
}
