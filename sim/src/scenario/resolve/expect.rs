//! Expectations: names to indices.

use super::{Checked, find};
use crate::amount::{Bound, Count};
use crate::fact::Stop;
use crate::scenario::bad::{Source, unknown};
use crate::scenario::file::{self, At, Table};
use crate::scenario::{Cells, Fairness, Story};
use sluicegate_core::{Band, Place, Reason};
use std::collections::BTreeMap;

/// Adds what `file` says to the story's expectations; what is said twice is replaced.
pub(super) fn set_expect(
    source: &Source<'_>,
    story: &mut Story,
    file: &file::Expect,
) -> Checked<()> {
    let tenants: Vec<&str> = story.tenants.iter().map(|(name, _)| name.as_str()).collect();
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
    if let Some(stops) = &file.propagation {
        let stops = stops.get_ref().iter().map(|name| stop(source, name));
        to.propagation = Some(stops.collect::<Checked<_>>()?);
    }
    if let Some(fairness) = &file.fairness {
        to.fairness = Some(self::fairness(source, fairness)?);
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
    groups(source, &mut to.tenants, &file.tenant, ("tenant", &tenants))?;
    groups(source, &mut to.publishers, &file.publisher, ("group of publishers", &publishers))?;
    groups(source, &mut to.subscribers, &file.subscriber, ("group of subscribers", &subscribers))
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

fn stop(source: &Source<'_>, name: &At<String>) -> Checked<Stop> {
    Ok(Stop::ALL[find(source, name, "place", &Stop::ALL.map(Stop::name))?])
}

fn fairness(source: &Source<'_>, at: &At<file::Fairness>) -> Checked<Fairness> {
    let file::Fairness { tenants, from, until } = at.get_ref();
    if from.value >= until.value {
        return Err(source.bad(&at.span(), "`from` must be before `until`"));
    }
    Ok(Fairness { jain: tenants.clone(), time: (from.value, until.value) })
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
    (what, known): (&str, &[&str]),
) -> Checked<()> {
    for (name, expect) in table {
        find(source, name, what, known)?;
        to.insert(name.get_ref().clone(), expect.get_ref().clone());
    }
    Ok(())
}
