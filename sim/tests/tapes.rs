//! Tapes on the command line: written, replayed, asked "what if", shrunk, and told what is wrong.

use sluicegate_core::{Item, Kind, Tape};
use sluicegate_sim::dice;
use sluicegate_sim::script::Script;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn sim(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-sim"));
    command.args(arguments).output().expect("the program runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A folder of its own for each test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    folder
}

/// A world with many drops, as a script.
fn script() -> Script {
    let dropping = |seed: &u64| {
        let (_, played) = dice::plan(*seed).deal();
        played.reached.0.keys().any(|what| what == "dropped backlog/drop_old")
    };
    let seed = (1..200).find(dropping).expect("some world drops");
    dice::plan(seed).deal().0
}

fn write(folder: &Path, script: &Script) -> String {
    let path = folder.join("world.tape");
    std::fs::write(&path, script.play(true).tape).expect("a tape can be written");
    path.display().to_string()
}

/// The tenants of one shard are not there, as no host may do it: its core asserts.
fn broken() -> Script {
    let sharded = |seed: &u64| dice::plan(*seed).limits.shards > 1;
    let all = (1..400).filter(sharded).map(|seed| dice::plan(seed).deal().0);
    let mut broken = all.map(|script| {
        let stays = |at: &usize| {
            let op = &script.ops[*at];
            op.shard != 0 || op.input.kind() != Kind::Tenant
        };
        script.only(&(0..script.ops.len()).filter(stays).collect::<Vec<_>>())
    });
    broken.find(|script| script.play(false).conviction.is_some()).expect("some world forwards")
}

#[test]
fn a_tape_replays_to_the_recorded_decisions() {
    let folder = folder("replays");
    let tape = write(&folder, &script());
    let output = sim(&["replay", &tape]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("every decision is the recorded one"), "{}", text(&output));
    let document: serde_json::Value =
        serde_json::from_str(&text(&sim(&["replay", &tape, "--json"]))).unwrap();
    assert_eq!(document["conviction"], serde_json::Value::Null);
    assert_eq!(document["differs_at"], serde_json::Value::Null);
    assert!(document["marks"].as_u64().unwrap() > 0);
    assert_eq!(document["decisions"], "same");
}

#[test]
fn a_tape_that_was_decided_otherwise_says_so() {
    let folder = folder("differs");
    let mut bytes = script().play(true).tape;
    *bytes.last_mut().unwrap() ^= 1;
    let path = folder.join("world.tape");
    std::fs::write(&path, bytes).unwrap();
    let output = sim(&["replay", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("DECIDED OTHERWISE"), "{}", text(&output));
}

#[test]
fn a_tape_without_a_fingerprint_is_not_called_the_same() {
    let folder = folder("unmarked");
    let mut bytes = script().play(true).tape;
    // The fingerprint at its end: one of eight bytes, behind a byte that says what it is.
    let marks = |bytes: &[u8]| {
        let tape = Tape::read(bytes).unwrap();
        let is_mark = |item: &Item| matches!(item, Item::Mark { .. });
        tape.items().map_while(Result::ok).filter(is_mark).count()
    };
    while marks(&bytes) > 0 {
        bytes.pop();
    }
    let path = folder.join("world.tape");
    std::fs::write(&path, bytes).unwrap();
    let output = sim(&["replay", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("NOT COMPARED: the tape has no fingerprint"));
    let output = sim(&["replay", path.to_str().unwrap(), "--json"]);
    let document: serde_json::Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(document["decisions"], "unknown");
}

#[test]
fn other_limits_are_answered_with_two_books_side_by_side() {
    let tape = folder("what_if").join("story.tape").display().to_string();
    let story = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/slow-subscriber.toml");
    assert_eq!(sim(&["run", story, "--tape", &tape]).status.code(), Some(0));
    let set = ["--set", "high_water_bytes=1GiB"];
    let output = sim(&[&["replay", &tape][..], &set].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert!(text(&output).starts_with("AN ESTIMATE"), "{}", text(&output));
    let output = sim(&[&["replay", &tape, "--json"][..], &set].concat());
    let document: serde_json::Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(document["estimate"], true);
    let records = |when: &str, what: &str| document[when][what]["records"].as_u64().unwrap_or(0);
    assert_eq!(records("before", "offered"), records("after", "offered"));
    let dropped = ["before", "after"].map(|when| records(when, "dropped backlog/drop_old"));
    assert!(dropped[0] > dropped[1], "{dropped:?}");
}

#[test]
fn an_estimate_keeps_the_time_that_the_shard_had() {
    let tape = folder("short").join("story.tape").display().to_string();
    let story = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/burst.toml");
    let arguments = ["run", story, "--variant", "drop", "--tape", &tape];
    assert_eq!(sim(&arguments).status.code(), Some(0));
    let output = sim(&["replay", &tape, "--json", "--set", "pub_queue_total=512"]);
    let document: serde_json::Value = serde_json::from_str(&text(&output)).unwrap();
    let shed = |when: &str| &document[when]["shed schedule/queue_full"]["records"];
    assert!(shed("recorded").as_u64() > Some(0), "{document}");
    assert_eq!(shed("before"), shed("recorded"));
    assert!(shed("after").as_u64() < shed("before").as_u64());
}

#[test]
fn a_convicted_tape_is_made_small_and_still_convicted() {
    let folder = folder("shrinks");
    let broken = broken();
    let tape = write(&folder, &broken);
    let output = sim(&["replay", &tape]);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output));
    let output = sim(&["shrink", &tape, "--json"]);
    assert_eq!(output.status.code(), Some(5), "{}", errors(&output));
    let document: serde_json::Value = serde_json::from_str(&text(&output)).unwrap();
    let inputs = document["inputs"].as_u64().unwrap();
    assert!(inputs <= 10, "{document}");
    assert_eq!(document["operations"].as_array().unwrap().len() as u64, inputs);
    let small = std::fs::read(format!("{tape}.min")).unwrap();
    let small = Script::of(&Tape::read(&small).unwrap()).unwrap();
    assert_eq!(small.ops.len() as u64, inputs);
    let conviction = small.play(false).conviction.expect("it is convicted as before");
    assert_eq!(conviction.finding.judge, document["conviction"]["judge"].as_str().unwrap());
}

#[test]
fn what_is_no_tape_is_refused_with_what_is_wrong() {
    let folder = folder("damaged");
    let good = script().play(true).tape;
    let path = folder.join("bad.tape");
    let refused = |bytes: &[u8], arguments: &[&str]| {
        std::fs::write(&path, bytes).unwrap();
        let name = path.display().to_string();
        let output = sim(&[&[arguments[0], &name][..], &arguments[1..]].concat());
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
        errors(&output)
    };
    assert!(refused(b"nonsense", &["replay"]).contains("this is not a tape"));
    assert!(refused(&good[..20], &["shrink"]).contains("ends in the middle"));
    let damaged = [&good[..], &[200; 400]].concat();
    assert!(refused(&damaged, &["replay"]).contains("damaged at byte"));
    assert!(refused(&good, &["shrink"]).contains("no judge convicts"));
    assert!(refused(&good, &["replay", "--set", "nosuch=1"]).contains("`nosuch`"));
    assert!(refused(&good, &["replay", "--set", "shards=9"]).contains("where they were"));
    let output = sim(&["replay", "nosuch.tape"]);
    assert!(errors(&output).contains("cannot read nosuch.tape"), "{}", errors(&output));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_tape_that_was_cut_off_is_played_as_far_as_it_goes() {
    let folder = folder("cut");
    let bytes = script().play(true).tape;
    let path = folder.join("cut.tape");
    std::fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
    let output = sim(&["replay", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("cut off"), "{}", text(&output));
}

#[test]
fn swarm_prints_what_it_came_by() {
    let output = sim(&["swarm", "--runs", "20", "--seed", "3"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(
        text(&output).contains("20 worlds") && text(&output).contains("every judge is content")
    );
    let document: serde_json::Value =
        serde_json::from_str(&text(&sim(&["swarm", "--runs", "20", "--seed", "3", "--json"])))
            .unwrap();
    assert_eq!(document["worlds"], 20);
    let hash = text(&sim(&["swarm", "--runs", "20", "--seed", "3", "--hash"]));
    assert_eq!(hash.trim(), format!("{} of 20 worlds", document["hash"].as_str().unwrap()));
    let output = sim(&["swarm", "--for", "soon"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("90s"), "{}", errors(&output));
}
