// Laravel Echo, which most of those who leave the hosted service use on top of pusher-js.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import Echo from "laravel-echo";
import { publisher, subscriber } from "../support/peers.mjs";
import { startServer } from "../support/server.mjs";
import { until, within } from "../support/wait.mjs";

const ARRIVAL_MS = 10_000;
const TEST = { timeout: 60_000 };
const NOTIFICATION = "Illuminate\\Notifications\\Events\\BroadcastNotificationCreated";

let server;
let app;
const echoes = [];

before(async () => {
  server = await startServer();
  app = publisher(server.port);
});

after(async () => {
  for (const echo of echoes) echo.disconnect();
  app?.close();
  await server?.stop();
});

function connect(broadcaster = "pusher") {
  const echo = new Echo({ broadcaster, client: subscriber(server.port) });
  echoes.push(echo);
  return echo;
}

/** A channel of Echo, once the server has confirmed it. */
function ready(channel) {
  return within(ARRIVAL_MS, `the subscription to ${channel.name}`, (resolve, reject) => {
    channel.subscribed(() => resolve(channel));
    channel.error(({ error }) => reject(new Error(error)));
  });
}

function listen(bind) {
  const seen = [];
  bind((data) => seen.push(data));
  return seen;
}

for (const broadcaster of ["pusher", "reverb"]) {
  test(`events reach who listens for them, with the broadcaster ${broadcaster}`, TEST, async () => {
    const echo = connect(broadcaster);
    const name = `orders-${broadcaster}`;
    const channel = await ready(echo.channel(name));
    const named = listen((take) => channel.listen("OrderShipped", take));
    const raw = listen((take) => channel.listen(".order.paid", take));
    const all = listen((take) => channel.listenToAll((event, data) => take([event, data])));
    await app.trigger(name, "App\\Events\\OrderShipped", { id: 1 });
    await app.trigger(name, "order.paid", { id: 2 });
    await until(ARRIVAL_MS, "both events", () => named.length + raw.length === 2);
    assert.deepEqual([named, raw], [[{ id: 1 }], [{ id: 2 }]]);
    assert.deepEqual(all, [["OrderShipped", { id: 1 }], [".order.paid", { id: 2 }]]);
    assert.equal(echo.socketId(), echo.connector.pusher.connection.socket_id);
    assert.equal(echo.connectionStatus(), "connected");
  });
}

test("notifications come on a private channel", TEST, async () => {
  const channel = await ready(connect().private("App.Models.User.1"));
  const seen = listen((take) => channel.notification(take));
  await app.trigger("private-App.Models.User.1", NOTIFICATION, { id: "n", type: "invoice" });
  await until(ARRIVAL_MS, "the notification", () => seen.length === 1);
  assert.deepEqual(seen, [{ id: "n", type: "invoice" }]);
});

test("a presence channel tells who is here, joins and leaves", TEST, async () => {
  const [first, second] = [connect(), connect()];
  const room = first.join("room");
  const here = listen((take) => room.here(take));
  const joining = listen((take) => room.joining(take));
  const leaving = listen((take) => room.leaving(take));
  const heard = listen((take) => room.listenForWhisper("typing", take));
  await until(ARRIVAL_MS, "who is here", () => here.length === 1);
  assert.equal(here[0].length, 1);
  const there = second.join("room");
  const both = listen((take) => there.here(take));
  await until(ARRIVAL_MS, "who joins", () => joining.length + both.length === 2);
  assert.equal(both[0].length, 2);
  assert.ok(both[0].some(({ number }) => number === joining[0].number));
  there.whisper("typing", { name: "ada" });
  await until(ARRIVAL_MS, "the whisper", () => heard.length === 1);
  assert.deepEqual(heard, [{ name: "ada" }]);
  second.leave("room");
  await until(ARRIVAL_MS, "who leaves", () => leaving.length === 1);
  assert.deepEqual(leaving, joining);
});

test("an encrypted channel is read and an unlistened event is not", TEST, async () => {
  const channel = await ready(connect().encryptedPrivate("safe"));
  const seen = listen((take) => channel.listen(".secret", take));
  await app.trigger("private-encrypted-safe", "secret", { text: "héllo" });
  await until(ARRIVAL_MS, "the event", () => seen.length === 1);
  channel.stopListening(".secret");
  const mark = listen((take) => channel.listen(".mark", take));
  await app.trigger("private-encrypted-safe", "secret", { text: "unheard" });
  await app.trigger("private-encrypted-safe", "mark", {});
  await until(ARRIVAL_MS, "the mark", () => mark.length === 1);
  assert.deepEqual(seen, [{ text: "héllo" }]);
});

test("others do not get what comes from the socket that Echo names", TEST, async () => {
  const [first, second] = [connect(), connect()];
  const seen = [];
  for (const echo of [first, second]) {
    const channel = await ready(echo.channel("to-others"));
    seen.push(listen((take) => channel.listen(".e", take)));
  }
  const socket_id = first.socketId();
  await app.answer((sdk) => sdk.trigger("to-others", "e", { n: 1 }, { socket_id }));
  await app.trigger("to-others", "e", { n: 2 });
  await until(ARRIVAL_MS, "the last event", () => seen[0].length > 0 && seen[1].length > 1);
  assert.deepEqual(seen, [[{ n: 2 }], [{ n: 1 }, { n: 2 }]]);
});
