// What most test files need: a server, somebody who publishes to it, and clients that go with it.

import { after, before } from "node:test";
import { publisher, subscriber } from "./peers.mjs";
import { startServer } from "./server.mjs";

/** Starts a server for the tests of a file, with this configuration, and ends it after them. */
export function stage(config) {
  const ends = [];
  const on = {
    /** The server. */
    server: undefined,
    /** The app's own server. */
    app: undefined,
    /** A client that is disconnected with the server. */
    connect(options) {
      const client = subscriber(on.server.port, options);
      on.goes(() => client.disconnect());
      return client;
    },
    /** Something that is ended with the server. */
    goes(end) {
      ends.push(end);
    },
  };
  before(async () => {
    on.server = await startServer(config === undefined ? {} : { config });
    on.app = publisher(on.server.port);
  });
  after(async () => {
    for (const end of ends) end();
    on.app?.close();
    await on.server?.stop();
  });
  return on;
}
