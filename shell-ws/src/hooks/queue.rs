//! What is told to which endpoint, and when, as a value without clock or socket.
//!
//! Per endpoint: one request at a time, so that its order is the order of what happened; a request
//! that fails is tried again, later and later, for five minutes; at most [`MAX_EVENTS`] events or
//! [`MAX_BYTES`] wait, and what finds no room or is given up is counted. No endpoint waits for
//! another one.
//!
//! A channel that loses its last subscription, or a user that goes, is told only when nobody came
//! back within three seconds: a page that is loaded again tells nothing at all.

use super::{Event, Webhook, What};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Milliseconds that a departure waits for a return.
const GRACE: u64 = 3_000;

/// Milliseconds after its first try in which a request is tried again.
const PATIENCE: u64 = 5 * 60_000;

/// Milliseconds before the second try; then twice as many each time.
const FIRST_PAUSE: u64 = 1_000;

/// The most milliseconds between two tries.
const LONGEST_PAUSE: u64 = 60_000;

/// The most events that wait for one endpoint.
pub const MAX_EVENTS: usize = 10_000;

/// The most bytes that wait for one endpoint.
pub const MAX_BYTES: usize = 16 << 20;

/// The most departures that wait for a return; what is beyond is told at once.
const MAX_DEPARTURES: usize = 100_000;

/// Whose return is waited for: an app, a channel, and a user of it or the channel itself.
type Key = (usize, Arc<str>, Option<Arc<str>>);

/// The queues of all endpoints.
#[derive(Debug)]
pub struct Queue {
    endpoints: Vec<Endpoint>,
    /// Of each app.
    of_app: Vec<Vec<usize>>,
    departures: BTreeMap<Key, u64>,
    /// The same in order. One that has come back is found missing above, or with another time.
    due: VecDeque<(u64, Key)>,
    totals: Totals,
}

/// What became of events, each counted once per endpoint that wants it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Answered with a status from 200 to 299.
    pub delivered: u64,
    /// Not taken in five minutes, or not before the end.
    pub given_up: u64,
    /// Found no room.
    pub overflowed: u64,
    /// Waiting, or on their way.
    pub waiting: u64,
    /// Requests that failed, and were or will be tried again, or given up.
    pub failed_requests: u64,
}

#[derive(Debug)]
struct Endpoint {
    app: usize,
    hook: Webhook,
    waiting: VecDeque<Event>,
    bytes: usize,
    state: State,
    /// No app has it any more. Invariant: nothing waits but for a request on its way.
    is_retired: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Idle,
    /// A request with so many events is on its way; when the first try began, and which try it is.
    Sending {
        events: usize,
        since: u64,
        attempt: u32,
    },
    /// The same request goes out again then.
    Pausing {
        events: usize,
        since: u64,
        attempt: u32,
        until: u64,
    },
}

/// A request to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The endpoint, for [`Queue::done`].
    pub endpoint: usize,
    /// The app whose secret signs it.
    pub app: usize,
    /// Where it goes.
    pub url: String,
    /// When it was made: tries that follow are of the same time.
    pub since: u64,
    /// Its events, in order.
    pub events: Vec<Event>,
}

impl Endpoint {
    const fn new(app: usize, hook: Webhook) -> Self {
        let waiting = VecDeque::new();
        Self { app, hook, waiting, bytes: 0, state: State::Idle, is_retired: false }
    }
}

