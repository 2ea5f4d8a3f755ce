//! Words for people who configure a program.

/// The name among `known` that needs the fewest changes to become `name`; none where there is
/// none.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known.into_iter().min_by_key(|known| distance(name, known))
}

/// Insertions, deletions and replacements that make one text the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    // Far longer than any name: the distance is the length.
    if one.len() > 200 {
        return one.len();
    }
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_needs_the_fewest_changes() {
        assert_eq!(distance("lossless", "lossless"), 0);
        assert_eq!(distance("loseless", "lossless"), 1);
        assert_eq!(distance("", "abc"), 3);
        let known = ["memory_budget", "max_topics"];
        assert_eq!(nearest("memory_buget", known), Some("memory_budget"));
        assert_eq!(nearest("x", []), None);
    }
}
