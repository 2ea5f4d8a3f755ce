// Every call of the HTTP API, through the server SDK.

import assert from "node:assert/strict";
import { test } from "node:test";
import { appConfig, collect, publisher, subscribed } from "../support/peers.mjs";
import { stage } from "../support/stage.mjs";
import { until } from "../support/wait.mjs";

const ARRIVAL_MS = 10_000;
const TEST = { timeout: 60_000 };

const on = stage(appConfig("subscription_counts = true"));

const connect = () => on.connect();

const get = (path, params) => on.app.answer((sdk) => sdk.get({ path, params }));

/** That a call is refused with this status, and says why. */
async function refused(call, status, why) {
  const error = await call().then(
    () => assert.fail(`expected ${status}, but the call was answered`),
    (error) => error,
  );
  assert.equal(error.status, status, error.body);
  assert.match(error.body, why);
}

test("one call publishes to many channels, and to none that it does not name", TEST, async () => {
  const client = connect();
  const names = Array.from({ length: 100 }, (_, n) => `many-${n}`);
  const channels = await Promise.all(names.map((name) => subscribed(client, name)));
  const other = collect(await subscribed(client, "many-100"), "e");
  const seen = channels.map((channel) => collect(channel, "e"));
  assert.deepEqual(await on.app.answer((sdk) => sdk.trigger(names, "e", { n: 1 })), {});
  await on.app.trigger("many-100", "e", "mark");
  await until(ARRIVAL_MS, "all events", () => other.length + seen.flat().length === 101);
  assert.ok(seen.every((events) => events.length === 1 && events[0].n === 1));
  assert.deepEqual(other, ["mark"]);
});

test("a batch publishes each of its events, in order", TEST, async () => {
  const channel = await subscribed(connect(), "batched");
  const [a, b] = [collect(channel, "a"), collect(channel, "b")];
  const order = [];
  channel.bind_global((event) => order.push(event));
  const batch = Array.from({ length: 10 }, (_, n) => ({
    channel: "batched",
    data: { n },
    name: n % 2 ? "b" : "a",
  }));
  assert.deepEqual(await on.app.answer((sdk) => sdk.triggerBatch(batch)), {});
  await until(ARRIVAL_MS, "ten events", () => a.length + b.length === 10);
  assert.deepEqual(a.map(({ n }) => n), [0, 2, 4, 6, 8]);
  assert.deepEqual(order.slice(-10), batch.map(({ name }) => name));
});

test("the connection that an event comes from is left out", TEST, async () => {
  const [sender, other] = [connect(), connect()];
  const [here, there] = [await subscribed(sender, "chat"), await subscribed(other, "chat")];
  const [own, theirs] = [collect(here, "e"), collect(there, "e")];
  const { socket_id } = sender.connection;
  await on.app.answer((sdk) => sdk.trigger("chat", "e", 1, { socket_id }));
  await on.app.answer((sdk) =>
    sdk.triggerBatch([{ channel: "chat", data: 2, name: "e", socket_id }]),
  );
  await on.app.trigger("chat", "e", 3);
  await until(ARRIVAL_MS, "the last event", () => own.length > 0 && theirs.length > 2);
  assert.deepEqual([own, theirs], [[3], [1, 2, 3]]);
});

test("what is published comes out as it went in", TEST, async () => {
  const channel = await subscribed(connect(), "odd;names,are=fine@here.-_");
  const seen = collect(channel, "an event, with “signs” & ünïcode");
  const values = ["", "{", "null", " \t\n", "\u2028é🚰", { "": [null, 1e3, "\\\""] }, 0, []];
  for (const value of values) {
    await on.app.trigger(channel.name, "an event, with “signs” & ünïcode", value);
  }
  await until(ARRIVAL_MS, "every value", () => seen.length === values.length);
  // pusher-js reads as JSON whatever is JSON.
  const expected = values.map((value) => (value === "null" ? null : value));
  assert.deepEqual(seen, expected);
});

