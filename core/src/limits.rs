//! Every number that can be configured: name, unit, range, default and what it does.
//!
//! The table is the only list of keys. Hosts read files and flags and call [`Limits::set`]; the
//! simulator does the same for a scenario's `[limits]`.

use core::fmt;

/// One configurable number.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The name in files, flags and messages.
    pub name: &'static str,
    /// What the number counts.
    pub unit: &'static str,
    /// Least value allowed.
    pub min: u64,
    /// Greatest value allowed.
    pub max: u64,
    /// The value when nothing is said.
    pub default: u64,
    /// What it does.
    pub help: &'static str,
}

/// A value that a key does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitError<'a> {
    /// No key has this name.
    Unknown(&'a str),
    /// The value is outside the key's range.
    Range {
        /// The key.
        name: &'static str,
        /// The value given.
        value: u64,
        /// Least value allowed.
        min: u64,
        /// Greatest value allowed.
        max: u64,
    },
    /// Two keys contradict each other.
    Less {
        /// The key that is too small.
        name: &'static str,
        /// Its value.
        value: u64,
        /// The least value the other key allows.
        least: u64,
        /// The other key.
        than: &'static str,
    },
}

impl fmt::Display for LimitError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "no limit is called `{name}`"),
            Self::Range { name, value, min, max } => {
                write!(f, "`{name}` is {value}, but must be between {min} and {max}")
            }
            Self::Less { name, value, least, than } => {
                write!(f, "`{name}` is {value}, but `{than}` needs it to be at least {least}")
            }
        }
    }
}

impl core::error::Error for LimitError<'_> {}

