//! Apps: who may connect and who may publish.

use crate::hooks::Webhook;
use serde::Deserialize;
use sluicegate_core::TenantId;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Keeps a text secret.
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text, for signing and for the start-up lines of the development app.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// One Pusher app: a tenant of the core.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct App {
    /// What the HTTP API calls it; decimal digits, since the Python server SDK takes no other.
    pub id: String,
    /// What clients connect with. Not secret.
    pub key: String,
    /// What publishers sign with.
    pub secret: Secret,
    /// For people.
    #[serde(default)]
    pub name: String,
    /// Whether it is served at all.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Its share of the server when that is overloaded, against the other apps': 1 to 1000.
    #[serde(default = "one")]
    pub weight: u32,
    /// The most connections of clients at a time, over all event loops; 0 for any number.
    #[serde(default)]
    pub max_connections: u64,
    /// Whether subscribers of private channels may send each other events. Off unless asked for:
    /// what they send, no server of yours has seen.
    #[serde(default)]
    pub client_events: bool,
    /// Whether subscribers are told how many subscriptions their channel has.
    #[serde(default)]
    pub subscription_counts: bool,
    /// How many events a cache channel keeps for clients that ask for more than the last one
    /// (`rewind`), at most 1000; 0 and 1 keep the last one only.
    #[serde(default)]
    pub rewind: u32,
    /// Whether a connection that neither signs in nor joins a private or presence channel is
    /// closed after ten seconds.
    #[serde(default)]
    pub authorized_only: bool,
    /// Pages whose scripts may connect, as browsers name them (`https://example.org`); none means
    /// all. Clients that are no browsers name no page, and are let in.
    #[serde(default)]
    pub allowed_origins: Vec<String>,
    /// Whom to tell what happens.
    #[serde(default, rename = "webhook")]
    pub webhooks: Vec<Webhook>,
    /// Connections of clients at present. Clones count together.
    #[serde(skip)]
    pub live: Live,
}

const fn yes() -> bool {
    true
}

const fn one() -> u32 {
    1
}

/// How many connections an app has, counted by all event loops together.
#[derive(Clone, Debug, Default)]
pub struct Live(Arc<AtomicU64>);

/// Which app is meant does not depend on how many are there.
impl PartialEq for Live {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Live {}

/// One connection of an app, until it is dropped.
#[derive(Debug)]
pub struct Seat(Live);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl App {
    /// A place for one more connection; none when the app has as many as it may.
    pub fn seat(&self) -> Option<Seat> {
        let before = self.live.0.fetch_add(1, Ordering::Relaxed);
        // Taken back when it is dropped here.
        let seat = Seat(self.live.clone());
        (self.max_connections == 0 || before < self.max_connections).then_some(seat)
    }

    /// Whether scripts of a page may connect.
    pub fn allows(&self, origin: Option<&str>) -> bool {
        let is_listed =
            |origin: &str| self.allowed_origins.iter().any(|it| it.eq_ignore_ascii_case(origin));
        self.allowed_origins.is_empty() || origin.is_none_or(is_listed)
    }

    /// The app of a server without configuration.
    pub fn development() -> Self {
        Self {
            id: "1001".to_owned(),
            key: "app-key".to_owned(),
            secret: Secret::new("app-secret".to_owned()),
            name: "development".to_owned(),
            enabled: true,
            weight: 1,
            max_connections: 0,
            client_events: true,
            subscription_counts: false,
            rewind: 0,
            authorized_only: false,
            allowed_origins: Vec::new(),
            webhooks: Vec::new(),
            live: Live::default(),
        }
    }
}

/// The apps of a process by their place, which each keeps for its life; an empty one is of an app
/// that is not served any more.
pub type Places = Vec<Option<App>>;

/// The apps of one shard and the tenants they are in its core.
#[derive(Debug, Default)]
pub struct Apps {
    places: Vec<Place>,
    by_id: BTreeMap<String, usize>,
    by_key: BTreeMap<String, usize>,
    by_tenant: BTreeMap<u64, usize>,
}

#[derive(Debug)]
struct Place {
    /// Of the app that has the place, also while it is not served.
    id: String,
    tenant: TenantId,
    app: Option<App>,
}

impl Apps {
    /// Adds a place for an app that is not served yet.
    pub fn add(&mut self, id: &str, tenant: TenantId) {
        self.by_tenant.insert(tenant.to_bits(), self.places.len());
        self.places.push(Place { id: id.to_owned(), tenant, app: None });
    }

