// One pusher-js client over wss in a process of its own: only at its start does a process read
// which certificates it trusts besides those of the system (NODE_EXTRA_CA_CERTS).
// Tells its parent everything it sees, in order: {state}, {subscribed}, {event, number}.

import { subscribed, subscriber, watch } from "./peers.mjs";

const [port, ...names] = process.argv.slice(2);
const client = subscriber(Number(port), { tls: true });
client.connection.bind("state_change", ({ current }) => process.send({ state: current }));
for (const name of names) watch(await subscribed(client, name), (seen) => process.send(seen));
process.send({ subscribed: true });
process.once("disconnect", () => process.exit());
