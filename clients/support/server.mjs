// A server under test: started on a port of its own choice, asked for its books, ended with the
// test.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { within } from "./wait.mjs";

const BUILT = fileURLToPath(new URL("../../target/release/sluicegate-ws", import.meta.url));
const START_MS = 20_000;
const END_MS = 15_000;
// The last lines a server printed, shown when it does not start.
const KEPT_LINES = 40;

/**
 * Starts the server: on any free port unless one is given, with the development app unless there is
 * a configuration. `SLUICEGATE_WS` names another program than the release build's.
 */
export async function startServer({ port: wanted = 0, config } = {}) {
  const program = process.env.SLUICEGATE_WS ?? BUILT;
  const folder = mkdtempSync(join(tmpdir(), "server-"));
  const args = ["--port", String(wanted)];
  if (config !== undefined) {
    writeFileSync(join(folder, "ws.toml"), config);
    args.push("--config", join(folder, "ws.toml"));
  }
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
  const kill = () => child.kill("SIGKILL");
  process.once("exit", kill);
  const lines = [];
  const port = await within(START_MS, "the server's address in what it prints", (found, lost) => {
    child.once("error", lost);
    child.once("exit", () => lost(new Error(`the server ended at once:\n${lines.join("\n")}`)));
    const read = (chunk) => {
      lines.push(...chunk.toString().split("\n").filter(Boolean));
      lines.splice(0, lines.length - KEPT_LINES);
      const address = lines.join("\n").match(/\b(?:127\.0\.0\.1|localhost):([1-9]\d*)/);
      if (address) found(Number(address[1]));
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
  }).finally(() => rmSync(folder, { recursive: true }));
  return {
    port,
    base: `http://127.0.0.1:${port}`,
    lines,
    /** The books, as `/metrics` shows them now. */
    async books() {
      const response = await fetch(`http://127.0.0.1:${port}/metrics`);
      if (response.status !== 200) throw new Error(`/metrics answered ${response.status}`);
      return parseBooks(await response.text());
    },
    /** Asks it to read its configuration and its certificate again. */
    reload: () => child.kill("SIGHUP"),
    /** Asks it to end, and insists. Answers its exit code, `null` when it had to be killed. */
    async stop() {
      process.removeListener("exit", kill);
      if (child.exitCode === null && child.signalCode === null) {
        const gone = once(child, "exit");
        child.kill("SIGTERM");
        const insist = setTimeout(kill, END_MS);
        await gone;
        clearTimeout(insist);
      }
      return child.exitCode;
    },
  };
}

/** Sums of records by column, the places and reasons of drops, and the lag, out of a scrape. */
export function parseBooks(text) {
  const columns = {};
  const drops = [];
  let lag;
  for (const line of text.split("\n")) {
    const sample = line.match(/^(\w+)(?:\{(.*)\})? (\S+)/);
    if (!sample) continue;
    const [, name, labelled, number] = sample;
    const pairs = [...(labelled ?? "").matchAll(/(\w+)="([^"]*)"/g)];
    const labels = Object.fromEntries(pairs.map(([, key, value]) => [key, value]));
    const value = Number(number);
    if (name === "sluicegate_lag_records") lag = (lag ?? 0) + value;
    if (name !== "sluicegate_records_total" || labels.column === undefined) continue;
    columns[labels.column] = (columns[labels.column] ?? 0) + value;
    if (labels.column === "dropped" && value > 0) {
      drops.push({ place: labels.place, reason: labels.reason, records: value });
    }
  }
  if (lag === undefined) throw new Error("/metrics has no sluicegate_lag_records");
  return { delivered: columns.delivered ?? 0, dropped: columns.dropped ?? 0, drops, lag };
}
