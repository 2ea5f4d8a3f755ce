//! The program as people and CI call it: output and exit codes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn sim(arguments: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-sim"));
    command.args(arguments).current_dir(root).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the program prints text")
}

/// A scenario of one publisher and one subscriber, with something added.
fn file(name: &str, more: &str) -> String {
    let text = format!(
        r#"
title = "A small one"
about = "Two hundred records."
duration = "2s"
[[topic]]
name = "news"
[[publisher]]
name = "feed"
topic = "news"
rate = 100
[[subscriber]]
name = "reader"
topic = "news"
{more}
"#
    );
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.toml"));
    std::fs::write(&path, text).expect("cargo made the folder");
    path.to_str().expect("cargo's folder is text").to_owned()
}

#[test]
fn what_holds_exits_with_0_and_what_does_not_with_1() {
    let good = file("good", "[expect.subscriber.reader]\nreceived = '= 200'");
    let output = sim(&["run", &good]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("1 of 1 expectations hold"));

    let wrong = file("wrong", "[expect.subscriber.reader]\nreceived = '= 201'");
    let output = sim(&["run", &good, &wrong]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let due = "expected subscriber reader: received = 201, found 200";
    assert!(text(&output.stdout).contains(due), "{output:?}");
}

#[test]
fn every_kind_of_expectation_can_fail() {
    let cases = [
        ("drained", "[expect]\ndrained = false"),
        ("transitions", "[expect]\ntransitions = '= 1'"),
        ("bands", "[expect]\nbands = ['severe']"),
        ("factor_min", "[expect]\nfactor_min = '< 1'"),
        ("factor_final", "[expect]\nfactor_final = '= 0.9'"),
        ("backlog_peak", "[expect]\nbacklog_peak = '> 1GiB'"),
        ("held_peak", "[expect]\nheld_peak = '< 1KiB'"),
        ("queue_peak", "[expect]\nqueue_peak = '= 0'"),
        ("dropped total", "[expect.dropped]\ntotal = '= 1'"),
        ("evicted schedule", "[expect.evicted]\nschedule = '= 1'"),
        ("refused schedule/busy", "[expect.refused]\n'schedule/busy' = '= 1'"),
        ("shed admission", "[expect.shed]\nadmission = '= 1'"),
        ("publisher feed: offered", "[expect.publisher.feed]\noffered = '= 1'"),
        ("publisher feed: refused", "[expect.publisher.feed]\nrefused = '= 1'"),
        ("publisher feed: shed", "[expect.publisher.feed]\nshed = '= 1'"),
        ("publisher feed: held_back", "[expect.publisher.feed]\nheld_back = '= 1'"),
        ("subscriber reader: delivered", "[expect.subscriber.reader]\ndelivered = '= 1'"),
        ("subscriber reader: dropped", "[expect.subscriber.reader]\ndropped = '= 1'"),
        ("subscriber reader: lag", "[expect.subscriber.reader]\nlag = '= 1'"),
        ("subscriber reader: latency_p50", "[expect.subscriber.reader]\nlatency_p50 = '< 1us'"),
        ("subscriber reader: latency_p99", "[expect.subscriber.reader]\nlatency_p99 = '< 1us'"),
        (
            "records lost by reader",
            "stalls = [{ at = '0s' }]\nbuffer = 1\n[limits]\nhigh_water_bytes = 1024\n\
             [expect]\nlost = { nobody_but = [] }",
        ),
    ];
    for (index, (what, more)) in cases.into_iter().enumerate() {
        let output = sim(&["run", &file(&format!("fails-{index}"), more)]);
        assert_eq!(output.status.code(), Some(1), "{what}: {output:?}");
        let due = format!("expected {what} ");
        assert!(text(&output.stdout).contains(&due), "{what}: {output:?}");
    }
}

#[test]
fn bad_input_exits_with_2_before_anything_runs() {
    let good = file("before", "");
    let unknown = file("unknown", "polcy = 'drop_old'");
    let output = sim(&["run", &good, &unknown]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()));
    let message = text(&output.stderr);
    let due = format!("{unknown}:14: unknown key `polcy`; did you mean `policy`?");
    assert!(message.contains(&due), "{message}");
    for arguments in [&["run", "no/such/file.toml"][..], &["run", "sim/src"], &["run"], &["walk"]] {
        assert_eq!(sim(arguments).status.code(), Some(2), "{arguments:?}");
    }
    for (path, due) in [
        ("no/such/file.toml", "cannot read no/such/file.toml"),
        ("sim/src", "no scenario in sim/src"),
    ] {
        let message = text(&sim(&["run", path]).stderr);
        assert!(message.contains(due), "{message}");
    }
    let output = sim(&["run", "scenarios/burst.toml", "--variant", "none"]);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(message.contains("`none`; known: backpressure, backpressure-work-1"), "{message}");
    let refused = file("refused", "[limits]\nmax_connections = 1");
    let output = sim(&["run", &refused]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let message = text(&output.stderr);
    assert!(message.contains("was refused by the broker: table/limit"), "{message}");
}

#[test]
fn json_has_what_the_table_has_and_the_wall_clock() {
    let good = file("json", "");
    let output = sim(&["run", "--json", "--seed", "7", &good]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["seed"], 7);
    assert_eq!(document["exit"], 0);
    assert_eq!(document["books"]["delivered"]["records"], 200);
    assert_eq!(document["conviction"], serde_json::Value::Null);
    assert!(document["deliveries_per_wall_second"].as_u64().unwrap() > 0);
    let table = sim(&["run", "--seed", "7", &good]);
    assert!(text(&table.stdout).contains(document["tape"].as_str().unwrap()));
}

#[test]
fn help_says_what_there_is() {
    let commands =
        [&["--help"][..], &["run", "--help"], &["explain", "--help"], &["schema", "--help"]];
    let help = commands.map(|arguments| text(&sim(arguments).stdout));
    insta::assert_snapshot!(help.join("\n"));
}

#[test]
fn a_failure_ends_with_the_command_that_repeats_it() {
    let wrong = file("repeats", "[expect.subscriber.reader]\nreceived = '= 201'");
    let output = sim(&["run", "--seed", "9", &wrong]);
    let message = text(&output.stderr);
    let line = message.lines().find(|line| line.contains(" failed; repeat: ")).expect("it failed");
    let command = line.split_once("repeat: ").expect("it is there").1;
    let again: Vec<&str> = command.split(' ').skip(1).collect();
    let again = sim(&again);
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    assert_eq!(text(&again.stdout), text(&output.stdout));
}

#[test]
fn seeds_are_run_in_their_order_whatever_the_number_of_threads() {
    let good = file("seeds", "");
    let run = |jobs| text(&sim(&["run", "--seed", "3..6", "--jobs", jobs, &good]).stdout);
    let one = run("1");
    assert_eq!(one, run("4"));
    let seeds: Vec<&str> =
        one.lines().filter_map(|line| line.split_once(", seed ")?.1.split(',').next()).collect();
    assert_eq!(seeds, ["3", "4", "5", "6"]);
}

#[test]
fn the_report_is_written_and_a_place_where_it_cannot_be_is_bad_input() {
    let good = file("reported", "");
    let html = format!("{good}.html");
    let output = sim(&["run", "--report", &html, &good]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stderr).contains(&format!("report: {html}")));
    assert!(std::fs::read_to_string(&html).unwrap().starts_with("<!doctype html>"));
    let plain = sim(&["run", &good]);
    assert_eq!(text(&plain.stdout), text(&output.stdout), "watching changes nothing");
    // Before anything runs: it could take long.
    for (flag, place, due) in [
        ("--report", "no/such/folder/out.html", "there is no folder no/such/folder: make it"),
        ("--tape", "no/such/folder/one.tape", "there is no folder no/such/folder: make it"),
        ("--report", "scenarios", "`--report scenarios` is a folder: name a file in it"),
    ] {
        let output = sim(&["run", flag, place, &good]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()));
        let message = text(&output.stderr);
        assert!(message.contains(due), "{message}");
    }
}