impl Queue {
    /// The endpoints of each app.
    pub fn new<'a>(apps: impl Iterator<Item = &'a [Webhook]>) -> Self {
        let mut queue = Self {
            endpoints: Vec::new(),
            of_app: Vec::new(),
            departures: BTreeMap::new(),
            due: VecDeque::new(),
            totals: Totals::default(),
        };
        queue.change(apps);
        queue
    }

    /// Other endpoints of each app. One that was there before keeps what waits for it; what waits
    /// for one that is not there any more is given up, but for a request on its way.
    /// Cost: O(endpoints * those of an app).
    pub fn change<'a>(&mut self, apps: impl Iterator<Item = &'a [Webhook]>) {
        let before = std::mem::take(&mut self.of_app);
        for (app, hooks) in apps.enumerate() {
            let mut known = before.get(app).cloned().unwrap_or_default();
            let mut own = Vec::new();
            for hook in hooks {
                let found = known.iter().position(|index| self.endpoints[*index].hook == *hook);
                own.push(match found {
                    Some(at) => known.swap_remove(at),
                    None => self.add(Endpoint::new(app, hook.clone())),
                });
            }
            known.into_iter().for_each(|index| self.retire(index));
            self.of_app.push(own);
        }
        for index in before.into_iter().skip(self.of_app.len()).flatten() {
            self.retire(index);
        }
    }

    /// Puts an endpoint where one was that is not there any more, or at the end.
    fn add(&mut self, endpoint: Endpoint) -> usize {
        let is_free = |old: &Endpoint| old.is_retired && matches!(old.state, State::Idle);
        if let Some(index) = self.endpoints.iter().position(is_free) {
            self.endpoints[index] = endpoint;
            return index;
        }
        self.endpoints.push(endpoint);
        self.endpoints.len() - 1
    }

    fn retire(&mut self, index: usize) {
        let endpoint = &mut self.endpoints[index];
        endpoint.is_retired = true;
        let on_its_way = match endpoint.state {
            State::Sending { events, .. } => events,
            State::Idle | State::Pausing { .. } => 0,
        };
        if on_its_way == 0 {
            endpoint.state = State::Idle;
        }
        let lost = endpoint.waiting.drain(on_its_way..).len() as u64;
        endpoint.bytes = endpoint.waiting.iter().map(Event::cost).sum();
        self.totals.waiting -= lost;
        self.totals.given_up += lost;
    }

    /// Something happened, at this many milliseconds. Cost: O(endpoints of the app).
    pub fn note(&mut self, event: Event, now: u64) {
        let Event { app, channel, what } = &event;
        let key = |user: Option<&Arc<str>>| (*app, Arc::clone(channel), user.map(Arc::clone));
        match what {
            What::Vacated => return self.depart(key(None), now),
            What::MemberRemoved(user) => return self.depart(key(Some(user)), now),
            What::Occupied if self.departures.remove(&key(None)).is_some() => return,
            What::MemberAdded(user) if self.departures.remove(&key(Some(user))).is_some() => {
                return;
            }
            _ => {}
        }
        self.push(&event);
    }

    fn depart(&mut self, key: Key, now: u64) {
        if self.due.len() >= MAX_DEPARTURES {
            return self.push(&departed(key));
        }
        self.departures.insert(key.clone(), now + GRACE);
        self.due.push_back((now + GRACE, key));
    }

    fn push(&mut self, event: &Event) {
        let Some(endpoints) = self.of_app.get(event.app) else { return };
        for index in endpoints {
            let endpoint = &mut self.endpoints[*index];
            if !endpoint.hook.wants(event) {
                continue;
            }
            let cost = event.cost();
            if endpoint.waiting.len() >= MAX_EVENTS || endpoint.bytes + cost > MAX_BYTES {
                self.totals.overflowed += 1;
                continue;
            }
            endpoint.bytes += cost;
            endpoint.waiting.push_back(event.clone());
            self.totals.waiting += 1;
        }
    }

    /// What is due goes its way. Call before [`poll`](Self::poll).
    pub fn advance(&mut self, now: u64) {
        while let Some((at, key)) = self.due.front() {
            let is_stale = self.departures.get(key) != Some(at);
            if !is_stale && *at > now {
                return;
            }
            let (_, key) = self.due.pop_front().expect("just looked at");
            if !is_stale {
                self.departures.remove(&key);
                self.push(&departed(key));
            }
        }
    }

    /// Nobody comes back any more: what waits for a return is told.
    pub fn flush(&mut self) {
        for (at, key) in std::mem::take(&mut self.due) {
            if self.departures.get(&key) == Some(&at) {
                self.departures.remove(&key);
                self.push(&departed(key));
            }
        }
    }

    /// A request that may be sent now. Cost: O(endpoints).
    pub fn poll(&mut self, now: u64) -> Option<Request> {
        let endpoint = self.endpoints.iter().position(|endpoint| match endpoint.state {
            State::Idle => !endpoint.waiting.is_empty(),
            State::Sending { .. } => false,
            State::Pausing { until, .. } => until <= now,
        })?;
        let found = &mut self.endpoints[endpoint];
        let (events, since, attempt) = match found.state {
            State::Pausing { events, since, attempt, .. } => (events, since, attempt + 1),
            _ => (found.waiting.len().min(found.hook.batch), now, 1),
        };
        found.state = State::Sending { events, since, attempt };
        Some(Request {
            endpoint,
            app: found.app,
            url: found.hook.url.clone(),
            since,
            events: found.waiting.iter().take(events).cloned().collect(),
        })
    }

    /// A request was taken, or failed. `jitter` is random: endpoints that failed together are not
    /// tried again together.
    pub fn done(&mut self, endpoint: usize, is_taken: bool, now: u64, jitter: u64) {
        let found = &mut self.endpoints[endpoint];
        let State::Sending { events, since, attempt } = found.state else { return };
        if !is_taken {
            self.totals.failed_requests += 1;
            let pause = (FIRST_PAUSE << (attempt - 1).min(16)).min(LONGEST_PAUSE);
            let until = now + pause / 2 + jitter % (pause / 2 + 1);
            if until <= since + PATIENCE && !found.is_retired {
                found.state = State::Pausing { events, since, attempt, until };
                return;
            }
        }
        for event in found.waiting.drain(..events) {
            found.bytes -= event.cost();
        }
        found.state = State::Idle;
        let count = events as u64;
        self.totals.waiting -= count;
        match is_taken {
            true => self.totals.delivered += count,
            false => self.totals.given_up += count,
        }
    }

    /// It is over: whatever still waits is given up.
    pub fn end(&mut self) -> Totals {
        self.flush();
        self.totals.given_up += std::mem::take(&mut self.totals.waiting);
        self.totals
    }

    /// When something is due next.
    pub fn next_deadline(&self) -> Option<u64> {
        let departure = self.due.front().map(|(at, _)| *at);
        let retries = self.endpoints.iter().filter_map(|endpoint| match endpoint.state {
            State::Pausing { until, .. } => Some(until),
            _ => None,
        });
        retries.chain(departure).min()
    }

    /// Where an endpoint is, and whose.
    pub fn endpoint(&self, endpoint: usize) -> (&str, usize) {
        let Endpoint { app, hook, .. } = &self.endpoints[endpoint];
        (&hook.url, *app)
    }

    /// What became of events so far.
    pub const fn totals(&self) -> Totals {
        self.totals
    }
}

