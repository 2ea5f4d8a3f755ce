//! Unacked publishes that a host turns away before they are the core's.

use super::Broker;
use crate::id::ConnId;
use crate::ledger::Tally;
use crate::verdict::Refusal;

impl Broker {
    /// An unacked publish that the host does not hand in, such as one without a right: books it as
    /// shed. The host tells the publisher, as [`Notice::Shed`](crate::Notice::Shed) would.
    /// Cost: O(1).
    pub fn shed(&mut self, conn: ConnId, brought: Tally, why: Refusal) {
        self.tape_shed(conn, brought, why);
        let Ok(peer) = self.peers.conn(conn) else { return };
        let tenant = peer.tenant;
        self.ledger.offered(tenant, brought);
        self.ledger.shed(tenant, why, brought);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::verdict::{Place, Reason};

    #[test]
    fn what_a_host_turns_away_is_booked_as_it_is_told() {
        let mut broker = Broker::shard(Limits::default(), 1, 0);
        let tenant = broker.tenant(1).unwrap();
        let conn = broker.open(tenant).unwrap();
        let why = Refusal::never(Place::Table, Reason::NotAllowed);
        let (two, three) = (Tally { records: 2, bytes: 20 }, Tally { records: 3, bytes: 30 });
        broker.shed(conn, two, why);
        broker.refuse(conn, three, why);
        broker.gone(conn);
        // Whoever is gone has brought nothing.
        broker.shed(conn, two, why);
        let books = broker.ledger();
        assert_eq!(books.offered, Tally { records: 5, bytes: 50 });
        assert_eq!(books.shed.get(Place::Table, Reason::NotAllowed), two);
        assert_eq!(books.refused.get(Place::Table, Reason::NotAllowed), three);
        broker.check().unwrap();
    }
}
