//! The process: a thread, a runtime and an endpoint for each shard; threads for QUIC's drivers
//! where they are wanted; the admin pages.

use crate::admin;
use crate::config::Config;
use crate::drivers::Drivers;
use crate::identity::{self, Identity};
use crate::jwt::Jwt;
use crate::server::{self, Serving};
use crate::shard::{Shard, Ways};
use crate::transport::{self, Keys};
use anyhow::{Context, Result, anyhow};
use quinn::{Endpoint, ServerConfig, TokioRuntime};
use sluicegate_core::Broker;
use sluicegate_host::mesh::{self, Wake};
use sluicegate_host::node::Node;
use sluicegate_host::pool::SharedPool;
use sluicegate_host::psi::Pressure;
use sluicegate_host::tape;
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

/// What a socket asks of the kernel, each way; it gives what it allows.
const SOCKET_BUFFER: usize = 8 << 20;

/// Parcels on the way from one shard to another.
const PARCELS: usize = 1024;

/// How often the memory pressure is read.
const TICK: Duration = Duration::from_secs(1);

/// A process that serves.
#[derive(Debug)]
pub struct Process {
    /// Where it is reached.
    pub address: SocketAddr,
    /// Where its admin pages are.
    pub admin: SocketAddr,
    /// The certificate's SHA-256.
    pub fingerprint: String,
    config: Config,
    shards: Vec<Arc<Shard>>,
    endpoints: Vec<Endpoint>,
    drivers: Drivers,
    threads: Vec<JoinHandle<Result<()>>>,
    stop: watch::Sender<bool>,
}

impl Process {
    /// Listens and serves.
    ///
    /// # Errors
    /// When an address is taken, or a certificate cannot be used; each names the key.
    pub fn start(mut config: Config) -> Result<Self> {
        config.settings.jwt = Jwt::load(&config.jwt)?;
        let keys = identity::keys(&config.state_dir)?;
        let identity = load(&config)?;
        let fingerprint = identity.fingerprint();
        let server = server(&config, identity)?;
        let shards = shards(&config)?;
        let (stop, stops) = watch::channel(false);
        let admin =
            TcpListener::bind((config.admin_bind, config.admin_port)).with_context(|| {
                let (bind, port) = (config.admin_bind, config.admin_port);
                format!("admin_bind, admin_port: {bind}:{port} cannot be listened on")
            })?;
        let at = admin.local_addr().context("no address")?;
        let mut threads = vec![spawn("admin", {
            let (shards, stops) = (shards.clone(), stops.clone());
            move |runtime| runtime.block_on(admin::serve(admin, shards, stops))
        })?];
        let mut address = SocketAddr::new(config.bind, config.port);
        let mut endpoints = Vec::new();
        let drivers = Drivers::start(config.driver_threads, config.settings.farewell)?;
        for (number, shard) in shards.iter().enumerate() {
            let socket = socket(address, shards.len() > 1)?;
            // Who takes any free port shares the one that the first shard got.
            address = socket.local_addr().context("no address")?;
            let runtime = runtime()?;
            let place = drivers.place(number).unwrap_or_else(|| Arc::new(TokioRuntime));
            let endpoint = listen((&runtime, place), &keys, server.clone(), socket)?;
            endpoints.push(endpoint.clone());
            let (shard, stops) = (Arc::clone(shard), stops.clone());
            let body = move || {
                runtime.block_on(serve(shard, endpoint, stops));
                Ok(())
            };
            let name = format!("shard-{number}");
            let thread = thread::Builder::new().name(name).spawn(body);
            threads.push(thread.context("cannot start a thread")?);
        }
        let admin = at;
        Ok(Self { address, admin, fingerprint, config, shards, endpoints, drivers, threads, stop })
    }

    /// The shards.
    pub fn shards(&self) -> &[Arc<Shard>] {
        &self.shards
    }

    /// Drivers of endpoints and connections that run on threads of their own: for tests.
    pub fn driving(&self) -> usize {
        self.drivers.running()
    }

    /// Reads the certificate and the keys of signed tokens again, for connections that come from
    /// now on; those that are there stay.
    ///
    /// # Errors
    /// When one cannot be used: then that of before stays, and the failure is counted.
    pub fn reload(&self) -> Result<()> {
        let keys = self.config.settings.jwt.as_ref().map_or(Ok(()), Jwt::reload);
        let result = match (self.reload_certificate(), keys) {
            (Err(one), Err(other)) => Err(anyhow!("{one:#}; {other:#}")),
            (one, other) => one.and(other),
        };
        if result.is_err() {
            self.shards[0].note_failed_reload();
        }
        result
    }

    fn reload_certificate(&self) -> Result<()> {
        let server = server(&self.config, load(&self.config)?)?;
        for endpoint in &self.endpoints {
            endpoint.set_server_config(Some(server.clone()));
        }
        Ok(())
    }

