//! The books as JSON.

use crate::account::{Account, ChannelAccount, Losing, MOST_LOSING, Sheet};
use serde_json::{Map, Value, json};
use sluicegate_core::{Backlog, Books, Place, Reason, Table, Tally};

/// All books: the columns, and of those with places and reasons each cell that is not zero.
pub(super) fn sheet(sheet: &Sheet) -> Value {
    let tenants = sheet.tenants.iter().map(|(id, page)| (id.clone(), books(page)));
    json!({
        "loops": sheet.shards,
        "books": books(&sheet.books),
        "apps": tenants.collect::<Map<_, _>>(),
    })
}

fn books(books: &Books) -> Value {
    let columns = books.columns().into_iter().map(|(name, sum)| (name.to_owned(), tally(sum)));
    let mut all: Map<String, Value> = columns.collect();
    for (name, table) in [
        ("refused", &books.refused),
        ("shed", &books.shed),
        ("evicted", &books.evicted),
        ("dropped", &books.dropped),
    ] {
        all[name]["cells"] = cells(table);
    }
    Value::Object(all)
}

fn cells(table: &Table) -> Value {
    let cell = |(place, reason, sum): (Place, Reason, Tally)| {
        let mut cell = tally(sum);
        cell["place"] = place.name().into();
        cell["reason"] = reason.name().into();
        cell
    };
    table.iter().map(cell).collect()
}

fn tally(Tally { records, bytes }: Tally) -> Value {
    json!({ "records": records, "bytes": bytes })
}

/// Why a connection does or does not get messages.
pub(super) fn account(account: &Account) -> Value {
    let Backlog { batches, bytes, refusing } = account.queue;
    let [expected, delivered, dropped, lag] = account.totals().map(tally);
    let channel = |ChannelAccount { channel, books }: &ChannelAccount| {
        let last = books
            .last_drop
            .map(|(place, reason)| json!({ "place": place.name(), "reason": reason.name() }));
        let mut dropped = tally(books.dropped);
        dropped["last"] = last.into();
        json!({
            "channel": &**channel, "expected": tally(books.expected),
            "delivered": tally(books.delivered), "dropped": dropped, "lag": tally(books.lag),
        })
    };
    json!({
        "app": account.app, "loop": account.shard, "why": account.why(),
        "queue": { "events": batches, "bytes": bytes, "takes_nothing": refusing },
        "expected": expected, "delivered": delivered, "dropped": dropped, "lag": lag,
        "channels": account.channels.iter().map(channel).collect::<Vec<_>>(),
    })
}

/// Who loses most, over all loops.
pub(super) fn losing(found: &mut Vec<Losing>) -> Value {
    found.sort_by_key(|losing| std::cmp::Reverse(losing.dropped.records));
    found.truncate(MOST_LOSING);
    let one = |Losing { socket_id, dropped }: &Losing| {
        let dropped = tally(*dropped);
        json!({ "socket_id": socket_id, "dropped": dropped })
    };
    json!({ "connections": found.iter().map(one).collect::<Vec<_>>() })
}
