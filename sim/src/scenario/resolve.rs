//! From what is written to what can be run: names to indices, defaults, and every check that
//! needs more than one key.

use super::bad::{BadInput, Source, unknown};
use super::file::{self, At, Table};
use super::{Cells, Cpu, Expect, PublisherGroup, Story, SubscriberGroup};
use crate::amount::{Amount, Bound, Bytes, Count, Nanos, Text, Unit};
use crate::frame::HEADER;
use crate::line::LineSpec;
use sluicegate_core::{Ack, Band, Limits, Pipe, Place, Policy, Reason, Sample, Wish, limits};
use std::collections::{BTreeMap, BTreeSet};

/// The most publishes one run may offer: it keeps a few words of each.
const MOST_PUBLISHES: u64 = 10_000_000;
/// The most deliveries one run may cause: a million takes about a second.
const MOST_DELIVERIES: u64 = 10_000_000_000;
/// The most publishers, and the most subscribers.
const MOST_PEERS: u64 = 100_000;
/// What is assumed of a link: one gigabit, and a tenth of a millisecond.
const BANDWIDTH: u64 = 125_000_000;
const DELAY: u64 = 100_000;
const BUFFER: u64 = 256 << 10;
/// How long a run goes on after the publishers have stopped.
const DRAIN: u64 = 10_000_000_000;

type Checked<T> = Result<T, BadInput>;

/// What an amount may be. With the bounds on publishes and deliveries these keep every sum and
/// product of a run within 64 bits.
struct Range {
    least: u64,
    most: u64,
    /// Least and most as people write them.
    text: &'static str,
}

const DAY: u64 = 86_400_000_000_000;
const TIME: Range = Range { least: 0, most: DAY, text: "\"0s\" and \"1440min\"" };
const DURATION: Range = Range { least: 1, most: DAY, text: "\"1ns\" and \"1440min\"" };
const COST: Range = Range { least: 0, most: 10_000_000_000, text: "\"0s\" and \"10s\"" };
const SPEED: Range =
    Range { least: 1, most: 1_000_000_000_000, text: "1 and \"1000GB\" (per second)" };
const ROOM: Range = Range { least: 1, most: 1 << 30, text: "1 and \"1GiB\"" };
/// Deliveries per step, publishes per source and turn.
const PORTION: std::ops::RangeInclusive<u32> = 1..=1_000_000;

/// The amount of a key, within its range.
fn amount<U: Unit>(
    source: &Source<'_>,
    amount: &At<Amount<U>>,
    key: &str,
    range: &Range,
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
pub(super) fn stories(source: &Source<'_>, file: &file::File) -> Checked<Vec<Story>> {
    let base = base(source, file)?;
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
        set_cpu(source, &mut story.cpu, &variant.cpu)?;
        set_expect(source, &mut story, &variant.expect)?;
        finish(source, file, story)
    });
    variants.collect()
}

/// What all variants share.
fn base(source: &Source<'_>, file: &file::File) -> Checked<Story> {
    printable(source, &file.title, "title", "")?;
    printable(source, &file.about, "about", "\n\t")?;
    let duration = amount(source, &file.duration, "duration", &DURATION)?;
    let drain = file.drain.as_ref();
    let drain = drain.map_or(Ok(DRAIN), |drain| amount(source, drain, "drain", &TIME))?;
    let mut story = Story {
        file: source.file.to_owned(),
        variant: String::new(),
        title: file.title.get_ref().clone(),
        about: file.about.get_ref().clone(),
        seed: file.seed,
        duration,
        end: duration + drain,
        limits: Limits::default(),
        cpu: Cpu { turn: 0, read: 0, delivery: 0, work: 1024, reads: 64 },
        tenants: tenants(source, file)?,
        topics: Vec::new(),
        publishers: Vec::new(),
        subscribers: Vec::new(),
        pressure: Vec::new(),
        expect: Expect::default(),
    };
    set_limits(source, &mut story.limits, &file.limits)?;
    set_cpu(source, &mut story.cpu, &file.cpu)?;
    story.topics = topics(source, file, &story.tenants)?;
    let topics: Vec<&str> = story.topics.iter().map(|(name, _)| name.as_str()).collect();
    let context = Context { source, duration, topics: &topics };
    let publishers = file.publisher.iter().map(|group| context.publisher(group));
    story.publishers = publishers.collect::<Checked<_>>()?;
    let subscribers = file.subscriber.iter().map(|group| context.subscriber(group));
    story.subscribers = subscribers.collect::<Checked<_>>()?;
    context.sizes(file, &story)?;
    story.pressure = context.pressure(file)?;
    set_expect(source, &mut story, &file.expect)?;
    Ok(story)
}

