use super::*;

const BASE: &str = r#"
title = "t"
about = "a"
duration = "10s"

[[topic]]
name = "news"

[[publisher]]
name = "feed"
topic = "news"
rate = 10

[[subscriber]]
name = "reader"
topic = "news"
"#;

fn with(text: &str) -> Result<Vec<Story>, BadInput> {
    read("story.toml", &format!("{BASE}{text}"))
}

/// The message of the error, and the number of its line.
fn bad(text: &str) -> String {
    let bad = read("story.toml", text).expect_err(text);
    bad.to_string()
}

#[test]
fn what_is_not_said_has_defaults() {
    let story = with("").unwrap().remove(0);
    assert_eq!(story.tenants, [("default".to_owned(), 1)]);
    assert_eq!(story.publishers[0].size, (1024, 1024));
    assert_eq!(story.publishers[0].active, (0, 10_000_000_000));
    assert_eq!(story.subscribers[0].wish.policy, sluicegate_core::Policy::DropOld);
    assert_eq!((story.cpu.work, story.cpu.is_free()), (1024, true));
    assert_eq!(story.end, 20_000_000_000);
    assert_eq!(story.command(), "sluicegate-sim run story.toml --seed 0");
}

#[test]
fn limits_take_their_unit_or_text_of_it() {
    let text = "[limits]\nhigh_water_bytes = '1MiB'\nband_dwell_ms = '2s'\npub_queue_total = 7";
    let limits = with(text).unwrap().remove(0).limits;
    let found = (limits.high_water_bytes, limits.band_dwell_ms, limits.pub_queue_total);
    assert_eq!(found, (1 << 20, 2000, 7));
}

#[test]
fn a_variant_says_what_differs() {
    let text = r#"
[expect]
queue_peak = "<= 5"
[expect.shed]
total = "= 0"
backlog = "= 0"
[[variant]]
name = "one"
[[variant]]
name = "two"
limits = { pub_ingress_wait = 1 }
cpu = { work = 3 }
[variant.expect.shed]
total = "= 1"
"#;
    let stories = with(text).unwrap();
    assert_eq!([&stories[0].variant, &stories[1].variant], ["one", "two"]);
    assert_eq!([0, 1].map(|n| stories[n].limits.pub_ingress_wait), [0, 1]);
    assert_eq!([0, 1].map(|n| stories[n].cpu.work), [1024, 3]);
    let shed = &stories[1].expect.shed;
    assert!(!shed["total"].2.holds(0) && shed["total"].2.holds(1) && shed["backlog"].2.holds(0));
    assert!(stories[1].expect.queue_peak.as_ref().is_some_and(|bound| bound.holds(5)));
    assert_eq!(stories[1].command(), "sluicegate-sim run story.toml --seed 0 --variant two");
}

#[test]
fn what_cannot_be_run_is_named_with_its_line() {
    let change = |from: &str, to: &str| {
        assert!(BASE.contains(from), "{from}");
        BASE.replacen(from, to, 1)
    };
    let add = |text: &str| format!("{BASE}{text}");
    let cases = [
        change("rate = 10", "raet = 10"),
        change("rate = 10", "rate = 0"),
        change("rate = 10", "rate = -5"),
        change("rate = 10", "rate = 'fast'"),
        change("rate = 10", "rate = 9000000"),
        change("rate = 10", "rate = 10\nsize = '1'"),
        change("rate = 10", "rate = 10\nsize = '17MiB'"),
        change("rate = 10", "rate = 10\nsize = '2KiB..1KiB'"),
        change("rate = 10", "rate = 10\nack = 'later'"),
        change("rate = 10", "rate = 10\nfrom = '11s'"),
        change("rate = 10", "rate = 10\nbursts = [{ at = '9s', for = '2s', times = 2 }]"),
        change("rate = 10", "rate = 10\nbursts = [{ at = '1s', for = '2s', times = 0 }]"),
        change("rate = 10", "rate = 10\nwindow = 0"),
        change("rate = 10", "rate = 10\nrecords = 5000"),
        change("topic = \"news\"\nrate", "topic = \"newz\"\nrate"),
        change("duration = \"10s\"", "duration = \"0s\""),
        change("duration = \"10s\"", "duration = 10"),
        change("duration = \"10s\"\n", ""),
        change("title = \"t\"", "title ="),
        add("count = 0"),
        add("policy = 'drop-old'"),
        add("policy = 'latest'"),
        add("policy = 'block'\npipe = 'single'"),
        add("batches = 5"),
        add("bandwidth = 0"),
        add("stalls = [{ at = '5s', for = '6s' }]"),
        add("stalls = [{ at = '10s' }]"),
        add("stalls = [{ at = '2s', for = '2s' }, { at = '3s', for = '1s' }]"),
        add("stalls = [{ at = '2s', for = '0s' }]"),
        add("[[subscriber]]\nname = 'reader'\ntopic = 'news'"),
        add("[limits]\nhigh_watr_bytes = 5"),
        add("[limits]\nhigh_water_bytes = 5"),
        add("[limits]\nhigh_water_bytes = '2s'"),
        add("[limits]\nband_dwell_ms = -1"),
        add("[limits]\npub_inflight_bytes = 1024"),
        add("[cpu]\nwork = 0"),
        add("[[pressure]]\nat = '1s'"),
        add("[[pressure]]\nat = '11s'\nunreadable = true"),
        add("[expect]\nlost = { nobody_but = ['sleeper'] }"),
        add("[expect]\nbands = ['sever']"),
        add("[expect]\ntransitions = 'few'"),
        add("[expect]\nisolation = true"),
        add("[expect.dropped]\n'backlog/dropold' = '= 0'"),
        add("[expect.dropped]\n'backlg/drop_old' = '= 0'"),
        add("[expect.subscriber.raeder]\nreceived = '= 1'"),
        add("[expect.subscriber.reader]\nrecieved = '= 1'"),
        add("[[variant]]\nname = 'a'\n[[variant]]\nname = 'a'"),
    ];
    let all: Vec<String> = cases.iter().map(|text| bad(text)).collect();
    insta::assert_snapshot!(all.join("\n"));
}
