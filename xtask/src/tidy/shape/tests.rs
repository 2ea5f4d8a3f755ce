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
    let method = "impl B for A { fn a(&self, b: u8, c: u8, d: u8, e: u8, f: u8) {} }";
    assert_eq!(findings("a.rs", method), [], "whoever made the trait chose");
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
