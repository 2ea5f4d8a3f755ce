// One pusher-js client in a process of its own, so that it can be stopped like a hung browser.
// Tells its parent everything it sees, in order: {subscribed}, {event, number}, {state}.

import { subscribed, subscriber, watch } from "./peers.mjs";

const [port, name] = process.argv.slice(2);
const client = subscriber(Number(port));
client.connection.bind("state_change", ({ current }) => process.send({ state: current }));
const channel = await subscribed(client, name);
watch(channel, (seen) => process.send(seen));
process.send({ subscribed: true });
process.once("disconnect", () => process.exit());
