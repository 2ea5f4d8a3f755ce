//! One shard of a publish/subscribe broker under overload, as a deterministic value.
//!
//! A host repeats one *turn*:
//!
//! ```text
//! broker.advance(now);                                  // time moves only here
//! /* commands and events: they only enqueue and answer */
//! let more = broker.step(work);                         // bounded: at most `work` deliveries
//! while let Some(effect) = broker.poll() {
//!     match effect {
//!         Effect::Notice(notice) => { /* close, pause, committed, gap … */ }
//!         Effect::Write(offer) => {
//!             let n = socket.write_vectored(broker.frames(offer));   // borrowed: no copy
//!             broker.sent(offer, n);                    // any count: what was begun stays pinned
//!         }
//!     }
//! }
//! /* sleep until broker.next_deadline() (which may be now) or an event */
//! ```
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod admission;
mod backlog;
mod broker;
pub mod client;
pub mod codel;
mod egress;
mod heavy;
mod id;
mod lag;
mod lease;
mod ledger;
pub mod limits;
pub mod list;
mod memory;
mod mesh;
#[cfg(test)]
mod model;
mod names;
mod notice;
mod peers;
pub mod pool;
pub mod pressure;
mod rand;
mod replay;
mod ring;
mod schedule;
mod shed;
pub mod slab;
mod time;
pub mod timer;
mod topic;
mod verdict;
mod writer;

pub use broker::{
    Backlog, Broker, Close, Damage, Effect, Frames, Input, Item, Items, Kind, Lane, Message, Offer,
    Outcome, Pipe, Progress, Recorder, Tape, Wish,
};
pub use id::{ConnId, OutletId, SubId, TenantId, Ticket, TopicId};
pub use ledger::{Books, Broken, SubBooks, Table, Tally, TopicBooks};
pub use limits::{LimitError, Limits};
pub use mesh::Parcel;
pub use notice::{Gap, Notice};
pub use pressure::{Factor, Sample};
pub use rand::Rand;
pub use replay::{Keep, Start};
#[doc(hidden)]
pub use schedule::Rotation;
pub use shed::Band;
pub use time::Instant;
pub use verdict::{Ack, Place, Policy, Reason, Refusal, Retry, Verdict};
