//! A drop-in Pusher Channels server: the protocol's rules, and one event loop that carries the
//! core's decisions over real sockets. Without the feature `server`, which is on by default, it is
//! the protocol alone: values without socket, clock and thread, for whoever drives them otherwise.
//!
//! | part | what it knows |
//! |---|---|
//! | [`account`] | looks into the books: all of them, one connection's, who loses most |
//! | [`apps`] | who may publish and connect: ids, keys, secrets |
//! | `directory` | which app has which place; how other apps come into force |
//! | `config` | flags and the configuration file |
//! | [`channels`], [`roster`] | who is in which channel, kept once by the loop that owns it |
//! | [`users`] | who is signed in, and who wants to know, kept once in the same way |
//! | [`counting`] | when subscribers are told how many they are |
//! | [`hooks`] | what an app's server is told, in which order, and what is given up |
//! | [`note`] | what loops tell each other of all that |
//! | [`session`] | the protocol, as values: bytes in, calls of the core out; no socket, no clock |
//! | [`settings`] | what the server is told about itself: the table of its keys |
//! | [`shard`] | what the sessions of one loop share: the core, the apps, who owns which outlet |
//! | [`socket_id`] | names of connections, which lead to their shard |
//! | `tls` | TLS over sockets that do not block; certificates that are read again |
//! | `worker` | one event loop: sockets, readiness, deadlines; the turn of the core |
//! | `reload` | the certificate and the apps, read again |
//! | `server` | all event loops: threads, listeners, the ways between them |
//! | `start` | the lines a user sees first |

pub mod account;
pub mod apps;
pub mod channels;
#[cfg(feature = "server")]
pub mod config;
pub mod counting;
#[cfg(feature = "server")]
pub mod directory;
pub mod hooks;
pub mod note;
#[cfg(feature = "server")]
pub mod reload;
pub mod roster;
#[cfg(feature = "server")]
pub mod server;
pub mod session;
pub mod settings;
pub mod shard;
pub mod socket_id;
#[cfg(feature = "server")]
pub mod start;
#[cfg(feature = "server")]
pub mod tls;
pub mod users;
#[cfg(feature = "server")]
pub mod worker;
