//! Threads of their own for what drives QUIC: it receives and sends datagrams, and keeps the timers
//! of connections.
//!
//! A shard meets its drivers in the locks and wakers of quinn only: a turn writes into a stream
//! under the connection's lock, and a waker that comes from another thread puts an outlet into the
//! bell and rings it. It never takes the lock of the shard, which may be waiting for the one that
//! it holds.

use anyhow::{Context, Result, anyhow};
use quinn::{AsyncTimer, AsyncUdpSocket, TokioRuntime};
use std::convert::Infallible;
use std::io;
use std::net::UdpSocket;
use std::pin::Pin;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Threads for drivers; there may be none.
#[derive(Debug)]
pub(crate) struct Drivers(Vec<Driving>);

/// One thread.
#[derive(Debug)]
struct Driving {
    place: Arc<Place>,
    /// Each driver has a clone: when this one is gone, those that are left are counted out.
    alive: mpsc::Sender<Infallible>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<bool>,
}

/// A thread as quinn sees it.
#[derive(Debug)]
struct Place {
    handle: Handle,
    alive: mpsc::WeakSender<Infallible>,
}

impl Drivers {
    /// Starts so many threads. At their end, drivers have `patience` to end by themselves.
    ///
    /// # Errors
    /// When there is no room for a thread.
    pub(crate) fn start(count: u32, patience: Duration) -> Result<Self> {
        (0..count).map(|number| Driving::start(number, patience)).collect::<Result<_>>().map(Self)
    }

    /// Where the drivers of an endpoint and its connections run, by the number of its shard; none
    /// where there are no threads for them.
    pub(crate) fn place(&self, shard: usize) -> Option<Arc<dyn quinn::Runtime>> {
        let at = shard.checked_rem(self.0.len())?;
        Some(Arc::clone(&self.0[at].place) as Arc<dyn quinn::Runtime>)
    }

    /// Drivers that run, of endpoints and of connections.
    pub(crate) fn running(&self) -> usize {
        self.0.iter().map(|driving| driving.alive.strong_count() - 1).sum()
    }

    /// Whether a thread has ended before it was told to.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.iter().any(|driving| driving.thread.is_finished())
    }

    /// Ends the threads, once their endpoints are gone. Answers whether all drivers had ended by
    /// themselves; those that had not are dropped.
    ///
    /// # Errors
    /// When a thread ended otherwise than it should.
    pub(crate) fn stop(self) -> Result<bool> {
        let mut all = true;
        for Driving { alive, stop, thread, .. } in self.0 {
            drop(alive);
            // It listens until it is told.
            let _ = stop.send(());
            all &= thread.join().map_err(|_| anyhow!("a thread of drivers panicked"))?;
        }
        Ok(all)
    }
}

impl Driving {
    fn start(number: u32, patience: Duration) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime: Runtime = runtime.context("cannot make a runtime")?;
        // Nothing is ever sent.
        let (alive, mut ends) = mpsc::channel::<Infallible>(1);
        let (stop, told) = oneshot::channel();
        let place = Arc::new(Place { handle: runtime.handle().clone(), alive: alive.downgrade() });
        let body = move || {
            runtime.block_on(async {
                // An error means that the process was dropped.
                let _ = told.await;
                timeout(patience, ends.recv()).await.is_ok()
            })
        };
        let thread = thread::Builder::new().name(format!("drivers-{number}")).spawn(body);
        Ok(Self { place, alive, stop, thread: thread.context("cannot start a thread")? })
    }
}

impl quinn::Runtime for Place {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        let _context = self.handle.enter();
        TokioRuntime.new_timer(at)
    }

    fn spawn(&self, driver: Pin<Box<dyn Future<Output = ()> + Send>>) {
        // Too late when there is none any more: a connection without a driver is over.
        let Some(alive) = self.alive.upgrade() else { return };
        self.handle.spawn(async move {
            driver.await;
            drop(alive);
        });
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        let _context = self.handle.enter();
        TokioRuntime.wrap_udp_socket(socket)
    }

    fn now(&self) -> Instant {
        TokioRuntime.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quinn::{Endpoint, EndpointConfig};
    use std::net::Ipv4Addr;

    fn endpoint(drivers: &Drivers, shard: usize) -> Endpoint {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let place = drivers.place(shard).unwrap();
        Endpoint::new(EndpointConfig::default(), None, socket, place).unwrap()
    }

    #[test]
    fn the_drivers_of_endpoints_that_are_gone_end_by_themselves() {
        let drivers = Drivers::start(2, Duration::from_secs(600)).unwrap();
        let endpoints = [0, 1, 2].map(|shard| endpoint(&drivers, shard));
        assert_eq!((drivers.running(), drivers.has_failed()), (3, false));
        drop(endpoints);
        assert!(drivers.stop().unwrap(), "one was still there");
    }

    #[test]
    fn a_driver_that_does_not_end_is_dropped_with_its_thread() {
        let drivers = Drivers::start(1, Duration::from_millis(1)).unwrap();
        let endpoint = endpoint(&drivers, 7);
        let address = endpoint.local_addr().unwrap();
        assert!(!drivers.stop().unwrap(), "its endpoint is not gone");
        drop(endpoint);
        UdpSocket::bind(address).unwrap();
    }

    #[test]
    fn drivers_of_the_shards_are_dealt_out_to_the_threads() {
        let drivers = Drivers::start(2, Duration::from_secs(600)).unwrap();
        let names = [0, 1, 2].map(|shard| {
            let (tell, told) = oneshot::channel();
            let name = || thread::current().name().map(str::to_owned);
            let driver = async move { tell.send(name()).unwrap() };
            drivers.place(shard).unwrap().spawn(Box::pin(driver));
            told.blocking_recv().unwrap().unwrap()
        });
        assert_eq!(names, ["drivers-0", "drivers-1", "drivers-0"]);
        assert!(drivers.stop().unwrap());
    }

    #[test]
    fn without_threads_there_is_no_place() {
        let drivers = Drivers::start(0, Duration::ZERO).unwrap();
        assert!(drivers.place(0).is_none() && drivers.stop().unwrap());
    }
}
