// One of two subscribers is stopped while 20,000 events go by. The other loses nothing; the stopped
// one loses exactly what the books say, at the place they name.

import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { readFileSync } from "node:fs";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { appConfig, publisher, subscribed, subscriber, watch } from "../support/peers.mjs";
import { parseBooks, startServer } from "../support/server.mjs";
import { until, within } from "../support/wait.mjs";

const CHANNEL = "ticks";
const EVENTS = 20_000;
const DATA_BYTES = 1024;
const CONNECTIONS = 8;
const LEAST_LOST = 5_000;
const STATE_MS = 20_000;
const FLOOD_MS = 30_000;
// What is stale is dropped when the client reads again: here only the backlog's limit drops.
const CONFIG = appConfig("[limits]", "codel_target_ms = 0");
const PROCESS = fileURLToPath(new URL("../support/subscriber-process.mjs", import.meta.url));

const cleanups = [];
after(async () => {
  for (const cleanup of cleanups.reverse()) await cleanup();
});

/** A subscriber in a process of its own, and what it has told so far. */
async function startProcess(port) {
  const child = fork(PROCESS, [String(port), CHANNEL]);
  const kill = () => child.kill("SIGKILL");
  process.once("exit", kill);
  cleanups.push(kill);
  const seen = [];
  const states = [];
  await within(STATE_MS, "the other process to subscribe", (ready, lost) => {
    child.once("exit", () => lost(new Error("the subscriber's process ended")));
    child.on("message", (message) => {
      if (message.subscribed) ready();
      if (message.state) states.push(message.state);
      if (message.event) seen.push(message);
    });
  });
  return { child, seen, states };
}

/** Whether the kernel has stopped the process. */
function isStopped(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  return stat.slice(stat.lastIndexOf(")") + 2).startsWith("T");
}

function data(number) {
  const bare = JSON.stringify({ number, filler: "" }).length;
  return JSON.stringify({ number, filler: "x".repeat(DATA_BYTES - bare) });
}

/** Publishes the numbers from `first` on, each once, over several connections at a time. */
async function flood(sdk, first, count) {
  let next = first;
  const worker = async () => {
    while (next < first + count) {
      const number = next;
      next += 1;
      assert.equal(await sdk.trigger(CHANNEL, "tick", data(number)), 200);
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, worker));
}

/** Those of `all` that `some` has not; fails unless `some` is in the order of `all`. */
function missing(all, some) {
  let at = 0;
  const lost = all.filter((number) => {
    if (some[at] !== number) return true;
    at += 1;
    return false;
  });
  assert.equal(at, some.length, `out of order, or never published: ${some.slice(at, at + 5)}`);
  return lost;
}

const numbers = (seen) => seen.filter(({ event }) => event === "tick").map(({ number }) => number);
const ended = (seen) => seen.some(({ event }) => event === "end");

test("a stopped subscriber loses exactly what the books say", { timeout: 240_000 }, async () => {
  const server = await startServer({ config: CONFIG });
  cleanups.push(server.stop);
  const sdk = publisher(server.port, { connections: CONNECTIONS });
  cleanups.push(sdk.close);
  const client = subscriber(server.port);
  cleanups.push(() => client.disconnect());
  const healthy = [];
  watch(await subscribed(client, CHANNEL), (seen) => healthy.push(seen));
  const { child, seen, states } = await startProcess(server.port);

  // Both are there and read: one event reaches both.
  await flood(sdk, 0, 1);
  await until(STATE_MS, "the first event", () => healthy.length === 1 && seen.length === 1);

  child.kill("SIGSTOP");
  await until(STATE_MS, "the process to be stopped", () => isStopped(child.pid));
  await flood(sdk, 1, EVENTS);
  await until(FLOOD_MS, "the healthy client to have all", () => healthy.length > EVENTS);
  const stopped = await server.books();
  assert.ok(isStopped(child.pid), "it was stopped all the while");
  assert.ok(stopped.dropped >= LEAST_LOST, `only ${stopped.dropped} dropped`);
  assert.deepEqual([...new Set(stopped.drops.map(({ place }) => place))], ["backlog"]);
  assert.equal(healthy.length, EVENTS + 1, "nothing twice");
  assert.equal(new Set(numbers(healthy)).size, EVENTS + 1, "nothing lost");

  child.kill("SIGCONT");
  await until(STATE_MS, "the lag to be gone", async () => (await server.books()).lag === 0);
  // What is published last arrives last: once it is there, everything before it was.
  await sdk.trigger(CHANNEL, "end", {});
  await until(STATE_MS, "the last event at both", () => ended(healthy) && ended(seen));
  const got = numbers(seen);
  assert.equal(got.length, stopped.delivered + stopped.lag - (EVENTS + 1));
  assert.equal(missing(numbers(healthy), got).length, stopped.dropped);
  assert.ok(!states.some((state) => state !== "connecting" && state !== "connected"), states);

  const books = await server.books();
  assert.equal(books.dropped, stopped.dropped, "nothing is dropped for a client that reads");
  assert.deepEqual([books.delivered, books.lag], [healthy.length + seen.length, 0]);
  console.log(`lost ${stopped.dropped} of ${EVENTS}, received ${got.length}, all accounted for`);
});

test("the books are read from a scrape, whatever the order of its labels", () => {
  const books = parseBooks(`# HELP sluicegate_records_total records
sluicegate_records_total{column="delivered"} 7
sluicegate_records_total{reason="drop_old",place="backlog",column="dropped"} 3
sluicegate_records_total{column="dropped",place="egress",reason="severe"} 0
sluicegate_lag_records 2
`);
  const drops = [{ place: "backlog", reason: "drop_old", records: 3 }];
  assert.deepEqual(books, { delivered: 7, dropped: 3, drops, lag: 2 });
  assert.throws(() => parseBooks(""), /no sluicegate_lag_records/);
});
