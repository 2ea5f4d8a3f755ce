//! What all sessions of one event loop share.

mod apps;
mod notes;

use crate::account::Losses;
use crate::apps::{App, Apps};
use crate::channels::Channels;
use crate::counting::Counting;
use crate::hooks;
use crate::note::Note;
use crate::session::fallback::Name;
use crate::settings::Settings;
use crate::socket_id;
use crate::users::Users;
use apps::Retiring;
use notes::Held;
use sluicegate_core::{Broker, ConnId, Limits, OutletId, Pipe, Refusal, SubId, TenantId};
use sluicegate_host::metrics::{Numbers, Process};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

pub use notes::Word;

/// The core, the apps, and who owns which connection of the core.
pub struct Shard {
    /// The core.
    pub broker: Broker,
    /// The apps.
    pub apps: Apps,
    /// The calendar's time at the start of the turn, for signatures that expire.
    pub unix_seconds: u64,
    /// From the end of a successful start to the beginning of the shutdown.
    pub is_ready: bool,
    /// Numbers of the event loop, for the metrics page.
    pub process: Process,
    /// What the server is told about itself.
    pub settings: Settings,
    /// The tenant of sockets that have not said for which app they come.
    house: TenantId,
    /// Names of sockets are made with it.
    key: socket_id::Key,
    /// By index of the outlet.
    pipes: Vec<Owned<OutletId>>,
    /// By index of the connection.
    conns: Vec<Owned<ConnId>>,
    /// Who is in the channels that this shard owns.
    channels: Channels,
    /// Who is signed in, of the users that this shard owns.
    users: Users,
    counting: Counting,
    /// The connections through which the shard itself publishes.
    sources: BTreeMap<TenantId, ConnId>,
    /// For other shards, by number.
    notes: Vec<VecDeque<Note>>,
    /// For sessions of this shard. Bounded: each answers something that a session asked, or ends
    /// one.
    words: VecDeque<(u64, Word)>,
    /// What happened in this turn that apps' servers want to know.
    hooks: VecDeque<hooks::Event>,
    /// Presence channels that connections are entering.
    held: BTreeMap<(OutletId, Arc<str>), Held>,
    /// Subscriptions that wait for the owner of their topic, and the sockets they are for.
    awaited: BTreeMap<SubId, u64>,
    retiring: Retiring,
    losses: Losses,
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard").field("apps", &self.apps).finish_non_exhaustive()
    }
}

/// An id of the core, and the socket it belongs to. The id tells an old holder of the slot from
/// the present one.
#[derive(Clone, Copy, Debug)]
struct Owned<I> {
    id: I,
    owner: u64,
}

/// The owner of a connection until its socket has a name.
const NOBODY: u64 = u64::MAX;

impl Shard {
    /// The only shard of a process, which serves `apps`. `limits` must pass [`Limits::check`];
    /// `entropy` must not be guessable, since socket ids come from it.
    pub fn new(limits: Limits, apps: Vec<App>, entropy: fn() -> u64) -> Result<Self, Refusal> {
        Self::numbered(Broker::new(limits, entropy()), apps, socket_id::key(entropy))
    }

    /// One of the shards of a process, around its empty broker. All of them have the same apps in
    /// the same order, and the same `key`, which must not be guessable.
    pub fn numbered(
        mut broker: Broker,
        apps: Vec<App>,
        key: socket_id::Key,
    ) -> Result<Self, Refusal> {
        let shards = broker.limits().shards;
        let house = broker.tenant(1)?;
        let mut shard = Self {
            broker,
            apps: Apps::default(),
            unix_seconds: 0,
            is_ready: false,
            process: Process::default(),
            settings: Settings::default(),
            house,
            key,
            pipes: Vec::new(),
            conns: Vec::new(),
            channels: Channels::default(),
            users: Users::default(),
            counting: Counting::default(),
            sources: BTreeMap::new(),
            notes: (0..shards).map(|_| VecDeque::new()).collect(),
            words: VecDeque::new(),
            hooks: VecDeque::new(),
            held: BTreeMap::new(),
            awaited: BTreeMap::new(),
            retiring: Retiring::default(),
            losses: Losses::default(),
        };
        let places = apps.into_iter().map(Some).collect();
        shard.prepare(&places)?;
        shard.serve(&places);
        Ok(shard)
    }

    /// Which of the process's shards it is.
    pub const fn number(&self) -> u32 {
        self.broker.number()
    }

    /// How many shards the process has.
    pub fn shards(&self) -> u32 {
        u32::try_from(self.notes.len()).expect("at most 64")
    }

