//! Files of others that are kept in the project: unchanged, and under a licence that is allowed.
//! Each folder of them has a `vendored.toml` that names them.

use crate::spdx;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

const LIST: &str = "vendored.toml";

/// What is wrong with them, and how many files there are.
pub(crate) fn check(workspace: &Workspace, allowed: &[String]) -> Result<(Vec<String>, usize)> {
    let files = workspace.files()?;
    let (mut faults, mut count) = (Vec::new(), 0);
    for list in files.iter().filter(|file| file.ends_with(LIST)) {
        let folder = list.strip_suffix(LIST).unwrap_or_default();
        let table: toml::Table =
            workspace.read(list)?.parse().with_context(|| format!("{list} is not TOML"))?;
        let mut kept = BTreeMap::new();
        for file in files.iter().filter(|file| file.starts_with(folder) && *file != list) {
            let bytes = std::fs::read(workspace.root.join(file))
                .with_context(|| format!("cannot read {file}"))?;
            let hex = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            kept.insert(file[folder.len()..].to_owned(), hex);
        }
        count += kept.len();
        faults.extend(faults_of(list, &table, &kept, allowed));
    }
    Ok((faults, count))
}

/// Compares a list with the files beside it: name and hash.
fn faults_of(
    list: &str,
    table: &toml::Table,
    kept: &BTreeMap<String, String>,
    allowed: &[String],
) -> Vec<String> {
    let mut faults = Vec::new();
    let mut named = BTreeMap::new();
    let entries = table.get("vendored").and_then(toml::Value::as_array);
    for entry in entries.into_iter().flatten() {
        let text = |key: &str| entry.get(key).and_then(toml::Value::as_str).unwrap_or_default();
        let who = format!("{list}: {} {}", text("name"), text("version"));
        if spdx::satisfied(text("licence"), allowed) != Some(true) {
            faults.push(format!("{who}: licence: `{}` is not in deny.toml", text("licence")));
        }
        if !kept.contains_key(text("licence_file")) {
            faults.push(format!("{who}: licence_file: `{}` is not there", text("licence_file")));
        }
        let hashes = entry.get("sha256").and_then(toml::Value::as_table);
        for (file, hash) in hashes.into_iter().flatten() {
            named.insert(file.clone(), ());
            match kept.get(file) {
                None => faults.push(format!("{who}: `{file}` is not there")),
                Some(is) if Some(is.as_str()) != hash.as_str() => faults.push(format!(
                    "{who}: `{file}` is not as it was published: put the original back, or name \
                     the version that it is (sha256 {is})"
                )),
                Some(_) => {}
            }
        }
    }
    let strangers = kept.keys().filter(|file| !named.contains_key(*file));
    faults.extend(strangers.map(|file| format!("{list}: `{file}` is not named: name its origin")));
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"
[[vendored]]
name = "thing"
version = "1.0"
licence = "MIT"
licence_file = "LICENSE"
[vendored.sha256]
LICENSE = "11"
"thing.js" = "22"
"#;

    fn faults(list: &str, kept: &[(&str, &str)]) -> Vec<String> {
        let kept = kept.iter().map(|(file, hash)| ((*file).to_owned(), (*hash).to_owned()));
        let allowed = ["MIT".to_owned()];
        faults_of("v.toml", &list.parse().unwrap(), &kept.collect(), &allowed)
    }

    #[test]
    fn what_is_named_and_unchanged_is_in_order() {
        assert_eq!(faults(LIST, &[("LICENSE", "11"), ("thing.js", "22")]), [""; 0]);
    }

    #[test]
    fn each_fault_is_found() {
        let cases = [
            (LIST, &[("LICENSE", "11"), ("thing.js", "23")][..], "not as it was published"),
            (LIST, &[("LICENSE", "11")], "`thing.js` is not there"),
            (LIST, &[("LICENSE", "11"), ("thing.js", "22"), ("x", "3")], "`x` is not named"),
            (&LIST.replace("MIT", "GPL-3.0"), &[("LICENSE", "11"), ("thing.js", "22")], "licence:"),
            (
                &LIST.replace("file = \"LICENSE", "file = \"L"),
                &[("LICENSE", "11"), ("thing.js", "22")],
                "licence_file: `L`",
            ),
        ];
        for (list, kept, due) in cases {
            let found = faults(list, kept);
            assert!(found.len() == 1 && found[0].contains(due), "{due}: {found:?}");
        }
    }
}
