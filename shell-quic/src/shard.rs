//! One shard of the core with its peers: what the tasks of a thread share.
//!
//! Tasks bring what has come from a peer (`State::publish`, `State::subscribe` …) under one
//! lock that nobody else contends for, and ring the bell. One task runs the turns: time goes into
//! the core, the core steps, its notices become frames and its offers are written to QUIC streams.
//! There is no queue between the core and the streams: a stream that takes nothing more leaves its
//! offer open, and its waker brings it back into the next turn.

mod asks;
mod blocked;
mod chunks;
mod notices;
mod peers;
mod pipes;
mod publishing;
mod table;
mod tape;
mod turns;

pub(crate) use asks::Wanted;
pub use blocked::Blocked;
pub(crate) use peers::{Newcomer, Peer};
pub(crate) use publishing::Taken;

use crate::clock::Clock;
use crate::settings::Settings;
use peers::Sheds;
use pipes::Pipe;
use sluicegate_core::{Broker, ConnId, Instant, Lane, OutletId, Parcel, SubId, TenantId};
use sluicegate_host::mesh::Port;
use sluicegate_host::metrics::{Numbers, Process, Unconfirmed};
use sluicegate_host::node::Node;
use sluicegate_host::pool::Loan;
use sluicegate_host::strangers::{Strangers, Told, Unwelcome};
use sluicegate_host::tape::Recording;
use sluicegate_wire::quic::Frame;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use table::Table;
use tokio::sync::Notify;

/// A shard, for the tasks of its thread.
pub struct Shard {
    state: Mutex<State>,
    bell: Arc<Bell>,
    /// Told after each turn.
    turned: Notify,
    settings: Arc<Settings>,
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard").finish_non_exhaustive()
    }
}

/// Rings for the next turn.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    turn: Notify,
    /// Pipes that may take bytes again. Bounded: each is here once, until it was tried.
    woken: Mutex<Vec<OutletId>>,
}

impl Bell {
    /// There is something for the next turn.
    pub(crate) fn ring(&self) {
        self.turn.notify_one();
    }

