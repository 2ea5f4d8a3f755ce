//! What is read again while the server runs: the certificate, and the apps.

use crate::apps::App;
use crate::config::{Config, Flags};
use crate::directory::{Board, Change, Directory};
use crate::hooks::sender::Hooks;
use crate::tls::Identity;
use anyhow::Result;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The webhooks' thread: from the start on, or from when an app first has an endpoint.
#[derive(Clone, Debug, Default)]
pub struct Carrying(Arc<Mutex<Option<Hooks>>>);

impl Carrying {
    /// With the thread that there is at the start.
    pub fn new(hooks: Option<Hooks>) -> Self {
        Self(Arc::new(Mutex::new(hooks)))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Hooks>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for what is left, five seconds at most.
    pub fn finish(&self) {
        let hooks = self.lock().take();
        if let Some(hooks) = hooks {
            hooks.finish();
        }
    }
}

/// Everything that can be read again.
#[derive(Debug)]
pub struct Reload {
    /// Where the apps are read from.
    flags: Flags,
    directory: Directory,
    board: Arc<Board>,
    identity: Option<Arc<Identity>>,
    carrying: Carrying,
}

impl Reload {
    /// Of a server that was configured by `flags` and serves `apps`.
    pub fn new(flags: Flags, apps: &[App], board: Arc<Board>, carrying: Carrying) -> Self {
        Self { flags, directory: Directory::new(apps), board, identity: None, carrying }
    }

    /// With a certificate.
    #[must_use]
    pub fn with(self, identity: Option<Arc<Identity>>) -> Self {
        Self { identity, ..self }
    }

    /// Reads all of it again and says in the log what came of it. What cannot be read stays as it
    /// was. Waits for the disk: not to be called in an event loop.
    pub fn again(&mut self, environment: impl Iterator<Item = (String, String)>) {
        if let Some(identity) = &self.identity {
            match identity.reload() {
                Ok(()) => tracing::info!("the certificate was read again"),
                Err(error) => {
                    tracing::error!("{error:#}: the certificate of before stays in force");
                }
            }
        }
        if self.flags.config.is_none() {
            tracing::info!("the development app stays: without --config there is no file of apps");
            return;
        }
        match self.read_apps(environment) {
            Ok(Change { new, changed, removed }) => tracing::info!(
                new,
                changed,
                removed,
                "the apps were read again; other sections need a restart"
            ),
            Err(error) => tracing::error!("{error:#}: the apps of before stay in force"),
        }
    }

    fn read_apps(&mut self, environment: impl Iterator<Item = (String, String)>) -> Result<Change> {
        let Config { apps, .. } = Config::load(&self.flags, environment)?;
        let change = self.directory.change(apps)?;
        let places = self.directory.places().clone();
        let mut hooks = self.carrying.lock();
        match &*hooks {
            Some(hooks) => hooks.change(places.clone()),
            // Without it the apps would be served and nobody told: all or nothing.
            None => *hooks = Hooks::start(&places)?,
        }
        self.board.post(places, hooks.as_ref().map(Hooks::sender));
        Ok(change)
    }
}
