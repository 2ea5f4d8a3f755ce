//! Other apps for a shard that runs.

use super::Shard;
use crate::apps::{App, Places};
use sluicegate_core::{Refusal, TenantId};
use std::collections::VecDeque;

/// Apps whose topics are made to go in one turn.
const RETIRED: usize = 16;

/// Apps that are not served any more and have topics left.
#[derive(Debug, Default)]
pub(super) struct Retiring {
    /// And how many topics, when it was asked last.
    tenants: VecDeque<(TenantId, u32)>,
    /// Some went when it was asked last: it is worth asking again at once.
    pub(super) is_busy: bool,
}

impl Shard {
    /// Makes the tenants of apps that are new. All shards of a process make them in the same
    /// order. Cost: O(new apps).
    pub fn prepare(&mut self, places: &Places) -> Result<(), Refusal> {
        for place in places.iter().skip(self.apps.len()) {
            // An app that was gone before this shard heard of it has a place all the same.
            let (id, weight) = place.as_ref().map_or(("", 1), |app| (&*app.id, app.weight));
            let tenant = self.broker.tenant(weight)?;
            self.apps.add(id, tenant);
        }
        Ok(())
    }

    /// Serves these apps from now on, and no others. True when connections of before may be of apps
    /// that are not served now. Cost: O(apps * log apps).
    ///
    /// # Panics
    /// When they were not prepared for.
    pub fn serve(&mut self, places: &Places) -> bool {
        let mut ends = false;
        for (place, app) in places.iter().enumerate() {
            let (tenant, before) = self.apps.put(place, app.clone());
            match app {
                Some(App { weight, .. }) => {
                    // A tenant is never stale.
                    let _ = self.broker.reweigh(tenant, *weight);
                }
                None if before.is_some() => self.retire(tenant),
                None => {}
            }
            let is_open = |app: &Option<App>| app.as_ref().is_some_and(|app| app.enabled);
            ends |= is_open(&before) && !is_open(app);
        }
        let apps = &self.apps;
        self.retiring.tenants.retain(|(tenant, _)| apps.by_tenant(*tenant).is_none());
        ends
    }

    fn retire(&mut self, tenant: TenantId) {
        self.retiring.tenants.push_back((tenant, u32::MAX));
        if let Some(source) = self.sources.remove(&tenant) {
            self.broker.gone(source);
        }
    }

    /// Topics of apps that are not served any more go, as far as nobody is in them: a bounded
    /// number of them, once per turn.
    pub fn retire_some(&mut self) {
        self.retiring.is_busy = false;
        for _ in 0..self.retiring.tenants.len().min(RETIRED) {
            let Some((tenant, before)) = self.retiring.tenants.pop_front() else { return };
            let left = self.broker.forget(tenant).unwrap_or(0);
            self.retiring.is_busy |= left < before;
            if left > 0 {
                self.retiring.tenants.push_back((tenant, left));
            }
        }
    }
}
