// Cache channels: the last event of the app's server is there for whoever comes later.

import assert from "node:assert/strict";
import { test } from "node:test";
import { publisher } from "../support/peers.mjs";
import { stage } from "../support/stage.mjs";
import { until } from "../support/wait.mjs";

const ARRIVAL_MS = 10_000;
const TEST = { timeout: 60_000 };

const on = stage();

/** Every event of a channel from its subscription on, in order. */
function enter(name) {
  const client = on.connect();
  const seen = [];
  client.subscribe(name).bind_global((event, data) => seen.push([event, data]));
  return seen;
}

const SUCCEEDED = "pusher:subscription_succeeded";

for (const name of ["cache-score", "private-cache-score", "private-encrypted-cache-score"]) {
  test(`${name} gives a late subscriber the last event, or a miss`, TEST, async () => {
    const sdk = publisher(on.server.port);
    const early = enter(name);
    await until(ARRIVAL_MS, "the miss", () => early.length === 2);
    assert.deepEqual(early.map(([event]) => event), [SUCCEEDED, "pusher:cache_miss"]);
    for (const goals of [1, 2]) assert.equal(await sdk.trigger(name, "goal", { goals }), 200);
    await until(ARRIVAL_MS, "both events", () => early.length === 4);
    const late = enter(name);
    await until(ARRIVAL_MS, "the last event", () => late.length === 2);
    assert.equal(late[0][0], SUCCEEDED);
    assert.deepEqual(late[1], ["goal", { goals: 2 }]);
    assert.equal(await sdk.trigger(name, "goal", { goals: 3 }), 200);
    for (const seen of [early, late]) {
      await until(ARRIVAL_MS, "the next event", () => seen.at(-1)[1]?.goals === 3);
    }
    assert.equal(late.length, 3);
    sdk.close();
  });
}
