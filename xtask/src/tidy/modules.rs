//! Arrows between the modules of core: the hub knows the checkpoints, the checkpoints know the
//! books, the books know the leaves. Never sideways between checkpoints, never up.

use super::Finding;
use super::source::{Source, attributes, is_test};
use proc_macro2::{Ident, Punct, Spacing, TokenStream, TokenTree};
use std::collections::BTreeMap;
use syn::visit::{self, Visit};
use syn::{Item, Macro, UseTree, spanned::Spanned};

/// Rows from the hub down. A module may use every row below its own.
const ROWS: &[Row] = &[
    Row { name: "hub", sideways: false, modules: &["broker"] },
    Row {
        name: "checkpoints",
        sideways: false,
        modules: &["admission", "backlog", "client", "egress", "schedule", "topic"],
    },
    Row {
        name: "books",
        sideways: true,
        modules: &[
            "codel", "heavy", "lag", "lease", "ledger", "limits", "memory", "mesh", "notice",
            "peers", "pool", "pressure", "replay", "shed", "verdict", "writer",
        ],
    },
    Row {
        name: "leaves",
        sideways: true,
        modules: &["id", "list", "model", "names", "rand", "ring", "slab", "time", "timer"],
    },
];

/// Books that are not for every checkpoint, and the modules above them that may use them.
const RESERVED: &[(&str, &[&str])] = &[("memory", &["broker"]), ("pressure", &["broker"])];

const ROOT: &str = "core/src/lib.rs";
const FOLDER: &str = "core/src/";
const RULE: &str = "module arrow";

struct Row {
    name: &'static str,
    /// Whether its modules may use each other.
    sideways: bool,
    modules: &'static [&'static str],
}

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let Some(root) = sources.iter().find(|source| source.file == ROOT) else {
        return vec![Finding::new(ROOT, 1, RULE, "core's root is missing: put it back")];
    };
    let exports = exports(root);
    let mut findings = Vec::new();
    let mut sideways = BTreeMap::new();
    for source in sources {
        let Some(module) = module(&source.file) else { continue };
        let Some(own) = row(module) else {
            let advice =
                format!("`{module}` has no row: add it to the table in xtask/src/tidy/modules.rs");
            findings.push(Finding::new(&source.file, 1, RULE, advice));
            continue;
        };
        if source.is_test_file() {
            continue;
        }
        for (line, name) in names(source) {
            let used = if row(&name).is_some() { Some(&name) } else { exports.get(&name) };
            if let Some(used) = used.filter(|used| row(used) == Some(own) && *used != module) {
                let edge = (module.to_owned(), used.clone());
                sideways.entry(edge).or_insert_with(|| (source.file.clone(), line));
            }
            let breach = match used {
                Some(used) => arrow(module, own, used),
                None if name == "*" && own == 0 => None,
                None if name == "*" => Some("only the hub imports everything: name it".to_owned()),
                None => Some(format!("`{name}` is no module and no export of core")),
            };
            findings.extend(breach.map(|advice| Finding::new(&source.file, line, RULE, advice)));
        }
    }
    findings.extend(circles(&sideways));
    findings
}

/// Where each arrow within a row stands: from, to, file and line.
type Sideways = BTreeMap<(String, String), (String, usize)>;

/// Arrows of a row that come back to where they start.
fn circles(sideways: &Sideways) -> Vec<Finding> {
    let comes_back = |start: &str, first: &str| {
        let mut reached = vec![first];
        let mut next = 0;
        while let Some(&at) = reached.get(next) {
            for (_, to) in sideways.keys().filter(|(from, _)| from == at) {
                if !reached.contains(&to.as_str()) {
                    reached.push(to);
                }
            }
            next += 1;
        }
        reached.contains(&start)
    };
    let circular = sideways.iter().filter(|((from, to), _)| comes_back(from, to));
    circular
        .map(|((from, to), (file, line))| {
            let advice =
                format!("`{from}` and `{to}` use each other: one of them holds two things");
            Finding::new(file, *line, RULE, advice)
        })
        .collect()
}

/// The module a file of core belongs to. `lib.rs` is above them all.
fn module(file: &str) -> Option<&str> {
    let path = file.strip_prefix(FOLDER)?;
    let name = path.split('/').next()?;
    let name = name.strip_suffix(".rs").unwrap_or(name);
    (name != "lib").then_some(name)
}

fn row(module: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.modules.contains(&module))
}

