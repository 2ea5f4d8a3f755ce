"""The subscriber `pysher`: protocol 6, pings with an empty string, signs by itself."""

import json
import unittest

from subscribers import REFUSED, SUCCEEDED, answers, connect, listen
from support import Server, ServerCase, until


class Pysher(ServerCase):
    def test_a_connection_is_established_and_its_pings_are_answered(self):
        client = connect(self, self.server)
        self.assertRegex(client.connection.socket_id, r"^\d+\.\d+$")
        until("the pong to its first ping", lambda: client.connection.pong_received)
        client.connection.pong_received = False
        client.connection.send_ping()
        until("the pong to another", lambda: client.connection.pong_received)

    def test_events_come_on_public_and_private_channels(self):
        client = connect(self, self.server)
        for name in ["news", "private-orders"]:
            _, _, seen = listen(client, name, "e")
            self.sdk.trigger(name, "e", {"n": 1})
            until("the event", lambda: seen["e"])
            self.assertEqual([json.loads(data) for data in seen["e"]], [{"n": 1}])

    def test_members_see_each_other(self):
        first, second = (
            connect(self, self.server, user_data={"user_id": user, "user_info": {"name": user}})
            for user in ["ada", "bob"]
        )
        added, removed = "pusher_internal:member_added", "pusher_internal:member_removed"
        _, (answer, data), here = listen(first, "presence-room", added, removed)
        self.assertEqual(answer, SUCCEEDED)
        presence = json.loads(data)["presence"]
        self.assertEqual(presence, {"count": 1, "ids": ["ada"], "hash": {"ada": {"name": "ada"}}})
        listen(second, "presence-room")
        until("who comes", lambda: here[added])
        expected = {"user_id": "bob", "user_info": {"name": "bob"}}
        self.assertEqual(json.loads(here[added][0]), expected)
        second.unsubscribe("presence-room")
        until("who goes", lambda: here[removed])
        self.assertEqual(json.loads(here[removed][0]), {"user_id": "bob"})

    def test_client_events_reach_the_others(self):
        first, second = connect(self, self.server), connect(self, self.server)
        mine, _, own = listen(first, "private-talk", "client-e", "mark")
        _, _, theirs = listen(second, "private-talk", "client-e")
        mine.trigger("client-e", {"x": [1, "ü"]})
        until("the event", lambda: theirs["client-e"])
        self.assertEqual(theirs["client-e"], [{"x": [1, "ü"]}])
        self.sdk.trigger("private-talk", "mark", "1")
        until("the mark", lambda: own["mark"])
        self.assertEqual(own["client-e"], [])

    def test_refusals_do_not_end_the_connection(self):
        client = connect(self, self.server, secret="guessed")
        _, (answer, data), _ = listen(client, "private-orders")
        self.assertEqual((answer, data["status"]), (REFUSED, 401))
        listen(client, "open")
        client.connection.send_event("client-e", {}, "open")
        until("the error", lambda: client.errors)
        self.assertEqual(client.errors[0]["code"], 4301)
        listen(client, "still-open")
        self.assertEqual(client.connection.state, "connected")

    def test_who_leaves_gets_no_more(self):
        client = connect(self, self.server)
        channel, _, left = listen(client, "left", "e")
        _, _, kept = listen(client, "kept", "e")
        client.unsubscribe("left")
        client.channels["left"] = channel
        # Commands of one connection are handled in order.
        listen(client, "after")
        self.sdk.trigger("left", "e", "1")
        self.sdk.trigger("kept", "e", "2")
        until("the event", lambda: kept["e"])
        self.assertEqual((left["e"], kept["e"]), ([], ["2"]))

    def test_an_unknown_key_is_refused_for_good(self):
        client = connect(self, self.server, key="no-such-key")
        until("the refusal", lambda: client.errors)
        self.assertEqual(client.errors[0]["code"], 4001)
        client.connection.join(5)
        self.assertFalse(client.connection.is_alive(), "it does not try again")


class Restart(unittest.TestCase):
    def test_clients_come_back_to_the_next_server(self):
        first = Server()
        client = connect(self, first, auto_sub=True)
        _, _, seen = listen(client, "news", "e")
        before = client.connection.socket_id
        self.assertEqual(first.stop(), 0)
        self.assertEqual(client.errors[0]["code"], 4200)
        second = Server(first.port)
        self.addCleanup(second.stop)
        until("the next subscription", lambda: len(answers(client, "news")) == 2)
        self.assertNotEqual(client.connection.socket_id, before)
        second.sdk().trigger("news", "e", "1")
        until("the event", lambda: seen["e"])
        self.assertEqual(seen["e"], ["1"])


if __name__ == "__main__":
    unittest.main()