    /// How many places there are.
    pub const fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// From now on the app at a place is this one, or none is. Returns its tenant, and what was
    /// there. Cost: O(log apps).
    ///
    /// # Panics
    /// When there is no such place.
    pub fn put(&mut self, place: usize, app: Option<App>) -> (TenantId, Option<App>) {
        let found = &mut self.places[place];
        if let Some(before) = &found.app {
            self.by_id.remove(&before.id);
            // Two apps may have changed keys: then the other one's stays.
            if self.by_key.get(&before.key) == Some(&place) {
                self.by_key.remove(&before.key);
            }
        }
        if let Some(app) = &app {
            found.id.clone_from(&app.id);
            self.by_id.insert(app.id.clone(), place);
            self.by_key.insert(app.key.clone(), place);
        }
        (found.tenant, std::mem::replace(&mut found.app, app))
    }

    /// The app that the HTTP API calls `id`. Cost: O(log apps).
    pub fn by_id(&self, id: &str) -> Option<(&App, TenantId)> {
        self.by_id.get(id).and_then(|place| self.at(*place))
    }

    /// The app that clients call `key`. Cost: O(log apps).
    pub fn by_key(&self, key: &str) -> Option<(&App, TenantId)> {
        self.by_key.get(key).and_then(|place| self.at(*place))
    }

    /// The app of a tenant; none when it is not served any more. Cost: O(log apps).
    pub fn by_tenant(&self, tenant: TenantId) -> Option<&App> {
        self.by_tenant.get(&tenant.to_bits()).and_then(|place| Some(self.at(*place)?.0))
    }

    /// The id of a tenant's app, also while it is not served. Cost: O(log apps).
    pub fn id_of(&self, tenant: TenantId) -> Option<&str> {
        self.by_tenant.get(&tenant.to_bits()).map(|place| self.places[*place].id.as_str())
    }

    /// An app's place, when somebody is told what happens in it. Cost: O(log apps).
    pub fn told(&self, tenant: TenantId) -> Option<usize> {
        let place = *self.by_tenant.get(&tenant.to_bits())?;
        let (app, _) = self.at(place)?;
        (!app.webhooks.is_empty()).then_some(place)
    }

    fn at(&self, place: usize) -> Option<(&App, TenantId)> {
        let Place { tenant, app, .. } = &self.places[place];
        Some((app.as_ref()?, *tenant))
    }

    /// Ids and tenants of all places, by place: also of apps that are not served any more, whose
    /// books stay.
    pub fn tenants(&self) -> Vec<(&str, TenantId)> {
        self.places.iter().map(|place| (place.id.as_str(), place.tenant)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_printed() {
        let app = App::development();
        assert!(!format!("{app:?}").contains("app-secret"));
        assert_eq!(app.secret.reveal(), "app-secret");
    }

    #[test]
    fn an_app_has_as_many_connections_as_it_may_over_all_clones() {
        let app = App { max_connections: 2, ..App::development() };
        let other = app.clone();
        let seats = [app.seat(), other.seat()];
        assert!(seats.iter().all(Option::is_some));
        assert!(app.seat().is_none() && other.seat().is_none());
        drop(seats);
        assert!((0..50).all(|_| app.seat().is_some()));
        assert!(App { max_connections: 0, ..app }.seat().is_some());
    }

    #[test]
    fn apps_are_found_by_id_and_by_key() {
        let mut apps = Apps::default();
        let tenant = TenantId::from_bits(3);
        apps.add("1001", tenant);
        assert!(apps.by_id("1001").is_none() && apps.by_tenant(tenant).is_none());
        assert_eq!(apps.put(0, Some(App::development())), (tenant, None));
        assert_eq!(apps.by_id("1001").map(|found| found.1), Some(tenant));
        assert_eq!(apps.by_key("app-key").map(|found| found.1), Some(tenant));
        assert_eq!(apps.by_tenant(tenant), Some(&App::development()));
        assert_eq!(apps.by_tenant(TenantId::from_bits(4)), None);
        assert!(apps.by_id("app-key").is_none() && apps.by_key("1001").is_none());
        assert_eq!(apps.tenants(), [("1001", tenant)]);
        assert_eq!(apps.put(0, None), (tenant, Some(App::development())));
        assert!(apps.by_id("1001").is_none() && apps.by_key("app-key").is_none());
        assert_eq!(apps.tenants(), [("1001", tenant)], "its books stay");
    }

    #[test]
    fn two_apps_can_change_keys() {
        let mut apps = Apps::default();
        let app = |id: &str, key: &str| App {
            id: id.to_owned(),
            key: key.to_owned(),
            ..App::development()
        };
        for (place, key) in [(0, "k"), (1, "l")] {
            let id = place.to_string();
            apps.add(&id, TenantId::from_bits(place));
            apps.put(usize::try_from(place).unwrap(), Some(app(&id, key)));
        }
        apps.put(0, Some(app("0", "l")));
        apps.put(1, Some(app("1", "k")));
        for (key, id) in [("k", "1"), ("l", "0")] {
            assert_eq!(apps.by_key(key).map(|(app, _)| &*app.id), Some(id));
        }
    }
}
