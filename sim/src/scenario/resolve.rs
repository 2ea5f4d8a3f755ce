//! From what is written to what can be run: names to indices, defaults, and every check that
//! needs more than one key.

mod expect;
mod over;
mod peers;
mod possible;

use super::bad::{BadInput, Source, unknown};
use super::file::{self, At, Table};
use super::limit::{BadLimit, set_limit};
use super::{Cpu, Expect, Mesh, PublisherGroup, ServerConfig, Shutdown, Slow, Story};
use crate::amount::{Amount, Text, Unit};
use expect::set_expect;
use over::{over, over_those_who_stay};
use peers::Context;
use possible::possible;
use sluicegate_core::{Limits, Pipe, Policy};
use std::collections::BTreeSet;

/// The most publishes one run may offer: it keeps a few words of each.
const MOST_PUBLISHES: u64 = 10_000_000;
/// The most deliveries one run may cause: a million takes about a second.
const MOST_DELIVERIES: u64 = 10_000_000_000;
/// The most publishers, and the most subscribers.
const MOST_PEERS: u64 = 100_000;
/// How long a run goes on after the publishers have stopped.
const DRAIN: u64 = 10_000_000_000;

type Checked<T> = Result<T, BadInput>;

/// What an amount may be. With the bounds on publishes and deliveries these keep every sum and
/// product of a run within 64 bits.
struct Within {
    least: u64,
    most: u64,
    /// Least and most as people write them.
    text: &'static str,
}

const DAY: u64 = 86_400_000_000_000;
const TIME: Within = Within { least: 0, most: DAY, text: "\"0s\" and \"1440min\"" };
const DURATION: Within = Within { least: 1, most: DAY, text: "\"1ns\" and \"1440min\"" };
const COST: Within = Within { least: 0, most: 10_000_000_000, text: "\"0s\" and \"10s\"" };
/// Deliveries per step, publishes per source and turn.
const PORTION: std::ops::RangeInclusive<u32> = 1..=1_000_000;

/// The amount of a key, within its range.
fn amount<U: Unit>(
    source: &Source<'_>,
    amount: &At<Amount<U>>,
    key: &str,
    range: &Within,
) -> Checked<u64> {
    let value = amount.get_ref().value;
    if (range.least..=range.most).contains(&value) {
        return Ok(value);
    }
    let written = source.written(&amount.span());
    let message = format!("`{key} = {written}` must be between {}", range.text);
    Err(source.bad(&amount.span(), message))
}

/// A text without characters that would change how a table is shown.
fn printable(source: &Source<'_>, text: &At<String>, key: &str, allowed: &str) -> Checked<()> {
    let control = |c: &char| c.is_control() && !allowed.contains(*c);
    match text.get_ref().chars().find(control) {
        Some(found) => {
            let message = format!("`{key}` holds the control character {found:?}: take it out");
            Err(source.bad(&text.span(), message))
        }
        None => Ok(()),
    }
}

/// One story per variant, or one if there are none.
pub(super) fn stories(
    source: &Source<'_>,
    file: &file::File,
    config: Option<&ServerConfig>,
) -> Checked<Vec<Story>> {
    let base = base(source, file, config)?;
    if file.variant.is_empty() {
        return Ok(vec![finish(source, file, base)?]);
    }
    let mut names = BTreeSet::new();
    let variants = file.variant.iter().map(|variant| {
        let name = variant.name.get_ref();
        printable(source, &variant.name, "name", "")?;
        if name.is_empty() || !names.insert(name) {
            let message = format!("`name = {name:?}`: every variant needs a name of its own");
            return Err(source.bad(&variant.name.span(), message));
        }
        let mut story = base.clone();
        story.variant.clone_from(name);
        set_limits(source, &mut story.limits, &variant.limits)?;
        config.into_iter().for_each(|config| config.put(&mut story.limits));
        set_cpu(source, &mut story.cpu, &variant.cpu)?;
        set_expect(source, &mut story, &variant.expect)?;
        possible(source, &variant.expect, &story)?;
        finish(source, file, story)
    });
    variants.collect()
}

