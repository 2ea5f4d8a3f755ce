"""Clients of `pysher` and what they are told."""

from pysher import Pusher as Client

from support import APP, HOST, until

SUCCEEDED = "pusher_internal:subscription_succeeded"
REFUSED = "pusher:subscription_error"


def connect(case, server, key=APP["key"], **more):
    """A client that is connected, unless its key is wrong. `errors` and `heard` have what came."""
    options = {"secret": APP["secret"], "reconnect_interval": 0, **more}
    client = Client(key, secure=False, custom_host=HOST, port=server.port, **options)
    client.errors, client.heard = [], []
    client.connection.bind("pusher:error", client.errors.append)
    handle = client.connection.event_handler

    # An answer may come before `subscribe` returns, and then nobody has bound anything.
    def hear(event, data, channel):
        client.heard.append((channel, event, data))
        handle(event, data, channel)

    client.connection.event_handler = hear
    client.connect()
    case.addCleanup(client.disconnect, 5)
    if key == APP["key"]:
        until("the connection", lambda: client.connection.state == "connected")
    return client


def answers(client, name):
    """What the server has answered about a channel, in order: pairs of event and data."""
    words = (SUCCEEDED, REFUSED)
    return [(event, data) for to, event, data in client.heard if to == name and event in words]


def listen(client, name, *events):
    """Subscribes. Answers the channel, the server's answer, and what comes of each event."""
    channel = client.subscribe(name)
    seen = {event: [] for event in events}
    for event, data in seen.items():
        channel.bind(event, data.append)
    until(f"an answer about {name}", lambda: answers(client, name))
    return channel, answers(client, name)[0], seen
