//! Groups of peers: links, presence, and what one run can hold.

use super::{
    Checked, MOST_DELIVERIES, MOST_PEERS, MOST_PUBLISHES, Within, amount, count, find, unique,
};
use crate::amount::{Amount, Bytes, Millionths, Nanos, Span, Unit};
use crate::frame::HEADER;
use crate::scenario::bad::Source;
use crate::scenario::file::{self, At};
use crate::scenario::{
    Client, LinkSpec, Outage, Presence, PublisherGroup, Range, Story, SubscriberGroup,
};
use sluicegate_core::{Ack, Pipe, Policy, Sample, Wish};

/// What is assumed of a link: one gigabit, a tenth of a millisecond, and a fifth of a second until
/// a lost frame is sent again.
const BANDWIDTH: u64 = 125_000_000;
const DELAY: u64 = 100_000;
const BUFFER: u64 = 256 << 10;
const RETRANSMIT: u64 = 200_000_000;

const RATE: Within = Within { least: 1, most: 10_000_000, text: "1 and 10000000 per second" };
const SPEED: Within =
    Within { least: 1, most: 1_000_000_000_000, text: "1 and \"1000GB\" (per second)" };
const ROOM: Within = Within { least: 1, most: 1 << 30, text: "1 and \"1GiB\"" };
const SIZE: Within = Within { least: HEADER as u64, most: u32::MAX as u64, text: "32 B and 4 GiB" };
const PART: Within = Within { least: 0, most: 1_000_000, text: "0 and \"100%\"" };

/// What the checks of a peer need to know.
pub(super) struct Context<'a> {
    pub(super) source: &'a Source<'a>,
    pub(super) duration: u64,
    pub(super) shards: u32,
    /// Names of topics as they are written, with the index of the first and how many there are.
    pub(super) topics: &'a [(String, usize, usize)],
}

/// The keys of a link, as they are written.
struct LinkKeys<'a> {
    bandwidth: Option<&'a At<Span<Bytes>>>,
    delay: Option<&'a At<Span<Nanos>>>,
    jitter: Option<&'a At<Amount<Nanos>>>,
    loss: Option<&'a At<Amount<Millionths>>>,
    retransmit: Option<&'a At<Amount<Nanos>>>,
    /// And its name: publishers call it a window.
    buffer: (Option<&'a At<Amount<Bytes>>>, &'static str),
}

/// The keys of when a peer is there, as they are written.
struct PresenceKeys<'a> {
    join: Option<&'a At<Span<Nanos>>>,
    leave: Option<&'a At<Span<Nanos>>>,
    outages: &'a [At<file::Outage>],
    retry: Option<&'a At<Span<Nanos>>>,
}

macro_rules! link_keys {
    ($group:expr, $buffer:ident) => {
        LinkKeys {
            bandwidth: $group.bandwidth.as_ref(),
            delay: $group.delay.as_ref(),
            jitter: $group.jitter.as_ref(),
            loss: $group.loss.as_ref(),
            retransmit: $group.retransmit.as_ref(),
            buffer: ($group.$buffer.as_ref(), stringify!($buffer)),
        }
    };
}

macro_rules! presence_keys {
    ($group:expr) => {
        PresenceKeys {
            join: $group.join.as_ref(),
            leave: $group.leave.as_ref(),
            outages: &$group.outages,
            retry: $group.retry.as_ref(),
        }
    };
}

/// A range of a key, within what it may be.
fn span<U: Unit>(
    source: &Source<'_>,
    span: &At<Span<U>>,
    key: &str,
    within: &Within,
) -> Checked<Range> {
    let (least, most) = span.get_ref().ends();
    if within.least <= least && most <= within.most {
        return Ok((least, most));
    }
    let written = source.written(&span.span());
    let message = format!("`{key} = {written}` must be between {}", within.text);
    Err(source.bad(&span.span(), message))
}