    fn wake(&self, outlet: OutletId) {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner).push(outlet);
        self.ring();
    }

    fn take_woken(&self) -> Vec<OutletId> {
        std::mem::take(&mut *self.woken.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Ways to the other shards of the process.
#[derive(Debug)]
pub struct Ways {
    /// The rings.
    pub port: Port<Parcel>,
    /// What all shards know.
    pub node: Arc<Node>,
    /// This shard's part of the memory budget.
    pub loan: Loan,
}

/// What a shard holds.
pub(crate) struct State {
    broker: Broker,
    clock: Clock,
    settings: Arc<Settings>,
    bell: Arc<Bell>,
    /// In the order of the settings.
    tenants: Vec<TenantId>,
    peers: Table<Peer>,
    /// Publish streams, which the core knows as sources: their connections.
    sources: Table<ConnId>,
    pipes: Table<Pipe>,
    /// By subscription: its pipe.
    subs: Table<OutletId>,
    sheds: Sheds,
    ways: Option<Ways>,
    tape: Option<Recording>,
    process: Process,
    /// When it is told next who was not let in.
    told: Told,
    /// Publishes taken since the last turn.
    jobs: u32,
    sessions: u64,
    /// When the grace is over, once the shutdown has begun.
    stops_at: Option<Instant>,
    /// Everybody was told the end.
    has_said_goodbye: bool,
}

impl Shard {
    /// A shard over a core that has no tenants yet; `ways` where there are others.
    ///
    /// # Panics
    /// When there are more tenants than the core takes: the settings are checked before.
    pub fn new(mut broker: Broker, settings: Arc<Settings>, ways: Option<Ways>) -> Arc<Self> {
        let bell = Arc::new(Bell::default());
        let tenants = settings
            .tenants
            .iter()
            .map(|tenant| broker.tenant(tenant.weight).expect("no more than the core takes"))
            .collect();
        let state = State {
            broker,
            clock: Clock::start(),
            settings: Arc::clone(&settings),
            bell: Arc::clone(&bell),
            tenants,
            peers: Table::default(),
            sources: Table::default(),
            pipes: Table::default(),
            subs: Table::default(),
            sheds: Sheds::default(),
            ways,
            tape: None,
            process: Process {
                unconfirmed: Some(Unconfirmed::default()),
                failed_reloads: Some(0),
                strangers: Some(Strangers::default()),
                ..Process::default()
            },
            told: Told::default(),
            jobs: 0,
            sessions: 0,
            stops_at: None,
            has_said_goodbye: false,
        };
        Arc::new(Self { state: Mutex::new(state), bell, turned: Notify::new(), settings })
    }

    /// Never held across an await.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Told after each turn.
    pub(crate) const fn turned(&self) -> &Notify {
        &self.turned
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The numbers of this shard for a scrape.
    pub fn numbers(&self) -> Numbers {
        let state = self.lock();
        let names = self.settings.tenants.iter().map(|tenant| tenant.name.as_str());
        let tenants: Vec<_> = names.zip(state.tenants.iter().copied()).collect();
        Numbers::read(&state.broker, &tenants, state.process)
    }

    /// Rings for a turn: another shard has something for this one.
    #[cfg(not(madsim))]
    pub(crate) fn wake(&self) {
        self.bell.ring();
    }

    /// Whether it takes nothing new any more.
    #[cfg(not(madsim))]
    pub(crate) fn is_stopping(&self) -> bool {
        self.lock().stops_at.is_some()
    }

    /// A file could not be read again.
    #[cfg(not(madsim))]
    pub(crate) fn note_failed_reload(&self) {
        *self.lock().process.failed_reloads.get_or_insert_default() += 1;
    }

    /// A connection was not let in: counted, and told in the log at a bounded pace.
    pub(crate) fn turn_away(&self, address: IpAddr, why: Unwelcome, text: &str) {
        let mut state = self.lock();
        state.process.strangers.get_or_insert_default().refuse(why);
        let now = state.clock.now();
        let due = state.told.note(why, now);
        drop(state);
        if let Some(untold) = due {
            let reason = why.name();
            tracing::warn!(%address, reason, untold, "a connection was not let in: {text}");
        }
    }

    /// A newcomer must prove its address first.
    pub(crate) fn note_retry(&self) {
        self.lock().process.strangers.get_or_insert_default().retried += 1;
    }

    /// Who was not let in.
    pub fn strangers(&self) -> Strangers {
        self.lock().process.strangers.unwrap_or_default()
    }

    /// What may not have arrived at peers whose connections died.
    pub fn unconfirmed(&self) -> Unconfirmed {
        self.lock().process.unconfirmed.unwrap_or_default()
    }

    /// Subscriptions that have ended, and not all of which their peers have acknowledged yet: for
    /// tests. Cost: O(connections).
    pub fn parting(&self) -> usize {
        let mut state = self.lock();
        let ids = state.peers.ids();
        ids.into_iter().map(|id| state.peers.get(id).map_or(0, |peer| peer.ended.len())).sum()
    }

    /// Whether anybody is connected.
    pub(crate) fn has_peers(&self) -> bool {
        self.lock().peers.len() > 0
    }

    /// A look at the core, for tests and the books as JSON.
    pub fn look<T>(&self, look: impl FnOnce(&Broker) -> T) -> T {
        look(&self.lock().broker)
    }
}

impl State {
    fn peer(&mut self, conn: ConnId) -> Option<&mut Peer> {
        self.peers.get(conn.to_bits())
    }

    fn pipe_of(&mut self, sub: SubId) -> Option<&mut Pipe> {
        let outlet = *self.subs.get(sub.to_bits())?;
        self.pipes.get(outlet.to_bits())
    }

    /// Queues a frame on a peer's control stream, before all that waits there.
    fn tell(&mut self, conn: ConnId, frame: &Frame<'_>) {
        let Some(peer) = self.peers.get(conn.to_bits()) else { return };
        // Refused when the peer is being closed: then it is told why by the close.
        let _ = self.broker.send(peer.control, frame.bytes().into(), Lane::First);
    }
}
