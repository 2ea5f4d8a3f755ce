// Webhooks, taken and verified by the server SDK.

import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { after, before, test } from "node:test";
import { APP, appConfig, appServer, subscribed, subscriber } from "../support/peers.mjs";
import { startServer } from "../support/server.mjs";
import { until } from "../support/wait.mjs";

// What is over is told three seconds later, since most come back.
const ARRIVAL_MS = 20_000;
const TEST = { timeout: 90_000 };

let server;
let endpoint;
const clients = [];
const hooks = [];

before(async () => {
  endpoint = http.createServer(take).listen(0, "127.0.0.1");
  await once(endpoint, "listening");
  const url = `http://127.0.0.1:${endpoint.address().port}/hooks`;
  const webhook = ["", "[[app.webhook]]", `url = "${url}"`];
  server = await startServer({ config: appConfig("subscription_counts = true", ...webhook) });
});

after(async () => {
  for (const client of clients) client.disconnect();
  await server?.stop();
  endpoint?.close();
});

/** An app's server: keeps what the SDK makes of a request, and answers. */
async function take(request, response) {
  let rawBody = "";
  for await (const chunk of request.setEncoding("utf8")) rawBody += chunk;
  const hook = appServer().webhook({ headers: request.headers, rawBody });
  hooks.push(hook);
  response.writeHead(hook.isValid() ? 200 : 401).end();
}

/** What was told of a channel, in order. */
function told(channel) {
  const events = hooks.flatMap((hook) => hook.getEvents());
  return events.filter((event) => event.channel === channel).map(({ channel, ...rest }) => rest);
}

function connect() {
  const client = subscriber(server.port);
  clients.push(client);
  return client;
}

test("each hook is signed for this app and nobody else", TEST, async () => {
  await subscribed(connect(), "signed");
  await until(ARRIVAL_MS, "the hook", () => told("signed").length > 0);
  for (const hook of hooks) {
    assert.ok(hook.isContentTypeValid() && hook.isValid());
    assert.ok(Math.abs(Date.now() - hook.getTime()) < 600_000);
    assert.equal(hook.key, APP.key);
    const { body: rawBody, contentType, signature } = hook;
    const headers = { "content-type": contentType, "x-pusher-signature": signature };
    const altered = { ...headers, "x-pusher-key": APP.key };
    const wrong = appServer("guessed").webhook({ headers: altered, rawBody });
    assert.ok(!wrong.isValid());
    const changed = appServer().webhook({ headers: altered, rawBody: `${rawBody} ` });
    assert.ok(!changed.isValid());
  }
});

test("the life of a presence channel is told in order", TEST, async () => {
  const [first, second] = [connect(), connect()];
  const here = await subscribed(first, "presence-life");
  const there = await subscribed(second, "presence-life");
  here.trigger("client-wave", { n: 1 });
  await until(ARRIVAL_MS, "four events", () => told("presence-life").length === 4);
  const { myID: one } = here.members;
  const { myID: other } = there.members;
  const socket_id = first.connection.socket_id;
  assert.deepEqual(told("presence-life").slice(0, 3), [
    { name: "channel_occupied" },
    { name: "member_added", user_id: one },
    { name: "member_added", user_id: other },
  ]);
  const { data, ...wave } = told("presence-life")[3];
  const expected = { event: "client-wave", name: "client_event", socket_id, user_id: one };
  assert.deepEqual(wave, expected);
  assert.deepEqual(typeof data === "string" ? JSON.parse(data) : data, { n: 1 });
  second.disconnect();
  await until(ARRIVAL_MS, "who went", () => told("presence-life").length === 5);
  first.disconnect();
  await until(ARRIVAL_MS, "the end", () => told("presence-life").length === 7);
  assert.deepEqual(told("presence-life").slice(4), [
    { name: "member_removed", user_id: other },
    { name: "member_removed", user_id: one },
    { name: "channel_vacated" },
  ]);
});

test("the number of subscriptions is told", TEST, async () => {
  const [first, second] = [connect(), connect()];
  await subscribed(first, "numbered");
  await until(ARRIVAL_MS, "one", () => counts("numbered").at(-1) === 1);
  await subscribed(second, "numbered");
  await until(ARRIVAL_MS, "two", () => counts("numbered").at(-1) === 2);
  second.disconnect();
  await until(ARRIVAL_MS, "one again", () => counts("numbered").at(-1) === 1);
});

function counts(channel) {
  const events = told(channel).filter(({ name }) => name === "subscription_count");
  return events.map(({ subscription_count }) => subscription_count);
}

test("who comes back at once has not been away", TEST, async () => {
  const here = await subscribed(connect(), "presence-tab");
  await until(ARRIVAL_MS, "the member", () => told("presence-tab").length === 2);
  const { me } = here.members;
  // The same member from another page, before the first one closes or just after.
  const authority = {
    authorizeChannel: (socketId, channel) =>
      appServer().authorizeChannel(socketId, channel, { user_id: me.id, user_info: me.info }),
  };
  here.pusher.disconnect();
  const again = subscriber(server.port, { authority });
  clients.push(again);
  await subscribed(again, "presence-tab");
  // Told after whatever that would have brought: hooks are told in order.
  again.disconnect();
  await until(ARRIVAL_MS, "the end", () => told("presence-tab").length >= 4);
  assert.deepEqual(told("presence-tab"), [
    { name: "channel_occupied" },
    { name: "member_added", user_id: me.id },
    { name: "member_removed", user_id: me.id },
    { name: "channel_vacated" },
  ]);
});
