//! Every scenario in `scenarios/` holds, twice in a row to the same hash, and its table is the
//! one that is checked in: the hash in it is the same in a debug and in a release build.

use sluicegate_sim::{run, scenario};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

fn scenarios() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    let entries = std::fs::read_dir(folder).expect("the folder of scenarios");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "toml"));
    files.sort();
    files
}

#[test]
fn every_story_holds_and_its_table_is_the_one_kept() {
    let files = scenarios();
    assert!(files.len() >= 40, "{files:?}");
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Relaxed)) {
                    tell(file);
                }
            });
        }
    });
}

/// One file of stories.
fn tell(file: &Path) {
    let stem = file.file_stem().and_then(|stem| stem.to_str()).expect("a name in text").to_owned();
    let text = std::fs::read_to_string(file).expect("the file was listed");
    let mut tables = String::new();
    let stories = scenario::read(&format!("scenarios/{stem}.toml"), &text);
    for story in stories.expect("a scenario") {
        let outcome = run(&story).expect("the broker takes everybody");
        let again = run(&story).expect("the broker takes everybody");
        assert_eq!(outcome.report.tape, again.report.tape, "{}", story.name());
        assert_eq!(outcome.to_string(), again.to_string(), "{}", story.name());
        assert_eq!(outcome.code(), 0, "{outcome}");
        writeln!(tables, "{outcome}").expect("a text takes text");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/snapshots");
    insta::with_settings!({
        snapshot_path => folder,
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, { insta::assert_snapshot!(stem, tables) });
}

#[test]
fn another_seed_is_another_tape_and_another_peer_changes_nobody_elses_dice() {
    let text = r#"
title = "t"
about = "a"
duration = "1s"
[[topic]]
name = "news"
[[publisher]]
name = "feed"
topic = "news"
rate = 100
size = "1KiB..8KiB"
"#;
    let tape = |text: &str, seed| {
        let mut story = scenario::read("t.toml", text).unwrap().remove(0);
        story.seed = seed;
        let report = run(&story).unwrap().report;
        (report.tape, report.books.offered)
    };
    let (one, two) = (tape(text, 1), tape(text, 2));
    assert_ne!(one.0, two.0);
    assert_ne!(one.1.bytes, two.1.bytes);
    let more = format!("{text}\n[[subscriber]]\nname = 's'\ntopic = 'news'");
    let three = tape(&more, 1);
    assert_ne!(one.0, three.0);
    assert_eq!(one.1, three.1);
}
