//! Expectations that no run meets, as far as the file alone shows it: more than is published, asked
//! or sent, a part that is more than the whole, or something that a group never does.

use super::{Checked, most_publishes};
use crate::amount::{Bound, Count, Nanos};
use crate::scenario::bad::Source;
use crate::scenario::file::{self, At};
use crate::scenario::{
    Cells, PublisherExpect, PublisherGroup, Story, SubscriberExpect, SubscriberGroup, TenantExpect,
};

/// Refuses an expectation that no run meets.
pub(super) fn possible(source: &Source<'_>, file: &file::Expect, story: &Story) -> Checked<()> {
    let expect = &story.expect;
    for name in file.tenant.keys() {
        let Some(due) = expect.tenants.get(name.get_ref()) else { continue };
        tenant(source, name, due, story)?;
    }
    for name in file.publisher.keys() {
        let Some(due) = expect.publishers.get(name.get_ref()) else { continue };
        publisher(source, name, due, story)?;
    }
    for name in file.subscriber.keys() {
        let Some(due) = expect.subscribers.get(name.get_ref()) else { continue };
        let group = story.subscribers.iter().find(|group| group.name == *name.get_ref());
        let group = group.expect("its name was looked up");
        subscriber(source, name, (due, group), story)?;
    }
    for (kind, table, cells) in [
        ("dropped", &file.dropped, &expect.dropped),
        ("evicted", &file.evicted, &expect.evicted),
        ("refused", &file.refused, &expect.refused),
        ("shed", &file.shed, &expect.shed),
    ] {
        for name in table.keys() {
            parts(source, (kind, name), cells)?;
        }
    }
    totals(source, file, story)
}

/// Something that is expected of a group or a cell.
struct Claim<'a> {
    key: &'a str,
    bound: Option<&'a Bound<Count>>,
}

impl Claim<'_> {
    /// It is at most `most`; `why` says of what.
    fn at_most(&self, source: &Source<'_>, at: &At<String>, most: u64, why: &str) -> Checked<()> {
        match self.bound {
            Some(bound) if bound.least() > most => {
                let (key, text) = (self.key, bound.text());
                let message = format!("`{key} = \"{text}\"` cannot be: {why}");
                Err(source.bad(&at.span(), message))
            }
            _ => Ok(()),
        }
    }
}

macro_rules! claims {
    ($due:expr, $($key:ident),*) => {
        [$(Claim { key: stringify!($key), bound: $due.$key.as_ref() }),*]
    };
}

fn tenant(
    source: &Source<'_>,
    name: &At<String>,
    due: &TenantExpect,
    story: &Story,
) -> Checked<()> {
    let of_tenant = |group: &&PublisherGroup| {
        let (_, tenant) = &story.topics[group.topic];
        story.tenants[*tenant].0 == *name.get_ref()
    };
    let most = story.publishers.iter().filter(of_tenant).map(offers).fold(0, u64::saturating_add);
    let why = format!("its publishers offer at most {most} records");
    let claims = claims!(due, offered, sequenced, refused, shed);
    claims.into_iter().try_for_each(|claim| claim.at_most(source, name, most, &why))
}

fn publisher(
    source: &Source<'_>,
    name: &At<String>,
    due: &PublisherExpect,
    story: &Story,
) -> Checked<()> {
    let group = story.publishers.iter().find(|group| group.name == *name.get_ref());
    let most = group.map_or(0, offers);
    let why = format!("this group offers at most {most} records");
    let claims = claims!(due, offered, refused, shed, held_back);
    claims.into_iter().try_for_each(|claim| claim.at_most(source, name, most, &why))
}

fn subscriber(
    source: &Source<'_>,
    name: &At<String>,
    (due, group): (&SubscriberExpect, &SubscriberGroup),
    story: &Story,
) -> Checked<()> {
    let bad = |message: String| Err(source.bad(&name.span(), message));
    let most = comes(group, &story.publishers);
    let why = format!("at most {most} records are published for this group");
    let records = claims!(due, received, delivered, dropped, lag, taken, overrun, unconfirmed);
    records.into_iter().try_for_each(|claim| claim.at_most(source, name, most, &why))?;
    if group.takes.is_none() {
        let why = "this group has no inbox: give it `takes`";
        let claims = claims!(due, taken, overrun);
        claims.into_iter().try_for_each(|claim| claim.at_most(source, name, 0, why))?;
    }
    let spared = story.expect.nobody_but.as_ref().is_some_and(|names| !names.contains(&group.name));
    if spared {
        let why = "`nobody_but` says that this group loses nothing";
        let claims = claims!(due, dropped, closed);
        claims.into_iter().try_for_each(|claim| claim.at_most(source, name, 0, why))?;
    }
    for (part, whole) in [
        (claims!(due, received), claims!(due, delivered)),
        (claims!(due, taken), claims!(due, received)),
        (claims!(due, unconfirmed), claims!(due, delivered)),
        (claims!(due, answered), claims!(due, asked)),
    ] {
        let ([part], [whole]) = (part, whole);
        let Some(of) = whole.bound else { continue };
        let why = format!("it is a part of `{} = \"{}\"`", whole.key, of.text());
        part.at_most(source, name, of.most(), &why)?;
    }
    questions(source, name, (due, group), story.duration)?;
    match &due.jain {
        Some(jain) if jain.least() > ONE => {
            bad(format!("`jain = \"{}\"` cannot be: Jain's index is at most 1", jain.text()))
        }
        _ => Ok(()),
    }
}

/// Jain's index when all have the same.
const ONE: u64 = 1_000;

