//! A network in memory for quinn: every datagram is a task that waits a random time, so that the
//! scheduler of the test decides about all orders. Runs on any runtime with tokio's interface.

use bytes::Bytes;
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, UdpPoller};
use sluicegate_core::Rand;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::time::Instant as Virtual;

/// Datagrams that wait for one socket; more are lost.
const ROOM: usize = 4096;

/// The network.
#[derive(Clone)]
pub(crate) struct Network(Arc<Mutex<Inner>>);

struct Inner {
    chance: Rand,
    /// Of a thousand datagrams so many are lost.
    loss: u64,
    /// The longest time on the way, in microseconds.
    delay: u64,
    /// Nothing arrives anywhere.
    is_cut: bool,
    mailboxes: BTreeMap<SocketAddr, Mailbox>,
    /// How many sockets there have been.
    lives: u64,
}

#[derive(Default)]
struct Mailbox {
    /// Which of the sockets that had this address: an older one hears nothing any more.
    life: u64,
    waiting: VecDeque<(SocketAddr, Bytes)>,
    reader: Option<Waker>,
}

impl Network {
    pub(crate) fn new(seed: u64, loss: u64, delay: Duration) -> Self {
        let delay = u64::try_from(delay.as_micros()).unwrap();
        Self(Arc::new(Mutex::new(Inner {
            chance: Rand::new(seed),
            loss,
            delay,
            is_cut: false,
            mailboxes: BTreeMap::new(),
            lives: 0,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// A socket of this address. A later one of the same address takes its place.
    pub(crate) fn socket(&self, address: SocketAddr) -> Arc<MemorySocket> {
        let mut inner = self.lock();
        inner.lives += 1;
        let life = inner.lives;
        inner.mailboxes.insert(address, Mailbox { life, ..Mailbox::default() });
        Arc::new(MemorySocket { network: self.clone(), address, life })
    }

    /// Nothing arrives anywhere, until it is mended.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.lock().is_cut = is_cut;
    }

    fn deliver(&self, (from, to): (SocketAddr, SocketAddr), datagram: Bytes) {
        let mut inner = self.lock();
        if inner.is_cut {
            return;
        }
        let Some(mailbox) = inner.mailboxes.get_mut(&to) else { return };
        if mailbox.waiting.len() < ROOM {
            mailbox.waiting.push_back((from, datagram));
        }
        if let Some(reader) = mailbox.reader.take() {
            drop(inner);
            reader.wake();
        }
    }
}

/// A socket on the network.
pub(crate) struct MemorySocket {
    network: Network,
    address: SocketAddr,
    life: u64,
}

impl fmt::Debug for MemorySocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySocket").field("address", &self.address).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct AlwaysWritable;

impl UdpPoller for AlwaysWritable {
    fn poll_writable(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncUdpSocket for MemorySocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(AlwaysWritable)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let way = (self.address, transmit.destination);
        let datagram = Bytes::copy_from_slice(transmit.contents);
        let (is_lost, micros) = {
            let mut inner = self.network.lock();
            let (loss, delay) = (inner.loss, inner.delay);
            (inner.chance.below(1000) < loss, inner.chance.below(delay + 1))
        };
        if !is_lost {
            let network = self.network.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_micros(micros)).await;
                network.deliver(way, datagram);
            });
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut inner = self.network.lock();
        let mailbox = inner.mailboxes.get_mut(&self.address);
        let Some(mailbox) = mailbox.filter(|mailbox| mailbox.life == self.life) else {
            return Poll::Pending;
        };
        let mut count = 0;
        for (buf, meta) in bufs.iter_mut().zip(meta) {
            let Some((addr, datagram)) = mailbox.waiting.pop_front() else { break };
            let len = datagram.len();
            buf[..len].copy_from_slice(&datagram);
            *meta = RecvMeta { addr, len, stride: len, ecn: None, dst_ip: None };
            count += 1;
        }
        if count > 0 {
            return Poll::Ready(Ok(count));
        }
        mailbox.reader = Some(context.waker().clone());
        Poll::Pending
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    fn may_fragment(&self) -> bool {
        false
    }
}

/// Tasks and timers of the runtime that the test runs on.
#[derive(Debug)]
pub(crate) struct TestRuntime;

impl Runtime for TestRuntime {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(Timer(Box::pin(tokio::time::sleep_until(at.into()))))
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        tokio::spawn(future);
    }

    fn wrap_udp_socket(&self, _: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Err(io::Error::other("there are no sockets of the kernel here"))
    }

    fn now(&self) -> Instant {
        Virtual::now().into()
    }
}

struct Timer(Pin<Box<tokio::time::Sleep>>);

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Timer")
    }
}

impl AsyncTimer for Timer {
    fn reset(mut self: Pin<&mut Self>, at: Instant) {
        self.0 = Box::pin(tokio::time::sleep_until(at.into()));
    }

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Future::poll(self.0.as_mut(), context)
    }
}
