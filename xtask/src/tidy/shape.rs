//! Lengths: of files, functions, argument lists and lines.

use super::Finding;
use super::source::Source;
use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, ItemFn, Signature, TraitItemFn, spanned::Spanned};

const ARGUMENTS: usize = 5;
const COLUMNS: usize = 100;
/// Kinds of files whose lines can be broken anywhere.
const WRITTEN: &[&str] = &[".md", ".mjs", ".rs", ".sh", ".yml"];
const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 70;

/// File, function and argument lengths of a Rust file.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut functions = Functions { file: &source.file, findings: Vec::new() };
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
}

impl Functions<'_> {
    fn function(&mut self, signature: &Signature, body: Option<&Block>) {
        let name = &signature.ident;
        let first = signature.span().start().line;
        let arguments = signature.inputs.len();
        if arguments > ARGUMENTS {
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
mod tests {
    use super::*;

    fn findings(file: &str, text: &str) -> Vec<(usize, &'static str)> {
        let source = Source::parse(file, text.to_owned()).unwrap();
        check(&source).into_iter().map(|finding| (finding.line, finding.rule)).collect()
    }

    fn function(lines: usize) -> String {
        format!("/// Doc.\n#[inline]\nfn a() {{\n{}}}\n", "    b();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_of_seventy_lines_just_fits() {
        assert_eq!(findings("a.rs", &function(70)), []);
        assert_eq!(findings("a.rs", &function(71)), [(3, "function length")]);
        let method = format!("impl A {{\n{}}}", function(71));
        assert_eq!(findings("a.rs", &method), [(4, "function length")]);
        let method = format!("trait A {{\n{}}}", function(71));
        assert_eq!(findings("a.rs", &method), [(4, "function length")]);
        let nested = format!("mod tests {{\n{}}}", function(71));
        assert_eq!(findings("a.rs", &nested), [(4, "function length")]);
    }

    #[test]
    fn five_arguments_just_fit() {
        assert_eq!(findings("a.rs", "fn a(b: u8, c: u8, d: u8, e: u8, f: u8) {}"), []);
        let method = "impl A { fn a(&self, b: u8, c: u8, d: u8, e: u8, f: u8) {} }";
        assert_eq!(findings("a.rs", method), [(1, "arguments")]);
        let method = "trait A {\nfn a(&self, b: u8, c: u8, d: u8, e: u8, f: u8); }";
        assert_eq!(findings("a.rs", method), [(2, "arguments")]);
    }

    #[test]
    fn a_file_of_six_hundred_production_lines_just_fits() {
        let code = "static A: u8 = 1;\n";
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "// so\n".repeat(500));
        assert_eq!(findings("core/src/a.rs", &(code.repeat(600) + &tests)), []);
        assert_eq!(findings("core/src/a.rs", &(code.repeat(601) + &tests)), [(1, "file length")]);
        assert_eq!(findings("core/src/a/tests.rs", &code.repeat(601)), []);
    }

    #[test]
    fn a_line_of_a_hundred_columns_just_fits() {
        let wide = |file, text: &str| columns(file, text).len();
        assert_eq!(wide("a.rs", &"é".repeat(100)), 0);
        assert_eq!(wide("a.rs", &"é".repeat(101)), 1);
        assert_eq!(wide("a.md", &"a".repeat(101)), 1);
        assert_eq!(wide("a.md", &format!("| {} |", "a".repeat(101))), 0);
        assert_eq!(wide("a.snap", &"a".repeat(101)), 0);
        assert_eq!(columns("a.yml", &format!("b\n{}", "a".repeat(101)))[0].line, 2);
    }
}
