//! Which channels are served, asked for each that a client subscribes to or a publisher names; and
//! what they keep.

use crate::config::settings::Settings;
use core::num::NonZeroU32;
use sluicegate_core::{Keep, Start};
use sluicegate_wire::pusher::{self, BadName};

/// Whether a channel is served: any that its name may be, and those of one user.
pub(super) fn check(channel: &str, settings: &Settings) -> Result<(), BadName> {
    let max = settings.max_channel_name;
    if channel.len() <= max && pusher::server_to_user(channel).is_some() {
        return Ok(());
    }
    pusher::check_channel(channel, max)
}

/// What a channel keeps of an event of the app's server: cache channels the last one. Of what
/// subscribers and this server say, no channel keeps anything.
pub(super) fn keep(channel: &str) -> Keep {
    if pusher::is_cache(channel) { Keep::Newest(NonZeroU32::MIN) } else { Keep::No }
}

/// Where a subscription starts: on a cache channel with what it keeps.
pub(super) fn start(channel: &str) -> Start {
    if pusher::is_cache(channel) { Start::Last(1) } else { Start::Tail }
}