    /// Stops: what was admitted is delivered within the grace.
    ///
    /// # Errors
    /// When a thread ended otherwise than it should.
    pub fn stop(self) -> Result<()> {
        // Nobody listens when all threads are gone.
        let _ = self.stop.send(true);
        let mut result = Ok(());
        for thread in self.threads {
            let name = thread.thread().name().unwrap_or("a thread").to_owned();
            let ended = thread.join().unwrap_or_else(|_| Err(anyhow!("{name} panicked")));
            result = result.and(ended);
        }
        drop(self.endpoints);
        let drivers = self.drivers.stop().map(|by_themselves| {
            if !by_themselves {
                tracing::warn!("connections were not over when their drivers were ended");
            }
        });
        result.and(drivers)
    }

    /// Whether a thread has ended before it was told to.
    pub fn has_failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished) || self.drivers.has_failed()
    }
}

fn load(config: &Config) -> Result<Identity> {
    match &config.tls {
        Some(files) => Identity::load(files),
        None => Identity::development(&config.state_dir),
    }
}

fn server(config: &Config, identity: Identity) -> Result<ServerConfig> {
    let is_local = config.bind.is_loopback();
    let transport = transport::transport(&config.settings, &config.limits, is_local);
    transport::server(identity.chain, identity.key, transport)
}

/// The shards, with ways between them where there are several.
///
/// # Errors
/// When one cannot be recorded that shall be.
fn shards(config: &Config) -> Result<Vec<Arc<Shard>>> {
    let count = u32::try_from(config.limits.shards).expect("a small range");
    let settings = Arc::new(config.settings.clone());
    let seed = getrandom::u64().expect("the kernel's random numbers do not fail after boot");
    let shard = |number, ways| {
        let mut broker = Broker::shard(config.limits.clone(), seed, number);
        let (file, most_mib) = (&config.tape, config.tape_max_mib);
        let tape = tape::begin(file, most_mib, (number, count), &mut broker, seed);
        let tape = tape.map_err(|what| anyhow!(what))?;
        let shard = Shard::new(broker, Arc::clone(&settings), ways);
        tape.into_iter().for_each(|tape| shard.record(tape));
        anyhow::Ok(shard)
    };
    if count == 1 {
        return Ok(vec![shard(0, None)?]);
    }
    // A bell needs its shard, and a shard its port: the bells find theirs when all are made.
    let made: Arc<OnceLock<Vec<Arc<Shard>>>> = Arc::default();
    let wakes = (0..count as usize).map(|number| -> Wake {
        let made = Arc::clone(&made);
        Box::new(move || {
            if let Some(shards) = made.get() {
                shards[number].wake();
            }
        })
    });
    let ports = mesh::ports(wakes.collect(), PARCELS);
    let node = Arc::new(Node::new(count, ports[0].bells().clone()));
    let pool = SharedPool::new(config.limits.memory_budget, count);
    let shards = ports.into_iter().map(|port| {
        let number = port.number();
        shard(number, Some(Ways { port, node: Arc::clone(&node), loan: pool.loan() }))
    });
    let shards = shards.collect::<Result<Vec<_>>>()?;
    made.set(shards.clone()).expect("they are made once");
    Ok(shards)
}

fn runtime() -> Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("cannot make a runtime")
}

fn spawn(
    name: &str,
    body: impl FnOnce(Runtime) -> Result<()> + Send + 'static,
) -> Result<JoinHandle<Result<()>>> {
    let runtime = runtime()?;
    let thread = thread::Builder::new().name(name.to_owned()).spawn(move || body(runtime));
    thread.context("cannot start a thread")
}

/// A UDP socket with large buffers: small ones lose packets by the hundred.
fn socket(address: SocketAddr, is_shared: bool) -> Result<UdpSocket> {
    let told = || format!("bind, port: {address} cannot be listened on");
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).with_context(told)?;
    if is_shared {
        socket.set_reuse_port(true).with_context(told)?;
    }
    // The kernel takes what it allows, and refuses nothing.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
    socket.set_nonblocking(true).with_context(told)?;
    socket.bind(&address.into()).with_context(told)?;
    let granted = (socket.recv_buffer_size().ok(), socket.send_buffer_size().ok());
    if let (Some(received), Some(sent)) = granted {
        tracing::info!(received, sent, wanted = SOCKET_BUFFER, "UDP socket buffers, in bytes");
    }
    Ok(socket.into())
}

fn listen(
    (runtime, place): (&Runtime, Arc<dyn quinn::Runtime>),
    keys: &Keys,
    server: ServerConfig,
    socket: UdpSocket,
) -> Result<Endpoint> {
    let _context = runtime.enter();
    let config = transport::endpoint(keys);
    Endpoint::new(config, Some(server), socket, place).context("the socket cannot be used for QUIC")
}

/// Serves until it is told to stop.
async fn serve(shard: Arc<Shard>, endpoint: Endpoint, mut stops: watch::Receiver<bool>) {
    let serving = server::serve(&shard, endpoint);
    let mut pressure = Pressure::find();
    let mut tick = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            biased;
            // An error means that the process was dropped.
            _ = stops.wait_for(|stop| *stop) => break,
            _ = tick.tick() => serving.pressure(pressure.sample()),
        }
    }
    Serving::stop(serving).await;
    shard.finish_tape();
}