test("an app asks which channels are occupied, and by whom", TEST, async () => {
  const [first, second] = [connect(), connect()];
  await subscribed(first, "asked-a");
  await subscribed(second, "asked-a");
  await subscribed(first, "presence-asked");
  const room = await subscribed(second, "presence-asked");
  const ids = Object.keys(room.members.members);

  const { channels } = await get("/channels", { filter_by_prefix: "asked-" });
  assert.deepEqual(channels, { "asked-a": {} });
  const counted = { filter_by_prefix: "presence-asked", info: "user_count" };
  const presence = await get("/channels", counted);
  assert.deepEqual(presence.channels, { "presence-asked": { user_count: 2 } });
  const all = await get("/channels");
  assert.ok("asked-a" in all.channels && "presence-asked" in all.channels);

  const info = "subscription_count,user_count";
  assert.deepEqual(await get("/channels/asked-a"), { occupied: true });
  assert.deepEqual(await get("/channels/asked-b"), { occupied: false });
  const both = { occupied: true, subscription_count: 2, user_count: 2 };
  assert.deepEqual(await get("/channels/presence-asked", { info }), both);
  const answer = await get("/channels/presence-asked/users");
  assert.deepEqual(answer.users.map(({ id }) => id).sort(), ids.sort());
  assert.deepEqual(await get("/channels/presence-nobody/users"), { users: [] });
});

test("a publish answers what it is asked about its channels", TEST, async () => {
  const client = connect();
  await subscribed(client, "info-a");
  await subscribed(client, "presence-info");
  const info = "user_count,subscription_count";
  const names = ["info-a", "presence-info", "info-empty"];
  const one = await on.app.answer((sdk) => sdk.trigger(names, "e", 1, { info }));
  assert.deepEqual(one.channels, {
    "info-a": { subscription_count: 1 },
    "info-empty": { subscription_count: 0 },
    "presence-info": { subscription_count: 1, user_count: 1 },
  });
  const batch = [
    { channel: "info-a", data: "1", name: "e", info: "subscription_count" },
    { channel: "info-a", data: "2", name: "e" },
    { channel: "presence-info", data: "3", name: "e", info: "user_count" },
  ];
  const many = await on.app.answer((sdk) => sdk.triggerBatch(batch));
  assert.deepEqual(many.batch, [{ subscription_count: 1 }, {}, { user_count: 1 }]);
});

test("what is wrong has its status and says what", TEST, async () => {
  const { sdk } = on.app;
  const forger = publisher(on.server.port, { secret: "guessed" });
  const batch = (length) => Array.from({ length }, () => ({ channel: "a", data: "", name: "e" }));
  const post = (path, body) => sdk.post({ body, path });
  const many = Array.from({ length: 101 }, (_, n) => `many-${n}`);
  const event = { channel: "a", data: "1", name: "e" };
  const attempts = [
    [() => sdk.trigger("a", "e", "x".repeat(10_241)), 413, /10240|10 ?KiB|data/],
    [() => sdk.trigger("a", "pusher:internal", 1), 400, /pusher:/],
    [() => sdk.trigger("a", "pusher_internal:member_added", 1), 400, /pusher_internal/],
    [() => sdk.triggerBatch(batch(11)), 400, /10/],
    [() => post("/events", { ...event, channel: undefined, channels: many }), 400, /100/],
    [() => sdk.triggerBatch([{ channel: "a/b", data: "", name: "e" }]), 400, /channel name/],
    [() => post("/events", { ...event, data: { an: "object" } }), 400, /data/],
    [() => post("/events", { ...event, name: undefined }), 400, /name/],
    [() => post("/events", { ...event, channel: undefined }), 400, /channel/],
    [() => post("/events", { ...event, socket_id: "1" }), 400, /socket_id/],
    [() => post("/batch_events", {}), 400, /batch/],
    [() => post("/users/a%20b/terminate_connections", {}), 400, /user/],
    [() => post("/nowhere", {}), 404, /no such page/],
    [() => get("/channels", { info: "user_count" }), 400, /presence-/],
    [() => get("/channels/a", { info: "user_count" }), 400, /presence/],
    [() => get("/channels/a", { info: "colour" }), 400, /colour/],
    [() => get("/channels/a/users"), 400, /presence-/],
    [() => get("/events"), 405, /POST/],
    [() => forger.sdk.get({ path: "/channels" }), 401, /signature/i],
    [() => forger.sdk.trigger("a", "e", 1), 401, /signature/i],
  ];
  for (const [call, status, why] of attempts) await refused(call, status, why);
  forger.close();
});
