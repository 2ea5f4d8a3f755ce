//! Apps: who may connect and who may publish.

use crate::hooks::Webhook;
use serde::Deserialize;
use sluicegate_core::TenantId;
use std::collections::BTreeMap;
use std::fmt;

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
    /// Whether subscribers of private channels may send each other events. Off unless asked for:
    /// what they send, no server of yours has seen.
    #[serde(default)]
    pub client_events: bool,
    /// Whether subscribers are told how many subscriptions their channel has.
    #[serde(default)]
    pub subscription_counts: bool,
    /// Whether a connection that neither signs in nor joins a private or presence channel is
    /// closed after ten seconds.
    #[serde(default)]
    pub authorized_only: bool,
    /// Whom to tell what happens.
    #[serde(default, rename = "webhook")]
    pub webhooks: Vec<Webhook>,
}

impl App {
    /// The app of a server without configuration.
    pub fn development() -> Self {
        Self {
            id: "1001".to_owned(),
            key: "app-key".to_owned(),
            secret: Secret::new("app-secret".to_owned()),
            name: "development".to_owned(),
            client_events: true,
            subscription_counts: false,
            authorized_only: false,
            webhooks: Vec::new(),
        }
    }
}

/// The apps of one shard and the tenants they are in its core.
#[derive(Debug, Default)]
pub struct Apps {
    list: Vec<(App, TenantId)>,
    by_id: BTreeMap<String, usize>,
    by_key: BTreeMap<String, usize>,
    by_tenant: BTreeMap<u64, usize>,
}

impl Apps {
    /// Adds an app; a later one of the same id or key takes its place.
    pub fn add(&mut self, app: App, tenant: TenantId) {
        let index = self.list.len();
        self.by_id.insert(app.id.clone(), index);
        self.by_key.insert(app.key.clone(), index);
        self.by_tenant.insert(tenant.to_bits(), index);
        self.list.push((app, tenant));
    }

    /// The app that the HTTP API calls `id`. Cost: O(log apps).
    pub fn by_id(&self, id: &str) -> Option<(&App, TenantId)> {
        self.by_id.get(id).map(|index| self.at(*index))
    }

    /// The app that clients call `key`. Cost: O(log apps).
    pub fn by_key(&self, key: &str) -> Option<(&App, TenantId)> {
        self.by_key.get(key).map(|index| self.at(*index))
    }

    /// The app of a tenant. Cost: O(log apps).
    pub fn by_tenant(&self, tenant: TenantId) -> Option<&App> {
        self.by_tenant.get(&tenant.to_bits()).map(|index| self.at(*index).0)
    }

    /// An app's place in the configuration, when somebody is told what happens in it.
    /// Cost: O(log apps).
    pub fn told(&self, tenant: TenantId) -> Option<usize> {
        let index = *self.by_tenant.get(&tenant.to_bits())?;
        (!self.list[index].0.webhooks.is_empty()).then_some(index)
    }

    fn at(&self, index: usize) -> (&App, TenantId) {
        let (app, tenant) = &self.list[index];
        (app, *tenant)
    }

    /// Ids and tenants, in the order of the configuration.
    pub fn tenants(&self) -> Vec<(&str, TenantId)> {
        self.list.iter().map(|(app, tenant)| (app.id.as_str(), *tenant)).collect()
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
    fn apps_are_found_by_id_and_by_key() {
        let mut apps = Apps::default();
        let tenant = TenantId::from_bits(3);
        apps.add(App::development(), tenant);
        assert_eq!(apps.by_id("1001").map(|found| found.1), Some(tenant));
        assert_eq!(apps.by_key("app-key").map(|found| found.1), Some(tenant));
        assert_eq!(apps.by_tenant(tenant), Some(&App::development()));
        assert_eq!(apps.by_tenant(TenantId::from_bits(4)), None);
        assert!(apps.by_id("app-key").is_none() && apps.by_key("1001").is_none());
        assert_eq!(apps.tenants(), [("1001", tenant)]);
    }
}
