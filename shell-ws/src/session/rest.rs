//! The publishing API: from a whole request to publishes in the core, or to a reply.

use super::auth::{self, Signed};
use super::channel;
use super::query::{Gather, Info, Wanted};
use super::route::Api;
use crate::settings::Settings;
use crate::shard::Shard;
use bytes::Bytes;
use sluicegate_core::{
    Ack, Broker, ConnId, Keep, Message, OutletId, Place, Reason, Refusal, Retry, Tally, TenantId,
    TopicId, Verdict,
};
use sluicegate_wire::pusher;
use sluicegate_wire::rest::{self, BadBody, Bounds, Trigger};

/// A short answer for people.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) header: Option<(&'static str, String)>,
    pub(super) text: String,
}

impl Reply {
    pub(super) fn new(status: u16, text: impl Into<String>) -> Self {
        Self { status, header: None, text: text.into() }
    }

    pub(super) fn header(self, name: &'static str, value: impl Into<String>) -> Self {
        Self { header: Some((name, value.into())), ..self }
    }
}

/// What became of a call.
#[derive(Debug)]
pub(super) enum Answer {
    /// So many publishes are admitted: the reply waits until each is sequenced, and then for what
    /// was asked about their channels.
    Committing {
        jobs: u32,
        /// One more may have been refused.
        failed: Option<Refusal>,
        asked: Option<Gather>,
    },
    Reply(Reply),
}

/// Where a call has its events.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form<'a> {
    /// `POST /batch_events`: a list of them in the body.
    Batch,
    /// `POST /channels/{channel}/events`: its name in the query, its data in the body.
    Channel(&'a str),
    /// `POST /events`: one in the body, or in the query.
    Events,
}

impl<'a> Form<'a> {
    /// The form of a call that publishes.
    pub(super) fn of(api: &'a Api<'_>) -> Option<Self> {
        match api {
            Api::BatchEvents => Some(Self::Batch),
            Api::ChannelEvents(channel) => Some(Self::Channel(channel)),
            Api::Events => Some(Self::Events),
            Api::Channel(_)
            | Api::ChannelStats(_)
            | Api::Channels
            | Api::Losing
            | Api::Terminate(_)
            | Api::Users(_) => None,
        }
    }

    fn read(self, request: Signed<'_>, bounds: Bounds) -> Result<Vec<Trigger>, Reply> {
        let bad = |fault: BadBody| Reply::new(fault.status(), fault.to_string());
        match self {
            Self::Batch => rest::batch_within(request.body, bounds)
                .map_err(|fault| Reply::new(fault.status(), fault.to_string())),
            Self::Channel(channel) => {
                rest::channel_event(channel, request.query, request.body, bounds)
                    .map(|trigger| vec![trigger])
                    .map_err(bad)
            }
            // What has no body says it in its query.
            Self::Events if request.body.is_empty() => {
                rest::trigger_of_query(request.query, bounds)
                    .map(|trigger| vec![trigger])
                    .map_err(bad)
            }
            Self::Events => {
                rest::trigger_within(request.body, bounds).map(|trigger| vec![trigger]).map_err(bad)
            }
        }
    }
}

/// A call whose signature and form are good.
struct Call {
    tenant: TenantId,
    publishes: Vec<Publish>,
    asked: Option<Gather>,
}

/// One event for one channel.
struct Publish {
    channel: String,
    frame: Bytes,
    except: Option<(u32, OutletId)>,
    keep: Keep,
}

