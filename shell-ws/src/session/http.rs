//! The HTTP side of a connection: pages, the publishing API, the upgrade to WebSocket.

use super::auth::Signed;
use super::rest::{self, Answer, Reply};
use super::websocket::WebSocket;
use super::{Link, MAX_BODY, Step, Wait};
use crate::shard::Shard;
use sluicegate_core::{Close, ConnId, Lane, OutletId, Pipe, Refusal, TenantId};
use sluicegate_host::metrics;
use sluicegate_wire::http::{self, Content, Head, PLAIN, Parse};
use sluicegate_wire::pusher::{self, close};
use sluicegate_wire::ws;

/// A connection that speaks HTTP.
#[derive(Debug, Default)]
pub(super) struct Http {
    /// The connection of the core that publishes, and for which tenant.
    source: Option<(TenantId, ConnId)>,
    /// Publishes of the present request that are admitted and not sequenced yet.
    pending: u32,
    /// Why one of them failed.
    failed: Option<Refusal>,
    /// Response bytes that the transport has not accepted yet.
    unsent: u64,
    keep_alive: bool,
    /// The present request was told to go on.
    continued: bool,
    /// A request was answered before.
    served: bool,
    /// A request has begun and is not whole.
    partial: bool,
}

impl Http {
    pub(super) fn receive(&mut self, shard: &mut Shard, link: Link, buf: &[u8]) -> Step {
        if self.pending > 0 || self.unsent > 0 {
            return Step::Blocked;
        }
        self.partial = !buf.is_empty();
        let head = match http::parse(buf) {
            Ok(Parse::Head(head)) => head,
            Ok(Parse::NeedMore) => return Step::Need(buf.len() + 1),
            Err(fault) => {
                link.send(shard, fault.response(), Lane::First);
                link.close(shard, Close::AfterFlush, Vec::new());
                return Step::Closing(buf.len());
            }
        };
        self.keep_alive = head.keep_alive && shard.is_ready;
        if let Some(upgrade) = head.upgrade {
            if head.content_length > 0 {
                self.keep_alive = false;
                let text = "a request that upgrades to WebSocket has no body: send it without \
                            Content-Length";
                self.reply(shard, link, &Reply::new(400, text));
                return Step::Closing(buf.len());
            }
            return upgrade_to_websocket(shard, link, &head, upgrade.key);
        }
        let whole = usize::try_from(head.content_length)
            .ok()
            .filter(|body| *body <= MAX_BODY)
            .map(|body| head.len + body);
        let Some(whole) = whole else {
            self.keep_alive = false;
            let text = format!("body of more than {MAX_BODY} bytes: send a shorter one");
            self.reply(shard, link, &Reply::new(413, text));
            return Step::Closing(buf.len());
        };
        if buf.len() < whole {
            if head.expect_continue && !self.continued {
                self.continued = true;
                self.send(shard, link, b"HTTP/1.1 100 Continue\r\n\r\n".to_vec());
            }
            return Step::Need(whole);
        }
        self.partial = false;
        self.continued = false;
        self.serve(shard, link, &head, &buf[head.len..whole]);
        if self.keep_alive || self.pending > 0 { Step::Used(whole) } else { Step::Closing(whole) }
    }

    fn serve(&mut self, shard: &mut Shard, link: Link, head: &Head<'_>, body: &[u8]) {
        match (route(head.path), head.method) {
            (Route::Events(id), "POST") => self.publish(shard, link, id, (head, body)),
            (Route::Health, "GET") => self.reply(shard, link, &Reply::new(200, "alive")),
            (Route::Metrics, "GET") => {
                let page = shard.metrics();
                let kind = metrics::CONTENT_TYPE;
                self.respond(
                    shard,
                    link,
                    http::response(200, kind, self.keep_alive, page.as_bytes()),
                );
            }
            (Route::Ready, "GET") if shard.is_ready => {
                self.reply(shard, link, &Reply::new(200, "ready"));
            }
            (Route::Ready, "GET") => {
                let text = "not ready: the server is being stopped";
                self.reply(shard, link, &Reply::new(503, text));
            }
            (Route::App(_), _) => {
                let text = "this address speaks WebSocket: connect with a Pusher client";
                self.reply(shard, link, &Reply::new(426, text).header("Upgrade", "websocket"));
            }
            (Route::Unknown, _) => {
                let text = "no such page; there are POST /apps/{id}/events, GET /health, \
                            GET /ready and GET /metrics";
                self.reply(shard, link, &Reply::new(404, text));
            }
            (route, method) => {
                let allowed = if matches!(route, Route::Events(_)) { "POST" } else { "GET" };
                // The response to HEAD has no body, so where the next one begins is not clear.
                self.keep_alive &= method != "HEAD";
                let text = format!("{method} is not served here: use {allowed}");
                self.reply(shard, link, &Reply::new(405, text).header("Allow", allowed));
            }
        }
    }

