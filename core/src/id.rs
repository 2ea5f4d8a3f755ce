//! Typed, generational names for the things a host refers to.
//!
//! A stale id is answered [`Reason::Gone`](crate::Reason::Gone), never acted on.

use core::fmt;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident $word:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            pub(crate) index: u32,
            pub(crate) generation: u32,
        }

        impl $name {
            /// Rebuilds an id from [`to_bits`](Self::to_bits).
            pub fn from_bits(bits: u64) -> Self {
                let half = |bits: u64| u32::try_from(bits & 0xffff_ffff).expect("32 bits");
                Self { index: half(bits), generation: half(bits >> 32) }
            }

            /// The id as one number: generation in the high half, index in the low half.
            pub const fn to_bits(self) -> u64 {
                (self.generation as u64) << 32 | self.index as u64
            }

            /// The dense slot number; a later holder of the same slot has it too.
            pub const fn index(self) -> u32 {
                self.index
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($word, "#{}.{}"), self.index, self.generation)
            }
        }
    )*};
}

ids! {
    /// A peer's transport connection.
    ConnId "conn";
    /// One ordered pipe to a peer that can be full.
    OutletId "outlet";
    /// One subscription of one outlet to one topic.
    SubId "sub";
    /// Who shares the shard fairly with the others (a Pusher app).
    TenantId "tenant";
    /// One publish, from the verdict to its committed or failed notice.
    Ticket "ticket";
    /// A named, sequenced stream of records (a Pusher channel).
    TopicId "topic";
}

impl ConnId {
    /// No connection of this shard.
    pub(crate) const NOBODY: Self = Self { index: u32::MAX, generation: u32::MAX };
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn ids_print_and_survive_bits() {
        let id = ConnId { index: 17, generation: 3 };
        assert_eq!(format!("{id:?}"), "conn#17.3");
        assert_eq!(ConnId::from_bits(id.to_bits()), id);
    }
}
