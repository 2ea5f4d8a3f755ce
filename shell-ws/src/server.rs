//! The process: one event loop per shard, each on a thread of its own.

use crate::config::Config;
use crate::directory::Board;
use crate::hooks::sender::Sender;
use crate::shard::Shard;
use crate::socket_id;
use crate::tls::Identity;
use crate::worker::{Letter, Listener, Parts, Worker};
use anyhow::{Context, Result, anyhow};
use mio::Poll;
use sluicegate_core::Broker;
use sluicegate_host::clock::Clock;
use sluicegate_host::cpu;
use sluicegate_host::mesh::{self, Port, Wake};
use sluicegate_host::node::Node;
use sluicegate_host::pool::SharedPool;
use sluicegate_host::tape;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// Letters that one loop may have on the way to all others together.
const LETTERS: usize = 4096;

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    workers: Vec<Worker>,
    node: Arc<Node>,
    board: Arc<Board>,
    address: SocketAddr,
    identity: Option<Arc<Identity>>,
    stop_sender: UnixStream,
}

/// Asks a server to stop. The first call begins the shutdown, the second one ends it at once.
#[derive(Debug)]
pub struct Stopper(UnixStream);

impl Stopper {
    /// Asks.
    pub fn stop(&mut self) -> io::Result<()> {
        self.0.write_all(b"!")
    }

    /// The writing end, for a signal handler: each byte is a call of [`stop`](Self::stop).
    pub fn into_inner(self) -> UnixStream {
        self.0
    }
}

impl Server {
    /// Listens on the configured address, once per event loop: which of them gets a connection is
    /// the kernel's choice.
    pub fn bind(config: Config) -> Result<Self> {
        let Config { mut address, apps, limits, settings, timing, tls, .. } = config;
        let identity = tls.map(Identity::load).transpose()?;
        let tls = identity.as_ref().map(Identity::config).transpose()?;
        let loops = u32::try_from(limits.shards).expect("a small range");
        let polls = (0..loops).map(|_| Poll::new().context("cannot make an event queue"));
        let polls = polls.collect::<Result<Vec<_>>>()?;
        let ports = ports(&polls)?;
        let node = Arc::new(Node::new(loops, ports[0].bells().clone()));
        let board = Arc::new(Board::new(loops, ports[0].bells().clone()));
        let pool = SharedPool::new(limits.memory_budget, loops);
        let (key, clock) = (socket_id::key(entropy), Clock::start());
        if loops > 1 {
            Listener::probe(address)?;
        }
        let (stop_sender, receiver) = UnixStream::pair().context("cannot make a pipe")?;
        let mut receiver = Some(receiver);
        let mut workers = Vec::new();
        for (poll, port) in polls.into_iter().zip(ports) {
            let listener = Listener::bind(address, loops > 1)?;
            // Who takes any free port shares the one that the first loop got.
            address = listener.address()?;
            let seed = entropy();
            let mut broker = Broker::shard(limits.clone(), seed, port.number());
            let (file, most_mib) = (&settings.tape, settings.tape_max_mib);
            let tape = tape::begin(file, most_mib, (port.number(), loops), &mut broker, seed);
            let tape = tape.map_err(|what| anyhow!(what))?;
            let mut shard = Shard::numbered(broker, apps.clone(), key)
                .map_err(|why| anyhow!("too many apps: the core answers {why:?}"))?;
            shard.settings = settings.clone();
            let (node, loan) = (Arc::clone(&node), (loops > 1).then(|| pool.loan()));
            let (board, stop) = (Arc::clone(&board), receiver.take());
            let parts = Parts { poll, port, node, board, loan, stop, clock };
            let mut worker = Worker::new(parts, shard, listener, &timing)?;
            if let Some(tls) = &tls {
                worker.secure(Arc::clone(tls));
            }
            tape.into_iter().for_each(|tape| worker.record(tape));
            workers.push(worker);
        }
        Ok(Self { workers, node, board, address, identity, stop_sender })
    }

    /// Tells apps' servers what happens, through this.
    pub fn tell(&mut self, hooks: &Sender) {
        self.workers.iter_mut().for_each(|worker| worker.tell(hooks.clone()));
    }

    /// Where it listens: with the real port.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where other apps are put up for the loops.
    pub fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }

    /// The certificate in force, where there is one.
    pub fn identity(&self) -> Option<Arc<Identity>> {
        self.identity.clone()
    }

    /// A handle that stops it.
    pub fn stopper(&self) -> io::Result<Stopper> {
        self.stop_sender.try_clone().map(Stopper)
    }

    /// Serves until it is stopped and everything that waited has been sent, or the grace is over.
    /// An event loop that fails stops all others; then this fails too.
    pub fn run(self) -> Result<()> {
        let cpus = processors(self.workers.len());
        let bodies = self.workers.into_iter().enumerate().map(|(number, worker)| {
            let cpu = cpus.get(number).copied();
            move || {
                pin(cpu);
                worker.run()
            }
        });
        supervise(bodies.collect(), &self.node)
    }
}

