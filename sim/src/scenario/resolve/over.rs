//! Publishers over the connections of subscribers: one for each, which comes and goes with it.

use super::{Checked, find};
use crate::scenario::bad::Source;
use crate::scenario::file::{self, At};
use crate::scenario::{PublisherGroup, Story, SubscriberGroup};
use std::ops::Range;

/// Sets what a group of publishers `over` a group of subscribers has from it.
pub(super) fn over(
    source: &Source<'_>,
    spec: &file::Publisher,
    group: &mut PublisherGroup,
    (subscribers, topics): (&[SubscriberGroup], &[(String, usize)]),
) -> Checked<()> {
    let Some(name) = &spec.over else { return Ok(()) };
    let names: Vec<&str> = subscribers.iter().map(|group| group.name.as_str()).collect();
    let under = &subscribers[find(source, name, "group of subscribers", &names)?];
    let of = name.get_ref();
    let bad = |at: &Range<usize>, message: String| Err(source.bad(at, message));
    if let Some((key, at)) = theirs(spec) {
        let message = format!(
            "`{key}` belongs to `{of}`: publishers `over` its connections come and go with them"
        );
        return bad(&at, message);
    }
    if let Some(count) = spec.count.as_ref().filter(|count| *count.get_ref() != under.count) {
        let message = format!(
            "`count = {}`: there is one publisher over each connection of `{of}`, which has {}; \
             leave `count` out",
            count.get_ref(),
            under.count
        );
        return bad(&count.span(), message);
    }
    if under.connection.is_some() {
        let message = format!("`{of}` shares a `connection`: publish over one of its own");
        return bad(&name.span(), message);
    }
    if under.presence.outages.iter().any(|outage| outage.half_open) {
        let message = format!(
            "`{of}` has outages that are `half_open`: give these publishers connections of their \
             own"
        );
        return bad(&name.span(), message);
    }
    if topics[under.topic].1 != topics[group.topic].1 {
        let message = format!("`{of}` follows a topic of another tenant: a connection has one");
        return bad(&name.span(), message);
    }
    group.count = under.count;
    Ok(())
}

/// A key that a publisher over a connection does not have.
fn theirs(spec: &file::Publisher) -> Option<(&'static str, Range<usize>)> {
    let file::Publisher { shard, join, leave, outages, retry, .. } = spec;
    let keys = [
        ("shard", shard.as_ref().map(At::span)),
        ("join", join.as_ref().map(At::span)),
        ("leave", leave.as_ref().map(At::span)),
        ("outages", outages.first().map(At::span)),
        ("retry", retry.as_ref().map(At::span)),
    ];
    keys.into_iter().find_map(|(key, at)| at.map(|at| (key, at)))
}

/// The run that `isolation` compares with has no subscribers that stall, nor what comes over their
/// connections.
pub(super) fn over_those_who_stay(
    source: &Source<'_>,
    file: &file::File,
    story: &Story,
) -> Checked<()> {
    if !story.expect.isolation {
        return Ok(());
    }
    for name in file.publisher.iter().filter_map(|spec| spec.over.as_ref()) {
        let mut under = story.subscribers.iter().filter(|group| group.name == *name.get_ref());
        if under.any(|group| !group.line.stalls.is_empty()) {
            let message = "`isolation` leaves out who stalls, and so would leave out these \
                           publishers: give them connections of their own";
            return Err(source.bad(&name.span(), message));
        }
    }
    Ok(())
}
