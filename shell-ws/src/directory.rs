//! The apps of the process, and how another set of them comes into force in all event loops.
//!
//! An app has a place for the life of the process: loops know it as the tenant of that number, and
//! one that is not served any more leaves its place empty until it comes back. A change reaches
//! loops in two steps. First each makes the tenants that are new; once all have, each serves the
//! new apps from its next turn on. So no loop is told of a tenant that it does not know, and none
//! waits for another one.

use crate::apps::{App, Places};
use crate::hooks::sender::Sender;
use anyhow::{Result, ensure};
use sluicegate_host::mesh::Bells;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The most apps that a process can have served, those of before among them: tenants of the core
/// are never taken back.
pub const MAX_PLACES: usize = 9_900;

/// Which app has which place.
#[derive(Debug)]
pub struct Directory {
    /// Ids, by place.
    ids: Vec<String>,
    places: Places,
}

/// What a change was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Apps that were not served before.
    pub new: usize,
    /// Apps whose key, secret, limits or else is another.
    pub changed: usize,
    /// Apps that are not served any more.
    pub removed: usize,
}

impl Directory {
    /// These apps, each in the place that it has in the configuration.
    pub fn new(apps: &[App]) -> Self {
        let ids = apps.iter().map(|app| app.id.clone()).collect();
        Self { ids, places: apps.iter().cloned().map(Some).collect() }
    }

    /// The apps as they are.
    pub const fn places(&self) -> &Places {
        &self.places
    }

    /// Other apps. They are known by their ids: one that is served already keeps its place and the
    /// count of its connections. Refused, with nothing changed, when there are no places left.
    /// Cost: O(places * apps that are new).
    pub fn change(&mut self, apps: Vec<App>) -> Result<Change> {
        let fresh = apps.iter().filter(|app| !self.ids.contains(&app.id)).count();
        let all = self.ids.len() + fresh;
        ensure!(
            all <= MAX_PLACES,
            "[[app]]: with those of before these are {all} apps, but a process serves at most \
             {MAX_PLACES} in its life: restart it"
        );
        let before = std::mem::take(&mut self.places);
        self.places = vec![None; before.len()];
        let mut change = Change::default();
        for mut app in apps {
            let place = self.ids.iter().position(|id| *id == app.id).unwrap_or_else(|| {
                self.ids.push(app.id.clone());
                self.places.push(None);
                self.ids.len() - 1
            });
            match before.get(place).and_then(Option::as_ref) {
                None => change.new += 1,
                Some(known) => {
                    app.live = known.live.clone();
                    change.changed += usize::from(*known != app);
                }
            }
            self.places[place] = Some(app);
        }
        let served = |places: &Places, at: usize| places.get(at).is_some_and(Option::is_some);
        let gone = |at: &usize| served(&before, *at) && !served(&self.places, *at);
        change.removed = (0..before.len()).filter(gone).count();
        Ok(change)
    }
}

/// News for all loops.
#[derive(Clone, Debug)]
pub struct News {
    /// Each set of apps has the next number.
    pub version: u64,
    /// The apps.
    pub places: Arc<Places>,
    /// Whom apps' servers are told through, once there is anybody to tell.
    pub hooks: Option<Sender>,
}

/// Where news are put up for the loops.
#[derive(Debug)]
pub struct Board {
    bells: Bells,
    latest: Mutex<Option<News>>,
    /// The version of `latest`.
    version: AtomicU64,
    /// By loop: the newest version whose tenants it has made.
    prepared: Vec<AtomicU64>,
}

impl Board {
    /// A board for so many loops, which are woken by these bells.
    pub fn new(loops: u32, bells: Bells) -> Self {
        let prepared = (0..loops).map(|_| AtomicU64::new(0)).collect();
        Self { bells, latest: Mutex::new(None), version: AtomicU64::new(0), prepared }
    }

    /// Puts up other apps. What loops have not seen of earlier ones, they need not see.
    pub fn post(&self, places: Places, hooks: Option<Sender>) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.version.load(Ordering::Relaxed) + 1;
        *latest = Some(News { version, places: Arc::new(places), hooks });
        self.version.store(version, Ordering::Release);
        drop(latest);
        self.bells.ring_all();
    }

    /// What is newer than the version that the caller has seen. Cost: one load, unless there is.
    pub fn news(&self, seen: u64) -> Option<News> {
        if self.version.load(Ordering::Acquire) == seen {
            return None;
        }
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A loop has made the tenants of a version. With the last one all are woken.
    pub fn prepared(&self, number: u32, version: u64) {
        self.prepared[number as usize].store(version, Ordering::Release);
        if self.is_prepared(version) {
            self.bells.ring_all();
        }
    }

    /// Whether all loops have.
    pub fn is_prepared(&self, version: u64) -> bool {
        self.prepared.iter().all(|of| of.load(Ordering::Acquire) >= version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_host::mesh::{Wake, ports};

    fn app(id: &str) -> App {
        App { id: id.to_owned(), key: format!("key-{id}"), ..App::development() }
    }

    fn ids(directory: &Directory) -> Vec<Option<&str>> {
        directory.places().iter().map(|app| app.as_ref().map(|app| &*app.id)).collect()
    }

    #[test]
    fn an_app_keeps_its_place_and_its_connections_whatever_comes_and_goes() {
        let mut directory = Directory::new(&[app("a"), app("b")]);
        let seat = directory.places()[1].as_ref().unwrap().seat().unwrap();
        let b = App { max_connections: 1, ..app("b") };
        let change = directory.change(vec![app("c"), b.clone()]).unwrap();
        assert_eq!(change, Change { new: 1, changed: 1, removed: 1 });
        assert_eq!(ids(&directory), [None, Some("b"), Some("c")]);
        assert!(directory.places()[1].as_ref().unwrap().seat().is_none(), "one is there");
        drop(seat);
        let change = directory.change(vec![b, app("a"), app("c")]).unwrap();
        assert_eq!(change, Change { new: 1, changed: 0, removed: 0 });
        assert_eq!(ids(&directory), [Some("a"), Some("b"), Some("c")]);
    }

    #[test]
    fn without_places_nothing_changes() {
        let mut directory = Directory::new(&[app("a")]);
        let many = |count| (0..count).map(|n| app(&n.to_string())).collect::<Vec<_>>();
        let error = directory.change(many(MAX_PLACES)).unwrap_err().to_string();
        assert!(error.contains("9901 apps") && error.contains("restart"), "{error}");
        assert_eq!(ids(&directory), [Some("a")]);
        directory.change(many(MAX_PLACES - 1)).unwrap();
    }

    #[test]
    fn news_come_into_force_when_every_loop_is_prepared_and_not_before() {
        let wakes: Vec<Wake> = (0..2).map(|_| -> Wake { Box::new(|| {}) }).collect();
        let board = Board::new(2, ports::<u32>(wakes, 1)[0].bells().clone());
        assert!(board.news(0).is_none());
        board.post(vec![Some(app("a"))], None);
        let news = board.news(0).unwrap();
        assert_eq!((news.version, news.places.len()), (1, 1));
        board.prepared(0, 1);
        assert!(!board.is_prepared(1));
        board.post(vec![None, Some(app("b"))], None);
        assert_eq!(board.news(1).unwrap().version, 2);
        board.prepared(1, 2);
        assert!(board.is_prepared(1) && !board.is_prepared(2), "who has more has that too");
        board.prepared(0, 2);
        assert!(board.is_prepared(2) && board.news(2).is_none());
    }
}
