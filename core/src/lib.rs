//! One shard of a publish/subscribe broker under overload, as a deterministic value.
//!
//! A host repeats one *turn*:
//!
//! ```text
//! broker.advance(now);                                  // time moves only here
//! /* commands and events: they only enqueue and answer */
//! let more = broker.step(work);                         // bounded: at most `work` deliveries
//! loop {
//!     while let Some(notice) = broker.poll_notice() { /* close, pause, committed, gap … */ }
//!     let Some(offer) = broker.poll_ready() else { break };
//!     let n = socket.write_vectored(broker.frames(offer));   // borrowed: no copy
//!     broker.sent(offer, n);                            // any count: what was begun stays pinned
//! }
//! /* sleep until broker.next_deadline() or an event; not at all when `step` said More */
//! ```
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod broker;
mod id;
mod ledger;
pub mod limits;
pub mod list;
mod names;
mod notice;
pub mod pressure;
mod rand;
mod shed;
pub mod slab;
mod time;
pub mod timer;
mod verdict;

pub use broker::{Backlog, Broker, Close, Lane, Message, Offer, Pipe, Progress, Wish};
pub use id::{ConnId, OutletId, SubId, TenantId, Ticket, TopicId};
pub use ledger::{Books, Broken, SubBooks, Table, Tally, TopicBooks};
pub use limits::{LimitError, Limits};
pub use notice::{Gap, Notice};
pub use pressure::{Factor, Sample};
pub use rand::Rand;
pub use shed::Band;
pub use time::Instant;
pub use verdict::{Ack, Place, Policy, Reason, Refusal, Retry, Verdict};