/// Publishes the events of a call to their channels, for the app `id`, which exists.
///
/// Load is asked about first: a call that finds no room costs no signature. A call that names
/// several channels is admitted whole or refused whole.
pub(super) fn publish(
    shard: &mut Shard,
    source: ConnId,
    (id, form): (&str, Form<'_>),
    request: Signed<'_>,
) -> Answer {
    match prepare(shard, source, (id, form), request) {
        Ok(call) => dispatch(shard, source, call),
        Err(reply) => Answer::Reply(reply),
    }
}

fn prepare(
    shard: &mut Shard,
    source: ConnId,
    (id, form): (&str, Form<'_>),
    request: Signed<'_>,
) -> Result<Call, Reply> {
    let (app, tenant) = shard.apps.by_id(id).ok_or_else(|| Reply::new(404, "no such app"))?;
    // Nobody knows yet what it brings and from whom: it is counted as a call, not as a record.
    shard.broker.room(source, (1, 0), std::iter::empty()).map_err(|why| {
        shard.process.refused_calls += 1;
        refusal(why)
    })?;
    auth::check(app, request, shard.unix_seconds)
        .map_err(|fault| Reply::new(401, fault.to_string()))?;
    let &Settings { max_event_bytes: data, max_channel_name: channel, max_batch_events, .. } =
        &shard.settings;
    let triggers = form.read(request, Bounds { data, channel, batch: max_batch_events })?;
    let mut publishes = Vec::new();
    let mut infos = Vec::new();
    let mut is_asked = false;
    for trigger in &triggers {
        is_asked |= trigger.info.is_some();
        let wanted = Wanted::parse(trigger.info.as_deref().unwrap_or_default())?.of_many()?;
        let except = trigger.socket_id.as_deref().and_then(|id| shard.find_socket(id));
        for channel in &trigger.channels {
            channel::check(channel, &shard.settings)
                .map_err(|no| Reply::new(400, format!("{channel}: {no}")))?;
            let frame = Bytes::from(pusher::event_frame(channel, &trigger.name, &trigger.data));
            let keep = channel::keep(channel, app);
            publishes.push(Publish { channel: channel.clone(), frame, except, keep });
            infos.push(Info::new(tenant, channel, wanted));
        }
    }
    let asked = is_asked.then(|| Gather::published(infos, matches!(form, Form::Batch)));
    Ok(Call { tenant, publishes, asked })
}

fn dispatch(shard: &mut Shard, source: ConnId, call: Call) -> Answer {
    let Call { tenant, publishes, asked } = call;
    let brought = Tally {
        records: publishes.len() as u64,
        bytes: publishes.iter().map(|publish| publish.frame.len() as u64).sum(),
    };
    let topics = match make_room(shard, (source, tenant), &publishes, brought) {
        Ok(topics) => topics,
        Err((why, reply)) => {
            shard.broker.refuse(source, brought, why);
            return Answer::Reply(reply);
        }
    };
    let mut jobs = 0;
    let mut failed = None;
    for (topic, Publish { frame, except, keep, .. }) in topics.into_iter().zip(publishes) {
        let message = Message { frame, records: 1, ack: Ack::Now, except, keep };
        match shard.broker.publish(source, topic, message) {
            Verdict::Queued(_) | Verdict::Parked(_) => jobs += 1,
            Verdict::Refused(why) | Verdict::Shed(why) => failed = failed.or(Some(why)),
        }
    }
    match failed {
        Some(why) if jobs == 0 => Answer::Reply(refusal(why)),
        failed => Answer::Committing { jobs, failed, asked },
    }
}

/// The topics of a call, when there is room for all of it. Nothing of it is published yet.
fn make_room(
    shard: &mut Shard,
    (source, tenant): (ConnId, TenantId),
    publishes: &[Publish],
    brought: Tally,
) -> Result<Vec<TopicId>, (Refusal, Reply)> {
    let limits = shard.broker.limits();
    let (most, key, place) = [
        (limits.pub_queue_total, "pub_queue_total", Place::Schedule),
        (limits.max_topics, "max_topics", Place::Table),
    ]
    .into_iter()
    .min()
    .expect("there are two");
    if brought.records > most {
        let why = Refusal { place, reason: Reason::Oversize, retry: Retry::Never };
        let text = format!(
            "channels: {} named, but `{key}` of this server is {most}: name at most {most} in one \
             call",
            brought.records
        );
        return Err((why, Reply::new(413, text)));
    }
    let jobs = u32::try_from(brought.records).expect("a call names at most 100 channels");
    let broker = &shard.broker;
    let known = publishes.iter().filter_map(|publish| broker.find_topic(tenant, &publish.channel));
    broker
        .room(source, (jobs, brought.bytes), known)
        .and_then(|()| resolve(&mut shard.broker, tenant, publishes))
        .map_err(|why| (why, refusal(why)))
}

/// The topics of these names, made where they are new. Making one may retire a topic that nobody
/// uses; when there is room for some of them only, that is one of the same call.
fn resolve(
    broker: &mut Broker,
    tenant: TenantId,
    publishes: &[Publish],
) -> Result<Vec<TopicId>, Refusal> {
    let topics = publishes.iter().map(|publish| broker.topic(tenant, &publish.channel));
    let topics = topics.collect::<Result<Vec<_>, _>>()?;
    let mut both = publishes.iter().zip(&topics);
    if both.all(|(publish, topic)| broker.find_topic(tenant, &publish.channel) == Some(*topic)) {
        return Ok(topics);
    }
    Err(Refusal { place: Place::Table, reason: Reason::Limit, retry: Retry::After(1_000) })
}

/// The core's "no" in this protocol.
pub(super) fn refusal(why: Refusal) -> Reply {
    let status = match why.reason {
        Reason::Oversize => 413,
        Reason::NotAllowed => 403,
        Reason::Busy
        | Reason::BytesConn
        | Reason::BytesShard
        | Reason::BytesTenant
        | Reason::Closed
        | Reason::Deadline
        | Reason::DropNew
        | Reason::DropOld
        | Reason::Gone
        | Reason::Limit
        | Reason::MeshFull
        | Reason::Pressure
        | Reason::QueueFull
        | Reason::Retention
        | Reason::Saturated
        | Reason::Severe
        | Reason::Shutdown
        | Reason::SlowConsumer
        | Reason::Stale
        | Reason::TenantShare
        | Reason::TopicHeld => 503,
    };
    let (place, reason) = (why.place.name(), why.reason.name());
    match (status, why.retry) {
        (503, Retry::After(millis)) => {
            let seconds = millis.div_ceil(1000).max(1);
            let text = format!("refused at {place}: {reason}; retry after {seconds} s");
            Reply::new(status, text).header("Retry-After", seconds.to_string())
        }
        (503, Retry::Never) => {
            Reply::new(status, format!("refused at {place}: {reason}")).header("Retry-After", "1")
        }
        (413, _) => {
            let text = format!("refused at {place}: {reason}; it can never fit: send less at once");
            Reply::new(status, text)
        }
        _ => Reply::new(status, format!("refused at {place}: {reason}")),
    }
}
