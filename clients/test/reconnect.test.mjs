// A server that is stopped tells its clients to come back, and they find everything as it was.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { collect, errors, publisher, signedIn, subscribed, subscriber } from "../support/peers.mjs";
import { startServer } from "../support/server.mjs";
import { until } from "../support/wait.mjs";

// pusher-js comes back at once, and when nobody listens yet, again only after 15 seconds.
const ARRIVAL_MS = 45_000;
const TEST = { timeout: 180_000 };

const cleanups = [];
after(async () => {
  for (const cleanup of cleanups.reverse()) await cleanup();
});

async function start(port) {
  const server = await startServer({ port });
  cleanups.push(() => server.stop());
  return server;
}

test("clients come back to the next server, and so do their channels and users", TEST, async () => {
  const first = await start();
  const client = subscriber(first.port, { user: { id: "ada" } });
  cleanups.push(() => client.disconnect());
  const channels = {};
  for (const name of ["news", "private-orders", "private-encrypted-notes", "presence-room"]) {
    channels[name] = await subscribed(client, name);
  }
  await signedIn(client);
  const seen = Object.values(channels).map((channel) => collect(channel, "e"));
  const own = collect(client.user, "e");
  const told = errors(client);
  const succeeded = Object.values(channels).map((channel) =>
    collect(channel, "pusher:subscription_succeeded"),
  );
  const signins = collect(client, "pusher:signin_success");
  const before = client.connection.socket_id;

  assert.equal(await first.stop(), 0, "it ends well while a client is there");
  await until(ARRIVAL_MS, "the code", () => told.length > 0);
  assert.equal(told[0].code, 4200);
  const second = await start(first.port);
  await until(ARRIVAL_MS, "every subscription anew", () =>
    succeeded.every((events) => events.length === 1),
  );
  await until(ARRIVAL_MS, "the user to be signed in anew", () => signins.length === 1);
  assert.notEqual(client.connection.socket_id, before);

  const app = publisher(second.port);
  cleanups.push(() => app.close());
  for (const name of Object.keys(channels)) {
    assert.equal(await app.trigger(name, "e", { name }), 200);
  }
  const users = () => app.answer((sdk) => sdk.get({ path: "/channels/presence-room/users" }));
  const myID = channels["presence-room"].members.myID;
  assert.deepEqual(await users(), { users: [{ id: myID }] });
  await until(ARRIVAL_MS, "an event on each", () => seen.every((events) => events.length > 0));
  const names = Object.keys(channels);
  assert.deepEqual(seen, names.map((name) => [{ name }]));
  // The user's channel is subscribed after the sign-in is confirmed; until then nobody is there.
  await until(ARRIVAL_MS, "an event for the user", async () => {
    await app.answer((sdk) => sdk.sendToUser("ada", "e", "yours"));
    return own.length > 0;
  });
  assert.deepEqual(own[0], "yours");
  // Before its server: or it would look for the next one while the test ends.
  client.disconnect();
});
