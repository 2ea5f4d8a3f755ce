//! The style guide as code. Each rule is a function from text to findings, and each is shown to
//! bite by a test.

mod crates;
mod labels;
mod map;
mod modules;
mod rules;
mod shape;
mod source;
mod words;

use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use source::Source;
use std::fmt;

/// One breach of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    file: String,
    line: usize,
    rule: &'static str,
    /// What to do about it.
    advice: String,
}

impl Finding {
    fn new(file: &str, line: usize, rule: &'static str, advice: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, rule, advice: advice.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.rule, self.advice)
    }
}

pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let files = workspace.files()?;
    let mut findings = crates::check(&crates::manifests(&workspace.members));
    let mut sources = Vec::new();
    let mut foreign = Vec::new();
    for file in &files {
        let bytes = std::fs::read(workspace.root.join(file))
            .with_context(|| format!("cannot read {file}"))?;
        // What is not text has no words and no lines.
        let Ok(text) = String::from_utf8(bytes) else { continue };
        findings.extend(words::check(file, &text));
        findings.extend(shape::columns(file, &text));
        findings.extend(map::check(file, &text, &files));
        foreign.extend(rules::foreign(file, &text));
        if file.ends_with(".rs") {
            match Source::parse(file, text) {
                Ok(source) => sources.push(source),
                Err(finding) => findings.push(finding),
            }
        }
    }
    for source in &sources {
        findings.extend(shape::check(source));
    }
    findings.extend(modules::check(&sources));
    let mut proofs = labels::proofs(&sources, &files);
    findings.extend(labels::check(&sources, &proofs));
    proofs.extend(foreign);
    for file in rules::FILES {
        findings.extend(rules::check(file, workspace.read(file).ok().as_deref(), &proofs));
    }
    findings.sort();
    findings.dedup();
    for finding in &findings {
        println!("{finding}");
    }
    ensure!(findings.is_empty(), "{} findings", findings.len());
    println!("{} files are tidy", files.len());
    Ok(())
}
