//! The publishing API: from a whole request to publishes in the core, or to a reply.

use super::auth::{self, Signed};
use super::channel;
use crate::shard::Shard;
use bytes::Bytes;
use sluicegate_core::{
    Ack, Broker, ConnId, Keep, Message, Place, Reason, Refusal, Retry, Tally, TenantId, TopicId,
    Verdict,
};
use sluicegate_wire::pusher;
use sluicegate_wire::rest::{self, Trigger};

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
    /// So many publishes are admitted: the reply waits until each is sequenced. One more may have
    /// been refused.
    Committing {
        jobs: u32,
        failed: Option<Refusal>,
    },
    Reply(Reply),
}

/// Publishes one event to its channels, for the app `id`, which exists.
///
/// Load is asked about first: a call that finds no room costs no signature. A call that names
/// several channels is admitted whole or refused whole.
pub(super) fn publish(shard: &mut Shard, source: ConnId, id: &str, request: Signed<'_>) -> Answer {
    match prepare(shard, source, id, request) {
        Ok((tenant, trigger)) => dispatch(shard, source, tenant, &trigger),
        Err(reply) => Answer::Reply(reply),
    }
}

fn prepare(
    shard: &mut Shard,
    source: ConnId,
    id: &str,
    request: Signed<'_>,
) -> Result<(TenantId, Trigger), Reply> {
    let (app, tenant) = shard.apps.by_id(id).ok_or_else(|| Reply::new(404, "no such app"))?;
    // Nobody knows yet what it brings and from whom: it is counted as a call, not as a record.
    shard.broker.room(source, 1, 0).map_err(|why| {
        shard.process.refused_calls += 1;
        refusal(why)
    })?;
    auth::check(app, request, shard.unix_seconds)
        .map_err(|fault| Reply::new(401, fault.to_string()))?;
    let trigger = rest::trigger(request.body)
        .map_err(|fault| Reply::new(fault.status(), fault.to_string()))?;
    if trigger.info.is_some() {
        return Err(Reply::new(400, "info: not served yet, leave it out"));
    }
    for channel in &trigger.channels {
        channel::check(channel)
            .map_err(|no| Reply::new(400, format!("{channel}: {}", no.text())))?;
    }
    Ok((tenant, trigger))
}

fn dispatch(shard: &mut Shard, source: ConnId, tenant: TenantId, trigger: &Trigger) -> Answer {
    let except = trigger.socket_id.as_deref().and_then(|id| shard.find_socket(id));
    let frames: Vec<Bytes> = trigger
        .channels
        .iter()
        .map(|channel| Bytes::from(pusher::event_frame(channel, &trigger.name, &trigger.data)))
        .collect();
    let brought = Tally {
        records: frames.len() as u64,
        bytes: frames.iter().map(|frame| frame.len() as u64).sum(),
    };
    let topics = match make_room(shard, (source, tenant), &trigger.channels, brought) {
        Ok(topics) => topics,
        Err((why, reply)) => {
            shard.broker.refuse(source, brought, why);
            return Answer::Reply(reply);
        }
    };
    let mut jobs = 0;
    let mut failed = None;
    for (topic, frame) in topics.into_iter().zip(frames) {
        let message = Message { frame, records: 1, ack: Ack::Now, except, keep: Keep::No };
        match shard.broker.publish(source, topic, message) {
            Verdict::Queued(_) | Verdict::Parked(_) => jobs += 1,
            Verdict::Refused(why) | Verdict::Shed(why) => failed = failed.or(Some(why)),
        }
    }
    match failed {
        Some(why) if jobs == 0 => Answer::Reply(refusal(why)),
        failed => Answer::Committing { jobs, failed },
    }
}

/// The topics of a call, when there is room for all of it. Nothing of it is published yet.
fn make_room(
    shard: &mut Shard,
    (source, tenant): (ConnId, TenantId),
    channels: &[String],
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
    shard
        .broker
        .room(source, jobs, brought.bytes)
        .and_then(|()| resolve(&mut shard.broker, tenant, channels))
        .map_err(|why| (why, refusal(why)))
}

/// The topics of these names, made where they are new. Making one may retire a topic that nobody
/// uses; when there is room for some of them only, that is one of the same call.
fn resolve(
    broker: &mut Broker,
    tenant: TenantId,
    channels: &[String],
) -> Result<Vec<TopicId>, Refusal> {
    let topics = channels.iter().map(|channel| broker.topic(tenant, channel));
    let topics = topics.collect::<Result<Vec<_>, _>>()?;
    let mut both = channels.iter().zip(&topics);
    if both.all(|(channel, topic)| broker.find_topic(tenant, channel) == Some(*topic)) {
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
        | Reason::TenantShare => 503,
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