/// Why `module` may not use `used`, if it may not.
fn arrow(module: &str, own: usize, used: &str) -> Option<String> {
    if module == used {
        return None;
    }
    let other = row(used).expect("exports lead to modules with a row or to none");
    if other < own {
        let (up, here) = (ROWS[other].name, ROWS[own].name);
        return Some(format!("`{module}` ({here}) looks up to `{used}` ({up}): pass it a value"));
    }
    if other == own && !ROWS[own].sideways {
        return Some(format!("`{module}` looks sideways to `{used}`: let the hub pass the value"));
    }
    let reserved = RESERVED.iter().find(|(name, _)| *name == used && other > own);
    let (_, users) = reserved.filter(|(_, users)| !users.contains(&module))?;
    Some(format!("`{used}` is for {} and the books, not for `{module}`", users.join(", ")))
}

/// The names that `lib.rs` re-exports, and the modules they come from.
fn exports(root: &Source) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for item in &root.syntax.items {
        if let Item::Use(item) = item
            && let UseTree::Path(path) = &item.tree
        {
            let module = path.ident.to_string();
            let mut leaves = Vec::new();
            leaf_names(&path.tree, &mut leaves);
            let known = row(&module).is_some();
            exports.extend(leaves.into_iter().filter(|_| known).map(|name| (name, module.clone())));
        }
    }
    exports
}

fn leaf_names(tree: &UseTree, names: &mut Vec<String>) {
    match tree {
        UseTree::Path(path) => leaf_names(&path.tree, names),
        UseTree::Name(name) => names.push(name.ident.to_string()),
        UseTree::Rename(rename) => names.push(rename.rename.to_string()),
        UseTree::Glob(_) => names.push("*".to_owned()),
        UseTree::Group(group) => group.items.iter().for_each(|tree| leaf_names(tree, names)),
    }
}

/// What a file's production code names right behind `crate::`, and where.
fn names(source: &Source) -> Vec<(usize, String)> {
    let below = source.file.strip_prefix(FOLDER).unwrap_or_default();
    // `core/src/a.rs` is one step below the root, `core/src/a/b.rs` two.
    let mut names = Names { found: Vec::new(), depth: below.split('/').count() };
    names.visit_file(&source.syntax);
    names.found
}

struct Names {
    found: Vec<(usize, String)>,
    /// How many `super` lead to the crate's root from here.
    depth: usize,
}

