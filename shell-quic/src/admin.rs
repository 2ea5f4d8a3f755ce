//! Pages for operators: `/metrics`, `/health`, `/ready`, `/ledger`, and `/` to look at.

mod page;

use crate::shard::{Blocked, Shard};
use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use serde_json::{Value, json};
use sluicegate_core::{Books, Table};
use sluicegate_host::metrics::CONTENT_TYPE;
use std::net::TcpListener;
use std::sync::Arc;
use tokio::sync::watch;

type Shards = Arc<Vec<Arc<Shard>>>;

/// Serves the pages until the process stops.
pub(crate) async fn serve(
    listener: TcpListener,
    shards: Vec<Arc<Shard>>,
    mut stops: watch::Receiver<bool>,
) -> Result<()> {
    listener.set_nonblocking(true).context("the admin socket cannot be used")?;
    let listener =
        tokio::net::TcpListener::from_std(listener).context("the admin socket cannot be used")?;
    let serving = axum::serve(listener, router(Arc::new(shards)));
    tokio::select! {
        biased;
        _ = stops.wait_for(|stop| *stop) => Ok(()),
        ended = serving.into_future() => ended.context("the admin pages ended"),
    }
}

fn router(shards: Shards) -> Router {
    Router::new()
        .route("/", get(page::page))
        .route("/metrics", get(metrics))
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/ledger", get(ledger))
        .with_state(shards)
}

async fn metrics(State(shards): State<Shards>) -> impl IntoResponse {
    let mut numbers = shards.iter().map(|shard| shard.numbers());
    let mut sum = numbers.next().expect("a process has a shard");
    numbers.for_each(|other| sum.add(&other));
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], sum.text())
}

/// Alive: the thread that answers runs.
async fn health() -> &'static str {
    "ok\n"
}

/// Ready: no shard refuses what is new.
async fn ready(State(shards): State<Shards>) -> impl IntoResponse {
    let saturated = shards.iter().any(|shard| shard.look(|broker| broker.is_saturated()));
    let stopping = shards.iter().any(|shard| shard.is_stopping());
    match (saturated, stopping) {
        (_, true) => (StatusCode::SERVICE_UNAVAILABLE, "stopping\n"),
        (true, false) => (StatusCode::SERVICE_UNAVAILABLE, "saturated: out of memory budget\n"),
        (false, false) => (StatusCode::OK, "ready\n"),
    }
}

/// The books, per shard, and which topics wait for whom.
async fn ledger(State(shards): State<Shards>) -> axum::Json<Value> {
    let page = |shard: &Arc<Shard>| {
        let blocked: Vec<Value> = shard
            .blocked()
            .into_iter()
            .map(|Blocked { topic, session, address, subscription }| {
                let address = address.to_string();
                json!({
                    "topic": topic,
                    "session": session,
                    "address": address,
                    "subscription": subscription,
                })
            })
            .collect();
        shard.look(|broker| {
            let (connections, subscriptions) = broker.counts();
            let ((jobs, parked), limits) = (broker.jobs(), broker.limits());
            json!({
                "shard": broker.number(),
                "band": broker.band().name(),
                "connections": connections,
                "subscriptions": subscriptions,
                "memory": {
                    "held": broker.held(),
                    // Of all shards together.
                    "budget": limits.memory_budget,
                    "factor_thousandths": broker.factor().thousandths(),
                },
                "queue": { "jobs": jobs, "parked": parked, "slots": limits.pub_queue_total },
                "inflight": { "bytes": broker.inflight(), "limit": limits.pub_inflight_bytes },
                "blocked_by": blocked,
                "books": books(broker.ledger()),
            })
        })
    };
    axum::Json(shards.iter().map(page).collect())
}

fn books(books: &Books) -> Value {
    let columns: serde_json::Map<String, Value> = books
        .columns()
        .iter()
        .map(|(name, tally)| {
            ((*name).to_owned(), json!({ "records": tally.records, "bytes": tally.bytes }))
        })
        .collect();
    json!({
        "columns": columns,
        "refused": cells(&books.refused),
        "shed": cells(&books.shed),
        "evicted": cells(&books.evicted),
        "dropped": cells(&books.dropped),
    })
}

/// The cells of a table in which something is.
fn cells(table: &Table) -> Value {
    table
        .iter()
        .map(|(place, reason, tally)| {
            json!({
                "place": place.name(),
                "reason": reason.name(),
                "records": tally.records,
                "bytes": tally.bytes,
            })
        })
        .collect()
}
