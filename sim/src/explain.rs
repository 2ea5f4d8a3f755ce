//! The chain with a scenario's numbers: at each checkpoint every bound that is in force, whether
//! it is the default, and what the checkpoint means for each group of peers.

use crate::chain::{CHECKPOINTS, Checkpoint};
use crate::scenario::{Client, PublisherGroup, Story, SubscriberGroup};
use serde_json::{Value, json};
use sluicegate_core::limits::{KEYS, Key};
use sluicegate_core::{Ack, Limits, Pipe, Policy};
use std::fmt;

/// What a story's chain is.
#[derive(Debug)]
pub struct Explained<'a>(pub &'a Story);

impl Explained<'_> {
    /// The same as JSON.
    pub fn json(&self) -> Value {
        let places = CHECKPOINTS.iter().map(|place| {
            let bounds = place.keys.iter().map(|name| {
                let (key, value) = self.bound(name);
                json!({
                    "key": key.name,
                    "value": value,
                    "unit": key.unit,
                    "default": key.default,
                    "is_default": value == key.default,
                    "help": key.help,
                })
            });
            let peers = self.peers(place).into_iter();
            let peers = peers.map(|(group, what)| json!({ "group": group, "what": what }));
            json!({
                "mark": place.mark,
                "name": place.name,
                "side": place.side,
                "holds": place.holds,
                "when_full": place.when_full,
                "bounds": bounds.collect::<Vec<_>>(),
                "peers": peers.collect::<Vec<_>>(),
            })
        });
        json!({
            "name": self.0.name(),
            "title": self.0.title,
            "about": self.0.about,
            "file": self.0.file,
            "command": self.0.command(),
            "chain": places.collect::<Vec<_>>(),
        })
    }

    fn bound(&self, name: &str) -> (&'static Key, u64) {
        let key = KEYS.iter().find(|key| key.name == name);
        let key = key.expect("a test compares the chain's keys with the table");
        (key, self.0.limits.get(name).expect("the table names the struct's fields"))
    }

    /// What a place means for each group that meets it.
    fn peers(&self, place: &Checkpoint) -> Vec<(String, String)> {
        let story = self.0;
        let limits = &story.limits;
        let publishers = |what: &dyn Fn(&PublisherGroup) -> String| {
            let groups = story.publishers.iter();
            groups.map(|group| (counted(&group.name, group.count), what(group))).collect()
        };
        let subscribers = |what: &dyn Fn(&SubscriberGroup) -> String| {
            let groups = story.subscribers.iter();
            groups.map(|group| (counted(&group.name, group.count), what(group))).collect()
        };
        match place.mark {
            "1" => publishers(&window),
            "2" => publishers(&|group| match group.client {
                Client::Raw => "no client, no queue".to_owned(),
                Client::Each | Client::One => "each is a worker with its own queue".to_owned(),
            }),
            "3" | "4" => publishers(&|group| enqueue(group.ack, limits).to_owned()),
            "M" if limits.shards > 1 => {
                let ring = story.mesh.ring;
                vec![("every two shards".to_owned(), format!("a ring of {ring} parcels"))]
            }
            "5" => subscribers(&|group| backlog(group, limits)),
            "6" => {
                subscribers(&|group| format!("its transport takes {}", exact(group.line.buffer)))
            }
            "7" => subscribers(&|group| match group.takes {
                None => "takes whatever arrives".to_owned(),
                Some((least, most)) if least == most => format!("takes {least} events per second"),
                Some((least, most)) => format!("takes {least} to {most} events per second"),
            }),
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for Explained<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} · {}", self.0.name(), self.0.title)?;
        for place in CHECKPOINTS {
            writeln!(f, "\n{} {} ({}): {}", place.mark, place.name, place.side, place.holds)?;
            writeln!(f, "  when full: {}", place.when_full)?;
            for (group, what) in self.peers(place) {
                writeln!(f, "  > {group}: {what}")?;
            }
            for name in place.keys {
                let (key, value) = self.bound(name);
                let shown = shown(key, value);
                let mark = if value == key.default {
                    "default".to_owned()
                } else {
                    format!("set; the default is {}", self::shown(key, key.default))
                };
                writeln!(f, "    {name:<26} {shown:<16} {mark}")?;
            }
        }
        Ok(())
    }
}

fn counted(name: &str, count: u32) -> String {
    if count == 1 { name.to_owned() } else { format!("{name} ×{count}") }
}

