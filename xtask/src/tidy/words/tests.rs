use super::*;

fn rules(file: &str, text: &str) -> Vec<&'static str> {
    check(file, text).into_iter().map(|finding| finding.rule).collect()
}

#[test]
fn every_banned_word_is_found_and_only_as_a_word() {
    for (word, _) in BANNED {
        assert_eq!(rules("a.md", &format!("so {word} it is")), ["banned word"], "{word}");
        assert_eq!(rules("Cargo.lock", word), [""; 0]);
    }
    assert_eq!(rules("a.rs", concat!("MASTO", "DON AUTO", "DO X", "XXL my_to", "do!()")), [""; 0]);
}

#[test]
fn history_is_found() {
    let words = [
        concat!("see iss", "ue 2"),
        concat!("Ph", "ase-3"),
        concat!("iss", "ue #17"),
        concat!("mile", "stone 1"),
    ];
    for text in words {
        assert_eq!(rules("a.rs", text), ["history"], "{text}");
    }
    for text in ["issue a warning", "two-phase", "tissue 4", "phase4", "issues 4"] {
        assert_eq!(rules("a.rs", text), [""; 0], "{text}");
    }
}

#[test]
fn dates_are_found_outside_the_changelog() {
    let date = concat!("on 2031-", "01-17.");
    assert_eq!(rules("a.rs", date), ["date"]);
    assert_eq!(rules(HISTORY, date), [""; 0]);
    for text in ["2031-1-17", "120-2031-01-17", "2031-01-170", "8031-01-17", "2031/01/17"] {
        assert_eq!(rules("a.rs", text), [""; 0], "{text}");
    }
}

#[test]
fn paths_of_one_machine_are_found() {
    for folder in FOLDERS {
        for text in [format!("cd /{folder}/x"), format!("`/{folder}`"), format!("=/{folder}\"")] {
            assert_eq!(rules("a.sh", &text), ["machine path"], "{text}");
        }
        for text in [format!("a/{folder}/x"), format!("/{folder}ing"), format!("/{folder}-1")] {
            assert_eq!(rules("a.sh", &text), [""; 0], "{text}");
        }
    }
}

#[test]
fn a_finding_says_where_and_what_to_do() {
    let text = format!("fine\n{}\n", concat!("// TO", "DO"));
    let finding = check("core/src/a.rs", &text).remove(0).to_string();
    assert!(finding.starts_with("core/src/a.rs:2: banned word: "), "{finding}");
    assert!(finding.ends_with("do it, or leave its place visible in ARCHITECTURE.md"));
}
