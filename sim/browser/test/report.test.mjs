// The report as a person opens it: from a file, without a network, in a real browser.

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { launch, watched } from "../support/browser.mjs";

const SIM = process.env.SLUICEGATE_SIM;
const ROOT = join(import.meta.dirname, "../../..");
const HOSTILE = "</script><script>window.broken = 1</script><img src=x onerror='window.broken=2'>";

let browser;
let folder;

before(async () => {
  browser = await launch(SIM);
  folder = mkdtempSync(join(tmpdir(), "sluicegate-report-"));
});

after(async () => {
  await browser?.close();
  if (folder) rmSync(folder, { recursive: true });
});

// Runs stories, and answers what they print as JSON and the page's address.
function run(name, ...paths) {
  const file = join(folder, `${name}.html`);
  const args = ["run", "--json", "--report", file, ...paths];
  const lines = execFileSync(SIM, args, { cwd: ROOT, encoding: "utf8" }).trim().split("\n");
  return { runs: lines.map((line) => JSON.parse(line)), url: pathToFileURL(file).href };
}

// A report, which asks for nothing.
async function open(url, options = {}) {
  const isDue = (asked) => asked.split("#")[0] === url.split("#")[0];
  const opened = await watched(browser, url, options, isDue);
  await opened.page.waitForFunction(drawnAll);
  return opened;
}

// In the page: whether every picture that has a place is drawn.
function drawnAll() {
  const { plots } = window.sluicegate;
  return document.querySelectorAll("figure.plot").length === plots.length
    && plots.every(({ plot }) => plot.status === 1);
}

// In the page: what each picture was given to draw.
function drawnData() {
  return window.sluicegate.plots.map(({ id, plot }) => ({
    id,
    labels: plot.series.map((one) => one.label),
    data: plot.data.map((values) => Array.from(values)),
  }));
}

function series(pictures, id, label) {
  const picture = pictures.find((one) => one.id === id);
  assert.ok(picture, `a picture of ${id}`);
  const at = picture.labels.indexOf(label);
  assert.ok(at > 0, `${label} in ${id}: ${picture.labels}`);
  return { seconds: picture.data[0], values: picture.data[at] };
}

// What a rate adds up to over its time.
function whole({ seconds, values }) {
  return values.reduce((sum, value, at) =>
    sum + (value === null ? 0 : value * (seconds[at] - seconds[at - 1])), 0);
}

test("what is drawn is what the run counted", async () => {
  const { runs: [told], url } = run("slow", "scenarios/slow-subscriber.toml");
  const { page, faults, close } = await open(url);
  const pictures = await page.evaluate(drawnData);
  const near = (value, due) => assert.ok(Math.abs(value - due) < 1e-6 * due, `${value}, ${due}`);
  near(whole(series(pictures, "publish", "offered")), told.books.offered.records);
  near(whole(series(pictures, "deliver", "delivered")), told.books.delivered.records);
  const lost = told.books.dropped["backlog/drop_old"].records;
  near(whole(series(pictures, "deliver", "dropped")), lost);
  near(whole(series(pictures, "lost", "dropped backlog/drop_old")), lost);
  const sleeper = told.subscribers.find((row) => row.name === "sleeper");
  assert.equal(series(pictures, "lag", "sleeper").values.at(-1), sleeper.lag);
  assert.equal(Math.max(...series(pictures, "memory", "held").values), told.peaks.held_bytes);
  const percentiles = series(pictures, "percentiles", "reader");
  const at = percentiles.seconds.findIndex((nines) => nines >= 2);
  const reader = told.subscribers.find((row) => row.name === "reader");
  assert.equal(percentiles.values[at], reader.latency_p99_ns);
  // The page holds the same numbers as the command prints, the wall clock aside.
  const shown = await page.evaluate(() => window.sluicegate.document.runs[0]);
  for (const key of ["tape", "books", "peaks", "subscribers", "expectations", "command"]) {
    assert.deepEqual(shown[key], told[key], key);
  }
  assert.deepEqual(faults, []);
  await close();
});

test("every line is on its canvas in its colour", async () => {
  const { url } = run("colours", "scenarios/slow-subscriber.toml");
  for (const colorScheme of ["light", "dark"]) {
    const { page, close } = await open(url, { colorScheme });
    const missing = await page.evaluate(() => {
      const close = (a, b) => Math.abs(a - b) <= 24;
      const found = [];
      for (const { id, plot } of window.sluicegate.plots) {
        const { width, height } = plot.ctx.canvas;
        const pixels = plot.ctx.getImageData(0, 0, width, height).data;
        plot.series.slice(1).forEach((one, at) => {
          if (!plot.data[at + 1].some((value) => value > 0)) return;
          const hex = one.stroke(plot, at + 1).slice(1);
          const want = [0, 2, 4].map((from) => parseInt(hex.slice(from, from + 2), 16));
          let seen = 0;
          for (let pixel = 0; pixel < pixels.length; pixel += 4) {
            if (want.every((part, of) => close(part, pixels[pixel + of]))) seen += 1;
          }
          // A line that lies exactly on a later one cannot be seen: it must be equal to it.
          const equal = plot.data.slice(at + 2).some((other) =>
            other.every((value, point) => value === plot.data[at + 1][point]));
          if (seen < 20 && !equal) found.push(`${id} ${one.label}: ${seen} pixels`);
        });
      }
      return found;
    });
    assert.deepEqual(missing, [], colorScheme);
    await close();
  }
});

