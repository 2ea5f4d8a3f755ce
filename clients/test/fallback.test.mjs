// The HTTP fallback, as pusher-js comes to it where WebSockets do not get through: by streams and
// by polls, to a server of several event loops.

import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import {
  appConfig,
  collect,
  errors,
  publisher,
  signedIn,
  subscribed,
  subscriber,
} from "../support/peers.mjs";
import { startServer } from "../support/server.mjs";
import { until } from "../support/wait.mjs";

const ARRIVAL_MS = 45_000;
const TEST = { timeout: 180_000 };
const CONFIG = `${appConfig()}\n[server]\nworkers = 2\n`;

for (const transport of ["xhr_streaming", "xhr_polling"]) {
  describe(transport, () => {
    const cleanups = [];
    after(async () => {
      for (const cleanup of cleanups.reverse()) await cleanup();
    });

    async function start(port) {
      const server = await startServer({ port, config: CONFIG });
      cleanups.push(() => server.stop());
      return server;
    }

    function connect(server, options) {
      const client = subscriber(server.port, { transports: [transport], ...options });
      cleanups.push(() => client.disconnect());
      return client;
    }

    function publish(server) {
      const app = publisher(server.port);
      cleanups.push(() => app.close());
      return app;
    }

    test("channels of every kind, users and client events", TEST, async () => {
      const server = await start();
      const app = publish(server);
      // Several, so that both event loops have sessions, and sockets for the other one's.
      const clients = [];
      for (let n = 0; n < 8; n += 1) clients.push(connect(server, { user: { id: `user-${n}` } }));
      const seen = [];
      for (const client of clients) {
        for (const name of ["news", "private-orders", "private-encrypted-notes", "presence-room"]) {
          seen.push(collect(await subscribed(client, name), "e"));
        }
        await signedIn(client);
        assert.equal(client.connection.connection.transport.name, transport);
      }
      for (const name of ["news", "private-orders", "private-encrypted-notes", "presence-room"]) {
        assert.equal(await app.trigger(name, "e", { text: "ä \"😀\"\n", name }), 200);
      }
      await until(ARRIVAL_MS, "an event on each", () => seen.every((events) => events.length > 0));
      assert.ok(seen.every((events) => events.length === 1 && events[0].text === "ä \"😀\"\n"));

      const own = collect(clients[3].user, "e");
      await app.answer((sdk) => sdk.sendToUser("user-3", "e", "yours"));
      await until(ARRIVAL_MS, "an event for the user", () => own.length > 0);

      const room = clients[0].channel("presence-room");
      assert.equal(room.members.count, 8);
      const said = clients.map((client) => collect(client.channel("private-orders"), "client-e"));
      clients[0].channel("private-orders").trigger("client-e", { from: 0 });
      await until(ARRIVAL_MS, "a client event at all others", () =>
        said.slice(1).every((events) => events.length === 1),
      );
      assert.equal(said[0].length, 0, "and not at its sender");

      const gone = collect(room, "pusher:member_removed");
      clients[7].disconnect();
      await until(ARRIVAL_MS, "the member to be gone", () => gone.length === 1);
      await app.answer((sdk) => sdk.terminateUserConnections("user-6"));
      const state = () => clients[6].connection.state;
      await until(ARRIVAL_MS, "a connection that is ended", () => state() === "disconnected");
    });

    test("more than one response holds, without loss", TEST, async () => {
      const server = await start();
      const app = publish(server);
      const clients = [connect(server), connect(server), connect(server)];
      const seen = [];
      const connected = clients.map((client) => collect(client.connection, "connected"));
      for (const client of clients) seen.push(collect(await subscribed(client, "news"), "e"));
      const all = 150;
      // Two bytes each, and one character for the client, which counts those.
      const text = "ä".repeat(4_000);
      for (let number = 0; number < all; number += 1) {
        assert.equal(await app.trigger("news", "e", { number, text }), 200);
      }
      await until(ARRIVAL_MS, "all of them", () => seen.every((events) => events.length >= all));
      const numbers = Array.from({ length: all }, (_, number) => number);
      for (const events of seen) assert.deepEqual(events.map((event) => event.number), numbers);
      assert.ok(connected.every((events) => events.length === 1), "it was one connection");
      const books = await server.books();
      assert.deepEqual([books.delivered, books.dropped, books.lag], [3 * all, 0, 0]);
    });

    test("a ping is answered, and who is refused is told why", TEST, async () => {
      const server = await start();
      const client = connect(server);
      await subscribed(client, "news");
      const { transport: wire } = client.connection.connection;
      let activity = 0;
      wire.bind("activity", () => {
        activity += 1;
      });
      client.connection.connection.ping();
      await until(ARRIVAL_MS, "a sign of life", () => activity > 0);

      const stranger = connect(server, { key: "nobody" });
      const told = errors(stranger);
      await until(ARRIVAL_MS, "the refusal", () => stranger.connection.state === "disconnected");
      assert.equal(told[0].code, 4001);
    });

    test("clients come back to the next server", TEST, async () => {
      const first = await start();
      const client = connect(first);
      const channel = await subscribed(client, "private-orders");
      const seen = collect(channel, "e");
      const again = collect(channel, "pusher:subscription_succeeded");
      const told = errors(client);
      assert.equal(await first.stop(), 0, "it ends well while a client is there");
      await until(ARRIVAL_MS, "the code", () => told.length > 0);
      // Who is between two polls at that moment finds nobody, and is not told why.
      const due = transport === "xhr_polling" ? [4200, 1006] : [4200];
      assert.ok(due.includes(told[0].code), JSON.stringify(told));
      const second = await start(first.port);
      await until(ARRIVAL_MS, "the subscription anew", () => again.length === 1);
      assert.equal(await publish(second).trigger("private-orders", "e", 1), 200);
      await until(ARRIVAL_MS, "an event", () => seen.length > 0);
      client.disconnect();
    });
  });
}