/// The checks that need the whole story.
fn finish(source: &Source<'_>, file: &file::File, story: Story) -> Checked<Story> {
    story.limits.check().map_err(|error| source.bad_file(format!("[limits]: {error}")))?;
    for (spec, group) in file.publisher.iter().zip(&story.publishers) {
        if u64::from(group.size.1) > story.limits.max_frame_bytes {
            let at = spec.size.as_ref().map_or_else(|| spec.name.span(), At::span);
            let most = story.limits.max_frame_bytes;
            let message = format!("a publish is larger than `max_frame_bytes` = {most}");
            return Err(source.bad(&at, message));
        }
    }
    for (spec, group) in file.subscriber.iter().zip(&story.subscribers) {
        if group.wish.policy == Policy::Block && story.limits.lossless == 0 {
            let at = spec.policy.as_ref().map_or_else(|| spec.name.span(), At::span);
            return Err(source.bad(&at, "`block` needs `lossless = 1` in [limits]"));
        }
    }
    if story.expect.isolation && !story.cpu.is_free() {
        return Err(source.bad_file("`isolation` is judged exactly, so [cpu] must be free"));
    }
    if story.expect.isolation && story.subscribers.iter().all(|g| g.line.stalls.is_empty()) {
        return Err(source.bad_file("`isolation` needs a subscriber with `stalls`"));
    }
    Ok(story)
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

fn topics(
    source: &Source<'_>,
    file: &file::File,
    tenants: &[(String, u32)],
) -> Checked<Vec<(String, usize)>> {
    unique(source, file.topic.iter().map(|topic| &topic.name))?;
    let names: Vec<&str> = tenants.iter().map(|(name, _)| name.as_str()).collect();
    let topics = file.topic.iter().map(|topic| {
        let tenant = match &topic.tenant {
            Some(tenant) => find(source, tenant, "tenant", &names)?,
            None if tenants.len() == 1 => 0,
            None => {
                let message = "there are several tenants: say whose topic this is";
                return Err(source.bad(&topic.name.span(), message));
            }
        };
        Ok((topic.name.get_ref().clone(), tenant))
    });
    topics.collect()
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
        let key = limits::KEYS.iter().find(|key| key.name == name.get_ref()).ok_or_else(|| {
            let known: Vec<&str> = limits::KEYS.iter().map(|key| key.name).collect();
            source.bad(&name.span(), unknown("limit", name.get_ref(), &known))
        })?;
        let text = &value.get_ref().0;
        let number = Count::parse(text).or_else(|| match key.unit {
            "bytes" => Bytes::parse(text),
            "milliseconds" => {
                Nanos::parse(text).filter(|n| n % 1_000_000 == 0).map(|n| n / 1_000_000)
            }
            _ => None,
        });
        let number = number.ok_or_else(|| {
            let like = match key.unit {
                "bytes" => Bytes::LIKE,
                "milliseconds" => "a number of milliseconds, or text such as \"2s\"",
                _ => Count::LIKE,
            };
            let message = format!("`{} = {text}` must be {like}", key.name);
            source.bad(&value.span(), message)
        })?;
        to.set(key.name, number).map_err(|error| source.bad(&value.span(), error.to_string()))?;
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

/// What the checks of a peer need to know.
struct Context<'a> {
    source: &'a Source<'a>,
    duration: u64,
    topics: &'a [&'a str],
}

