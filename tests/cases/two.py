r"""
Both ends of a whole gateway, for tests that look at HTTP/2's frames: a client that speaks them, and an origin that does
so, too, or speaks HTTP/1.

    with Two(engine) as two:
        client = two.client()
        client.send(req(1, b"/a"))
        # client.peer.messages[1].status, client.peer.resets, two.asked, two.records

Rules
- Frames are built by L{h2frames} and read by L{h2peer}; both ends look whether all that the gateway sends keeps to the
  rules of RFC 9113, whatever the test is about.
- An origin answers a request when the whole of it was read, unless it is C{early}.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest
from scene import Answer as Answer1
from scene import Origin
from stage import Stage
from twisted.internet.protocol import ClientFactory, Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from h2frames import PREFACE, Field, data, req, res, settings, window
from h2peer import Message, Peer
from protogate.testing.gateway import MemoryGateway
from protogate_http.client2 import Client as Caller
from protogate_http.engine2 import ENGINES
from protogate_http.server2 import Server

HOST, PORT = "192.0.2.7", 80
BOTH = [
    pytest.param(name, marks=[] if name in ENGINES else pytest.mark.skip(f"{name} is not installed"))
    for name in ("ngh2", "h2")
]
"""Engines, for a mark of all tests of a file."""
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, REFUSED_STREAM, CANCEL, CALM = 0, 1, 2, 7, 8, 11


class End(Protocol):
    """
    A L{Peer} on a transport.

    @ivar peer: what it has seen.
    @ivar lost: why the connection is gone, or None.
    """

    transport: Any

    def __init__(self, peer: Peer, first: bytes) -> None:
        self.peer, self._first = peer, first
        self.lost: BaseException | None = None

    def connectionMade(self) -> None:
        """Twisted."""
        self.peer.send = self.write
        self.write(self._first)

    def write(self, data: bytes) -> None:
        """Send, and let nothing happen."""
        self.peer.said(data)
        self.transport.write(data)

    def dataReceived(self, data: bytes) -> None:
        """Twisted."""
        self.peer.feed(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted."""
        self.lost = reason.value
        self.peer.closed = True


class Client(End):
    """Its C{send} lets everything happen."""

    def __init__(self, two: Two, said: Mapping[int, int]) -> None:
        super().__init__(Peer(True, said), PREFACE + settings(*said.items()))
        self._two = two

    def send(self, *frames: bytes) -> None:
        """In one piece; then all becomes quiet."""
        self.write(b"".join(frames))
        self._two.run()

    def seen(self, stream: int) -> str:
        """In two words, see L{Peer.seen}."""
        return self.peer.seen(stream)

    def message(self, stream: int) -> Message:
        """What came on that stream."""
        return self.peer.messages[stream]

    @property
    def resets(self) -> dict[int, int]:
        """Codes, by stream."""
        return self.peer.resets

    def room(self) -> int:
        """Bytes of content that the gateway would take from all streams together."""
        return room(self)

    def level(self, number: int, most: int = 300) -> int:
        """
        The window of the connection when all that is owed was given back, which engines do when that is half of it.

        @param number: of the first stream that is used for that.
        """
        found = self.room()
        for n in range(number, number + 2 * most, 2):
            self.send(req(n, b"/level", b"POST", end=False), data(n, bytes(1000), True))
            self._two.asked[-1].end.write(window(0, 1000))
            found = max(found, self.room())
        return found


def room(end: End) -> int:
    """Bytes of content that the gateway would take on that connection."""
    return 65535 + end.peer.credit[0] - sum(end.peer.spent.values())


class Asked:
    """
    A request as an origin got it.

    @ivar end: its connection.
    @ivar stream: its number.
    """

    def __init__(self, end: Served, stream: int) -> None:
        self.end, self.stream = end, stream

    @property
    def message(self) -> Message:
        """What has come of it."""
        return self.end.peer.messages[self.stream]

    @property
    def head(self) -> list[Field]:
        """Its fields."""
        return self.message.heads[0]

    def all(self, name: bytes) -> list[bytes]:
        """All fields of that name."""
        return [value for key, value in self.head if key == name]

    @property
    def reset(self) -> int | None:
        """The code with which the gateway gave it up, or None."""
        return self.end.peer.resets.get(self.stream)


Answer2 = bytes | None | Callable[[Asked], bytes | None]
"""What an origin sends for a request; None = nothing yet."""


def ok(asked: Asked) -> bytes:
    """Two bytes."""
    return res(asked.stream, end=False) + data(asked.stream, b"ok", True)


class Served(End):
    """A connection to an origin that speaks frames."""

    def __init__(self, origin: Origin2) -> None:
        super().__init__(Peer(False, origin.said), settings(*origin.said.items()))
        self._origin = origin
        self._known: set[int] = set()

    def dataReceived(self, data: bytes) -> None:
        super().dataReceived(data)
        for stream, message in list(self.peer.messages.items()):
            if stream not in self._known and (message.ended or self._origin.early):
                self._known.add(stream)
                self._origin.answer(Asked(self, stream))


