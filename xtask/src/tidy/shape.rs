//! Lengths: of files, functions, argument lists and lines.

use super::Finding;
use super::source::Source;
use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, ItemFn, ItemImpl, Signature, TraitItemFn, spanned::Spanned};

const ARGUMENTS: usize = 5;
const COLUMNS: usize = 100;
/// Kinds of files whose lines can be broken anywhere.
const WRITTEN: &[&str] = &[".md", ".mjs", ".rs", ".sh", ".yml"];
const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 70;

/// File, function and argument lengths of a Rust file.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut functions = Functions { file: &source.file, findings: Vec::new(), of_trait: false };
    functions.visit_file(&source.syntax);
    let mut findings = functions.findings;
    if !source.is_test_file() {
        let all = source.text.lines().count();
        let tests: usize = source.test_lines().iter().map(|lines| lines.clone().count()).sum();
        let lines = all - tests;
        if lines > FILE_LINES {
            let advice = format!("{lines} production lines, at most {FILE_LINES}: split the file");
            findings.push(Finding::new(&source.file, 1, "file length", advice));
        }
    }
    findings
}

/// Lines that are too wide, in what people write by hand. Tables and addresses in prose cannot be
/// broken, and neither can a string or an inline table of TOML.
pub(super) fn columns(file: &str, text: &str) -> Vec<Finding> {
    if !WRITTEN.iter().any(|end| file.ends_with(end)) {
        return Vec::new();
    }
    let prose = file.ends_with(".md");
    let mut findings = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let excused = prose && (line.starts_with('|') || line.contains("https://"));
        let columns = line.chars().count();
        if columns > COLUMNS && !excused {
            let advice = format!("{columns} columns, at most {COLUMNS}: break the line");
            findings.push(Finding::new(file, at + 1, "line width", advice));
        }
    }
    findings
}

struct Functions<'a> {
    file: &'a str,
    findings: Vec<Finding>,
    /// Inside the implementation of a trait, whose signatures are not ours to choose: our own
    /// traits are looked at where they are.
    of_trait: bool,
}

impl Functions<'_> {
    fn function(&mut self, signature: &Signature, body: Option<&Block>) {
        let name = &signature.ident;
        let first = signature.span().start().line;
        let arguments = signature.inputs.len();
        if arguments > ARGUMENTS && !self.of_trait {
            let advice = format!(
                "`{name}` takes {arguments} arguments, at most {ARGUMENTS}: what travels together \
                 is a type"
            );
            self.findings.push(Finding::new(self.file, first, "arguments", advice));
        }
        let lines = body.map_or(1, |body| body.span().end().line - first + 1);
        if lines > FUNCTION_LINES {
            let advice = format!(
                "`{name}` has {lines} lines, at most {FUNCTION_LINES}: split its state, then it"
            );
            self.findings.push(Finding::new(self.file, first, "function length", advice));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.function(&function.sig, Some(&function.block));
        visit::visit_item_fn(self, function);
    }

    fn visit_item_impl(&mut self, block: &'ast ItemImpl) {
        let before = std::mem::replace(&mut self.of_trait, block.trait_.is_some());
        visit::visit_item_impl(self, block);
        self.of_trait = before;
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.function(&function.sig, Some(&function.block));
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        self.function(&function.sig, function.default.as_ref());
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests;
