//! How a peer can be wrong, and what it is told.

use crate::access::Denied;
use sluicegate_wire::quic::{Code, Fault};
use std::fmt;

/// A peer has broken the protocol: its connection is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// Its bytes are no frame.
    Malformed(Fault),
    /// It did not say in time who it is.
    TimedOut,
    /// Nobody of that name, or the proof is wrong.
    Unauthenticated(Denied),
    /// What it has shown is worth nothing any more.
    Expired,
    /// A frame has no place where it came.
    Unexpected(&'static str),
    /// No version in common.
    Version {
        /// The oldest and the newest that it speaks.
        speaks: (u16, u16),
    },
}

impl From<Fault> for Wrong {
    fn from(fault: Fault) -> Self {
        Self::Malformed(fault)
    }
}

impl Wrong {
    pub(crate) const fn code(&self) -> Code {
        match self {
            Self::Malformed(_) => Code::Malformed,
            Self::TimedOut => Code::TimedOut,
            Self::Unauthenticated(_) => Code::Unauthenticated,
            Self::Expired => Code::Expired,
            Self::Unexpected(_) => Code::Unexpected,
            Self::Version { .. } => Code::Version,
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(fault) => write!(f, "{fault}"),
            Self::TimedOut => write!(f, "no whole hello came in time"),
            Self::Unauthenticated(denied) => write!(f, "{denied}"),
            Self::Expired => write!(f, "the token has expired (`exp`): get a new one"),
            Self::Unexpected(what) => write!(f, "{what}"),
            Self::Version { speaks: (oldest, newest) } => {
                let own = sluicegate_wire::quic::VERSION;
                write!(f, "the client speaks versions {oldest} to {newest}, the server {own}")
            }
        }
    }
}
