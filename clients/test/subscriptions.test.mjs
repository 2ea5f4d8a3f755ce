// Subscribing twice, leaving and coming again at once, and being told how many subscribe.

import assert from "node:assert/strict";
import { test } from "node:test";
import { appConfig, collect, subscribed } from "../support/peers.mjs";
import { stage } from "../support/stage.mjs";
import { until } from "../support/wait.mjs";

const ARRIVAL_MS = 10_000;
const TEST = { timeout: 60_000 };

const on = stage(appConfig("subscription_counts = true"));

const connect = () => on.connect();

/** How many subscriptions the server counts. */
async function subscriptions(channel) {
  const params = { info: "subscription_count" };
  const answer = await on.app.answer((sdk) => sdk.get({ path: `/channels/${channel}`, params }));
  return answer.subscription_count;
}

test("subscribers are told how many they are", TEST, async () => {
  const [first, second] = [connect(), connect()];
  const here = first.subscribe("counted");
  const seen = collect(here, "pusher:subscription_count");
  await until(ARRIVAL_MS, "the first count", () => here.subscriptionCount === 1);
  await subscribed(second, "counted");
  await until(ARRIVAL_MS, "the second count", () => here.subscriptionCount === 2);
  assert.equal(await subscriptions("counted"), 2);
  second.disconnect();
  await until(ARRIVAL_MS, "the last count", () => here.subscriptionCount === 1);
  assert.deepEqual(seen.map(({ subscription_count }) => subscription_count), [1, 2, 1]);
});

test("members of a presence channel are not counted to them", TEST, async () => {
  const [first, second] = [connect(), connect()];
  const here = await subscribed(first, "presence-uncounted");
  const seen = collect(here, "pusher:subscription_count");
  const added = collect(here, "pusher:member_added");
  await subscribed(second, "presence-uncounted");
  const mark = collect(here, "mark");
  await on.app.trigger("presence-uncounted", "mark", {});
  await until(ARRIVAL_MS, "the member and the mark", () => added.length + mark.length === 2);
  assert.deepEqual(seen, []);
});

test("who subscribes twice gets everything once", TEST, async () => {
  const [client, friend] = [connect(), connect()];
  const here = await subscribed(client, "presence-twice");
  const there = await subscribed(friend, "presence-twice");
  const added = collect(there, "pusher:member_added");
  const seen = collect(here, "e");
  await subscribedAgain(client, "presence-twice");
  assert.equal(await subscriptions("presence-twice"), 2);
  await on.app.trigger("presence-twice", "e", 1);
  await on.app.trigger("presence-twice", "e", 2);
  await until(ARRIVAL_MS, "the events", () => seen.length >= 2);
  assert.deepEqual(seen, [1, 2]);
  assert.deepEqual(added, [], "nobody has come");
});

/** Sends what pusher-js would not: a second wish for a channel that it is in. */
async function subscribedAgain(client, name) {
  const { auth, channel_data } = await new Promise((resolve, reject) => {
    const { socket_id: socketId } = client.connection;
    client.config.channelAuthorizer({ socketId, channelName: name }, (error, token) =>
      error ? reject(error) : resolve(token),
    );
  });
  client.send_event("pusher:subscribe", { auth, channel: name, channel_data });
  // Commands of one connection are handled in order.
  await subscribed(client, "after-it");
}

test("however often it comes and goes, the last word counts", TEST, async () => {
  const client = connect();
  const stays = await subscribed(client, "private-stays");
  await subscribed(client, "private-goes");
  for (let round = 0; round < 20; round += 1) {
    client.unsubscribe("private-stays");
    client.subscribe("private-stays");
    client.subscribe("private-goes");
    client.unsubscribe("private-goes");
  }
  // pusher-js keeps the object of a channel that it comes back to while a wish is on its way.
  const channel = client.channel("private-stays") ?? stays;
  await until(ARRIVAL_MS, "the server to agree", async () => {
    const counts = await Promise.all(["private-stays", "private-goes"].map(subscriptions));
    return channel.subscribed && counts[0] === 1 && counts[1] === 0;
  });
  const seen = collect(channel, "e");
  const strays = [];
  client.connection.bind("message", ({ channel: name, event }) => {
    if (name === "private-goes") strays.push(event);
  });
  await on.app.trigger("private-goes", "e", 1);
  await on.app.trigger("private-stays", "e", 2);
  await until(ARRIVAL_MS, "the event", () => seen.length > 0);
  assert.deepEqual([seen, strays], [[2], []]);
});

test("two rounds of one wish converge, also while the token is on its way", TEST, async () => {
  const client = connect();
  await subscribed(client, "ready");
  client.subscribe("private-late");
  client.unsubscribe("private-late");
  const channel = await subscribed(client, "private-late");
  const seen = collect(channel, "e");
  await on.app.trigger("private-late", "e", 1);
  await until(ARRIVAL_MS, "the event", () => seen.length > 0);
  assert.deepEqual(seen, [1]);
  assert.equal(await subscriptions("private-late"), 1);
});