fn window(group: &PublisherGroup) -> String {
    match group.client {
        Client::Each => "each has a client with its own window".to_owned(),
        Client::One => "all share the window of one client".to_owned(),
        Client::Raw => {
            let buffer = exact(group.line.buffer);
            format!("no client; what its transport ({buffer}) does not take is held back")
        }
    }
}

/// The policy of a publish, by what it asks for.
const fn enqueue(ack: Ack, limits: &Limits) -> &'static str {
    let waits = limits.pub_ingress_wait == 1 || limits.lossless == 1;
    match ack {
        Ack::None if waits => "unacked, `backpressure`: its source waits without a deadline",
        Ack::None => "unacked, `drop`: shed, and its source learns how many",
        Ack::Now => "acked, `fail`: refused at once, with retry advice",
        Ack::Wait => "acked, `wait`: parked up to `publish_queue_wait_ms`, then refused",
    }
}

fn backlog(group: &SubscriberGroup, limits: &Limits) -> String {
    let what = match group.wish.policy {
        Policy::Block => "`block`: its topic waits for it",
        Policy::DropNew => "`drop_new`: keeps what it has",
        Policy::DropOld => "`drop_old`: gives up its oldest",
        Policy::Latest => "`latest`: keeps the newest alone",
    };
    if group.pipe == Pipe::Shared {
        return format!("{what}, at {} for its connection", exact(limits.high_water_bytes));
    }
    let least = |wish: u64, most: u64| if wish == 0 { most } else { wish.min(most) };
    let batches = match group.wish.policy {
        Policy::Latest => 1,
        _ => least(group.wish.batches.into(), limits.subscription_batches),
    };
    let bytes = exact(least(group.wish.bytes, limits.subscription_bytes));
    let plural = if batches == 1 { "" } else { "es" };
    format!("{what}, at {batches} batch{plural} or {bytes}")
}

/// A value with its unit, exactly.
fn shown(key: &Key, value: u64) -> String {
    match key.unit {
        "0 or 1" => if value == 1 { "on" } else { "off" }.to_owned(),
        "bytes" => exact(value),
        "milliseconds" if value > 0 && value.is_multiple_of(1000) => format!("{} s", value / 1000),
        "milliseconds" => format!("{value} ms"),
        "percent" => format!("{value} %"),
        unit => format!("{value} {unit}"),
    }
}

/// Bytes in the greatest unit that says them exactly.
fn exact(bytes: u64) -> String {
    let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let fits = units.into_iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit));
    fits.map_or_else(|| format!("{bytes} B"), |(unit, name)| format!("{} {name}", bytes / unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amount::{Bytes, Unit};
    use crate::scenario;

    const STORY: &str = r#"
title = "t"
about = "a"
duration = "1s"
[limits]
high_water_bytes = "16KiB"
pub_ingress_wait = 1
[[topic]]
name = "news"
[[publisher]]
name = "feed"
count = 8
topic = "news"
rate = 5
[[publisher]]
name = "careful"
topic = "news"
rate = 5
ack = "wait"
client = "one"
[[subscriber]]
name = "page"
count = 3
topic = "news"
[[subscriber]]
name = "ticker"
topic = "news"
pipe = "single"
policy = "latest"
bytes = "1MiB"
takes = 10
"#;

    #[test]
    fn every_bound_and_policy_is_said_and_defaults_are_marked() {
        let story = scenario::read("t.toml", STORY).unwrap().remove(0);
        insta::assert_snapshot!(Explained(&story).to_string());
    }

    #[test]
    fn json_says_the_same() {
        let story = scenario::read("t.toml", STORY).unwrap().remove(0);
        let json = Explained(&story).json();
        let chain = json["chain"].as_array().unwrap();
        let bounds = chain.iter().flat_map(|place| place["bounds"].as_array().unwrap());
        let set: Vec<&str> = bounds
            .filter(|bound| bound["is_default"] == false)
            .map(|bound| bound["key"].as_str().unwrap())
            .collect();
        assert_eq!(set, ["pub_ingress_wait", "high_water_bytes"]);
        assert_eq!(chain[0]["peers"][1]["what"], "all share the window of one client");
    }

    #[test]
    fn numbers_are_exact() {
        let due = ["0 B", "1023 B", "1 KiB", "1025 B", "1 MiB", "17 MiB", "1 GiB"];
        let bytes = [0, 1023, 1024, 1025, 1 << 20, 17 << 20, 1 << 30];
        assert_eq!(bytes.map(exact), due);
        assert_eq!(Bytes::parse("17MiB"), Some(17 << 20));
    }
}