impl Context<'_> {
    pub(super) fn publisher(&self, group: &file::Publisher) -> Checked<PublisherGroup> {
        let source = self.source;
        let size = group
            .size
            .as_ref()
            .map_or(Ok((1024, 1024)), |size| span(source, size, "size", &SIZE))?;
        let narrow = |bytes| u32::try_from(bytes).expect("its range is below");
        let from = self.within(group.from.as_ref(), "from", 0)?;
        let until = self.within(group.until.as_ref(), "until", self.duration)?;
        if from >= until {
            let at = group.from.as_ref().map_or_else(|| group.name.span(), At::span);
            return Err(source.bad(&at, "`from` must be before `until`"));
        }
        let (topic, spread) = self.topic(&group.topic)?;
        Ok(PublisherGroup {
            name: group.name.get_ref().clone(),
            count: count(source, group.count.as_ref(), "count", 1..=100_000)?,
            topic,
            spread,
            shard: self.shard(group.shard.as_ref())?,
            client: match group.client {
                None => Client::Raw,
                Some(file::ClientKind::Each) => Client::Each,
                Some(file::ClientKind::One) => Client::One,
            },
            over: group.over.as_ref().map(|name| name.get_ref().clone()),
            presence: self.presence(&presence_keys!(group))?,
            rate: span(source, &group.rate, "rate", &RATE)?,
            size: (narrow(size.0), narrow(size.1)),
            records: count(source, group.records.as_ref(), "records", 1..=4096)?,
            ack: match group.ack {
                None | Some(file::AckMode::None) => Ack::None,
                Some(file::AckMode::Now) => Ack::Now,
                Some(file::AckMode::Wait) => Ack::Wait,
            },
            active: (from, until),
            bursts: self.bursts(group)?,
            line: self.link(&link_keys!(group, window), Vec::new())?,
        })
    }

    /// The first topic of a name, and how many there are.
    fn topic(&self, name: &At<String>) -> Checked<(usize, usize)> {
        let names: Vec<&str> = self.topics.iter().map(|(name, ..)| name.as_str()).collect();
        let (_, first, count) = self.topics[find(self.source, name, "topic", &names)?];
        Ok((first, count))
    }

    fn shard(&self, shard: Option<&At<u32>>) -> Checked<Option<u32>> {
        let Some(shard) = shard else { return Ok(None) };
        super::shard(self.source, shard, self.shards).map(Some)
    }

    fn bursts(&self, group: &file::Publisher) -> Checked<Vec<(u64, u64, u64)>> {
        let mut ended = 0;
        let bursts = group.bursts.iter().map(|burst| {
            let file::Burst { at, r#for, times } = burst.get_ref();
            let (from, to) = (at.value, at.value.saturating_add(r#for.value));
            let show = Nanos::show;
            let message = if *times == 0 || *times > 10_000 {
                format!("`times = {times}`: a burst's `times` must be between 1 and 10000")
            } else if from == to {
                "`for = \"0s\"`: this burst is empty: give it a length, such as \"100ms\""
                    .to_owned()
            } else if from < ended {
                let (at, ended) = (show(from), show(ended));
                format!("`bursts`: this one begins at {at}, before the last one ends, at {ended}")
            } else if to > self.duration {
                let (to, end) = (show(to), show(self.duration));
                format!("`bursts`: this one ends at {to}, after the duration, which is {end}")
            } else {
                ended = to;
                return Ok((from, to, u64::from(*times)));
            };
            Err(self.source.bad(&burst.span(), message))
        });
        bursts.collect()
    }

    pub(super) fn subscriber(&self, group: &file::Subscriber) -> Checked<SubscriberGroup> {
        let source = self.source;
        let single = group.pipe.as_ref().is_some_and(|p| *p.get_ref() == file::PipeName::Single);
        let (topic, spread) = self.topic(&group.topic)?;
        let takes = group.takes.as_ref().map(|takes| span(source, takes, "takes", &RATE));
        let asks = group.asks.as_ref();
        let asks = asks.map(|asks| span(source, asks, "asks", &super::DURATION));
        Ok(SubscriberGroup {
            name: group.name.get_ref().clone(),
            count: count(source, group.count.as_ref(), "count", 1..=100_000)?,
            topic,
            spread,
            shard: self.shard(group.shard.as_ref())?,
            connection: group.connection.as_ref().map(|name| name.get_ref().clone()),
            takes: takes.transpose()?,
            asks: asks.transpose()?,
            presence: self.presence(&presence_keys!(group))?,
            pipe: if single { Pipe::Single } else { Pipe::Shared },
            wish: self.wish(group, single)?,
            line: self.link(&link_keys!(group, buffer), self.stalls(group)?)?,
        })
    }

    fn wish(&self, group: &file::Subscriber, single: bool) -> Checked<Wish> {
        let source = self.source;
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
        Ok(Wish { batches, bytes, ..Wish::policy(policy) })
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

    fn link(&self, keys: &LinkKeys<'_>, stalls: Vec<(u64, u64)>) -> Checked<LinkSpec> {
        let source = self.source;
        let time = |given: Option<&At<Amount<Nanos>>>, key, default| {
            given.map_or(Ok(default), |given| amount(source, given, key, &super::TIME))
        };
        let bandwidth = keys.bandwidth.map(|given| span(source, given, "bandwidth", &SPEED));
        let delay = keys.delay.map(|given| span(source, given, "delay", &super::TIME));
        let loss = keys.loss.map_or(Ok(0), |given| amount(source, given, "loss", &PART))?;
        let (buffer, key) = keys.buffer;
        Ok(LinkSpec {
            bandwidth: bandwidth.unwrap_or(Ok((BANDWIDTH, BANDWIDTH)))?,
            delay: delay.unwrap_or(Ok((DELAY, DELAY)))?,
            jitter: time(keys.jitter, "jitter", 0)?,
            loss: u32::try_from(loss).expect("at most a million"),
            retransmit: time(keys.retransmit, "retransmit", RETRANSMIT)?,
            buffer: buffer.map_or(Ok(BUFFER), |given| amount(source, given, key, &ROOM))?,
            stalls,
        })
    }

    fn presence(&self, keys: &PresenceKeys<'_>) -> Checked<Presence> {
        let source = self.source;
        let text = format!("\"0s\" and the duration, which is {}", Nanos::show(self.duration));
        let inside = |given: &At<Span<Nanos>>, key: &str| {
            let (least, most) = span(source, given, key, &super::TIME)?;
            if most <= self.duration {
                return Ok((least, most));
            }
            let written = source.written(&given.span());
            let message = format!("`{key} = {written}` must be between {text}");
            Err(source.bad(&given.span(), message))
        };
        let join = keys.join.map_or(Ok((0, 0)), |join| inside(join, "join"))?;
        let leave = keys.leave.map(|leave| inside(leave, "leave")).transpose()?;
        if let (Some(at), Some((least, _))) = (keys.leave, leave)
            && least <= join.1
        {
            return Err(source.bad(&at.span(), "a peer must `leave` after it has joined"));
        }
        let mut last = 0;
        let outages = keys.outages.iter().map(|outage| {
            let file::Outage { at, back, half_open } = outage.get_ref();
            let outage_at = at.value;
            if outage_at <= last || outage_at > self.duration {
                let message = "outages must be in order, after the start, and within the duration";
                return Err(source.bad(&outage.span(), message));
            }
            last = outage_at;
            let back = back.map(|back| back.ends());
            if back.is_some_and(|(least, most)| least == 0 || most > super::DAY) {
                let message = "a peer comes `back` after \"1ns\" to \"1440min\"";
                return Err(source.bad(&outage.span(), message));
            }
            Ok(Outage { at: outage_at, back, half_open: *half_open })
        });
        let outages = outages.collect::<Checked<_>>()?;
        let retry = keys.retry.map(|retry| span(source, retry, "retry", &super::DURATION));
        Ok(Presence { join, leave, outages, retry: retry.transpose()? })
    }

    pub(super) fn within(
        &self,
        at: Option<&At<Amount<Nanos>>>,
        key: &str,
        default: u64,
    ) -> Checked<u64> {
        let Some(at) = at else { return Ok(default) };
        if at.get_ref().value <= self.duration {
            return Ok(at.get_ref().value);
        }
        let (written, end) = (self.source.written(&at.span()), Nanos::show(self.duration));
        let message = format!("`{key} = {written}` must be at most the duration, which is {end}");
        Err(self.source.bad(&at.span(), message))
    }

    /// Names are unique over publishers and over subscribers, and the run fits into memory.
    pub(super) fn sizes(&self, file: &file::File, story: &Story) -> Checked<()> {
        unique(self.source, file.publisher.iter().map(|group| &group.name))?;
        unique(self.source, file.subscriber.iter().map(|group| &group.name))?;
        let (mut publishes, mut deliveries) = (0_u64, 0_u64);
        for (spec, group) in file.publisher.iter().zip(&story.publishers) {
            let offered = super::most_publishes(group);
            publishes = publishes.saturating_add(offered);
            if publishes > MOST_PUBLISHES {
                let message = format!(
                    "`rate = {}`: with this a run offers {publishes} publishes, the limit is \
                     {MOST_PUBLISHES}: lower `rate`, `count`, `times` or `duration`",
                    self.source.written(&spec.rate.span()),
                );
                return Err(self.source.bad(&spec.rate.span(), message));
            }
            let sharing = story.subscribers.iter().filter(|s| overlap(s, group));
            let audience: u64 = sharing.map(|s| u64::from(s.count).div_ceil(s.spread as u64)).sum();
            deliveries = deliveries.saturating_add(offered.saturating_mul(audience));
            if deliveries > MOST_DELIVERIES {
                let message = format!(
                    "`rate = {}`: with this a run causes up to {deliveries} deliveries, the limit \
                     is {MOST_DELIVERIES}: lower it, or the `count` of subscribers",
                    self.source.written(&spec.rate.span()),
                );
                return Err(self.source.bad(&spec.rate.span(), message));
            }
        }
        self.questions(file, story)?;
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

    /// Questions are as many as publishes may be, at most.
    fn questions(&self, file: &file::File, story: &Story) -> Checked<()> {
        let mut questions = 0_u64;
        for (spec, group) in file.subscriber.iter().zip(&story.subscribers) {
            let (Some((least, _)), Some(asks)) = (group.asks, &spec.asks) else { continue };
            let each = story.duration / least;
            questions = questions.saturating_add(each.saturating_mul(group.count.into()));
            if questions > MOST_PUBLISHES {
                let written = self.source.written(&asks.span());
                let message = format!(
                    "`asks = {written}`: with this a run asks {questions} questions, the limit is \
                     {MOST_PUBLISHES}: ask less often, or lower `count` or `duration`"
                );
                return Err(self.source.bad(&asks.span(), message));
            }
        }
        Ok(())
    }

    pub(super) fn pressure(&self, file: &file::File) -> Checked<Vec<(u64, Option<String>)>> {
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

/// Whether a group of subscribers follows a topic that a group of publishers publishes to.
fn overlap(subscribers: &SubscriberGroup, publishers: &PublisherGroup) -> bool {
    let ends = |topic: usize, spread: usize, count: u32| topic + spread.min(count as usize);
    subscribers.topic < ends(publishers.topic, publishers.spread, publishers.count)
        && publishers.topic < ends(subscribers.topic, subscribers.spread, subscribers.count)
}
