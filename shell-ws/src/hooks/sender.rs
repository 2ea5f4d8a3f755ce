//! The thread that carries webhooks.

use super::queue::{Queue, Request, Totals};
use super::{Event, shown};
use crate::apps::{App, Places};
use anyhow::{Context, Result};
use hmac::{Hmac, KeyInit, Mac};
use reqwest::{Client, redirect};
use sha2::Sha256;
use sluicegate_host::clock::Clock;
use std::collections::BTreeSet;
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

/// What the thread is told.
#[derive(Debug)]
enum Letter {
    /// The apps by their place, from now on.
    Apps(Places),
    /// What was told before was the last.
    End,
    Event(Event),
}

/// What an event loop says things with.
#[derive(Clone, Debug)]
pub struct Sender {
    letters: mpsc::Sender<Letter>,
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
        if self.letters.try_send(Letter::Event(event)).is_err() {
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
    pub fn start(apps: &Places) -> Result<Option<Self>> {
        if apps.iter().flatten().all(|app| app.webhooks.is_empty()) {
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
        let (letters, receiver) = mpsc::channel(CHANNEL);
        let shared = Arc::new(Shared::default());
        let carrier = Carrier::new(apps, client, Arc::clone(&shared));
        let thread = std::thread::Builder::new()
            .name("webhooks".to_owned())
            .spawn(move || runtime.block_on(carrier.run(receiver)))
            .context("cannot start the webhooks' thread")?;
        Ok(Some(Self { sender: Sender { letters, shared }, thread }))
    }

    /// For an event loop.
    pub fn sender(&self) -> Sender {
        self.sender.clone()
    }

    /// Other apps. Waits while there is no room for the word; not to be called in an event loop.
    pub fn change(&self, apps: Places) {
        // Only a thread that has failed hears nothing: it is told when it is waited for.
        let _ = self.sender.letters.blocking_send(Letter::Apps(apps));
    }

    /// Waits for what is left, five seconds at most. What others send from now on is lost.
    pub fn finish(self) -> Totals {
        let Self { sender: Sender { letters, shared }, thread } = self;
        let _ = letters.blocking_send(Letter::End);
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
    /// Their ids.
    ids: Vec<String>,
    /// Endpoints that failed last: the log says once when one begins to fail, and when it is back.
    failing: BTreeSet<usize>,
}

impl Carrier {
    fn new(apps: &Places, client: Client, shared: Arc<Shared>) -> Self {
        let mut carrier = Self {
            queue: Queue::new(std::iter::empty()),
            keys: Vec::new(),
            client,
            shared,
            clock: Clock::start(),
            ids: Vec::new(),
            failing: BTreeSet::new(),
        };
        carrier.change(apps);
        carrier
    }

    fn change(&mut self, apps: &Places) {
        self.queue.change(apps.iter().map(|app| match app {
            Some(app) => app.webhooks.as_slice(),
            None => &[],
        }));
        let key = |app: &App| (app.key.clone(), app.secret.reveal().to_owned());
        let id = |app: &App| app.id.clone();
        self.keys = apps.iter().map(|app| app.as_ref().map(key).unwrap_or_default()).collect();
        self.ids = apps.iter().map(|app| app.as_ref().map(id).unwrap_or_default()).collect();
        // Places of endpoints may be others' now: what fails is said again.
        self.failing.clear();
    }

    async fn run(mut self, mut letters: mpsc::Receiver<Letter>) {
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
                letter = letters.recv(), if ends_at.is_none() => {
                    if self.take(letter, &mut letters) {
                        self.queue.flush();
                        ends_at = Some(self.now() + FAREWELL);
                    }
                }
                Some(done) = sending.join_next() => self.done(done),
                () = sleep => {}
            }
        }
        self.farewell();
    }

    /// Takes what has come, and what came with it. True when it was the last.
    fn take(&mut self, first: Option<Letter>, letters: &mut mpsc::Receiver<Letter>) -> bool {
        let now = self.now();
        let mut next = first;
        let mut left = CHANNEL;
        loop {
            match next {
                Some(Letter::Event(event)) => self.queue.note(event, now),
                Some(Letter::Apps(apps)) => self.change(&apps),
                Some(Letter::End) | None => return true,
            }
            left -= 1;
            if left == 0 {
                return false;
            }
            let Ok(letter) = letters.try_recv() else { return false };
            next = Some(letter);
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
        let was_failing = match outcome.is_err() {
            true => !self.failing.insert(endpoint),
            false => self.failing.remove(&endpoint),
        };
        let (url, app) = self.queue.endpoint(endpoint);
        let id = self.ids.get(app).map_or("", String::as_str);
        let name = format!("{} of app {id}", shown(url));
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