/// A server's configuration with these lines, beside the scenarios of the tests.
fn config(name: &str, lines: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.toml"));
    std::fs::write(&path, lines).expect("cargo made the folder");
    path.to_str().expect("cargo's folder is text").to_owned()
}

#[test]
fn stories_run_under_the_limits_of_a_servers_configuration() {
    let stalls = "stalls = [{ at = '0s', for = '1s' }]\nbuffer = 1\n\
                  [limits]\nhigh_water_bytes = '1MiB'\ncodel_target_ms = 0\n\
                  [expect.subscriber.reader]\ndropped = '= 0'";
    let story = file("under", stalls);
    assert_eq!(sim(&["run", &story]).status.code(), Some(0));
    let all = "[server]\nport = 7001\n[[app]]\nid = '1'\n[limits]\nhigh_water_bytes = 1024";
    let file = config("server", all);
    let output = sim(&["run", &story, "--config", &file]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = text(&output.stderr);
    let note = format!("{file}: [limits] is in force; a story knows nothing of [server], [[app]]");
    assert!(message.contains(&note), "{message}");
    assert!(
        message.contains(&format!("--config {file}")),
        "the command that repeats it: {message}"
    );
    let shown = text(&sim(&["explain", &story, "--config", &file]).stdout);
    assert!(shown.contains("gives up its oldest, at 1 KiB for its connection"), "{shown}");
}

#[test]
fn keys_of_a_configuration_that_do_not_apply_are_named() {
    let story = file("wrong-config", "policy = 'block'\npipe = 'single'\n[limits]\nlossless = 1");
    for (lines, due) in [
        ("[limits]\nhigh_water_bites = 1", ":2: unknown limit `high_water_bites`; did you mean"),
        ("[limits]\nhigh_water_bytes = '1ms'", ":2: `high_water_bytes = 1ms` must be a size"),
        ("[limits]\nshards = 2", ":2: `shards`: a story says itself how many there are: take it"),
        ("[limit]\nlossless = 1", ":1: unknown key `limit`; did you mean `limits`?"),
        ("[server]\nport = 1", "there is no limit below [limits]"),
        ("[limits]\nlossless = 0", "`block` needs `lossless = 1` or `allow_block = 1` in [limits]"),
    ] {
        let output = sim(&["run", &story, "--config", &config("wrong", lines)]);
        assert_eq!(output.status.code(), Some(2), "{lines}: {output:?}");
        let message = text(&output.stderr);
        assert!(message.contains(due) && message.contains("wrong.toml"), "{lines}: {message}");
    }
    let output = sim(&["run", &story, "--config", "no/such.toml"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("cannot read no/such.toml"), "{output:?}");
}

#[test]
fn what_has_not_drained_is_told() {
    let wrong = file("left", "stalls = [{ at = '0s' }]\nbuffer = 1\n[expect]\ndrained = true");
    let output = sim(&["run", &wrong]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let shown = text(&output.stdout);
    let due = "expected drained = true, found false: 200 records for reader, which reads nothing";
    assert!(shown.contains(due), "{shown}");
}

#[test]
fn every_wrong_burst_and_every_unknown_group_is_named() {
    let burst = |keys: &str| format!("[[publisher]]\nname = 'b'\ntopic = 'news'\nrate = 1\n{keys}");
    for (more, due) in [
        (burst("bursts = [{ at = '1s', for = '0s', times = 2 }]"), "this burst is empty"),
        (burst("bursts = [{ at = '1s', for = '1s', times = 0 }]"), "`times = 0`: a burst's"),
        (
            burst("bursts = [{ at = '1s', for = '2s', times = 2 }]"),
            "`bursts`: this one ends at 3.000000 s, after the duration, which is 2.000000 s",
        ),
        (
            burst(
                "bursts = [{ at = '1s', for = '1s', times = 2 }, \
                 { at = '1500ms', for = '1ms', times = 2 }]",
            ),
            "`bursts`: this one begins at 1.500000 s, before the last one ends, at 2.000000 s",
        ),
        ("[expect.tenant.shop]\noffered = 1".to_owned(), "unknown tenant `shop`; known: default"),
        (
            "[expect.publisher.fead]\noffered = 1".to_owned(),
            "unknown group of publishers `fead`; did you mean `feed`?",
        ),
    ] {
        let output = sim(&["run", &file("named", &more)]);
        assert_eq!(output.status.code(), Some(2), "{more}: {output:?}");
        let message = text(&output.stderr);
        assert!(message.contains(due), "{more}: {message}");
    }
}

/// A folder with one story of the project, and its name.
fn one_story(folder: &str) -> (PathBuf, &'static str) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(folder);
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir_all(&folder).expect("cargo made the folder above");
    let stem = "unacked-burst-into-default-ingress";
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let to = folder.join(format!("{stem}.toml"));
    std::fs::copy(root.join(format!("scenarios/{stem}.toml")), to).expect("it is a story");
    (folder, stem)
}

#[test]
fn snapshots_are_written_beside_their_files_as_the_tests_read_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (folder, stem) = one_story("snapshots-of");
    let story = folder.join(format!("{stem}.toml"));
    let update = || sim(&["run", "--update-snapshots", folder.to_str().unwrap()]);
    let output = update();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stderr).contains("snapshots: 1 of 1 written"), "{output:?}");
    let kept = std::fs::read(folder.join(format!("snapshots/{stem}.snap"))).unwrap();
    let snapshot = root.join(format!("scenarios/snapshots/{stem}.snap"));
    assert_eq!(text(&kept), text(&std::fs::read(snapshot).unwrap()));
    assert!(text(&update().stderr).contains("snapshots: 0 of 1 written"), "it is the same");
    // What does not hold is not what anybody wants to keep.
    let fails =
        std::fs::read_to_string(&story).unwrap().replace("offered = \"= 400\"", "offered = 1");
    std::fs::write(&story, fails).unwrap();
    let output = update();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = text(&output.stderr);
    assert!(message.contains("left as it is, a story fails"), "{message}");
    assert_eq!(std::fs::read(folder.join(format!("snapshots/{stem}.snap"))).unwrap(), kept);
    let part = sim(&["run", "--update-snapshots", "--seed", "7", "scenarios/burst.toml"]);
    assert_eq!(part.status.code(), Some(2), "a part of a file is not its table: {part:?}");
}