macro_rules! limits {
    ($($name:ident $unit:literal $min:expr, $max:expr, $default:expr; $help:literal)*) => {
        /// The numbers in force.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Limits {
            $(#[doc = concat!($help, " Unit: ", $unit, ".")] pub $name: u64,)*
        }

        /// Every key, in alphabetical order.
        pub const KEYS: &[Key] = &[$(Key {
            name: stringify!($name),
            unit: $unit,
            min: $min,
            max: $max,
            default: $default,
            help: $help,
        },)*];

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        impl Limits {
            /// The value of a key, if there is such a key.
            pub fn get(&self, name: &str) -> Option<u64> {
                match name {
                    $(stringify!($name) => Some(self.$name),)*
                    _ => None,
                }
            }

            fn slot(&mut self, name: &str) -> Option<&mut u64> {
                match name {
                    $(stringify!($name) => Some(&mut self.$name),)*
                    _ => None,
                }
            }
        }
    };
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

limits! {
    allow_block "0 or 1" 0, 1, 0;
        "Allows `block` subscriptions without lossless mode; they have a deadline then."
    band_dwell_ms "milliseconds" 0, 60_000, 100;
        "A memory band is kept at least this long before a milder one is entered."
    block_deadline_ms "milliseconds" 0, 86_400_000, 30_000;
        "How long a `block` subscription may hold its topic before it is ended; 0 is for ever, and \
         so is lossless mode."
    codel_interval_ms "milliseconds" 1, 600_000, 100;
        "How long a queue must stay above `codel_target_ms` before what is stale is dropped."
    codel_target_ms "milliseconds" 0, 60_000, 0;
        "The longest wait of a good queue; twice as much is stale in a bad one; 0 is off."
    control_reserve_bytes "bytes" KIB, 16 * MIB, 64 * KIB;
        "Room per outlet for control frames; commands are read no further when half of it is used."
    egress_batches "batches" 1, 1 << 20, 64;
        "With `egress_shed`, batches that may wait for a subscription whose peer is not reading."
    egress_bytes "bytes" KIB, 1 << 40, 256 * MIB;
        "Bytes handed out for one connection, in equal shares over its single outlets."
    egress_shed "0 or 1" 0, 1, 0;
        "Drops for a peer that is not reading at `egress_batches` and its share of `egress_bytes`."
    high_water_bytes "bytes" KIB, GIB, 256 * KIB;
        "What may wait for one shared outlet (a WebSocket), over all its subscriptions."
    lossless "0 or 1" 0, 1, 0;
        "Allows `block` subscriptions and lets unacked publishes wait instead of being shed."
    max_connections "connections" 1, 4_000_000, 100_000;
        "Connections of one shard."
    max_frame_bytes "bytes" KIB, 64 * MIB, 16 * MIB;
        "The largest frame a publish may carry."
    max_subscriptions "subscriptions" 1, 16_000_000, 1_000_000;
        "Subscriptions of one shard."
    max_topics "topics" 1, 4_000_000, 100_000;
        "Topics of one tenant; a topic nobody uses makes way for a new one."
    memory_budget "bytes" MIB, 1 << 44, GIB;
        "What all shards may hold in memory together; the bands of each start at 80 percent of \
         what it could have."
    mesh_depth "batches" 1, 1 << 20, 1024;
        "Batches that may wait for one other shard, besides those that `block` credit bounds."
    offer_batches "batches" 1, 1024, 16;
        "The most batches one offer hands to a transport."
    offer_bytes "bytes" KIB, 16 * MIB, 64 * KIB;
        "The most bytes one offer hands to a transport; a larger frame travels alone."
    pressure_threshold_percent "percent" 1, 100, 15;
        "Memory stall (`full avg10`) above which the memory budget is scaled down."
    pub_conn_inflight_bytes "bytes" KIB, GIB, 17 * MIB;
        "In-flight publish bytes of one connection."
    pub_inflight_bytes "bytes" KIB, 1 << 40, 64 * MIB;
        "In-flight publish bytes of the shard."
    pub_ingress_wait "0 or 1" 0, 1, 0;
        "Lets unacked publishes wait for room (`backpressure`) instead of being shed (`drop`)."
    pub_queue_depth "jobs" 1, 1 << 16, 64;
        "Publish jobs a tenant may always have queued, and never more than an equal share of \
         `pub_queue_total` between the tenants with work."
    pub_queue_total "jobs" 1, 1 << 16, 256;
        "Publish jobs queued in the shard, over all tenants."
    pub_tenant_inflight_bytes "bytes" KIB, 1 << 40, 64 * MIB;
        "In-flight publish bytes of one tenant."
    publish_inflight_bytes "bytes" KIB, GIB, 4 * MIB;
        "Publish bytes a client may have in flight, over all its workers."
    publish_queue_depth "publishes" 1, 1 << 16, 64;
        "Publishes that may be queued for one worker of a client."
    publish_queue_wait_ms "milliseconds" 1, 600_000, 2_000;
        "How long a publish that asked to wait may be parked before it is refused."
    publish_waiters "publishes" 1, 1 << 20, 1_024;
        "Publishes of a client that may wait for its window, and for each queue; more are refused."
    quantum_bytes "bytes" KIB, 64 * MIB, 64 * KIB;
        "Publish cost a tenant of weight 1 may run per turn of the fair rotation."
    retention_bytes "bytes" KIB, 1 << 40, MIB;
        "Bytes of a topic kept for subscriptions that start in the past."
    retention_ms "milliseconds" 1, 30 * 86_400_000, 3_600_000;
        "How long a topic keeps a record for subscriptions that start in the past."
    retention_records "records" 0, 1 << 24, 0;
        "Records of a topic kept for subscriptions that start in the past; 0 keeps none."
    shards "shards" 1, 64, 1;
        "Shards of the process, which share `memory_budget`."
    shutdown_grace_ms "milliseconds" 0, 3_600_000, 10_000;
        "How long queues may flush at shutdown before what is left is dropped."
    slow_consumer_after_ms "milliseconds" 0, 86_400_000, 30_000;
        "A peer at its limit whose transport takes no byte for so long is ended; 0 is never."
    subscription_batches "batches" 1, 1 << 20, 512;
        "Batches that may wait for one subscription with an outlet of its own."
    subscription_bytes "bytes" KIB, 1 << 40, 256 * MIB;
        "Bytes that may wait for one subscription with an outlet of its own."
    subscription_queue "events" 1, 1 << 20, 256;
        "Events of one subscription that a client keeps until its application takes them."
}

impl Limits {
    /// Sets one key. Ranges are checked here, contradictions in [`check`](Self::check).
    pub fn set<'a>(&mut self, name: &'a str, value: u64) -> Result<(), LimitError<'a>> {
        let key = KEYS.iter().find(|key| key.name == name).ok_or(LimitError::Unknown(name))?;
        if value < key.min || value > key.max {
            let Key { name, min, max, .. } = *key;
            return Err(LimitError::Range { name, value, min, max });
        }
        *self.slot(name).expect("the table and the struct have the same keys") = value;
        Ok(())
    }

    /// Whether the numbers fit together.
    pub fn check(&self) -> Result<(), LimitError<'static>> {
        for key in KEYS {
            let value = self.get(key.name).expect("the table and the struct have the same keys");
            if value < key.min || value > key.max {
                let Key { name, min, max, .. } = *key;
                return Err(LimitError::Range { name, value, min, max });
            }
        }
        let least = self.max_frame_bytes + 64 * KIB;
        for (name, value) in [
            ("pub_conn_inflight_bytes", self.pub_conn_inflight_bytes),
            ("pub_tenant_inflight_bytes", self.pub_tenant_inflight_bytes),
            ("pub_inflight_bytes", self.pub_inflight_bytes),
        ] {
            if value < least {
                return Err(LimitError::Less { name, value, least, than: "max_frame_bytes" });
            }
        }
        if self.codel_interval_ms <= self.codel_target_ms {
            let (name, value) = ("codel_interval_ms", self.codel_interval_ms);
            let (least, than) = (self.codel_target_ms + 1, "codel_target_ms");
            return Err(LimitError::Less { name, value, least, than });
        }
        Ok(())
    }

    /// Whether a subscription may hold its topic.
    pub(crate) const fn allows_block(&self) -> bool {
        self.allow_block == 1 || self.lossless == 1
    }

    /// Whether unacked publishes wait for room instead of being shed.
    pub(crate) const fn unacked_waits(&self) -> bool {
        self.pub_ingress_wait == 1 || self.lossless == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn defaults_fit_together_and_the_table_is_sorted() {
        Limits::default().check().unwrap();
        assert!(KEYS.windows(2).all(|pair| pair[0].name < pair[1].name));
        for key in KEYS {
            assert!((key.min..=key.max).contains(&key.default), "{}", key.name);
            assert_eq!(Limits::default().get(key.name), Some(key.default));
        }
    }

    #[test]
    fn a_value_at_the_edge_is_taken_and_one_beyond_is_not() {
        let mut limits = Limits::default();
        for key in KEYS {
            limits.set(key.name, key.min).unwrap();
            limits.set(key.name, key.max).unwrap();
            assert!(limits.set(key.name, key.max + 1).is_err(), "{}", key.name);
            if key.min > 0 {
                assert!(limits.set(key.name, key.min - 1).is_err(), "{}", key.name);
            }
        }
    }

    #[test]
    fn errors_name_the_key_the_value_and_the_range() {
        let mut limits = Limits::default();
        assert_eq!(limits.set("nosuch", 1).unwrap_err().to_string(), "no limit is called `nosuch`");
        assert_eq!(
            limits.set("lossless", 2).unwrap_err().to_string(),
            "`lossless` is 2, but must be between 0 and 1"
        );
        limits.set("pub_conn_inflight_bytes", 2048).unwrap();
        assert_eq!(
            limits.check().unwrap_err().to_string(),
            "`pub_conn_inflight_bytes` is 2048, but `max_frame_bytes` needs it to be at least \
             16842752"
        );
        limits = Limits { codel_target_ms: 100, ..Limits::default() };
        assert_eq!(
            limits.check().unwrap_err().to_string(),
            "`codel_interval_ms` is 100, but `codel_target_ms` needs it to be at least 101"
        );
        assert_eq!((limits.get("codel_target_ms"), limits.get("nosuch")), (Some(100), None));
        limits.offer_batches = 0;
        assert_eq!(
            limits.check().unwrap_err().to_string(),
            "`offer_batches` is 0, but must be between 1 and 1024"
        );
    }
}