/// What all variants share.
fn base(source: &Source<'_>, file: &file::File, config: Option<&ServerConfig>) -> Checked<Story> {
    printable(source, &file.title, "title", "")?;
    printable(source, &file.about, "about", "\n\t")?;
    let duration = amount(source, &file.duration, "duration", &DURATION)?;
    let drain = file.drain.as_ref();
    let drain = drain.map_or(Ok(DRAIN), |drain| amount(source, drain, "drain", &TIME))?;
    let tenants = tenants(source, file)?;
    let (topics, named) = topics(source, file, &tenants)?;
    let mut story = Story {
        file: source.file.to_owned(),
        config: config.map(|config| config.file.clone()),
        variant: String::new(),
        title: file.title.get_ref().clone(),
        about: file.about.get_ref().clone(),
        seed: file.seed,
        duration,
        end: duration + drain,
        limits: Limits::default(),
        cpu: Cpu { turn: 0, read: 0, delivery: 0, work: 1024, reads: 64 },
        mesh: mesh(source, &file.mesh)?,
        slow: Vec::new(),
        shutdowns: Vec::new(),
        plain: false,
        tenants,
        topics,
        publishers: Vec::new(),
        subscribers: Vec::new(),
        pressure: Vec::new(),
        expect: Expect::default(),
    };
    set_limits(source, &mut story.limits, &file.limits)?;
    config.into_iter().for_each(|config| config.put(&mut story.limits));
    set_cpu(source, &mut story.cpu, &file.cpu)?;
    let context = Context { source, duration, shards: story.shards(), topics: &named };
    story.slow = slow(&context, file)?;
    story.shutdowns = shutdowns(&context, file)?;
    let publishers = file.publisher.iter().map(|group| context.publisher(group));
    story.publishers = publishers.collect::<Checked<_>>()?;
    let subscribers = file.subscriber.iter().map(|group| context.subscriber(group));
    story.subscribers = subscribers.collect::<Checked<_>>()?;
    for (spec, group) in file.publisher.iter().zip(&mut story.publishers) {
        over(source, spec, group, (&story.subscribers, &story.topics))?;
    }
    context.sizes(file, &story)?;
    story.pressure = context.pressure(file)?;
    set_expect(source, &mut story, &file.expect)?;
    possible(source, &file.expect, &story)?;
    Ok(story)
}

fn mesh(source: &Source<'_>, mesh: &file::Mesh) -> Checked<Mesh> {
    let delay = mesh.delay.as_ref();
    let delay = delay.map_or(Ok(5_000), |delay| amount(source, delay, "delay", &COST))?;
    let ring = match &mesh.ring {
        None => 1024,
        ring => count(source, ring.as_ref(), "ring", PORTION)?,
    };
    Ok(Mesh { delay, ring })
}

/// A shard that there is.
fn shard(source: &Source<'_>, shard: &At<u32>, shards: u32) -> Checked<u32> {
    if *shard.get_ref() < shards {
        return Ok(*shard.get_ref());
    }
    let number = shard.get_ref();
    let message = format!(
        "`shard = {number}`: there are {shards}, numbered from 0; \
         set `shards` in [limits] for more"
    );
    Err(source.bad(&shard.span(), message))
}

fn slow(context: &Context<'_>, file: &file::File) -> Checked<Vec<Slow>> {
    let source = context.source;
    let slow = file.slow.iter().map(|slow| {
        let from = context.within(Some(&slow.at), "at", 0)?;
        let to = slow.r#for.map_or(u64::MAX, |length| from.saturating_add(length.value));
        Ok(Slow {
            shard: slow.shard.as_ref().map_or(Ok(0), |n| shard(source, n, context.shards))?,
            time: (from, to),
            times: count(source, Some(&slow.times), "times", 1..=1_000_000)?.into(),
        })
    });
    slow.collect()
}

