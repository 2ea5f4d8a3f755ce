//! Permits: bytes on loan from a budget.

/// Bytes taken from every level of checkpoint 3. It lives in the job and ends when the job is
/// done: not copied, not dropped by accident, given back in a line the reader can see.
#[must_use]
#[derive(Debug)]
pub(crate) struct Permit {
    tenant: u32,
    cost: u64,
}

impl Permit {
    /// Only for the budget that took the bytes.
    pub(crate) const fn new(tenant: u32, cost: u64) -> Self {
        Self { tenant, cost }
    }

    pub(crate) const fn cost(&self) -> u64 {
        self.cost
    }

    /// Only for the budget that gets the bytes back.
    pub(crate) const fn end(self) -> (u32, u64) {
        (self.tenant, self.cost)
    }
}

#[cfg(test)]
impl Permit {
    pub(crate) const fn tenant(&self) -> u32 {
        self.tenant
    }
}
