// The real peers: pusher-js as the subscriber, the `pusher` SDK as the publisher.

import http from "node:http";
import https from "node:https";
import Pusher from "pusher";
import PusherJs from "pusher-js";
import { within } from "./wait.mjs";

export const APP = { id: "1001", key: "app-key", secret: "app-secret" };

/** A configuration whose app is `APP`, with more of its keys, and tables of its own behind them. */
export function appConfig(...more) {
  const { id, key, secret } = APP;
  const lines = [`id = "${id}"`, `key = "${key}"`, `secret = "${secret}"`, "client_events = true"];
  return ["[[app]]", ...lines, ...more, ""].join("\n");
}

const CONNECT_MS = 20_000;

/**
 * A pusher-js client of the server on `port`. It tries nothing but that server. `authority` signs
 * for its channels, and `user` is who it is when it signs in: a value, or a function of its own.
 * With `tls` it comes by wss, and trusts what its process does. It uses no transports but these.
 */
export function subscriber(port, options = {}) {
  const { key = APP.key, authority, user, tls = false, transports = ["ws"] } = options;
  return new PusherJs(key, {
    channelAuthorization: { customHandler: (wish, done) => authorize(wish, done, authority) },
    cluster: "none",
    enabledTransports: transports,
    forceTLS: tls,
    httpHost: "127.0.0.1",
    httpPort: port,
    httpsPort: port,
    userAuthentication: { customHandler: (wish, done) => authenticate(wish, done, user) },
    wsHost: "127.0.0.1",
    wsPort: port,
    wssPort: port,
  });
}

let members = 0;

/** Somebody who was not there before. */
function newMember() {
  members += 1;
  return { user_id: `user-${members}`, user_info: { number: members } };
}

/** What an app's own server answers: a token for whoever may subscribe. */
function authorize({ socketId, channelName }, done, authority) {
  try {
    const member = channelName.startsWith("presence-") ? newMember() : undefined;
    done(null, (authority ?? appServer()).authorizeChannel(socketId, channelName, member));
  } catch (error) {
    done(error, null);
  }
}

/** What it answers to who somebody is. */
function authenticate({ socketId }, done, user) {
  try {
    const who = typeof user === "function" ? user() : user;
    done(null, appServer().authenticateUser(socketId, who));
  } catch (error) {
    done(error, null);
  }
}

/** The server SDK as an app's server uses it to sign. */
export function appServer(secret = APP.secret) {
  return new Pusher({
    appId: APP.id,
    encryptionMasterKeyBase64: Buffer.alloc(32, 7).toString("base64"),
    host: "127.0.0.1",
    key: APP.key,
    secret,
    useTLS: false,
  });
}

/** The channel, once the server has confirmed the subscription. */
export function subscribed(client, name) {
  return within(CONNECT_MS, `the subscription to ${name}`, (resolve, reject) => {
    const channel = client.subscribe(name);
    channel.bind("pusher:subscription_succeeded", () => resolve(channel));
    channel.bind("pusher:subscription_error", (error) => reject(new Error(JSON.stringify(error))));
  });
}

/** The client, once it is signed in and has its own channel. */
export async function signedIn(client) {
  client.signin();
  await within(CONNECT_MS, "the signed-in user's channel", (resolve) => {
    client.bind_global((event) => {
      if (event === "pusher:signin_success") resolve();
    });
  });
  await client.user.signinDonePromise;
  return client;
}

/** The data of every event of that name, in order, as a list that grows. */
export function collect(source, event) {
  const seen = [];
  source.bind(event, (data) => seen.push(data));
  return seen;
}

/** The code and message of every error that a client's connection is told, as a list that grows. */
export function errors(client) {
  const seen = [];
  client.connection.bind("error", (told) => seen.push((told.error ?? told).data ?? {}));
  return seen;
}

/** Hands over the name and number of every event of the channel, in order. */
export function watch(channel, take) {
  channel.bind_global((event, data) => {
    if (!event.startsWith("pusher:")) take({ event, number: data.number });
  });
}

/**
 * The server SDK, over at most `connections` connections that are kept. With the certificate `ca`
 * of the server it comes by https.
 */
export function publisher(port, { connections = 1, secret = APP.secret, ca } = {}) {
  const { Agent } = ca === undefined ? http : https;
  const agent = new Agent({ ca, keepAlive: true, maxSockets: connections });
  const sdk = new Pusher({
    agent,
    appId: APP.id,
    encryptionMasterKeyBase64: Buffer.alloc(32, 7).toString("base64"),
    host: "127.0.0.1",
    key: APP.key,
    port: String(port),
    secret,
    timeout: CONNECT_MS,
    useTLS: ca !== undefined,
  });
  return {
    sdk,
    /** Publishes, and reads the answer to its end: only then is the connection free again. */
    async trigger(channel, event, data) {
      const response = await sdk.trigger(channel, event, data);
      await response.text();
      return response.status;
    },
    /** What the server answers to a call of the SDK, as a value. */
    async answer(call) {
      const response = await call(sdk);
      return response.json();
    },
    close: () => agent.destroy(),
  };
}