    fn publish(
        &mut self,
        shard: &mut Shard,
        link: Link,
        id: &str,
        (head, body): (&Head<'_>, &[u8]),
    ) {
        let Some((_, tenant)) = shard.apps.by_id(id) else {
            let text = "no app has this id: use one that the server is configured with";
            return self.reply(shard, link, &Reply::new(404, text));
        };
        let source = match self.open_source(shard, link, tenant) {
            Ok(source) => source,
            Err(why) => return self.reply(shard, link, &rest::refusal(why)),
        };
        let request = Signed { method: head.method, path: head.path, query: head.query, body };
        match rest::publish(shard, source, id, request) {
            Answer::Committing { jobs, failed } => {
                self.pending = jobs;
                self.failed = failed;
            }
            Answer::Reply(reply) => self.reply(shard, link, &reply),
        }
    }

    /// The connection that publishes for a tenant. A socket that changes tenants has one at a
    /// time.
    fn open_source(
        &mut self,
        shard: &mut Shard,
        link: Link,
        tenant: TenantId,
    ) -> Result<ConnId, Refusal> {
        if let Some((of, source)) = self.source {
            if of == tenant {
                return Ok(source);
            }
            self.leave(shard);
        }
        let source = shard.open_source(tenant, link.owner)?;
        self.source = Some((tenant, source));
        Ok(source)
    }

    /// A publish was sequenced, or failed. True when the connection is being closed.
    pub(super) fn committed(
        &mut self,
        shard: &mut Shard,
        link: Link,
        failed: Option<Refusal>,
    ) -> bool {
        debug_assert!(self.pending > 0, "only admitted publishes end");
        self.pending -= 1;
        self.failed = self.failed.or(failed);
        if self.pending > 0 {
            return false;
        }
        self.keep_alive &= shard.is_ready;
        match self.failed.take() {
            Some(why) => self.reply(shard, link, &rest::refusal(why)),
            None => self.respond(
                shard,
                link,
                http::response(200, "application/json", self.keep_alive, b"{}"),
            ),
        }
        !self.keep_alive
    }

    fn reply(&mut self, shard: &mut Shard, link: Link, reply: &Reply) {
        let body = format!("{}\n", reply.text);
        let header: Vec<(&str, &str)> =
            reply.header.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let content = Content { content_type: PLAIN, headers: &header, body: body.as_bytes() };
        self.respond(shard, link, http::response_with(reply.status, self.keep_alive, content));
    }

    fn respond(&mut self, shard: &mut Shard, link: Link, response: Vec<u8>) {
        self.served = true;
        self.send(shard, link, response);
        if !self.keep_alive {
            link.close(shard, Close::AfterFlush, Vec::new());
        }
    }

    fn send(&mut self, shard: &mut Shard, link: Link, bytes: Vec<u8>) {
        self.unsent += bytes.len() as u64;
        link.send(shard, bytes, Lane::First);
    }

    /// The transport accepted bytes. True when the next request can be read.
    pub(super) const fn written(&mut self, bytes: u64) -> bool {
        self.unsent = self.unsent.saturating_sub(bytes);
        bytes > 0 && self.unsent == 0 && self.pending == 0
    }

    pub(super) fn end_of_input(&mut self, shard: &mut Shard, link: Link) {
        if !self.partial {
            return link.close(shard, Close::AfterFlush, Vec::new());
        }
        self.keep_alive = false;
        self.reply(shard, link, &Reply::new(400, "the request ended before it was whole"));
    }

    /// A deadline ran out. False when nothing can be said any more.
    pub(super) fn timeout(&mut self, shard: &mut Shard, link: Link) -> bool {
        match self.wait() {
            Wait::Response => return false,
            Wait::Request if self.partial => {
                self.keep_alive = false;
                self.reply(shard, link, &Reply::new(408, "the request was not whole in time"));
            }
            _ => link.close(shard, Close::AfterFlush, Vec::new()),
        }
        true
    }

    pub(super) const fn wait(&self) -> Wait {
        if self.is_committing() || self.unsent > 0 {
            Wait::Response
        } else if self.partial || !self.served {
            Wait::Request
        } else {
            Wait::Idle
        }
    }

    pub(super) const fn is_committing(&self) -> bool {
        self.pending > 0
    }

    pub(super) const fn source(&self) -> Option<ConnId> {
        match self.source {
            Some((_, source)) => Some(source),
            None => None,
        }
    }

    /// Gives the publishing connection back; what it has published still runs.
    pub(super) fn leave(&mut self, shard: &mut Shard) {
        if let Some((_, source)) = self.source.take() {
            shard.broker.gone(source);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route<'a> {
    /// `/app/{key}`; `None` for any other path below `/app`.
    App(Option<&'a str>),
    /// `/apps/{id}/events`
    Events(&'a str),
    Health,
    Metrics,
    Ready,
    Unknown,
}

fn route(path: &str) -> Route<'_> {
    match path {
        "/health" => return Route::Health,
        "/metrics" => return Route::Metrics,
        "/ready" => return Route::Ready,
        "/app" => return Route::App(None),
        _ => {}
    }
    if let Some(key) = path.strip_prefix("/app/") {
        return Route::App(Some(key).filter(|key| !key.is_empty() && !key.contains('/')));
    }
    let id = path.strip_prefix("/apps/").and_then(|rest| rest.strip_suffix("/events"));
    match id {
        Some(id) if !id.is_empty() && !id.contains('/') => Route::Events(id),
        _ => Route::Unknown,
    }
}

/// Protocol versions that are served.
const PROTOCOLS: std::ops::RangeInclusive<u8> = 4..=7;

/// Switches first and refuses afterwards, with a close code: an HTTP error would make browsers'
/// clients try again for ever.
fn upgrade_to_websocket(shard: &mut Shard, link: Link, head: &Head<'_>, key: &str) -> Step {
    let hello = http::switching_protocols(key);
    let opened = admit(shard, head).and_then(|(tenant, protocol)| {
        let opened = shard.open(tenant, link.owner, Pipe::Shared);
        let full = |_| (close::OVER_CAPACITY, "the server is full, come back later".to_owned());
        opened.map(|ids| (ids, tenant, protocol)).map_err(full)
    });
    match opened {
        Ok(((conn, outlet), tenant, protocol)) => {
            let link = Link { conn, outlet, ..link };
            link.send(shard, hello, Lane::First);
            let socket_id = establish(shard, link, outlet);
            Step::Upgraded(head.len, link, WebSocket::new(tenant, protocol, socket_id))
        }
        Err((code, reason)) => {
            link.send(shard, hello, Lane::InLine);
            link.close_with(shard, Close::AfterFlush, code, &reason);
            Step::Closing(head.len)
        }
    }
}

/// Says the first word, and which name it gave.
fn establish(shard: &mut Shard, link: Link, outlet: OutletId) -> String {
    let socket_id = shard.name_socket(outlet);
    let text = pusher::connection_established(&socket_id, shard.activity_timeout);
    link.send(shard, ws::frame(ws::Opcode::Text, text.as_bytes()), Lane::First);
    socket_id
}

/// The tenant and the protocol version that a client asked for, or the code to close with.
fn admit(shard: &Shard, head: &Head<'_>) -> Result<(TenantId, u8), (u16, String)> {
    let Route::App(Some(key)) = route(head.path) else {
        return Err((close::PATH_NOT_FOUND, "connect to /app/{key}".to_owned()));
    };
    let Some((_, tenant)) = shard.apps.by_key(key) else {
        return Err((close::APP_UNKNOWN, "no app has this key".to_owned()));
    };
    let Some((_, protocol)) = http::pairs(head.query).find(|(name, _)| name == "protocol") else {
        let text = "no protocol version: add ?protocol=7 to the address";
        return Err((close::NO_PROTOCOL, text.to_owned()));
    };
    match protocol.parse() {
        Ok(version) if PROTOCOLS.contains(&version) => Ok((tenant, version)),
        _ => {
            let (first, last) = (PROTOCOLS.start(), PROTOCOLS.end());
            let text = format!("unsupported protocol version: use {first} to {last}");
            Err((close::UNSUPPORTED_PROTOCOL, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_routes() {
        for (path, expected) in [
            ("/app/key", Route::App(Some("key"))),
            ("/app", Route::App(None)),
            ("/app/", Route::App(None)),
            ("/app/key/more", Route::App(None)),
            ("/apps/1001/events", Route::Events("1001")),
            ("/apps//events", Route::Unknown),
            ("/apps/1/2/events", Route::Unknown),
            ("/apps/1001/event", Route::Unknown),
            ("/health", Route::Health),
            ("/health/", Route::Unknown),
            ("/", Route::Unknown),
            ("/application", Route::Unknown),
        ] {
            assert_eq!(route(path), expected, "{path}");
        }
    }
}
