//! The thread that carries webhooks.

use super::queue::{Queue, Request, Totals};
use super::{Event, Webhook, shown};
use crate::apps::App;
use anyhow::{Context, Result};
use hmac::{Hmac, KeyInit, Mac};
use reqwest::{Client, redirect};
use sha2::Sha256;
use sluicegate_host::clock::Clock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Events on their way from the event loops to the thread.
const CHANNEL: usize = 16 << 10;

/// How long an endpoint may take to answer.
const ANSWER: Duration = Duration::from_secs(10);

/// Milliseconds that the end waits for endpoints.
const FAREWELL: u64 = 5_000;

/// What an event loop says things with.
#[derive(Clone, Debug)]
pub struct Sender {
    events: mpsc::Sender<Event>,
    shared: Arc<Shared>,
}

/// What the thread and the event loops both see.
#[derive(Debug, Default)]
struct Shared {
    /// Events that found no room on their way to the thread.
    lost: AtomicU64,
    totals: Mutex<Totals>,
}

/// The thread.
#[derive(Debug)]
pub struct Hooks {
    sender: Sender,
    thread: JoinHandle<()>,
}

impl Sender {
    /// Says what happened. Never waits: what finds no room is counted.
    pub fn send(&self, event: Event) {
        if self.events.try_send(event).is_err() {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What became of events so far.
    pub fn totals(&self) -> Totals {
        self.shared.totals()
    }
}

impl Shared {
    fn totals(&self) -> Totals {
        let mut totals = *self.kept();
        totals.overflowed += self.lost.load(Ordering::Relaxed);
        totals
    }

    /// Numbers are whole whenever the lock is free, even after a panic.
    fn kept(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hooks {
    /// Starts the thread, when an app has an endpoint.
    pub fn start(apps: &[App]) -> Result<Option<Self>> {
        if apps.iter().all(|app| app.webhooks.is_empty()) {
            return Ok(None);
        }
        // Refused when somebody has chosen one already, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .timeout(ANSWER)
            // An endpoint that sends requests elsewhere is not obeyed.
            .redirect(redirect::Policy::none())
            .user_agent(concat!("sluicegate-ws/", env!("CARGO_PKG_VERSION")))
            .build()
            .context("cannot make the webhooks' HTTP client")?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot make the webhooks' runtime")?;
        let (events, receiver) = mpsc::channel(CHANNEL);
        let shared = Arc::new(Shared::default());
        let carrier = Carrier::new(apps, client, Arc::clone(&shared));
        let thread = std::thread::Builder::new()
            .name("webhooks".to_owned())
            .spawn(move || runtime.block_on(carrier.run(receiver)))
            .context("cannot start the webhooks' thread")?;
        Ok(Some(Self { sender: Sender { events, shared }, thread }))
    }

    /// For an event loop.
    pub fn sender(&self) -> Sender {
        self.sender.clone()
    }

    /// Waits for what is left, five seconds at most. Every other [`Sender`] must be gone.
    pub fn finish(self) -> Totals {
        let Self { sender: Sender { events, shared }, thread } = self;
        drop(events);
        if thread.join().is_err() {
            tracing::error!("the webhooks' thread has failed");
        }
        shared.totals()
    }
}

/// What the thread owns.
struct Carrier {
    queue: Queue,
    /// Key and secret of each app.
    keys: Vec<(String, String)>,
    client: Client,
    shared: Arc<Shared>,
    clock: Clock,
    /// What the log calls the endpoints.
    names: Vec<String>,
    /// Endpoints that failed last: the log says once when one begins to fail, and when it is back.
    failing: Vec<bool>,
}

impl Carrier {
    fn new(apps: &[App], client: Client, shared: Arc<Shared>) -> Self {
        let hooks = || apps.iter().map(|app| app.webhooks.as_slice());
        let name = |app: &App, hook: &Webhook| format!("{} of app {}", shown(&hook.url), app.id);
        let names: Vec<_> = apps
            .iter()
            .flat_map(|app| app.webhooks.iter().map(move |hook| name(app, hook)))
            .collect();
        let count = names.len();
        let key = |app: &App| (app.key.clone(), app.secret.reveal().to_owned());
        Self {
            queue: Queue::new(hooks()),
            keys: apps.iter().map(key).collect(),
            client,
            shared,
            clock: Clock::start(),
            names,
            failing: vec![false; count],
        }
    }

    async fn run(mut self, mut events: mpsc::Receiver<Event>) {
        let mut sending: JoinSet<(usize, Result<(), String>)> = JoinSet::new();
        let mut ends_at: Option<u64> = None;
        loop {
            let now = self.now();
            self.queue.advance(now);
            while let Some(request) = self.queue.poll(now) {
                sending.spawn(self.send(request));
            }
            self.publish();
            let is_done = sending.is_empty() && self.queue.totals().waiting == 0;
            if ends_at.is_some_and(|at| is_done || at <= now) {
                break;
            }
            let wake = [self.queue.next_deadline(), ends_at].into_iter().flatten().min();
            let sleep = async {
                match wake {
                    Some(at) => tokio::time::sleep(Duration::from_millis(at - now.min(at))).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = events.recv(), if ends_at.is_none() => match event {
                    Some(event) => self.take(event, &mut events),
                    None => {
                        self.queue.flush();
                        ends_at = Some(self.now() + FAREWELL);
                    }
                },
                Some(done) = sending.join_next() => self.done(done),
                () = sleep => {}
            }
        }
        self.farewell();
    }

    /// Takes what has come, and what came with it.
    fn take(&mut self, event: Event, events: &mut mpsc::Receiver<Event>) {
        let now = self.now();
        self.queue.note(event, now);
        for _ in 0..CHANNEL {
            let Ok(event) = events.try_recv() else { return };
            self.queue.note(event, now);
        }
    }

    fn send(
        &self,
        request: Request,
    ) -> impl Future<Output = (usize, Result<(), String>)> + Send + 'static {
        let Request { endpoint, app, url, since, events } = request;
        let ago = self.now().saturating_sub(since);
        let time = self.clock.unix_millis().saturating_sub(ago);
        let events: Vec<String> = events.iter().map(Event::json).collect();
        let body = format!(r#"{{"time_ms":{time},"events":[{}]}}"#, events.join(","));
        let (key, secret) = &self.keys[app];
        let call = self
            .client
            .post(url)
            .header("Content-Type", "application/json")
            .header("X-Pusher-Key", key)
            .header("X-Pusher-Signature", sign(secret, &body))
            .body(body)
            .send();
        async move {
            let outcome = match call.await {
                Ok(answer) if answer.status().is_success() => Ok(()),
                Ok(answer) => Err(format!("status {}", answer.status().as_u16())),
                Err(error) => Err(error.without_url().to_string()),
            };
            (endpoint, outcome)
        }
    }

    fn done(&mut self, done: Result<(usize, Result<(), String>), tokio::task::JoinError>) {
        // A request's task neither panics nor is cancelled.
        let Ok((endpoint, outcome)) = done else { return };
        let was_failing = std::mem::replace(&mut self.failing[endpoint], outcome.is_err());
        let name = &self.names[endpoint];
        match &outcome {
            Err(why) if !was_failing => {
                tracing::warn!(endpoint = name, %why, "a webhook fails: it is tried again");
            }
            Ok(()) if was_failing => {
                tracing::info!(endpoint = name, "a webhook is taken again")
            }
            _ => {}
        }
        let jitter = getrandom::u64().unwrap_or(0);
        self.queue.done(endpoint, outcome.is_ok(), self.now(), jitter);
    }

    fn publish(&self) {
        *self.shared.kept() = self.queue.totals();
    }

    fn farewell(&mut self) {
        let waiting = self.queue.totals().waiting;
        self.queue.end();
        self.publish();
        if waiting > 0 {
            tracing::warn!(events = waiting, "webhooks were not taken before the end: given up");
        }
    }

    fn now(&self) -> u64 {
        self.clock.now().as_nanos() / 1_000_000
    }
}

fn sign(secret: &str, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("keys have any length");
    mac.update(body.as_bytes());
    hex::encode(mac.finalize().into_bytes())
}
