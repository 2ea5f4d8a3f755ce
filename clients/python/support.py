"""A server under test, the server SDK to publish with, and waiting for a state with a deadline."""

import logging
import os
import re
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

import pusher

APP = {"id": "1001", "key": "app-key", "secret": "app-secret"}
HOST = "127.0.0.1"
ARRIVAL_S = 20

_BUILT = Path(__file__).parents[2] / "target/release/sluicegate-ws"
_CONFIG = """
[[app]]
id = "{id}"
key = "{key}"
secret = "{secret}"
client_events = true
subscription_counts = true
"""
_POLL_S = 0.01

# The clients log at length that a server was lost, which these tests do on purpose.
logging.disable(logging.CRITICAL)


def until(what, look, seconds=ARRIVAL_S):
    """Looks again and again until `look` answers something true, and answers that."""
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s in vain for {what}")
        threading.Event().wait(_POLL_S)


class Server:
    """The built program; `SLUICEGATE_WS` names another one than the release build's."""

    def __init__(self, port=0, more=""):
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "ws.toml"
            config.write_text(_CONFIG.format(**APP) + more, encoding="utf-8")
            program = os.environ.get("SLUICEGATE_WS", str(_BUILT))
            self._child = subprocess.Popen(
                [program, "--port", str(port), "--config", str(config)],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            # It has read its configuration when it says where it listens.
            first = self._child.stdout.readline()
        address = re.search(r"127\.0\.0\.1:([1-9]\d*)", first)
        if address is None:
            self._child.kill()
            raise AssertionError(f"the server said {first!r} and not where it listens")
        self.port = int(address[1])

    def stop(self):
        """Asks it to end, and answers its exit code."""
        self._child.terminate()
        try:
            return self._child.wait(ARRIVAL_S)
        finally:
            self._child.kill()
            self._child.stdout.close()

    def sdk(self, **more):
        """The server SDK. Its own limits are wider than the server's."""
        return pusher.Pusher(
            app_id=APP["id"],
            key=APP["key"],
            secret=more.pop("secret", APP["secret"]),
            ssl=False,
            host=HOST,
            port=self.port,
            timeout=ARRIVAL_S,
            **more,
        )


class ServerCase(unittest.TestCase):
    """Tests that share one server."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)
        cls.sdk = cls.server.sdk()
