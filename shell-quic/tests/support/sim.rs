//! UDP over a simulated network, for quinn: virtual time, seeded loss.

use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
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

/// One host's socket.
pub(crate) struct SimSocket {
    io: Arc<UdpSocket>,
    /// Holds the socket's receive lock while somebody waits.
    readable: Mutex<Option<Readable>>,
    chance: Mutex<Rand>,
    /// Datagrams lost, of a thousand sent.
    loss: u64,
    address: SocketAddr,
}

impl SimSocket {
    /// On a host of the simulation; of a thousand datagrams it loses `loss`.
    pub(crate) async fn bind(port: u16, seed: u64, loss: u64) -> io::Result<Arc<Self>> {
        let io = Arc::new(UdpSocket::bind((IpAddr::from(Ipv4Addr::UNSPECIFIED), port)).await?);
        let address = io.local_addr()?;
        let (readable, chance) = (Mutex::new(None), Mutex::new(Rand::new(seed)));
        Ok(Arc::new(Self { io, readable, chance, loss, address }))
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
        let _: Option<EcnCodepoint> = transmit.ecn;
        if self.chance.lock().unwrap().below(1000) < self.loss {
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