    /// Who is in the channels that this shard owns.
    pub const fn channels(&self) -> &Channels {
        &self.channels
    }

    /// Who is signed in, of the users that this shard owns.
    pub const fn users(&self) -> &Users {
        &self.users
    }

    /// A connection of the core with one pipe, for a socket that came for no app yet; the socket
    /// is named by [`settle`](Self::settle).
    pub fn open_house(&mut self) -> Result<(ConnId, OutletId), Refusal> {
        self.open(self.house, NOBODY, Pipe::Single)
    }

    /// A connection of the core with one pipe, for socket `owner` of a tenant.
    pub fn open(
        &mut self,
        tenant: TenantId,
        owner: u64,
        pipe: Pipe,
    ) -> Result<(ConnId, OutletId), Refusal> {
        let conn = self.open_source(tenant, owner)?;
        let outlet = self.broker.outlet(conn, pipe).inspect_err(|_| self.broker.gone(conn))?;
        put(&mut self.pipes, outlet.index(), Owned { id: outlet, owner });
        Ok((conn, outlet))
    }

    /// A connection of the core that only publishes.
    pub fn open_source(&mut self, tenant: TenantId, owner: u64) -> Result<ConnId, Refusal> {
        let conn = self.broker.open(tenant)?;
        put(&mut self.conns, conn.index(), Owned { id: conn, owner });
        Ok(conn)
    }

    /// The socket that a connection belongs to. The socket may have gone since: ask it.
    pub fn owner_of_conn(&self, conn: ConnId) -> Option<u64> {
        let owned = self.conns.get(conn.index() as usize)?;
        (owned.id == conn).then_some(owned.owner)
    }

    /// The socket that an outlet belongs to. The socket may have gone since: ask it.
    pub fn owner_of_outlet(&self, outlet: OutletId) -> Option<u64> {
        let owned = self.pipes.get(outlet.index() as usize)?;
        (owned.id == outlet).then_some(owned.owner)
    }

    /// Says whose a connection and its outlet are.
    pub fn settle(&mut self, conn: ConnId, outlet: OutletId, owner: u64) {
        self.conns[conn.index() as usize].owner = owner;
        self.pipes[outlet.index() as usize].owner = owner;
    }

    /// The socket id of an outlet: nobody can guess it.
    pub fn name_socket(&self, outlet: OutletId) -> String {
        socket_id::name(&self.key, self.broker.number(), outlet)
    }

    /// The shard and the outlet behind a socket id. It may be stale; the core knows.
    pub fn find_socket(&self, socket_id: &str) -> Option<(u32, OutletId)> {
        socket_id::find(&self.key, socket_id)
    }

    /// The shard that has a session of the HTTP fallback.
    pub fn owner_of_post(&self, name: &Name) -> u32 {
        name.owner(&self.key, self.shards())
    }

    /// What metrics collectors are shown of this shard.
    pub fn numbers(&self) -> Numbers {
        Numbers::read(&self.broker, &self.apps.tenants(), self.process)
    }
}

fn put<I: Copy>(table: &mut Vec<Owned<I>>, index: u32, owned: Owned<I>) {
    // The core hands out dense indices, so a table grows by one at a time.
    if table.len() <= index as usize {
        table.resize(index as usize + 1, owned);
    }
    table[index as usize] = owned;
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn shard() -> Shard {
        shard_with(Limits::default())
    }

    pub(crate) fn shard_with(limits: Limits) -> Shard {
        let mut shard = Shard::new(limits, vec![App::development()], || 0x1234_5678_9abc_def0)
            .expect("the first tenants always fit");
        shard.is_ready = true;
        shard
    }

    #[test]
    fn ids_lead_to_their_owners_until_the_slot_is_reused() {
        let mut shard = shard();
        let (conn, outlet) = shard.open_house().unwrap();
        shard.settle(conn, outlet, 7);
        assert_eq!(shard.owner_of_conn(conn), Some(7));
        assert_eq!(shard.owner_of_outlet(outlet), Some(7));
        shard.broker.gone(conn);
        let (next, pipe) = shard.open_house().unwrap();
        shard.settle(next, pipe, 8);
        assert_eq!(next.index(), conn.index());
        assert_eq!(shard.owner_of_conn(conn), None);
        assert_eq!(shard.owner_of_outlet(outlet), None);
        assert_eq!(shard.owner_of_outlet(pipe), Some(8));
    }

    #[test]
    fn a_socket_id_leads_to_its_outlet() {
        let mut shard = shard();
        let (_, outlet) = shard.open_house().unwrap();
        let id = shard.name_socket(outlet);
        assert_eq!(shard.find_socket(&id), Some((0, outlet)));
    }
}
