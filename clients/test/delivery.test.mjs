// What a user tries first: subscribe with pusher-js, trigger with the server SDK.

import assert from "node:assert/strict";
import { test } from "node:test";
import { APP, collect, publisher, subscribed, subscriber } from "../support/peers.mjs";
import { stage } from "../support/stage.mjs";
import { until, within } from "../support/wait.mjs";

const ARRIVAL_MS = 10_000;
const TEST = { timeout: 60_000 };

const on = stage();

const connect = (key) => on.connect({ key });

test("an event reaches every subscriber of its channel and nobody else", TEST, async () => {
  const sdk = publisher(on.server.port);
  const [first, second, other] = await Promise.all([
    subscribed(connect(), "news"),
    subscribed(connect(), "news"),
    subscribed(connect(), "other"),
  ]);
  const seen = [collect(first, "greeting"), collect(second, "greeting")];
  const strays = collect(other, "greeting");
  const marks = collect(other, "mark");
  assert.equal(await sdk.trigger("news", "greeting", { text: "héllo 🚰", n: 1 }), 200);
  assert.equal(await sdk.trigger("news", "greeting", { text: "again", n: 2 }), 200);
  assert.equal(await sdk.trigger("other", "mark", {}), 200);
  const expected = [
    { text: "héllo 🚰", n: 1 },
    { text: "again", n: 2 },
  ];
  for (const events of seen) {
    await until(ARRIVAL_MS, "both events", () => events.length >= 2);
    assert.deepEqual(events, expected);
  }
  await until(ARRIVAL_MS, "the mark on the other channel", () => marks.length === 1);
  assert.deepEqual(strays, []);
  sdk.close();
});

test("who unsubscribes gets no more", TEST, async () => {
  const sdk = publisher(on.server.port);
  const client = connect();
  const left = collect(await subscribed(client, "left"), "e");
  const kept = collect(await subscribed(client, "kept"), "e");
  await sdk.trigger("left", "e", 1);
  await until(ARRIVAL_MS, "the event before", () => left.length === 1);
  client.unsubscribe("left");
  // Commands of one connection are handled in order: once this is confirmed, that has happened.
  await subscribed(client, "after");
  await sdk.trigger("left", "e", 2);
  await sdk.trigger("kept", "e", 3);
  await until(ARRIVAL_MS, "the event after", () => kept.length === 1);
  assert.deepEqual([left, kept], [[1], [3]]);
  sdk.close();
});

test("an unknown app key is refused for good", TEST, async () => {
  const client = connect("no-such-key");
  const code = await within(ARRIVAL_MS, "the refusal", (resolve) => {
    client.connection.bind("error", ({ error }) => resolve(error?.data?.code));
  });
  assert.equal(code, 4001);
  await until(ARRIVAL_MS, "the end of trying", () => client.connection.state === "disconnected");
});

test("a wrong secret publishes nothing", TEST, async () => {
  const forger = publisher(on.server.port, { secret: "guessed" });
  const sdk = publisher(on.server.port);
  const seen = collect(await subscribed(connect(), "safe"), "e");
  await assert.rejects(forger.trigger("safe", "e", "forged"), { status: 401 });
  await sdk.trigger("safe", "e", "signed");
  await until(ARRIVAL_MS, "the signed event", () => seen.length > 0);
  assert.deepEqual(seen, ["signed"]);
  forger.close();
  sdk.close();
});

test("the server says that it is well", TEST, async () => {
  for (const page of ["/health", "/ready", "/metrics"]) {
    const response = await fetch(on.server.base + page);
    assert.equal(response.status, 200, page);
    await response.text();
  }
  assert.ok(on.server.lines.some((line) => line.includes(APP.key)), "it names its development app");
});