/// The ways between the loops, with bells that wake their event queues.
fn ports(polls: &[Poll]) -> Result<Vec<Port<Letter>>> {
    let wake = |poll: &Poll| -> Result<Wake> {
        let waker = mio::Waker::new(poll.registry(), Worker::WAKE)
            .context("cannot make a way to wake an event queue")?;
        Ok(Box::new(move || {
            if let Err(error) = waker.wake() {
                tracing::error!(%error, "an event loop cannot be woken");
            }
        }))
    };
    let wakes = polls.iter().map(wake).collect::<Result<Vec<_>>>()?;
    let room = (LETTERS / polls.len()).clamp(64, 1024);
    Ok(mesh::ports(wakes, room))
}

/// A processor for each loop if there are exactly as many: else the kernel knows better than we
/// where there is room, since other programs, and other servers like this one, run here too.
fn processors(loops: usize) -> Vec<usize> {
    match cpu::allowed() {
        Ok(cpus) if cpus.len() == loops => cpus,
        Ok(_) => Vec::new(),
        Err(error) => {
            tracing::warn!(%error, "cannot ask for the processors: the loops are not pinned");
            Vec::new()
        }
    }
}

fn pin(cpu: Option<usize>) {
    if let Some(cpu) = cpu
        && let Err(error) = cpu::pin(cpu)
    {
        tracing::warn!(cpu, %error, "an event loop cannot be pinned to a processor");
    }
}

/// Tells the others when a loop ends otherwise than it should, however that comes.
struct Watch {
    node: Arc<Node>,
    number: u32,
    is_sound: bool,
}

impl Watch {
    fn over(mut self, body: impl FnOnce() -> Result<()>) -> Result<()> {
        let result = body();
        self.is_sound = result.is_ok();
        result
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.is_sound {
            self.node.fail(self.number);
        }
    }
}

/// Runs each body on a thread and waits for all. The first error, or panic, is the result.
fn supervise<F>(bodies: Vec<F>, node: &Arc<Node>) -> Result<()>
where
    F: FnOnce() -> Result<()> + Send + 'static,
{
    let mut threads: Vec<JoinHandle<Result<()>>> = Vec::new();
    let mut result = Ok(());
    for (number, body) in (0..).zip(bodies) {
        let watch = Watch { node: Arc::clone(node), number, is_sound: false };
        let thread = thread::Builder::new().name(format!("loop-{number}"));
        let thread = thread.spawn(move || watch.over(body));
        match thread {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                result = result.and_then(|()| Err(error).context("cannot start a thread"));
            }
        }
    }
    for (number, thread) in threads.into_iter().enumerate() {
        let ended = thread.join().unwrap_or_else(|_| Err(anyhow!("event loop {number} panicked")));
        result = result.and(ended);
    }
    result
}

fn entropy() -> u64 {
    getrandom::u64().expect("the kernel's random numbers do not fail once it has booted")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Condvar, Mutex};

    type Body = Box<dyn FnOnce() -> Result<()> + Send>;

    /// A node whose second thread can wait until it is woken.
    fn node() -> (Arc<Node>, impl Fn(&Node) -> bool + Send) {
        let bell = Arc::new((Mutex::new(()), Condvar::new()));
        let rings = Arc::clone(&bell);
        let wakes: Vec<Wake> = vec![
            Box::new(|| {}),
            Box::new(move || {
                let _guard = rings.0.lock().unwrap();
                rings.1.notify_all();
            }),
        ];
        let node = Arc::new(Node::new(2, mesh::ports::<u32>(wakes, 1)[0].bells().clone()));
        let stopped = move |node: &Node| {
            let patience = std::time::Duration::from_secs(20);
            let guard = bell.0.lock().unwrap();
            let (_guard, late) =
                bell.1.wait_timeout_while(guard, patience, |()| node.stops() == 0).unwrap();
            !late.timed_out()
        };
        (node, stopped)
    }

    #[test]
    fn a_loop_that_panics_or_fails_stops_the_others_and_is_the_result() {
        for panics in [true, false] {
            let (node, stopped) = node();
            let seen = Arc::clone(&node);
            let bad: Body = Box::new(move || {
                assert!(!panics, "planted");
                Err(anyhow!("planted"))
            });
            let good: Body = Box::new(move || {
                assert!(stopped(&seen), "it was not told");
                Ok(())
            });
            let error = supervise(vec![bad, good], &node).unwrap_err().to_string();
            let expected = if panics { "event loop 0 panicked" } else { "planted" };
            assert_eq!(error, expected);
            assert!(!node.is_sound());
        }
    }

    #[test]
    fn an_event_loop_stops_when_another_one_panics() {
        let mut config = Config::development(([127, 0, 0, 1], 0).into()).unwrap();
        config.limits.shards = 2;
        let Server { mut workers, node, .. } = Server::bind(config).unwrap();
        drop(workers.pop());
        let sound = workers.pop().unwrap();
        let bodies: Vec<Body> = vec![Box::new(|| sound.run()), Box::new(|| panic!("planted"))];
        let error = supervise(bodies, &node).unwrap_err().to_string();
        assert_eq!(error, "event loop 1 panicked");
    }

    #[test]
    fn loops_that_end_well_are_a_good_end() {
        let (node, _) = node();
        let bodies: Vec<Body> = vec![Box::new(|| Ok(())), Box::new(|| Ok(()))];
        supervise(bodies, &node).unwrap();
        assert!(node.is_sound());
    }
}