impl Names {
    /// Finds what hangs at the crate's root in a `use` tree that stands behind `ups` times `super`.
    fn roots(&mut self, tree: &UseTree, ups: usize) {
        match tree {
            UseTree::Path(path) if path.ident == "crate" => self.heads(&path.tree),
            UseTree::Path(path) if path.ident == "super" && ups + 1 == self.depth => {
                self.heads(&path.tree);
            }
            UseTree::Path(path) if path.ident == "super" => self.roots(&path.tree, ups + 1),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.roots(tree, ups)),
            _ => {}
        }
    }

    /// The first names of a tree that hangs at the crate's root.
    fn heads(&mut self, tree: &UseTree) {
        let name = match tree {
            UseTree::Path(path) => path.ident.to_string(),
            UseTree::Name(name) => name.ident.to_string(),
            UseTree::Rename(rename) => rename.ident.to_string(),
            UseTree::Glob(_) => "*".to_owned(),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.heads(tree));
                return;
            }
        };
        self.found.push((tree.span().start().line, name));
    }

    /// The name that a path's words lead to at the crate's root.
    fn head<'a>(&self, words: &'a [Ident]) -> Option<&'a Ident> {
        let ups = words.iter().take_while(|word| *word == "super").count();
        let to_root = match words.first() {
            Some(first) if first == "crate" => 1,
            Some(_) if ups > 0 && ups == self.depth => ups,
            _ => return None,
        };
        words.get(to_root)
    }

    /// Paths in a macro's arguments, which are not syntax yet.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for tree in &tokens {
            if let TokenTree::Group(group) = tree {
                self.tokens(group.stream());
            }
        }
        let mut words: Vec<Ident> = Vec::new();
        let mut colons = 0;
        for tree in tokens.iter().chain([&TokenTree::from(Punct::new(';', Spacing::Alone))]) {
            match tree {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(word) if colons == 2 => {
                    words.push(word.clone());
                    colons = 0;
                }
                other => {
                    self.found_path(&words);
                    words = if let TokenTree::Ident(word) = other {
                        vec![word.clone()]
                    } else {
                        vec![]
                    };
                    colons = 0;
                }
            }
        }
    }

    fn found_path(&mut self, words: &[Ident]) {
        if let Some(name) = self.head(words) {
            self.found.push((name.span().start().line, name.to_string()));
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.depth += 1;
        visit::visit_item_mod(self, module);
        self.depth -= 1;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.roots(&item.tree, 0);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Vec<Ident> = path.segments.iter().map(|part| part.ident.clone()).collect();
        self.found_path(&words);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, mac: &'ast Macro) {
        self.tokens(mac.tokens.clone());
        visit::visit_macro(self, mac);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: &str = "mod broker; mod ledger;\npub use broker::{Broker, Offer};\n\
                       pub use ledger::Books;\npub use time::Instant;\n";

    fn findings(module: &str, text: &str) -> Vec<String> {
        let file = format!("{FOLDER}{module}.rs");
        let sources = [(ROOT, LIB), (&file, text)]
            .map(|(file, text)| Source::parse(file, text.to_owned()).unwrap());
        check(&sources).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn arrows_point_down() {
        for (module, text) in [
            ("broker", "use crate::*; use crate::{admission::Gate, ring::Ring};"),
            ("backlog", "use crate::ledger::Books; use crate::{Instant, verdict::Place};"),
            ("egress", "use super::list::List; fn a() { crate::slab::b() }"),
            ("shed", "use crate::memory::Held; use crate::pressure::Factor;"),
            ("timer", "use crate::{list, slab, time::Instant};"),
            ("slab", "use alloc::vec::Vec; use core::ops::Index;"),
        ] {
            assert_eq!(findings(module, text), [""; 0], "{module}: {text}");
        }
    }

    #[test]
    fn an_arrow_that_points_up_or_sideways_is_found() {
        for (module, text, advice) in [
            ("backlog", "use crate::egress::Outlet;", "looks sideways to `egress`"),
            ("backlog", "use crate::{id, egress::Outlet};", "looks sideways to `egress`"),
            ("backlog", "use {crate::egress};", "looks sideways to `egress`"),
            ("backlog", "use super::egress;", "looks sideways to `egress`"),
            ("topic", "fn a() { crate::schedule::b() }", "looks sideways to `schedule`"),
            ("topic", "fn a() { assert!(f(crate::schedule::B)) }", "looks sideways to `schedule`"),
            ("topic", "fn a(b: &crate::Broker) {}", "looks up to `broker`"),
            ("ledger", "impl crate::egress::A for B {}", "looks up to `egress`"),
            ("slab", "use crate::Books as B;", "looks up to `ledger`"),
            ("egress", "use crate::*;", "only the hub imports everything"),
            ("egress", "use crate::memory::Held;", "`memory` is for broker"),
            ("egress", "use crate::Nowhere;", "`Nowhere` is no module"),
        ] {
            let found = findings(module, text);
            assert!(found.len() == 1 && found[0].contains(advice), "{module}: {text}: {found:?}");
        }
    }

    #[test]
    fn a_circle_within_a_row_is_found() {
        let check = |text: &str| {
            let files = [
                (ROOT, LIB),
                ("core/src/list.rs", "use crate::slab::Slab;"),
                ("core/src/timer.rs", "use crate::list::List;"),
                ("core/src/slab.rs", text),
            ];
            check(&files.map(|(file, text)| Source::parse(file, text.to_owned()).unwrap()))
        };
        assert_eq!(check("use crate::time::Instant;"), []);
        let found = check("use crate::timer::Timers;");
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].advice.contains("use each other"), "{found:?}");
    }

    #[test]
    fn tests_may_import_anything() {
        let text = "#[cfg(test)]\nmod tests { use crate::Broker; }";
        assert_eq!(findings("backlog", text), [""; 0]);
        assert_eq!(findings("backlog/tests", "use crate::Broker;"), [""; 0]);
        let text = "mod inner { use crate::Broker; }";
        assert_eq!(findings("backlog", text).len(), 1);
    }

    #[test]
    fn only_as_many_supers_as_lead_to_the_root_count() {
        for (module, text, breaches) in [
            ("schedule/lane", "use super::Tenant; fn a() { super::b() }", 0),
            ("schedule/lane", "use super::super::egress::Outlet;", 1),
            ("schedule/lane", "fn a() { assert!(super::super::egress::b()) }", 1),
            ("schedule", "mod lane { use super::Tenant; fn a() { super::b() } }", 0),
            ("schedule", "mod lane { use super::super::egress::Outlet; }", 1),
            ("schedule", "fn a() { super::egress::b() }", 1),
        ] {
            assert_eq!(findings(module, text).len(), breaches, "{module}: {text}");
        }
    }

    #[test]
    fn a_module_without_a_row_is_found() {
        let found = findings("helpers", "");
        assert!(found[0].starts_with("core/src/helpers.rs:1: module arrow: "), "{found:?}");
    }
}
