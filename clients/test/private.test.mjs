// Private channels: signed by the app's server, with events from one subscriber to the others.

import assert from "node:assert/strict";
import { test } from "node:test";
import { appServer, publisher, subscribed } from "../support/peers.mjs";
import { stage } from "../support/stage.mjs";
import { until, within } from "../support/wait.mjs";

const ARRIVAL_MS = 10_000;
const TEST = { timeout: 60_000 };

const on = stage();

const connect = (authority) => on.connect({ authority });

function collect(channel, event) {
  const seen = [];
  channel.bind(event, (data, more) => seen.push([data, more]));
  return seen;
}

test("whom the app's server signs gets what is published", TEST, async () => {
  const sdk = publisher(on.server.port);
  const seen = collect(await subscribed(connect(), "private-orders"), "paid");
  assert.equal(await sdk.trigger("private-orders", "paid", { id: 7 }), 200);
  await until(ARRIVAL_MS, "the event", () => seen.length === 1);
  assert.deepEqual(seen[0][0], { id: 7 });
  sdk.close();
});

test("whom another secret signs is refused", TEST, async () => {
  const client = connect(appServer("guessed"));
  await assert.rejects(subscribed(client, "private-orders"), /AuthError/);
  assert.equal(client.connection.state, "connected");
});

test("an encrypted channel is read by its subscribers alone", TEST, async () => {
  const sdk = publisher(on.server.port);
  const seen = collect(await subscribed(connect(), "private-encrypted-notes"), "note");
  assert.equal(await sdk.trigger("private-encrypted-notes", "note", { text: "héllo" }), 200);
  await until(ARRIVAL_MS, "the event", () => seen.length === 1);
  assert.deepEqual(seen[0][0], { text: "héllo" });
  sdk.close();
});

test("members of a presence channel see each other come and go", TEST, async () => {
  const [first, second] = [connect(), connect()];
  const here = await subscribed(first, "presence-room");
  const added = collect(here, "pusher:member_added");
  const removed = collect(here, "pusher:member_removed");
  assert.equal(here.members.count, 1);
  const there = await subscribed(second, "presence-room");
  assert.equal(there.members.count, 2);
  assert.deepEqual(there.members.get(here.members.myID), here.members.me);
  await until(ARRIVAL_MS, "the new member", () => added.length === 1);
  assert.equal(added[0][0].id, there.members.myID);
  assert.deepEqual(added[0][0].info, there.members.me.info);
  const seen = collect(here, "client-hello");
  there.trigger("client-hello", { n: 1 });
  await until(ARRIVAL_MS, "the event", () => seen.length === 1);
  assert.deepEqual(seen[0], [{ n: 1 }, { user_id: there.members.myID }]);
  const gone = there.members.myID;
  second.disconnect();
  await until(ARRIVAL_MS, "the member that left", () => removed.length === 1);
  assert.equal(removed[0][0].id, gone);
  assert.equal(here.members.count, 1);
});

test("a client event reaches the others, and a rule that is broken its sender", TEST, async () => {
  const [first, second] = [connect(), connect()];
  const here = await subscribed(first, "private-room");
  const there = await subscribed(second, "private-room");
  const [own, theirs] = [collect(here, "client-move"), collect(there, "client-move")];
  assert.ok(here.trigger("client-move", { x: 1, y: [2, "ü"] }));
  await until(ARRIVAL_MS, "the event", () => theirs.length === 1);
  assert.deepEqual(theirs[0][0], { x: 1, y: [2, "ü"] });
  assert.deepEqual(own, []);
  const open = await subscribed(first, "open");
  const code = within(ARRIVAL_MS, "the refusal", (resolve) => {
    first.connection.bind("error", ({ data }) => resolve(data?.code));
  });
  open.trigger("client-move", {});
  assert.equal(await code, 4301);
  assert.equal(first.connection.state, "connected");
});