/// Without a number all shards shut down.
fn shutdowns(context: &Context<'_>, file: &file::File) -> Checked<Vec<Shutdown>> {
    let mut all = Vec::new();
    for entry in &file.shutdown {
        let at = context.within(Some(&entry.at), "at", 0)?;
        let shards = match &entry.shard {
            Some(number) => {
                let number = shard(context.source, number, context.shards)?;
                number..number + 1
            }
            None => 0..context.shards,
        };
        all.extend(shards.map(|shard| Shutdown { at, shard }));
    }
    all.sort_by_key(|shutdown| (shutdown.at, shutdown.shard));
    Ok(all)
}

/// The most publishes a group can offer.
fn most_publishes(group: &PublisherGroup) -> u64 {
    let extra = group.bursts.iter().map(|(a, b, n)| (b - a).saturating_mul(n - 1));
    let extra = extra.fold(0, u64::saturating_add);
    let time = u128::from((group.active.1 - group.active.0).saturating_add(extra));
    let offered = time * u128::from(group.rate.1) * u128::from(group.count) / 1_000_000_000;
    u64::try_from(offered).unwrap_or(u64::MAX)
}

/// The checks that need the whole story.
fn finish(source: &Source<'_>, file: &file::File, story: Story) -> Checked<Story> {
    story.limits.check().map_err(|error| source.bad_file(format!("[limits]: {error}")))?;
    for (spec, group) in file.publisher.iter().zip(&story.publishers) {
        if u64::from(group.size.1) > story.limits.max_frame_bytes && !spec.oversize {
            let at = spec.size.as_ref().map_or_else(|| spec.name.span(), At::span);
            let most = story.limits.max_frame_bytes;
            let message = format!(
                "a publish is larger than `max_frame_bytes` = {most}; write `oversize = true` if \
                 it is meant to be refused"
            );
            return Err(source.bad(&at, message));
        }
    }
    for (spec, group) in file.subscriber.iter().zip(&story.subscribers) {
        let allowed = story.limits.lossless == 1 || story.limits.allow_block == 1;
        if group.wish.policy == Policy::Block && !allowed {
            let at = spec.policy.as_ref().map_or_else(|| spec.name.span(), At::span);
            let message = "`block` needs `lossless = 1` or `allow_block = 1` in [limits]";
            return Err(source.bad(&at, message));
        }
    }
    each_topic_once(source, file, &story)?;
    over_those_who_stay(source, file, &story)?;
    if story.expect.isolation && !story.cpu.is_free() {
        return Err(source.bad_file("`isolation` is judged exactly, so [cpu] must be free"));
    }
    if story.expect.isolation && story.subscribers.iter().all(|g| g.line.stalls.is_empty()) {
        return Err(source.bad_file("`isolation` needs a subscriber with `stalls`"));
    }
    Ok(story)
}

/// On a shared pipe it is the topic that says for whom a frame is.
fn each_topic_once(source: &Source<'_>, file: &file::File, story: &Story) -> Checked<()> {
    let mut taken = BTreeSet::new();
    for (spec, group) in file.subscriber.iter().zip(&story.subscribers) {
        let Some(name) = spec.connection.as_ref().filter(|_| group.pipe == Pipe::Shared) else {
            continue;
        };
        for number in 0..group.count as usize {
            if !taken.insert((name.get_ref(), group.topic + number % group.spread)) {
                let message = "on a shared pipe each topic is subscribed once: `count` is at most \
                               the topic's `count`, and groups of one connection have topics of \
                               their own";
                return Err(source.bad(&name.span(), message));
            }
        }
    }
    Ok(())
}