class Origin2(Factory):
    """
    @ivar answers: the n-th request gets the n-th, further ones the last.
    @ivar asked: every request that was answered, or could have been.
    @ivar connections: every connection.
    """

    noisy = False

    def __init__(self, given: tuple[Answer2, ...], said: Mapping[int, int], early: bool) -> None:
        self.answers = given or (ok,)
        self.said, self.early = said, early
        self.asked: list[Asked] = []
        self.connections: list[Served] = []

    def buildProtocol(self, addr: object) -> Served:
        """Twisted."""
        served = Served(self)
        self.connections.append(served)
        return served

    def answer(self, asked: Asked) -> None:
        """It may be answered."""
        answer = self.answers[min(len(self.asked), len(self.answers) - 1)]
        self.asked.append(asked)
        made = answer(asked) if callable(answer) else answer
        if made:
            asked.end.write(made)


class _Once(ClientFactory[Client]):
    noisy = False

    def __init__(self, client: Client) -> None:
        self._client = client

    def buildProtocol(self, addr: object) -> Client:
        return self._client


class Two(Stage):
    """
    A gateway, and an origin behind it.

    @ivar gateway: L{MemoryGateway}.
    @ivar origin: L{Origin2}, or L{scene.Origin}.
    """

    def __init__(
        self,
        engine: str,
        *answers: Answer2 | Answer1,
        behind: str = "http2",
        said: Mapping[int, int] | None = None,
        early: bool = False,
        told: Mapping[str, Any] | None = None,
        pool: Mapping[str, Any] | None = None,
        **gateway: Any,
    ) -> None:
        """
        @param engine: of HTTP/2, on both sides.
        @param answers: see L{Origin2}, or L{scene.Origin}.
        @param behind: what the origin speaks.
        @param said: its first SETTINGS.
        @param early: it answers when the head of a request was read.
        @param told: more options of HTTP/2.
        @param gateway: of that section of the configuration.
        """
        self.config = {
            "gateway": {"name": "edge", "watch": False, **gateway},
            "listeners": [{"name": "web", "address": "127.0.0.1:8080", "protocols": ["http2", "http1"]}],
            "upstreams": [
                {
                    "name": "origin",
                    "protocol": behind,
                    "endpoints": [{"url": f"http://{HOST}:{PORT}"}],
                    **({"pool": pool} if pool else {}),
                }
            ],
            "routes": [{"value": "/", "matcherType": "prefix", "routes": [{"targets": [{"upstream": "origin"}]}]}],
            "codecs": {"http2": {"engine": engine, **(told or {})}},
        }
        self.gateway = MemoryGateway(self.config)
        self.origin: Any = Origin2(answers, said or {}, early) if behind == "http2" else Origin(*answers)  # type: ignore[arg-type]
        self.clients: list[Client] = []
        self.listen()

    def listen(self) -> None:
        """The origin is there."""
        self.gateway.reactor.listenTCP(PORT, self.origin, interface=HOST)

    def check(self) -> None:
        """All that the gateway has sent is right."""
        ends: list[End] = [*self.clients, *(end for end in self.origin.connections if isinstance(end, Served))]
        for end in ends:
            assert end.peer.faults == [], end.peer.faults
            for (before, _), (after, _) in pairwise(end.peer.goaways):
                assert after <= before, end.peer.goaways

    def client(self, said: Mapping[int, int] | None = None) -> Client:
        """Connected, and greeted."""
        client = Client(self, said or {})
        self.clients.append(client)
        self.gateway.reactor.connectTCP("127.0.0.1", 8080, _Once(client))
        self.run()
        return client

    def run(self) -> None:
        """Go on until all is quiet."""
        self.gateway.run()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.gateway.advance(seconds)

    def reply(self, *frames: bytes, which: int = -1) -> None:
        """The origin sends these on the connection of a request, by default the last."""
        self.asked[which].end.write(b"".join(frames))
        self.run()

    @property
    def asked(self) -> list[Asked]:
        """What the origin was asked."""
        found: list[Asked] = self.origin.asked
        return found

    @property
    def statuses(self) -> list[int]:
        """Of the records."""
        return [record.status for record in self.records]

    def links(self, side: str = "") -> list[Any]:
        """
        The connections of HTTP/2 that the gateway has.

        @param side: C{Server} or C{Client}; else all.
        """
        ends = [(end, wire) for link in self.gateway.reactor.net.links for end, wire in link.ends]
        found = [getattr(end, "_inner", end) for end, wire in ends if not wire.dead]  # of a listener with two protocols
        kinds = {"Server": (Server,), "Client": (Caller,)}.get(side, (Server, Caller))
        return [each for each in found if isinstance(each, kinds)]
