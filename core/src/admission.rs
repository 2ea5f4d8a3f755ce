//! Checkpoint 3, admission: in-flight publish bytes.
//!
//! Question:  may these bytes come in, for the shard, the tenant and the connection?
//! Invariant: at each level, what is used is the sum of the permits out, and within its limit.
//! When full: nothing is taken; the caller gets the level that had no room, and what to do. When
//!            the shard is full, a tenant below its floor (a quarter of the budget, divided by the
//!            tenants with work) gets room: the newest jobs of those furthest above theirs go.
//! Proof:     `a_permit_is_taken_at_every_level_or_at_none`, `just_fits_and_just_does_not`,
//!            `a_tenant_below_its_floor_gets_bytes`,
//!            `books_close_under_random_operations`, `conservation`.

use crate::lease::Permit;
use crate::limits::Limits;
use crate::verdict::{Place, Reason, Refusal};
use alloc::vec::Vec;

#[derive(Clone, Debug)]
pub(crate) struct Admission {
    shard: Level,
    /// By tenant index.
    tenants: Vec<Level>,
    tenant_limit: u64,
    conn_limit: u64,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    used: u64,
    limit: u64,
}

impl Level {
    const fn fits(self, cost: u64) -> bool {
        cost <= self.limit - self.used
    }
}

/// Advice on when in-flight bytes may have drained.
const RETRY_MS: u16 = 100;

impl Admission {
    /// The shard has no bytes.
    pub(crate) const FULL: Refusal = Refusal::after(Place::Admission, Reason::BytesShard, RETRY_MS);

    pub(crate) const fn new(limits: &Limits) -> Self {
        Self {
            shard: Level { used: 0, limit: limits.pub_inflight_bytes },
            tenants: Vec::new(),
            tenant_limit: limits.pub_tenant_inflight_bytes,
            conn_limit: limits.pub_conn_inflight_bytes,
        }
    }

    pub(crate) fn add_tenant(&mut self) {
        self.tenants.push(Level { used: 0, limit: self.tenant_limit });
    }

    /// Bytes in flight in the shard.
    pub(crate) const fn used(&self) -> u64 {
        self.shard.used
    }

    /// Whether `cost` could ever fit. A job dearer than a whole budget never waits.
    pub(crate) fn can_ever_fit(&self, cost: u64) -> bool {
        cost <= self.shard.limit.min(self.tenant_limit).min(self.conn_limit)
    }

    /// Whether `cost` fits at every level now; `conn_used` is what the connection has in flight.
    pub(crate) fn room(&self, tenant: u32, conn_used: u64, cost: u64) -> Result<(), Refusal> {
        self.own_room(tenant, conn_used, cost)?;
        if self.missing(cost) == 0 {
            return Ok(());
        }
        Err(Self::FULL)
    }

    /// Whether `cost` fits for the connection and the tenant, whatever the others have.
    pub(crate) fn own_room(&self, tenant: u32, conn_used: u64, cost: u64) -> Result<(), Refusal> {
        let conn = Level { used: conn_used, limit: self.conn_limit };
        let levels =
            [(conn, Reason::BytesConn), (self.tenants[tenant as usize], Reason::BytesTenant)];
        match levels.into_iter().find(|(level, _)| !level.fits(cost)) {
            None => Ok(()),
            Some((_, reason)) => Err(Refusal::after(Place::Admission, reason, RETRY_MS)),
        }
    }

    /// Whether `cost` fits for a connection that has `conn_used` in flight.
    pub(crate) fn conn_fits(&self, conn_used: u64, cost: u64) -> bool {
        Level { used: conn_used, limit: self.conn_limit }.fits(cost)
    }

    /// How many bytes the shard lacks for `cost`.
    pub(crate) const fn missing(&self, cost: u64) -> u64 {
        cost.saturating_sub(self.shard.limit - self.shard.used)
    }

    /// What each of `active` tenants may always have in flight.
    pub(crate) const fn floor(&self, active: u32) -> u64 {
        self.shard.limit / (4 * active as u64)
    }

    /// What a tenant has in flight.
    pub(crate) fn used_by(&self, tenant: u32) -> u64 {
        self.tenants[tenant as usize].used
    }

    /// Takes from every level. Only after [`room`](Self::room) said yes.
    pub(crate) fn take(&mut self, tenant: u32, conn_used: &mut u64, cost: u64) -> Permit {
        debug_assert!(self.room(tenant, *conn_used, cost).is_ok(), "room first");
        *conn_used += cost;
        self.tenants[tenant as usize].used += cost;
        self.shard.used += cost;
        Permit::new(tenant, cost)
    }

    /// Gives a permit back; `conn_used` is `None` when the connection is gone.
    pub(crate) fn give(&mut self, permit: Permit, conn_used: Option<&mut u64>) {
        let (tenant, cost) = permit.end();
        self.shard.used -= cost;
        self.tenants[tenant as usize].used -= cost;
        if let Some(used) = conn_used {
            *used -= cost;
        }
    }

    /// `permits`: the (tenant, cost) of every permit that is out.
    #[cfg(any(test, feature = "check"))]
    pub(crate) fn check(
        &self,
        permits: impl Iterator<Item = (u32, u64)>,
    ) -> Result<(), crate::ledger::Broken> {
        use crate::ledger::same;
        let mut tenants = alloc::vec![0; self.tenants.len()];
        permits.for_each(|(tenant, cost)| tenants[tenant as usize] += cost);
        for (level, due) in self.tenants.iter().zip(&tenants) {
            same("admission: tenant bytes are its permits", level.used, *due)?;
            same("admission: tenant within its limit", level.used.min(level.limit), level.used)?;
        }
        same("admission: shard bytes are its permits", self.shard.used, tenants.iter().sum())?;
        same(
            "admission: shard within its limit",
            self.shard.used.min(self.shard.limit),
            self.shard.used,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission() -> Admission {
        let limits = Limits {
            pub_inflight_bytes: 100,
            pub_tenant_inflight_bytes: 60,
            pub_conn_inflight_bytes: 40,
            ..Limits::default()
        };
        let mut admission = Admission::new(&limits);
        admission.add_tenant();
        admission.add_tenant();
        admission
    }

    #[test]
    fn a_permit_is_taken_at_every_level_or_at_none() {
        let mut admission = admission();
        let (mut a, mut b, mut c) = (0, 0, 0);
        let first = admission.take(0, &mut a, 40);
        assert_eq!(admission.room(0, a, 1).unwrap_err().reason, Reason::BytesConn);
        let second = admission.take(0, &mut b, 20);
        assert_eq!(admission.room(0, b, 1).unwrap_err().reason, Reason::BytesTenant);
        let third = admission.take(1, &mut c, 40);
        assert_eq!(admission.room(1, 0, 1).unwrap_err().reason, Reason::BytesShard);
        let out = [&first, &second, &third].map(|permit| (permit.tenant(), permit.cost()));
        admission.check(out.into_iter()).unwrap();
        admission.give(first, Some(&mut a));
        admission.give(second, None);
        admission.give(third, Some(&mut c));
        assert_eq!((admission.used(), a, b, c), (0, 0, 20, 0));
        admission.check([].into_iter()).unwrap();
        assert!(admission.check([(0, 1)].into_iter()).is_err());
    }

    #[test]
    fn just_fits_and_just_does_not() {
        let admission = admission();
        assert!(admission.room(0, 0, 40).is_ok());
        assert!(admission.room(0, 0, 41).is_err());
        assert!(admission.can_ever_fit(40));
        assert!(!admission.can_ever_fit(41));
    }
}