/// What is asked and answered.
fn questions(
    source: &Source<'_>,
    name: &At<String>,
    (due, group): (&SubscriberExpect, &SubscriberGroup),
    duration: u64,
) -> Checked<()> {
    let claims = claims!(due, asked, answered);
    if let Some((least, _)) = group.asks {
        // The first question on a connection comes early.
        let firsts = match group.presence.retry {
            Some(_) => u64::MAX,
            None => 1 + group.presence.outages.len() as u64,
        };
        let each = (duration / least).saturating_add(firsts);
        let most = each.saturating_mul(peers(group));
        let why = format!("this group asks at most {most} questions");
        return claims.into_iter().try_for_each(|claim| claim.at_most(source, name, most, &why));
    }
    let why = "this group asks nothing: give it `asks`";
    claims.into_iter().try_for_each(|claim| claim.at_most(source, name, 0, why))?;
    let times: [(&str, &Option<Bound<Nanos>>); 2] =
        [("answer_p99", &due.answer_p99), ("answer_max", &due.answer_max)];
    match times.into_iter().find_map(|(key, bound)| bound.as_ref().map(|bound| (key, bound))) {
        Some((key, bound)) => {
            let message = format!("`{key} = \"{}\"` cannot be: {why}", bound.text());
            Err(source.bad(&name.span(), message))
        }
        None => Ok(()),
    }
}

/// Totals over everybody.
fn totals(source: &Source<'_>, file: &file::Expect, story: &Story) -> Checked<()> {
    let expect = &story.expect;
    let offered = story.publishers.iter().map(offers).fold(0, u64::saturating_add);
    let groups = story.subscribers.iter().map(|group| comes(group, &story.publishers));
    let expected = groups.fold(0, u64::saturating_add);
    for (kind, table, cells, most, what) in [
        ("dropped", &file.dropped, &expect.dropped, expected, "published for all subscribers"),
        ("refused", &file.refused, &expect.refused, offered, "offered"),
        ("shed", &file.shed, &expect.shed, offered, "offered"),
    ] {
        for name in table.keys() {
            let key = format!("{kind} {}", name.get_ref());
            let claim = Claim { key: &key, bound: Some(&cells[name.get_ref()].2) };
            claim.at_most(source, name, most, &format!("at most {most} records are {what}"))?;
        }
    }
    let spared = expect.nobody_but.as_ref().is_some_and(Vec::is_empty);
    let loss = file.dropped.keys().find(|name| expect.dropped[name.get_ref()].2.least() > 0);
    match loss {
        Some(name) if spared => {
            let message = "nobody may lose a record (`nobody_but = []`), but this must be dropped";
            Err(source.bad(&name.span(), message))
        }
        _ => Ok(()),
    }
}

/// A cell is no more than its place, and a place no more than the total.
fn parts(source: &Source<'_>, (kind, name): (&str, &At<String>), cells: &Cells) -> Checked<()> {
    let (_, _, bound) = &cells[name.get_ref()];
    let place = name.get_ref().split_once('/').map(|(place, _)| place);
    for whole in [place, Some("total")].into_iter().flatten() {
        let Some((_, _, of)) = cells.get(whole) else { continue };
        if whole != name.get_ref() && bound.least() > of.most() {
            let message = format!(
                "`{kind} {} = \"{}\"` cannot be when `{kind} {whole} = \"{}\"`",
                name.get_ref(),
                bound.text(),
                of.text()
            );
            return Err(source.bad(&name.span(), message));
        }
    }
    Ok(())
}

/// The most records a group of publishers can offer.
fn offers(group: &PublisherGroup) -> u64 {
    let publishes = most_publishes(group).saturating_add(group.count.into());
    publishes.saturating_mul(group.records.into())
}

/// Connections of a group at the same time: one that is half-open has a new one beside it.
fn peers(group: &SubscriberGroup) -> u64 {
    let half_open = group.presence.outages.iter().filter(|outage| outage.half_open).count() as u64;
    (1 + half_open).saturating_mul(group.count.into())
}

/// The most records that can be published for a group of subscribers.
fn comes(group: &SubscriberGroup, publishers: &[PublisherGroup]) -> u64 {
    let each_of = |group: &PublisherGroup| offers(group).div_ceil(group.count.into());
    let topics = group.topic..group.topic + group.spread.min(group.count as usize);
    let on = |topic: usize| {
        let theirs = publishers.iter().map(|group| {
            each_of(group).saturating_mul(members(group.count, (group.topic, group.spread), topic))
        });
        let followers = members(group.count, (group.topic, group.spread), topic);
        theirs.fold(0, u64::saturating_add).saturating_mul(followers)
    };
    let once = topics.map(on).fold(0, u64::saturating_add);
    once.saturating_mul(peers(group).div_ceil(group.count.into()))
}

/// How many of a group that takes turns over topics are at one of them.
fn members(count: u32, (first, spread): (usize, usize), topic: usize) -> u64 {
    let Some(turn) = topic.checked_sub(first).filter(|turn| *turn < spread) else { return 0 };
    (u64::from(count).saturating_sub(turn as u64)).div_ceil(spread as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_take_turns_are_counted_where_they_come() {
        // Five over three topics: two, two and one.
        let found = [0, 1, 2, 3, 4].map(|topic| members(5, (1, 3), topic));
        assert_eq!(found, [0, 2, 2, 1, 0]);
        assert_eq!([0, 1, 2].map(|topic| members(2, (0, 3), topic)), [1, 1, 0]);
    }
}
