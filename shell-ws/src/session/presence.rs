//! Presence: a subscriber says who it is, and is told who else is there.
//!
//! What members are told of each other is sent in line with the channel's events and never
//! dropped: a connection with no room for it is given up.

use super::Link;
use super::websocket::No;
use crate::roster::{Change, MAX_USERS};
use crate::shard::Shard;
use sluicegate_core::{Lane, OutletId, TopicId};
use sluicegate_wire::pusher::{self, Member};
use sluicegate_wire::ws::{self, Opcode};

/// Whether somebody who says this of itself may come in.
pub(super) fn check(shard: &Shard, topic: Option<TopicId>, data: Option<&str>) -> Result<(), No> {
    let member = member(data)?;
    match topic.is_none_or(|topic| shard.rosters.has_room(topic, &member.user_id)) {
        true => Ok(()),
        false => {
            let text = format!("{MAX_USERS} users are in this channel, which is the most");
            Err(No::new("LimitReached", text, 403))
        }
    }
}

fn member(data: Option<&str>) -> Result<Member<'_>, No> {
    let bad = |text: String| No::new("BadMember", text, 400);
    let data = data.ok_or_else(|| bad("channel_data: missing, send it".to_owned()))?;
    pusher::member(data).map_err(|fault| bad(fault.to_string()))
}

/// A subscription to a presence channel is in force: its socket is told who is there, the others
/// are told of a new user. A socket that is in already is told again.
pub(super) fn join(
    shard: &mut Shard,
    link: Link,
    (topic, channel): (TopicId, &str),
    data: Option<&str>,
) {
    let is_in = shard.rosters.get(topic).is_some_and(|it| it.user_of(link.outlet).is_some());
    let mut added = None;
    if !is_in && let Ok(Member { user_id, user_info }) = member(data) {
        let user = (&*user_id, user_info);
        if shard.rosters.join((topic, channel), link.outlet, user) == Change::User {
            added = Some(pusher::member_added(channel, &user_id, user_info));
        }
    }
    let Some(roster) = shard.rosters.get(topic) else { return };
    link.say(shard, &pusher::presence_succeeded(channel, roster.members()), Lane::InLine);
    if let Some(text) = added {
        tell(shard, topic, link.outlet, &text);
    }
}

/// A socket is in a channel no more, if it was.
pub(super) fn leave(shard: &mut Shard, link: Link, topic: TopicId) {
    let Some(roster) = shard.rosters.get(topic) else { return };
    let channel = roster.channel().to_owned();
    if let Some((user_id, Change::User)) = shard.rosters.leave(topic, link.outlet) {
        tell(shard, topic, link.outlet, &pusher::member_removed(&channel, &user_id));
    }
}

/// Tells everybody in a channel but one. Cost: O(sockets in it).
fn tell(shard: &mut Shard, topic: TopicId, except: OutletId, text: &str) {
    let Some(roster) = shard.rosters.get(topic) else { return };
    let frame = bytes::Bytes::from(ws::frame(Opcode::Text, text.as_bytes()));
    for socket in roster.sockets().filter(|socket| *socket != except) {
        // Without room the connection is given up, and a notice says so.
        let _ = shard.broker.send(socket, frame.clone(), Lane::InLine);
    }
}
