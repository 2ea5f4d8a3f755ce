"""The subscriber `asyncpusher`: protocol 7 on aiohttp, with pings of WebSocket itself."""

import asyncio
import json
import unittest

from asyncpusher import Connection, Pusher as Client

from support import APP, ARRIVAL_S, HOST, Server

SUCCEEDED = "pusher_internal:subscription_succeeded"
REFUSED = "pusher:subscription_error"
_POLL_S = 0.01


async def until(what, look):
    """Looks again and again until `look` answers something true."""
    async def wait():
        while not look():
            await asyncio.sleep(_POLL_S)

    try:
        await asyncio.wait_for(wait(), ARRIVAL_S)
    except asyncio.TimeoutError:
        raise AssertionError(f"waited {ARRIVAL_S} s in vain for {what}") from None


async def in_thread(call, *arguments):
    return await asyncio.to_thread(call, *arguments)


class AsyncPusher(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)
        cls.sdk = cls.server.sdk()

    async def connect(self, server=None, user="u", **more):
        sdk = (server or self.server).sdk(secret=more.pop("secret", APP["secret"]))

        async def sign(wish):
            name = wish["channel_name"]
            member = {"user_id": user} if name.startswith("presence-") else None
            return sdk.authenticate(name, wish["socket_id"], member)

        client = Client(
            APP["key"],
            secure=False,
            custom_host=HOST,
            custom_port=(server or self.server).port,
            channel_authenticator=sign,
            **more,
        )
        self.addAsyncCleanup(client.disconnect)
        await asyncio.wait_for(client.connect(), ARRIVAL_S)
        return client

    async def listen(self, client, name, *events):
        """Subscribes, and answers what comes of each event, in order."""
        seen = {event: [] for event in (SUCCEEDED, REFUSED, *events)}
        channel = await client.subscribe(name)

        def keep(event):
            async def take(data):
                seen[event].append(data)
            channel.bind(event, take)

        for event in seen:
            keep(event)
        answered = lambda: seen[SUCCEEDED] or seen[REFUSED]
        await until(f"an answer about {name}", answered)
        return channel, seen

    async def publish(self, *arguments):
        self.assertEqual(await in_thread(self.sdk.trigger, *arguments), {})

    async def test_events_come_on_every_kind_of_channel(self):
        client = await self.connect()
        for name in ["news", "private-orders", "presence-room"]:
            _, seen = await self.listen(client, name, "e")
            await self.publish(name, "e", {"n": "ü"})
            await until("the event", lambda: seen["e"])
            self.assertEqual(seen["e"], [{"n": "ü"}], name)

    async def test_members_and_client_events_are_seen(self):
        first, second = await self.connect(user="ada"), await self.connect(user="bob")
        added, removed = "pusher_internal:member_added", "pusher_internal:member_removed"
        _, here = await self.listen(first, "presence-talk", added, removed, "client-e")
        self.assertEqual(here[SUCCEEDED][0]["presence"]["ids"], ["ada"])
        channel, _ = await self.listen(second, "presence-talk")
        await channel.trigger({"event": "client-e", "data": {"x": 1}})
        await until("the event", lambda: here["client-e"] and here[added])
        self.assertEqual(here["client-e"], [{"x": 1}])
        self.assertEqual(here[added][0]["user_id"], "bob")
        await second.disconnect()
        await until("who goes", lambda: here[removed])
        self.assertEqual(here[removed], [{"user_id": "bob"}])

    async def test_a_forged_signature_is_refused_and_nothing_else(self):
        client = await self.connect(secret="guessed")
        _, seen = await self.listen(client, "private-orders")
        self.assertEqual((seen[SUCCEEDED], seen[REFUSED][0]["status"]), ([], 401))
        _, open_to_all = await self.listen(client, "open")
        self.assertTrue(open_to_all[SUCCEEDED])
        self.assertTrue(client.connection.is_connected())

    async def test_pings_of_websocket_are_answered_on_an_idle_connection(self):
        client = await self.connect()
        socket = client.connection._ws
        pongs = []
        heard = socket._reset_heartbeat

        # aiohttp takes pongs out of the stream; this is where it notes that one came.
        def note():
            pongs.append(True)
            heard()

        socket._reset_heartbeat = note
        await socket.ping(b"are you there?")
        await until("the pong", lambda: pongs)

    async def test_clients_come_back_to_the_next_server(self):
        first = Server()
        client = await self.connect(first, auto_sub=True)
        _, seen = await self.listen(client, "private-news", "e")
        before = client.connection.socket_id
        self.assertEqual(await in_thread(first.stop), 0)
        second = await in_thread(Server, first.port)
        self.addCleanup(second.stop)
        await until("the next subscription", lambda: len(seen[SUCCEEDED]) == 2)
        self.assertNotEqual(client.connection.socket_id, before)
        await in_thread(second.sdk().trigger, "private-news", "e", json.dumps(1))
        await until("the event", lambda: seen["e"])
        self.assertEqual(seen["e"], [1])

    async def test_an_unknown_key_is_refused_for_good(self):
        client = Client("no-such-key", secure=False, custom_host=HOST, custom_port=self.server.port)
        connecting = asyncio.create_task(client.connect())
        await until("the end", lambda: client.connection.state == Connection.State.CLOSED)
        self.assertTrue(client.connection._stop, "it does not try again")
        connecting.cancel()


if __name__ == "__main__":
    unittest.main()
