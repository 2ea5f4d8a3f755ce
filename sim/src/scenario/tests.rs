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
    let text = "[limits]\nhigh_water_bytes = '1MiB'\nband_dwell_ms = '2s'\n\
                pub_queue_depth = 7\npub_queue_total = 7";
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

#[test]
fn what_newcomers_write_is_answered_with_what_to_write() {
    let change = |from: &str, to: &str| BASE.replacen(from, to, 1);
    let add = |text: &str| format!("{BASE}{text}");
    let cases = [
        String::new(),
        "title: t".to_owned(),
        "\0\u{1b}[31m".to_owned(),
        format!("publishers = 3\n{BASE}"),
        format!("seed = -1\n{BASE}"),
        add("[limit]\nmax_topics = 3"),
        add("[limits]\nhigh_water_bytes = '2TiB'"),
        add("[limits]\nband_dwell_ms = '2h'"),
        add("[expect]\ndrained = 'yes'"),
        add("[expect]\nqueue_peak = '< 0'"),
        add("[expect]\nqueue_peak = '5..3'"),
        add("[expect.subscriber.reader]\ndropped = -1"),
        add("stalls = { at = '1s' }"),
        add("count = 5000000000"),
        add("[[topic]]\nname = 'news'"),
        add("[[publisher]]\nname = 'feed'\ntopic = 'news'\nrate = 1"),
        add("[[pressure]]\nat = '1s'\ntext = 'full avg10=lots'"),
        change("[[topic]]\nname = \"news\"", ""),
        change("[[topic]]", "[topic]"),
        change("rate = 10", "rate = 2.5"),
        change("rate = 10", "rate = 10\nrate = 11"),
        change("rate = 10\n", ""),
        change("duration = \"10s\"", "duration = \"2h\""),
    ];
    let all: Vec<String> = cases.iter().map(|text| bad(text)).collect();
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn each_topic_is_subscribed_once_over_a_shared_pipe() {
    let on = |more: &str| format!("connection = 'phone'\n{more}");
    let second = |name: &str, more: &str| {
        on(&format!(
            "[[subscriber]]\nname = 'second'\nconnection = '{name}'\ntopic = 'news'\n{more}"
        ))
    };
    for fits in [on(""), second("tablet", ""), second("phone", "pipe = 'single'")] {
        with(&fits).unwrap();
    }
    for text in [on("count = 2"), second("phone", "")] {
        let message = bad(&format!("{BASE}{text}"));
        assert!(message.contains("on a shared pipe each topic is subscribed once"), "{message}");
    }
}

#[test]
fn values_that_no_run_survives_are_refused_with_their_range() {
    let change = |from: &str, to: &str| BASE.replacen(from, to, 1);
    let add = |text: &str| format!("{BASE}{text}");
    let cases = [
        add("[cpu]\ndelivery = '1000000000s'"),
        add("[cpu]\nturn = '10.000000001s'"),
        add("[cpu]\nread = '11s'"),
        add("[cpu]\nwork = 4000000000"),
        add("[cpu]\nreads = 1000001"),
        add("[[variant]]\nname = 'a'\ncpu = { delivery = '1min' }"),
        add("bandwidth = '18446744073GB'"),
        add("buffer = '2GiB'"),
        add("delay = '18446744073s'"),
        change("rate = 10", "rate = 10\nbandwidth = 1\nwindow = '1000000GB'"),
        change("rate = 10", "rate = 10\ndelay = '1441min'"),
        change("duration = \"10s\"", "duration = \"18446744073s\""),
        change("duration = \"10s\"", "duration = \"10s\"\ndrain = \"18446744073s\""),
        change("rate = 10", "rate = 10000\ncount = 1000"),
        change("rate = 10", "rate = 100000").replace("\"reader\"", "\"reader\"\ncount = 100000"),
        change("\"feed\"", "\"feed\"\ncount = 60000")
            + "[[publisher]]\nname = 'more'\ncount = 60000\ntopic = 'news'\nrate = 1",
    ];
    let all: Vec<String> = cases.iter().map(|text| bad(text)).collect();
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn the_largest_values_are_taken_and_their_products_fit() {
    let largest = format!(
        "{BASE}bandwidth = '1000GB'\nbuffer = '1GiB'\ndelay = '1440min'\n[cpu]\nturn = '10s'\n\
         read = '10s'\ndelivery = '10s'\nwork = 1000000\nreads = 1000000"
    )
    .replacen("\"10s\"", "\"1440min\"\ndrain = \"1440min\"", 1);
    for link in ["", "bandwidth = 1\nwindow = '1GiB'\nsize = '16MiB'\ndelay = '1440min'\n"] {
        let more = format!("rate = 10\nuntil = '10s'\n{link}");
        let text = largest.replacen("rate = 10\n", &more, 1);
        let story = read("story.toml", &text).unwrap().remove(0);
        crate::run(&story).unwrap();
    }
}

#[test]
fn control_characters_are_refused_and_not_shown() {
    for (from, to, key) in [
        ("\"t\"", "\"t\\u001b[31m\"", "title"),
        ("\"a\"", "\"a\\u0007\"", "about"),
        ("name = \"news\"", "name = \"ne\\nws\"", "name"),
        ("\"feed\"", "\"feed\\u0085\"", "name"),
        ("\"reader\"", "\"reader\\u007f\"", "name"),
    ] {
        let message = bad(&BASE.replacen(from, to, 1));
        assert!(message.contains(&format!("`{key}` holds the control character")), "{message}");
    }
    let variant = bad(&format!("{BASE}[[variant]]\nname = \"a\\tb\""));
    assert!(variant.contains("`name` holds the control character '\\t'"), "{variant}");
    let raw = bad(&BASE.replacen("\"t\"", "\"t\u{1b}[31m\"", 1));
    assert!(!raw.contains('\u{1b}') && raw.contains("\\u{1b}[31m"), "{raw}");
    read("story.toml", &BASE.replacen("\"a\"", "\"a\\n\\tb\"", 1)).expect("a paragraph may break");
}

#[test]
fn the_command_that_repeats_a_story_is_one_for_a_shell() {
    let text = "title = 't'\nabout = 'a'\nduration = '1s'\n[[variant]]\nname = \"it's a b\"";
    let story = read("my files/a.toml", text).unwrap().remove(0);
    let due = r"sluicegate-sim run 'my files/a.toml' --seed 0 --variant 'it'\''s a b'";
    assert_eq!(story.command(), due);
}

#[test]
fn what_no_run_could_meet_is_told_before_it_runs() {
    // Ten publishes per second for ten seconds, and the first of a turn.
    let expect = |who: &str, what: &str| format!("{BASE}[expect.{who}]\n{what}");
    let just = ["subscriber.reader", "publisher.feed", "tenant.default"].map(|who| {
        format!(
            "{BASE}[expect.{who}]\n{}",
            if who.starts_with("sub") { "received = '= 101'" } else { "offered = '>= 101'" }
        )
    });
    for text in &just {
        read("story.toml", text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    let asks = BASE.replace("name = \"reader\"", "name = \"reader\"\nasks = '1s'");
    let fits = format!("{asks}[expect.subscriber.reader]\nasked = '= 11'");
    read("story.toml", &fits).unwrap();
    let cases = [
        expect("subscriber.reader", "received = '= 102'"),
        expect("subscriber.reader", "delivered = '>= 1000'"),
        expect("subscriber.reader", "dropped = '> 101'"),
        expect("subscriber.reader", "lag = '200..300'"),
        expect("subscriber.reader", "received = '= 50'\ndelivered = '<= 40'"),
        expect("subscriber.reader", "taken = '= 1'"),
        expect("subscriber.reader", "jain = '>= 1.1'"),
        expect("subscriber.reader", "asked = '= 1'"),
        expect("subscriber.reader", "answer_max = '<= 1s'"),
        format!("{asks}[expect.subscriber.reader]\nasked = '= 12'"),
        format!("{asks}[expect.subscriber.reader]\nasked = '<= 3'\nanswered = '> 3'"),
        format!(
            "{BASE}[expect]\nlost = {{ nobody_but = [] }}\n\
             [expect.subscriber.reader]\ndropped = '> 0'"
        ),
        expect("publisher.feed", "offered = '>= 102'"),
        expect("publisher.feed", "held_back = '>= 102'"),
        expect("tenant.default", "sequenced = '>= 102'"),
        expect("dropped", "total = '>= 102'"),
        expect("shed", "schedule = '>= 102'"),
    ];
    let all: Vec<String> = cases.iter().map(|text| bad(text)).collect();
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn a_publisher_over_a_connection_has_what_its_subscriber_has() {
    let over = |more: &str| {
        format!(
            "{BASE}count = 3\n[[publisher]]\nname = 'voice'\nover = 'reader'\ntopic = 'news'\n\
             rate = 1\n{more}"
        )
    };
    let story = read("story.toml", &over("")).unwrap().remove(0);
    assert_eq!(story.publishers[1].count, 3);
    read("story.toml", &over("count = 3")).unwrap();
    let under = |from: &str, to: &str| over("").replacen(from, to, 1);
    let cases = [
        over("count = 2"),
        over("join = '1s'"),
        over("retry = '1s'"),
        over("shard = 0"),
        over("outages = [{ at = '1s' }]"),
        under("over = 'reader'", "over = 'raeder'"),
        under("count = 3", "connection = 'phone'"),
        under("count = 3", "outages = [{ at = '1s', half_open = true }]"),
        over("[[tenant]]\nname = 'a'\n[[tenant]]\nname = 'b'\n[[topic]]\nname = 'b'\ntenant = 'b'")
            .replacen("name = \"news\"", "name = \"news\"\ntenant = 'a'", 1)
            .replacen("over = 'reader'\ntopic = 'news'", "over = 'reader'\ntopic = 'b'", 1),
        under("count = 3", "stalls = [{ at = '1s' }]") + "[expect]\nisolation = true",
        BASE.replace("name = \"reader\"", "name = \"reader\"\nasks = '1us'\ncount = 2"),
    ];
    let all: Vec<String> = cases.iter().map(|text| bad(text)).collect();
    insta::assert_snapshot!(all.join("\n"));
}
