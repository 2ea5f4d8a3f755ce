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
