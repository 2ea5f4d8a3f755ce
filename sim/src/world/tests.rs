//! Worlds that are small enough to say what must happen in them.

use crate::judge::Kind;
use crate::scenario::{self, Story};
use crate::{Outcome, run};

fn story(text: &str) -> Story {
    let head = "title = 't'\nabout = 'a'\nduration = '2s'\n";
    scenario::read("t.toml", &format!("{head}{text}")).unwrap().remove(0)
}

fn outcome(text: &str) -> Outcome {
    let outcome = run(&story(text)).unwrap();
    assert_eq!(outcome.code(), 0, "{outcome}");
    outcome
}

const PEERS: &str = r#"
[[topic]]
name = "news"
[[publisher]]
name = "feed"
topic = "news"
rate = 100
[[subscriber]]
name = "reader"
topic = "news"
"#;

#[test]
fn a_record_takes_the_time_its_links_take() {
    let line = "bandwidth = '1MB'\ndelay = '5ms'\n";
    let text = PEERS.replace("rate = 100", &format!("rate = 100\n{line}"));
    let report = outcome(&format!("{text}{line}")).report;
    let latency = report.subscribers[0].latency.percentile(50).unwrap();
    let due = 2 * (5_000_000 + 1_024_000);
    assert!((due..due + due / 60).contains(&latency), "{latency}");
    assert_eq!(report.subscribers[0].received, 200);
}

#[test]
fn a_full_window_holds_back_and_a_bigger_frame_travels_alone() {
    let slow = "rate = 100\nwindow = 512\nbandwidth = '10KiB'";
    let report = outcome(&PEERS.replace("rate = 100", slow)).report;
    let seen = report.publishers[0].seen;
    assert!((18..=20).contains(&seen.offered), "one frame each 100 ms: {seen:?}");
    assert_eq!(seen.offered + seen.held_back, 200);
}

#[test]
fn a_busy_shard_turns_no_earlier_than_its_work_allows() {
    let text = format!("{PEERS}[cpu]\ndelivery = '20ms'\nwork = 1\n");
    let report = outcome(&text).report;
    assert_eq!(report.books.delivered.records, 200);
    assert!(report.ended >= 199 * 20_000_000, "200 deliveries of 20 ms: {}", report.ended);
    let free = outcome(PEERS).report;
    assert!(free.ended < 2_100_000_000, "{}", free.ended);
}

#[test]
fn a_block_subscriber_stops_its_publisher_and_nothing_is_lost() {
    let text = PEERS.replace("rate = 100", "rate = 1000\nwindow = '8KiB'");
    let block = "pipe = 'single'\npolicy = 'block'\nbatches = 4\nbuffer = '4KiB'\n\
                 stalls = [{ at = '500ms', for = '1s' }]\n[limits]\nlossless = 1\n\
                 pub_queue_depth = 4\npub_queue_total = 4";
    let report = outcome(&format!("{text}{block}")).report;
    let seen = report.publishers[0].seen;
    assert!((900..1100).contains(&seen.held_back), "{seen:?}");
    assert_eq!((seen.shed, report.books.dropped.total().records), (0, 0));
    assert_eq!(report.subscribers[0].received, seen.offered);
    assert!(report.peaks.parked == 1 && report.drained);
}

#[test]
fn a_block_subscriber_that_never_reads_again_is_named_in_no_verdict_but_nothing_drains() {
    let block = "pipe = 'single'\npolicy = 'block'\nbatches = 4\nbuffer = '4KiB'\n\
                 stalls = [{ at = '500ms' }]\n[limits]\nlossless = 1\n\
                 pub_queue_depth = 4\npub_queue_total = 4";
    let report = outcome(&format!("{PEERS}{block}")).report;
    assert!(!report.drained && report.subscribers[0].books.lag.records > 0);
}

#[test]
fn acked_publishes_get_one_answer_each() {
    for ack in ["now", "wait"] {
        let text = PEERS.replace("rate = 100", &format!("rate = 1000\ncount = 4\nack = '{ack}'"));
        let text = format!(
            "{text}[cpu]\ndelivery = '2ms'\nwork = 1\n[limits]\n\
             pub_queue_depth = 8\npub_queue_total = 8\n\
             publish_queue_wait_ms = 5"
        );
        let report = outcome(&text).report;
        let seen = report.publishers[0].seen;
        assert!(seen.refused > 100 && seen.shed == 0, "{ack}: {seen:?}");
        assert_eq!(seen.offered, seen.refused + report.books.sequenced.records);
    }
}

