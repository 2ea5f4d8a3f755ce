"""The server SDK `pusher`: every call that it has."""

import json
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pusher
from pusher.errors import PusherBadAuth, PusherBadRequest, PusherBadStatus

from subscribers import connect, listen
from support import APP, HOST, Server, ServerCase, until


class Calls(ServerCase):
    def connect(self, *channels):
        """A subscriber of these channels, and what it gets on each."""
        client = connect(self, self.server, user_data={"user_id": "u"})
        return client, {name: listen(client, name, "e")[2]["e"] for name in channels}

    def test_an_event_is_published_to_one_channel_and_to_many(self):
        _, seen = self.connect("one", "two")
        self.assertEqual(self.sdk.trigger("one", "e", {"text": "héllo 🚰"}), {})
        self.assertEqual(self.sdk.trigger(["one", "two"], "e", "[2]"), {})
        until("three events", lambda: len(seen["one"]) == 2 and seen["two"])
        self.assertEqual(json.loads(seen["one"][0]), {"text": "héllo 🚰"})
        self.assertEqual((seen["one"][1], seen["two"]), ("[2]", ["[2]"]))

    def test_the_sender_is_left_out(self):
        client, seen = self.connect("chat")
        self.sdk.trigger("chat", "e", "1", socket_id=client.connection.socket_id)
        self.sdk.trigger("chat", "e", "2")
        until("the second event", lambda: seen["chat"])
        self.assertEqual(seen["chat"], ["2"])

    def test_a_batch_is_published_in_order(self):
        _, seen = self.connect("batched")
        batch = [{"channel": "batched", "name": "e", "data": str(n)} for n in range(10)]
        self.assertEqual(self.sdk.trigger_batch(batch), {})
        until("ten events", lambda: len(seen["batched"]) == 10)
        self.assertEqual(seen["batched"], [str(n) for n in range(10)])

    def test_channels_and_users_are_told(self):
        self.connect("asked", "presence-asked")
        room = self.sdk.channels_info("presence-asked", ["user_count"])
        self.assertEqual(room, {"channels": {"presence-asked": {"user_count": 1}}})
        self.assertIn("asked", self.sdk.channels_info()["channels"])
        one = self.sdk.channel_info("asked", ["subscription_count"])
        self.assertEqual(one, {"occupied": True, "subscription_count": 1})
        self.assertEqual(self.sdk.channel_info("nobody"), {"occupied": False})
        self.assertEqual(self.sdk.users_info("presence-asked"), {"users": [{"id": "u"}]})

    def test_what_is_wrong_raises_the_error_of_its_status(self):
        forger = self.server.sdk(secret="guessed")
        with self.assertRaisesRegex(PusherBadAuth, "signature"):
            forger.trigger("a", "e", "1")
        with self.assertRaisesRegex(PusherBadRequest, "presence"):
            self.sdk.channel_info("a", ["user_count"])
        with self.assertRaisesRegex(PusherBadRequest, "presence-"):
            self.sdk.users_info("a")
        with self.assertRaisesRegex(PusherBadStatus, "413"):
            self.sdk.trigger("a", "e", "x" * 10_241)
        # This SDK leaves /apps/{id} out of the path: there is no such page.
        with self.assertRaisesRegex(PusherBadStatus, "404"):
            self.sdk.terminate_user_connections("u")


class Endpoint(BaseHTTPRequestHandler):
    """An app's server: keeps what the SDK makes of each request."""

    taken = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        sdk = pusher.Pusher(APP["id"], APP["key"], APP["secret"])
        key, signature = (self.headers[f"X-Pusher-{name}"] for name in ("Key", "Signature"))
        self.taken.append(sdk.validate_webhook(key, signature, body))
        self.taken.append(sdk.validate_webhook(key, signature, body + " "))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Webhooks(unittest.TestCase):
    def test_what_the_server_tells_is_valid_and_nothing_else_is(self):
        endpoint = ThreadingHTTPServer((HOST, 0), Endpoint)
        self.addCleanup(endpoint.server_close)
        threading.Thread(target=endpoint.serve_forever, daemon=True).start()
        self.addCleanup(endpoint.shutdown)
        url = f"http://{HOST}:{endpoint.server_port}/hooks"
        server = Server(more=f'[[app.webhook]]\nurl = "{url}"\nevents = ["channel_occupied"]\n')
        self.addCleanup(server.stop)
        listen(connect(self, server), "told")
        until("the hook", lambda: len(Endpoint.taken) == 2)
        events = [{"name": "channel_occupied", "channel": "told"}]
        self.assertEqual(Endpoint.taken[0]["events"], events)
        self.assertIsNone(Endpoint.taken[1], "one byte more")


if __name__ == "__main__":
    unittest.main()