#[test]
fn snapshots_are_compared_and_what_differs_is_told() {
    let (folder, stem) = one_story("snapshots-compared");
    let path = folder.join(format!("snapshots/{stem}.snap"));
    let folder = folder.to_str().unwrap();
    assert_eq!(sim(&["run", "--update-snapshots", folder]).status.code(), Some(0));
    let check = || sim(&["run", "--check-snapshots", folder]);
    let same = check();
    assert_eq!(same.status.code(), Some(0), "it is what was kept: {same:?}");
    let kept = std::fs::read_to_string(&path).unwrap();
    let changed = kept.replacen("offered 400 =", "offered 401 =", 1);
    assert_ne!(changed, kept);
    std::fs::write(&path, changed).unwrap();
    let differs = check();
    assert_eq!(differs.status.code(), Some(1), "{differs:?}");
    let lines = text(&differs.stderr);
    assert!(lines.contains("\n- offered 401 =") && lines.contains("\n+ offered 400 ="), "{lines}");
    assert!(lines.contains(&format!("\n@ {stem}")), "{lines}");
    let command = format!("run {folder}/{stem}.toml --update-snapshots");
    assert!(lines.contains("1 of 1 differ") && lines.contains(&command), "{lines}");
    std::fs::remove_file(&path).unwrap();
    let missing = check();
    assert_eq!(missing.status.code(), Some(1), "{missing:?}");
    assert!(text(&missing.stderr).contains("cannot read"), "{missing:?}");
    let part = sim(&["run", "--check-snapshots", "--variant", "drop", "scenarios/burst.toml"]);
    assert_eq!(part.status.code(), Some(2), "a part of a file is not its table: {part:?}");
}