#[test]
fn slow_links_and_every_lossy_policy_keep_order_and_tell_their_gaps() {
    for policy in ["drop_new", "drop_old", "latest"] {
        let text = PEERS.replace("rate = 100", "rate = 1000\nrecords = 3\nsize = '100..3000'");
        let text = format!(
            "{text}pipe = 'single'\npolicy = '{policy}'\ncount = 3\nbandwidth = '100KB'\n\
             buffer = 5000\nstalls = [{{ at = '1s', for = '300ms' }}]\n[limits]\n\
             subscription_batches = 20"
        );
        let report = outcome(&text).report;
        assert!(report.drained && report.books.dropped.total().records > 1000, "{report}");
    }
}

#[test]
fn peers_that_share_the_cpu_are_not_isolated_and_the_judge_says_so() {
    let text = format!(
        "{PEERS}[[subscriber]]\nname = 'sleeper'\ntopic = 'news'\ncount = 3\n\
         stalls = [{{ at = '1s' }}]\n[expect]\nisolation = true"
    );
    let mut story = story(&text);
    assert_eq!(run(&story).unwrap().code(), 0);
    story.cpu.delivery = 5_000_000;
    let outcome = run(&story).unwrap();
    let conviction = outcome.conviction.as_ref().unwrap();
    assert_eq!((conviction.finding.judge, conviction.finding.kind), ("isolation", Kind::Safety));
    assert_eq!(outcome.code(), 3);
    let text = outcome.to_string();
    assert!(text.contains("replay: sluicegate-sim run t.toml --seed 0"), "{text}");
}

#[test]
fn a_run_cut_short_is_a_liveness_verdict_with_its_last_events() {
    let text = format!("{PEERS}bandwidth = '10KB'\nbuffer = '64KiB'");
    let mut story = story(&text);
    story.end = 2_500_000_000;
    let outcome = run(&story).unwrap();
    assert_eq!(outcome.code(), 4, "{outcome}");
    let conviction = outcome.conviction.unwrap();
    assert_eq!((conviction.at, conviction.events.len()), (2_500_000_000, 20));
    assert!(conviction.finding.what.contains("reader"), "{}", conviction.finding.what);
}

#[test]
fn what_a_tenant_pushes_out_of_another_is_told_to_its_publishers() {
    for ack in ["none", "now", "wait"] {
        let text = format!(
            "[[tenant]]\nname = 'hog'\n[[tenant]]\nname = 'guest'\n\
             [[topic]]\nname = 'much'\ntenant = 'hog'\n\
             [[topic]]\nname = 'little'\ntenant = 'guest'\n\
             [[publisher]]\nname = 'hogs'\ncount = 4\ntopic = 'much'\nrate = 1000\nack = '{ack}'\n\
             [[publisher]]\nname = 'guest'\ntopic = 'little'\nrate = 50\n\
             [[subscriber]]\nname = 'much'\ntopic = 'much'\n\
             [[subscriber]]\nname = 'little'\ntopic = 'little'\n\
             [cpu]\ndelivery = '2ms'\nwork = 1\n[limits]\n\
             pub_queue_depth = 8\npub_queue_total = 8\n\
             quantum_bytes = 1024"
        );
        let report = outcome(&text).report;
        let pushed = [report.books.evicted.total().records, report.books.returned.records];
        assert_eq!(pushed.map(|records| records > 0), [ack != "wait", ack == "wait"], "{report}");
        let guest = report.publishers[1].seen;
        assert_eq!((guest.offered, guest.shed), (100, 0), "below its guarantee");
    }
}

/// The same outcome whatever the number of shards: everything arrives, in one order.
#[test]
fn shards_forward_publishes_and_batches_to_each_other() {
    let text = "[[topic]]\nname = 't'\ncount = 6\n\
                [[publisher]]\nname = 'p'\ntopic = 't'\ncount = 12\nrate = 50\nack = 'wait'\n\
                [[subscriber]]\nname = 's'\ntopic = 't'\ncount = 36\n";
    for shards in [1, 2, 4] {
        let report = outcome(&format!("{text}[limits]\nshards = {shards}")).report;
        assert_eq!(report.books.sequenced.records, 1200, "{report}");
        assert_eq!(report.subscribers[0].received, 36 * 200, "{report}");
        let forwarded = report.books.forwarded;
        assert_eq!(forwarded, report.books.received);
        assert_eq!(forwarded.records > 0, shards > 1, "{report}");
    }
}

