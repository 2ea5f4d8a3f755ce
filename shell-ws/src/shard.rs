//! What all sessions of one event loop share.

use crate::apps::{App, Apps};
use crate::roster::Rosters;
use crate::socket_id;
use sluicegate_core::{Broker, ConnId, Limits, OutletId, Pipe, Refusal, TenantId};
use sluicegate_host::metrics::{self, Process};
use std::fmt;

/// The core, the apps, and who owns which connection of the core.
pub struct Shard {
    /// The core.
    pub broker: Broker,
    /// The apps.
    pub apps: Apps,
    /// Who is in which presence channel.
    pub rosters: Rosters,
    /// The calendar's time at the start of the turn, for signatures that expire.
    pub unix_seconds: u64,
    /// From the end of a successful start to the beginning of the shutdown.
    pub is_ready: bool,
    /// Numbers of the event loop, for the metrics page.
    pub process: Process,
    /// Seconds without a word from a client after which it is asked for one.
    pub activity_timeout: u32,
    /// The tenant of sockets that have not said for which app they come.
    house: TenantId,
    /// Names of sockets are made with it.
    key: socket_id::Key,
    /// By index of the outlet.
    pipes: Vec<Owned<OutletId>>,
    /// By index of the connection.
    conns: Vec<Owned<ConnId>>,
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
        let house = broker.tenant(1)?;
        let mut table = Apps::default();
        for app in apps {
            table.add(app, broker.tenant(1)?);
        }
        Ok(Self {
            broker,
            apps: table,
            rosters: Rosters::default(),
            unix_seconds: 0,
            is_ready: false,
            process: Process::default(),
            activity_timeout: 120,
            house,
            key,
            pipes: Vec::new(),
            conns: Vec::new(),
        })
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

    /// The page for metrics collectors.
    pub fn metrics(&self) -> String {
        metrics::exposition(&self.broker, &self.apps.tenants(), self.process)
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
