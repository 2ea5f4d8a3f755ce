// One signed-in pusher-js client in a process of its own: the timer that pusher-js leaves behind
// when its user is thrown out, half a minute long, ends with it.
// Tells its parent what becomes of it, in order: {signedIn}, {error}, {state}.

import { signedIn, subscriber } from "./peers.mjs";

const [port, id] = process.argv.slice(2);
const client = subscriber(Number(port), { user: { id } });
client.connection.bind("error", (told) => process.send({ error: told.error?.data ?? told.data }));
client.connection.bind("state_change", ({ current }) => process.send({ state: current }));
await signedIn(client);
process.send({ signedIn: true });
process.once("disconnect", () => process.exit());