#[test]
fn parcels_that_a_shard_did_not_want_are_taken_once_it_wants_them() {
    let (owner, away) = (name_owned_by(0), "limits = { shards = 2, mesh_depth = 1 }\n");
    let text = PEERS.replace("news", &owner).replace("rate = 100", "rate = 100\nshard = 0");
    // Each batch takes the shard longer than the next one is away: most of them wait on the way,
    // and nothing else happens there.
    let text = format!("{away}drain = '60s'\n{text}shard = 1\n[cpu]\ndelivery = '50ms'\n");
    let report = outcome(&text).report;
    assert_eq!(report.books.delivered.records, 200);
}

#[test]
fn a_block_on_one_shard_stops_publishers_on_all_and_drains() {
    let text = "[[topic]]\nname = 't'\ncount = 2\n\
                [[publisher]]\nname = 'p'\ntopic = 't'\ncount = 4\nrate = 1000\nclient = 'each'\n\
                [[subscriber]]\nname = 'b'\ntopic = 't'\ncount = 12\npipe = 'single'\n\
                policy = 'block'\ntakes = 1000\nstalls = [{ at = '500ms', for = '1s' }]\n\
                [limits]\nshards = 2\nlossless = 1\npublish_inflight_bytes = '128KiB'\n";
    let report = outcome(text).report;
    let seen = report.publishers[0].seen;
    assert!(report.drained && seen.held_back > 1000 && seen.shed == 0, "{report}");
    assert_eq!(report.subscribers[0].taken, seen.offered * 6, "half of them follow each topic");
}

#[test]
fn a_client_holds_publishes_back_at_its_window_and_at_its_queue() {
    for (limit, stop) in [
        ("publish_inflight_bytes = 4096", crate::fact::Stop::Window),
        ("publish_queue_depth = 1", crate::fact::Stop::Queue),
    ] {
        let slow = "rate = 1000\nclient = 'each'\nbandwidth = '100KB'\nwindow = 2048";
        let text = PEERS.replace("rate = 100", slow);
        let report = outcome(&format!("{text}[limits]\n{limit}")).report;
        let seen = report.publishers[0].seen;
        assert!((180..=210).contains(&seen.offered), "what the link takes: {seen:?}");
        assert_eq!(seen.offered + seen.held_back, 2000);
        assert!(report.stops.iter().any(|(found, _)| *found == stop), "{:?}", report.stops);
    }
}

#[test]
fn an_application_takes_at_its_rate_and_its_inbox_drops_by_policy() {
    for (policy, more) in [("drop_new", 0), ("drop_old", 0), ("latest", 0), ("block", 1)] {
        let text = PEERS.replace("rate = 100", "rate = 1000");
        let text = format!(
            "{text}pipe = 'single'\npolicy = '{policy}'\ntakes = 100\n[limits]\n\
             subscription_queue = 16\nlossless = {more}"
        );
        let mut story = story(&text);
        story.end = 60_000_000_000;
        let report = run(&story).unwrap();
        assert_eq!(report.code(), 0, "{report}");
        let row = &report.report.subscribers[0];
        if more == 1 {
            let offered = report.report.publishers[0].seen.offered;
            assert_eq!((row.taken, row.overrun), (offered, 0), "nothing is lost under block");
            assert!(offered < 2000, "the block has reached the publisher");
        } else {
            assert!((190..=220).contains(&row.taken), "{policy}: {}", row.taken);
            assert_eq!(row.taken + row.overrun, 2000, "{policy}");
        }
    }
}

#[test]
fn peers_that_come_and_go_are_counted_once_each() {
    let text = PEERS.replace("rate = 100", "rate = 500");
    let text = format!(
        "{text}count = 20\njoin = '0s..500ms'\nleave = '1500ms..2s'\n\
         outages = [{{ at = '700ms', back = '1ms..50ms' }}, \
         {{ at = '1s', back = '1ms..50ms', half_open = true }}]"
    );
    let outcome = outcome(&text);
    let row = &outcome.report.subscribers[0];
    assert_eq!((row.connects, row.closed), (60, 0), "{outcome}");
    assert!(row.unconfirmed > 0 && row.received + row.unconfirmed <= row.books.delivered.records);
}

