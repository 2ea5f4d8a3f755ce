//! Random stories: scenario files drawn by proptest, so that what a judge finds in one can be read,
//! changed and run like any other.
//!
//! Faults end before the publishers do, and the drain is long: everything must have drained at the
//! end.

use super::drawn;
use crate::scenario::{self, Story};
use proptest::prelude::*;
use proptest::sample::select;

/// Lines of a table: `key = value`.
type Lines = Vec<String>;

/// The story of a seed: its file, and itself.
///
/// # Panics
/// When a file that was drawn is not a scenario.
pub fn tale(seed: u64) -> (String, Story) {
    let text = drawn(&tales(), seed);
    let mut stories = scenario::read(&format!("swarm-{seed}.toml"), &text)
        .unwrap_or_else(|error| panic!("a drawn scenario must be one: {error}\n{text}"));
    (text, stories.swap_remove(0))
}

/// Any story, as the text of its file.
pub fn tales() -> impl Strategy<Value = String> {
    let lossless = prop_oneof![3 => Just(false), 1 => Just(true)];
    let shards = prop_oneof![3 => Just(1_u32), 1 => 2..4_u32];
    (lossless, shards).prop_flat_map(|(lossless, shards)| {
        let publishers = proptest::collection::vec(publisher(), 1..4);
        let subscribers = proptest::collection::vec(subscriber(lossless), 1..5);
        (any::<u32>(), limits(), cpu(), publishers, subscribers).prop_map(
            move |(seed, limits, cpu, publishers, subscribers)| {
                let head = format!(
                    "title = \"a random world\"\nabout = \"drawn by swarm\"\nseed = {seed}\n\
                     duration = \"2s\"\ndrain = \"120s\"\n\n[limits]\nshards = {shards}\n\
                     lossless = {}\n",
                    u8::from(lossless)
                );
                let mut text = head + &limits.join("\n") + "\n\n[cpu]\n" + &cpu.join("\n") + "\n";
                for tenant in 0..2 {
                    text += &format!("\n[[tenant]]\nname = \"tenant-{tenant}\"\n");
                }
                for topic in 0..3 {
                    let tenant = topic % 2;
                    text += &format!(
                        "\n[[topic]]\nname = \"topic-{topic}\"\ntenant = \"tenant-{tenant}\"\n"
                    );
                }
                if seed % 3 == 0 {
                    text += &voice(&subscribers[0]);
                }
                for (kind, groups) in [("publisher", publishers), ("subscriber", subscribers)] {
                    for (number, lines) in groups.iter().enumerate() {
                        let lines = lines.join("\n");
                        text += &format!("\n[[{kind}]]\nname = \"{kind}-{number}\"\n{lines}\n");
                    }
                }
                text + "\n[expect]\ndrained = true\n"
            },
        )
    })
}

/// A publisher over the connections of the first group of subscribers, to their own topic.
fn voice(under: &Lines) -> String {
    let topic = under.iter().find(|line| line.starts_with("topic = "));
    let topic = topic.expect("every subscriber has a topic");
    format!(
        "\n[[publisher]]\nname = \"voice\"\nover = \"subscriber-0\"\n{topic}\nrate = 50\n\
         ack = \"wait\"\nwindow = \"8KiB\"\n"
    )
}

/// One value for each key.
fn table(keys: &'static [(&'static str, &'static [&'static str])]) -> impl Strategy<Value = Lines> {
    let line = |(key, values): &(&'static str, &'static [&'static str])| {
        let key = *key;
        select(*values).prop_map(move |value| format!("{key} = {value}"))
    };
    keys.iter().map(line).collect::<Vec<_>>()
}

fn limits() -> impl Strategy<Value = Lines> {
    table(&[
        ("band_dwell_ms", &["0", "100"]),
        ("codel_target_ms", &["0", "0", "5"]),
        ("egress_batches", &["2", "64"]),
        ("egress_shed", &["0", "1"]),
        ("high_water_bytes", &["\"2KiB\"", "\"64KiB\"", "\"1MiB\""]),
        ("memory_budget", &["\"4MiB\"", "\"1GiB\""]),
        ("mesh_depth", &["2", "1024"]),
        ("offer_batches", &["1", "16"]),
        ("pub_ingress_wait", &["0", "0", "1"]),
        ("pub_queue_depth", &["1", "64"]),
        ("pub_queue_total", &["2", "8", "256"]),
        ("quantum_bytes", &["\"1KiB\"", "\"64KiB\""]),
        ("slow_consumer_after_ms", &["0", "500"]),
        ("subscription_batches", &["1", "4", "512"]),
    ])
}

fn cpu() -> impl Strategy<Value = Lines> {
    table(&[
        ("turn", &["\"0s\"", "\"20us\""]),
        ("read", &["\"0s\"", "\"10us\""]),
        ("delivery", &["\"0s\"", "\"0s\"", "\"100us\""]),
        ("work", &["1", "7", "1024"]),
        ("reads", &["1", "64"]),
    ])
}

fn publisher() -> impl Strategy<Value = Lines> {
    table(&[
        ("topic", &["\"topic-0\"", "\"topic-0\"", "\"topic-1\"", "\"topic-2\""]),
        ("count", &["1", "2"]),
        ("rate", &["20", "200", "1000"]),
        ("size", &["100", "\"1KiB\"", "\"100..4KiB\""]),
        ("records", &["1", "1", "3"]),
        ("ack", &["\"none\"", "\"none\"", "\"now\"", "\"wait\""]),
        ("bursts", &["[]", "[{ at = \"500ms\", for = \"100ms\", times = 10 }]"]),
        ("window", &["\"8KiB\"", "\"256KiB\""]),
        ("delay", &["\"100us\"", "\"20ms\""]),
    ])
}

fn subscriber(lossless: bool) -> impl Strategy<Value = Lines> {
    let shared = table(&[("pipe", &["\"shared\""]), ("policy", &["\"drop_old\"", "\"drop_new\""])]);
    let single: &'static [&'static str] = if lossless {
        &["\"drop_old\"", "\"drop_new\"", "\"latest\"", "\"block\"", "\"block\""]
    } else {
        &["\"drop_old\"", "\"drop_new\"", "\"latest\""]
    };
    let policy = select(single)
        .prop_map(|policy| vec!["pipe = \"single\"".to_owned(), format!("policy = {policy}")]);
    let rest = table(&[
        ("topic", &["\"topic-0\"", "\"topic-0\"", "\"topic-1\"", "\"topic-2\""]),
        ("count", &["1", "3"]),
        ("asks", &["\"20ms\"", "\"1440min\""]),
        ("bandwidth", &["\"20KB\"", "\"1MB\"", "\"125MB\""]),
        ("buffer", &["\"1KiB\"", "\"64KiB\""]),
        ("delay", &["\"100us\"", "\"20ms\""]),
        (
            "stalls",
            &[
                "[]",
                "[{ at = \"300ms\", for = \"1s\" }]",
                "[{ at = \"100ms\", for = \"200ms\" }, { at = \"1s\", for = \"800ms\" }]",
            ],
        ),
    ]);
    (prop_oneof![shared.boxed(), policy.boxed()], rest).prop_map(|(mut lines, rest)| {
        lines.extend(rest);
        lines
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_is_a_scenario_and_the_same_for_the_same_seed() {
        for seed in 0..100 {
            let (text, story) = tale(seed);
            assert_eq!(text, tale(seed).0);
            assert!(!story.subscribers.is_empty() && story.expect.drained == Some(true));
        }
        assert_ne!(tale(1).0, tale(2).0);
    }
}