impl Context<'_> {
    fn publisher(&self, group: &file::Publisher) -> Checked<PublisherGroup> {
        let source = self.source;
        let rate = u64::try_from(*group.rate.get_ref()).ok().filter(|rate| *rate > 0);
        let rate = rate.filter(|rate| *rate <= 10_000_000).ok_or_else(|| {
            let rate = group.rate.get_ref();
            let message = format!("`rate = {rate}` must be between 1 and 10000000 per second");
            source.bad(&group.rate.span(), message)
        })?;
        let size = group.size.as_ref().map_or((1024, 1024), |size| {
            let span = size.get_ref();
            (span.least, span.most)
        });
        let fits = |bytes| u32::try_from(bytes).ok().filter(|bytes| *bytes >= HEADER);
        let size = fits(size.0).zip(fits(size.1)).ok_or_else(|| {
            let at = group.size.as_ref().map_or_else(|| group.name.span(), At::span);
            source.bad(&at, format!("`size` must be between {HEADER} B and 4 GiB"))
        })?;
        let from = self.within(group.from.as_ref(), "from", 0)?;
        let until = self.within(group.until.as_ref(), "until", self.duration)?;
        if from >= until {
            let at = group.from.as_ref().map_or_else(|| group.name.span(), At::span);
            return Err(source.bad(&at, "`from` must be before `until`"));
        }
        let link = (group.bandwidth.as_ref(), group.delay.as_ref(), group.window.as_ref());
        Ok(PublisherGroup {
            name: group.name.get_ref().clone(),
            count: count(source, group.count.as_ref(), "count", 1..=100_000)?,
            topic: find(source, &group.topic, "topic", self.topics)?,
            rate,
            size,
            records: count(source, group.records.as_ref(), "records", 1..=4096)?,
            ack: match group.ack {
                None | Some(file::AckMode::None) => Ack::None,
                Some(file::AckMode::Now) => Ack::Now,
                Some(file::AckMode::Wait) => Ack::Wait,
            },
            active: (from, until),
            bursts: self.bursts(group)?,
            line: self.line(link, "window", Vec::new())?,
        })
    }

    fn bursts(&self, group: &file::Publisher) -> Checked<Vec<(u64, u64, u64)>> {
        let mut ended = 0;
        let bursts = group.bursts.iter().map(|burst| {
            let file::Burst { at, r#for, times } = burst.get_ref();
            let (from, to) = (at.value, at.value.saturating_add(r#for.value));
            let message = if *times == 0 || *times > 10_000 {
                "a burst's `times` must be between 1 and 10000"
            } else if from < ended || to > self.duration || from == to {
                "bursts must be in order, apart, not empty, and end within the duration"
            } else {
                ended = to;
                return Ok((from, to, u64::from(*times)));
            };
            Err(self.source.bad(&burst.span(), message))
        });
        bursts.collect()
    }

    fn subscriber(&self, group: &file::Subscriber) -> Checked<SubscriberGroup> {
        let source = self.source;
        let single = group.pipe.as_ref().is_some_and(|p| *p.get_ref() == file::PipeName::Single);
        let policy = group.policy.as_ref().map_or(file::PolicyName::DropOld, |p| *p.get_ref());
        let policy = match policy {
            file::PolicyName::Block => Policy::Block,
            file::PolicyName::DropNew => Policy::DropNew,
            file::PolicyName::DropOld => Policy::DropOld,
            file::PolicyName::Latest => Policy::Latest,
        };
        if !single && !matches!(policy, Policy::DropNew | Policy::DropOld) {
            let at = group.policy.as_ref().map_or_else(|| group.name.span(), At::span);
            let message = "a shared pipe takes `drop_old` or `drop_new`; write `pipe = \"single\"`";
            return Err(source.bad(&at, message));
        }
        let (batches, bytes) = (group.batches.unwrap_or(0), group.bytes.map_or(0, |b| b.value));
        if !single && (batches, bytes) != (0, 0) {
            let message = "a shared pipe has the limit `high_water_bytes`; \
                           `batches` and `bytes` need `pipe = \"single\"`";
            return Err(source.bad(&group.name.span(), message));
        }
        let link = (group.bandwidth.as_ref(), group.delay.as_ref(), group.buffer.as_ref());
        Ok(SubscriberGroup {
            name: group.name.get_ref().clone(),
            count: count(source, group.count.as_ref(), "count", 1..=100_000)?,
            topic: find(source, &group.topic, "topic", self.topics)?,
            pipe: if single { Pipe::Single } else { Pipe::Shared },
            wish: Wish { batches, bytes, ..Wish::policy(policy) },
            line: self.line(link, "buffer", self.stalls(group)?)?,
        })
    }

    fn stalls(&self, group: &file::Subscriber) -> Checked<Vec<(u64, u64)>> {
        let mut ended = 0;
        let stalls = group.stalls.iter().map(|stall| {
            let file::Stall { at, r#for } = stall.get_ref();
            let to = r#for.map_or(Some(u64::MAX), |length| at.value.checked_add(length.value));
            let to = to.filter(|to| *to == u64::MAX || *to <= self.duration);
            let message = match to {
                None => "a stall must end within the duration; without `for` it never ends",
                Some(_) if at.value >= self.duration => "a stall must begin within the duration",
                Some(to) if at.value < ended || to == at.value => {
                    "stalls must be in order, apart from each other and not empty"
                }
                Some(to) => {
                    ended = to;
                    return Ok((at.value, to));
                }
            };
            Err(self.source.bad(&stall.span(), message))
        });
        stalls.collect()
    }

    fn line(
        &self,
        (bandwidth, delay, buffer): Link<'_>,
        key: &str,
        stalls: Vec<(u64, u64)>,
    ) -> Checked<LineSpec> {
        let of = |given: Option<&At<Amount<Bytes>>>, key, range, default| {
            given.map_or(Ok(default), |given| amount(self.source, given, key, range))
        };
        let bandwidth = of(bandwidth, "bandwidth", &SPEED, BANDWIDTH)?;
        let delay = delay.map_or(Ok(DELAY), |delay| amount(self.source, delay, "delay", &TIME))?;
        let buffer = of(buffer, key, &ROOM, BUFFER)?;
        Ok(LineSpec { bandwidth, delay, buffer, stalls })
    }

    fn within(&self, at: Option<&At<Amount<Nanos>>>, key: &str, default: u64) -> Checked<u64> {
        let Some(at) = at else { return Ok(default) };
        if at.get_ref().value <= self.duration {
            return Ok(at.get_ref().value);
        }
        let (written, end) = (self.source.written(&at.span()), Nanos::show(self.duration));
        let message = format!("`{key} = {written}` must be at most the duration, which is {end}");
        Err(self.source.bad(&at.span(), message))
    }

    /// Names are unique over publishers and over subscribers, and the run fits into memory.
    fn sizes(&self, file: &file::File, story: &Story) -> Checked<()> {
        unique(self.source, file.publisher.iter().map(|group| &group.name))?;
        unique(self.source, file.subscriber.iter().map(|group| &group.name))?;
        let mut audience = vec![0_u64; story.topics.len()];
        for group in &story.subscribers {
            audience[group.topic] += u64::from(group.count);
        }
        let (mut publishes, mut deliveries) = (0_u64, 0_u64);
        for (spec, group) in file.publisher.iter().zip(&story.publishers) {
            let extra: u64 =
                group.bursts.iter().map(|(a, b, n)| (b - a).saturating_mul(n - 1)).sum();
            let time = u128::from((group.active.1 - group.active.0).saturating_add(extra));
            let offered = time * u128::from(group.rate) * u128::from(group.count) / 1_000_000_000;
            publishes = publishes.saturating_add(u64::try_from(offered).unwrap_or(u64::MAX));
            if publishes > MOST_PUBLISHES {
                let message = format!(
                    "`rate = {}`: with this a run offers {publishes} publishes, the limit is \
                     {MOST_PUBLISHES}: lower `rate`, `count`, `times` or `duration`",
                    group.rate
                );
                return Err(self.source.bad(&spec.rate.span(), message));
            }
            deliveries += u64::try_from(offered).unwrap_or(u64::MAX) * audience[group.topic];
            if deliveries > MOST_DELIVERIES {
                let message = format!(
                    "`rate = {}`: with this a run causes up to {deliveries} deliveries, the limit \
                     is {MOST_DELIVERIES}: lower it, or the `count` of subscribers",
                    group.rate
                );
                return Err(self.source.bad(&spec.rate.span(), message));
            }
        }
        let peers: u64 = story.subscribers.iter().map(|group| u64::from(group.count)).sum();
        let publishers: u64 = story.publishers.iter().map(|group| u64::from(group.count)).sum();
        if peers.max(publishers) > MOST_PEERS {
            let message = format!(
                "`count` adds up to {publishers} publishers and {peers} subscribers: at most \
                 {MOST_PEERS} of each"
            );
            return Err(self.source.bad_file(message));
        }
        Ok(())
    }

    fn pressure(&self, file: &file::File) -> Checked<Vec<(u64, Option<String>)>> {
        let mut last = 0;
        let readings = file.pressure.iter().map(|reading| {
            let at = self.within(Some(&reading.at), "at", 0)?;
            let bad = |message: &str| Err(self.source.bad(&reading.at.span(), message));
            if at < last {
                return bad("readings of the pressure must be in order");
            }
            last = at;
            match (&reading.text, reading.unreadable) {
                (Some(text), false) if Sample::parse(text.get_ref()).is_none() => {
                    let message = "`text` is no memory.pressure file: write its two lines, as in \
                                   scenarios/memory-pressure.toml, or `unreadable = true`";
                    Err(self.source.bad(&text.span(), message))
                }
                (Some(text), false) => Ok((at, Some(text.get_ref().clone()))),
                (None, true) => Ok((at, None)),
                _ => bad("a reading has either `text` or `unreadable = true`"),
            }
        });
        readings.collect()
    }
}

/// Bandwidth, delay, buffer as they are written.
type Link<'a> =
    (Option<&'a At<Amount<Bytes>>>, Option<&'a At<Amount<Nanos>>>, Option<&'a At<Amount<Bytes>>>);

/// Adds what `file` says to the story's expectations; what is said twice is replaced.
fn set_expect(source: &Source<'_>, story: &mut Story, file: &file::Expect) -> Checked<()> {
    let publishers: Vec<&str> = story.publishers.iter().map(|g| g.name.as_str()).collect();
    let subscribers: Vec<&str> = story.subscribers.iter().map(|g| g.name.as_str()).collect();
    let to = &mut story.expect;
    to.drained = file.drained.or(to.drained);
    to.isolation = file.isolation.unwrap_or(to.isolation);
    if let Some(lost) = &file.lost {
        let names = lost.nobody_but.iter().map(|name| {
            find(source, name, "group of subscribers", &subscribers)?;
            Ok(name.get_ref().clone())
        });
        to.nobody_but = Some(names.collect::<Checked<_>>()?);
    }
    if let Some(bands) = &file.bands {
        to.bands =
            Some(bands.get_ref().iter().map(|name| band(source, name)).collect::<Checked<_>>()?);
    }
    replace(&mut to.transitions, &file.transitions);
    replace(&mut to.factor_min, &file.factor_min);
    replace(&mut to.factor_final, &file.factor_final);
    replace(&mut to.backlog_peak, &file.backlog_peak);
    replace(&mut to.held_peak, &file.held_peak);
    replace(&mut to.queue_peak, &file.queue_peak);
    cells(source, &mut to.dropped, &file.dropped)?;
    cells(source, &mut to.evicted, &file.evicted)?;
    cells(source, &mut to.refused, &file.refused)?;
    cells(source, &mut to.shed, &file.shed)?;
    groups(source, &mut to.publishers, &file.publisher, &publishers)?;
    groups(source, &mut to.subscribers, &file.subscriber, &subscribers)
}

fn replace<T: Clone>(to: &mut Option<T>, from: &Option<T>) {
    if from.is_some() {
        to.clone_from(from);
    }
}

fn band(source: &Source<'_>, name: &At<String>) -> Checked<Band> {
    let bands = [Band::Normal, Band::Pressure, Band::Severe, Band::Saturated];
    Ok(bands[find(source, name, "band", &bands.map(Band::name))?])
}

fn cells(source: &Source<'_>, to: &mut Cells, table: &Table<Bound<Count>>) -> Checked<()> {
    for (name, bound) in table {
        let text = name.get_ref();
        let (place, reason) =
            text.split_once('/').map_or((text.as_str(), None), |(p, r)| (p, Some(r)));
        let known = Place::ALL.map(Place::name);
        let place = match place {
            "total" if reason.is_none() => None,
            _ => Some(
                Place::ALL
                    .into_iter()
                    .find(|p| p.name() == place)
                    .ok_or_else(|| source.bad(&name.span(), unknown("place", place, &known)))?,
            ),
        };
        let known = Reason::ALL.map(Reason::name);
        let reason = reason.map(|reason| {
            let found = Reason::ALL.into_iter().find(|r| r.name() == reason);
            found.ok_or_else(|| source.bad(&name.span(), unknown("reason", reason, &known)))
        });
        to.insert(text.clone(), (place, reason.transpose()?, bound.get_ref().clone()));
    }
    Ok(())
}

fn groups<T: Clone>(
    source: &Source<'_>,
    to: &mut BTreeMap<String, T>,
    table: &Table<T>,
    known: &[&str],
) -> Checked<()> {
    for (name, expect) in table {
        find(source, name, "group", known)?;
        to.insert(name.get_ref().clone(), expect.get_ref().clone());
    }
    Ok(())
}
