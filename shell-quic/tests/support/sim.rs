//! UDP over a simulated network, for quinn: virtual time, seeded loss.

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use sluicegate_core::Rand;
use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use turmoil::net::UdpSocket;

type Readable = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

/// What was sent: when, from where, how much, and whether it was lost. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace(Arc<Mutex<u64>>);

impl Trace {
    /// Equal for equal runs.
    pub(crate) fn hash(&self) -> u64 {
        *self.0.lock().unwrap()
    }

    fn add(&self, numbers: [u64; 3]) {
        let mut hash = self.0.lock().unwrap();
        for number in numbers {
            // FNV-1a, on words.
            *hash = (*hash ^ number).wrapping_mul(0x100_0000_01b3);
        }
    }
}

/// One host's socket.
pub(crate) struct SimSocket {
    io: Arc<UdpSocket>,
    /// Holds the socket's receive lock while somebody waits.
    readable: Mutex<Option<Readable>>,
    chance: Mutex<Rand>,
    /// Datagrams lost, of a thousand sent.
    loss: u64,
    address: SocketAddr,
    trace: Trace,
}

impl SimSocket {
    /// On a host of the simulation; of a thousand datagrams it loses `loss`.
    pub(crate) async fn bind(
        port: u16,
        (seed, loss): (u64, u64),
        trace: &Trace,
    ) -> io::Result<Arc<Self>> {
        let trace = trace.clone();
        let io = Arc::new(UdpSocket::bind((IpAddr::from(Ipv4Addr::UNSPECIFIED), port)).await?);
        let address = io.local_addr()?;
        let (readable, chance) = (Mutex::new(None), Mutex::new(Rand::new(seed)));
        Ok(Arc::new(Self { io, readable, chance, loss, address, trace }))
    }

    fn drain(&self, bufs: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]) -> io::Result<usize> {
        let mut count = 0;
        for (buf, meta) in bufs.iter_mut().zip(meta) {
            match self.io.try_recv_from(buf) {
                Ok((len, addr)) => {
                    *meta = RecvMeta { addr, len, stride: len, ecn: None, dst_ip: None };
                    count += 1;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }
}

impl fmt::Debug for SimSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimSocket").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The simulated network takes a datagram at any time.
#[derive(Debug)]
struct AlwaysWritable;

impl UdpPoller for AlwaysWritable {
    fn poll_writable(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncUdpSocket for SimSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(AlwaysWritable)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let is_lost = self.chance.lock().unwrap().below(1000) < self.loss;
        let at = u64::try_from(turmoil::elapsed().as_nanos()).unwrap_or(u64::MAX);
        let len = transmit.contents.len() as u64;
        self.trace.add([at, len, u64::from(is_lost)]);
        if is_lost {
            return Ok(());
        }
        self.io.try_send_to(transmit.contents, transmit.destination).map(|_| ())
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut readable = self.readable.lock().unwrap();
        loop {
            if readable.is_none() {
                let count = self.drain(bufs, meta)?;
                if count > 0 {
                    return Poll::Ready(Ok(count));
                }
                let io = Arc::clone(&self.io);
                *readable = Some(Box::pin(async move { io.readable().await }));
            }
            let waiting = readable.as_mut().expect("it was put there");
            ready!(waiting.as_mut().poll(context))?;
            *readable = None;
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    fn may_fragment(&self) -> bool {
        false
    }
}
