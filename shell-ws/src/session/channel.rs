//! Which channels are served, asked for each that a client subscribes to or a publisher names; and
//! what they keep.

use crate::apps::App;
use crate::settings::Settings;
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

/// What a channel keeps of an event of the app's server: cache channels the last one, or as many as
/// the app says. Of what subscribers and this server say, no channel keeps anything.
pub(super) fn keep(channel: &str, app: &App) -> Keep {
    match pusher::is_cache(channel) {
        true => Keep::Newest(NonZeroU32::new(app.rewind).unwrap_or(NonZeroU32::MIN)),
        false => Keep::No,
    }
}

/// Where a subscription starts: on a cache channel with the last event that it keeps, or with as
/// many as the client asked for.
pub(super) fn start(channel: &str, rewind: Option<u32>) -> Start {
    match pusher::is_cache(channel) {
        true => Start::Last(rewind.unwrap_or(1).into()),
        false => Start::Tail,
    }
}
