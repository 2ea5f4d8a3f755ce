//! The client of the QUIC broker: one connection, one proof of who it is, any number of topics.
//!
//! ```no_run
//! use sluicegate_client::{Client, Event, Options, SubscribeOptions, Trust};
//!
//! # async fn run(fingerprint: [u8; 32]) -> Result<(), Box<dyn std::error::Error>> {
//! let options = Options::new(Trust::Fingerprint(fingerprint));
//! let client = Client::connect("quic://127.0.0.1:4433", options).await?;
//! let mut orders = client.subscribe("orders", SubscribeOptions::default()).await?;
//! let publisher = client.publisher("orders").await?;
//! let sequence = publisher.publish_acked("hello").await?;
//! if let Some(Ok(Event::Record { sequence: got, payload })) = orders.next().await {
//!     assert_eq!((got, &payload[..]), (sequence, &b"hello"[..]));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//!  publish ──▶ 1 window ──▶ 2 queue ──▶ worker ──▶ QUIC ──▶ broker
//!              bytes in     batches      one stream,
//!              flight       that wait    in order; 1 to 8 of both
//!
//!  next ◀── 7 inbox ◀── reader ◀── QUIC ◀── broker
//!           events        one stream
//!           that wait     per subscription
//! ```
//!
//! Nothing here is unbounded: what does not fit waits, or is refused or dropped by a policy and
//! counted. Every future may be dropped at any time; what it held is given back.

mod client;
mod error;
mod lane;
mod link;
mod options;
mod publishing;
mod state;
mod subscription;
mod topic;
mod transport;

pub use client::Client;
pub use error::{ConnectError, Disconnected, PublishError, Refusal, TopicError};
pub use options::{Options, Policy, Reconnect, Start, SubscribeOptions, TokenSource, Trust};
pub use publishing::Publisher;
pub use sluicegate_core::Policy as Queue;
pub use sluicegate_core::{Gap, Limits, Place, Reason};
pub use sluicegate_wire::quic::{Code, Retry};
pub use state::Stats;
pub use subscription::{Event, Subscription};
pub use transport::endpoint_config;