fn tenants(source: &Source<'_>, file: &file::File) -> Checked<Vec<(String, u32)>> {
    if file.tenant.is_empty() {
        return Ok(vec![("default".to_owned(), 1)]);
    }
    unique(source, file.tenant.iter().map(|tenant| &tenant.name))?;
    let tenants = file.tenant.iter().map(|tenant| {
        let weight = count(source, tenant.weight.as_ref(), "weight", 1..=1000)?;
        Ok((tenant.name.get_ref().clone(), weight))
    });
    tenants.collect()
}

/// Every topic with its tenant, and every name with the first of its topics and their number.
type Topics = (Vec<(String, usize)>, Vec<(String, usize, usize)>);

fn topics(source: &Source<'_>, file: &file::File, tenants: &[(String, u32)]) -> Checked<Topics> {
    unique(source, file.topic.iter().map(|topic| &topic.name))?;
    let names: Vec<&str> = tenants.iter().map(|(name, _)| name.as_str()).collect();
    let (mut topics, mut named) = (Vec::new(), Vec::new());
    for topic in &file.topic {
        let tenant = match &topic.tenant {
            Some(tenant) => find(source, tenant, "tenant", &names)?,
            None if tenants.len() == 1 => 0,
            None => {
                let message = "there are several tenants: say whose topic this is";
                return Err(source.bad(&topic.name.span(), message));
            }
        };
        let name = topic.name.get_ref();
        let count = count(source, topic.count.as_ref(), "count", 1..=100_000)?;
        named.push((name.clone(), topics.len(), count as usize));
        topics.extend(super::members(name, count).into_iter().map(|name| (name, tenant)));
    }
    Ok((topics, named))
}

fn unique<'a>(source: &Source<'_>, names: impl Iterator<Item = &'a At<String>>) -> Checked<()> {
    let mut seen = BTreeSet::new();
    for name in names {
        printable(source, name, "name", "")?;
        if name.get_ref().is_empty() || !seen.insert(name.get_ref()) {
            let message =
                format!("`name = {:?}`: a name must be new and not empty", name.get_ref());
            return Err(source.bad(&name.span(), message));
        }
    }
    Ok(())
}

fn find(source: &Source<'_>, name: &At<String>, what: &str, names: &[&str]) -> Checked<usize> {
    let found = names.iter().position(|known| known == name.get_ref());
    found.ok_or_else(|| source.bad(&name.span(), unknown(what, name.get_ref(), names)))
}

fn count(
    source: &Source<'_>,
    value: Option<&At<u32>>,
    key: &str,
    range: std::ops::RangeInclusive<u32>,
) -> Checked<u32> {
    let Some(value) = value else { return Ok(*range.start()) };
    if range.contains(value.get_ref()) {
        return Ok(*value.get_ref());
    }
    let (least, most) = (range.start(), range.end());
    let message = format!("`{key} = {}` must be between {least} and {most}", value.get_ref());
    Err(source.bad(&value.span(), message))
}

fn set_limits(source: &Source<'_>, to: &mut Limits, table: &Table<Text>) -> Checked<()> {
    for (name, value) in table {
        set_limit(to, name.get_ref(), &value.get_ref().0).map_err(|wrong| match wrong {
            BadLimit::Name(message) => source.bad(&name.span(), message),
            BadLimit::Value(message) => source.bad(&value.span(), message),
        })?;
    }
    Ok(())
}

fn set_cpu(source: &Source<'_>, to: &mut Cpu, cpu: &file::Cpu) -> Checked<()> {
    for (to, from, key) in [
        (&mut to.turn, &cpu.turn, "turn"),
        (&mut to.read, &cpu.read, "read"),
        (&mut to.delivery, &cpu.delivery, "delivery"),
    ] {
        if let Some(time) = from {
            *to = amount(source, time, key, &COST)?;
        }
    }
    for (to, from, key) in [(&mut to.work, &cpu.work, "work"), (&mut to.reads, &cpu.reads, "reads")]
    {
        if from.is_some() {
            *to = count(source, from.as_ref(), key, PORTION)?;
        }
    }
    Ok(())
}