#[test]
fn a_publisher_over_a_subscribers_connection_comes_and_goes_with_it() {
    let text = "[[topic]]\nname = 't'\n[[topic]]\nname = 'u'\n\
                [[subscriber]]\nname = 's'\ncount = 5\ntopic = 't'\njoin = '0s..200ms'\n\
                leave = '1500ms..1800ms'\noutages = [{ at = '700ms', back = '1ms..50ms' }]\n\
                [[publisher]]\nname = 'p'\nover = 's'\ntopic = 'u'\nrate = 100\nack = 'wait'\n\
                client = 'each'\n[[subscriber]]\nname = 'u'\ntopic = 'u'\n";
    for shards in [1, 2] {
        let report = outcome(&format!("{text}[limits]\nshards = {shards}\n")).report;
        let seen = report.publishers[0].seen;
        assert_eq!((seen.connects, report.subscribers[0].connects), (10, 10), "{report}");
        assert!((600..=900).contains(&seen.offered), "while it is there: {seen:?}");
        assert_eq!(report.subscribers[1].received, seen.offered);
    }
}

#[test]
fn a_question_waits_behind_publishes_where_they_share_a_stream_and_nowhere_else() {
    let longest = |pipe: &str| {
        let text = format!(
            "drain = '60s'\n[[topic]]\nname = 't'\n\
             [[subscriber]]\nname = 's'\ncount = 4\ntopic = 't'\n\
             asks = '20ms'\npipe = '{pipe}'\n\
             [[publisher]]\nname = 'p'\nover = 's'\ntopic = 't'\nrate = 100\nack = 'wait'\n\
             [cpu]\ndelivery = '10ms'\nwork = 1\n[limits]\npub_queue_depth = 4\n\
             pub_queue_total = 4"
        );
        let report = outcome(&text).report;
        let row = &report.subscribers[0];
        assert!(row.asked >= 390 && row.answered == row.asked, "{report}");
        row.answers.percentile(100).unwrap()
    };
    let (shared, single) = (longest("shared"), longest("single"));
    assert!(shared > 100_000_000 && single < 30_000_000, "{shared} and {single}");
}

/// What is queued when the last subscriber leaves runs in turns in which nothing is to be seen.
#[test]
fn publishes_without_an_audience_are_work() {
    let text = format!(
        "{}leave = '1s'\n[cpu]\ndelivery = '10ms'\nwork = 1\n",
        PEERS.replace("rate = 100", "rate = 100\ncount = 20")
    );
    let report = outcome(&text).report;
    assert!(report.books.sequenced.records > report.books.expected.records + 64, "{report}");
}

/// Without an answer of each, the judge `answers` convicts.
#[test]
fn what_is_asked_over_a_transport_that_refuses_is_answered() {
    for pipe in ["shared", "single"] {
        let text = format!(
            "{PEERS}pipe = '{pipe}'\nasks = '50ms'\nbuffer = '4KiB'\nbandwidth = '20KB'\n\
             [limits]\nhigh_water_bytes = '16KiB'\nsubscription_batches = 10\n"
        );
        let report = outcome(&text).report;
        let row = &report.subscribers[0];
        assert!(report.books.dropped.total().records > 50, "{report}");
        assert!(row.asked > 30 && row.answered == row.asked, "{report}");
    }
}

#[test]
fn a_broker_without_room_turns_newcomers_away_until_others_leave() {
    let text = format!(
        "{PEERS}count = 5\nleave = '1s..1100ms'\n[[subscriber]]\nname = 'late'\ncount = 5\n\
         topic = 'news'\njoin = '500ms..600ms'\nretry = '50ms..100ms'\n[limits]\n\
         max_connections = 6"
    );
    let report = outcome(&text).report;
    let late = &report.subscribers[1];
    assert!(late.turned_away >= 10 && late.connects == 5, "{late:?}");
}

#[test]
fn subscriptions_on_one_connection_share_its_end() {
    for pipe in ["pipe = 'single'\ncount = 8", "count = 4"] {
        let text = format!(
            "[[topic]]\nname = 't'\ncount = 4\n\
             [[publisher]]\nname = 'p'\ntopic = 't'\ncount = 4\nrate = 100\n\
             [[subscriber]]\nname = 's'\ntopic = 't'\nconnection = 'one'\n{pipe}\n\
             [limits]\nmax_connections = 5\n"
        );
        let report = outcome(&text).report;
        let row = &report.subscribers[0];
        assert_eq!(row.received, u64::from(row.peers) * 200, "{pipe}: {report}");
    }
}

