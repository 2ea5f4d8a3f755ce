// Users that sign in: events of their own, who of their friends is there, the end of their
// connections.

import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { appConfig, appServer, collect, errors, signedIn, subscribed } from "../support/peers.mjs";
import { stage } from "../support/stage.mjs";
import { until, within } from "../support/wait.mjs";

const ARRIVAL_MS = 10_000;
const TEST = { timeout: 60_000 };
const PROCESS = fileURLToPath(new URL("../support/user-process.mjs", import.meta.url));

const on = stage(appConfig());

const connect = (user) => on.connect({ user });

test("a user gets its own events on every connection, and nobody else does", TEST, async () => {
  const [first, second] = [connect({ id: "ada" }), connect({ id: "ada" })];
  const other = connect({ id: "bob" });
  for (const client of [first, second, other]) await signedIn(client);
  assert.equal(first.user.user_data.id, "ada");
  const seen = [first, second, other].map((client) => collect(client.user, "paid"));
  assert.deepEqual(await on.app.answer((sdk) => sdk.sendToUser("ada", "paid", { n: 1 })), {});
  assert.deepEqual(await on.app.answer((sdk) => sdk.sendToUser("bob", "paid", { n: 2 })), {});
  await until(ARRIVAL_MS, "an event for each", () => seen.every((events) => events.length > 0));
  assert.deepEqual(seen, [[{ n: 1 }], [{ n: 1 }], [{ n: 2 }]]);
});

test("the channel of a user is closed to everybody else", TEST, async () => {
  const stranger = connect();
  const mark = collect(await subscribed(stranger, "open"), "mark");
  // pusher-js does not let anybody ask; others would.
  const channel = "#server-to-user-ada";
  const answers = [];
  stranger.connection.bind("message", (message) => {
    if (message.channel === channel) answers.push(message);
  });
  const { auth: other } = appServer().authorizeChannel(stranger.connection.socket_id, "ada");
  for (const auth of ["", other]) {
    stranger.send_event("pusher:subscribe", { auth, channel });
  }
  await until(ARRIVAL_MS, "both refusals", () => answers.length === 2);
  await on.app.answer((sdk) => sdk.sendToUser("ada", "paid", {}));
  await on.app.trigger("open", "mark", {});
  await until(ARRIVAL_MS, "the mark", () => mark.length === 1);
  const refused = "pusher:subscription_error";
  assert.deepEqual(answers.map(({ event }) => event), [refused, refused]);
});

test("who is signed in cannot become somebody else", TEST, async () => {
  const client = await signedIn(connect({ id: "eve" }));
  const told = errors(client);
  const { socket_id: socketId } = client.connection;
  const successes = collect(client, "pusher:signin_success");
  client.send_event("pusher:signin", appServer().authenticateUser(socketId, { id: "ada" }));
  await until(ARRIVAL_MS, "the refusal", () => told.length === 1);
  assert.match(told[0].message, /signed in as "eve"/);
  const forged = appServer("guessed").authenticateUser(socketId, { id: "eve" });
  client.send_event("pusher:signin", forged);
  await until(ARRIVAL_MS, "the refusal of a forged signature", () => told.length === 2);
  assert.deepEqual(successes, []);
  const seen = collect(client.user, "paid");
  await on.app.answer((sdk) => sdk.sendToUser("ada", "paid", "not for eve"));
  await on.app.answer((sdk) => sdk.sendToUser("eve", "paid", "for eve"));
  await until(ARRIVAL_MS, "its own event", () => seen.length > 0);
  assert.deepEqual(seen, ["for eve"]);
  assert.equal(client.connection.state, "connected");
});

test("a watchlist tells who is there, who comes and who goes", TEST, async () => {
  await signedIn(connect({ id: "here" }));
  const watcher = connect({ id: "watcher", watchlist: ["here", "later"] });
  const online = collect(watcher.user.watchlist, "online");
  const offline = collect(watcher.user.watchlist, "offline");
  await signedIn(watcher);
  await until(ARRIVAL_MS, "who is there", () => online.length === 1 && offline.length === 1);
  assert.deepEqual(online[0].user_ids, ["here"]);
  assert.deepEqual(offline[0].user_ids, ["later"]);
  const [one, two] = [connect({ id: "later" }), connect({ id: "later" })];
  await signedIn(one);
  await until(ARRIVAL_MS, "who comes", () => online.length === 2);
  assert.deepEqual(online[1].user_ids, ["later"]);
  // It comes once, however many connections it has, and goes with the last of them.
  await signedIn(two);
  one.disconnect();
  two.disconnect();
  await until(ARRIVAL_MS, "who goes", () => offline.length === 2);
  assert.deepEqual(offline[1].user_ids, ["later"]);
  assert.equal(online.length, 2);
});

test("a watchlist that is too long is cut, and that is said", TEST, async () => {
  const watchlist = Array.from({ length: 101 }, (_, n) => `friend-${n}`);
  const client = connect({ id: "popular", watchlist });
  const told = errors(client);
  const offline = collect(client.user.watchlist, "offline");
  await signedIn(client);
  // It may come in parts.
  const watched = () => offline.flatMap(({ user_ids }) => user_ids);
  await until(ARRIVAL_MS, "the list", () => told.length === 1 && watched().length >= 100);
  assert.equal(told[0].code, 4302);
  assert.deepEqual(watched().sort(), watchlist.slice(0, 100).sort());
  assert.equal(client.connection.state, "connected");
});

/** A user in a process of its own, and what it has told so far. */
async function startProcess(id) {
  const child = fork(PROCESS, [String(on.server.port), id]);
  on.goes(() => child.kill("SIGKILL"));
  const told = [];
  await within(ARRIVAL_MS, "the other process to sign in", (ready, lost) => {
    child.once("exit", () => lost(new Error("the user's process ended")));
    child.on("message", (message) => (message.signedIn ? ready() : told.push(message)));
  });
  return told;
}

test("the app ends a user's connections for good, and only those", TEST, async () => {
  const doomed = await Promise.all([startProcess("mallory"), startProcess("mallory")]);
  const [safe, namesake] = [connect({ id: "ada" }), connect()];
  await signedIn(safe);
  await subscribed(namesake, "open");
  assert.deepEqual(await on.app.answer((sdk) => sdk.terminateUserConnections("mallory")), {});
  for (const told of doomed) {
    await until(ARRIVAL_MS, "the end", () => told.at(-1)?.state === "disconnected");
    assert.equal(told.find(({ error }) => error)?.error.code, 4009);
  }
  const seen = collect(safe.user, "paid");
  await on.app.answer((sdk) => sdk.sendToUser("ada", "paid", {}));
  await until(ARRIVAL_MS, "an event of another user", () => seen.length === 1);
  for (const client of [safe, namesake]) assert.equal(client.connection.state, "connected");
});
