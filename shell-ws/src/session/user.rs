//! Signing in: a client says who it is, with a signature of the app's server.

use super::Link;
use super::auth;
use super::subscribing::Client;
use crate::note::Name;
use crate::shard::Shard;
use sluicegate_core::{Lane, TenantId};
use sluicegate_wire::pusher::{self, MAX_WATCHLIST, close};
use std::sync::Arc;

/// A user that has signed in through a connection.
#[derive(Debug)]
pub(super) struct User {
    pub(super) id: Arc<str>,
    /// What it says of itself: JSON.
    pub(super) info: Arc<str>,
    watchlist: Vec<Arc<str>>,
}

/// The client wants to be somebody. Twice the same is fine; somebody else needs a connection of its
/// own.
pub(super) fn sign_in(
    shard: &mut Shard,
    link: Link,
    client: &mut Client,
    (token, user_data): (&str, &str),
) {
    match try_sign_in(shard, client, token, user_data) {
        Ok(cut) => {
            link.say(shard, &pusher::signin_success(user_data), Lane::InLine);
            if cut {
                let text = format!("watchlist: the first {MAX_WATCHLIST} users are watched");
                let code = Some(close::WATCHLIST_TRUNCATED);
                link.say(shard, &pusher::error(code, &text), Lane::InLine);
            }
            announce(shard, link, client);
        }
        // An error that closes nothing has no code from 4000 to 4299: clients would act on it.
        Err(text) => link.say(shard, &pusher::error(None, &text), Lane::InLine),
    }
}

/// Whether its watchlist was cut.
fn try_sign_in(
    shard: &Shard,
    client: &mut Client,
    token: &str,
    user_data: &str,
) -> Result<bool, String> {
    let app = shard.apps.by_tenant(client.tenant).ok_or("auth: not the key of this app")?;
    let text = pusher::signin_string_to_sign(&client.socket_id, user_data);
    auth::check_token(app, token, &text).map_err(|fault| fault.for_sign_in())?;
    let user = pusher::signed_in(user_data).map_err(|fault| fault.to_string())?;
    if let Some(known) = &client.user {
        if *known.id == *user.id {
            return Ok(false);
        }
        let text = format!(
            "this connection is signed in as {:?}: open another one for {:?}",
            known.id, user.id
        );
        return Err(text);
    }
    let watchlist = user.watchlist.iter().map(|id| id.as_str().into()).collect();
    let (id, info) = ((*user.id).into(), user.user_info.into());
    client.user = Some(User { id, info, watchlist });
    Ok(user.is_cut)
}

/// Tells the owners of those whom it concerns; a second time changes nothing for them.
fn announce(shard: &mut Shard, link: Link, client: &Client) {
    let Some(user) = &client.user else { return };
    let name = Name { tenant: client.tenant, text: Arc::clone(&user.id) };
    shard.sign(name, link.outlet, true);
    shard.watch(client.tenant, &user.watchlist, link.outlet, true);
}

/// The connection is ending: nobody is signed in through it any more.
pub(super) fn sign_out(shard: &mut Shard, link: Link, tenant: TenantId, user: User) {
    shard.watch(tenant, &user.watchlist, link.outlet, false);
    shard.sign(Name { tenant, text: user.id }, link.outlet, false);
}