#[test]
fn a_shard_that_shuts_down_delivers_what_it_took_and_its_peers_go_elsewhere() {
    let text = "[[topic]]\nname = 't'\ncount = 2\n\
                [[publisher]]\nname = 'p'\ntopic = 't'\ncount = 4\nrate = 200\nack = 'now'\n\
                retry = '10ms..50ms'\n\
                [[subscriber]]\nname = 's'\ntopic = 't'\ncount = 12\nretry = '10ms..50ms'\n\
                [limits]\nshards = 2\nshutdown_grace_ms = 200\n\
                [[shutdown]]\nat = '1s'\nshard = 1\n";
    let report = outcome(text).report;
    assert!(report.subscribers[0].connects >= 18, "{report}");
    assert_eq!(report.books.dropped.total().records, 0, "{report}");
}

#[test]
fn a_slow_shard_is_late_for_its_own_peers_only() {
    let text = "[[topic]]\nname = 'a'\n[[topic]]\nname = 'b'\n\
                [[publisher]]\nname = 'pa'\ntopic = 'a'\nrate = 100\nshard = 0\n\
                [[publisher]]\nname = 'pb'\ntopic = 'b'\nrate = 100\nshard = 1\n\
                [[subscriber]]\nname = 'sa'\ntopic = 'a'\nshard = 0\n\
                [[subscriber]]\nname = 'sb'\ntopic = 'b'\nshard = 1\n\
                [limits]\nshards = 2\n[cpu]\nturn = '100us'\n\
                [[slow]]\nat = '0s'\nshard = 1\ntimes = 300\n";
    let mut story = story(text);
    // Topics owned where their peers are, so that only the slow shard's are slow.
    for (owner, topic) in story.topics.iter_mut().enumerate() {
        topic.0 = name_owned_by(owner);
    }
    let outcome = run(&story).unwrap();
    assert_eq!(outcome.code(), 0, "{outcome}");
    let median = |row: usize| outcome.report.subscribers[row].latency.percentile(50).unwrap();
    assert!(median(0) < 1_000_000 && median(1) > 4_000_000, "{outcome}");
}

/// A name of a topic that this one of two shards owns: probed, for the hash is the core's.
fn name_owned_by(shard: usize) -> String {
    let names = (0..64).map(|number| format!("topic-{number}"));
    let owned = |name: &String| {
        let text = format!(
            "[[topic]]\nname = '{name}'\n[[publisher]]\nname = 'p'\ntopic = '{name}'\nrate = 1\n\
             shard = {shard}\n[limits]\nshards = 2\n"
        );
        run(&story(&text)).unwrap().report.books.forwarded.is_zero()
    };
    names.into_iter().find(owned).expect("a hash spreads names over two shards")
}

#[test]
fn ranges_are_drawn_for_each_peer_and_a_plain_run_is_the_same_run() {
    let text = PEERS.replace("rate = 100", "count = 40\nrate = '10..1000'");
    let text = format!("{text}count = 10\nbandwidth = '10KB..1MB'\ndelay = '0s..90ms'");
    let mut story = story(&text);
    let whole = run(&story).unwrap();
    let offered = whole.report.publishers[0].seen.offered;
    assert!((20_000..60_000).contains(&offered), "near the middle of the range: {offered}");
    story.plain = true;
    let plain = run(&story).unwrap();
    assert_eq!(plain.report.tape, whole.report.tape);
}

#[test]
fn one_stalled_peer_or_a_hundred_change_nobody_elses_trace() {
    let text = format!(
        "{PEERS}count = 5\n[[subscriber]]\nname = 'sleeper'\ntopic = 'news'\nbuffer = '8KiB'\n\
         stalls = [{{ at = '100ms' }}]\n[limits]\nhigh_water_bytes = '8KiB'\n[expect]\n\
         isolation = true"
    );
    let mut story = story(&text.replace("rate = 100", "rate = 500"));
    let traces = |story: &Story| {
        let ran = crate::world::run(story, true, crate::Watch::default()).unwrap();
        let dropped = ran.report.subscribers[1].books.dropped.records;
        assert!(dropped > 0, "the stalled must have lost something");
        let others = ran.traces.into_iter().filter(|(name, _)| name.starts_with("reader"));
        others.collect::<crate::judge::isolation::Traces>()
    };
    let one = traces(&story);
    story.subscribers[1].count = 100;
    let hundred = traces(&story);
    assert_eq!(one.len(), 5);
    assert!(one.values().all(|trace| trace.len() == 1000));
    assert_eq!(one, hundred);
}
