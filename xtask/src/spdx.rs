//! Licence expressions, as far as crates use them: `OR`, `AND`, `WITH`, parentheses, and the old
//! slash that means `OR`.

/// Whether someone who accepts only `allowed` licences can accept `expression`. `None` if it is not
/// an expression. Cost: O(tokens x allowed); recursion is bounded by [`DEPTH`].
pub(crate) fn satisfied(expression: &str, allowed: &[String]) -> Option<bool> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut tokens = spaced.split_whitespace().peekable();
    let answer = any(&mut tokens, allowed, DEPTH)?;
    tokens.next().is_none().then_some(answer)
}

/// Parentheses within parentheses.
const DEPTH: u32 = 16;

type Tokens<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any(tokens: &mut Tokens<'_>, allowed: &[String], depth: u32) -> Option<bool> {
    let mut answer = all(tokens, allowed, depth)?;
    while tokens.next_if_eq(&"OR").is_some() {
        answer |= all(tokens, allowed, depth)?;
    }
    Some(answer)
}

fn all(tokens: &mut Tokens<'_>, allowed: &[String], depth: u32) -> Option<bool> {
    let mut answer = one(tokens, allowed, depth)?;
    while tokens.next_if_eq(&"AND").is_some() {
        answer &= one(tokens, allowed, depth)?;
    }
    Some(answer)
}

fn one(tokens: &mut Tokens<'_>, allowed: &[String], depth: u32) -> Option<bool> {
    let token = tokens.next()?;
    if token == "(" {
        let answer = any(tokens, allowed, depth.checked_sub(1)?)?;
        return (tokens.next() == Some(")")).then_some(answer);
    }
    if [")", "OR", "AND", "WITH"].contains(&token) {
        return None;
    }
    let mut licence = token.to_owned();
    if tokens.next_if_eq(&"WITH").is_some() {
        licence = format!("{licence} WITH {}", tokens.next()?);
    }
    Some(allowed.contains(&licence))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(expression: &str) -> Option<bool> {
        satisfied(expression, &["MIT", "Apache-2.0", "Unicode-3.0"].map(String::from))
    }

    #[test]
    fn an_expression_is_satisfied_by_what_is_allowed() {
        for yes in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0 OR MIT",
            "MIT/Apache-2.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "GPL-3.0 OR (MIT AND Apache-2.0)",
            "Apache-2.0 WITH LLVM-exception OR MIT",
        ] {
            assert_eq!(ask(yes), Some(true), "{yes}");
        }
        for no in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "Apache-2.0 WITH LLVM-exception",
            "(GPL-3.0 OR ISC) AND MIT",
        ] {
            assert_eq!(ask(no), Some(false), "{no}");
        }
    }

    #[test]
    fn what_is_no_expression_is_not_satisfied() {
        for bad in
            ["", "MIT OR", "(MIT", "MIT)", "MIT Apache-2.0", "AND", "MIT WITH", &"(".repeat(99)]
        {
            assert_eq!(ask(bad), None, "{bad}");
        }
    }
}