fn departed((app, channel, user): Key) -> Event {
    let what = user.map_or(What::Vacated, What::MemberRemoved);
    Event { app, channel, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(batch: usize) -> Webhook {
        Webhook {
            url: format!("http://{batch}/"),
            events: Vec::new(),
            channel_prefix: String::new(),
            batch,
        }
    }

    fn queue(hooks: &[Webhook]) -> Queue {
        Queue::new([hooks].into_iter())
    }

    fn event(channel: &str, what: What) -> Event {
        Event { app: 0, channel: channel.into(), what }
    }

    /// Sends everything that may be sent and says it was taken; what was told.
    fn take(queue: &mut Queue, now: u64) -> Vec<(String, What)> {
        let mut told = Vec::new();
        queue.advance(now);
        while let Some(request) = queue.poll(now) {
            told.extend(request.events.into_iter().map(|it| (it.channel.to_string(), it.what)));
            queue.done(request.endpoint, true, now, 0);
        }
        told
    }

    #[test]
    fn who_comes_back_within_three_seconds_was_never_gone() {
        let id: Arc<str> = "u".into();
        for (went, came) in [
            (What::Vacated, What::Occupied),
            (What::MemberRemoved(Arc::clone(&id)), What::MemberAdded(id)),
        ] {
            let mut queue = queue(&[hook(1)]);
            queue.note(event("a", came.clone()), 0);
            assert_eq!(take(&mut queue, 0).len(), 1);
            queue.note(event("a", went.clone()), 1_000);
            queue.note(event("a", came.clone()), 3_999);
            assert_eq!(take(&mut queue, 10_000), []);
            queue.note(event("a", went.clone()), 10_000);
            assert_eq!(take(&mut queue, 12_999), []);
            assert_eq!(take(&mut queue, 13_000), [("a".to_owned(), went.clone())]);
            queue.note(event("a", came.clone()), 13_000);
            assert_eq!(take(&mut queue, 13_000), [("a".to_owned(), came)]);
        }
    }

    #[test]
    fn a_second_departure_waits_its_own_three_seconds() {
        let mut queue = queue(&[hook(1)]);
        queue.note(event("a", What::Vacated), 0);
        queue.note(event("a", What::Occupied), 1_000);
        queue.note(event("a", What::Vacated), 2_000);
        assert_eq!(take(&mut queue, 3_000), []);
        assert_eq!(take(&mut queue, 5_000), [("a".to_owned(), What::Vacated)]);
        assert_eq!(queue.next_deadline(), None);
    }

    #[test]
    fn events_of_one_endpoint_keep_their_order_one_request_at_a_time() {
        let mut queue = queue(&[hook(2)]);
        for channel in ["a", "b", "c"] {
            queue.note(event(channel, What::Occupied), 0);
        }
        let first = queue.poll(0).unwrap();
        assert_eq!(first.events.len(), 2);
        assert_eq!(queue.poll(0), None, "one at a time");
        queue.done(first.endpoint, false, 0, 0);
        assert_eq!(queue.poll(499), None);
        let again = queue.poll(500).unwrap();
        assert_eq!(again.events, first.events, "the same request again, and nothing overtakes it");
        assert_eq!((first.since, again.since), (0, 0), "of the time when it was made");
        queue.done(again.endpoint, true, 500, 0);
        assert_eq!(&*queue.poll(500).unwrap().events[0].channel, "c");
        assert_eq!(queue.totals().failed_requests, 1);
    }

    #[test]
    fn a_dead_endpoint_delays_no_other_one_and_is_given_up_after_five_minutes() {
        let mut queue = queue(&[hook(1), hook(3)]);
        queue.note(event("a", What::Occupied), 0);
        let mut tries = Vec::new();
        let mut now = 0;
        loop {
            while let Some(request) = queue.poll(now) {
                let is_alive = request.endpoint == 1;
                if !is_alive {
                    tries.push(now);
                }
                queue.done(request.endpoint, is_alive, now, u64::MAX);
            }
            let Some(at) = queue.next_deadline() else { break };
            now = at;
        }
        assert_eq!(queue.totals().delivered, 1);
        assert_eq!(queue.totals().given_up, 1);
        assert_eq!(queue.totals().waiting, 0);
        let last = *tries.last().unwrap();
        assert!(tries.len() >= 9 && (240_001..=300_000).contains(&last), "{tries:?}");
        assert!(tries.windows(2).all(|pair| pair[1] - pair[0] <= LONGEST_PAUSE), "{tries:?}");
    }

    #[test]
    fn apps_that_tell_the_same_endpoint_share_no_request() {
        let hooks = [hook(10)];
        let mut queue = Queue::new([&hooks[..], &hooks[..]].into_iter());
        for n in 0..6 {
            let (app, channel) = (n % 2, format!("{}-{n}", n % 2).into());
            queue.note(Event { app, channel, what: What::Occupied }, 0);
        }
        let requests: Vec<_> = std::iter::from_fn(|| queue.poll(0)).collect();
        assert_eq!(requests.iter().map(|request| request.app).collect::<Vec<_>>(), [0, 1]);
        for Request { app, url, events, .. } in &requests {
            assert_eq!((url, events.len()), (&hooks[0].url, 3));
            let own = format!("{app}-");
            assert!(events.iter().all(|it| it.app == *app && it.channel.starts_with(&*own)));
        }
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut queue = queue(&[hook(1)]);
        for _ in 0..MAX_EVENTS + 7 {
            queue.note(event("a", What::CacheMiss), 0);
        }
        assert_eq!(queue.totals().overflowed, 7);
        assert_eq!(queue.totals().waiting, MAX_EVENTS as u64);
        let totals = queue.end();
        assert_eq!((totals.given_up, totals.waiting), (MAX_EVENTS as u64, 0));
        let long = |queue: &mut Queue| {
            let data = format!("\"{}\"", "x".repeat(1 << 20));
            let (event, socket_id) = ("client-e".to_owned(), "1.1".to_owned());
            let what = What::ClientEvent { event, data, socket_id, user_id: None };
            queue.note(self::event("a", what), 0);
        };
        let mut queue = self::queue(&[hook(1)]);
        (0..20).for_each(|_| long(&mut queue));
        assert_eq!(queue.totals().waiting, 15, "16 MiB with what each takes besides");
    }

    #[test]
    fn other_endpoints_begin_empty_and_those_of_before_keep_what_waits() {
        let (stays, goes, comes) = (hook(1), hook(2), hook(3));
        let mut queue = queue(&[goes.clone(), stays.clone()]);
        for channel in ["a", "b", "c"] {
            queue.note(event(channel, What::Occupied), 0);
        }
        let on_its_way = queue.poll(0).unwrap();
        assert_eq!((&*on_its_way.url, on_its_way.events.len()), (&*goes.url, 2));
        queue.change([&[][..], &[stays.clone(), comes.clone()][..]].into_iter());
        assert_eq!(queue.totals().given_up, 1 + 3, "an endpoint belongs to its app");
        queue.change([&[stays.clone()][..], &[comes.clone()][..]].into_iter());
        queue.note(event("d", What::Occupied), 0);
        queue.change([&[comes.clone(), stays][..], &[comes][..]].into_iter());
        queue.note(event("e", What::Occupied), 0);
        assert_eq!(queue.totals().waiting, 2 + 2 + 1);
        let mut told = Vec::new();
        while let Some(request) = queue.poll(0) {
            told.extend(request.events.iter().map(|event| (request.app, event.channel.clone())));
            queue.done(request.endpoint, true, 0, 0);
        }
        told.sort();
        let due: [(usize, &str); 3] = [(0, "d"), (0, "e"), (0, "e")];
        assert_eq!(told, due.map(|(app, channel)| (app, channel.into())));
        queue.done(on_its_way.endpoint, false, 0, 0);
        assert_eq!(queue.poll(u64::MAX / 2), None, "nobody is asked again for an old app");
        let totals = queue.totals();
        assert_eq!((totals.delivered, totals.given_up, totals.waiting), (3, 6, 0));
        assert_eq!(queue.endpoints.len(), 4, "places are used again");
    }

    #[test]
    fn more_departures_than_can_wait_are_told_at_once() {
        let mut queue = queue(&[hook(1)]);
        for n in 0..MAX_DEPARTURES + 3 {
            queue.note(event(&n.to_string(), What::Vacated), 0);
        }
        assert_eq!(take(&mut queue, 0).len(), 3);
    }

    #[test]
    fn at_the_end_nobody_is_waited_for() {
        let mut queue = queue(&[hook(1)]);
        queue.note(event("a", What::Vacated), 0);
        queue.flush();
        assert_eq!(take(&mut queue, 1), [("a".to_owned(), What::Vacated)]);
    }
}
