//! A shard at an endpoint: accepts connections, takes turns, stops.

use crate::connection;
use crate::shard::Shard;
use quinn::{Endpoint, VarInt};
use sluicegate_core::Sample;
use sluicegate_host::strangers::Unwelcome;
use sluicegate_wire::quic::CLOSE_DONE;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A shard that serves.
#[derive(Debug)]
pub struct Serving {
    shard: Arc<Shard>,
    endpoint: Endpoint,
    tasks: Vec<JoinHandle<()>>,
}

/// Serves connections to an endpoint, on the runtime of the caller, until it is stopped. The
/// endpoint may be on any socket, real or simulated.
pub fn serve(shard: &Arc<Shard>, endpoint: Endpoint) -> Serving {
    let turns = tokio::spawn(Arc::clone(shard).run());
    let accepting = tokio::spawn(accept(Arc::clone(shard), endpoint.clone()));
    Serving { shard: Arc::clone(shard), endpoint, tasks: vec![turns, accepting] }
}

impl Serving {
    /// The shard.
    pub const fn shard(&self) -> &Arc<Shard> {
        &self.shard
    }

    /// Where it is reached.
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Hands the shard a reading of the memory pressure.
    pub fn pressure(&self, sample: Option<Sample>) {
        self.shard.pressure(sample);
    }

    /// Stops: no connection is accepted any more, clients are told to go away, what was admitted
    /// is delivered within `shutdown_grace_ms`, and every connection is closed.
    pub async fn stop(self) {
        self.endpoint.set_server_config(None);
        self.shard.stop();
        let grace = self.shard.look(|broker| broker.limits().shutdown_grace_ms);
        let farewell = self.shard.settings().farewell;
        let patience = Duration::from_millis(grace) + 2 * farewell;
        let empty = async {
            loop {
                let mut turned = std::pin::pin!(self.shard.turned().notified());
                turned.as_mut().enable();
                if !self.shard.has_peers() {
                    return;
                }
                turned.await;
            }
        };
        // Who has not taken its last bytes by then gets none any more.
        let _ = timeout(patience, empty).await;
        self.endpoint.close(VarInt::from_u32(CLOSE_DONE), b"shutdown");
        let _ = timeout(farewell, self.endpoint.wait_idle()).await;
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Accepts for ever. A handshake that fails, or takes its time, is nobody else's business.
async fn accept(shard: Arc<Shard>, endpoint: Endpoint) {
    let strangers = Arc::new(Strangers::default());
    let (most, most_each) = {
        let settings = shard.settings();
        (settings.max_handshakes, settings.max_strangers)
    };
    while let Some(incoming) = endpoint.accept().await {
        let address = incoming.remote_address().ip();
        let all = strangers.all();
        if all >= most || strangers.of(address) >= most_each {
            incoming.refuse();
            let key = if all >= most { "max_handshakes" } else { "max_handshakes_per_address" };
            shard.turn_away(address, Unwelcome::Crowded, key);
            continue;
        }
        if all >= most / 2 && incoming.may_retry() {
            // Only who is where it says it is goes on. It cannot fail: it may be asked to.
            let _ = incoming.retry();
            shard.note_retry();
            continue;
        }
        strangers.enter(address);
        let guest = Arc::clone(&strangers);
        let known = move || guest.leave(address);
        tokio::spawn(connection::serve(Arc::clone(&shard), incoming, known));
    }
}

/// Connections that have not said who they are, by address. Bounded by their number.
#[derive(Debug, Default)]
struct Strangers(Mutex<BTreeMap<IpAddr, u64>>);

impl Strangers {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<IpAddr, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> u64 {
        self.lock().values().sum()
    }

    fn of(&self, address: IpAddr) -> u64 {
        self.lock().get(&address).copied().unwrap_or(0)
    }

    fn enter(&self, address: IpAddr) {
        *self.lock().entry(address).or_default() += 1;
    }

    fn leave(&self, address: IpAddr) {
        let mut strangers = self.lock();
        if let Some(count) = strangers.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                strangers.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_counted_by_address_and_forgotten() {
        let strangers = Strangers::default();
        let [a, b] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        strangers.enter(a);
        strangers.enter(a);
        strangers.enter(b);
        assert_eq!((strangers.all(), strangers.of(a), strangers.of(b)), (3, 2, 1));
        strangers.leave(a);
        strangers.leave(a);
        assert_eq!((strangers.all(), strangers.of(a)), (1, 0));
        assert_eq!(strangers.lock().len(), 1);
    }
}
