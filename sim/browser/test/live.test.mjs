// The broker's live page as an operator sees it, while a topic with a hostile name is held.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";

const QUIC = process.env.SLUICEGATE_QUIC;
const BROWSER = process.env.SLUICEGATE_BROWSER;
const HOSTILE = "</td><img src=x onerror='window.broken=1'><script>window.broken=2</script>";
const DEADLINE = { timeout: 30_000 };

let browser;
let folder;
const programs = [];

before(async () => {
  assert.ok(QUIC && BROWSER, "run it with `cargo xtask report`");
  folder = mkdtempSync(join(tmpdir(), "sluicegate-live-"));
  const args = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update"];
  browser = await chromium.launch({ executablePath: BROWSER, args });
});

after(async () => {
  await browser?.close();
  for (const program of programs) program.kill("SIGKILL");
  if (folder) rmSync(folder, { recursive: true, force: true });
});

function start(...args) {
  const program = spawn(QUIC, args, { stdio: ["pipe", "pipe", "inherit"] });
  programs.push(program);
  return program;
}

// A broker whose subscriptions may hold their topic.
async function serve() {
  const keys = ["port=0", "admin_port=0", `state_dir=${folder}`, "lossless=1", "shards=1"];
  const program = start("--json", "serve", ...keys.flatMap((key) => ["--set", key]));
  const [line] = await once(createInterface(program.stdout), "line");
  const { address, admin, fingerprint } = JSON.parse(line);
  const reach = ["--connect", `quic://${address}`, "--fingerprint", fingerprint];
  return { program, admin: `${admin}/`, reach };
}

// A subscriber that reads nothing from its pipe, once the page knows of so many.
async function take(page, args, subscriptions) {
  start("sub", ...args).stdout.pause();
  await page.waitForFunction((all) => window.sluicegate.ledger[0].subscriptions === all,
    subscriptions, DEADLINE);
}

// Publishes to a topic until what it answers is called.
function feed(topic, reach) {
  const { stdin } = start("pub", topic, ...reach);
  const records = `${"x".repeat(8000)}\n`.repeat(50);
  const feeding = setInterval(() => {
    if (!stdin.writableNeedDrain) stdin.write(records);
  }, 1);
  stdin.on("error", () => clearInterval(feeding));
  return () => clearInterval(feeding);
}

// A page of which everything is noted that a good one does not do.
async function open(url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  const faults = [];
  page.on("console", (message) => faults.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => faults.push(`error: ${error.message}`));
  page.on("request", (request) => {
    const asked = request.url();
    if (![url, `${url}ledger`, "data:,"].includes(asked)) faults.push(`request: ${asked}`);
  });
  await page.goto(url);
  await page.waitForFunction(() => window.sluicegate.plots.every(({ plot }) => plot?.status === 1),
    null, DEADLINE);
  return { page, faults, close: () => context.close() };
}

// In the page: what each picture was given to draw, and what the books said at that moment.
function drawn() {
  const { plots, ledger } = window.sluicegate;
  const lines = ({ plot }) => Object.fromEntries(plot.series.map((one, at) =>
    [at ? one.label : "seconds", Array.from(plot.data[at])]));
  return { ledger, pictures: Object.fromEntries(plots.map((one) => [one.id, lines(one)])) };
}

// What a rate adds up to over its time.
function whole({ seconds }, values) {
  return values.reduce((sum, value, at) =>
    sum + (value === null ? 0 : value * (seconds[at] - seconds[at - 1])), 0);
}

function near(value, due, what) {
  assert.ok(Math.abs(value - due) < 1e-6 * Math.max(due, 1), `${what}: ${value}, ${due}`);
}

test("what is drawn is what the books say, and who holds a topic is named", async () => {
  const { admin, reach } = await serve();
  const { page, faults, close } = await open(admin);
  // One who takes nothing once its pipe to here is full: the oldest is dropped.
  await take(page, ["lossy", "--policy", "drop-old", ...reach], 1);
  const stopLossy = feed("lossy", reach);
  await page.waitForFunction(() => window.sluicegate.ledger[0].books.dropped.length > 0, null,
    DEADLINE);
  stopLossy();
  // Another such one, who holds its topic: until nothing moves any more.
  await take(page, [HOSTILE, "--policy", "block", ...reach], 2);
  const stopHeld = feed(HOSTILE, reach);
  await page.waitForFunction(() => {
    const offered = (one) => one?.counts.get("offered") ?? 0;
    const [before, now] = [-3, -1].map((at) => offered(window.sluicegate.samples.at(at)));
    return now === before && document.querySelector("#holders td");
  }, null, DEADLINE);
  stopHeld();
  assert.equal(await page.textContent("#holders td"), HOSTILE);
  assert.equal(await page.evaluate(() => window.broken), undefined);
  assert.equal(await page.locator("#holders img, #holders script").count(), 0);

  const { ledger: [shard], pictures } = await page.evaluate(drawn);
  const { columns } = shard.books;
  const summed = (picture, name, due) => near(whole(picture, picture[name]), due, name);
  for (const name of ["offered", "admitted", "sequenced", "refused", "shed", "evicted"]) {
    summed(pictures.publish, name, columns[name].records);
  }
  for (const name of ["expected", "delivered", "dropped", "left"]) {
    summed(pictures.deliver, name, columns[name].records);
  }
  for (const table of ["refused", "shed", "evicted", "dropped"]) {
    for (const { place, reason, records } of shard.books[table].filter((cell) => cell.records)) {
      summed(pictures.lost, `${table} ${place}/${reason}`, records);
    }
  }
  assert.ok(columns.delivered.records > 0 && columns.dropped.records > 0);
  assert.ok(shard.inflight.bytes > 0 && shard.queue.jobs > 0, JSON.stringify(shard));
  assert.equal(pictures.memory.held.at(-1), shard.memory.held);
  const { queued, slots } = pictures.queue;
  assert.deepEqual([queued[0], queued.at(-1), slots[0]], [0, shard.queue.jobs, shard.queue.slots]);
  assert.equal(pictures.queue.parked.at(-1), shard.queue.parked);
  assert.equal(pictures.inflight["in flight"].at(-1), shard.inflight.bytes);
  assert.deepEqual(faults, []);
  await close();
});

test("it fits a phone, in the dark, and says when nobody answers", async () => {
  const { program, admin } = await serve();
  const options = { viewport: { width: 360, height: 740 }, colorScheme: "dark" };
  const { page, faults, close } = await open(admin, options);
  const [inner, outer] = await page.evaluate(() =>
    [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
  assert.ok(inner <= outer, `${inner} in ${outer}`);
  assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor),
    "rgb(20, 24, 29)");
  assert.deepEqual(faults, []);
  program.kill("SIGKILL");
  await page.waitForFunction(() =>
    document.querySelector("[role=status]").textContent.startsWith("No answer"), null, DEADLINE);
  await close();
});
