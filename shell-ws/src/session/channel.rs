//! Which channels are served: asked for each that a client subscribes to or a publisher names.

use sluicegate_wire::pusher::{self, BadName, MAX_CHANNEL};

/// Why a channel is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unserved {
    /// Its name breaks the rules for names.
    BadName(BadName),
    /// Its name asks for what this server does not do.
    NotYet,
}

impl Unserved {
    /// A sentence for people, the same for subscribers and publishers.
    pub(super) fn text(self) -> String {
        match self {
            Self::BadName(fault) => fault.to_string(),
            Self::NotYet => "cache channels are not served yet: use a name without `cache-` in \
                             front"
                .to_owned(),
        }
    }
}

/// Whether a channel is served: those that keep nothing are, and those of one user.
pub(super) fn check(channel: &str) -> Result<(), Unserved> {
    if channel.len() <= MAX_CHANNEL && pusher::server_to_user(channel).is_some() {
        return Ok(());
    }
    pusher::check_channel(channel, MAX_CHANNEL).map_err(Unserved::BadName)?;
    if !pusher::is_cache(channel) { Ok(()) } else { Err(Unserved::NotYet) }
}
