//! A parsed Rust file, and which of its lines are test code.

use super::Finding;
use std::ops::RangeInclusive;
use syn::spanned::Spanned;
use syn::{Attribute, Item, Meta};

/// A Rust file.
pub(super) struct Source {
    pub(super) file: String,
    pub(super) text: String,
    pub(super) syntax: syn::File,
}

impl Source {
    pub(super) fn parse(file: &str, text: String) -> Result<Self, Finding> {
        match syn::parse_file(&text) {
            Ok(syntax) => Ok(Self { file: file.to_owned(), text, syntax }),
            Err(error) => {
                let line = error.span().start().line;
                Err(Finding::new(file, line, "syntax", format!("this is no Rust: {error}")))
            }
        }
    }

    /// Whether the whole file is test code: `name/tests.rs`, or a file under `tests/`.
    pub(super) fn is_test_file(&self) -> bool {
        self.file.split('/').any(|part| part == "tests" || part == "tests.rs")
    }

    /// Lines that only tests compile.
    pub(super) fn test_lines(&self) -> Vec<RangeInclusive<usize>> {
        let tests = self.syntax.items.iter().filter(|item| is_test(attributes(item)));
        tests.map(lines).collect()
    }
}

/// The lines of a piece of syntax, its attributes and docs included.
pub(super) fn lines(syntax: &impl Spanned) -> RangeInclusive<usize> {
    let span = syntax.span();
    span.start().line..=span.end().line
}

/// Whether only tests compile what has these attributes.
pub(super) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let Meta::List(list) = &attribute.meta else { return false };
        let condition = list.tokens.to_string().replace(' ', "");
        list.path.is_ident("cfg") && (condition == "test" || condition.starts_with("all(test,"))
    })
}

/// The attributes of an item.
pub(super) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_code_is_told_from_the_rest() {
        let text = "fn a() {}\n#[cfg(any(test, feature = \"check\"))]\nfn b() {}\n/// Doc.\n\
                    #[cfg(test)]\nmod tests {\n}\n#[cfg(all(test, unix))]\nmod more {}\n";
        let source = Source::parse("core/src/a.rs", text.to_owned()).unwrap();
        assert_eq!(source.test_lines(), [4..=7, 8..=9]);
        assert!(!source.is_test_file());
        assert!(Source::parse("core/src/a/tests.rs", String::new()).unwrap().is_test_file());
        assert!(Source::parse("sim/tests/a.rs", String::new()).unwrap().is_test_file());
    }

    #[test]
    fn what_does_not_parse_is_a_finding() {
        let finding = Source::parse("a.rs", "fn a() {}\nfn {".to_owned()).err().unwrap();
        assert_eq!((finding.line, finding.rule), (2, "syntax"));
    }
}