test("a pointer shows values, and every axis has its unit", async () => {
  const { url } = run("pointer", "scenarios/slow-subscriber.toml");
  const { page, faults, close } = await open(url);
  await page.locator("#plot-deliver .u-over").hover();
  const text = await page.locator("#plot-deliver .u-legend").innerText();
  assert.match(text, /time:?\s*[\d.]+ s/);
  assert.match(text, /delivered:?\s*[\d.]+k/);
  const units = await page.evaluate(() =>
    window.sluicegate.plots.map(({ plot }) => plot.axes.map((axis) => axis.label)));
  assert.ok(units.length >= 8 && units.flat().every((label) => label), `${units}`);
  assert.deepEqual(faults, []);
  await close();
});

test("it fits a phone, in both colour schemes, and follows a change of either", async () => {
  const { runs, url } = run("phone", "scenarios/");
  const viewport = { width: 390, height: 844 };
  const { page, faults, close } = await open(url, { viewport, colorScheme: "light" });
  const wide = () => page.evaluate(() => document.documentElement.scrollWidth);
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.ok(await wide() <= 390, "the index");
  assert.equal(await page.locator("a[href^='#run-']").count(), runs.length);
  for (let at = 0; at < runs.length; at += 1) {
    await page.goto(`${url}#run-${at}`);
    await page.waitForFunction((due) => window.sluicegate.run === due, at);
    await page.waitForFunction(drawnAll);
    assert.ok(await wide() <= 390, runs[at].name);
    assert.ok((await page.locator("h1").innerText()).length > 0);
  }
  const light = await ground();
  await page.emulateMedia({ colorScheme: "dark" });
  await page.waitForFunction(drawnAll);
  assert.notEqual(await ground(), light);
  await page.setViewportSize({ width: 1280, height: 900 });
  await page.waitForFunction(() => window.sluicegate.plots.every(({ plot }) => plot.width > 400));
  assert.deepEqual(faults, []);
  await close();
});

test("the chain says where records ended", async () => {
  const { runs: [told], url } = run("chain", "scenarios/slow-subscriber.toml");
  for (const width of [1280, 390]) {
    const { page, close } = await open(url, { viewport: { width, height: 800 } });
    const marks = await page.locator("svg.chain [data-mark]").evaluateAll((all) =>
      all.map((one) => one.getAttribute("data-mark")));
    assert.deepEqual(marks, ["1", "2", "3", "4", "M", "5", "6", "7", "B", "S", "T"]);
    const backlog = await page.locator("svg.chain [data-mark='5']").textContent();
    const lost = told.books.dropped["backlog/drop_old"].records.toLocaleString("en");
    assert.ok(backlog.includes(`${lost} dropped`), backlog);
    // No text leaves its picture.
    const outside = await page.locator("svg.chain text").evaluateAll((all) => all.filter((one) => {
      const [box, own] = [one.closest("svg").getBoundingClientRect(), one.getBoundingClientRect()];
      return own.left < box.left - 1 || own.right > box.right + 1;
    }).map((one) => one.textContent));
    assert.deepEqual(outside, [], `at ${width}`);
    await close();
  }
});

test("what a scenario says is shown and not obeyed", async () => {
  const file = join(folder, "hostile.toml");
  writeFileSync(file, `title = '''${HOSTILE}'''
about = '''${HOSTILE}'''
duration = "1s"
[[topic]]
name = "news"
[[publisher]]
name = '''${HOSTILE}'''
topic = "news"
rate = 100
[[subscriber]]
name = '''${HOSTILE}'''
topic = "news"
stalls = [{ at = "300ms", for = "200ms" }]
`);
  const { url } = run("hostile", file);
  const { page, faults, close } = await open(url);
  assert.equal(await page.locator("h1").innerText(), HOSTILE);
  assert.equal(await page.evaluate(() => window.broken), undefined);
  assert.equal(await page.locator("img").count(), 0);
  assert.equal(await page.locator("script").count(), 3);
  assert.deepEqual(faults, []);
  await close();
});

test("what fails stands first, with the command that shows it again", async () => {
  const file = join(folder, "fails.toml");
  writeFileSync(file, `title = "It fails"
about = "Fewer records come than are expected."
duration = "1s"
[[topic]]
name = "news"
[[publisher]]
name = "feed"
topic = "news"
rate = 10
[[subscriber]]
name = "reader"
topic = "news"
[expect.subscriber.reader]
received = ">= 11"
lag = "= 0"
`);
  const html = join(folder, "fails.html");
  const output = spawnSync(SIM, ["run", "--report", html, file], { encoding: "utf8" });
  assert.equal(output.status, 1);
  const command = `sluicegate-sim run ${file} --seed 0`;
  assert.ok(output.stderr.includes(command), output.stderr);
  const { page, faults, close } = await open(pathToFileURL(html).href);
  assert.match(await page.locator(".verdict").innerText(), /an expectation does not hold/);
  const headings = await page.locator("h2").allInnerTexts();
  assert.equal(headings[0], "Expectations: 1 of 2 hold");
  const row = page.locator("#expectations > .wide tr", { hasText: "subscriber reader: received" });
  assert.match(await row.innerText(), /✗ fails.*>= 11\s+10/s);
  assert.equal(await page.locator("pre.wrap").last().innerText(), command);
  assert.deepEqual(faults, []);
  await close();
});
