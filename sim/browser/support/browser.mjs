// The real browser, and a page of which everything is noted that a good one does not do.

import assert from "node:assert/strict";
import { chromium } from "playwright-core";

const BROWSER = process.env.SLUICEGATE_BROWSER;

/** Starts it. `program` is what makes the pages. */
export function launch(program) {
  assert.ok(program && BROWSER, "run it with `cargo xtask report`");
  const args = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update"];
  return chromium.launch({ executablePath: BROWSER, args });
}

/** Opens a page, which may ask for what `isDue` allows. `faults` is a list that grows. */
export async function watched(browser, url, options, isDue) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  const faults = [];
  page.on("console", (message) => faults.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => faults.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => faults.push(`dialog: ${dialog.message()}`));
  page.on("request", (request) => {
    const asked = request.url();
    if (asked !== "data:," && !isDue(asked)) faults.push(`request: ${asked}`);
  });
  await page.goto(url);
  return { page, faults, close: () => context.close() };
}
