// wss:// and https:// on the server's one port, with a certificate that is changed while it runs.

import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { connect } from "node:tls";
import { generate } from "selfsigned";
import { appConfig, publisher } from "../support/peers.mjs";
import { startServer } from "../support/server.mjs";
import { until, within } from "../support/wait.mjs";

const ARRIVAL_MS = 20_000;
const TEST = { timeout: 60_000 };
const CLIENT = fileURLToPath(new URL("../support/tls-process.mjs", import.meta.url));

const folder = mkdtempSync(join(tmpdir(), "tls-"));
const file = (name) => join(folder, name);
const ends = [];
let server;
let certificate;

/** A new certificate for 127.0.0.1. */
function made() {
  return generate([{ name: "commonName", value: "127.0.0.1" }], {
    algorithm: "sha256",
    curve: "P-256",
    extensions: [
      { name: "basicConstraints", cA: true },
      { name: "subjectAltName", altNames: [{ type: 7, ip: "127.0.0.1" }] },
    ],
    keyType: "ec",
  });
}

/** Puts a new certificate in the place of the one before. Answers it as PEM. */
async function renew() {
  const { private: key, cert } = await made();
  writeFileSync(file("key.pem"), key);
  writeFileSync(file("cert.pem"), cert);
  return cert;
}

/** A client of these channels that trusts `ca`, and all it tells. */
function client(ca, ...names) {
  writeFileSync(file("ca.pem"), ca);
  const env = { ...process.env, NODE_EXTRA_CA_CERTS: file("ca.pem") };
  const child = fork(CLIENT, [String(server.port), ...names], { env });
  ends.push(() => child.kill("SIGKILL"));
  const told = [];
  child.on("message", (message) => told.push(message));
  return told;
}

/** The SHA-256 fingerprint of the certificate that the server shows now. */
function shown() {
  return within(ARRIVAL_MS, "the server's certificate", (found, lost) => {
    const options = { host: "127.0.0.1", port: server.port, rejectUnauthorized: false };
    const socket = connect(options, () => {
      found(socket.getPeerCertificate().fingerprint256);
      socket.destroy();
    });
    socket.once("error", lost);
  });
}

const numbers = (told) => told.filter(({ event }) => event === "e").map(({ number }) => number);

before(async () => {
  certificate = await renew();
  const tls = ["[tls]", `cert = "${file("cert.pem")}"`, `key = "${file("key.pem")}"`, ""];
  server = await startServer({ config: appConfig("", ...tls) });
});
after(async () => {
  for (const end of ends) end();
  await server?.stop();
  rmSync(folder, { recursive: true });
});

test("events published by https come by wss, in order", TEST, async () => {
  const told = client(certificate, "news", "private-orders", "presence-room");
  await until(ARRIVAL_MS, "three subscriptions", () => told.some((seen) => seen.subscribed));
  const app = publisher(server.port, { ca: certificate });
  ends.push(app.close);
  // Over several records of TLS, and many in one.
  const filling = "x".repeat(9_000);
  for (let number = 0; number < 60; number += 1) {
    const channel = ["news", "private-orders", "presence-room"][number % 3];
    const data = number % 2 === 0 ? { number } : { number, filling };
    assert.equal(await app.trigger(channel, "e", data), 200);
  }
  await until(ARRIVAL_MS, "sixty events", () => numbers(told).length >= 60);
  assert.deepEqual(numbers(told), Array.from({ length: 60 }, (_, number) => number));
});

test("a client that does not trust the certificate sends nothing", TEST, async () => {
  const other = await made();
  const app = publisher(server.port, { ca: other.cert });
  ends.push(app.close);
  await assert.rejects(app.trigger("news", "e", {}), ({ error }) => {
    assert.equal(error.code, "DEPTH_ZERO_SELF_SIGNED_CERT");
    return true;
  });
});

test("a certificate is renewed under clients that stay", TEST, async () => {
  const told = client(certificate, "news");
  await until(ARRIVAL_MS, "the subscription", () => told.some((seen) => seen.subscribed));
  const old = await shown();
  const renewed = await renew();
  server.reload();
  await until(ARRIVAL_MS, "the new certificate", async () => (await shown()) !== old);
  const late = client(renewed, "news");
  await until(ARRIVAL_MS, "the late subscription", () => late.some((seen) => seen.subscribed));
  const app = publisher(server.port, { ca: renewed });
  ends.push(app.close);
  assert.equal(await app.trigger("news", "e", { number: 1 }), 200);
  await until(ARRIVAL_MS, "it at both", () => numbers(told).length + numbers(late).length === 2);
  assert.deepEqual([numbers(told), numbers(late)], [[1], [1]]);
  const states = told.filter(({ state }) => state !== undefined).map(({ state }) => state);
  assert.deepEqual(states, ["connected"], "it was connected all the time");
});
