//! The HTTP side of a connection: pages, the publishing API, the upgrade to WebSocket.

use super::auth::Signed;
use super::fallback;
use super::fallback::{Exchange, MAX_SEND, Part, Post, Verb};
use super::query::{self, Gather};
use super::rest::{self, Answer, Form, Reply};
use super::route::{Api, PAGES, Route, route};
use super::websocket::WebSocket;
use super::{Link, Step, Wait};
use crate::apps::Seat;
use crate::note::{self, Asker};
use crate::shard::Shard;
use sluicegate_core::{Close, ConnId, Lane, Pipe, Refusal, TenantId};
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
    /// What the present request asks others: asked when its publishes are sequenced.
    asked: Option<Gather>,
    /// The present request publishes in the deprecated form, whose success is 202.
    is_accepted: bool,
    /// Numbers the requests.
    request: u64,
    /// Response bytes that the transport has not accepted yet.
    unsent: u64,
    /// What the present request of the fallback is at.
    exchange: Exchange,
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
        if self.is_carrying() && buf.len() < http::MAX_HEAD {
            // Nothing is expected. Whether the client is still there is found out by reading.
            return Step::Need(buf.len() + 1);
        }
        if self.is_busy() || self.unsent > 0 {
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
            .filter(|body| *body <= shard.settings.max_body())
            .map(|body| head.len + body);
        let Some(whole) = whole else {
            self.keep_alive = false;
            let text = format!(
                "body of more than {} bytes: send a shorter one",
                shard.settings.max_body()
            );
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
        if self.keep_alive || self.is_busy() { Step::Used(whole) } else { Step::Closing(whole) }
    }

    fn serve(&mut self, shard: &mut Shard, link: Link, head: &Head<'_>, body: &[u8]) {
        let route = route(shard.settings.strip(head.path));
        match (route, head.method) {
            (Route::Api(id, api), method) if method == api.method() => {
                self.call(shard, link, (id, &api), (head, body));
            }
            (Route::Health, "GET") => self.reply(shard, link, &Reply::new(200, "alive")),
            (Route::Ledger, "GET") => self.look(shard, link, Gather::sheet()),
            (Route::LedgerOf(socket_id), "GET") => match Gather::account(shard, socket_id) {
                Some(gather) => self.look(shard, link, gather),
                None => self.reply(shard, link, &Reply::new(404, query::NO_CONNECTION)),
            },
            (Route::Metrics, "GET") => self.look(shard, link, Gather::metrics()),
            (Route::Ready, "GET") if shard.is_ready => {
                self.reply(shard, link, &Reply::new(200, "ready"));
            }
            (Route::Ready, "GET") => {
                let text = "not ready: the server is being stopped";
                self.reply(shard, link, &Reply::new(503, text));
            }
            (Route::Fallback(name, verb), "POST") => {
                self.post(shard, link, Post::new(name, verb, head, body));
            }
            (Route::Fallback(..), "OPTIONS") => self.preflight(shard, link),
            (Route::App(_), _) => {
                let text = "this address speaks WebSocket: connect with a Pusher client";
                self.reply(shard, link, &Reply::new(426, text).header("Upgrade", "websocket"));
            }
            (Route::Unknown, _) => self.reply(shard, link, &Reply::new(404, PAGES)),
            (route, method) => {
                let allowed = match &route {
                    Route::Api(_, api) => api.method(),
                    Route::Fallback(..) => "POST",
                    _ => "GET",
                };
                // The response to HEAD has no body, so where the next one begins is not clear.
                self.keep_alive &= method != "HEAD";
                let text = format!("{method} is not served here: use {allowed}");
                self.reply(shard, link, &Reply::new(405, text).header("Allow", allowed));
            }
        }
    }

    /// A whole request of the fallback: what it is answered, the host knows.
    fn post(&mut self, shard: &mut Shard, link: Link, post: Post) {
        if post.verb == Verb::Send && post.body.len() > MAX_SEND {
            let text = format!("a body of more than {MAX_SEND} bytes: send less at once\n");
            return self.part(shard, link, Part::Whole(413, text.into_bytes()));
        }
        self.exchange = Exchange::Asked(Box::new(post));
    }

    /// Browsers ask before they post JSON to another origin.
    fn preflight(&mut self, shard: &mut Shard, link: Link) {
        let head =
            http::response_head(204, self.keep_alive, http::Length::None, fallback::PREFLIGHT);
        self.respond(shard, link, head);
    }

    /// A part of the response to the present request of the fallback.
    pub(super) fn part(&mut self, shard: &mut Shard, link: Link, part: Part) {
        let is_chunked = self.exchange.is_chunked();
        let mut out = Vec::new();
        match part {
            Part::Begin { chunked, bytes } => {
                self.keep_alive &= shard.is_ready && chunked;
                self.exchange = Exchange::Streams { chunked };
                out = fallback::stream_head(self.keep_alive, chunked);
                fallback::put(&mut out, chunked, &bytes);
                self.send(shard, link, out);
            }
            Part::More(bytes) => {
                fallback::put(&mut out, is_chunked, &bytes);
                self.send(shard, link, out);
            }
            Part::End(bytes) => {
                fallback::put(&mut out, is_chunked, &bytes);
                if is_chunked {
                    out.extend_from_slice(http::LAST_CHUNK);
                }
                self.end_exchange(shard, link, out);
            }
            Part::Whole(status, body) => {
                let keep_alive = self.keep_alive && shard.is_ready;
                self.end_exchange(shard, link, fallback::whole(status, keep_alive, &body));
            }
        }
    }

    fn end_exchange(&mut self, shard: &mut Shard, link: Link, last: Vec<u8>) {
        self.exchange = Exchange::None;
        self.keep_alive &= shard.is_ready;
        self.respond(shard, link, last);
    }

    /// What the present request of the fallback asks, once: then the host answers it, part by part.
    pub(super) fn take_post(&mut self) -> Option<Box<Post>> {
        match std::mem::replace(&mut self.exchange, Exchange::Waits) {
            Exchange::Asked(post) => Some(post),
            other => {
                self.exchange = other;
                None
            }
        }
    }

    /// Goes on with a request of the fallback that another shard has read.
    pub(super) fn resume(&mut self, keep_alive: bool) {
        self.exchange = Exchange::Waits;
        self.keep_alive = keep_alive;
        self.served = true;
    }

    /// Whether a request of the fallback is being answered.
    pub(super) const fn is_carrying(&self) -> bool {
        !matches!(self.exchange, Exchange::None)
    }

    /// Whether the next part of its response can be made.
    pub(super) const fn can_carry(&self) -> bool {
        self.is_carrying() && self.unsent == 0
    }

    /// Whether it stays open after the response, as far as is known.
    pub(super) const fn keeps_alive(&self) -> bool {
        self.keep_alive
    }

    /// Asks for something that needs no signature.
    fn look(&mut self, shard: &mut Shard, link: Link, gather: Gather) {
        self.request += 1;
        self.asked = Some(gather);
        self.ask(shard, link);
    }

    fn call(
        &mut self,
        shard: &mut Shard,
        link: Link,
        (id, api): (&str, &Api<'_>),
        (head, body): (&Head<'_>, &[u8]),
    ) {
        let Some((_, tenant)) = shard.apps.by_id(id) else {
            let text = "no app has this id: use one that the server is configured with";
            return self.reply(shard, link, &Reply::new(404, text));
        };
        if shard.apps.by_id(id).is_some_and(|(app, _)| !app.enabled) {
            return self.reply(shard, link, &Reply::new(403, "this app is switched off"));
        }
        self.request += 1;
        let stripped = shard.settings.strip(head.path);
        let Head { method, path, query, .. } = *head;
        let request = Signed { method, path, stripped, query, body };
        let Some(form) = Form::of(api) else {
            match query::ask(shard, id, api, request) {
                Ok(asked) => {
                    self.asked = Some(asked);
                    self.ask(shard, link);
                }
                Err(reply) => self.reply(shard, link, &reply),
            }
            return;
        };
        self.is_accepted = matches!(form, Form::Channel(_));
        let source = match self.open_source(shard, link, tenant) {
            Ok(source) => source,
            Err(why) => {
                shard.process.refused_calls += 1;
                return self.reply(shard, link, &rest::refusal(why));
            }
        };
        match rest::publish(shard, source, (id, form), request) {
            Answer::Committing { jobs, failed, asked } => {
                self.pending = jobs;
                self.failed = failed;
                self.asked = asked;
            }
            Answer::Reply(reply) => self.reply(shard, link, &reply),
        }
    }

    /// Asks what the request wants to know; answers when there is nothing to wait for.
    fn ask(&mut self, shard: &mut Shard, link: Link) {
        let shard_number = shard.number();
        let asker =
            Asker { shard: shard_number, socket: link.owner, request: self.request, index: 0 };
        if self.asked.as_mut().is_some_and(|asked| asked.start(shard, asker)) {
            self.tell(shard, link);
        }
    }

    /// Responds with what was asked for, or with nothing.
    fn tell(&mut self, shard: &mut Shard, link: Link) {
        self.keep_alive &= shard.is_ready;
        let status = if self.is_accepted { 202 } else { 200 };
        let nothing = || (status, "application/json", "{}".to_owned());
        let (status, kind, body) = self.asked.take().map_or_else(nothing, Gather::response);
        self.respond(shard, link, http::response(status, kind, self.keep_alive, body.as_bytes()));
    }

    /// Somebody answers a question. True when the connection is being closed.
    pub(super) fn answered(
        &mut self,
        shard: &mut Shard,
        link: Link,
        (request, index): (u64, u32),
        answer: note::Answer,
    ) -> bool {
        if request != self.request {
            return false;
        }
        let Some(asked) = &mut self.asked else { return false };
        if !asked.take(index, answer) {
            return false;
        }
        self.tell(shard, link);
        !self.keep_alive
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
        match (self.failed.take(), &self.asked) {
            (Some(why), _) => {
                self.asked = None;
                self.reply(shard, link, &rest::refusal(why));
            }
            (None, None) => self.tell(shard, link),
            (None, Some(_)) => self.ask(shard, link),
        }
        !self.is_busy() && !self.keep_alive
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
        bytes > 0 && self.unsent == 0 && !self.is_answering()
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
        if self.is_carrying() {
            Wait::Carry
        } else if self.is_busy() || self.unsent > 0 {
            Wait::Response
        } else if self.partial || !self.served {
            Wait::Request
        } else {
            Wait::Idle
        }
    }

    /// Whether a request is being answered: others have to say something first.
    pub(super) const fn is_busy(&self) -> bool {
        self.is_answering() || self.is_carrying()
    }

    /// Whether a request of the API or for a page is being answered.
    const fn is_answering(&self) -> bool {
        self.pending > 0 || self.asked.is_some()
    }

    pub(super) const fn source(&self) -> Option<ConnId> {
        match self.source {
            Some((_, source)) => Some(source),
            None => None,
        }
    }

    /// Other apps are served. What publishes for one that is not ends, unless it is just answering.
    pub(super) fn apps_changed(&mut self, shard: &mut Shard) {
        let is_gone = |(tenant, _)| shard.apps.by_tenant(tenant).is_none();
        if self.source.is_some_and(is_gone) && !self.is_busy() {
            self.leave(shard);
        }
    }

    /// Gives the publishing connection back; what it has published still runs.
    pub(super) fn leave(&mut self, shard: &mut Shard) {
        if let Some((_, source)) = self.source.take() {
            shard.broker.gone(source);
        }
    }
}

/// Protocol versions that are served.
const PROTOCOLS: std::ops::RangeInclusive<u8> = 4..=7;

/// Switches first and refuses afterwards, with a close code: an HTTP error would make browsers'
/// clients try again for ever.
fn upgrade_to_websocket(shard: &mut Shard, link: Link, head: &Head<'_>, key: &str) -> Step {
    let hello = http::switching_protocols(key);
    let key = match route(shard.settings.strip(head.path)) {
        Route::App(key) => key,
        _ => None,
    };
    match open(shard, link.owner, key, (head.query, head.origin)) {
        Ok((link, admitted)) => {
            link.send(shard, hello, Lane::First);
            Step::Upgraded(head.len, link, Box::new(establish(shard, link, admitted)))
        }
        Err((code, reason)) => {
            link.send(shard, hello, Lane::InLine);
            link.close_with(shard, Close::AfterFlush, code, &reason);
            Step::Closing(head.len)
        }
    }
}

/// A connection of the core for a client that comes in, or the code to close with. `asked`: its
/// query, and the page that it is of.
pub(super) fn open(
    shard: &mut Shard,
    owner: u64,
    key: Option<&str>,
    asked: (&str, Option<&str>),
) -> Result<(Link, Admitted), (u16, String)> {
    let admitted = admit(shard, key, asked)?;
    let welcome = shard.broker.welcome();
    let opened = welcome.and_then(|()| shard.open(admitted.tenant, owner, Pipe::Shared));
    let full = |_| (close::OVER_CAPACITY, "the server is full, come back later".to_owned());
    let (conn, outlet) = opened.map_err(full)?;
    Ok((Link { owner, conn, outlet }, admitted))
}

/// Says the first word.
pub(super) fn establish(shard: &mut Shard, link: Link, admitted: Admitted) -> WebSocket {
    let Admitted { tenant, protocol, wants_gaps, seat } = admitted;
    let socket_id = shard.name_socket(link.outlet);
    let text = pusher::connection_established(&socket_id, shard.settings.activity_timeout_s());
    link.send(shard, ws::frame(ws::Opcode::Text, text.as_bytes()), Lane::First);
    WebSocket::new(shard, (tenant, seat), (protocol, wants_gaps), socket_id)
}

/// A client that may come in.
pub(super) struct Admitted {
    tenant: TenantId,
    protocol: u8,
    wants_gaps: bool,
    seat: Seat,
}

/// What a client asked for, or the code to close with.
fn admit(
    shard: &Shard,
    key: Option<&str>,
    (query, origin): (&str, Option<&str>),
) -> Result<Admitted, (u16, String)> {
    let Some(key) = key else {
        return Err((close::PATH_NOT_FOUND, "connect to /app/{key}".to_owned()));
    };
    let Some((app, tenant)) = shard.apps.by_key(key) else {
        return Err((close::APP_UNKNOWN, "no app has this key".to_owned()));
    };
    if !app.enabled {
        return Err((close::APP_DISABLED, "this app is switched off".to_owned()));
    }
    if !app.allows(origin) {
        let text = "this page may not connect: its origin is not among the app's";
        return Err((close::UNAUTHORIZED, text.to_owned()));
    }
    let Some((_, protocol)) = http::pairs(query).find(|(name, _)| name == "protocol") else {
        let text = "no protocol version: add ?protocol=7 to the address";
        return Err((close::NO_PROTOCOL, text.to_owned()));
    };
    let protocol = protocol.parse().ok().filter(|version| PROTOCOLS.contains(version));
    let Some(protocol) = protocol else {
        let (first, last) = (PROTOCOLS.start(), PROTOCOLS.end());
        let text = format!("unsupported protocol version: use {first} to {last}");
        return Err((close::UNSUPPORTED_PROTOCOL, text));
    };
    let Some(seat) = app.seat() else {
        let text = format!("this app has {} connections, which is the most", app.max_connections);
        return Err((close::OVER_QUOTA, text));
    };
    // No other value asks for it, so that there can be others some day.
    let wants_gaps = http::pairs(query).any(|(name, on)| name == "gaps" && on == "1");
    Ok(Admitted { tenant, protocol, wants_gaps, seat })
}