#[test]
fn explain_and_schema_answer_in_text_and_in_json() {
    let output = sim(&["explain", "scenarios/slow-subscriber.toml"]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(shown.contains("> sleeper: `drop_old`: gives up its oldest, at 256 KiB"), "{shown}");
    let lines = text(&sim(&["explain", "--json", "scenarios/burst.toml"]).stdout);
    let names: Vec<String> = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["name"].to_string())
        .collect();
    assert!(names.contains(&"\"burst (drop)\"".to_owned()), "{names:?}");
    assert_eq!(sim(&["explain", "no/such/file.toml"]).status.code(), Some(2));
    let read = |arguments: &[&str]| {
        serde_json::from_str::<serde_json::Value>(&text(&sim(arguments).stdout)).unwrap()
    };
    assert_eq!(read(&["schema"]), read(&["schema", "--json"]));
    assert_eq!(read(&["schema"])["properties"]["duration"]["type"][1], "string");
}

#[test]
fn who_reads_no_further_ends_a_command_without_noise() {
    for line in [
        "run scenarios/slow-subscriber.toml",
        "schema",
        "swarm --seed 5 --runs 1",
        "swarm --runs 1 --json",
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-sim"));
        command.args(line.split(' ')).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let read = command.output().unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let unread = child.wait_with_output().unwrap();
        let errors = String::from_utf8(unread.stderr).unwrap();
        assert_eq!(unread.status.code(), read.status.code(), "{line}: {errors}");
        assert!(!errors.contains("panicked"), "{line}: {errors}");
    }
}
